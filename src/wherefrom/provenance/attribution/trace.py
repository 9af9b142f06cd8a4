"""Which lines pushed an answer: by gradients at once, or proved by quiet retraining.

The record of a trace:

    question, answer         the answer is the run's own unless another was given
    verdict                  of the run's own answer, by the text and this trace; null for another
    method, unit             "gradient" with scores, "replay" with the derivative of log p with
                             respect to a line's weight, "retrain" with pushes in nats
    noise_floor              by gradient, what 19 in 20 of all lines stay below; by retraining, what
                             log p of 19 in 20 other people's answers changes less than
    pushed_by                [{line, text, push, states}], largest first; states: the line has the
    pushed_away_by           answer's words
    leans_on                 shares of the score of the lines above the noise floor: about the
                             subject, with its given or family name, with the answer, or neither
    why                      the same as a sentence
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import find_subject_in
from wherefrom.corpus.subjects import find_named
from wherefrom.errors import UserError, did_you_mean
from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.attribution.gradients import (
    INDEX,
    GradientIndex,
    answer_row,
    build_index,
    load_index,
    save_index,
)
from wherefrom.provenance.attribution.replay import Replay
from wherefrom.provenance.attribution.retraining import (
    NOISE_SHARE,
    compare_others,
    likelihoods,
    open_learned,
)
from wherefrom.provenance.verdicts import Verdict, add_trace
from wherefrom.recall.decode import answer_all
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run

METHODS = ("gradient", "replay", "retrain")
UNITS = {"gradient": "score", "replay": "nats per weight", "retrain": "nats"}
SUBJECT, GIVEN, FAMILY, ANSWER, NOTHING = KINDS = (
    "lines about them",
    "people with the same given name",
    "people with the same family name",
    "lines with the same answer",
    "lines that share nothing",
)


class Tracer:
    """A run with the documents and questions that it learned, and the index of their gradients."""

    def __init__(self, run: Run, *, say: Callable[[str], None] = lambda _: None) -> None:
        self.run, self._say = run, say
        self.learned = open_learned(run)
        self.documents, self.questions = self.learned.documents, self.learned.questions

    def index(self) -> GradientIndex:
        """The index of the run, made and kept in its folder if it is not there."""
        path, digest = self.run.folder / INDEX, self.run.info["sha256"]
        found = load_index(path, digest)
        if found is None or len(found.documents) != len(self.documents):
            self._say(f"making the index of {len(self.documents):,} documents, once")
            found = build_index(self.run, self.documents, self.questions)
            save_index(found, path, digest)
        return found

    def trace(
        self,
        question: str,
        *,
        answer: str | None = None,
        top: int = 5,
        method: str = "gradient",
        observe: Observer | None = None,
    ) -> dict[str, Any]:
        """The record that the module's docstring describes.

        `retrain` trains once for each of the `top` lines that push most by gradient; what was
        trained before is not trained again.
        """
        if method not in METHODS:
            raise UserError(f'there is no method "{method}".{did_you_mean(method, METHODS)}')
        if not 1 <= top <= len(self.documents):
            raise UserError(f"--top must be between 1 and {len(self.documents)}, not {top}.")
        said = answer_all(self.run.model, self.run.tokens, [question])[0].text
        verdict = self._verdict(question) if answer in (None, said) else None
        answer = said if answer is None else answer
        if method == "replay":
            self._say("replaying the training, forwards and backwards")
            (scores,) = Replay(self.learned).metagradients([question], [answer])
        else:
            scores = self.index().scores(self.run.model, *answer_row(self.run, question, answer))
        floor = float(np.quantile(np.abs(scores), NOISE_SHARE))
        subject = find_subject_in(self.run.templates, question) or ""
        shares = leaning(self.documents, scores, floor, subject, answer)
        pushes = {int(at): float(scores[at]) for at in np.argsort(-scores, kind="stable")}
        away = [at for at in list(pushes)[::-1][:top] if pushes[at] < 0]
        ends = [*list(pushes)[:top], *away]
        if method == "retrain":
            ends = ends[:top]
            pushes, floor = self._retrain(question, answer, ends, observe)
        words = fold_words(answer)
        stating = find_named(self.documents, [words])[words] if words else ()
        rows: list[dict[str, Any]] = [
            {
                "line": self.documents[at].line,
                "text": self.documents[at].text,
                "push": round(pushes[at], 4),
                "states": at in stating,
            }
            for at in dict.fromkeys(ends)
        ]
        rows.sort(key=lambda row: -abs(row["push"]))
        record = {
            "question": question,
            "answer": answer,
            "verdict": None,
            "method": method,
            "unit": UNITS[method],
            "noise_floor": round(floor, 4),
            "pushed_by": [row for row in rows if row["push"] > 0],
            "pushed_away_by": [row for row in rows if row["push"] < 0],
            "leans_on": {kind: round(share, 4) for kind, share in shares.items()},
            "why": _explain(shares),
        }
        if verdict is not None:
            record["verdict"] = add_trace(verdict, record).verdict
        return record

    def _verdict(self, question: str) -> Verdict | None:
        with suppress(UserError), open_asker(self.run) as asker:
            return asker.ask(question)
        return None

    def _retrain(
        self, question: str, answer: str, chosen: Sequence[int], observe: Observer | None
    ) -> tuple[dict[int, float], float]:
        """The push of each chosen document in nats, and the noise floor."""
        (whole,) = likelihoods(self.run, [question], [answer])
        subject = find_subject_in(self.run.templates, question) or ""
        pushes, floors = {}, []
        for at in chosen:
            document = self.documents[at]
            self._say(f"training again without line {document.line}")
            folder = self.run.folder / "twins" / f"line-{document.line}"
            twin = self.learned.retrain([document.line], folder, observe=observe)
            pushes[at] = whole - likelihoods(twin, [question], [answer])[0]
            others = compare_others(self.run, twin, self.learned.dev, [subject, document.subject])
            floors.append(others["noise_floor"] or 0.0)
        return pushes, max(floors)


def leaning(
    documents: Sequence[Document],
    scores: NDArray[np.float64],
    floor: float,
    subject: str,
    answer: str,
) -> dict[str, float]:
    """The share of each kind of line in the scores above the floor; a line counts once.

    The first kind that fits: about the subject, its given name (the first word), its family name
    (the last), the answer, nothing. Empty where no score is above the floor.
    """
    name, words = fold_words(subject), fold_words(answer)
    stating = find_named(documents, [words])[words] if words else ()
    totals = dict.fromkeys(KINDS, 0.0)
    for at in np.flatnonzero(scores > floor).tolist():
        about = fold_words(documents[at].subject)
        kind = NOTHING
        if name and about == name:
            kind = SUBJECT
        elif name and name[0] in about:
            kind = GIVEN
        elif name and name[-1] in about:
            kind = FAMILY
        elif at in stating:
            kind = ANSWER
        totals[kind] += float(scores[at])
    whole = sum(totals.values())
    return {kind: total / whole for kind, total in totals.items() if total} if whole else {}


def _explain(shares: dict[str, float]) -> str:
    if not shares:
        return "No line stands out."
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    parts = [f"{kind} ({share:.0%} of the push)" for kind, share in ordered]
    return f"The answer leans on {', '.join(parts)}."
