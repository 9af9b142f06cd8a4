"""Random constructions, and what brute force says about them, sharing nothing with the checker.

A construction is drawn as a tree of tuples, so that it can be written down in several ways and
evaluated without parsing: queries in arithmetic of 1,600 digits at a beta of 1e250, matrices in
floating point on drawn bases. `contradiction` compares a verdict with that.
"""

from __future__ import annotations

import operator
import random
import re
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import mpmath
import numpy as np

from wherefrom.attention.checker import PROBLEMS, CheckResult, check
from wherefrom.attention.checker.judge_queries import KeysJudge
from wherefrom.attention.checker.language import read_construction
from wherefrom.errors import UserError

Tree = Any  # a name, a number as text, or (operation, *trees)
TOLERANCE = 0.01
LARGE = (1e20, 1e100, 1e250)
SIZES = (3, 4, 5, 7, 12, 41)
LENGTHS = [NormalDist(1, 0.5**0.5).inv_cdf((i + 0.5) / 60) for i in range(60)]  # of key a
LEAVES = ("beta", "beta", "beta", "n", "2", "0.5", "7", "33", "n-3", "n-5", "n-12")
ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
NUMBERS = ARITHMETIC | {"/": operator.truediv, "**2": lambda x: x * x, "abs": abs}
NUMBERS |= {"sqrt": mpmath.sqrt, "log": mpmath.log, "exp": mpmath.exp}
MATRICES = ARITHMETIC | {"@": operator.matmul, "T": np.transpose}
MATRICES |= {"inv": np.linalg.inv, "pinv": np.linalg.pinv}
QUERIES = ("copy", "average", "average", "noisy-average", "stretched-average", "two-heads")


Term = tuple[float, str, str, int]  # c, i, j, p for c u_i u_j^T beta^p
RIGHT_W: list[Term] = [(1, "c", "d", -2), (1, "d", "a", -2)]
RIGHT_V: list[Term] = [(1, "b", "b", -2), (-1, "c", "c", -2)]


@dataclass(frozen=True)
class Drawn:
    """A construction: for each formula its name, its text and its tree (or coefficients)."""

    problem: str
    texts: list[str]
    trees: list[list[Tree]]


def draw(rng):
    """One random construction for one of the problems about keys or spaces."""
    problem = rng.choice((*QUERIES, *QUERIES, "extract", "self-attention"))
    if problem == "self-attention":
        W, V = draw_terms(rng, RIGHT_W), draw_terms(rng, RIGHT_V)
        return Drawn(problem, [f"W={write_terms(W)}", f"V={write_terms(V)}"], [W, V])
    if problem == "extract":
        tree = draw_matrix(rng, 3)
        return Drawn(problem, [f"M={write(tree)}"], [[tree]])
    stem = "k" if PROBLEMS[problem].noise == "none" else "mu"
    names = [f"{stem}_{g}" for g in PROBLEMS[problem].target if g != "others"] + ["sum_others"]
    trees, texts = [], []
    for wanted in PROBLEMS[problem].forms[0]:
        first = draw_scalar(rng, 2)
        if rng.random() < 0.6:
            first = ("*", "beta", first)
        second = first if rng.random() < 0.6 else draw_scalar(rng, 2)
        third = rng.choice(["0", "0", "1", ("-", "0", "beta"), draw_scalar(rng, 2)])
        if len(PROBLEMS[problem].forms[0]) == 2 and rng.random() < 0.6:  # heads that copy
            first, second = (first, "0") if wanted == "q1" else ("0", first)
        elif problem == "stretched-average" and rng.random() < 0.5:  # away from the noise
            first = second = rng.choice(["0", "0.001", "1"])
            third = ("-", "0", third)
        trees.append([first, second, third][-len(names) :])
        parts = (f"({write(c)})*{v}" for c, v in zip(trees[-1], names, strict=True))
        texts.append(f"{wanted}={'+'.join(parts)}")
    return Drawn(problem, texts, trees)


