"""What the tests of several packages share: the command line, a small world, one tiny study."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from hypothesis import settings

from wherefrom.cli import main

# before numpy and torch are loaded: `make test` runs as many workers as there are cores, and
# threads that wait for each other cost more than they bring on models as small as these
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# a slow or busy machine is no reason for a property to fail; 40 examples, as there are many runs
settings.register_profile("wherefrom", deadline=None, max_examples=40)
settings.load_profile("wherefrom")


Ended = namedtuple("Ended", "code out err")  # how a command ended and what it said


@pytest.fixture
def command(monkeypatch, capsys):
    """`wherefrom ...` in this process."""

    def run(*arguments):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["wherefrom", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Ended(end.value.code, said.out, said.err)

    return run


@pytest.fixture(scope="session")
def start_process():
    """`python -m ...` as a process of its own, one thread each; -m wherefrom if not told."""

    def start(*arguments, module="wherefrom"):
        paths = os.pathsep.join(path for path in sys.path if path)
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", module, *map(str, arguments)],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def _make_small(patch):
    import torch

    from wherefrom.corpus import batches
    from wherefrom.provenance import after_training

    torch.set_num_threads(1)
    patch.setattr(batches, "POOL_ROWS", 64)
    patch.setattr(after_training, "MAX_UNSEEN_PER_CALIBRATING", 1)
    patch.setattr(after_training, "NAMES_PER_ORIGIN", 2)


@pytest.fixture(scope="session")
def make_small():
    """Few examples a pool, few invented names, and one thread, so that sums are equal."""
    return _make_small


@pytest.fixture
def small_training(monkeypatch, make_small):
    """As `tiny_study` was trained, equal to the last bit."""
    make_small(monkeypatch)


@pytest.fixture(scope="session")
def small_world(tmp_path_factory):
    """The embedded world with few people in it; tests read it and leave it as it is."""
    from wherefrom.corpus.world import make_world, write_world

    return write_world(make_world(60, 0), tmp_path_factory.mktemp("small") / "world")


@pytest.fixture(scope="session")
def quick_recipe():
    """The path of tests/quick.toml."""
    return Path(__file__).parent / "quick.toml"


@pytest.fixture(scope="session")
def tiny_study_options():
    """What `wherefrom study` was given to make `tiny_study`, apart from --out and --recipe.

    `command("study", *tiny_study_options, "--recipe", quick_recipe, "--out", COPY, "--resume")`
    goes on with a copy of it and has nothing left to train.
    """
    world, length = ("--people", 60, "--seed", 2), ("--steps", 20)
    return (*world, *length, "--tokens", "bpe", "--set-aside", 0.3, "--leave-out", 0.2)


@pytest.fixture(scope="session")
def tiny_study(tmp_path_factory, quick_recipe, tiny_study_options, make_small):
    """The run folder of one finished study: its twin, evidence, confidence, judgement and report.

    It is trained once per session, also under xdist, and knows next to nothing. Tests only read
    it; a test that changes anything takes `shutil.copytree(tiny_study, tmp_path / "run")`.
    A test that compares weights to the last bit also needs the fixture `small_training`.
    """
    from wherefrom.cli import cli

    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of all workers
    out, done = base / "tiny" / "study", base / "tiny" / "done"
    out.parent.mkdir(exist_ok=True)
    with open(base / "tiny" / "lock", "w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make_small(patch)
            options = (*tiny_study_options, "--recipe", quick_recipe, "--out", out, "--quiet")
            arguments = ["study", *map(str, options)]
            patch.setattr(sys, "argv", ["wherefrom", *arguments])  # run.json records it
            cli.main(arguments, standalone_mode=False)
            done.touch()
    return out
