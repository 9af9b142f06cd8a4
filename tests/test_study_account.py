"""What follows a study's training: files that are kept if they are there, else made the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from study_samples import ROWS, study

from wherefrom.corpus import batches
from wherefrom.corpus.questions import Question
from wherefrom.corpus.subjects import CALIBRATION, FITTING, JUDGED, LEFT_OUT, Subject, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance import after_training as account
from wherefrom.provenance.confidence.fit import fit_confidence, load_confidence
from wherefrom.provenance.evidence.index import Evidence
from wherefrom.recall.decode import majority_answer
from wherefrom.storage import sha256_of
from wherefrom.study import StudyFiles, StudyResult, embedded_files, run_study
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Settings

pytestmark = pytest.mark.usefixtures("small_training")

AFTER = ("subjects.jsonl", "evidence.sqlite", "calibration.json", "judged.jsonl", "judgement.json")
COMPARED = [name for name in AFTER if name != "evidence.sqlite"]


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path
) -> Iterator[tuple[Path, StudyResult]]:
    """A finished study with a fifth of the people left out; tests take a copy of it."""
    torch.set_num_threads(1)  # as in the tests, which come later than this
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "POOL", 64)
        out = tmp_path_factory.mktemp("finished") / "run"
        yield out, study(out, quick_recipe, leave_out=0.2)


def stop(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


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
        people = read_subjects(out)
        assert {person.role for person in people} == {CALIBRATION, JUDGED, FITTING}
        info = json.loads((out / "run.json").read_text("utf-8"))
        lines = (out / "world" / "documents.txt").read_text("utf-8").splitlines()
        kept = [line for line in lines if not line.startswith(tuple(info["left_out"]))]
        with Evidence(out / "evidence.sqlite") as evidence:
            assert evidence.documents == len(kept) == info["data"]["corpus"]["documents"]
            for person in people:
                assert (evidence.count(person.subject).naming > 0) == person.seen
        confidence = load_confidence(result.run)
        assert confidence.weights_sha256 == sha256_of(out / "model.safetensors")
        assert result.judgement == info["judgement"]
        judged = result.judgement["people"]
        assert judged["judged"] == sum(person.role == JUDGED for person in people)
        assert judged["unseen"] > 0
        assert list(result.notes) == info["notes"]
        assert set(confidence.notes) < set(info["notes"])
        assert any("all get the same probability" in note for note in result.notes)

    def test_people_left_out_have_a_row_of_their_own(self, finished) -> None:
        out, result = finished
        names = [row["name"] for row in result.rows]
        assert names == [*ROWS[:5], "left-out people", ROWS[5]]
        left = [p for p in read_subjects(out) if (p.role, p.source) == (JUDGED, LEFT_OUT)]
        dev = (out / "world" / "dev.tsv").read_text("utf-8").splitlines()
        totals = [row["total"] for row in result.rows]
        assert totals[3:6] == [len(dev), len(dev) - len(left), len(left)]
        assert "dev subjects in its documents" in result.rows[4]["about"]
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

    def test_the_baselines_learn_from_the_questions_that_the_model_learns(
        self, run: Path, quick_recipe: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learned: list[int] = []

        def common(questions: Sequence[Question]) -> str:
            learned.append(len(questions))
            return majority_answer(questions)

        monkeypatch.setattr("wherefrom.study.majority_answer", common)
        result = self.go_on(run, quick_recipe)
        assert [sum(learned)] == [result.run.info["data"]["questions"]["questions"]]

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
        "stage", ["write_subjects", "ensure_evidence", "fit_confidence", "judge_run"]
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

        for stage in ("write_subjects", "fit_confidence", "judge_run"):
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
        with Evidence(run / "evidence.sqlite") as evidence:
            assert evidence.documents == finished[1].run.info["data"]["corpus"]["documents"]

    @pytest.mark.parametrize("name", AFTER[-2:])
    def test_a_judgement_without_one_of_its_files_is_made_again(
        self, run: Path, quick_recipe: Path, finished, name: str
    ) -> None:
        (run / name).unlink()
        self.go_on(run, quick_recipe)
        self.assert_same(run, finished)

    @pytest.mark.parametrize(("key", "value"), [("risk", 0.3), ("weights_sha256", "other")])
    def test_a_judgement_of_another_risk_or_of_other_weights_is_made_again(
        self, run: Path, quick_recipe: Path, finished, key: str, value: object
    ) -> None:
        info = json.loads((run / "run.json").read_text("utf-8"))
        info["judgement"][key] = value
        (run / "run.json").write_text(json.dumps(info))
        assert self.go_on(run, quick_recipe).judgement == finished[1].judgement

    def test_a_confidence_of_other_people_is_fitted_again_and_takes_its_judgement_along(
        self, run: Path, quick_recipe: Path, finished, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calibration = json.loads((run / "calibration.json").read_text("utf-8"))
        calibration["subjects_sha256"] = "0" * 64
        (run / "calibration.json").write_text(json.dumps(calibration))

        with monkeypatch.context() as patch:
            patch.setattr(account, "judge_run", stop)
            with pytest.raises(KeyboardInterrupt):
                self.go_on(run, quick_recipe)
        assert json.loads((run / "run.json").read_text("utf-8"))["judgement"] is None
        self.go_on(run, quick_recipe)
        self.assert_same(run, finished)

    def test_a_confidence_is_fitted_on_those_who_calibrate_and_those_who_help(
        self, run: Path, quick_recipe: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.forget(run, "calibration.json")
        asked: list[Subject] = []

        def fit(run: Run, evidence: Evidence, people: Sequence[Subject], *rest: Any, **how: Any):
            asked.extend(people)
            return fit_confidence(run, evidence, people, *rest, **how)

        monkeypatch.setattr(account, "fit_confidence", fit)
        self.go_on(run, quick_recipe)
        roles = [person.role for person in asked]
        people = read_subjects(run)
        for role in (CALIBRATION, FITTING):
            kept = [person for person in asked if person.role == role]
            assert {person for person in people if person.role == role} <= {*kept}
        assert JUDGED not in roles

    def go_on_with_fewer_unseen(self, out: Path, recipe: Path, kept: slice) -> StudyResult:
        files = embedded_files(out / "world", people=40, seed=2)
        assert files.unseen is not None
        rows = files.unseen.read_text("utf-8").splitlines(keepends=True)
        (out / "fewer.tsv").write_text("".join(rows[kept]), "utf-8")
        settings = Settings(
            recipe=load_recipe(str(recipe)), budget=Budget(steps=20), seed=2, resume=True
        )
        fewer = StudyFiles(files.corpus, files.train, files.dev, out / "fewer.tsv")
        return run_study(fewer, settings, out, leave_out=0.2)

    def test_other_unseen_people_are_judged_anew(
        self, run: Path, quick_recipe: Path, finished
    ) -> None:
        result = self.go_on_with_fewer_unseen(run, quick_recipe, slice(-2))
        before = finished[1].judgement["people"]
        assert result.judgement["people"]["judged"] == before["judged"] - 1

    def test_one_question_about_the_unseen_is_read_by_the_wording_of_the_others(
        self, run: Path, quick_recipe: Path
    ) -> None:
        result = self.go_on_with_fewer_unseen(run, quick_recipe, slice(1))
        assert [(row["name"], row["total"]) for row in result.rows][-1] == ("unseen people", 1)

    def test_other_shares_are_another_study(self, run: Path, quick_recipe: Path) -> None:
        for options in ({"leave_out": 0.2, "set_aside": 0.4}, {"leave_out": 0.4}, {}):
            with pytest.raises(UserError, match=r"cannot be resumed: the .* changed since"):
                study(run, quick_recipe, resume=True, **options)
