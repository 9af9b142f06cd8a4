"""One interface to language models: encode, answer with log-probabilities, score, hidden states.

An implementation says how text becomes tokens (`encode`, `decode`, `closes`) and how tokens become
logits (`forward`, `fork`): `model/own.py` for our decoder, `model/huggingface.py` for the causal
models of transformers. Decoding and scoring are written here, once.

No architecture needs a mask for padding. Prompts of different lengths are answered together: all
are read up to the length of the shortest, and then each step reads the next token of every row,
which is one of its prompt or of its answer. What is scored is padded on the right. What all prompts
start with is read once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Ids = list[int]
Floats = NDArray[np.float64]
ASKED = "{question}"  # in a prompt, where the question stands
LONGEST_ANSWER = 32  # tokens
STATE_LAYERS = 8  # layers of which hidden states are kept, at most
SCORED_TOKENS = 2_048  # tokens that go through a model together when they are scored,
SCORED_LOGITS = 2**24  # and logits over the whole vocabulary that are held
LEAST_SHARED = 8  # tokens that prompts must share for them to be read once
MAX_LENGTH_GAP = 8  # tokens; behind a longer gap, prompts are answered in a group of their own
FLOOR = float(np.log(3e-4))  # known answers are not followed where they are less likely than this


@dataclass(eq=False)
class Reply:
    """What a model said to one prompt: a text, and its tokens with the closing one, if any.

    log_probabilities, other: of the tokens, and of the likeliest other token in place of each.
    entropy: of the first token, in nats. known: log-probability of each known answer, -inf where
    it is negligible. samples: texts that were drawn. states: (places, layers, width), at the places
    asked for, at the prompt's end and at the answer's.
    """

    known: Floats
    text: str = ""
    ids: Ids = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)
    entropy: float = 0.0
    samples: list[str] = field(default_factory=list)
    states: NDArray[np.float16] = field(default_factory=lambda: np.empty(0, np.float16))

    @property
    def log_probability(self) -> float:
        return sum(self.log_probabilities)

    @property
    def margin(self) -> float:
        """The least lead in log p of a token over the likeliest other one."""
        pairs = zip(self.log_probabilities, self.other, strict=True)
        return min((own - other for own, other in pairs), default=float("inf"))


class TokenScores(NamedTuple):
    """For each token of a continuation: its log p, and log p of the likeliest other token."""

    own: Floats
    other: Floats


class LanguageModel(ABC):
    """A model that continues a text.

    name: where it is from. sha256: which weights these are. longest: tokens that it reads. layers:
    how many it has. vocabulary: its size. rows, nodes: prompts, and beginnings of answers, that go
    through it together. mask: the text behind a question that makes the model answer it, where it
    has one. unknown: the token for letters that it does not know.
    """

    name: str
    sha256: str
    longest: int
    layers: int
    vocabulary: int
    rows: int
    nodes: int
    device: torch.device
    mask: str | None = None
    unknown: int | None = None

    # ---- what an implementation gives

    @abstractmethod
    def encode(self, text: str, *, opening: bool = True) -> Ids:
        """The tokens of a text, behind the token that opens every text where the model has one."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens."""

    @abstractmethod
    def closes(self, token: int) -> bool:
        """Whether an answer ends with this token."""

    @abstractmethod
    def forward(
        self, ids: Tensor, past: Any, keep: int, states: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None, Any]:
        """Logits (b, keep, V) of the last tokens, states (layers, b, t, width), and the past.

        ids: (b, t), behind what the `past` holds, which may be changed. None: nothing.
        """

    def logits_at(self, ids: Tensor, past: Any, positions: Tensor) -> Tensor:
        """Logits (n, V) at flat indices into `ids` (b, t); a past that is given is extended."""
        length = ids.shape[1]
        rows, places = positions // length, positions % length
        keep = length - int(places.min()) if len(places) else 1
        logits, _, _ = self.forward(ids, past, keep)
        return logits[rows, places - (length - keep)]

    def logits(self, ids: Tensor) -> Tensor:
        """Logits (b, t, V) of all tokens, through which gradients flow."""
        return self.forward(ids, None, ids.shape[1])[0]

    def linear_layers(self) -> dict[str, nn.Module]:
        """The layers whose gradients a trace takes, by name; none where there are no weights."""
        return {}

    @abstractmethod
    def fork(self, past: Any, rows: Sequence[int]) -> Any:
        """A copy of a past that holds these rows; a row may come several times."""

    @abstractmethod
    def prompt(self, text: str) -> Ids:
        """The tokens of a prompt."""

    @abstractmethod
    def continuation(self, prompt: str, answer: str) -> Ids:
        """The tokens of an answer behind a prompt, with the one that closes it."""

    @abstractmethod
    def read_answer(self, ids: Sequence[int]) -> str:
        """The text of an answer, without what closes it."""

    # ---- what follows from it

    @property
    def state_layers(self) -> list[int]:
        """The layers whose hidden states are kept: evenly spread, the last one among them."""
        return sorted({round(x) for x in np.linspace(1, self.layers, STATE_LAYERS + 1)[1:]})

    @torch.inference_mode()
    def answer(
        self,
        prompts: Sequence[Ids],
        *,
        longest: int = LONGEST_ANSWER,
        places: Sequence[Sequence[int]] = (),
        known: Sequence[Ids] = (),
        samples: int = 0,
    ) -> list[Reply]:
        """The greedy answer to each prompt, of at most `longest` tokens.

        Also hidden states at `places` of each prompt, log p of the `known` answers, and so many
        `samples`, where they are wanted.
        """
        tree = AnswerTree(self, prompts, longest, known=known, places=places, samples=samples)
        first_place = min((min(each, default=0) for each in places), default=None)
        for rows, past, ids in self._batches(prompts, first_place):
            tree.answer_rows(rows, past, ids)
        return tree.replies

    @torch.inference_mode()
    def score_known(
        self, prompts: Sequence[Ids], known: Sequence[Ids], *, floor: float = FLOOR
    ) -> Floats:
        """log p of each known answer (prompts, known); -inf where it is not followed.

        floor: log-probability below which the beginning of an answer is not followed.
        """
        if not known:
            return np.empty((len(prompts), 0))
        longest = max(map(len, known))
        tree = AnswerTree(self, prompts, longest, known=known, floor=floor, is_greedy=False)
        for rows, past, ids in self._batches(prompts, None):
            tree.answer_rows(rows, past, ids)
        return np.stack([reply.known for reply in tree.replies])

    def _batches(
        self, prompts: Sequence[Ids], most: int | None
    ) -> Iterator[tuple[list[int], Any, Tensor]]:
        """Rows of similar length, the past that all prompts share, and what is read of the rows.

        That is the rest of each prompt, up to the length of the shortest. most: shared tokens.
        """
        past, shared = self._read_shared(prompts, most)
        for rows in group_by_length(prompts, self.rows):
            shortest = min(len(prompts[row]) for row in rows)
            ids = torch.tensor([prompts[row][shared:shortest] for row in rows], device=self.device)
            yield rows, self._repeat(past, len(rows)), ids

    def _repeat(self, past: Any, count: int) -> Any:
        """A past whose one row comes so often."""
        return None if past is None else self.fork(past, [0] * count)

    def _read_shared(self, prompts: Sequence[Ids], most: int | None) -> tuple[Any, int]:
        """The past of the tokens that all prompts start with, at most `most`; and their number."""
        if len(prompts) < 2:
            return None, 0
        low, high = min(prompts), max(prompts)
        least = min(len(prompt) for prompt in prompts) - 1
        least = least if most is None else min(least, most)
        shared = next((i for i in range(least) if low[i] != high[i]), least)
        if shared < LEAST_SHARED:
            return None, 0
        return self.forward(torch.tensor([low[:shared]], device=self.device), None, 1)[2], shared

    @torch.inference_mode()
    def score(
        self, prompts: Sequence[Ids], continuations: Sequence[Ids]
    ) -> list[TokenScores | None]:
        """The scores of each continuation's tokens, each given all tokens before it.

        None where a prompt or a continuation is empty, or there is no room for both.
        """
        equal_rows: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = defaultdict(list)
        pairs = zip(map(tuple, prompts), map(tuple, continuations), strict=True)
        for i, (before, after) in enumerate(pairs):
            if before and after and len(before) + len(after) - 1 <= self.longest:
                equal_rows[before, after].append(i)  # each of them is read once
        rows = sorted(equal_rows, key=lambda row: len(row[0]) + len(row[1]))
        past, shared = self._read_shared([list(before) for before, _ in rows], None)
        scores: list[TokenScores | None] = [None] * len(prompts)
        while rows:
            chunk = rows[: self._fitting(rows, shared)]
            rows = rows[len(chunk) :]
            start = self._repeat(past, len(chunk))
            for row, found in zip(chunk, self._score_chunk(chunk, start, shared), strict=True):
                for i in equal_rows[row]:
                    scores[i] = found
        return scores

    def _fitting(self, rows: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], shared: int) -> int:
        """How many of the first rows go through the model together; the k-th pads all before it."""
        shortest, most = len(rows[0][0]), SCORED_LOGITS // self.vocabulary
        for count, (before, after) in enumerate(rows, start=1):
            shortest = min(shortest, len(before))
            length = len(before) + len(after) - 1
            tokens, logits = count * (length - shared), count * (length - shortest + 1)
            if count > 1 and (tokens > SCORED_TOKENS or logits > most):
                return count - 1
        return len(rows)

    def _score_chunk(
        self,
        rows: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
        past: Any,
        shared: int,
    ) -> Iterator[TokenScores]:
        """The scores of rows (prompt, continuation) whose first `shared` tokens the past holds."""
        length = max(len(before) + len(after) for before, after in rows) - 1 - shared
        # padding stands behind the tokens that count, and so does not change them
        padded = np.zeros((len(rows), length), dtype=np.int64)
        positions: list[int] = []
        for i, (before, after) in enumerate(rows):
            ids = (*before, *after)[shared:-1]
            padded[i, : len(ids)] = ids
            first = i * length + len(before) - 1 - shared
            positions += range(first, first + len(after))
        logits = self.logits_at(
            torch.from_numpy(padded).to(self.device),
            past,
            torch.tensor(positions, device=self.device),
        )
        targets = torch.tensor([token for _, after in rows for token in after], device=self.device)
        log_p = logits.float().log_softmax(-1)
        own = log_p.gather(-1, targets[:, None])[:, 0].double().cpu().numpy()
        other = log_p.scatter_(-1, targets[:, None], -torch.inf).amax(-1).double().cpu().numpy()
        start = 0
        for _, after in rows:
            end = start + len(after)
            yield TokenScores(own[start:end], other[start:end])
            start = end


