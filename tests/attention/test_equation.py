"""The equation against torch's own, at its edges, and where a weight rounds to one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.nn.functional import scaled_dot_product_attention

from wherefrom.attention.equation import (
    attend,
    attend_fused,
    log_leftover,
    log_sum_exp,
    softmax_over_keys,
)
from wherefrom.errors import UserError

# a different prime for every dimension, so that no two can be confused
BATCH, HEADS, QUERIES, KEYS, WIDTH, VALUES = 2, 3, 5, 7, 11, 13

logits = st.floats(-30, 30, allow_nan=False, width=64)


def draw():
    rng = np.random.default_rng(0)
    query = rng.standard_normal((BATCH, HEADS, QUERIES, WIDTH))
    key = rng.standard_normal((BATCH, HEADS, KEYS, WIDTH))
    value = rng.standard_normal((BATCH, HEADS, KEYS, VALUES))
    mask = rng.random((BATCH, HEADS, QUERIES, KEYS)) > 0.3
    mask[..., 0] = True
    return query, key, value, mask


@pytest.mark.parametrize("masked", [False, True])
def test_numpy_and_torch_and_the_kernel_agree(masked):
    query, key, value, mask = draw()
    ours = attend(query, key, value, scale=0.3, mask=mask if masked else None)
    tensors = [torch.from_numpy(x) for x in (query, key, value)]
    allowed = torch.from_numpy(mask) if masked else None
    theirs = scaled_dot_product_attention(*tensors, attn_mask=allowed, scale=0.3)
    np.testing.assert_allclose(ours.context, theirs.numpy(), rtol=0, atol=1e-14)
    same = attend(*tensors, scale=0.3, mask=allowed)
    assert isinstance(same.context, torch.Tensor)
    np.testing.assert_allclose(same.weights.numpy(), ours.weights, rtol=0, atol=1e-15)
    assert ours.scores.shape == ours.weights.shape == (BATCH, HEADS, QUERIES, KEYS)
    assert ours.context.shape == (BATCH, HEADS, QUERIES, VALUES)


def test_leading_dimensions_broadcast():
    query, key, value, _ = draw()
    full = attend(query, key, value)
    shared = attend(query[0, 0], key, value)  # one set of queries for all heads
    np.testing.assert_allclose(shared.context[0, 0], full.context[0, 0], atol=1e-14)
    assert shared.context.shape == (BATCH, HEADS, QUERIES, VALUES)
    single = attend(query[1, 2, 4], key[1, 2], value[1, 2])
    assert single.weights.shape == (KEYS,)
    np.testing.assert_allclose(single.context, full.context[1, 2, 4], atol=1e-14)


def test_a_query_that_may_look_nowhere_gets_nothing():
    query, key, value, mask = draw()
    mask[1, 2, 3] = False
    mask[:, :, 4] = False
    ours = attend(query, key, value, mask=mask)
    assert (ours.weights[1, 2, 3] == 0).all()
    assert (ours.context[:, :, 4] == 0).all()
    np.testing.assert_allclose(ours.weights[0, 0, 0].sum(), 1, atol=1e-15)
    for dtype, rounding in ((torch.float64, 1e-14), (torch.float32, 1e-5)):
        tensors = [torch.from_numpy(x).to(dtype).requires_grad_() for x in (query, key, value)]
        fused = attend_fused(*tensors, scale=1.0, mask=torch.from_numpy(mask))
        np.testing.assert_allclose(fused.detach().numpy(), ours.context, rtol=0, atol=rounding)
        open_ = attend(*tensors, mask=torch.from_numpy(mask)).context
        for context in (fused, open_):
            gradients = torch.autograd.grad(context.square().sum(), tensors)
            assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
            assert float(gradients[0][1, 2, 3].abs().max()) == 0


def test_fused_causal_is_the_causal_mask():
    draws = np.random.default_rng(1).standard_normal((3, HEADS, KEYS, WIDTH))
    query, key, value = map(torch.from_numpy, draws)
    causal, padding = torch.ones(KEYS, KEYS, dtype=torch.bool).tril(), torch.arange(KEYS) >= 2
    for mask, both in ((None, causal), (padding, causal & padding)):
        expected = attend(query, key, value, scale=0.5, mask=both).context
        fused = attend_fused(query, key, value, scale=0.5, mask=mask, causal=True)
        np.testing.assert_allclose(fused, expected, atol=1e-14)
    assert float(fused[:, :2].abs().max()) == 0  # the first two queries may look nowhere


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_logits_of_ten_thousand(kind):
    scores = np.array([1e4, 1e4 - 1, -1e4, 0.0])
    given_scores = scores if kind == "numpy" else torch.from_numpy(scores)
    weights = np.asarray(softmax_over_keys(given_scores))
    top = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(weights, [top, 1 - top, 0, 0], rtol=1e-15, atol=0)
    assert float(log_sum_exp(given_scores)) == pytest.approx(1e4 + np.log1p(np.exp(-1)), rel=1e-15)


def test_the_leftover_is_right_when_the_weight_is_one_to_the_last_bit():
    scores = np.array([300.0, 1.0, 0.0])
    assert softmax_over_keys(scores)[0] == 1.0
    # exactly: ln((e + 1)/(e^300 + e + 1)), and e^300 swallows the rest below 1e-129
    expected, keep = np.log(np.e + 1) - 300, np.array([True, False, False])
    tensor = log_leftover(torch.from_numpy(scores), torch.from_numpy(keep))
    for found in (log_leftover(scores, keep), float(tensor)):
        assert found == pytest.approx(expected, rel=1e-15)
    assert log_leftover(scores, np.array([True, True, True])) == -np.inf


@given(arrays(np.float64, KEYS, elements=logits), arrays(np.bool_, KEYS))
@settings(max_examples=60, deadline=None)
def test_kept_and_leftover_sum_to_one_and_a_mask_leaves_keys_out(scores, mask):
    parts = np.exp(log_leftover(scores, mask)) + np.exp(log_leftover(scores, ~mask))
    assert parts == pytest.approx(1, abs=1e-14)
    weights = softmax_over_keys(scores, mask)
    assert (weights[~mask] == 0).all()
    if mask.any():
        np.testing.assert_allclose(weights[mask], softmax_over_keys(scores[mask]), rtol=1e-13)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"query": np.ones(3)}, r"it got query \(3,\), key \(7, 4\)"),
        ({"value": np.ones((5, 2))}, r"value \(5, 2\)"),
        ({"key": np.ones(4)}, r"key \(4,\)"),
        ({"key": np.ones((0, 4)), "value": np.ones((0, 2))}, "n at least 1"),
        ({"key": torch.ones(7, 4)}, "not some of each"),
        ({"mask": np.zeros(7)}, "True where"),
        ({"mask": torch.ones(7, dtype=torch.bool)}, "must be a numpy array"),
    ],
)
def test_wrong_input_gets_a_sentence(change, sentence):
    right = {"query": np.ones(4), "key": np.ones((7, 4)), "value": np.ones((7, 2))}
    with pytest.raises(UserError, match=sentence):
        attend(**{**right, **change})
