"""How likely a model finds answers that are given to it: teacher forcing in batches.

Rows of unequal length are padded on the right: every variant is causal, so what stands behind a
position cannot reach it. Chunks are bounded in tokens, and so is memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.corpus.tokenizer import MASK, PAD, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.metrics import Floats

IMPOSSIBLE = -1e3  # the log-probability of what a model cannot say, or cannot hold
CHUNK = 4_096  # tokens that go through the model together


class TokenScores(NamedTuple):
    """Of each token that was asked for: its log-probability, and that of the likeliest other."""

    own: Floats
    other: Floats


def encode_prompts(model: Decoder, tokens: Tokenizer, questions: Sequence[str]) -> list[list[int]]:
    """Questions as the model learned them, each ending in the MASK that asks for its answer."""
    prompts = [[*ids, MASK] for ids in tokens.encode_all(questions)]
    for question, prompt in zip(questions, prompts, strict=True):
        if len(prompt) > model.config.longest_input:
            raise UserError(
                f'the question "{question[:40]}..." has {len(prompt)} tokens and this model reads '
                f"{model.config.longest_input}; ask a shorter one."
            )
    return prompts


def encode_answers(tokens: Tokenizer, answers: Sequence[str]) -> list[list[int] | None]:
    """Answers as the model learned them, closed by MASK; None where a letter is not in the
    vocabulary."""
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


def score_answers(
    model: Decoder, prompts: Sequence[list[int]], answers: Sequence[list[int] | None]
) -> Floats:
    """The log-probability of each answer after its prompt, every token of it given in turn."""
    scores = np.full(len(prompts), IMPOSSIBLE)
    kept, sequences = [], []
    for at, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        if answer is not None and len(prompt) + len(answer) - 1 <= model.config.longest_input:
            kept.append(at)
            sequences.append([*prompt, *answer])
    scored = score_tokens(model, sequences, [len(prompts[at]) for at in kept])
    for at, each in zip(kept, scored, strict=True):
        scores[at] = max(IMPOSSIBLE, float(each.own.sum()))
    return scores


@torch.inference_mode()
def score_tokens(
    model: Decoder,
    sequences: Sequence[Sequence[int]],
    begins: Sequence[int],
    *,
    with_other: Collection[int] = (),
) -> list[TokenScores]:
    """For each sequence its tokens from `begins` on, each given all before it; one batched pass.

    The likeliest other token is looked for in the sequences at `with_other`, and NaN elsewhere.
    """
    result = [TokenScores(np.empty(0), np.empty(0))] * len(sequences)
    first = torch.tensor(list(begins), dtype=torch.long)
    device = next(model.parameters()).device
    for rows, ids, lengths in _chunks(sequences, device):
        begin = first[torch.from_numpy(rows)].to(device)
        places = torch.arange(1, ids.shape[1], device=device)
        asked = (places >= begin[:, None]) & (places < lengths[:, None])
        select = asked.flatten().nonzero().flatten()
        logits = model(ids[:, :-1], select=select).float()
        targets = ids[:, 1:].flatten()[select][:, None]
        total = logits.logsumexp(dim=-1)
        own = logits.gather(1, targets).flatten() - total
        other = torch.full_like(own, math.nan)
        wanted = torch.tensor([row in with_other for row in rows.tolist()], device=device)
        at = wanted[select // asked.shape[1]].nonzero().flatten()
        if len(at):
            others = logits[at].scatter(1, targets[at], -math.inf)
            other[at] = others.amax(dim=-1) - total[at]
        ends = asked.sum(dim=1).cumsum(0).tolist()
        both = torch.stack((own, other)).double().cpu().numpy()
        for row, start, end in zip(rows.tolist(), [0, *ends[:-1]], ends, strict=True):
            result[row] = TokenScores(both[0, start:end], both[1, start:end])
    return result


def _chunks(
    sequences: Sequence[Sequence[int]], device: torch.device
) -> Iterator[tuple[NDArray[np.intp], Tensor, Tensor]]:
    """All sequences, the shortest first, in chunks of at most CHUNK tokens with their padding.

    Each chunk: which sequences it holds, their padded ids, and the length of each.
    """
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
        yield rows, torch.from_numpy(ids).to(device), torch.from_numpy(lengths[rows]).to(device)
