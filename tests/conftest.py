"""What several rooms' tests share: the command line, and a small embedded world."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from wherefrom.cli import main

# a slow or busy machine is no reason for a property to fail
settings.register_profile("wherefrom", deadline=None)
settings.load_profile("wherefrom")


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`wherefrom ...` in this process."""

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["wherefrom", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Ended(end.value.code, said.out, said.err)

    return run


@pytest.fixture(scope="session")
def start_process() -> Callable[..., subprocess.Popen[str]]:
    """`python -m ...` as a process of its own, one thread each; -m wherefrom if not told."""

    def start(*arguments: object, module: str = "wherefrom") -> subprocess.Popen[str]:
        paths = os.pathsep.join(path for path in sys.path if path)
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", module, *map(str, arguments)],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def small_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few examples a pool, and one thread, so that sums are equal to the last bit."""
    import torch

    from wherefrom.corpus import batches

    torch.set_num_threads(1)
    monkeypatch.setattr(batches, "POOL", 64)


@pytest.fixture(scope="session")
def small_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded world with few people in it; tests read it and leave it as it is."""
    from wherefrom.corpus.world import make_world, write_world

    return write_world(make_world(60, 0), tmp_path_factory.mktemp("small") / "world")


@pytest.fixture(scope="session")
def quick_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two phases, characters and small batches: everything there is, in a few seconds."""
    path = tmp_path_factory.mktemp("recipe") / "quick.toml"
    path.write_text(
        """
about = "for tests"
tokens = "chars"
size = "16x3x2"
variant = "vanilla"
block = 96
dropout = 0.1

[[phases]]
name = "read"
mixture = { span = 0.5, salient = 0.5 }
share = 0.7
epochs = 1
batch_tokens = 700
lr = 1e-2
optimizer = "muon"

[[phases]]
name = "ask"
mixture = { question = 1.0 }
share = 0.3
epochs = 1
batch_examples = 5
lr = 1e-2

[scratch]
name = "ask"
mixture = { question = 1.0 }
epochs = 1
batch_tokens = 512
lr = 1e-2
"""
    )
    return path
