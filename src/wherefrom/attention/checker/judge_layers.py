"""Judging layers: permutation, synthesizer, positions as sinusoids or rotations, and costs."""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from wherefrom.attention.checker import CheckResult
from wherefrom.attention.checker.algebra import (
    UNITY,
    Field,
    NotExactError,
    Poly,
    Polynomials,
    Scalar,
    constant,
    symbol,
)
from wherefrom.attention.checker.instances import (
    Exact,
    Floats,
    Matrix,
    Numeric,
    Values,
    polynomial,
    polynomials,
    shown,
)
from wherefrom.attention.checker.language import (
    Construction,
    Expression,
    Node,
    UndefinedError,
    evaluate,
)
from wherefrom.attention.checker.reading import say
from wherefrom.attention.equation import softmax_over_keys
from wherefrom.errors import UserError

ROUNDING = 1e-9
J, HALF = symbol("i"), Fraction(1, 2)  # J is the imaginary unit
DRAWS = 20
POSITIONS = 20_000  # that are looked at where no argument decides
BETA, LARGEST_BETA = 3000.0, 1e30
FIXED = {"M": "the mask M", "P": "the position table P", "mask": "the mask"}  # know of positions


def _operations(node: Node) -> set[str]:
    """Every operation and name in a formula."""
    return {node.name or node.op}.union(*map(_operations, node.arguments))


def _divisors(node: Node) -> Iterator[Node]:
    """Whatever a formula divides by, inverts, or takes a root or a logarithm of."""
    if node.op == "/":
        yield node.arguments[1]
    elif node.op in ("sqrt", "log", "inv"):
        yield from node.arguments
    for part in node.arguments:
        yield from _divisors(part)


def _always_has_a_value(node: Node) -> bool:
    """Is each divisor a sum or product of sizes and positive numbers, and so positive?"""
    positive = {"number", "n", "d", "+", "*", "/", "**", "sqrt"}
    return all(_operations(divisor) <= positive for divisor in _divisors(node))


def judge_permutation(construction: Construction, draft: CheckResult) -> CheckResult:
    """f(PX) = P f(X)? All that may be written on tokens commutes with reordering them, since sizes
    are letters, but for the position table and the mask; for those an X and a P are searched."""
    expression = construction.expressions["f"]
    fixed = sorted(_operations(expression.tree) & set(FIXED))
    wide = any(g.name == "V" and g.shape.rows == ("n",) for g in construction.problem.givens)
    for X, learned in _layers():
        n, d = X.shape
        order = np.roll(np.arange(n), 1)
        f, moved = (evaluate(expression, Numeric(_names(x, learned, wide))) for x in (X, X[order]))
        if np.abs(moved - f[order]).max() <= ROUNDING * max(1.0, np.abs(f).max()):
            continue
        if not fixed:
            return draft.judged("inconclusive", say("fault", what="drawn tokens"))
        values = {"X": X, "P X": X[order], "P f(X)": f[order], "f(P X)": moved}
        named = {name: learned[name] for name in learned if name in expression.names}
        what = "two tokens exchanged" if n == 2 else "the tokens shifted by one"
        sentence = say("reordered", n=n, d=d, what=what)
        because = say("places_matter", what=" and ".join(FIXED[x] for x in fixed))
        numbers = shown(values | named, (*values, *named))
        return draft.refuted(because, sentence, {"n": n, "d": d}, numbers)
    checked = f"{2 + 3 * DRAWS} random layers with 2 to 4 tokens"
    if fixed:
        return draft.judged("holds", say("places_idle"), checked=checked)
    if not _always_has_a_value(expression.tree):
        return draft.judged("holds", say("commutes_if_defined"), checked=checked)
    return draft.judged("proved", say("commutes"), checked=checked)


