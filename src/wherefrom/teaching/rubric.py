"""The rubric: questions with their points, for written answers and for code, in one TOML file.

A question of kind "formula" is judged by the checker, one of kind "written" is prose for a person
to read, and one of kind "code" is a part of the programming assignment. docs/teaching.md has the
format.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field, ValidationError

from wherefrom.errors import UserError, did_you_mean
from wherefrom.storage import read_json
from wherefrom.teaching.checks import CREDIT, PARTS, decode, earned_share, part_of

MAX_FILE_BYTES = 250_000
MAX_QUESTIONS = 500
MAX_DOTS = 200  # in a line: the time to read a key with dots grows with the square of their number
GROUPS = ("handed out", "hidden")  # of the cases of an assignment
FOR_REVIEW = ("inconclusive", "not read", "written")  # a person should look at these
Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
STRICT = pydantic.ConfigDict(extra="forbid")


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Reason:
    """A share of the points, and a comment, for answers whose sentence contains a text."""

    contains: Annotated[str, Field(min_length=1)]
    credit: Share | None = None
    comment: str | None = None


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class RubricQuestion:
    """One question of a rubric."""

    id: Annotated[str, Field(min_length=1, max_length=100)]
    kind: Literal["formula", "written", "code"] = "formula"
    problem: str = ""  # the checker's problem, or the part of the assignment; "" is the id
    points: Annotated[Number, Field(ge=0, le=1000)] = 1.0
    tolerance: Number | None = None
    credit: dict[str, Share] = Field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    comment: str = ""
    show: tuple[str, ...] = ()  # a construction whose figures stand beside prose

    @property
    def part(self) -> str:
        """The part of the assignment that a question of kind "code" asks for."""
        return self.problem or self.id

    def judge(self, verdict: str, sentence: str) -> tuple[float, str]:
        """(share of the points, comment) of an answer with this verdict and sentence."""
        reasons = [asdict(reason) for reason in self.reasons]
        share, comment = earned_share(verdict, sentence, self.credit, reasons)
        return share, self.comment if comment is None else comment


QUESTION_FIELDS = set(RubricQuestion.__annotations__)


@dataclass(frozen=True)
class Rubric:
    """The questions, and the cases of the programming assignment if a question needs them."""

    questions: tuple[RubricQuestion, ...]
    assignment: Mapping[str, Any] = field(default_factory=dict)

    def of_kind(self, kind: str) -> list[RubricQuestion]:
        return [question for question in self.questions if question.kind == kind]


def read_rubric(path: Path) -> Rubric:
    """The rubric of a TOML file, or of the folder that holds one as rubric.toml."""
    path = path / "rubric.toml" if path.is_dir() else path
    text = read_text_file(path)
    try:
        return parse_rubric(text, path.parent)
    except UserError as mistake:
        raise UserError(f"{path}: {mistake}") from None


def read_text_file(path: Path) -> str:
    """The text of a rubric's file."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{path} is too large for a rubric.")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError as problem:
        raise UserError(f"{path} is not text in UTF-8 (byte {problem.start + 1}).") from None


def parse_rubric(text: str, folder: Path | None) -> Rubric:
    """The rubric of a TOML text, with the assignment that it names in `folder`, if one is given."""
    record = parse_toml(text)
    for name in set(record) - {"title", "assignment", "answer"}:
        raise UserError(f'it has "{name}"; only title, assignment and [[answer]] are known.')
    rows = answer_rows(record)
    questions = tuple(
        make_question(row, f"answer {number}") for number, row in enumerate(rows, start=1)
    )
    ids = [question.id for question in questions]
    for id_ in ids:
        if ids.count(id_) > 1:
            raise UserError(f'there are two answers with the id "{id_}".')
    assignment: Mapping[str, Any] = {}
    parts = [question.part for question in questions if question.kind == "code"]
    if parts and folder is not None:
        if not isinstance(record.get("assignment"), str):
            raise UserError('questions of kind "code" need assignment = "assignment.json".')
        assignment = read_assignment(folder / record["assignment"], parts)
    return Rubric(questions, assignment)


def answer_rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tables [[answer]] of a file."""
    rows = record.get("answer")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError("it has no [[answer]].")
    if len(rows) > MAX_QUESTIONS:
        raise UserError(f"it has {len(rows)} answers; {MAX_QUESTIONS} are allowed.")
    return rows


def make_question(row: Mapping[str, Any], where: str) -> RubricQuestion:
    """The question of a table [[answer]] of a rubric."""
    try:
        question = RubricQuestion(**row)
    except ValidationError as problem:
        first = problem.errors()[0]
        name, message = ".".join(map(str, first["loc"])), first["msg"]
        if first["type"] == "unexpected_keyword_argument":
            message = f"not known.{did_you_mean(name, QUESTION_FIELDS)}".rstrip(".")
        raise UserError(f"{where}: {name} is wrong ({message[:1].lower()}{message[1:]}).") from None
    for word in set(question.credit) - set(CREDIT):
        raise UserError(f'{where}: there is no verdict "{word}".{did_you_mean(word, CREDIT)}')
    if question.kind == "formula" and not question.problem:
        raise UserError(f'{where} needs problem = "...".')
    if question.kind == "code" and question.part not in PARTS:
        known = did_you_mean(question.part, PARTS)
        raise UserError(f'{where}: the assignment has no part "{question.part}".{known}')
    if question.kind != "code" and question.problem:
        from wherefrom.teaching.written import find_problem  # code alone needs no checker

        find_problem(question.problem)
    return question


def read_assignment(path: Path, parts: list[str]) -> Mapping[str, Any]:
    """The assignment.json of a teacher's folder: adapters and cases, with cases for these parts."""
    record = decode(read_json(path))
    if not isinstance(record, dict) or not {"adapters", *GROUPS} <= set(record):
        raise UserError(f"{path} is not the assignment.json of a teacher's folder.")
    known = {part_of(title) for title in record["hidden"]}
    for part in parts:
        if part not in known:
            raise UserError(f'{path} has no cases for the part "{part}".')
    return record


# ---- TOML, as people write it

# a comment, a literal string, or a string in which a backslash is an escape
TOML_PIECE = re.compile(
    r"""#[^\n]*|\'{3}.*?\'{3}|'[^'\n]*'|\"{3}(?:[^\\]|\\.)*?\"{3}|"(?:[^"\\\n]|\\.)*\"""", re.DOTALL
)
BACKSLASH = re.compile(r'\\[\\"]|(\\[^\\"])')


def parse_toml(text: str) -> dict[str, Any]:
    """A TOML text in which a backslash in quotes is a backslash, as in "\\beta".

    One that is doubled already, or stands before a quote, means what it means in TOML.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > MAX_DOTS:
            raise UserError(f"line {number} has too many dots.")

    def double_in_string(found: re.Match[str]) -> str:
        if not found[0].startswith('"'):
            return found[0]
        return BACKSLASH.sub(lambda part: "\\" + part[0] if part[1] else part[0], found[0])

    try:
        return tomllib.loads(TOML_PIECE.sub(double_in_string, text))
    except (ValueError, RecursionError) as problem:
        raise UserError(f"it is not valid TOML: {problem}.") from None
