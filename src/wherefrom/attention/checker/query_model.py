"""The logits of a written query, exactly where possible and in numbers everywhere.

The keys that may be written are a few named ones and "the others", which nobody can tell apart.
So a query is known by one logit a group: k_a.q, k_b.q and k_i.q for every other i. Exactly, each
is a Scalar in beta and n; in numbers, each is computed on the standard basis at one beta and n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from wherefrom.attention.checker.construction import Construction
from wherefrom.attention.checker.exact_limits import Trend, trend, trend_at
from wherefrom.attention.checker.exact_scalars import BETA, Field, N, NotExactError, Scalar, symbols
from wherefrom.attention.checker.exact_vectors import Exact, ExactVectors
from wherefrom.attention.checker.instances import key_instance
from wherefrom.attention.checker.language import ExpressionError, evaluate
from wherefrom.attention.checker.numeric import MAX_SIZE, Numeric
from wherefrom.attention.equation import softmax_over_keys

# the ladder of factors on which "for large beta" is looked at in numbers
RUNGS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6)
HIGH_RUNGS = (1e7, 1e8, 1e9, 1e10, 1e12, 1e14, 1e16, 1e18, 1e20, 1e25, 1e30)  # algebra only


class QueryModel:
    """The queries of one construction as logits of groups of keys."""

    def __init__(self, construction: Construction) -> None:
        self.construction = construction
        self.problem = construction.problem
        self.groups = tuple(self.problem.target)
        self.picked = self.groups[:-1]
        self.field = Field(least_n=self.problem.least_n)
        self.exact: list[dict[str, Scalar]] | None = None
        self.known_rungs: dict[int, list[float]] = {}
        try:
            algebra = _algebra(self.field, self.groups, noisy=self.problem.noise != "none")
            self.exact = [
                algebra.coefficients(evaluate(expression, algebra))
                for expression in construction.expressions.values()
            ]
        except NotExactError:
            self.exact = None

    @property
    def largest_n(self) -> int:
        return 10**12 if self.exact else MAX_SIZE

    def count(self, group: str, n: int) -> int:
        return n - len(self.picked) if group == "others" else 1

    def logits(self, beta: float, n: int) -> list[tuple[float, ...]]:
        """For each query the logit of each group; ExpressionError where there is no value."""
        if self.exact is not None:
            try:
                return [
                    tuple(self.field.at(head[g], beta=beta, n=n) for g in self.groups)
                    for head in self.exact
                ]
            except ZeroDivisionError:
                source = next(iter(self.construction.expressions.values())).source
                raise ExpressionError("this divides by zero.", source, 1) from None
        values, keys = key_instance(self.problem, n=n, d=n, beta=beta)
        algebra = Numeric(values)
        heads = []
        for expression in self.construction.expressions.values():
            scores = keys @ np.asarray(evaluate(expression, algebra), float).ravel()
            other = float(scores[len(self.picked)]) if n > len(self.picked) else 0.0
            heads.append((*map(float, scores[: len(self.picked)]), other))
        return heads

    def rungs(self, n: int) -> list[float]:
        """The factors of the ladder at which the queries have a value that fits a float."""
        if n in self.known_rungs:
            return self.known_rungs[n]
        usable: list[float] = []
        for beta in (*RUNGS, *HIGH_RUNGS) if self.exact is not None else RUNGS:
            try:
                heads = self.logits(beta, n)
            except ExpressionError:
                continue
            if not all(math.isfinite(x) and abs(x) < 1e290 for head in heads for x in head):
                break
            usable.append(beta)
        self.known_rungs[n] = usable
        return usable

    def usable_beta(self, n: int, least: float = 10.0) -> float | None:
        """The first factor of the ladder from `least` on at which there is a value."""
        rungs = self.rungs(n)
        return min((beta for beta in rungs if beta >= least), default=max(rungs, default=None))

    def uses_beta(self) -> bool:
        if self.exact is None:
            return "beta" in self.construction.names
        return any(
            BETA in symbols(x.numerator) | symbols(x.denominator)
            for head in self.exact
            for x in head.values()
        )

    def derived(self) -> tuple[str, ...]:
        """The exact logits as lines that a person can check."""
        if self.exact is None:
            return ()
        lines = []
        names = list(self.construction.expressions)
        for name, head in zip(names, self.exact, strict=True):
            for group, value in head.items():
                key = "k_i" if group == "others" else f"k_{group}"
                stretch = group == "a" and self.problem.noise == "stretched" and not value.is_zero
                shown = str(value)
                if stretch:
                    shown = f"e*{shown}" if shown.isalnum() else f"e*({shown})"
                lines.append(f"{key}.{name} = {shown}" + (" for every other i" * (key == "k_i")))
        return tuple(lines)

    def same_queries(self) -> bool:
        """Are there several queries, all the same?"""
        if self.exact is not None:
            return len(self.exact) > 1 and all(
                self.field.subtract(head[g], self.exact[0][g]).is_zero
                for head in self.exact[1:]
                for g in self.groups
            )
        beta = self.usable_beta(5)
        heads = [] if beta is None else self.logits(beta, 5)
        return len(heads) > 1 and all(np.allclose(h, heads[0], rtol=1e-12) for h in heads[1:])

    def limit_weights(self, n: int, head: int = 0) -> dict[str, float] | None:
        """What the weights of the groups tend to as beta grows, for fixed keys and this n."""
        assert self.exact is not None
        logits = self.exact[head]
        present = [g for g in self.groups if self.count(g, n) > 0]
        best: list[str] = []
        offsets: dict[str, float] = {}
        for g in present:
            against = {h: self.difference_at(logits[h], logits[g], n) for h in present}
            if any(t.kind == "unclear" for t in against.values()):
                return None
            if not any(t.kind == "up" for t in against.values()):
                best.append(g)
        for g in best:
            offsets[g] = self.difference_at(logits[g], logits[best[0]], n).value or 0.0
        return self.weights(offsets, n)

    def weights(self, logits: Mapping[str, float], n: int) -> dict[str, float]:
        """The weight of each group, all of its keys together; groups left out get none."""
        present = [g for g in logits if self.count(g, n) > 0]
        scores = np.array([logits[g] + math.log(self.count(g, n)) for g in present])
        found = dict(zip(present, softmax_over_keys(scores).tolist(), strict=True))
        return {g: found.get(g, 0.0) for g in self.groups}

    def distance(self, weights: Mapping[str, float]) -> float:
        """The misplaced share: half the sum of |weight - wanted|."""
        return 0.5 * sum(abs(weights[g] - self.problem.target[g]) for g in self.groups)

    def difference(self, x: Scalar, y: Scalar) -> Trend:
        return trend(self.field, self.field.subtract(x, y))

    def difference_at(self, x: Scalar, y: Scalar, n: int) -> Trend:
        return trend_at(self.field, self.field.subtract(x, y), n)


def _algebra(field: Field, groups: Sequence[str], *, noisy: bool) -> ExactVectors:
    """The exact algebra over orthonormal keys or means: what "the givens" means in a proof."""
    one = field.rational(1)
    picked = groups[:-1]
    others = field.subtract(field.symbol(N), field.rational(Fraction(len(picked))))
    squares = {**dict.fromkeys(picked, one), "others": others}
    algebra = ExactVectors(field, squares, {})
    stem, table = ("mu", "Mu") if noisy else ("k", "K")
    everything = dict.fromkeys(groups, one)
    names: dict[str, Exact] = {
        "beta": algebra.scalar(field.symbol(BETA)),
        "n": algebra.scalar(field.symbol(N)),
        "I": Exact("d", "d", {}, one),
        table: Exact("n", "d", {}, one),
        "sum_others": algebra.vector({"others": one}),
        "sum_all": algebra.vector(everything),
        "ones": algebra.vector(everything, "n"),
    }
    for group in picked:
        names[f"{stem}_{group}"] = algebra.vector({group: one})
        names[f"e_{group}"] = algebra.vector({group: one}, "n")
    algebra.names = names
    return algebra
