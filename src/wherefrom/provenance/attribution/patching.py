"""Where in the model a line enters an answer: states taken from a twin that never read the line.

The run reads the question with its answer; at one place the twin's state is put in, and log p of
the answer is read off. Unlike patching with noise, the donor is a model that does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.model.decoder import Block, Decoder
from wherefrom.provenance.attribution.gradients import answer_row
from wherefrom.training.run_folder import Run

Patches = dict[str, tuple[Tensor, Tensor]]  # by place: the donor's states, and which to take (B, T)


def places_of(model: Decoder) -> dict[str, nn.Module]:
    """Where states can be patched, from the embedding to the output."""
    places: dict[str, nn.Module] = {"embedding": model.embed}
    for layer, block in enumerate(model.blocks, start=1):
        assert isinstance(block, Block)
        places[f"attention {layer}"] = block.mixer
        places[f"feed-forward {layer}"] = block.feed
        places[f"hidden {layer}"] = block
    return {**places, "output": model.head}


@torch.inference_mode()
def run_patched(
    model: Decoder, ids: Tensor, patches: Patches, keep: dict[str, Tensor] | None = None
) -> Tensor:
    """Logits with patched states; `keep` gets the states of every place."""

    def hook(name: str) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        def patch(module: nn.Module, given: Any, out: Tensor) -> Tensor:
            if keep is not None:
                keep[name] = out
            if name not in patches:
                return out
            donor, where = patches[name]
            return torch.where(where[..., None], donor, out)

        return patch

    with ExitStack() as stack:
        for name, module in places_of(model).items():
            stack.enter_context(module.register_forward_hook(hook(name)))
        logits: Tensor = model.eval()(ids)
        return logits


def map_line(
    run: Run, twin: Run, question: str, answer: str, *, everywhere: Collection[str] = ()
) -> dict[str, Any]:
    """log p of the answer with the twin's state at each place and position.

    everywhere: places at which the twin's states are taken at all positions in any case.
    """
    ids, weights = answer_row(run, question, answer)
    given, targets, counts = ids[None, :-1], ids[1:], weights[1:]
    donor: dict[str, Tensor] = {}
    own: dict[str, Tensor] = {}
    of_twin = run_patched(twin.model, given, {}, donor)
    of_run = run_patched(run.model, given, {}, own)
    length = given.shape[1]

    def log_p(logits: Tensor) -> list[float]:
        rows = len(logits)
        losses = F.cross_entropy(logits.transpose(1, 2), targets.expand(rows, -1), reduction="none")
        return [round(-float(value), 4) for value in (losses * counts).sum(1)]

    whole = torch.ones(1, length, dtype=torch.bool)
    always = {place: (donor[place], whole) for place in everywhere}
    rows = {}
    for place, state in donor.items():
        if state.shape[1] == length:  # a perceiver's latents are no positions
            patches = {place: (state, torch.eye(length, dtype=torch.bool)), **always}
            rows[place] = log_p(run_patched(run.model, given.expand(length, -1), patches))
    return {
        "tokens": [run.tokens.surface(token) for token in given[0].tolist()],
        "with": log_p(of_run)[0],
        "without": log_p(of_twin)[0],
        "places": rows,
    }
