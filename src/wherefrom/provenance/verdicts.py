"""Verdicts: for every answer where it came from, whether it is shown, and a sentence of why.

The evidence decides the verdict, and the confidence decides whether the answer is shown.
Remembered: a line about the subject states it. Misremembered: the subject is in the text, and no
such line is. Made up: nobody of that name is in the text. What this can tell and what it cannot:
docs/verdicts.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wherefrom.provenance.confidence.guarantee import Guarantee
from wherefrom.provenance.evidence.index import Evidence
from wherefrom.provenance.evidence.lookup import EvidenceLine, Support, find_support
from wherefrom.recall.decode import answer_all
from wherefrom.results import Printable
from wherefrom.training.run_folder import Run

if TYPE_CHECKING:
    from wherefrom.provenance.confidence.fit import Confidence

REMEMBERED, MISREMEMBERED, MADE_UP = "remembered", "misremembered", "made up"
GUESSED = "guessed"  # right without a line that states it: only where the truth is known
DONT_KNOW = "I don't know"
NO_TEXT = "nothing can be looked up, since the run read no documents"
NO_CALIBRATION = "there is no confidence, since the run was not calibrated (study does that)"
LONGEST_SHOWN = 60  # characters of a name or an answer within a sentence
LONGEST_LINE = 200  # characters of a document below a verdict


@dataclass(frozen=True, repr=False)
class Verdict(Printable):
    """All that is said about one answer; what cannot be computed is None, never NaN.

    answer: what the model says. shown: what the user sees, the answer or "I don't know". seen:
    some line names the subject. similar: lines about names that look alike, which are no evidence.
    error: why the question could not be asked; nothing else is known then.
    """

    question: str
    subject: str
    answer: str = ""
    shown: str = DONT_KNOW
    verdict: str | None = None
    why: str = ""
    confidence: float | None = None
    internal_confidence: float | None = None
    seen: bool | None = None
    evidence: tuple[EvidenceLine, ...] = ()
    signals: Mapping[str, float | None] = field(default_factory=dict)
    similar: tuple[EvidenceLine, ...] = ()
    error: str | None = None

    def summary(self) -> list[tuple[str, str]]:
        """What is shown and what it is, the lines of the text, and why."""
        alone = self.internal_confidence
        sure = alone if self.confidence is None else self.confidence
        what = self.verdict or "not looked up"
        if sure is not None:
            what += f"; {percent(sure)} likely to be right"
        if self.confidence and alone:
            what += f" ({percent(alone)} by the model alone)"
        lines = [(f"line {line.line}", excerpt(line.text, self.answer)) for line in self.evidence]
        return [(shorten(self.shown), what), *lines, ("why", self.why)]

    def __str__(self) -> str:
        (shown, what), *lines, (_, why) = self.summary()
        inside = [f"  {label:<10} {text}" for label, text in lines]
        return "\n".join([f"{shown:<20}{what}", *inside, f"  {why}"])

    def to_dict(self) -> dict[str, Any]:
        """The record that JSON and the page show; `error` is there only if there is one."""
        record = {name: value for name, value in vars(self).items() if name != "similar"}
        record["evidence"] = [
            {"line": line.line, "text": line.text, "states_answer": line.states_answer}
            for line in self.evidence
        ]
        record["signals"] = dict(self.signals)
        return record if self.error else {k: v for k, v in record.items() if k != "error"}


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
    said: Sequence[str]
    known: Sequence[str] = known_answers or ()
    columns: Mapping[str, Any] = {}
    if confidence is not None:
        only = None if also is None else {*confidence.signals, *also}
        table = confidence.reader.read(
            questions, subjects, answers=answers, only=only, report=report
        )
        said, columns, known = table.answers, table.columns, confidence.reader.known_answers
    elif answers is None:
        given = answer_all(run.model, run.tokens, questions, report=report)
        said = [each.text for each in given]
        columns = {"log_probability": [each.log_probability for each in given]}
    else:
        said = answers
        if report is not None:
            report(len(said))
    support = None if evidence is None else find_support(evidence, subjects, said, known)
    internal = checked = guarantee = None
    if confidence is not None:
        internal = confidence.internal_probability(table)
        checked = None if support is None else confidence.checked_probability(table, support)
        guarantee = confidence.guarantee(risk, checked=evidence is not None)
    return [
        _judge(
            questions[at],
            subjects[at],
            answer,
            {name: _number(column[at]) for name, column in columns.items()},
            None if support is None else support[at],
            None if internal is None else _number(internal[at]),
            None if checked is None else _number(checked[at]),
            guarantee,
            always_answer=always_answer,
            given=answers is not None,
        )
        for at, answer in enumerate(said)
    ]


def _judge(
    question: str,
    subject: str,
    answer: str,
    signals: dict[str, float | None],
    support: Support | None,
    internal: float | None,
    checked: float | None,
    guarantee: Guarantee | None,
    *,
    always_answer: bool,
    given: bool,
) -> Verdict:
    """One verdict; `given`: the answer is somebody else's and not the run's own."""
    sure = internal if support is None else checked
    supported = guarantee is not None if support is None else support.states_answer
    enough = guarantee is None or (sure is not None and sure >= guarantee.used)
    shown = always_answer or (supported and enough and bool(answer))
    verdict = None
    if support is not None:
        unstated = MISREMEMBERED if support.seen else MADE_UP
        verdict = REMEMBERED if support.states_answer else unstated
    reasons = [_explain_support(subject, answer, support)]
    would = f"{'the answer given is' if given else 'it would have said'} "
    would += shorten(answer) or "nothing"
    if guarantee is None or not supported:
        reasons += [] if shown else [would]
    else:
        below = "" if enough else f"its confidence is below {_from_where(guarantee)}"
        if not shown:
            reasons.append(f"{would}, but {below}" if below else would)
        elif below:
            reasons.append(below)
        if guarantee.threshold is None:  # why is in the notes of the run's numbers
            start = percent(guarantee.used)
            reasons.append(f"answers are shown from {start} on, with no guarantee")
    if guarantee is None:
        reasons.append(NO_CALIBRATION)
    if support is not None and support.similar:
        names = [f"{shorten(line.subject)} (line {line.line})" for line in support.similar]
        reasons.append(f"did you mean {_join(names, 'or')}?")
    return Verdict(
        question=question,
        subject=subject,
        answer=answer,
        shown=answer if shown else DONT_KNOW,
        verdict=verdict,
        why="; ".join(reasons),
        confidence=checked,
        internal_confidence=internal,
        seen=None if support is None else support.seen,
        evidence=() if support is None else support.lines,
        signals=signals,
        similar=() if support is None else support.similar,
    )


def _explain_support(subject: str, answer: str, support: Support | None) -> str:
    """What the text says: the lines that state the answer, another one, or nothing."""
    if support is None:
        return NO_TEXT
    name, said = shorten(subject), shorten(answer) or "it"
    about = [line for line in support.lines if line.about]
    if support.states_answer:
        stating = [line for line in about if line.states_answer]
        states = "states" if len(stating) == 1 else "state"
        return f"{_lines(stating, 'is', 'are')} about {name} and {states} {said}"
    if support.others:
        stated = _join([shorten(other) for other in support.others[:3]], "or")
        return f"what is written about {name} does not state {said} but {stated}"
    if about:
        states = "states" if len(about) == 1 else "state"
        return f"{_lines(about, 'is', 'are')} about {name} and {states} no such answer"
    if support.seen:
        return f"no line is about {name}; {_lines(support.lines, 'names', 'name')} them"
    return f"no line names {name}"


def _from_where(guarantee: Guarantee) -> str:
    """The threshold, and what is guaranteed from there on."""
    if guarantee.threshold is None:
        return percent(guarantee.used)
    return (
        f"{percent(guarantee.used)} (from there on at most {100 * guarantee.risk:.3g} % of the "
        f"run's own answers are wrong, with {1 - guarantee.delta:.0%} confidence)"
    )


def percent(share: float) -> str:
    """A share as people read it; certainty is not claimed by rounding."""
    if share < 0.005:
        return "under 1 %" if share > 0 else "0 %"
    return "over 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def excerpt(text: str, answer: str) -> str:
    """A document as far as it fits a screen, with the answer in sight."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(shown) <= LONGEST_LINE:
        return shown
    at = shown.casefold().find(answer.casefold()) if answer else -1
    start = 0 if at + len(answer) <= LONGEST_LINE else at - LONGEST_LINE // 2
    cut = shown[start : start + LONGEST_LINE]
    return f"{'...' if start else ''}{cut}{'...' if start + LONGEST_LINE < len(shown) else ''}"


def shorten(text: str) -> str:
    """A text on one line, without control characters, and not too long to stand in a sentence."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    shown = " ".join(shown.split())
    return shown if len(shown) <= LONGEST_SHOWN else shown[: LONGEST_SHOWN - 3] + "..."


def _lines(lines: Sequence[EvidenceLine], one: str, many: str) -> str:
    numbers = [str(line.line) for line in lines]
    return f"line{'s' if lines[1:] else ''} {_join(numbers, 'and')} {many if lines[1:] else one}"


def _join(words: Sequence[str], last: str) -> str:
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _number(value: float) -> float | None:
    """A number for JSON: what is undefined or infinite is None."""
    return float(value) if math.isfinite(value) else None
