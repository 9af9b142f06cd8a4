"""The verifier: accepts a certificate or says what is wrong with it. No proof without it.

It shares no code with the rest of the checker. A certificate of "claims" says, for exact quotients
of polynomials in beta, n and atoms, on which intervals of n which power of beta leads with which
sign; the verifier sees that the intervals cover every n, that the signs are right on each, that
each claim follows, and that samples measured in floats agree. Other kinds are checked in full.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath

SAMPLE_TOLERANCE = 1e-6
DIGITS = 60


def verify(certificate: dict[str, Any]) -> str:
    """An empty text if the certificate is right, else what is wrong."""
    kinds = {
        "claims": _claims,
        "mixture": _mixture,
        "query": _query,
        "domination": _domination,
        "layer": _layer,
        "distances": _distances,
    }
    check = kinds.get(certificate.get("kind", ""))
    return check(certificate) if check else "there is no such certificate"


def _claims(certificate: dict[str, Any]) -> str:
    atoms = certificate["atoms"]
    for claim in certificate["claims"]:
        expected = certificate["least_n"]
        for low, high, order, sign in claim["pieces"]:
            if low != expected:
                return "the intervals do not follow one another"
            top, bottom = (_lead(claim[part], atoms, low, high) for part in ("top", "bottom"))
            if top is None or bottom is None or bottom[1] == 0:
                return "a sign is not the same on an interval"
            if (order, sign) != (top[0] - bottom[0], top[1] * bottom[1]):
                return "a leading power or its sign is not as stated"
            if not _follows(claim["must"], order, sign):
                return f"a number is not {claim['must']} on an interval"
            expected = None if high is None else high + 1
        if expected is not None and claim["pieces"][-1][0] != claim["pieces"][-1][1]:
            return "the intervals do not cover every n"
    for sample in certificate["samples"]:
        for claim in certificate["claims"]:
            if claim["name"] in sample and not _agrees(claim, atoms, sample):
                return f"{claim['name']} is not what was measured"
    return ""


def _follows(must: str, order: Any, sign: int) -> bool:
    if must == "grows":
        return sign == 1 and order > 0
    if must in ("vanishes", "not above"):
        return sign == 0 or order < 0 or (must == "not above" and sign == -1)
    if must == "nonzero":
        return sign != 0
    return sign in {"zero": (0,), "positive": (1,), "nonnegative": (0, 1)}[must]


def _agrees(claim: dict[str, Any], atoms: dict[str, Any], sample: dict[str, Any]) -> bool:
    with mpmath.workdps(DIGITS):
        values = {name: mpmath.mpf(sample[name]) for name in ("n", "beta")}
        top, bottom = (_value(claim[part], atoms, values) for part in ("top", "bottom"))
        gap = abs(top - sample[claim["name"]] * bottom)
        return bool(gap <= SAMPLE_TOLERANCE * max(abs(top), sample.get("scale", 1.0) * abs(bottom)))


def _value(p: dict[Any, Fraction], atoms: dict[str, Any], values: dict[str, Any]) -> Any:
    """In mpmath; the caller sets the precision."""
    total = mpmath.mpf(0)
    for key, c in p.items():
        product = mpmath.mpf(c.numerator) / c.denominator
        for name, power in key:
            base = values[name] if name in values else _atom_value(name, atoms, values)
            product *= mpmath.power(base, mpmath.mpf(power.numerator) / power.denominator)
        total += product
    return total


def _atom_value(name: str, atoms: dict[str, Any], values: dict[str, Any]) -> Any:
    kind = atoms[name]["kind"]
    if kind == "constant":
        below = mpmath.erfc(1) / 2
        return {"e": mpmath.e, "pi": mpmath.pi, "p0": below * (1 - below)}[name]
    inside = _value(atoms[name]["argument"], atoms, values)
    return mpmath.sqrt(max(inside, 0)) if kind == "sqrt" else mpmath.log(inside)


def _lead(p: dict[Any, Any], atoms: dict[str, Any], low: int, high: int | None) -> Any:
    """Power and sign of the leading term in beta, if they are the same on the interval."""
    for order, part in sorted(_collect(p, "beta").items(), reverse=True):
        sign = _sign(part, atoms, low, high)
        if sign is None:
            return None
        if sign:
            return order, sign
    return 0, 0


def _collect(p: dict[Any, Any], name: str) -> dict[Any, dict[Any, Any]]:
    parts: dict[Any, dict[Any, Any]] = {}
    for key, c in p.items():
        power = dict(key).get(name, 0)
        parts.setdefault(power, {})[tuple(x for x in key if x[0] != name)] = c
    return parts


def _sign(p: dict[Any, Any], atoms: dict[str, Any], low: int, high: int | None) -> int | None:
    held = {name for key in p for name, _ in key} - {"n"}
    if held - set(atoms):
        return None
    if not held:
        return _plain_sign({(dict(key).get("n", 0)): c for key, c in p.items()}, low, high)
    name = max(held, key=lambda x: atoms[x]["index"])
    parts, argument = _collect(p, name), atoms[name]["argument"]
    if atoms[name]["kind"] != "sqrt":
        above_one = _add(argument, {(): Fraction(-1)}, 1)
        if atoms[name]["kind"] == "constant" or _sign(above_one, atoms, low, high) == 1:
            signs = {_sign(part, atoms, low, high) for part in parts.values()} - {0}
            if len(signs) <= 1:
                return signs.pop() if signs else 0
        return _constant_sign(p, atoms, low, high)
    rest, factor = parts.get(0, {}), parts.get(1, {})
    a, b, inside = (_sign(x, atoms, low, high) for x in (rest, factor, argument))
    if inside == 0:
        return a
    if a is None or b is None or inside != 1:
        return None
    if a * b >= 0:
        return a or b
    gap = _add(_times(rest, rest), _times(_times(factor, factor), argument), -1)
    sign = _sign(_squares_out(gap, atoms), atoms, low, high)
    return None if sign is None else a * sign


def _constant_sign(
    p: dict[Any, Any], atoms: dict[str, Any], low: int, high: int | None
) -> int | None:
    """Of a number without n, or at one n, if it is far from rounding."""
    uses_n = any("n" in dict(key) for key in p) or any(
        any("n" in dict(key) for key in atoms[x]["argument"])
        for key in p
        for x, _ in key
        if x in atoms
    )
    if uses_n and low != high:
        return None
    with mpmath.workdps(DIGITS):
        terms = [_value({key: c}, atoms, {"n": mpmath.mpf(low)}) for key, c in p.items()]
        value, size = sum(terms), sum(map(abs, terms))
        return (value > 0) - (value < 0) if abs(value) > size / 10 ** (DIGITS - 15) else None


def _squares_out(p: dict[Any, Any], atoms: dict[str, Any]) -> dict[Any, Any]:
    """With the square of every root written as what is inside."""
    total: dict[Any, Any] = {}
    for key, c in p.items():
        term: dict[Any, Any] = {tuple(x for x in key if x[0] not in atoms): c}
        for name, power in key:
            if name in atoms:
                root = atoms[name]["kind"] == "sqrt"
                for _ in range(int(power) // 2 if root else 0):
                    term = _squares_out(_times(term, atoms[name]["argument"]), atoms)
                left = power % 2 if root else power
                term = _times(term, {((name, left),): Fraction(1)}) if left else term
        total = _add(total, term, 1)
    return total


def _times(x: dict[Any, Any], y: dict[Any, Any]) -> dict[Any, Any]:
    product: dict[Any, Any] = {}
    for key, c in x.items():
        for key2, c2 in y.items():
            powers = dict(key)
            for name, power in key2:
                powers[name] = powers.get(name, 0) + power
            whole = tuple(sorted((name, power) for name, power in powers.items() if power))
            product[whole] = product.get(whole, 0) + c * c2
    return {key: c for key, c in product.items() if c}


def _add(x: dict[Any, Any], y: dict[Any, Any], factor: int) -> dict[Any, Any]:
    total = dict(x)
    for key, c in y.items():
        total[key] = total.get(key, 0) + factor * c
    return {key: c for key, c in total.items() if c}


def _plain_sign(p: dict[int, Fraction], low: int, high: int | None) -> int | None:
    """Of a polynomial in n: all Bernstein coefficients (or those at low + m) agree in sign."""
    degree = max(p, default=0)
    taylor = [
        sum(c * math.comb(k, j) * Fraction(low) ** (k - j) for k, c in p.items() if k >= j)
        for j in range(degree + 1)
    ]
    if low == high:
        taylor = taylor[:1]
    elif high is not None:
        width = [c * (high - low) ** j for j, c in enumerate(taylor)]
        taylor = [
            sum(width[k] * Fraction(math.comb(j, k), math.comb(degree, k)) for k in range(j + 1))
            for j in range(degree + 1)
        ]
    signs = {(c > 0) - (c < 0) for c in taylor}
    ends = taylor[:1] if high is None else (taylor[0], taylor[-1])
    if len(signs - {0}) > 1 or (signs != {0} and not all(ends)):
        return None
    return next(iter(signs - {0}), 0)


def _mixture(certificate: dict[str, Any]) -> str:
    """Weights that are not negative and sum to one make the first key out of the others."""
    (first, *others), w = certificate["keys"], certificate["weights"]
    made = [sum(x * key[i] for x, key in zip(w, others, strict=True)) for i in range(len(first))]
    right = min(w) >= 0 and sum(w) == 1 and made == list(first)
    return "" if right else "the weights do not make the key"


def _query(certificate: dict[str, Any]) -> str:
    """A direction along which the first key is ahead of every other."""
    (first, *others), q = certificate["keys"], certificate["direction"]
    ahead = [sum(x * (a - b) for x, a, b in zip(q, first, key, strict=True)) for key in others]
    return "" if min(ahead) > 0 else "the direction does not put the key ahead"


# what each model multiplies, in powers of L - 2, l, m and d, constants aside
MODEL_POWERS = {
    "vanilla": {(1, 2, 0, 1), (0, 2, 0, 1), (1, 1, 0, 2), (0, 1, 0, 2)},
    "perceiver": {(1, 0, 2, 1), (1, 0, 1, 2), (0, 0, 1, 2), (0, 1, 0, 2), (0, 1, 1, 1)},
}


def _domination(certificate: dict[str, Any]) -> str:
    """Every term that is written is at most a mean of the model's (weights given), power by power
    of L - 2, l/m, m and d, which are all free and at least 1; and the other way round."""
    for count in certificate["counts"]:
        written, fixed = count["written"], count["d_is_fixed"]
        model = {(*p[:3], 0) if fixed else p for p in MODEL_POWERS[count["model"]]}
        if not written or min(written.values()) <= 0:
            return "a factor is not positive"
        for terms, others, means in (
            (set(written), model, count["above"]),
            (model, set(written), count["below"]),
        ):
            if any(term not in means or not _is_below(term, means[term], others) for term in terms):
                return "a term is not dominated"
    return ""


def _is_below(term: Any, weights: dict[Any, Fraction], others: set[Any]) -> bool:
    if not set(weights) <= others or min(weights.values()) < 0 or sum(weights.values()) != 1:
        return False
    means = [sum(w * _free(powers)[i] for powers, w in weights.items()) for i in range(4)]
    return all(power <= mean for power, mean in zip(_free(term), means, strict=True))


def _free(powers: Any) -> tuple[int, int, int, int]:
    """Of L - 2, l/m, m and d: l = (l/m) m."""
    layers, tokens, latents, width = powers
    return layers, tokens, tokens + latents, width


TOKEN_NAMES = {"number", "X", "n", "d", "ones", "Q", "K", "V", "b_1", "b_2"}
TOKEN_NAMES |= {"W_q", "W_k", "W_v", "W_o", "W_1", "W_2"}
# which commute with reordering the tokens wherever sizes are letters
_OPERATION_TABLE = """
+ - * / @ ** dot outer transpose hstack vstack norm unit inv pinv sqrt abs exp log relu softmax
layernorm
"""
TOKEN_OPERATIONS = set(_OPERATION_TABLE.split())
CAN_FAIL = ("/", "sqrt", "log", "unit", "inv")


def _layer(certificate: dict[str, Any]) -> str:
    """Nothing but names and operations that follow a reordering, and a value for every size."""

    def can_fail(tree: Any) -> int | None:
        operation, parts = tree
        if operation not in (TOKEN_OPERATIONS if parts else TOKEN_NAMES):
            return None
        counts = [can_fail(part) for part in parts]
        if None in counts:
            return None
        return int(operation in CAN_FAIL) + sum(count or 0 for count in counts)

    count = can_fail(certificate["tree"])
    if count is None or count != len(certificate["obligations"]):
        return "something in the layer does not follow a reordering, or may have no value"
    return next(filter(None, map(_claims, certificate["obligations"])), "")


def _distances(certificate: dict[str, Any]) -> str:
    """Products of powers of z_s = e^(i s theta) and z_t (r_s, r_t: without theta): each depends on
    s - t alone, and one does depend on it."""
    moves = False
    for key in certificate["monomials"]:
        powers = dict(key)
        if set(powers) - {"z_s", "z_t", "r_s", "r_t", "i", "w"}:
            return "a product has another factor"
        for letter in "zr":
            if powers.get(f"{letter}_s", 0) + powers.get(f"{letter}_t", 0) != 0:
                return "a product depends on more than the distance"
            moves = moves or f"{letter}_s" in powers
    return "" if moves else "no product depends on the distance"
