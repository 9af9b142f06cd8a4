"""The newest run, the files that a run learned from, and checkpoints that come back whole."""

from __future__ import annotations

import resource
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training_samples import make_model, same_weights

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import question_rows, read_questions
from wherefrom.corpus.split import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.storage import digest_of
from wherefrom.training import checkpoints
from wherefrom.training.checkpoints import TrainingState, load_checkpoint, save_checkpoint
from wherefrom.training.learned_files import (
    find_source,
    read_learned_documents,
    read_learned_questions,
)
from wherefrom.training.record import (
    BaseJobRecord,
    RunRecord,
    SourceRecord,
    read_record,
    update_run,
    write_record,
)
from wherefrom.training.run_folder import (
    Run,
    check_folder,
    find_newest_run,
    is_run,
    load_run,
    lock_run,
)


def make(folder: Path, started: str, status: str = "finished", *, weights: bool = True) -> Path:
    folder.mkdir(parents=True)
    texts = {"base": "m", "weights": "w", "corpus": "c", "documents": "d", "questions": "q"}
    wording = {"prompt": "p", "wording": "plain", "rank": None, "alpha": None}
    steps = {"rate": 1e-3, "warmup_steps": 0, "clip": 1.0, "batch": 1, "steps": 1}
    job = BaseJobRecord(**texts, **wording, **steps, risk=0.05, seed=0)
    write_record(folder, RunRecord(kind="base", status=status, started=started, job=job))
    if weights:
        (folder / "model.safetensors").write_bytes(b"")
    return folder


def test_the_finished_run_that_was_started_last_is_taken(tmp_path):
    make(tmp_path / "b" / "deep", "2026-03-02T00:00:00+00:00")
    newest = make(tmp_path / "a", "2026-03-03T00:00:00+00:00")
    make(newest / "twins" / "scratch", "2026-03-04T00:00:00+00:00")
    make(tmp_path / "c", "2026-03-05T00:00:00+00:00", "training")
    make(tmp_path / "d", "2026-03-05T00:00:00+00:00", weights=False)
    make(tmp_path / "e", "2026-03-05T00:00:00+00:00")
    (tmp_path / "e" / "run.json").write_text("{", "utf-8")
    assert find_newest_run(tmp_path) == newest
    make(tmp_path / "b" / "later", "2026-03-04T00:00:00+00:00")
    assert find_newest_run(tmp_path) == tmp_path / "b" / "later"


def test_no_run_is_one_sentence_and_a_question_is_no_run(tmp_path):
    make(tmp_path / "c", "2026-03-05T00:00:00+00:00", "stopped")
    for below in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match=f"there is no finished run below {below}; name the"):
            find_newest_run(below)
    assert is_run(tmp_path / "c")
    for no_run in (tmp_path, "", "Where was Ada Moe born?", "x" * 10_000, "a\0b"):
        assert not is_run(no_run)


class TestWhatARunLearnedFrom:
    @pytest.fixture
    def moved(self, tiny_study, tmp_path):
        """A copy whose record names places that are not there any more."""
        folder = shutil.copytree(tiny_study, tmp_path / "moved")
        data = {}
        for what, source in read_record(folder).data.items():
            path = source.path.replace(str(tiny_study), "/gone")
            data[what] = source.model_copy(update={"path": path})
        update_run(folder, data=data)
        return folder

    def corpus_of(self, folder: Path) -> Path:
        source = find_source(load_run(folder), "corpus")
        assert source is not None
        return source.locate()

    def test_a_moved_run_reads_again_what_it_learned(self, moved):
        run = load_run(moved)
        corpus, questions = find_source(run, "corpus"), find_source(run, "questions")
        assert corpus is not None
        assert questions is not None
        train = moved / "world" / "train.tsv"
        shutil.move(train, moved / "elsewhere.tsv")  # the database has the questions
        learned = read_learned_questions(questions).questions
        shutil.move(moved / "elsewhere.tsv", train)
        aside = {fold_words(s.subject) for s in read_subjects(moved) if s.role != JUDGED}
        saved = read_learned_documents(corpus)
        assert saved.file == moved / "run.sqlite"
        assert saved.documents_sha256 == run.job.documents
        (moved / "run.sqlite").unlink()
        read_again = read_learned_documents(corpus)
        from_file = read_learned_questions(questions).questions
        assert [replace(question, line=0) for question in from_file] == list(learned)
        assert list(read_again.documents) == list(saved.documents)
        assert digest_of(question_rows(learned)) == run.job.questions
        assert aside
        assert not aside & {fold_words(question.subject) for question in learned}
        assert len(learned) < len(read_questions(moved / "world" / "train.tsv").questions)
        assert find_source(load_run(moved / "twins" / "scratch"), "corpus") is None

    def test_a_text_is_found_beside_the_run_or_in_it_if_it_has_not_changed(self, moved):
        shutil.move(moved / "world", moved.parent / "text")
        text = moved.parent / "text" / "documents.txt"
        with pytest.raises(UserError, match="is not there any more; put the corpus back, or"):
            self.corpus_of(moved)
        data = read_record(moved).data
        beside = {"relative_path": "../text/documents.txt"}
        update_run(moved, data={**data, "corpus": data["corpus"].model_copy(update=beside)})
        assert self.corpus_of(moved) == text
        shutil.move(text, moved / "documents.txt")
        assert self.corpus_of(moved) == moved / "documents.txt"
        with open(moved / "documents.txt", "a") as file:
            file.write("Al Bo. Al Bo sang.\n")
        with pytest.raises(UserError, match=r"documents.txt has changed since .* learned from it"):
            self.corpus_of(moved)

    def test_a_parent_is_found_where_it_was_or_beside_the_run(self, moved):
        run = load_run(moved)
        parent = {"path": "/gone/study", "relative_path": "../moved", "sha256": run.record.sha256}

        def corpus_folder(**changes: str) -> Path:
            data = {"parent": SourceRecord(**{**parent, **changes})}
            record = run.record.model_copy(update={"data": data})
            child = Run(moved.parent / "child", run.model, run.tokens, record)
            source = find_source(child, "corpus")
            assert source is not None
            return source.folder

        assert corpus_folder() == moved
        with pytest.raises(UserError, match="has changed"):
            corpus_folder(sha256="0")
        with pytest.raises(UserError, match="not there any"):
            corpus_folder(relative_path="..")


