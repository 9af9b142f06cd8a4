"""Where inside the model a line matters, and what each layer would answer."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.model.decoder import Block, Decoder
from wherefrom.provenance.attribution.own_run import answer_row
from wherefrom.provenance.attribution.retraining import Record
from wherefrom.training.run_folder import Run


@torch.inference_mode()
def run_patched(
    model: Decoder, ids: Tensor, patches: dict[str, tuple[Tensor, Tensor]]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits with patched states; and the states at every place, from embedding to output.

    patches: by place the donor's states, and a mask (B, T) of those to take.
    """
    places: dict[str, nn.Module] = {"embedding": model.embed}
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        places[f"attention {layer}"] = block.mixer
        places[f"feed-forward {layer}"] = block.feed
        places[f"hidden {layer}"] = block
    places["output"] = model.head
    states: dict[str, Tensor] = {}

    def patch(place: str, module: nn.Module, inputs: Any, state: Tensor) -> Tensor:
        states[place] = state
        if place not in patches:
            return state
        donor, mask = patches[place]
        return torch.where(mask[..., None], donor, state)

    with ExitStack() as stack:
        for place, module in places.items():
            stack.enter_context(module.register_forward_hook(partial(patch, place)))
        return model.eval()(ids), states


def map_line(run: Run, twin: Run, question: str, answer: str) -> Record:
    """log p of the answer with the twin's state at each place and position."""
    ids, weights = answer_row(run, question, answer)
    inputs, targets, weights = ids[None, :-1], ids[1:], weights[1:]
    length = inputs.shape[1]

    def log_p(logits: Tensor) -> list[float]:
        expected = targets.expand(len(logits), -1)
        losses = F.cross_entropy(logits.transpose(1, 2), expected, reduction="none")
        return [round(-float(value), 4) for value in (losses * weights).sum(1)]

    of_run, _ = run_patched(run.model, inputs, {})
    of_twin, donor = run_patched(twin.model, inputs, {})
    one_position_a_row = torch.eye(length, dtype=torch.bool)
    rows = {}
    for place, state in donor.items():
        if state.shape[1] == length:  # a perceiver's latents are no positions
            patches = {place: (state, one_position_a_row)}
            rows[place] = log_p(run_patched(run.model, inputs.expand(length, -1), patches)[0])
    return {
        "tokens": [run.tokens.surface(token) for token in inputs[0].tolist()],
        "with": log_p(of_run)[0],
        "without": log_p(of_twin)[0],
        "places": rows,
    }


@torch.inference_mode()
def logit_lens(run: Run, question: str, answer: str) -> Record:
    """What the output head predicts from the hidden states after each layer, for each answer token.

    layers: the probability of each token of the answer, and the most likely token in its place.
    """
    ids, weights = answer_row(run, question, answer)
    _, states = run_patched(run.model, ids[None, :-1], {})
    in_answer = weights[1:] > 0
    targets = ids[1:][in_answer]
    layers = []
    for place, state in states.items():
        if place.startswith("hidden") and state.shape[1] == len(in_answer):
            probabilities = run.model.head(run.model.norm(state[0, in_answer])).softmax(1)
            of_answer = probabilities.gather(1, targets[:, None])[:, 0].tolist()
            likeliest = [run.tokens.surface(t) for t in probabilities.argmax(1).tolist()]
            layers.append(
                {
                    "layer": int(place.split()[1]),
                    "probability": [round(p, 4) for p in of_answer],
                    "says": likeliest,
                }
            )
    return {"tokens": [run.tokens.surface(t) for t in targets.tolist()], "layers": layers}