def _layers() -> Iterator[tuple[Floats, Values]]:
    """Tokens and the matrices of a layer: the simplest there are, then drawn ones."""
    rng = np.random.default_rng(0)
    sizes = [(2, 1, False), (3, 1, False)]
    for n, d, random in [*sizes, *((n, d, True) for n, d in ((2, 2), (3, 2), (4, 3)) * DRAWS)]:
        tokens = np.arange(n, dtype=float)[:, None] + np.zeros(d)
        learned = {f"W_{x}": np.eye(d) for x in "qkvo12"} | {"P": tokens + 1}
        learned |= {"b_1": np.ones((1, d)), "b_2": np.ones((1, d))}
        if random:
            tokens = rng.integers(-2, 3, (n, d)).astype(float)
            learned = {k: rng.integers(-2, 3, x.shape).astype(float) for k, x in learned.items()}
        learned |= {b: np.tile(learned[b], (n, 1)) for b in ("b_1", "b_2")}
        yield tokens, learned | {"M": np.where(np.tri(n) > 0, 0.0, -1e6)}


def _names(X: Floats, learned: Values, wide: bool) -> Values:
    made = {name: X @ learned[f"W_{name.lower()}"] for name in "QKV"}
    made["V"] = made["V"] if wide else learned["W_v"]
    return {"X": X, **learned, **made, "ones": np.ones(len(X)), "n": len(X), "d": X.shape[1]}


def judge_synthesizer(construction: Construction, draft: CheckResult) -> CheckResult:
    """Does every word look at the words that equal it? Logits of token i made of x_i alone are the
    same row in (u, u), which wants (1/2, 1/2), and in (u, v), which wants (1, 0)."""
    expression = construction.expressions["S"]
    if _is_local(expression.tree):
        rng = np.random.default_rng(draft.seed)
        values: Values = {k: rng.normal(size=(2, 2)) for k in "ABR"}
        values |= {b: np.tile(rng.normal(size=2), (2, 1)) for b in ("b_1", "b_2")}
        values |= {"beta": 4.0, "n": 2, "ones": np.ones(2)}
        rows = [
            softmax_over_keys(evaluate(expression, Numeric(values | {"X": X})))[0]
            for X in (np.array([[1.0, 0], [1, 0]]), np.eye(2))
        ]
        numbers = shown({"u, u": rows[0], "u, v": rows[1]}, ("u, u", "u, v"))
        numbers["wanted"] = [[0.5, 0.5], [1.0, 0.0]]
        sentence = say("same_row_shown", first=rows[0][0], second=rows[0][1])
        return draft.refuted(say("same_row"), sentence, {"n": 2, "d": 2}, numbers)
    beta, logit = BETA, _logit_of_equal_words(expression)
    while logit is not None and logit.at(beta, 2) < BETA and beta < LARGEST_BETA:
        beta *= 1000  # slow growth is confirmed where it has come far enough
    learned = expression.names & {"A", "B", "R", "b_1", "b_2"}
    for words in (w for n in range(1, 6) for w in itertools.product(range(3), repeat=n)):
        n = len(words)
        same = np.equal.outer(words, words).astype(float)
        wanted = same / same.sum(axis=1, keepdims=True)
        got = _sentence_weights(expression, words, beta)
        off = np.abs(got - wanted).sum(axis=1) / 2
        if off.max() > draft.tolerance and logit is not None:
            return draft.judged("inconclusive", say("fault", what="short sentences"))
        if off.max() > draft.tolerance:
            later = _sentence_weights(expression, words, 1000 * BETA)
            if np.abs(later - wanted).sum(axis=1).max() / 2 < 0.999 * off.max():
                return draft.judged("inconclusive", say("slow_and_unsettled"))
            row = int(off.argmax())
            sentence = say(
                "word_astray_shown",
                beta=BETA,
                word=row + 1,
                n=n,
                words=list(words),
                got=np.round(got[row], 4).tolist(),
                wanted=np.round(wanted[row], 4).tolist(),
                learned=" (with A = beta I, B and R zero)" if learned else "",
            )
            result = draft.refuted(say("word_astray"), sentence, {"n": n}, {"words": list(words)})
            return result.judged("inconclusive", say("other_matrices")) if learned else result
    checked = say("every_sentence")
    if logit is None:
        return draft.judged("holds", say("sentences_in_numbers"), checked=checked)
    written = f"({logit})" if " " in str(logit) else str(logit)
    return draft.judged("proved", say("equal_words", logit=written), checked=checked)


