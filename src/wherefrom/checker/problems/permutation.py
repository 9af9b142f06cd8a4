"""Does a layer know the order of its tokens?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wherefrom.checker.asymptotics import Must
from wherefrom.checker.field import Field, NotExactError, StepBudget, TooLargeError
from wherefrom.checker.goals import (
    Claim,
    Decision,
    decide,
    is_true,
)
from wherefrom.checker.grammar import Node
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import CheckResult
from wherefrom.checker.spaces import (
    Exact,
    Floats,
    Matrix,
    NoValueError,
    Values,
    evaluate,
    shown,
)
from wherefrom.checker.verifier import verify

ROUNDING = 1e-9  # relative to the largest number on the way
FIXED = {"M": "the mask M", "P": "the position table P", "mask": "the mask"}  # know of positions
LAYER_DRAWS = 8  # for each size


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    return Layer(construction, draft, budget).judge()


MUST_BE: dict[str, Must] = {"/": "nonzero", "sqrt": "nonnegative", "log": "positive"}


def divisors(tree: Node) -> Iterator[tuple[Node, Must]]:
    """Whatever a formula divides by or takes a root or a logarithm of, and what it must be."""
    for node in tree.walk():
        if node.op in MUST_BE:
            yield node.arguments[-1], MUST_BE[node.op]


class Layer:
    """f(P X) = P f(X)? All that may be written on tokens commutes with reordering them, since the
    sizes are letters, but for the position table and the mask."""

    def __init__(self, construction: Construction, draft: CheckResult, budget: StepBudget) -> None:
        self.expression = construction.expressions["f"]
        self.draft, self.budget = draft, budget
        self.wide = any(
            g.name == "V" and g.shape.rows == ("n",) for g in construction.problem.givens
        )

    def judge(self) -> CheckResult:
        fixed = sorted(self.expression.tree.parts() & set(FIXED))
        for size, letter in self.sizes_without_value():
            because = f"the formula has no value at {letter} = {size}."
            return self.draft.refuted(because, because, {letter: size})
        found, tried = self.search(fixed)
        if found is not None:
            return found
        if fixed:
            what = " and ".join(FIXED[x] for x in fixed)
            return self.draft.holds(
                f"{what} made no difference beyond rounding in {tried} drawn layers. "
                "That is no proof."
            )
        proof = {"kind": "layer", "tree": _plain_tree(self.expression.tree)}
        if verify(proof):
            return self.draft.holds(
                "reordering the tokens reorders the result wherever the formula has a value; that "
                f"it has one for all sizes and tokens is not shown. {tried} drawn layers agree."
            )
        because = (
            "for every n and d: products, sums, softmax of each row and functions of single "
            "entries commute with reordering the tokens, and nothing else is written."
        )
        return self.draft.proved(because, proof)

    def sizes_without_value(self) -> Iterator[tuple[int, str]]:
        """Sizes at which what is divided by, or stands under a root or a logarithm, is not what it
        must be, for the parts that are made of n alone or of d alone."""
        for part, need in divisors(self.expression.tree):
            letters = {node.name for node in part.walk() if node.op == "name"}
            if not letters <= {"n", "d"} or len(letters) > 1:
                continue
            field = Field(self.budget, 1)
            letter = next(iter(letters), "n")
            with contextlib.suppress(NotExactError, NoValueError):
                value = evaluate(
                    replace(self.expression, tree=part), Exact(field), {letter: field.n}
                )
                size = _first_false(decide(field, [Claim(value.item(), need)]))
                if size is not None:
                    yield size, letter

    def search(self, fixed: Sequence[str]) -> tuple[CheckResult | None, int]:
        """Tokens, matrices and a reordering that the layer does not follow; and how many layers
        had a value."""
        tried = 0
        for tokens, learned in _drawn_layers():
            n, d = tokens.shape
            order = np.roll(np.arange(n), 1)
            floats = Floats(self.budget)
            try:
                value, moved = (
                    evaluate(self.expression, floats, self.values(x, learned))
                    for x in (tokens, tokens[order])
                )
            except (NoValueError, TooLargeError):
                continue
            tried += 1
            differs = bool(np.abs(moved - value[order]).max() > ROUNDING * floats.largest)
            if not differs and fixed:
                differs = self.differs_exactly(tokens, order, learned)
            if not differs:
                continue
            if not fixed:
                because = "drawn tokens disagree with the argument; judge this one by hand."
                return self.draft.inconclusive(because), tried
            named = {x: learned[x] for x in learned if x in self.expression.names}
            tables = {"X": tokens, "P X": tokens[order], "P f(X)": value[order], "f(P X)": moved}
            what = "two tokens exchanged" if n == 2 else "the tokens shifted by one"
            because = " and ".join(FIXED[x] for x in fixed)
            refuted = self.draft.refuted(
                f"{because} stays in place while the tokens are reordered.",
                f"with n = {n}, d = {d} and {what}, f(P X) is not P f(X).",
                {"n": n, "d": d},
                shown(tables | named, (*tables, *named)),
            )
            return refuted, tried
        return None, tried

    def differs_exactly(self, tokens: Matrix, order: Matrix, learned: Values) -> bool:
        """Is the difference, which may be less than rounding, other than zero?"""
        arithmetic = Exact(Field(self.budget, 1, 1))
        try:
            results = []
            for x in (tokens, tokens[order]):
                whole = {k: np.asarray(v).astype(int) for k, v in self.values(x, learned).items()}
                results.append(evaluate(self.expression, arithmetic, whole))
        except (NotExactError, NoValueError):
            return False
        return any(not arithmetic.is_zero(x) for x in (results[1] - results[0][order]).ravel())

    def values(self, tokens: Matrix, learned: Values) -> Values:
        n, d = tokens.shape
        made = {name: tokens @ learned[f"W_{name.lower()}"] for name in "QKV"}
        made["V"] = made["V"] if self.wide else learned["W_v"]
        return {"X": tokens, **learned, **made, "ones": np.ones(n), "n": n, "d": d}


def _plain_tree(node: Node) -> tuple[Any, tuple[Any, ...]]:
    """The formula for the verifier: names and numbers with (), operations with their parts."""
    if not node.arguments:
        return (node.name or node.number, ())
    parts = tuple(_plain_tree(part) for part in node.arguments)
    return (node.op, (*parts, (node.number, ())) if node.op == "**" else parts)


def _first_false(decision: Decision) -> int | None:
    """The smallest n at which a claim is certainly false."""
    sizes = [
        piece.low
        for claim, pieces in zip(decision.claims, decision.pieces, strict=True)
        for piece in pieces
        if is_true(piece, claim.must) is False
    ]
    return min(sizes, default=None)


def _drawn_layers() -> Iterator[tuple[Matrix, Values]]:
    """The simplest layers there are, then drawn ones."""
    for n in (2, 3):
        yield _layer_values(n, 1, None)
    rng = np.random.default_rng(0)
    for n, d in ((2, 2), (3, 2), (4, 3)) * LAYER_DRAWS:
        yield _layer_values(n, d, rng)


def _layer_values(n: int, d: int, rng: np.random.Generator | None) -> tuple[Matrix, Values]:
    """Tokens 0, 1, 2, ... and unit matrices, or small whole numbers that are drawn."""
    tokens = np.arange(n, dtype=float)[:, None] + np.zeros(d)
    learned: Values = {f"W_{x}": np.eye(d) for x in "qkvo12"}
    learned |= {"P": tokens + 1, "b_1": np.ones((1, d)), "b_2": np.ones((1, d))}
    if rng is not None:
        tokens = rng.integers(-2, 3, (n, d)).astype(float)
        learned = {name: rng.integers(-2, 3, x.shape).astype(float) for name, x in learned.items()}
    for bias in ("b_1", "b_2"):
        learned[bias] = np.tile(learned[bias], (n, 1))
    return tokens, learned | {"M": np.where(np.tri(n) > 0, 0.0, -1e6)}
