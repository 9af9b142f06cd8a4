"""Questions: a TSV of question, answer and (if need be) subject, one a line.

Whom a question is about is read off the wording that the questions of a file share
("Where was {subject} born?"), given as a template, or written in the third column; nothing here
knows what the questions ask for.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from wherefrom.corpus.documents import TextFile, read_lines
from wherefrom.errors import UserError

SLOT = "{subject}"
LONGEST_QUESTION = 2_000


@dataclass(frozen=True)
class Question:
    """One row: its line, the question, whom it is about, and the answer if the file has it."""

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

    def without(self, subjects: Collection[str]) -> QuestionSet:
        """The questions about everybody else; `sha256` stays that of the file."""
        gone = set(subjects)
        kept = tuple(q for q in self.questions if q.subject not in gone)
        if not kept:
            raise UserError(f"{self.path}: no question is left, since everybody is left out of it.")
        return replace(self, questions=kept)


def read_questions(path: str | Path, template: str | None = None) -> QuestionSet:
    """Read a TSV; with no `template` and no third column the shared wording is inferred."""
    if template is not None:
        check_template(template)
    file = read_lines(path, "questions")
    rows = [(number, _split_row(file, number, line)) for number, line in file.lines]
    width = len(rows[0][1])
    for number, row in rows:
        if len(row) != width:
            raise UserError(
                f"{file.path}, line {number}: {_columns(len(row))} where the first row "
                f"has {width}; give every row the same columns, separated by tabs."
            )
    named = width == 3
    if not named and template is None:
        template = infer_template([row[0] for _, row in rows], file.path)
    questions = []
    for number, row in rows:
        if named:
            subject = row[2]
        else:
            assert template is not None
            found = match_template(template, row[0])
            if found is None:
                raise UserError(
                    f'{file.path}, line {number}: "{_short(row[0])}" does not fit the template '
                    f'"{template}"; give another with --template, or the subject in column three.'
                )
            subject = found
        answer = row[1] if width > 1 else None
        questions.append(Question(line=number, text=row[0], subject=subject, answer=answer))
    return QuestionSet(
        path=file.path,
        sha256=file.sha256,
        template=None if named else template,
        questions=tuple(questions),
    )


def check_template(template: str) -> None:
    """A template names its subject once and says something besides."""
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
        before = _shared_start(distinct)
        after = _shared_start([question[::-1] for question in distinct])[::-1]
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
        f"{where}: the questions share no wording that shows whom each is about; give it with "
        f'--template "Where was {SLOT} born?" or name the subject in a third column.'
    )


def _split_row(file: TextFile, number: int, line: str) -> list[str]:
    row = [cell.strip() for cell in line.split("\t")]
    if len(row) > 3:
        raise UserError(
            f"{file.path}, line {number}: {_columns(len(row))}; question, answer and subject, "
            "separated by tabs, were expected."
        )
    names = ("question", "answer", "subject")
    for name, cell in zip(names, row, strict=False):
        if not cell:
            raise UserError(f"{file.path}, line {number}: the {name} is empty.")
    if len(row[0]) > LONGEST_QUESTION:
        raise UserError(
            f"{file.path}, line {number}: a question may have {LONGEST_QUESTION:,} characters "
            f"and this one has {len(row[0]):,}."
        )
    return row


def _shared_start(texts: list[str]) -> str:
    low, high = min(texts), max(texts)  # in the alphabet; what these share, all share
    length = next(
        (i for i, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1]), len(low)
    )
    return low[:length]


def _columns(count: int) -> str:
    return f"{count} column{'s' if count != 1 else ''}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
