"""What is asked and answered: `problems.toml`, verdicts worded in `wording.toml`, and results.

`proved`        for all n, by exact algebra over the givens, and confirmed in numbers
`holds`         numerically, over many sizes and instances, but not by algebra
`refuted`       with the smallest counterexample found
`inconclusive`  neither could be shown; the reason says what is missing
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from wherefrom.attention.checker.language import Shape
from wherefrom.attention.checker.reading import load_data
from wherefrom.errors import Printable, UserError, did_you_mean

Word = Literal["proved", "holds", "refuted", "inconclusive"]
EXIT_CODES: dict[Word, int] = {"proved": 0, "holds": 0, "refuted": 1, "inconclusive": 3}


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
    judge: str  # the module with the judge of its family
    family: str
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


def _variable(record: dict[str, Any], **words: str) -> Variable:
    name, meaning, also = (record.get(k, "").format(**words) for k in ("name", "meaning", "also"))
    rows, _, columns = record["shape"].partition(" x ")
    shape = Shape(("any",) if rows == "any" else tuple(rows), tuple(columns or "1"))
    second = Shape(*(tuple(side) for side in record.get("second", "").split(" x ")))
    other = second if "second" in record else None
    return Variable(name, shape, meaning, tuple(also.split()), other, record.get("plain", False))


def _read() -> dict[str, Problem]:
    record, found = load_data("problems.toml"), {}
    for stated in record["problem"]:
        names = stated.pop("names")
        picked = [group for group in stated.get("target", {}) if group != "others"]
        stated["givens"] = [
            _variable(each, i=i, picked=" and ".join(picked))
            for each in record["names"][names]
            for i in (picked if "{i}" in each["name"] else [""])
        ]
        stated["wanted"] = [_variable(each) for each in stated["wanted"]]
        stated["refused"] = {
            name: each["why"].format(name=name, i=name[-1])
            for each in record["refused"].get(names, [])
            for name in each["names"].split()
        }
        found[stated["name"]] = Problem(**stated)
    return found


PROBLEMS: dict[str, Problem] = _read()


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
        rows = [(self.verdict, self.because), *(("derived", line) for line in self.derived)]
        if self.counterexample is not None:
            rows.append(("counterexample", self.counterexample.sentence))
        return rows + [("note", note) for note in self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that JSON has no word for become null."""
        record = {"beta_required" if k == "beta" else k: v for k, v in asdict(self).items()}
        return dict(json.loads(json.dumps(record), parse_constant=lambda _: None))