def model_at(step: int) -> Decoder:
    model = make_model()
    torch.nn.init.constant_(model.head.weight, step)
    return model


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        (".safetensors", lambda content: content[:-100]),
        (".safetensors", lambda content: content[:-1] + bytes([content[-1] ^ 1])),  # still loads
        (".safetensors", None),
        (".json", None),
        (".json", lambda content: content[:40]),
        (".json", lambda content: b"[]\n"),
    ],
)
def test_two_are_kept_and_a_broken_newest_one_falls_back_to_the_one_before(
    tmp_path, ending, damage
):
    assert load_checkpoint(tmp_path / "nowhere") is None
    (tmp_path / ".step-000000005.safetensors.ab12").write_bytes(b"half")  # what a kill left
    (tmp_path / "step-000000005.safetensors").write_bytes(b"no record")
    for step in (10, 20, 30):
        save_checkpoint(tmp_path, TrainingState(total_steps=step), model_at(step))
    names = sorted(path.name for path in tmp_path.iterdir())
    stems = ("step-000000020", "step-000000030")
    assert names == [stem + end for stem in stems for end in (".json", ".safetensors")]
    broken = tmp_path / f"step-000000030{ending}"
    broken.unlink() if damage is None else broken.write_bytes(damage(broken.read_bytes()))
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.state.total_steps == 20
    model = make_model()
    checkpoint.restore_model(model)
    assert same_weights(model, model_at(20))
    for path in tmp_path.glob("step-000000020.*"):
        path.write_bytes(b"{}")
    assert load_checkpoint(tmp_path) is None


def test_a_folder_that_cannot_be_made_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "run", tmp_path / ("a" * 300)):
        with pytest.raises(UserError, match="cannot be made"):
            check_folder(folder, resume=False)
    check_folder(tmp_path / "new" / "run", resume=False)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_is_locked_on_a_full_disk_too(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # whatever is written is too much
    try:
        with lock_run(tmp_path), ThreadPoolExecutor(1) as apart:
            second = apart.submit(lock_run(tmp_path).__enter__)
            with pytest.raises(UserError, match="is in use by another process"):
                second.result()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("steps", [60, 300, 4000])
def test_wherever_a_training_ends_a_snapshot_of_about_a_third_of_it_is_kept(steps, tmp_path):
    for step in sorted(checkpoints.SNAPSHOT_STEPS):
        if step <= steps:
            checkpoints.save_snapshot(tmp_path, step, {"weight": torch.tensor([float(step)])})
            assert len(list((tmp_path / "snapshots").iterdir())) <= 7
    (name,) = checkpoints.choose_snapshot(tmp_path, steps)
    kept = load_file(tmp_path / name)["weight"].item()
    assert [path.stem for path in (tmp_path / "snapshots").iterdir()] == [f"{kept:.0f}"]
    assert 0.3 < kept / steps < 0.46
    assert checkpoints.choose_snapshot(tmp_path / "nowhere", steps) == ()
