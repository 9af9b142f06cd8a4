"""Verdicts in words: what a verdict is in a sentence, and why it is so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wherefrom.errors import on_one_line, shorten
from wherefrom.provenance.confidence.fit import RIGHT
from wherefrom.provenance.confidence.threshold import NEVER_REACHED, TestedThreshold
from wherefrom.provenance.evidence import EvidenceLine, StatedValue, Support

if TYPE_CHECKING:
    from wherefrom.provenance.verdicts import ShowRule, Verdict

STATED, REMEMBERED = SUPPORTED = ("stated", "remembered")
DONT_KNOW = "I don't know"
NO_TEXT = "there is no text to look the answer up in"
NO_CALIBRATION = "there is no confidence: the run was not calibrated; `wherefrom study` does that"
MAX_LISTED_LINES = 5  # numbers of lines within a sentence
MAX_LINE_CHARACTERS = 200  # characters of a document below a verdict
MIN_SHOWN_DIFFERENCE = 0.1  # a sentence says both probabilities if they differ by this much


def describe_verdict(verdict: Verdict) -> str:
    """Where the answer is from, and how likely it is right."""
    answer = shorten(verdict.answer) or "nothing"
    where, likely = _describe_origin(verdict), _describe_probability(verdict)
    if verdict.shown != DONT_KNOW:
        return where + likely
    if verdict.verdict in SUPPORTED:
        return f"It would have said {answer}. {where}{likely}"
    if verdict.verdict is None:
        return f"It would have said {answer}.{likely}"
    if not verdict.answer:
        return "The model gave no answer, and no line of the text supports one."
    if verdict.stated:
        values = [f"{shorten(v.answer)} ({_numbers(v.lines)})" for v in verdict.stated[:3]]
        return f"The text states {_join(values, 'and')}; the model would have said {answer}."
    return f"Nothing in the text supports what it would have said ({answer})."


def _describe_origin(verdict: Verdict) -> str:
    if verdict.verdict is None:
        return "Not looked up."
    if verdict.verdict not in SUPPORTED:
        return f"{verdict.verdict.capitalize()}: nothing in the text supports it."
    stating = [line for line in verdict.evidence if line.states_answer]
    where = f"Stated by {_lines(stating)}"
    if verdict.verdict == REMEMBERED and verdict.pushed is not None:
        where = f"Remembered: line {verdict.pushed['line']:.0f} states it and pushed it"
    others = [value for value in verdict.stated if not value.is_answer]
    return "; ".join([where, *(_describe_other(value, stating) for value in others[:3])]) + "."


def _describe_other(value: StatedValue, stating: Sequence[EvidenceLine]) -> str:
    """Which lines name another value: "line 232 names 1974"."""
    if {line.line for line in stating}.issuperset(value.lines):
        return f"{'they also name' if stating[1:] else 'it also names'} {shorten(value.answer)}"
    return f"{_numbers(value.lines, 'names', 'name')} {shorten(value.answer)}"


def _describe_probability(verdict: Verdict) -> str:
    mode = "internal" if verdict.confidence is None else "checked"
    right, from_text = verdict.right.get(mode), verdict.from_text.get(mode)
    if right is None:
        return ""
    if from_text is not None and abs(from_text - right) >= MIN_SHOWN_DIFFERENCE:
        return (
            f" {percent(from_text).capitalize()} likely to be from the text, {percent(right)} to "
            "be right."
        )
    return f" {percent(right).capitalize()} likely to be right."


def explain(rated: Verdict, support: Support | None, rule: ShowRule, *, is_below: bool) -> str:
    """Why an answer has its verdict and is shown or not; `is_below`: it is below the threshold."""
    reasons = [_explain_support(rated.subject, rated.answer, support)]
    if rule.threshold is None:
        reasons.append(NO_CALIBRATION)
    else:
        reasons += _explain_threshold(rule.threshold, rule.target, is_below=is_below)
    if support is not None and support.similar:
        names = [f"{shorten(line.subject)} (line {line.line})" for line in support.similar]
        reasons.append(f"did you mean {_join(names, 'or')}?")
    return "; ".join(reasons)


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
        values = [f"{shorten(o.answer)} ({_numbers(o.lines)})" for o in support.others[:3]]
        return f"the text says {_join(values, 'or')} about {name}, not {said}"
    if about:
        states = "states" if len(about) == 1 else "state"
        return f"{_lines(about, 'is', 'are')} about {name} and {states} no such answer"
    if support.seen:
        return f"no line is about {name}; {_lines(support.lines, 'mentions', 'mention')} the name"
    return f"no line names {name}"


def _explain_threshold(threshold: TestedThreshold, target: str, *, is_below: bool) -> list[str]:
    """That the answer is below the threshold, and that it is not guaranteed, if so."""
    reasons = []
    used = percent(threshold.used)
    if is_below and threshold.used < NEVER_REACHED:
        if threshold.threshold is not None:
            errors = "wrong" if target == RIGHT else "not from the text"
            used += (
                f" (from there on at most {100 * threshold.risk:.3g} % of the run's own answers "
                f"are {errors}, with {1 - threshold.delta:.0%} confidence)"
            )
        reasons.append(f"what it would have said is below {used}")
    if threshold.threshold is None and threshold.reason:
        reasons.append(
            "nothing can be guaranteed with so few subjects to test it on"
            if threshold.used >= NEVER_REACHED
            else f"shown from {used} on, by estimate, not guaranteed"
        )
    return reasons


def percent(share: float) -> str:
    """A share in percent; rounding never claims certainty."""
    if share < 0.005:
        return "under 1 %" if share > 0 else "0 %"
    return "over 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def excerpt(text: str, answer: str) -> str:
    """A document, cut to MAX_LINE_CHARACTERS characters around the answer."""
    shown = on_one_line(text)
    if len(shown) <= MAX_LINE_CHARACTERS:
        return shown
    i = shown.casefold().find(answer.casefold()) if answer else -1
    start = 0 if i + len(answer) <= MAX_LINE_CHARACTERS else i - MAX_LINE_CHARACTERS // 2
    cut = shown[start : start + MAX_LINE_CHARACTERS]
    return (
        f"{'...' if start else ''}{cut}{'...' if start + MAX_LINE_CHARACTERS < len(shown) else ''}"
    )


def _lines(lines: Sequence[EvidenceLine], singular: str = "", plural: str = "") -> str:
    """ "line 3", or "lines 3 and 5", and the verb that follows."""
    return _numbers([line.line for line in lines], singular, plural)


def _numbers(lines: Sequence[int], singular: str = "", plural: str = "") -> str:
    """The same for the numbers of lines."""
    several = len(lines) > 1
    listed = _join([str(line) for line in sorted(lines)[:MAX_LISTED_LINES]], "and")
    words = ("lines" if several else "line", listed, plural if several else singular)
    return " ".join(words).rstrip()


def _join(words: Sequence[str], last: str) -> str:
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))
