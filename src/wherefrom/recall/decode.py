"""Greedy answers to many questions at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.model.interface import LONGEST_ANSWER
from wherefrom.model.own import OwnModel

BATCH_QUESTIONS = 1_024  # questions that are answered between two reports


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
