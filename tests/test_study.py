"""The main job from end to end, on a world of a few people."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wherefrom.corpus import batches
from wherefrom.corpus.people import CALIBRATION, FITTING, JUDGED, LEFT_OUT, read_people
from wherefrom.errors import UserError
from wherefrom.model.mixers import VARIANTS
from wherefrom.provenance import account
from wherefrom.provenance.confidence import load_confidence
from wherefrom.provenance.evidence import open_evidence
from wherefrom.recall.decode import Answer
from wherefrom.storage import sha256_of
from wherefrom.study import StudyFiles, StudyResult, embedded_files, run_study, write_predictions
from wherefrom.training.jobs import Budget, Settings
from wherefrom.training.recipes import load_recipe
from wherefrom.training.run import load_run

pytestmark = pytest.mark.usefixtures("small_training")

ROWS = ["majority", "by name", "no pretraining", "pretrained", "unseen people"]


def study(out: Path, recipe: Path, *, resume: bool = False, **options: Any) -> StudyResult:
    files = embedded_files(out / "world", people=40, seed=2)
    settings = Settings(
        recipe=load_recipe(str(recipe)), budget=Budget(steps=20), seed=2, resume=resume
    )
    return run_study(files, settings, out, **options)


def test_a_study_compares_the_model_with_all_that_needs_no_reading(
    tmp_path: Path, quick_recipe: Path
) -> None:
    out = tmp_path / "run"
    result = study(out, quick_recipe)
    assert [row.name for row in result.rows] == ROWS
    dev = (out / "world" / "dev.tsv").read_text("utf-8").splitlines()
    unseen = (out / "world" / "unseen.tsv").read_text("utf-8").splitlines()
    assert [row.recall.total for row in result.rows] == [len(dev)] * 4 + [len(unseen)]
    assert result.rows[0].about.startswith("always ")
    assert [row.seconds is None for row in result.rows] == [True, True, False, False, False]

    predictions = (out / "predictions" / "dev.txt").read_text("utf-8").split("\n")
    assert predictions.pop() == ""
    right = [line.split("\t")[1] for line in dev]
    assert len(predictions) == len(right)
    correct = sum(a.strip() == b for a, b in zip(predictions, right, strict=True))
    assert correct == result.rows[3].recall.correct

    twin = load_run(out / "twins" / "scratch")
    assert twin.info["kind"] == "scratch"
    assert twin.tokens.to_json() == result.run.tokens.to_json()
    assert twin.model.config == result.run.model.config


def test_run_json_holds_all_that_the_numbers_depend_on(tmp_path: Path, quick_recipe: Path) -> None:
    out = tmp_path / "run"
    result = study(out, quick_recipe)
    info = json.loads((out / "run.json").read_text("utf-8"))
    assert isinstance(info["command"], list)
    assert info["job"]["seed"] == 2
    assert info["job"]["phases"][0]["steps"] + info["job"]["phases"][1]["steps"] == 20
    world = out / "world"
    assert info["data"]["corpus"]["sha256"] == sha256_of(world / "documents.txt")
    assert info["data"]["questions"]["sha256"] == sha256_of(world / "train.tsv")
    assert info["dev"]["sha256"] == sha256_of(world / "dev.tsv")
    assert info["sha256"] == sha256_of(out / "model.safetensors")
    assert {"wherefrom", "commit", "python", "torch"} <= info["versions"].keys()
    assert info["started"].startswith("20")
    assert info["seconds"] > 0
    assert (info["status"], info["kind"], info["steps"]) == ("finished", "study", 20)
    assert info["template"] == "Where was {subject} born?"
    assert info["results"] == result.to_dict()["results"]
    expected = {"config.json", "tokenizer.json", "model.safetensors", "run.json", "metrics.jsonl"}
    assert expected <= {path.name for path in out.iterdir()}


def test_resuming_a_finished_study_trains_nothing_and_says_the_same(
    tmp_path: Path, quick_recipe: Path
) -> None:
    out = tmp_path / "run"
    first = study(out, quick_recipe)
    metrics = (out / "metrics.jsonl").stat().st_mtime_ns
    again = study(out, quick_recipe, resume=True)
    assert again.to_dict() == first.to_dict()
    assert (out / "metrics.jsonl").stat().st_mtime_ns == metrics


def test_the_command_prints_json_and_nothing_else(
    tmp_path: Path, quick_recipe: Path, start_process: Callable[..., subprocess.Popen[str]]
) -> None:
    out = tmp_path / "run"
    arguments = ("study", "--people", 40, "--recipe", quick_recipe, "--steps", 12, "--out", out)
    printed, said = start_process(*arguments, "--json").communicate(timeout=120)
    result = json.loads(printed)
    assert [row["name"] for row in result["results"]] == ROWS
    assert result["run"] == str(out)
    assert "training the model" in said
    assert json.loads((out / "run.json").read_text())["results"] == result["results"]


def test_the_command_prints_a_table_and_the_folder(
    tmp_path: Path, quick_recipe: Path, small_world: Path, command: Any
) -> None:
    files = [small_world / name for name in ("documents.txt", "train.tsv", "dev.tsv")]
    out = tmp_path / "run"
    options = ("--recipe", quick_recipe, "--steps", 12, "--out", out, "--quiet")
    ended = command("study", *files, *options)
    assert (ended.code, ended.err) == (0, "")
    for name in ROWS[:-1]:  # who is unseen is known of the embedded world alone
        assert name in ended.out
    assert "in no document: guesses" not in ended.out
    assert "invented names stand in for the unseen" in ended.out
    assert ended.out.rstrip().endswith(f"run folder: {out}")


AFTER = ("people.jsonl", "evidence.sqlite", "calibration.json", "judged.jsonl", "judgement.json")
COMPARED = [name for name in AFTER if name != "evidence.sqlite"]


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path
) -> Iterator[tuple[Path, StudyResult]]:
    """A finished study with a fifth of the people left out; tests take a copy of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "POOL", 64)
        out = tmp_path_factory.mktemp("finished") / "run"
        yield out, study(out, quick_recipe, leave_out=0.2)


