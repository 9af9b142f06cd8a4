"""Manners at the terminal: one screen, completion, quiet, and no colour where none is wanted."""

from __future__ import annotations

import re
import shlex
import sys
from types import SimpleNamespace

import click
import pytest

from wherefrom.cli import COMMANDS, FIRST_STEPS, cli, output, overview


def test_the_overview_fits_one_screen_and_its_first_steps_parse():
    lines = overview().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert set(COMMANDS) <= set(" ".join(lines).split())
    for line, _ in FIRST_STEPS:
        _, name, *arguments = shlex.split(line)
        cli.get_command(click.Context(cli), name).make_context(name, arguments)


def test_quiet_leaves_out_remarks_for_one_command_and_neither_results_nor_errors(command, tmp_path):
    loud, quiet = command("problems"), command("problems", "--quiet")
    assert (quiet.err, quiet.out) == ("", loud.out)
    assert command("--quiet", "problems").err == ""
    assert command("problems").err == loud.err != ""
    ended = command("evaluate", tmp_path, tmp_path / "x", "--quiet")
    assert ended.code == 2
    assert "is not a run" in ended.err


@pytest.fixture
def terminal(monkeypatch):
    for name, value in {"COLUMNS": "80", "FORCE_COLOR": "1", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("unwanted", [True, False])
def test_bars_are_coloured_unless_no_color_is_set(terminal, unwanted, monkeypatch, capsys):
    if not unwanted:
        monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(output, "PROGRESS_AFTER_SECONDS", -1.0)
    numbers = {"progress": 0.5, "loss": 1.0, "tokens_per_second": 9, "seconds": 1, "recall": None}
    with output.Progress() as bar:
        bar(SimpleNamespace(phase="read", **numbers), None)
    err = capsys.readouterr().err
    assert "loss 1.000" in err
    codes = ";".join(re.findall("\x1b\\[([0-9;]*)m", err)).split(";")
    assert any(code and 30 <= int(code) < 50 for code in codes) is not unwanted


def test_a_table_fits_the_terminal_and_loses_nothing(terminal, capsys):
    words = [f"word{number}" for number in range(60)]
    output.print_table(("a", "b"), [(" ".join(words[:30]), " ".join(words[30:]))])
    lines = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 80
    assert set(words) <= set(" ".join(lines).split())


def test_piped_it_is_plain_and_nothing_is_shown_in_the_first_seconds(command, capsys):
    assert "\x1b" not in command("problems").out
    with output.Progress() as bar:
        bar.count("asking", 2)(2)
        bar.say("a remark")
    assert capsys.readouterr().err == "a remark\n"
