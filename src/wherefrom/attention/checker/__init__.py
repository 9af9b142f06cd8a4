"""The checker: is a written construction proved, does it hold, is it refuted?

`check.check` is the call. Reading order: language, shapes, numeric and the exact_* modules are
meanings of one formula; instances draws what a formula is tried on; the judge_* modules, one for
each family of problems, turn all of that into a CheckResult.
"""
