"""Verdicts: for every answer where it came from, whether it is shown, and a sentence of why.

Stated: a line about the subject states it as the answer to this relation, by look-up. Remembered:
such a line also pushed it, by a trace. Misremembered: the subject is in the text, and no such line
is. Made up: nobody of that name is in the text. See docs/provenance.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wherefrom.corpus.questions import SLOT
from wherefrom.errors import Printable, UserError, checked
from wherefrom.provenance.confidence.calibration import HALF, NEVER, Guarantee
from wherefrom.provenance.confidence.fit import CHECKED, FROM_TEXT, INTERNAL, RIGHT, Confidence
from wherefrom.provenance.evidence import Evidence, EvidenceLine, Support, find_support
from wherefrom.recall.decode import answer_all
from wherefrom.training.run_folder import Run

STATED, REMEMBERED = SUPPORTED = ("stated", "remembered")
MISREMEMBERED, MADE_UP = "misremembered", "made up"
GUESSED = "guessed"  # right without a line that states it: only where the truth is known
DONT_KNOW = "I don't know"
LIKELIER = 0.69  # nats (twice) above names in no line, for an answer to owe something to one
# what is guaranteed of the answers shown, and what it is called in calibration.json
GUARANTEES = {"from-text": FROM_TEXT, "right": RIGHT}
NO_TEXT = "nothing can be looked up, since there is no text"
NO_CALIBRATION = "there is no confidence, since the run was not calibrated (study does that)"
LONGEST_SHOWN = 60  # characters of a name or an answer within a sentence
DIFFER = 0.1  # between the two probabilities, from which on a sentence says both
LONGEST_LINE = 200  # characters of a document below a verdict


@dataclass(frozen=True, repr=False)
class Verdict(Printable):
    """All that is said about one answer; what cannot be computed is None, never NaN.

    answer: what the model says; shown: what the user sees. from_text, right: probabilities,
    `internal` by the model alone, `checked` with the text. similar: lines that are no evidence.
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
        """What is shown and where it is from, the lines of the text, and why."""
        lines = [(f"line {line.line}", excerpt(line.text, self.answer)) for line in self.evidence]
        return [(shorten(self.shown), self.sentence()), *lines, ("why", self.why)]

    def sentence(self) -> str:
        """Where the answer is from, and how likely it is right, as a person would say it."""
        said = shorten(self.answer) or "nothing"
        stating = [line for line in self.evidence if line.states_answer]
        where = "Not looked up."
        if self.verdict in SUPPORTED:
            where = f"Stated by {_lines(stating)}"
            if self.verdict == REMEMBERED and self.pushed is not None:
                where = f"Remembered: line {self.pushed['line']:.0f} states it and pushed it"
            if self.also:
                also = _join([shorten(one) for one in self.also[:3]], "and")
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
            return f"It would have said {said}. {where}{likely}"
        if self.verdict is None:
            return f"It would have said {said}.{likely}"
        if not self.answer:
            return "It has no answer, and nothing in the text supports one."
        return f"Nothing in the text supports what it would have said ({said})."

    def __str__(self) -> str:
        (shown, what), *lines, (_, why) = self.summary()
        inside = [f"  {label:<10} {text}" for label, text in lines]
        return "\n".join([f"{shown}. {what}", *inside, f"  {why}"])

    def to_dict(self) -> dict[str, Any]:
        """The record that JSON and the page show; `error` is there only if there is one."""
        keys = ("question", "subject", "answer", "shown", "verdict", "why", "confidence",
                "internal_confidence", "from_text", "right", "shown_internal", "also", "seen",
                "evidence", "signals", *(["pushed"] if self.pushed else []),
                *(["error"] if self.error else []))  # fmt: skip
        record = {name: getattr(self, name) for name in keys}
        record["evidence"] = [
            {"line": line.line, "text": line.text, "states_answer": line.states_answer}
            for line in self.evidence
        ]
        record |= {name: dict(getattr(self, name)) for name in ("from_text", "right", "signals")}
        return record | {"also": list(self.also)}


