"""Queries built by hand, for keys that are known and for noisy ones.

Each construction is a function that returns a `Design`. The first line of its docstring says what
it does, the rest is the proof; `wherefrom design NAME` prints both (see `designs`). Assumptions are
measured on the numbers at hand, and the check is computed by the attention equation, so a
construction that is given keys it was not made for says so.

The tolerance eps bounds how far the weights are from the wanted ones (total variation distance),
so that |c - wanted| <= eps times the widest distance between values. Key a is the first key and
b the second.

Shapes: keys (n, d), queries (h, d), weights (n,).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wherefrom.attention.equation import attend, log_sum_exp, softmax_over_keys
from wherefrom.attention.laws import A, B
from wherefrom.errors import UserError, did_you_mean
from wherefrom.results import Printable

Floats = NDArray[np.float64]

FLAT = 1e-9  # a distance below this, relative to the keys' spread, is rounding


@dataclass(frozen=True)
class Measured:
    """A statement about the numbers at hand: how far off it is, and how far is allowed."""

    statement: str
    value: float
    allowed: float = 1e-9

    @property
    def holds(self) -> bool:
        """Whether the value is within what is allowed."""
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
    found = [copyability(keys, key) for key in range(len(keys))]
    margin, mixture, most = found[A]
    nearest = mixture @ keys
    every = {
        "best margin of each key": np.array([each[0] for each in found]),
        "most weight of each key": np.array([each[2] for each in found]),
    }
    if margin > 0:
        formula = "q = beta*(k_a - p)/|k_a - p|, p nearest to k_a in the hull of the other keys"
        vertex = Measured("k_a is a vertex of the keys' convex hull", 0.0)
        units, text = (keys[[A]] - nearest) / margin, ("hull", formula, COPY)
        design = _query(text, units, keys, (vertex,), beta, tolerance, wanted=(A,), margin=margin)
        return replace(design, matrices={**design.matrices, **every})
    scale = float(np.ptp(keys, axis=0).max()) or 1.0
    drawn = np.random.default_rng(0).standard_normal((1000, keys.shape[1]))
    given = attend(np.vstack([drawn * size / scale for size in (0.1, 1, 10)]), keys, keys).weights
    mixed = Measured("k_a is that mixture", float(np.abs(keys[A] - nearest).max()) / scale, 1e-8)
    return Design(
        name="hull",
        formula="k_a = sum of lambda_i*k_i over the other keys",
        claim=f"no query gives k_a more than {most:.6g} of the weight",
        matrices={"lambda": mixture, **every},
        assumptions=(mixed,),
        checks=(
            Measured("most weight on k_a of 3,000 queries", float(given[:, A].max()), most + FLAT),
        ),
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


NOISE_DESIGNS: dict[str, Callable[..., Design]] = {
    "one-head": one_head,
    "two-heads": two_heads,
    "avoiding-head": avoiding_head,
    "repelling-heads": repelling_heads,
}


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
