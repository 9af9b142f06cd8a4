"""Verdicts: for every answer where it came from, whether it is shown, and a sentence of why.

The evidence decides the verdict, and the confidence decides whether the answer is shown.
Remembered: a line about the subject states it. Misremembered: the subject is in the text, and no
such line is. Made up: nobody of that name is in the text. What this can tell and what it cannot:
docs/verdicts.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wherefrom.provenance.confidence.guarantee import Guarantee
from wherefrom.provenance.evidence.index import Evidence, EvidenceLine
from wherefrom.provenance.evidence.lookup import Support, find_support
from wherefrom.recall.decode import answer_all
from wherefrom.training.run_folder import Run

NO_TEXT = "nothing can be looked up, since the run read no documents"
SHOWN = 60  # characters of a name or an answer within a sentence


@dataclass(frozen=True)
class Threshold:
    """From which confidence on answers are shown, and what that guarantees or why nothing."""

    value: float
    promise: str | None
    no_promise: str | None = None


def threshold_of(promised: Guarantee) -> Threshold:
    """The threshold of a guarantee, or the estimated one and why none could be promised."""
    if promised.threshold is None:
        reason = promised.reason or "no threshold can be promised"
        return Threshold(promised.used, None, reason.rstrip("."))
    sure = f"with {1 - promised.delta:.0%} confidence"
    wrong = f"at most {100 * promised.risk:.3g} % of the run's own answers are wrong"
    return Threshold(promised.threshold, f"from there on {wrong}, {sure}")


def explain_support(subject: str, answer: str, support: Support | None) -> str:
    """What the text says: the lines that state the answer, another one, or nothing."""
    if support is None:
        return NO_TEXT
    name, said = shorten(subject), shorten(answer) or "it"
    about = [line for line in support.lines if line.about]
    if support.states_answer:
        stating = [line for line in about if line.states_answer]
        return f"{_lines(stating, 'is', 'are')} about {name} and {_states(stating)} {said}"
    if support.others:
        stated = _either([shorten(other) for other in support.others[:3]])
        return f"what is written about {name} does not state {said} but {stated}"
    if about:
        return f"{_lines(about, 'is', 'are')} about {name} and {_states(about)} no such answer"
    if support.seen:
        return f"no line is about {name}; {_lines(support.lines, 'names', 'name')} them"
    return f"no line names {name}"


def explain_telling(
    answer: str,
    *,
    shown: bool,
    sure: float | None,
    supported: bool,
    threshold: Threshold | None,
    given: bool = False,
) -> str | None:
    """Why the answer is held back or shown against the odds, or None where that needs no word.

    `given`: the answer is somebody else's and not the run's own.
    """
    said = (
        f"{'the answer given is' if given else 'it would have said'} {shorten(answer) or 'nothing'}"
    )
    if threshold is None or not supported:
        return None if shown else said
    reasons = [] if shown else [said]
    if sure is None or sure < threshold.value:
        promise = f" ({threshold.promise})" if threshold.promise else ""
        below = f"its confidence is below {percent(threshold.value)}{promise}"
        reasons = [below] if shown else [f"{said}, but {below}"]
    if threshold.no_promise:  # all of it is shown once, with the run's numbers
        reasons.append(f"answers are shown from {percent(threshold.value)} on, with no guarantee")
    return "; ".join(reasons) or None


def look_alikes(similar: Sequence[EvidenceLine]) -> str | None:
    """The names that somebody who misspelt one may have meant."""
    names = [f"{shorten(line.subject)} (line {line.line})" for line in similar]
    return f"did you mean {_either(names)}?" if names else None


def percent(share: float) -> str:
    """A share as people read it; certainty is not claimed by rounding."""
    if share < 0.005:
        return "under 1 %" if share > 0 else "0 %"
    return "over 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def shorten(text: str) -> str:
    """A text on one line, without control characters, and not too long to stand in a sentence."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    shown = " ".join(shown.split())
    return shown if len(shown) <= SHOWN else shown[: SHOWN - 3] + "..."


def _lines(lines: Sequence[EvidenceLine], one: str, many: str) -> str:
    numbers = [str(line.line) for line in lines]
    if len(numbers) == 1:
        return f"line {numbers[0]} {one}"
    return f"lines {', '.join(numbers[:-1])} and {numbers[-1]} {many}"


def _states(lines: Sequence[EvidenceLine]) -> str:
    return "states" if len(lines) == 1 else "state"


def _either(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} or {names[-1]}"


if TYPE_CHECKING:
    from wherefrom.provenance.confidence.fit import Confidence

REMEMBERED, MISREMEMBERED, MADE_UP = "remembered", "misremembered", "made up"
GUESSED = "guessed"  # right without a line that states it: only where the truth is known
DONT_KNOW = "I don't know"
NO_CALIBRATION = "there is no confidence, since the run was not calibrated (study does that)"


