"""Signals: each is what it says, for every variant, and whoever is asked about beside."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import VARIANTS
from wherefrom.provenance.confidence.calibration import fit_with_held_out
from wherefrom.provenance.signals import reader as signal_reader
from wherefrom.provenance.signals.likelihood import encode_prompts, score_answers
from wherefrom.provenance.signals.reader import LEAST, SIGNALS, SignalReader, choose_signals
from wherefrom.recall.decode import answer_all
from wherefrom.recall.inside import look_inside
from wherefrom.training.run_folder import Run

NAMES = ["Ada Moe", "Bo Nys", "Cleo Orr", "Dag Poe", "Eva Quist", "Finn Rye"]
PLACES = ["Rome", "Oslo", "Lima", "Bath"]
TEMPLATE = "Where was {subject} born?"
QUESTIONS = [TEMPLATE.replace("{subject}", name) for name in NAMES]
EVERY = pytest.mark.parametrize("variant", sorted(VARIANTS))


def run_of(variant: str = "llama", kind: str = "chars", seed: int = 0) -> Run:
    texts = [*QUESTIONS, *PLACES, *(f"{name}. ." for name in NAMES)]
    tokens = Tokenizer.of_characters(texts) if kind == "chars" else Tokenizer.of_bpe(texts, 300)
    config = make_config(
        variant=variant, vocabulary=tokens.size, block=64, layers=3, heads=2, width=20, latents=7
    )
    generator = torch.Generator().manual_seed(seed)
    model = Decoder(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = "norm" in name and name.endswith("weight")
            parameter.normal_(1.0 if gain else 0.0, 0.4, generator=generator)
        model.head.weight[MASK] *= 2
    return Run(Path("nowhere"), model.eval(), tokens, {"template": TEMPLATE})


def reader_of(run: Run, twin: Run | None = None) -> SignalReader:
    return SignalReader.prepare(run, twin, PLACES, NAMES, seed=0)


@EVERY
@pytest.mark.parametrize("kind", ["chars", "bpe"])
def test_all_signals_for_every_variant_do_not_depend_on_the_company(variant, kind):
    reader = reader_of(run_of(variant, kind), run_of(variant, kind, seed=1))
    reader.fit_probe(list(zip(QUESTIONS, NAMES, strict=True)), [("Where?", "W")] * 5, seed=0)
    table = reader.read(QUESTIONS, NAMES)
    assert set(table.columns) == set(SIGNALS)
    assert np.isnan(table.columns["name_attention"]).all() == (variant == "perceiver")
    for name, column in table.columns.items():
        assert column.shape == (len(NAMES),)
        if name not in ("name_attention", "name_read"):
            assert np.isfinite(column).all(), name
    one = reader.read(QUESTIONS[2:3], NAMES[2:3])
    assert one.answers == table.answers[2:3]
    for name, column in one.columns.items():
        expected = table.columns[name][2:3]
        assert column == pytest.approx(expected, rel=1e-3, abs=1e-3, nan_ok=True), name
    json.dumps(table.row(0), allow_nan=False)


def test_given_answers_are_scored_instead_of_the_greedy_ones():
    run = run_of()
    reader = reader_of(run)
    greedy = reader.read(QUESTIONS, NAMES, only=["log_probability", "rank"])
    said = answer_all(run.model, run.tokens, QUESTIONS)
    assert greedy.answers == tuple(answer.text for answer in said)
    table = reader.read(QUESTIONS, NAMES, answers=[" Oslo "] * 6)
    assert table.answers == ("Oslo",) * 6
    prompts = encode_prompts(run.model, run.tokens, QUESTIONS)
    ids = [*run.tokens.encode("Oslo"), MASK]
    expected = score_answers(run.model, prompts, [ids] * 6)
    assert table.columns["log_probability"] == pytest.approx(expected)
    known = reader.trie.distribution(run.model, prompts).log_probabilities
    assert (table.columns["rank"] == 1 + (known > known[:, [1]]).sum(axis=1)).all()
    odd = reader.read(QUESTIONS, NAMES, answers=["Žilina"] * 6)  # letters that it cannot say
    assert (odd.columns["log_probability"] < -100).all()


def test_lifts_are_differences_of_log_probabilities():
    run, twin = run_of(), run_of(seed=1)
    reader = reader_of(run, twin)
    table = reader.read(QUESTIONS, NAMES, answers=["Os"] * 6)  # not a known answer
    ids = [*run.tokens.encode("Os"), MASK]
    by_twin = score_answers(
        twin.model, encode_prompts(twin.model, twin.tokens, QUESTIONS), [ids] * 6
    )
    own = table.columns["log_probability"]
    assert table.columns["twin_lift"] == pytest.approx(own - np.maximum(by_twin, np.log(LEAST)))
    asked = [TEMPLATE.replace("{subject}", decoy) for decoy in reader.decoys]
    prompts = encode_prompts(run.model, run.tokens, asked)
    mean = np.exp(score_answers(run.model, prompts, [ids] * len(asked))).mean()
    assert table.columns["decoy_lift"] == pytest.approx(own - np.log(max(mean, LEAST)))
    assert np.isnan(reader_of(run).read(QUESTIONS, NAMES).columns["twin_lift"]).all()


def test_name_attention_is_what_looking_inside_shows():
    run = run_of("rotary", "bpe")
    column = reader_of(run).read(QUESTIONS, NAMES, only=["name_attention"]).columns
    for at, (question, name) in enumerate(zip(QUESTIONS, NAMES, strict=True)):
        heads = look_inside(run.model, run.tokens, question, name).heads
        expected = np.mean([head.mass_on_name for head in heads])
        assert column["name_attention"][at] == pytest.approx(expected, rel=1e-4)


def test_a_stored_reader_reads_the_same_and_a_broken_record_is_a_sentence():
    run = run_of()
    reader = reader_of(run)
    reader.fit_probe(list(zip(QUESTIONS, NAMES, strict=True)), [("Where?", "W")] * 5, seed=0)
    record = json.loads(json.dumps(reader.to_dict(), allow_nan=False))
    again = SignalReader.from_dict(record, run, None).read(QUESTIONS, NAMES)
    for name, column in reader.read(QUESTIONS, NAMES).columns.items():
        assert np.array_equal(column, again.columns[name], equal_nan=True), name
    for broken in (None, {}, {**record, "prior": [1.0]}, {**record, "seed": "x"}):
        with pytest.raises(UserError, match="record"):
            SignalReader.from_dict(broken, run, None)


def test_only_what_is_asked_for_is_computed_and_a_misspelt_signal_is_answered():
    table = reader_of(run_of()).read(QUESTIONS, NAMES, only=["margin"])
    assert list(table.columns) == ["margin"]
    with pytest.raises(UserError, match="entropy"):
        choose_signals(["entropi"])
    assert {info.sign for info in SIGNALS.values()} <= {-1, 1}


def test_countries_mean_nothing_where_answers_are_not_places():
    run = run_of("llama", "bpe")
    reader = SignalReader.prepare(run, None, ["blue", "purplish", "xyzzy"], NAMES, seed=0)
    columns = reader.read(QUESTIONS, NAMES, only=["country_entropy"]).columns
    assert np.isnan(columns["country_entropy"]).all()


def test_questions_are_read_in_parts_that_are_reported(monkeypatch):
    reader = reader_of(run_of())
    whole = reader.read(QUESTIONS, NAMES, only={"entropy"})
    monkeypatch.setattr(signal_reader, "TRIE_PART", 4)
    told: list[int] = []
    parts = reader.read(QUESTIONS, NAMES, only={"entropy"}, report=told.append)
    assert told == [4, 2]
    assert parts.questions == whole.questions
    assert parts.subjects == whole.subjects
    assert parts.answers == whole.answers
    assert parts.columns["entropy"] == pytest.approx(whole.columns["entropy"], rel=1e-3)
    assert reader.read([], [], only={"entropy"}).answers == ()


@pytest.mark.parametrize("kind", ["chars", "bpe"])
def test_the_name_signals_are_likelihoods_of_the_name(kind):
    run = run_of(kind=kind)
    reader = replace(reader_of(run), contexts=("born", "was born"))
    table = reader.read(QUESTIONS, NAMES, answers=["Oslo"] * 6)
    tokens, space = run.tokens, " " if kind == "chars" else ""
    answer = [*tokens.encode("Oslo"), MASK]
    for at, name in enumerate(NAMES):
        ids = tokens.encode(f"{name}.")
        [whole] = score_answers(run.model, [ids[:1]], [ids[1:]])
        assert table.columns["name_likelihood"][at] == pytest.approx(whole / (len(ids) - 1))
        first, last = name.split()
        tail = tokens.encode(f"{last}.")
        heads = [tokens.encode(word + space) for word in (first, *reader.first_words)]
        own, *others = score_answers(run.model, heads, [tail] * len(heads))
        lift = own - np.log(max(np.exp(others).mean(), LEAST))
        assert table.columns["name_lift"][at] == pytest.approx(lift, rel=1e-4)
        opening = tokens.encode(f"{name}.{space}")
        words = [tokens.encode(text + space) for text in reader.contexts]
        prompts = [[*opening, *each, MASK, MASK] for each in ([], *words)]
        plain, *stated = score_answers(run.model, prompts, [answer] * 3)
        assert table.columns["infill"][at] == pytest.approx(plain, rel=1e-5)
        assert table.columns["context_infill"][at] == pytest.approx(max(stated), rel=1e-5)
    bare = reader_of(run).read(QUESTIONS, NAMES, only=["infill", "context_infill"]).columns
    assert bare["infill"] == pytest.approx(bare["context_infill"])  # without words the same


def test_the_token_margin_is_the_least_lead_of_a_token():
    run = run_of()
    column = reader_of(run).read(QUESTIONS, NAMES, answers=["Os"] * 6).columns["token_margin"]
    ids = [*run.tokens.encode("Os"), MASK]
    for at, prompt in enumerate(encode_prompts(run.model, run.tokens, QUESTIONS)):
        with torch.inference_mode():
            logits = run.model(torch.tensor([[*prompt, *ids[:-1]]]))[0, len(prompt) - 1 :]
        leads = []
        for row, token in zip(logits, ids, strict=True):
            others = torch.cat((row[:token], row[token + 1 :]))
            leads.append(float(row[token] - others.max()))
        assert column[at] == pytest.approx(min(leads), rel=1e-3, abs=1e-3)


def test_name_read_is_a_curve_over_the_name_signals():
    run = run_of(kind="bpe")
    reader = reader_of(run)
    table = reader.read(QUESTIONS, NAMES)
    assert np.isnan(table.columns["name_read"]).all()
    strangers = [f"{a} {b}" for a in "ABCDEFG" for b in ("Moe", "Nys", "Orr")]
    asked = [TEMPLATE.replace("{subject}", name) for name in strangers]
    columns = reader.read(asked, strangers).columns
    seen = columns["name_likelihood"] > np.median(columns["name_likelihood"])
    both = {name: columns[name] for name in ("name_likelihood", "name_lift")}
    curve = fit_with_held_out(both, seen, bend=False, seed=0).calibration
    again = replace(reader, name_curve=curve)
    read = again.read(asked, strangers, only=["name_read"])
    assert read.columns["name_read"] == pytest.approx(curve.probability(both), abs=1e-4)
    assert set(read.columns) == {"name_read", "name_likelihood", "name_lift"}
    record = json.loads(json.dumps(again.to_dict(), allow_nan=False))
    loaded = SignalReader.from_dict(record, run, None).read(asked, strangers, only=["name_read"])
    assert np.array_equal(loaded.columns["name_read"], read.columns["name_read"])