def group_by_length(prompts: Sequence[Ids], most: int) -> Iterator[list[int]]:
    """Indices of prompts of similar length, the shortest first; at most `most` at a time."""
    group: list[int] = []
    for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
        longest = len(prompts[group[-1]]) + MAX_LENGTH_GAP if group else 0
        if group and (len(group) == most or len(prompts[i]) > longest):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


class AnswerNode(NamedTuple):
    """The beginning of an answer, which is that of the greedy answer, of samples or of known ones.

    It is empty as long as the prompt is read. row: the prompt. samples: how many begin so. known:
    the node among the known answers, or None. log_probability: of the beginning.
    """

    row: int
    ids: tuple[int, ...]
    greedy: bool
    samples: int
    known: int | None
    log_probability: float


class KnownAnswers:
    """Known answers as a tree of tokens; node 0 is the root.

    tokens, children: of each node, the tokens that go on from it and the nodes that they lead to.
    ends: by node, the answers that end there.
    """

    def __init__(self, answers: Sequence[Ids]) -> None:
        below: list[dict[int, int]] = [{}]
        self.ends: dict[int, list[int]] = defaultdict(list)
        for answer, ids in enumerate(answers):
            node = 0
            for token in ids:
                if token not in below[node]:
                    below[node][token] = len(below)
                    below.append({})
                node = below[node][token]
            self.ends[node].append(answer)
        self.tokens = [np.array(list(each), dtype=np.intp) for each in below]
        self.children = [list(each.values()) for each in below]


