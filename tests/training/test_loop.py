from __future__ import annotations

from itertools import pairwise
from math import cos, pi

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.nn import functional as F
from training_samples import (
    BLOCK,
    make_model,
    make_phase,
    questions,
    read_metrics,
    same_weights,
    tokens,
    train_model,
    training_data,
)

from wherefrom.corpus.batches import Batch
from wherefrom.corpus.tokenizer import PAD
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import VARIANTS
from wherefrom.recall.decode import answer_all
from wherefrom.training import loop
from wherefrom.training.distributed import Processes
from wherefrom.training.loop import accumulate_gradients
from wherefrom.training.metrics import StepMetrics
from wherefrom.training.pace import stopped_growing
from wherefrom.training.recipes import Mixture, Phase
from wherefrom.training.sources import TrainingData, stream_for

pytestmark = pytest.mark.usefixtures("small_training")

# float32 sums of some hundred terms in another order differ in the last of their 24 bits or so
SUMS = {"rtol": 1e-4, "atol": 1e-6}


def row_by_row(model: Decoder, batch: Batch) -> torch.Tensor:
    """The mean loss by its definition: each row alone, unpadded, every position's logits."""
    total = torch.zeros(())
    weight = 0.0
    for part in batch.parts:
        for ids, weights in zip(part.ids, part.weights, strict=True):
            length = int((ids != PAD).sum())
            logits = model(ids[None, : length - 1])[0]
            losses = F.cross_entropy(logits, ids[1:length], reduction="none")
            total = total + (losses * weights[1:length]).sum()
            weight += float(weights[1:length].sum())
    return total / weight


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_and_parts_do_not_change_the_loss_or_its_gradient(variant):
    batch = stream_for(make_phase(batch_examples=40), training_data(), [1]).pool(0)[0]
    assert len(batch.parts) > 1
    assert all((part.ids == PAD).any() for part in batch.parts)
    by_rows, by_parts = make_model(variant), make_model(variant)
    expected = row_by_row(by_rows, batch)
    expected.backward()
    loss = accumulate_gradients(by_parts, batch, Processes())
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    found, gradient = ([p.grad for p in model.parameters()] for model in (by_parts, by_rows))
    torch.testing.assert_close(found, gradient, **SUMS)


def test_the_gradient_is_clipped_to_the_length_that_the_phase_says(tmp_path, monkeypatch):
    def descent(model: Decoder, phase: Phase) -> list[torch.optim.Optimizer]:
        groups = [{"params": list(model.parameters()), "base_lr": 1.0}]
        return [torch.optim.SGD(groups, lr=1.0)]

    monkeypatch.setattr(loop, "build_optimizers", descent)
    before, after = (
        torch.cat([p.detach().flatten() for p in model.parameters()])
        for model in (make_model(), train_model(tmp_path, [make_phase(steps=1, clip=0.01)]))
    )
    assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("recalls", "enough", "stopped"),
    [
        ([], 0, False),
        ([0.0] * 9, 0, False),  # before the least number of steps
        ([0.0] * 20, 0, True),  # nothing is ever learned
        ([0.05 * at for at in range(20)], 0, False),
        ([min(0.9, 0.1 * at) for at in range(20)], 0, True),
        ([0.0] * 9 + [0.02 * at for at in range(6)], 0, False),  # after a plateau
        ([*([0.9] * 10), *([0.89, 0.91] * 5)], 0, True),  # noise is no growth
        ([0.6] * 20, 0.55, True),
        ([0.1 * at for at in range(7)] + [0.6] * 9, 0.9, False),  # one relation may be learned late
        ([0.1 * at for at in range(7)] + [0.6] * 20, 0.9, True),  # but not as late as that
        ([0.4] * 40, 0.9, False),  # much is still to be learned
    ],
)
def test_recall_stops_growing_by_its_last_steps(recalls, enough, stopped):
    asked = [(10 * at, recall) for at, recall in enumerate(recalls, start=1)]
    assert stopped_growing(asked, 100, enough) == stopped


def test_metrics_and_tensorboard_say_every_few_steps_and_at_the_end_how_it_goes(tmp_path):
    seen: list[StepMetrics] = []
    phases = [
        make_phase(name="first", steps=13, warmup_steps=5),
        make_phase(name="second", steps=12, floor=0.0),
    ]
    train_model(tmp_path, phases, observe=lambda tick, model: seen.append(tick))
    lines = read_metrics(tmp_path)
    assert [tick.__dict__ for tick in seen] == lines
    assert [line["step"] for line in lines] == [10, 13, 20, 25]
    assert [line["progress"] for line in lines] == pytest.approx([10 / 13, 1, 7 / 12, 1])
    assert all(a["tokens"] < b["tokens"] for a, b in pairwise(lines))
    # the rate of the step that the line is of: of the last one, 11 of 12 steps were done
    assert lines[-1]["lr"] == pytest.approx(1e-2 * 0.5 * (1 + cos(pi * 11 / 12)))
    board = EventAccumulator(str(tmp_path / "events")).Reload()
    for tag in ("loss", "lr", "tokens_per_second"):
        told = [(event.step, event.value) for event in board.Scalars(tag)]
        assert told == [(line["step"], pytest.approx(line[tag], rel=1e-6)) for line in lines]


def test_the_seed_decides_the_weights_and_the_randomness_of_others_is_left_alone(tmp_path):
    torch.manual_seed(9)
    for _ in range(3):  # the models that follow
        make_model()
    expected = torch.rand(3)
    torch.manual_seed(9)
    first, again, other = (
        train_model(tmp_path / str(number), [make_phase(steps=5)], dropout=0.1, seed=seed)
        for number, seed in enumerate((1, 1, 2))
    )
    assert torch.equal(torch.rand(3), expected)
    assert same_weights(first, again)
    assert not same_weights(first, other)


def test_a_loss_that_is_no_number_ends_training_with_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"no longer a number at step \d+ of the phase \"mixed\""):
        train_model(tmp_path, [make_phase(steps=60, lr=1e30, clip=None)])


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_tiny_model_of_every_variant_learns_questions_by_heart(tmp_path, variant):
    asked = questions()[::2]
    data = TrainingData.encode(None, asked, tokens(), BLOCK)
    only = Mixture(question=1.0)
    phase = make_phase(mixture=only, steps=170, batch_examples=10, optimizer="muon")
    model = train_model(tmp_path, [phase], variant=variant, data=data)
    answers = answer_all(model, tokens(), [question.text for question in asked])
    assert [answer.text for answer in answers] == [question.answer for question in asked]
