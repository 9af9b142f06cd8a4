"""Random constructions of all fifteen problems, and what brute force says about them.

Nothing here is shared with the checker. A construction is drawn as a tree of tuples (or as plain
coefficients), so that it can be written down and evaluated without parsing: with 1,600 digits at a
beta of 1e250, in floating point on drawn matrices, or by counting. Each problem has one function
that draws a construction and one that says what contradicts a verdict on it.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from statistics import NormalDist
from typing import Any

import mpmath
import numpy as np

from wherefrom.checker import check
from wherefrom.checker.problems.queries import Queries
from wherefrom.checker.problems.words import ThreeWords
from wherefrom.errors import UserError

Tree = Any  # a name, a number as text, or (operation, *trees)
TOLERANCE = 0.01
FAR = (1e20, 1e100, 1e250)
SIZES = (3, 4, 5, 7, 12, 37, 41, 49)
LENGTHS = [NormalDist(1, 0.5**0.5).inv_cdf((i + 0.5) / 60) for i in range(60)]  # of key a
LEAVES = ("beta", "beta", "beta", "beta", "n", "2", "0.5", "7", "33")
ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
NUMBERS = ARITHMETIC | {"/": operator.truediv, "**2": lambda x: x * x, "abs": abs}
NUMBERS |= {"sqrt": mpmath.sqrt, "log": mpmath.log, "exp": mpmath.exp}


@dataclass(frozen=True)
class Drawn:
    """A construction: its problem, what is written, and the parts that brute force evaluates."""

    problem: str
    texts: list[str]
    parts: Any


# ---- numbers made of beta and n


def draw_constant(rng):
    """From 1e-12 to 1e12."""
    return rng.choice(["1e-12", "1e12", f"{rng.randrange(1, 10)}e{rng.randrange(-12, 12)}"])


def draw_zero(rng):
    """Zero at one n, or nearly so."""
    n = rng.choice([3, 5, 12, 37, 1237, rng.randrange(3, 60), rng.randrange(60, 3000)])
    kind = rng.random()
    if kind < 0.7:
        return ("-", "n", str(n))
    if kind < 0.8:
        return ("-", "n", str(n + 0.5))
    if kind < 0.9:
        return ("-", ("sqrt", "n"), str(math.isqrt(n)))
    return ("log", ("/", "n", str(n)))


def zeros(tree):
    """The n near the zeros that were drawn."""
    if isinstance(tree, str):
        return set()
    op, *parts = tree
    if op == "-" and parts[0] == "n" and isinstance(parts[1], str) and parts[1] != "beta":
        return {math.ceil(float(parts[1]))} if parts[1] != "n" else set()
    if op == "-" and parts[0] == ("sqrt", "n") and parts[1][0].isdigit():
        return {int(float(parts[1]) ** 2)}
    if op == "/" and parts[0] == "n" and isinstance(parts[1], str) and parts[1].isdigit():
        return {int(parts[1])}
    return set().union(*map(zeros, parts))


def draw_number(rng, depth):
    if depth == 0 or rng.random() < 0.3:
        kind = rng.random()
        if kind < 0.4:
            return draw_zero(rng) if kind < 0.2 else draw_constant(rng)
        return rng.choice(LEAVES)
    kind = rng.random()
    if kind < 0.7:
        return (rng.choice("+-*/"), draw_number(rng, depth - 1), draw_number(rng, depth - 1))
    inner = draw_number(rng, depth - 1)
    if kind < 0.8:
        return ("**2", inner)
    if kind < 0.88:
        return ("/", inner, inner)
    if kind > 0.96:
        return ("exp", ("-", "0", ("abs", inner)))
    return (rng.choice(["sqrt", "log", "abs"]), inner)


def write(tree):
    """The tree as a formula."""
    if isinstance(tree, str):
        return tree
    op, *parts = tree
    texts = [write(part) for part in parts]
    if op == "**2":
        return f"({texts[0]})**2"
    if op == "T":
        return f"({texts[0]}).T"
    if len(texts) == 2:
        return f"({texts[0]}{op}{texts[1]})"
    return f"{op}({texts[0]})"


def number(tree, beta, n):
    """The value of a number; ArithmeticError where it has none."""
    if isinstance(tree, str):
        return mpmath.mpf({"beta": beta, "n": n}.get(tree, tree))
    op, *parts = tree
    x = NUMBERS[op](*(number(part, beta, n) for part in parts))
    # of a negative number roots and logarithms are complex
    if isinstance(x, mpmath.mpc) or mpmath.isinf(x) or mpmath.mag(x) > 13_300:  # beyond 1e4000
        raise ArithmeticError
    return x


def softmax(logits):
    """Of mpmath numbers, as mpmath numbers."""
    top = max(logits)
    masses = [mpmath.exp(max(x - top, mpmath.mpf("-1e25"))) for x in logits]
    total = sum(masses)
    return [mass / total for mass in masses]


# ---- queries: copy, average, noisy-average, stretched-average, two-heads

GROUPS = {"copy": "j", "average": "ab", "noisy-average": "ab"}
GROUPS |= {"stretched-average": "ab", "two-heads": "ab"}


def draw_query(rng, problem):
    stem = "k" if problem in ("copy", "average") else "mu"
    names = [f"{stem}_{g}" for g in GROUPS[problem]] + ["sum_others"]
    wanted = ["q1", "q2"] if problem == "two-heads" else ["q"]
    trees, texts = [], []
    for name in wanted:
        first = draw_number(rng, 2)
        if rng.random() < 0.6:
            first = ("*", "beta", first)
        second = first if rng.random() < 0.6 else draw_number(rng, 2)
        third = rng.choice(["0", "0", "1", ("-", "0", "beta"), draw_number(rng, 2)])
        if len(wanted) == 2 and rng.random() < 0.6:  # heads that copy
            first, second = (first, "0") if name == "q1" else ("0", first)
        elif problem == "stretched-average" and rng.random() < 0.5:  # away from the noise
            first = second = rng.choice(["0", "0.001", "1"])
            third = ("-", "0", rng.choice([third, ("*", "beta", ("abs", draw_number(rng, 1)))]))
        trees.append([first, second, third][-len(names) :])
        parts = (f"({write(c)})*{v}" for c, v in zip(trees[-1], names, strict=True))
        texts.append(f"{name}={'+'.join(parts)}")
    return Drawn(problem, texts, trees)


def misplaced(drawn, beta, n, lengths):
    """The misplaced share of the averaged heads for each length of key a; None without a value."""
    with mpmath.workdps(1600):
        try:
            heads = [[number(tree, beta, n) for tree in trees] for trees in drawn.parts]
        except ArithmeticError:
            return None
        named = len(heads[0]) - 1
        total = np.zeros((len(lengths), named + 1))
        for head in heads:
            for i, e in enumerate(lengths):  # in all digits, since logits may cancel
                logits = [head[0] * e if e != 1 else head[0], *head[1:]]
                top = max(logits)
                masses = np.exp([float(max(x - top, -1e4)) for x in logits])
                masses[-1] *= n - named
                total[i] += masses / masses.sum() / len(heads)
    shares = 0.5 * (np.abs(total[:, :-1] - 1 / named).sum(axis=1) + total[:, -1])
    return [float(share) for share in shares]


def query_missed(drawn, beta, n, slack):
    """Does the goal fail at this beta and n, by more (slack > 0) or less than rounding?"""
    stretched = drawn.problem in ("stretched-average", "two-heads")
    shares = misplaced(drawn, beta, n, LENGTHS if stretched else [1])
    if shares is None:
        return None
    if not stretched:
        return shares[0] > TOLERANCE * (1 + slack)
    kept = list(zip(LENGTHS, shares, strict=True))
    if len(drawn.parts) > 1:
        with mpmath.workdps(1600):
            forward = any(number(trees[0], beta, n) > 0 for trees in drawn.parts)
        kept = [(e, share) for e, share in kept if e > 0 or not forward]
    share = sum(share > TOLERANCE * (1 + slack) for _, share in kept) / len(kept)
    return share > 0.05 + 0.3 * slack


def has_tiny_factor(tree, n):
    """Is there an exp(-|x|) in it that no beta tried makes up for, such as exp(-|n - 662|)?"""
    if isinstance(tree, str):
        return False
    if tree[0] == "exp":
        with mpmath.workdps(30):
            try:
                near, far = (number(tree[1], beta, n) for beta in FAR[-2:])
            except ArithmeticError:
                return True
            return near == far < -50
    return any(has_tiny_factor(part, n) for part in tree[1:])


def contradicts_query(drawn, result):
    transcendental = any(word in str(drawn.texts) for word in ("log", "exp"))
    if result.passed:
        least = 2 if drawn.problem == "copy" else 3
        drawn_zeros = set().union(*(zeros(tree) for head in drawn.parts for tree in head))
        for n in sorted({least, *SIZES} | {n for n in drawn_zeros if least <= n <= 10**6}):
            # what numbers alone say, they say up to a beta of 1e100
            beta = FAR[-1] if result.verdict == "proved" else 1e80
            wrong = query_missed(drawn, beta, n, slack=0.1)
            if wrong and any(has_tiny_factor(tree, n) for head in drawn.parts for tree in head):
                continue
            if wrong or (wrong is None and "exp" not in str(drawn.texts)):
                return f"at n = {n} it {'fails' if wrong else 'has no value'}"
    elif result.verdict == "refuted":
        example = result.counterexample
        if example is None:
            return "no counterexample"
        if "log10_n" in example.numbers:  # more keys than can be tried
            return ""
        n, numbers = example.sizes["n"], example.numbers
        if not numbers:
            found = [query_missed(drawn, beta, n, slack=0) for beta in FAR]
            return "" if found == [None] * 3 else f"has a value at n = {n}"
        shown = misplaced(drawn, numbers.get("beta", 1.0), n, [numbers.get("e", 1)])
        if shown is None and "exp" in str(drawn.texts):
            return ""  # beyond what brute force computes
        if shown is None or shown[0] < 0.999 * TOLERANCE:
            return f"the counterexample at n = {n} does not reproduce: {shown}"
        beta = 1e80 if transcendental else FAR[-1]
        if query_missed(drawn, beta, n, slack=-0.1) is False:
            return f"a larger beta repairs n = {n}"
    return ""


# ---- extract


def draw_matrix(rng, depth):
    """A d x d matrix in the bases A, B, C."""
    if depth == 0 or rng.random() < 0.25:
        leaf = rng.choice("AAABCIDSP")
        if leaf == "P":
            return ("@", ("@", "S", "D"), ("inv", "S"))
        return ("@", leaf, ("T", leaf)) if leaf in "ABC" else leaf
    kind, inner = rng.random(), draw_matrix(rng, depth - 1)
    if kind < 0.4:
        return (rng.choice("+-"), inner, draw_matrix(rng, depth - 1))
    if kind < 0.65:
        return ("@", inner, draw_matrix(rng, depth - 1))
    if kind < 0.8:
        factor = rng.choice(["2", "0.5", "0", "0.999", draw_constant(rng)])
        return ("*", factor, inner)
    return (rng.choice(["T", "pinv", "inv"]), inner)


def draw_extract(rng, problem):
    tree = draw_matrix(rng, 3)
    if rng.random() < 0.2:  # nearly right
        tree = ("+", ("@", "A", ("T", "A")), ("*", draw_constant(rng), tree))
    return Drawn(problem, [f"M={write(tree)}"], tree)


def solve(equations, right):
    """The solution of a linear system in fractions, if there is exactly one; else None."""
    rows = [[*map(Fraction, row), Fraction(r)] for row, r in zip(equations, right, strict=True)]
    unknowns = len(rows[0]) - 1
    for column in range(unknowns):
        pivot = next((i for i in range(column, len(rows)) if rows[i][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        top = [x / rows[column][column] for x in rows[column]]
        rows[column] = top
        for i, row in enumerate(rows):
            if i != column and row[column]:
                rows[i] = [x - row[column] * y for x, y in zip(row, top, strict=True)]
    if any(row[-1] for row in rows[unknowns:]):
        return None
    return [row[-1] for row in rows[:unknowns]]


def inverse(x):
    columns = [solve(x.tolist(), unit) for unit in np.eye(len(x), dtype=int).tolist()]
    if any(column is None for column in columns):
        raise ArithmeticError
    return np.array(columns, dtype=object).T


def pseudo_inverse(x):
    """By a basis of the columns: x = basis @ rest, both of full rank."""
    chosen = []
    for j in range(x.shape[1]):
        if solve(x[:, [*chosen, j]].tolist(), [0] * len(x)) is not None:
            chosen.append(j)
    if not chosen:
        return x.T * Fraction(0)
    basis = x[:, chosen]
    left = inverse(basis.T @ basis) @ basis.T
    rest = left @ x
    return rest.T @ inverse(rest @ rest.T) @ left


MATRICES = ARITHMETIC | {"@": operator.matmul, "T": np.transpose}
MATRICES |= {"inv": inverse, "pinv": pseudo_inverse}


def matrix(tree, values):
    if isinstance(tree, str):
        return values[tree] if tree in values else np.array([[Fraction(tree)]])
    op, *parts = tree
    return np.asarray(MATRICES[op](*(matrix(part, values) for part in parts)))


@cache
def bases(m, p, r):
    """An orthogonal matrix of fractions (Cayley), and its columns as A, B and C."""
    rng, size = random.Random(m + 10 * p + 100 * r), m + p + r
    identity = np.array([[Fraction(i == j) for j in range(size)] for i in range(size)])
    skew = identity * 0
    for i, j in itertools.combinations(range(size), 2):
        skew[i, j] = Fraction(rng.choice([1, 2, 3]), rng.choice([1, 2, 5]))
        skew[j, i] = -skew[i, j]
    S = (identity - skew) @ inverse(identity + skew)
    D = identity.copy()
    D[range(m, size), range(m, size)] = Fraction(0)
    values = {"S": S, "A": S[:, :m], "B": S[:, m : m + p], "C": S[:, m + p :]}
    return values | {"I": identity, "D": D}


def contradicts_extract(drawn, result):
    largest = Fraction(0)
    for sizes in ((1, 1, 0), (2, 1, 1), (1, 2, 1)):
        values = bases(*sizes)
        try:
            M = matrix(drawn.parts, values)
        except ArithmeticError:
            largest = math.inf
            continue
        for gap in (M @ values["A"] - values["A"], M @ values["B"]):
            largest = max(largest, *map(abs, gap.ravel()))
    if largest > {"proved": 0, "holds": 1e-8}.get(result.verdict, math.inf):
        return f"M errs by {float(largest)}"
    return "M is right" if result.verdict == "refuted" and largest == 0 else ""


# ---- three words

RIGHT_W = [("1", "c", "d", -2), ("1", "d", "a", -2)]  # c, i, j, p for c u_i u_j^T beta^p
RIGHT_V = [("1", "b", "b", -2), ("-1", "c", "c", -2)]
FACTORS = ["1", "1", "-1", "2", "0.001"]


def draw_terms(rng, right):
    """The matrix that is right, or one that differs from it in a term or two."""
    terms = list(right)
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        factor = rng.choice([*FACTORS, draw_constant(rng)])
        term = (factor, *rng.choices("abcd", k=2), rng.choice([-2, -1, -3, 0, -5]))
        terms[rng.randrange(len(terms))] = term
        if rng.random() < 0.4:
            factor = rng.choice([*FACTORS, draw_constant(rng)])
            terms.append((factor, *rng.choices("abcd", k=2), rng.choice([-2, -4, 0])))
    return terms


def draw_words(rng, problem):
    W, V = draw_terms(rng, RIGHT_W), draw_terms(rng, RIGHT_V)
    lead = rng.choice(["1", "1", "1", "1/beta", "log(beta)/beta**2", "5*log(beta)/beta**2"])
    if rng.random() < 0.3:  # a value that grows, of a word that may lose its weight
        W, V = (
            list(right) if rng.random() < 0.7 else m for right, m in ((RIGHT_W, W), (RIGHT_V, V))
        )
        V.append(("1", *rng.choices("abcd", k=2), rng.choice([-1, 0, 0, 3, 5])))
    texts = []
    for name, terms in (("W", W), ("V", V)):
        powers = [f"*beta**{p}" if p >= 0 else f"/beta**{-p}" for *_, p in terms]
        products = [f"({c})*outer(u_{i},u_{j})" for c, i, j, _ in terms]
        texts.append(f"{name}=" + "+".join(map("".join, zip(products, powers, strict=True))))
    texts[0] = f"W=({lead})*({texts[0][2:]})"
    return Drawn(problem, texts, (W, V, lead))


def draw_identity_words(rng, problem):
    choices = ["0", "0", "0", "1", "1", "-1", "0.5", draw_constant(rng)]
    coefficients = [rng.choice(choices) for _ in range(8)]
    powers = [rng.choice(["1", "1", "1", "1/beta", "beta"]) for _ in range(8)]
    if rng.random() < 0.3:  # a right answer
        coefficients[4:], powers = coefficients[:4], ["1"] * 8
    sides = []
    for start in (0, 4):
        terms = [
            f"({coefficients[start + i]})*({powers[start + i]})*u_{x}" for i, x in enumerate("abcd")
        ]
        sides.append("+".join(terms))
    return Drawn(problem, [f"x2={sides[0]}", f"c2={sides[1]}"], (coefficients, powers))


def words_error(drawn, beta):
    """The larger distance of c1 and c2 from their goals, in units of beta, with 400 digits."""
    with mpmath.workdps(600):
        beta = mpmath.mpf(beta)
        u = {
            name: [beta if i == k else mpmath.mpf(0) for i in range(4)]
            for k, name in enumerate("abcd")
        }
        x = [_plus(u["d"], u["b"]), u["a"], _plus(u["c"], u["b"])]
        if drawn.problem == "self-attention":
            *matrices, lead = drawn.parts
            W, V = (lambda v, terms=terms: _apply(terms, u, beta, v) for terms in matrices)
            logarithm = mpmath.log(beta) / beta**2
            lead = {"1": 1, "1/beta": 1 / beta}.get(lead, (5 if "5" in lead else 1) * logarithm)
            goals = {0: [0, beta, -beta, 0], 1: [0, beta, 0, 0]}
        else:
            numbers = [
                mpmath.mpf(c) * {"1": 1, "1/beta": 1 / beta, "beta": beta}[p] * beta
                for c, p in zip(*drawn.parts, strict=True)
            ]
            x[1], goals = numbers[:4], {1: numbers[4:]}
            W = V = lambda v: v
            lead = 1
        errors = []
        for i, goal in goals.items():
            query = [lead * entry for entry in W(x[i])]
            weights = softmax([_dot(word, query) for word in x])
            values = [V(word) for word in x]
            context = [
                sum(w * v[k] for w, v in zip(weights, values, strict=True)) for k in range(4)
            ]
            errors.append(
                mpmath.sqrt(sum((c - g) ** 2 for c, g in zip(context, goal, strict=True))) / beta
            )
        return float(max(errors))


def _plus(v, w):
    return [a + b for a, b in zip(v, w, strict=True)]


def _dot(v, w):
    return sum(a * b for a, b in zip(v, w, strict=True))


def _apply(terms, u, beta, v):
    total = [mpmath.mpf(0)] * 4
    for c, i, j, p in terms:
        factor = mpmath.mpf(c) * beta**p * _dot(u[j], v)
        total = [t + factor * x for t, x in zip(total, u[i], strict=True)]
    return total


def contradicts_words(drawn, result):
    far = ("1e30", "1e60")
    if result.passed and "log" in str(drawn.texts):  # 1e-12*log(beta) is large only much later
        far = ("1e100000000000000000", "1e200000000000000000")
    errors = [words_error(drawn, beta) for beta in far]
    if result.passed and min(errors) > TOLERANCE * 1.01:
        return f"the goals are missed by {errors}"
    if result.verdict == "refuted":
        shown = words_error(drawn, result.counterexample.numbers["beta"])
        if shown < 0.999 * TOLERANCE or max(errors) < 0.9 * TOLERANCE:
            return f"the goals are missed by {shown}, {errors}"
    return ""


# ---- hull


def draw_hull(rng, problem):
    d, n = rng.choice([1, 2, 2, 3]), rng.randrange(2, 7)
    scales = [rng.choice(["1", "1", "1", draw_constant(rng)]) for _ in range(d)]
    factors = [[rng.randrange(-2, 3) for _ in scales] for _ in range(n)]
    moved = [["0"] * d for _ in range(n)]
    if rng.random() < 0.3:  # a key a little beside its place, or far
        moved[rng.randrange(n)][rng.randrange(d)] = draw_constant(rng)
    written, keys = [], []
    for row, shifts in zip(factors, moved, strict=True):
        entries = list(zip(row, scales, shifts, strict=True))
        keys.append([x * Fraction(scale) + Fraction(shift) for x, scale, shift in entries])
        written.append(" , ".join(f"({x})*{scale}+{shift}" for x, scale, shift in entries))
    rows = "; ".join(written)
    texts, kind = [f"K=[{rows}]"], rng.choice(["K", "K", "q", "w"])
    q, w = [], []
    if kind == "q":
        choices = ["0", "1", "2", "-1", "-2", draw_constant(rng)]
        q = [(rng.choice(choices), rng.choice([0, 1, 1, 2])) for _ in range(d)]
        entries = ", ".join(f"({c})*beta**{p}" for c, p in q)
        texts.append(f"q=({entries})" if d > 1 else f"q=[{entries}]")
    if kind == "w":
        raw = [rng.randrange(0, 3) for _ in range(n - 1)]
        total = sum(raw) or 1
        w = [Fraction(x, total) for x in raw]
        entries = ", ".join(map(str, w))
        texts.append(f"w=({entries})" if n > 2 else f"w=[{entries}]")
    return Drawn(problem, texts, (keys, q, w))


def is_mixture(first, others):
    """Is the first key a mixture of the others? Of at most d + 1 of them, then (Caratheodory)."""
    for count in range(1, min(len(others), len(first) + 1) + 1):
        for chosen in itertools.combinations(others, count):
            equations = [*map(list, zip(*chosen, strict=True)), [1] * count]
            weights = solve(equations, [*first, 1])
            if weights is not None and min(weights) >= 0:
                return True
    return False


def contradicts_hull(drawn, result):
    keys, q, w = drawn.parts
    if q:
        beta, logits = Fraction(10**60), []
        for key in keys:
            logits.append(sum(x * Fraction(c) * beta**p for x, (c, p) in zip(key, q, strict=True)))
        with mpmath.workdps(200):
            share = float(softmax([mpmath.mpf(x.numerator) / x.denominator for x in logits])[0])
        wrong = share < 0.98 if result.passed else result.verdict == "refuted" and share > 0.995
        return f"key 1 has {share}" if wrong else ""
    if w:
        mixed = [
            sum(x * key[i] for x, key in zip(w, keys[1:], strict=True)) for i in range(len(keys[0]))
        ]
        right = sum(w) == 1 and mixed == keys[0]
        return "" if right == (result.verdict == "proved") else f"the mixture is {mixed}"
    inside = is_mixture(keys[0], keys[1:])
    if result.passed and inside:
        return "key 1 lies in the hull of the others"
    return "key 1 is a corner" if result.verdict == "refuted" and not inside else ""


# ---- permutation


def draw_layer(rng, depth):
    """An n x d table, as a tree."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(["X", "X", "X", "P", "b_1"])
    inner = draw_layer(rng, depth - 1)
    kind = rng.random()
    if kind < 0.3:
        scores = ("@", inner, ("T", draw_layer(rng, depth - 1)))
        scores = ("+", scores, "M") if rng.random() < 0.2 else scores
        return ("@", ("softmax", scores), "X")
    if kind < 0.5:
        return (rng.choice("+-"), inner, draw_layer(rng, depth - 1))
    if kind < 0.7:
        return ("@", inner, rng.choice(["W_1", "W_2", "W_q"]))
    if kind < 0.78:
        divisor = rng.choice(
            [("-", "n", "3"), ("+", "n", "1"), "d", ("-", "n", "2.5"), ("-", "d", "6")]
        )
        return ("/", inner, divisor)
    if kind < 0.88:
        return ("*", rng.choice([draw_constant(rng), ("-", "n", "4")]), inner)
    return (rng.choice(["relu", "layernorm"]), inner)


