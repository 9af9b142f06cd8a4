"""Judging matrices: M that takes v_a out of v_a + v_b, K, Q, V for three words, keys as numbers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from wherefrom.attention.checker import Assumption, BetaNeeded, CheckResult
from wherefrom.attention.checker.algebra import (
    Field,
    NotExactError,
    Polynomials,
    Scalar,
    symbol,
)
from wherefrom.attention.checker.instances import (
    WORDS,
    Exact,
    Matrix,
    Numeric,
    Values,
    oblique_angles,
    orthonormal,
    polynomials,
    shown,
    space_instance,
    space_values,
    unequal_norms,
    word_instance,
    word_values,
)
from wherefrom.attention.checker.language import Construction, ExpressionError, Node, evaluate
from wherefrom.attention.checker.reading import say
from wherefrom.attention.equation import attend
from wherefrom.errors import UserError

# m, p, r from the smallest up; then pairwise different so that nothing fits by accident
SMALLEST = ((1, 1, 0), (1, 1, 1), (2, 1, 0), (1, 2, 0), (2, 3, 1))
SIZES = ((1, 1, 0), (2, 3, 0), (3, 2, 5), (5, 7, 1), (11, 3, 2))
DRAWS = 5
TURNED = ((1, -8, 4), (4, 4, 7), (8, -1, -4))  # nine times an orthonormal basis, as columns
RUNGS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, *(2.0**k for k in range(5, 11)))
LARGE = (1e4, 1e5, 1e6)  # where a slow term may yet win
ROUND = (4.0, 8.0, 16.0, 32.0, 128.0, *RUNGS[-3:], *LARGE, 1e8, 1e10, 1e13, 1e16)
DIMENSIONS = (4, 5, 7, 11, 16)
STILL_FALLING = 0.999  # an error that falls by more from rung to rung may yet arrive
Row = tuple[int, Matrix, Matrix, Matrix, float]


def judge_extract(construction: Construction, draft: CheckResult) -> CheckResult:
    """M A = A and M B = 0? In the basis [A B C] what can be written has blocks that are multiples
    of the identity or zero, since m, p, r may be any sizes; so m = p = r = 1 decides it for all."""
    exact, wrong = _multiples(construction), ""
    if exact is None:
        draft = draft.judged("holds", say("extracts_in_numbers"))
    else:
        keeps, leaks = exact
        derived = (f"M A = {_multiple(keeps, 'A')}", f"M B = {_multiple(leaks, 'B')}")
        faults = []
        if str(keeps) != "1":
            faults.append(f"it returns {_multiple(keeps, 'v_a')} where v_a is wanted")
        if str(keeps) == "2" and leaks.is_zero:
            faults.append("which is right for the average (v_a + v_b)/2 and not for the sum")
        if not leaks.is_zero:
            faults.append(f"it lets {_multiple(leaks, 'v_b')} through")
        wrong = ", ".join(faults)
        draft = draft.judged("proved", say("extracts"), derived=derived)
        if wrong and max(abs(keeps.at(1.0, 1) - 1), abs(leaks.at(1.0, 1))) > draft.tolerance:
            return _refuted_extraction(draft, construction, wrong)
        if wrong:
            draft = draft.judged("holds", say("extracts_nearly", wrong=wrong))
    rng = np.random.default_rng(draft.seed)
    drawn = [space_instance(*size, rng) for size in SIZES for _ in range(DRAWS)]
    worst = max(_extraction_error(construction, values, rng) for values in drawn)
    if worst > draft.tolerance:
        if exact is not None and worst > 1e-6:
            return draft.judged("inconclusive", say("fault", what="drawn matrices"))
        return _refuted_extraction(draft, construction, "M (v_a + v_b) is not v_a")
    checked = f"{len(drawn)} drawn instances over {len(SIZES)} sizes, largest error {worst:.1e}"
    assumptions = tuple(_needed_of_bases(construction, draft.tolerance, rng))
    return replace(draft, checked=checked, assumptions=assumptions)


def _multiple(factor: Scalar, name: str) -> str:
    return {"0": "0", "1": name}.get(str(factor), f"{factor} {name}")


def _multiples(construction: Construction) -> tuple[Scalar, Scalar] | None:
    """The factors by which M multiplies A and B, if it does no more than that; in a turned basis,
    in which D (written in the basis S) is not taken for A A^T."""
    turned = np.array([[Fraction(x, 9) for x in row] for row in TURNED], dtype=object)
    algebra = Exact(Field(), space_values(turned[:, :1], turned[:, 1:2], turned[:, 2:]))
    try:
        M = evaluate(construction.expressions["M"], algebra)
        A, B = algebra.values["A"], algebra.values["B"]
        keeps, leaks = (A.T @ M @ A).item(), (B.T @ M @ B).item()
        leftover = (M @ A - A * keeps, M @ B - B * leaks)
    except NotExactError:
        return None
    exact = all(x.is_zero for part in leftover for x in part.ravel())
    return (keeps, leaks) if exact else None


def _extraction_error(
    construction: Construction, values: Values, rng: np.random.Generator
) -> float:
    """|M s - v_a| / (|v_a| + |v_b|) for vectors drawn from the two spans."""
    v_a, v_b = (values[name] @ rng.standard_normal(values[name].shape[1]) for name in "AB")
    try:
        missed = evaluate(construction.expressions["M"], Numeric(values)) @ (v_a + v_b) - v_a
    except ExpressionError:
        return math.inf
    return float(np.linalg.norm(missed) / (np.linalg.norm(v_a) + np.linalg.norm(v_b)))


def _refuted_extraction(draft: CheckResult, construction: Construction, what: str) -> CheckResult:
    """With the smallest standard or turned basis and the simplest v_a and v_b that M gets wrong."""
    turned = space_values(*np.hsplit(np.array([[0.6, -0.8], [0.8, 0.6]]), [1, 2]))
    for values in (*(space_instance(*size) for size in SMALLEST), turned):
        try:
            M = evaluate(construction.expressions["M"], Numeric(values))
        except ExpressionError:
            continue
        one, other = values["A"].sum(axis=1), values["B"].sum(axis=1)
        for v_a, v_b in ((one, 0 * one), (0 * one, other), (one, other)):
            got = M @ (v_a + v_b)
            if np.linalg.norm(got - v_a) > draft.tolerance:
                named = values | {"M": M, "v_a": v_a, "v_b": v_b, "M s": got}
                numbers = shown(named, ("A", "B", "M", "v_a", "v_b", "M s"))
                sizes = {"d": len(M), "m": values["A"].shape[1], "p": values["B"].shape[1]}
                vectors = {x: numbers[x] for x in ("v_a", "v_b")} | {"got": numbers["M s"]}
                sentence = say("not_extracted", d=len(M), **vectors)
                return draft.refuted(what + ".", sentence, sizes, numbers)
    return draft.judged("refuted", what + ".")


def _needed_of_bases(
    construction: Construction, tolerance: float, rng: np.random.Generator
) -> Iterator[Assumption]:
    """Each assumption given up on bases drawn at random, the smallest sizes first.
    Both sides of M A = A and M B = 0 are analytic in the bases, so equations that hold at random
    points hold everywhere; one that fails is a counterexample."""
    for name in ("bases that are orthonormal", "spaces that are orthogonal"):
        used, evidence = False, say("bases_not_needed", sizes=len(SIZES))
        for m, p, r in SIZES:
            straight = space_instance(m, p, r, rng)
            A, B, C = (straight[part] for part in "ABC")
            if name.startswith("bases"):
                A = A @ (np.eye(m) + 0.4 * rng.standard_normal((m, m)) / np.sqrt(m)) * 1.3
                B = B @ (np.eye(p) + 0.4 * rng.standard_normal((p, p)) / np.sqrt(p)) * 0.8
            else:
                B = B + A @ rng.uniform(0.2, 0.5, size=(m, p)) / np.sqrt(m)
                C = C + 0.3 * B @ rng.standard_normal((p, r))
            values = space_values(A, B, C)
            error = _extraction_error(construction, values, rng)
            if error > max(tolerance, 1e-9):
                bases = ", ".join(f"{x} = {y}" for x, y in shown(values, ("A", "B")).items())
                used, evidence = True, say("bases_needed", d=m + p + r, bases=bases, error=error)
                break
        yield Assumption(name, used, evidence)


def judge_words(construction: Construction, draft: CheckResult) -> CheckResult:
    return WordsJudge(construction, draft).judge()


class WordsJudge:
    """Over orthogonal u of norm beta the logits x_j^T K^T Q x_i are polynomials in beta; softmax
    tends to equal shares among the largest, and those of V x_j are compared with the goal."""

    def __init__(self, construction: Construction, draft: CheckResult) -> None:
        self.written, self.draft, self.eps = construction.expressions, draft, draft.tolerance
        self.reached = self.wrong = ""  # why every goal is reached in the limit, or what is wrong
        self.miss = 0.0  # and by how much, in units of beta

    def judge(self) -> CheckResult:
        with contextlib.suppress(NotExactError):
            self.find_limits()
        draft, reached, wrong = self.draft, self.reached, self.wrong
        on_rungs = [self.error(word_instance(4, beta), beta) for beta in RUNGS]
        errors = [error for error in on_rungs if math.isfinite(error)]
        if len(errors) < 4:
            if not errors:
                self.rows(word_instance(4, 1.0), 1.0)  # says what is wrong, and where
            return draft.judged("inconclusive", say("words_too_large"))
        within = [error <= self.eps for error in errors[-3:]]
        settled = bool(wrong) or not errors[-1] < STILL_FALLING * errors[-2]
        far = [self.error(word_instance(4, beta), beta) for beta in LARGE]
        lost = not reached and any(self.eps < error < math.inf for error in far)
        if not reached and ((not any(within) and settled) or self.miss > self.eps):
            return self.refuted()
        if lost or not all(within):
            because = say("words_out_of_reach" if reached else "words_too_slow")
            return draft.judged("inconclusive", because)
        if reached:
            draft = draft.judged("proved", reached)
        elif wrong:
            draft = draft.judged("holds", say("words_nearly", wrong=wrong))
        else:
            draft = draft.judged("holds", say("words_in_numbers"))

        def fails(beta: float) -> bool:
            return self.eps < self.error(word_instance(4, beta), beta) < math.inf

        low = max((beta for beta in RUNGS if fails(beta)), default=0.0)
        high = min(beta for beta in RUNGS if beta > low)
        for _ in range(40 if low else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if fails(middle) else (low, middle)
        rows = self.rows(word_instance(4, 2.0), 1.0)
        at_two = ", ".join(f"|c{word} - goal| = {error:.4f}" for word, *_, error in rows)
        needed = BetaNeeded(say("words_beta", told=at_two), high, 3, {3: high})
        rng = np.random.default_rng(draft.seed)
        beta = 1.05 * high
        drawn = [word_instance(d, beta, rng) for d in DIMENSIONS for _ in range(4)]
        if max(self.error(values, beta) for values in drawn) > self.eps:
            return draft.judged("inconclusive", say("fault", what="drawn words"))
        sizes = ", ".join(map(str, DIMENSIONS))
        checked = say("words_drawn", count=len(drawn), sizes=sizes)
        return replace(
            draft, beta=needed, checked=checked, assumptions=tuple(self.assumptions(rng))
        )

    def given(
        self, values: Values, algebra: Numeric
    ) -> tuple[Matrix, Matrix, Matrix, dict[int, Matrix]]:
        """The words as columns, the product K^T Q, the values as columns, the goal of each row."""
        written = dict(self.written)
        algebra.values = {name: algebra.matrix(value) for name, value in values.items()}
        if "x2" in written:  # c2 may speak of the new x2
            algebra.values["x2"] = evaluate(written.pop("x2"), algebra)
            values["x2"] = algebra.values["x2"].ravel()
        given = {name: evaluate(expression, algebra) for name, expression in written.items()}
        words = np.hstack([algebra.values[x] for x in WORDS])
        if "V" not in given:
            return words, algebra.values["I"], words, {2: given["c2"]}
        product = given["W"] if "W" in given else given["K"].T @ given["Q"]
        u_b, u_c = algebra.values["u_b"], algebra.values["u_c"]
        return words, product, given["V"] @ words, {1: u_b - u_c, 2: u_b}

    def find_limits(self) -> None:
        """The exact logits, and where c ends, in the basis of the four u and one more vector."""
        field = Field()
        algebra = Exact(field, {})
        u = algebra.matrix(np.eye(4, 5, dtype=int)) * field.beta
        words, product, values, goals = self.given(word_values(u, field.beta), algebra)
        logits = {i: (words.T @ product @ words[:, [i - 1]]).ravel() for i in goals}
        lines = tuple(f"logits of word {i}: {', '.join(map(str, x))}" for i, x in logits.items())
        limits = []
        for i, row in logits.items():
            rivals = [{field.trend(y - x).kind for y in row} for x in row]
            best = [j for j, kinds in enumerate(rivals) if "up" not in kinds]
            unequal = any("constant" in rivals[j] for j in best)
            if field.doubts or unequal or any("unclear" in kinds for kinds in rivals):
                break
            weights = [Fraction(int(j in best), len(best)) for j in range(len(row))]
            limits.append(f"the weights of word {i} tend to ({', '.join(map(str, weights))})")
            got, goal = (
                x.ravel() * (field.rational(1) / field.beta)
                for x in (values @ algebra.matrix(weights), goals[i])
            )
            gaps = [field.trend(x - y) for x, y in zip(got, goal, strict=True)]
            if any(gap.kind == "unclear" for gap in gaps):
                break
            sizes = [{"zero": 0.0, "constant": gap.value}.get(gap.kind, math.inf) for gap in gaps]
            if any(sizes):
                ends = {"word": i, "got": _in_u(got), "goal": _in_u(goal)}
                self.wrong = say("words_end_elsewhere", told=limits[-1], **ends)
                self.miss = math.hypot(*(size or 0.0 for size in sizes))
                break
        else:
            self.reached = say("words_reached", told=" and ".join(limits))
        self.draft = replace(self.draft, derived=lines)

    def rows(self, values: Values, beta: float) -> list[Row]:
        """Of each word with a goal, by the attention equation: its number, weights, context, goal,
        and the distance of the two in units of beta."""
        words, product, contents, goals = self.given(values, Numeric({}))
        result = attend((product @ words).T, words.T, contents.T)
        rows = []
        for i, goal in goals.items():
            context = result.context[i - 1]
            error = float(np.linalg.norm(context - goal.ravel())) / beta
            rows.append((i, result.weights[i - 1], context, goal.ravel(), error))
        return rows

    def error(self, values: Values, beta: float) -> float:
        """The largest distance of a row from its goal; infinite where there is no value."""
        try:
            return max(error for *_, error in self.rows(values, beta))
        except ExpressionError:
            return math.inf

    def refuted(self) -> CheckResult:
        """With d = 4 and u along the axes, at the first round beta that shows it."""
        for beta in ROUND:
            values = word_instance(4, beta)
            try:
                rows = self.rows(values, beta)
            except ExpressionError:
                continue
            word, weights, context, goal, error = max(rows, key=lambda row: row[-1])
            if error > self.eps:
                got, wanted = np.round(context, 4).tolist(), np.round(goal, 4).tolist()
                numbers: dict[str, Any] = shown(values, WORDS) | {"beta": beta}
                numbers["weights"] = np.round(weights, 6).tolist()
                numbers |= {f"c{word}": got, "goal": wanted}
                sentence = say("words_missed", beta=beta, word=word, got=got, goal=wanted)
                because = self.wrong or f"c{word} misses its goal however large beta is"
                return self.draft.refuted(because + ".", sentence, {"d": 4}, numbers)
        return self.draft.judged("refuted", self.wrong + ".")

    def assumptions(self, rng: np.random.Generator) -> Iterator[Assumption]:
        """Look for u without an assumption on which a goal is missed however large beta is."""
        searches = (("u of equal norm", unequal_norms), ("u that are orthogonal", oblique_angles))
        for name, variants in searches:
            tried, broken = 0, ""
            for what, u in variants(orthonormal(4, 7, rng), 4, rng):
                tried += 1
                errors = [self.error(word_values(b * u, b), b) for b in (24.0, 240.0)]
                if errors[1] > self.eps and errors[1] >= STILL_FALLING * errors[0]:
                    broken = say("words_need", what=what, error=errors[1])
                    break
            evidence = broken or say("no_counterexample", tried=tried)
            yield Assumption(name, True if broken else None, evidence)


def _in_u(vector: Matrix) -> str:
    """Coefficients of u_a..u_d as a sum that could be written again."""
    coefficients = zip("abcd", map(str, vector), strict=False)
    parts = [
        {"1": "", "-1": "-"}.get(value, f"({value})*") + f"u_{name}"
        for name, value in coefficients
        if value != "0"
    ]
    return " + ".join(parts).replace("+ -", "- ") or "0"


def judge_hull(construction: Construction, draft: CheckResult) -> CheckResult:
    """Can key 1 be copied at all; does q copy it; is it the mixture w of the others, so that
    nothing does? All in fractions."""
    try:
        written = {
            name: polynomials(expression, Polynomials(), {})
            for name, expression in construction.expressions.items()
        }
    except NotExactError:
        raise UserError("keys are given as numbers, one row in brackets each.") from None
    if _uneven(construction.expressions["K"].tree):
        raise UserError("K is made of numbers, in rows with the same number of entries.")
    keys = _fractions(written["K"], "K")
    if len(keys) == 1:  # one row of numbers: each of them is a key
        keys = keys.T
    if len(keys) < 2:
        raise UserError("K needs two keys at least, as in [[1, 0], [0, 1]].")
    for name in {"q", "w"} & set(written):
        if 1 not in written[name].shape:
            raise UserError(f"{name} must be one row of numbers, as in (1, 2).")
    if "q" in written:
        return _judge_query(draft, keys, written["q"].ravel())
    if "w" in written:
        return _judge_mixture(draft, keys, _fractions(written["w"], "w").ravel())
    from wherefrom.attention.designs import copyability

    table = keys.astype(float)
    margin, mixture, most = copyability(table, 0)
    if margin > 0:
        direction = table[0] - mixture @ table
        q = [Fraction(x / np.abs(direction).max()).limit_denominator(1000) for x in direction]
        draft = _judge_query(draft, keys, np.array([x * symbol("beta") for x in q]))
        if draft.verdict == "refuted":
            return draft.judged("holds", say("no_simple_query"), counterexample=None)
        return replace(draft, because=say("key_is_a_corner", q=", ".join(map(str, q))))
    from scipy.optimize import nnls

    rows = np.vstack([table.T, np.ones(len(keys))])
    few = nnls(rows[:, 1:], rows[:, 0])[0]  # of few keys, so with small denominators
    weights = np.array([Fraction(x).limit_denominator(100_000) for x in few])
    if _judge_mixture(draft, keys, weights).verdict != "proved":
        return draft.judged("inconclusive", say("hull_too_near"))
    mixed = " + ".join(f"{x} k_{i}" for i, x in enumerate(weights, start=2) if x)
    because, sentence = say("key_is_mixed", told=mixed, most=most), say("same_mixture", told=mixed)
    sizes = {"n": len(keys), "d": len(keys[0])}
    return draft.refuted(because, sentence, sizes, {"K": table.tolist(), "most": most})


def _uneven(node: Node) -> bool:
    """Does a row contain another row, as in [[1, 2], 3]?"""
    inside = node.op == "hstack" and any(part.op in ("hstack", "vstack") for part in node.arguments)
    return inside or any(map(_uneven, node.arguments))


def _fractions(table: Matrix, name: str) -> Matrix:
    if any(x.names for x in table.ravel()):
        raise UserError(f"{name} is made of numbers, as in [[1, 0], [0, 1]].")
    return np.array([[x.get((), Fraction(0)) for x in row] for row in table])


def _judge_query(draft: CheckResult, keys: Matrix, q: Matrix) -> CheckResult:
    n, d = keys.shape
    if len(q) != d:
        raise UserError(f"q needs {d} entries, as many as each key.")
    if not any(entry.names for entry in q):  # nothing that could grow
        table, numbers = keys.astype(float), np.array([float(entry.at({})) for entry in q])
        weight = float(attend(numbers, table, table).weights[0])
        if weight >= 1 - draft.tolerance:
            return draft.judged("holds", say("weight_suffices", weight=weight))
    leads = []
    for i, lead in enumerate((keys[0] - keys[1:]) @ q, start=2):
        if lead.names - {"beta"}:
            raise UserError("q is made of numbers and beta.")
        powers = lead.by_power("beta")
        top = max(powers, default=0)
        if top < 1 or powers[top][()] < 0:
            table = keys.astype(float)
            numbers = np.array([float(x.at({"beta": 10.0})) for x in q])
            weights = np.round(attend(numbers, table, table).weights, 6).tolist()
            sentence = say("lead_stays_shown", weights=np.round(weights, 4).tolist())
            because = say("lead_stays", i=i, lead=lead)
            return draft.refuted(because, sentence, {"n": n, "d": d}, {"weights": weights})
        leads.append((top, powers[top][()]))
    order, slope = min(leads)
    level = math.log((n - 1) * (1 - draft.tolerance) / draft.tolerance)
    beta = max(0.0, level / float(slope)) ** (1 / order)
    needed = BetaNeeded(say("every_lead", level=level), beta, n, {n: beta})
    return draft.judged("proved", say("lead_of_key_1"), beta=needed)


def _judge_mixture(draft: CheckResult, keys: Matrix, w: Matrix) -> CheckResult:
    """Weights over the other keys that make key 1: a proof that it cannot be copied."""
    if len(w) != len(keys) - 1:
        raise UserError(f"w needs {len(keys) - 1} entries, one for each key but the first.")
    mixed, wrong = (w @ keys[1:]).tolist(), ""
    if min(w) < 0 or sum(w) != 1:
        wrong = say("weights_of_a_mixture", total=sum(w))
    elif mixed != keys[0].tolist():
        texts = [", ".join(map(str, row)) for row in (mixed, keys[0])]
        wrong = say("another_mixture", mixed=texts[0], key=texts[1])
    if wrong:
        numbers = {"mixture": [float(x) for x in mixed]}
        return draft.refuted(wrong, wrong, {"n": len(keys)}, numbers)
    most = 1 / (1 + math.exp(-sum(float(x) * math.log(x) for x in w if x)))
    return draft.judged("proved", say("this_mixture", most=most))
