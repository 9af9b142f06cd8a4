"""Only runs inside the served folder are reachable; records are shown however odd they are."""

from __future__ import annotations

import json
import os

import pytest
from web_samples import HOSTILE, JOB, PHASE, open_client, write_run_record

from wherefrom.errors import UserError
from wherefrom.web import runs
from wherefrom.web.runs import MAX_POINTS, RunIndex, UnknownRunError


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    root = tmp_path_factory.mktemp("index")
    write_run_record(root / "outside" / "secret")
    for name in ("one", "one/twins/scratch", "group/two", ".hidden/three", 'a "quoted" <b>'):
        write_run_record(root / "runs" / name)
    (root / "runs" / "out").symlink_to(root / "outside")
    (root / "runs" / "again").symlink_to(root / "runs" / "one")
    (root / "runs" / "loop").symlink_to(root / "runs")
    return RunIndex(root / "runs")


def test_runs_are_found_with_their_twins(index):
    names = set(index.runs())
    assert {"one", "one/twins/scratch", "group/two", 'a "quoted" <b>', "again"} <= names
    assert not [name for name in names if "secret" in name or ".hidden" in name]


@pytest.mark.parametrize(
    "name",
    [
        "../outside/secret",
        "out/secret",
        "out",
        "/etc",
        "one/../one",
        "./one",
        "one/",
        "",
        "one\0",
        "group",
        "..",
        "one/twins",
        HOSTILE,
        "%2e%2e/outside/secret",
        "two\\..\\one",
    ],
)
def test_no_spelling_leads_out_of_the_folder(index, name):
    with pytest.raises(UnknownRunError):
        index.find(name)


def test_one_run_is_served_with_its_twins_and_no_neighbours(index):
    alone = RunIndex(index.root / "one")
    assert set(alone.runs()) == {"one", "one/twins/scratch"}
    with pytest.raises(UserError, match="one run is served"):
        alone.new_folder("new")


@pytest.mark.parametrize(
    ("name", "word"),
    [("one", "taken")]
    + [(bad, "letters") for bad in ("../x", "a/b", ".x", "-x", "x y", "", "x" * 61, "é", "x\n")],
)
def test_a_new_run_has_a_plain_name_that_is_free(index, name, word):
    with pytest.raises(UserError, match=word):
        index.new_folder(name)
    assert index.new_folder("fresh_1.0-x").parent == index.root


def test_what_cannot_be_served_is_refused_or_passed_over(tmp_path):
    with pytest.raises(UserError, match="not a folder"):
        RunIndex(tmp_path / "nothing")
    folder = os.path.join(os.fsencode(tmp_path), b"bad\xff")  # its name is not text
    os.mkdir(folder)
    with open(os.path.join(folder, b"run.json"), "w") as file:
        file.write("{}")
    assert RunIndex(tmp_path).runs() == {}


def test_broken_records_are_listed_as_such_and_refused_with_a_sentence(tmp_path):
    folder = write_run_record(tmp_path / "x")
    whole = (folder / "run.json").read_bytes()
    client = open_client(tmp_path)
    for content in (b"", b"[1]", b"{", b"\xff\xfe", b"[" * 100_000, whole.replace(b"3", b"4", 1)):
        (folder / "run.json").write_bytes(content)
        (listed,) = client.get("/runs.json").json()["runs"]
        assert listed["status"] == "unreadable"
        reply = client.get("/run.json?name=x")
        assert reply.status_code == 400
        assert "run.json" in reply.json()["error"]
    (folder / "run.json").write_bytes(whole)
    assert client.get("/run.json?name=x").json()["run"]["seed"] == 3


def test_a_curve_is_thinned_and_odd_lines_are_passed_over(tmp_path):
    points = [
        {"phase": "read", "step": at, "loss": 5.0, "progress": at / 3000} for at in range(1, 3001)
    ]
    lines = "".join(json.dumps(point) + "\n" for point in points)
    (tmp_path / "metrics.jsonl").write_text(lines + '{"step": 30\n7\nnull\n{"step": 4')
    index = RunIndex(tmp_path)
    found = index.curve(tmp_path)
    assert len(found) <= MAX_POINTS + 1
    assert (found[0]["step"], found[-1]["step"]) == (1, 3000)
    assert index.progress(tmp_path)["share"] == 1.0
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('000, "progress": 1}\n')
    assert index.curve(tmp_path)[-1]["step"] == 4000


def test_progress_counts_the_phases_before(tmp_path):
    phases = [PHASE | {"name": "read", "share": 3.0}, PHASE | {"name": "ask", "share": 1.0}]
    folder = write_run_record(tmp_path / "run", job=JOB | {"phases": phases})
    (folder / "metrics.jsonl").write_text('{"phase": "ask", "step": 10, "progress": 0.5}\n')
    assert RunIndex(tmp_path).progress(folder)["share"] == 0.875


def test_files_are_read_once_until_they_change(served, monkeypatch):
    client = open_client(served)
    asked = ("runs.json", "report.json?run=small", "compare.json?run=small", "run.json?name=small")
    first = [client.get(page).json() for page in asked]
    read, prepared, real = [], [], runs.read_record
    monkeypatch.setattr(runs, "read_record", lambda folder: read.append(folder) or real(folder))
    preparing = client.app.state.site.preparing
    monkeypatch.setattr(preparing, "run", lambda *call, seconds: prepared.append(call))
    assert [client.get(page).json() for page in asked] == first
    assert (read, prepared) == ([], [])
    os.utime(served / "small" / "run.json")
    client.get("/report.json?run=small")
    assert (read, len(prepared)) == ([served / "small"], 1)  # the record and the report