def draw_permutation(rng, problem):
    tree = draw_layer(rng, 3)
    return Drawn(problem, [f"f={write(tree)}"], tree)


def layer_value(tree, values):
    """In numbers of many digits."""
    if isinstance(tree, str):
        return values[tree] if tree in values else mpmath.mpf(tree)
    op, *parts = tree
    x = [layer_value(part, values) for part in parts]
    if op in ROW_FUNCTIONS:
        return np.array([ROW_FUNCTIONS[op](row) for row in x[0]])
    if op == "/" and x[1] == 0:
        raise ZeroDivisionError
    return {"@": operator.matmul, "T": np.transpose, "/": operator.truediv, **ARITHMETIC}[op](*x)


def layernorm(row):
    mean = sum(row) / len(row)
    variance = sum((x - mean) ** 2 for x in row) / len(row)
    return [(x - mean) / mpmath.sqrt(variance + mpmath.mpf("1e-5")) for x in row]


def exact_softmax(row):
    """With no bound on how small a weight may be."""
    masses = [mpmath.exp(x - max(row)) for x in row]
    return [mass / sum(masses) for mass in masses]


ROW_FUNCTIONS = {"layernorm": layernorm, "softmax": exact_softmax}
ROW_FUNCTIONS["relu"] = lambda row: [max(x, mpmath.mpf(0)) for x in row]
LAYER_DIGITS, LAYER_ROUNDING = 400, mpmath.mpf("1e-60")


