"""A study of a few people, for tests of what a study leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wherefrom.study import StudyResult, embedded_files, run_study
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.settings import Settings

ROWS = ["majority", "by name", "reader", "no pretraining", "pretrained", "unseen people"]


def study(out: Path, recipe: Path, *, resume: bool = False, **options: Any) -> StudyResult:
    files = embedded_files(out / "world", people=40, seed=2)
    settings = Settings(
        recipe=load_recipe(str(recipe)), budget=Budget(steps=20), seed=2, resume=resume
    )
    return run_study(files, settings, out, **options)
