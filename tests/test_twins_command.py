"""`wherefrom twins` from end to end, on a world of a few people."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from wherefrom.corpus import batches
from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.subjects import read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.cross_pretraining import cross_pretrain
from wherefrom.provenance.attribution.leave_one_out import plan, read_what_it_learned, twin_folder
from wherefrom.storage import sha256_of
from wherefrom.training.jobs import retrain, run_training
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import Run, load_run, update_run
from wherefrom.training.settings import Settings


@contextmanager
def small_and_slow() -> Iterator[None]:
    """Few examples a pool, and one thread, so that sums are equal to the last bit."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "POOL", 64)
        yield


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with small_and_slow():
        yield


@pytest.fixture(scope="module")
def learned(
    tmp_path_factory: pytest.TempPathFactory, small_world: Path, quick_recipe: Path
) -> Path:
    """A run as a study leaves it, as far as a twin cares; tests copy it."""
    out = tmp_path_factory.mktemp("learned") / "run"
    settings = Settings(recipe=load_recipe(str(quick_recipe)), budget=Budget(steps=20), seed=1)
    dev = read_questions(small_world / "dev.tsv")
    unseen = read_questions(small_world / "unseen.tsv")
    job = settings.job(
        out,
        kind="study",
        phases=settings.budget.divide(settings.recipe.phases),
        corpus=read_documents(small_world / "documents.txt"),
        questions=read_questions(small_world / "train.tsv"),
        letters_from=[q.text for each in (dev, unseen) for q in each.questions],
    )
    with small_and_slow():
        run_training(job, settings)
    update_run(out, dev={"path": str(dev.path), "sha256": dev.sha256})
    return out


@pytest.fixture
def run(learned: Path, tmp_path: Path) -> Run:
    return load_run(shutil.copytree(learned, tmp_path / "run"))


def dev_person(world: Path) -> tuple[str, str]:
    question = read_questions(world / "dev.tsv").questions[0]
    assert question.answer is not None
    return question.subject, question.answer