class AnswerTree:
    """The beginnings of answers to some prompts: each goes through the model once."""

    def __init__(
        self,
        model: LanguageModel,
        prompts: Sequence[Ids],
        longest: int,
        *,
        known: Sequence[Ids],
        floor: float = FLOOR,
        places: Sequence[Sequence[int]] = (),
        samples: int = 0,
        is_greedy: bool = True,
    ) -> None:
        self.model, self.prompts, self.longest = model, prompts, longest
        self.places, self.samples, self.is_greedy, self.floor = places, samples, is_greedy, floor
        self.layers = model.state_layers if places else []
        self.known = KnownAnswers(known) if known else None
        self.replies = [Reply(np.full(len(known), -np.inf)) for _ in prompts]

    def answer_rows(self, rows: Sequence[int], past: Any, ids: Tensor) -> None:
        """Answer prompts, of whose first tokens the `past` holds some and `ids` are the others."""
        read = min(len(self.prompts[row]) for row in rows)  # tokens that the model has read
        known = None if self.known is None else 0
        nodes = [AnswerNode(row, (), self.is_greedy, self.samples, known, 0.0) for row in rows]
        log_p, states, past = self._forward(ids, past, nodes, read)
        self._keep_states(nodes, states, read)
        self._keep_entropies(log_p, nodes, read)
        waiting = [(past, read, len(rows), *self._grow(log_p, nodes, read))]
        while waiting:
            past, read, count, parents, nodes = waiting.pop()
            if not nodes:
                continue
            most = self.model.nodes  # at a time, for memory's sake
            is_past_needed_again = len(nodes) > most
            if is_past_needed_again:
                waiting.append((past, read, count, parents[most:], nodes[most:]))
                parents, nodes = parents[:most], nodes[:most]
            if is_past_needed_again or parents != list(range(count)):
                past = self.model.fork(past, parents)
            tokens = [node.ids[-1] if node.ids else self.prompts[node.row][read] for node in nodes]
            ids, read = torch.tensor(tokens, device=self.model.device)[:, None], read + 1
            log_p, states, past = self._forward(ids, past, nodes, read)
            self._keep_states(nodes, states, read)
            self._keep_entropies(log_p, nodes, read)
            waiting.append((past, read, len(nodes), *self._grow(log_p, nodes, read)))

    def _keep_entropies(self, log_p: Tensor, nodes: Sequence[AnswerNode], read: int) -> None:
        """Keep the entropy of the first token of each answer; log_p as in `_grow`."""
        answering = [node for node in nodes if not self._is_reading(node, read)]
        first = [i for i, node in enumerate(answering) if not node.ids]
        entropies = torch.special.entr(log_p[first].exp()).sum(-1)
        for i, entropy in zip(first, entropies.tolist(), strict=True):
            self.replies[answering[i].row].entropy = entropy

    def _keep_states(self, nodes: Sequence[AnswerNode], states: Tensor | None, read: int) -> None:
        """Keep the hidden states at the places that the model has just read.

        states: of the last tokens of each node. read: tokens that the model has read.
        """
        if states is None:
            return
        new = states.half().cpu().numpy()  # (layers, nodes, tokens, width)
        first = read - new.shape[2]
        for i, node in enumerate(nodes):
            if not node.greedy:
                continue
            reply, places = self.replies[node.row], self.places[node.row]
            if not reply.states.size:
                shape = len(places) + 2, new.shape[0], new.shape[3]
                reply.states = np.zeros(shape, np.float16)
            for k, place in enumerate([*places, len(self.prompts[node.row]) - 1]):
                if first <= place < read:
                    reply.states[k] = new[:, i, place - first]
            reply.states[-1] = new[:, i, -1]

    def _is_reading(self, node: AnswerNode, read: int) -> bool:
        """Whether the prompt has more tokens than the model has read."""
        return read < len(self.prompts[node.row])

    def _forward(
        self, ids: Tensor, past: Any, nodes: Sequence[AnswerNode], read: int
    ) -> tuple[Tensor, Tensor | None, Any]:
        """log p of what follows the last token (n, V), the hidden states, and the past.

        n: the nodes whose prompt is read. read: tokens that the model will have read.
        """
        answering = [i for i, node in enumerate(nodes) if not self._is_reading(node, read)]
        if past is None or self.layers:
            logits, states, past = self.model.forward(ids, past, 1, self.layers)
            return logits[answering, 0].float().log_softmax(-1), states, past
        ends = torch.tensor(answering, dtype=torch.long, device=self.model.device) + 1
        logits = self.model.logits_at(ids, past, ends * ids.shape[1] - 1)
        return logits.float().log_softmax(-1), None, past

    def _grow(
        self, log_p: Tensor, nodes: Sequence[AnswerNode], read: int
    ) -> tuple[list[int], list[AnswerNode]]:
        """Longer beginnings, and which node each goes on from; whole answers go into replies.

        log_p: of the nodes whose prompt is read; the others go on as they are.
        """
        top = log_p.max(-1)  # of equals the first
        best_ids, best_values = top.indices.tolist(), top.values.tolist()
        second_values = log_p.scatter(1, top.indices[:, None], -torch.inf).amax(-1).tolist()
        rows = log_p.cpu().numpy() if self.known or self.samples else None
        parents: list[int] = []
        longer: list[AnswerNode] = []
        answering = iter(range(len(log_p)))
        for parent, node in enumerate(nodes):
            if self._is_reading(node, read):
                parents.append(parent)
                longer.append(node)
                continue
            i = next(answering)
            # the last token of an answer is not read again, so it may be one behind the longest
            room = min(self.longest, self.model.longest - len(self.prompts[node.row]) + 1)
            is_last = len(node.ids) + 1 == room
            reply, best = self.replies[node.row], None
            followed: dict[int, tuple[int, float]] = {}
            drawn: Counter[int] = Counter()
            if node.greedy:
                best = best_ids[i]
                reply.ids.append(best)
                reply.log_probabilities.append(best_values[i])
                reply.other.append(second_values[i])
            if rows is not None:
                drawn = self._draw(node, rows[i])
                followed = self._follow_known(node, rows[i])
            for token in sorted({*drawn, *followed} | ({best} if best is not None else set())):
                ids, is_best, count = (*node.ids, token), token == best, drawn[token]
                if (is_best or count) and (is_last or self.model.closes(token)):
                    text = self.model.read_answer(ids)
                    reply.text = text if is_best else reply.text
                    reply.samples += [text] * count
                    is_best, count = False, 0
                known, so_far = followed.get(token, (None, 0.0)) if not is_last else (None, 0.0)
                if is_best or count or known is not None:
                    parents.append(parent)
                    longer.append(AnswerNode(node.row, ids, is_best, count, known, so_far))
        return parents, longer

    def _draw(self, node: AnswerNode, log_p: NDArray[np.float32]) -> Counter[int]:
        """The next tokens of the node's samples, and how many have each."""
        if not node.samples:
            return Counter()
        # the draws of a prompt depend on it alone, not on those beside it
        seed = crc32(str(self.prompts[node.row]).encode())
        ends = np.exp(log_p, dtype=np.float64).cumsum()
        numbers = np.random.default_rng([seed, *node.ids]).random(node.samples)
        return Counter(np.searchsorted(ends, numbers * ends[-1]).tolist())

    def _follow_known(
        self, node: AnswerNode, log_p: NDArray[np.float32]
    ) -> dict[int, tuple[int, float]]:
        """By token, the node among the known answers to go on from, and its log-probability.

        Answers that end here go into the reply.
        """
        if self.known is None or node.known is None:
            return {}
        tokens, children = self.known.tokens[node.known], self.known.children[node.known]
        so_far = node.log_probability + log_p[tokens].astype(np.float64)
        followed = {}
        for token, child, value in zip(tokens.tolist(), children, so_far.tolist(), strict=True):
            for answer in self.known.ends.get(child, ()):
                self.replies[node.row].known[answer] = value
            if value >= self.floor and self.known.children[child]:
                followed[token] = (child, value)
        return followed
