"""Every example on docs/checker.md is run, and says what the page says it says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from wherefrom.attention.checker.grading import grade, read_answers
from wherefrom.attention.checker.problems import PROBLEMS
from wherefrom.cli import main

PAGE = Path(__file__).parents[1] / "docs" / "checker.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXITS = {"proved": 0, "holds": 0, "refuted": 1, "inconclusive": 3, "wherefrom": 2}


def examples() -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", TEXT, flags=re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("command", "lines"), examples())
def test_an_example_says_what_the_page_says(
    command: str,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as ended:
        main()
    seen = capsys.readouterr()
    told = squeezed(seen.out + seen.err)
    assert lines, "an example without a result shows nothing"
    for line in lines:
        assert squeezed(line) in told
    assert ended.value.code == EXITS[lines[0].split(":")[0]]


def test_there_are_examples_for_every_problem() -> None:
    commands = " ".join(command for command, _ in examples())
    told = {name for name in PROBLEMS if f"check {name} " in commands}
    assert told == set(PROBLEMS) - {"copy", "noisy-average"}
    assert all(f"**{name}**" in TEXT for name in PROBLEMS)


def test_the_file_of_answers_on_the_page_is_right() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", TEXT, flags=re.DOTALL)
    assert [item.score for item in grade(read_answers(block))] == [4.0, 2.0]
