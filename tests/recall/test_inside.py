"""Looking inside a model: the numbers are those of the equation, and a map is not a proof."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import VARIANTS
from wherefrom.recall.inside import look_inside

QUESTION = "Where was Ada Byron born?"
LAYERS, HEADS = 3, 2


def build(variant: str) -> tuple[Decoder, Tokenizer]:
    tokens = Tokenizer.of_characters([QUESTION])
    config = make_config(
        variant=variant,
        vocabulary=tokens.size,
        block=40,
        layers=LAYERS,
        heads=HEADS,
        width=20,
        latents=20,
    )
    model = Decoder(config).initialise(torch.Generator().manual_seed(3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # away from even weights
    return model, tokens


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_head_of_every_layer_is_seen_with_consistent_numbers(variant: str) -> None:
    model, tokens = build(variant)
    view = look_inside(model, tokens, QUESTION, "Ada Byron")
    assert len(view.heads) == LAYERS * HEADS
    assert "".join(view.tokens[i] for i in view.name) == "Ada Byron"
    for head in view.heads:
        assert head.weights.sum() == pytest.approx(1, abs=1e-6)
        assert 1 <= head.effective_keys <= len(head.weights) + 1e-9
        assert head.effective_keys == pytest.approx(math.exp(head.entropy))
        if head.mass_on_name is not None:
            assert head.mass_on_name == pytest.approx(sum(head.weights[i] for i in view.name))
        assert head.implied_beta is not None
        others = np.count_nonzero(head.weights) - 1
        top = 1 / (1 + others * math.exp(-head.implied_beta))
        # float32 weights underflow to exactly 0 in the tail, which changes the count of keys
        assert top == pytest.approx(head.weights.max(), rel=1e-2)


def test_second_weights_give_the_same_output() -> None:
    model, tokens = build("vanilla")
    records: list = []
    view = look_inside(model, tokens, QUESTION, "Ada Byron")
    ids = torch.tensor([[*tokens.encode(QUESTION), 1]])
    with torch.inference_mode():
        model(ids, record=records)
    for head in view.heads:
        values = records[head.layer].values[0, head.head].double().numpy()
        output, second = head.weights @ values, head.second_weights @ values
        np.testing.assert_allclose(second, output, atol=1e-5)
        distance = np.abs(head.second_weights - head.weights).sum() / 2
        assert distance == pytest.approx(head.second_distance, abs=1e-6)
        assert head.freedom == len(ids[0]) - min(len(ids[0]), values.shape[1] + 1)


def test_without_a_subject_no_token_is_the_name_and_a_long_question_is_one_sentence() -> None:
    model, tokens = build("llama")
    assert look_inside(model, tokens, QUESTION, None).name == ()
    with pytest.raises(UserError, match="ask a shorter one"):
        look_inside(model, tokens, QUESTION * 3, None)
