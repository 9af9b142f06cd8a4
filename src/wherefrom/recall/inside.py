"""Inside a trained model: where each head looks while it answers, and what that does not prove."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import entr

from wherefrom.attention.designs import second_weights
from wherefrom.attention.equation import log_leftover
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import AttentionRecord

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HeadView:
    """One head at the answering position, over the keys it may see."""

    layer: int
    head: int
    weights: Floats  # (keys,)
    moved: Floats  # (keys,): |weight * value|, what each key adds to the output
    mass_on_name: float | None  # None where keys are latents, not tokens
    entropy: float  # nats
    effective_keys: float  # exp(entropy)
    margin: float | None  # best score minus second best, None for a single key
    implied_beta: float | None  # the beta whose textbook query puts as much on its key
    freedom: int  # dimension of the weights that give the same output
    second_weights: Floats | None  # one such set, as far away as one step goes
    second_distance: float  # total variation between the two

    def to_dict(self) -> dict[str, Any]:
        return {
            name: [float(f"{x:.6g}") for x in value] if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class InsideView:
    """A question's tokens, which of them are the name, and every head's view."""

    question: str
    tokens: tuple[str, ...]
    name: tuple[int, ...]
    maps: tuple[Floats, ...]  # for each layer (heads, queries, keys)
    heads: tuple[HeadView, ...]

    def to_dict(self) -> dict[str, Any]:
        lists = {"tokens": list(self.tokens), "name": list(self.name)}
        heads = [head.to_dict() for head in self.heads]
        return {"question": self.question, **lists, "heads": heads}


@torch.inference_mode()
def look_inside(
    model: Decoder, tokens: Tokenizer, question: str, subject: str | None
) -> InsideView:
    """Every layer and head as the model reads the question and is about to answer."""
    ((ids, offsets),) = tokens.encode_with_offsets([question])
    ids = [*ids, MASK]
    if len(ids) > model.config.longest_input:
        raise UserError(
            f"the question has {len(ids)} tokens and this model reads "
            f"{model.config.longest_input}; ask a shorter one."
        )
    start = question.find(subject) if subject else -1
    end = start + len(subject or "") if start >= 0 else -1
    name = tuple(i for i, (first, last) in enumerate(offsets) if first < end and last > start)
    records: list[AttentionRecord] = []
    model.eval()
    model(torch.tensor([ids]), record=records)
    heads = []
    for layer, record in enumerate(records):
        keys_are_tokens = record.weights.shape[-1] == len(ids)
        for head in range(record.weights.shape[1]):
            if (record.weights[0, head, -1] > 0).any():  # else it may look nowhere
                heads.append(_view(record, layer, head, name if keys_are_tokens else None))
    return InsideView(
        question=question,
        tokens=tuple(tokens.surface(token) for token in ids),
        name=name,
        maps=tuple(record.weights[0].double().numpy() for record in records),
        heads=tuple(heads),
    )


def _view(record: AttentionRecord, layer: int, head: int, name: tuple[int, ...] | None) -> HeadView:
    """The last query of one head."""
    weights = record.weights[0, head, -1].double().numpy()
    values = record.values[0, head].double().numpy()
    scores = record.scores[0, head, -1].double().numpy()
    allowed = np.isfinite(scores)
    entropy = float(entr(weights).sum())
    best = np.arange(len(scores)) == np.argmax(scores)
    others = int(allowed.sum()) - 1
    margin = beta = None
    if others:
        margin = float(scores[best][0] - scores[~best].max())
        leftover = float(log_leftover(scores, best))
        beta = float(math.log(weights[best][0]) - leftover + math.log(others))
    freedom, other, distance = second_weights(
        values[allowed], weights[allowed] / weights[allowed].sum()
    )
    second = None if other is None else np.zeros(len(weights))
    if second is not None:
        second[allowed] = other
    return HeadView(
        layer=layer,
        head=head,
        weights=weights,
        moved=weights * np.linalg.norm(values, axis=-1),
        mass_on_name=None if name is None else float(weights[list(name)].sum()),
        entropy=entropy,
        effective_keys=math.exp(entropy),
        margin=margin,
        implied_beta=beta,
        freedom=freedom,
        second_weights=second,
        second_distance=distance,
    )
