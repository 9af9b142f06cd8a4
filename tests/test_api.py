"""What `import wherefrom` offers: names imported when used, results that print, clear errors."""

from __future__ import annotations

import ast
import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wherefrom
from wherefrom.study import StudyFiles
from wherefrom.training.recipes import load_recipe

NAMES = wherefrom.__all__
NOBODY = "Where was Zzyzx Qwfp born?"


def loaded_by(code: str) -> set[str]:
    """The packages that a fresh interpreter has loaded after the code."""
    code = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in ended.stdout.split()}


class TestNames:
    def test_each_is_there_documented_and_said_by_the_stub_and_none_hides_a_package(self) -> None:
        source = Path(wherefrom.__file__)
        homes = {}
        for node in ast.parse(source.with_suffix(".pyi").read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                homes |= {alias.asname: (node.module, alias.name) for alias in node.names}
        assert sorted(homes) == NAMES
        for name, (module, inside) in homes.items():
            found = getattr(wherefrom, name)
            assert getattr(importlib.import_module(module), inside) is found
            assert found.__name__ == name
            # a dataclass without a docstring of its own gets its signature for one
            assert not (found.__doc__ or f"{name}(").startswith(f"{name}(")
            assert name in dir(wherefrom)
        assert not {path.stem for path in source.parent.iterdir()} & set(NAMES)

    def test_what_is_not_there_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'aks'"):
            wherefrom.aks  # type: ignore[attr-defined]  # noqa: B018
        assert not hasattr(wherefrom, "__wrapped__")
        assert wherefrom.__version__.split(".")[0].isdigit()

    def test_importing_it_imports_nothing_else_and_the_workbench_needs_no_torch(self) -> None:
        assert loaded_by("import wherefrom") <= {"wherefrom", "importlib", "warnings"}
        calls = ("check('average', 'q=beta*(k_a+k_b)')", "design('copy')", "law('one-head')")
        code = "; ".join(f"wherefrom.{call}" for call in (*calls, "attend", "Study('x')"))
        assert "torch" not in loaded_by(f"import wherefrom; {code}")


class TestStudy:
    def test_a_finished_study_is_repeated_without_training(
        self, tiny_study: Path, quick_recipe: Path, tmp_path: Path
    ) -> None:
        copy = Path(shutil.copytree(tiny_study, tmp_path / "run"))
        shares = {"set_aside": 0.3, "leave_out": 0.2, "recipe": quick_recipe}
        job = wherefrom.Study(
            copy, people=60, steps=20, seed=2, tokens="bpe", resume=True, **shares
        )
        found = job.run()
        info = json.loads((tiny_study / "run.json").read_text("utf-8"))
        assert found.rows == info["results"]
        assert found.run.info["sha256"] == info["sha256"]
        assert found.judgement is not None
        assert_prints(found, "StudyResult run", "pretrained")

    def test_each_of_its_options_is_handed_on(
        self, tmp_path: Path, quick_recipe: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handed: dict[str, Any] = {}

        def remember(files: StudyFiles, settings: Any, out: Path, **options: Any) -> dict[str, Any]:
            handed.update(options, files=files, settings=settings, out=out)
            return handed

        monkeypatch.setattr("wherefrom.study.run_study", remember)
        options = {"template": "Who is {subject}?", "set_aside": 0.3, "leave_out": 0.25}
        shape = {"variant": "rotary", "size": "32x4x4", "tokens": "bpe", "seed": 9, "resume": True}
        files = ("corpus.txt", "train.tsv", "dev.tsv")
        out = tmp_path / "run"
        job = wherefrom.Study(out, files, recipe=quick_recipe, minutes=3, **options, **shape)
        job.run(observe=print, say=print)
        settings = handed.pop("settings")
        assert {name: getattr(settings, name) for name in shape} == shape
        assert settings.recipe == load_recipe(str(quick_recipe))
        assert (settings.budget.minutes, settings.budget.steps) == (3, None)
        paths = StudyFiles(*map(Path, files))
        fields = {"subject_field": None, "text_field": None}
        handed["template"] = handed.pop("templates")[0]
        given = {"files": paths, "out": out, "observe": print, "say": print}
        assert handed == {**options, **fields, **given}

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"files": ("a",), "steps": 1}, "it got 1 file"),
            ({"files": ("here", "there", "where"), "steps": 1}, "here"),
            ({"steps": 1, "minutes": 1}, "give one of minutes, epochs and steps, not 2"),
            *(({"seed": seed, "steps": 1}, "seed must be between 0") for seed in (-1, 2**31, 1.5)),
            ({"set_aside": 2.0, "steps": 1}, "set_aside"),
        ],
    )
    def test_a_mistake_names_arguments_and_not_options(
        self, tmp_path: Path, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(wherefrom.UserError, match=message) as caught:
            wherefrom.Study(tmp_path / "x", people=40, **options).run()
        assert "--" not in str(caught.value)
        assert not (tmp_path / "x" / "run.json").exists()

    def test_what_is_in_the_folder_is_not_overwritten(
        self, tiny_study: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(wherefrom.UserError, match="holds a run; add resume=True") as caught:
            wherefrom.Study(tiny_study, people=60, steps=8).run()
        assert str(caught.value).endswith("or choose another out.")
        (tmp_path / "mine.txt").write_text("mine")
        with pytest.raises(wherefrom.UserError, match="exists and is not a run"):
            wherefrom.Study(tmp_path, people=40, steps=1).run()
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def assert_prints(found: Any, begins: str, *words: str) -> None:
    """Short in a list, a few lines when printed, a table in a notebook."""
    assert repr(found).startswith(f"<{begins}")
    assert len(repr(found)) <= 102
    assert "\n" not in repr(found)
    assert len(str(found)) < 4000
    assert found._repr_html_().startswith("<table><tr>")
    for word in words:
        assert word in str(found)
        assert word in found._repr_html_()


class TestPrinting:
    def test_a_run(self, tiny_study: Path) -> None:
        assert_prints(wherefrom.load(tiny_study), f"Run {str(tiny_study)[:40]}", "pretrained")
        assert repr(wherefrom.Wherefrom(tiny_study)) == f"<Wherefrom {tiny_study}>"

    def test_what_others_wrote_is_escaped_in_a_notebook(self) -> None:
        record = wherefrom.Record("names", {"name": "<b>Al</b>", "rows": [1]})
        assert "<td>&lt;b&gt;Al&lt;/b&gt;</td>" in record._repr_html_()
        assert_prints(record, "Record names: 2 keys", "rows")
        assert record.to_dict() == {"name": "<b>Al</b>", "rows": [1]}


@pytest.fixture(scope="module")
def run(tiny_study: Path) -> wherefrom.Wherefrom:
    return wherefrom.Wherefrom(tiny_study)


class TestRun:
    def test_ask_takes_a_run_a_folder_or_an_open_run_and_one_question_or_several(
        self, run: wherefrom.Wherefrom, tiny_study: Path
    ) -> None:
        question = wherefrom.read_questions(tiny_study / "world" / "dev.tsv").questions[0].text
        with wherefrom.open_asker(run.run) as asker:
            opened = (tiny_study, str(tiny_study), run.run, asker)
            found = [wherefrom.ask(each, question) for each in opened]
            found += [wherefrom.ask(each, [question, NOBODY])[0] for each in opened]
        found += [run.ask(question), run.ask([question])[0]]
        assert isinstance(found[0], wherefrom.Verdict)
        records = [verdict.to_dict() for verdict in found]
        signals = [record.pop("signals") for record in records]  # sums in other orders
        assert all(each == pytest.approx(signals[0], rel=1e-5) for each in signals)
        assert len({json.dumps(record) for record in records}) == 1
        assert wherefrom.ask(run.run, []) == []

    def test_somebody_unseen_is_not_known_unless_an_answer_is_wanted(
        self, run: wherefrom.Wherefrom
    ) -> None:
        silent = run.ask(NOBODY)
        assert_prints(silent, "Verdict I don't know: ", "no line names Zzyzx Qwfp")
        assert (silent.shown, silent.verdict) == ("I don't know", "made up")
        always = run.ask(NOBODY, always_answer=True)
        assert always.shown == always.answer == silent.answer
        for ask in (run.ask, lambda *a, **b: wherefrom.ask(run.run, *a, **b)):
            with pytest.raises(wherefrom.UserError, match="risk"):
                ask(NOBODY, risk=2)

    def test_evaluate_counts_what_the_study_counted(
        self, run: wherefrom.Wherefrom, tiny_study: Path, tmp_path: Path
    ) -> None:
        dev = tiny_study / "world" / "dev.tsv"
        recall = run.evaluate(dev)
        counted = {row["name"]: row for row in run.run.info["results"]}
        rows = [counted["pretrained"], counted["left-out people"]]
        assert recall.total == sum(row["total"] for row in rows)
        assert recall.correct == sum(row["correct"] for row in rows)
        assert wherefrom.evaluate(tiny_study, wherefrom.read_questions(dev)) == recall
        (tmp_path / "asked.tsv").write_text("Where was Al Bo born?\nWhere was Cy Do born?\n")
        with pytest.raises(wherefrom.UserError, match="answer"):
            run.evaluate(tmp_path / "asked.tsv")

    def test_judge_names_and_report_do_what_their_commands_do(
        self, command: Any, tiny_study: Path, tmp_path: Path
    ) -> None:
        copy = Path(shutil.copytree(tiny_study, tmp_path / "run"))
        run = wherefrom.Wherefrom(copy)
        found = run.judge(resamples=20)
        said = json.loads(command("judge", copy, "--resamples", 20, "--json").out)
        assert json.loads(json.dumps(found)) == said
        assert_prints(found, "Record judge", str(copy)[:40])
        found = run.names(people=1)
        said = json.loads(command("names", copy, "--people", 1, "--json").out)
        assert json.loads(json.dumps(found)) == said
        path = run.report(tmp_path / "report.json")
        assert path.read_text("utf-8") == command("report", copy, "--format", "json").out
        assert run.report() == copy / "report.html"
        with pytest.raises(wherefrom.UserError, match="choose another out"):
            run.report(copy / "run.json")

    def test_the_newest_run_or_a_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_study: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(wherefrom.UserError, match="`wherefrom study --out runs/study`"):
            wherefrom.Wherefrom()
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs" / "mine").symlink_to(tiny_study)
        assert wherefrom.Wherefrom().run.folder == Path("runs/mine")
        with pytest.raises(wherefrom.UserError, match="not a run"):
            wherefrom.load(tmp_path)
