"""What the page's tests share: a small study, its twin, things that are no runs, and a loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HOSTILE = '"><script>alert(1)</script>'


def run(task: Coroutine[Any, Any, Any]) -> Any:
    """To its end in a loop of its own: a browser's tests may hold this thread's."""
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, task).result()


def write_record(folder: Path, **record: object) -> Path:
    """A run folder that holds a record and nothing else."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


def make_study(out: Path, recipe: Path, *, people: int = 40) -> None:
    """Everything that a study leaves behind, in a few seconds; it recalls next to nothing."""
    import torch

    from wherefrom.study import embedded_files, run_study
    from wherefrom.training.recipes import Budget, load_recipe
    from wherefrom.training.settings import Settings

    torch.set_num_threads(1)
    files = embedded_files(out / "world", people=people, seed=2)
    settings = Settings(recipe=load_recipe(str(recipe)), budget=Budget(steps=20), seed=2)
    run_study(files, settings, out)
