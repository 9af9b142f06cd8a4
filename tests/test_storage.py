"""A file is whole under its name or it is not there, and a failure leaves the older one."""

from __future__ import annotations

import hashlib
import os
import stat

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wherefrom.errors import UserError
from wherefrom.storage import make_folder, read_json, sha256_of, write_all, write_json, write_whole


@pytest.mark.parametrize("content", ["Zürich\r\n", b"\x00\xff\r\n", "", b"abc" * 1_000_000])
def test_what_is_written_is_read_back_byte_for_byte(tmp_path, content):
    path = tmp_path / "file"
    write_whole(path, content)
    expected = content.encode() if isinstance(content, str) else content
    assert path.read_bytes() == expected
    assert sha256_of(path) == hashlib.sha256(expected).hexdigest()
    write_whole(str(path), b"newer")
    assert path.read_bytes() == b"newer"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("older", [None, b"older"])
@pytest.mark.parametrize(
    ("problem", "raised"),
    [(OSError(28, "No space left on device"), UserError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_a_failure_at_any_step_leaves_what_was_there_and_nothing_else(
    tmp_path, monkeypatch, step, older, problem, raised
):
    path = tmp_path / "file"
    if older is not None:
        path.write_bytes(older)

    def fail(*_):
        raise problem

    with monkeypatch.context() as broken:
        broken.setattr(os, step, fail)
        with pytest.raises(raised) as caught:
            write_whole(path, b"newer")
    if raised is UserError:
        assert f"{path} cannot be written: No space left on device" in str(caught.value)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == ([older] if older else [])


def test_no_name_changes_hands_before_the_bytes_of_all_files_are_on_the_disk(tmp_path, monkeypatch):
    replace, fsync, steps = os.replace, os.fsync, []

    def watch_replace(source, target):
        steps.append((source.read_bytes(), target.read_bytes()))
        replace(source, target)

    def watch_fsync(handle):
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        steps.append("names on disk" if is_folder else "on disk")
        fsync(handle)

    one, two = tmp_path / "one", tmp_path / "two"
    write_all({one: b"older 1", two: b"older 2"})
    monkeypatch.setattr(os, "replace", watch_replace)
    monkeypatch.setattr(os, "fsync", watch_fsync)
    write_all({one: b"newer 1", two: "newer 2"})
    renamed = [(b"newer 1", b"older 1"), (b"newer 2", b"older 2")]
    assert steps == ["on disk", "on disk", *renamed, "names on disk"]
    assert (one.read_bytes(), two.read_bytes()) == (b"newer 1", b"newer 2")


LEAVES = st.none() | st.booleans() | st.integers() | st.text() | st.floats(-1e300, 1e300)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(record=JSON)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_record_comes_back_and_what_is_no_json_is_not_written(tmp_path, record):
    path = tmp_path / "record.json"
    write_json(path, record)
    assert path.read_bytes().endswith(b"\n")
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            write_json(path, [record, number])
    assert read_json(path) == record


def test_what_is_broken_missing_or_of_the_wrong_kind_is_one_sentence_with_its_path(tmp_path):
    for content in (b"{", b"", b'{"a": \xff}', b"\x00"):
        (tmp_path / "broken.json").write_bytes(content)
        with pytest.raises(UserError, match=r"broken\.json[^\n]*$"):
            read_json(tmp_path / "broken.json")
    folder = make_folder(tmp_path / "a" / "b")
    assert make_folder(folder) == folder
    assert folder.is_dir()
    file = tmp_path / "file"
    write_whole(file, "mine")
    for says, mistake in {
        "cannot be written": lambda: write_whole(tmp_path / "nowhere" / "file", "text"),
        "does not exist": lambda: read_json(tmp_path / "record.json"),
        "is not a file": lambda: read_json(tmp_path),
        "is a file; a folder was expected": lambda: make_folder(file),
        "cannot be made": lambda: make_folder(file / "deeper"),
    }.items():
        with pytest.raises(UserError, match=says):
            mistake()
