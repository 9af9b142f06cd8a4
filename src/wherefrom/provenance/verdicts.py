"""Verdicts: for every answer where it came from, whether it is shown, and a sentence of why.

`give_verdicts` decides, `Verdict.sentence` words it. Stated: a line about the subject states the
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

from wherefrom.errors import Printable, UserError, checked
from wherefrom.provenance.confidence.calibration import HALF, NEVER, Guarantee
from wherefrom.provenance.confidence.fit import CHECKED, FROM_TEXT, INTERNAL, RIGHT, Confidence
from wherefrom.provenance.evidence import Evidence, EvidenceLine, Support, find_support
from wherefrom.provenance.signals.reader import relation_of
from wherefrom.recall.decode import answer_all
from wherefrom.training.run_folder import Run

STATED, REMEMBERED = SUPPORTED = ("stated", "remembered")
MISREMEMBERED, MADE_UP = "misremembered", "made up"
GUESSED = "guessed"  # right without a line that states it; needs the truth
DONT_KNOW = "I don't know"
LIKELIER = 0.69  # nats by which a remembered answer is likelier than for names in no line
# what is guaranteed of the answers shown, and what it is called in calibration.json
GUARANTEES = {"from-text": FROM_TEXT, "right": RIGHT}
NO_TEXT = "there is no text to look the answer up in"
NO_CALIBRATION = "there is no confidence: the run was not calibrated; `wherefrom study` does that"
LONGEST_SHOWN = 60  # characters of a name or an answer within a sentence
DIFFER = 0.1  # a sentence says both probabilities if they differ by this much
LONGEST_LINE = 200  # characters of a document below a verdict


@dataclass(frozen=True, repr=False)
class Verdict(Printable):
    """All that is known about one answer; what cannot be computed is None, never NaN.

    answer: what the model says; shown: what the user sees. from_text, right: probabilities,
    `internal` by the model alone, `checked` with the text. similar: lines about similar names.
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
    also: tuple[str, ...] = ()
    seen: bool | None = None
    evidence: tuple[EvidenceLine, ...] = ()
    signals: Mapping[str, float | None] = field(default_factory=dict)
    similar: tuple[EvidenceLine, ...] = ()
    pushed: Mapping[str, float] | None = None
    error: str | None = None

    @property
    def confidence(self) -> float | None:
        return self.right.get("checked")

    @property
    def internal_confidence(self) -> float | None:
        return self.right.get("internal")

    def summary(self) -> list[tuple[str, str]]:
        """Rows to print: the answer and its sentence, the lines of the text, and why."""
        lines = [(f"line {line.line}", excerpt(line.text, self.answer)) for line in self.evidence]
        return [(shorten(self.shown), self.sentence()), *lines, ("why", self.why)]

    def sentence(self) -> str:
        """Where the answer is from, and how likely it is right."""
        answer = shorten(self.answer) or "nothing"
        stating = [line for line in self.evidence if line.states_answer]
        where = "Not looked up."
        if self.verdict in SUPPORTED:
            where = f"Stated by {_lines(stating)}"
            if self.verdict == REMEMBERED and self.pushed is not None:
                where = f"Remembered: line {self.pushed['line']:.0f} states it and pushed it"
            if self.also:
                also = _join([shorten(other) for other in self.also[:3]], "and")
                where += f"; {'they also name' if stating[1:] else 'it also names'} {also}"
            where += "."
        elif self.verdict is not None:
            where = f"{self.verdict.capitalize()}: nothing in the text supports it."
        mode = "internal" if self.confidence is None else "checked"
        sure, text = self.right.get(mode), self.from_text.get(mode)
        likely = "" if sure is None else f" {percent(sure).capitalize()} likely to be right."
        if sure is not None and text is not None and abs(text - sure) >= DIFFER:
            likely = (
                f" {percent(text).capitalize()} likely to be from the text, {percent(sure)} to be "
                "right."
            )
        if self.shown != DONT_KNOW:
            return where + likely
        if self.verdict in SUPPORTED:
            return f"It would have said {answer}. {where}{likely}"
        if self.verdict is None:
            return f"It would have said {answer}.{likely}"
        if not self.answer:
            return "The model gave no answer, and no line of the text supports one."
        return f"Nothing in the text supports what it would have said ({answer})."

    def __str__(self) -> str:
        (shown, what), *lines, (_, why) = self.summary()
        inside = [f"  {label:<10} {text}" for label, text in lines]
        return "\n".join([f"{shown}. {what}", *inside, f"  {why}"])

    def to_dict(self) -> dict[str, Any]:
        """The record for JSON and the page; `pushed` and `error` are there only if they are set."""
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
            "also": list(self.also),
            "seen": self.seen,
            "evidence": [
                {"line": line.line, "text": line.text, "states_answer": line.states_answer}
                for line in self.evidence
            ],
            "signals": dict(self.signals),
        }
        optional = {"pushed": self.pushed, "error": self.error}
        return record | {name: value for name, value in optional.items() if value}


