"""How likely a model finds given tokens, and each of the known answers.

Given tokens are read in batches of rows padded on the right: every variant is causal, so padding
cannot reach a position before it. The known answers form a trie that is walked with the model's
cache: a prefix that many of them share is read once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from wherefrom.corpus.tokenizer import MASK, PAD, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import Cache
from wherefrom.provenance.gazetteer import locate
from wherefrom.provenance.metrics import Floats
from wherefrom.recall.decode import group_by_length

IMPOSSIBLE = -1e3  # log-probability of an answer that the model cannot write or has no room for
CHUNK = 2_048  # most tokens that go through the model together, which bounds memory
SCORED = 512  # most of them whose logits over the whole vocabulary are held
FLOOR = 3e-4  # prefixes of known answers less likely than this are not followed
PAIRS = 512  # pairs of question and prefix whose caches are held at once on each level
PROMPTS = 32  # questions that are followed together; more are not quicker and take memory
MOSTLY = 0.5  # share of the known answers that must be places for countries to mean anything

Ids = list[int]


class TokenScores(NamedTuple):
    """For each token of a row: its log p, and log p of the likeliest other token."""

    own: Floats
    other: Floats


def encode_answers(tokens: Tokenizer, answers: Sequence[str]) -> list[Ids]:
    """Answers as the model learned them, closed by MASK; [] for one that it cannot write."""
    return [
        [*tokens.encode(answer), MASK] if can_encode(tokens, answer) else [] for answer in answers
    ]


def encode_names(tokens: Tokenizer, subjects: Sequence[str]) -> list[Ids]:
    """`Name.` as a document opens with it; [] for one that the model cannot write."""
    return [
        tokens.encode(f"{subject}.") if subject and can_encode(tokens, f"{subject}.") else []
        for subject in subjects
    ]


def encode_context(tokens: Tokenizer, words: str) -> Ids:
    """`words MASK MASK`, which behind a name asks for the fact that such words lead to."""
    space = " " if tokens.kind == "chars" else ""  # BPE carries it with the next word
    text = f"{space}{words}{space}"
    ids = tokens.encode(text if words and can_encode(tokens, text) else space)
    return [*ids, MASK, MASK]


def can_encode(tokens: Tokenizer, text: str) -> bool:
    """Whether the vocabulary has all letters of a text; that of BPE always has."""
    try:
        tokens.kind == "bpe" or tokens.encode(text)
    except UserError:
        return False
    return True


def score_answers(model: Decoder, prompts: Sequence[Ids], answers: Sequence[Ids]) -> Floats:
    """The log-probability of each answer after its prompt, every token of it given in turn."""
    scores = score_tokens(model, prompts, answers)
    sums = [IMPOSSIBLE if row is None else float(row.own.sum()) for row in scores]
    return np.maximum(IMPOSSIBLE, np.array(sums))


@torch.inference_mode()
def score_tokens(
    model: Decoder, before: Sequence[Ids], scored: Sequence[Ids], *, compared: bool = False
) -> list[TokenScores | None]:
    """For each row the tokens `scored` behind `before`, each given all tokens before it.

    None where either is empty or the model has no room for them. Unless `compared`, `other` is 0.
    """
    equal_rows = defaultdict(list)  # each of them is read once
    for i, row in enumerate(zip(map(tuple, before), map(tuple, scored), strict=True)):
        if all(row) and sum(map(len, row)) - 1 <= model.config.longest_input:
            equal_rows[row].append(i)
    rows = sorted(equal_rows, key=lambda row: len(row[0]) + len(row[1]))
    result: list[TokenScores | None] = [None] * len(before)
    device = next(model.parameters()).device
    while rows:
        lengths = [len(head) + len(tail) for head, tail in rows[:CHUNK]]
        totals = accumulate(len(tail) for _, tail in rows[:CHUNK])
        # the k-th row pads all k rows to its length
        fitting = sum(
            length * k <= CHUNK and total <= SCORED
            for k, (length, total) in enumerate(zip(lengths, totals, strict=True), start=1)
        )
        chunk, rows = rows[: max(1, fitting)], rows[max(1, fitting) :]
        longest = lengths[len(chunk) - 1]
        ids = torch.full((len(chunk), longest), PAD)
        is_scored = torch.zeros((len(chunk), longest - 1), dtype=torch.bool)
        for k, (head, tail) in enumerate(chunk):
            ids[k, : lengths[k]] = torch.tensor([*head, *tail])
            is_scored[k, len(head) - 1 : lengths[k] - 1] = True
        select = is_scored.flatten().nonzero().flatten().to(device)
        logits = model(ids[:, :-1].to(device), select=select).float()
        targets = ids[:, 1:][is_scored][:, None].to(device)
        own = -F.cross_entropy(logits, targets.flatten(), reduction="none")
        other = torch.zeros_like(own)
        if compared:
            normaliser = logits.gather(1, targets).flatten() - own
            other = logits.scatter(1, targets, -math.inf).amax(dim=-1) - normaliser
        both = torch.stack((own, other)).double().cpu()
        for row, part in zip(chunk, both.split(is_scored.sum(dim=1).tolist(), dim=1), strict=True):
            for i in equal_rows[row]:
                result[i] = TokenScores(*part.numpy())
    return result


class AnswerTrie:
    """The distinct answers that a model can write, as a tree of tokens; node 0 is the root."""

    def __init__(self, tokens: Tokenizer, answers: Sequence[str]) -> None:
        distinct = list(dict.fromkeys(answer.strip() for answer in answers))
        encoded = zip(distinct, encode_answers(tokens, distinct), strict=True)
        paths = {tuple(ids): answer for answer, ids in encoded if ids}
        self.answers = tuple(paths.values())
        self.depth = max(map(len, paths), default=0)
        nodes: dict[tuple[int, ...], int] = {(): 0}
        children: list[list[int]] = [[]]
        for path in paths:
            for end in range(1, len(path) + 1):
                if path[:end] not in nodes:
                    nodes[path[:end]] = len(children)
                    children[nodes[path[: end - 1]]].append(len(children))
                    children.append([])
        self._children = [torch.tensor(below, dtype=torch.long) for below in children]
        self._token = torch.tensor([path[-1] if path else 0 for path in nodes])
        self._answer = torch.full((len(nodes),), -1)  # the answer that ends at a node
        self._answer[[nodes[path] for path in paths]] = torch.arange(len(paths))

    @torch.inference_mode()
    def log_probabilities(
        self, model: Decoder, prompts: Sequence[list[int]], *, floor: float = FLOOR
    ) -> Floats:
        """log p(answer | prompt), (prompts, answers); -inf for an answer that was not reached."""
        device = next(model.parameters()).device
        scores = torch.full((len(prompts), len(self.answers)), -math.inf, dtype=torch.float64)
        log_floor = math.log(floor) if floor > 0 else -math.inf

        def follow(
            cache: Cache, logits: Tensor, rows: Tensor, nodes: Tensor, prefix: Tensor
        ) -> None:
            """Score the children of p pairs (row, node) with logits (p, vocabulary), and go on.

            Depth first, so that one chunk of caches per level is held at once.
            """
            below = [self._children[node] for node in nodes.tolist()]
            child = torch.cat(below)
            counts = torch.tensor([len(children) for children in below])
            pair = torch.repeat_interleave(torch.arange(len(rows)), counts)
            logs = (logits.float() - logits.float().logsumexp(dim=-1, keepdim=True)).cpu()
            total = prefix[pair] + logs[pair, self._token[child]].double()
            answer = self._answer[child]
            closed = answer >= 0
            scores[rows[pair[closed]], answer[closed]] = total[closed]
            if cache.length >= model.config.longest_input:
                return
            for kept in (~closed & (total >= log_floor)).nonzero().flatten().split(PAIRS):
                if len(kept):
                    fork = cache.fork(pair[kept].to(device))
                    deeper = model(self._token[child[kept], None].to(device), cache=fork)[:, 0]
                    follow(fork, deeper, rows[pair[kept]], child[kept], total[kept])

        for members in group_by_length(prompts, PROMPTS) if self.answers else ():
            ids, rows = torch.tensor([prompts[i] for i in members]), torch.tensor(members)
            cache = model.new_cache(ids.shape[1] + self.depth - 1)
            last = torch.arange(1, len(rows) + 1) * ids.shape[1] - 1
            logits = model(ids.to(device), cache=cache, select=last.to(device))
            prefix = torch.zeros(len(rows), dtype=torch.float64)
            follow(cache, logits, rows, torch.zeros_like(rows), prefix)
        return np.asarray(scores.numpy())


def entropy_of(masses: Floats) -> Floats:
    """-sum p log p over the last axis, in nats; nothing is rescaled."""
    from scipy.special import entr  # asking needs no scipy

    return np.asarray(entr(masses).sum(axis=-1))


def are_places(answers: Sequence[str]) -> bool:
    """Whether most of the answers are places."""
    places = sum(locate(answer) is not None for answer in answers)
    return places >= MOSTLY * max(1, len(answers))


def add_up_countries(masses: Floats, known: Sequence[str], answers: Sequence[str]) -> Floats:
    """Outcomes (n, k + 2) with the k known answers added up by country.

    Column -2 is the mass of the row's own answer, if it is unknown, and -1 that of anything else.
    An answer without a country counts alone; an unknown one joins its country if that is there.
    """
    places = [locate(answer) or i for i, answer in enumerate(known)]
    column = {place: i for i, place in enumerate(dict.fromkeys(places))}
    summed = np.zeros((len(masses), len(column) + 2))
    np.add.at(summed.T, [column[place] for place in places], masses[:, :-2].T)
    summed[:, -1] = masses[:, -1]
    for row, answer in enumerate(answers):
        summed[row, column.get(locate(answer) or -1, -2)] += masses[row, -2]
    return summed