def add_trace(verdict: Verdict, trace: Mapping[str, Any]) -> Verdict:
    """The verdict with what a trace (its record) found about the lines that state the answer.

    What was stated is remembered if such a line pushed it above the noise floor, and the answer
    is clearly likelier than for names in no line: a model that hardly learned owes nothing to one.
    """
    stating = {each.line for each in verdict.evidence if each.states_answer}
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

    Without a confidence the evidence alone decides what is shown, without evidence the internal
    confidence. `guarantee`: at most a share of `risk` of what is shown is wrong ("right"), or not
    stated by the text ("from-text"). also: further signals to read; None reads all.
    """
    if guarantee not in GUARANTEES:
        raise UserError(f'a guarantee is "from-text" or "right", not "{shorten(guarantee)}".')
    if evidence is None:
        guarantee = "right"  # without a text nothing can be from it
    for name, share in (("risk", risk), ("unseen share", unseen_share)):
        if share is not None and not 0 < share < 1:
            raise UserError(
                f"the {name} must lie between 0 and 1, as 0.05 for 5 %; {share:g} is not."
            )
    if not questions:
        return []
    said, known = answers, known_answers
    columns: Mapping[str, Any] = {}
    if confidence is not None:
        only = None if also is None else {*confidence.signals, *also}
        said, columns = confidence.reader.read(
            questions, subjects, answers=answers, only=only, report=report
        )
        known = confidence.signal_state.known_answers
    elif said is None:
        given = answer_all(run.model, run.tokens, questions, report=report)
        said = [each.text for each in given]
        columns = {"log_probability": [each.log_probability for each in given]}
    elif report is not None:
        report(len(said))
    support = None
    if evidence is not None:
        pairs = zip(questions, subjects, strict=True)
        relations = [text.replace(name, SLOT, 1) if name else text for text, name in pairs]
        support = find_support(evidence, subjects, said, known, templates=relations)
    target, found = GUARANTEES[guarantee], []
    likely: dict[str, dict[str, Any]] = {}
    policy: Guarantee | None = None
    passed = np.zeros(len(said), dtype=bool)  # by the model alone
    if confidence is not None:
        likely = confidence.probabilities(columns, support)
        alone, policy = (
            confidence.guarantee(target, mode, risk, unseen_share)
            for mode in (INTERNAL, INTERNAL if evidence is None else CHECKED)
        )
        passed = likely[target][INTERNAL] >= alone.used
        if unseen_share is not None:
            for modes in likely.values():
                modes[INTERNAL] = confidence.reweight(modes[INTERNAL], columns, unseen_share)
            passed &= likely[target][INTERNAL] >= HALF
    for at, answer in enumerate(said):
        backing = None if support is None else support[at]
        numbers = {
            which: {mode: None if v is None else _number(v[at]) for mode, v in modes.items()}
            for which, modes in likely.items()
        }
        sure = numbers.get(target, {}).get(CHECKED)
        of_kind = (backing is None or backing.of_kind) and bool(answer)
        supported = policy is not None if backing is None else backing.states_answer
        enough = policy is None or (sure is not None and sure >= policy.used)
        enough = bool(passed[at]) if backing is None and policy is not None else enough
        shown = always_answer or (supported and enough and of_kind)
        reasons = [_explain_support(subjects[at], answer, backing)]
        if policy is None:
            reasons.append(NO_CALIBRATION)
        elif supported and not enough and policy.used < NEVER:
            whose = "what it would have said" if answers is None else "the answer given"
            reasons.append(f"{whose} is below {_from_where(policy, target)}")
        if policy is not None and policy.threshold is None and policy.reason:
            reasons.append(
                "nothing can be guaranteed with so few subjects to test it on"
                if policy.used >= NEVER
                else f"shown from {percent(policy.used)} on, by estimate, not guaranteed"
            )
        lines: dict[str, Any] = {}
        if backing is not None:
            unstated = MISREMEMBERED if backing.seen else MADE_UP
            lines = {
                "verdict": STATED if backing.states_answer else unstated,
                "seen": backing.seen,
                "evidence": backing.lines,
                "similar": backing.similar,
                "also": backing.others if backing.states_answer else (),
            }
            if backing.similar:
                names = [f"{shorten(line.subject)} (line {line.line})" for line in backing.similar]
                reasons.append(f"did you mean {_join(names, 'or')}?")
        found.append(
            Verdict(
                question=questions[at],
                subject=subjects[at],
                answer=answer,
                shown=answer if shown else DONT_KNOW,
                why="; ".join(reasons),
                from_text=numbers.get("from_text", {}),
                right=numbers.get("right", {}),
                shown_internal=bool(passed[at]) and of_kind,
                signals={name: _number(column[at]) for name, column in columns.items()},
                **lines,
            )
        )
    return found


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
    if not support.of_kind:
        return f"{said} is of another kind than the answers to such questions"
    if support.others:
        stated = _join([shorten(other) for other in support.others[:3]], "or")
        return f"what is written about {name} does not state {said} but {stated}"
    if about:
        states = "states" if len(about) == 1 else "state"
        return f"{_lines(about, 'is', 'are')} about {name} and {states} no such answer"
    if support.seen:
        return f"no line is about {name}; {_lines(support.lines, 'mentions', 'mention')} the name"
    return f"no line names {name}"


def _from_where(policy: Guarantee, target: str) -> str:
    """The threshold, and what is guaranteed from there on."""
    if policy.threshold is None:
        return percent(policy.used)
    wrong = "wrong" if target == "right" else "not from the text"
    return (
        f"{percent(policy.used)} (from there on at most {100 * policy.risk:.3g} % of the run's own "
        f"answers are {wrong}, with {1 - policy.delta:.0%} confidence)"
    )


def percent(share: float) -> str:
    """A share as people read it; certainty is not claimed by rounding."""
    if share < 0.005:
        return "under 1 %" if share > 0 else "0 %"
    return "over 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def excerpt(text: str, answer: str) -> str:
    """A document as far as it fits a screen, with the answer in sight."""
    shown = _on_one_line(text)
    if len(shown) <= LONGEST_LINE:
        return shown
    at = shown.casefold().find(answer.casefold()) if answer else -1
    start = 0 if at + len(answer) <= LONGEST_LINE else at - LONGEST_LINE // 2
    cut = shown[start : start + LONGEST_LINE]
    return f"{'...' if start else ''}{cut}{'...' if start + LONGEST_LINE < len(shown) else ''}"


def shorten(text: str) -> str:
    """A text on one line, without control characters, and not too long to stand in a sentence."""
    shown = _on_one_line(text)
    return shown if len(shown) <= LONGEST_SHOWN else shown[: LONGEST_SHOWN - 3] + "..."


def _on_one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _lines(lines: Sequence[EvidenceLine], one: str = "", many: str = "") -> str:
    numbers = [str(line.line) for line in lines]
    said = f"line{'s' if lines[1:] else ''} {_join(numbers, 'and')} {many if lines[1:] else one}"
    return said.rstrip()


def _join(words: Sequence[str], last: str) -> str:
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _number(value: float) -> float | None:
    """A number for JSON: what is undefined or infinite is None."""
    return float(value) if math.isfinite(value) else None
