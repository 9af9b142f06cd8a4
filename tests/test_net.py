"""The net: nothing that users get has changed, unless somebody meant it (see tests/net.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from net import GOLDEN, PARTS, differences, reduced

SCRIPT = Path(__file__).with_name("net.py")
HELP = "\nIf it is intended: python tests/net.py --write, and a line in CHANGELOG.md."


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text("utf-8"))


@pytest.fixture(scope="session")
def found() -> dict[str, Any]:
    """What the code does now, found in a process of its own with one thread."""
    script = [sys.executable, SCRIPT, "--print"]
    done = subprocess.run(script, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# one test for all parts: several would be dealt to several workers, and each would train anew
def test_nothing_has_changed(golden: dict[str, Any], found: dict[str, Any]) -> None:
    lines = differences(golden, found)
    shown = "\n".join(lines[:60])
    assert not lines, f"{len(lines)} facts differ (was: recorded, is: now)\n{shown}{HELP}"


# changes that a refactoring might make by mistake: where, the new value, noticed on any machine
CHANGES = {
    "a world's file": (("worlds", "default", "dev.tsv"), "0" * 64, True),
    "a weight's last bit": (("weights", "variant llama", "sha256"), "0" * 64, False),
    "a loss": (("weights", "recipe course", "losses", "pretrain 19"), 1.1, True),
    "an option less": (("plain", "options of study", "--resume"), None, True),
    "a verdict": (("plain", "check: holds", "json", "verdict"), "proved", True),
    "an exit code": (("study", "ask: refused", "exit"), 1, True),
    "a key less": (("study", "study", "json", "results"), None, True),
    "a number": (("study", "twins --without", "json", "score"), 1.001, False),
    "a page": (("study", "/workbench.json", "json", "next_length"), 1.001, True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(golden: dict[str, Any], change: str) -> None:
    assert differences(golden, golden) == []
    path, new, anywhere = CHANGES[change]
    found = deepcopy(golden)
    inside = reduce(getitem, path[:-1], found)
    old = inside.pop(path[-1])
    if new is not None:
        inside[path[-1]] = old * new if isinstance(new, float) else new  # a number by a factor
    assert differences(golden, found)
    elsewhere = {**found, "machine": {"processor": "another"}}
    assert bool(differences(golden, elsewhere)) == anywhere


def test_what_varies_is_masked_and_what_is_long_is_cut() -> None:
    record = {
        "seconds": 3.2,
        "trained": {"seconds": None},
        "told": "it took 3.2 s in /tmp/x",
        "table": {"columns": ["name", "seconds"], "rows": [["a", 1.5]]},
        "many": list(range(20)),
    }
    assert reduced(record, "/tmp/x") == {
        "seconds": "(masked)",
        "trained": {"seconds": None},
        "told": "it took (masked)s in (folder)",
        "table": {"columns": ["name", "seconds"], "rows": 1},
        "many": {"(items)": 20, "0": 0, "1": 1, "2": 2, "19": 19},
    }


def test_the_record_is_whole(golden: dict[str, Any]) -> None:
    """Nothing was recorded from a failure, and every command and page is there."""
    assert set(golden) == {*PARTS, "machine"}
    records = {**golden["plain"], **golden["study"]}
    commands = {name.removeprefix("options of ") for name in records if "options of" in name}
    for command in commands - {"serve", "completion"}:
        assert [name for name in records if name.split(":")[0].split()[0] == command], command
    for address in golden["study"]["/api.json"]["json"]["addresses"]:
        method, path = address.split()
        start = path.partition("{")[0]
        if method == "GET" and path.endswith(".json"):
            assert [name for name in records if name.startswith(start)], path
    for name, record in records.items():
        assert record.get("exit", 0) in (0, 1, 2, 3), name
        assert "Traceback" not in json.dumps(record), name
