"""The net: nothing that users get has changed, unless somebody meant it (see tests/net.py)."""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from functools import reduce
from operator import getitem
from typing import Any

import pytest
import torch
from net import GOLDEN, PARTS, differences, find_all, reduced

WAS = json.loads(GOLDEN.read_text("utf-8"))


# the study asks one thing after the other, and takes as long as all the rest
@pytest.mark.parametrize("parts", [("study",), ("worlds", "weights", "plain")])
def test_nothing_has_changed(parts):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "COLUMNS"):
            patch.setenv(name, "")  # what find_all sets is taken back
        patch.setattr(sys, "path", list(sys.path))
        torch.set_num_threads(1)
        lines = differences(WAS, find_all(WAS, parts))
    accept = "If it is intended: python tests/net.py --write, and a line in CHANGELOG.md."
    assert not lines, "\n".join([*lines[:200], accept])


def path_to(part, begins, *keys):
    return (part, next(name for name in WAS[part] if name.startswith(begins)), *keys)


# changes that a refactoring might make by mistake: where, the new value, noticed on any machine
CHANGES = {
    "a world's file": (path_to("worlds", "world", "made", "dev.tsv"), "0" * 64, True),
    "a weight's last bit": (path_to("weights", "pretrain", "made", "sha256"), "0" * 64, False),
    "a loss": (path_to("weights", "pretrain", "made", "losses", "pretrain 20"), 1.1, True),
    "an option less": (path_to("plain", "study --help", "--resume"), None, True),
    "an exit code": (path_to("study", "ask", "exit"), 1, True),
    "a number": (path_to("study", "twins runs/study --without", "json", "score"), 1.001, False),
    "a page": (path_to("study", "/workbench.json", "json", "next_length"), 1.001, True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change):
    assert differences(WAS, WAS) == []
    path, new, anywhere = CHANGES[change]
    found = deepcopy(WAS)
    inside = reduce(getitem, path[:-1], found)
    old = inside.pop(path[-1])
    if new is not None:
        inside[path[-1]] = old * new if isinstance(new, float) else new  # a number by a factor
    assert differences(WAS, found)
    elsewhere = {**found, "machine": {"processor": "another"}}
    assert bool(differences(WAS, elsewhere)) == anywhere


def test_what_varies_is_masked_and_what_is_long_is_cut():
    record: dict[str, Any] = {
        "seconds": 3.2,
        "told": "it took 3.2 s in /tmp/x",
        "table": {"columns": ["name", "seconds"], "rows": [["a", 1.5]]},
        "many": list(range(20)),
    }
    assert reduced(record, "/tmp/x") == {
        "seconds": "(masked)",
        "told": "it took (masked)s in (folder)",
        "table": {"columns": ["name", "seconds"], "rows": 1},
        "many": {"(items)": 20, "0": 0, "1": 1, "2": 2, "19": 19},
    }


def test_the_record_is_whole():
    """Nothing was recorded from a failure, and every command and page is there."""
    assert set(WAS) == {*PARTS, "machine"}
    records = {**WAS["weights"], **WAS["plain"], **WAS["study"]}
    commands = {name.split()[0] for name in records if name.endswith("--help")}
    for command in commands - {"serve", "completion"}:
        asked = [name for name in records if name.split()[0] == command]
        assert len(asked) > 1, command
    for path, about in WAS["study"]["/api.json"]["json"]["addresses"].items():
        if about["method"] == "GET" and path.endswith(".json"):
            start = path.partition("{")[0]
            assert [name for name in records if name.split(" ")[-1].startswith(start)], path
    for name, record in records.items():
        assert record.get("exit", 0) in (0, 1, 2, 3), name
        assert "Traceback" not in json.dumps(record), name
