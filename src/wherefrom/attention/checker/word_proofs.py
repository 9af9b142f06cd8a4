"""Exact proofs about the three words: where each row of attention goes as beta grows.

Over orthogonal u of norm beta the logits x_j^T K^T Q x_i and the values V x_j are polynomials in
beta. The softmax tends to equal shares among the largest logits, and what those shares make of
the values is compared with the goal, coefficient by coefficient.
"""

from __future__ import annotations

from fractions import Fraction

from wherefrom.attention.checker.construction import Construction
from wherefrom.attention.checker.exact_limits import trend
from wherefrom.attention.checker.exact_scalars import BETA, Field, Scalar
from wherefrom.attention.checker.exact_vectors import Exact, ExactVectors
from wherefrom.attention.checker.language import evaluate

WORDS = ("x1", "x2", "x3")


class WordProof:
    """The exact logits and values, and the limit of every row that has a goal."""

    def __init__(self, construction: Construction) -> None:
        self.field = Field(least_n=3)
        self.algebra = _algebra(self.field)
        self.lines: list[str] = []
        self.because = ""
        self.wrong = ""
        written = dict(construction.expressions)
        if "x2" in written:  # c2 may speak of the new x2
            self.algebra.names["x2"] = evaluate(written.pop("x2"), self.algebra)
        given = {name: evaluate(expression, self.algebra) for name, expression in written.items()}
        words = {name: self.algebra.names[name] for name in WORDS}
        eye = self.algebra.names["I"]
        if "V" in given:
            product = given.get("W")
            if product is None:
                product = self.algebra.multiply(self.algebra.transpose(given["K"]), given["Q"])
            values = given["V"]
            one, two = self.algebra.vector, self.field.rational
            self.goals = {1: one({"b": two(1), "c": two(-1)}), 2: one({"b": two(1)})}
        else:
            product, values = eye, eye
            self.goals = {2: given["c2"]}
        self.logits = {
            i: [
                self.algebra.value(
                    self.algebra.multiply(
                        self.algebra.transpose(words[x]),
                        self.algebra.multiply(product, words[f"x{i}"]),
                    )
                )
                for x in WORDS
            ]
            for i in self.goals
        }
        self.values = [self.algebra.multiply(values, words[x]) for x in WORDS]
        for i, row in self.logits.items():
            self.lines.append(f"logits of word {i}: {', '.join(map(str, row))}")

    def settled(self) -> bool:
        """True if every row tends to its goal; `wrong` says what the first other one does."""
        told = []
        for i, row in self.logits.items():
            weights = self.limit(row)
            if weights is None:
                return False
            shown_weights = ", ".join(str(w) for w in weights)
            if not self.reaches(weights, i):
                self.wrong = f"the weights of word {i} tend to ({shown_weights}), so c{i} " + (
                    f"tends to {self.told(weights)} and not to {self.show(self.goals[i])}"
                )
                return False
            told.append(f"the weights of word {i} tend to ({shown_weights})")
        self.because = " and ".join(told) + ", whose values are the goal."
        return True

    def limit(self, row: list[Scalar]) -> list[Fraction] | None:
        """The limit weights if they are equal shares among the largest logits, else None."""
        best = []
        for j, x in enumerate(row):
            against = [trend(self.field, self.field.subtract(y, x)) for y in row]
            if any(t.kind == "unclear" for t in against):
                return None
            if not any(t.kind == "up" for t in against):
                if any(t.kind == "constant" for t in against):
                    return None
                best.append(j)
        return [Fraction(int(j in best), len(best)) for j in range(len(row))]

    def context(self, weights: list[Fraction]) -> dict[str, Scalar]:
        total = self.algebra.vector({})
        for weight, value in zip(weights, self.values, strict=True):
            if weight:
                total = self.algebra.add(
                    total, self.algebra.scale(self.algebra.number(weight), value)
                )
        return self.algebra.coefficients(total)

    def reaches(self, weights: list[Fraction], i: int) -> bool:
        got, goal = self.context(weights), self.algebra.coefficients(self.goals[i])
        gaps = [self.field.subtract(got[k], goal[k]) for k in got]
        return all(trend(self.field, gap).vanishes for gap in gaps)

    def told(self, weights: list[Fraction]) -> str:
        return self.show(self.algebra.vector(self.context(weights)))

    def show(self, vector: Exact) -> str:
        parts = []
        for name, value in self.algebra.coefficients(vector).items():
            if not value.is_zero:
                text = str(value)
                factor = "" if text == "1" else "-" if text == "-1" else f"({text})*"
                parts.append(f"{factor}u_{name}")
        return " + ".join(parts).replace("+ -", "- ") or "0"


def _algebra(field: Field) -> ExactVectors:
    beta = field.symbol(BETA)
    one = field.rational(1)
    algebra = ExactVectors(field, dict.fromkeys("abcd", field.multiply(beta, beta)), {})
    vector = algebra.vector
    algebra.names = {f"u_{k}": vector({k: one}) for k in "abcd"} | {
        "x1": vector({"d": one, "b": one}),
        "x2": vector({"a": one}),
        "x3": vector({"c": one, "b": one}),
        "beta": algebra.scalar(beta),
        "I": Exact("d", "d", {}, one),
    }
    return algebra
