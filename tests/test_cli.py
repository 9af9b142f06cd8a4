"""The command line: instant help, one sentence for a mistake, results on stdout alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import click
import pytest

from wherefrom.cli import COMMANDS, TORCH_READS, cli

LIBRARIES = "fastapi numpy pandas plotly pydantic rich scipy sklearn tokenizers torch"
HEAVY = set(LIBRARIES.split())


def run_python(code, *arguments, **options):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from wherefrom.cli import cli\n"
        "from wherefrom.cli import COMMANDS\n"
        "for name in ([], *([name] for name in COMMANDS)):\n"
        "    cli.main([*name, '--help'], standalone_mode=False)\n"
        "print('loaded:', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    *_, last = run_python(code).stdout.splitlines()
    assert "click" in last.split()
    assert not HEAVY & set(last.split())


@pytest.mark.parametrize("own", [None, "7"])
def test_what_torch_reads_as_it_loads_is_set_unless_the_user_did(own):
    code = (
        "import os, sys\n"
        "from wherefrom import cli\n"
        "cli.cli.main = lambda **_: 0\n"
        "try:\n"
        "    cli.main()\n"
        "finally:\n"
        f"    print(*(os.environ[name] for name in {list(TORCH_READS)}), 'torch' in sys.modules)"
    )
    around = {key: value for key, value in os.environ.items() if key not in TORCH_READS}
    given = {} if own is None else dict.fromkeys(TORCH_READS, own)
    wanted = TORCH_READS.values() if own is None else [own] * len(TORCH_READS)
    assert run_python(code, env={**around, **given}).stdout.split() == [*wanted, "False"]


def test_every_command_of_the_table_is_there_and_says_what_it_is_for(command):
    overview = command("--help").out
    for name in COMMANDS:
        found = cli.get_command(click.Context(cli), name)
        assert found is not None
        assert found.name == name
        begins = " ".join(found.get_short_help_str().split()[:3])
        assert re.search(rf"^  {name} +{re.escape(begins)}", overview, re.M)
        ended = command(name, "--help")
        assert ended.code == 0
        options = [each.opts[0] for each in found.params if isinstance(each, click.Option)]
        assert set(options) <= set(re.findall(r"--[a-z-]+", ended.out)), name
        assert options.count("--quiet") == 1, name


def test_a_failure_of_ours_shows_its_trace_and_exits_1(command, monkeypatch):
    def fail(*_):
        raise RuntimeError("broken inside")

    monkeypatch.setattr("wherefrom.training.recipes.shipped_recipes", fail)
    ended = command("recipes")
    assert ended.code == 1
    assert "broken inside" in ended.err
    assert "bug in Wherefrom" in ended.err


@pytest.mark.parametrize(
    ("package", "command", "extra"), [("fastapi", "serve", "[page]"), ("rich", "problems", "")]
)
def test_a_missing_package_is_a_sentence(package, command, extra, tmp_path):
    code = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['wherefrom', {command!r}]\n"
        "from wherefrom.cli import main; main()"
    )
    ended = run_python(code, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"wherefrom: this needs {package}")
    assert f'pip install "wherefrom{extra}"' in ended.stderr
    assert "Traceback" not in ended.stderr
