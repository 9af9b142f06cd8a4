"""How likely a model finds tokens that are given to it: teacher forcing in batches.

Rows of unequal length are padded on the right: every variant is causal, so what stands behind a
position cannot reach it. Chunks are bounded in tokens, and so is memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from wherefrom.corpus.tokenizer import MASK, PAD, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.metrics import Floats

IMPOSSIBLE = -1e3  # the log-probability of what a model cannot say, or cannot hold
CHUNK = 2_048  # tokens that go through the model together
SCORED = 512  # and tokens among them that are compared with the whole vocabulary

Ids = list[int]


class TokenScores(NamedTuple):
    """Of each token asked for: its log p, and that of the likeliest other."""

    own: Floats
    other: Floats


def encode_answers(tokens: Tokenizer, answers: Sequence[str]) -> list[Ids]:
    """Answers as the model learned them, closed by MASK; [] for what cannot be written."""
    return [[*ids, MASK] if ids is not None else [] for ids in _encode(tokens, answers)]


def encode_names(tokens: Tokenizer, subjects: Sequence[str]) -> list[Ids]:
    """`Name.` as a document opens with it; [] for what cannot be written."""
    found = _encode(tokens, [f"{subject}." for subject in subjects])
    return [ids if subject and ids else [] for subject, ids in zip(subjects, found, strict=True)]


def _encode(tokens: Tokenizer, texts: Sequence[str]) -> list[Ids | None]:
    """Each text in tokens; None where a letter is not in the vocabulary."""
    writable = [can_encode(tokens, text) for text in texts]
    encoded = iter(tokens.encode_all([t for t, can in zip(texts, writable, strict=True) if can]))
    return [next(encoded) if can else None for can in writable]


def encode_context(tokens: Tokenizer, words: str) -> Ids:
    """`words MASK MASK`, which behind a name asks for the fact that such words lead to."""
    space = space_of(tokens)
    text = f"{space}{words}{space}"
    ids = tokens.encode(text if words and can_encode(tokens, text) else space)
    return [*ids, MASK, MASK]


def space_of(tokens: Tokenizer) -> str:
    """What stands between words: BPE carries it with the next word, among characters it is one."""
    return " " if tokens.kind == "chars" else ""


def can_encode(tokens: Tokenizer, text: str) -> bool:
    """Whether the vocabulary has all letters of a text; BPE has all there are."""
    try:
        tokens.kind == "bpe" or tokens.encode(text)
    except UserError:
        return False
    return True


def score_answers(model: Decoder, prompts: Sequence[Ids], answers: Sequence[Ids]) -> Floats:
    """The log-probability of each answer after its prompt, every token of it given in turn."""
    found = score_tokens(model, prompts, answers)
    sums = [IMPOSSIBLE if each is None else float(each.own.sum()) for each in found]
    return np.maximum(IMPOSSIBLE, np.array(sums))


@torch.inference_mode()
def score_tokens(
    model: Decoder, before: Sequence[Ids], scored: Sequence[Ids], *, compared: bool = False
) -> list[TokenScores | None]:
    """For each row the tokens `scored` behind `before`, each given all that stand before it.

    None where either is empty or the model cannot hold them. Unless `compared`, `other` is 0.
    """
    same = defaultdict(list)  # rows that are alike are read once
    for at, (head, tail) in enumerate(zip(before, scored, strict=True)):
        if head and tail and len(head) + len(tail) - 1 <= model.config.longest_input:
            same[tuple(head), tuple(tail)].append(at)
    rows = [each[0] for each in same.values()]
    rows.sort(key=lambda at: len(before[at]) + len(scored[at]))
    result: list[TokenScores | None] = [None] * len(before)
    device = next(model.parameters()).device
    while rows:
        lengths = [len(before[at]) + len(scored[at]) for at in rows[:CHUNK]]
        totals = accumulate(len(scored[at]) for at in rows[:CHUNK])
        # the row at k would pad k + 1 rows to its length
        fitting = sum(
            length * k <= CHUNK and total <= SCORED
            for k, (length, total) in enumerate(zip(lengths, totals, strict=True), start=1)
        )
        chunk, rows = rows[: max(1, fitting)], rows[max(1, fitting) :]
        longest = lengths[len(chunk) - 1]
        ids = torch.full((len(chunk), longest), PAD)
        asked = torch.zeros((len(chunk), longest - 1), dtype=torch.bool)
        for k, at in enumerate(chunk):
            ids[k, : lengths[k]] = torch.tensor([*before[at], *scored[at]])
            asked[k, len(before[at]) - 1 : lengths[k] - 1] = True
        select = asked.flatten().nonzero().flatten().to(device)
        logits = model(ids[:, :-1].to(device), select=select).float()
        targets = ids[:, 1:][asked][:, None].to(device)
        own = -F.cross_entropy(logits, targets.flatten(), reduction="none")
        normaliser = logits.gather(1, targets).flatten() - own
        other = torch.zeros_like(own)
        if compared:
            other = logits.scatter(1, targets, -math.inf).amax(dim=-1) - normaliser
        found = torch.stack((own, other)).double().cpu()
        for at, one in zip(chunk, found.split(asked.sum(dim=1).tolist(), dim=1), strict=True):
            for each in same[tuple(before[at]), tuple(scored[at])]:
                result[each] = TokenScores(*one.numpy())
    return result


def by_length(prompts: Sequence[Ids]) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Prompts of one length together: their places and their tokens."""
    groups: dict[int, list[int]] = defaultdict(list)
    for at, prompt in enumerate(prompts):
        groups[len(prompt)].append(at)
    for rows in groups.values():
        yield rows, torch.tensor([prompts[at] for at in rows])
