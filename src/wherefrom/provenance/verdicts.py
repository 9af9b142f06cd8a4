"""Verdicts: for every answer where it came from, and whether it is shown.

`decide` decides, wording.py says it in sentences. Stated: a line about the subject states the
answer to this relation. Remembered: a trace found that such a line also pushed the answer.
Misremembered: the text names the subject, and no such line is there. Made up: no line names the
subject. See docs/provenance.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wherefrom.errors import Printable, UserError, shorten
from wherefrom.provenance.audited import BaseRun
from wherefrom.provenance.confidence.fit import CHECKED, FROM_TEXT, INTERNAL, RIGHT, Confidence
from wherefrom.provenance.confidence.threshold import TestedThreshold
from wherefrom.provenance.evidence import (
    Evidence,
    EvidenceLine,
    StatedValue,
    Support,
    find_support,
)
from wherefrom.provenance.metrics import Floats
from wherefrom.provenance.signals.reader import SignalTable, relation_of
from wherefrom.provenance.wording import (
    DONT_KNOW,
    REMEMBERED,
    STATED,
    SUPPORTED,
    describe_verdict,
    excerpt,
    explain,
)
from wherefrom.recall.decode import answer_all
from wherefrom.training.run_folder import Run

MISREMEMBERED, MADE_UP = "misremembered", "made up"
GUESSED = "guessed"  # right without a line that states it; needs the truth
REMEMBERED_NATS = 0.69  # by which a remembered answer is likelier than for names in no line
# what is guaranteed of the answers shown, and what it is called in calibration.json
GUARANTEES = {"from-text": FROM_TEXT, "right": RIGHT}


@dataclass(frozen=True, repr=False)
class Verdict(Printable):
    """All that is known about one answer; what cannot be computed is None, never NaN.

    answer: what the model says; shown: what the user sees. from_text, right: probabilities,
    `internal` by the model alone, `checked` with the text. stated: every value that the text
    states for this relation, with its lines. similar: lines about similar names. lines: those that
    the question is about, if it picked one of several subjects of one name.
    asked: the question as it was typed, if it was read as another wording or name. did_you_mean:
    questions that may be meant by one that was refused, whose reason is `error`.
    """

    question: str
    subject: str
    answer: str = ""
    shown: str = DONT_KNOW
    verdict: str | None = None
    why: str = ""
    from_text: Mapping[str, float | None] = field(default_factory=dict)
    right: Mapping[str, float | None] = field(default_factory=dict)
    shown_internal: bool = False
    stated: tuple[StatedValue, ...] = ()
    seen: bool | None = None
    evidence: tuple[EvidenceLine, ...] = ()
    signals: Mapping[str, float | None] = field(default_factory=dict)
    similar: tuple[EvidenceLine, ...] = ()
    pushed: Mapping[str, float] | None = None
    error: str | None = None
    asked: str = ""
    did_you_mean: Sequence[str] = ()
    lines: Sequence[int] = ()

    @property
    def confidence(self) -> float | None:
        return self.right.get("checked")

    @property
    def internal_confidence(self) -> float | None:
        return self.right.get("internal")

    def summary(self) -> list[tuple[str, str]]:
        """Rows to print: the answer and its sentence, the lines of the text, and why."""
        lines = [
            (f"line {line.line}", excerpt(line.text, line.states or self.answer))
            for line in self.evidence
        ]
        return [(shorten(self.shown), self.sentence()), *lines, ("why", self.why)]

    def sentence(self) -> str:
        """Where the answer is from, and how likely it is right."""
        return describe_verdict(self)

    def __str__(self) -> str:
        (shown, what), *lines, (_, why) = self.summary()
        inside = [f"  {label:<10} {text}" for label, text in lines]
        return "\n".join([f"{shown}. {what}", *inside, f"  {why}"])

    def to_dict(self) -> dict[str, Any]:
        """The record for JSON and the page; what is unset at the end of the class is not."""
        record = {
            "question": self.question,
            "subject": self.subject,
            "answer": self.answer,
            "shown": self.shown,
            "verdict": self.verdict,
            "why": self.why,
            "confidence": self.confidence,
            "internal_confidence": self.internal_confidence,
            "from_text": dict(self.from_text),
            "right": dict(self.right),
            "shown_internal": self.shown_internal,
            "stated": [
                {"answer": value.answer, "probability": value.probability, "lines": [*value.lines]}
                for value in self.stated
            ],
            "seen": self.seen,
            "evidence": [
                {
                    "line": line.line,
                    "text": line.text,
                    "states_answer": line.states_answer,
                    "states": line.states,
                }
                for line in self.evidence
            ],
            "signals": dict(self.signals),
        }
        optional = {
            "pushed": self.pushed,
            "error": self.error,
            "asked": self.asked,
            "did_you_mean": list(self.did_you_mean),
            "lines": list(self.lines),
        }
        return record | {name: value for name, value in optional.items() if value}


def add_trace(verdict: Verdict, trace: Mapping[str, Any]) -> Verdict:
    """The verdict with what a trace (its record) says about the lines that state the answer.

    A stated answer is remembered if these lines together pushed it, even at the lower end of the
    interval, above the noise floor, and if it is clearly likelier than for names in no line: a
    model that hardly learned remembers nothing.
    """
    stating = {line.line for line in verdict.evidence if line.states_answer}
    rows = [row for row in trace["pushed_by"] if row["line"] in stating]
    together = trace["lines_that_state_it"]
    if verdict.verdict not in SUPPORTED or not rows or together is None:
        return verdict
    gain = trace["likelier_than_for_other_names"]
    caused = together["low"] > trace["noise_floor"] and (gain is None or gain > REMEMBERED_NATS)
    pushed = {"line": rows[0]["line"], **together, "noise_floor": trace["noise_floor"]}
    return replace(verdict, verdict=REMEMBERED if caused else STATED, pushed=pushed)


@dataclass(frozen=True, kw_only=True)
class AskOptions:
    """How answers are shown, and what else is read about them.

    guarantee: at most a share of `risk` of what is shown is wrong ("right") or not stated
    ("from-text"); None is the risk of the calibration. also: further signals to read, None for
    all. report: called with the number of questions that were just answered.
    """

    always_answer: bool = False
    risk: float | None = None
    guarantee: str = "from-text"
    also: Collection[str] | None = ()
    report: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        if self.guarantee not in GUARANTEES:
            raise UserError(
                f'a guarantee is "from-text" or "right", not "{shorten(self.guarantee)}".'
            )
        if self.risk is not None and not 0 < self.risk < 1:
            raise UserError(
                f"the risk must lie between 0 and 1, as 0.05 for 5 %; {self.risk:g} is not."
            )


@dataclass(frozen=True)
class ShowRule:
    """From which probability of `target` on an answer is shown.

    threshold: None without a calibration. internal_threshold: of the model alone.
    """

    target: str
    threshold: TestedThreshold | None
    internal_threshold: TestedThreshold | None
    always_answer: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class AskedRun:
    """A run with what verdicts on its answers rest on: the text and the confidence, if any.

    known_answers: those that a line may state, where the text could not be read for a relation.
    """

    run: Run
    evidence: Evidence | None
    confidence: Confidence | None
    known_answers: tuple[str, ...] = ()

    def give_verdicts(
        self,
        questions: Sequence[str],
        subjects: Sequence[str],
        options: AskOptions,
        only_lines: Sequence[Collection[int]] | None = None,
    ) -> list[Verdict]:
        """A verdict on the run's answer to each question; only_lines: see `find_support`."""
        if not questions:
            return []
        table = self._read_answers(questions, subjects, options)
        return self.judge_answers(questions, subjects, table, options, only_lines)

    def judge_answers(
        self,
        questions: Sequence[str],
        subjects: Sequence[str],
        table: SignalTable,
        options: AskOptions,
        only_lines: Sequence[Collection[int]] | None = None,
    ) -> list[Verdict]:
        """A verdict on each answer of a table."""
        answers, signals = table
        support: list[Support] | None = None
        if self.evidence is not None:
            relations = list(map(relation_of, questions, subjects))
            support = find_support(
                self.evidence,
                subjects,
                answers,
                self.known_answers,
                templates=relations,
                only_lines=only_lines,
            )
        likely: dict[str, dict[str, Floats | None]] = {FROM_TEXT: {}, RIGHT: {}}
        if self.confidence is not None:
            likely = self.confidence.probabilities(signals, support)
            right = likely[RIGHT][CHECKED]
            if support is not None and right is not None:  # lines that contradict the answer
                shares = np.array([one.share for one in support])
                likely[RIGHT][CHECKED] = np.minimum(right, shares)
        rule = self.choose_rule(options)
        verdicts = []
        for i, question in enumerate(questions):
            rated = Verdict(
                question=question,
                subject=subjects[i],
                answer=answers[i],
                from_text=_row(likely[FROM_TEXT], i),
                right=_row(likely[RIGHT], i),
                signals=_row(signals, i),
            )
            verdicts.append(decide(rated, None if support is None else support[i], rule))
        return verdicts

    def _read_answers(
        self, questions: Sequence[str], subjects: Sequence[str], options: AskOptions
    ) -> SignalTable:
        """The run's answers, and what the model gives away about them."""
        if self.confidence is None and isinstance(self.run, BaseRun):
            texts = self.run.answer_questions(questions)
            return SignalTable(tuple(texts), {})
        if self.confidence is None:
            found = answer_all(self.run.model, self.run.tokens, questions, report=options.report)
            columns = {"log_probability": np.array([answer.log_probability for answer in found])}
            return SignalTable(tuple(answer.text for answer in found), columns)
        only = None if options.also is None else {*self.confidence.signals, *options.also}
        return self.confidence.reader.read(questions, subjects, only=only, report=options.report)

    def choose_rule(self, options: AskOptions) -> ShowRule:
        """The rule at the risk that was asked for; without a text answers can only be right."""
        has_text = self.evidence is not None
        target = GUARANTEES[options.guarantee] if has_text else RIGHT
        if self.confidence is None:
            return ShowRule(target, None, None, options.always_answer)
        threshold, internal = (
            self.confidence.guarantee(target, mode, options.risk)
            for mode in (CHECKED if has_text else INTERNAL, INTERNAL)
        )
        return ShowRule(target, threshold, internal, options.always_answer)


