"""The exact distribution over the known answers, and numbers taken from it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.model.cache import Cache, LayerCache
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.gazetteer import read_gazetteer
from wherefrom.provenance.judging.metrics import Floats
from wherefrom.provenance.signals.likelihood import encode_answers

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

    def __init__(self, tokens: Tokenizer, answers: Sequence[str]) -> None:
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


MOSTLY = 0.5  # where fewer of the known answers are places, countries mean nothing


@dataclass
class Countries:
    """The country of each known answer as a number; a place in no gazetteer is its own.

    `names` are the countries if they were looked up before, None where there is none.
    """

    answers: Sequence[str]
    names: Sequence[str | None] | None = None
    _numbers: dict[str, int] = field(default_factory=dict)
    _others: dict[str, int] = field(default_factory=dict)

    @cached_property
    def located(self) -> list[str | None]:
        """The country of each answer; the gazetteer is read when first asked."""
        if self.names is not None:
            return list(self.names)
        places = [read_gazetteer().locate(answer) for answer in self.answers]
        return [place.country if place else None for place in places]

    @cached_property
    def found(self) -> float:
        """The share of the answers that are places."""
        return sum(name is not None for name in self.located) / max(1, len(self.located))

    @cached_property
    def matrix(self) -> Floats:
        """(k, countries) of ones and zeros."""
        pairs = zip(self.located, self.answers, strict=True)
        texts = [f"in {name}" if name is not None else f"at {answer}" for name, answer in pairs]
        columns = [self._numbers.setdefault(text, len(self._numbers)) for text in texts]
        matrix = np.zeros((len(self.answers), len(self._numbers)))
        matrix[np.arange(len(self.answers)), columns] = 1.0
        return matrix

    def of(self, answer: str) -> int:
        """The number of the country of an answer that is not known; -1 for one of its own."""
        if answer not in self._others:
            place = read_gazetteer().locate(answer)
            self._others[answer] = self._numbers.get(f"in {place.country}", -1) if place else -1
        return self._others[answer]


def are_places(answers: Sequence[str]) -> bool:
    """Whether the gazetteer knows most of these answers."""
    return Countries(answers).found >= MOSTLY


def outcomes(distribution: Distribution, position: NDArray[np.intp], scores: Floats) -> Floats:
    """(n, k + 2): known answers, this answer if it is none of them, anything else."""
    known = np.exp(distribution.log_probabilities)
    this = np.where(position < 0, np.exp(scores), 0.0)
    rest = np.maximum(0.0, 1.0 - known.sum(axis=1) - this)
    return np.concatenate((known, this[:, None], rest[:, None]), axis=1)


def others(distribution: Distribution, position: NDArray[np.intp]) -> Floats:
    """log p of the known answers, -inf for the one that is asked about."""
    scores = distribution.log_probabilities.copy()
    rows = np.flatnonzero(position >= 0)
    scores[rows, position[rows]] = -np.inf
    return scores


def margin_of(others: Floats, scores: Floats, floor: float) -> Floats:
    """log p of this answer over that of the likeliest other, which counts as no less than floor."""
    best = others.max(axis=1, initial=-np.inf)
    return np.asarray(scores - np.maximum(best, np.log(floor)))


def rank_of(others: Floats, scores: Floats) -> Floats:
    return np.asarray(1.0 + (others > scores[:, None]).sum(axis=1))


def country_entropy_of(
    masses: Floats, countries: Countries, answers: Sequence[str], position: NDArray[np.intp]
) -> Floats:
    """Entropy by country, one product for all; NaN for all where the answers are not places."""
    if countries.found < MOSTLY:
        return np.full(len(masses), np.nan)
    by_country = masses[:, :-2] @ countries.matrix
    this = masses[:, -2].copy()
    new: list[int] = np.flatnonzero(position < 0).tolist()
    places = {answer: countries.of(answer) for answer in {answers[at] for at in new}}
    for at in new:
        country = places[answers[at]]
        if country >= 0:
            by_country[at, country] += this[at]
            this[at] = 0.0
    return entropy_of(np.concatenate((by_country, this[:, None], masses[:, -1:]), axis=1))
