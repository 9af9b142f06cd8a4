"""Judging written claims: the cost of a model, variances under noisy keys, keys given as numbers.

Costs are compared up to constants on L >= 3, l >= m >= 1, d >= 1, in powers of L - 2. A term is
dominated by others if its powers of L, l, l m and d (the directions in which sizes may grow) are at
most those of a mean of two of them; else a direction shows that the quotient has no bound.

Variances are those of the weight on a. As beta grows the weights become steps of the length e, so
the limits are exact: 1/4 with one head, p(1-p) in head 1 of two with p = P(e < 0), 0 in head 2, and
p(1-p)/4 with normalised keys. Var(c) = Var(c_1)/4 at every beta, since c_2 does not move.

Keys as numbers: key 1 is copied by q iff k_1.q leads by an amount that grows with beta; it cannot
be copied iff it is a mixture of the others. Both are verified in fractions.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from wherefrom.attention.checker.algebra import NotExactError
from wherefrom.attention.checker.language import (
    Construction,
    ExpressionError,
    evaluate,
    parse,
    write,
)
from wherefrom.attention.checker.polynomials import Polynomials, Terms, constant, plus, show, value
from wherefrom.attention.checker.problems import BetaNeeded, CheckResult, Counterexample, Problem
from wherefrom.attention.positions import model_cost
from wherefrom.errors import UserError

SIZES = ("L", "l", "m", "d")
Powers = tuple[int, ...]


# ---- costs


def judge_cost(construction: Construction, draft: CheckResult) -> CheckResult:
    reasons, derived = [], []
    for name, expression in construction.expressions.items():
        try:
            written = evaluate(expression, Polynomials())
        except NotExactError:
            because = f"{name} must be a sum of products of L, l, m and d."
            return replace(draft, verdict="inconclusive", because=because)
        terms = {tuple(dict(key).get(x, 0) for x in SIZES): c for key, c in written.items()}
        exact: dict[Powers, Fraction] = {k: Fraction(c) for k, c in model_cost(name).items()}
        told = show({tuple((x, p) for x, p in zip(SIZES, key, strict=True) if p): Fraction(c)
                     for key, c in exact.items()})  # fmt: skip
        derived.append(f"{name} multiplies exactly {told} times")
        without_d = not any(key[3] for key in terms)
        if without_d:
            exact = _without_d(exact)
        terms, exact = _shifted(terms), _shifted(exact)
        if not terms or min(terms.values()) < 0:
            because = f"{name}: a cost that may be zero or negative, as at L = 3, is no cost."
            numbers = {"written": show(written)}
            example = Counterexample({"L": 3}, numbers, f"at L = 3, {show(written)} loses a term.")
            return replace(draft, verdict="refuted", because=because, counterexample=example)
        missing = _not_dominated(exact, terms)
        extra = _not_dominated(terms, exact)
        attention = {key: c for key, c in exact.items() if key[3] < 2}
        if missing and not extra and not without_d and not _not_dominated(attention, terms):
            rest = _term(max(missing, key=sum))
            reasons.append(
                f"{name} is right for the attention alone; projections and feed-forward add "
                f"{rest}, which counts once d is as large as l"
            )
            draft = replace(draft, verdict="holds")
            continue
        if missing or extra:
            return _wrong_cost(
                replace(draft, derived=tuple(derived)), name, terms, exact, missing, extra
            )
        reasons.append(
            f"{name} is right up to a constant{', with d held fixed' if without_d else ''}"
        )
    return replace(draft, because="; ".join(reasons) + ".", derived=tuple(derived))


def _without_d(cost: Mapping[Powers, Fraction]) -> dict[Powers, Fraction]:
    found: dict[Powers, Fraction] = {}
    for key, c in cost.items():
        short = (*key[:3], 0)
        found[short] = found.get(short, Fraction(0)) + c
    return found


def _rays(key: Powers) -> Powers:
    """The powers along the directions in which sizes grow: L, l alone, l and m together, d."""
    a, b, c, d = key
    return a, b, b + c, d


def _shifted(terms: Mapping[Powers, Fraction]) -> dict[Powers, Fraction]:
    """The same in powers of L - 2, which is 1 at least."""
    found: dict[Powers, Fraction] = {}
    for (a, *rest), c in terms.items():
        if a < 0:
            raise UserError("a cost is a sum of products of L, l, m and d.")
        for k in range(a + 1):
            key = (k, *rest)
            found[key] = found.get(key, Fraction(0)) + c * math.comb(a, k) * 2 ** (a - k)
    return {key: c for key, c in found.items() if c}


def _not_dominated(
    terms: Mapping[Powers, Fraction], others: Mapping[Powers, Fraction]
) -> dict[Powers, Powers]:
    """Terms that outgrow the others, each with the direction in which it does."""
    rivals = [np.array(_rays(key)) for key in others]
    means = [
        a + share * (b - a) for a in rivals for b in rivals for share in (0, 1 / 4, 1 / 3, 1 / 2)
    ]
    found: dict[Powers, Powers] = {}
    for key in terms:
        own = np.array(_rays(key))
        if any((mean >= own).all() for mean in means):
            continue
        directions = itertools.product(range(9), repeat=4)
        outgrown = (x for x in directions if own @ x > max(rival @ x for rival in rivals))
        found[key] = min(outgrown, key=lambda x: (sum(x), x), default=(1, 1, 1, 1))
    return found


def _wrong_cost(
    draft: CheckResult,
    name: str,
    written: Mapping[Powers, Fraction],
    exact: Mapping[Powers, Fraction],
    missing: Mapping[Powers, Powers],
    extra: Mapping[Powers, Powers],
) -> CheckResult:
    worst = max((extra or missing).items(), key=lambda item: sum(item[0]))
    key, (L, alone, both, d) = worst
    what = f"the term {_term(key)} is {'too large' if extra else 'missing'}"
    scale = 2
    while True:
        sizes = {"L": scale**L + 2, "l": scale ** (alone + both), "m": scale**both, "d": scale**d}
        grown = sizes | {"L": sizes["L"] - 2}
        says, does = (_cost_of(x, grown) for x in (written, exact))
        ratio = says / does if extra else does / max(says, 1e-300)
        if ratio >= 100 or scale > 10**6:
            break
        scale *= 2
    if ratio < 100:
        because = f"{name} could not be compared term by term."
        return replace(draft, verdict="inconclusive", because=because)
    at = ", ".join(f"{x} = {n:,}" for x, n in sizes.items() if x != "d" or any(k[3] for k in exact))
    sentence = (
        f"with {at} the model multiplies {does:,.0f} times and what is written is {says:,.0f}; "
        "the quotient grows without bound in this direction."
    )
    example = Counterexample(sizes, {"written": says, "counted": does}, sentence)
    return replace(draft, verdict="refuted", because=f"{name}: {what}.", counterexample=example)


def _cost_of(terms: Mapping[Powers, Fraction], sizes: Mapping[str, int]) -> float:
    return float(sum(c * math.prod(sizes[x] ** p for x, p in zip(SIZES, key, strict=True))
                     for key, c in terms.items()))  # fmt: skip


def _term(key: Powers) -> str:
    return show({tuple((x, p) for x, p in zip(SIZES, key, strict=True) if p): Fraction(1)})


# ---- variances


P_NEGATIVE = 0.5 * math.erfc(1.0)  # P(e < 0) for e ~ N(1, 1/2)
LIMITS = {
    "var_one": 0.25,
    "var_c1": P_NEGATIVE * (1 - P_NEGATIVE),
    "var_norm": P_NEGATIVE * (1 - P_NEGATIVE) / 4,
}
SAME: dict[str, Terms] = {"var_c2": constant(0), "var_c": {(("var_c1", 1),): Fraction(1, 4)}}
VARIANCE = re.compile(
    r"(?:\\(?:mathrm|text|operatorname)\s*\{\s*)?\b[Vv]ar(?:iance)?\}?\s*(?:of\s+)?[\[(_{]*\s*"
    r"(c_?\{?[12]\}?|c|one|norm\w*)\b\}?[\])}]*"
)
RELATIONS = {
    "<=": r"<=|≤|\\leq?\b|is at most", ">=": r">=|≥|\\geq?\b|is at least",
    "->": r"->|→|\\to\b|\\rightarrow\b|tends to|approaches",
    "~": r"~|≈|\\approx\b|is about",
    "<": r"<<|≪|\\ll\b|<|is (?:smaller|less|lower) than",
    ">": r">>|≫|\\gg\b|>|is (?:larger|greater|bigger|higher) than", "=": r"==|=|equals",
}  # fmt: skip
RELATION = re.compile("|".join(f"(?:{pattern})" for pattern in RELATIONS.values()))


def judge_variance(problem: Problem, texts: Sequence[str], draft: CheckResult) -> CheckResult:
    """Every claim of the texts; the first that is not right decides."""
    claims = [part for text in texts for part in re.split(r"[;\n]|,(?!\s*\d)|\band\b", text)]
    results = []
    for claim in (claim.strip(" $.\t") for claim in claims if claim.strip(" $.\t")):
        results.append(_judge_claim(problem, claim, draft))
        if not results[-1].passed:
            break
    if not results:
        raise UserError('a claim compares two things, as in "var_c < var_one".')
    read = {
        f"claim {i}" if len(results) > 1 else "claim": r.read_as["claim"]
        for i, r in enumerate(results, 1)
    }
    worst = next((r for r in results if r.verdict != "proved"), results[-1])
    derived = tuple(dict.fromkeys(line for result in results for line in result.derived))
    return replace(worst, read_as=read, derived=derived, construction=dict(read))


def _judge_claim(problem: Problem, claim: str, draft: CheckResult) -> CheckResult:
    def named(found: re.Match[str]) -> str:
        which = re.sub(r"[_{}]", "", found[1])
        name = "var_norm" if which.startswith("norm") else f"var_{which}"
        return name.ljust(len(found[0]))  # columns stay where the writer sees them

    plain = VARIANCE.sub(named, claim)
    found = list(RELATION.finditer(plain))
    if len(found) != 1:
        sentence = 'a claim has one comparison, as in "var_c < var_one" or "var_one -> 1/4".'
        raise ExpressionError(sentence, claim, found[1].start() + 1 if found else 1)
    sign = next(name for name, pattern in RELATIONS.items() if re.fullmatch(pattern, found[0][0]))
    shapes = {given.name: given.shape for given in problem.givens}
    start, end = found[0].span()
    sides = []
    for text in (plain[:start], " " * end + plain[end:]):  # columns stay where they are
        try:
            sides.append(parse(text, problem.spellings(), problem.refused, shapes))
        except ExpressionError as mistake:
            column = mistake.column if text.strip() else (1 if text == plain[:start] else end + 1)
            raise ExpressionError(mistake.sentence, claim, column) from None
    read = f"{write(sides[0].tree)} {sign} {write(sides[1].tree)}"
    draft = replace(draft, read_as={"claim": read}, construction={"claim": claim})
    try:
        left, right = (evaluate(side, Polynomials(SAME)) for side in sides)
    except NotExactError:
        because = "a claim compares sums and products of the variances and numbers."
        return replace(draft, verdict="inconclusive", because=because)
    return _compare(draft, sign, left, right)


def _compare(draft: CheckResult, sign: str, left: Terms, right: Terms) -> CheckResult:
    gap = plus(left, right, -1)
    names = {name for key in gap for name, _ in key}
    derived = [
        f"{x} -> {LIMITS[x]:.6g} as beta grows, for every n" for x in sorted(names & set(LIMITS))
    ]
    draft = replace(draft, derived=tuple(derived))
    right_way = {"<": gap_below, "<=": gap_below, ">": gap_above, ">=": gap_above}.get(sign)
    if not gap:
        if sign in ("<", ">"):
            return _claim_fails(
                draft, sign, left, right, "the two sides are equal at every n and beta"
            )
        because = "the two sides are equal at every n and beta: c_2 does not move, so Var(c_2) = 0 "
        return replace(draft, because=because + "and Var(c) = Var(c_1)/4.")
    if names <= set(LIMITS):
        limit = value(gap, dict(LIMITS)).real
        ends = f"the left side tends to {value(left, dict(LIMITS)).real:.6g} and the right side to "
        ends += f"{value(right, dict(LIMITS)).real:.6g}, for every n"
        close = 0.01 * abs(value(right, dict(LIMITS)))
        if sign == "~" and abs(limit) <= max(close, 1e-9):
            return replace(draft, because=f"{ends}: the same to one in a hundred.")
        if abs(limit) > 1e-9:
            if right_way is not None and right_way(limit):
                draft = replace(draft, because=f"{ends}; so it is true from some beta on.")
                return draft if _true_far_out(sign, gap) else _fault(draft)
            return _claim_fails(draft, sign, left, right, ends)
        if sign == "->":
            return replace(draft, because=f"{ends}.")
    elif sign in ("->", "~"):
        because = "a limit is a number or one of the variances."
        return replace(draft, verdict="inconclusive", because=because)
    if all(
        _true(sign, _gap_at(gap, n, beta))
        for n in (3, 4, 10, 100)
        for beta in (5.0, 10.0, 20.0, 50.0, 200.0)
    ):
        because = "true wherever it was tried (n = 3 to 100, beta = 5 to 200). That is no proof."
        return replace(draft, verdict="holds", because=because)
    why = (
        "the limits are equal, the values are not"
        if sign == "="
        else "it fails for some n and beta"
    )
    return _claim_fails(draft, sign, left, right, why)


def gap_below(x: float) -> bool:
    return x < 0


def gap_above(x: float) -> bool:
    return x > 0


def _true(sign: str, gap: float) -> bool:
    if sign == "=":
        return abs(gap) < 1e-12
    return (
        gap < 1e-12
        if sign == "<="
        else gap > -1e-12
        if sign == ">="
        else gap < 0
        if sign == "<"
        else gap > 0
    )


def _true_far_out(sign: str, gap: Terms) -> bool:
    """The second, independent check of a proof: by the laws at every n up to 30."""
    return all(_true(sign, _gap_at(gap, n, beta)) for n in range(3, 31) for beta in (200.0, 1000.0))


def _fault(draft: CheckResult) -> CheckResult:
    because = "the laws contradict the limits: a fault of the checker."
    return replace(draft, verdict="inconclusive", because=because)


def variances(n: int, beta: float) -> dict[str, float]:
    """The variances of the weight on a, by the exact laws."""
    from wherefrom.attention.laws import law_of_logits, normalised_law

    both, one = np.zeros(n), np.zeros(n)
    both[:2], one[0] = beta, beta
    noise = np.zeros(n)
    noise[0] = beta * math.sqrt(0.5)
    of_head = law_of_logits(one, noise, 0).sd ** 2
    return {
        "var_one": law_of_logits(both, noise, 0).sd ** 2,
        "var_c1": of_head,
        "var_c2": 0.0,
        "var_c": of_head / 4,
        "var_norm": normalised_law(n, beta)[1] ** 2,
    }


def _gap_at(gap: Terms, n: int, beta: float) -> float:
    return value(gap, {**variances(n, beta), "n": n, "beta": beta}).real


def _claim_fails(draft: CheckResult, sign: str, left: Terms, right: Terms, why: str) -> CheckResult:
    gap = plus(left, right, -1)
    for n, beta in itertools.product((3, 4, 10, 100), (10.0, 20.0, 50.0, 200.0, 5.0, 1000.0)):
        if sign in ("->", "~") or not _true(sign, _gap_at(gap, n, beta)):
            numbers: dict[str, Any] = {"beta": beta}
            numbers |= {name: round(x, 6) for name, x in variances(n, beta).items()}
            at = {**variances(n, beta), "n": n, "beta": beta}
            sides = [value(side, at).real for side in (left, right)]
            sentence = (
                f"with n = {n} and beta = {beta:g} the sides are {sides[0]:.6g} and {sides[1]:.6g}."
            )
            example = Counterexample({"n": n}, numbers, sentence)
            return replace(draft, verdict="refuted", because=why + ".", counterexample=example)
    because = f"{why}, but no n and beta that were tried show it."
    return replace(draft, verdict="inconclusive", because=because)


# ---- keys given as numbers


def judge_hull(construction: Construction, draft: CheckResult) -> CheckResult:
    try:
        found = {n: evaluate(e, Polynomials()) for n, e in construction.expressions.items()}
    except NotExactError:
        raise UserError("keys are given as numbers, one row in brackets each.") from None
    keys = _numbers_of(found["K"], "K")
    if "q" in found:
        return _judge_query(draft, keys, found["q"])
    if "w" in found:
        return _judge_mixture(draft, keys, _numbers_of(found["w"], "w", row=True)[0])
    from wherefrom.attention.designs import copyability

    margin, mixture, most = copyability(np.array(keys, dtype=float), 0)
    if margin > 0:
        nearest = mixture @ np.array(keys, dtype=float)
        direction = np.array(keys[0], dtype=float) - nearest
        q = [Fraction(x / np.abs(direction).max()).limit_denominator(1000) for x in direction]
        text = ", ".join(map(str, q))
        draft = _judge_query(draft, keys, [{(("beta", 1),): x} if x else {} for x in q])
        if draft.verdict == "refuted":
            because = (
                "it can be copied in floating point, but no simple query in fractions was found."
            )
            return replace(draft, verdict="holds", because=because, counterexample=None)
        because = f"key 1 is a corner of the convex hull, and q = beta*({text}) copies it."
        return replace(draft, because=because)
    from scipy.optimize import nnls

    table = np.vstack([np.array(keys, dtype=float).T, np.ones(len(keys))])
    few = nnls(table[:, 1:], table[:, 0])[0]  # of few keys, so with small denominators
    weights = [Fraction(x).limit_denominator(100_000) for x in few]
    shown = _judge_mixture(draft, keys, weights)
    if shown.verdict != "proved":
        because = f"key 1 lies within the hull of the others to rounding: at most {most:.4g}."
        return replace(draft, verdict="inconclusive", because=because)
    parts = [f"{x} k_{i}" for i, x in enumerate(weights, start=2) if x]
    because = (
        f"key 1 is {' + '.join(parts)}, so no query gives it more than {most:.4g} of the weight."
    )
    sentence = f"k_1.q is the same mixture of the other k_i.q for every q: {' + '.join(parts)}."
    numbers = {"K": [[float(x) for x in row] for row in keys], "most": most}
    example = Counterexample({"n": len(keys), "d": len(keys[0])}, numbers, sentence)
    return replace(draft, verdict="refuted", because=because, counterexample=example)


def _numbers_of(table: Any, name: str, *, row: bool = False) -> list[list[Fraction]]:
    """Rows of plain numbers; a single row is a column of keys unless a row is wanted."""
    rows = table if isinstance(table, list) else [table]
    if not any(isinstance(each, list) for each in rows):
        rows = [rows] if row else [[each] for each in rows]
    if len({len(each) if isinstance(each, list) else 0 for each in rows}) > 1:
        raise UserError(f"the rows of {name} must have the same number of entries.")
    if any(set(x) - {()} for each in rows for x in each):
        raise UserError(f"{name} is made of numbers, as in [[1, 0], [0, 1]].")
    if name == "K" and len(rows) < 2:
        raise UserError("K needs two keys at least, as in [[1, 0], [0, 1]].")
    return [[x.get((), Fraction(0)) for x in each] for each in rows]


def _judge_query(draft: CheckResult, keys: list[list[Fraction]], query: Any) -> CheckResult:
    q = query if isinstance(query, list) else [query]
    if len(q) != len(keys[0]) or any(isinstance(x, list) for x in q):
        raise UserError(f"q needs {len(keys[0])} entries, as many as each key.")
    slowest: tuple[int, Fraction] | None = None
    for i, key in enumerate(keys[1:], start=2):
        lead: Terms = {}
        for a, b, x in zip(keys[0], key, q, strict=True):
            lead = plus(lead, {k: c * (a - b) for k, c in x.items()})
        powers = {dict(k).get("beta", 0): c for k, c in lead.items() if c}
        top = max(powers, default=0)
        if {x for k in lead for x, _ in k} - {"beta"}:
            raise UserError("q is made of numbers and beta.")
        if top < 1 or powers[top] < 0:
            because = f"k_1.q - k_{i}.q = {show(lead)} does not grow with beta"
            weights = _weights(keys, q, 10.0)
            sentence = f"with beta = 10 the weights are {np.round(weights, 4).tolist()}."
            numbers = {"weights": np.round(weights, 6).tolist()}
            example = Counterexample({"n": len(keys), "d": len(keys[0])}, numbers, sentence)
            return replace(draft, verdict="refuted", because=because + ".", counterexample=example)
        slowest = min(slowest or (top, powers[top]), (top, powers[top]))
    assert slowest is not None
    level = math.log((len(keys) - 1) * (1 - draft.tolerance) / draft.tolerance)
    formula = f"every lead >= ln((n-1)*(1-eps)/eps) = {level:.4g}"
    beta = max(0.0, level / float(slowest[1])) ** (1 / slowest[0])
    because = "the logit of key 1 runs away from every other as beta grows."
    needed = BetaNeeded(formula, beta, len(keys), {len(keys): beta})
    return replace(draft, because=because, beta=needed)


def _weights(keys: list[list[Fraction]], q: Sequence[Terms], beta: float) -> Any:
    from wherefrom.attention.equation import attend

    table = np.array(keys, dtype=float)
    return attend(np.array([value(x, {"beta": beta}).real for x in q]), table, table).weights


def _judge_mixture(
    draft: CheckResult, keys: list[list[Fraction]], w: Sequence[Fraction]
) -> CheckResult:
    """Weights over the other keys that make key 1: a proof that it cannot be copied."""
    if len(w) != len(keys) - 1:
        raise UserError(f"w needs {len(keys) - 1} entries, one for each key but the first.")
    mixed = [
        sum((x * key[i] for x, key in zip(w, keys[1:], strict=True)), Fraction(0))
        for i in range(len(keys[0]))
    ]
    wrong = ""
    if min(w) < 0 or sum(w) != 1:
        wrong = f"w must be 0 or more and sum to one; it sums to {sum(w)}"
    elif mixed != keys[0]:
        texts = [", ".join(map(str, row)) for row in (mixed, keys[0])]
        wrong = f"the mixture is ({texts[0]}) and key 1 is ({texts[1]})"
    if wrong:
        example = Counterexample(
            {"n": len(keys)}, {"mixture": [float(x) for x in mixed]}, wrong + "."
        )
        return replace(draft, verdict="refuted", because=wrong + ".", counterexample=example)
    entropy = -sum(float(x) * math.log(x) for x in w if x)
    most = 1 / (1 + math.exp(entropy))
    because = f"key 1 is this mixture of the others, so no query gives it more than {most:.4g}."
    return replace(draft, because=because)
