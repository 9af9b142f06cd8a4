"""Which lines pushed an answer: by gradients at once, or proved by quiet retraining."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

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
    Record,
    compare_others,
    likelihoods,
    open_learned,
)
from wherefrom.provenance.verdicts import add_trace
from wherefrom.recall.decode import answer_all
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run

UNITS = {"gradient": "score", "replay": "nats per weight", "retrain": "nats"}  # of each method
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
        self.documents = self.learned.documents

    def index(self) -> GradientIndex:
        """The index of the run, made and kept in its folder if it is not there."""
        path, digest = self.run.folder / INDEX, self.run.info["sha256"]
        found = load_index(path, digest)
        if found is None or found.documents != len(self.documents):
            self._say(f"making the index of {len(self.documents):,} documents, once")
            found = build_index(self.run, self.learned.data)
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
    ) -> Record:
        """The record that docs/trace.md describes, of the run's own answer or of another one.

        `retrain` trains once for each of the `top` lines that push most by gradient; what was
        trained before is not trained again.
        """
        if method not in UNITS:
            raise UserError(f'there is no method "{method}".{did_you_mean(method, UNITS)}')
        if not 1 <= top <= len(self.documents):
            raise UserError(f"--top must be between 1 and {len(self.documents)}, not {top}.")
        said, verdict = answer_all(self.run.model, self.run.tokens, [question])[0].text, None
        if answer in (None, said):
            with suppress(UserError), open_asker(self.run) as asker:
                verdict = asker.ask(question)
        answer = said if answer is None else answer
        if method == "replay":
            self._say("replaying the training, forwards and backwards")
            (scores,) = Replay(self.learned).metagradients([question], [answer])
        else:
            scores = self.index().scores(self.run.model, *answer_row(self.run, question, answer))
        floor = float(np.quantile(np.abs(scores), NOISE_SHARE))
        subject = find_subject_in(self.run.templates, question) or ""
        shares = leaning(self.documents, scores, floor, subject, answer)
        order = np.argsort(-scores, kind="stable").tolist()
        ends = [*order[:top], *(at for at in order[::-1][:top] if scores[at] < 0)]
        pushes = dict(enumerate(scores.tolist()))
        if method == "retrain":
            ends = ends[:top]
            (whole,) = likelihoods(self.run, [question], [answer])
            floors = [0.0]
            for at in ends:
                document = self.documents[at]
                self._say(f"training again without line {document.line}")
                folder = self.run.folder / "twins" / f"line-{document.line}"
                twin = self.learned.retrain([document.line], folder, observe=observe)
                pushes[at] = whole - likelihoods(twin, [question], [answer])[0]
                but = [subject, document.subject]
                others = compare_others(self.run, twin, self.learned.dev, but)
                floors.append(others["noise_floor"] or 0.0)
            floor = max(floors)
        stating = _stating(self.documents, answer)
        rows = [
            {
                "line": self.documents[at].line,
                "text": self.documents[at].text,
                "push": round(pushes[at], 4),
                "states": at in stating,
            }
            for at in sorted(dict.fromkeys(ends), key=lambda at: -abs(pushes[at]))
        ]
        parts = sorted(shares.items(), key=lambda item: -item[1])
        leans = ", ".join(f"{kind} ({share:.0%} of the push)" for kind, share in parts)
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
            "why": f"The answer leans on {leans}." if leans else "No line stands out.",
        }
        if verdict is not None:
            record["verdict"] = add_trace(verdict, record).verdict
        return record


def _stating(documents: Sequence[Document], answer: str) -> set[int]:
    words = fold_words(answer)
    return set(find_named(documents, [words])[words]) if words else set()


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
    name, stating = fold_words(subject), _stating(documents, answer)
    totals = dict.fromkeys(KINDS, 0.0)
    for at in np.flatnonzero(scores > floor).tolist():
        about = fold_words(documents[at].subject)
        fits = {
            SUBJECT: bool(name) and about == name,
            GIVEN: bool(name) and name[0] in about,
            FAMILY: bool(name) and name[-1] in about,
            ANSWER: at in stating,
            NOTHING: True,
        }
        totals[next(kind for kind, fit in fits.items() if fit)] += float(scores[at])
    whole = sum(totals.values())
    return {kind: total / whole for kind, total in totals.items() if total}
