"""Where a name stands in a question, and how much attention goes there as the answer begins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from wherefrom.corpus.tokens import Tokens
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import Glance
from wherefrom.provenance.answers import Floats
from wherefrom.provenance.likelihood import chunks_of


def find_names(
    tokens: Tokens, questions: Sequence[str], subjects: Sequence[str]
) -> list[tuple[int, int]]:
    """First and one-past-last token of each name; (0, 0) where it is not in the question."""
    places = []
    encoded = tokens.encode_with_offsets(questions)
    for question, subject, (_, offsets) in zip(questions, subjects, encoded, strict=True):
        start = question.find(subject) if subject else -1
        end = start + len(subject)
        inside = [i for i, (a, b) in enumerate(offsets) if a < end and b > start >= 0]
        places.append((inside[0], inside[-1] + 1) if inside else (0, 0))
    return places


@torch.inference_mode()
def attention_on(
    model: Decoder, prompts: Sequence[list[int]], names: Sequence[tuple[int, int]]
) -> Floats:
    """Mass on the name, mean over layers and heads; NaN without one or where keys are latents."""
    mass = np.full(len(prompts), np.nan)
    if model.variant.latent:
        return mass
    places = torch.tensor(names).reshape(-1, 2)
    for chunk in chunks_of(prompts, next(model.parameters()).device):
        glances: list[Glance] = []
        model.hidden(chunk.ids, watch=glances)
        span = places[torch.from_numpy(chunk.rows)].to(chunk.ids.device)
        keys = torch.arange(chunk.ids.shape[1], device=chunk.ids.device)
        name = (keys >= span[:, :1]) & (keys < span[:, 1:])
        rows = torch.arange(len(chunk.rows), device=chunk.ids.device)
        looks = [glance.weights[rows, :, chunk.lengths - 1].mean(dim=1) for glance in glances]
        each = (torch.stack(looks).mean(dim=0) * name).sum(dim=-1)
        mass[chunk.rows] = each.double().cpu().numpy()
    mass[(places[:, 1] == 0).numpy()] = np.nan
    return mass
