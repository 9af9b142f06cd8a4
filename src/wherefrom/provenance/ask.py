"""A run opened for asking: questions in, verdicts out."""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from wherefrom.corpus.folding import find_phrase, fold_words, split_words
from wherefrom.corpus.inflection import base_forms
from wherefrom.corpus.questions import LONGEST_QUESTION, SLOT, find_named_subject
from wherefrom.errors import UserError, checked
from wherefrom.provenance.audited import AuditRun, load_confidence, open_run
from wherefrom.provenance.confidence.fit import CALIBRATED
from wherefrom.provenance.evidence import open_run_evidence
from wherefrom.provenance.verdicts import AskedRun, AskOptions, Verdict
from wherefrom.provenance.wording import NO_CALIBRATION, NO_TEXT, shorten
from wherefrom.training.record import read_record
from wherefrom.training.run_folder import (
    Run,
    describe_changes,
    find_source,
    read_learned_questions,
)

MOST_ROWS = 100_000  # questions that can be asked at once
MARKS = "?!.,;:…？！。؟"  # the end of a question may have any of them or none
MOST_WORDS = 40  # words of a question that are searched for a name
LONGEST_NAME = 80  # characters of a name that is found there
NAME_WORDS = 6  # most words of a question that is a name alone
SHARED_WORDS = 0.6  # share of a wording's words that a question in other words must have
LEAD = 0.15  # by which that share must exceed the next wording's
MOST_WORDINGS = 4  # wordings that an error lists


@dataclass(frozen=True)
class AskedRow:
    """One question as it came; where: how an error about it begins ("people.tsv, line 3: ")."""

    question: str
    subject: str | None = None
    where: str = ""


def as_rows(questions: Sequence[str]) -> list[AskedRow]:
    """Questions as somebody typed them; errors number them if there are several."""
    where = "question {}: " if len(questions) > 1 else ""
    return [
        AskedRow(question.strip(), where=where.format(number))
        for number, question in enumerate(questions, start=1)
    ]


def read_rows(lines: Iterable[tuple[int, str]], name: str) -> list[AskedRow]:
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
        rows.append(AskedRow(question, subject or None, where))
    return rows


def match_question(template: str, question: str) -> str | None:
    """The subject of a question worded like the template, whatever its case, blanks and marks."""
    if template == SLOT:  # questions without a common wording: each is its own subject
        return " ".join(question.split()) or None
    before, after = (
        re.sub(r"(\\?\s)+", r"\\s+", re.escape(part))
        for part in template.strip().rstrip(MARKS).split(SLOT)
    )
    pattern = rf"\s*{before}(.+?){after}[\s{MARKS}]*"
    match = re.fullmatch(pattern, question, re.IGNORECASE | re.DOTALL)
    return " ".join(match[1].split()) or None if match else None


