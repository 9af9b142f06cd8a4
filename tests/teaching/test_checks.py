"""Each mistake is told by name; the reference solution is right, and is the project's own model."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from wherefrom.attention.equation import attend, softmax_over_keys
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder, LatentBasis
from wherefrom.model.mixers import Synthesizer, causal_mask
from wherefrom.teaching import assignment, checks, reference, reference_model

NUMBERS, MODEL = (Path(m.__file__).read_text("utf-8") for m in (reference, reference_model))
TITLES = [title for title in assignment.MISTAKES if title != "evaluate"]


def load(text):
    """A text as a module."""
    module: dict[str, Any] = {"__name__": "submission"}
    exec(text, module)
    return SimpleNamespace(**module)


def call_of(numbers=NUMBERS, model=MODEL):
    """The functions of a solution whose files are given as texts."""
    torch.manual_seed(0)
    found, built = load(numbers), load(model)
    found.model = lambda name, rows: checks.run_model(built.build_model(name), rows)
    return checks.caller(found)


@pytest.fixture(scope="module")
def drawn():
    """The cases that students get, as a grader reads them back from a file."""
    return checks.decode(checks.encode(assignment.make_cases(checks.PARTS, 0)))


def test_the_reference_solution_passes_and_every_check_has_a_wrong_one(drawn):
    assert set(TITLES) == set(checks.CHECKS) == set(assignment.CASES)
    call = call_of()
    assert {title: checks.verdict(title, call, drawn) for title in TITLES} == dict.fromkeys(
        TITLES, ""
    )


def mistakes():
    rows = [(title, *mistake) for title in TITLES for mistake in assignment.MISTAKES[title]]
    return [pytest.param(*row, id=f"{row[0]}-{row[1][:40]}") for row in rows]


@pytest.mark.parametrize(("title", "says", "old", "new"), mistakes())
def test_a_wrong_solution_is_told_what_is_wrong(title, says, old, new, drawn):
    numbers, model = NUMBERS, MODEL
    if title.startswith("variants"):
        model = assignment.change(model, old, new)
    else:
        numbers = assignment.change(numbers, old, new)
    with np.errstate(all="ignore"):
        assert checks.verdict(title, call_of(numbers, model), drawn) == says


# what somebody's function returns -> the sentence
STRANGE = {
    "shape": (lambda q, k, v, m: v, r"the result has shape \(11, 13\); \(5, 13\) was expected"),
    "none": (lambda q, k, v, m: None, "the result has shape"),
    "words": (lambda q, k, v, m: ["a", "b"], "the result is not an array of numbers"),
    "ragged": (lambda q, k, v, m: [[1], [2, 3]], "the result is not an array of numbers"),
    "complex": (lambda q, k, v, m: v + 1j, "attention returned 143 values of type complex128"),
    "large": (lambda q, k, v, m: np.zeros(10**6), "attention returned 1,000,000 values"),
    "object": (lambda q, k, v, m: object(), "attention returned a object"),
    "dict": (lambda q, k, v, m: {"array": 3}, "the result could not be read: KeyError"),
    "raises": (lambda *_: 1 / 0, "attention raised ZeroDivisionError .test_checks.py, line"),
    "wrong": (lambda q, k, v, m: np.ones((5, 13)), r"attention\(...\)\[\d+, \d+\] is 1, and"),
    "nan": (lambda q, k, v, m: np.full((5, 13), np.nan), "attention returns nan or infinity"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_result_is_a_sentence(name, drawn):
    function, says = STRANGE[name]
    call = checks.caller(SimpleNamespace(attention=function))
    found = checks.verdict("attention: context", call, drawn)
    assert re.match(says, found), found


def test_a_missing_an_empty_and_a_drawing_function_are_told_apart(drawn):
    def empty(*_):
        raise NotImplementedError

    rng = np.random.default_rng(0)
    written = {"causal_mask": empty, "model": empty}
    written["greedy_decode"] = lambda *_: rng.integers(2, 9, size=8).tolist()
    call = checks.caller(SimpleNamespace(**written))
    for title, says in (
        ("mask: triangle", "causal_mask is not filled in yet"),
        ("variants: vanilla", "build_model is not filled in yet"),
        ("rotary: angles", "adapters.py has no rotary"),
        ("decode: ids", "the same prompt gives two answers"),
    ):
        assert checks.verdict(title, call, drawn).startswith(says)


def test_the_edition_with_a_third_mask_and_tensors_are_accepted(drawn):
    third = call_of(NUMBERS.replace("{text[start:end]}", "{text[start:end]}{MASK}"))
    assert checks.verdict("span: share", third, drawn) == ""
    tensors = SimpleNamespace(
        attention=lambda q, k, v, m: torch.nn.functional.scaled_dot_product_attention(
            *(torch.tensor(a, dtype=torch.float32) for a in (q, k, v)), attn_mask=torch.tensor(m)
        )
    )
    assert checks.verdict("attention: context", checks.caller(tensors), drawn) == ""


class TestTheReferenceIsTheProjectsOwnMathematics:
    rng = np.random.default_rng(1)

    def test_attention_and_masks(self):
        q, k, v = (self.rng.normal(size=size) for size in ((2, 5, 7), (2, 11, 7), (2, 11, 3)))
        mask = self.rng.random((5, 11)) < 0.5
        mask[2] = False
        ours = attend(q, k, v, scale=7**-0.5, mask=mask)
        np.testing.assert_allclose(reference.attention(q, k, v, mask), ours.context)
        scores = 900 * q[0] @ k[0].T
        np.testing.assert_allclose(
            reference.softmax(scores, mask), softmax_over_keys(scores, mask), atol=1e-300
        )
        ours = causal_mask(6, 6, torch.device("cpu")).numpy()
        assert (reference.causal_mask(6) == ours).all()
        sizes = {"block": 11, "layers": 3, "heads": 1, "width": 4, "latents": 3}
        pair = LatentBasis(make_config(variant="perceiver", vocabulary=9, **sizes))
        down, up = reference.perceiver_masks(11, 3)
        assert (down == pair.down_mask(slice(0, 3), 11).numpy()).all()
        assert (up == pair.up_mask(0, 11, 3).numpy()).all()
        x = self.rng.normal(size=(2, 9, 6))  # `turn` is compared with the decoder's below
        turned = reference_model.turn(torch.tensor(x))
        np.testing.assert_allclose(reference.rotary(x), turned, atol=1e-5)

    def test_synthesizer(self):
        config = make_config(variant="synthesizer", vocabulary=9, block=12, heads=1, width=6)
        layer = Synthesizer(config, bias=True).double()
        torch.nn.init.normal_(layer.columns)
        torch.nn.init.normal_(layer.column_bias)
        torch.nn.init.eye_(layer.out.weight)
        torch.nn.init.zeros_(layer.out.bias)
        torch.nn.init.zeros_(layer.value.bias)
        x = self.rng.normal(size=(7, 6))
        A, b1, V = layer.scorer.weight.T, layer.scorer.bias, layer.value.weight.T
        weights = [a.detach().numpy() for a in (A, b1, layer.columns, layer.column_bias, V)]
        ours = layer(torch.tensor(x)[None])[0].detach().numpy()
        np.testing.assert_allclose(reference.synthesizer(x, *weights), ours, atol=1e-9)

    @pytest.mark.parametrize("variant", checks.COUNTS)
    def test_models(self, variant):
        """The same weights in the project's decoder give the same logits."""
        config = make_config(variant=variant, vocabulary=256)
        torch.manual_seed(0)
        model, ours = reference_model.build_model(variant).eval(), Decoder(config).eval()
        state = {}
        for name, value in model.state_dict().items():
            name = re.sub(r"\.(up|down)\.", r".feed.\1.", name)
            name = re.sub(r"\.(query|key|value|out|columns|column_bias)\b", r".mixer.\1", name)
            name = name.replace("mixer.query", "mixer.scorer") if variant == "synthesizer" else name
            state[name.replace("basis", "latent.basis")] = value
        for layer in range(4 if variant != "synthesizer" else 0):
            for kind in ("weight", "bias"):
                parts = [
                    state.pop(f"blocks.{layer}.mixer.{part}.{kind}")
                    for part in ("query", "key", "value")
                ]
                if variant == "rotary":  # pairs (2i, 2i + 1) there, (i, i + d/2) here
                    pairs = [*range(0, 32, 2), *range(1, 32, 2)]
                    order = [h * 32 + i for h in range(8) for i in pairs]
                    parts[:2] = [part[order] for part in parts[:2]]
                state[f"blocks.{layer}.mixer.qkv.{kind}"] = torch.cat(parts)
        ours.load_state_dict(state)
        assert sum(p.numel() for p in ours.parameters()) == checks.COUNTS[variant]
        ids = torch.randint(256, (2, 31))
        with torch.no_grad():
            torch.testing.assert_close(model(ids), ours(ids), atol=1e-4, rtol=1e-4)
