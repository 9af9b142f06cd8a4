"""Training again: the same weights from the same documents, and other weights from fewer."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import UserError
from wherefrom.training.jobs import Budget, Settings, TrainingJob, retrain, run_training
from wherefrom.training.loop import MinutePace
from wherefrom.training.recipes import load_recipe
from wherefrom.training.run_folder import Run, digest_of

pytestmark = pytest.mark.usefixtures("small_pools")


def learn(world: Path, recipe: Path, out: Path, budget: Budget) -> tuple[Run, TrainingJob]:
    settings = Settings(recipe=load_recipe(str(recipe)), budget=budget, seed=4)
    lesson = TrainingJob(
        kind="study",
        phases=budget.divide(settings.recipe.phases),
        corpus=read_documents(world / "documents.txt"),
        questions=read_questions(world / "train.tsv"),
        asked=["Where was Zoë Ñandú born?"],  # letters that only a question has
    )
    return run_training(lesson, settings, out), lesson


def again(run: Run, lesson: TrainingJob, out: Path, *, drop: int = 0, **options: object) -> Run:
    assert lesson.corpus is not None
    assert lesson.questions is not None
    documents = lesson.corpus.documents
    return retrain(
        run,
        documents[drop:],
        lesson.questions.questions,
        out,
        instead_of=documents,
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    "budget",
    [Budget(steps=23), Budget(epochs=0.3), Budget(minutes=0.015)],
    ids=["steps", "epochs", "minutes"],
)
def test_with_the_same_documents_the_weights_are_the_same_to_the_last_bit(
    tmp_path: Path, small_world: Path, quick_recipe: Path, budget: Budget
) -> None:
    run, lesson = learn(small_world, quick_recipe, tmp_path / "run", budget)
    twin = again(run, lesson, tmp_path / "twin")
    assert twin.info["sha256"] == run.info["sha256"]
    assert twin.info["steps"] == run.info["steps"]
    assert twin.tokens.to_json() == run.tokens.to_json()
    fewer = again(run, lesson, tmp_path / "fewer", drop=1)
    assert fewer.info["sha256"] != run.info["sha256"]
    assert fewer.info["steps"] == run.info["steps"]


def test_learning_rates_are_those_of_the_run_though_the_clock_runs_otherwise(
    tmp_path: Path, small_world: Path, quick_recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, clock = MinutePace.after_step, "wherefrom.training.loop.time.perf_counter"

    def ticking(seconds: float) -> Callable[[], float]:
        numbers = count()
        return lambda: seconds * next(numbers)

    def look_early(pace: MinutePace, step: int, seconds: float) -> None:
        if step <= 8:  # so that most of the run rests on what was decided long before its end
            look(pace, step, seconds)

    with monkeypatch.context() as patch:
        patch.setattr(MinutePace, "after_step", look_early)
        patch.setattr(clock, ticking(0.02))
        run, lesson = learn(small_world, quick_recipe, tmp_path / "run", Budget(minutes=0.02))
    with monkeypatch.context() as patch:
        patch.setattr(clock, ticking(2.0))  # by that clock, its time is up at once
        twin = again(run, lesson, tmp_path / "twin", drop=3)

    def rates(folder: Path) -> list[tuple[int, float]]:
        lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
        return [(told["step"], told["lr"]) for told in map(json.loads, lines)]

    assert run.info["steps"] > 40
    assert twin.info["steps"] == run.info["steps"]
    assert rates(twin.folder) == rates(run.folder)


def test_a_twin_that_was_stopped_goes_on_to_the_same_weights(
    tmp_path: Path, small_world: Path, quick_recipe: Path
) -> None:
    run, lesson = learn(small_world, quick_recipe, tmp_path / "run", Budget(minutes=0.02))

    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    out = tmp_path / "twin"
    with pytest.raises(KeyboardInterrupt):
        again(run, lesson, out, observe=stop)
    assert json.loads((out / "run.json").read_text())["status"] == "stopped"
    with pytest.raises(UserError, match="add --resume"):
        again(run, lesson, out)
    with pytest.raises(UserError, match="the documents have changed"):
        again(run, lesson, out, drop=1, resume=True)
    assert again(run, lesson, out, resume=True).info["sha256"] == run.info["sha256"]
    written = (out / "metrics.jsonl").stat().st_mtime_ns
    assert again(run, lesson, out, resume=True).info["sha256"] == run.info["sha256"]
    assert (out / "metrics.jsonl").stat().st_mtime_ns == written


def test_a_lost_pace_is_said(tmp_path: Path, small_world: Path, quick_recipe: Path) -> None:
    run, lesson = learn(small_world, quick_recipe, tmp_path / "run", Budget(minutes=0.02))
    (run.folder / "pace.jsonl").unlink()
    with pytest.raises(UserError, match="does not tell how many steps"):
        again(run, lesson, tmp_path / "twin")
    assert not (tmp_path / "twin").exists()


def test_a_digest_is_that_of_the_job(tmp_path: Path, small_world: Path, quick_recipe: Path) -> None:
    run, lesson = learn(small_world, quick_recipe, tmp_path / "run", Budget(steps=2))
    assert lesson.corpus is not None
    assert digest_of(lesson.corpus.texts) == run.info["job"]["documents"]
    assert digest_of([]) is None
