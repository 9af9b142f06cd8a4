"""The homework as chapters, in order: `chapters.toml`, read when the page starts.

Each chapter is one of the checker's problems, told for somebody who meets it for the first time.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files

from wherefrom.attention.checker.problems import PROBLEMS


@dataclass(frozen=True)
class Chapter:
    """One problem: `start` is written into the box, `answer` is shown when asked for."""

    problem: str
    part: str
    title: str
    question: list[str]
    start: str
    answer: list[str]
    formulas: list[str]
    bench: str = ""  # the settings of the sliders that show it, as a query string

    @property
    def write(self) -> str:
        forms = PROBLEMS[self.problem].forms
        return " or ".join(" and ".join(form) for form in forms)


_FILE = files("wherefrom.web").joinpath("chapters.toml")
CHAPTERS = tuple(Chapter(**c) for c in tomllib.loads(_FILE.read_text(encoding="utf-8"))["chapter"])
BY_NAME = {chapter.problem: chapter for chapter in CHAPTERS}
