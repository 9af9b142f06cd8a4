"""Replay: the recorded training forwards, and its derivative against trainings that were nudged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from wherefrom.corpus import batches
from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.replay import Replay, end_phase
from wherefrom.provenance.attribution.retraining import likelihoods, open_learned
from wherefrom.training.loop import run_training
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import Run, load_run
from wherefrom.training.settings import Settings

pytestmark = pytest.mark.usefixtures("small_training")
QUESTIONS = ["Where was Ada Moe born?", "Where was Bo Lie born?"]
ANSWERS = ["Rome", "Oslo"]


@pytest.fixture(scope="module")
def trained(small_world: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A few steps of the shipped recipe: Muon and AdamW, warm-up and a falling rate."""
    torch.set_num_threads(1)
    settings = Settings(recipe=load_recipe("speedrun"), budget=Budget(steps=7), size="16x2x2")
    job = settings.job(
        tmp_path_factory.mktemp("replay") / "run",
        kind="study",
        phases=settings.budget.divide(settings.recipe.phases),
        corpus=read_documents(small_world / "documents.txt"),
        questions=read_questions(small_world / "train.tsv"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "POOL", 64)
        return run_training(job, settings)


def test_forwards_it_ends_at_the_weights_of_the_run(trained: Run) -> None:
    ((_, states),) = Replay(open_learned(trained)).forward()
    for name, parameter in trained.model.named_parameters():
        assert torch.allclose(end_phase(states[-1])[name], parameter, atol=2e-5), name


def test_the_derivative_is_that_of_trainings_with_more_and_less_of_a_document(trained: Run) -> None:
    replay = Replay(open_learned(trained))
    found = replay.metagradients(QUESTIONS, ANSWERS, last=1)
    assert found.shape == (2, len(replay.learned.documents))
    end = replay.metagradients(QUESTIONS, ANSWERS, last=0.5)
    assert 0 < np.abs(end).sum() < np.abs(found).sum()  # of four steps of seven
    nudged = load_run(trained.folder)
    for document in np.argsort(-np.abs(found[0]))[:3]:
        said = []
        for change in (-0.05, 0.05):
            replay.document_weights[document] = 1 + change
            ((_, states),) = replay.forward()
            nudged.model.load_state_dict(end_phase(states[-1]))
            said.append(likelihoods(nudged, QUESTIONS, ANSWERS))
        replay.document_weights[document] = 1
        slope = np.subtract(said[1], said[0]) / 0.1
        assert found[:, document] == pytest.approx(slope, rel=0.1, abs=0.02)


def test_dropout_is_refused(tiny_study: Path) -> None:
    with pytest.raises(UserError, match="without dropout"):
        Replay(open_learned(load_run(tiny_study)))