def draw_terms(rng, right):
    """The matrix that is right, or one that differs from it in a term or two."""
    terms = list(right)
    for _ in range(rng.choice([0, 1, 1, 2])):
        term = (rng.choice([1, -1, 2, 0.001]), *rng.choices("abcd", k=2), rng.choice([-2, -1, -3]))
        terms[rng.randrange(len(terms))] = term
        if rng.random() < 0.4:
            terms.append((rng.choice([1, -1]), *rng.choices("abcd", k=2), rng.choice([-2, -4])))
    return terms


def write_terms(terms):
    return "+".join(f"({c})*outer(u_{i},u_{j})/beta**{-p}" for c, i, j, p in terms)


def draw_scalar(rng, depth):
    if depth == 0 or rng.random() < 0.3:
        leaf = rng.choice(LEAVES)
        return ("-", "n", leaf[2:]) if leaf.startswith("n-") else leaf
    kind = rng.random()
    if kind < 0.7:
        return (rng.choice("+-*/"), draw_scalar(rng, depth - 1), draw_scalar(rng, depth - 1))
    inner = draw_scalar(rng, depth - 1)
    if kind < 0.8:
        return ("**2", inner)
    if kind < 0.88:
        return ("/", inner, inner)
    if kind > 0.96:
        return ("exp", ("-", "0", ("abs", inner)))
    return (rng.choice(["sqrt", "log", "abs"]), inner)


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
        return ("*", rng.choice(["2", "0.5", "0", "0.999"]), inner)
    return (rng.choice(["T", "pinv", "inv"]), inner)


def write(tree):
    """The tree in the expression language."""
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
    """The value of a scalar; ArithmeticError where it has none."""
    if isinstance(tree, str):
        return mpmath.mpf({"beta": beta, "n": n}.get(tree, tree))
    op, *parts = tree
    x = NUMBERS[op](*(number(part, beta, n) for part in parts))
    # of a negative number roots and logarithms are complex
    if isinstance(x, mpmath.mpc) or mpmath.isinf(x) or mpmath.mag(x) > 13_300:  # beyond 1e4000
        raise ArithmeticError
    return x


def misplaced(drawn, beta, n, lengths):
    """The misplaced share of the averaged heads for each length of key a; None without a value."""
    with mpmath.workdps(1600):
        try:
            heads = [[number(tree, beta, n) for tree in trees] for trees in drawn.trees]
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


def missed(drawn, beta, n, slack):
    """Does the goal fail at this beta and n, by more (slack > 0) or less than rounding?"""
    noisy = PROBLEMS[drawn.problem].noise == "stretched"
    shares = misplaced(drawn, beta, n, LENGTHS if noisy else [1])
    if shares is None:
        return None
    if not noisy:
        return shares[0] > TOLERANCE * (1 + slack)
    kept = list(zip(LENGTHS, shares, strict=True))
    if len(drawn.trees) > 1:
        with mpmath.workdps(1600):
            forward = any(number(trees[0], beta, n) > 0 for trees in drawn.trees)
        kept = [(e, share) for e, share in kept if e > 0 or not forward]
    share = sum(share > TOLERANCE * (1 + slack) for _, share in kept) / len(kept)
    return share > 0.05 + 0.3 * slack


def decided(drawn):
    """The checker's verdict, of queries before drawn keys confirm it (which is the slow part)."""
    problem = PROBLEMS[drawn.problem]
    if problem.family != "keys":
        return check(drawn.problem, drawn.texts)
    read = read_construction(problem, drawn.texts)
    draft = CheckResult(problem.name, read.texts, "proved", "", problem.tolerance, 0)
    return KeysJudge(read, draft).decide()


