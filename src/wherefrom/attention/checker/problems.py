"""The eight problems that a construction can be checked against, as data.

A problem says what is given, what is to be written, the goal in words and in symbols, for whom
it must hold (the quantifiers) and how near is near enough. It also knows which names may be
written and, for the names people reach for in vain, why not. How a problem is judged is in
`check`; how its instances are drawn is in `instances`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wherefrom.attention.checker.shapes import Shape
from wherefrom.errors import UserError, did_you_mean

NUMBER = Shape()
VECTOR = Shape(("d",))
MATRIX = Shape(("d",), ("d",))

LARGE = ("β", "t", "T", "lam", "lambda_", "λ", "t1", "t2", "t_1", "t_2", "τ")


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
    shape: Shape
    aliases: tuple[str, ...] = ()
    plain: bool = False  # a plain number: none of the problem's names may occur in it


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
    givens: tuple[Given, ...]
    wanted: tuple[Wanted, ...]
    forms: tuple[tuple[str, ...], ...]  # each a set of names that makes a complete answer
    example: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    least_n: int = 3
    target: Mapping[str, float] = field(default_factory=dict)  # weight of each group of keys
    noise: Literal["none", "isotropic", "stretched"] = "none"

    def spellings(self) -> dict[str, str]:
        """Everything that may be written -> the name it stands for."""
        return {
            spelling: given.name
            for given in self.givens
            for spelling in (given.name, *given.aliases)
        }

    def shapes(self) -> dict[str, Shape]:
        return {given.name: given.shape for given in self.givens}

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "given": self.given,
            "goal": self.goal,
            "symbols": self.symbols,
            "quantifiers": self.quantifiers,
            "tolerance": self.tolerance,
            "tolerance_means": self.tolerance_means,
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


def _both(stem: str, which: str) -> tuple[str, ...]:
    """Other spellings of a subscripted letter: ka for k_a, and Greek for mu."""
    greek = {"mu": "μ"}.get(stem, "")
    return (f"{stem}{which}", *((f"{greek}_{which}", f"{greek}{which}") if greek else ()))


def _factor(meaning: str) -> Given:
    return Given("beta", NUMBER, meaning, LARGE)


_CHOSEN = _factor("a large factor, chosen after n and the tolerance are known")
_COUNT = Given("n", NUMBER, "the number of keys")
_EYE = Given("I", MATRIX, "the identity")


def _keys(stem: str, table: str, picked: tuple[str, ...], noun: str) -> tuple[Given, ...]:
    chosen = " and ".join(picked)
    return (
        *(
            Given(
                f"{stem}_{i}",
                VECTOR,
                f"the {noun} of {i}",
                (*_both(stem, i), *((f"u_{i}", f"u{i}") if stem == "mu" else ())),
            )
            for i in picked
        ),
        Given("sum_others", VECTOR, f"the sum of every {noun} but {chosen}", ("others",)),
        Given("sum_all", VECTOR, f"the sum of every {noun}"),
        Given(table, Shape(("n",), ("d",)), f"every {noun}, one a row"),
        *(Given(f"e_{i}", Shape(("n",)), f"1 at the place of {i}, else 0") for i in picked),
        Given("ones", Shape(("n",)), "a 1 for every key"),
        _CHOSEN,
        _COUNT,
        _EYE,
    )


def _sampled() -> dict[str, str]:
    refused = {
        name: f"{name} is sampled after the query is chosen, and only the means are known; "
        f"write mu_{name[-1]}."
        for name in ("k_a", "k_b", "ka", "kb")
    }
    refused |= {
        name: f"{name} is sampled after the query is chosen, and only the means are known."
        for name in ("K", "k", "k_i", "e", "eps", "epsilon", "ε", "ϵ")
    }
    refused |= {
        name: f"{name} is unknown to whoever writes the query; only the means are known."
        for name in ("alpha", "α", "Sigma", "Σ")
    }
    return refused | _VALUES


_VALUES = {
    name: f"{name} is a value, and a query that works for all values cannot mention one."
    for name in ("v_a", "v_b", "v_j", "va", "vb", "vj", "c")
}
_FIXED = {
    name: f"the keys are not noisy in this problem; write k_{name[-1]}."
    for name in ("mu_a", "mu_b", "mu_j", "μ_a", "μ_b", "μ_j")
}
_MASS = "the share of the weight that lies on the wrong keys"
_HALVES = {"a": 0.5, "b": 0.5, "others": 0.0}
_NEAR = "|a - w| := 1/2 sum_i |a_i - w_i| <= tolerance"
_LARGE_BETA = (
    "for every n >= {n}, every d >= n and all values there is a beta_0, "
    "and every beta >= beta_0 will do"
)
_LARGE_NORM = "for every d >= 4 and all such u there is a beta_0, and every beta >= beta_0 will do"
_WORDS = "x1 = u_d + u_b, x2 = u_a, x3 = u_c + u_b, the u mutually orthogonal and of norm beta; "
_STRETCH = (
    "keys are drawn around known means: k_i = mu_i for i != a and k_a = e mu_a with e ~ N(1, 1/2), "
    "each blurred by N(0, alpha I) with alpha vanishing; the mu_i are orthonormal"
)

PROBLEMS: dict[str, Problem] = {
    problem.name: problem
    for problem in (
        Problem(
            name="copy",
            title="Copy one value",
            family="keys",
            given="orthonormal keys k_1..k_n in R^d, with values v_1..v_n; j is one of them",
            goal="a query q whose output c is close to v_j",
            symbols=f"{_NEAR} with a = softmax(K q), w = 1 at j; "
            "then |c - v_j| <= tolerance * max_i |v_i - v_j|",
            quantifiers=_LARGE_BETA.format(n=2),
            tolerance=0.01,
            tolerance_means=_MASS,
            givens=_keys("k", "K", ("j",), "key"),
            wanted=(Wanted("q", VECTOR),),
            forms=(("q",),),
            example=("q=beta*k_j",),
            refused=_VALUES | _FIXED,
            least_n=2,
            target={"j": 1.0, "others": 0.0},
        ),
        Problem(
            name="average",
            title="The average of two values",
            family="keys",
            given="orthonormal keys k_1..k_n in R^d, with values v_1..v_n; a and b are two of them",
            goal="a query q whose output c is close to (v_a + v_b)/2",
            symbols=f"{_NEAR} with a = softmax(K q), w = 1/2 at a and at b",
            quantifiers=_LARGE_BETA.format(n=3),
            tolerance=0.01,
            tolerance_means=_MASS,
            givens=_keys("k", "K", ("a", "b"), "key"),
            wanted=(Wanted("q", VECTOR),),
            forms=(("q",),),
            example=("q=beta*(k_a+k_b)",),
            refused=_VALUES | _FIXED,
            target=_HALVES,
        ),
        Problem(
            name="noisy-average",
            title="The average of two values, keys slightly blurred",
            family="keys",
            given="keys drawn from N(mu_i, alpha I), alpha vanishing, with known orthonormal mu_i",
            goal="a query q, written with the means, whose output c is close to (v_a + v_b)/2",
            symbols=f"P({_NEAR}) -> 1 as alpha -> 0, with a = softmax(K q), w = 1/2 at a and at b",
            quantifiers=_LARGE_BETA.format(n=3) + " once alpha is small enough for that beta",
            tolerance=0.01,
            tolerance_means=_MASS,
            givens=_keys("mu", "Mu", ("a", "b"), "mean"),
            wanted=(Wanted("q", VECTOR),),
            forms=(("q",),),
            example=("q=beta*(mu_a+mu_b)",),
            refused=_sampled(),
            target=_HALVES,
            noise="isotropic",
        ),
        Problem(
            name="stretched-average",
            title="The average of two values, one key of varying length, one head",
            family="keys",
            given=_STRETCH,
            goal="one query q whose output c stays close to (v_a + v_b)/2 from sample to sample "
            "(or, as low and high, the range of e)",
            symbols=f"P({_NEAR}) >= 0.95 with a = softmax(K q), w = 1/2 at a and at b "
            "(or P(low <= e <= high) >= 1 - tolerance)",
            quantifiers=_LARGE_BETA.format(n=3) + " in at least 95 of 100 samples",
            tolerance=0.01,
            tolerance_means=_MASS + " (for low and high: the share of samples outside)",
            givens=_keys("mu", "Mu", ("a", "b"), "mean"),
            wanted=(
                Wanted("q", VECTOR),
                Wanted("low", NUMBER, plain=True),
                Wanted("high", NUMBER, plain=True),
            ),
            forms=(("q",), ("low", "high")),
            example=("q=-beta*sum_others",),
            refused=_sampled(),
            target=_HALVES,
            noise="stretched",
        ),
        Problem(
            name="two-heads",
            title="The average of two values, one key of varying length, two heads",
            family="keys",
            given=_STRETCH + "; the output is c = (c_1 + c_2)/2 of two queries",
            goal="queries q1 and q2 whose output c stays close to (v_a + v_b)/2 from sample to "
            "sample; samples whose key points backwards, so that k_a.q < 0, are set aside",
            symbols=f"P({_NEAR} | not set aside) >= 0.95 with "
            "a = (softmax(K q1) + softmax(K q2))/2, w = 1/2 at a and at b",
            quantifiers=_LARGE_BETA.format(n=3) + " in at least 95 of 100 samples not set aside",
            tolerance=0.01,
            tolerance_means=_MASS,
            givens=_keys("mu", "Mu", ("a", "b"), "mean"),
            wanted=(
                Wanted("q1", VECTOR, ("q_1", "q_a", "qa")),
                Wanted("q2", VECTOR, ("q_2", "q_b", "qb")),
            ),
            forms=(("q1", "q2"),),
            example=("q1=beta*mu_a", "q2=beta*mu_b"),
            refused=_sampled(),
            target=_HALVES,
            noise="stretched",
        ),
        Problem(
            name="extract",
            title="Take one vector back out of a sum",
            family="extract",
            given="A (d x m) and B (d x p) with orthonormal columns and A^T B = 0; "
            "v_a in the span of A, v_b in the span of B, s = v_a + v_b",
            goal="a matrix M that returns v_a from s",
            symbols="M (v_a + v_b) = v_a, that is M A = A and M B = 0",
            quantifiers="for all d >= m + p, all such A and B, and all v_a, v_b in their spans",
            tolerance=1e-9,
            tolerance_means="|M s - v_a| / (|v_a| + |v_b|), for rounding only",
            givens=(
                Given("A", Shape(("m", "p", "r"), ("m",)), "the basis of v_a's space, as columns"),
                Given("B", Shape(("m", "p", "r"), ("p",)), "the basis of v_b's space, as columns"),
                Given("C", Shape(("m", "p", "r"), ("r",)), "an orthonormal completion to R^d"),
                Given("S", Shape(("m", "p", "r"), ("m", "p", "r")), "[A, B, C], d x d"),
                Given("D", Shape(("m", "p", "r"), ("m", "p", "r")), "diag(1..1, 0..0), m ones"),
                Given("I", Shape(("m", "p", "r"), ("m", "p", "r")), "the identity"),
            ),
            wanted=(Wanted("M", Shape(("m", "p", "r"), ("m", "p", "r"))),),
            forms=(("M",),),
            example=("M=A@A.T",),
            refused={
                name: f"{name} is not known: M has to work for all of them."
                for name in ("v_a", "v_b", "s", "va", "vb")
            },
        ),
        Problem(
            name="self-attention",
            title="Keys, queries and values for three words",
            family="words",
            given=_WORDS + "k_i = K x_i, q_i = Q x_i, v_i = V x_i",
            goal="matrices K, Q, V (or V and W = K^T Q) with c1 close to u_b - u_c and c2 to u_b",
            symbols="|c1 - (u_b - u_c)| <= tolerance * beta and |c2 - u_b| <= tolerance * beta",
            quantifiers=_LARGE_NORM,
            tolerance=0.01,
            tolerance_means="the distance of c1 and of c2 from their goals, in units of beta",
            givens=(
                *(Given(f"u_{i}", VECTOR, "of norm beta", (f"u{i}",)) for i in "abcd"),
                *(Given(f"x{i}", VECTOR, f"word {i}", (f"x_{i}",)) for i in "123"),
                _factor("the norm of every u"),
                _EYE,
            ),
            wanted=(
                Wanted("K", MATRIX),
                Wanted("Q", MATRIX),
                Wanted("V", MATRIX),
                Wanted("W", MATRIX),
            ),
            forms=(("K", "Q", "V"), ("W", "V")),
            example=(
                "K=I",
                "Q=(outer(u_c,u_d)+outer(u_d,u_a))/norm(u_a)**2",
                "V=(outer(u_b,u_b)-outer(u_c,u_c))/norm(u_b)**2",
            ),
        ),
        Problem(
            name="identity-self-attention",
            title="What three words become without K, Q and V",
            family="words",
            given=_WORDS + "keys, queries and values are the words themselves",
            goal="the vector that c2 approximates (and, if you like, another x2 to try it with)",
            symbols="|c2 - answer| <= tolerance * beta",
            quantifiers=_LARGE_NORM,
            tolerance=0.01,
            tolerance_means="the distance of c2 from the answer, in units of beta",
            givens=(
                *(Given(f"u_{i}", VECTOR, "of norm beta", (f"u{i}",)) for i in "abcd"),
                *(Given(f"x{i}", VECTOR, f"word {i}", (f"x_{i}",)) for i in "123"),
                _factor("the norm of every u"),
                _EYE,
            ),
            wanted=(Wanted("c2", VECTOR, ("c_2",)), Wanted("x2", VECTOR, ("x_2",))),
            forms=(("c2",), ("c2", "x2")),
            example=("c2=u_a",),
        ),
    )
}
