"""Programming assignments: what students get, what teachers keep, and how code is graded.

The modules that grade (checks, sandbox, worker, grading) need numpy and nothing of this package
but errors and storage, so that they run alone on Gradescope.
"""