def contradicts_permutation(drawn, result):
    rng = np.random.default_rng(0)
    moved = False

    def table(*shape):
        drawn_floats = rng.standard_normal(shape)
        return np.array([[mpmath.mpf(x) for x in row] for row in drawn_floats.tolist()])

    with mpmath.workdps(LAYER_DIGITS):
        for n, d in ((1, 2), (2, 1), (3, 2), (4, 3), (2, 6)):
            values = {"n": mpmath.mpf(n), "d": mpmath.mpf(d)}
            values["M"] = np.array(
                [[mpmath.mpf(0 if j <= i else -50) for j in range(n)] for i in range(n)]
            )
            values |= {w: table(d, d) for w in ("W_1", "W_2", "W_q")}
            values |= {"P": table(n, d), "b_1": np.repeat(table(1, d), n, axis=0)}
            X, order = table(n, d), rng.permutation(n)
            try:
                f, g = (layer_value(drawn.parts, values | {"X": x}) for x in (X, X[order]))
            except ZeroDivisionError:
                if result.verdict == "proved":
                    return f"it has no value at n = {n}, d = {d}"
                moved = True
                continue
            largest = max(abs(x) for x in f.ravel())
            gap = max(abs(x) for x in (g - f[order]).ravel())
            moved = moved or gap > LAYER_ROUNDING * largest
    if result.verdict == "proved" and moved:
        return "a reordering is not followed"
    fixed = any(x in ("P", "M") for x in _leaves(drawn.parts))
    if result.verdict == "refuted" and not moved and not fixed:
        return "every reordering is followed"
    return ""


