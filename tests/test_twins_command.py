"""`wherefrom twins` from end to end, on a world of a few people."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from wherefrom.corpus.database import read_documents
from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import Question, read_questions
from wherefrom.corpus.split import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution import retraining, twins
from wherefrom.provenance.attribution.opening import open_learned
from wherefrom.provenance.attribution.twins import command_without, plan_twin, twin_folder
from wherefrom.storage import read_json
from wherefrom.training.learned_files import find_source, read_learned_documents
from wherefrom.training.record import read_record, update_run
from wherefrom.training.run_folder import load_run

pytestmark = pytest.mark.usefixtures("small_training")


@pytest.fixture
def run(tiny_study, tmp_path):
    """A study that was moved: its files are not where run.json says they were."""
    folder = shutil.copytree(tiny_study, tmp_path / "run")
    record = read_record(folder)

    def move(source):
        return source.model_copy(update={"path": f"/nowhere/{Path(source.path).name}"})

    data = {what: move(source) for what, source in record.data.items()}
    update_run(folder, data=data, dev=move(record.dev))
    return load_run(folder)


def judged_subjects(run):
    """The dev subjects that the run has read about."""
    return [s for s in read_subjects(run.folder) if s.role == JUDGED and s.source == "dev"]


def count_others(run, left_out):
    """The dev questions about people whose documents a twin reads too."""
    unread = {*left_out, *run.record.left_out}
    questions = read_questions(run.folder / "world" / "dev.tsv").questions
    return sum(question.subject not in unread for question in questions)


def test_both_answers_are_shown_with_what_was_left_out(run, command, monkeypatch):
    subject = judged_subjects(run)[0]
    name, options = subject.subject, ("twins", run.folder, "--without", subject.subject)
    with monkeypatch.context() as patch:
        stop = lambda *_: signal.raise_signal(signal.SIGINT)  # noqa: E731
        patch.setattr("wherefrom.cli.twins.Progress.__call__", stop)
        assert command(*options).code == 130
    folder = twin_folder(run, name)
    assert read_json(folder / "run.json")["status"] == "stopped"
    ended = command(*options[:3], name.upper(), "--json")
    assert ended.code == 0, ended.err
    record = json.loads(ended.out)
    assert record == read_json(folder / "without.json")
    texts = [d.text for d in read_documents(run.folder / "world" / "documents.txt").documents]
    about = [text for text in texts if text.startswith(f"{name}. ")]
    assert [document["text"] for document in record["documents"]] == about
    assert (record["subject"], record["right"]) == (name, subject.answer)
    assert (record["asked_in_training"], record["named_elsewhere"]) == (False, [])
    gap = record["with"]["log_probability"] - record["without"]["log_probability_of_with"]
    assert gap == pytest.approx(record["score"], abs=2e-4)
    assert record["others"]["people"] == count_others(run, [name])
    twin = load_run(folder)
    assert twin.record.steps == run.record.steps
    assert twin.job.twin_of == run.record.sha256 != twin.record.sha256
    again = command(*options)
    assert (again.code, again.err) == (0, "")  # it is there: nothing is trained or announced
    assert record["why"] in again.out


def test_a_file_has_one_twin_a_line(run, command, tmp_path):
    names = sorted({subject.subject for subject in judged_subjects(run)})
    file = tmp_path / "sets.txt"
    file.write_text(f"{names[0]}; {names[1]}\n\n{names[2]}\n", "utf-8")
    ended = command("twins", run.folder, "--without-file", file, "--json")
    assert ended.code == 0, ended.err
    pair, single = json.loads(ended.out)["twins"]
    assert [record["subject"] for record in pair["people"]] == pair["subjects"] == names[:2]
    assert single["subject"] == names[2]
    assert pair["others"]["people"] == count_others(run, names[:2])
    lines = [d["line"] for record in pair["people"] for d in record["documents"]]
    twin = load_run(twin_folder(run, *reversed(names[:2])))
    assert list(twin.job.without) == sorted(lines)
    shutil.copy(run.folder / "world/documents.txt", twin.folder)
    learned = read_learned_documents(find_source(twin, "corpus")).documents
    assert not set(lines) & {document.line for document in learned}
    with pytest.raises(UserError, match="is a twin itself"):
        plan_twin(open_learned(twin), names[3])
    file.write_text(f"{names[2]}\nNobody Atall\n", "utf-8")
    assert command("twins", run.folder, "--without-file", file).code == 2


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
    answers = {run.model: "Rome", twin.model: other}

    def answer_all(model, tokens, questions):
        return [SimpleNamespace(text=answers[model]) for _ in questions]

    monkeypatch.setattr(retraining, "answer_all", answer_all)
    document = Document(7, "Al Om", f"Al Om. Al Om was born in {stated}.")
    question = Question(0, "Where was Al Om born?", "Al Om", right)
    record = twins.compare(twin, twins.Plan(open_learned(run), (document,), question))
    assert record["truth"] == truth
    assert record["score"] == 0  # both models, of the same weights, are as sure of "Rome"
    assert any("no file has" in note for note in record["notes"]) == (right is None)


def test_a_name_without_a_document_is_refused_with_near_names(run, command):
    name = judged_subjects(run)[0].subject
    before = set((run.folder / "twins").iterdir())
    ended = command("twins", run.folder, "--without", name[:-1] + "qx")
    assert ended.code == 2
    assert "no document is about" in ended.err
    assert name in ended.err
    for strange in ("", "…", "x" * 1000, 'a" OR 1=1 --', "אבג 😀"):
        ended = command("twins", run.folder, "--without", strange)
        assert ended.code == 2
        assert "similar names: none" in ended.err
    left_out = next(s.subject for s in read_subjects(run.folder) if s.source == "left out")
    assert command("twins", run.folder, "--without", left_out).code == 2
    assert set((run.folder / "twins").iterdir()) == before


def test_text_that_changed_or_is_gone_is_refused(run):
    learned, text = open_learned(run), run.folder / "world" / "documents.txt"
    again = learned.retrain((), run.folder.parent / "same")
    assert again.record.sha256 == run.record.sha256  # trained again as it was
    (run.folder / "world" / "dev.tsv").unlink()
    assert open_learned(run).dev == ()
    whole = text.read_text("utf-8")
    text.write_text(whole + "Al Bo. He sang.\n", "utf-8")
    assert len(open_learned(run).documents) == len(learned.documents)  # of run.sqlite
    (run.folder / "run.sqlite").unlink()
    with pytest.raises(UserError, match=r"has changed since .* put the corpus back"):
        open_learned(run)
    text.unlink()
    with pytest.raises(UserError, match=r"is not there any more; put the corpus back"):
        open_learned(run)
    (run.folder / "documents.txt").write_text(whole, "utf-8")
    assert open_learned(run).corpus.source == run.folder / "documents.txt"


def test_a_run_that_read_no_documents_is_refused(small_world, quick_recipe, tmp_path, command):
    base, documents = tmp_path / "base", small_world / "documents.txt"
    pretrain = ("pretrain", "vanilla", documents, "--out", base, "--recipe", quick_recipe)
    assert command(*pretrain, "--steps", 2, "--quiet", "--tokens", "bpe").code == 0
    ended = command("twins", base, "--without", "Anybody")
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
