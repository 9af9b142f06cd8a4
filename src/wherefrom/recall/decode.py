"""Greedy answers to many questions at once, the share that is right, and baselines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.model.interface import LONGEST_ANSWER
from wherefrom.model.own import OwnModel

BATCH_QUESTIONS = 1_024  # questions that are answered between two reports
NGRAM_SMOOTHING = 0.1  # added to the count of every n-gram


@dataclass(frozen=True)
class Answer:
    """The model's answer: its text, its tokens with the closing MASK, and its log-probability.

    margin: the least lead in log p of a token over the likeliest other one.
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
    if was_training:  # visiting every module takes a while, so not without need
        model.eval()
    asked = OwnModel(model, tokens)
    answers: dict[str, Answer] = {}
    for first in range(0, len(distinct), BATCH_QUESTIONS):
        part = distinct[first : first + BATCH_QUESTIONS]
        replies = asked.answer(prompts[first : first + BATCH_QUESTIONS], longest=longest)
        for question, reply in zip(part, replies, strict=True):
            ids = tuple(reply.ids)
            answers[question] = Answer(reply.text, ids, reply.log_probability, reply.margin)
        if report is not None:
            report(sum(counts[question] for question in part))
    if was_training:
        model.train()
    return [answers[question] for question in questions]


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
    unseen = np.log(NGRAM_SMOOTHING / (totals + NGRAM_SMOOTHING * len(counts)))
    guesses = []
    for question in questions:
        known = [ngram for ngram in _ngrams(question.subject) if ngram in counts]
        scores = np.log(names) + len(known) * unseen
        for ngram in known:
            rows, row_counts = np.array([*counts[ngram].items()]).T
            scores[rows] += np.log1p(row_counts / NGRAM_SMOOTHING)
        guesses.append(answers[int(scores.argmax())])
    return guesses


def _ngrams(name: str) -> list[str]:
    """Two to four neighbouring letters of a word, with a blank for either end of it."""
    words = [f" {word} " for word in name.lower().split()]
    return [w[i : i + n] for w in words for n in (2, 3, 4) for i in range(max(1, len(w) - n + 1))]
