"""`wherefrom twins` from end to end, on a world of a few people."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from wherefrom.corpus.documents import Document, read_documents
from wherefrom.corpus.questions import Question, read_questions
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution import retraining
from wherefrom.provenance.attribution.retraining import open_learned
from wherefrom.provenance.attribution.twins import (
    Plan,
    command_without,
    compare,
    plan_twin,
    twin_folder,
)
from wherefrom.storage import read_json, write_json
from wherefrom.training.loop import run_training
from wherefrom.training.run_folder import (
    find_source,
    load_run,
    read_learned_documents,
)
from wherefrom.training.settings import Runtime, twin_job

pytestmark = pytest.mark.usefixtures("small_training")


@pytest.fixture
def run(tiny_study, tmp_path):
    """A study that was moved: its files are not where run.json says they were."""
    folder = shutil.copytree(tiny_study, tmp_path / "run")
    info = read_json(folder / "run.json")
    for record in (*info["data"].values(), info["dev"]):
        record["path"] = f"/nowhere/{Path(record['path']).name}"
    write_json(folder / "run.json", info)
    return load_run(folder)


def read_about(run):
    """A dev subject that the run has read about."""
    return next(s for s in read_subjects(run.folder) if s.role == JUDGED and s.source == "dev")


def test_both_answers_are_shown_with_what_was_left_out(run, command):
    subject = read_about(run)
    name = subject.subject
    ended = command("twins", run.folder, "--without", name.upper(), "--json")
    assert ended.code == 0, ended.err
    assert f"about {name}: 20 steps, which took the run" in ended.err
    record = json.loads(ended.out)
    folder = twin_folder(run, name)
    assert folder.parent == run.folder / "twins"
    assert record == read_json(folder / "without.json")
    texts = [d.text for d in read_documents(run.folder / "world" / "documents.txt").documents]
    own = [text for text in texts if text.startswith(f"{name}. ")]
    assert [document["text"] for document in record["documents"]] == own
    assert all(texts[d["line"] - 1] == d["text"] for d in record["documents"])
    assert (record["subject"], record["right"]) == (name, subject.answer)
    assert record["asked_in_training"] is False
    assert record["named_elsewhere"] == []
    assert record["truth"] in ("remembered", "right anyway", "wrong though read")
    gap = record["with"]["log_probability"] - record["without"]["log_probability_of_with"]
    assert gap == pytest.approx(record["score"], abs=2e-4)
    asked = read_questions(run.folder / "world" / "dev.tsv").questions
    unread = {name, *run.info["left_out"]}
    others = [question for question in asked if question.subject not in unread]
    assert record["others"]["people"] == len(others)
    twin = load_run(folder)
    assert twin.info["steps"] == run.info["steps"]
    assert twin.info["job"]["twin_of"] == run.info["sha256"]
    assert twin.info["sha256"] != run.info["sha256"]

    again = command("twins", run.folder, "--without", name)
    assert again.code == 0
    assert again.err == ""  # it is there: nothing is trained, nothing announced
    assert "never having read it" in again.out
    assert record["why"] in again.out


def test_a_file_has_one_twin_a_line(run, command, tmp_path):
    people = read_subjects(run.folder)
    names = sorted({s.subject for s in people if s.role == JUDGED and s.source == "dev"})
    file = tmp_path / "sets.txt"
    file.write_text(f"{names[0]}; {names[1]}\n\n{names[2]}\n", "utf-8")
    ended = command("twins", run.folder, "--without-file", file, "--json")
    assert ended.code == 0, ended.err
    pair, single = json.loads(ended.out)["twins"]
    assert pair["subjects"] == names[:2]
    assert [record["subject"] for record in pair["people"]] == names[:2]
    assert single["subject"] == names[2]
    asked = read_questions(run.folder / "world" / "dev.tsv").questions
    for each, gone in ((pair, names[:2]), (single, names[2:3])):
        unread = {*gone, *run.info["left_out"]}
        assert each["others"]["people"] == sum(q.subject not in unread for q in asked)
    assert min(pair["noise_floor"], single["noise_floor"]) > 0
    lines = [d["line"] for record in pair["people"] for d in record["documents"]]
    twin = load_run(twin_folder(run, *reversed(names[:2])))
    assert twin.info["job"]["without"] == sorted(lines)
    shutil.copy(run.folder / "world/documents.txt", twin.folder)
    source = find_source(twin, "corpus")
    assert source is not None
    assert not set(lines) & {d.line for d in read_learned_documents(source).documents}
    with pytest.raises(UserError, match="is a twin itself"):
        plan_twin(twin, names[3])
    again = command("twins", run.folder, "--without-file", file)
    assert (again.code, again.err) == (0, "")  # finished twins are not trained again
    file.write_text(f"{names[2]}\nNobody Atall\n", "utf-8")
    assert command("twins", run.folder, "--without-file", file).code == 2


def test_a_stopped_twin_is_resumed(run, command, monkeypatch):
    name = read_about(run).subject
    with monkeypatch.context() as patch:
        patch.setattr(
            "wherefrom.cli.twins.Progress.__call__",
            lambda *_: signal.raise_signal(signal.SIGINT),
        )
        ended = command("twins", run.folder, "--without", name)
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.endswith("stopped; continue it by repeating the command.\n")
    assert read_json(twin_folder(run, name) / "run.json")["status"] == "stopped"
    ended = command("twins", run.folder, "--without", name)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("right", "stated", "other", "truth"),
    [
        (None, "Rome", "Oslo", "remembered"),  # no file asks: the only document decides
        (None, "Rome", "Rome", "right anyway"),
        (None, "Lima", "Oslo", "wrong though read"),
        ("Rome", "Lima", "Oslo", "remembered"),
        ("Lima", "Rome", "Oslo", "wrong though read"),
    ],
)
def test_a_line_that_states_the_answer_makes_it_right_where_no_file_asks(
    run, monkeypatch, right, stated, other, truth
):
    twin = load_run(run.folder)
    said = {run.model: "Rome", twin.model: other}
    answer = lambda model, tokens, asked: [SimpleNamespace(text=said[model]) for _ in asked]  # noqa: E731
    monkeypatch.setattr(retraining, "answer_all", answer)
    document = Document(7, "Al Om", f"Al Om. Al Om was born in {stated}.")
    question = Question(0, "Where was Al Om born?", "Al Om", right)
    record = compare(run, twin, Plan(open_learned(run), (document,), question))
    assert record["truth"] == truth
    assert record["score"] == 0  # both models, of the same weights, are as sure of "Rome"
    assert bool([note for note in record["notes"] if "no file has" in note]) == (right is None)


def test_a_name_without_a_document_is_refused_with_near_names(run, command):
    name = read_about(run).subject
    twins = set((run.folder / "twins").iterdir())
    ended = command("twins", run.folder, "--without", name[:-1] + "qx")
    assert ended.code == 2
    assert "no document is about" in ended.err
    assert name in ended.err
    for strange in ("", "…", "x" * 1000, 'a" OR 1=1 --', "אבג 😀"):
        ended = command("twins", run.folder, "--without", strange)
        assert ended.code == 2
        assert "near names: none" in ended.err
    gone = next(s for s in read_subjects(run.folder) if s.source == "left out")
    assert command("twins", run.folder, "--without", gone.subject).code == 2
    assert set((run.folder / "twins").iterdir()) == twins


def test_text_that_changed_or_is_gone_is_refused(run):
    name, text = read_about(run).subject, run.folder / "world" / "documents.txt"
    plan = plan_twin(run, name)
    out = run.folder.parent / "same"
    job = twin_job(run, plan.learned.documents, plan.learned.questions, out)
    again = run_training(job, Runtime())
    assert again.info["sha256"] == run.info["sha256"]  # trained again as it was
    (run.folder / "world" / "dev.tsv").unlink()
    assert plan_twin(run, name).learned.dev == ()
    whole = text.read_text("utf-8")
    text.write_text(whole + "Al Bo. He sang.\n", "utf-8")
    with pytest.raises(UserError, match=r"has changed since .* put the corpus back"):
        plan_twin(run, name)
    text.unlink()
    with pytest.raises(UserError, match=r"is not there any more; put the corpus back"):
        plan_twin(run, name)
    (run.folder / "documents.txt").write_text(whole, "utf-8")
    assert plan_twin(run, name).learned.corpus.path == run.folder / "documents.txt"


def test_a_run_that_read_no_documents_is_refused(small_world, quick_recipe, tmp_path, command):
    base, tuned = tmp_path / "base", tmp_path / "tuned"
    options = ("--recipe", quick_recipe, "--steps", 2, "--quiet", "--tokens", "bpe")
    documents = small_world / "documents.txt"
    assert command("pretrain", "vanilla", documents, "--out", base, *options).code == 0
    finetune = ("finetune", base, small_world / "train.tsv", "--out", tuned, *options[:-2])
    assert command(*finetune).code == 0
    for folder in (base, tuned):
        ended = command("twins", folder, "--without", "Anybody")
        assert ended.code == 2
        assert "did not learn documents and questions in one training" in ended.err


def test_the_command_that_is_suggested_resolves_from_here(tmp_path, monkeypatch):
    run, name = tmp_path / "my runs" / "study", "Ann O'Hara"
    monkeypatch.chdir(tmp_path)
    here = "wherefrom twins 'my runs/study' --without 'Ann O'\"'\"'Hara'"
    assert command_without(run, name) == here
    assert command_without(Path("my runs/study"), name) == here
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert f"'{run}'" in command_without(run, name)
