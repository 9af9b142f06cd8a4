"""Inputs, right results and those of well-known mistakes, drawn from a seed; for teachers only.

The handed-out cases and the hidden ones differ by their seed. Every dimension of a case is a
different number, so that no axis passes for another.
"""

from __future__ import annotations

import importlib.abc
import string
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.random import Generator

from wherefrom.teaching import reference
from wherefrom.teaching.checks import COUNTS, revive

HERE = Path(__file__).parent
MISTAKES = tomllib.loads((HERE / "mistakes.toml").read_text("utf-8"))
STOP = 1  # the id of MASK


class Mistaken(importlib.abc.InspectLoader):
    """Loads the reference solution with a mistake in it."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def get_source(self, fullname: str) -> str:
        return change((HERE / "reference.py").read_text("utf-8"), self.old, self.new)


def change(source: str, old: str, new: str) -> str:
    """The reference solution with a mistake in it."""
    assert old in source, f"no reference solution holds {old!r}"
    return source.replace(old, new)


@cache
def _mistaken(old: str, new: str) -> ModuleType:
    module = ModuleType("mistaken")
    Mistaken(old, new).exec_module(module)
    return module


def make_cases(parts: Iterable[str], seed: int) -> dict[str, list[dict[str, Any]]]:
    """Cases for every check of these parts, with results where results are compared."""
    rng = np.random.default_rng(seed)
    made = {title: draw(rng) for title, (_, draw) in CASES.items()}  # all: each keeps its numbers
    wanted = set(parts)
    made = {title: cases for title, cases in made.items() if title.split(":")[0] in wanted}
    for title, cases in made.items():
        function = CASES[title][0]
        for case in cases if function else ():
            case["expected"] = getattr(reference, function)(*map(revive, case["args"]))
            case["mistakes"] = [
                (says, _run(_mistaken(old, new), function, case["args"]))
                for says, old, new in MISTAKES.get(title, ())
            ]
    return made


@np.errstate(all="ignore")
def _run(module: ModuleType, function: str, arguments: list[Any]) -> Any:
    return getattr(module, function)(*map(revive, arguments))


def _normal(*sizes: tuple[int, ...]) -> Callable[[Generator], list[dict[str, Any]]]:
    # small enough that every key that may be seen has a weight that shows
    return lambda rng: [{"args": [rng.normal(size=size) / 2 for size in sizes]}]


def _mask(rng: Generator, *size: int) -> Any:
    mask = rng.random(size) < 0.6
    mask[:, 0], mask[:, 1] = True, False
    return mask


def _softmax(rng: Generator) -> list[dict[str, Any]]:
    scores, mask = rng.normal(size=(5, 7)), _mask(rng, 5, 7)
    blind = mask & (np.arange(5) != 3)[:, None]
    *_, (overflow, *_), (nothing, *_) = MISTAKES["attention: weights"]
    return [
        {"args": [scores, mask]},
        {"args": [1000 * scores, mask], "nan": overflow},
        {"args": [scores, blind], "nan": nothing},
    ]


def _attention(rng: Generator) -> list[dict[str, Any]]:
    sizes = [[(*lead, 5, 7), (*lead, 11, 7), (*lead, 11, 13)] for lead in ((), (2, 3))]
    drawn = [[rng.normal(size=size) for size in group] for group in sizes]
    return [{"args": [*arrays, _mask(rng, 5, 11)]} for arrays in drawn]


def _span(block: int, length: int, draws: int) -> Callable[[Generator], list[dict[str, Any]]]:
    def draw(rng: Generator) -> list[dict[str, Any]]:
        letters = rng.choice(list(string.ascii_letters + " ."), size=length)
        return [{"args": ["".join(letters), block, int(rng.integers(1 << 30)), draws]}]

    return draw


def _decode(rng: Generator) -> list[dict[str, Any]]:
    """One answer that is closed, and one that is as long as allowed."""
    cases: dict[bool, dict[str, Any]] = {}
    while len(cases) < 2:
        table, prompt = rng.normal(size=(97, 12)), [int(i) for i in rng.integers(2, 12, size=5)]
        said = len(_run(reference, "greedy_decode", [{"toy": table}, prompt, 9, STOP]))
        if said in (5, 9):
            cases[said == 9] = {"args": [{"toy": table}, prompt, 8, STOP]}
    return [cases[False], cases[True]]


def _evaluate(rng: Generator) -> list[dict[str, Any]]:
    places = rng.permutation(["Rome", "Oslo", "Lima", "Bergen", "Quito", "Paris"])[:3].tolist()
    told = [{"q": f"Where was {a[0]} born?", "a": a, "l": a.lower()} for a in places]
    cases = []
    for *forms, right, mistake in MISTAKES["evaluate"]["cases"]:
        texts = [[form.format(**who) for who in told] for form in forms]
        cases.append({"args": texts, "expected": [3 * right, 3], "mistake": mistake})
    return cases


def _variant(rng: Generator) -> list[dict[str, Any]]:
    """A row of ids, and it again with one id changed at each of two places."""
    places, row = [23, 88], rng.integers(2, 256, size=97)
    other = np.where(row == 255, 2, row + 1)
    changed = [np.where(np.arange(97) == place, other, row).tolist() for place in places]
    return [{"args": [[row.tolist(), *changed], *places]}]


_SYNTHESIZER = _normal((5, 7), (7, 7), (7,), (7, 11), (11,), (7, 7))
_PERCEIVER = _normal((11, 5), (3, 5), (5, 5), (5, 5), (5, 5))
# title of a check -> the function whose results are compared, if so; and how to draw its cases
CASES: dict[str, tuple[str, Callable[[Generator], list[dict[str, Any]]]]] = {
    "attention: weights": ("softmax", _softmax),
    "attention: context": ("attention", _attention),
    "attention: masked": ("", lambda rng: [{"args": [rng.normal(size=(7, 4)), np.tri(7) > 0]}]),
    "mask: triangle": ("", lambda rng: [{"args": [length]} for length in (1, 7)]),
    "span: form": ("", _span(64, 200, 50)),
    "span: lengths": ("", _span(32, 60, 400)),
    "span: share": ("", _span(128, 200, 200)),
    "rotary: angles": ("rotary", lambda rng: _normal((5, 6))(rng) + _normal((2, 3, 7, 4))(rng)),
    "rotary: distance": (
        "",
        lambda rng: [{"args": [np.tile(rng.normal(size=6), (5, 1)) for _ in range(2)]}],
    ),
    "synthesizer: context": ("synthesizer", _SYNTHESIZER),
    "synthesizer: causal": ("", _SYNTHESIZER),
    "perceiver: masks": ("perceiver_masks", lambda rng: [{"args": [12, 4]}, {"args": [11, 3]}]),
    "perceiver: down": ("perceiver_down", _PERCEIVER),
    "perceiver: up": ("perceiver_up", _PERCEIVER),
    "perceiver: reads all": ("", _PERCEIVER),
    "decode: ids": ("greedy_decode", _decode),
    "evaluate: exact match": ("", _evaluate),
    **{f"variants: {name}": ("", _variant) for name in COUNTS},
}
