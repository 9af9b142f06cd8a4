"""Judging claims: the cost of a model, variances under noisy keys, keys given as numbers."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from wherefrom.attention.checker.algebra import NotExactError, Poly, Polynomials, constant, symbol
from wherefrom.attention.checker.language import Construction, evaluate, parse, write
from wherefrom.attention.checker.problems import BetaNeeded, CheckResult, Problem
from wherefrom.attention.checker.reading import ExpressionError, decimal_points, say
from wherefrom.attention.positions import model_cost
from wherefrom.errors import UserError

SIZES = ("L", "l", "m", "d")
Powers = tuple[int, ...]  # of L, l, m and d


def judge_cost(construction: Construction, draft: CheckResult) -> CheckResult:
    """Is each written cost that of our model, up to constants, on L >= 3, l >= m >= 1, d >= 1?
    Compared in powers of L - 2, which is 1 at least, l, m and d."""
    L, l, m, d = map(symbol, SIZES)  # noqa: E741
    reasons = []
    for name, expression in construction.expressions.items():
        try:
            written = Polynomials().one(expression)
        except NotExactError:
            return draft.judged("inconclusive", say("not_a_cost", name=name))
        line = f"{name} multiplies exactly {_text(model_cost(name, L, l, m, d))} times"
        draft = replace(draft, derived=(*draft.derived, line))
        if any(power < 0 for power in written.by_power("L")):
            raise UserError("a cost is a sum of products of L, l, m and d.")
        without_d = "d" not in written.names
        grown, by_L = L + constant(2), written.by_power("L").items()
        says = sum((rest * grown ** int(power) for power, rest in by_L), Poly())
        does = model_cost(name, grown, l, m, constant(1) if without_d else d)
        if not says or min(says.values()) < 0:
            because, told = say("no_cost_is_negative", name=name), str(written)
            return draft.refuted(because, f"L = 3 in {told}.", {"L": 3}, {"written": told})
        terms, exact = _powers(says), _powers(does)
        missing, extra = _not_dominated(exact, terms), _not_dominated(terms, exact)
        attention = [key for key in exact if key[3] < 2]
        if missing and not extra and not without_d and not _not_dominated(attention, terms):
            rest = _text(_term(max(missing, key=sum)))
            reasons.append(say("attention_alone", name=name, rest=rest))
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
    found: dict[Powers, Powers] = {}
    for a, b, c, d in terms:
        own = np.array((a, b, b + c, d))
        if not any((mean >= own).all() for mean in means):
            directions = np.array(list(itertools.product(range(9), repeat=4)))
            outgrown = directions[directions @ own > (directions @ rivals.T).max(axis=1)].tolist()
            shortest = min(outgrown, key=lambda x: (sum(x), x), default=(1, 1, 1, 1))
            found[a, b, c, d] = tuple(shortest)
    return found


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


# as beta grows the weights become steps of the length e, so that these limits are exact
P_NEGATIVE = 0.5 * math.erfc(1.0)  # P(e < 0) for e ~ N(1, 1/2)
LIMITS = {
    "var_one": 0.25,
    "var_c1": P_NEGATIVE * (1 - P_NEGATIVE),
    "var_norm": P_NEGATIVE * (1 - P_NEGATIVE) / 4,
}
# c_2 does not move, so that these hold at every n and beta
SAME = {"var_c2": Poly(), "var_c": Fraction(1, 4) * symbol("var_c1")}
VARIANCE = re.compile(
    r"(?:\b[Tt]he\s+)?(?:\\(?:mathrm|text|operatorname|mathbb)\s*\{\s*)?(?:\b[Vv]ar(?:iance)?\}?"
    r"|\b(?:V|Var)(?=\s*[\[(])\}?|(?:\\sigma|σ)(?:\^?\{?[2²]\}?))\s*(?:of\s+)?(?:the\s+)?[\[(_{]*\s*"
    r"(c_?\{?[12]\}?|c|one|norm\w*)(?![a-zA-Z])\}?[\])}]*"
)
RELATIONS = {
    "<=": r"<=|≤|\\leq?\b|is at most", ">=": r">=|≥|\\geq?\b|is at least",
    "->": r"->|→|\\to\b|\\rightarrow\b|tends to|approaches",
    "~": r"~|≈|\\approx\b|is about",
    "<": r"<<|≪|\\ll\b|<|is (?:smaller|less|lower) than",
    ">": r">>|≫|\\gg\b|>|is (?:larger|greater|bigger|higher) than", "=": r"==|=|equals",
}  # fmt: skip
RELATION = re.compile("|".join(f"(?:{pattern})" for pattern in RELATIONS.values()))
TRUE: dict[str, Callable[[float], bool]] = {  # what a relation says of left - right
    "=": lambda gap: abs(gap) < 1e-12,
    "<=": lambda gap: gap < 1e-12,
    ">=": lambda gap: gap > -1e-12,
    "<": lambda gap: gap < 0,
    ">": lambda gap: gap > 0,
    "->": lambda _: False,
    "~": lambda _: False,
}


def judge_variance(problem: Problem, texts: Sequence[str], draft: CheckResult) -> CheckResult:
    """Every claim of the texts; the first that is not right decides."""
    claims = [part for text in texts for part in re.split(r"[;\n]|,(?!\s*\d)|\band\b", text)]
    results = list[CheckResult]()
    stripped = (decimal_points(claim.strip(" $.\t")) for claim in claims)
    for claim in (link for whole in stripped if whole for link in _links(whole)):
        sign, left, right, read = _read_claim(problem, claim)
        claimed = replace(draft, read_as={"claim": read})
        try:
            sides = [Polynomials(SAME).one(side) for side in (left, right)]
            results.append(_compare(claimed, sign, *sides))
        except NotExactError:
            results.append(claimed.judged("inconclusive", say("variances_only")))
        if not results[-1].passed:
            break
    if not results:
        raise UserError('a claim compares two things, as in "var_c < var_one".')
    read_as = {
        f"claim {i}" if len(results) > 1 else "claim": r.read_as["claim"]
        for i, r in enumerate(results, 1)
    }
    worst = next((r for r in results if r.verdict != "proved"), results[-1])
    derived = tuple(dict.fromkeys(line for result in results for line in result.derived))
    return replace(worst, read_as=read_as, derived=derived, construction=dict(read_as))


def _links(claim: str) -> list[str]:
    """a < b < c as a < b and b < c."""
    signs = list(RELATION.finditer(claim))
    starts = [0, *(sign.end() for sign in signs)]
    ends = [*(sign.start() for sign in signs[1:]), len(claim)]
    return [claim[start:end] for start, end in zip(starts, ends, strict=False)]


def _read_claim(problem: Problem, claim: str) -> tuple[str, Any, Any, str]:
    """The relation, both sides, and the claim as it was understood; columns stay where they are."""

    def named(found: re.Match[str]) -> str:
        which = re.sub(r"[_{}]", "", found[1])
        name = "var_norm" if which.startswith("norm") else f"var_{which}"
        return name.ljust(len(found[0]))

    plain = VARIANCE.sub(named, claim.replace("₁", "1").replace("₂", "2"))
    found = list(RELATION.finditer(plain))
    if len(found) != 1:
        sentence = 'a claim has one comparison, as in "var_c < var_one" or "var_one -> 1/4".'
        raise ExpressionError(sentence, claim, found[1].start() + 1 if found else 1)
    sign = next(name for name, pattern in RELATIONS.items() if re.fullmatch(pattern, found[0][0]))
    shapes = {given.name: given.shape for given in problem.givens}
    start, end = found[0].span()
    sides = []
    for text in (plain[:start], " " * end + plain[end:]):
        try:
            sides.append(parse(text, problem.spellings(), problem.refused, shapes))
        except ExpressionError as mistake:
            column = mistake.column if text.strip() else (1 if text == plain[:start] else end + 1)
            raise ExpressionError(mistake.sentence, claim, column) from None
    return sign, sides[0], sides[1], f"{write(sides[0].tree)} {sign} {write(sides[1].tree)}"


def _compare(draft: CheckResult, sign: str, left: Poly, right: Poly) -> CheckResult:
    gap = left - right
    known = sorted(gap.names & set(LIMITS))
    lines = tuple(f"{x} -> {LIMITS[x]:.6g} as beta grows, for every n" for x in known)
    draft = replace(draft, derived=lines)
    if not gap:
        if sign in ("<", ">"):
            return _claim_fails(draft, sign, left, right, say("sides_equal"))
        return draft.judged("proved", say("sides_equal_why"))
    if left.names | right.names <= set(LIMITS):
        ends, limit = [float(side.at(LIMITS)) for side in (left, right)], float(gap.at(LIMITS))
        because = say("sides_tend", left=ends[0], right=ends[1])
        if sign == "~" and abs(limit) <= max(0.01 * abs(ends[1]), 1e-9):
            return draft.judged("proved", f"{because}: the same to one in a hundred.")
        if abs(limit) > 1e-9 and not (sign != "=" and TRUE[sign](limit)):
            return _claim_fails(draft, sign, left, right, because)
        if abs(limit) > 1e-9:  # by the laws at every n up to 30: the second check of a proof
            if all(TRUE[sign](_at(gap, n, b)) for n in range(3, 31) for b in (200.0, 1000.0)):
                return draft.judged("proved", f"{because}; so it is true from some beta on.")
            return draft.judged("inconclusive", say("fault", what="the laws"))
        if sign == "->":
            return draft.judged("proved", f"{because}.")
    elif sign in ("->", "~"):
        return draft.judged("inconclusive", say("limit_of_a_variance"))
    tried = itertools.product((3, 4, 10, 100), (5.0, 10.0, 20.0, 50.0, 200.0))
    if all(TRUE[sign](_at(gap, n, beta)) for n, beta in tried):
        return draft.judged("holds", say("true_where_tried"))
    why = "same_limit" if sign == "=" else "fails_somewhere"
    return _claim_fails(draft, sign, left, right, say(why))


def variances(n: int, beta: float) -> dict[str, float]:
    """The variances of the weight on a, by the exact laws."""
    from wherefrom.attention.laws import law_of_logits, normalised_law

    both, one, noise = (np.zeros(n) for _ in range(3))
    both[:2], one[0], noise[0] = beta, beta, beta * math.sqrt(0.5)
    of_head = law_of_logits(one, noise, 0).sd ** 2
    return {
        "var_one": law_of_logits(both, noise, 0).sd ** 2,
        "var_c1": of_head,
        "var_c2": 0.0,
        "var_c": of_head / 4,
        "var_norm": normalised_law(n, beta)[1] ** 2,
    }


def _at(side: Poly, n: int, beta: float) -> float:
    return float(side.at({**variances(n, beta), "n": n, "beta": beta}))


def _claim_fails(draft: CheckResult, sign: str, left: Poly, right: Poly, why: str) -> CheckResult:
    """Refuted, with the first n and beta that show it."""
    for n, beta in itertools.product((3, 4, 10, 100), (10.0, 20.0, 50.0, 200.0, 5.0, 1000.0)):
        if not TRUE[sign](_at(left - right, n, beta)):
            found = {name: round(x, 6) for name, x in variances(n, beta).items()}
            numbers = {"beta": beta, **found}
            sides = " and ".join(f"{_at(side, n, beta):.6g}" for side in (left, right))
            sentence = say("sides_shown", n=n, beta=beta, sides=sides)
            return draft.refuted(why + ".", sentence, {"n": n}, numbers)
    return draft.judged("inconclusive", say("sides_not_shown", why=why))


def judge_hull(construction: Construction, draft: CheckResult) -> CheckResult:
    """Can key 1 be copied at all; does q copy it; is it the mixture w of the others, so that
    nothing does? All in fractions."""
    try:
        found = {n: evaluate(e, Polynomials()) for n, e in construction.expressions.items()}
    except NotExactError:
        raise UserError("keys are given as numbers, one row in brackets each.") from None
    keys = _numbers_of(found["K"], "K")
    if "q" in found:
        return _judge_query(draft, keys, found["q"])
    if "w" in found:
        return _judge_mixture(draft, keys, _numbers_of(found["w"], "w")[0])
    from wherefrom.attention.designs import copyability

    table = np.array(keys, dtype=float)
    margin, mixture, most = copyability(table, 0)
    if margin > 0:
        direction = table[0] - mixture @ table
        q = [Fraction(x / np.abs(direction).max()).limit_denominator(1000) for x in direction]
        draft = _judge_query(draft, keys, [x * symbol("beta") for x in q])
        if draft.verdict == "refuted":
            return draft.judged("holds", say("no_simple_query"), counterexample=None)
        return replace(draft, because=say("key_is_a_corner", q=", ".join(map(str, q))))
    from scipy.optimize import nnls

    rows = np.vstack([table.T, np.ones(len(keys))])
    few = nnls(rows[:, 1:], rows[:, 0])[0]  # of few keys, so with small denominators
    weights = [Fraction(x).limit_denominator(100_000) for x in few]
    if _judge_mixture(draft, keys, weights).verdict != "proved":
        return draft.judged("inconclusive", say("hull_too_near"))
    told = " + ".join(f"{x} k_{i}" for i, x in enumerate(weights, start=2) if x)
    because, sentence = say("key_is_mixed", told=told, most=most), say("same_mixture", told=told)
    sizes = {"n": len(keys), "d": len(keys[0])}
    return draft.refuted(because, sentence, sizes, {"K": table.tolist(), "most": most})


def _numbers_of(table: Any, name: str) -> list[list[Fraction]]:
    """Rows of plain numbers; a single row of numbers is one row w, or a column of keys K."""
    rows = table if isinstance(table, list) else [table]
    if not any(isinstance(each, list) for each in rows):
        rows = [rows] if name == "w" else [[each] for each in rows]
    if len({len(each) if isinstance(each, list) else 0 for each in rows}) > 1:
        raise UserError(f"the rows of {name} must have the same number of entries.")
    if any(isinstance(x, list) or set(x) - {()} for each in rows for x in each):
        raise UserError(f"{name} is made of numbers, as in [[1, 0], [0, 1]].")
    if name == "K" and len(rows) < 2:
        raise UserError("K needs two keys at least, as in [[1, 0], [0, 1]].")
    return [[x.get((), Fraction(0)) for x in each] for each in rows]


def _judge_query(draft: CheckResult, keys: list[list[Fraction]], query: Any) -> CheckResult:
    q = query if isinstance(query, list) else [query]
    sizes = {"n": len(keys), "d": len(keys[0])}
    if len(q) != sizes["d"] or any(isinstance(x, list) for x in q):
        raise UserError(f"q needs {sizes['d']} entries, as many as each key.")
    leads = []
    for i, key in enumerate(keys[1:], start=2):
        gaps = [a - b for a, b in zip(keys[0], key, strict=True)]
        lead = sum((gap * x for gap, x in zip(gaps, q, strict=True)), Poly())
        if lead.names - {"beta"}:
            raise UserError("q is made of numbers and beta.")
        powers = lead.by_power("beta")
        top = max(powers, default=0)
        if top < 1 or powers[top][()] < 0:
            from wherefrom.attention.equation import attend

            table = np.array(keys, dtype=float)
            numbers = np.array([float(x.at({"beta": 10.0})) for x in q])
            weights = np.round(attend(numbers, table, table).weights, 6).tolist()
            sentence = say("lead_stays_shown", weights=np.round(weights, 4).tolist())
            because = say("lead_stays", i=i, lead=lead)
            return draft.refuted(because, sentence, sizes, {"weights": weights})
        leads.append((top, powers[top][()]))
    order, slope = min(leads)
    level = math.log((len(keys) - 1) * (1 - draft.tolerance) / draft.tolerance)
    beta = max(0.0, level / float(slope)) ** (1 / order)
    needed = BetaNeeded(say("every_lead", level=level), beta, len(keys), {len(keys): beta})
    return draft.judged("proved", say("lead_of_key_1"), beta=needed)


def _judge_mixture(
    draft: CheckResult, keys: list[list[Fraction]], w: Sequence[Fraction]
) -> CheckResult:
    """Weights over the other keys that make key 1: a proof that it cannot be copied."""
    if len(w) != len(keys) - 1:
        raise UserError(f"w needs {len(keys) - 1} entries, one for each key but the first.")
    columns = list(zip(*keys[1:], strict=True))
    mixed = [
        sum((x * y for x, y in zip(w, column, strict=True)), Fraction(0)) for column in columns
    ]
    wrong = ""
    if min(w) < 0 or sum(w) != 1:
        wrong = say("weights_of_a_mixture", total=sum(w))
    elif mixed != keys[0]:
        texts = [", ".join(map(str, row)) for row in (mixed, keys[0])]
        wrong = say("another_mixture", mixed=texts[0], key=texts[1])
    if wrong:
        numbers = {"mixture": [float(x) for x in mixed]}
        return draft.refuted(wrong, wrong, {"n": len(keys)}, numbers)
    most = 1 / (1 + math.exp(-sum(float(x) * math.log(x) for x in w if x)))
    return draft.judged("proved", say("this_mixture", most=most))