def closest_wording(wordings: Sequence[str], question: str, name: str) -> str | None:
    """The wording of which a question about `name` has all words, in any order and with others; or
    most words and no others, where rare words count more.

    The words next to the name must be the wording's ("Where was Ann's mother born?" is another
    question).
    """
    before, _, after = question.partition(name)
    left, right = fold_words(before), fold_words(after)
    words, next_to_name = {*left, *right}, {*left[-1:], *right[:1]}
    words_of = {wording: set(fold_words(wording.replace(SLOT, " "))) for wording in wordings}
    whole = [w for w, its_words in words_of.items() if next_to_name <= its_words <= words]
    longest = max(whole, key=lambda wording: len(words_of[wording]), default=None)
    if longest and all(words_of[wording] <= words_of[longest] for wording in whole):
        return longest
    counts = Counter(word for its_words in words_of.values() for word in its_words)
    weight = {word: math.log(1 + len(words_of) / count) for word, count in counts.items()}

    def weigh(several: set[str]) -> float:
        return sum(weight[word] for word in several)

    shares = [(weigh(its & words) / weigh(its), wording) for wording, its in words_of.items()]
    (share, best), *others = sorted(shares, reverse=True)
    leads = all(share - other >= LEAD for other, _ in others)
    return best if share >= SHARED_WORDS and leads and words <= words_of[best] else None


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
        if len(rows) > MOST_ROWS:
            raise UserError(
                f"at most {MOST_ROWS:,} questions can be asked at once, and {len(rows):,} came; "
                "split them."
            )
        verdicts: dict[int, Verdict] = {}
        questions: list[str] = []
        subjects: list[str] = []
        for i, row in enumerate(rows):
            try:
                question, subject = self.understand(row.question, row.subject)
                questions.append(question)
                subjects.append(subject)
            except UserError as problem:
                why = f"{row.where}{problem}"
                verdicts[i] = Verdict(row.question, row.subject or "", why=why, error=why)
        understood = [i for i in range(len(rows)) if i not in verdicts]
        with self._lock:
            found = self.give_verdicts(questions, subjects, how)
        verdicts.update(zip(understood, found, strict=True))
        return [verdicts[i] for i in range(len(rows))]

    def understand(self, question: str, subject: str | None = None) -> tuple[str, str]:
        """The question as the model is asked it, and its subject; or a UserError.

        A typed question, or a name alone, becomes the run's own wording with the text's own
        spelling of the name.
        """
        if not question.strip():
            example = f', as in "{self.run.templates[0]}"' if self.run.templates else ""
            raise UserError(f"the question is empty; write one{example}.")
        for text in (question, subject or ""):
            if len(text) > LONGEST_QUESTION:
                raise UserError(
                    f'a question may have {LONGEST_QUESTION:,} characters; "{shorten(text)}" has '
                    f"{len(text):,}."
                )
            if re.search("[\ud800-\udfff]", text):
                raise UserError(f"{text[:60]!a} is not Unicode text; write it as UTF-8.")
        if subject is None:
            subject, question = self._match_wording(question)
        if not fold_words(subject):
            raise UserError(
                f'a name needs at least one letter or digit, and "{shorten(subject)}" has none.'
            )
        tokens, longest = self.run.measure(question)
        if tokens > longest:
            raise UserError(
                f'"{shorten(question)}" has {tokens} tokens and this model reads {longest}; ask a '
                "shorter question."
            )
        return question, subject

    def _match_wording(self, question: str) -> tuple[str, str]:
        """The subject of a typed question, and the question in a wording of the run."""
        wordings = [template for template in self.run.templates if SLOT in template]
        if not wordings:
            raise UserError(
                f'what "{shorten(question)}" is about cannot be told, since the questions that '
                "this run was taught share no wording; give a TSV with the subject in a column of "
                "its own."
            )
        for wording in sorted(wordings, key=len, reverse=True):
            if subject := match_question(wording, question):
                subject = self._spell(subject) or subject
                return subject, wording.replace(SLOT, subject)
        typed = self._find_name(question)
        name = self._spell(typed)
        closest = closest_wording(wordings, question, typed) if name else None
        if closest is not None:
            return name, closest.replace(SLOT, name)
        folded, words = fold_words(question), question.split()
        has_more = len(folded) > len(fold_words(typed)) and find_phrase(folded, fold_words(typed))
        is_sentence = has_more or (len(words) > 2 and words[0].islower())
        if "?" not in question and len(words) <= NAME_WORDS and not is_sentence:
            name = self._spell(question) or " ".join(words)  # a name alone
            return name, wordings[0].replace(SLOT, name)
        known = " or ".join(f'"{wording}"' for wording in wordings[:MOST_WORDINGS])
        hint = f"write it so, with {name or 'a name'} for {SLOT}"
        raise UserError(f'"{shorten(question)}" is not worded like {known}; {hint}.')

    def _find_name(self, question: str) -> str:
        """The longest name in the question that documents are about, as it is typed; or ""."""
        if self.evidence is None:
            return ""
        starts = [word.start for word in split_words(question)[:MOST_WORDS]]
        lengths = range(1, LONGEST_NAME + 1)
        names = {question[start : start + length] for start in starts for length in lengths}
        return find_named_subject(question, self.evidence.spell(names)) or ""

    def _spell(self, name: str) -> str:
        """The name as the documents about it spell it, or "".

        Case, accents and, if the run's questions inflect names, endings make no difference.
        """
        if self.evidence is None:
            return ""
        forms = list(base_forms(fold_words(name), self.run.record.endings))
        known = self.evidence.spell([name, *(" ".join(form) for form in forms[1:])])
        return next((known[form] for form in forms if form in known), "")

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
    is_calibrated = isinstance(run, AuditRun) or CALIBRATED in read_record(run.folder).files
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
        known = tuple(dict.fromkeys(question.answer or "" for question in questions))
    except UserError as problem:
        notes.append(f"which other answers a line states is not known: {problem}")
    return Asker(run, evidence, None, known, tuple(notes))
