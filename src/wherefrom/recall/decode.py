"""Greedy answers to many questions at once.

Prompts of one length go through the model together with one key/value cache, so no token is
padding; what all prompts start with is read once for all; rows that have closed their answer drop
out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.cache import Cache
from wherefrom.model.decoder import Decoder

LONGEST_ANSWER = 32
ROWS = 256  # prompts that go through the model together


@dataclass(frozen=True)
class Answer:
    """What the model said: the text, the log-probability of each token, whether it closed it."""

    text: str
    log_probabilities: tuple[float, ...]
    closed: bool

    @property
    def log_probability(self) -> float:
        return sum(self.log_probabilities)


@torch.inference_mode()
def answer_all(
    model: Decoder,
    tokens: Tokenizer,
    questions: Sequence[str],
    *,
    longest: int = LONGEST_ANSWER,
    report: Callable[[int], None] | None = None,
) -> list[Answer]:
    """The model's greedy answer to each question, in order."""
    groups: dict[int, list[int]] = defaultdict(list)
    prompts = [[*ids, MASK] for ids in tokens.encode_all(questions)]
    for index, prompt in enumerate(prompts):
        if len(prompt) > model.config.longest_input:
            raise UserError(
                f'the question "{questions[index][:40]}..." has {len(prompt)} tokens and this '
                f"model reads {model.config.longest_input}; ask a shorter one."
            )
        groups[len(prompt)].append(index)
    was_training = model.training
    model.eval()
    start = _read_shared_start(model, prompts)
    answers: list[Answer | None] = [None] * len(questions)
    for members in groups.values():
        for at in range(0, len(members), ROWS):
            rows = members[at : at + ROWS]
            decoded = _decode_group(model, start, [prompts[i] for i in rows], longest)
            for index, (ids, log_probabilities) in zip(rows, decoded, strict=True):
                closed = bool(ids) and ids[-1] == MASK
                answers[index] = Answer(
                    text=tokens.decode(ids), log_probabilities=log_probabilities, closed=closed
                )
            if report is not None:
                report(len(rows))
    model.train(was_training)
    return [answer for answer in answers if answer is not None]


def _read_shared_start(model: Decoder, prompts: list[list[int]]) -> Cache:
    """The tokens that every prompt starts with, read once; each keeps at least one of its own."""
    shared, low = 0, min(prompts, default=[])
    if len(prompts) > 1:
        high = max(prompts)
        while shared < min(len(low), len(high)) - 1 and low[shared] == high[shared]:
            shared += 1
    cache = model.new_cache(shared)
    if shared:
        device = next(model.parameters()).device
        nothing = torch.tensor([], dtype=torch.long, device=device)  # only the cache is wanted
        model.hidden(torch.tensor([low[:shared]], device=device), cache=cache, select=nothing)
    return cache


def _decode_group(
    model: Decoder, start: Cache, prompts: list[list[int]], longest: int
) -> list[tuple[list[int], tuple[float, ...]]]:
    """Ids (the closing MASK included) and log-probabilities for prompts of equal length."""
    device = next(model.parameters()).device
    ids = torch.tensor(prompts, device=device)
    # the last token said is not read again, so an answer may end one beyond the input
    room = min(longest, model.config.longest_input - ids.shape[1] + 1)
    cache = start.spread(len(prompts), ids.shape[1] + room)
    ids = ids[:, start.length :]
    said = torch.zeros(len(prompts), room, dtype=torch.long, device=device)
    scores = torch.zeros(len(prompts), room, device=device)
    alive = torch.arange(len(prompts), device=device)
    for step in range(room):
        last = torch.arange(1, len(alive) + 1, device=device) * ids.shape[1] - 1
        logits = model(ids, cache=cache, select=last)
        best = logits.float().log_softmax(dim=-1).max(dim=-1)
        said[alive, step], scores[alive, step] = best.indices, best.values
        going_on = (best.indices != MASK).nonzero().flatten()
        if len(going_on) == 0:
            break
        if len(going_on) < len(alive):
            alive = alive[going_on]
            cache.keep(going_on)
        ids = best.indices[going_on, None]
    result = []
    for row, row_scores in zip(said.tolist(), scores.tolist(), strict=True):
        length = row.index(MASK) + 1 if MASK in row else room
        result.append((row[:length], tuple(row_scores[:length])))
    return result
