"""Judging what knows of positions: permutation and synthesizer layers, sinusoids, rotary pairs.

Permutation: every operation that may be written on tokens commutes with reordering them, since
sizes are letters and a sum over n runs over all tokens alike. So a layer that names neither the
position table nor the mask is equivariant, and for one that does an X and a P are searched.

Synthesizer: logits of token i that are made of x_i alone are the same row whatever the other
tokens are. (u, u) wants (1/2, 1/2) in its first row and (u, v) wants (1, 0), so one of the two is
missed by a quarter at least.

Sinusoids: sin(x) = sin(y) iff x - y is a multiple of 2 pi or x + y is pi and a multiple of it.
Pi is irrational, so an angle w t with a rational w never returns, and one with a rational multiple
of pi always does; both are decided in fractions.

Rotary: cos(t theta) and sin(t theta) are (z +- 1/z)/2 with z = e^(i t theta), so the product of two
rotated vectors is a polynomial in z_s and z_t, and depends on t - s alone iff each of its terms
has opposite powers of the two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from wherefrom.attention.checker.algebra import Field, NotExactError
from wherefrom.attention.checker.instances import Exact, Floats, Numeric, Values, shown
from wherefrom.attention.checker.language import Construction, Node, UndefinedError, evaluate
from wherefrom.attention.checker.polynomials import (
    Polynomials,
    Terms,
    constant,
    plus,
    show,
    symbol,
    times,
    value,
)
from wherefrom.attention.checker.problems import CheckResult, Counterexample
from wherefrom.attention.equation import softmax_over_keys
from wherefrom.attention.positions import Wave

TURNS_FREE = 1e-9  # rounding
DRAWS = 20
POSITIONS = 20_000  # that are looked at where no argument decides
BETAS = (30.0, 300.0, 3000.0)
FIXED = {"P", "M", "mask"}  # names and functions that know of positions


def _operations(node: Node) -> set[str]:
    """Every operation and name in a formula."""
    return {node.name or node.op}.union(*map(_operations, node.arguments))


# ---- permutation: f(PX) = P f(X)


def judge_permutation(construction: Construction, draft: CheckResult) -> CheckResult:
    expression = construction.expressions["f"]
    fixed = sorted(_operations(expression.tree) & FIXED)
    wide = any(g.name == "V" and g.shape.rows == ("n",) for g in construction.problem.givens)
    if not fixed:
        because = (
            "for every n and d: products, sums, softmax of each row and functions of single "
            "entries commute with reordering the tokens, and nothing else is written."
        )
        draft = replace(draft, because=because)
    for n, d, rng in _sizes():
        X, learned = _layer(n, d, rng)
        order = np.roll(np.arange(n), 1)
        f, moved = (evaluate(expression, Numeric(_names(x, learned, wide))) for x in (X, X[order]))
        if np.abs(moved - f[order]).max() <= TURNS_FREE * max(1.0, np.abs(f).max()):
            continue
        if not fixed:
            because = "drawn tokens contradict the argument: a fault of the checker."
            return replace(draft, verdict="inconclusive", because=because)
        what = " and ".join(
            {"P": "the position table P", "M": "the mask M"}.get(x, "the mask") for x in fixed
        )
        numbers: dict[str, Any] = shown(
            {"X": X, "P X": X[order], "P f(X)": f[order], "f(P X)": moved},
            ("X", "P X", "P f(X)", "f(P X)"),
        )
        numbers |= shown(learned, tuple(x for x in learned if x in expression.names))
        sentence = f"with n = {n}, d = {d} and two tokens exchanged, f(P X) is not P f(X)."
        if n > 2:
            sentence = f"with n = {n}, d = {d} and the tokens shifted by one, f(P X) is not P f(X)."
        because = f"{what} stays in place while the tokens are reordered."
        example = Counterexample({"n": n, "d": d}, numbers, sentence)
        return replace(draft, verdict="refuted", because=because, counterexample=example)
    checked = f"{2 + 3 * DRAWS} drawn layers with 2 to 4 tokens"
    if fixed:
        because = (
            "positions are named, but no drawn layer shows that they matter. That is no proof."
        )
        draft = replace(draft, verdict="holds", because=because)
    return replace(draft, checked=checked)


def _sizes() -> Iterator[tuple[int, int, np.random.Generator | None]]:
    """The smallest layer, the same with larger tokens, then drawn ones."""
    rng = np.random.default_rng(0)
    yield 2, 1, None
    yield 3, 1, None
    for n, d in ((2, 2), (3, 2), (4, 3)):
        for _ in range(DRAWS):
            yield n, d, rng


def _layer(n: int, d: int, rng: np.random.Generator | None) -> tuple[Floats, Values]:
    """Tokens, and the matrices of the layer; without a generator the simplest there are."""
    names = ("W_q", "W_k", "W_v", "W_o", "W_1", "W_2")
    if rng is None:
        tokens = np.arange(n, dtype=float)[:, None] + np.zeros(d)
        learned = {name: np.eye(d) for name in names} | {"P": tokens + 1}
    else:
        tokens = rng.integers(-2, 3, (n, d)).astype(float)
        learned = {name: rng.integers(-2, 3, (d, d)).astype(float) for name in names}
        learned["P"] = rng.integers(-2, 3, (n, d)).astype(float)
    learned["M"] = np.where(np.tri(n) > 0, 0.0, -1e30)
    return tokens, learned


def _names(X: Floats, learned: Values, wide: bool) -> Values:
    made = {name: X @ learned[f"W_{name.lower()}"] for name in "QKV"}
    made["V"] = made["V"] if wide else learned["W_v"]
    return {"X": X, **learned, **made, "ones": np.ones(len(X)), "n": len(X), "d": X.shape[1]}


# ---- synthesizer: every word looks at the words that equal it


def judge_synthesizer(construction: Construction, draft: CheckResult) -> CheckResult:
    expression = construction.expressions["S"]
    if _is_local(expression.tree):
        u_u, u_v = np.array([[1.0, 0], [1, 0]]), np.eye(2)
        rng = np.random.default_rng(draft.seed)
        values = _synthesizer(2, 2, 4.0, rng)
        rows = [
            softmax_over_keys(evaluate(expression, Numeric(values | {"X": x})))[0]
            for x in (u_u, u_v)
        ]
        numbers = shown({"u, u": rows[0], "u, v": rows[1]}, ("u, u", "u, v"))
        because = (
            "row i of S is made of token i and of learned numbers alone, so word 1 has the same "
            "weights whatever word 2 is; one of two sentences is missed by a quarter at least, "
            "whatever is learned."
        )
        sentence = (
            "with n = 2, the words (u, u) want the weights (0.5, 0.5) for word 1 and (u, v) want "
            f"(1, 0), and both get ({rows[0][0]:.4g}, {rows[0][1]:.4g}) (A, B and R drawn)."
        )
        numbers["wanted"] = [[0.5, 0.5], [1.0, 0.0]]
        example = Counterexample({"n": 2, "d": 2}, numbers, sentence)
        return replace(draft, verdict="refuted", because=because, counterexample=example)
    learned = expression.names & {"A", "B", "R"}
    misses = [_missed_sentence(construction, beta, draft.tolerance) for beta in BETAS]
    if misses[-1] is not None:
        words, row, wanted, got = misses[-1]
        with_ = " (with A = beta I, B and R zero)" if learned else ""
        sentence = (
            f"at beta = {BETAS[-1]:g}, word {row + 1} of the {len(words)} words {words} has the "
            f"weights {np.round(got, 4).tolist()}, and {np.round(wanted, 4).tolist()} are "
            f"wanted{with_}."
        )
        example = Counterexample({"n": len(words)}, {"words": words}, sentence)
        if learned:
            because = "another choice of A, B and R may do it; this one does not."
            return replace(draft, verdict="inconclusive", because=because, counterexample=example)
        because = "a word does not end up looking at the words that equal it."
        return replace(draft, verdict="refuted", because=because, counterexample=example)
    checked = "every sentence of up to 5 words out of 3, with the softmax itself"
    degree = _degree(expression.tree)
    if degree == 2:
        field = Field()
        eye = np.eye(2, dtype=int)
        S = evaluate(expression, Exact(field, {"X": eye, "beta": field.beta, "n": field.n}))
        if field.trend(S[0, 0]).kind == "up" and S[0, 1].is_zero:
            because = (
                f"S = {S[0, 0]} X X^T: words that are equal have the logit {S[0, 0]} and all "
                "others 0, for every n and every sentence."
            )
            return replace(draft, because=because, checked=checked)
    because = "computed for every sentence of up to 5 words out of 3. That is no proof."
    return replace(draft, verdict="holds", because=because, checked=checked)


def _is_local(node: Node) -> bool:
    """Is row i of the value made of token i and of constants alone?"""
    if "X" not in _operations(node):
        return True
    if node.op == "@":
        left, right = node.arguments
        return _is_local(left) and "X" not in _operations(right)
    rowwise = ("name", "+", "-", "*", "/", "relu", "softmax", "layernorm", "mask")
    return node.op in rowwise and all(map(_is_local, node.arguments))


def _degree(node: Node) -> int | None:
    """How often X is multiplied in a formula of products and sums alone; None for others."""
    if node.op in ("number", "name"):
        return int(node.name == "X") if node.name in ("X", "beta", "n", "") else None
    parts = [_degree(part) for part in node.arguments]
    if None in parts or node.op not in ("+", "-", "*", "/", "@", "transpose", "**"):
        return None
    known = [part for part in parts if part is not None]
    if node.op in ("+", "-"):
        return known[0] if known[0] == known[-1] else None
    return known[0] * int(node.number) if node.op == "**" else sum(known)


def _synthesizer(n: int, d: int, beta: float, rng: np.random.Generator | None) -> Values:
    shapes = {"A": (d, d), "B": (d, n), "R": (n, n)}
    values: Values = {
        k: np.zeros(s) if rng is None else rng.normal(size=s) for k, s in shapes.items()
    }
    if rng is None:
        values["A"] = beta * np.eye(d)
    return values | {"beta": beta, "n": n, "ones": np.ones(n)}


def _missed_sentence(
    construction: Construction, beta: float, tolerance: float
) -> tuple[list[int], int, Floats, Floats] | None:
    """The first sentence in which a word misses its equals: words, row, wanted and got."""
    for n in range(1, 6):
        for words in itertools.product(range(3), repeat=n):
            values = _synthesizer(n, 3, beta, None) | {"X": np.eye(3)[list(words)]}
            S = evaluate(construction.expressions["S"], Numeric(values))
            same = np.equal.outer(words, words).astype(float)
            wanted = same / same.sum(axis=1, keepdims=True)
            got = softmax_over_keys(S)
            off = np.abs(got - wanted).sum(axis=1) / 2
            if off.max() > tolerance:
                row = int(off.argmax())
                return list(words), row, wanted[row], got[row]
    return None


# ---- sinusoids: do two positions share a vector?


class Angles(Polynomials):
    """Polynomials in t and pi, and sin and cos of angles that are linear in t."""

    def __init__(self, values: dict[str, Terms]) -> None:
        super().__init__(values)
        self.waves: dict[str, Wave] = {}

    def apply(self, op: str, arguments: Sequence[Any]) -> Any:
        x = arguments[0]
        if op == "pow":
            power = arguments[1].get((), Fraction(0))
            if set(arguments[1]) - {()} or power.denominator != 1 or not 0 <= power <= 8:
                raise NotExactError
            return self.power(x, int(power))
        if op not in ("sin", "cos"):
            return super().apply(op, arguments)
        keys = ((("t", 1),), (("pi", 1), ("t", 1)), (), (("pi", 1),))
        if set(x) - set(keys):
            raise NotExactError
        wave = Wave(op, *(x.get(key, Fraction(0)) for key in keys))
        self.waves[str(wave)] = wave
        return symbol(str(wave))


def judge_sinusoids(construction: Construction, draft: CheckResult) -> CheckResult:
    expression = construction.expressions["p"]
    algebra = Angles({"i": constant(0)})  # the first pair, which is there for every d
    of_first = "i" in expression.names
    try:
        found = evaluate(expression, algebra)
        entries = found if isinstance(found, list) else [found]
        kinds = [_entry(entry, algebra) for entry in entries]
    except NotExactError:
        because = "only angles such as t/3, 2*pi*t/7 or t/10000**(2*i/d) can be judged exactly."
        return replace(draft, verdict="inconclusive", because=because)
    proofs = [x for x in kinds if x == "linear" or (isinstance(x, Wave) and x.injective)]
    where = "the pair i = 0, which is there for every d, " if of_first else "an entry "
    if proofs:
        why = (
            "grows with t"
            if proofs[0] == "linear"
            else "has an angle that is a rational multiple of t"
        )
        because = f"for all t: {where}{why}"
        because += (
            ", and never returns."
            if proofs[0] == "linear"
            else ", and pi is irrational: no two whole t differ by full turns."
        )
        return replace(draft, because=because)
    pair = _first_meeting(entries, algebra)
    if pair is None:
        because = f"no two of the first {POSITIONS:,} positions share a vector. That is no proof."
        return replace(draft, verdict="holds", because=because)
    s, t = pair
    vector = [round(_at(entry, t, algebra), 6) for entry in entries]
    d = " (d = 2)" if of_first else ""
    sentence = f"positions {s} and {t} have the same vector {vector}{d}."
    because = f"the table comes back to where it was: p({s}) = p({t})."
    example = Counterexample({"s": s, "t": t}, {"p": vector}, sentence)
    return replace(draft, verdict="refuted", because=because, counterexample=example)


def _entry(entry: Terms, algebra: Angles) -> Wave | str:
    """The only wave with t in an entry, "linear", "constant", or "other"."""
    moving = {name for key in entry for name, _ in key}
    moving = {x for x in moving if x == "t" or (x in algebra.waves and algebra.waves[x].moves)}
    if not moving:
        return "constant"
    powers = {power for key in entry for name, power in key if name in moving}
    if len(moving) > 1 or powers != {1}:
        return "other"
    (name,) = moving
    return "linear" if name == "t" else algebra.waves[name]


def _at(entry: Terms, t: int, algebra: Angles) -> float:
    numbers: dict[str, complex] = {name: wave.at(t) for name, wave in algebra.waves.items()}
    return value(entry, numbers | {"t": t, "pi": math.pi}).real


def _first_meeting(entries: Sequence[Terms], algebra: Angles) -> tuple[int, int] | None:
    """The first t that shares its vector with an s before it, which each wave confirms exactly."""
    names = [{name for key in entry for name, _ in key} for entry in entries]
    moving = [[algebra.waves[n] for n in each if n in algebra.waves] for each in names]
    if any("t" in each for each in names):
        return None
    seen: dict[tuple[float, ...], list[int]] = {}
    for t in range(POSITIONS):
        vector = tuple(round(_at(entry, t, algebra), 9) + 0.0 for entry in entries)
        for s in seen.get(vector, ()):
            if all(wave.meet(s, t) for waves in moving for wave in waves):
                return s, t
        seen.setdefault(vector, []).append(t)
    return None


# ---- rotary: the product of two rotated vectors depends on the distance alone


class Turns(Polynomials):
    """Polynomials in x1, x2 and z = e^(i t theta)."""

    def __init__(self) -> None:
        super().__init__({"x": plus(symbol("x1"), times(symbol("i"), symbol("x2")))})

    def apply(self, op: str, arguments: Sequence[Any]) -> Any:
        x = arguments[0]
        if op not in ("sin", "cos", "exp"):
            return super().apply(op, arguments)
        angle = times(x, {(("i", 1),): Fraction(-1)}) if op == "exp" else x
        speed = angle.get((("t", 1), ("theta", 1)), Fraction(0))
        if speed.denominator != 1 or (angle and set(angle) != {(("t", 1), ("theta", 1))}):
            raise UndefinedError("an angle is a whole multiple of t*theta here.")
        forth, back = symbol("z", int(speed)), symbol("z", -int(speed))
        if not speed:
            forth = back = constant(1)
        if op == "exp":
            return forth
        half: Terms = {(): Fraction(1, 2)} if op == "cos" else {(("i", 1),): Fraction(-1, 2)}
        return times(half, plus(forth, back, 1 if op == "cos" else -1))


def judge_rotary(construction: Construction, draft: CheckResult) -> CheckResult:
    try:
        R = _rotation(construction)
    except NotExactError:
        because = "only sums of products of x with cos and sin of t*theta can be judged."
        return replace(draft, verdict="inconclusive", because=because)
    if R is None:
        because = "the result must be linear in x1 and x2, as a rotation is."
        once, twice = (_turned(construction, x) for x in (1.0, 2.0))
        sentence = f"at t = theta = 1, (1, 1) becomes {once} and (2, 2) becomes {twice}."
        example = Counterexample({"t": 1}, {"once": once, "twice": twice}, sentence)
        return replace(draft, verdict="refuted", because=because, counterexample=example)
    product = [
        {(dict(p).get("z", 0), dict(q).get("z", 0)) for p, q in _pairs(R, b, c)}
        for b in (0, 1)
        for c in (0, 1)
    ]
    powers = set().union(*product)
    plain = all(name in ("z", "i") for row in R for x in row for key in x for name, _ in key)
    forward = plus(R[0][0], times(symbol("i"), R[1][0]))  # y1 + i y2 for x = (1, 0)
    if plain and all(p + q == 0 for p, q in powers):
        if any(p for p, _ in powers):
            turn = {"z": "i", "z**-1": "-i"}.get(show(forward))
            derived = (f"y1 + i*y2 = e^({turn}*t*theta) (x1 + i*x2)",) if turn else ()
            because = "for all s, t, theta, q and k: in the product every power of e^(i s theta) "
            because += "meets the opposite one of e^(i t theta), so it depends on s - t alone."
            return replace(draft, because=because, derived=derived)
        because = "the product does not depend on the positions at all."
        score = _score(R, (1, 0), (1, 0), 0, 1)
        sentence = f"with q = k = (1, 0) it is {score:.4g} at s = t = 0 and at s = 0, t = 1."
        example = Counterexample({"s": 0, "t": 1}, {"product": score}, sentence)
        return replace(draft, verdict="refuted", because=because, counterexample=example)
    unit = ((1, 0), (0, 1))
    for s, t in sorted(itertools.product(range(6), repeat=2), key=lambda p: (max(p), p)):
        for q, k in itertools.product(unit, repeat=2):
            here, there = _score(R, q, k, s, t), _score(R, q, k, s + 1, t + 1)
            if abs(here - there) > 1e-9:
                sentence = (
                    f"with theta = 1, q = {q} and k = {k} the product is {here:.4g} at s = {s}, "
                    f"t = {t} and {there:.4g} at s = {s + 1}, t = {t + 1}, where s - t is the same."
                )
                numbers = {
                    "q": list(q),
                    "k": list(k),
                    "here": round(here, 6),
                    "there": round(there, 6),
                }
                because = "the product of two rotated vectors depends on more than s - t"
                sign = _sign_of(R)
                because += f"; {sign}." if sign else "."
                example = Counterexample({"s": s, "t": t}, numbers, sentence)
                return replace(draft, verdict="refuted", because=because, counterexample=example)
    because = "no two positions show that the product depends on more than s - t; that is no proof."
    return replace(draft, verdict="inconclusive", because=because)


def _rotation(construction: Construction) -> list[list[Terms]] | None:
    """The matrix R with y = R x, or None if y is not linear in x."""
    algebra = Turns()
    found = {name: evaluate(e, algebra) for name, e in construction.expressions.items()}
    if "R" in found:
        rows = found["R"]
        square = isinstance(rows, list) and len(rows) == 2
        if not square or not all(isinstance(row, list) and len(row) == 2 for row in rows):
            raise NotExactError
        return list(rows)
    if "y" in found:
        y = found["y"]
        mirrored = {
            tuple((name, -power if name == "z" else power) for name, power in key): -c
            if ("i", 1) in key
            else c
            for key, c in y.items()
        }
        half, minus_i = constant(Fraction(1, 2)), times(symbol("i"), constant(Fraction(-1, 2)))
        found = {"y1": times(half, plus(y, mirrored)), "y2": times(minus_i, plus(y, mirrored, -1))}
    R: list[list[Terms]] = [[{}, {}], [{}, {}]]
    for row, name in enumerate(("y1", "y2")):
        for key, c in found[name].items():
            powers = dict(key)
            inputs = [powers.pop(x, 0) for x in ("x1", "x2")]
            if sorted(inputs) != [0, 1]:
                return None
            R[row][inputs.index(1)][tuple(sorted(powers.items()))] = c
    return R


def _turned(construction: Construction, x: float) -> list[float]:
    """What is written for (x, x) at t = theta = 1."""
    numbers: dict[str, complex] = {
        "x1": x,
        "x2": x,
        "t": 1.0,
        "theta": 1.0,
        "z": complex(math.cos(1), math.sin(1)),
    }
    found: list[complex] = [
        value(evaluate(e, Turns()), numbers) for e in construction.expressions.values()
    ]
    pair = [found[0].real, found[0].imag] if len(found) == 1 else [y.real for y in found]
    return [round(float(part), 4) for part in pair]


def _pairs(R: list[list[Terms]], b: int, c: int) -> Iterator[tuple[Any, Any]]:
    """Pairs of monomials in z_s and z_t that remain in entry b, c of R(s)^T R(t)."""
    total: dict[tuple[Any, Any], Terms] = {}
    for row in R:
        for key, x in row[b].items():
            for key2, y in row[c].items():
                p, q = (tuple(k for k in each if k[0] != "i") for each in (key, key2))
                turns = sum(k == ("i", 1) for k in (*key, *key2))
                part = (
                    times(symbol("i"), symbol("i"))
                    if turns == 2
                    else symbol("i", 1)
                    if turns
                    else constant(1)
                )
                total[p, q] = plus(total.get((p, q), {}), {k: v * x * y for k, v in part.items()})
    return (pair for pair, left in total.items() if left)


def _score(R: list[list[Terms]], q: Sequence[int], k: Sequence[int], s: int, t: int) -> float:
    """The product of q at position s and k at position t, for theta = 1."""

    def turned(x: Sequence[int], at: int) -> list[complex]:
        numbers: dict[str, complex] = {
            "z": complex(math.cos(at), math.sin(at)),
            "t": at,
            "theta": 1,
        }
        return [
            sum(value(entry, numbers) * each for entry, each in zip(row, x, strict=True))
            for row in R
        ]

    return sum(a.real * b.real for a, b in zip(turned(q, s), turned(k, t), strict=True))


def _sign_of(R: list[list[Terms]]) -> str:
    """Is the matrix a rotation but for one sign?"""
    turns = Turns()
    angle = symbol("t")
    angle = times(angle, symbol("theta"))
    cos, sin = (turns.apply(f, [angle]) for f in ("cos", "sin"))
    minus = plus({}, sin, -1)
    right = [[cos, minus], [sin, cos]]
    wrong = [(a, b) for a in (0, 1) for b in (0, 1) if R[a][b] != right[a][b]]
    if len(wrong) == 1 and plus(R[wrong[0][0]][wrong[0][1]], right[wrong[0][0]][wrong[0][1]]) == {}:
        a, b = wrong[0]
        return f"the sign of x{b + 1} in y{a + 1} is the other one in a rotation"
    return ""