def _logit_of_equal_words(expression: Expression) -> Scalar | None:
    """The logit of two equal words if it grows with beta, and that of all others is 0, by algebra;
    None if that cannot be shown for every n."""
    if _degree(expression.tree) != 2:
        return None
    field = Field()
    names = {"X": np.eye(2, dtype=int), "beta": field.beta, "n": field.n}
    S = evaluate(expression, Exact(field, names))
    shown_for_all = field.trend(S[0, 0]).kind == "up" and S[0, 1].is_zero and not field.doubts
    return S[0, 0] if shown_for_all else None


def _sentence_weights(expression: Expression, words: Sequence[int], beta: float) -> Floats:
    """The weights of a sentence, with A = beta I and everything else that is learned zero."""
    n = len(words)
    values = {"A": beta * np.eye(3), "B": np.zeros((3, n)), "R": np.zeros((n, n))}
    values |= {"b_1": np.zeros((n, 3)), "b_2": np.zeros((n, n)), "X": np.eye(3)[list(words)]}
    algebra = Numeric(values | {"beta": beta, "n": n, "ones": np.ones(n)})
    return np.asarray(softmax_over_keys(evaluate(expression, algebra)))


def _is_local(node: Node) -> bool:
    """Is row i of the value made of token i and of constants alone?"""
    if "X" not in _operations(node):
        return True
    if node.op == "@":
        left, right = node.arguments
        return _is_local(left) and "X" not in _operations(right)
    rowwise = ("name", "+", "-", "*", "/", "relu", "softmax", "layernorm", "mask")
    return node.op in rowwise and all(map(_is_local, node.arguments))


def _degree(node: Node) -> float:
    """How often X is multiplied in a formula of products and sums alone; nan for others."""
    if node.op in ("number", "name"):
        return float(node.name == "X") if node.name in ("X", "beta", "n", "") else math.nan
    parts = [_degree(part) for part in node.arguments]
    if node.op in ("+", "-"):
        return parts[0] if parts[0] == parts[-1] else math.nan
    if node.op == "**":
        return parts[0] * int(node.number)
    return sum(parts) if node.op in ("*", "/", "@", "transpose") else math.nan


