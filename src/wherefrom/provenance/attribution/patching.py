"""Where in the model a line enters an answer: states taken from a twin that never read the line."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.model.decoder import Block, Decoder
from wherefrom.provenance.attribution.gradients import answer_row
from wherefrom.training.run_folder import Run

Patches = dict[str, tuple[Tensor, Tensor]]  # by place: the donor's states, and which to take (B, T)


@torch.inference_mode()
def run_patched(model: Decoder, ids: Tensor, patches: Patches) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits with patched states; and the states at every place, from embedding to output."""
    places: dict[str, nn.Module] = {"embedding": model.embed}
    for layer, block in enumerate(model.blocks, start=1):
        assert isinstance(block, Block)
        places[f"attention {layer}"] = block.mixer
        places[f"feed-forward {layer}"] = block.feed
        places[f"hidden {layer}"] = block
    places["output"] = model.head
    states: dict[str, Tensor] = {}

    def patch(name: str, module: nn.Module, given: Any, out: Tensor) -> Tensor:
        states[name] = out
        donor, where = patches.get(name, (out, torch.ones(1, 1, dtype=torch.bool)))
        return torch.where(where[..., None], donor, out)

    with ExitStack() as stack:
        for name, module in places.items():
            stack.enter_context(module.register_forward_hook(partial(patch, name)))
        return model.eval()(ids), states


def map_line(
    run: Run, twin: Run, question: str, answer: str, *, everywhere: Collection[str] = ()
) -> dict[str, Any]:
    """log p of the answer with the twin's state at each place and position.

    everywhere: places at which the twin's states are taken at all positions in any case.
    """
    ids, weights = answer_row(run, question, answer)
    given, targets, counts = ids[None, :-1], ids[1:], weights[1:]
    length = given.shape[1]

    def log_p(logits: Tensor) -> list[float]:
        wanted = targets.expand(len(logits), -1)
        losses = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none")
        return [round(-float(value), 4) for value in (losses * counts).sum(1)]

    of_run, _ = run_patched(run.model, given, {})
    of_twin, donor = run_patched(twin.model, given, {})
    whole = torch.ones(1, length, dtype=torch.bool)
    always = {place: (donor[place], whole) for place in everywhere}
    rows = {}
    for place, state in donor.items():
        if state.shape[1] == length:  # a perceiver's latents are no positions
            patches = {place: (state, torch.eye(length, dtype=torch.bool)), **always}
            rows[place] = log_p(run_patched(run.model, given.expand(length, -1), patches)[0])
    return {
        "tokens": [run.tokens.surface(token) for token in given[0].tolist()],
        "with": log_p(of_run)[0],
        "without": log_p(of_twin)[0],
        "places": rows,
    }
