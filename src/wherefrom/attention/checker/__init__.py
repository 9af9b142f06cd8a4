"""The checker: a problem of `problems.toml` and a construction in, a verdict and its reasons out.

`proved`        for all n, by exact algebra over the givens, and confirmed in numbers
`holds`         numerically, over many sizes and instances, but not by algebra
`refuted`       with the smallest counterexample found
`inconclusive`  neither could be shown; the reason says what is missing
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import Any, Literal

from wherefrom.attention.checker.language import Construction, Shape, evaluate, read_construction
from wherefrom.attention.checker.reading import ExpressionError, load_data, say
from wherefrom.errors import Printable, UserError, did_you_mean

Word = Literal["proved", "holds", "refuted", "inconclusive"]
EXIT_CODES: dict[Word, int] = {"proved": 0, "holds": 0, "refuted": 1, "inconclusive": 3}
JUDGES = {  # a family of problems -> the module judge_..., with its function judge_FAMILY
    **dict.fromkeys(("keys", "variance"), "queries"),
    **dict.fromkeys(("extract", "words", "hull"), "matrices"),
    **dict.fromkeys(("permutation", "synthesizer", "sinusoids", "rotary", "cost"), "layers"),
}


@dataclass(frozen=True)
class Variable:
    """A name that may be written, or one that is to be given a formula."""

    name: str
    shape: Shape  # "any" if the judge looks at it itself
    meaning: str = ""
    aliases: tuple[str, ...] = ()
    second: Shape | None = None  # which it has where the first does not fit
    plain: bool = False  # a plain number: none of the problem's names may occur in its formula


@dataclass(frozen=True)
class Problem:
    """What is given, what is to be written, the goal, for whom it must hold, how near is enough."""

    name: str
    title: str
    family: str  # by which it is judged
    given: str
    goal: str
    symbols: str
    quantifiers: str
    tolerance: float
    tolerance_means: str
    givens: list[Variable]
    wanted: list[Variable]
    forms: list[list[str]]  # each a set of names that makes a complete answer
    example: list[str]
    refused: dict[str, str]  # name -> why it may not be written
    least_n: int = 3
    target: dict[str, float] = field(default_factory=dict)  # weight of each group of keys
    noise: Literal["none", "isotropic", "stretched"] = "none"
    functions: str = ""  # besides the usual ones

    def spellings(self) -> dict[str, str]:
        """Everything that may be written -> the name it stands for."""
        return {s: given.name for given in self.givens for s in (given.name, *given.aliases)}

    def to_dict(self) -> dict[str, Any]:
        keys = ("name", "title", "given", "goal", "symbols", "quantifiers", "tolerance")
        record = {key: getattr(self, key) for key in (*keys, "tolerance_means", "example")}
        names = [
            {"name": g.name, "shape": str(g.shape), "meaning": g.meaning, "also": list(g.aliases)}
            for g in self.givens
        ]
        return record | {"write": self.forms, "names": names}


def find_problem(name: str) -> Problem:
    """The problem of that name."""
    if name not in PROBLEMS:
        raise UserError(f'there is no problem "{name[:60]}".{did_you_mean(name[:60], PROBLEMS)}')
    return PROBLEMS[name]


def _shape(text: str) -> Shape:
    """The shape of a text such as "d x m", "d" (a column) or "any"."""
    rows, _, columns = text.partition(" x ")
    return Shape(("any",) if rows == "any" else tuple(rows), tuple(columns or "1"))


def _variable(record: dict[str, Any], **words: str) -> Variable:
    name, meaning, also = (record.get(k, "").format(**words) for k in ("name", "meaning", "also"))
    second = _shape(record["second"]) if "second" in record else None
    plain = record.get("plain", False)
    return Variable(name, _shape(record["shape"]), meaning, tuple(also.split()), second, plain)


def _read_problems() -> dict[str, Problem]:
    data, problems = load_data("problems.toml"), {}
    for record in data["problem"]:
        names = record.pop("names")
        picked = [group for group in record.get("target", {}) if group != "others"]
        record["givens"] = [
            _variable(given, i=i, picked=" and ".join(picked))
            for given in data["names"][names]
            for i in (picked if "{i}" in given["name"] else [""])
        ]
        record["wanted"] = [_variable(wanted) for wanted in record["wanted"]]
        record["refused"] = {
            name: refused["why"].format(name=name, i=name[-1])
            for refused in data["refused"].get(names, [])
            for name in refused["names"].split()
        }
        problems[record["name"]] = Problem(**record)
    return problems


PROBLEMS: dict[str, Problem] = _read_problems()


@dataclass(frozen=True)
class BetaNeeded:
    """How large the large factor must be for the tolerance."""

    formula: str
    value: float  # at the n below
    n: int
    by_n: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Assumption:
    """One assumption of the problem, and whether this construction needs it.
    `used` is true with a counterexample, false with an argument, None where neither was found."""

    name: str
    used: bool | None
    evidence: str


@dataclass(frozen=True)
class Failure:
    """How often noise spoils the result, exactly and by simulation."""

    meaning: str
    n: int
    beta: float
    probability: float  # among the samples not set aside
    set_aside: float
    in_all: float  # counting the samples set aside as they come out
    simulated: float | None = None
    standard_error: float | None = None
    samples: int = 0
    alpha_allowed: float | None = None  # largest alpha for a failure rate of 5 in 100

    def summary(self) -> list[tuple[str, str]]:
        at = f" (n = {self.n}, beta = {self.beta:.4g})" if self.n else ""
        kept = "of the samples kept" if self.set_aside else "of all samples"
        lines = [f"exactly {self.probability:.4%} {kept}{at}"]
        if self.simulated is not None:
            error = f"standard error {self.standard_error:.4%}"
            lines.append(f"simulated {self.simulated:.4%} {kept}, {error}")
        if self.set_aside:
            aside = f"with the {self.set_aside:.2%} set aside (e < 0)"
            lines.append(f"{self.in_all:.4%} of all samples, {aside}")
        if self.alpha_allowed is not None:
            lines.append(f"the blur alpha may be {self.alpha_allowed:.2g} at this beta")
        return [("fails if", self.meaning), *(("", line) for line in lines)]


@dataclass(frozen=True)
class Counterexample:
    """The smallest instance found on which the construction misses its goal."""

    sizes: dict[str, int]
    numbers: dict[str, Any]
    sentence: str


@dataclass(frozen=True, repr=False)
class CheckResult(Printable):
    """The answer to one construction."""

    problem: str
    construction: dict[str, str]
    verdict: Word
    because: str
    tolerance: float
    seed: int
    derived: tuple[str, ...] = ()
    beta: BetaNeeded | None = None
    assumptions: tuple[Assumption, ...] = ()
    failure: Failure | None = None
    counterexample: Counterexample | None = None
    checked: str = ""
    notes: tuple[str, ...] = ()
    read_as: dict[str, str] = field(default_factory=dict)  # the construction as it was understood

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def passed(self) -> bool:
        return self.exit_code == 0

    def judged(self, verdict: Word, because: str, **rest: Any) -> CheckResult:
        return replace(self, verdict=verdict, because=because, **rest)

    def refuted(
        self,
        because: str,
        sentence: str,
        sizes: dict[str, int] | None = None,
        numbers: dict[str, Any] | None = None,
    ) -> CheckResult:
        example = Counterexample(sizes or {}, numbers or {}, sentence)
        return self.judged("refuted", because, counterexample=example)

    def summary(self) -> list[tuple[str, str]]:
        """The verdict, how the construction was read, what was derived, measured and tried."""
        rows: list[tuple[str, str]] = [(self.verdict, self.because)]
        rows += [("read as", f"{name} = {text}") for name, text in self.read_as.items()]
        rows += [("derived", line) for line in self.derived]
        if self.beta is not None:
            by_n = ", ".join(f"n = {n}: {beta:.4g}" for n, beta in self.beta.by_n.items())
            rows.append(("beta needed", self.beta.formula))
            rows.append(("", f"tolerance {self.tolerance:g}, {by_n}"))
        if self.failure is not None:
            rows += self.failure.summary()
        words = {True: "needs", False: "does not need", None: "may need"}
        rows += [(words[item.used], f"{item.name}: {item.evidence}") for item in self.assumptions]
        if self.counterexample is not None:
            rows.append(("counterexample", self.counterexample.sentence))
            rows += [(f"  {name}", str(x)) for name, x in self.counterexample.numbers.items()]
        if self.checked:
            rows.append(("tried on", self.checked))
        return rows + [("note", note) for note in self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that JSON has no word for become null."""
        record = {"beta_required" if k == "beta" else k: v for k, v in asdict(self).items()}
        return dict(json.loads(json.dumps(record), parse_constant=lambda _: None))


