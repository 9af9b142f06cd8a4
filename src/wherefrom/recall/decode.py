"""Greedy answers to many questions at once, the share that is right, and baselines."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import torch
from torch.nn import functional as F

from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import Cache

LONGEST_ANSWER = 32  # tokens
ROWS = 512  # prompts that go through the model together
SMOOTHING = 0.1  # added to the count of every n-gram


@dataclass(frozen=True)
class Answer:
    """The model's answer: its text, its tokens with the closing MASK, and its log-probability.

    margin: the smallest difference between the logit of a token and that of the next best one.
    """

    text: str
    ids: tuple[int, ...]
    log_probability: float
    margin: float


def encode_prompts(model: Decoder, tokens: Tokenizer, questions: Sequence[str]) -> list[list[int]]:
    """Questions in tokens, each with the MASK behind which the model has learned to answer."""
    prompts = [[*ids, MASK] for ids in tokens.encode_all(questions)]
    for question, prompt in zip(questions, prompts, strict=True):
        if len(prompt) > model.config.longest_input:
            raise UserError(
                f'the question "{question[:40]}..." has {len(prompt)} tokens and this model reads '
                f"{model.config.longest_input}; ask a shorter one."
            )
    return prompts


def group_by_length(prompts: Sequence[list[int]], most: int) -> Iterator[list[int]]:
    """Indices of prompts of equal length, which need no padding; at most `most` at a time."""
    groups: dict[int, list[int]] = defaultdict(list)
    for i, prompt in enumerate(prompts):
        groups[len(prompt)].append(i)
    for indices in groups.values():
        yield from (indices[first : first + most] for first in range(0, len(indices), most))


@torch.inference_mode()
def answer_all(
    model: Decoder,
    tokens: Tokenizer,
    questions: Sequence[str],
    *,
    longest: int = LONGEST_ANSWER,
    report: Callable[[int], None] | None = None,
) -> list[Answer]:
    """The model's greedy answer to each question, in order. `report` is called with the number of
    questions answered since the last call."""
    counts = Counter(questions)  # a repeated question is answered once
    distinct = list(counts)
    prompts = encode_prompts(model, tokens, distinct)
    was_training = model.training
    model.eval()
    prefix = _shared_prefix(prompts)  # which the model reads once
    start = model.new_cache(len(prefix))
    if prefix:
        device = next(model.parameters()).device
        no_rows = torch.tensor([], dtype=torch.long, device=device)  # only the cache is needed
        model.hidden(torch.tensor([prefix], device=device), cache=start, select=no_rows)
    answers: dict[str, Answer] = {}
    for indices in group_by_length(prompts, ROWS):
        decoded = _decode_group(model, start, [prompts[i] for i in indices], longest)
        for i, (ids, log_probability, margin) in zip(indices, decoded, strict=True):
            answers[distinct[i]] = Answer(tokens.decode(ids), tuple(ids), log_probability, margin)
        if report is not None:
            report(sum(counts[distinct[i]] for i in indices))
    model.train(was_training)
    return [answers[question] for question in questions]


def _shared_prefix(prompts: Sequence[list[int]]) -> list[int]:
    """The tokens with which all prompts start, without the last token of any prompt."""
    if len(prompts) < 2:
        return []
    columns = zip(*prompts, strict=False)
    prefix = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
    return prefix[: min(map(len, prompts)) - 1]


def _decode_group(
    model: Decoder, start: Cache, prompts: list[list[int]], longest: int
) -> Iterator[tuple[list[int], float, float]]:
    """The answer to each of the prompts, which have equal length: token ids with the closing MASK,
    log-probability and margin.

    start: the cache of a prefix that all prompts have.
    """
    device = next(model.parameters()).device
    ids = torch.tensor(prompts, device=device)
    # the last token of an answer is not read again, so it may be one behind the longest input
    room = min(longest, model.config.longest_input - ids.shape[1] + 1)
    cache = start.spread(len(prompts), ids.shape[1] + room)
    ids = ids[:, start.length :]
    answers = torch.zeros(len(prompts), room, dtype=torch.long, device=device)
    scores = torch.zeros(len(prompts), room, device=device)
    margins = torch.full((len(prompts),), math.inf, device=device)
    active = torch.arange(len(prompts), device=device)  # rows without a closing MASK
    for step in range(room):
        last = torch.arange(1, len(active) + 1, device=device) * ids.shape[1] - 1
        logits = model(ids, cache=cache, select=last).float()
        best = logits.max(dim=-1)
        answers[active, step] = best.indices
        scores[active, step] = -F.cross_entropy(logits, best.indices, reduction="none")
        second = logits.scatter_(1, best.indices[:, None], -math.inf).amax(dim=-1)
        margins[active] = margins[active].minimum(best.values - second)
        unfinished = (best.indices != MASK).nonzero().flatten()
        if len(unfinished) == 0:
            break
        if len(unfinished) < len(active):
            active = active[unfinished]
            cache.keep(unfinished)
        ids = best.indices[unfinished, None]
    columns = (column.tolist() for column in (answers, scores, margins))
    for row, row_scores, margin in zip(*columns, strict=True):
        length = row.index(MASK) + 1 if MASK in row else room
        yield row[:length], sum(row_scores[:length]), margin


@dataclass(frozen=True)
class Recall:
    """How many answers are right; as text, the line that the course prints."""

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
    """Exact matches, without blanks at the ends."""
    pairs = zip(predictions, answers, strict=True)
    correct = sum(prediction.strip() == answer.strip() for prediction, answer in pairs)
    return Recall(correct=correct, total=len(answers))


def majority_answer(questions: Sequence[Question]) -> str:
    """The most frequent training answer; of equally frequent ones the first in the alphabet."""
    counts = Counter(question.answer for question in questions if question.answer is not None)
    if not counts:
        raise UserError("the majority answer needs training questions with answers.")
    return min(counts, key=lambda answer: (-counts[answer], answer))


def guess_by_name(train: Sequence[Question], questions: Sequence[Question]) -> list[str]:
    """A guess for each question from the subject's name alone: naive Bayes on its n-grams."""
    learned = [(_ngrams(q.subject), q.answer) for q in train if q.answer is not None]
    if not learned:
        raise UserError("guessing by name needs training questions with answers.")
    answers = sorted({answer for _, answer in learned})
    row = {answer: i for i, answer in enumerate(answers)}
    names, totals = np.zeros(len(answers)), np.zeros(len(answers))  # names and n-grams of each
    counts: dict[str, Counter[int]] = defaultdict(Counter)  # n-gram -> row -> count
    for ngrams, answer in learned:
        names[row[answer]] += 1
        totals[row[answer]] += len(ngrams)
        for ngram in ngrams:
            counts[ngram][row[answer]] += 1
    unseen = np.log(SMOOTHING / (totals + SMOOTHING * len(counts)))
    guesses = []
    for question in questions:
        known = [ngram for ngram in _ngrams(question.subject) if ngram in counts]
        scores = np.log(names) + len(known) * unseen
        for ngram in known:
            rows, row_counts = np.array([*counts[ngram].items()]).T
            scores[rows] += np.log1p(row_counts / SMOOTHING)
        guesses.append(answers[int(scores.argmax())])
    return guesses


def _ngrams(name: str) -> list[str]:
    """Two to four neighbouring letters of a word, with a blank for either end of it."""
    words = [f" {word} " for word in name.lower().split()]
    return [w[i : i + n] for w in words for n in (2, 3, 4) for i in range(max(1, len(w) - n + 1))]
