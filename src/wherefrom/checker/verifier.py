"""The verifier: accepts a certificate or says what is wrong with it. No proof without it.

It shares with the prover the arithmetic of polynomials and what a claim means. A claim is about an
exact quotient of polynomials in beta, n and atoms: on which intervals of n which power of beta
leads with which sign. The intervals must cover every n, the signs must be right on each, the claim
must follow, and samples that were measured in floats must agree.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath

from wherefrom.checker import field
from wherefrom.checker.asymptotics import follows, minus

Atoms = dict[str, field.Atom]
Poly = field.Poly
DIGITS = 60
SAMPLE_TOLERANCE = 1e-6  # relative


def verify(certificate: dict[str, Any]) -> str:
    """An empty text if the certificate is right, else what is wrong."""
    kinds = {"claims": _claims, "wave": _wave, "costs": _costs, "layer": _layer, "turns": _turns}
    check = kinds.get(certificate["kind"])
    return check(certificate) if check else "there is no such certificate"


def _claims(certificate: dict[str, Any]) -> str:
    atoms, (first, last) = certificate["atoms"], certificate["sizes"]
    for claim in certificate["claims"]:
        expected = first
        for low, high, order, sign in claim["pieces"]:
            top, bottom = (_lead(claim[part], atoms, low, high) for part in ("top", "bottom"))
            if low != expected or (high is not None and high < low):
                return "the intervals do not follow one another"
            if top is None or bottom is None or bottom[1] == 0:
                return "a sign is not the same on an interval"
            if sign != top[1] * bottom[1] or (sign and order != minus(top[0], bottom[0])):
                return "a leading power or its sign is not as stated"
            if not follows(claim["must"], order, sign):
                return f"a number is not {claim['must']} on an interval"
            expected = math.inf if high is None else high + 1
        if expected != (math.inf if last is None else last + 1):
            return "the intervals do not cover every n"
        measured = [sample for sample in certificate["samples"] if claim["name"] in sample]
        if not all(_agrees(claim, atoms, sample) for sample in measured):
            return f"{claim['name']} is not what was measured"
    return ""


def _wave(certificate: dict[str, Any]) -> str:
    """sin or cos of (w + v pi) t + f + g pi for whole t, w not 0: pi is irrational, so it has one
    value at s and t only if w (s + t) + 2 f = 0, and v (s + t) + 2 g is odd (sin) or even (cos)."""
    (w, v, f, g), odd = certificate["angle"], certificate["odd"]
    together = -2 * f / w if w else Fraction(1)
    if not w or (together.denominator == 1 <= together and (v * together + 2 * g) % 2 == odd):
        return "the wave returns"
    return _claims(certificate)


def _agrees(claim: dict[str, Any], atoms: Atoms, sample: dict[str, Any]) -> bool:
    with mpmath.workdps(DIGITS):
        known = {name: mpmath.mpf(sample[name]) for name in ("n", "beta")}
        values = field.SymbolValues(atoms, mpmath.mp, known)
        top, bottom = values.of(claim["top"]), values.of(claim["bottom"])
        size = max(abs(top), sample.get("scale", 1.0) * abs(bottom))
        return bool(abs(top - sample[claim["name"]] * bottom) <= SAMPLE_TOLERANCE * size)


def _lead(p: Poly, atoms: Atoms, low: int, high: int | None) -> Any:
    """Order and sign of the leading term, if they are the same on the interval."""
    for order, part in sorted(field.by_order(p).items(), key=lambda item: item[0], reverse=True):
        sign = _sign(part, atoms, low, high)
        if sign != 0:
            return None if sign is None else (order, sign)
    return (0, 0, 0), 0


def _sign(p: Poly, atoms: Atoms, low: int, high: int | None) -> int | None:
    """Of a polynomial in n and atoms. The newest atom s is split off: the sign of a + b s follows
    from those of a, b and, where these differ, of a^2 - b^2 s^2."""
    held = field.names(p) - {"n"}
    if not held:
        return _polynomial_sign({int(dict(key).get("n", 0)): c for key, c in p.items()}, low, high)
    if not held <= set(atoms):
        return None
    name = max(held, key=lambda x: atoms[x].index)
    parts, argument = field.by_power(p, name), atoms[name].argument
    if atoms[name].kind != "sqrt":
        above_one = field.add(argument, {(): Fraction(-1)})
        signs = {_sign(part, atoms, low, high) for part in parts.values()} - {0}
        is_positive = atoms[name].kind != "log" or _sign(above_one, atoms, low, high) == 1
        alike = len(signs) == 1 and is_positive
        return signs.pop() if alike else _number_sign(p, atoms, low, high)
    a, b, inside = (_sign(x, atoms, low, high) for x in (parts.get(0, {}), parts[1], argument))
    if a is None or b is None or inside != 1:
        return a if inside == 0 else None
    if a * b >= 0:
        return a or b
    squares = {x: atom.argument for x, atom in atoms.items() if atom.kind == "sqrt"}
    subtracted = field.multiply(field.multiply(parts[1], parts[1], squares), argument, squares)
    gap = field.add(field.multiply(parts[0], parts[0], squares), field.scale(subtracted, -1))
    sign = _sign(gap, atoms, low, high)
    return None if sign is None else a * sign


def _number_sign(p: Poly, atoms: Atoms, low: int, high: int | None) -> int | None:
    """Of a number without n, or at one n, by an enclosure."""
    if low != high and _depends_on_n(p, atoms):
        return None
    mpmath.iv.dps = DIGITS
    value = field.SymbolValues(atoms, mpmath.iv, {"n": mpmath.iv.mpf(low)}).of(p)
    return 1 if value.a > 0 else -1 if value.b < 0 else None


def _depends_on_n(p: Poly, atoms: Atoms) -> bool:
    return any(x == "n" or _depends_on_n(atoms[x].argument, atoms) for x in field.names(p))


def _polynomial_sign(p: dict[int, Fraction], low: int, high: int | None) -> int | None:
    """Of a polynomial in n: its Bernstein coefficients (or those in n - low) agree in sign."""
    degree = max(p, default=0)
    coefficients = [
        sum(c * math.comb(k, j) * low ** (k - j) for k, c in p.items() if k >= j)
        for j in range(degree + 1)
    ]
    if high is not None:
        width = [c * (high - low) ** j for j, c in enumerate(coefficients)]
        coefficients = [
            sum(width[k] * Fraction(math.comb(j, k), math.comb(degree, k)) for k in range(j + 1))
            for j in range(degree + 1)
        ]
    signs = {(c > 0) - (c < 0) for c in coefficients}
    at_ends = (coefficients[0], coefficients[0 if high is None else -1])
    if len(signs - {0}) > 1 or (0 in at_ends and signs != {0}):
        return None
    return next(iter(signs - {0}), 0)


MODEL_TERMS = {  # what each model multiplies, in powers of L - 2, l, m and d, constants aside
    "vanilla": {(1, 2, 0, 1), (0, 2, 0, 1), (1, 1, 0, 2), (0, 1, 0, 2)},
    "perceiver": {(1, 0, 2, 1), (1, 0, 1, 2), (0, 0, 1, 2), (0, 1, 0, 2), (0, 1, 1, 1)},
}


def _costs(certificate: dict[str, Any]) -> str:
    """Every term that is written is at most a mean of the model's terms, whose weights are given,
    in each power of L - 2, l/m, m and d, which are free and at least 1; and the other way round."""
    for count in certificate["counts"]:
        written, fixed = count["written"], count["d_is_fixed"]
        model = {(*p[:3], 0) if fixed else p for p in MODEL_TERMS[count["model"]]}
        if not written or min(written.values()) <= 0:
            return "a factor is not positive"
        says = set(written)
        for terms, others, means in ((says, model, count["above"]), (model, says, count["below"])):
            if any(not _is_below(term, means.get(term, {}), others) for term in terms):
                return "a term is not dominated"
    return ""


def _is_below(term: Any, weights: dict[Any, Fraction], others: set[Any]) -> bool:
    if not set(weights) <= others or sum(weights.values()) != 1 or min(weights.values()) < 0:
        return False
    gaps = [sum(w * x[i] for x, w in weights.items()) - term[i] for i in range(4)]
    return min(gaps[0], gaps[1], gaps[1] + gaps[2], gaps[3]) >= 0  # l = (l/m) m


# what follows a reordering wherever sizes are letters
_PARTS = "X n d ones Q K V b_1 b_2 W_q W_k W_v W_o W_1 W_2 + - * / @ ** dot outer transpose"
_MORE_PARTS = "hstack vstack norm pinv sqrt abs exp relu softmax layernorm"
LAYER_PARTS = {*_PARTS.split(), *_MORE_PARTS.split()}


def _layer(certificate: dict[str, Any]) -> str:
    """Only names and operations that follow a reordering; divisors and what is under a root are
    plainly positive. A tree is a name or a number and (), or an operation and its parts."""
    waiting = [certificate["tree"]]
    while waiting:
        operation, parts = waiting.pop()
        if not (isinstance(operation, Fraction) or operation in LAYER_PARTS):
            return f"{operation} does not follow a reordering"
        if operation in ("/", "sqrt") and not _is_positive(parts[-1]):
            return "the layer may have no value"
        waiting += parts
    return ""


def _is_positive(tree: Any) -> bool:
    """Sums, products, powers and roots of positive numbers and of the sizes n and d."""
    operation, parts = tree
    if parts:
        return operation in ("+", "*", "/", "**", "sqrt") and all(map(_is_positive, parts))
    return operation > 0 if isinstance(operation, Fraction) else operation in ("n", "d")


def _turns(certificate: dict[str, Any]) -> str:
    """Products of powers of z_s = e^(i s theta) and z_t (r_s, r_t: without theta): each depends on
    s - t alone, and one does depend on it."""
    products = [dict(key) for key in certificate["monomials"]]
    for powers in products:
        opposite = all(powers.get(f"{x}_s", 0) + powers.get(f"{x}_t", 0) == 0 for x in "zr")
        if set(powers) - {"z_s", "z_t", "r_s", "r_t", "i", "w"} or not opposite:
            return "a product depends on more than the distance"
    moves = any({"z_s", "r_s"} & set(powers) for powers in products)
    return "" if moves else "no product depends on the distance"
