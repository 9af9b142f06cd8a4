"""Places that cannot be written to, mistakes of the user, and SIGTERM: one sentence each."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from wherefrom.provenance.answers import read_judged

READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'


def run_read_only(folder, *words):
    """`wherefrom` with these words, where the folder is read-only, also for root."""
    started = [sys.executable, "-m", "wherefrom", *map(str, words)]
    command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(folder), *started]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def locked(tiny_study, tmp_path_factory):
    """A copy of a study; skips where no read-only place can be made."""
    folder = shutil.copytree(tiny_study, tmp_path_factory.mktemp("locked") / "run")
    probe = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(folder), "true"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a folder read-only")
    return folder


@pytest.fixture(scope="module")
def question(tiny_study):
    judged = read_judged(tiny_study)
    return judged[0]["question"]


def test_what_need_not_write_works_in_a_read_only_run(locked, question):
    for words in (
        ("trace", locked, question),
        ("judge", locked),
        ("report", locked, "--format", "json"),
    ):
        ended = run_read_only(locked, *words)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout
    assert not (locked / "gradients.safetensors").exists()


def test_twins_of_a_read_only_run_are_advised_only_options_that_they_have(locked, question):
    subject = read_judged(locked)[0]["subject"]
    ended = run_read_only(locked, "twins", locked, "--without", subject)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert str(locked) in ended.stderr
    assert "--out" not in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        "report {run}",
        "evaluate {run} {run}/world/dev.tsv --out {run}/said.txt",
        "attention {run} {question} --plot {run}/maps.html",
        "study {run}/world/documents.txt {dev} {dev} --out {run} --resume --set-aside 0",
    ],
)
def test_what_must_write_says_where_it_cannot(locked, question, words):
    filled = [
        word.format(run=locked, question=question, dev=f"{locked}/world/dev.tsv")
        for word in words.split()
    ]
    ended = run_read_only(locked, *filled)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr
    assert str(locked) in ended.stderr.splitlines()[-1]


def test_what_is_no_question_or_no_answer_is_not_traced(command, tiny_study, question):
    for words, said in (
        (("blah",), "neither a question nor a name in the text"),
        ((question, "--answer", " "), "an empty one came"),
    ):
        ended = command("trace", tiny_study, *words)
        assert (ended.code, ended.out) == (2, "")
        assert said in ended.err


def test_a_model_larger_than_the_memory_is_refused_before_any_work(command, tmp_path):
    for size in ("1000000000x2x2", "60000x250x2"):
        ended = command("study", "--size", size, "--out", tmp_path / "run")
        assert (ended.code, ended.out) == (2, "")
        assert "choose a smaller --size" in ended.err
    assert not (tmp_path / "run").exists()


def test_resume_of_nothing_says_that_it_starts_a_training(command, tmp_path):
    ended = command("study", "--resume", "--out", tmp_path / "run", "--people", "1")
    assert "yet: this starts a new training" in ended.err.splitlines()[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_world_is_made_ends_with_a_sentence(tmp_path, number):
    words = ["study", "--people", "20000", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        [sys.executable, "-m", "wherefrom", *words],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert "making the embedded world" in process.stderr.readline()
    time.sleep(0.2)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said.strip() == "wherefrom: stopped."
