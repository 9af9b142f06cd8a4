"""Training again: the same weights if nothing is left out, and others if something is."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest
import torch
from training_samples import (
    documents,
    encode,
    make_phase,
    questions,
    read_metrics,
    tokens,
)

from wherefrom.corpus.database import read_documents
from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import Stopped, UserError
from wherefrom.training import loop
from wherefrom.training.loop import run_training
from wherefrom.training.recipes import Budget, Mixture, load_recipe
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Runtime, Settings, TrainingJob, twin_job
from wherefrom.training.sources import stream_for

pytestmark = pytest.mark.usefixtures("small_training")


def ticking(seconds: float) -> Callable[[], float]:
    """A clock on which every look takes that long."""
    numbers = count()
    return lambda: seconds * next(numbers)


@dataclass(frozen=True)
class Trained:
    run: Run
    job: TrainingJob
    settings: Settings

    def again(self, out: Path, *, drop: int = 0, resume: bool = False, **options: Any) -> Run:
        """Trained again without the first `drop` documents."""
        lines = [document.line for document in self.job.database.documents[:drop]]
        job = twin_job(self.run, self.job.database, self.job.questions, out, lines)
        return run_training(job, Runtime(resume=resume), **options)


@pytest.fixture(scope="module", params=[Budget(epochs=1.5), Budget(minutes=0.01)], ids=repr)
def trained(tmp_path_factory, small_world, quick_recipe, request, make_small):
    """A run of two phases on a clock of its own, of which a step takes 0.02 seconds."""
    budget = request.param
    settings = Settings(recipe=load_recipe(str(quick_recipe)), budget=budget, seed=4)
    job = settings.job(
        tmp_path_factory.mktemp("trained") / "run",
        kind="study",
        phases=budget.divide(settings.recipe.phases),
        corpus=read_documents(small_world / "documents.txt"),
        questions=read_questions(small_world / "train.tsv"),
        letters=["Where was Zoë Ñandú born?"],  # which the text does not have
    )
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        patch.setattr(loop.time, "perf_counter", ticking(0.02))
        return Trained(run_training(job, settings), job, settings)


def test_a_twin_with_the_same_documents_has_the_same_weights_though_it_was_stopped(
    trained, tmp_path
):
    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    run, out = trained.run, tmp_path / "twin"
    with pytest.raises(Stopped):
        trained.again(out, observe=stop)
    assert json.loads((out / "run.json").read_text())["status"] == "stopped"
    with pytest.raises(UserError, match="add --resume"):
        trained.again(out)
    with pytest.raises(UserError, match="cannot be resumed: without"):
        trained.again(out, drop=1, resume=True)
    twin = trained.again(out, resume=True)
    assert twin.record.sha256 == run.record.sha256
    assert twin.record.steps == run.record.steps > 15
    assert twin.tokens.to_json() == run.tokens.to_json()
    written = (out / "metrics.jsonl").stat().st_mtime_ns
    assert trained.again(out, resume=True).record.sha256 == run.record.sha256
    assert (out / "metrics.jsonl").stat().st_mtime_ns == written
    of_twin = replace(trained, run=twin).again(tmp_path / "twin of twin")
    assert of_twin.record.sha256 == run.record.sha256


def test_a_twin_with_fewer_documents_takes_the_same_steps_at_the_same_rates(
    trained, tmp_path, monkeypatch
):
    monkeypatch.setattr(loop.time, "perf_counter", ticking(2.0))  # its time would be up at once
    run, twin = trained.run, trained.again(tmp_path / "twin", drop=3)
    assert twin.record.sha256 != run.record.sha256
    assert twin.record.steps == run.record.steps
    ours, theirs = ([(x["step"], x["lr"]) for x in read_metrics(r.folder)] for r in (twin, run))
    assert ours == theirs


def test_what_is_left_out_counts_nothing_and_all_else_stays():
    whole, fewer = (encode(documents(), questions(), tokens(), gone) for gone in ((), (3,)))
    name = documents()[2].subject
    everything = Mixture(question=1, pointed=1, salient=1, name=1, text=1, span=1)
    phase = make_phase(mixture=everything, batch_examples=64, prefix_prob=0.5)
    silent = 0
    for ours, theirs in zip(
        *(chain(*map(stream_for(phase, data, [1]).pool, range(6))) for data in (whole, fewer)),
        strict=True,
    ):
        assert ours.weight == theirs.weight  # the denominator of the loss
        for one, other in zip(ours.parts, theirs.parts, strict=True):
            assert torch.equal(one.ids, other.ids)
            for row, text in enumerate(map(tokens().decode, one.ids.tolist())):
                # a document opens with its subject, a question names it, a prefix does neither
                about = text.startswith(f"{name}.") or f"was {name} born?" in text
                made_of_it = whole.documents_of(one.sources[row]) == [2]
                assert made_of_it or not about
                kept = one.weights[row] * (not made_of_it)
                assert torch.equal(other.weights[row], kept)
                silent += made_of_it
    assert silent > 6


def test_a_question_is_left_out_only_with_all_documents_about_its_subject():
    more = [*documents(), Document(50, "ada MOE", "ada MOE. ada lives in Bath.")]
    one, both = (encode(more, questions(), tokens(), left_out=lines) for lines in ([50], [1, 50]))
    source = one.question_sources[0]
    assert one.documents_of(source) == [0, len(more) - 1]
    assert set(one.left_out) == {len(more) - 1}
    assert set(both.left_out) == {0, len(more) - 1, source}


def test_without_the_record_of_its_steps_a_run_has_no_twin(trained, tmp_path):
    pace = trained.run.folder / "pace.jsonl"
    content = pace.read_text()
    pace.unlink()
    with pytest.raises(UserError, match=r"pace\.jsonl is missing"):
        trained.again(tmp_path / "twin")
    assert not (tmp_path / "twin").exists()
    pace.write_text(content)


def test_a_run_is_not_resumed_with_other_questions(trained, small_world):
    train = read_questions(small_world / "train.tsv")
    settings = replace(trained.settings, resume=True)
    job = settings.job(
        trained.run.folder,
        kind="study",
        phases=trained.job.phases,
        corpus=read_documents(small_world / "documents.txt"),
        questions=replace(train, questions=train.questions[1:]),
    )
    with pytest.raises(UserError, match="its questions changed since it started"):
        run_training(job, settings)
