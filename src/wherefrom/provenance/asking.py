"""A run opened for asking: model, twin, evidence and confidence loaded once, asked many times.

The command line opens one for a call, the page keeps one open. Questions go through in batches,
one caller at a time, and a question that cannot be asked is refused before any is computed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from wherefrom.corpus.questions import read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.asked_rows import AskedRow, as_rows, name_subjects
from wherefrom.provenance.confidence import CALIBRATED, Confidence, load_confidence
from wherefrom.provenance.evidence import EvidenceReader
from wherefrom.provenance.reasons import NO_TEXT
from wherefrom.provenance.run_evidence import open_run_evidence
from wherefrom.provenance.verdicts import NO_CALIBRATION, Verdict, give_verdicts
from wherefrom.training.run import Run, load_run

BATCH = 512  # questions that are computed together


@dataclass(frozen=True, eq=False)
class Asker:
    """A run with all that a verdict takes; `notes` are sentences about what is missing."""

    run: Run
    evidence: EvidenceReader | None
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


def open_asker(folder: str | Path, *, say: Callable[[str], None] = lambda _: None) -> Asker:
    """Load a run for asking; `say` is told what had to be mended.

    A run without documents or without a calibration can be asked, and the notes say what its
    verdicts lack. An index or a calibration that is there and does not fit is refused.
    """
    run = load_run(folder)
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
    """What the run was taught to answer, if the questions still lie where it read them."""
    record: Any = run.info.get("data", {})
    source = record.get("questions") if isinstance(record, dict) else None
    if not isinstance(source, dict) or not Path(str(source.get("path"))).is_file():
        return ()
    try:
        taught = read_questions(str(source["path"]), run.template)
    except UserError:
        return ()
    if taught.sha256 != source.get("sha256"):
        return ()
    return dict.fromkeys(question.answer or "" for question in taught.questions)
