"""The inside of the checker; `wherefrom.attention.claims` is its door.

Reading order: shapes, numeric and the exact_* modules are three meanings of one formula;
instances draws what a formula is tried on; the judge_* modules, one for each family of problems,
turn all of that into a verdict.
"""
