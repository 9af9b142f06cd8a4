"""A run opened for asking: questions in, verdicts out."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import LONGEST_QUESTION, SLOT, match_template
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.fit import CALIBRATED, Confidence, load_confidence
from wherefrom.provenance.evidence.index import Evidence, open_run_evidence
from wherefrom.provenance.verdicts import (
    NO_CALIBRATION,
    NO_TEXT,
    SHOWN,
    Verdict,
    give_verdicts,
    shorten,
)
from wherefrom.training.run_folder import Run, find_source, load_run, read_learned_questions

MOST_ROWS = 100_000
_MARKS = "?!.,;: "


@dataclass(frozen=True)
class AskedRow:
    """One question as it came; `where` begins a sentence about it ("people.tsv, line 3: ")."""

    question: str
    subject: str | None = None  # where a column names it
    answer: str | None = None  # of another model, to be judged
    log_probability: float | None = None  # which that model gave it
    where: str = ""


def as_rows(questions: Sequence[str]) -> list[AskedRow]:
    """Questions as somebody typed them; several are numbered."""
    many = len(questions) > 1
    return [
        AskedRow(question.strip(), where=f"question {at}: " if many else "")
        for at, question in enumerate(questions, start=1)
    ]


def read_question_rows(lines: Iterable[tuple[int, str]], name: str) -> list[AskedRow]:
    """Rows of question, answer (not looked at) and subject; the last two may be left out."""
    rows = []
    for where, cells in _cells(lines, name, most=3, columns="question, answer and subject"):
        subject = cells[2] if len(cells) > 2 else None
        rows.append(AskedRow(cells[0], subject=subject or None, where=where))
    return rows


def read_answer_rows(lines: Iterable[tuple[int, str]], name: str) -> list[AskedRow]:
    """Rows of question and another model's answer, with log-probability and subject if need be."""
    columns = "question, answer, log-probability and subject"
    rows = []
    for where, cells in _cells(lines, name, most=4, columns=columns):
        if len(cells) < 2 or not cells[1]:
            raise UserError(f"{where}an answer to judge was expected after a tab, and none came.")
        rows.append(
            AskedRow(
                cells[0],
                subject=(cells[3] or None) if len(cells) > 3 else None,
                answer=cells[1],
                log_probability=_log_probability(cells[2], where) if len(cells) > 2 else None,
                where=where,
            )
        )
    return rows


def name_subjects(run: Run, rows: Sequence[AskedRow]) -> list[str]:
    """Whom each row is about, or the first thing that is wrong with any of them."""
    if len(rows) > MOST_ROWS:
        raise UserError(
            f"at most {MOST_ROWS:,} questions can be asked at once, and {len(rows):,} came; split "
            "them."
        )
    for row in rows:
        _check_text(row, run.template)
    subjects = [_subject_of(row, run.template) for row in rows]
    longest = run.model.config.longest_input
    for row, subject in zip(rows, subjects, strict=True):
        if not fold_words(subject):
            raise UserError(
                f'{row.where}a name needs at least one letter or digit, and "{shorten(subject)}" '
                "has none."
            )
        tokens = len(run.tokens.encode(row.question)) + 1
        if tokens > longest:
            raise UserError(
                f'{row.where}"{shorten(row.question)}" has {tokens} tokens and this model reads '
                f"{longest}; ask a shorter question."
            )
    return subjects


def _check_text(row: AskedRow, template: str | None) -> None:
    example = f', as in "{template}"' if template else ""
    if not row.question.strip():
        raise UserError(f"{row.where}the question is empty; write one{example}.")
    for text in (row.question, row.answer or "", row.subject or ""):
        if len(text) > LONGEST_QUESTION:
            raise UserError(
                f"{row.where}a question may have {LONGEST_QUESTION:,} characters, and so may an "
                f'answer; "{shorten(text)}" has {len(text):,}.'
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                f"{row.where}{text[:SHOWN]!a} is not Unicode text; write it as UTF-8."
            ) from None


def _subject_of(row: AskedRow, template: str | None) -> str:
    if row.subject is not None:
        return row.subject
    question = row.question
    if template is None:
        raise UserError(
            f'{row.where}whom "{shorten(question)}" is about cannot be told, since the questions '
            "that this run was taught share no wording; give a TSV with the subject in a column "
            "of its own."
        )
    subject = match_template(template, question)
    if subject is None:
        raise UserError(
            f'{row.where}"{shorten(question)}" is not worded like "{template}"; '
            f"{_rewording(template, question)}."
        )
    return subject


