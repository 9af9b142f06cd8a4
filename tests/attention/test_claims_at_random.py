"""Verdicts on random constructions against a softmax written out."""

from __future__ import annotations

import math

import numpy as np

from wherefrom.attention.checker.check import check

COEFFICIENTS = {
    "beta": lambda b, n: b,
    "-beta": lambda b, n: -b,
    "beta**2": lambda b, n: b**2,
    "1": lambda b, n: 1.0,
    "0": lambda b, n: 0.0,
    "-n*beta": lambda b, n: -n * b,
    "beta*(n-4)": lambda b, n: b * (n - 4),
    "(n-3)*beta**2": lambda b, n: (n - 3) * b**2,
    "beta*(n**2-7*n+13)": lambda b, n: b * (n**2 - 7 * n + 13),
    "1/beta": lambda b, n: 1 / b,
    "sqrt(beta)": lambda b, n: math.sqrt(b),
}


def test_random_constructions_against_a_softmax_written_out() -> None:
    """Verdict and smallest n agree with plain arithmetic at a huge beta, for 60 queries."""
    rng = np.random.default_rng(11)
    words = {"proved": 0, "holds": 0, "refuted": 0}

    def misplaced_share(picked: list[str], n: int) -> float:
        a, b, other = (COEFFICIENTS[name](1e7, n) for name in picked)
        scores = np.array([a, b] + [other] * (n - 2))
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        return float(abs(weights[0] - 0.5) + abs(weights[1] - 0.5) + weights[2:].sum()) / 2

    for _ in range(60):
        picked = [str(x) for x in rng.choice(list(COEFFICIENTS), 3)]
        if rng.random() < 0.6:
            picked[1] = picked[0]
        names = ("k_a", "k_b", "sum_others")
        text = "+".join(f"({c})*{v}" for c, v in zip(picked, names, strict=True))
        verdict = check("average", [f"q={text}"])
        words[verdict.verdict] += 1
        if verdict.verdict == "refuted":
            assert verdict.counterexample is not None
            n = verdict.counterexample.sizes["n"]
            assert misplaced_share(picked, n) > 0.0099, text
            assert all(misplaced_share(picked, k) < 0.0101 for k in range(3, n)), text
        else:
            assert all(misplaced_share(picked, k) < 0.0101 for k in (*range(3, 13), 50)), text
    assert words["proved"] >= 8
    assert words["refuted"] >= 8
