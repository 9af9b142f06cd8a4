"""Batched decoding says what asking one at a time would say; recall is exact; baselines."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.corpus.world import make_world
from wherefrom.errors import UserError
from wherefrom.model import own
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.model.interface import LONGEST_ANSWER, MAX_LENGTH_GAP, group_by_length
from wherefrom.model.mixers import VARIANTS
from wherefrom.model.own import OwnModel
from wherefrom.recall.decode import answer_all
from wherefrom.recall.table import Recall, guess_by_name, majority_answer, score

QUESTIONS = [
    "Where?",
    "Where was Ann born?",
    "Where was Bo born?",
    "Where was Cyn born?",
    "Why?",
    "When was Zoe Anne-Marie Berg born, and where?",
    "Where was Ann born?",
    "W",
]
TOKENS = Tokenizer.of_characters(QUESTIONS)
BLOCK = 61
EVERY = pytest.mark.parametrize("variant", sorted(VARIANTS))


def model_of(variant: str, *, ends: float = 0.0) -> Decoder:
    """A random model; with a higher `ends` it closes its answers sooner."""
    shape = {"block": BLOCK, "layers": 3, "heads": 5, "width": 70, "latents": 7, "dropout": 0.3}
    config = make_config(variant=variant, vocabulary=TOKENS.size, **shape)
    generator = torch.Generator().manual_seed(0)
    model = Decoder(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = "norm" in name and name.endswith("weight")
            parameter.normal_(1.0 if gain else 0.0, 0.3, generator=generator)
        model.head.weight[0] = 0  # never PAD, as after training
        model.head.weight[MASK] *= 1 + ends
    return model.double().train()


@torch.inference_mode()
def asked_alone(model: Decoder, question: str) -> tuple[list[int], float]:
    """The plain way: the whole sequence through the model again for each token."""
    model.eval()
    prompt, answer, log_probability = [*TOKENS.encode(question), MASK], [], 0.0
    room = min(LONGEST_ANSWER, model.config.longest_input - len(prompt) + 1)
    while len(answer) < room and answer[-1:] != [MASK]:
        logits = model(torch.tensor([prompt + answer]))[0, -1].log_softmax(dim=-1)
        answer.append(int(logits.argmax()))
        log_probability += float(logits.max())
    return answer, log_probability


@EVERY
def test_answers_together_equal_answers_one_at_a_time(variant, monkeypatch):
    model = model_of(variant, ends=1.0)
    alone = [asked_alone(model, question) for question in QUESTIONS]
    assert len({len(ids) for ids, _ in alone}) > 1  # some close early
    for rows in (256, 2):
        monkeypatch.setattr(own, "BATCH_ROWS", rows)
        answers = answer_all(model, TOKENS, QUESTIONS)
        for (ids, log_probability), answer in zip(alone, answers, strict=True):
            assert (answer.text, list(answer.ids)) == (TOKENS.decode(ids), ids)
            # kept in single precision
            assert answer.log_probability == pytest.approx(log_probability, rel=1e-5, abs=1e-5)


NAME = st.text("abehinor", min_size=1, max_size=24)


@pytest.mark.parametrize("variant", ["rotary", "perceiver"])
@settings(max_examples=5)
@given(names=st.lists(NAME, min_size=1, max_size=9), most=st.sampled_from([2, 3, 256]))
def test_questions_of_any_lengths_get_the_same_answers_together_and_alone(variant, names, most):
    model = OwnModel(model_of(variant, ends=1.0).eval(), TOKENS)
    known = [model.continuation("", text) for text in ("ea", "e", "born")]
    prompts = [model.prompt(f"Where was {name} born?{model.mask}") for name in names]
    alone = [model.answer([prompt], known=known, samples=2)[0] for prompt in prompts]
    model.rows = model.nodes = most
    for one, reply in zip(alone, model.answer(prompts, known=known, samples=2), strict=True):
        assert (reply.text, reply.ids) == (one.text, one.ids)
        assert sorted(reply.samples) == sorted(one.samples)
        assert reply.entropy == pytest.approx(one.entropy, abs=1e-5)
        np.testing.assert_allclose(reply.log_probabilities, one.log_probabilities, atol=1e-5)
        np.testing.assert_allclose(reply.known, one.known, atol=1e-5)


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 9))
def test_prompts_that_are_answered_together_are_of_similar_length(lengths, most):
    prompts = [[0] * length for length in lengths]
    groups = list(group_by_length(prompts, most))
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) <= most
        for before, after in pairwise(lengths[i] for i in group):
            assert 0 <= after - before <= MAX_LENGTH_GAP


def test_rows_that_closed_drop_out_and_each_later_pass_reads_one_token(monkeypatch):
    model = model_of("vanilla", ends=1.0)
    passes, whole = [], model.forward
    monkeypatch.setattr(
        model, "forward", lambda ids, **rest: passes.append(tuple(ids.shape)) or whole(ids, **rest)
    )
    questions = [f"Where was {name} born?" for name in ("Ann", "Cyn", "Zoe", "Bob", "Wes", "Mia")]
    answers = answer_all(model, TOKENS, questions)
    lengths = [len(answer.ids) for answer in answers]
    assert len(set(lengths)) > 1
    shared = len("Where was ")  # read once for all
    assert passes[:2] == [(1, shared), (len(questions), len(questions[0]) - shared + 1)]
    assert passes[2:] == [
        (sum(length > step for length in lengths), 1) for step in range(1, max(lengths))
    ]


@EVERY
def test_a_question_may_fill_the_model_to_the_last_token_and_not_one_more(variant):
    longest = BLOCK - 1
    model = model_of(variant)
    full = "W" * (longest - 1)  # and its MASK
    (answer,) = answer_all(model, TOKENS, [full])
    ids, log_probability = asked_alone(model, full)
    assert (list(answer.ids), len(ids)) == (ids, 1)
    assert answer.log_probability == pytest.approx(log_probability, rel=1e-5, abs=1e-6)
    with pytest.raises(UserError) as caught:
        answer_all(model, TOKENS, ["Why?", full + "W"])
    assert f"{longest + 1} tokens and this model reads {longest};" in str(caught.value)


@pytest.mark.parametrize("training", [True, False])
def test_asking_leaves_the_model_in_the_mode_it_was_in_even_after_a_refusal(training):
    model = model_of("vanilla").train(training)
    with pytest.raises(UserError):
        answer_all(model, TOKENS, ["W" * BLOCK])
    reported: list[int] = []
    answer_all(model, TOKENS, QUESTIONS, report=reported.append)
    assert sum(reported) == len(QUESTIONS)
    assert model.training is training
    assert answer_all(model, TOKENS, []) == []
    with torch.no_grad():
        model.head.weight[MASK] = 0
    (answer,) = answer_all(model, TOKENS, ["Where?"], longest=7)
    assert len(answer.ids) == 7  # an answer without an end is cut
    assert MASK not in answer.ids


def test_recall_is_exact_blanks_at_the_ends_aside_and_printed_as_the_course_prints_it():
    said = ["Oslo", " Oslo ", "oslo", "Oslo, Norway", "New  York", ""]
    right = ["Oslo", "Oslo", "Oslo", "Oslo", "New York", "Oslo"]
    assert score(said, right) == Recall(2, 6)
    assert str(Recall(72, 500)) == "Correct: 72 out of 500: 14.4%"
    assert str(Recall(1, 3)) == "Correct: 1 out of 3: 33.33%"
    assert Recall(72, 500).to_dict() == {"correct": 72, "total": 500, "recall": 0.144}
    assert score([], []).share == 0


def asked(subject: str, answer: str | None) -> Question:
    return Question(line=1, text=f"Where was {subject} born?", subject=subject, answer=answer)


def test_the_majority_answer_is_the_commonest_and_of_equals_the_first():
    answers = [asked("x", answer) for answer in ("Rome", "Oslo", "Bonn", "Oslo", "Rome", None)]
    assert majority_answer(answers) == majority_answer(answers[::-1]) == "Oslo"
    for baseline in (majority_answer, lambda train: guess_by_name(train, answers)):
        with pytest.raises(UserError, match="answers"):
            baseline([asked("Ann", None)])


def test_guesses_are_those_of_scikit_learn() -> None:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    world = make_world(300, 5)
    people = [(person.subject, person.birthplace) for person in world.people]
    names, places = zip(*people[:200], strict=True)
    letters = CountVectorizer(analyzer="char_wb", ngram_range=(2, 4), lowercase=True)
    theirs = make_pipeline(letters, MultinomialNB(alpha=0.1)).fit(names, places)
    rest = [*(name for name, _ in people[200:]), "O", "Bo X"]
    # nothing but the name is seen of a question
    unknown = [Question(1, "Was this one born in Rome?", name, "Rome") for name in rest]
    ours = guess_by_name([asked(*pair) for pair in people[:200]], unknown)
    assert ours == theirs.predict(rest).tolist()