def _rewording(template: str, question: str) -> str:
    """What to write instead: the template, filled with what is not template in their words."""
    own = {word.strip(_MARKS).casefold() for word in template.replace(SLOT, " ").split()}
    words = question.strip(_MARKS).split()
    while words and words[0].strip(_MARKS).casefold() in own:
        words.pop(0)
    while words and words[-1].strip(_MARKS).casefold() in own:
        words.pop()
    name = shorten(" ".join(words).strip(_MARKS))
    inside = {word.strip(_MARKS).casefold() for word in words}
    if not name or own & inside or "?" in name:
        return f"write it so, with a name for {SLOT}"
    return f'write "{template.replace(SLOT, name)}"'


def _cells(
    lines: Iterable[tuple[int, str]], name: str, *, most: int, columns: str
) -> Iterable[tuple[str, list[str]]]:
    for at, (number, line) in enumerate(lines):
        if at == MOST_ROWS:
            raise UserError(
                f"{name}: at most {MOST_ROWS:,} questions can be asked at once, and there are more."
            )
        cells = [cell.strip() for cell in line.split("\t")]
        where = f"{name}, line {number}: "
        if len(cells) > most:
            raise UserError(
                f"{where}{len(cells)} columns came where {columns}, separated by tabs, were "
                "expected."
            )
        yield where, cells


def _log_probability(cell: str, where: str) -> float | None:
    if not cell:
        return None
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not -1e9 < value <= 1e-6:
        raise UserError(
            f'{where}a log-probability is a number that is not above 0, and "{shorten(cell)}" is '
            "none; leave the cell empty if there is none."
        )
    return min(value, 0.0)


BATCH = 512  # questions that are computed together


@dataclass(frozen=True, eq=False)
class Asker:
    """A run with all that a verdict takes; `notes` are sentences about what is missing."""

    run: Run
    evidence: Evidence | None
    confidence: Confidence | None
    known_answers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def ask(
        self,
        questions: Sequence[str],
        *,
        always_answer: bool = False,
        risk: float | None = None,
        all_signals: bool = False,
    ) -> list[Verdict]:
        """A verdict on the run's answer to each question, in order."""
        rows = as_rows(questions)
        return self.ask_rows(rows, always_answer=always_answer, risk=risk, all_signals=all_signals)

    def check(self, question: str) -> str:
        """Whom a question is about, or a UserError that says why it cannot be asked."""
        return name_subjects(self.run, as_rows([question]))[0]

    def ask_rows(
        self,
        rows: Sequence[AskedRow],
        *,
        always_answer: bool = False,
        risk: float | None = None,
        all_signals: bool = False,
        report: Callable[[int], None] | None = None,
    ) -> list[Verdict]:
        """The same for rows that may name their subject or bring an answer of another model.

        Verdicts have the signals that their confidence takes, or all there are, which takes
        several times as long. `report` is told how many more are done.
        """
        if risk is not None and not 0 < risk < 1:
            raise UserError(f"the risk must lie between 0 and 1, as 0.05 for 5 %; {risk:g} is not.")
        subjects = name_subjects(self.run, rows)
        brought = {row.answer is not None for row in rows}
        if len(brought) > 1:
            raise UserError("either all rows bring an answer to judge, or none does.")
        verdicts: list[Verdict] = []
        for at in range(0, len(rows), BATCH):
            some = rows[at : at + BATCH]
            answers = [row.answer or "" for row in some] if True in brought else None
            with self._turn:
                verdicts += give_verdicts(
                    self.run,
                    self.confidence,
                    self.evidence,
                    [row.question for row in some],
                    subjects[at : at + BATCH],
                    always_answer=always_answer,
                    risk=risk,
                    answers=answers,
                    known_answers=self.known_answers,
                    also=None if all_signals else (),
                )
            if report is not None:
                report(len(some))
        return verdicts

    def close(self) -> None:
        with self._turn:
            if self.evidence is not None:
                self.evidence.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_asker(run: Run | str | Path, *, say: Callable[[str], None] = lambda _: None) -> Asker:
    """Load a run for asking; `say` is told what had to be mended.

    A run without documents or without a calibration can be asked, and the notes say what its
    verdicts lack. An index or a calibration that is there and does not fit is refused.
    """
    run = load_run(run) if isinstance(run, str | Path) else run
    confidence = load_confidence(run) if (run.folder / CALIBRATED).exists() else None
    evidence = open_run_evidence(run, say=say)
    notes = []
    if evidence is None:
        notes.append(NO_TEXT)
    if confidence is None:
        notes.append(NO_CALIBRATION)
    known = _known_answers(run) if confidence is None else confidence.reader.known_answers
    return Asker(run, evidence, confidence, tuple(known), tuple(notes))


def _known_answers(run: Run) -> Iterable[str]:
    """What the run was taught to answer, if its questions can still be found."""
    asked = find_source(run, "questions")
    try:
        learned = read_learned_questions(asked).questions if asked else ()
    except UserError:
        return ()
    return dict.fromkeys(question.answer or "" for question in learned)
