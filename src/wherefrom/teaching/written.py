"""Written answers: the checker's verdict on a formula, with care for what it cannot have read.

This is the only module of the package that imports the checker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wherefrom.attention.checker import check, find_problem
from wherefrom.errors import UserError

__all__ = ["CHECKER_FOLDERS", "CheckedFormula", "find_problem", "judge_formulas"]

# folders of the package that a check needs
CHECKER_FOLDERS = sorted({"attention", check.__module__.split(".")[1]})
MAX_UNEXPLAINED_WORDS = 2  # in an answer that is a formula and not prose
# words that stand beside a formula, or in one
FORMULA_WORDS = """
    a alpha an and any are as at beta big choose constant each enough every exp eye for from gamma
    goes grows infinity infty is large left let log matrix mu norm number of or outer positive
    right scalar sigma some sqrt such sum take tends text the then to top transpose very we where
    with
"""


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
    if result.verdict == "refuted" and is_prose(" ".join(formulas)):
        read = ", ".join(f"{name} = {text}" for name, text in result.read_as.items())
        sentence = f"the answer is written in words; of these only {read} was read as a formula."
        return CheckedFormula("not read", sentence)
    return CheckedFormula(result.verdict, result.because, result.to_dict())


def is_prose(text: str) -> bool:
    """Whether an answer has more words than stand beside a formula."""
    words = re.findall(r"(?<![\\\w])[A-Za-z]{2,}(?![\w(])", text)
    known = set(FORMULA_WORDS.split())
    unexplained = [word for word in words if word.lower() not in known]
    return len(unexplained) > MAX_UNEXPLAINED_WORDS