class TestWithoutOnePerson:
    def test_both_answers_are_shown_with_what_was_left_out(
        self, run: Run, small_world: Path, command: Any
    ) -> None:
        name, place = dev_person(small_world)
        ended = command("twins", run.folder, "--without", name.upper(), "--json")
        assert ended.code == 0, ended.err
        assert "training again without the" in ended.err
        assert f"about {name}: 20 steps, which took the run" in ended.err
        record = json.loads(ended.out)
        folder = twin_folder(run, name)
        assert folder.parent == run.folder / "twins"
        assert record == json.loads((folder / "without.json").read_text("utf-8"))
        texts = [d.text for d in read_documents(small_world / "documents.txt").documents]
        own = [text for text in texts if text.startswith(f"{name}. ")]
        assert [document["text"] for document in record["documents"]] == own
        assert all(texts[d["line"] - 1] == d["text"] for d in record["documents"])
        assert (record["subject"], record["right"]) == (name, place)
        assert record["asked_in_training"] is False
        assert record["named_elsewhere"] == []
        assert record["truth"] in ("remembered", "right anyway", "wrong though read")
        assert record["with"]["log_probability"] - record["without"][
            "log_probability_of_with"
        ] == pytest.approx(record["score"], abs=2e-4)
        assert (
            record["others"]["people"] == len(read_questions(small_world / "dev.tsv").questions) - 1
        )
        twin = load_run(folder)
        assert twin.info["steps"] == run.info["steps"]
        assert twin.info["job"]["twin_of"] == run.info["sha256"]
        assert twin.info["sha256"] != run.info["sha256"]

        again = command("twins", run.folder, "--without", name)
        assert again.code == 0
        assert again.err == ""  # it is there: nothing is trained, nothing announced
        assert name in again.out
        assert "never having read it" in again.out
        assert record["why"] in again.out

    def test_a_stopped_twin_is_resumed(
        self, run: Run, small_world: Path, command: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name, _ = dev_person(small_world)
        with monkeypatch.context() as patch:
            patch.setattr(
                "wherefrom.cli.twins.TrainingProgress.__call__",
                lambda *_: signal.raise_signal(signal.SIGINT),
            )
            assert command("twins", run.folder, "--without", name).code == 130
        ended = command("twins", run.folder, "--without", name)
        assert ended.code == 2
        assert "add --resume" in ended.err
        assert command("twins", run.folder, "--without", name, "--resume").code == 0

    def test_somebody_without_a_document_is_refused_with_near_names(
        self, run: Run, small_world: Path, command: Any
    ) -> None:
        name, _ = dev_person(small_world)
        ended = command("twins", run.folder, "--without", name[:-1] + "qx")
        assert ended.code == 2
        assert "no document is about" in ended.err
        assert f'"{name}"' in ended.err
        for strange in ("", "…", "x" * 1000, 'a" OR 1=1 --', "אבג 😀"):
            ended = command("twins", run.folder, "--without", strange)
            assert ended.code == 2
            assert "no name in the corpus is near it" in ended.err
        assert not (run.folder / "twins").exists()

    @pytest.mark.parametrize("option", [("--minutes", 1), ("--seed", 3), ("--out", "x")])
    def test_an_option_that_would_change_the_training_is_refused(
        self, run: Run, command: Any, option: tuple[str, object]
    ) -> None:
        ended = command("twins", run.folder, "--without", "Ann", *option)
        assert ended.code == 2
        assert f"{option[0]} cannot be given with --without" in ended.err

    def test_text_that_changed_since_is_refused(
        self, run: Run, small_world: Path, tmp_path: Path
    ) -> None:
        moved = tmp_path / "documents.txt"
        data = run.info["data"]
        changed = Run(
            run.folder,
            run.model,
            run.tokens,
            {**run.info, "data": {**data, "corpus": {**data["corpus"], "path": str(moved)}}},
        )
        with pytest.raises(UserError, match="is not there; put it back"):
            read_what_it_learned(changed)
        moved.write_text((small_world / "documents.txt").read_text("utf-8") + "Al Bo. He sang.\n")
        with pytest.raises(UserError, match="has changed since"):
            read_what_it_learned(changed)
        shutil.copy(small_world / "documents.txt", moved)
        assert plan(changed, dev_person(small_world)[0]).learned.corpus.path == moved

    def test_a_run_that_read_no_documents_is_refused(
        self, small_world: Path, quick_recipe: Path, tmp_path: Path, command: Any
    ) -> None:
        base, tuned = tmp_path / "base", tmp_path / "tuned"
        options = ("--recipe", quick_recipe, "--steps", 2, "--quiet", "--tokens", "bpe")
        documents = small_world / "documents.txt"
        assert command("pretrain", "vanilla", documents, "--out", base, *options).code == 0
        finetune = ("finetune", base, small_world / "train.tsv", "--out", tuned, *options[:-2])
        assert command(*finetune).code == 0
        for folder in (base, tuned):
            ended = command("twins", folder, "--without", dev_person(small_world)[0])
            assert ended.code == 2
            assert "did not learn documents and questions in one training" in ended.err


def cross(world: Path, recipe: Path, out: Path, *, resume: bool = False, **more: Any) -> Any:
    settings = Settings(
        recipe=load_recipe(str(recipe)), budget=Budget(steps=20), seed=2, resume=resume
    )
    files = tuple(world / name for name in ("documents.txt", "train.tsv", "dev.tsv"))
    return cross_pretrain(files, settings, out, set_aside=0.5, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def crossed(
    tmp_path_factory: pytest.TempPathFactory, small_world: Path, quick_recipe: Path
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("crossed") / "twins"
    with small_and_slow():
        return out, cross(small_world, quick_recipe, out)


class TestCrossing:
    def test_each_judged_person_is_read_by_one_model_alone(
        self, crossed: tuple[Path, dict[str, Any]], small_world: Path
    ) -> None:
        out, record = crossed
        assert record == json.loads((out / "twins.json").read_text("utf-8"))
        dev = read_questions(small_world / "dev.tsv").questions
        assert [row["subject"] for row in record["judged"]] == [q.subject for q in dev]
        people = {name: read_subjects(out / name) for name in ("reader-a", "reader-b")}
        for one, other in zip(people["reader-a"], people["reader-b"], strict=True):
            assert one.subject == other.subject
            assert one.seen != other.seen
        sources = {
            name: {person.subject for person in group if person.seen}
            for name, group in people.items()
        }
        for row in record["judged"]:
            assert row["subject"] in sources[row["reader"]]
        learned = {q.subject for q in read_questions(small_world / "train.tsv").questions}
        aside = {p.subject for p in people["reader-a"] if p.role == "calibration"}
        assert aside < learned
        assert record["people"] == {"judged": len(dev), "calibration": len(aside)}
        runs = {name: load_run(out / name) for name in people}
        jobs = [run.info["job"] for run in runs.values()]
        same = {key for key in jobs[0] if jobs[0][key] == jobs[1][key]}
        assert set(jobs[0]) - same == {"documents"}  # trained alike but for one thing
        assert runs["reader-a"].tokens.to_json() == runs["reader-b"].tokens.to_json()

    def test_what_is_counted_is_what_was_said(self, crossed: tuple[Path, dict[str, Any]]) -> None:
        _, record = crossed
        judged = record["judged"]
        for row in judged:
            right = row["with"]["answer"].strip() == row["right"]
            lucky = row["without"]["answer"].strip() == row["right"]
            assert (row["truth"] == "remembered") == (right and not lucky)
            assert row["without"]["verdict"] == "made up"  # its own evidence lacks the person
            gap = row["with"]["log_probability_of_with"] - row["without"]["log_probability_of_with"]
            assert row["score"] == pytest.approx(gap, abs=2e-4)
            assert row["with"]["log_probability"] == row["with"]["log_probability_of_with"]
        for table in (record["verdicts"], record["internal"]):
            assert sum(sum(row.values()) for row in table.values()) == 2 * len(judged)
        assert sum(record["truth"]["with"].values()) == len(judged)
        reads = {reader["folder"]: reader["read"]["total"] for reader in record["readers"]}
        assert sum(reads.values()) == len(judged)
        assert set(record["agreement"]) >= {
            "internal confidence",
            "checked confidence",
            "verdict remembered",
            "greedy likelihood",
        }

    def test_resuming_trains_nothing_and_says_the_same(
        self, crossed: tuple[Path, dict[str, Any]], small_world: Path, quick_recipe: Path
    ) -> None:
        out, record = crossed
        files = [*out.glob("reader-*/metrics.jsonl"), *out.glob("reader-*/calibration.json")]
        before = {path: path.stat().st_mtime_ns for path in files}
        assert len(before) == 4
        with pytest.raises(UserError, match="already holds twins"):
            cross(small_world, quick_recipe, out)
        assert cross(small_world, quick_recipe, out, resume=True) == record
        assert {path: path.stat().st_mtime_ns for path in before} == before

    def test_after_ctrl_c_it_goes_on_to_the_same_twins(
        self,
        crossed: tuple[Path, dict[str, Any]],
        small_world: Path,
        quick_recipe: Path,
        tmp_path: Path,
    ) -> None:
        out, record = crossed
        told: list[int] = []

        def stop(*_: object) -> None:
            told.append(1)
            if len(told) == 5:
                signal.raise_signal(signal.SIGINT)

        parts = tmp_path / "twins"
        with pytest.raises(KeyboardInterrupt):
            cross(small_world, quick_recipe, parts, observe=stop)
        assert not (parts / "twins.json").exists()
        again = cross(small_world, quick_recipe, parts, resume=True)
        assert again["judged"] == record["judged"]
        for name in ("reader-a", "reader-b"):
            one, other = (folder / name / "model.safetensors" for folder in (out, parts))
            assert sha256_of(one) == sha256_of(other)

    def test_a_run_that_people_were_left_out_of_is_trained_again_as_it_was(
        self, crossed: tuple[Path, dict[str, Any]], tmp_path: Path
    ) -> None:
        run = load_run(crossed[0] / "reader-a")
        learned = read_what_it_learned(run)
        people = read_subjects(run.folder)
        held_back = {person.subject for person in people}
        assert not held_back & {q.subject for q in learned.questions.questions}
        unread = {person.subject for person in people if not person.seen}
        assert not unread & {d.subject for d in learned.corpus.documents}
        documents, questions = learned.corpus.documents, learned.questions.questions
        twin = retrain(run, documents, questions, tmp_path / "twin", instead_of=documents)
        assert twin.info["sha256"] == run.info["sha256"]
        with pytest.raises(UserError, match="no document is about"):
            plan(run, min(unread))
        info = {**run.info, "job": {**run.info["job"], "questions": "other"}}
        with pytest.raises(UserError, match="cannot be told any more"):
            read_what_it_learned(Run(run.folder, run.model, run.tokens, info))

    def test_the_command_takes_files_or_the_embedded_world(
        self, quick_recipe: Path, tmp_path: Path, small_world: Path, command: Any
    ) -> None:
        base = ("--recipe", quick_recipe, "--steps", 4, "--set-aside", 0.5, "--quiet")
        out = tmp_path / "twins"
        ended = command("twins", *base, "--people", 40, "--out", out)
        assert ended.code == 0, ended.err
        for expected in ("verdict against truth", "AUROC", "reader-a: recall", "twins.json"):
            assert expected in ended.out
        assert command("twins", *base, "--people", 40, "--out", out).code == 2
        ended = command("twins", small_world / "documents.txt", "--out", tmp_path / "x")
        assert ended.code == 2
        assert "it got 1 path" in ended.err
        assert command("twins", *base).code == 2
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.txt").write_text("mine")
        ended = command("twins", *base, "--out", tmp_path / "mine")
        assert ended.code == 2
        assert "holds thesis.txt, which is not of twins" in ended.err
        assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
