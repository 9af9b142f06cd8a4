"""Inside a trained model: what each head attends to as the model is about to answer."""

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
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import AttentionRecord
from wherefrom.recall.decode import encode_prompts

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HeadView:
    """One head at the answering position, over the keys it may see."""

    layer: int
    head: int
    weights: Floats  # (keys,)
    moved: Floats  # (keys,): |weight * value|, the size of what each key adds to the output
    mass_on_name: float | None  # None where keys are latents, not tokens
    entropy: float  # nats
    effective_keys: float  # exp(entropy)
    margin: float | None  # best score minus second best, None for a single key
    implied_beta: float | None  # the beta at which a constructed query has this largest weight
    freedom: int  # dimension of the set of weights that give the same output
    second_weights: Floats | None  # other weights of that set
    second_distance: float  # total variation between weights and second_weights

    def to_dict(self) -> dict[str, Any]:
        return {
            name: [float(f"{x:.6g}") for x in value] if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class InsideView:
    """A question's tokens, the indices of those in the name, and the view of every head."""

    question: str
    tokens: tuple[str, ...]
    name: tuple[int, ...]
    maps: tuple[Floats, ...]  # for each layer (heads, queries, keys)
    heads: tuple[HeadView, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "tokens": list(self.tokens),
            "name": list(self.name),
            "heads": [head.to_dict() for head in self.heads],
        }


@torch.inference_mode()
def look_inside(
    model: Decoder, tokens: Tokenizer, question: str, subject: str | None
) -> InsideView:
    """The attention of every layer and head at the MASK behind the question."""
    (ids,) = encode_prompts(model, tokens, [question])
    ((_, offsets),) = tokens.encode_with_offsets([question])
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
            if (record.weights[0, head, -1] > 0).any():  # else there is no key that it may see
                heads.append(view_head(record, layer, head, name if keys_are_tokens else None))
    return InsideView(
        question=question,
        tokens=tuple(tokens.surface(token) for token in ids),
        name=name,
        maps=tuple(record.weights[0].double().numpy() for record in records),
        heads=tuple(heads),
    )


def view_head(
    record: AttentionRecord, layer: int, head: int, name: tuple[int, ...] | None
) -> HeadView:
    """One head at the last position."""
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
    second = None
    if other is not None:
        second = np.zeros(len(weights))
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
