"""Claims about exact numbers, for every n as beta grows, and the certificate that they are true.

A limit of softmax weights becomes claims about logits: a lead must grow, a tie must vanish, and
where values grow with beta, so must the tie times the value. An identity becomes claims that
differences are zero. Obligations of the field (no division by zero) are claims as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np

from wherefrom.attention.equation import softmax_over_keys
from wherefrom.checker.asymptotics import (
    Must,
    Piece,
    asymptotics,
    follows,
    has_growing_root,
    lead_on,
)
from wherefrom.checker.field import FLAT, Field, Number
from wherefrom.checker.spaces import Matrix

LIMIT_DIGITS = 200  # of the limit of an exact number
MAX_DIGITS = 1000  # of a number at one beta


@dataclass(frozen=True)
class Claim:
    """What must be true of a number for every n, once beta is large."""

    number: Number
    must: Must
    name: str = ""  # which sample of a certificate measures it


def is_true(piece: Piece, must: Must) -> bool | None:
    """Is the claim true on a piece; None if its sign is unknown."""
    return None if piece.sign is None else follows(must, piece.order, piece.sign)


@dataclass(frozen=True)
class Decision:
    """All claims with their pieces; they are proved if every one is true on every piece."""

    field: Field
    claims: list[Claim]
    pieces: list[list[Piece]]

    @property
    def is_proved(self) -> bool:
        """Is every claim true on every piece? The verifier takes no roots of what grows."""
        if any(has_growing_root(claim.number) for claim in self.claims):
            return False
        return all(
            is_true(piece, claim.must)
            for claim, pieces in zip(self.claims, self.pieces, strict=True)
            for piece in pieces
        )

    @property
    def is_refuted(self) -> bool:
        """Is a claim certainly false on a piece?"""
        return any(
            is_true(piece, claim.must) is False
            for claim, pieces in zip(self.claims, self.pieces, strict=True)
            for piece in pieces
        )

    def turning_points(self) -> set[int]:
        """Every n at which something changes its sign, with its neighbours."""
        ends = set()
        for pieces in self.pieces:
            for before, after in pairwise(pieces):
                if (before.order, before.sign) != (after.order, after.sign):
                    ends |= {after.low - 1, after.low}
        return ends


def decide(field: Field, claims: Sequence[Claim]) -> Decision:
    """The claims and the field's obligations, each with its asymptotics."""
    every = [*claims, *(Claim(x, need) for x, need in field.obligations)]
    distinct = list({(str(c.number), c.must): c for c in every}.values())
    return Decision(field, distinct, [asymptotics(claim.number) for claim in distinct])


def certificate(decision: Decision, samples: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Plain data that `verifier.verify` accepts or not: claims, their pieces, atoms, and samples
    {n, beta, name: value} that were measured without the field."""
    field = decision.field
    return {
        "kind": "claims",
        "sizes": (field.least_n, None) if field.at_n is None else (field.at_n, field.at_n),
        "atoms": dict(field.atoms),
        "claims": [
            {
                "must": claim.must,
                "name": claim.name,
                "top": dict(claim.number.top),
                "bottom": dict(claim.number.bottom),
                "pieces": [(p.low, p.high, p.order, p.sign) for p in pieces],
            }
            for claim, pieces in zip(decision.claims, decision.pieces, strict=True)
        ],
        "samples": [dict(sample) for sample in samples],
    }


def limit_value(x: Number, n: int) -> float:
    """The limit of a number at this n: 0, a number, or infinity; nan if its sign is unknown."""
    (piece,) = asymptotics(x)
    if piece.sign is None:
        return math.nan
    if not piece.sign or piece.order < FLAT:
        return 0.0
    if piece.order > FLAT:
        return piece.sign * math.inf
    ends = [lead_on(x.field, part, n, n) for part in (x.top, x.bottom)]
    with mpmath.workdps(LIMIT_DIGITS):
        top, bottom = (end.coefficient.value(mpmath.mp, n=n) for end in ends if end)
        return float(top / bottom)


def limit_weights(
    logits: Sequence[Number], n: int, counts: Sequence[int] | None = None
) -> Matrix | None:
    """The limit of the softmax of logits at one n as beta grows, each logit counted so many times;
    None if the order or the sign of a difference is unknown."""
    best = logits[0]
    for logit in logits[1:]:
        if limit_value(logit - best, n) == math.inf:
            best = logit
    ends = [limit_value(logit - best, n) for logit in logits]
    return None if any(map(math.isnan, ends)) else _softmax(ends, counts)


def value_at(x: Number, n: int, beta: float | int) -> Any:
    """With so many digits that terms of very different size do not hide each other."""
    with mpmath.workdps(int(min(MAX_DIGITS, 60 + 10 * math.log10(max(beta, 10))))):
        return x.value(mpmath.mp, n=mpmath.mpf(n), beta=mpmath.mpf(beta))


def weights_at(
    logits: Sequence[Number], n: int, beta: float | int, counts: Sequence[int] | None = None
) -> Matrix:
    """The softmax of logits at one n and beta. Differences are taken exactly, since logits may be
    alike to any number of digits."""
    gaps = [value_at(logit - logits[0], n, beta) for logit in logits]
    top = max(gaps)
    return _softmax([float(max(gap - top, -1e300)) for gap in gaps], counts)


def _softmax(logits: Sequence[float], counts: Sequence[int] | None) -> Matrix:
    multiples = [math.log(count) for count in counts or [1] * len(logits)]
    return np.asarray(softmax_over_keys(np.array(logits) + multiples))
