"""The main job from end to end, what it refuses, and how it goes on, on a world of a few people."""

from __future__ import annotations

import inspect
import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

import wherefrom
from wherefrom.corpus.database import Database, read_documents
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.split import CALIBRATION, JUDGED, read_subjects, split_subjects
from wherefrom.corpus.world import make_world, write_world
from wherefrom.errors import UserError
from wherefrom.provenance import after_training
from wherefrom.provenance.answers import read_dev_answers
from wherefrom.provenance.confidence.fit import load_confidence
from wherefrom.provenance.evidence import Evidence
from wherefrom.storage import format_json, read_json, sha256_of
from wherefrom.study import (
    MAX_STOPPING_QUESTIONS,
    StudyFiles,
    embedded_files,
    extract_stopping_questions,
    hold_out_stopping_questions,
    run_study,
)
from wherefrom.training.optim import Muon
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.record import keep_files, read_record, update_run
from wherefrom.training.run_folder import load_run
from wherefrom.training.settings import Settings

pytestmark = pytest.mark.usefixtures("small_training")
FILES = ("documents.txt", "train.tsv", "dev.tsv")
AFTER = ("run.sqlite", "calibration.json", "judgement.json")


def lines_of(path):
    text = path.read_text("utf-8")
    assert text.endswith("\n")
    return text.split("\n")[:-1]


def interrupt(*_, **__):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    signal.raise_signal(signal.SIGINT)


def test_a_study_compares_the_model_with_all_that_needs_no_reading(tiny_study):
    run = load_run(tiny_study)
    rows = {row["name"]: row for row in run.record.results}
    dev, unseen = (lines_of(tiny_study / "world" / f"{name}.tsv") for name in ("dev", "unseen"))
    left_out = set(run.record.left_out)
    stated = [line for line in dev if not line.endswith("\t-")]
    gone = sum(any(name in line for name in left_out) for line in stated)
    assert {name: (row["total"], row["seconds"] is None) for name, row in rows.items()} == {
        "majority": (len(stated), True),
        "by name": (len(stated), True),
        "reader": (len(stated), True),
        "questions only": (len(stated), False),
        "model": (len(stated) - gone, False),
        "left-out subjects": (gone, False),
        "unseen subjects": (len(unseen), False),
    }
    answers = read_dev_answers(tiny_study)
    assert answers.keys() == {"majority", "by name", "questions only", "model", "reader"}
    assert [row["question"] for row in answers["model"].values()] == [
        line.split("\t")[0] for line in dev
    ]
    correct = sum(row["answer"] == row["truth"] for row in answers["model"].values())
    assert correct == rows["model"]["correct"] + rows["left-out subjects"]["correct"]
    twin = load_run(tiny_study / "twins" / "scratch")
    assert twin.tokens.to_json() == run.tokens.to_json()
    assert twin.model.config == run.model.config
    assert twin.job.questions == run.job.questions
    assert run.record.data["questions"].questions < len(
        lines_of(tiny_study / "world" / "train.tsv")
    )


def test_run_json_holds_all_that_the_numbers_depend_on(tiny_study):
    info = read_json(tiny_study / "run.json")
    assert info["command"][:3] == ["wherefrom", "study", "--people"]
    assert info["job"]["seed"] == 2
    hashed = (info["data"]["corpus"], info["data"]["questions"], info["dev"])
    assert [each["sha256"] for each in hashed] == [
        sha256_of(tiny_study / "world" / name) for name in FILES
    ]
    assert info["sha256"] == sha256_of(tiny_study / "model.safetensors")
    assert {"wherefrom", "commit", "python", "torch"} <= info["versions"].keys()
    assert (info["status"], info["kind"], info["steps"]) == ("finished", "study", 20)
    assert info["templates"][0] == "Where was {subject} born?"