def _leaves(tree):
    if isinstance(tree, str):
        return [tree]
    return [leaf for part in tree[1:] for leaf in _leaves(part)]


# ---- synthesizer


def draw_synthesizer(rng, problem):
    pieces = {"X@X.T": draw_number(rng, 2), "ones@ones.T": draw_number(rng, 1), "X@X.T@X@X.T": "0"}
    if rng.random() < 0.6:
        pieces["X@X.T"] = ("*", "beta", pieces["X@X.T"])
    if rng.random() < 0.5:
        pieces["ones@ones.T"] = "0"
    if rng.random() < 0.2:
        pieces["X@X.T@X@X.T"] = draw_number(rng, 1)
    written = [f"({write(tree)})*{name}" for name, tree in pieces.items() if tree != "0"]
    return Drawn(problem, ["S=" + "+".join(written or ["0*X@X.T"])], pieces)


def sentence_error(drawn, words, beta):
    """The largest misplaced share of a word; None without a value."""
    n = len(words)
    with mpmath.workdps(400):
        try:
            gram, every, square = (number(tree, beta, n) for tree in drawn.parts.values())
        except ArithmeticError:
            return None
        worst = 0.0
        for word in {words.count(word): word for word in words}.values():
            same = [other == word for other in words]
            logits = [every + (gram + square * sum(same) if equal else 0) for equal in same]
            weights = softmax(logits)
            wanted = [mpmath.mpf(equal) / sum(same) for equal in same]
            worst = max(
                worst, float(sum(abs(w - x) for w, x in zip(weights, wanted, strict=True)) / 2)
            )
        return worst


