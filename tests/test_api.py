"""What `import wherefrom` offers: few names, imported when used, each as good as its docstring."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wherefrom
from wherefrom import api
from wherefrom.corpus import batches
from wherefrom.study import StudyFiles
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.settings import Settings

NAMES = [
    "Asker",
    "Attention",
    "Recall",
    "Run",
    "Study",
    "StudyResult",
    "UserError",
    "Verdict",
    "ask",
    "attend",
    "check",
    "evaluate",
    "load",
    "make_world",
    "open_asker",
    "read_documents",
    "read_questions",
    "write_world",
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> wherefrom.StudyResult:
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("api") / "study"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "POOL", 64)
        job = wherefrom.Study(out, people=60, steps=8, recipe=quick_recipe, tokens="bpe")
        return job.run()


class TestNames:
    def test_they_are_these_and_sorted(self) -> None:
        assert wherefrom.__all__ == NAMES
        assert sorted(NAMES) == NAMES

    @pytest.mark.parametrize("name", NAMES)
    def test_each_is_there_and_documented(self, name: str) -> None:
        found = getattr(wherefrom, name)
        assert found.__name__ == name
        # a dataclass without a docstring of its own gets its signature for one
        assert found.__doc__
        assert not found.__doc__.startswith(f"{name}(")

    def test_none_hides_a_room(self) -> None:
        source = Path(wherefrom.__file__).parent
        rooms = {path.name.removesuffix(".py") for path in source.iterdir()}
        assert not rooms & set(NAMES)

    def test_type_checkers_are_told_the_same(self) -> None:
        stub = Path(wherefrom.__file__).with_suffix(".pyi").read_text("utf-8")
        told = {}
        for node in ast.parse(stub).body:
            if isinstance(node, ast.ImportFrom):
                told |= {alias.asname: f"{node.module}.{alias.name}" for alias in node.names}
        assert sorted(told) == NAMES
        for name, home in told.items():
            module, _, inside = home.rpartition(".")
            assert getattr(importlib.import_module(module), inside) is getattr(wherefrom, name)

    def test_what_is_not_there_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'aks'"):
            wherefrom.aks  # type: ignore[attr-defined]  # noqa: B018
        assert not hasattr(wherefrom, "__wrapped__")

    def test_dir_lists_them(self) -> None:
        assert set(NAMES) <= set(dir(wherefrom))

    def test_the_version_is_that_of_the_package(self) -> None:
        assert wherefrom.__version__.split(".")[0].isdigit()

    def test_importing_it_imports_nothing_else(self) -> None:
        code = (
            "import sys; before = set(sys.modules); import wherefrom; "
            "print(*sorted(set(sys.modules) - before))"
        )
        ended = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        loaded = {name.split(".")[0] for name in ended.stdout.split()}
        assert "wherefrom" in loaded
        assert loaded <= {"wherefrom", "importlib", "warnings"}

    def test_the_workbench_needs_no_torch(self) -> None:
        code = "import sys, wherefrom; wherefrom.attend; print('torch' in sys.modules)"
        ended = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert ended.stdout == "False\n"


class TestWorkbench:
    def test_attend_gives_context_weights_and_scores(self) -> None:
        keys = np.eye(3)
        found = wherefrom.attend(np.array([0.0, np.log(2), 0.0]), keys, 4 * keys)
        assert isinstance(found, wherefrom.Attention)
        np.testing.assert_allclose(found.weights, [0.25, 0.5, 0.25])
        np.testing.assert_allclose(found.context, [1.0, 2.0, 1.0])

    def test_check_takes_one_text_or_several(self) -> None:
        assert wherefrom.check("average", "q=beta*(k_a+k_b)").verdict == "proved"
        assert wherefrom.check("average", ["q=(k_a+k_b)/2"]).verdict == "refuted"
        both = wherefrom.check("two-heads", ["q1=beta*mu_a", "q2=beta*mu_b"])
        assert both.verdict == "proved"

    def test_check_takes_tolerance_and_seed(self) -> None:
        found = wherefrom.check("copy", "q=9*k_j", tolerance=0.2, seed=3)
        assert (found.tolerance, found.seed) == (0.2, 3)

    def test_what_may_not_be_written_is_a_user_error(self) -> None:
        with pytest.raises(wherefrom.UserError, match="open"):
            wherefrom.check("copy", "q=open('x')")


class TestFiles:
    def test_a_world_is_made_written_and_read(self, tmp_path: Path) -> None:
        world = wherefrom.make_world(40, 1)
        folder = wherefrom.write_world(world, tmp_path / "world")
        corpus = wherefrom.read_documents(folder / "documents.txt")
        asked = wherefrom.read_questions(folder / "dev.tsv")
        assert len(corpus.documents) == len(world.documents)
        assert asked.template == "Where was {subject} born?"
        assert {question.subject for question in asked.questions} <= {
            document.subject for document in corpus.documents
        }

    def test_a_missing_file_is_a_user_error(self, tmp_path: Path) -> None:
        with pytest.raises(wherefrom.UserError, match=r"none\.txt"):
            wherefrom.read_documents(tmp_path / "none.txt")


class TestStudy:
    def test_nothing_happens_before_run(self, tmp_path: Path) -> None:
        wherefrom.Study(tmp_path / "study", steps=1)
        assert list(tmp_path.iterdir()) == []

    def test_it_trains_compares_and_judges(self, study: wherefrom.StudyResult) -> None:
        names = [row.name for row in study.rows]
        assert names == ["majority", "by name", "no pretraining", "pretrained", "unseen people"]
        assert study.run.info["status"] == "finished"
        assert study.run.info["steps"] <= 8
        assert study.judgement is not None

    def test_its_options_reach_the_run(self, study: wherefrom.StudyResult) -> None:
        job = study.run.info["job"]
        assert job["seed"] == 0
        assert study.run.tokens.kind == "bpe"
        assert study.run.model.config.width == 16  # the recipe's

    def test_each_of_its_options_is_handed_on(
        self, tmp_path: Path, quick_recipe: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handed: dict[str, Any] = {}

        def remember(
            files: StudyFiles, settings: Settings, out: Path, **options: Any
        ) -> dict[str, Any]:
            handed.update(options, files=files, settings=settings, out=out)
            return handed

        monkeypatch.setattr(api, "run_study", remember)
        options = {"template": "Who is {subject}?", "set_aside": 0.3, "leave_out": 0.25}
        shape = {"variant": "rotary", "size": "32x4x4", "tokens": "bpe", "seed": 9, "resume": True}
        files = ("corpus.txt", "train.tsv", "dev.tsv")
        job = wherefrom.Study(
            tmp_path / "run", files, recipe=quick_recipe, minutes=3, **options, **shape
        )
        job.run(observe=print, say=print)
        settings = handed.pop("settings")
        assert {name: getattr(settings, name) for name in shape} == shape
        assert settings.recipe == load_recipe(str(quick_recipe))
        assert settings.budget == Budget(minutes=3)
        assert handed == {
            **options,
            "files": StudyFiles(*map(Path, files)),
            "out": tmp_path / "run",
            "observe": print,
            "say": print,
        }

    def test_a_finished_study_is_not_overwritten(
        self, study: wherefrom.StudyResult, quick_recipe: Path
    ) -> None:
        with pytest.raises(wherefrom.UserError, match="already holds a run"):
            wherefrom.Study(study.run.folder, people=60, steps=8, recipe=quick_recipe).run()

    def test_a_folder_of_other_things_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").write_text("mine")
        with pytest.raises(wherefrom.UserError, match="exists and is not a run"):
            wherefrom.Study(tmp_path, people=40, steps=1).run()
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

    def test_files_are_three(self, tmp_path: Path) -> None:
        with pytest.raises(wherefrom.UserError, match="it got 1"):
            wherefrom.Study(tmp_path / "x", files=("a",), steps=1).run()  # type: ignore[arg-type]

    def test_files_are_read(self, tmp_path: Path) -> None:
        with pytest.raises(wherefrom.UserError, match="here"):
            wherefrom.Study(tmp_path / "x", files=("here", "there", "where"), steps=1).run()

    def test_two_budgets_are_one_too_many(self, tmp_path: Path) -> None:
        with pytest.raises(wherefrom.UserError, match="not 2"):
            wherefrom.Study(tmp_path / "x", steps=1, minutes=1).run()
        assert list(tmp_path.iterdir()) == []


class TestAsking:
    def test_load_gives_the_run(self, study: wherefrom.StudyResult) -> None:
        run = wherefrom.load(study.run.folder)
        assert isinstance(run, wherefrom.Run)
        assert run.template == "Where was {subject} born?"
        assert run.info == wherefrom.load(str(study.run.folder)).info

    def test_a_folder_that_is_no_run_is_a_user_error(self, tmp_path: Path) -> None:
        with pytest.raises(wherefrom.UserError, match="not a run"):
            wherefrom.load(tmp_path)

    def test_ask_takes_a_run_a_folder_or_an_open_run(self, study: wherefrom.StudyResult) -> None:
        folder = study.run.folder
        question = wherefrom.read_questions(folder / "world" / "dev.tsv").questions[0].text
        with wherefrom.open_asker(folder) as asker:
            found = [
                wherefrom.ask(each, question) for each in (folder, str(folder), study.run, asker)
            ]
        assert isinstance(found[0], wherefrom.Verdict)
        assert len({json.dumps(verdict.to_dict()) for verdict in found}) == 1
        assert found[0].seen
        assert found[0].verdict in ("remembered", "misremembered")

    def test_somebody_unseen_is_not_known_unless_an_answer_is_wanted(
        self, study: wherefrom.StudyResult
    ) -> None:
        question = "Where was Zzyzx Qwfp born?"
        silent = wherefrom.ask(study.run, question)
        assert (silent.shown, silent.verdict) == ("I don't know", "made up")
        told = wherefrom.ask(study.run, question, always_answer=True)
        assert told.shown == told.answer == silent.answer

    def test_risk_is_passed_on(self, study: wherefrom.StudyResult) -> None:
        with wherefrom.open_asker(study.run.folder) as asker:
            for opened in (study.run, asker):
                with pytest.raises(wherefrom.UserError, match="risk"):
                    wherefrom.ask(opened, "Where was Ada Moe born?", risk=2)

    def test_evaluate_counts_what_the_study_counted(self, study: wherefrom.StudyResult) -> None:
        dev = study.run.folder / "world" / "dev.tsv"
        recall = wherefrom.evaluate(study.run, dev)
        assert isinstance(recall, wherefrom.Recall)
        (row,) = [row for row in study.rows if row.name == "pretrained"]
        assert recall == row.recall
        assert wherefrom.evaluate(study.run.folder, wherefrom.read_questions(dev)) == recall

    def test_evaluate_wants_answers(self, study: wherefrom.StudyResult, tmp_path: Path) -> None:
        (tmp_path / "asked.tsv").write_text("Where was Al Bo born?\nWhere was Cy Do born?\n")
        with pytest.raises(wherefrom.UserError, match="answer"):
            wherefrom.evaluate(study.run, tmp_path / "asked.tsv")