def test_a_finished_study_is_resumed_as_it_is_and_another_one_is_refused(
    tiny_study, tmp_path, quick_recipe, tiny_study_options, command
):
    out = shutil.copytree(tiny_study, tmp_path / "run")
    words = ("study", *tiny_study_options, "--recipe", quick_recipe, "--out", out)

    def contents():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = contents()
    for more, sentence in (
        ((), "already holds a run; add --resume"),
        (("--seed", 1, "--resume"), "holds another world than that of"),
        (("--people", 50, "--resume"), "holds another world than that of"),
        (("--steps", 5, "--resume"), "cannot be resumed"),
    ):
        ended = command(*words, *more)
        assert ended.code == 2
        assert sentence in ended.err
    assert contents() == before
    metrics = (out / "metrics.jsonl").stat().st_mtime_ns
    ended = command(*words, "--resume", "--json")
    result, info = json.loads(ended.out), read_json(tiny_study / "run.json")
    assert (ended.code, result["run"]) == (0, str(out))
    for key in ("results", "notes", "judgement"):
        assert result[key] == info[key]
    assert (out / "metrics.jsonl").stat().st_mtime_ns == metrics


def test_files_are_studied_until_recall_stops_growing_by_few_functions_and_resumed_as_they_were(
    tmp_path, quick_recipe, small_world, command, monkeypatch
):
    source, stacks, take_step = Path(wherefrom.__file__).parent, set(), Muon.step

    def step(self):
        frames = [frame for frame in inspect.stack(0) if source in Path(frame.filename).parents]
        stacks.add(tuple(frame.function for frame in reversed(frames)))
        take_step(self)

    monkeypatch.setattr(Muon, "step", step)
    recipe, out = tmp_path / "own.toml", tmp_path / "run"
    more = "most_epochs = 3\nfloor = 1.0\naverage = 0.2\nbatch_examples = 10\n"
    recipe.write_text(quick_recipe.read_text("utf-8").replace("batch_examples = 5\n", more))
    options = ("--recipe", recipe, "--set-aside", 0, "--tokens", "bpe", "--out", out)
    arguments = ("study", *(small_world / name for name in FILES), *options)
    ended = command(*arguments)
    assert ended.code == 0
    assert "documents, at most" in ended.err
    (stack,) = stacks
    assert stack[0] == "main"
    assert stack[-4:] == ("run_study", "run_training", "train", "take_step")
    assert len(stack) <= 7
    # so few subjects that none is held out: what was read off the text is asked
    recalls = [json.loads(line)["recall"] for line in lines_of(out / "metrics.jsonl")]
    assert recalls[0] is None
    assert recalls[-1] is not None
    ended = command(*arguments, "--resume", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    for name in ("majority", "by name", "questions only", "model"):
        assert name in ended.out
    assert "in no document: guesses" not in ended.out  # only the embedded world has such people
    assert ended.out.rstrip().endswith(f"run folder: {out}")
    assert command(*arguments, "--resume", "--steps", 9).code == 2


def test_what_only_people_left_out_are_told_of_is_in_no_vocabulary(tmp_path, quick_recipe):
    names = [f"Person {chr(65 + at)}{chr(97 + at)}" for at in range(26)]
    letters = [chr(0x4E00 + at) for at in range(26)]
    documents = [f"{n}. {n} came from Rome {x}." for n, x in zip(names, letters, strict=True)]
    rows = [f"Where was {name} born?\tRome" for name in names]
    for name, content in zip(FILES, (documents, rows[:16], rows[16:]), strict=True):
        (tmp_path / name).write_text("".join(line + "\n" for line in content), "utf-8")
    files = StudyFiles(*(tmp_path / name for name in FILES))
    settings = Settings(recipe=load_recipe(str(quick_recipe)), budget=Budget(steps=2))
    result = run_study(files, settings, tmp_path / "run", leave_out=0.5)
    left_out = set(read_json(tmp_path / "run" / "run.json")["left_out"])
    assert len(left_out) == 13
    for run in (result.run, load_run(tmp_path / "run" / "twins" / "scratch")):
        vocabulary = json.loads(run.tokens.to_json())["model"]["vocab"]
        known = {name for name, x in zip(names, letters, strict=True) if x in vocabulary}
        assert known == set(names) - left_out


def test_stopping_questions_are_neither_learned_nor_calibrate_nor_judge(tmp_path):
    place = write_world(make_world(700, 1), tmp_path / "world")
    corpus = read_documents(place / "documents.txt")
    train, dev = (read_questions(place / f"{name}.tsv") for name in ("train", "dev"))
    whole = split_subjects(corpus, train, dev, seed=3)
    split, stopping = hold_out_stopping_questions(whole, seed=3)
    asked = {question.subject for question in stopping}
    learned = {question.subject for question in split.train.questions}
    assert 10 <= len(asked) <= len(learned) / 19
    assert len(stopping) <= MAX_STOPPING_QUESTIONS
    assert not asked & learned
    assert not asked & {subject.subject for subject in split.subjects}
    silent = [q for q in whole.train.questions if q.subject in asked and q.is_silent]
    held_out = len(stopping) + len(silent)
    assert held_out + len(split.train.questions) == len(whole.train.questions)
    again, other = (hold_out_stopping_questions(whole, seed=seed)[1] for seed in (3, 4))
    assert again == stopping != other
    read_facts(split.corpus, split.train.questions)
    job = Settings(recipe=load_recipe("pointed")).job(
        tmp_path / "run", kind="study", phases=(), corpus=split.corpus, questions=split.train
    )
    assert 0.9 < job.stop_by(stopping).readable <= 1
    assert job.stop_by(extract_stopping_questions(split, seed=3)).readable == 1
    wrong = [replace(question, answer="nowhere") for question in stopping]
    assert job.stop_by(wrong).readable == 0


def test_a_changed_file_is_refused_while_only_the_twin_has_started(
    tmp_path, quick_recipe, small_world
):
    files = StudyFiles(*(Path(shutil.copy(small_world / name, tmp_path)) for name in FILES))
    settings = {"recipe": load_recipe(str(quick_recipe)), "budget": Budget(steps=12)}
    with pytest.raises(KeyboardInterrupt):
        run_study(files, Settings(**settings), tmp_path / "run", observe=interrupt)
    for path, more, sentence in (
        (files.train, "Where was Al Bo born?\tRome\n", "questions"),
        (files.corpus, "Al Bo. Al Bo sang.\n", "the text of its vocabulary changed"),
    ):
        content = path.read_text("utf-8")
        path.write_text(content + more, "utf-8")
        with pytest.raises(UserError, match=sentence):
            run_study(files, Settings(**settings, resume=True), tmp_path / "run")
        path.write_text(content, "utf-8")


def go_on(out, recipe, files=None, **changes):
    """Go on with a copy of `tiny_study`, by the options that it was made with."""
    files = files or embedded_files(out / "world", people=60, seed=2)
    loaded, options = load_recipe(str(recipe)), {"tokens": "bpe", "seed": 2, "resume": True}
    settings = Settings(recipe=loaded, budget=Budget(steps=20), **options)
    return run_study(files, settings, out, **{"set_aside": 0.3, "leave_out": 0.2, **changes})


class TestAfterTraining:
    """People, evidence, confidence and judgement: each kept if it is there, else made the same."""

    @pytest.fixture
    def run(self, tiny_study, tmp_path):
        return shutil.copytree(tiny_study, tmp_path / "run")

    def go_on_to_the_same(self, out, recipe, finished):
        again, info = go_on(out, recipe).to_dict(), read_json(finished / "run.json")
        assert [again[key] for key in ("results", "notes", "judgement")] == [
            info[key] for key in ("results", "notes", "judgement")
        ]
        for name in set(AFTER) - {"run.sqlite"}:
            assert (out / name).read_bytes() == (finished / name).read_bytes(), name

    def test_the_folder_holds_all_that_verdicts_need(self, tiny_study):
        people, info = read_subjects(tiny_study), read_json(tiny_study / "run.json")
        assert {CALIBRATION, JUDGED} <= {person.role for person in people}
        lines = lines_of(tiny_study / "world" / "documents.txt")
        kept = [line for line in lines if not line.startswith(tuple(info["left_out"]))]
        with Evidence(Database.open(tiny_study / "run.sqlite")) as evidence:
            assert (
                len(evidence.database.documents) == len(kept) == info["data"]["corpus"]["documents"]
            )
            for person in people:
                assert (evidence.count(person.subject).naming > 0) == person.seen
        confidence = load_confidence(load_run(tiny_study))
        assert confidence.weights_sha256 == sha256_of(tiny_study / "model.safetensors")
        judged = info["judgement"]["subjects"]
        assert judged["judged"] == sum(person.role == JUDGED for person in people)
        assert judged["unseen"] > 0
        assert set(confidence.notes) < set(info["notes"])

    def test_what_stops_left_unmade_or_broken_is_made_to_the_byte_and_else_nothing(
        self, run, quick_recipe, tiny_study, monkeypatch
    ):
        stages = ("write_subjects", "fit_confidence", "judge_run")
        for name in AFTER[:2]:
            content = (run / name).read_bytes()
            (run / name).write_bytes(content[: len(content) // 2] + b"\xff")
        (run / AFTER[2]).unlink()
        update_run(run, judgement=None)
        for stage in stages:
            with monkeypatch.context() as patch:
                patch.setattr(after_training, stage, interrupt)
                with pytest.raises(KeyboardInterrupt):
                    go_on(run, quick_recipe)
        self.go_on_to_the_same(run, quick_recipe, tiny_study)
        for stage in stages:
            monkeypatch.setattr(after_training, stage, interrupt)
        self.go_on_to_the_same(run, quick_recipe, tiny_study)

    def test_a_judgement_of_another_risk_or_of_other_weights_is_made_again(
        self, run, quick_recipe, tiny_study
    ):
        for key, value in (("risk", 0.3), ("weights_sha256", "other")):
            update_run(run, judgement={**read_record(run).judgement, key: value})
            self.go_on_to_the_same(run, quick_recipe, tiny_study)

    def test_a_confidence_of_other_people_is_fitted_again_and_takes_its_judgement_along(
        self, run, quick_recipe, tiny_study, monkeypatch
    ):
        calibration = read_json(run / "calibration.json")
        other = format_json({**calibration, "subjects_sha256": "0" * 64})
        keep_files(run, {"calibration.json": other})
        with monkeypatch.context() as patch:
            patch.setattr(after_training, "judge_run", interrupt)
            with pytest.raises(KeyboardInterrupt):
                go_on(run, quick_recipe)
        assert read_json(run / "run.json")["judgement"] is None
        self.go_on_to_the_same(run, quick_recipe, tiny_study)

    def test_other_unseen_people_are_judged_anew_and_other_shares_are_another_study(
        self, run, quick_recipe
    ):
        before = read_json(run / "run.json")["judgement"]["subjects"]
        rows = (run / "world" / "unseen.tsv").read_text("utf-8").splitlines(keepends=True)
        (run / "fewer.tsv").write_text("".join(rows[:1]), "utf-8")
        files = StudyFiles(*(run / "world" / name for name in FILES), run / "fewer.tsv")
        result = go_on(run, quick_recipe, files)
        # one question is read by the wording of the others
        assert [(row["name"], row["total"]) for row in result.rows][-1] == ("unseen subjects", 1)
        assert result.judgement["subjects"]["judged"] < before["judged"]
        for changes in ({"set_aside": 0.4}, {"leave_out": 0.4}, {"leave_out": 0.0}):
            with pytest.raises(UserError, match=r"cannot be resumed: the .* changed since"):
                go_on(run, quick_recipe, **changes)
