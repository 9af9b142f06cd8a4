"""A run opened for asking: questions in, verdicts out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.inflection import Ending
from wherefrom.corpus.matching import (
    QuestionMatcher,
    UnderstoodQuestion,
    kinds_of_answers,
    learn_near_words,
)
from wherefrom.corpus.questions import SLOT
from wherefrom.errors import UserError, checked, shorten
from wherefrom.provenance.audited import AuditRun, BaseRun, load_confidence, open_run
from wherefrom.provenance.confidence.fit import CALIBRATED
from wherefrom.provenance.evidence import Evidence, open_run_evidence
from wherefrom.provenance.verdicts import AskedRun, AskOptions, Verdict
from wherefrom.provenance.wording import NO_CALIBRATION, NO_TEXT
from wherefrom.training.learned_files import describe_changes, find_source, read_learned_questions
from wherefrom.training.record import read_record
from wherefrom.training.run_folder import Run

MAX_ROWS = 100_000  # questions that can be asked at once
SAMPLED_FACTS = 400  # facts of a relation that show its kind of answer and the words near them


@dataclass(frozen=True)
class AskedRow:
    """One question as it came.

    where: how an error about it begins ("people.tsv, line 3: "). correct_names: whether a misspelt
    name is corrected, as in questions that somebody types; a file means the names that it has.
    """

    question: str
    subject: str | None = None
    where: str = ""
    correct_names: bool = True


def as_rows(questions: Sequence[str]) -> list[AskedRow]:
    """Questions as somebody typed them; errors number them if there are several."""
    where = "question {}: " if len(questions) > 1 else ""
    return [
        AskedRow(question.strip(), where=where.format(number))
        for number, question in enumerate(questions, start=1)
    ]


def read_rows(
    lines: Iterable[tuple[int, str]], name: str, *, correct_names: bool = False
) -> list[AskedRow]:
    """Numbered lines of a TSV: question, answer (ignored), subject.

    Cells at the end of a line may be left out.
    """
    rows = []
    for number, line in lines:
        where = f"{name}, line {number}: "
        question, *others = [cell.strip() for cell in line.split("\t")]
        if len(others) > 2:
            raise UserError(
                f"{where}{1 + len(others)} columns came where question, answer and subject, "
                "separated by tabs, were expected."
            )
        subject = others[1] if len(others) == 2 else ""
        rows.append(AskedRow(question, subject or None, where, correct_names))
    return rows


def make_matcher(
    templates: Sequence[str], evidence: Evidence | None, endings: Sequence[Ending] = ()
) -> QuestionMatcher:
    """What understands questions about these relations, with the names and facts of the text."""
    if evidence is None:
        return QuestionMatcher(templates, lambda _: {}, endings=endings)
    facts = {template: evidence.sample_facts(template, SAMPLED_FACTS) for template in templates}
    places = {template: [fact[1:] for fact in some] for template, some in facts.items() if some}
    near_words = learn_near_words(places)
    return QuestionMatcher(
        templates,
        evidence.database.spell_names,
        answer_kinds={
            template: kinds_of_answers(answer for answer, *_ in some)
            for template, some in facts.items()
        },
        endings=endings,
        near_words=lambda template: near_words.get(template, {}),
        similar=lambda name: [line.subject for line in evidence.find_similar(name)],
        is_name_word=evidence.has_name_word,
        lines_about=evidence.lines_about,
    )


@dataclass(frozen=True, eq=False, repr=False)
class Asker(AskedRun, AbstractContextManager["Asker"]):
    """A run opened for asking; `notes` are sentences about what its verdicts lack."""

    notes: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @overload
    def ask(self, questions: str, **options: Any) -> Verdict: ...
    @overload
    def ask(self, questions: Sequence[str], **options: Any) -> list[Verdict]: ...
    @checked
    def ask(self, questions: str | Sequence[str], **options: Any) -> Verdict | list[Verdict]:
        """The verdict on the run's answer to a question, or to each of several, in order.

        One that cannot be asked is a UserError; among several it is a verdict with an `error`.
        """
        if not isinstance(questions, str):
            return self.ask_rows(as_rows(list(questions)), **options)
        (verdict,) = self.ask_rows(as_rows([questions]), **options)
        if verdict.error:
            raise UserError(verdict.error)
        return verdict

    def ask_rows(self, rows: Sequence[AskedRow], **options: Any) -> list[Verdict]:
        """A verdict for each row, which may name its subject.

        options: those of AskOptions.
        """
        how = checked(AskOptions)(**options)
        if len(rows) > MAX_ROWS:
            raise UserError(
                f"at most {MAX_ROWS:,} questions can be asked at once, and {len(rows):,} came; "
                "split them."
            )
        verdicts: dict[int, Verdict] = {}
        questions: list[str] = []
        subjects: list[str] = []
        lines: list[tuple[int, ...]] = []
        for i, row in enumerate(rows):
            try:
                understood = self.understand(
                    row.question, row.subject, correct_names=row.correct_names
                )
                questions.append(understood.text)
                subjects.append(understood.subject)
                lines.append(understood.lines)
            except UserError as problem:
                why = f"{row.where}{problem}"
                candidates = [one.text for one in getattr(problem, "candidates", ())]
                verdicts[i] = Verdict(
                    row.question, row.subject or "", why=why, error=why, did_you_mean=candidates
                )
        answered = [i for i in range(len(rows)) if i not in verdicts]
        with self._lock:
            found = self.give_verdicts(questions, subjects, how, lines)
        for i, verdict, picked in zip(answered, found, lines, strict=True):
            is_reworded = fold_words(verdict.question) != fold_words(rows[i].question)
            asked = rows[i].question if is_reworded else ""
            verdicts[i] = replace(verdict, asked=asked, lines=picked)
        return [verdicts[i] for i in range(len(rows))]

    @cached_property
    def matcher(self) -> QuestionMatcher:
        """What understands the questions of this run."""
        return make_matcher(self.run.templates, self.evidence, self.run.record.endings)

    def understand(
        self, question: str, subject: str | None = None, *, correct_names: bool = True
    ) -> UnderstoodQuestion:
        """The question as the model is asked it, with its subject; or a UserError."""
        understood = self.matcher.understand(question, subject, correct_names=correct_names)
        tokens, longest = self.run.measure(understood.text)
        if tokens > longest:
            raise UserError(
                f'"{shorten(understood.text)}" has {tokens} tokens and this model reads {longest}; '
                "ask a shorter question."
            )
        return understood

    def expand_names(self, rows: Sequence[AskedRow]) -> list[AskedRow]:
        """The rows, with a question for each relation in place of a name alone."""
        expanded = []
        for row in rows:
            name = "" if row.subject else self.matcher.find_bare_name(row.question)
            if not name:
                expanded.append(row)
                continue
            for relation in self.matcher.relations:
                question = relation.template.replace(SLOT, name)
                expanded.append(replace(row, question=question))
        return expanded

    def close(self) -> None:
        with self._lock:
            if self.evidence is not None:
                self.evidence.close()

    def __repr__(self) -> str:
        return f"<Asker {self.run.folder}>"

    def __exit__(self, *_: object) -> None:
        self.close()


def open_asker(
    source: Run | Asker | str | Path, *, say: Callable[[str], None] = lambda _: None
) -> Asker:
    """A run or an audit, loaded or not, opened for asking; an open one is returned as it is.

    The notes say what its verdicts lack; `say` is called with what had to be repaired.
    """
    if isinstance(source, Asker):
        return source
    run = open_run(source)
    is_audit = isinstance(run, AuditRun) and not isinstance(run, BaseRun)
    is_calibrated = is_audit or CALIBRATED in read_record(run.folder).files
    confidence = load_confidence(run) if is_calibrated else None
    evidence = open_run_evidence(run, say=say)
    notes = [] if evidence is not None else [NO_TEXT]
    for change in describe_changes(run):
        notes.append(change)
        say(change)
    if confidence is not None:
        known = confidence.signal_state.known_answers
        return Asker(run, evidence, confidence, known, tuple(notes))
    notes.append(NO_CALIBRATION)
    known = ()
    learned = find_source(run, "questions")
    try:
        questions = read_learned_questions(learned).questions if learned else ()
        known = tuple(dict.fromkeys(q.answer or "" for q in questions if not q.is_silent))
    except UserError as problem:
        notes.append(f"which other answers a line states is not known: {problem}")
    return Asker(run, evidence, None, known, tuple(notes))
