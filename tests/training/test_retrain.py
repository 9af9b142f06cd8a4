"""Training again: the same weights from the same documents, and other weights from fewer."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from training_samples import read_metrics

from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import UserError
from wherefrom.storage import read_json, write_json
from wherefrom.training.jobs import retrain, run_training
from wherefrom.training.loop import BudgetClock
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import Run, load_run
from wherefrom.training.settings import Runtime, Settings, TrainingJob

pytestmark = pytest.mark.usefixtures("small_pools")

RESUME = Runtime(resume=True)


def learn(world: Path, recipe: Path, out: Path, budget: Budget) -> tuple[Run, TrainingJob]:
    settings = Settings(recipe=load_recipe(str(recipe)), budget=budget, seed=4)
    job = settings.job(
        out,
        kind="study",
        phases=budget.divide(settings.recipe.phases),
        corpus=read_documents(world / "documents.txt"),
        questions=read_questions(world / "train.tsv"),
        letters_from=["Where was Zoë Ñandú born?"],  # letters that only a question has
    )
    return run_training(job, settings), job


def again(run: Run, job: TrainingJob, out: Path, *, drop: int = 0, **options: Any) -> Run:
    documents = job.documents[drop:]
    return retrain(run, documents, job.questions, out, instead_of=job.documents, **options)


@pytest.mark.parametrize(
    "budget",
    [Budget(steps=23), Budget(epochs=0.3), Budget(minutes=0.015)],
    ids=["steps", "epochs", "minutes"],
)
def test_with_the_same_documents_the_weights_are_the_same_to_the_last_bit(
    tmp_path: Path, small_world: Path, quick_recipe: Path, budget: Budget
) -> None:
    run, job = learn(small_world, quick_recipe, tmp_path / "run", budget)
    twin = again(run, job, tmp_path / "twin")
    assert twin.info["sha256"] == run.info["sha256"]
    assert twin.info["steps"] == run.info["steps"]
    assert twin.tokens.to_json() == run.tokens.to_json()
    fewer = again(run, job, tmp_path / "fewer", drop=1)
    assert fewer.info["sha256"] != run.info["sha256"]
    assert fewer.info["steps"] == run.info["steps"]


def test_learning_rates_are_those_of_the_run_though_the_clock_runs_otherwise(
    tmp_path: Path, small_world: Path, quick_recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate, clock = BudgetClock.after_step, "wherefrom.training.loop.time.perf_counter"

    def ticking(seconds: float) -> Callable[[], float]:
        numbers = count()
        return lambda: seconds * next(numbers)

    def estimate_early(clock: BudgetClock, step: int, seconds: float) -> None:
        if step <= 8:  # so that most of the run rests on what was decided long before its end
            estimate(clock, step, seconds)

    with monkeypatch.context() as patch:
        patch.setattr(BudgetClock, "after_step", estimate_early)
        patch.setattr(clock, ticking(0.02))
        run, job = learn(small_world, quick_recipe, tmp_path / "run", Budget(minutes=0.02))
    with monkeypatch.context() as patch:
        patch.setattr(clock, ticking(2.0))  # by that clock, its time is up at once
        twin = again(run, job, tmp_path / "twin", drop=3)
    assert twin.info["steps"] == run.info["steps"] > 40
    ours, theirs = ([(x["step"], x["lr"]) for x in read_metrics(r.folder)] for r in (twin, run))
    assert ours == theirs


def test_a_twin_that_was_stopped_goes_on_to_the_same_weights(
    tmp_path: Path, small_world: Path, quick_recipe: Path
) -> None:
    run, job = learn(small_world, quick_recipe, tmp_path / "run", Budget(minutes=0.02))

    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    out = tmp_path / "twin"
    with pytest.raises(KeyboardInterrupt):
        again(run, job, out, observe=stop)
    assert json.loads((out / "run.json").read_text())["status"] == "stopped"
    with pytest.raises(UserError, match="add --resume"):
        again(run, job, out)
    with pytest.raises(UserError, match="the documents have changed"):
        again(run, job, out, drop=1, settings=RESUME)
    assert again(run, job, out, settings=RESUME).info["sha256"] == run.info["sha256"]
    written = (out / "metrics.jsonl").stat().st_mtime_ns
    assert again(run, job, out, settings=RESUME).info["sha256"] == run.info["sha256"]
    assert (out / "metrics.jsonl").stat().st_mtime_ns == written
    (run.folder / "pace.jsonl").unlink()
    with pytest.raises(UserError, match="does not say how many steps"):
        again(run, job, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_run_with_the_keys_of_an_older_version_can_be_trained_again(
    tmp_path: Path, small_world: Path, quick_recipe: Path
) -> None:
    run, job = learn(small_world, quick_recipe, tmp_path / "run", Budget(steps=4))
    info = read_json(run.folder / "run.json")
    info["job"]["silent_start"] = info["job"].pop("zero_init")
    for phase in info["job"]["phases"]:
        phase["asked"] = phase.pop("asked_fact_prob")
        phase["left"] = phase.pop("left_words")
    write_json(run.folder / "run.json", info)
    twin = again(load_run(run.folder), job, tmp_path / "twin")
    assert twin.info["sha256"] == run.info["sha256"]
