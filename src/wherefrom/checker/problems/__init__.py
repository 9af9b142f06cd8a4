"""The fifteen problems: what is given, what may be written, and the goal (`problems.toml`).

A problem's family names the module that judges it: `judge(construction, draft, budget)`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from wherefrom.checker.grammar import Shape
from wherefrom.errors import UserError, did_you_mean


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
    text = files(__package__).joinpath("problems.toml").read_text(encoding="utf-8")
    data, problems = tomllib.loads(text), {}
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
