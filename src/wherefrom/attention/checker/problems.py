"""The problems that a construction can be checked against: `problems.toml`, and their names.

A problem says what is given, what is to be written, the goal in words and in symbols, for whom
it must hold (the quantifiers) and how near is near enough. It also knows which names may be
written and, for the names people reach for in vain, why not.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from wherefrom.attention.checker.language import Shape
from wherefrom.errors import UserError, did_you_mean

NUMBER, VECTOR, MATRIX = Shape(), Shape(("d",)), Shape(("d",), ("d",))
SPACE = ("m", "p", "r")  # d, split into the sizes of the bases A, B and C
SQUARE = Shape(SPACE, SPACE)
LARGE = ("β", "t", "T", "lam", "lambda_", "λ", "t1", "t2", "t_1", "t_2", "τ")
SHAPES = {"M": SQUARE} | dict.fromkeys(("K", "Q", "V", "W"), MATRIX)  # of what is wanted


@dataclass(frozen=True)
class Given:
    """A name that may be written."""

    name: str
    shape: Shape
    meaning: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """A name that is to be given a formula."""

    name: str
    aliases: tuple[str, ...] = ()
    plain: bool = False  # a plain number: none of the problem's names may occur in it

    @property
    def shape(self) -> Shape:
        return NUMBER if self.plain else SHAPES.get(self.name, VECTOR)


@dataclass(frozen=True)
class Problem:
    """One problem; see the module's docstring."""

    name: str
    title: str
    family: Literal["keys", "extract", "words"]
    given: str
    goal: str
    symbols: str
    quantifiers: str
    tolerance: float
    tolerance_means: str
    wanted: tuple[Wanted, ...]
    forms: tuple[tuple[str, ...], ...]  # each a set of names that makes a complete answer
    example: tuple[str, ...]
    givens: tuple[Given, ...]
    refused: dict[str, str]  # name -> why it may not be written
    least_n: int = 3
    target: dict[str, float] = field(default_factory=dict)  # weight of each group of keys
    noise: Literal["none", "isotropic", "stretched"] = "none"

    def spellings(self) -> dict[str, str]:
        """Everything that may be written -> the name it stands for."""
        return {s: given.name for given in self.givens for s in (given.name, *given.aliases)}

    def to_dict(self) -> dict[str, Any]:
        keys = ("name", "title", "given", "goal", "symbols", "quantifiers", "tolerance")
        return {key: getattr(self, key) for key in (*keys, "tolerance_means")} | {
            "write": [list(form) for form in self.forms],
            "names": [
                {
                    "name": g.name,
                    "shape": str(g.shape),
                    "meaning": g.meaning,
                    "also": list(g.aliases),
                }
                for g in self.givens
            ],
            "example": list(self.example),
        }


def find_problem(name: str) -> Problem:
    """The problem of that name."""
    if name not in PROBLEMS:
        raise UserError(f'there is no problem "{name[:60]}".{did_you_mean(name[:60], PROBLEMS)}')
    return PROBLEMS[name]


def _factor(meaning: str) -> Given:
    return Given("beta", NUMBER, meaning, LARGE)


def _key_names(picked: tuple[str, ...], *, noisy: bool) -> tuple[Given, ...]:
    stem, table, noun = ("mu", "Mu", "mean") if noisy else ("k", "K", "key")

    def aliases(i: str) -> tuple[str, ...]:
        return (f"mu{i}", f"μ_{i}", f"μ{i}", f"u_{i}", f"u{i}") if noisy else (f"k{i}",)

    return (
        *(Given(f"{stem}_{i}", VECTOR, f"the {noun} of {i}", aliases(i)) for i in picked),
        Given(
            "sum_others", VECTOR, f"the sum of every {noun} but {' and '.join(picked)}", ("others",)
        ),
        Given("sum_all", VECTOR, f"the sum of every {noun}"),
        Given(table, Shape(("n",), ("d",)), f"every {noun}, one a row"),
        *(Given(f"e_{i}", Shape(("n",)), f"1 at the place of {i}, else 0") for i in picked),
        Given("ones", Shape(("n",)), "a 1 for every key"),
        _factor("a large factor, chosen after n and the tolerance are known"),
        Given("n", NUMBER, "the number of keys"),
        Given("I", MATRIX, "the identity"),
    )


SPACE_NAMES = (
    Given("A", Shape(SPACE, ("m",)), "the basis of v_a's space, as columns"),
    Given("B", Shape(SPACE, ("p",)), "the basis of v_b's space, as columns"),
    Given("C", Shape(SPACE, ("r",)), "an orthonormal completion to R^d"),
    Given("S", SQUARE, "[A, B, C], d x d"),
    Given("D", SQUARE, "diag(1..1, 0..0), m ones"),
    Given("I", SQUARE, "the identity"),
)
WORD_NAMES = (
    *(Given(f"u_{i}", VECTOR, "of norm beta", (f"u{i}",)) for i in "abcd"),
    *(Given(f"x{i}", VECTOR, f"word {i}", (f"x_{i}",)) for i in "123"),
    _factor("the norm of every u"),
    Given("I", MATRIX, "the identity"),
)


def _refusals(names: str, sentence: str) -> dict[str, str]:
    """name -> the sentence, in which {} is the name and {i} its last letter."""
    return {name: sentence.format(name, i=name[-1]) for name in names.split()}


REFUSED_VALUES = _refusals(
    "v_a v_b v_j va vb vj c",
    "{} is a value, and a query that works for all values cannot mention one.",
)
REFUSED_MEANS = _refusals(
    "mu_a mu_b mu_j μ_a μ_b μ_j", "the keys are not noisy in this problem; write k_{i}."
)
SAMPLED = "{} is sampled after the query is chosen, and only the means are known"
REFUSED_SAMPLES = (
    _refusals("k_a k_b ka kb", SAMPLED + "; write mu_{i}.")
    | _refusals("K k k_i e eps epsilon ε ϵ", SAMPLED + ".")
    | _refusals(
        "alpha α Sigma Σ", "{} is unknown to whoever writes the query; only the means are known."
    )
)
REFUSED_VECTORS = _refusals("v_a v_b s va vb", "{} is not known: M has to work for all of them.")


def _read(record: dict[str, Any]) -> Problem:
    """One table of problems.toml, with the names that belong to its family."""
    givens, refused = WORD_NAMES, {}
    if record["family"] == "extract":
        givens, refused = SPACE_NAMES, REFUSED_VECTORS
    elif record["family"] == "keys":
        noisy = "noise" in record
        picked = tuple(group for group in record["target"] if group != "others")
        givens = _key_names(picked, noisy=noisy)
        refused = REFUSED_VALUES | (REFUSED_SAMPLES if noisy else REFUSED_MEANS)
    wanted = tuple(Wanted(**w | {"aliases": tuple(w.get("aliases", ()))}) for w in record["wanted"])
    forms = tuple(tuple(form) for form in record["forms"])
    rest = {"wanted": wanted, "forms": forms, "example": tuple(record["example"])}
    return Problem(**record | rest, givens=givens, refused=refused)


_FILE = files("wherefrom.attention.checker").joinpath("problems.toml")
PROBLEMS: dict[str, Problem] = {
    record["name"]: _read(record)
    for record in tomllib.loads(_FILE.read_text(encoding="utf-8"))["problem"]
}
