"""Self-attention by hand: K, Q and V for the three words of the homework.

The words are x_1 = u_d + u_b, x_2 = u_a and x_3 = u_c + u_b, for orthogonal u of norm beta. Wanted
are c_1 close to u_b - u_c and c_2 close to u_b, where c_i = sum_j a_ij V x_j and a_i is the softmax
over j of (K x_j).(Q x_i).

The parts are stored as matrices that act on column vectors, as the formulas are written. beta is
no free factor here but the norm of the words; with the words fixed, a head can have its own.

Shapes: words (3, d), one a row; K, Q, V (d, d).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from wherefrom.attention.designs import Assumption
from wherefrom.attention.equation import Attention, attend
from wherefrom.errors import UserError

Floats = NDArray[np.float64]

PARTS = {"a": 0, "b": 1, "c": 2, "d": 3}
ORTHOGONAL = Assumption("orthogonal parts", "u_i . u_j = 0 for i != j", 0.0)
EQUAL = Assumption("equal norms", "|u_a| = |u_b| = |u_c| = |u_d| = beta", 0.0)


@dataclass(frozen=True)
class WordDesign:
    """K, Q and V with their claim and the exact errors |c_1 - goal| and |c_2 - goal|."""

    name: str
    formula: str
    claim: str
    K: Floats
    Q: Floats
    V: Floats
    goals: dict[str, Floats]
    errors: dict[str, float]
    assumptions: tuple[Assumption, ...] = (ORTHOGONAL, EQUAL)

    def attend(self, words: Floats) -> Attention:
        """Self-attention of the words with these matrices."""
        return attend(words @ self.Q.T, words @ self.K.T, words @ self.V.T)


def parts(beta: float, d: int = 4) -> Floats:
    """u_a, u_b, u_c, u_d as rows (4, d): beta times the first four axes."""
    if d < 4:
        raise UserError(f"four orthogonal vectors need a width of at least 4; d is {d}.")
    if not (math.isfinite(beta) and beta > 0):
        raise UserError(f"beta is a norm and must be above 0; it is {beta}.")
    return beta * np.eye(4, d)


def three_words(beta: float, d: int = 4) -> Floats:
    """x_1 = u_d + u_b, x_2 = u_a, x_3 = u_c + u_b, (3, d)."""
    a, b, c, f = parts(beta, d)
    return np.stack([f + b, a, c + b])


def identity_words(beta: float, d: int = 4) -> WordDesign:
    """K = Q = V = I: c_2 is close to u_a, the word's own content.

    Proof: x_2.x_2 = beta^2 and x_2 is orthogonal to the others, so a_2 = (a, 1 - 2a, a) with
    a = e^-beta^2/(1 + 2e^-beta^2), and c_2 - u_a = a(u_d + 2u_b + u_c - 2u_a), of norm
    sqrt10 beta a. Adding g u_d (or g u_c) to x_2, g >= 0, cannot give u_b: in c_2 the parts u_b,
    u_c, u_d have coefficients a_1 + a_3, a_3 and a_1 + g a_2, and no weights make those 1, 0, 0;
    the least distance over all of them is beta/sqrt3.
    """
    small = math.exp(-(beta**2))
    a = small / (1 + 2 * small)
    u = parts(beta, d)
    return WordDesign(
        name="identity",
        formula="K = Q = V = I",
        claim="c_2 is close to u_a",
        K=np.eye(d),
        Q=np.eye(d),
        V=np.eye(d),
        goals={"c2": u[PARTS["a"]]},
        errors={"c2": math.sqrt(10) * beta * a},
    )


def textbook_words(beta: float, d: int = 4) -> WordDesign:
    """K = I, Q = (u_c u_d^T + u_d u_a^T)/beta^2, V = (u_b u_b^T - u_c u_c^T)/beta^2: rank 2.

    Proof: V takes the words to u_b, 0 and u_b - u_c; Q takes x_1 to u_c, x_2 to u_d, x_3 to 0.
    So word 1 has logits (0, 0, beta^2) and word 2 (beta^2, 0, 0): weights (a, a, 1-2a) and
    (1-2a, a, a) with a = e^-beta^2/(1 + 2e^-beta^2). Hence c_1 - (u_b - u_c) = -a u_b + 2a u_c, of
    norm sqrt5 beta a, and c_2 - u_b = -a u_b - a u_c, of norm sqrt2 beta a.
    """
    small = math.exp(-(beta**2))
    a = small / (1 + 2 * small)
    u = parts(beta, d)
    return WordDesign(
        name="textbook, rank 2",
        formula="K = I, Q = (u_c u_d^T + u_d u_a^T)/beta^2, V = (u_b u_b^T - u_c u_c^T)/beta^2",
        claim="c_1 is close to u_b - u_c and c_2 to u_b",
        K=np.eye(d),
        Q=(np.outer(u[2], u[3]) + np.outer(u[3], u[0])) / beta**2,
        V=_values(u, beta),
        goals={"c1": u[1] - u[2], "c2": u[1]},
        errors={"c1": math.sqrt(5) * beta * a, "c2": math.sqrt(2) * beta * a},
    )


def rank_one_words(beta: float, d: int = 4) -> WordDesign:
    """K = I, Q = (u_c - u_d)(u_d - u_a)^T/beta^2: one direction to ask, one to answer.

    Proof: (u_d - u_a).x_i = beta^2, -beta^2, 0 for i = 1, 2, 3 and (u_c - u_d).x_j = -beta^2, 0,
    beta^2 for j = 1, 2, 3. So word 1 has logits (-beta^2, 0, beta^2) and word 2 their negatives:
    weights (l, m, h) and (h, m, l), in the ratios e^-beta^2 : 1 : e^beta^2. With V as before
    c_1 - (u_b - u_c) = -m u_b + (1-h) u_c and c_2 - u_b = -m u_b - l u_c.
    """
    grow = math.exp(-(beta**2))
    total = 1 + grow + grow**2
    low, middle = grow**2 / total, grow / total
    u = parts(beta, d)
    return WordDesign(
        name="rank 1",
        formula="K = I, Q = (u_c - u_d)(u_d - u_a)^T/beta^2, V = (u_b u_b^T - u_c u_c^T)/beta^2",
        claim="c_1 is close to u_b - u_c and c_2 to u_b",
        K=np.eye(d),
        Q=np.outer(u[2] - u[3], u[3] - u[0]) / beta**2,
        V=_values(u, beta),
        goals={"c1": u[1] - u[2], "c2": u[1]},
        errors={
            "c1": beta * math.hypot(middle, low + middle),
            "c2": beta * math.hypot(middle, low),
        },
    )


def beta_for_words(design: Callable[[float], WordDesign], tolerance: float) -> float:
    """The least norm beta >= 1 from which both errors stay within the tolerance.

    Each error is beta times a weight that falls like e^-beta^2, and decreases from beta = 1 on.
    """
    if not 0 < tolerance < 1e300:
        raise UserError(f"a tolerance is above 0; this one is {tolerance}.")

    def excess(beta: float) -> float:
        return max(design(beta).errors.values()) - tolerance

    return 1.0 if excess(1.0) <= 0 else float(brentq(excess, 1.0, 27.0, xtol=1e-12))


def _values(u: Floats, beta: float) -> Floats:
    """V with V x_1 = u_b, V x_2 = 0, V x_3 = u_b - u_c."""
    result: Floats = (np.outer(u[1], u[1]) - np.outer(u[2], u[2])) / beta**2
    return result
