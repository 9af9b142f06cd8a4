"""How likely a model finds the answers that are given to it: teacher forcing in batches.

Rows of unlike length are padded on the right: every variant is causal, so what stands behind a
position cannot reach it. Chunks are bounded in tokens, so memory is too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.corpus.tokenizer import MASK, PAD, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.judging.metrics import Floats

IMPOSSIBLE = -1e3  # the log-probability of what a model cannot say, or cannot hold
CHUNK = 4_096  # tokens that go through the model together


@dataclass(frozen=True)
class Chunk:
    """Rows of like length: which they are, their padded ids, and the length of each."""

    rows: NDArray[np.intp]
    ids: Tensor
    lengths: Tensor


def encode_prompts(model: Decoder, tokens: Tokenizer, questions: Sequence[str]) -> list[list[int]]:
    """Questions as the model was taught them, each ending in the MASK that asks for its answer."""
    prompts = [[*ids, MASK] for ids in tokens.encode_all(questions)]
    for question, prompt in zip(questions, prompts, strict=True):
        if len(prompt) > model.config.longest_input:
            raise UserError(
                f'the question "{question[:40]}..." has {len(prompt)} tokens and this model reads '
                f"{model.config.longest_input}; ask a shorter one."
            )
    return prompts


def encode_answers(tokens: Tokenizer, answers: Sequence[str]) -> list[list[int] | None]:
    """Answers as they were taught, closed by MASK; None where a letter is not in the vocabulary."""
    sayable = [can_encode(tokens, answer) for answer in answers]
    encoded = iter(tokens.encode_all([a for a, can in zip(answers, sayable, strict=True) if can]))
    return [[*next(encoded), MASK] if can else None for can in sayable]


def can_encode(tokens: Tokenizer, text: str) -> bool:
    """Whether the vocabulary has all letters of a text; BPE has all there are."""
    if tokens.kind == "bpe":
        return True
    try:
        tokens.encode(text)
    except UserError:
        return False
    return True


def chunks_of(sequences: Sequence[Sequence[int]], device: torch.device) -> Iterator[Chunk]:
    """All sequences, the shortest first, in chunks of at most CHUNK tokens with their padding."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.intp)
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        # the row at `start + k` would pad k + 1 rows to its length
        ahead = lengths[order[start : start + CHUNK]]
        fitting = np.searchsorted(ahead * np.arange(1, len(ahead) + 1), CHUNK, side="right")
        rows = order[start : start + max(1, int(fitting))]
        start += len(rows)
        ids = np.full((len(rows), int(lengths[rows[-1]])), PAD)
        for at, row in enumerate(rows):
            ids[at, : lengths[row]] = sequences[row]
        yield Chunk(
            rows, torch.from_numpy(ids).to(device), torch.from_numpy(lengths[rows]).to(device)
        )


@dataclass(frozen=True)
class Scored:
    """Of each token that was asked for: its log-probability, and that of the likeliest other."""

    own: Floats
    other: Floats


def score_answers(
    model: Decoder, prompts: Sequence[list[int]], answers: Sequence[list[int] | None]
) -> Floats:
    """The log-probability of each answer after its prompt, every token of it given in turn."""
    scores = np.full(len(prompts), IMPOSSIBLE)
    longest = model.config.longest_input
    kept, sequences = [], []
    for at, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        if answer is not None and len(prompt) + len(answer) - 1 <= longest:
            kept.append(at)
            sequences.append([*prompt, *answer])
    scored = score_tokens(model, sequences, [len(prompts[at]) for at in kept])
    totals = [float(each.own.sum()) for each in scored]
    scores[np.array(kept, dtype=np.intp)] = np.maximum(np.array(totals), IMPOSSIBLE)
    return scores


@torch.inference_mode()
def score_tokens(
    model: Decoder,
    sequences: Sequence[Sequence[int]],
    begins: Sequence[int],
    *,
    rivals: Collection[int] = (),
) -> list[Scored]:
    """For each sequence its tokens from `begins` on, each given all before it; one batched pass.

    The likeliest other token is looked for in the sequences at `rivals` alone, and NaN elsewhere.
    """
    result: list[Scored | None] = [None] * len(sequences)
    first = torch.tensor(list(begins), dtype=torch.long)
    device = next(model.parameters()).device
    for chunk in chunks_of(sequences, device):
        begin = first[torch.from_numpy(chunk.rows)].to(device)
        places = torch.arange(1, chunk.ids.shape[1], device=device)
        said = (places >= begin[:, None]) & (places < chunk.lengths[:, None])
        select = said.flatten().nonzero().flatten()
        logits = model(chunk.ids[:, :-1], select=select).float()
        targets = chunk.ids[:, 1:].flatten()[select][:, None]
        total = logits.logsumexp(dim=-1)
        own = logits.gather(1, targets).flatten() - total
        other = torch.full_like(own, math.nan)
        asked = torch.tensor([row in rivals for row in chunk.rows.tolist()], device=device)
        at = asked[select // said.shape[1]].nonzero().flatten()
        if len(at):
            others = logits[at].scatter(1, targets[at], -math.inf)
            other[at] = others.amax(dim=-1) - total[at]
        ends = said.sum(dim=1).cumsum(0).tolist()
        both = torch.stack((own, other)).double().cpu().numpy()
        for row, start, end in zip(chunk.rows.tolist(), [0, *ends[:-1]], ends, strict=True):
            result[row] = Scored(both[0, start:end], both[1, start:end])
    return [each for each in result if each is not None]
