"""The trie gives every known answer the probability that teacher forcing gives it, alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import VARIANTS
from wherefrom.provenance.signals import known_answers as answer_trie
from wherefrom.provenance.signals import likelihood
from wherefrom.provenance.signals.known_answers import (
    AnswerTrie,
    entropy_of,
    entropy_slack,
    outcomes,
)
from wherefrom.provenance.signals.likelihood import encode_answers, encode_prompts, score_answers

ANSWERS = ["Rome", "Romeville", "Oslo", "Os", "Lima", "Rome", " Bath ", "Ro"]
QUESTIONS = ["Where was Ann born?", "Where was Bo born?", "Where?", "Where was Cyn born?"]
EVERY = pytest.mark.parametrize("variant", sorted(VARIANTS))


def tokens_of(kind: str) -> Tokenizer:
    texts = [*ANSWERS, *QUESTIONS]
    return Tokenizer.of_characters(texts) if kind == "chars" else Tokenizer.of_bpe(texts, 300)


def model_of(variant: str, tokens: Tokenizer, block: int = 47) -> Decoder:
    config = make_config(
        variant=variant, vocabulary=tokens.size, block=block, layers=3, heads=2, width=20, latents=7
    )
    generator = torch.Generator().manual_seed(3)
    model = Decoder(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = "norm" in name and name.endswith("weight")
            parameter.normal_(1.0 if gain else 0.0, 0.4, generator=generator)
    return model.double().eval()


@torch.inference_mode()
def alone(model: Decoder, tokens: Tokenizer, question: str, answer: str) -> float:
    """The plain way: one sequence, no cache, no padding."""
    prompt, said = [*tokens.encode(question), MASK], [*tokens.encode(answer), MASK]
    logits = model(torch.tensor([[*prompt, *said][:-1]]))[0].log_softmax(dim=-1)
    return sum(float(logits[len(prompt) - 1 + at, token]) for at, token in enumerate(said))


@EVERY
@pytest.mark.parametrize("kind", ["chars", "bpe"])
@pytest.mark.parametrize("at_once", [512, 3])
def test_without_pruning_every_answer_has_its_teacher_forced_probability(
    variant, kind, at_once, monkeypatch
):
    monkeypatch.setattr(answer_trie, "PAIRS", at_once)
    monkeypatch.setattr(likelihood, "CHUNK", 64 if at_once == 3 else 4096)
    tokens = tokens_of(kind)
    model = model_of(variant, tokens)
    trie = AnswerTrie(tokens, ANSWERS)
    assert trie.answers == ("Rome", "Romeville", "Oslo", "Os", "Lima", "Bath", "Ro")
    prompts = encode_prompts(model, tokens, QUESTIONS)
    found = trie.distribution(model, prompts, floor=0.0)
    expected = [[alone(model, tokens, q, a) for a in trie.answers] for q in QUESTIONS]
    # a token's log-probability is taken in single precision
    assert found.log_probabilities == pytest.approx(np.array(expected), rel=1e-5, abs=1e-5)
    assert (found.discarded == 0).all()
    pairs = [(prompt, ids) for prompt in prompts for ids in encode_answers(tokens, trie.answers)]
    forced = score_answers(model, [p for p, _ in pairs], [a for _, a in pairs])
    assert forced == pytest.approx(np.array(expected).ravel(), rel=1e-5, abs=1e-5)


def test_pruning_loses_no_more_than_it_says_and_the_entropy_stays_within_its_bound():
    tokens = tokens_of("chars")
    model = model_of("llama", tokens)
    trie = AnswerTrie(tokens, ANSWERS)
    prompts = encode_prompts(model, tokens, QUESTIONS)
    exact = trie.distribution(model, prompts, floor=0.0)
    nobody = np.full(len(QUESTIONS), -1)
    nothing = np.full(len(QUESTIONS), -np.inf)
    truth = entropy_of(outcomes(exact, nobody, nothing))
    for floor in (1e-3, 1e-2, 0.1, 1.1):
        cut = trie.distribution(model, prompts, floor=floor)
        kept = np.isfinite(cut.log_probabilities)
        assert cut.log_probabilities[kept] == pytest.approx(exact.log_probabilities[kept])
        lost = np.exp(exact.log_probabilities).sum(1) - np.exp(cut.log_probabilities).sum(1)
        assert (lost <= cut.discarded + 1e-9).all()
        masses = outcomes(cut, nobody, nothing)
        low = entropy_of(masses)
        assert (low <= truth + 1e-9).all()
        assert (truth <= low + entropy_slack(cut, masses) + 1e-9).all()
    assert not kept.any()  # at the last floor nothing is followed


def test_an_answer_that_does_not_fit_behind_its_question_is_discarded_not_an_error():
    tokens = tokens_of("chars")
    model = model_of("vanilla", tokens, block=24)
    trie = AnswerTrie(tokens, ["Ro", "Romeville"])
    found = trie.distribution(model, encode_prompts(model, tokens, [QUESTIONS[0]]), floor=0.0)
    short, long = found.log_probabilities[0]
    assert math.isfinite(short)
    assert long == -math.inf
    assert found.discarded[0] > 0


def test_answers_with_letters_that_the_vocabulary_lacks_are_left_out_and_none_is_fine():
    tokens = tokens_of("chars")
    assert AnswerTrie(tokens, ["Rome", "Žilina"]).answers == ("Rome",)
    model = model_of("rotary", tokens)
    found = AnswerTrie(tokens, []).distribution(model, encode_prompts(model, tokens, QUESTIONS))
    assert found.log_probabilities.shape == (len(QUESTIONS), 0)