def add_trace(verdict: Verdict, trace: Mapping[str, Any]) -> Verdict:
    """The verdict with what a trace (its record) says about the lines that state the answer.

    A stated answer is remembered if such a line pushed it above the noise floor, and if it is
    clearly likelier than for names in no line: a model that hardly learned remembers nothing.
    """
    stating = {line.line for line in verdict.evidence if line.states_answer}
    rows = [row for row in trace["pushed_by"] if row["line"] in stating]
    if verdict.verdict not in SUPPORTED or not rows:
        return verdict
    pushed = {key: rows[0][key] for key in ("line", "push")}
    gap = trace["likelier_than_for_other_names"]
    caused = pushed["push"] > trace["noise_floor"] and (gap is None or gap > LIKELIER)
    pushed["noise_floor"] = trace["noise_floor"]
    return replace(verdict, verdict=REMEMBERED if caused else STATED, pushed=pushed)


@checked
def give_verdicts(
    run: Run,
    confidence: Confidence | None,
    evidence: Evidence | None,
    questions: Sequence[str],
    subjects: Sequence[str],
    *,
    always_answer: bool = False,
    risk: float | None = None,
    guarantee: str = "from-text",
    unseen_share: float | None = None,
    answers: Sequence[str] | None = None,
    known_answers: Sequence[str] = (),
    also: Collection[str] | None = (),
    report: Callable[[int], None] | None = None,
) -> list[Verdict]:
    """A verdict on the run's answer to each question, or on the `answers` that somebody gave.

    An answer is shown if a line states it and its probability reaches the threshold. Without a
    confidence the line alone decides, without evidence the internal probability. guarantee: at
    most a share of `risk` of what is shown is wrong ("right") or not stated ("from-text"). also:
    further signals to read; None reads all.
    """
    if guarantee not in GUARANTEES:
        raise UserError(f'a guarantee is "from-text" or "right", not "{shorten(guarantee)}".')
    for name, share in (("risk", risk), ("unseen share", unseen_share)):
        if share is not None and not 0 < share < 1:
            raise UserError(
                f"the {name} must lie between 0 and 1, as 0.05 for 5 %; {share:g} is not."
            )
    if not questions:
        return []
    target = GUARANTEES[guarantee] if evidence is not None else RIGHT

    # the answers, and what the model gives away about them
    whose = "what it would have said" if answers is None else "the answer given"
    signals: Mapping[str, Any] = {}
    if confidence is not None:
        only = None if also is None else {*confidence.signals, *also}
        answers, signals = confidence.reader.read(
            questions, subjects, answers=answers, only=only, report=report
        )
        known_answers = confidence.signal_state.known_answers
    elif answers is None:
        greedy = answer_all(run.model, run.tokens, questions, report=report)
        answers = [answer.text for answer in greedy]
        signals = {"log_probability": [answer.log_probability for answer in greedy]}
    elif report is not None:
        report(len(answers))

    # what the text says about them
    support: list[Support] | None = None
    if evidence is not None:
        relations = list(map(relation_of, questions, subjects))
        support = find_support(evidence, subjects, answers, known_answers, templates=relations)

    # how likely they are, and from which threshold on they are shown
    threshold: Guarantee | None = None
    probabilities: dict[str, dict[str, Any]] = {}
    passes_internal = np.zeros(len(answers), dtype=bool)
    if confidence is not None:
        mode = INTERNAL if evidence is None else CHECKED
        threshold = confidence.guarantee(target, mode, risk, unseen_share)
        probabilities = confidence.probabilities(signals, support)
        internal = confidence.guarantee(target, INTERNAL, risk, unseen_share)
        passes_internal = probabilities[target][INTERNAL] >= internal.used
        if unseen_share is not None:
            for modes in probabilities.values():
                modes[INTERNAL] = confidence.reweight(modes[INTERNAL], signals, unseen_share)
            passes_internal &= probabilities[target][INTERNAL] >= HALF

    verdicts = []
    for i, answer in enumerate(answers):
        backing = None if support is None else support[i]
        likely = {
            name: {mode: None if p is None else _number(p[i]) for mode, p in modes.items()}
            for name, modes in probabilities.items()
        }
        if backing is None:
            is_backed, is_answer = threshold is not None, bool(answer)
            passes = bool(passes_internal[i])
        else:
            is_backed, is_answer = backing.states_answer, bool(answer) and backing.of_kind
            sure = likely.get(target, {}).get(CHECKED)
            passes = threshold is None or (sure is not None and sure >= threshold.used)
        shown = always_answer or (is_backed and passes and is_answer)
        reasons = [_explain_support(subjects[i], answer, backing)]
        if threshold is None:
            reasons.append(NO_CALIBRATION)
        else:
            below = whose if is_backed and not passes else ""
            reasons += _explain_threshold(threshold, target, below)
        if backing is not None and backing.similar:
            names = [f"{shorten(line.subject)} (line {line.line})" for line in backing.similar]
            reasons.append(f"did you mean {_join(names, 'or')}?")
        verdicts.append(
            Verdict(
                question=questions[i],
                subject=subjects[i],
                answer=answer,
                shown=answer if shown else DONT_KNOW,
                why="; ".join(reasons),
                from_text=likely.get(FROM_TEXT, {}),
                right=likely.get(RIGHT, {}),
                shown_internal=bool(passes_internal[i]) and is_answer,
                signals={name: _number(column[i]) for name, column in signals.items()},
                **(_look_up(backing) if backing else {}),
            )
        )
    return verdicts


