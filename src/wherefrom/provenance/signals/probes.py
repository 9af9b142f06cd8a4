"""The attention on a name, and a linear probe on its hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import AttentionRecord
from wherefrom.provenance.confidence.calibration import choose_strength, deal_folds, fit_logistic
from wherefrom.provenance.judging.metrics import Bools, Floats
from wherefrom.provenance.signals.likelihood import chunks_of


def find_names(
    tokens: Tokenizer, questions: Sequence[str], subjects: Sequence[str]
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
        glances: list[AttentionRecord] = []
        model.hidden(chunk.ids, record=glances)
        span = places[torch.from_numpy(chunk.rows)].to(chunk.ids.device)
        keys = torch.arange(chunk.ids.shape[1], device=chunk.ids.device)
        name = (keys >= span[:, :1]) & (keys < span[:, 1:])
        rows = torch.arange(len(chunk.rows), device=chunk.ids.device)
        looks = [glance.weights[rows, :, chunk.lengths - 1].mean(dim=1) for glance in glances]
        each = (torch.stack(looks).mean(dim=0) * name).sum(dim=-1)
        mass[chunk.rows] = each.double().cpu().numpy()
    mass[(places[:, 1] == 0).numpy()] = np.nan
    return mass


FEWEST_EACH = 5  # known or unknown names; with fewer nothing can be fitted or held out


@dataclass(frozen=True, eq=False)
class NameProbe:
    """logit = (state - mean) / scale @ weights + intercept."""

    mean: Floats
    scale: Floats
    weights: Floats
    intercept: float

    def score(self, states: Floats) -> Floats:
        scaled = (states - self.mean) / self.scale
        return np.asarray(scaled @ self.weights + self.intercept)

    def to_dict(self) -> dict[str, Any]:
        return {
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "weights": self.weights.tolist(),
            "intercept": self.intercept,
        }

    @classmethod
    def from_dict(cls, record: Any, width: int) -> NameProbe:
        """Read back what `to_dict` wrote, for states of this width."""
        try:
            parts = [np.array(record[k], dtype=np.float64) for k in ("mean", "scale", "weights")]
            intercept = float(record["intercept"])
        except (KeyError, TypeError, ValueError):
            raise UserError("the known-name probe is broken; fit it again.") from None
        if any(part.shape != (width,) or not np.isfinite(part).all() for part in parts):
            raise UserError(f"the known-name probe must hold {width} finite numbers; fit it again.")
        mean, scale, weights = parts
        return cls(mean, scale, weights, intercept)


def fit_name_probe(
    states: Floats,
    known: Bools,
    groups: Sequence[str],
    *,
    seed: int,
    counts: Floats | None = None,
) -> tuple[NameProbe, Floats]:
    """The probe, and for each row the score by a fit without anybody of its group.

    `counts` is how many people each row stands for, one if not given.
    """
    fewer = min(int(known.sum()), int((~known).sum()))
    if fewer < FEWEST_EACH:
        raise UserError(
            f"the known-name probe needs {FEWEST_EACH} known and {FEWEST_EACH} unknown names, "
            f"and there are {int(known.sum())} and {int((~known).sum())}."
        )
    mean = np.average(states, axis=0, weights=counts)
    scale = np.sqrt(np.average((states - mean) ** 2, axis=0, weights=counts))
    scale = np.where(scale > 1e-6, scale, 1.0)
    columns = (states - mean) / scale
    people = np.unique(np.array(groups, dtype=object).astype(str), return_inverse=True)[1]
    folds = deal_folds(known, people, np.random.default_rng(seed))
    free = np.zeros(columns.shape[1], dtype=int)
    strength, held_out = choose_strength(columns, known, folds, free, counts)
    beta = fit_logistic(columns, known.astype(np.float64), strength=strength, counts=counts)
    return NameProbe(mean, scale, beta[:-1], float(beta[-1])), held_out


@torch.inference_mode()
def read_states(model: Decoder, prompts: Sequence[list[int]], name_ends: Sequence[int]) -> Floats:
    """(n, 2 width): the last hidden state at the answering position and at the name's end."""
    width = model.config.width
    states = np.zeros((len(prompts), 2 * width))
    ends = torch.tensor(name_ends)
    for chunk in chunks_of(prompts, next(model.parameters()).device):
        hidden = model.hidden(chunk.ids)
        rows = torch.arange(len(chunk.rows), device=hidden.device)
        at_name = ends[torch.from_numpy(chunk.rows)].to(hidden.device)
        both = torch.cat((hidden[rows, chunk.lengths - 1], hidden[rows, at_name]), dim=-1)
        states[chunk.rows] = both.double().cpu().numpy()
    return states
