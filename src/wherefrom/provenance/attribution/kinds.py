"""Kinds of lines that an answer can lean on. Each line counts for the first kind that fits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.split import find_named
from wherefrom.provenance.attribution.retraining import NOISE_SHARE

Floats = NDArray[np.float64]
# words of a name are a given name or a family name where people are named so, and not for buildings
OWN, SAME_FIRST, SAME_LAST, SAME_ANSWER, SAME_ORIGIN, NOTHING = KINDS = (
    "lines about them",
    "names with the same first word",
    "names with the same last word",
    "lines with the same answer",
    "names of the same origin",
    "lines that share nothing",
)


def find_stating(
    documents: Sequence[Document], answers: Sequence[str]
) -> dict[FoldedName, set[int]]:
    """By an answer's words the documents that have them; Korean glues endings to words."""
    stating = find_named(documents, {fold_words(answer) for answer in answers} - {()})
    korean = [words for words in stating if "가" <= words[-1][-1] <= "힣"]
    texts = [" ".join(("", *fold_words(d.text))) for d in documents] if korean else []
    for words in korean:
        stating[words] |= {i for i, text in enumerate(texts) if f" {' '.join(words)}" in text}
    return stating


def kinds_of(
    documents: Sequence[Document],
    subject: str,
    stating: Collection[int],
    same_origin: Collection[int] = (),
) -> NDArray[np.str_]:
    """The first kind that fits each document.

    stating, same_origin: documents that state the answer, and about people of the same origin.
    """
    name, kinds = fold_words(subject), []
    for i, document in enumerate(documents):
        about = fold_words(document.subject)
        fits = {
            OWN: bool(name) and about == name,
            SAME_FIRST: bool(name) and name[0] in about,
            SAME_LAST: bool(name) and name[-1] in about,
            SAME_ANSWER: i in stating,
            SAME_ORIGIN: i in same_origin,
            NOTHING: True,
        }
        kinds.append(next(kind for kind, is_fit in fits.items() if is_fit))
    return np.array(kinds)


def noise_floor(kinds: NDArray[np.str_], scores: Floats) -> float:
    """The size that 19 in 20 scores of lines that share nothing stay below."""
    nothing = np.abs(scores[kinds == NOTHING])
    return float(np.quantile(nothing, NOISE_SHARE)) if len(nothing) else 0.0


def shares_of_kinds(kinds: NDArray[np.str_], scores: Floats) -> dict[str, float]:
    """The share of each kind of line in the scores above the noise floor; {} if none is above."""
    above = np.where(scores > noise_floor(kinds, scores), scores, 0)
    totals = {kind: float(above[kinds == kind].sum()) for kind in KINDS}
    whole = sum(totals.values())
    return {kind: round(total / whole, 4) for kind, total in totals.items() if total}


def describe_shares(shares: dict[str, float]) -> str:
    """Which kinds of lines the push comes from, in a sentence."""
    shown = [kind for kind in shares if shares[kind] >= 0.005]
    shown.sort(key=lambda kind: -shares[kind])
    leans = ", ".join(f"{kind} ({shares[kind]:.0%})" for kind in shown)
    return f"The push comes from {leans}." if leans else "No line stands out."
