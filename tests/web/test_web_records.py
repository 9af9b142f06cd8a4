"""What a run's records tell, however odd they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.web.runs import MOST_POINTS, curve, describe, files_of, progress_of, summarise

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
KEYS = ["job", "results", "command", "data", "kind", "status", "versions", "seconds", "dev"]


@given(st.dictionaries(st.sampled_from(KEYS), JSON))
@settings(max_examples=60)
def test_any_record_can_be_shown(tmp_path_factory: Any, record: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    told = describe("odd", folder)
    json.dumps(told, allow_nan=False)
    assert files_of(folder) is None
    assert progress_of(folder)["share"] == 0.0


def test_broken_records_are_told_as_unknown(tmp_path: Path) -> None:
    for content in (b"", b"[1]", b"{", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "run.json").write_bytes(content)
        assert summarise("x", tmp_path)["status"] == "unknown"


def test_a_curve_is_thinned_and_ends_where_training_is(tmp_path: Path) -> None:
    lines = [
        json.dumps(
            {"phase": "read", "step": step, "loss": 5 - step / 1000, "progress": step / 3000}
        )
        for step in range(1, 3001)
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 30', "7", "null"]))
    found = curve(tmp_path)
    assert len(found["step"]) <= MOST_POINTS + 1
    assert found["step"][0] == 1
    assert found["step"][-1] == 3000
    assert progress_of(tmp_path)["share"] == 1.0


def test_progress_counts_the_phases_before(tmp_path: Path) -> None:
    phases = [{"name": "read", "share": 3.0}, {"name": "ask", "share": 1.0}]
    (tmp_path / "run.json").write_text(json.dumps({"job": {"phases": phases}}))
    point = {"phase": "ask", "step": 10, "loss": 1.0, "progress": 0.5}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(point) + "\n")
    assert progress_of(tmp_path)["share"] == 0.875


def test_a_study_of_the_embedded_world_has_no_files_to_use_again(served: Path) -> None:
    assert files_of(served / "small") is None


def test_a_study_of_files_can_lend_them(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("corpus.txt", "train.tsv", "dev.tsv")]
    for path in paths:
        path.write_text("x")
    corpus, train, dev = map(str, paths)
    record = {
        "kind": "study",
        "command": ["wherefrom", "study", corpus, train, dev, "--out", "x"],
        "data": {"corpus": {"path": corpus}, "questions": {"path": train}},
        "dev": {"path": dev},
    }
    (tmp_path / "run.json").write_text(json.dumps(record))
    assert files_of(tmp_path) == [corpus, train, dev]
    paths[2].unlink()
    assert files_of(tmp_path) is None
