"""Programming assignments; checks, worker and grading run alone on Gradescope, with numpy."""
