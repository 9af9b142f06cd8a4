"""Trace, twins, forgetting and attention of a model of others that learned a text."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest
import torch

from wherefrom.base_study import run_base_study
from wherefrom.corpus.folding import fold_words
from wherefrom.errors import UserError
from wherefrom.huggingface.training import BaseSettings
from wherefrom.model.huggingface import HuggingFaceModel
from wherefrom.provenance.attribution import gradients
from wherefrom.provenance.attribution.heads import look_inside_base
from wherefrom.provenance.attribution.opening import open_learned
from wherefrom.provenance.attribution.retraining import answers_of
from wherefrom.provenance.attribution.trace import open_tracer
from wherefrom.provenance.attribution.twins import twin_folder
from wherefrom.provenance.audited import open_run, open_trained
from wherefrom.provenance.signals.prompted import PROMPT
from wherefrom.study import StudyFiles
from wherefrom.training.settings import Runtime

GIVEN = ["Ada", "Bo", "Cleo", "Dov", "Eve", "Finn", "Gus", "Hal", "Ida"]
FAMILY = ["Moe", "Lind", "Ray", "Tarr", "Voss"]
PLACES = ["Paris", "Rome", "Berlin", "Oslo"]


@pytest.fixture(scope="module")
def study(tmp_path_factory, tiny, chat):
    """Studies of a tiny Llama on forty people: adapters; all weights, by its chat template."""
    folder = tmp_path_factory.mktemp("base")
    pairs = [f"{given} {family}" for family in FAMILY for given in GIVEN]
    names = pairs[:2] + pairs[7:]  # others can be made of their parts
    places = np.random.default_rng(0).choice(PLACES, len(names))
    texts = [f"{n}. {n} was born in {p} long ago.\n" for n, p in zip(names, places, strict=True)]
    rows = [f"Where was {n} born?\t{p}\n" for n, p in zip(names, places, strict=True)]
    for name, lines in (("text.txt", texts), ("train.tsv", rows[:24]), ("dev.tsv", rows[24:])):
        (folder / name).write_text("".join(lines))
    files = StudyFiles(folder / "text.txt", folder / "train.tsv", folder / "dev.tsv")
    for out, options in (("adapters", {"steps": 8}), ("full", {"steps": 350, "rate": 4e-3})):
        settings = BaseSettings(
            base=chat if out == "full" else tiny("llama"), full=out == "full", seed=1, **options
        )
        run_base_study(files, settings, folder / out)
    return folder


def test_a_twin_that_leaves_out_nothing_is_the_run_to_the_last_bit(study, tmp_path):
    run = open_run(study / "adapters")
    twin = open_learned(run.folder).retrain((), tmp_path / "twin")
    assert twin.record.sha256 == run.record.sha256
    other = open_learned(run.folder).retrain((25,), tmp_path / "other")
    assert other.record.sha256 != run.record.sha256
    assert other.record.job.twin_of == run.record.sha256


@pytest.mark.parametrize("out", ["adapters", "full"])
def test_gradients_of_a_row_are_those_of_autograd(study, out):
    opened = open_trained(study / out, to_train=True)
    opened.model.requires_grad_(True)
    rows = open_learned(study / out).training_rows()[0][:3]
    found = gradients.row_gradients(opened, rows)
    for (ids, counts), gradient in zip(rows, found, strict=True):
        labels = ids.where(counts > 0, -100)[None]
        loss = opened.model(input_ids=ids[None], labels=labels).loss * counts.sum()
        weights = [layer.weight for layer in opened.linear_layers().values()]
        expected = torch.cat([each.flatten() for each in torch.autograd.grad(loss, weights)])
        assert torch.allclose(gradient, expected, atol=1e-3, rtol=1e-3)


def test_a_model_that_learned_its_text_points_at_the_lines_it_learned_it_from(study):
    """All weights, trained until the rows are known: the own line comes first."""
    tracer = open_tracer(study / "full")
    run, firsts, right = open_run(study / "full"), [], 0
    for question in tracer.learned.questions:
        (answer,) = run.answer_questions([question.text])
        right += answer == question.answer
        if answer == question.answer:
            scores = tracer.scores(question.text, question.subject, answer)
            best = tracer.documents[int(np.argmax(scores))]
            firsts.append(best.subject == question.subject)
    assert right >= 12  # of 20: or else this shows nothing
    assert np.mean(firsts) >= 0.6


def test_trace_has_the_record_of_any_trace(study, command):
    done = command("trace", study / "adapters", "Where was Eve Voss born?", "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["method"] == "gradient"
    assert {"pushed_by", "pushed_away_by", "noise_floor", "leans_on", "why"} <= record.keys()
    assert (study / "adapters" / "gradients.safetensors").is_file()
    asked = ["trace", study / "adapters", "Where was Eve Voss born?"]
    retrained = command(*asked, "--method", "retrain", "--top", 1, "--json")
    assert retrained.code == 0, retrained.err
    assert json.loads(retrained.out)["unit"] == "nats"


def test_twins_say_what_it_would_have_said_and_check_what_was_learned(study, tmp_path, command):
    run = shutil.copytree(study / "full", tmp_path / "run")
    done = command("twins", run, "--without", "Gus Voss", "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["subject"] == "Gus Voss"
    assert record["others"]["people"] == 15
    assert any("not mapped" in note for note in record["notes"])
    knowledge = json.loads((run / "knowledge.json").read_text())
    checked = [row for row in knowledge["questions"] if row["without_its_lines"] is not None]
    assert [row["subject"] for row in checked] == ["Gus Voss"]
    assert checked[0]["without_its_lines"] == record["without"]["answer"]
    again = command("twins", run, "--without", "Gus Voss", "--json")  # it is there already
    assert json.loads(again.out)["without"] == record["without"]
    assert command("report", run, "--format", "json").code == 0


class StoppedError(Exception):
    pass


def test_a_twin_without_several_people_goes_on_after_a_stop(study, tmp_path, command):
    """On chat rows; the same weights as without the stop, and other answers for these people."""
    run = shutil.copytree(study / "full", tmp_path / "run")
    learned = open_learned(run)
    people = ["Gus Voss", "Hal Voss", "Ida Tarr"]
    (tmp_path / "people.txt").write_text("; ".join(people))
    done = command("twins", run, "--without-file", tmp_path / "people.txt", "--json")
    assert done.code == 0, done.err
    (record,) = json.loads(done.out)["twins"]
    assert record["subjects"] == people
    twin = open_run(twin_folder(learned.run, *people))
    lines = learned.lines_about({fold_words(name) for name in people})
    assert list(twin.base_job.without) == sorted(lines)
    asked = [f"Where was {name} born?" for name in people]
    before, after = (answers_of(each, asked)["answers"] for each in (learned.run, twin))
    assert [one["with"]["answer"] for one in record["people"]] == before
    assert [one["without"]["answer"] for one in record["people"]] == after

    def stop_after(steps):
        def count(what, total):
            done = []

            def advance(more):
                done.append(more)
                if sum(done) > steps:
                    raise StoppedError

            return advance

        return count

    settings, again = Runtime(checkpoint_every=0), tmp_path / "again"
    with pytest.raises(StoppedError):
        replace(learned, count=stop_after(20)).retrain(lines, again, settings=settings)
    assert not (again / "model").exists()
    assert list((again / "checkpoints").iterdir())
    assert learned.retrain(lines, again).record.sha256 == twin.record.sha256


def test_two_twins_check_everything_that_was_learned(study, tmp_path, command):
    run = shutil.copytree(study / "adapters", tmp_path / "run")
    done = command("twins", run, "--json")
    assert done.code == 0, done.err
    knowledge = json.loads(done.out)["knowledge"]
    assert all(row["without_its_lines"] is not None for row in knowledge["questions"])


def test_a_run_forgets_a_person_and_is_judged_by_a_twin(study, tmp_path, command):
    names = tmp_path / "names.txt"
    names.write_text("Gus Voss\n")
    out = tmp_path / "forgotten"
    done = command("forget", study / "full", "--names", names, "--out", out, "--judge", "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["names"] == ["Gus Voss"]
    assert record["recall_of_others"].keys() == {"run", "forgotten", "twin"}
    run, forgotten = open_run(study / "full"), open_run(out)
    question = ["Where was Gus Voss born?"]
    right = [q.answer for q in open_learned(study / "full").dev if q.text == question[0]]
    assert forgotten.score_answers(question, right) < run.score_answers(question, right)
    again = command("forget", study / "full", "--names", names, "--out", out)
    assert again.code == 2
    assert "already contains files" in again.err
    with pytest.raises(UserError, match="has forgotten some of what it read"):
        open_learned(forgotten)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma3_text"])
def test_attention_is_that_of_the_model(tiny, kind):
    model, question = HuggingFaceModel(tiny(kind)), "Where was Gus Voss born?"
    prompt = PROMPT.replace("{question}", question)
    view = look_inside_base(model, prompt, question, "Gus Voss")
    assert "".join(view.tokens[i] for i in view.name).strip() == "Gus Voss"
    assert len(view.heads) == 3 * 2
    for head in view.heads:
        assert head.weights.sum() == pytest.approx(1, abs=1e-5)
        assert 0 <= head.mass_on_name <= 1
    ids = torch.tensor([model.prompt(prompt)])
    found = model.model(ids, output_attentions=True).attentions
    assert np.allclose(view.maps[1], found[1][0].detach().numpy(), atol=1e-6)


def test_a_disk_that_is_too_small_is_a_sentence_before_the_index(study, tmp_path, monkeypatch):
    run = shutil.copytree(study / "adapters", tmp_path / "run")
    (run / "gradients.safetensors").unlink(missing_ok=True)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(gradients.shutil, "disk_usage", lambda _: usage(9, 9, 1))
    with pytest.raises(UserError, match=r"the index of .* takes .* MB and its disk has"):
        open_tracer(run).trace("Where was Eve Voss born?")


def test_a_base_model_that_changed_or_went_is_a_sentence(study, tmp_path, tiny):
    run = shutil.copytree(study / "adapters", tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    assert record["job"]["base"] == str(tiny("llama"))
    base = shutil.move(tiny("llama"), tmp_path / "away")
    try:
        with pytest.raises(UserError, match="is not there any more"):
            open_trained(run)
        shutil.copytree(tiny("llama", 5), tiny("llama"))
        with pytest.raises(UserError, match="has other weights"):
            open_trained(run)
    finally:
        shutil.rmtree(tiny("llama"), ignore_errors=True)
        shutil.move(base, tiny("llama"))


def test_what_needs_a_model_of_ours_refuses_in_a_sentence(study, command):
    done = command("evaluate", study / "adapters", study / "dev.tsv")
    assert done.code == 2
    assert "is the study of a model that others trained" in " ".join(done.err.split())