def check(
    problem: str,
    construction: str | Sequence[str],
    *,
    tolerance: float | None = None,
    seed: int = 0,
) -> CheckResult:
    """Judge a construction, given as one text such as "q=beta*(k_a+k_b)" or as several.
    What may not be written raises an ExpressionError or another UserError with a sentence."""
    stated = find_problem(problem)
    allowed = stated.tolerance if tolerance is None else tolerance
    if not 1e-12 <= allowed <= 0.4:
        raise UserError(f"the tolerance must lie between 1e-12 and 0.4; it is {allowed:g}.")
    if not 0 <= seed < 2**63:
        raise UserError(f"the seed must be a whole number from 0 up; it is {seed}.")
    texts = [construction] if isinstance(construction, str) else construction
    module = import_module(f"wherefrom.attention.checker.judge_{JUDGES[stated.family]}")
    judge: Callable[..., CheckResult] = getattr(module, f"judge_{stated.family}")
    draft = CheckResult(stated.name, {}, "proved", "", allowed, seed)
    if stated.family == "variance":  # compares two sides, so it reads for itself
        return judge(stated, texts, draft)
    read = _read(stated, texts)
    draft = replace(draft, construction=read.texts, read_as=read.read_as)
    return _wrong_shape(read, draft) or judge(read, draft)


