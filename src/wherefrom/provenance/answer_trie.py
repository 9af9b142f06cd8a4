"""The exact distribution over the known answers: a trie of their tokens, walked with the model.

Answers that start alike share the work, and the prompt is read once for all of them. A prefix
whose probability is below `floor` is not followed; what is lost by that is added up, so that
every number taken from the distribution has a bound on how far it is off.

Shapes: n questions, k answers, p pairs of a question and a prefix that is still followed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from wherefrom.corpus.tokens import MASK, Tokens
from wherefrom.model.cache import Cache, LayerCache
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.answers import Floats
from wherefrom.provenance.likelihood import encode_answers

FLOOR = 3e-4
PAIRS = 512  # pairs whose caches are held at once on each level


@dataclass(frozen=True)
class Level:
    """The nodes one token deeper, children of one parent side by side.

    `first` and `count` (one entry an inner node above) say which are whose; `answer` is the
    answer that a node closes, or -1; `inner` numbers the others.
    """

    first: Tensor
    count: Tensor
    token: Tensor
    answer: Tensor
    inner: Tensor

    def to(self, device: torch.device) -> Level:
        parts = (self.first, self.count, self.token, self.answer, self.inner)
        return Level(*(part.to(device) for part in parts))


@dataclass(frozen=True, eq=False)
class Distribution:
    """log p of each known answer (n, k), and the mass (n) of prefixes that were not followed.

    An answer that was not reached has -inf.
    """

    log_probabilities: Floats
    discarded: Floats


class AnswerTrie:
    """The distinct answers that a model can say, as a tree of tokens."""

    def __init__(self, tokens: Tokens, answers: Sequence[str]) -> None:
        distinct = list(dict.fromkeys(answer.strip() for answer in answers))
        encoded = encode_answers(tokens, distinct)
        paths = {tuple(ids): a for a, ids in zip(distinct, encoded, strict=True) if ids is not None}
        self.answers = tuple(paths.values())
        self.position = {answer: at for at, answer in enumerate(self.answers)}
        self.levels = _build_levels(list(paths))

    @torch.inference_mode()
    def distribution(
        self, model: Decoder, prompts: Sequence[list[int]], *, floor: float = FLOOR
    ) -> Distribution:
        """p(answer | prompt) for every known answer, all prompts at once."""
        device = next(model.parameters()).device
        scores = torch.full((len(prompts), len(self.answers)), -math.inf, dtype=torch.float64)
        walk = _Walk(
            model=model,
            levels=[level.to(device) for level in self.levels],
            log_floor=math.log(floor) if floor > 0 else -math.inf,
            scores=scores.to(device),
            discarded=torch.zeros(len(prompts), dtype=torch.float64, device=device),
        )
        groups: dict[int, list[int]] = defaultdict(list)
        for at, prompt in enumerate(prompts):
            groups[len(prompt)].append(at)
        for length, members in groups.items() if self.answers else ():
            for start in range(0, len(members), PAIRS):
                rows = torch.tensor(members[start : start + PAIRS], device=device)
                ids = torch.tensor([prompts[at] for at in rows], device=device)
                cache = model.new_cache(length + len(self.levels) - 1)
                last = torch.arange(1, len(rows) + 1, device=device) * length - 1
                logits = model(ids, cache=cache, select=last)
                prefix = torch.zeros(len(rows), dtype=torch.float64, device=device)
                walk.go_on(0, cache, logits, rows, torch.zeros_like(rows), prefix)
        return Distribution(walk.scores.cpu().numpy(), walk.discarded.cpu().numpy())


@dataclass(frozen=True)
class _Walk:
    """One pass over the trie, filling in `scores` and `discarded`."""

    model: Decoder
    levels: Sequence[Level]
    log_floor: float
    scores: Tensor
    discarded: Tensor

    def go_on(
        self, depth: int, cache: Cache, logits: Tensor, rows: Tensor, nodes: Tensor, prefix: Tensor
    ) -> None:
        """From p pairs (row, inner node) with their logits (p, vocabulary) to all their children.

        Depth first by chunks: what is held at once is one chunk of caches a level.
        """
        level = self.levels[depth]
        counts = level.count[nodes]
        pair = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)
        before = counts.cumsum(0) - counts
        child = level.first[nodes][pair] + torch.arange(len(pair), device=rows.device)
        child -= before[pair]
        log_normal = logits.float().logsumexp(dim=-1)
        chosen = logits[pair, level.token[child]].float() - log_normal[pair]
        total = prefix[pair] + chosen.double()

        closed = level.answer[child] >= 0
        self.scores[rows[pair[closed]], level.answer[child[closed]]] = total[closed]
        room = cache.length < self.model.config.longest_input
        follow = ~closed & (total >= self.log_floor) & room
        lost = ~closed & ~follow
        self.discarded.index_add_(0, rows[pair[lost]], total[lost].exp())
        for at in follow.nonzero().flatten().split(PAIRS):
            if len(at):
                fork = _fork(cache, pair[at])
                tokens = level.token[child[at]][:, None]
                logits = self.model(tokens, cache=fork)[:, 0]
                deeper = level.inner[child[at]]
                self.go_on(depth + 1, fork, logits, rows[pair[at]], deeper, total[at])


def entropy_slack(distribution: Distribution, outcomes: Floats) -> Floats:
    """How far above `entropy_of(outcomes)` the entropy without pruning may lie, for each question.

    The last outcome, "anything else", holds the mass o of answers that are not known and the
    mass d of those that were pruned. Taking d out of it adds at most (o + d) h(d / (o + d)), with
    h the entropy of a coin, and telling k answers apart within d adds at most d log k.
    """
    rest = np.maximum(outcomes[:, -1], 0.0)
    pruned = np.minimum(distribution.discarded, rest)
    split = entropy_of(np.stack((pruned, rest - pruned), axis=1)) - entropy_of(rest[:, None])
    many = max(2, distribution.log_probabilities.shape[1])
    # d is known as "at most": the worst coin is the fairest that this allows
    worst = np.where(pruned * 2 >= rest, rest * math.log(2), split)
    return np.asarray(worst + pruned * math.log(many))


def entropy_of(masses: Floats) -> Floats:
    """-sum p log p over the last axis, in nats; nothing is rescaled."""
    positive = np.where(masses > 0, masses, 1.0)
    return np.asarray(-(positive * np.log(positive)).sum(axis=-1))


def _fork(cache: Cache, rows: Tensor) -> Cache:
    """A cache of its own for each of these rows; a row may come several times."""
    fork = Cache(0, 0)
    fork.length = cache.length
    fork.layers = [
        LayerCache(layer.capacity, layer.length, dict(layer.stores)) for layer in cache.layers
    ]
    fork.keep(rows)
    return fork


def _build_levels(paths: Sequence[tuple[int, ...]]) -> tuple[Level, ...]:
    levels = []
    parents: list[tuple[int, ...]] = [()]
    answer_of = {path: at for at, path in enumerate(paths)}
    depth = 0
    while parents and paths:
        depth += 1
        children: dict[tuple[int, ...], dict[int, None]] = {parent: {} for parent in parents}
        for path in paths:
            if len(path) >= depth:
                children[path[: depth - 1]][path[depth - 1]] = None
        nodes = [(*parent, token) for parent in parents for token in children[parent]]
        counts = torch.tensor([len(children[parent]) for parent in parents])
        closes = torch.tensor([answer_of[node] if node[-1] == MASK else -1 for node in nodes])
        levels.append(
            Level(
                first=counts.cumsum(0) - counts,
                count=counts,
                token=torch.tensor([node[-1] for node in nodes]),
                answer=closes,
                inner=(closes < 0).long().cumsum(0) - 1,
            )
        )
        parents = [node for node in nodes if node[-1] != MASK]
    return tuple(levels)
