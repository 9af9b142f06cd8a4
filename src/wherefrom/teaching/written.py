"""Written answers: the checker's verdict on a formula, with care for what it cannot have read.

This is the only module of the package that imports the checker.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wherefrom.checker import check, find_problem
from wherefrom.errors import UserError

__all__ = ["CHECKER_FOLDERS", "CheckedFormula", "find_problem", "judge_formulas"]

# folders of the package that a check needs
CHECKER_FOLDERS = sorted({"attention", check.__module__.split(".")[1]})


@dataclass(frozen=True)
class CheckedFormula:
    """A verdict with its sentence; `details` is the checker's record, if it read the answer."""

    verdict: str
    sentence: str
    details: dict[str, Any] | None = None


@lru_cache(maxsize=10_000)
def judge_formulas(
    problem: str, formulas: tuple[str, ...], tolerance: float | None, seed: int
) -> CheckedFormula:
    """Check a construction; what cannot be read is for a person to review, never refuted."""
    try:
        result = check(problem, formulas, tolerance=tolerance, seed=seed)
    except UserError as mistake:
        return CheckedFormula("not read", str(mistake))
    except Exception as error:  # one answer must not end the grading of a class
        failure = f"the checker failed on this answer ({type(error).__name__}); please report it."
        return CheckedFormula("not read", failure)
    return CheckedFormula(result.verdict, result.because, result.to_dict())
