"""Results and their files: a CSV table of the class, results.json for Gradescope, otter tests."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pprint import pformat
from string import Template
from typing import Any

from wherefrom.storage import make_folder, write_json, write_whole
from wherefrom.teaching.checks import CREDIT
from wherefrom.teaching.rubric import FOR_REVIEW, GROUPS, Rubric, RubricQuestion

TEMPLATES = Path(__file__).parent / "templates"
SPREADSHEET_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell that is run begins
MAX_NAME_CHARS = 60  # at most four bytes each; a file system takes 255 bytes


@dataclass(frozen=True)
class GradedAnswer:
    """A written answer, or one check of code, with its verdict and points."""

    question: RubricQuestion
    name: str
    points: float  # that can be earned
    verdict: str
    sentence: str
    share: float  # of the points
    comment: str = ""
    formulas: tuple[str, ...] = ()
    details: dict[str, Any] | None = None  # the checker's record
    is_hidden: bool = False  # until the grades are published

    @property
    def score(self) -> float:
        return self.points * self.share

    @property
    def needs_review(self) -> bool:
        """Whether a person should look at it."""
        return self.verdict in FOR_REVIEW

    def to_dict(self) -> dict[str, Any]:
        names = ("name", "points", "verdict", "sentence", "score", "comment", "details")
        record = {name: getattr(self, name) for name in names}
        question, formulas = self.question.id, list(self.formulas)
        return {"id": question, **record, "formulas": formulas, "review": self.needs_review}


@dataclass
class Result:
    """The graded answers of one submission."""

    submission: str
    student: str
    answers: list[GradedAnswer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    printed: str = ""  # by the code, on the handed-out cases
    unprotected: list[str] = field(default_factory=list)  # gaps of the sandbox

    @property
    def score(self) -> float:
        return round(sum(answer.score for answer in self.answers), 4)

    @property
    def points(self) -> float:
        return round(sum(answer.points for answer in self.answers), 4)

    def for_review(self) -> list[str]:
        """Ids of the questions that a person should look at."""
        return list(dict.fromkeys(a.question.id for a in self.answers if a.needs_review))

    def score_of(self, id_: str) -> float | None:
        """The points of one question; None if it was not asked."""
        scores = [answer.score for answer in self.answers if answer.question.id == id_]
        return round(sum(scores), 4) if scores else None

    def to_dict(self) -> dict[str, Any]:
        names = ("submission", "student", "score", "points", "notes", "unprotected")
        record = {name: getattr(self, name) for name in names}
        answers = [answer.to_dict() for answer in self.answers]
        return {**record, "review": self.for_review(), "answers": answers}


def write_results(results: Sequence[Result], out: Path) -> None:
    """Write OUT/grades.csv and a folder with results.json for each submission."""
    names = result_names(results)
    for result, name in zip(results, names, strict=True):
        write_json(make_folder(out / name) / "results.json", gradescope_record(result))
    write_whole(out / "grades.csv", to_csv(class_table(results)))


def result_names(results: Iterable[Result]) -> list[str]:
    """A name for the files of each result; no two are the same, even in lower case."""
    return unique_names(result.submission.removesuffix(".toml") for result in results)


def unique_names(texts: Iterable[str]) -> list[str]:
    """A name that is safe for a file for each text; no two are the same, even in lower case."""
    names: list[str] = []
    taken: set[str] = set()
    counts: dict[str, int] = {}  # lower-case name -> the last number that was put behind it
    for text in texts:
        text = unicodedata.normalize("NFC", text)  # some file systems do so themselves
        safe = re.sub(r"[^\w-]+", "_", text).strip("_")[:MAX_NAME_CHARS] or "submission"
        name, key = safe, safe.casefold()
        while name.casefold() in taken:
            counts[key] = counts.get(key, 1) + 1
            name = f"{safe}-{counts[key]}"
        taken.add(name.casefold())
        names.append(name)
    return names


def class_table(results: Sequence[Result]) -> list[list[str]]:
    """A row per submission, with its total and the points of each question; names come first."""
    asked = [answer.question.id for result in results for answer in result.answers]
    ids = list(dict.fromkeys(asked))
    rows = [["student", "results", "total", "of", *ids, "review", "notes"]]
    for result, name in zip(results, result_names(results), strict=True):
        scores = [result.score_of(id_) for id_ in ids]
        cells = ["" if score is None else f"{score:g}" for score in scores]
        totals = [f"{result.score:g}", f"{result.points:g}"]
        review, notes = " ".join(result.for_review()), " ".join(result.notes)
        rows.append([result.student, name, *totals, *cells, review, notes])
    return rows


def to_csv(rows: Iterable[Sequence[str]]) -> str:
    """Rows as CSV; cells that a spreadsheet would run as formulas are quoted."""
    text = io.StringIO()
    for row in rows:
        safe = ["'" + cell if cell.startswith(SPREADSHEET_FORMULA) else cell for cell in row]
        csv.writer(text, lineterminator="\n").writerow(safe)
    return text.getvalue()


def gradescope_record(result: Result) -> dict[str, Any]:
    """The results.json of one submission, in Gradescope's format."""
    shown = [answer for answer in result.answers if not answer.is_hidden]
    score, points = sum(a.score for a in shown), sum(a.points for a in shown)
    lines = [f"{score:g} of {points:g} points."]
    if len(shown) < len(result.answers):
        lines = [f"{score:g} of {points:g} points for the cases that you have; others come later."]
    if result.for_review():
        lines.append(f"A person should look at: {', '.join(result.for_review())}.")
    lines += [f"In the submission: {note}" for note in result.notes]
    if result.printed:
        lines.append(f"\nYour code printed (the end of it):\n{result.printed}")
    record: dict[str, Any] = {
        "output": "\n".join(lines),
        "output_format": "text",
        "stdout_visibility": "hidden",
        "tests": [gradescope_test(answer) for answer in result.answers],
        "extra_data": {
            "submission": result.submission,
            "student": result.student,
            "score": result.score,
            "notes": result.notes,
            "unprotected": result.unprotected,
        },
    }
    # a total would override the sum of the tests, so it is given only where there are none
    return record if result.answers else record | {"score": 0.0}


