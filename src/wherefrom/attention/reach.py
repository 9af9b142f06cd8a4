"""What weights can a query reach at all? An answer either way comes with its certificate.

* Copying: key j can be singled out iff it is a vertex of the convex hull of the keys. The distance
  to the hull of the others is the best margin for a query of length one; if that is zero, the
  mixture of other keys that equals k_j bounds the weight on j for every query.
* Arbitrary weights: ln(weights) must be a linear image of the keys plus a constant. The residual
  of the least-squares fit is orthogonal to all of those, and so refutes by itself.

Shapes: keys (n, d), a query (d,), weights and mixtures (n,).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls

from wherefrom.attention.designs import Assumption, Design, beta_to_copy
from wherefrom.attention.equation import attend, softmax_over_keys
from wherefrom.errors import UserError

Floats = NDArray[np.float64]

FLAT = 1e-9  # a distance below this, relative to the keys' spread, is rounding


@dataclass(frozen=True)
class Copyability:
    """Whether one key can be copied: with the best query's margin, or with an upper bound.

    `mixture` is the point of the hull of the other keys nearest to k_j, as weights of all n keys
    (zero at j). If the key can be copied, `direction` is the unit query of the best margin; if
    not, no query gives it more than `most_weight`, and `most_weight` is 1 otherwise.
    """

    copyable: bool
    margin: float
    direction: Floats | None
    mixture: Floats
    most_weight: float


def copyability(keys: Floats, j: int) -> Copyability:
    """Can any query put nearly all weight on key j, and with what margin per unit of |q|?

    Proof of the margin: min_i q.(k_j - k_i) is the least over the hull of the others, so for
    |q| = 1 it is at most the distance to the hull's nearest point p, and q = (k_j - p)/|k_j - p|
    attains it, because p is the projection. The nearest point minimises |D m|^2 over mixtures,
    D the differences; non-negative least squares on |D m|^2 + (sum m - 1)^2 has its minimum at a
    multiple of the same m, since for m = t*lambda the best value over t increases with |D lambda|.

    Proof of the bound: if k_j = sum lambda_i k_i then s_j = sum lambda_i s_i, and the others weigh
    sum exp(s_i) >= exp(sum lambda_i (s_i - ln lambda_i)) = exp(s_j + H(lambda)) by Jensen; so
    a_j <= 1/(1 + exp(H(lambda))).
    """
    keys = np.asarray(keys, dtype=np.float64)
    if keys.ndim != 2 or not np.isfinite(keys).all():
        raise UserError(f"keys must be a table (n, d) of finite numbers; they are {keys.shape}.")
    if not 0 <= j < len(keys):
        raise UserError(f"there is no key {j} among {len(keys)}.")
    others = np.delete(np.arange(len(keys)), j)
    mixture = np.zeros(len(keys))
    if len(others) == 0:
        return Copyability(True, math.inf, np.zeros(keys.shape[1]), mixture, 1.0)
    differences = (keys[others] - keys[j]).T  # (d, n-1)
    scale = float(np.linalg.norm(differences, axis=0).max())
    if scale > 0:
        stacked = np.vstack([differences / scale, np.ones(len(others))])
        goal = np.append(np.zeros(keys.shape[1]), 1.0)
        solution, _ = nnls(stacked, goal)
        mixture[others] = solution / solution.sum()
    else:
        mixture[others] = 1 / len(others)
    towards = keys[j] - mixture @ keys
    distance = float(np.linalg.norm(towards))
    if distance > FLAT * scale:
        return Copyability(True, distance, towards / distance, mixture, 1.0)
    mixture[others] = _most_even(differences, scale, mixture[others])
    return Copyability(False, 0.0, None, mixture, 1 / (1 + math.exp(_entropy(mixture))))


def _most_even(differences: Floats, scale: float, found: Floats) -> Floats:
    """Of the mixtures that equal k_j, the one of largest entropy: it gives the best bound.

    Its dual is min_q ln sum exp(q.(k_i - k_j)), whose minimiser's softmax it is. On a face of the
    hull that minimum lies at infinity; then the mixture already found stays.
    """
    if scale == 0:
        return found
    unit = differences / scale

    def free_energy(q: Floats) -> tuple[float, Floats]:
        scores = q @ unit
        top = scores.max()
        mass = np.exp(scores - top)
        return float(top + math.log(mass.sum())), unit @ (mass / mass.sum())

    best = minimize(free_energy, np.zeros(len(unit)), jac=True, method="BFGS", tol=1e-12)
    even: Floats = softmax_over_keys(best.x @ unit)
    solved = float(np.linalg.norm(unit @ even)) <= FLAT
    return even if solved and _entropy(even) > _entropy(found) else found


def _entropy(mixture: Floats) -> float:
    positive = mixture[mixture > 0]
    return float(-(positive * np.log(positive)).sum())


def copy_value(keys: Floats, j: int, *, tolerance: float) -> Design:
    """The shortest query that puts 1 - tolerance on key j; refused if no query can.

    Proof: along the direction of `copyability` the margin is beta times the distance to the hull
    of the other keys, and no shorter query has that margin.
    """
    found = copyability(keys, j)
    if not found.copyable or found.direction is None:
        raise UserError(
            f"key {j} is a mixture of the other keys, so no query gives it more than "
            f"{found.most_weight:.4g} of the weight."
        )
    beta = beta_to_copy(len(keys), tolerance) / found.margin if len(keys) > 1 else 0.0
    return Design(
        name="copy one value",
        formula=f"q = beta*(k_{j} - p)/|k_{j} - p|, p nearest to k_{j} in the hull of the others",
        claim=f"the weight on key {j} is at least {1 - tolerance:g}, so c is close to v_{j}",
        queries=(beta * found.direction)[None, :],
        beta=beta,
        tolerance=tolerance,
        assumptions=(Assumption("vertex", f"k_{j} is a vertex of the keys' convex hull", 0.0),),
    )


@dataclass(frozen=True)
class ReachedWeights:
    """A query that has the wanted weights, or a certificate that none has.

    The certificate r (n,) satisfies r.1 = 0 and r.k = 0 for every column k of the keys, so
    r.ln(weights) = 0 for the weights of every query; for the wanted ones it is |r|^2 > 0.
    """

    reachable: bool
    query: Floats
    weights: Floats  # what the query gives: the wanted weights, or the nearest in ln
    certificate: Floats | None


def reach_weights(keys: Floats, wanted: Floats) -> ReachedWeights:
    """Solve [K, 1][q; c] = ln w: positive weights w are reachable iff ln w is in that column space.

    Proof: ln a = Kq - ln(sum of exp) is in the space for every q; conversely a solution q has
    softmax(Kq) = w/sum(w) = w. The constant c is the logarithm of the normaliser.
    """
    keys, wanted = np.asarray(keys, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    if keys.ndim != 2 or wanted.shape != (len(keys),):
        raise UserError(f"{keys.shape} keys cannot have {wanted.shape} weights, one a key.")
    if not (np.isfinite(wanted).all() and (wanted > 0).all()):
        raise UserError("weights must be positive: softmax gives none that is zero.")
    if abs(float(wanted.sum()) - 1) > 1e-9:
        raise UserError(f"weights must sum to one; these sum to {wanted.sum():.9g}.")
    space = np.hstack([keys, np.ones((len(keys), 1))])
    logs = np.log(wanted)
    solution = np.linalg.lstsq(space, logs, rcond=None)[0]
    residual = logs - space @ solution
    rounding = 1e-9 * max(1.0, float(np.abs(logs).max()))
    reachable = float(np.abs(residual).max()) <= rounding
    query: Floats = solution[:-1]
    given = attend(query, keys, keys).weights
    return ReachedWeights(reachable, query, given, None if reachable else residual)


def all_weights_reachable(keys: Floats) -> bool:
    """Whether every positive weighting can be had: iff the keys are affinely independent.

    Proof: [K, 1] has n rows, and its columns span all of R^n iff its rank is n; that is affine
    independence, and takes n <= d + 1.
    """
    space = np.hstack([keys, np.ones((len(keys), 1))])
    return bool(np.linalg.matrix_rank(space) == len(keys))
