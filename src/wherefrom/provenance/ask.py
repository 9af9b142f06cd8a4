"""A run opened for asking: questions in, verdicts out; and answers of other models, judged by it.

The text decides the verdict, whoever gave the answer. The confidence is this run's: how likely the
answer is right by the signals of its model.
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

MOST_ROWS = 100_000  # questions that can be asked at once
MARKS = "?!.,;:…？！。؟"  # the end of a question may have any of them or none
MOST_WORDS = 40  # words of a question that are searched for a name
LONGEST_NAME = 80  # characters of a name that is found there
NAME_WORDS = 6  # most words of a question that is a name alone
SHARED_WORDS = 0.6  # share of a wording's words that a question in other words must have
LEAD = 0.15  # by which that share must exceed the next wording's
MOST_WORDINGS = 4  # wordings that an error lists
GIVEN, GIVEN_CONFIDENCE = "given_log_probability", "given_confidence"


@dataclass(frozen=True)
class AskedRow:
    """One question as it came.

    answer, log_probability: of another model, to be judged. where: how an error about the row
    begins ("people.tsv, line 3: ").
    """

    question: str
    subject: str | None = None
    answer: str | None = None
    log_probability: float | None = None
    where: str = ""


def as_rows(questions: Sequence[str]) -> list[AskedRow]:
    """Questions as somebody typed them; errors number them if there are several."""
    where = "question {}: " if len(questions) > 1 else ""
    return [
        AskedRow(question.strip(), where=where.format(number))
        for number, question in enumerate(questions, start=1)
    ]


def read_rows(
    lines: Iterable[tuple[int, str]], name: str, *, answers: bool = False
) -> list[AskedRow]:
    """Numbered lines of a TSV: question, answer (ignored), subject.

    With `answers`: question, answer to judge, log-probability, subject. Cells at the end of a line
    may be left out.
    """
    columns = ["question", "answer", *(["log-probability"] if answers else []), "subject"]
    rows = []
    for number, line in lines:
        where = f"{name}, line {number}: "
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) > len(columns):
            raise UserError(
                f"{where}{len(cells)} columns came where {', '.join(columns[:-1])} and subject, "
                "separated by tabs, were expected."
            )
        question, answer, *others = cells + [""] * (len(columns) - len(cells))
        subject = others[-1] or None
        if not answers:
            rows.append(AskedRow(question, subject, where=where))
            continue
        if not answer:
            raise UserError(f"{where}an answer to judge was expected after a tab, and none came.")
        log_probability = read_log_probability(others[0], where) if others[0] else None
        rows.append(AskedRow(question, subject, answer, log_probability, where))
    return rows


def read_log_probability(cell: str, where: str) -> float:
    """A number that is at most 0; rounding above it is forgiven."""
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not -1e9 < value <= 1e-6:
        raise UserError(
            f'{where}a log-probability is a number of at most 0, not "{shorten(cell)}"; leave the '
            "cell empty if you have none."
        )
    return min(value, 0.0)


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
class Asker(AbstractContextManager["Asker"]):
    """A run with all that a verdict takes; `notes` are sentences about what is missing."""

    run: Run
    evidence: Evidence | None
    confidence: Confidence | None
    known_answers: tuple[str, ...] = ()
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
        questions: list[str] = []
        subjects: list[str] = []
        for i, row in enumerate(rows):
            try:
                question, subject = self.understand(row.question, row.subject, row.answer)
                questions.append(question)
                subjects.append(subject)
            except UserError as problem:
                why = f"{row.where}{problem}"
                verdicts[i] = Verdict(row.question, row.subject or "", why=why, error=why)
        understood = [i for i in range(len(rows)) if i not in verdicts]
        answers = [answer for i in understood if (answer := rows[i].answer) is not None]
        with self._lock:
            given = give_verdicts(
                self.run,
                self.confidence,
                self.evidence,
                questions,
                subjects,
                answers=answers or None,
                known_answers=self.known_answers,
                **options,
            )
        verdicts.update(zip(understood, given, strict=True))
        return [verdicts[i] for i in range(len(rows))]

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
            if re.search("[\ud800-\udfff]", text):
                raise UserError(f"{text[:60]!a} is not Unicode text; write it as UTF-8.")
        if subject is None:
            find = self._match_cloze if is_cloze(question) else self._match_wording
            subject, question = find(question)
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

    def _match_cloze(self, question: str) -> tuple[str, str]:
        """The subject of a sentence with a blank, and the sentence as the model has read such."""
        typed = self._find_name(question)
        subject = self._spell(typed)
        if not subject:
            raise UserError(
                f'"{shorten(question)}" names no subject of a document; write a sentence '
                'with a name of the text and a blank, such as "Ann Lee was born in ___".'
            )
        phases = [
            phase for phase in self.run.info["job"]["phases"] if phase["mixture"].get("salient")
        ]
        left, right = (
            max((phase[key] for phase in phases), default=2)
            for key in ("left_words", "right_words")
        )
        sentence = question.replace(typed, subject)
        return subject, word_cloze(sentence, subject, left=left, right=right)

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
        forms = list(base_forms(fold_words(name), self.run.info.get("endings") or ()))
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
    source: Run | Asker | str | Path,
    *,
    confidence: Confidence | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Asker:
    """A run, loaded or not, opened for asking; an open one is returned as it is.

    The notes say what its verdicts lack; `say` is called with what had to be repaired.
    confidence: of an audit, which keeps it differently.
    """
    if isinstance(source, Asker):
        return source
    run = source if isinstance(source, Run) else load_run(source)
    if confidence is None and (run.folder / CALIBRATED).exists():
        confidence = load_confidence(run)
    evidence = open_run_evidence(run, say=say)
    notes = [] if evidence is not None else [NO_TEXT]
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


def judge_answers(
    asker: Asker, rows: Sequence[AskedRow], **options: Any
) -> tuple[list[Verdict], str | None]:
    """A verdict on each row's answer, and a sentence about what could not be fitted, if any.

    A log-probability becomes `given_confidence`: how often the text states such answers.
    """
    for row in rows:
        if row.answer is None:
            raise UserError(f"{row.where}there is no answer to judge.")
    verdicts = asker.ask_rows(rows, **options)
    given = np.array([row.log_probability for row in rows], dtype=np.float64)  # None becomes NaN
    if np.isnan(given).all():
        return verdicts, None
    checkable = np.array([any(line.about for line in verdict.evidence) for verdict in verdicts])
    stated = np.array([verdict.verdict in SUPPORTED for verdict in verdicts])
    confidence, note = calibrate_log_probabilities(given, checkable, stated)
    judged = []
    for verdict, row, p in zip(verdicts, rows, confidence.tolist(), strict=True):
        more = {GIVEN: row.log_probability, GIVEN_CONFIDENCE: None if math.isnan(p) else p}
        judged.append(replace(verdict, signals={**verdict.signals, **more}))
    return judged, note


def calibrate_log_probabilities(
    given: Floats, checkable: Bools, stated: Bools
) -> tuple[Floats, str | None]:
    """How often answers with such a log-probability are stated, learned from the checkable rows.

    A checkable row gets its number by a fit without it; NaN without a log-probability, and for all
    rows if too few are checkable, with a sentence about that.
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