def gradescope_test(answer: GradedAnswer) -> dict[str, Any]:
    lines = [f"{answer.verdict}: {answer.sentence}" if answer.sentence else answer.verdict]
    lines += answer.formulas
    if answer.details:
        read = answer.details.get("read_as") or {}
        counterexample = answer.details.get("counterexample") or {}
        lines.append(f"read as: {', '.join(f'{name} = {text}' for name, text in read.items())}")
        if "sentence" in counterexample:
            lines.append(f"counterexample: {counterexample['sentence']}")
    return {
        "name": answer.name,
        "score": answer.score,
        "max_score": answer.points,
        "status": "passed" if answer.share == 1 else "failed",
        "output": "\n".join([*lines, answer.comment]).strip(),
        "output_format": "text",
        "visibility": "after_published" if answer.is_hidden else "visible",
        "tags": ["review"] if answer.needs_review else [],
    }


# ---- otter


def otter_tests(rubric: Rubric) -> dict[str, str]:
    """File name -> a test for otter-grader, of each question that a person need not read.

    A case of otter is passed or failed, so each share of the points that can be earned is a case.
    Students write answers["1b"] = "q = ..." for a formula.
    """
    files: dict[str, str] = {}
    questions = [question for question in rubric.questions if question.kind != "written"]
    names = unique_names(question.id for question in questions)
    for question, name in zip(questions, names, strict=True):
        keys = otter_checks(question, rubric)
        body = fill_template(
            "otter_question", name=name, question=pformat(asdict(question), sort_dicts=False)
        )
        number = 0
        for title, group in keys:
            for share, worth in share_steps(question):
                number += 1
                body += fill_template(
                    "otter_case",
                    number=number,
                    label=repr(f"{title} ({group} cases)" if title else question.id),
                    title=repr(title),
                    group=repr(group),
                    points=question.points * worth / len(keys),
                    hidden=group == "hidden",
                    share=share,
                )
        files[f"{name}.py"] = body
    return files


def otter_checks(question: RubricQuestion, rubric: Rubric) -> list[tuple[str, str]]:
    """(title, group) of the checks of a question; one without a title for a formula."""
    if question.kind == "formula":
        return [("", "")]
    cases = rubric.assignment
    return [
        (title, group)
        for group in GROUPS
        for title in cases[group]
        if title.split(":")[0] == question.part
    ]


def share_steps(question: RubricQuestion) -> list[tuple[float, float]]:
    """(share, what it is worth beyond the next smaller one) of all shares that can be earned."""
    words = ("passed", "failed") if question.kind == "code" else set(CREDIT) - {"passed", "failed"}
    credit = CREDIT | question.credit
    shares = {credit[word] for word in words}
    shares |= {reason.credit for reason in question.reasons if reason.credit is not None}
    steps, below = [], 0.0
    for share in sorted(shares - {0.0}):
        steps.append((share, share - below))
        below = share
    return steps


def fill_template(template: str, **values: object) -> str:
    return Template((TEMPLATES / f"{template}.txt").read_text("utf-8")).substitute(values)
