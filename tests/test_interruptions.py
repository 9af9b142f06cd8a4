"""A command that is killed, or that finds the disk full, harms no run and can be repeated.

Commands run in forks of this process, which end at a moment of their own time: imports, which take
longer than the work, are not repeated.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from audit.conftest import make_model

from wherefrom.cli import cli
from wherefrom.provenance.answers import read_judged
from wherefrom.training.record import find_problem, read_record

# newer releases of Python warn of a fork beside torch's threads
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
ROOM = 64_000  # kB, enough for everything here
MOMENTS = (0.2, 0.5, 0.9)  # shares of the time that a command takes


def run_in_fork(words, seconds=None, number=signal.SIGKILL):
    """The exit code of `wherefrom` with these words; signalled after so many seconds, if any."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            sys.argv = ["wherefrom", *map(str, words)]
            cli.main(sys.argv[1:], standalone_mode=False)
            status = 0
        finally:
            os._exit(status)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def digest_of_weights(folder):
    """The weights that a command left in a folder, adapters of other models too."""
    files = sorted(Path(folder).glob("**/*model.safetensors"))
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


@pytest.fixture
def run(tiny_study, tmp_path):
    return shutil.copytree(tiny_study, tmp_path / "run")


@pytest.fixture
def words_of(run, tmp_path):
    """The words of a command on the run, and where it writes."""
    judged = read_judged(run)[0]
    (tmp_path / "names.txt").write_text(
        (run / "world" / "documents.txt").read_text().partition(".")[0]
    )
    texts = [f"Ada Moe{i}. Ada Moe{i} was born in {('Paris', 'Rome')[i % 2]}.\n" for i in range(30)]
    rows = [f"Where was Ada Moe{i} born?\t{('Paris', 'Rome')[i % 2]}\n" for i in range(30)]
    for name, lines in (("text.txt", texts), ("train.tsv", rows[:20]), ("dev.tsv", rows[20:])):
        (tmp_path / name).write_text("".join(lines))

    def fill(name, out):
        if name == "base":
            if not (tmp_path / "model").exists():
                make_model(tmp_path / "model", "llama", 0)
            files = [tmp_path / file for file in ("text.txt", "train.tsv", "dev.tsv")]
            return ("study", *files, "--base", tmp_path / "model", "--steps", 6, "--out", out)
        return {
            "judge": ("judge", run, "--resamples", 20, "--json"),
            "trace": ("trace", run, judged["question"], "--json"),
            "forget": ("forget", run, "--names", tmp_path / "names.txt", "--out", out),
        }[name]

    return fill


@pytest.mark.parametrize("name", ["judge", "trace", "forget", "base"])
def test_a_command_that_is_killed_can_be_repeated_with_the_same_result(
    name, run, words_of, tmp_path, command
):
    whole = tmp_path / "whole"
    before = shutil.copytree(run, tmp_path / "before")
    first = command(*words_of(name, whole))
    assert first.code == 0, first.err
    began = time.monotonic()
    shutil.rmtree(run)
    shutil.copytree(before, run)
    assert run_in_fork(words_of(name, tmp_path / "timed")) == 0
    seconds = time.monotonic() - began
    for i, moment in enumerate(MOMENTS):
        shutil.rmtree(run)
        shutil.copytree(before, run)
        out = tmp_path / f"out{i}"
        number = signal.SIGTERM if i % 2 else signal.SIGKILL
        run_in_fork(words_of(name, out), moment * seconds, number)
        record = read_record(run)
        assert [find_problem(run, file) for file in record.files] == [None] * len(record.files)
        more = ("--resume",) if name == "base" else ()
        if name == "forget":  # what was not finished is not gone on with
            shutil.rmtree(out, ignore_errors=True)
        again = command(*words_of(name, out), *more)
        assert again.code == 0, (moment, again.err)
        if name in ("judge", "trace"):
            assert again.out == first.out
        else:
            assert digest_of_weights(out) == digest_of_weights(whole) != []


@pytest.fixture
def disk(tmp_path):
    """Make a small file system over a folder, and give it another size; skips if nobody may."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def resize(kilobytes, *, remount=True):
        options = f"{'remount,' if remount else ''}size={kilobytes}k"
        return subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True
        ).returncode

    if shutil.which("mount") is None or resize(ROOM, remount=False):
        pytest.skip("this system lets nobody mount a file system")
    yield folder, resize
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def used_kilobytes(folder):
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize // 1024


@pytest.mark.parametrize(("name", "room"), [("judge", 60), ("trace", 8), ("study", 300)])
def test_a_full_disk_is_one_sentence_and_the_command_can_be_repeated(
    name, room, tiny_study, tiny_study_options, quick_recipe, disk, command, small_training
):
    folder, resize = disk
    run = folder / "run"
    if name == "study":
        words = ("study", *tiny_study_options, "--recipe", quick_recipe, "--out", run, "--quiet")
        more = ("--resume",)
    else:
        shutil.copytree(tiny_study, run)
        question = read_judged(run)[0]["question"]
        words = {"judge": ("judge", run, "--resamples", 20), "trace": ("trace", run, question)}
        words, more = (*words[name], "--json"), ()
    resize(used_kilobytes(folder) + room)
    ended = command(*words)
    assert ended.code in (0, 2), ended.err
    assert "Traceback" not in ended.err
    if ended.code:
        said = ended.err.splitlines()[-1]
        assert any(why in said for why in ("No space left", "disk is full", "make room"))
    resize(ROOM)
    again = command(*words, *more)
    assert again.code == 0, again.err
    if name == "study":
        assert digest_of_weights(run) == digest_of_weights(tiny_study)
