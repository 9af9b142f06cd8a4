"""The table of answers in a run's database: one row for each question and who answers it.

The model, the baselines and the reader answer the dev questions. The model's answers to the judged
questions have verdicts, probabilities and signals. An audit also keeps what it read beside each
answer of the model that others trained.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wherefrom.corpus.database import RUN_DATABASE, Database
from wherefrom.corpus.questions import QuestionSet
from wherefrom.corpus.split import JUDGED, HeldOutQuestion
from wherefrom.training.record import RunRecord, check_file, update_database

MODEL = "model"  # who answers
# columns that every answer has; all others are those of judged questions, and signals
COMMON = [
    *("id", "question", "answered_by", "template", "subject", "truth", "answer", "is_right"),
    *("line", "record"),
]
COLUMNS = {"answer": "truth", "said": "answer", "right": "is_right"}  # of judged rows
FLAGS = (
    *("right", "seen", "shown", "shown_internal"),
    *("stated", "in_text", "states_truth", "reads_any"),
)
Row = dict[str, Any]


def write_dev_answers(
    folder: Path, asked: QuestionSet, answers: Mapping[str, Sequence[str]], **details: Any
) -> RunRecord:
    """Replace the answers to the dev questions, by who answers; `details` are those of run.json.

    A question that stands in the file twice has one row.
    """
    rows = []
    for answered_by, column in answers.items():
        for question, answer in zip(asked.questions, column, strict=True):
            truth = question.answer or ""
            rows.append(
                {
                    "question": question.text,
                    "answered_by": answered_by,
                    "template": question.template,
                    "subject": question.subject,
                    "truth": question.answer,
                    "answer": answer,
                    "is_right": None if question.is_silent else answer.strip() == truth.strip(),
                    "line": question.line,
                }
            )

    def replace_dev(database: Database) -> None:
        database.write_answers(rows, clear=["line"])

    return update_database(folder, replace_dev, **details)


def write_judged(folder: Path, judged: Iterable[Row]) -> RunRecord:
    """Replace the verdicts, probabilities and signals of the judged questions."""
    rows = []
    for one in judged:
        row = {COLUMNS.get(name, name): value for name, value in one.items() if name != "role"}
        rows.append({**row, "answered_by": MODEL})

    def replace_judged(database: Database) -> None:
        clear = [name for name in database.columns if name not in COMMON]
        database.write_answers(rows, clear=clear)

    return update_database(folder, replace_judged)


def read_judged(folder: Path, record: RunRecord | None = None) -> list[Row]:
    """The judged questions with the model's answers, as `judging.ask_subjects` returns them."""
    fields = {column: name for name, column in COLUMNS.items()}
    judged = []
    for answer in _read(folder, "verdict", record):
        row = {fields.get(column, column): value for column, value in answer.items()}
        judged.append({**row, **{name: bool(row[name]) for name in FLAGS}, "role": JUDGED})
    return judged


def read_dev_answers(folder: Path, record: RunRecord | None = None) -> dict[str, dict[str, Row]]:
    """The answers to the dev questions: by who answers, then by question."""
    answers: dict[str, dict[str, Row]] = {}
    for row in _read(folder, "line", record):
        answers.setdefault(row["answered_by"], {})[row["question"]] = row
    return answers


def add_audited(
    database: Database,
    records: Iterable[Row],
    subjects: Mapping[str, HeldOutQuestion],
    grade: Callable[[str, str | None], bool],
) -> None:
    """Add answers of an audited model, which are all kept or none; subjects: by question."""
    rows = []
    for record in records:
        subject = subjects[record["question"]]
        rows.append(
            {
                "question": subject.question,
                "answered_by": MODEL,
                "template": subject.template,
                "subject": subject.subject,
                "truth": subject.answer,
                "answer": record["answer"],
                "is_right": grade(record["answer"], subject.answer),
                "record": json.dumps(record, ensure_ascii=False, allow_nan=False),
            }
        )
    database.write_answers(rows)


def read_audited(folder: Path) -> list[Row]:
    """What an audit has kept of the answers so far."""
    if not (folder / RUN_DATABASE).is_file():
        return []
    with Database.open(folder / RUN_DATABASE) as database:
        return [json.loads(row["record"]) for row in database.answers("record")]


def _read(folder: Path, having: str, record: RunRecord | None) -> list[Row]:
    """Rows of a database that is as the run wrote it; none if there is no database."""
    if not (folder / RUN_DATABASE).is_file():
        return []
    with Database.open(check_file(folder, RUN_DATABASE, record)) as database:
        return database.answers(having)
