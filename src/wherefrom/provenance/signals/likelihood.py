"""How likely a model finds tokens that are given to it, and each of the known answers.

Given tokens are read in batches. Rows of unequal length are padded on the right: every variant is
causal, so what stands behind a position cannot reach it. The known answers form a trie, which is
walked with the model's cache: a prefix that many of them share is read once.
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
from wherefrom.model.mixers import Cache, LayerCache
from wherefrom.provenance.gazetteer import locate
from wherefrom.provenance.metrics import Floats
from wherefrom.recall.decode import group_by_length

IMPOSSIBLE = -1e3  # the log-probability of what a model cannot say, or cannot hold
CHUNK = 2_048  # tokens that go through the model together, which bounds memory
SCORED = 512  # and tokens among them that are compared with the whole vocabulary
FLOOR = 3e-4  # prefixes of known answers less likely than this are not followed
PAIRS = 512  # pairs of question and prefix whose caches are held at once on each level
PROMPTS = 32  # questions that are followed together; more are not quicker, and take memory
MOSTLY = 0.5  # share of the known answers that must be places for countries to mean anything

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
    space = " " if tokens.kind == "chars" else ""  # BPE carries it with the next word
    text = f"{space}{words}{space}"
    ids = tokens.encode(text if words and can_encode(tokens, text) else space)
    return [*ids, MASK, MASK]


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

        for members in group_by_length(prompts, PROMPTS) if self.answers else ():
            ids, rows = torch.tensor([prompts[at] for at in members]), torch.tensor(members)
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


def add_up_countries(masses: Floats, known: Sequence[str], said: Sequence[str]) -> Floats:
    """Of outcomes (n, k + 2), the k known answers added up by country.

    An answer without a country counts alone; what was said joins its country where there is one.
    """
    places = [locate(answer) or at for at, answer in enumerate(known)]
    column = {place: at for at, place in enumerate(dict.fromkeys(places))}
    summed = np.zeros((len(masses), len(column) + 2))
    np.add.at(summed.T, [column[place] for place in places], masses[:, :-2].T)
    summed[:, -2:] = masses[:, -2:]
    for row, answer in enumerate(said):  # of a known answer the last but one is 0
        at = column.get(locate(answer) or -1, -2)
        mass, summed[row, -2] = summed[row, -2], 0.0
        summed[row, at] += mass
    return summed
