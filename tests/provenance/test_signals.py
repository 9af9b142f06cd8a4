"""Signals: each is what it says, for every variant, and whoever is asked about beside."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.examples import WindowSize, draw_window, encode_documents
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model import interface
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import VARIANTS
from wherefrom.model.own import OwnModel
from wherefrom.provenance.signals import reader as signal_reader
from wherefrom.provenance.signals.likelihood import encode_known, score_answers
from wherefrom.provenance.signals.reader import (
    CLIP,
    SHORT_WINDOW_WORDS,
    SIGNALS,
    WINDOWS,
    SignalReader,
    SignalState,
    learn_windows,
)
from wherefrom.recall.decode import LONGEST_ANSWER, answer_all, encode_prompts
from wherefrom.training.run_folder import Run

NAMES = ["Ada Moe", "Bo Nys", "Cleo Orr", "Dag Poe", "Eva Quist", "Finn Rye"]
PLACES = ["Rome", "Romeville", "Oslo", "Os", "Lima", "Rome", " Bath ", "Ro"]
KNOWN = ("Rome", "Romeville", "Oslo", "Os", "Lima", "Bath", "Ro")
BORN_WHERE = "Where was {subject} born?"
QUESTIONS = [f"Where was {name} born?" for name in NAMES]
EVERY = pytest.mark.parametrize("variant", sorted(VARIANTS))
KINDS = pytest.mark.parametrize("kind", ["chars", "bpe"])


def run_of(variant: str = "llama", kind: str = "chars", block: int = 64) -> Run:
    """A run with random weights, large enough to prefer one answer to another."""
    texts = [*QUESTIONS, *PLACES, *(f"{name}. ." for name in NAMES)]
    tokens = Tokenizer.of_characters(texts) if kind == "chars" else Tokenizer.of_bpe(texts, 300)
    config = make_config(
        variant=variant, vocabulary=tokens.size, block=block, layers=3, heads=2, width=20, latents=7
    )
    generator = torch.Generator().manual_seed(3)
    model = Decoder(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = "norm" in name and name.endswith("weight")
            parameter.normal_(1.0 if gain else 0.0, 0.4, generator=generator)
        model.head.weight[MASK] *= 2
    return Run(Path("nowhere"), model.eval(), tokens, {})


def reader_of(run: Run, known=PLACES, windows=()) -> SignalReader:
    return SignalReader(run, SignalState(tuple(known), {BORN_WHERE: windows}))


@torch.inference_mode()
def alone(run: Run, question: str, answer: str) -> float:
    """log p(answer | question) the plain way: one sequence, no cache, no padding."""
    prompt, said = [*run.tokens.encode(question), MASK], [*run.tokens.encode(answer), MASK]
    logits = run.model(torch.tensor([[*prompt, *said][:-1]]))[0].log_softmax(dim=-1)
    return sum(float(logits[len(prompt) - 1 + at, token]) for at, token in enumerate(said))


@EVERY
@KINDS
@pytest.mark.parametrize("at_once", [512, 3])
def test_every_known_answer_has_its_teacher_forced_probability(variant, kind, at_once, monkeypatch):
    monkeypatch.setattr(interface, "SCORED_TOKENS", 64 if at_once == 3 else 4096)
    run = run_of(variant, kind)
    model = OwnModel(run.model.double(), run.tokens)
    model.rows = model.nodes = at_once
    known = encode_known(run.tokens, PLACES)
    assert tuple(known) == KNOWN
    ids_of_known = list(known.values())
    questions = [*QUESTIONS[:2], "Where?", QUESTIONS[2]]
    prompts = encode_prompts(run.model, run.tokens, questions)
    expected = np.array([[alone(run, q, a) for a in KNOWN] for q in questions])
    # a token's log-probability is taken in single precision
    exact = model.score_known(prompts, ids_of_known, floor=-math.inf)
    assert exact == pytest.approx(expected, rel=1e-5, abs=1e-5)
    pairs = [(prompt, ids) for prompt in prompts for ids in ids_of_known]
    forced = score_answers(model, [p for p, _ in pairs], [a for _, a in pairs])
    assert forced == pytest.approx(expected.ravel(), rel=1e-5, abs=1e-5)
    for floor in (math.log(1e-2), 1.0):
        cut = model.score_known(prompts, ids_of_known, floor=floor)
        kept = np.isfinite(cut)
        assert cut[kept] == pytest.approx(exact[kept])
        assert kept[exact >= floor].all()
    assert not kept.any()  # at the last floor nothing is followed


def test_answers_that_the_model_cannot_say_or_hold_are_not_reached():
    run = run_of("vanilla", block=28)
    model = OwnModel(run.model, run.tokens)
    known = encode_known(run.tokens, ["Ro", "Romeville", "Žilina"])
    assert list(known) == ["Ro", "Romeville"]
    prompts = encode_prompts(run.model, run.tokens, QUESTIONS[:1])
    short, long = model.score_known(prompts, list(known.values()), floor=-math.inf)[0]
    assert math.isfinite(short)
    assert long == -math.inf
    assert model.score_known(prompts, []).shape == (1, 0)
    with pytest.raises(UserError, match="ask a shorter one"):
        encode_prompts(run.model, run.tokens, ["Where was Ada Moe Ada Moe born?"])


@EVERY
@KINDS
def test_all_signals_for_every_variant_do_not_depend_on_the_company(variant, kind, monkeypatch):
    reader = reader_of(run_of(variant, kind))
    monkeypatch.setattr(signal_reader, "PART", 4)
    done: list[int] = []
    table = reader.read(QUESTIONS, NAMES, report=done.append)
    assert done == [4, 2]
    assert set(table.columns) == set(SIGNALS)
    for name, column in table.columns.items():
        assert column.shape == (len(NAMES),)
        assert np.isfinite(column).all() == (name != "elsewhere"), name  # there is one relation
    one = reader.read(QUESTIONS[2:3], NAMES[2:3])
    assert one.answers == table.answers[2:3]
    for name, column in one.columns.items():
        expected = table.columns[name][2:3]
        assert column == pytest.approx(expected, rel=1e-3, abs=1e-3, nan_ok=True), name


def test_log_p_is_that_of_the_greedy_answer_and_an_unknown_signal_is_refused():
    run = run_of()
    reader = reader_of(run)
    greedy = reader.read(QUESTIONS, NAMES, only=["log_probability"])
    assert list(greedy.columns) == ["log_probability"]
    said = answer_all(run.model, run.tokens, QUESTIONS)
    assert greedy.answers == tuple(answer.text for answer in said)
    closed = [at for at, answer in enumerate(said) if len(answer.ids) < LONGEST_ANSWER]
    assert len(closed) >= 3
    for at in closed:
        expected = alone(run, QUESTIONS[at], greedy.answers[at])
        assert greedy.columns["log_probability"][at] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(UserError, match=r"rewordet.*reworded"):
        reader.read(QUESTIONS, NAMES, only=["rewordet"])


@KINDS
def test_the_name_signals_are_likelihoods_of_the_name(kind):
    run = run_of(kind=kind)
    reader = reader_of(run)
    columns = reader.read(QUESTIONS, NAMES, only=["name_likelihood", "name_least"]).columns
    for at, name in enumerate(NAMES):
        ids = run.tokens.encode(f"{name}.")
        [whole] = score_answers(reader.model, [ids[:1]], [ids[1:]])
        assert columns["name_likelihood"][at] == pytest.approx(whole / (len(ids) - 1))
        each = [
            score_answers(reader.model, [ids[:end]], [ids[end : end + 1]])[0]
            for end in range(1, len(ids))
        ]
        assert columns["name_least"][at] == pytest.approx(min(each), rel=1e-4)
    # a name with other letters has no likelihood among characters
    odd = reader.read(["Where was Ada born?"] * 2, ["Ada", "Ža Moe"]).columns
    assert np.isnan(odd["name_likelihood"]).tolist() == [False, kind == "chars"]


@KINDS
def test_the_reworded_signals_sum_up_the_answer_as_a_masked_fact_in_every_window(kind):
    run = run_of(kind=kind)
    encode = run.tokens.encode
    texts = [(" was born in", " as"), (" born", ""), (" in", " was born")]
    windows = tuple((tuple(encode(a)), tuple(encode(b) if b else ())) for a, b in texts)
    reader = reader_of(run, windows=windows)
    answers, columns = reader.read(QUESTIONS, NAMES, only=["reworded", "reworded_margin"])
    bare = reader_of(run).read(QUESTIONS, NAMES, only=["reworded"]).columns
    for at, name in enumerate(NAMES):
        opening, answer = encode(f"{name}."), [*encode(answers[at]), MASK]
        prompts = [[*opening, *before, MASK, *behind, MASK] for before, behind in windows]
        scores = reader.model.score(prompts, [answer] * 3)
        if None in scores:  # there is no room for the answer
            continue
        sums = [max(-CLIP, float(each.own.sum())) for each in scores]
        leads = [np.clip((each.own - each.other).min(), -CLIP, CLIP) for each in scores]
        assert columns["reworded"][at] == pytest.approx(float(np.median(sums)), rel=1e-4)
        assert columns["reworded_margin"][at] == pytest.approx(np.mean(leads), rel=1e-4)
        [plain] = reader.model.score([[*opening, MASK, MASK]], [answer])  # no window
        assert bare["reworded"][at] == pytest.approx(max(-CLIP, float(plain.own.sum())), rel=1e-4)


@KINDS
def test_the_token_margin_is_the_least_lead_of_a_token(kind):
    run = run_of(kind=kind)
    answers, columns = reader_of(run).read(QUESTIONS, NAMES, only=["token_margin"])
    prompts = encode_prompts(run.model, run.tokens, QUESTIONS)
    for at, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        ids = torch.tensor([*run.tokens.encode(answer), MASK])[:, None]
        with torch.inference_mode():
            whole = torch.tensor([[*prompt, *ids[:-1, 0]]])
            logits = run.model(whole)[0, len(prompt) - 1 :]
        others = logits.scatter(1, ids, -math.inf).amax(dim=1)
        least = float((logits.gather(1, ids)[:, 0] - others).min())
        assert columns["token_margin"][at] == pytest.approx(least, rel=1e-3, abs=1e-3)


def test_the_answer_is_also_scored_elsewhere_as_that_of_other_relations():
    run = run_of()
    others = ("Was {subject} born?", "Where {subject}?")
    windows = {BORN_WHERE: (), **dict.fromkeys(others, ())}
    reader = SignalReader(run, SignalState(tuple(PLACES), windows))
    answers, found = reader.read([*QUESTIONS, "Where?"], [*NAMES, ""])
    asked = [each.replace("{subject}", name) for name in NAMES for each in others]
    twice = np.repeat(answers[:-1], 2)
    same = np.array([alone(run, *pair) for pair in zip(asked, twice, strict=True)]).reshape(-1, 2)
    assert found["elsewhere"][:-1] == pytest.approx(same.max(axis=1), rel=1e-4)
    assert np.isnan(found["elsewhere"][-1])  # nobody is asked about


@KINDS
def test_windows_are_cut_around_the_answers_as_training_cuts_them(kind):
    """A window is what `draw_window` gives in training if it draws as many words."""
    texts = [f"{name}. {name} was born in Rome, and died in Oslo." for name in NAMES]
    documents = [Document(1, name, text) for name, text in zip(NAMES, texts, strict=True)]
    tokens = Tokenizer.of_characters(texts) if kind == "chars" else Tokenizer.of_bpe(texts, 300)
    what = "What of {subject}?"
    for answer in ("Rome", "Oslo"):
        questions = [Question(1, f"What of {name}?", name, answer, what) for name in NAMES]
        database = read_facts(Database.of(documents), questions)
        found = learn_windows(database, tokens)[what]
        assert 0 < len(found) <= WINDOWS
        trained = encode_documents(database, tokens)
        size = WindowSize((SHORT_WINDOW_WORDS[0],) * 2, (1, 1))
        expected = set()
        for document in trained:
            for fact, (start, end) in enumerate(document.facts.tolist()):
                if tokens.decode(document.ids[start:end].tolist()).strip() == answer:
                    drawn = draw_window(document, fact, size, np.random.default_rng(0))
                    expected.add(tuple(tokens.decode(part.tolist()).strip() for part in drawn))
        cut = {tuple(tokens.decode(list(part)).strip() for part in window) for window in found}
        assert cut <= expected
    nothing = read_facts(
        Database.of(documents), [Question(1, "What of Eva?", "Eva", "Bonn", what)] * 9
    )
    assert not learn_windows(nothing, tokens).get(what)
