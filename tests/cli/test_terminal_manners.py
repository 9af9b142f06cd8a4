"""Manners at the terminal: one screen, completion, quiet, and no colour where none is wanted."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from wherefrom.cli import COMMANDS, FIRST_STEPS, cli, overview, progress
from wherefrom.cli.completion import SHELLS
from wherefrom.cli.output import print_table
from wherefrom.corpus.world import make_world


def offered(*words: str) -> list[str]:
    """What the shell is told for the last of these words, by a process as the shell starts."""
    ended = subprocess.run(
        [sys.executable, "-m", "wherefrom"],
        env=os.environ
        | {
            "_WHEREFROM_COMPLETE": "bash_complete",
            "COMP_WORDS": shlex.join(["wherefrom", *(word for word in words if word)]),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def complete(*words: str) -> list[str]:
    """The words that may stand there."""
    return [line.partition(",")[2] for line in offered(*words)]


class TestOverview:
    def test_it_fits_one_screen(self) -> None:
        lines = overview().splitlines()
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80
        assert set(COMMANDS) <= set(" ".join(lines).split())

    @pytest.mark.parametrize("line", [line for line, _ in FIRST_STEPS])
    def test_the_first_steps_are_commands_that_parse(self, line: str) -> None:
        _, name, *arguments = shlex.split(line)
        found = cli.get_command(click.Context(cli), name)
        assert found is not None
        found.make_context(name, arguments)

    def test_who_is_asked_about_is_in_the_world_of_make_study(self) -> None:
        (line,) = [line for line, _ in FIRST_STEPS if line.startswith("wherefrom ask")]
        people = make_world(3000, 0).of_split("dev")
        assert line.split('"')[1] in {f"Where was {each.subject} born?" for each in people}
        help_text = cli.get_command(click.Context(cli), "ask").help  # type: ignore[union-attr]
        assert line.split('"')[1] in " ".join(str(help_text).split())


class TestCompletion:
    @pytest.mark.parametrize(
        ("words", "wanted"),
        [
            (("st",), ["study"]),
            (("law", "--al"), ["--alpha"]),
            (("check", "--format", "gra"), ["gradescope"]),
            (("check", "two"), ["two-heads"]),
        ],
    )
    def test_commands_options_choices_and_problems(self, words: Any, wanted: list[str]) -> None:
        assert complete(*words) == wanted

    def test_an_unknown_command_disturbs_nobody(self) -> None:
        assert "study" in complete("nonsense", "")  # and nothing is said on stderr

    @pytest.mark.parametrize("words", [("ask", "ru"), ("finetune", "ru")])
    def test_where_a_run_may_stand_the_shell_lists_files(self, words: Any) -> None:
        assert offered(*words) == ["file,ru"]

    @pytest.mark.parametrize("shell", SHELLS)
    def test_the_script_asks_wherefrom_itself(self, shell: str, command: Any) -> None:
        ended = command("completion", shell)
        assert (ended.code, ended.err) == (0, "")  # nothing that would disturb a start-up file
        assert f"_WHEREFROM_COMPLETE={shell}_complete" in ended.out
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=ended.out, text=True, check=True)


class TestQuiet:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_has_it_once(self, name: str) -> None:
        for _ in range(2):
            found = cli.get_command(click.Context(cli), name)
            assert found is not None
            assert sum("--quiet" in parameter.opts for parameter in found.params) == 1

    def test_remarks_are_left_out_for_one_command_and_results_and_errors_are_not(
        self, command: Any, tmp_path: Path
    ) -> None:
        loud, quiet = command("variants"), command("variants", "--quiet")
        assert (quiet.err, quiet.out) == ("", loud.out)
        assert command("--quiet", "variants").err == ""
        assert command("variants").err == loud.err != ""
        ended = command("evaluate", tmp_path, tmp_path / "x", "--quiet")
        assert ended.code == 2
        assert "is not a run" in ended.err


class TestColour:
    @pytest.mark.parametrize("unwanted", [True, False])
    def test_bars_are_coloured_unless_no_color_is_set(
        self,
        unwanted: bool,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        if unwanted:
            monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        tick = SimpleNamespace(phase="read", progress=0.5, loss=1.0, tokens_per_second=9, seconds=1)
        monkeypatch.setattr(progress, "PATIENCE", -1.0)
        with progress.Progress() as bar:
            bar(tick, None)  # type: ignore[arg-type]
        err = capsys.readouterr().err
        assert "loss 1.000" in err
        codes = [
            code for found in re.findall("\x1b\\[([0-9;]*)m", err) for code in found.split(";")
        ]
        coloured = any(code and 30 <= int(code) < 50 for code in codes)
        assert coloured is not unwanted

    def test_piped_it_is_plain(self, command: Any) -> None:
        assert "\x1b" not in command("problems").out

    def test_a_table_fits_the_terminal_and_loses_nothing(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        words = [f"word{number}" for number in range(60)]
        print_table(("a", "b"), [(" ".join(words[:30]), " ".join(words[30:]))])
        lines = [
            re.sub("\x1b\\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()
        ]
        assert max(map(len, lines)) <= 80
        assert set(words) <= set(" ".join(lines).split())

    def test_nothing_is_shown_in_the_first_seconds(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with progress.Progress() as bar:
            bar.count("asking", 2)(2)
            bar.say("a remark")
        assert capsys.readouterr().err == "a remark\n"