@dataclass(frozen=True)
class Verdict:
    """All that is said about one answer; what cannot be computed is None, never NaN.

    `similar` are lines about names that look alike: a hint, and no evidence.
    """

    question: str
    subject: str
    answer: str  # what the model says, whether it is shown or not
    shown: str  # what the user sees: the answer, or "I don't know"
    verdict: str | None
    why: str
    confidence: float | None
    internal_confidence: float | None
    seen: bool | None
    evidence: tuple[EvidenceLine, ...]
    signals: Mapping[str, float | None]
    similar: tuple[EvidenceLine, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The record that JSON and the page show."""
        return {
            "question": self.question,
            "subject": self.subject,
            "answer": self.answer,
            "shown": self.shown,
            "verdict": self.verdict,
            "why": self.why,
            "confidence": self.confidence,
            "internal_confidence": self.internal_confidence,
            "seen": self.seen,
            "evidence": [
                {"line": line.line, "text": line.text, "states_answer": line.states_answer}
                for line in self.evidence
            ],
            "signals": dict(self.signals),
        }


@dataclass(frozen=True)
class _Said:
    """One answer and what was computed about it."""

    answer: str
    signals: Mapping[str, float | None]
    support: Support | None
    checked: float | None = None
    internal: float | None = None


def give_verdicts(
    run: Run,
    confidence: Confidence | None,
    evidence: Evidence | None,
    questions: Sequence[str],
    subjects: Sequence[str],
    *,
    always_answer: bool = False,
    risk: float | None = None,
    answers: Sequence[str] | None = None,
    known_answers: Sequence[str] | None = None,
    also: Collection[str] | None = (),
    report: Callable[[int], None] | None = None,
) -> list[Verdict]:
    """A verdict on the run's answer to each question, or on the `answers` that somebody gave.

    Without a confidence the evidence alone decides what is shown; without evidence there is no
    verdict, and the internal confidence decides. `known_answers` are what documents may state
    instead of an answer; a confidence knows them. Signals that the confidence does not take are
    read only if `also` names them; None reads all.
    """
    if not questions:
        return []
    if confidence is None:
        said = _without_confidence(
            run, evidence, questions, subjects, answers, known_answers or (), report
        )
        threshold = None
    else:
        said = _with_confidence(confidence, evidence, questions, subjects, answers, also, report)
        threshold = find_threshold(confidence, risk, checked=evidence is not None)
    return [
        _judge(question, subject, each, threshold, always_answer, given=answers is not None)
        for question, subject, each in zip(questions, subjects, said, strict=True)
    ]


def name_verdict(support: Support) -> str:
    """The verdict that the evidence gives."""
    if support.states_answer:
        return REMEMBERED
    return MISREMEMBERED if support.seen else MADE_UP


def find_threshold(
    confidence: Confidence, risk: float | None = None, *, checked: bool = True
) -> Threshold:
    """From which confidence on an answer is shown, at this risk or that of the calibration."""
    promised = confidence.checked.guarantee if checked else confidence.internal.guarantee
    if risk is not None and risk != promised.risk:
        promised = confidence.guarantee(risk, checked=checked)
    return threshold_of(promised)


def _with_confidence(
    confidence: Confidence,
    evidence: Evidence | None,
    questions: Sequence[str],
    subjects: Sequence[str],
    answers: Sequence[str] | None,
    also: Collection[str] | None,
    report: Callable[[int], None] | None,
) -> list[_Said]:
    reader = confidence.reader
    only = None if also is None else {*confidence.signals, *also}
    table = reader.read(questions, subjects, answers=answers, only=only, report=report)
    internal = confidence.internal_probability(table)
    support: list[Support] | None = None
    checked = None
    if evidence is not None:
        support = find_support(evidence, subjects, table.answers, reader.known_answers)
        checked = confidence.checked_probability(table, support)
    return [
        _Said(
            answer=answer,
            signals={name: _number(column[at]) for name, column in table.columns.items()},
            support=None if support is None else support[at],
            checked=None if checked is None else _number(checked[at]),
            internal=_number(internal[at]),
        )
        for at, answer in enumerate(table.answers)
    ]


def _without_confidence(
    run: Run,
    evidence: Evidence | None,
    questions: Sequence[str],
    subjects: Sequence[str],
    answers: Sequence[str] | None,
    known_answers: Sequence[str],
    report: Callable[[int], None] | None,
) -> list[_Said]:
    signals: list[dict[str, float | None]] = [{} for _ in questions]
    if answers is None:
        given = answer_all(run.model, run.tokens, questions, report=report)
        answers = [each.text for each in given]
        signals = [{"log_probability": _number(each.log_probability)} for each in given]
    elif report is not None:
        report(len(answers))
    support: Sequence[Support | None] = [None] * len(questions)
    if evidence is not None:
        support = find_support(evidence, subjects, answers, known_answers)
    return [_Said(*row) for row in zip(answers, signals, support, strict=True)]


def _judge(
    question: str,
    subject: str,
    said: _Said,
    threshold: Threshold | None,
    always_answer: bool,
    *,
    given: bool,
) -> Verdict:
    support, answer = said.support, said.answer
    sure = said.internal if support is None else said.checked
    supported = support.states_answer if support is not None else threshold is not None
    enough = threshold is None or (sure is not None and sure >= threshold.value)
    shown = always_answer or (supported and enough and bool(answer))
    reasons = [
        explain_support(subject, answer, support),
        explain_telling(
            answer,
            shown=shown,
            sure=sure,
            supported=supported,
            threshold=threshold,
            given=given,
        ),
        NO_CALIBRATION if threshold is None else None,
        look_alikes(support.similar) if support is not None else None,
    ]
    return Verdict(
        question=question,
        subject=subject,
        answer=answer,
        shown=answer if shown else DONT_KNOW,
        verdict=None if support is None else name_verdict(support),
        why="; ".join(reason for reason in reasons if reason),
        confidence=said.checked,
        internal_confidence=said.internal,
        seen=None if support is None else support.seen,
        evidence=() if support is None else support.lines,
        signals=said.signals,
        similar=() if support is None else support.similar,
    )


def _number(value: float) -> float | None:
    """A number for JSON: what is undefined or infinite is None."""
    return float(value) if math.isfinite(value) else None