def contradicts_synthesizer(drawn, result):
    sentences = [
        (0,),
        (0, 1),
        (0, 0, 1),
        (0, 1, 2),
        (0, 1, 2, 3, 4),
        tuple(range(12)),
        tuple(range(37)),
    ]
    beta = 1e200 if result.verdict == "proved" else 1e8
    if "limit of large beta" in result.because:
        beta = 1e80
    drawn_zeros = set().union(*map(zeros, drawn.parts.values()))
    sentences += [tuple(range(n)) for n in sorted(drawn_zeros) if 1 <= n <= 1300]
    if result.passed:
        for words in sentences if result.verdict == "proved" else sentences[:4]:
            error = sentence_error(drawn, words, beta)
            slow = "log(beta" in str(drawn.texts) and drawn_zeros  # as log(beta) - (n-2625)**2
            if slow or any(has_tiny_factor(tree, len(words)) for tree in drawn.parts.values()):
                continue
            if error is None and "exp" in str(drawn.texts):
                continue  # beyond what brute force computes
            if error is None or error > 1.01 * TOLERANCE:
                return f"the words {words} are missed by {error}"
    elif result.verdict == "refuted":
        n = result.counterexample.sizes["n"]
        words = result.counterexample.numbers.get("words", tuple(range(min(n, 2000))))
        if n > 2000:
            return ""
        errors = [sentence_error(drawn, words, x) for x in (1e40, 1e80)]
        if all(error is not None and error < 0.99 * TOLERANCE for error in errors):
            return f"the words {words} are right: {errors}"
    return ""


