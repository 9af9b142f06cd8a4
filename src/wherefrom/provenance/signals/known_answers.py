"""The model's exact distribution over the known answers, and its entropy by answer and by country.

The known answers form a trie of tokens, which is walked with the model's cache: a prefix that many
answers share is read once, and one that is too unlikely is not followed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import Cache, LayerCache
from wherefrom.provenance.gazetteer import locate
from wherefrom.provenance.metrics import Floats
from wherefrom.provenance.signals.likelihood import by_length, encode_answers

FLOOR = 3e-4  # prefixes less likely than this are not followed
PAIRS = 512  # pairs of question and prefix whose caches are held at once on each level
PROMPTS = 32  # questions that are followed together; more are not quicker, and take memory
MOSTLY = 0.5  # share of the known answers that must be places for countries to mean anything


class AnswerTrie:
    """The distinct answers that a model can say, as a tree of tokens; node 0 is the root."""

    def __init__(self, tokens: Tokenizer, answers: Sequence[str]) -> None:
        distinct = list(dict.fromkeys(answer.strip() for answer in answers))
        encoded = zip(distinct, encode_answers(tokens, distinct), strict=True)
        paths = {tuple(ids): answer for answer, ids in encoded if ids}
        self.answers = tuple(paths.values())
        self.position = {answer: at for at, answer in enumerate(self.answers)}
        self.depth = max(map(len, paths), default=0)
        nodes: dict[tuple[int, ...], int] = {(): 0}
        children: list[list[int]] = [[]]
        for path in paths:
            for end in range(1, len(path) + 1):
                if path[:end] not in nodes:
                    nodes[path[:end]] = len(children)
                    children[nodes[path[: end - 1]]].append(len(children))
                    children.append([])
        self._children = [torch.tensor(each, dtype=torch.long) for each in children]
        self._token = torch.tensor([path[-1] if path else 0 for path in nodes])
        self._answer = torch.full((len(nodes),), -1)  # that a node closes
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
            """From p pairs (row, node) with logits (p, vocabulary) to the children of each.

            Depth first by chunks: what is held at once is one chunk of caches per level.
            """
            below = [self._children[node] for node in nodes.tolist()]
            child = torch.cat(below)
            counts = torch.tensor([len(each) for each in below])
            pair = torch.repeat_interleave(torch.arange(len(rows)), counts)
            logs = (logits.float() - logits.float().logsumexp(dim=-1, keepdim=True)).cpu()
            total = prefix[pair] + logs[pair, self._token[child]].double()
            answer = self._answer[child]
            closed = answer >= 0
            scores[rows[pair[closed]], answer[closed]] = total[closed]
            if cache.length >= model.config.longest_input:
                return
            for at in (~closed & (total >= log_floor)).nonzero().flatten().split(PAIRS):
                if len(at):
                    fork = Cache(0, 0)
                    fork.length = cache.length
                    fork.layers = [
                        LayerCache(layer.capacity, layer.length, dict(layer.stores))
                        for layer in cache.layers
                    ]
                    fork.keep(pair[at].to(device))
                    deeper = model(self._token[child[at], None].to(device), cache=fork)[:, 0]
                    follow(fork, deeper, rows[pair[at]], child[at], total[at])

        for members, ids in by_length(prompts) if self.answers else ():
            for rows, some in zip(
                torch.tensor(members).split(PROMPTS), ids.split(PROMPTS), strict=True
            ):
                cache = model.new_cache(some.shape[1] + self.depth - 1)
                last = torch.arange(1, len(rows) + 1) * some.shape[1] - 1
                logits = model(some.to(device), cache=cache, select=last.to(device))
                prefix = torch.zeros(len(rows), dtype=torch.float64)
                follow(cache, logits, rows, torch.zeros_like(rows), prefix)
        return np.asarray(scores.numpy())


def entropy_of(masses: Floats) -> Floats:
    """-sum p log p over the last axis, in nats; nothing is rescaled."""
    from scipy.special import entr  # asking needs no scipy

    return np.asarray(entr(masses).sum(axis=-1))


def find_country(answer: str) -> str | None:
    """The country of an answer, None for what is in no gazetteer."""
    place = locate(answer)
    return place.country if place else None


def are_places(answers: Sequence[str]) -> bool:
    """Whether most of the answers are places."""
    places = sum(locate(answer) is not None for answer in answers)
    return places >= MOSTLY * max(1, len(answers))


def add_up_countries(masses: Floats, known: Sequence[str], said: Sequence[str]) -> Floats:
    """Of outcomes (n, k + 2), the k known answers added up by country.

    An answer without a country counts alone; what was said joins its country where there is one.
    """
    countries = [find_country(answer) or f"at {at}" for at, answer in enumerate(known)]
    column = {name: at for at, name in enumerate(dict.fromkeys(countries))}
    summed = np.zeros((len(masses), len(column) + 2))
    np.add.at(summed.T, [column[name] for name in countries], masses[:, :-2].T)
    summed[:, -2:] = masses[:, -2:]
    for row, answer in enumerate(said):  # of a known answer the last but one is 0
        at = column.get(find_country(answer) or "", -2)
        mass, summed[row, -2] = summed[row, -2], 0.0
        summed[row, at] += mass
    return summed