def _look_up(support: Support) -> dict[str, Any]:
    """The fields of a verdict that the text decides."""
    unstated = MISREMEMBERED if support.seen else MADE_UP
    return {
        "verdict": STATED if support.states_answer else unstated,
        "seen": support.seen,
        "evidence": support.lines,
        "similar": support.similar,
        "also": support.others if support.states_answer else (),
    }


def _explain_support(subject: str, answer: str, support: Support | None) -> str:
    """What the text says: which lines state the answer, another one, or nothing."""
    if support is None:
        return NO_TEXT
    name, said = shorten(subject), shorten(answer) or "it"
    about = [line for line in support.lines if line.about]
    if support.states_answer:
        stating = [line for line in about if line.states_answer]
        states = "states" if len(stating) == 1 else "state"
        return f"{_lines(stating, 'is', 'are')} about {name} and {states} {said}"
    if not support.of_kind:
        return f"{said} is of another kind than the answers to such questions"
    if support.others:
        stated = _join([shorten(other) for other in support.others[:3]], "or")
        return f"the text says {stated} about {name}, not {said}"
    if about:
        states = "states" if len(about) == 1 else "state"
        return f"{_lines(about, 'is', 'are')} about {name} and {states} no such answer"
    if support.seen:
        return f"no line is about {name}; {_lines(support.lines, 'mentions', 'mention')} the name"
    return f"no line names {name}"


def _explain_threshold(threshold: Guarantee, target: str, below: str) -> list[str]:
    """What is below the threshold (`below`, if anything), and that it is not guaranteed if so."""
    reasons = []
    used = percent(threshold.used)
    if below and threshold.used < NEVER:
        if threshold.threshold is not None:
            errors = "wrong" if target == RIGHT else "not from the text"
            used += (
                f" (from there on at most {100 * threshold.risk:.3g} % of the run's own answers "
                f"are {errors}, with {1 - threshold.delta:.0%} confidence)"
            )
        reasons.append(f"{below} is below {used}")
    if threshold.threshold is None and threshold.reason:
        reasons.append(
            "nothing can be guaranteed with so few subjects to test it on"
            if threshold.used >= NEVER
            else f"shown from {used} on, by estimate, not guaranteed"
        )
    return reasons


def percent(share: float) -> str:
    """A share in percent; rounding never claims certainty."""
    if share < 0.005:
        return "under 1 %" if share > 0 else "0 %"
    return "over 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def excerpt(text: str, answer: str) -> str:
    """A document, cut to LONGEST_LINE characters around the answer."""
    shown = _on_one_line(text)
    if len(shown) <= LONGEST_LINE:
        return shown
    i = shown.casefold().find(answer.casefold()) if answer else -1
    start = 0 if i + len(answer) <= LONGEST_LINE else i - LONGEST_LINE // 2
    cut = shown[start : start + LONGEST_LINE]
    return f"{'...' if start else ''}{cut}{'...' if start + LONGEST_LINE < len(shown) else ''}"


def shorten(text: str) -> str:
    """A text on one line, without control characters, cut to LONGEST_SHOWN characters."""
    shown = _on_one_line(text)
    return shown if len(shown) <= LONGEST_SHOWN else shown[: LONGEST_SHOWN - 3] + "..."


def _on_one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _lines(lines: Sequence[EvidenceLine], singular: str = "", plural: str = "") -> str:
    """ "line 3", or "lines 3 and 5", and the verb that follows."""
    numbers, several = [str(line.line) for line in lines], len(lines) > 1
    words = ("lines" if several else "line", _join(numbers, "and"), plural if several else singular)
    return " ".join(words).rstrip()


def _join(words: Sequence[str], last: str) -> str:
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _number(value: float) -> float | None:
    """A number for JSON: what is undefined or infinite is None."""
    return float(value) if math.isfinite(value) else None
