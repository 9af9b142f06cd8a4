"""Greedy answers to many questions at once, the share that is right, and baselines."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import Cache

LONGEST_ANSWER = 32
ROWS = 512  # prompts that go through the model together
SMOOTHING = 0.1  # added to every count of letters in a name


@dataclass(frozen=True)
class Answer:
    """What the model said: the text, the log-probability of each token, whether it closed it.

    ids: its tokens, the closing one included; margin: the least lead of one over the next best.
    """

    text: str
    log_probabilities: tuple[float, ...]
    closed: bool
    ids: tuple[int, ...] = ()
    margin: float = 0.0

    @property
    def log_probability(self) -> float:
        return sum(self.log_probabilities)


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


def group_by_length(prompts: Sequence[list[int]], most: int) -> Iterator[list[int]]:
    """Places of prompts of one length, at most so many at a time: what needs no padding."""
    groups: dict[int, list[int]] = defaultdict(list)
    for at, prompt in enumerate(prompts):
        groups[len(prompt)].append(at)
    for places in groups.values():
        yield from (places[at : at + most] for at in range(0, len(places), most))


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
    times = Counter(questions)  # what is asked twice is answered once
    asked = list(times)
    prompts = encode_prompts(model, tokens, asked)
    was_training = model.training
    model.eval()
    # the tokens that every prompt starts with are read once; each keeps at least one of its own
    low, high = (min(prompts), max(prompts)) if len(prompts) > 1 else ([], [])
    shared = 0
    while shared < min(len(low), len(high)) - 1 and low[shared] == high[shared]:
        shared += 1
    start = model.new_cache(shared)
    if shared:
        device = next(model.parameters()).device
        nothing = torch.tensor([], dtype=torch.long, device=device)  # only the cache is wanted
        model.hidden(torch.tensor([low[:shared]], device=device), cache=start, select=nothing)
    answers: dict[str, Answer] = {}
    for rows in group_by_length(prompts, ROWS):
        decoded = _decode_group(model, start, [prompts[i] for i in rows], longest)
        for index, (ids, scores, margin) in zip(rows, decoded, strict=True):
            text, closed = tokens.decode(ids), ids[-1:] == [MASK]
            answers[asked[index]] = Answer(text, scores, closed, tuple(ids), margin)
        if report is not None:
            report(sum(times[asked[index]] for index in rows))
    model.train(was_training)
    return [answers[question] for question in questions]


def _decode_group(
    model: Decoder, start: Cache, prompts: list[list[int]], longest: int
) -> list[tuple[list[int], tuple[float, ...], float]]:
    """Ids (the closing MASK included), their log-probabilities and the least lead over the next
    best token, for prompts of equal length."""
    device = next(model.parameters()).device
    ids = torch.tensor(prompts, device=device)
    # the last token said is not read again, so an answer may end one beyond the input
    room = min(longest, model.config.longest_input - ids.shape[1] + 1)
    cache = start.spread(len(prompts), ids.shape[1] + room)
    ids = ids[:, start.length :]
    said = torch.zeros(len(prompts), room, dtype=torch.long, device=device)
    scores = torch.zeros(len(prompts), room, device=device)
    margins = torch.full((len(prompts),), math.inf, device=device)
    alive = torch.arange(len(prompts), device=device)
    for step in range(room):
        last = torch.arange(1, len(alive) + 1, device=device) * ids.shape[1] - 1
        logits = model(ids, cache=cache, select=last).float()
        best = logits.max(dim=-1)
        said[alive, step] = best.indices
        scores[alive, step] = -F.cross_entropy(logits, best.indices, reduction="none")
        others = logits.scatter_(1, best.indices[:, None], -math.inf).amax(dim=-1)
        margins[alive] = margins[alive].minimum(best.values - others)
        going_on = (best.indices != MASK).nonzero().flatten()
        if len(going_on) == 0:
            break
        if len(going_on) < len(alive):
            alive = alive[going_on]
            cache.keep(going_on)
        ids = best.indices[going_on, None]
    result = []
    columns = (each.tolist() for each in (said, scores, margins))
    for row, row_scores, margin in zip(*columns, strict=True):
        length = row.index(MASK) + 1 if MASK in row else room
        result.append((row[:length], tuple(row_scores[:length]), margin))
    return result


@dataclass(frozen=True)
class Recall:
    """How many of how many, as the course prints it and as a number."""

    correct: int
    total: int

    @property
    def share(self) -> float:
        return self.correct / self.total if self.total else 0.0

    def __str__(self) -> str:
        return f"Correct: {self.correct} out of {self.total}: {100 * self.share:.4g}%"

    def to_dict(self) -> dict[str, float | int]:
        return {"correct": self.correct, "total": self.total, "recall": self.share}


def score(predictions: Sequence[str], answers: Sequence[str]) -> Recall:
    """Exact match, blanks at the ends aside."""
    pairs = zip(predictions, answers, strict=True)
    correct = sum(said.strip() == right.strip() for said, right in pairs)
    return Recall(correct=correct, total=len(answers))


def majority_answer(questions: Sequence[Question]) -> str:
    """The commonest training answer; of equals, the first in the alphabet."""
    counts = Counter(question.answer for question in questions if question.answer is not None)
    if not counts:
        raise UserError("the majority answer needs training questions with answers.")
    return min(counts, key=lambda answer: (-counts[answer], answer))


def guess_by_name(train: Sequence[Question], asked: Sequence[Question]) -> list[str]:
    """Answers that need no text: naive Bayes on the letters of the name alone."""
    learned = [(_ngrams(q.subject), q.answer) for q in train if q.answer is not None]
    if not learned:
        raise UserError("guessing by name needs training questions with answers.")
    answers = sorted({answer for _, answer in learned})
    row = {answer: at for at, answer in enumerate(answers)}
    times, letters = np.zeros(len(answers)), np.zeros(len(answers))
    counts: dict[str, Counter[int]] = defaultdict(Counter)  # of a run of letters, by answer
    for grams, answer in learned:
        times[row[answer]] += 1
        letters[row[answer]] += len(grams)
        for gram in grams:
            counts[gram][row[answer]] += 1
    never = np.log(SMOOTHING / (letters + SMOOTHING * len(counts)))
    guesses = []
    for question in asked:
        known = [gram for gram in _ngrams(question.subject) if gram in counts]
        scores = np.log(times) + len(known) * never
        for gram in known:
            at, many = np.array([*counts[gram].items()]).T
            scores[at] += np.log1p(many / SMOOTHING)
        guesses.append(answers[int(scores.argmax())])
    return guesses


def _ngrams(name: str) -> list[str]:
    """Two to four letters that follow each other in a word, its ends as blanks."""
    words = [f" {word} " for word in name.lower().split()]
    return [w[i : i + n] for w in words for n in (2, 3, 4) for i in range(max(1, len(w) - n + 1))]