# ---- sinusoids


def draw_sinusoids(rng, problem):
    waves = []
    for _ in range(rng.choice([1, 1, 2])):
        w = rng.choice(["0", "0", "1", "1/3", "2/7", "1000000", draw_constant(rng)])
        v = rng.choice(["0", "1/2", "2/3", "1/30"]) if w == "0" or rng.random() < 0.2 else "0"
        f = rng.choice(["0", "0", "-1", "-5/2", "-3", draw_constant(rng)])
        g = rng.choice(["0", "0", "1/2", "1"])
        factor = rng.choice(["1", "1", "1", draw_constant(rng), "t-5"])
        waves.append((rng.choice(["sin", "cos", "square"]), w, v, f, g, factor))
    entries = []
    for kind, w, v, f, g, factor in waves:
        angle = f"({w}+({v})*pi)*t+({f})+({g})*pi"
        wave = f"(t+({f}))**2" if kind == "square" else f"{kind}({angle})"
        entries.append(wave if factor == "1" else f"({factor})*{wave}")
    hole = rng.choice([None] * 6 + [rng.randrange(-1, 40)])  # no value for the pair i = hole
    entries += [] if hole is None else [f"1/(i-({hole}))"]
    text = f"p=[{', '.join(entries)}]" if len(entries) > 1 else f"p={entries[0]}"
    return Drawn(problem, [text], (waves, hole))


def table_entry(wave, t):
    kind, *numbers, factor = wave
    w, v, f, g = (mpmath.mpf(Fraction(x).numerator) / Fraction(x).denominator for x in numbers)
    scale = mpmath.mpf(t - 5) if factor == "t-5" else mpmath.mpf(factor)
    if kind == "square":
        return scale * (t + f) ** 2
    angle = (w + v * mpmath.pi) * t + f + g * mpmath.pi
    return scale * (mpmath.sin(angle) if kind == "sin" else mpmath.cos(angle))


def contradicts_sinusoids(drawn, result):
    waves, hole = drawn.parts
    if hole is not None and hole >= 0:
        return f"it has no value for i = {hole}" if result.passed else ""
    with mpmath.workdps(120):
        if result.verdict == "refuted":
            s, t = result.counterexample.sizes["s"], result.counterexample.sizes["t"]
            gaps = [abs(table_entry(wave, s) - table_entry(wave, t)) for wave in waves]
            return "" if s != t and max(gaps) < mpmath.mpf(10) ** -40 else f"p({s}) is not p({t})"
        seen = {}
        for t in range(130):
            key = tuple(mpmath.nint(table_entry(wave, t) * 10**60) for wave in waves)
            if key in seen and result.passed:
                return f"p({seen[key]}) = p({t})"
            seen[key] = t
    return ""


# ---- rotary

ROTATION = [[("cos", 1), ("sin", -1)], [("sin", 1), ("cos", 1)]]