@dataclass(frozen=True)
class Wave:
    """sin or cos of (w + v pi) t + f + g pi, for whole t.
    sin x = sin y iff x - y is a multiple of 2 pi, or x + y is pi and such a multiple; for cos,
    x - y or x + y is one. Pi is irrational, so the rational and the pi part must agree each."""

    kind: str
    w: Fraction
    v: Fraction
    f: Fraction
    g: Fraction

    @property
    def moves(self) -> bool:
        return bool(self.w or self.v)

    def at(self, t: int) -> float:
        angle = float(self.w) * t + float(self.f) + math.pi * float((self.v * t + self.g) % 2)
        return math.sin(angle) if self.kind == "sin" else math.cos(angle)

    def meet(self, s: int, t: int) -> bool:
        """Are the values at two positions the same, exactly?"""
        if self.w * (s - t) == 0 and (self.v * (s - t)) % 2 == 0:
            return True
        rational = self.w * (s + t) + 2 * self.f
        turns = self.v * (s + t) + 2 * self.g
        return rational == 0 and turns % 2 == (1 if self.kind == "sin" else 0)

    @property
    def injective(self) -> bool:
        """Do no two of the positions 0, 1, 2, ... meet?"""
        if self.w == 0:
            return False
        total = -2 * self.f / self.w  # the only s + t at which two can meet
        pairs = range(int(total + 1) // 2) if total.denominator == 1 else ()
        return not any(self.meet(s, int(total) - s) for s in pairs)


class Angles(Polynomials):
    """Polynomials in t and pi, with sin and cos of angles that are linear in t as symbols."""

    def __init__(self) -> None:
        self.waves: dict[str, Wave] = {}

    def function(self, name: str, x: Poly, *more: Poly) -> Poly:
        if name == "pow":
            power = more[0].get((), Fraction(0))
            if more[0].names or power.denominator != 1 or not 0 <= power <= 8:
                raise NotExactError
            return x ** int(power)
        terms = ((("t", 1),), (("pi", 1), ("t", 1)), (), (("pi", 1),))
        if name not in ("sin", "cos") or set(x) - set(terms):
            raise NotExactError
        wave = Wave(name, *(x.get(term, Fraction(0)) for term in terms))
        self.waves[str(wave)] = wave
        return symbol(str(wave))

    def moving(self, entry: Poly) -> set[str]:
        """t and the waves that move with it, as far as they occur in an entry."""
        moving = {"t", *(name for name, wave in self.waves.items() if wave.moves)}
        return entry.names & moving

    def never_zero(self, factor: Poly) -> bool:
        """Is a factor without t certainly not zero, whatever the width d is?"""
        by_width = factor.by_power("d")
        if len(by_width) != 1:
            return False
        (number,) = by_width.values()
        if number.names <= {"pi"}:  # which is transcendental
            return True
        waves = {name: wave.at(0) for name, wave in self.waves.items()}
        largest = Poly({key: abs(c) for key, c in number.items()})
        bound = largest.at({"pi": math.pi, **dict.fromkeys(waves, 1.0)})  # a wave is 1 at most
        return bool(abs(number.at({"pi": math.pi, **waves})) > ROUNDING * bound)


def judge_sinusoids(construction: Construction, draft: CheckResult) -> CheckResult:
    """Do two positions share a vector? Pi is irrational, so an angle w t with a rational w never
    returns, and one with a rational multiple of pi always does; both are decided in fractions."""
    expression, angles = construction.expressions["p"], Angles()
    if _divides_by(construction, {"t"}):
        return draft.judged("inconclusive", say("angles_only"))
    try:  # the first pair, i = 0, is there for every d
        entries = polynomials(expression, angles, {"i": 0}).ravel().tolist()
    except NotExactError:
        return draft.judged("inconclusive", say("angles_only"))
    factors = [factor for entry in entries for key in entry for factor in key]
    if any(power < 0 for name, power in factors if name not in ("pi", "d")):
        return draft.judged("inconclusive", say("angles_only"))  # this may divide by zero
    of_first = "i" in expression.names
    where = "the pair i = 0, which is there for every d," if of_first else "an entry"
    moving = [angles.moving(entry) for entry in entries]
    for entry, names in zip(entries, moving, strict=True):
        if len(names) != 1:
            continue
        (name,) = names
        by_power = entry.by_power(name)
        if not (set(by_power) <= {0, 1} and angles.never_zero(by_power[1])):
            continue
        if name == "t":
            return draft.judged("proved", say("entry_grows", where=where))
        if angles.waves[name].injective:
            return draft.judged("proved", say("never_a_full_turn", where=where))
    if any(entry.names - {*angles.waves, "t", "pi"} for entry in entries):
        return draft.judged("inconclusive", say("angles_only"))  # the width d, which has no number
    positions = range(POSITIONS)
    numbers = {x: np.array([wave.at(t) for t in positions]) for x, wave in angles.waves.items()}
    numbers |= {"t": np.arange(POSITIONS, dtype=float), "pi": np.full(POSITIONS, math.pi)}
    table = np.stack([np.zeros(POSITIONS) + entry.at(numbers) for entry in entries], axis=1)
    waves = [angles.waves[name] for names in moving for name in names if name != "t"]
    exact, near = not any("t" in names for names in moving), ""
    seen: dict[tuple[float, ...], list[int]] = {}
    for t, vector in enumerate(map(tuple, (table.round(9) + 0.0).tolist())):
        before = seen.setdefault(vector, [])
        for s in before:
            if exact and all(wave.meet(s, t) for wave in waves):
                values = [round(x, 6) for x in vector]
                width = " (d = 2)" if of_first else ""
                sentence = say("same_vector", s=s, t=t, values=values, d=width)
                because = say("comes_back", s=s, t=t)
                return draft.refuted(because, sentence, {"s": s, "t": t}, {"p": values})
            near = near or say("nearly_equal", s=s, t=t)
        if len(before) < 9:
            before.append(t)
    if near:
        return draft.judged("inconclusive", near)
    return draft.judged("holds", say("no_two_positions", count=POSITIONS))


class Turns(Polynomials):
    """Polynomials in x1, x2 and z = e^(i t theta), for the position t of that name."""

    def __init__(self, t: str) -> None:
        self.t = t

    def function(self, name: str, x: Poly, *more: Poly) -> Poly:
        if name not in ("sin", "cos", "exp"):
            raise NotExactError
        angle = x * -J if name == "exp" else x
        turn = tuple(sorted(((self.t, 1), ("theta", 1))))
        speed = angle.get(turn, Fraction(0))
        if speed.denominator != 1 or set(angle) - {turn}:
            raise UndefinedError("write every angle as a whole multiple of t*theta.")
        forth, back = (
            symbol(f"z_{self.t}", sign * int(speed)) if speed else UNITY for sign in (1, -1)
        )
        if name == "exp":
            return forth
        return HALF * (forth + back) if name == "cos" else HALF * -J * (forth - back)


def judge_rotary(construction: Construction, draft: CheckResult) -> CheckResult:
    """Does the product of two rotated vectors depend on the distance alone? It is a polynomial in
    z_s and z_t, z = e^(i t theta), and does iff each term has opposite powers of the two."""
    if _divides_by(construction, {"t", "theta", "x", "x1", "x2"}):
        return draft.judged("inconclusive", say("rotations_only"))
    try:
        y_s, y_t = (_rotated(construction, t) for t in "st")
        at_s, at_t = _matrix(y_s), _matrix(y_t)
        if at_s is None or at_t is None:
            at_one = {"t": 1, "theta": 1, "z_t": cmath.exp(1j)}
            once, twice = (
                [round(complex(y.at(at_one | {"x1": x, "x2": x})).real, 4) for y in y_t]
                for x in (1.0, 2.0)
            )
            images = {"once": once, "twice": twice}
            sentence = say("not_linear_shown", **images)
            return draft.refuted(say("not_linear"), sentence, {"t": 1}, images)
        products = at_s.T @ at_t
    except NotExactError:
        return draft.judged("inconclusive", say("rotations_only"))
    keys = [dict(key) for product in products.ravel() for key in product]
    plain = all(set(key) <= {"z_s", "z_t", "i"} for key in keys)
    if plain and all(key.get("z_s", 0) + key.get("z_t", 0) == 0 for key in keys):
        if any("z_s" in key for key in keys):
            forward = str(at_t[0, 0] + J * at_t[1, 0])  # of x = (1, 0)
            turn = {"z_t": "i", "z_t**(-1)": "-i"}.get(forward)
            derived = (f"y1 + i*y2 = e^({turn}*t*theta) (x1 + i*x2)",) if turn else ()
            return draft.judged("proved", say("distance_alone"), derived=derived)
        score = _score(products[0, 0], 0, 1)
        sentence = say("no_positions_shown", score=score)
        return draft.refuted(say("no_positions"), sentence, {"s": 0, "t": 1}, {"product": score})
    for s, t in sorted(itertools.product(range(6), repeat=2), key=lambda p: (max(p), p)):
        for (b, c), product in np.ndenumerate(products):
            here, there = _score(product, s, t), _score(product, s + 1, t + 1)
            if abs(here - there) > ROUNDING:
                example = {"q": (1 - b, b), "k": (1 - c, c), "here": here, "there": there}
                places = {"s": s, "t": t, "s1": s + 1, "t1": t + 1}
                sentence = say("more_than_distance_shown", **example, **places)
                because = say("more_than_distance", sign=_wrong_sign(at_t))
                numbers = example | {"here": round(here, 6), "there": round(there, 6)}
                return draft.refuted(because, sentence, {"s": s, "t": t}, numbers)
    return draft.judged("inconclusive", say("distance_not_refuted"))


def _divides_by(construction: Construction, names: set[str]) -> bool:
    """Does a formula divide by something with one of these names, which may be zero?"""
    trees = [expression.tree for expression in construction.expressions.values()]
    return any(_operations(divisor) & names for tree in trees for divisor in _divisors(tree))


def _rotated(construction: Construction, t: str) -> list[Poly]:
    """y1 and y2 at the position of that name."""
    x = np.array([symbol("x1"), symbol("x2")])
    names = {"x": x[0] + J * x[1], "t": symbol(t)}
    written = {
        name: polynomials(expression, Turns(t), names)
        for name, expression in construction.expressions.items()
    }
    if "R" in written and written["R"].shape == (2, 2):
        pair = (written["R"] @ x).tolist()
    elif "y" in written and written["y"].size == 1:  # y1 + i y2, a complex number
        y = written["y"].item()
        conjugate = Poly(
            {
                tuple((name, -p if name.startswith("z") else p) for name, p in key): (
                    -c if ("i", 1) in key else c
                )
                for key, c in y.items()
            }
        )
        pair = [HALF * (y + conjugate), HALF * -J * (y - conjugate)]
    else:
        parts = [written[name].ravel() for name in ("y", "y1", "y2") if name in written]
        pair = np.concatenate([*parts, []]).tolist()
    powers = [power for y in pair for key in y for power in key]
    if len(pair) != 2 or any(p < 0 for name, p in powers if name in (t, "theta")):
        raise NotExactError
    return pair


def _matrix(y: list[Poly]) -> Matrix | None:
    """The matrix R with y = R x, or None if y is not linear in x."""
    R = np.array([[Poly(), Poly()], [Poly(), Poly()]])
    for row, entry in zip(R, y, strict=True):
        for key, c in entry.items():
            powers = dict(key)
            inputs = [powers.pop(x, 0) for x in ("x1", "x2")]
            if sorted(inputs) != [0, 1]:
                return None
            row[inputs.index(1)][tuple(sorted(powers.items()))] = c
    return R


def _score(product: Poly, s: int, t: int) -> float:
    """The product of a query at position s and a key at position t, for theta = 1."""
    numbers = {"z_s": cmath.exp(1j * s), "z_t": cmath.exp(1j * t), "s": s, "t": t, "theta": 1}
    return complex(product.at(numbers)).real


def _wrong_sign(R: Matrix) -> str:
    """Where the sign is the other one, if the matrix is a rotation but for one sign."""
    angle = symbol("t") * symbol("theta")
    cos, sin = (Turns("t").function(name, angle) for name in ("cos", "sin"))
    right = np.array([[cos, -sin], [sin, cos]])
    wrong = np.argwhere(right != R).tolist()
    if len(wrong) == 1:
        ((a, b),) = wrong
        if not R[a, b] + right[a, b]:
            return f"; the sign of x{b + 1} in y{a + 1} is the other one in a rotation"
    return ""


def model_cost(model: str, L: Any, l: Any, m: Any, d: Any) -> Any:  # noqa: E741
    """The multiplications of all layers for one sequence, exactly, for numbers or polynomials.
    L layers, l tokens, m latents, width d; the perceiver has one block down, L - 2 inside and one
    up. Masked products are counted, as the models compute them."""

    def block(q: Any, k: Any) -> Any:
        """Projections, output and feed-forward of 4 d; keys and values; scores and context."""
        return 10 * q * d * d + 2 * k * d * d + 2 * q * k * d

    if model == "vanilla":
        return L * block(l, l)
    return block(m, l) + L * block(m, m) - 2 * block(m, m) + block(l, m)


SIZES = ("L", "l", "m", "d")
Powers = tuple[int, ...]  # of L, l, m and d


def judge_cost(construction: Construction, draft: CheckResult) -> CheckResult:
    """Is each written cost what our model costs, up to constants, on L >= 3, l >= m >= 1, d >= 1?
    Compared in powers of L - 2, which is 1 at least, l, m and d."""
    L, l, m, d = map(symbol, SIZES)  # noqa: E741
    reasons = []
    grown = L + constant(2)
    for name, expression in construction.expressions.items():
        try:
            written = polynomial(expression, {})
            by_L = written.by_power("L")
            if min(by_L, default=0) < 0:
                raise UserError("a cost is a sum of products of L, l, m and d.")
            says = sum((rest * grown ** int(power) for power, rest in by_L.items()), Poly())
        except NotExactError:
            return draft.judged("inconclusive", say("not_a_cost", name=name))
        line = f"{name} multiplies exactly {_text(model_cost(name, L, l, m, d))} times"
        draft = replace(draft, derived=(*draft.derived, line))
        without_d = "d" not in written.names
        does = model_cost(name, grown, l, m, constant(1) if without_d else d)
        if not says or min(says.values()) < 0:
            tried = itertools.product((1, 2, 10, 1000), repeat=3)  # l/m, m and d, for L = 3
            sizes = ({"L": 1, "l": more * m, "m": m, "d": d} for more, m, d in tried)
            if all(says.at(numbers) > 0 for numbers in sizes):
                return draft.judged("inconclusive", say("not_compared", name=name))
            because, example = say("no_cost_is_negative", name=name), {"written": str(written)}
            return draft.refuted(because, f"L = 3 in {written}.", {"L": 3}, example)
        terms, exact = _powers(says), _powers(does)
        missing, extra = _not_dominated(exact, terms), _not_dominated(terms, exact)
        attention = [key for key in exact if key[3] < 2]
        if missing and not extra and not without_d and not _not_dominated(attention, terms):
            largest = _text(_term(max(missing, key=sum)))
            reasons.append(say("attention_alone", name=name, rest=largest))
            draft = replace(draft, verdict="holds")
        elif missing or extra:
            return _wrong_cost(draft, name, says, does, extra or missing, too_large=bool(extra))
        else:
            fixed = ", with d held fixed" if without_d else ""
            reasons.append(f"{name} is right up to a constant{fixed}")
    return replace(draft, because="; ".join(reasons) + ".")


def _powers(cost: Poly) -> list[Powers]:
    return [tuple(int(dict(key).get(x, 0)) for x in SIZES) for key in cost]


def _term(powers: Powers) -> Poly:
    return Poly({tuple((x, p) for x, p in zip(SIZES, powers, strict=True) if p): Fraction(1)})


def _text(cost: Poly) -> str:
    """With the factors of each product in the order of SIZES."""
    order = {
        tuple(sorted(key, key=lambda pair: SIZES.index(pair[0]))): c for key, c in cost.items()
    }
    return str(Poly(order))


def _not_dominated(terms: Iterable[Powers], others: Iterable[Powers]) -> dict[Powers, Powers]:
    """Terms that outgrow the others, each with the direction (L, l alone, l and m together, d) in
    which it does; a term is dominated if a mean of two others has no smaller power of any."""
    rivals = np.array([(a, b, b + c, d) for a, b, c, d in others])
    shares = (0, 1 / 4, 1 / 3, 1 / 2)
    means = [a + share * (b - a) for a in rivals for b in rivals for share in shares]
    outgrowing: dict[Powers, Powers] = {}
    for a, b, c, d in terms:
        term = np.array((a, b, b + c, d))
        if not any((mean >= term).all() for mean in means):
            directions = np.array(list(itertools.product(range(9), repeat=4)))
            ahead = directions[directions @ term > (directions @ rivals.T).max(axis=1)].tolist()
            shortest = min(ahead, key=lambda x: (sum(x), x), default=(1, 1, 1, 1))
            outgrowing[a, b, c, d] = tuple(shortest)
    return outgrowing


def _wrong_cost(
    draft: CheckResult, name: str, written: Poly, exact: Poly, worst: Mapping[Powers, Powers],
    *, too_large: bool,
) -> CheckResult:  # fmt: skip
    """Sizes in the direction of the worst term at which the two costs differ a hundredfold."""
    key, (L, alone, both, d) = max(worst.items(), key=lambda item: sum(item[0]))
    for scale in (2**k for k in range(1, 21)):
        sizes = {"L": scale**L + 2, "l": scale ** (alone + both), "m": scale**both, "d": scale**d}
        says, does = (float(cost.at(sizes | {"L": scale**L})) for cost in (written, exact))
        if (says / does if too_large else does / max(says, 1e-300)) >= 100:
            shown = [x for x in SIZES if x != "d" or "d" in exact.names]
            at = ", ".join(f"{x} = {sizes[x]:,}" for x in shown)
            sentence = say("costs_differ", at=at, does=does, says=says)
            what = f"{_text(_term(key))} is {'too large' if too_large else 'missing'}"
            numbers = {"written": says, "counted": does}
            return draft.refuted(f"{name}: the term {what}.", sentence, sizes, numbers)
    return draft.judged("inconclusive", say("not_compared", name=name))
