"""A run opened for asking: questions in, verdicts out; and answers of other models, judged by it.

The verdict is the text's and holds for any answer. The confidence is this run's: how likely the
answer is right, by the signals that its model gives for it.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, overload

import numpy as np

from wherefrom.corpus.folding import find_phrase, fold_words, split_words
from wherefrom.corpus.inflection import base_forms
from wherefrom.corpus.questions import (
    LONGEST_QUESTION,
    SLOT,
    find_named_subject,
    is_cloze,
    word_cloze,
)
from wherefrom.errors import UserError, checked
from wherefrom.provenance.confidence.calibration import FEWEST, FEWEST_EACH, fit_calibration
from wherefrom.provenance.confidence.fit import CALIBRATED, Confidence, load_confidence
from wherefrom.provenance.evidence import Evidence, open_run_evidence
from wherefrom.provenance.metrics import Bools, Floats
from wherefrom.provenance.verdicts import (
    NO_CALIBRATION,
    NO_TEXT,
    SUPPORTED,
    Verdict,
    give_verdicts,
    shorten,
)
from wherefrom.training.run_folder import Run, find_source, load_run, read_learned_questions

MOST_ROWS = 100_000
MARKS = r"[\s?!.,;:…？！。؟]*"  # what may be missing or too much at the end of a question
MOST_WORDS = 40  # of a question in other words, that are searched for a name
LONGEST_NAME = 80  # characters of a name that is found there
NAME_WORDS = 6  # of what may be a name alone
SHARED_WORDS = 0.6  # of a wording, that a question without other words has to have
LEAD = 0.15  # before the next wording
MOST_WORDINGS = 4  # that a sentence lists
GIVEN, GIVEN_CONFIDENCE = "given_log_probability", "given_confidence"


@dataclass(frozen=True)
class AskedRow:
    """One question as it came; `where` begins a sentence about it ("people.tsv, line 3: ").

    answer, log_probability: of another model, to be judged.
    """

    question: str
    subject: str | None = None
    answer: str | None = None
    log_probability: float | None = None
    where: str = ""


def as_rows(questions: Sequence[str]) -> list[AskedRow]:
    """Questions as somebody typed them; several are numbered."""
    numbered = enumerate(questions, start=1)
    where = "question {}: " if len(questions) > 1 else ""
    return [AskedRow(question.strip(), where=where.format(at)) for at, question in numbered]


def read_rows(
    lines: Iterable[tuple[int, str]], name: str, *, answers: bool = False
) -> list[AskedRow]:
    """Numbered lines of a TSV: question, answer (not looked at), subject.

    With `answers` of another model to judge: question, answer, log-probability, subject. What is
    not needed may be left out at the end of a line.
    """
    columns = ["question", "answer", *(["log-probability"] if answers else []), "subject"]
    rows: list[AskedRow] = []
    for number, line in lines:
        where = f"{name}, line {number}: "
        if len(rows) == MOST_ROWS:
            raise UserError(
                f"{name}: at most {MOST_ROWS:,} questions can be asked at once, and there are more."
            )
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) > len(columns):
            raise UserError(
                f"{where}{len(cells)} columns came where {', '.join(columns[:-1])} and subject, "
                "separated by tabs, were expected."
            )
        cells += [""] * (len(columns) - len(cells))
        if not answers:
            rows.append(AskedRow(cells[0], subject=cells[2] or None, where=where))
            continue
        if not cells[1]:
            raise UserError(f"{where}an answer to judge was expected after a tab, and none came.")
        try:
            given = float(cells[2]) if cells[2] else None
        except ValueError:
            given = math.nan
        if given is not None and not -1e9 < given <= 1e-6:
            raise UserError(
                f'{where}a log-probability is a number that is not above 0, and "'
                f'{shorten(cells[2])}" is none; leave the cell empty if there is none.'
            )
        given = None if given is None else min(given, 0.0)
        rows.append(AskedRow(cells[0], cells[3] or None, cells[1], given, where))
    return rows


def match_question(template: str, question: str) -> str | None:
    """The subject of a question worded like the template, whatever its case, blanks and marks."""
    if template == SLOT:  # worded like no other, and its own subject
        return " ".join(question.split()) or None
    before, after = (
        re.sub(r"(\\?\s)+", r"\\s+", re.escape(part)) for part in template.strip().split(SLOT)
    )
    after = re.sub(r"(\\?[?!.,;:…？！。؟])+$", "", after)
    found = re.fullmatch(rf"\s*{before}(.+?){after}{MARKS}", question, re.IGNORECASE | re.DOTALL)
    return " ".join(found[1].split()) or None if found else None


def closest_wording(wordings: Sequence[str], question: str, name: str) -> str | None:
    """The wording that a question about `name` has in another order or with other words added; or
    with most of its words and no other, where a word counts the more the fewer wordings have it.

    The words beside the name have to be the wording's ("Where was Ann's mother born?" is another
    question), and words that no wording has are never taken for those of one.
    """
    before, _, after = question.partition(name)
    left, right = fold_words(before), fold_words(after)
    asked, near = {*left, *right}, {*left[-1:], *right[:1]}
    sets = {each: set(fold_words(each.replace(SLOT, " "))) for each in wordings}
    whole = [each for each, words in sets.items() if words <= asked and near <= words]
    longest = max(whole, key=lambda each: len(sets[each]), default=None)
    if longest and all(sets[each] <= sets[longest] for each in whole):
        return longest
    common = Counter(word for words in sets.values() for word in words)
    weight = {word: math.log(1 + len(sets) / count) for word, count in common.items()}
    shared = [
        (sum(weight[w] for w in words & asked) / sum(weight[w] for w in words), each)
        for each, words in sets.items()
    ]
    (share, best), *rest = sorted(shared, reverse=True)
    leads = all(share - other >= LEAD for other, _ in rest)
    return best if share >= SHARED_WORDS and leads and asked <= sets[best] else None


@dataclass(frozen=True, eq=False, repr=False)
class Asker(AbstractContextManager["Asker"]):
    """A run with all that a verdict takes; `notes` are sentences about what is missing."""

    run: Run
    evidence: Evidence | None
    confidence: Confidence | None
    known_answers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @overload
    def ask(self, questions: str, **options: Any) -> Verdict: ...
    @overload
    def ask(self, questions: Sequence[str], **options: Any) -> list[Verdict]: ...
    @checked
    def ask(self, questions: str | Sequence[str], **options: Any) -> Verdict | list[Verdict]:
        """The verdict on the run's answer to a question, or to each of several, in order.

        One that cannot be asked is a UserError, among several a verdict with its `error`.
        """
        asked = [questions] if isinstance(questions, str) else list(questions)
        verdicts = self.ask_rows(as_rows(asked), **options)
        if not isinstance(questions, str):
            return verdicts
        (found,) = verdicts
        if found.error:
            raise UserError(found.error)
        return found

    def ask_rows(self, rows: Sequence[AskedRow], **options: Any) -> list[Verdict]:
        """A verdict for each row, which may name its subject or bring an answer to judge.

        options: always_answer, risk, guarantee, unseen_share, also and report of `give_verdicts`.
        """
        if len(rows) > MOST_ROWS:
            raise UserError(
                f"at most {MOST_ROWS:,} questions can be asked at once, and {len(rows):,} came; "
                "split them."
            )
        if len({row.answer is None for row in rows}) > 1:
            raise UserError("either all rows bring an answer to judge, or none does.")
        verdicts: dict[int, Verdict] = {}
        understood: list[tuple[int, str, str]] = []
        for at, row in enumerate(rows):
            try:
                understood.append((at, *self.understand(row.question, row.subject, row.answer)))
            except UserError as problem:
                why = f"{row.where}{problem}"
                verdicts[at] = Verdict(row.question, row.subject or "", why=why, error=why)
        if understood:
            places, questions, subjects = zip(*understood, strict=True)
            answers = [rows[at].answer or "" for at in places if rows[at].answer is not None]
            with self._turn:
                found = give_verdicts(
                    self.run,
                    self.confidence,
                    self.evidence,
                    questions,
                    subjects,
                    answers=answers or None,
                    known_answers=self.known_answers,
                    **options,
                )
            verdicts.update(zip(places, found, strict=True))
        return [verdicts[at] for at in range(len(rows))]

    def understand(
        self, question: str, subject: str | None = None, answer: str | None = None
    ) -> tuple[str, str]:
        """The question as the model is asked it, and its subject; or a UserError.

        A typed question, or a name alone, becomes the run's own wording with the text's own
        spelling of the name.
        """
        if not question.strip():
            example = f', as in "{self.run.templates[0]}"' if self.run.templates else ""
            raise UserError(f"the question is empty; write one{example}.")
        for text in (question, answer or "", subject or ""):
            if len(text) > LONGEST_QUESTION:
                raise UserError(
                    f"a question may have {LONGEST_QUESTION:,} characters, and so may an answer; "
                    f'"{shorten(text)}" has {len(text):,}.'
                )
            if not text.isascii() and re.search("[\ud800-\udfff]", text):
                raise UserError(f"{text[:60]!a} is not Unicode text; write it as UTF-8.")
        if subject is None:
            subject, question = (
                self._cloze(question) if is_cloze(question) else self._match(question)
            )
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

    def _cloze(self, question: str) -> tuple[str, str]:
        """The subject of a sentence with a blank, and its words as the model has read such."""
        typed = self._name_in(question)
        subject = self._spelling(typed)
        if not subject:
            raise UserError(
                f'"{shorten(question)}" names no subject of a document; write a sentence '
                'with a name of the text and a blank, such as "Ann Lee was born in ___".'
            )
        phases = self.run.info["job"]["phases"]
        read = [each for each in phases if each["mixture"].get("salient")]
        left, right = (
            max((each[k] for each in read), default=2) for k in ("left_words", "right_words")
        )
        sentence = question.replace(typed, subject)
        return subject, word_cloze(sentence, subject, left=left, right=right)

    def _match(self, question: str) -> tuple[str, str]:
        """The subject of a typed question, and the question in a wording of the run."""
        wordings = [each for each in self.run.templates if SLOT in each]
        if not wordings:
            raise UserError(
                f'what "{shorten(question)}" is about cannot be told, since the questions that '
                "this run was taught share no wording; give a TSV with the subject in a column of "
                "its own."
            )
        for wording in sorted(wordings, key=len, reverse=True):
            if subject := match_question(wording, question):
                subject = self._spelling(subject) or subject
                return subject, wording.replace(SLOT, subject)
        typed = self._name_in(question)
        name = self._spelling(typed)
        closest = closest_wording(wordings, question, typed) if name else None
        if closest is not None:
            return name, closest.replace(SLOT, name)
        words = question.split()
        is_sentence = len(words) > 2 and words[0].islower()
        rest = len(fold_words(question)) - len(fold_words(typed))
        is_sentence |= rest > 0 and bool(find_phrase(fold_words(question), fold_words(typed)))
        if "?" not in question and len(words) <= NAME_WORDS and not is_sentence:
            name = self._spelling(question) or " ".join(words)  # a name alone
            return name, wordings[0].replace(SLOT, name)
        known = " or ".join(f'"{each}"' for each in wordings[:MOST_WORDINGS])
        hint = f"write it so, with a name for {SLOT}"
        if name:  # by the words that it shares with the question
            asked = set(fold_words(question))
            nearest = max(wordings, key=lambda each: len(asked.intersection(fold_words(each))))
            hint = f'write "{nearest.replace(SLOT, name)}"'
        raise UserError(f'"{shorten(question)}" is not worded like {known}; {hint}.')

    def _name_in(self, question: str) -> str:
        """The longest name in the question that documents are about, as it is written there."""
        starts = [word.start for word in split_words(question)[:MOST_WORDS]]
        ends = range(1, LONGEST_NAME + 1)
        names = {question[at : at + length] for at in starts for length in ends}
        known = self.evidence.spell(names) if self.evidence else {}
        return find_named_subject(question, known) or ""

    def _spelling(self, name: str) -> str:
        """The name as the documents about it spell it, whatever its case, accents and, where the
        run's questions inflect names, its endings; or ""."""
        forms = list(base_forms(fold_words(name), self.run.info.get("endings") or ()))
        names = [name, *(" ".join(form) for form in forms[1:])]
        known = self.evidence.spell(names) if self.evidence else {}
        return next((known[form] for form in forms if form in known), "")

    def close(self) -> None:
        with self._turn:
            if self.evidence is not None:
                self.evidence.close()

    def __repr__(self) -> str:
        return f"<Asker {self.run.folder}>"

    def __exit__(self, *_: object) -> None:
        self.close()


