"""Queries and matrices built by hand, and the table of all constructions by name.

Each construction is a function that returns a `Design`. The first line of its docstring says what
it does, the rest is the proof; `wherefrom design NAME` prints both. Assumptions are measured on the
numbers at hand, and the check is computed by the attention equation, so a construction that is
given keys it was not made for says so.

The tolerance eps bounds how far the weights are from the wanted ones (total variation distance),
so that |c - wanted| <= eps times the widest distance between values. Key a is the first key and
b the second.

Shapes: keys (n, d), queries (h, d), weights (n,); matrices that act on column vectors (d, d);
T tokens, maps (T, T) with rows that sum to one, values (T, e).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.equation import attend, log_sum_exp, softmax_over_keys
from wherefrom.attention.laws import A, B
from wherefrom.errors import UserError, did_you_mean
from wherefrom.results import Printable

Floats = NDArray[np.float64]
Goals = dict[str, tuple[int, Floats]]  # what is measured -> the word and what its c should be

FLAT = 1e-9  # a distance below this, relative to the keys' spread, is rounding


@dataclass(frozen=True)
class Measured:
    """A statement about the numbers at hand: how far off it is, and how far is allowed."""

    statement: str
    value: float
    allowed: float = 1e-9

    @property
    def holds(self) -> bool:
        return self.value <= self.allowed


@dataclass(frozen=True, eq=False, repr=False)
class Design(Printable):
    """A construction: what it consists of, what it claims, what that rests on, and its check."""

    name: str
    formula: str
    claim: str
    matrices: dict[str, Floats]
    assumptions: tuple[Measured, ...]
    checks: tuple[Measured, ...]  # computed by the attention equation
    beta: float | None = None  # the factor in use, if the construction has one
    beta_needed: float | None = None  # the least factor that meets the tolerance
    targets: tuple[int, ...] = ()  # the key that each query is meant to copy

    @property
    def queries(self) -> Floats:
        """One query per head, (h, d)."""
        return self.matrices["queries"]

    def summary(self) -> list[tuple[str, str]]:
        rows = [(self.name, self.formula), ("claim", self.claim)]
        if self.beta is not None:
            rows.append(("beta", f"{self.beta:.6g}, needed {self.beta_needed:.6g}"))
        rows += [("check", f"{m.statement}: {m.value:.3g}") for m in self.checks]
        return rows


def tv_distance(weights: Floats, wanted: Floats) -> float:
    """Total variation distance of two distributions: half the sum of absolute differences."""
    return float(np.abs(weights - wanted).sum() / 2)


def beta_to_average(n: int, size: int, tolerance: float) -> float:
    """The beta from which `size` logits of beta leave n - size zeros at most `tolerance`.

    Proof: the leftover is (n-s)e^-beta / (s + (n-s)e^-beta); solve for beta. Below zero means
    that even the uniform weights leave less than the tolerance outside. For s = 1 it is the margin
    by which a logit must lead: if all others are at least D below, they weigh at most (n-1)e^-D.
    """
    if not 0 < tolerance < 1:
        raise UserError(f"a tolerance is between 0 and 1; this one is {tolerance}.")
    if not 1 <= size <= n:
        raise UserError(f"a set of {size} keys cannot be chosen out of {n}.")
    if size == n:
        return 0.0
    return max(0.0, math.log((n - size) * (1 - tolerance) / (size * tolerance)))


# ---- queries for keys that are known


def copy(keys: Floats, beta: float | None = None, tolerance: float = 0.01) -> Design:
    """q = beta k_a copies v_a when all keys have one norm and none equals k_a.

    Proof: the margin is beta min_i (k_a.k_a - k_i.k_a), and by Cauchy-Schwarz k_i.k_a < |k_a|^2
    for a different key of the same norm. The weight on a is at least 1 - eps as soon as the margin
    is ln((n-1)(1-eps)/eps); beta is that, divided by the margin of beta = 1.
    """
    margin = float((keys[A] @ keys[A] - keys[1:] @ keys[A]).min(initial=math.inf))
    if margin <= 0:
        raise UserError(
            "q = beta k_a cannot copy v_a: another key has at least as large a product with k_a "
            f"(margin {margin:.6g}); the design hull says whether any query can."
        )
    norms = Measured("|k_i| is the same for all i", float(np.ptp(np.linalg.norm(keys, axis=1))))
    text = ("copy", "q = beta*k_a", COPY)
    return _query(text, keys[[A]], keys, (norms,), beta, tolerance, wanted=(A,), margin=margin)


def hull(keys: Floats, beta: float | None = None, tolerance: float = 0.01) -> Design:
    """The shortest query that copies v_a, or the most weight that any query gives to k_a.

    Proof: for |q| = 1 the margin min_i q.(k_a - k_i) is at most the distance of k_a to the nearest
    point p in the convex hull of the other keys, and q = (k_a - p)/|k_a - p| attains it, because p
    is the projection. So a key can be copied iff it is a vertex of the hull. If it is not, then
    k_a = sum lambda_i k_i and s_a = sum lambda_i s_i, and the others weigh
    sum exp(s_i) >= exp(sum lambda_i (s_i - ln lambda_i)) = exp(s_a + H(lambda)) by Jensen; so
    a_a <= 1/(1 + exp(H(lambda))). A midpoint never gets more than 1/3.
    """
    margins, mixtures, bounds = zip(*(copyability(keys, j) for j in range(len(keys))), strict=True)
    margin, mixture, most = margins[A], mixtures[A], bounds[A]
    nearest = mixture @ keys
    every = {"best margin of each key": np.array(margins)}
    every["most weight of each key"] = np.array(bounds)
    if margin > 0:
        formula = "q = beta*(k_a - p)/|k_a - p|, p nearest to k_a in the hull of the other keys"
        vertex = Measured("k_a is a vertex of the keys' convex hull", 0.0)
        units, text = (keys[[A]] - nearest) / margin, ("hull", formula, COPY)
        design = _query(text, units, keys, (vertex,), beta, tolerance, wanted=(A,), margin=margin)
        return replace(design, matrices={**design.matrices, **every})
    scale = float(np.ptp(keys, axis=0).max()) or 1.0
    drawn = np.random.default_rng(0).standard_normal((1000, keys.shape[1]))
    given = attend(np.vstack([drawn * size / scale for size in (0.1, 1, 10)]), keys, keys).weights
    heaviest = float(given[:, A].max())
    mixed = Measured("k_a is that mixture", float(np.abs(keys[A] - nearest).max()) / scale, 1e-8)
    return Design(
        name="hull",
        formula="k_a = sum of lambda_i*k_i over the other keys",
        claim=f"no query gives k_a more than {most:.6g} of the weight",
        matrices={"lambda": mixture, **every},
        assumptions=(mixed,),
        checks=(Measured("most weight on k_a of 3,000 queries", heaviest, most + FLAT),),
    )


def copyability(keys: Floats, j: int) -> tuple[float, Floats, float]:
    """Of copying key j: the margin per unit of |q|, the nearest mixture (n,), the most weight.

    The nearest point minimises |D m|^2 over mixtures m, D the differences k_i - k_j. Non-negative
    least squares on |D m|^2 + (sum m - 1)^2 has its minimum at a multiple of the same m, since
    for m = t*lambda the best value over t increases with |D lambda|. Where the margin is 0, the
    mixture of largest entropy gives the best bound. Its dual is min_q ln sum exp(q.(k_i - k_j)),
    whose minimiser's softmax it is; on a face of the hull that lies at infinity, and the mixture
    already found stays.
    """
    from scipy.optimize import minimize, nnls
    from scipy.special import entr

    others = np.delete(np.arange(len(keys)), j)
    mixture = np.zeros(len(keys))
    if len(others) == 0:
        return math.inf, mixture, 1.0
    differences = (keys[others] - keys[j]).T  # (d, n-1)
    scale = float(np.linalg.norm(differences, axis=0).max())
    unit = differences / (scale or 1.0)
    solution, _ = nnls(np.vstack([unit, np.ones(len(others))]), np.eye(len(unit) + 1)[-1])
    mixture[others] = solution / solution.sum()
    distance = float(np.linalg.norm(keys[j] - mixture @ keys))
    if distance > FLAT * scale:
        return distance, mixture, 1.0

    def free_energy(q: Floats) -> tuple[float, Floats]:
        return float(log_sum_exp(q @ unit)), unit @ softmax_over_keys(q @ unit)

    best = minimize(free_energy, np.zeros(len(unit)), jac=True, method="BFGS", tol=1e-12)
    even = softmax_over_keys(best.x @ unit)
    if np.linalg.norm(unit @ even) <= FLAT and entr(even).sum() > entr(mixture).sum():
        mixture[others] = even
    return 0.0, mixture, 1 / (1 + math.exp(float(entr(mixture).sum())))


def average(keys: Floats, beta: float | None = None, tolerance: float = 0.01) -> Design:
    """q = beta (k_a + k_b) averages v_a and v_b when the keys are orthonormal.

    Proof, for a set S of s keys: k_i.q = beta for a key of S and 0 for any other, so each weight
    in S is 1/(s + (n-s)e^-beta), and what is left outside is delta =
    (n-s)e^-beta/(s + (n-s)e^-beta) <= eps iff beta >= ln((n-s)(1-eps)/(s eps)). Exactly,
    c - mean(v_S) = delta (mean(v_rest) - mean(v_S)).
    """
    norms = Measured("|k_i| = 1", float(np.abs(np.linalg.norm(keys, axis=1) - 1).max()))
    assumed = (_orthogonal(keys), norms)
    units, text = keys[[A]] + keys[[B]], ("average", "q = beta*(k_a + k_b)", AVERAGE)
    return _query(text, units, keys, assumed, beta, tolerance)


def average_orthogonal(keys: Floats, beta: float | None = None, tolerance: float = 0.01) -> Design:
    """q = beta (k_a/|k_a|^2 + k_b/|k_b|^2): the same for orthogonal keys of any norms.

    Proof: k_i.q = beta |k_i|^2/|k_i|^2 = beta for a and b, 0 for any other. Without the division
    the two weights stand as exp(beta (|k_a|^2 - |k_b|^2)) to one.
    """
    lengths = (keys[[A, B]] ** 2).sum(axis=1, keepdims=True)
    if (lengths == 0).any():
        raise UserError("a key of length zero has the logit 0 whatever the query.")
    units = (keys[[A, B]] / lengths).sum(axis=0, keepdims=True)
    text = ("average-orthogonal", "q = beta*(k_a/|k_a|^2 + k_b/|k_b|^2)", AVERAGE)
    return _query(text, units, keys, (_orthogonal(keys),), beta, tolerance)


def average_independent(keys: Floats, beta: float | None = None, tolerance: float = 0.01) -> Design:
    """q = beta K^+ (e_a + e_b): the same for any linearly independent keys.

    Proof: K has full row rank, so K K^+ = I and the logits Kq are beta on a and b and 0 off them,
    as if the keys were orthonormal. Only the query's length, and with it what noise in the keys
    does, grows as they come closer to dependence.
    """
    target = (np.arange(len(keys)) <= B).astype(np.float64)
    unit = np.linalg.pinv(keys) @ target
    missed = float(np.abs(keys @ unit - target).max())
    assumed = (Measured("the keys are linearly independent", missed, allowed=1e-8),)
    text = ("average-independent", "q = beta*pinv(K)*(e_a + e_b)", AVERAGE)
    return _query(text, unit[None], keys, assumed, beta, tolerance)


def given_weights(keys: Floats, weights: Floats | None = None) -> Design:
    """The query with given positive weights (n : n-1 : ... : 1 if none are given), or why none has.

    Proof: ln a = Kq - ln(sum of exp) is in the column space of [K, 1] for every q; conversely a
    solution of [K, 1][q; c] = ln w has softmax(Kq) = w. Every w can be had iff the keys are
    affinely independent, n <= d + 1. Otherwise the residual r of least squares is orthogonal to
    [K, 1], so r.ln a = 0 for the weights of every query, while r.ln w = |r|^2 > 0 refutes w.
    """
    n = len(keys)
    default = np.arange(n, 0, -1) / (n * (n + 1) / 2)
    wanted = default if weights is None else np.asarray(weights, dtype=np.float64)
    if wanted.shape != (n,):
        raise UserError(f"{n} keys need {n} weights; there are {wanted.size}.")
    if not (np.isfinite(wanted).all() and (wanted > 0).all()):
        raise UserError("weights must be positive: softmax gives none that is zero.")
    if abs(float(wanted.sum()) - 1) > 1e-9:
        raise UserError(f"weights must sum to one; these sum to {wanted.sum():.9g}.")
    space, logs = np.hstack([keys, np.ones((n, 1))]), np.log(wanted)
    solution = np.linalg.lstsq(space, logs, rcond=None)[0]
    residual, query = logs - space @ solution, solution[:-1]
    given = attend(query, keys, keys).weights
    rounding = 1e-9 * max(1.0, float(np.abs(logs).max()))
    solved = Measured("ln w = K q + c", float(np.abs(residual).max()), rounding)
    reached = Measured("distance of the weights and w", tv_distance(given, wanted))
    size = max(1.0, float(np.abs(keys).max()))
    certified = Measured("r.[K, 1] = 0", float(np.abs(residual @ space).max()), rounding * size)
    return Design(
        name="weights",
        formula="[K, 1][q; c] = ln w, by least squares; r is its residual",
        claim="softmax(Kq) = w" if solved.holds else "no query has the weights w: r refutes them",
        matrices={"w": wanted, "queries": query[None], "weights": given[None], "r": residual},
        assumptions=(solved,) if solved.holds else (),
        checks=(reached if solved.holds else certified,),
    )


COPY = "c is v_a but for a weight of at most the tolerance"
AVERAGE = "c is (v_a + v_b)/2 but for a weight of at most the tolerance"


def _query(
    text: tuple[str, str, str],
    units: Floats,
    keys: Floats | None,
    assumptions: tuple[Measured, ...],
    beta: float | None,
    tolerance: float,
    *,
    wanted: tuple[int, ...] = (A, B),
    targets: tuple[int, ...] = (A,),
    margin: float = 1.0,
) -> Design:
    """q_h = beta * units_h, (h, d): the mean weights over heads should be even on `wanted`.

    `text` is name, formula and claim. Without keys these are unit vectors, whose logits are the
    query's coordinates. `margin` is by how much the wanted logits lead at beta = 1.
    """
    logits = units if keys is None else units @ keys.T
    needed = beta_to_average(logits.shape[1], len(wanted) // len(set(targets)), tolerance) / margin
    beta = needed if beta is None else beta
    if not (math.isfinite(beta) and beta >= 0):
        raise UserError(f"beta must be a number of 0 or more; it is {beta}.")
    given = softmax_over_keys(beta * logits)
    even = np.isin(np.arange(logits.shape[1]), wanted) / len(wanted)
    missed = tv_distance(given.mean(axis=0), even)
    allowed = tolerance * (1 + 1e-9) + 1e-15
    return Design(
        *text,
        matrices={"queries": beta * units, "weights": given},
        assumptions=assumptions,
        checks=(Measured("distance of the weights and the wanted", missed, allowed),),
        beta=beta,
        beta_needed=needed,
        targets=targets,
    )


def _orthogonal(keys: Floats) -> Measured:
    gram = keys @ keys.T
    return Measured("k_i . k_j = 0 for i != j", float(np.abs(gram - np.diag(np.diag(gram))).max()))


# ---- queries for noisy keys, written in the means, which are known: mu_i is the i-th unit vector.
# Check and beta are those of keys at their means (e = 1); `laws.HeadsLaw` says what the noise does.


MEANS = (
    Measured("mu_i . mu_j = 1 if i = j, else 0", 0.0),
    Measured("key b has no noise beyond alpha I", 0.0),
)
KNOWN_AXIS = (MEANS[0], Measured("the large noise of key a lies along mu_a", 0.0), MEANS[1])


def one_head(n: int, beta: float | None = None, tolerance: float = 0.01, heads: int = 1) -> Design:
    """q = beta (mu_a + mu_b): the average of two, as if the noisy keys were their means.

    Proof, with k_a = e mu_a: the logits are beta e, beta and zeros, so at e = 1 this is the design
    average. But logit(a_a) = beta(e - 1) - ln(1 + (n-2)e^-beta), of deviation beta/sqrt 2 for
    e ~ N(1, 1/2): what makes the average exact makes it unstable. The same query in several heads
    gives the same c in each, and their average is that c again.
    """
    units = np.zeros((heads, n))
    units[:, [A, B]] = 1.0
    claim = "c is near (v_a + v_b)/2 while |k_a| = 1, and runs to v_a or v_b as it varies"
    text = ("one-head", "q = beta*(mu_a + mu_b)", claim)
    return _query(text, units, None, MEANS, beta, tolerance, targets=(A,) * heads)


def two_heads(n: int, beta: float | None = None, tolerance: float = 0.01, heads: int = 2) -> Design:
    """q_1 = beta mu_a, q_2 = beta mu_b: one head for each value, and c their average.

    Proof: head 1's logits are beta e and zeros, so logit(a_a) = beta e - ln(n-1): near 1 as long
    as e stays above ln(n-1)/beta, however long k_a becomes. The other heads have no component
    along mu_a: their logits do not move at all.
    """
    if heads > n:
        raise UserError(f"{heads} heads that copy one key each need {heads} keys; n is {n}.")
    claim = "each head copies one value; only head 1 feels the noise, and only if e is small"
    text, keys = ("two-heads", "q_1 = beta*mu_a, q_2 = beta*mu_b", claim), tuple(range(heads))
    units = np.eye(heads, n)
    return _query(text, units, None, MEANS, beta, tolerance, wanted=keys, targets=keys)


def avoiding_head(
    n: int, beta: float | None = None, tolerance: float = 0.01, heads: int = 1
) -> Design:
    """q = -beta * (sum of mu_i outside a and b): one head that does not see the noisy direction.

    Proof: the logits of a and b are 0 whatever e, all others are -beta; so the weights are those
    of the design average, and the stretch of k_a does not enter. Only the isotropic part does,
    with a variance of alpha beta^2 (n-2) per logit. So the drawback of one head belongs to the
    query beta(mu_a + mu_b), not to having one head.
    """
    if n < 3:
        raise UserError("the query that pushes away the other keys needs others: n of 3 or more.")
    units = np.zeros((heads, n))
    units[:, 2:n] = -1.0
    claim = "c stays near (v_a + v_b)/2 for every length of k_a"
    text = ("avoiding-head", "q = -beta*(sum of mu_i, i not a or b)", claim)
    return _query(text, units, None, KNOWN_AXIS, beta, tolerance, targets=(A,) * heads)


def repelling_heads(
    n: int, beta: float | None = None, tolerance: float = 0.01, heads: int = 2, repel: float = 1.0
) -> Design:
    """q_1 = beta (mu_a - t sum of the others), q_2 likewise without mu_a: heads that also repel.

    Proof: head 1's logits are beta e and -beta t, so it fails only for e < -t + ln(n-1)/beta,
    which has probability Phi(-sqrt2 (1+t)) as beta grows: e may even be negative. Head 2 has no
    component along mu_a, so e does not enter; its margin is beta over a and beta(1+t) over the
    rest, hence at least beta.
    """
    if heads != 2:
        raise UserError(f"repelling-heads has 2 heads, one for a and one for b, not {heads}.")
    if not 0 <= repel < math.inf:
        raise UserError(f"the repelling term t must be 0 or more; it is {repel}.")
    units = np.eye(2, n)
    units[0, 1:n] = units[1, 2:n] = -repel
    formula = (
        "q_1 = beta*(mu_a - t*(sum of mu_i, i not a)), "
        "q_2 = beta*(mu_b - t*(sum of mu_i, i not a or b))"
    )
    text = ("repelling-heads", formula, "as two heads, but head 1 fails only if e < -t")
    return _query(text, units, None, KNOWN_AXIS, beta, tolerance, targets=(A, B))


# ---- taking v_a back out of v_a + v_b; the first half of the rows spans A, the others span B


def extract(keys: Floats) -> Design:
    """M = A A^T takes v_a out of v_a + v_b for orthonormal A and spans that are orthogonal.

    Proof: with v_a = Ax and v_b = By, M(v_a + v_b) = A(A^T A)x + A(A^T B)y = Ax = v_a. From the
    average (v_a + v_b)/2 it is 2M that is wanted. An orthogonal projection enlarges no noise. A^T
    alone gives the coordinates x, not the vector.
    """
    a, b = _spans(keys)
    within = Measured("A^T A = I", float(np.abs(a.T @ a - np.eye(a.shape[1])).max()))
    across = Measured("A^T B = 0", float(np.abs(a.T @ b).max()))
    return _extraction("extract", "M = A*A^T", a @ a.T, a, b, (within, across))


def extract_oblique(keys: Floats) -> Design:
    """M = [A, 0][A, B]^+ does it for any spans that meet only in 0, at the cost of a noise gain.

    Proof: [A, B] has full column rank, so [A, B]^+ [A, B] = I and the coordinates (x, y) of
    Ax + By come back exactly; [A, 0] keeps x. The norm of a projection along another space is
    1/sin of the smallest principal angle between the two: nearly parallel spans drown in noise.
    """
    a, b = _spans(keys)
    matrix = np.hstack([a, np.zeros_like(b)]) @ np.linalg.pinv(np.hstack([a, b]))
    formula = "M = [A, 0]*pinv([A, B])"
    return _extraction("extract-oblique", formula, matrix, a, b, (_apart(a, b),))


def extract_similarity(keys: Floats) -> Design:
    """M = S D S^-1 with S = [A, B, completion] and D = diag(1..1, 0..0) is the same map.

    Proof: the columns of S are eigenvectors of M, of eigenvalue 1 for those of A and 0 for the
    rest; so M is the identity on span A and zero on span B. With a completion orthogonal to both
    it is zero there too, as [A, 0][A, B]^+ is, and the two agree on a basis, hence everywhere.
    """
    a, b = _spans(keys)
    apart = _apart(a, b)
    both = np.hstack([a, b])
    S = np.hstack([both, np.linalg.svd(both)[0][:, both.shape[1] :]])
    D = np.diag((np.arange(len(S)) < a.shape[1]).astype(np.float64))
    formula = "M = S*D*inv(S), S = [A, B, completion], D = diag(1..1, 0..0)"
    return _extraction("extract-similarity", formula, S @ D @ np.linalg.inv(S), a, b, (apart,))


def _extraction(
    name: str, formula: str, M: Floats, a: Floats, b: Floats, assumptions: tuple[Measured, ...]
) -> Design:
    """Checked on values of one head that averages: q = 0 over two keys."""
    rng = np.random.default_rng(0)
    values = np.stack([span @ rng.standard_normal(span.shape[1]) for span in (a, b)])
    c = attend(np.zeros(2), np.eye(2), values).context
    gain = float(np.linalg.norm(M, 2))
    size = float(np.abs(values).max())
    missed = float(np.abs(2 * M @ c - values[0]).max())
    return Design(
        name=name,
        formula=formula,
        claim=f"M(v_a + v_b) = v_a; noise in the sum grows by a factor of up to {gain:.6g}",
        matrices={"M": M, "noise gain": np.array(gain)},
        assumptions=assumptions,
        checks=(Measured("|2 M c - v_a| for c = (v_a + v_b)/2", missed, 1e-9 * gain * size),),
    )


def _spans(rows: Floats) -> tuple[Floats, Floats]:
    half = len(rows) // 2
    return rows[:half].T, rows[half:].T


def _apart(a: Floats, b: Floats) -> Measured:
    from scipy.linalg import subspace_angles

    both = np.hstack([a, b])
    if np.linalg.matrix_rank(both) < both.shape[1]:
        raise UserError(
            "the spans of A and B share a direction (or a basis is not one), so v_a + v_b does "
            "not determine v_a and no M can."
        )
    angle = float(subspace_angles(a, b).min())
    return Measured(f"the spans meet only in 0 (their smallest angle is {angle:.6g})", 0.0)


# ---- self-attention by hand: the three words x_1 = u_d + u_b, x_2 = u_a, x_3 = u_c + u_b

E = np.eye(4)  # u_a, u_b, u_c, u_d for beta = 1, and K of all three designs
X = np.stack([E[3] + E[1], E[0], E[2] + E[1]])
V = np.diag([0.0, 1.0, -1.0, 0.0])  # V x_1 = u_b, V x_2 = 0, V x_3 = u_b - u_c
FORMULA_V = "V = (u_b u_b^T - u_c u_c^T)/beta^2"
GOALS = {"|c_1 - (u_b - u_c)|": (0, E[1] - E[2]), "|c_2 - u_b|": (1, E[1])}


def words_identity(beta: float | None = None, tolerance: float = 0.01) -> Design:
    """K = Q = V = I on the three words: c_2 is close to u_a, the word's own content.

    Proof: x_2.x_2 = beta^2 and x_2 is orthogonal to the others, so a_2 = (a, 1 - 2a, a) with
    a = e^-beta^2/(1 + 2e^-beta^2), and c_2 - u_a = a(u_d + 2u_b + u_c - 2u_a), of norm
    sqrt10 beta a. Adding g u_d (or g u_c) to x_2, g >= 0, cannot give u_b: in c_2 the parts u_b,
    u_c, u_d have coefficients a_1 + a_3, a_3 and a_1 + g a_2, and no weights make those 1, 0, 0;
    the least distance over all of them is beta/sqrt3.
    """
    goals = {"|c_2 - u_a|": (1, E[0])}
    return _words("words-identity", "K = Q = V = I", E, E, goals, beta, tolerance)


def words(beta: float | None = None, tolerance: float = 0.01) -> Design:
    """K, Q and V of rank 2 with which c_1 is close to u_b - u_c and c_2 to u_b.

    Proof: V takes the words to u_b, 0 and u_b - u_c; Q takes x_1 to u_c, x_2 to u_d, x_3 to 0.
    So word 1 has logits (0, 0, beta^2) and word 2 (beta^2, 0, 0): weights (a, a, 1-2a) and
    (1-2a, a, a) with a = e^-beta^2/(1 + 2e^-beta^2). Hence c_1 - (u_b - u_c) = -a u_b + 2a u_c, of
    norm sqrt5 beta a, and c_2 - u_b = -a u_b - a u_c, of norm sqrt2 beta a.
    """
    formula = f"K = I, Q = (u_c u_d^T + u_d u_a^T)/beta^2, {FORMULA_V}"
    Q = np.outer(E[2], E[3]) + np.outer(E[3], E[0])
    return _words("words", formula, Q, V, GOALS, beta, tolerance)


def words_rank_1(beta: float | None = None, tolerance: float = 0.01) -> Design:
    """The same with Q of rank 1: one direction to ask with, one to answer, and smaller errors.

    Proof: Q takes x_1 to u_c - u_d, x_2 to u_d - u_c and x_3 to 0, so word 1 has logits
    (-beta^2, 0, beta^2) and word 2 the reverse: weights (l, m, h) and (h, m, l), in the ratios
    e^-beta^2 : 1 : e^beta^2. With V as before c_1 - (u_b - u_c) = -m u_b + (1-h) u_c and
    c_2 - u_b = -m u_b - l u_c.
    """
    formula = f"K = I, Q = (u_c - u_d)(u_d - u_a)^T/beta^2, {FORMULA_V}"
    Q = np.outer(E[2] - E[3], E[3] - E[0])
    return _words("words-rank-1", formula, Q, V, GOALS, beta, tolerance)


def _words(
    name: str,
    formula: str,
    Q: Floats,
    V: Floats,
    goals: Goals,
    beta: float | None,
    tolerance: float,
) -> Design:
    """A design for words whose orthogonal parts u have the norm beta, which is no free factor here.

    Each error is beta times a weight that falls like e^-beta^2, and decreases from beta = 1 on.
    """
    from scipy.optimize import brentq

    if not 0 < tolerance < math.inf:
        raise UserError(f"a tolerance is above 0; this one is {tolerance}.")
    if beta is not None and not 0 < beta < math.inf:
        raise UserError(f"beta is a norm and must be above 0; it is {beta}.")

    def found(norm: float) -> tuple[Floats, dict[str, float]]:
        x = norm * X
        attention = attend(x @ Q.T, x, x @ V.T)
        gaps = {what: attention.context[i] - norm * goal for what, (i, goal) in goals.items()}
        return attention.weights, {what: float(np.linalg.norm(gap)) for what, gap in gaps.items()}

    def excess(norm: float) -> float:
        return max(found(norm)[1].values()) - tolerance

    needed = 1.0 if excess(1.0) <= 0 else float(brentq(excess, 1.0, 27.0, xtol=1e-12))
    beta = needed if beta is None else beta
    weights, errors = found(beta)
    return Design(
        name=name,
        formula=formula,
        claim=" and ".join(f"{what} <= {tolerance:g}" for what in errors),
        matrices={"x": beta * X, "K": E, "Q": Q, "V": V, "weights": weights},
        assumptions=(
            Measured("u_i . u_j = 0 for i != j", 0.0),
            Measured("|u_a| = |u_b| = |u_c| = |u_d| = beta", 0.0),
        ),
        checks=tuple(Measured(what, miss, tolerance * (1 + 1e-9)) for what, miss in errors.items()),
        beta=beta,
        beta_needed=needed,
    )


# ---- two limits that a map of attention weights hides


def head_width(keys: Floats) -> Design:
    """Q and K of the narrowest head whose attention map is the given one (rows that sum to one).

    Proof: ln A = S - z 1^T with scores S = X Q K^T X^T of rank <= d_k, and taking each row's mean
    off removes z 1^T; so rank(ln A (I - 11^T/T)) <= d_k. Conversely factor the centred logarithm
    L = U W^T with as many columns as its rank; X of full rank, T <= d, has a right inverse X^+, so
    Q = X^+ U and K = X^+ W have X Q K^T X^T = L, and the softmax of L is the map because a row's
    constant cancels. Here X = I.
    """
    if keys.shape[0] != keys.shape[1]:
        raise UserError(f"a map is square, T x T; this one is {keys.shape[0]} x {keys.shape[1]}.")
    if not (keys > 0).all() or float(np.abs(keys.sum(axis=1) - 1).max()) > 1e-9:
        raise UserError("a map has positive entries and rows that sum to one.")
    logs = np.log(keys)
    centred = logs - logs.mean(axis=1, keepdims=True)
    width = int(np.linalg.matrix_rank(centred, tol=1e-9))
    left, sizes, right = np.linalg.svd(centred)
    root = np.sqrt(sizes[:width])
    Q, K = left[:, :width] * root, right[:width].T * root
    gap = float(np.abs(attend(Q, K, keys).weights - keys).max())
    return Design(
        name="head-width",
        formula="X*Q*K^T*X^T = ln A with each row's mean taken off, X = I",
        claim=f"a head of width {width} has this map, and no narrower head has it",
        matrices={"Q": Q, "K": K, "map": keys},
        assumptions=(),
        checks=(Measured("largest gap between the weights and the map", gap, 1e-8),),
    )


def second_weights(values: Floats, weights: Floats) -> tuple[int, Floats | None, float]:
    """The dimension of the weights with the same c, a far corner of them or None, its distance.

    Weights a and a + z give the same c and both sum to one iff z^T [V, 1] = 0, a space of dimension
    T - rank([V, 1]): a map of weights is not a proof of use. The weights with this c that are not
    negative form a polytope. Two of its corners are found, the one with the least on the heaviest
    key and the one with the most on the lightest. `wherefrom attention` shows the further one.
    """
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    if values.ndim != 2 or weights.shape != (len(values),):
        raise UserError(f"{values.shape} values cannot have {weights.shape} weights, one for each.")
    if (weights < 0).any() or abs(float(weights.sum()) - 1) > 1e-6:
        raise UserError("weights must be 0 or more and sum to one.")
    largest = max(1.0, float(np.abs(values).max()))
    space = np.hstack([values / largest, np.ones((len(values), 1))])
    dimension = int(len(values) - np.linalg.matrix_rank(np.hstack([values, space[:, -1:]])))
    if dimension == 0:
        return 0, None, 0.0
    # fewer, orthonormal equations say the same and keep the solver's tolerance meaningful
    _, sizes, right = np.linalg.svd(space.T, full_matrices=False)
    equations = right[: int((sizes > 1e-12 * sizes[0]).sum())]
    axes = np.eye(len(weights))
    objectives = (axes[weights.argmax()], -axes[weights.argmin()])
    corners = [_corner(equations, weights, objective) for objective in objectives]
    distances = [tv_distance(corner, weights) for corner in corners]
    best = int(np.argmax(distances))
    if distances[best] <= 1e-9:
        return dimension, None, 0.0
    return dimension, corners[best], distances[best]


def _corner(equations: Floats, weights: Floats, objective: Floats) -> Floats:
    """The weights with the same output that minimise the objective, or the given ones."""
    from scipy.optimize import linprog

    found = linprog(objective, A_eq=equations, b_eq=equations @ weights, bounds=(0, 1))
    if not found.success or found.x is None:
        return weights
    # what the solver's tolerance left over is put back within the given row space
    corner = np.maximum(found.x - equations.T @ (equations @ (found.x - weights)), 0.0)
    result: Floats = corner / corner.sum()
    return result


# ---- all of them by name


NOISE_DESIGNS: dict[str, Callable[..., Design]] = {
    "one-head": one_head,
    "two-heads": two_heads,
    "avoiding-head": avoiding_head,
    "repelling-heads": repelling_heads,
}
CONSTRUCTIONS: dict[str, Callable[..., Design]] = {
    "copy": copy,
    "hull": hull,
    "average": average,
    "average-orthogonal": average_orthogonal,
    "average-independent": average_independent,
    "weights": given_weights,
    **NOISE_DESIGNS,
    "extract": extract,
    "extract-oblique": extract_oblique,
    "extract-similarity": extract_similarity,
    "words-identity": words_identity,
    "words": words,
    "words-rank-1": words_rank_1,
    "head-width": head_width,
}
MAX_N = 200


def example_keys(name: str, n: int) -> Floats:
    """Rows (n, d) on which a construction shows what it does, if none are given."""
    if name == "hull":  # corners of a polygon, and the middle of one side
        angles = 2 * np.pi * np.arange(n - 1) / (n - 1)
        corners = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return np.vstack([corners, corners[:2].mean(axis=0)])
    if name == "head-width":  # each token looks at the one before it
        return np.asarray(softmax_over_keys(5.0 * np.roll(np.eye(n), -1, axis=1)))
    rows = np.eye(n)
    if name == "average-orthogonal":
        return rows * (1 + 0.1 * np.arange(n))[:, None]
    if name in ("average-independent", "weights"):
        return rows + 0.5
    if name in ("extract-oblique", "extract-similarity"):  # spans at 45 degrees
        rows[n // 2 :, : n // 2] += np.eye(n - n // 2, n // 2)
    return rows


def build_design(name: str, *, keys: Any = None, n: int | None = None, **settings: Any) -> Design:
    """A construction by its name, for given keys or for an example of n; settings are its own.

    Settings that are None count as not given; one that the construction does not have is refused.
    """
    if name not in CONSTRUCTIONS:
        raise UserError(f'there is no design "{name}".{did_you_mean(name, CONSTRUCTIONS)}')
    build = CONSTRUCTIONS[name]
    known = inspect.signature(build).parameters
    given = {setting: value for setting, value in settings.items() if value is not None}
    for setting in (*given, *(["keys"] if keys is not None else []), *(["n"] if n else [])):
        if setting not in known and not (setting == "n" and "keys" in known):
            raise UserError(f"the design {name} takes no {setting}.")
    if keys is not None and n is not None:
        raise UserError("n is the number of keys: give either n or the keys.")
    n = 8 if n is None else n
    if not 2 <= n <= MAX_N:
        raise UserError(f"n must be between 2 and {MAX_N}; it is {n}.")
    if "keys" not in known:
        return build(**({"n": n} if "n" in known else {}), **given)
    rows = example_keys(name, n) if keys is None else np.asarray(keys, dtype=np.float64)
    if rows.ndim != 2 or not 2 <= len(rows) <= MAX_N or rows.shape[1] > MAX_N:
        raise UserError(f"keys must be a table of 2 to {MAX_N} rows; they are {rows.shape}.")
    if not rows.size or not np.isfinite(rows).all():
        raise UserError("keys must be made of finite numbers.")
    return build(rows, **given)


def design_for_noise(
    name: str, *, n: int, d: int | None = None, heads: int | None = None, **settings: float | None
) -> Design:
    """A design for noisy keys by its name; `settings` are beta, tolerance and repel."""
    if name not in NOISE_DESIGNS:
        raise UserError(f'there is no design "{name}".{did_you_mean(name, NOISE_DESIGNS)}')
    if n < 2:
        raise UserError(f"there must be at least 2 keys, a and b; n is {n}.")
    if d is not None and d < n:
        raise UserError(f"{n} orthonormal means need a width of at least {n}; d is {d}.")
    if heads is not None and not 1 <= heads <= 64:
        raise UserError(f"heads must be between 1 and 64; they are {heads}.")
    if name != "repelling-heads":
        settings.pop("repel", None)
    asked = {"heads": heads, **settings}
    given = {setting: value for setting, value in asked.items() if value is not None}
    design = NOISE_DESIGNS[name](n, **given)
    wide = np.pad(design.queries, ((0, 0), (0, 0 if d is None else d - n)))
    return replace(design, matrices={**design.matrices, "queries": wide})
