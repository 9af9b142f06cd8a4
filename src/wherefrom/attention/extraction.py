"""Taking v_a back out of v_a + v_b: three ways to write one projection.

v_a lies in the span of the columns of A, v_b in that of B. An M with M(v_a + v_b) = v_a for all
of them must be the identity on the first span and zero on the second, so one exists iff the two
meet only in 0. From the average (v_a + v_b)/2 it is 2M that is wanted.

Shapes: A (d, m), B (d, p), M (d, d). A^T alone is (m, d): it gives coordinates, not the vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.designs import Assumption
from wherefrom.errors import UserError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Extraction:
    """M with M(v_a + v_b) = v_a, and by how much it can enlarge noise in the sum."""

    name: str
    formula: str
    claim: str
    matrix: Floats
    noise_gain: float
    assumptions: tuple[Assumption, ...]


def extract_orthogonal(A: Floats, B: Floats) -> Extraction:
    """M = A A^T for orthonormal columns and A^T B = 0.

    Proof: with v_a = Ax and v_b = By, M(v_a + v_b) = A(A^T A)x + A(A^T B)y = Ax = v_a.
    An orthogonal projection enlarges nothing: the gain is 1.
    """
    A, B = _bases(A, B)
    within = float(np.abs(A.T @ A - np.eye(A.shape[1])).max())
    across = float(np.abs(A.T @ B).max())
    return Extraction(
        name="orthogonal extraction",
        formula="M = A*A^T",
        claim="M(v_a + v_b) = v_a for every v_a in span A and v_b in span B",
        matrix=A @ A.T,
        noise_gain=1.0,
        assumptions=(
            Assumption("orthonormal A", "A^T A = I", within),
            Assumption("orthogonal spans", "A^T B = 0", across),
        ),
    )


def extract_oblique(A: Floats, B: Floats) -> Extraction:
    """M = [A, 0][A, B]^+ for any bases whose spans meet only in 0.

    Proof: [A, B] has full column rank, so [A, B]^+ [A, B] = I and the coordinates (x, y) of
    Ax + By come back exactly; [A, 0] keeps x. The norm of a projection along another space is
    1/sin of the smallest principal angle between the two: nearly parallel spans drown in noise.
    """
    A, B = _bases(A, B)
    both = np.hstack([A, B])
    angle = smallest_angle(A, B)
    if np.linalg.matrix_rank(both) < both.shape[1]:
        raise UserError(
            "the spans of A and B share a direction (or a basis is not one), so v_a + v_b does "
            "not determine v_a and no M can."
        )
    kept = np.hstack([A, np.zeros_like(B)])
    return Extraction(
        name="oblique extraction",
        formula="M = [A, 0]*pinv([A, B])",
        claim="M(v_a + v_b) = v_a; noise in the sum grows by up to the gain",
        matrix=kept @ np.linalg.pinv(both),
        noise_gain=float(1 / np.sin(angle)),
        assumptions=(Assumption("spans meet only in 0", "rank [A, B] = m + p", 0.0),),
    )


def extract_by_similarity(A: Floats, B: Floats) -> Extraction:
    """M = S D S^-1 with S = [A, B, completion], D = diag(1, ..., 1, 0, ..., 0).

    Proof: the columns of S are eigenvectors of M, of eigenvalue 1 for those of A and 0 for the
    rest; so M is the identity on span A and zero on span B. With a completion orthogonal to both
    it is zero there too, as [A, 0][A, B]^+ is, and the two agree on a basis, hence everywhere.
    """
    oblique = extract_oblique(A, B)
    A, B = _bases(A, B)
    both = np.hstack([A, B])
    completion = np.linalg.svd(both)[0][:, both.shape[1] :]
    S = np.hstack([both, completion])
    D = np.diag((np.arange(len(S)) < A.shape[1]).astype(np.float64))
    return Extraction(
        name="extraction by similarity",
        formula="M = S*D*inv(S), S = [A, B, completion], D = diag(1..1, 0..0)",
        claim=oblique.claim,
        matrix=S @ D @ np.linalg.inv(S),
        noise_gain=oblique.noise_gain,
        assumptions=oblique.assumptions,
    )


def smallest_angle(A: Floats, B: Floats) -> float:
    """The smallest principal angle between the spans, in radians.

    Taken from its sine, the least singular value of B's orthonormal basis after A's part is
    removed, because the cosine of a small angle rounds to one.
    """
    A, B = _bases(A, B)
    qa, qb = np.linalg.qr(A)[0], np.linalg.qr(B)[0]
    if qb.shape[1] > qa.shape[1]:
        qa, qb = qb, qa
    rest = qb - qa @ (qa.T @ qb)
    sine = float(np.linalg.svd(rest, compute_uv=False).min())
    return float(np.arcsin(min(1.0, sine)))


def _bases(A: Floats, B: Floats) -> tuple[Floats, Floats]:
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    if A.ndim != 2 or B.ndim != 2 or A.shape[0] != B.shape[0] or 0 in A.shape + B.shape:
        raise UserError(
            f"A and B hold basis vectors of one width as columns; they are {A.shape} and {B.shape}."
        )
    return A, B
