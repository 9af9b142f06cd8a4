"""The decoder: the right size, causal, the same with and without a cache."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_samples import (
    BLOCK,
    CLOSE,
    EVERY,
    HEAD,
    HEADS,
    LAYERS,
    LENGTH,
    ROWS,
    VOCABULARY,
    model_of,
    random_ids,
    shape,
)

from wherefrom.errors import UserError
from wherefrom.model.config import make_config, parse_size
from wherefrom.model.decoder import Decoder, count_parameters
from wherefrom.model.mixers import AttentionRecord, Cache, find_variant


@pytest.mark.parametrize(
    ("variant", "parameters"),
    [
        ("vanilla", 3_323_392),
        ("rotary", 3_290_624),
        ("synthesizer", 3_076_988),
        ("perceiver", 3_339_776),
    ],
)
def test_parameters_at_the_courses_size(variant, parameters):
    assert parse_size("course") == (256, 4, 8)
    config = make_config(
        variant=variant, vocabulary=256, block=128, layers=4, heads=8, width=256, latents=64
    )
    assert count_parameters(config) == parameters


@EVERY
def test_the_start_depends_on_the_generator_alone_and_leaves_nothing_unset(variant):
    def started(seed: int) -> dict[str, torch.Tensor]:
        model = Decoder(shape(variant))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1 and parameter is not model.positions:
                    parameter.fill_(99.0)  # as memory that was never written might
        return model.initialise(torch.Generator().manual_seed(seed)).state_dict()

    one, two, other = started(3), started(3), started(4)
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name])
        if name == "positions":
            assert not tensor.any()
        elif tensor.ndim > 1:
            assert not torch.equal(tensor, other[name]), name
            assert tensor.std().item() == pytest.approx(0.02, rel=0.2), name
        else:
            assert set(tensor.tolist()) <= {0.0, 1.0}, name


def all_single_changes(ids: torch.Tensor, words: int = VOCABULARY) -> torch.Tensor:
    """Row t is the input with another word at position t."""
    changed = ids.expand(ids.shape[1], -1).clone()
    changed.diagonal().add_(1).remainder_(words)
    return changed


@EVERY
def test_a_changed_future_leaves_the_past_as_it_was_and_changes_the_present(variant):
    model = model_of(variant)
    ids = random_ids(1)
    with torch.inference_mode():
        before = model(ids)[0]
        after = model(all_single_changes(ids))
    for t in range(LENGTH):
        torch.testing.assert_close(after[t, :t], before[:t], **CLOSE)
        assert (after[t, t] - before[t]).abs().max() > 1e-3
        if variant != "perceiver":  # for which see below
            assert (after[t, -1] - before[-1]).abs().max() > 1e-9


def test_all_that_a_perceiver_reads_reaches_the_last_logits():
    model = model_of("perceiver", block=128, latents=64, layers=3)
    ids = random_ids(1, 127)
    with torch.inference_mode():
        changed = model(all_single_changes(ids))[:, -1]
        moved = (changed - model(ids)[0, -1]).abs().amax(dim=-1)
    assert (moved > 1e-9).all()


@EVERY
@given(data=st.data())
@settings(max_examples=12)
def test_decoding_in_chunks_of_any_size_equals_one_pass(variant, data):
    model = model_of(variant, layers=3)
    length = data.draw(st.integers(1, BLOCK - 1), label="length")
    cuts = data.draw(st.sets(st.integers(1, length)), label="cuts") - {length}
    ids = random_ids(length=length)
    with torch.inference_mode():
        whole = model(ids)
        cache = Cache(model.config.layers)
        edges = [0, *sorted(cuts), length]
        chunks = [model(ids[:, start:stop], cache=cache) for start, stop in pairwise(edges)]
    assert cache.length == length
    torch.testing.assert_close(torch.cat(chunks, dim=1), whole, **CLOSE)


@EVERY
def test_selected_rows_and_their_gradients_are_those_of_all_the_logits(variant):
    model = model_of(variant)
    ids = random_ids()
    select = torch.tensor([4, 17, 3 * LENGTH + 2])
    fed: list[int] = []
    hook = model.blocks[-1].feed.register_forward_hook(lambda _, x, __: fed.append(len(x[0])))
    selected = model(ids, select=select)
    assert fed == [3]  # the last block computes these only
    hook.remove()
    expected = model(ids).flatten(0, 1)[select]
    torch.testing.assert_close(selected, expected, **CLOSE)
    gradients = [
        torch.autograd.grad(rows.square().sum(), model.parameters())
        for rows in (selected, expected)
    ]
    torch.testing.assert_close(*gradients, **CLOSE)


@EVERY
@pytest.mark.parametrize("length", [1, 4, BLOCK - 1])
def test_records_show_weights_that_sum_to_one_and_change_nothing(variant, length):
    model = model_of(variant)
    ids = random_ids(length=length)
    records: list[AttentionRecord] = []
    with torch.inference_mode():
        torch.testing.assert_close(model(ids, record=records), model(ids), **CLOSE)
    queries, keys = [length] * LAYERS, [length] * LAYERS
    if variant == "perceiver":
        latents = length // 4
        queries[:-1] = [latents] * (LAYERS - 1)
        keys[1:] = [latents] * (LAYERS - 1)
    assert [record.weights.shape[2:] for record in records] == list(zip(queries, keys, strict=True))
    for number, record in enumerate(records):
        weights = record.weights
        total = weights.sum(dim=-1)
        expected = torch.ones_like(total)
        if variant == "perceiver" and number == LAYERS - 1:
            expected[:, :, :3] = 0  # before the first latent is complete there is nothing to see
        torch.testing.assert_close(total, expected, **CLOSE)
        assert (weights >= 0).all()
        assert record.values.shape == (ROWS, HEADS, keys[number], HEAD)
        assert torch.equal(record.scores == -math.inf, weights == 0)
        shown = record.scores.softmax(dim=-1).nan_to_num(0.0)  # nan where nothing is seen
        torch.testing.assert_close(weights, shown, **CLOSE)


@EVERY
def test_dropout_acts_in_training_alone_and_more_than_the_block_is_refused(variant):
    model = model_of(variant, layers=3, dropout=0.3)
    ids = random_ids(length=BLOCK - 1)
    assert torch.equal(model(ids), model(ids))
    assert model(ids).shape == (ROWS, BLOCK - 1, VOCABULARY)
    with pytest.raises(UserError, match=f"has {BLOCK} tokens; this model reads {BLOCK - 1}"):
        model(random_ids(length=BLOCK))
    model.train()
    assert not torch.equal(model(ids), model(ids))


@EVERY
def test_a_zero_start_says_every_token_alike_and_learns_with_finite_gradients(variant):
    model = Decoder(shape(variant, dropout=0.1)).train()
    logits = model.initialise(torch.Generator().manual_seed(1), zero_init=True)(random_ids())
    assert not logits.any()
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), random_ids().flatten()).backward()
    assert model.head.weight.grad.any()
    loud = Decoder(shape(variant)).initialise(torch.Generator().manual_seed(1))
    for length in (2, LENGTH):  # the first is before a perceiver's first latent is complete
        loud(random_ids(length=length)).logsumexp(dim=-1).mean().backward()
        assert loud.embed.weight.grad.any()
        assert all(torch.isfinite(p.grad).all() for p in loud.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: find_variant("vanila"), 'Did you mean "vanilla"'),
        (lambda: make_config(variant="vanilla", vocabulary=31, layer=3), 'Did you mean "layers"'),
        (lambda: shape("vanilla", heads=5), "not divisible"),
        (lambda: shape("vanilla", heads=6, width=66), "even width"),
        (lambda: shape("vanilla", dropout=1.0), "dropout"),
        (lambda: Decoder(shape("perceiver", layers=2)), "at least 3 layers"),
        (lambda: Decoder(shape("perceiver", latents=BLOCK + 1)), "at most"),
        *((lambda x=x: parse_size(x), "WIDTHxLAYERSxHEADS") for x in ("huge", "66x7", "66x-7x3")),
    ],
)
def test_a_shape_that_cannot_be_is_refused_in_a_sentence(make, says):
    with pytest.raises(UserError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)