def decide(rated: Verdict, support: Support | None, rule: ShowRule) -> Verdict:
    """The whole verdict on an answer with its probabilities, by what the text says (None without).

    It is shown if a line states it and its probability reaches the threshold. Without a confidence
    the line alone decides, without a text the internal probability.
    """
    likely = rated.from_text if rule.target == FROM_TEXT else rated.right
    passes_internal = _reaches(likely.get(INTERNAL), rule.internal_threshold)
    if support is None:
        is_answer = bool(rated.answer)
        is_supported, passes = rule.threshold is not None, passes_internal
    else:
        is_answer = bool(rated.answer) and support.of_kind
        is_supported = support.states_answer
        passes = rule.threshold is None or _reaches(likely.get(CHECKED), rule.threshold)
    is_shown = rule.always_answer or (is_supported and passes and is_answer)
    return replace(
        rated,
        shown=rated.answer if is_shown else DONT_KNOW,
        why=explain(rated, support, rule, is_below=is_supported and not passes),
        shown_internal=passes_internal and is_answer,
        **(_fields_of_text(support) if support else {}),
    )


def _row(columns: Mapping[str, Floats | None], row: int) -> dict[str, float | None]:
    """One row of some columns, for JSON: what is undefined or infinite is None."""
    values = {name: None if column is None else column[row] for name, column in columns.items()}
    return {
        name: None if value is None or not math.isfinite(value) else float(value)
        for name, value in values.items()
    }


def _reaches(probability: float | None, threshold: TestedThreshold | None) -> bool:
    return probability is not None and threshold is not None and probability >= threshold.used


def _fields_of_text(support: Support) -> dict[str, Any]:
    """The fields of a verdict that the text decides."""
    unstated = MISREMEMBERED if support.seen else MADE_UP
    return {
        "verdict": STATED if support.states_answer else unstated,
        "seen": support.seen,
        "evidence": support.lines,
        "similar": support.similar,
        "stated": support.stated,
    }
