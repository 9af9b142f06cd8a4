"""Questions: a TSV of question, answer and (optionally) subject, one per line.

The subject of a question is read off the wording that the questions of a file share ("Where was
{subject} born?"), or off a given template, or written in the third column; nothing here knows what
the questions ask for.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from wherefrom.corpus.documents import read_lines
from wherefrom.errors import UserError

SLOT = "{subject}"
LONGEST_QUESTION = 2_000
COLUMNS = ("question", "answer", "subject")
shared_start = os.path.commonprefix  # which compares any texts, character by character


@dataclass(frozen=True)
class Question:
    """One row: its line, the question, its subject, and the answer if the file has it."""

    line: int
    text: str
    subject: str
    answer: str | None


@dataclass(frozen=True)
class QuestionSet:
    """The questions of one file; `template` is None when every row names its subject."""

    path: Path
    sha256: str
    template: str | None
    questions: tuple[Question, ...]

    @property
    def answered(self) -> bool:
        return self.questions[0].answer is not None

    def require_answers(self) -> None:
        """Refuse a file without answers where there is something to learn or to score."""
        if not self.answered:
            raise UserError(
                f"{self.path}, line {self.questions[0].line}: an answer was expected after a tab, "
                "and the rows of this file have none."
            )


def read_questions(path: str | Path, template: str | None = None) -> QuestionSet:
    """Read a TSV; with no `template` and no third column the shared wording is inferred."""
    if template is not None:
        check_template(template)
    file = read_lines(path, "questions")
    rows = {}
    width = 0
    for number, line in file.lines:
        row = [cell.strip() for cell in line.split("\t")]
        width = width or len(row)
        problem = _find_problem(row, width)
        if problem:
            raise UserError(f"{file.path}, line {number}: {problem}")
        rows[number] = row
    if width == len(COLUMNS):
        template = None
    elif template is None:
        template = infer_template([row[0] for row in rows.values()], file.path)
    questions = []
    for number, row in rows.items():
        subject = row[2] if template is None else match_template(template, row[0])
        if subject is None:
            raise UserError(
                f'{file.path}, line {number}: "{_short(row[0])}" does not fit the template '
                f'"{template}"; give another with --template, or the subject in column three.'
            )
        answer = row[1] if width > 1 else None
        questions.append(Question(line=number, text=row[0], subject=subject, answer=answer))
    return QuestionSet(file.path, file.sha256, template, tuple(questions))


def _find_problem(row: list[str], width: int) -> str | None:
    """What is wrong with a row, where the file's first row has `width` columns."""
    columns = f"{len(row)} column{'s' if len(row) != 1 else ''}"
    if len(row) > len(COLUMNS):
        return f"{columns}; question, answer and subject, separated by tabs, were expected."
    for name, cell in zip(COLUMNS, row, strict=False):
        if not cell:
            return f"the {name} is empty."
    if len(row[0]) > LONGEST_QUESTION:
        return (
            f"a question may have {LONGEST_QUESTION:,} characters and this one has {len(row[0]):,}."
        )
    if len(row) != width:
        return (
            f"{columns} where the first row has {width}; give every row the same columns, "
            "separated by tabs."
        )
    return None


def check_template(template: str) -> None:
    """Refuse a template that does not have the slot exactly once, and words besides."""
    if template.count(SLOT) != 1 or not template.replace(SLOT, "").strip():
        raise UserError(
            f'a template holds {SLOT} once, with words around it, as in "Where was {SLOT} born?"; '
            f'"{_short(template)}" does not.'
        )


def match_template(template: str, question: str) -> str | None:
    """The subject of `question`, or None when it is not worded like the template."""
    before, after = template.split(SLOT)
    if not (question.startswith(before) and question.endswith(after)):
        return None
    subject = question[len(before) : len(question) - len(after)]
    return subject.strip() or None


def infer_template(questions: list[str], where: str | Path) -> str:
    """The wording that all questions share, with the subject's place marked.

    Prefix and suffix are cut back to whole words, since subjects may share letters, and then to
    words without a capital, since subjects may share a name ("Where was Anna {subject} born?").
    """
    distinct = sorted(set(questions))
    if len(distinct) > 1:
        before = shared_start(distinct)
        after = shared_start([question[::-1] for question in distinct])[::-1]
        before = before[: before.rfind(" ") + 1]
        while after and after[0].isalnum():
            after = after[1:]
        while (word := re.search(r" (\S+ )$", before)) and word[1][0].isupper():
            before = before[: word.start(1)]
        while (word := re.match(r" \S+(?= )", after)) and word[0][1].isupper():
            after = after[word.end() :]
        template = before + SLOT + after
        fits = all(match_template(template, question) for question in distinct)
        if re.search(r"\w", before + after) and fits:
            return template
    raise UserError(
        f"{where}: the questions share no wording that shows the subject of each; give it with "
        f'--template "Where was {SLOT} born?" or name the subject in a third column.'
    )


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
