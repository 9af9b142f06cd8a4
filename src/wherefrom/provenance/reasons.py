"""The sentence of why: what the text says of an answer, and why it is told or held back.

Kept apart from the deciding, so that wording can change and no verdict with it. Names and answers
are whatever somebody typed, so they are shortened and shown without control characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wherefrom.provenance.guarantee import Guarantee
from wherefrom.provenance.lines import EvidenceLine
from wherefrom.provenance.support import Support

NO_TEXT = "nothing can be looked up, since the run read no documents"
SHOWN = 60  # characters of a name or an answer within a sentence


@dataclass(frozen=True)
class Threshold:
    """From which confidence on answers are told, what that promises, or why it promises nothing."""

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
    told: bool,
    sure: float | None,
    supported: bool,
    threshold: Threshold | None,
    given: bool = False,
) -> str | None:
    """Why the answer is held back or told against the odds, or None where that needs no word.

    `given`: the answer is somebody else's and not the run's own.
    """
    said = (
        f"{'the answer given is' if given else 'it would have said'} {shorten(answer) or 'nothing'}"
    )
    if threshold is None or not supported:
        return None if told else said
    reasons = [] if told else [said]
    if sure is None or sure < threshold.value:
        promise = f" ({threshold.promise})" if threshold.promise else ""
        below = f"its confidence is below {percent(threshold.value)}{promise}"
        reasons = [below] if told else [f"{said}, but {below}"]
    if threshold.no_promise:  # all of it is told once, with the run's numbers
        reasons.append(f"answers are told from {percent(threshold.value)} on, with no promise")
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