def draw_rotary(rng, problem):
    speed = rng.choice(["1", "1", "2", "1/2", "3"])
    table = [[list(entry) for entry in row] for row in ROTATION]
    if rng.random() < 0.6:
        entry = rng.choice(rng.choice(table))
        entry[:] = [rng.choice(["cos", "sin", "one"]), rng.choice([1, -1, 0, 2])]
    scale = rng.choice(["1", "1", "3", "t", "t-4", draw_constant(rng)])
    extra = rng.choice(["0", "0", "0", "0", "1", draw_constant(rng)])
    rows = []
    for k, row in enumerate(table):
        terms = [
            f"({c})*{'1' if f == 'one' else f'{f}({speed}*t*theta)'}*x{i + 1}"
            for i, (f, c) in enumerate(row)
        ]
        rows.append(f"y{k + 1}=({scale})*({'+'.join(terms)})+({extra})*x{k + 1}")
    return Drawn(problem, rows, (table, speed, scale, extra))


def rotated(drawn, t, theta, x):
    table, speed, scale, extra = drawn.parts
    angle = mpmath.mpf(Fraction(speed).numerator) / Fraction(speed).denominator * t * theta
    functions = {"cos": mpmath.cos(angle), "sin": mpmath.sin(angle), "one": 1}
    factor = {"t": t, "t-4": t - 4}.get(scale) if "t" in scale else mpmath.mpf(scale)
    return [
        factor * sum(c * functions[f] * x[i] for i, (f, c) in enumerate(row))
        + mpmath.mpf(extra) * x[k]
        for k, row in enumerate(table)
    ]


def contradicts_rotary(drawn, result):
    rng = random.Random(0)
    only_distance, constant = True, True
    with mpmath.workdps(120):
        for _ in range(12):
            s, t, step = rng.randrange(9), rng.randrange(9), rng.randrange(1, 9)
            theta = mpmath.mpf(rng.random()) * 2 - 1
            q, k = ([mpmath.mpf(rng.random()) for _ in "xy"] for _ in "qk")
            first, second, third = (
                _dot(rotated(drawn, a, theta, q), rotated(drawn, b, theta, k))
                for a, b in ((s, t), (s + step, t + step), (s, t + step))
            )
            only_distance = only_distance and abs(first - second) < mpmath.mpf("1e-60")
            constant = constant and abs(first - third) < mpmath.mpf("1e-60")
    right = only_distance and not constant
    if result.verdict == "proved" and not right:
        return "it is not a function of the distance, or constant"
    return "it is right" if result.verdict == "refuted" and right else ""


# ---- perceiver-cost


def draw_cost(rng, problem):
    model = rng.choice(["vanilla", "perceiver"])
    right = {
        "vanilla": [(1, 2, 0, 1), (1, 1, 0, 2)],
        "perceiver": [(1, 0, 2, 1), (1, 0, 1, 2), (0, 1, 1, 1), (0, 1, 0, 2)],
    }
    terms = [(rng.choice(["1", "3", draw_constant(rng)]), *powers) for powers in right[model]]
    for _ in range(rng.choice([0, 1, 1, 2])):
        term = ("1", *(rng.randrange(0, 3) for _ in range(4)))
        terms[rng.randrange(len(terms))] = term
        if rng.random() < 0.5:
            terms.append(("2", *(rng.randrange(0, 3) for _ in range(4))))
    if rng.random() < 0.3:
        terms = [(c, a, b, e, 0) for c, a, b, e, _ in terms]
    written = "+".join(f"({c})*L**{a}*l**{b}*m**{e}*d**{g}" for c, a, b, e, g in terms)
    zero = rng.choice(["", "", "", "", "", "l-5", "L-7", "d-2"])  # no cost is zero at one size
    written = f"({zero})*({written})" if zero else written
    return Drawn(problem, [f"{model}={written}"], (model, terms, zero))


def log_ratio(drawn, L, l, m, d, without_d):  # noqa: E741
    """log2 of what is written over the leading terms of what the model multiplies."""
    model, terms, _ = drawn.parts
    width = Fraction(1) if without_d else d
    if model == "vanilla":
        exact = L * (l * l * width + l * width**2)
    else:
        exact = (L - 2) * (m * m * width + m * width**2) + l * m * width + l * width**2
    says = sum(Fraction(c) * L**a * l**b * m**e * d**g for c, a, b, e, g in terms)
    return _log2(says) - _log2(exact)


def _log2(x):
    return x.numerator.bit_length() - x.denominator.bit_length() if x > 0 else -math.inf


def contradicts_cost(drawn, result):
    without_d = all(term[4] == 0 for term in drawn.parts[1])
    if drawn.parts[2]:
        return "it is zero at one size" if result.passed else ""
    if result.verdict == "holds":
        return ""
    drifts = []
    for direction in itertools.product((0, 1, 3), repeat=4):
        ratios = []
        for k in (200, 400):
            L, more, m, d = (Fraction(2) ** (k * step) for step in direction)
            ratios.append(log_ratio(drawn, L + 2, more * m, m, d, without_d))
        drifts.append(abs(ratios[1] - ratios[0]))
    if result.verdict == "proved" and max(drifts) > 20:
        return f"the ratio drifts by 2^{max(drifts)}"
    if result.verdict == "refuted" and max(drifts) <= 2:
        finer = max(_finest_drift(drawn, without_d), max(drifts))
        return "the ratio is bounded" if finer <= 2 else ""
    return ""


def _finest_drift(drawn, without_d):
    worst = 0
    for direction in itertools.product(range(5), repeat=4):
        ratios = []
        for k in (200, 400):
            L, more, m, d = (Fraction(2) ** (k * step) for step in direction)
            ratios.append(log_ratio(drawn, L + 2, more * m, m, d, without_d))
        worst = max(worst, abs(ratios[1] - ratios[0]))
    return worst


# ---- variance