def _read(problem: Problem, texts: Sequence[str]) -> Construction:
    """The construction; a name with a second shape has it where the first does not fit.
    Formulas that are said to be equal, as in V = ... = ..., must be: the last one is judged."""
    from wherefrom.attention.checker.instances import unequal_forms

    try:
        read = read_construction(problem, texts)
    except ExpressionError:
        givens = [replace(g, shape=g.second or g.shape) for g in problem.givens]
        if givens != problem.givens:
            with contextlib.suppress(ExpressionError):
                return read_construction(replace(problem, givens=givens), texts)
        raise
    for name, form in unequal_forms(read):
        last = read.expressions[name].written
        raise UserError(
            f'{name} is said to be "{form.written}" and "{last}", which are not '
            "equal; write one of them."
        )
    return read


# the smallest sizes of an instance, the first of them being that of `INSTANCES`
SMALLEST = {"extract": {"d": 2, "m": 1, "p": 1}, "words": {"d": 4}}


def _wrong_shape(read: Construction, draft: CheckResult) -> CheckResult | None:
    """A formula with a meaning but of the wrong shape is an answer, and a wrong one."""
    from wherefrom.attention.checker.instances import INSTANCES, Numeric, shown

    problem = read.problem
    for wanted in problem.wanted:
        expression, name = read.expressions.get(wanted.name), wanted.name
        if not expression or str(wanted.shape) == "any" or expression.shape == wanted.shape:
            continue
        got = str(expression.shape)
        hint = say("coordinates") if got == "m x d" and problem.family == "extract" else ""
        because = say("wrong_shape", name=name, got=got, wanted=wanted.shape, hint=hint)
        if problem.family not in INSTANCES:
            return draft.refuted(because, say("every_shape", name=name, wanted=wanted.shape))
        sizes = SMALLEST.get(problem.family, {"n": problem.least_n, "d": problem.least_n})
        at = ", ".join(f"{key} = {size}" for key, size in sizes.items())
        algebra = Numeric(INSTANCES[problem.family](problem, next(iter(sizes.values())), None))
        value = algebra.matrix(evaluate(expression, algebra))
        sentence = f"with {at}, {name} comes out as {value.shape[0]} x {value.shape[1]}."
        numbers = {"beta": 2.0} if problem.family != "extract" else {}
        return draft.refuted(because, sentence, sizes, numbers | shown({name: value}, (name,)))
    return None
