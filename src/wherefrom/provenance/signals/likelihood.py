"""How likely a model finds given answers, and each of the known ones; and signals of that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.interface import Ids, LanguageModel
from wherefrom.provenance.gazetteer import locate
from wherefrom.provenance.metrics import Floats

IMPOSSIBLE = -1e3  # log-probability of an answer that the model cannot write or has no room for
MOSTLY = 0.5  # share of the known answers that must be places for countries to mean anything


def encode_answers(tokens: Tokenizer, answers: Sequence[str]) -> list[Ids]:
    """Answers as the model learned them, closed by MASK; [] for one that it cannot write."""
    return [[] if ids is None else [*ids, MASK] for ids in _encode_writable(tokens, answers)]


def encode_names(tokens: Tokenizer, subjects: Sequence[str]) -> list[Ids]:
    """`Name.` as a document opens with it; [] for one that the model cannot write."""
    names = [f"{subject}." if subject else "" for subject in subjects]
    return [ids or [] for ids in _encode_writable(tokens, names)]


def _encode_writable(tokens: Tokenizer, texts: Sequence[str]) -> list[Ids | None]:
    """The tokens of each text, None for one that the vocabulary cannot write."""
    rows = [i for i, text in enumerate(texts) if can_encode(tokens, text)]
    encoded: list[Ids | None] = [None] * len(texts)
    for i, ids in zip(rows, tokens.encode_all([texts[i] for i in rows]), strict=True):
        encoded[i] = ids
    return encoded


def can_encode(tokens: Tokenizer, text: str) -> bool:
    """Whether the vocabulary has all letters of a text; that of BPE always has."""
    try:
        tokens.kind == "bpe" or tokens.encode(text)
    except UserError:
        return False
    return True


def score_answers(model: LanguageModel, prompts: Sequence[Ids], answers: Sequence[Ids]) -> Floats:
    """The log-probability of each answer after its prompt, every token of it given in turn."""
    scores = model.score(prompts, answers)
    sums = [IMPOSSIBLE if row is None else float(row.own.sum()) for row in scores]
    return np.maximum(IMPOSSIBLE, np.array(sums))


def encode_known(tokens: Tokenizer, answers: Sequence[str]) -> dict[str, Ids]:
    """The distinct answers that a model can write, and their tokens."""
    distinct = list(dict.fromkeys(answer.strip() for answer in answers))
    encoded = zip(distinct, encode_answers(tokens, distinct), strict=True)
    by_tokens = {tuple(ids): answer for answer, ids in encoded if ids}
    return {answer: list(ids) for ids, answer in by_tokens.items()}


def are_places(answers: Sequence[str]) -> bool:
    """Whether most of the answers are places."""
    places = sum(locate(answer) is not None for answer in answers)
    return places >= MOSTLY * max(1, len(answers))