def draw_variance(rng, problem):
    names = ["var_one", "var_c1", "var_c", "var_c2", "var_norm"]

    def side():
        factors = ["1", "1", "4", "1/4", "-1", draw_constant(rng), f"n-{rng.choice([3, 5, 12])}"]
        terms = [(rng.choice(factors), rng.choice(names)) for _ in range(rng.choice([1, 1, 2]))]
        return terms, rng.choice(["0", "0", "0", "1/4", "0.0724", "0.0725", draw_constant(rng)])

    sides = [side(), side()]
    sign = rng.choice(["<", ">", "=", "->", "<=", ">="])
    if rng.random() < 0.2:
        sides[1] = sides[0]
    written = ["+".join([*(f"({c})*{name}" for c, name in terms), f"({b})"]) for terms, b in sides]
    return Drawn(problem, [f"{written[0]} {sign} {written[1]}"], (sides, sign))


VARIANCE_DIGITS, VARIANCE_ROUNDING = 60, "1e-35"


@cache
def limits_of_variances():
    below = mpmath.ncdf(-mpmath.sqrt(2))
    spread = below * (1 - below)
    known = {"var_one": mpmath.mpf(1) / 4, "var_c1": spread, "var_c": spread / 4}
    return known | {"var_c2": mpmath.mpf(0), "var_norm": spread / 4}


@cache
def variances_at(n, beta=10):
    """By a sum over the length e, with many digits; a normalised key has two directions alone."""
    points = [mpmath.mpf(k) / 50 for k in range(-750, 751)]
    masses = [mpmath.exp(-z * z / 2) for z in points]
    total = sum(masses)

    def variance(weight, law):
        mean = sum(p * weight(e) for p, e in law)
        return sum(p * (weight(e) - mean) ** 2 for p, e in law)

    def head(e):
        return 1 / (1 + (n - 1) * mpmath.exp(-beta * e))

    def one(e):
        return 1 / (1 + mpmath.exp(beta - beta * e) + (n - 2) * mpmath.exp(-beta * e))

    law = [(mass / total, 1 + z / mpmath.sqrt(2)) for mass, z in zip(masses, points, strict=True)]
    below = mpmath.ncdf(-mpmath.sqrt(2))
    of_head = variance(head, law)
    known = {"var_one": variance(one, law), "var_c1": of_head, "var_c": of_head / 4}
    known["var_norm"] = variance(one, [(below, -1), (1 - below, 1)])
    return known | {"var_c2": mpmath.mpf(0)}


def comparison_is_true(drawn, n):
    """At this n and every beta from some beta on; None where that takes more than limits."""
    (left, right), sign = drawn.parts

    def value(side, known):
        terms, constant = side
        total = Fraction(constant)
        total = mpmath.mpf(total.numerator) / total.denominator
        for c, name in terms:
            factor = Fraction(n - int(c[2:])) if c.startswith("n-") else Fraction(c)
            total += mpmath.mpf(factor.numerator) / factor.denominator * known[name]
        return total

    limit, here = (
        value(left, known) - value(right, known)
        for known in (limits_of_variances(), variances_at(n))
    )
    rounding = mpmath.mpf(VARIANCE_ROUNDING)
    tends_to_zero, equal = abs(limit) < rounding, abs(here) < rounding
    if sign == "->":
        return tends_to_zero
    if sign == "=":
        return equal and tends_to_zero
    if tends_to_zero:
        return "=" in sign if equal else None
    return (limit < 0) == (sign in ("<", "<="))


def contradicts_variance(drawn, result):
    sizes = [3, 4, 5, 12, 13, 40]
    if result.counterexample is not None:
        sizes += result.counterexample.sizes.values()
    with mpmath.workdps(VARIANCE_DIGITS):
        truths = {n: comparison_is_true(drawn, n) for n in sizes}
    if result.passed and False in truths.values():
        return f"it is false at n = {next(n for n in truths if truths[n] is False)}"
    if result.verdict == "refuted" and all(truths.values()):
        return "it is true"
    return ""


PROBLEMS = {
    **dict.fromkeys(GROUPS, (draw_query, contradicts_query)),
    "extract": (draw_extract, contradicts_extract),
    "self-attention": (draw_words, contradicts_words),
    "identity-self-attention": (draw_identity_words, contradicts_words),
    "hull": (draw_hull, contradicts_hull),
    "permutation": (draw_permutation, contradicts_permutation),
    "synthesizer": (draw_synthesizer, contradicts_synthesizer),
    "sinusoids": (draw_sinusoids, contradicts_sinusoids),
    "rotary": (draw_rotary, contradicts_rotary),
    "perceiver-cost": (draw_cost, contradicts_cost),
    "variance": (draw_variance, contradicts_variance),
}


def run(count, seed, only=None, figures=True):
    """Draw and judge `count` constructions: how many of each problem got which verdict, and the
    contradictions. Without `figures` the verdict alone is computed (the beta that is needed and
    the assumptions take most of the time of a right query)."""
    rng = random.Random(seed)
    names = [only] if only else list(PROBLEMS)
    verdicts: dict[str, int] = {}
    wrong = []
    kept = Queries.with_figures, ThreeWords.with_figures
    if not figures:
        Queries.with_figures = ThreeWords.with_figures = lambda _, result: result  # type: ignore[method-assign]
    try:
        for i in range(count):
            problem = names[i % len(names)]
            draw, contradicts = PROBLEMS[problem]
            drawn = draw(rng, problem)
            try:
                result = check(problem, drawn.texts)
                word: str = result.verdict
                found = contradicts(drawn, result)
            except UserError:
                word, found = "not judged", ""
            except Exception as error:
                word, found = "failed", f"{type(error).__name__}: {error}"
            verdicts[f"{problem} {word}"] = verdicts.get(f"{problem} {word}", 0) + 1
            if found:
                wrong.append(f"{problem} {drawn.texts} {word}: {found}")
    finally:
        Queries.with_figures, ThreeWords.with_figures = kept  # type: ignore[method-assign]
    return verdicts, wrong
