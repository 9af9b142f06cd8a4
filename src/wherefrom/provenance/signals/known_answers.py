"""The model's exact distribution over the known answers, and its entropy by answer and by country.

The known answers form a trie of tokens, which is walked with the model's cache: a prefix that many
answers share is read once, and one that is too unlikely is not followed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import Cache, LayerCache
from wherefrom.provenance.gazetteer import locate
from wherefrom.provenance.metrics import Floats
from wherefrom.provenance.signals.likelihood import encode_answers

FLOOR = 3e-4  # prefixes less likely than this are not followed
PAIRS = 512  # pairs of question and prefix whose caches are held at once on each level
MOSTLY = 0.5  # share of the known answers that must be places for countries to mean anything


class TrieLevel(NamedTuple):
    """The nodes of the trie that are one token deeper, children of one parent side by side.

    first, children (one entry per inner node above): which nodes are whose. token, answer (one
    entry per node): its token, and the answer that it closes or -1. inner: numbers the others.
    """

    first: Tensor
    children: Tensor
    token: Tensor
    answer: Tensor
    inner: Tensor


class AnswerTrie:
    """The distinct answers that a model can say, as a tree of tokens."""

    def __init__(self, tokens: Tokenizer, answers: Sequence[str]) -> None:
        distinct = list(dict.fromkeys(answer.strip() for answer in answers))
        encoded = encode_answers(tokens, distinct)
        paths = {tuple(ids): a for a, ids in zip(distinct, encoded, strict=True) if ids}
        self.answers = tuple(paths.values())
        self.position = {answer: at for at, answer in enumerate(self.answers)}
        self.levels = _build_levels(list(paths))

    @torch.inference_mode()
    def log_probabilities(
        self, model: Decoder, prompts: Sequence[list[int]], *, floor: float = FLOOR
    ) -> Floats:
        """log p(answer | prompt), (prompts, answers); -inf for an answer that was not reached."""
        device = next(model.parameters()).device
        scores = torch.full((len(prompts), len(self.answers)), -math.inf, dtype=torch.float64)
        scores = scores.to(device)
        levels = [TrieLevel(*(part.to(device) for part in level)) for level in self.levels]
        log_floor = math.log(floor) if floor > 0 else -math.inf

        def follow(
            depth: int, cache: Cache, logits: Tensor, rows: Tensor, nodes: Tensor, prefix: Tensor
        ) -> None:
            """From p pairs (row, inner node) with logits (p, vocabulary) to all their children.

            Depth first by chunks: what is held at once is one chunk of caches per level.
            """
            level = levels[depth]
            counts = level.children[nodes]
            pair = torch.repeat_interleave(torch.arange(len(rows), device=device), counts)
            before = counts.cumsum(0) - counts
            child = level.first[nodes][pair] + torch.arange(len(pair), device=device) - before[pair]
            token = level.token[child]
            chosen = logits[pair, token].float() - logits.float().logsumexp(dim=-1)[pair]
            total = prefix[pair] + chosen.double()
            closed = level.answer[child] >= 0
            scores[rows[pair[closed]], level.answer[child[closed]]] = total[closed]
            if cache.length >= model.config.longest_input:
                return
            for at in (~closed & (total >= log_floor)).nonzero().flatten().split(PAIRS):
                if len(at):
                    fork = _fork(cache, pair[at])
                    deeper = model(token[at][:, None], cache=fork)[:, 0]
                    inner = level.inner[child[at]]
                    follow(depth + 1, fork, deeper, rows[pair[at]], inner, total[at])

        groups: dict[int, list[int]] = defaultdict(list)
        for at, prompt in enumerate(prompts):
            groups[len(prompt)].append(at)
        for length, members in groups.items() if self.answers else ():
            for start in range(0, len(members), PAIRS):
                rows = torch.tensor(members[start : start + PAIRS], device=device)
                ids = torch.tensor([prompts[at] for at in rows], device=device)
                cache = model.new_cache(length + len(levels) - 1)
                last = torch.arange(1, len(rows) + 1, device=device) * length - 1
                logits = model(ids, cache=cache, select=last)
                prefix = torch.zeros(len(rows), dtype=torch.float64, device=device)
                follow(0, cache, logits, rows, torch.zeros_like(rows), prefix)
        return np.asarray(scores.cpu().numpy())


def _fork(cache: Cache, rows: Tensor) -> Cache:
    """A cache of its own for each of these rows; a row may come several times."""
    fork = Cache(0, 0)
    fork.length = cache.length
    fork.layers = [
        LayerCache(layer.capacity, layer.length, dict(layer.stores)) for layer in cache.layers
    ]
    fork.keep(rows)
    return fork


def _build_levels(paths: Sequence[tuple[int, ...]]) -> list[TrieLevel]:
    levels: list[TrieLevel] = []
    parents: list[tuple[int, ...]] = [()]
    answer_of = {path: at for at, path in enumerate(paths)}
    while parents and paths:
        depth = len(levels)
        children: dict[tuple[int, ...], dict[int, None]] = {parent: {} for parent in parents}
        for path in paths:
            if len(path) > depth:
                children[path[:depth]][path[depth]] = None
        nodes = [(*parent, token) for parent in parents for token in children[parent]]
        counts = torch.tensor([len(children[parent]) for parent in parents])
        closes = torch.tensor([answer_of[node] if node[-1] == MASK else -1 for node in nodes])
        token, inner = torch.tensor([node[-1] for node in nodes]), (closes < 0).long().cumsum(0) - 1
        levels.append(TrieLevel(counts.cumsum(0) - counts, counts, token, closes, inner))
        parents = [node for node in nodes if node[-1] != MASK]
    return levels


def outcomes(log_probabilities: Floats, position: NDArray[np.intp], scores: Floats) -> Floats:
    """Probabilities (n, k + 2) of the k known answers, this answer if unknown, anything else.

    position: where each row's answer is among the known ones, or -1; scores: its log p.
    """
    known = np.exp(log_probabilities)
    this = np.where(position < 0, np.exp(scores), 0.0)
    rest = np.maximum(0.0, 1.0 - known.sum(axis=1) - this)
    return np.concatenate((known, this[:, None], rest[:, None]), axis=1)


def entropy_of(masses: Floats) -> Floats:
    """-sum p log p over the last axis, in nats; nothing is rescaled."""
    from scipy.special import entr  # asking needs no scipy

    return np.asarray(entr(masses).sum(axis=-1))


def find_countries(answers: Sequence[str]) -> tuple[str | None, ...]:
    """The country of each answer, None for what is in no gazetteer."""
    places = [locate(answer) for answer in answers]
    return tuple(place.country if place else None for place in places)


def are_places(countries: Sequence[str | None]) -> bool:
    """Whether most of the answers with these countries are places."""
    return sum(name is not None for name in countries) >= MOSTLY * max(1, len(countries))


def add_up_countries(
    masses: Floats, countries: Sequence[str | None], own: Sequence[str | None]
) -> Floats:
    """The outcomes (n, k + 2) with the k known answers added up by country.

    countries: of the known answers; one without a country counts alone. own: the country of each
    row's answer where that is not a known one.
    """
    names = [f"at {at}" if name is None else f"in {name}" for at, name in enumerate(countries)]
    column = {name: at for at, name in enumerate(dict.fromkeys(names))}
    summed = np.zeros((len(masses), len(column) + 2))
    np.add.at(summed.T, [column[name] for name in names], masses[:, :-2].T)
    summed[:, -2:] = masses[:, -2:]
    for row, name in enumerate(own):
        if f"in {name}" in column:
            summed[row, column[f"in {name}"]] += summed[row, -2]
            summed[row, -2] = 0.0
    return summed
