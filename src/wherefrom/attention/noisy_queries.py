"""Queries for noisy keys: the homework's one head and two, and the better ones.

All are written in the means, which are known, and never in the sampled keys, which are not.
mu_a is key 0 and mu_b key 1, as in `noise.py`. beta is what the tolerance needs while the noisy
key has its mean length (e = 1); what the noise then does is the business of `heads.HeadsLaw`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wherefrom.attention.designs import Assumption, Design, beta_to_average, beta_to_copy
from wherefrom.attention.noise import A, B
from wherefrom.errors import UserError, did_you_mean

ORTHONORMAL = Assumption("orthonormal means", "mu_i . mu_j = 1 if i = j, else 0", 0.0)
STILL_B = Assumption("b is still", "key b has no noise beyond alpha I", 0.0)
KNOWN_AXIS = Assumption("known axis", "the large noise of key a lies along mu_a", 0.0)


@dataclass(frozen=True)
class NoisyDesign:
    """A design for noisy keys and the key that each head is meant to copy."""

    design: Design
    targets: tuple[int, ...]


def one_head(n: int, d: int, *, beta: float | None, tolerance: float, heads: int) -> NoisyDesign:
    """q = beta(mu_a + mu_b): the average of two, as if the keys were their means.

    Proof, with k_a = e mu_a: the logits are beta e, beta and zeros, so at e = 1 this is
    `average_of_orthonormal`. But logit(a_a) = beta(e - 1) - ln(1 + (n-2)e^-beta), of deviation
    beta/sqrt 2 for e ~ N(1, 1/2): what makes the average exact makes it unstable. The same query
    in several heads gives the same c in each, and their average is that c again.
    """
    beta = beta_to_average(n, 2, tolerance) if beta is None else beta
    query = np.zeros((1, d))
    query[0, [A, B]] = beta
    design = Design(
        name="one-head",
        formula="q = beta*(mu_a + mu_b)",
        claim="c is near (v_a + v_b)/2 while |k_a| = 1, and runs to v_a or v_b as it varies",
        queries=np.repeat(query, heads, axis=0),
        beta=beta,
        tolerance=tolerance,
        assumptions=(ORTHONORMAL, STILL_B),
    )
    return NoisyDesign(design, (A,) * heads)


def two_heads(n: int, d: int, *, beta: float | None, tolerance: float, heads: int) -> NoisyDesign:
    """q_h = beta mu_h, a head for each value: c = (c_1 + ... + c_H)/H is their average.

    Proof: head 1's logits are beta e and zeros, so logit(a_a) = beta e - ln(n-1): near 1 as long
    as e stays above ln(n-1)/beta, however long k_a becomes. The other heads have no component
    along mu_a: their logits do not move at all.
    """
    beta = beta_to_copy(n, tolerance) if beta is None else beta
    if heads > n:
        raise UserError(f"{heads} heads that copy one key each need {heads} keys; n is {n}.")
    queries = np.zeros((heads, d))
    queries[np.arange(heads), np.arange(heads)] = beta
    design = Design(
        name="two-heads",
        formula="q_1 = beta*mu_a, q_2 = beta*mu_b",
        claim="each head copies one value; only head 1 feels the noise, and only if e is small",
        queries=queries,
        beta=beta,
        tolerance=tolerance,
        assumptions=(ORTHONORMAL, STILL_B),
    )
    return NoisyDesign(design, tuple(range(heads)))


def avoiding_head(
    n: int, d: int, *, beta: float | None, tolerance: float, heads: int
) -> NoisyDesign:
    """q = -beta * sum of mu_i outside {a, b}: one head that does not see the noisy direction.

    Proof: the logits of a and b are 0 whatever e, all others are -beta; so the weights are those
    of `average_of_orthonormal`, and the stretch of k_a does not enter. Only the isotropic part
    does, with a variance of alpha beta^2 (n-2) a logit. So the drawback of one head belongs to
    the query beta(mu_a + mu_b), not to having one head.
    """
    if n < 3:
        raise UserError("the query that pushes away the other keys needs others: n of 3 or more.")
    beta = beta_to_average(n, 2, tolerance) if beta is None else beta
    query = np.zeros((1, d))
    query[0, 2:n] = -beta
    design = Design(
        name="avoiding-head",
        formula="q = -beta*(sum of mu_i, i not a or b)",
        claim="c stays near (v_a + v_b)/2 for every length of k_a",
        queries=np.repeat(query, heads, axis=0),
        beta=beta,
        tolerance=tolerance,
        assumptions=(ORTHONORMAL, KNOWN_AXIS, STILL_B),
    )
    return NoisyDesign(design, (A,) * heads)


def repelling_heads(
    n: int, d: int, *, beta: float | None, tolerance: float, repel: float
) -> NoisyDesign:
    """q_1 = beta(mu_a - t sum of the others), q_2 = beta(mu_b - t sum of all but a and b).

    Proof: head 1's logits are beta e and -beta t, so it fails only for e < -t + ln(n-1)/beta,
    which has probability Phi(-sqrt2 (1+t)) as beta grows: e may even be negative. Head 2 has no
    component along mu_a, so e does not enter; its margin is beta over a and beta(1+t) over the
    rest, hence at least beta.
    """
    if repel < 0:
        raise UserError(f"the repelling term t must be 0 or more; it is {repel}.")
    beta = beta_to_copy(n, tolerance) if beta is None else beta
    queries = np.zeros((2, d))
    queries[0, :n] = -repel
    queries[0, A] = 1.0
    queries[1, 2:n] = -repel
    queries[1, B] = 1.0
    design = Design(
        name="repelling-heads",
        formula="q_1 = beta*(mu_a - t*(sum of mu_i, i not a)), "
        "q_2 = beta*(mu_b - t*(sum of mu_i, i not a or b))",
        claim="as two heads, but head 1 fails only if e < -t",
        queries=beta * queries,
        beta=beta,
        tolerance=tolerance,
        assumptions=(ORTHONORMAL, KNOWN_AXIS, STILL_B),
    )
    return NoisyDesign(design, (A, B))


NAMES = ("one-head", "two-heads", "avoiding-head", "repelling-heads")


def design_for_noise(
    name: str,
    *,
    n: int,
    d: int | None = None,
    beta: float | None = None,
    tolerance: float = 0.01,
    heads: int | None = None,
    repel: float = 1.0,
) -> NoisyDesign:
    """A design by its name; without a beta it takes what the tolerance needs."""
    if name not in NAMES:
        raise UserError(f'there is no design "{name}".{did_you_mean(name, NAMES)}')
    if n < 2:
        raise UserError(f"there must be at least 2 keys, a and b; n is {n}.")
    if beta is not None and not (np.isfinite(beta) and beta >= 0):
        raise UserError(f"beta must be a number of 0 or more; it is {beta}.")
    if heads is not None and not 1 <= heads <= 64:
        raise UserError(f"heads must be between 1 and 64; they are {heads}.")
    wide = max(n, 1) if d is None else d
    if wide < n:
        raise UserError(f"{n} orthonormal means need a width of at least {n}; d is {wide}.")
    if name == "repelling-heads":
        if heads not in (None, 2):
            raise UserError(f"repelling-heads has 2 heads, one for a and one for b, not {heads}.")
        return repelling_heads(n, wide, beta=beta, tolerance=tolerance, repel=repel)
    build: Callable[..., NoisyDesign] = {
        "one-head": one_head,
        "two-heads": two_heads,
        "avoiding-head": avoiding_head,
    }[name]
    count = (2 if name == "two-heads" else 1) if heads is None else heads
    return build(n, wide, beta=beta, tolerance=tolerance, heads=count)
