"""The decoder: the right size, causal, the same with and without a cache, true to its equations.

Every dimension is a different number, so that no two can be confused: 5 rows, 23 positions, 31
words, a block of 37, 7 layers, 3 heads of width 22, 11 latents (of stride 4).
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.errors import UserError
from wherefrom.model.config import SIZES, ModelConfig, make_config, parse_size
from wherefrom.model.decoder import Decoder, count_parameters
from wherefrom.model.mixers import VARIANTS, Glance, Heads, Rotation, Synthesizer, find_variant

ROWS, LENGTH, VOCABULARY, BLOCK, LAYERS, HEADS, HEAD, LATENTS = 5, 23, 31, 37, 7, 3, 22, 11
EVERY = pytest.mark.parametrize("variant", sorted(VARIANTS))
EVERY_WAY = pytest.mark.parametrize(
    ("variant", "reads"),
    [*((variant, "strided") for variant in sorted(VARIANTS)), ("perceiver", "first")],
)
# in double precision what is computed in another order differs by about 1e-15 times the size
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def shape(variant: str, **changes: object) -> ModelConfig:
    fields = {
        "variant": variant,
        "vocabulary": VOCABULARY,
        "block": BLOCK,
        "layers": LAYERS,
        "heads": HEADS,
        "width": HEADS * HEAD,
        "latents": LATENTS,
    }
    return make_config(**{**fields, **changes})


def shaken(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Every parameter away from its start, so that no bias, norm or position is a bystander."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            start = 1.0 if parameter.ndim == 1 else 0.0
            parameter.normal_(start, 0.3, generator=generator)
    return module.double().eval()


def model_of(variant: str, **changes: object) -> Decoder:
    model = shaken(Decoder(shape(variant, **changes)))
    assert isinstance(model, Decoder)
    return model


def random_ids(rows: int = ROWS, length: int = LENGTH, words: int = VOCABULARY) -> torch.Tensor:
    return torch.randint(0, words, (rows, length), generator=torch.Generator().manual_seed(1))


# --- size -------------------------------------------------------------------------------------


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
    config = make_config(
        variant=variant, vocabulary=256, block=128, layers=4, heads=8, width=256, latents=64
    )
    assert count_parameters(config) == parameters
    assert sum(parameter.numel() for parameter in Decoder(config).parameters()) == parameters


@EVERY
def test_the_start_depends_on_the_generator_alone_and_leaves_nothing_unset(variant):
    def started(seed: int) -> dict[str, torch.Tensor]:
        model = Decoder(shape(variant))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.fill_(99.0)  # as memory that was never written might
        return model.initialise(torch.Generator().manual_seed(seed)).state_dict()

    one, two, other = started(3), started(3), started(4)
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name])
        if name == "positions":
            continue
        if tensor.ndim > 1:
            assert not torch.equal(tensor, other[name]), name
            assert tensor.std().item() == pytest.approx(0.02, rel=0.2), name
        else:
            assert set(tensor.tolist()) <= {0.0, 1.0}, name


def test_learned_positions_start_at_zero():
    model = Decoder(shape("vanilla")).initialise(torch.Generator().manual_seed(0))
    assert model.positions is not None
    assert not model.positions.any()


# --- causality --------------------------------------------------------------------------------


def all_single_changes(ids: torch.Tensor, words: int = VOCABULARY) -> torch.Tensor:
    """Row t is the input with another word at position t."""
    changed = ids.expand(ids.shape[1], -1).clone()
    changed.diagonal().add_(1).remainder_(words)
    return changed


@EVERY_WAY
def test_a_changed_future_leaves_the_past_as_it_was_and_changes_the_present(variant, reads):
    model = model_of(variant, reads=reads)
    ids = random_ids(1)
    with torch.inference_mode():
        before = model(ids)[0]
        after = model(all_single_changes(ids))
    for t in range(LENGTH):
        torch.testing.assert_close(after[t, :t], before[:t], **CLOSE)
        assert (after[t, t] - before[t]).abs().max() > 1e-3


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - {"perceiver"}))
def test_every_earlier_position_can_reach_the_last(variant):
    model = model_of(variant)
    ids = random_ids(1)
    with torch.inference_mode():
        moved = (model(all_single_changes(ids))[:, -1] - model(ids)[0, -1]).abs().amax(dim=-1)
    assert (moved > 1e-9).all()


def reach_of_perceiver(reads: str) -> torch.Tensor:
    """For each position of a whole block, how far changing it moves the last logits."""
    config = shape("perceiver", block=128, latents=64, layers=3, reads=reads)
    model = shaken(Decoder(config))
    ids = random_ids(1, 127)
    with torch.inference_mode():
        changed = model(all_single_changes(ids))[:, -1]
        return (changed - model(ids)[0, -1]).abs().amax(dim=-1)


def test_strided_reads_let_any_part_of_a_whole_block_reach_the_last_logits():
    assert (reach_of_perceiver("strided") > 1e-9).all()


def test_first_reads_let_nothing_beyond_the_latents_reach_the_last_logits():
    moved = reach_of_perceiver("first")
    assert (moved[:64] > 1e-9).all()
    assert (moved[64:126] < 1e-12).all()  # rows of a batch may differ in the last bit
    assert moved[126] > 1e-9  # its own word


# --- cache ------------------------------------------------------------------------------------


@EVERY_WAY
@given(data=st.data())
@settings(max_examples=12)
def test_decoding_in_chunks_of_any_size_equals_one_pass(variant, reads, data):
    model = model_of(variant, layers=3, reads=reads)
    length = data.draw(st.integers(1, BLOCK - 1), label="length")
    cuts = data.draw(st.sets(st.integers(1, length)), label="cuts") - {length}
    ids = random_ids(length=length)
    with torch.inference_mode():
        whole = model(ids)
        cache = model.new_cache(length)
        edges = [0, *sorted(cuts), length]
        chunks = [model(ids[:, start:stop], cache=cache) for start, stop in pairwise(edges)]
    assert cache.length == length
    torch.testing.assert_close(torch.cat(chunks, dim=1), whole, **CLOSE)


@EVERY
def test_a_cache_may_drop_rows_on_the_way(variant):
    model = model_of(variant)
    ids = random_ids()
    kept = torch.tensor([0, 3])
    with torch.inference_mode():
        cache = model.new_cache(LENGTH)
        model(ids[:, :13], cache=cache)
        cache.keep(kept)
        rest = model(ids[kept, 13:], cache=cache)
        torch.testing.assert_close(rest, model(ids)[kept, 13:], **CLOSE)


@EVERY
def test_selected_rows_are_rows_of_all_the_logits(variant):
    model = model_of(variant)
    ids = random_ids()
    select = torch.tensor([4, 17, 3 * LENGTH + 2])
    with torch.inference_mode():
        asked = model(ids, select=select)
        torch.testing.assert_close(asked, model(ids).flatten(0, 1)[select], **CLOSE)


@EVERY
def test_selected_rows_move_the_weights_as_rows_of_all_the_logits_do(variant):
    model = model_of(variant)
    ids = random_ids()
    select = torch.tensor([4, 17, 3 * LENGTH + 2])
    names = [name for name, _ in model.named_parameters()]
    asked = torch.autograd.grad(model(ids, select=select).square().sum(), model.parameters())
    rows = model(ids).flatten(0, 1)[select]
    wanted = torch.autograd.grad(rows.square().sum(), model.parameters())
    for name, ours, theirs in zip(names, asked, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE, msg=lambda text, name=name: name + text)


@EVERY
def test_the_last_block_feeds_selected_rows_only(variant):
    model = model_of(variant)
    fed: list[int] = []
    for block in model.blocks:
        block.feed.register_forward_hook(
            lambda _, x, __: fed.append(x[0].numel() // (HEADS * HEAD))
        )
    model(random_ids(), select=torch.tensor([4, 17, 3 * LENGTH + 2]))
    assert fed[-1] == 3
    assert min(fed[:-1]) >= ROWS  # the others feed every position (of a perceiver: every latent)


# --- watching ---------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("length", [1, 3, 4, 5, LENGTH, BLOCK - 1])
def test_watching_shows_weights_that_sum_to_one_and_changes_nothing(variant, length):
    model = model_of(variant)
    ids = random_ids(length=length)
    watch: list[Glance] = []
    with torch.inference_mode():
        torch.testing.assert_close(model(ids, watch=watch), model(ids), **CLOSE)
    assert len(watch) == LAYERS
    latents = length // 4
    for number, glance in enumerate(watch):
        weights = glance.weights
        if variant != "perceiver":
            expected = (length, length)
        elif number == 0:
            expected = (latents, length)
        else:
            expected = (length if number == LAYERS - 1 else latents, latents)
        assert weights.shape == (ROWS, HEADS, *expected)
        total = weights.sum(dim=-1)
        hears = torch.ones_like(total)
        if variant == "perceiver" and number == LAYERS - 1:
            hears[:, :, :3] = 0  # before the first latent is complete there is nobody to hear
        torch.testing.assert_close(total, hears, **CLOSE)
        assert (weights >= 0).all()
        assert glance.values.shape == (ROWS, HEADS, expected[1], HEAD)
        assert torch.equal(glance.scores == -math.inf, weights == 0)
        shown = glance.scores.softmax(dim=-1).nan_to_num(0.0)  # nan where nobody is heard
        torch.testing.assert_close(weights, shown, **CLOSE)


@EVERY
def test_watching_with_a_cache_shows_the_same_weights(variant):
    model = model_of(variant)
    ids = random_ids()
    whole: list[Glance] = []
    pieces: list[Glance] = []
    with torch.inference_mode():
        model(ids, watch=whole)
        cache = model.new_cache(LENGTH)
        for t in range(LENGTH):
            pieces.clear()
            model(ids[:, t : t + 1], cache=cache, watch=pieces)
    torch.testing.assert_close(pieces[-1].weights[:, :, 0], whole[-1].weights[:, :, -1], **CLOSE)
    torch.testing.assert_close(pieces[-1].values, whole[-1].values, **CLOSE)


# --- equations, each against a plain implementation -------------------------------------------


def softmax(scores: np.ndarray) -> np.ndarray:
    mass = np.exp(scores - scores.max())
    return mass / mass.sum()


def as_array(tensor: torch.Tensor | None) -> np.ndarray:
    assert tensor is not None
    return tensor.detach().numpy()


def test_the_synthesizer_is_its_equation():
    """softmax(ReLU(X A + b1) B + b2) (X V), causal, head by head and row by row."""
    mixer = shaken(Synthesizer(shape("synthesizer"), bias=True))
    x = torch.randn(ROWS, LENGTH, HEADS * HEAD, generator=torch.Generator().manual_seed(2)).double()
    A, b1 = as_array(mixer.scorer.weight).T, as_array(mixer.scorer.bias)
    B, b2 = as_array(mixer.columns), as_array(mixer.column_bias)
    V, bv = as_array(mixer.value.weight).T, as_array(mixer.value.bias)
    expected = np.zeros((ROWS, LENGTH, HEADS * HEAD))
    for row in range(ROWS):
        X = x[row].numpy()
        for head in range(HEADS):
            own = slice(head * HEAD, (head + 1) * HEAD)
            scores = np.maximum(X @ A[:, own] + b1[own], 0) @ B + b2
            value = X @ V[:, own] + bv[own]
            for t in range(LENGTH):
                expected[row, t, own] = softmax(scores[t, : t + 1]) @ value[: t + 1]
    expected = expected @ as_array(mixer.out.weight).T + as_array(mixer.out.bias)
    np.testing.assert_allclose(as_array(mixer(x)), expected, **CLOSE)


def turned(x: np.ndarray, position: int, base: float) -> np.ndarray:
    """Pairs (i, i + D/2) as complex numbers, each times e^(i position theta)."""
    half = len(x) // 2
    theta = base ** (-2 * np.arange(half) / (2 * half))
    z = (x[:half] + 1j * x[half:]) * np.exp(1j * position * theta)
    return np.concatenate((z.real, z.imag))


@pytest.mark.parametrize("rotary", [False, True])
def test_attention_is_its_equation_with_and_without_rotary_positions(rotary):
    """softmax(Q K^T / sqrt(D)) V, causal, head by head, queries and keys turned or not."""
    mixer = shaken(Heads(shape("vanilla"), bias=True))
    x = torch.randn(ROWS, LENGTH, HEADS * HEAD, generator=torch.Generator().manual_seed(2)).double()
    joint = as_array(x) @ as_array(mixer.qkv.weight).T + as_array(mixer.qkv.bias)
    expected = np.zeros((ROWS, LENGTH, HEADS * HEAD))
    for row in range(ROWS):
        for head in range(HEADS):
            own = slice(head * HEAD, (head + 1) * HEAD)
            Q, K, V = (joint[row, :, i * HEADS * HEAD :][:, own] for i in range(3))
            if rotary:
                Q = np.stack([turned(q, t, 10_000.0) for t, q in enumerate(Q)])
                K = np.stack([turned(k, t, 10_000.0) for t, k in enumerate(K)])
            for t in range(LENGTH):
                weights = softmax(Q[t] @ K[: t + 1].T / math.sqrt(HEAD))
                expected[row, t, own] = weights @ V[: t + 1]
    expected = expected @ as_array(mixer.out.weight).T + as_array(mixer.out.bias)
    got = as_array(mixer(x, rotation=Rotation(HEAD, BLOCK) if rotary else None))
    # the tables of sines are kept in single precision, about 6e-8
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 if rotary else 1e-9)


@pytest.mark.parametrize("base", [10_000.0, 500.0])
@pytest.mark.parametrize("start", [0, 13])
def test_a_rotation_turns_pairs_by_position_times_speed(base, start):
    x = torch.randn(ROWS, HEADS, LENGTH, HEAD, generator=torch.Generator().manual_seed(3)).double()
    joint = torch.stack((x, 2 * x, 3 * x), dim=2).permute(0, 3, 2, 1, 4).flatten(2)
    query, key, value = Rotation(HEAD, BLOCK, base).turn(joint, HEADS, start)
    expected = as_array(x).copy()
    for row in range(ROWS):
        for head in range(HEADS):
            for t in range(LENGTH):
                expected[row, head, t] = turned(expected[row, head, t], start + t, base)
    np.testing.assert_allclose(as_array(query), expected, atol=1e-6)  # single-precision tables
    np.testing.assert_allclose(as_array(key), 2 * expected, atol=2e-6)
    np.testing.assert_array_equal(as_array(value), as_array(3 * x))


def test_after_rotation_products_depend_on_the_distance_alone():
    rotation = Rotation(HEAD, BLOCK)
    q, k = torch.randn(2, HEAD, generator=torch.Generator().manual_seed(4)).double()
    joint = torch.cat((q, k, torch.zeros(HEAD)))[None, None]

    def product(start: int) -> float:
        query, key = rotation.turn(joint, 1, start + 7)[0], rotation.turn(joint, 1, start)[1]
        return (query * key).sum().item()

    products = [product(start) for start in range(29)]
    assert max(products) - min(products) < 1e-5  # single-precision tables
    assert abs(products[0] - (q * k).sum().item()) > 1e-2


# --- edges ------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("length", [2, LENGTH])
def test_gradients_are_finite_even_where_nothing_may_be_seen(variant, length):
    model = Decoder(shape(variant, layers=3, dropout=0.1)).train()
    model.initialise(torch.Generator().manual_seed(0))
    model(random_ids(length=length)).logsumexp(dim=-1).mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name
    assert model.embed.weight.grad is not None
    assert model.embed.weight.grad.any()


@EVERY
def test_dropout_acts_in_training_and_not_when_asking(variant):
    model = shaken(Decoder(shape(variant, layers=3, dropout=0.3)))
    ids = random_ids()
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.equal(model(ids), model(ids))


@EVERY
def test_more_tokens_than_the_block_holds_are_refused_in_a_sentence(variant):
    model = model_of(variant, layers=3)
    assert model(random_ids(length=BLOCK - 1)).shape == (ROWS, BLOCK - 1, VOCABULARY)
    with pytest.raises(UserError, match=f"{BLOCK} tokens are more than the {BLOCK - 1}"):
        model(random_ids(length=BLOCK))


def test_a_perceiver_without_room_inside_is_refused():
    with pytest.raises(UserError, match="at least 3 layers"):
        Decoder(shape("perceiver", layers=2))
    assert Decoder(shape("vanilla", layers=1))


def test_a_misspelt_variant_or_field_is_answered_with_the_nearest():
    with pytest.raises(UserError, match='Did you mean "vanilla"'):
        find_variant("vanila")
    with pytest.raises(UserError, match='Did you mean "layers"'):
        make_config(variant="vanilla", vocabulary=31, layer=3)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"heads": 5}, "not divisible"),
        ({"heads": 6, "width": 66}, "even width"),
        ({"dropout": 1.0}, "dropout"),
        ({"reads": "last"}, "reads"),
        ({"vocabulary": 2}, "vocabulary"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_in_a_sentence(changes, says):
    with pytest.raises(UserError, match=says) as caught:
        shape("vanilla", **changes)
    assert "\n" not in str(caught.value)


def test_more_latents_than_a_block_are_refused_where_there_are_latents():
    with pytest.raises(UserError, match="more than"):
        Decoder(shape("perceiver", latents=BLOCK + 1))
    Decoder(shape("vanilla", latents=BLOCK + 1))  # of no matter to it


def test_a_size_is_a_name_or_three_numbers():
    assert parse_size("course") == SIZES["course"] == (256, 4, 8)
    assert parse_size("66x7x3") == (66, 7, 3)
    for wrong in ("huge", "66x7", "66x7x3x1", "x7x3", "66x-7x3"):
        with pytest.raises(UserError, match="WIDTHxLAYERSxHEADS"):
            parse_size(wrong)


@EVERY
def test_a_silent_start_says_every_token_alike_and_the_head_can_learn(variant):
    model = Decoder(shape(variant)).initialise(torch.Generator().manual_seed(1), silent=True)
    logits = model(random_ids())
    assert not logits.any()
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), random_ids().flatten()).backward()
    assert model.head.weight.grad.any()
    loud = Decoder(shape(variant)).initialise(torch.Generator().manual_seed(1))
    assert loud(random_ids()).any()