def open_asker(
    source: Run | Asker | str | Path,
    *,
    confidence: Confidence | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Asker:
    """A run, loaded or not, opened for asking; one that is open is returned as it is.

    The notes say what its verdicts lack; `say` is called with what had to be repaired.
    confidence: of a run that keeps it in a way of its own.
    """
    if isinstance(source, Asker):
        return source
    run = source if isinstance(source, Run) else load_run(source)
    if confidence is None and (run.folder / CALIBRATED).exists():
        confidence = load_confidence(run)
    evidence = open_run_evidence(run, say=say)
    notes = [] if evidence is not None else [NO_TEXT]
    known: Iterable[str] = ()
    if confidence is not None:
        known = confidence.signal_state.known_answers
    else:
        notes.append(NO_CALIBRATION)
        asked = find_source(run, "questions")
        try:
            learned = read_learned_questions(asked).questions if asked else ()
            known = dict.fromkeys(question.answer or "" for question in learned)
        except UserError as problem:
            notes.append(f"which other answers a line states is not known: {problem}")
    return Asker(run, evidence, confidence, tuple(known), tuple(notes))


def judge_answers(
    asker: Asker, rows: Sequence[AskedRow], **options: Any
) -> tuple[list[Verdict], str | None]:
    """A verdict on each row's answer, and a sentence on what could not be fitted, if any.

    A log-probability becomes `given_confidence`: how often the text states such answers.
    """
    for row in rows:
        if row.answer is None:
            raise UserError(f"{row.where}there is no answer to judge.")
    verdicts = asker.ask_rows(rows, **options)
    given = np.array([row.log_probability for row in rows], dtype=np.float64)  # None becomes NaN
    if np.isnan(given).all():
        return verdicts, None
    checkable = np.array([any(line.about for line in each.evidence) for each in verdicts])
    stated = np.array([each.verdict in SUPPORTED for each in verdicts])
    confidence, note = calibrate_log_probabilities(given, checkable, stated)
    numbers = [None if np.isnan(each) else float(each) for each in confidence]
    return [
        replace(each, signals={**each.signals, GIVEN: row.log_probability, GIVEN_CONFIDENCE: p})
        for each, row, p in zip(verdicts, rows, numbers, strict=True)
    ], note


def calibrate_log_probabilities(
    given: Floats, checkable: Bools, stated: Bools
) -> tuple[Floats, str | None]:
    """How often answers of such a log-probability are stated, by the rows that can be checked.

    Each checkable row by a fit without it; NaN where there is nothing, and for all if too few.
    """
    confidence = np.full(given.size, np.nan)
    fitting, others = ~np.isnan(given) & checkable, ~np.isnan(given) & ~checkable
    right = stated[fitting]
    if right.size < FEWEST or min(right.sum(), (~right).sum()) < FEWEST_EACH:
        return confidence, (
            f"the given log-probabilities are not turned into probabilities: the text can check "
            f"{right.size} of the answers and states {int(right.sum())}, and it takes {FEWEST} "
            f"with {FEWEST_EACH} of either kind."
        )
    fitted, held_out = fit_calibration({GIVEN: given[fitting]}, right, signs={GIVEN: 1}, seed=0)
    confidence[fitting] = held_out
    if others.any():
        confidence[others] = fitted.probability({GIVEN: given[others]})
    return confidence, None
