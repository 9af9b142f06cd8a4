"""Many answers at once, for a course: a file of answers in, points out.

The file is TOML, one `[[answer]]` per question:

    [[answer]]
    id = "1b"
    problem = "average"
    points = 4
    q = "beta*(k_a+k_b)"

Every key that is not one of id, problem, points, tolerance and student is a formula. A student
should not set the points, so a course keeps them in a rubric of its own: the same file without
formulas. With a rubric, problem, points and tolerance come from there, and an answer that is
missing gets none.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wherefrom.attention.checker.check import check
from wherefrom.attention.checker.problems import CheckResult, find_problem
from wherefrom.errors import UserError

MAX_BYTES = 1_000_000
MAX_ANSWERS = 500
FIELDS = ("id", "problem", "points", "tolerance", "student")


@dataclass(frozen=True)
class Answer:
    """One question as it stands in the file; `formulas` are texts such as "q=beta*k_j"."""

    id: str
    problem: str
    points: float = 1.0
    tolerance: float | None = None
    student: str = ""
    formulas: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graded:
    """One answer with its verdict, or with the sentence that says why there is none."""

    answer: Answer
    result: CheckResult | None
    sentence: str

    @property
    def word(self) -> str:
        if self.result is not None:
            return self.result.verdict
        return "not writable" if self.answer.formulas else "no answer"

    @property
    def passed(self) -> bool:
        return self.result is not None and self.result.passed

    @property
    def score(self) -> float:
        return self.answer.points if self.passed else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.answer.id,
            "student": self.answer.student,
            "problem": self.answer.problem,
            "formulas": list(self.answer.formulas),
            "verdict": self.word,
            "sentence": self.sentence,
            "score": self.score,
            "max_score": self.answer.points,
            "details": self.result.to_dict() if self.result is not None else None,
        }


def read_answers(text: str, *, source: str = "the file") -> list[Answer]:
    """The answers of a file, or one sentence about what is wrong with it."""
    if len(text) > MAX_BYTES:
        raise UserError(f"{source} is too long for a file of answers ({len(text):,} characters).")
    try:
        record = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise UserError(f"{source} is not valid TOML: {problem}.") from None
    unknown = sorted(set(record) - {"answer", "title"})
    if unknown:
        raise UserError(f'{source} has "{unknown[0]}"; only title and [[answer]] are known.')
    rows = record.get("answer", [])
    if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
        raise UserError(f"{source} has no [[answer]].")
    if len(rows) > MAX_ANSWERS:
        raise UserError(f"{source} has {len(rows)} answers; {MAX_ANSWERS} are allowed.")
    answers = [_answer(row, f"{source}, answer {i}") for i, row in enumerate(rows, start=1)]
    seen: set[tuple[str, str]] = set()
    for answer in answers:
        if (answer.student, answer.id) in seen:
            raise UserError(f'{source} has two answers with the id "{answer.id}".')
        seen.add((answer.student, answer.id))
    return answers


def _answer(row: Mapping[str, Any], where: str) -> Answer:
    for name in ("id", "problem"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise UserError(f'{where} needs {name} = "...".')
    problem = find_problem(row["problem"])
    points, tolerance = row.get("points", 1.0), row.get("tolerance")
    if isinstance(points, bool) or not isinstance(points, int | float) or not 0 <= points <= 1000:
        raise UserError(f"{where}: points must be a number from 0 to 1000, not {points!r}.")
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float | None):
        raise UserError(f"{where}: tolerance must be a number, not {tolerance!r}.")
    formulas = {name: formula for name, formula in row.items() if name not in FIELDS}
    for name, formula in formulas.items():
        if not isinstance(formula, str):
            raise UserError(f'{where}: {name} must be a formula in quotes, as in {name} = "...".')
    return Answer(
        id=row["id"].strip(),
        problem=problem.name,
        points=float(points),
        tolerance=None if tolerance is None else float(tolerance),
        student=str(row.get("student", "")),
        formulas=tuple(f"{name}={formula}" for name, formula in formulas.items()),
    )


def apply_rubric(answers: Sequence[Answer], rubric: Sequence[Answer]) -> list[Answer]:
    """The rubric's questions with the student's formulas; nothing else of the student's counts."""
    given = {(answer.student, answer.id): answer.formulas for answer in answers}
    asked = {question.id for question in rubric}
    extra = sorted({answer.id for answer in answers} - asked)
    if extra:
        raise UserError(f'the rubric does not ask for "{extra[0]}"; it asks for {sorted(asked)}.')
    return [
        replace(question, student=student, formulas=given.get((student, question.id), ()))
        for student in sorted({answer.student for answer in answers}) or [""]
        for question in rubric
    ]


def grade(answers: Sequence[Answer], *, seed: int = 0) -> list[Graded]:
    """Check every answer; one that may not be written costs its own points and no others."""
    graded = []
    for answer in answers:
        result, sentence = None, "there is no answer to this question."
        if answer.formulas:
            try:
                result = check(
                    answer.problem, answer.formulas, tolerance=answer.tolerance, seed=seed
                )
                sentence = result.because
            except UserError as mistake:
                sentence = str(mistake)
        graded.append(Graded(answer, result, sentence))
    return graded


def gradescope(graded: Sequence[Graded]) -> dict[str, Any]:
    """The record that Gradescope reads from results.json."""
    total = sum(item.score for item in graded)
    most = sum(item.answer.points for item in graded)
    unclear = [item.answer.id for item in graded if item.word == "inconclusive"]
    output = f"{total:g} of {most:g} points."
    if unclear:
        output += f" A person should look at: {', '.join(unclear)}."
    tests = []
    for item in graded:
        who = f"{item.answer.student}: " if item.answer.student else ""
        lines = [f"{item.word}: {item.sentence}", *item.answer.formulas]
        if item.result is not None and item.result.counterexample is not None:
            lines.append(f"counterexample: {item.result.counterexample.sentence}")
        tests.append(
            {
                "name": f"{who}{item.answer.id} ({item.answer.problem})",
                "score": item.score,
                "max_score": item.answer.points,
                "status": "passed" if item.passed else "failed",
                "output": "\n".join(lines),
                "output_format": "text",
                "visibility": "visible",
            }
        )
    return {"output": output, "output_format": "text", "tests": tests}