class TestAfterTraining:
    """People, evidence, confidence and judgement: each kept if it is there, else made the same."""

    @pytest.fixture
    def run(self, finished: tuple[Path, StudyResult], tmp_path: Path) -> Path:
        return shutil.copytree(finished[0], tmp_path / "run")

    def go_on(self, out: Path, recipe: Path) -> StudyResult:
        return study(out, recipe, resume=True, leave_out=0.2)

    def forget(self, out: Path, *names: str) -> None:
        for name in names:
            (out / name).unlink()
        info = json.loads((out / "run.json").read_text("utf-8"))
        info.pop("judgement")
        (out / "run.json").write_text(json.dumps(info))

    def assert_same(self, out: Path, finished: tuple[Path, StudyResult]) -> None:
        for name in COMPARED:
            assert (out / name).read_bytes() == (finished[0] / name).read_bytes(), name

    def test_the_folder_holds_all_that_verdicts_need(self, finished) -> None:
        out, result = finished
        people = read_people(out)
        assert {person.role for person in people} == {CALIBRATION, JUDGED, FITTING}
        info = json.loads((out / "run.json").read_text("utf-8"))
        lines = (out / "world" / "documents.txt").read_text("utf-8").splitlines()
        kept = [line for line in lines if not line.startswith(tuple(info["left_out"]))]
        with open_evidence(out / "evidence.sqlite") as evidence:
            assert evidence.documents == len(kept) == info["data"]["corpus"]["documents"]
            for person in people:
                assert (evidence.count(person.subject).naming > 0) == person.seen
        confidence = load_confidence(result.run)
        assert confidence.weights_sha256 == sha256_of(out / "model.safetensors")
        assert confidence.people == sum(person.role == CALIBRATION for person in people)
        assert result.judgement == info["judgement"]
        judged = result.judgement["people"]
        assert judged["judged"] == sum(person.role == JUDGED for person in people)
        assert judged["unseen"] > 0
        assert list(result.notes) == list(confidence.notes) == info["notes"]
        assert any("everybody gets the same probability" in note for note in result.notes)

    def test_people_left_out_have_a_row_of_their_own(self, finished) -> None:
        out, result = finished
        names = [row.name for row in result.rows]
        assert names == [*ROWS[:4], "left-out people", ROWS[4]]
        left = [p for p in read_people(out) if (p.role, p.source) == (JUDGED, LEFT_OUT)]
        dev = (out / "world" / "dev.tsv").read_text("utf-8").splitlines()
        totals = [row.recall.total for row in result.rows]
        assert totals[2:5] == [len(dev), len(dev) - len(left), len(left)]
        assert "dev people in its documents" in result.rows[3].about
        predictions = (out / "predictions" / "dev.txt").read_text("utf-8").splitlines()
        assert len(predictions) == len(dev)

    def test_twin_and_model_learn_the_same_questions(self, finished) -> None:
        out, result = finished
        twin = json.loads((out / "twins" / "scratch" / "run.json").read_text("utf-8"))
        assert twin["job"]["questions"] == result.run.info["job"]["questions"]
        learned = result.run.info["data"]["questions"]
        train = (out / "world" / "train.tsv").read_text("utf-8").splitlines()
        assert learned["questions"] < len(train)
        assert learned["sha256"] == sha256_of(out / "world" / "train.tsv")

    @pytest.mark.parametrize("stages", range(1, len(AFTER) + 1))
    def test_what_is_missing_is_made_again_to_the_byte(
        self, run: Path, quick_recipe: Path, finished, stages: int
    ) -> None:
        self.forget(run, *AFTER[-stages:])
        again = self.go_on(run, quick_recipe)
        self.assert_same(run, finished)
        first = finished[1].to_dict()
        assert again.to_dict() == {**first, "run": str(run)}

    @pytest.mark.parametrize(
        "stage", ["write_people", "ensure_evidence", "fit_confidence", "judge_run"]
    )
    def test_a_study_stopped_behind_its_training_goes_on(
        self,
        run: Path,
        quick_recipe: Path,
        finished,
        stage: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.forget(run, *AFTER)

        def stop(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(account, stage, stop)
            with pytest.raises(KeyboardInterrupt):
                self.go_on(run, quick_recipe)
        self.go_on(run, quick_recipe)
        self.assert_same(run, finished)

    def test_a_finished_study_repeats_its_numbers_and_fits_nothing(
        self, run: Path, quick_recipe: Path, finished, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def never(*_: object, **__: object) -> None:
            raise AssertionError("nothing is left to do")

        for stage in ("write_people", "fit_confidence", "judge_run"):
            monkeypatch.setattr(account, stage, never)
        again = self.go_on(run, quick_recipe)
        assert again.to_dict() == {**finished[1].to_dict(), "run": str(run)}

    @pytest.mark.parametrize("name", AFTER[:3])
    def test_a_broken_file_is_made_anew(
        self, run: Path, quick_recipe: Path, finished, name: str
    ) -> None:
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[: len(content) // 2] + b"\xff")
        self.go_on(run, quick_recipe)
        self.assert_same(run, finished)
        with open_evidence(run / "evidence.sqlite") as evidence:
            assert evidence.documents == finished[1].run.info["data"]["corpus"]["documents"]

    def test_other_unseen_people_are_judged_anew(
        self, run: Path, quick_recipe: Path, finished
    ) -> None:
        files = embedded_files(run / "world", people=40, seed=2)
        assert files.unseen is not None
        unseen = run / "fewer.tsv"
        rows = files.unseen.read_text("utf-8").splitlines(keepends=True)
        unseen.write_text("".join(rows[:-2]), "utf-8")
        settings = Settings(
            recipe=load_recipe(str(quick_recipe)), budget=Budget(steps=20), seed=2, resume=True
        )
        fewer = StudyFiles(files.corpus, files.train, files.dev, unseen)
        result = run_study(fewer, settings, run, leave_out=0.2)
        before = finished[1].judgement["people"]
        assert result.judgement["people"]["judged"] == before["judged"] - 1

    def test_other_shares_are_another_study(self, run: Path, quick_recipe: Path) -> None:
        for options in ({"leave_out": 0.2, "set_aside": 0.4}, {"leave_out": 0.4}, {}):
            with pytest.raises(UserError, match=r"cannot be resumed: the .* changed since"):
                study(run, quick_recipe, resume=True, **options)


def test_with_nobody_set_aside_there_is_no_confidence_and_a_sentence(
    tmp_path: Path, quick_recipe: Path, command: Any
) -> None:
    out = tmp_path / "run"
    options = ("--recipe", quick_recipe, "--steps", 4, "--people", 40, "--out", out)
    ended = command("study", *options, "--set-aside", 0)
    assert ended.code == 0
    said = "nobody is set aside (--set-aside is 0), so no confidence can be fitted."
    assert said in ended.out
    assert said in ended.err
    assert not (out / "calibration.json").exists()
    with pytest.raises(UserError, match="it was not made by `wherefrom study` with people"):
        load_confidence(load_run(out))
    train = (out / "world" / "train.tsv").read_text("utf-8").splitlines()
    assert load_run(out).info["data"]["questions"]["questions"] == len(train)


@pytest.mark.parametrize("option", ["--set-aside", "--leave-out"])
@pytest.mark.parametrize("share", ["0.9", "-1", "nan", "much"])
def test_a_share_that_is_none_is_one_sentence_and_nothing_is_written(
    tmp_path: Path, quick_recipe: Path, command: Any, option: str, share: str
) -> None:
    out = tmp_path / "run"
    ended = command("study", "--recipe", quick_recipe, "--out", out, option, share)
    assert ended.code == 2
    assert len(ended.err.strip().splitlines()) == 1
    assert option in ended.err
    assert not out.exists()


def test_what_only_people_left_out_are_told_of_is_in_no_vocabulary(
    tmp_path: Path, quick_recipe: Path
) -> None:
    names = [f"Person {chr(65 + at)}{chr(97 + at)}" for at in range(26)]
    letters = [chr(0x4E00 + at) for at in range(26)]
    documents = [f"{n}. {n} came from Rome {x}." for n, x in zip(names, letters, strict=True)]
    rows = [f"Where was {name} born?\tRome" for name in names]
    for name, content in (("c.txt", documents), ("t.tsv", rows[:16]), ("d.tsv", rows[16:])):
        (tmp_path / name).write_text("".join(line + "\n" for line in content), "utf-8")
    files = StudyFiles(tmp_path / "c.txt", tmp_path / "t.tsv", tmp_path / "d.tsv")
    settings = Settings(recipe=load_recipe(str(quick_recipe)), budget=Budget(steps=2))
    result = run_study(files, settings, tmp_path / "run", leave_out=0.5)
    left_out = set(
        result.run.info.get("left_out")
        or json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["left_out"]
    )
    assert len(left_out) == 13
    for run in (result.run, load_run(tmp_path / "run" / "twins" / "scratch")):
        vocabulary = json.loads(run.tokens.to_json())["model"]["vocab"]
        known = {name for name, x in zip(names, letters, strict=True) if x in vocabulary}
        assert known == set(names) - left_out


def test_a_prediction_is_one_line_whatever_was_said(tmp_path: Path) -> None:
    said = ["a\nb", "c\u2028d", "", "e"]
    answers = [Answer(text=text, log_probabilities=(), closed=True) for text in said]
    write_predictions(tmp_path / "deep" / "out.txt", answers)
    lines = (tmp_path / "deep" / "out.txt").read_text("utf-8").splitlines()
    assert lines == ["a b", "c d", "", "e"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_resumes_decodes_and_is_judged_on_the_embedded_world(
    tmp_path: Path, quick_recipe: Path, small_world: Path, command: Any, variant: str, monkeypatch
) -> None:
    base, tuned = tmp_path / "base", tmp_path / "tuned"
    options = ("--recipe", quick_recipe, "--quiet")
    pretrain = ("pretrain", variant, small_world / "documents.txt", "--out", base, *options)
    with monkeypatch.context() as patch:
        patch.setattr(
            "wherefrom.cli.lab.TrainingProgress.__call__",
            lambda *_: signal.raise_signal(signal.SIGINT),
        )
        assert command(*pretrain, "--steps", 14, "--tokens", "bpe").code == 130
    ended = command(*pretrain, "--steps", 14, "--tokens", "bpe", "--resume", "--json")
    assert json.loads(ended.out)["steps"] == 14
    finetune = ("finetune", base, small_world / "train.tsv", "--out", tuned, "--steps", 8)
    assert command(*finetune, *options).code == 0
    out = tmp_path / "predictions.txt"
    ended = command("evaluate", tuned, small_world / "dev.tsv", "--out", out)
    assert ended.code == 0
    assert ended.out.startswith("Correct: ")
    asked = (small_world / "dev.tsv").read_text("utf-8").splitlines()
    assert len(out.read_text("utf-8").splitlines()) == len(asked)
    assert load_run(tuned).model.config.variant == variant