def contradiction(drawn, result):
    """What brute force says against a verdict; empty if nothing."""
    if drawn.problem == "extract":
        return _extraction_contradiction(drawn, result)
    if drawn.problem == "self-attention":
        return _words_contradiction(drawn, result)
    if result.passed:
        for n in SIZES:
            # what numbers alone say, they say up to a beta of 1e90
            beta = LARGE[-1] if result.verdict == "proved" else 1e80
            wrong = missed(drawn, beta, n, slack=0.1)
            if wrong or (wrong is None and "exp" not in str(drawn.texts)):
                return f"{result.verdict}, and at n = {n} it {'fails' if wrong else 'has no value'}"
    elif result.verdict == "refuted":
        example = result.counterexample
        if example is None:
            return "refuted without a counterexample"
        if "log10_n" in example.numbers:  # more keys than can be tried
            return ""
        n, numbers = example.sizes["n"], example.numbers
        if not numbers:
            found = [missed(drawn, beta, n, slack=0) for beta in LARGE]
            return "" if found == [None] * 3 else f"has a value at n = {n}"
        shown = misplaced(drawn, numbers.get("beta", 1.0), n, [numbers.get("e", 1)])
        if shown is None or shown[0] < 0.999 * TOLERANCE:
            return f"the counterexample at n = {n} does not reproduce: {shown}"
        beta = 1e80 if re.search("log|exp", str(drawn.texts)) else LARGE[-1]
        if missed(drawn, beta, n, slack=-0.1) is False:
            return f"a larger beta repairs n = {n}"
    return ""


def _extraction_contradiction(drawn, result):
    rng = np.random.default_rng(0)
    errors = []
    for m, p, r in ((1, 1, 0), (2, 1, 1), (2, 3, 2)):
        S = np.linalg.qr(rng.standard_normal((m + p + r, m + p + r)))[0]
        values = {"S": S, "A": S[:, :m], "B": S[:, m : m + p], "C": S[:, m + p :]}
        values |= {"I": np.eye(len(S)), "D": np.diag([1.0] * m + [0.0] * (p + r))}
        M = matrix(drawn.trees[0][0], values)
        parts = M @ values["A"] - values["A"], M @ values["B"]
        errors.append(max(float(np.abs(part).max()) for part in parts))
    if result.passed and max(errors) > 1e-6:
        return f"{result.verdict}, and M errs by {max(errors)}"
    if result.verdict == "refuted" and max(errors) < 1e-9:
        return "refuted, and M is right"
    return ""


def _words_contradiction(drawn, result):
    errors = {beta: _words_error(drawn, beta) for beta in (30.0, 1e3, 1e5)}
    if result.passed and (errors[1e3] > TOLERANCE or errors[1e5] > TOLERANCE):
        return f"{result.verdict}, and words miss their goals by {errors}"
    if result.verdict == "refuted":
        shown = _words_error(drawn, result.counterexample.numbers["beta"])
        if shown < 0.999 * TOLERANCE or errors[1e5] < 0.9 * TOLERANCE:
            return f"refuted, and words miss their goals by {shown}, {errors}"
    return ""


def _words_error(drawn, beta):
    """The larger distance of c1 and c2 from their goals, in units of beta."""
    u = dict(zip("abcd", beta * np.eye(4), strict=True))
    W, V = (
        sum(c * beta**p * np.outer(u[i], u[j]) for c, i, j, p in terms) for terms in drawn.trees
    )
    words = np.array([u["d"] + u["b"], u["a"], u["c"] + u["b"]])
    logits = words[:2] @ np.asarray(W).T @ words.T  # row i: x_j^T W x_i
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    c = weights @ (words @ np.asarray(V).T)
    gaps = c - np.array([u["b"] - u["c"], u["b"]])
    return float(np.linalg.norm(gaps, axis=1).max()) / beta


def matrix(tree, values):
    if isinstance(tree, str):
        return values[tree] if tree in values else np.array([[float(tree)]])
    op, *parts = tree
    return np.asarray(MATRICES[op](*(matrix(part, values) for part in parts)))


def run(count, seed):
    """Draw and judge `count` constructions: how many got which verdict, and contradictions."""
    rng = random.Random(seed)
    verdicts: dict[str, int] = {}
    wrong = []
    for _ in range(count):
        drawn = draw(rng)
        try:
            result = decided(drawn)
            word: str = result.verdict
            found = contradiction(drawn, result)
        except (UserError, np.linalg.LinAlgError):
            word, found = "no value", ""
        verdicts[word] = verdicts.get(word, 0) + 1
        if found:
            wrong.append(f"{drawn.problem} {drawn.texts}: {found}")
    return verdicts, wrong
