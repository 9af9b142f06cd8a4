"""What `import wherefrom` offers: names imported when used, results that print, clear errors."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wherefrom
from wherefrom.study import StudyFiles
from wherefrom.training.recipes import load_recipe

NOBODY = "Where was Zzyzx Qwfp born?"


def loaded_by(code):
    """The packages that a fresh interpreter has loaded after the code."""
    code = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in ended.stdout.split()}


def test_each_name_is_there_documented_and_said_by_the_stub_and_none_hides_a_package():
    source, homes = Path(wherefrom.__file__), {}
    for node in ast.parse(source.with_suffix(".pyi").read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            homes |= {alias.asname: (node.module, alias.name) for alias in node.names}
    assert sorted(homes) == wherefrom.__all__
    for name, (module, inside) in homes.items():
        found = getattr(wherefrom, name)
        assert getattr(importlib.import_module(module), inside) is inspect.unwrap(found)
        # a dataclass without a docstring of its own gets its signature for one
        assert not (found.__doc__ or f"{name}(").startswith(f"{name}(")
        assert name in dir(wherefrom)
    assert not {path.stem for path in source.parent.iterdir()} & set(wherefrom.__all__)
    with pytest.raises(AttributeError, match="no attribute 'aks'"):
        wherefrom.aks  # noqa: B018
    assert wherefrom.__version__.split(".")[0].isdigit()


def test_importing_it_imports_nothing_else_and_the_workbench_needs_no_torch():
    assert loaded_by("import wherefrom") <= {"wherefrom", "importlib", "warnings"}
    calls = ("check('average', 'q=beta*(k_a+k_b)')", "design('copy')", "law('one-head')")
    code = "; ".join(f"wherefrom.{call}" for call in (*calls, "attend", "Study('x')"))
    assert "torch" not in loaded_by(f"import wherefrom; {code}")


# ---- a study


@pytest.mark.usefixtures("small_training")
def test_a_finished_study_is_repeated_without_training(tiny_study, quick_recipe, tmp_path):
    copy = Path(shutil.copytree(tiny_study, tmp_path / "run"))
    shares = {"set_aside": 0.3, "leave_out": 0.2, "recipe": quick_recipe}
    job = wherefrom.Study(copy, people=60, steps=20, seed=2, tokens="bpe", resume=True, **shares)
    found = job.run()
    info = json.loads((tiny_study / "run.json").read_text("utf-8"))
    assert found.rows == info["results"]
    assert found.run.record.sha256 == info["sha256"]
    assert found.judgement is not None
    assert_prints(found, "StudyResult run", "model")


def test_each_option_of_a_study_is_handed_on(tmp_path, quick_recipe, monkeypatch):
    handed = {}

    def remember(files, settings, out, **options):
        handed.update(options, files=files, settings=settings, out=out)

    monkeypatch.setattr("wherefrom.study.run_study", remember)
    options = {"template": "Who is {subject}?", "set_aside": 0.3, "leave_out": 0.25}
    shape = {"variant": "rotary", "size": "32x4x4", "tokens": "bpe", "seed": 9, "resume": True}
    files, out = ("corpus.txt", "train.tsv", "dev.tsv"), tmp_path / "run"
    job = wherefrom.Study(out, files, recipe=quick_recipe, minutes=3, **options, **shape)
    job.run(observe=print, say=print)
    settings = handed.pop("settings")
    assert {name: getattr(settings, name) for name in shape} == shape
    assert settings.recipe == load_recipe(str(quick_recipe))
    assert (settings.budget.minutes, settings.budget.steps) == (3, None)
    handed["template"] = handed.pop("templates")[0]
    given = {"files": StudyFiles(*map(Path, files)), "out": out, "observe": print, "say": print}
    assert handed == {**options, "subject_field": None, "text_field": None, **given}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"files": ("a",), "steps": 1}, "it got 1 file"),
        ({"files": ("here", "there", "where"), "steps": 1}, "here"),
        ({"seed": -1, "steps": 1}, "seed must be between 0"),
        ({"steps": True}, "steps must be a whole number, not True"),
        ({"template": [3]}, "template must be a text or texts"),
        ({"steps": 1, "minutes": 1}, "give one of minutes, epochs and steps, not 2"),
        ({"set_aside": 2.0, "steps": 1}, "set_aside"),
        ({"set_aside": "all"}, "set_aside must be a number, not 'all'"),
        ({"device": "x", "steps": 1}, "use device auto or cpu"),
        ({"files": "corpus.txt"}, "files must be a list of paths, not 'corpus.txt'"),
        ({"poeple": 3}, 'unexpected keyword argument .poeple.. Did you mean "people"'),
        ({"size": "9", "steps": 1}, 'no size "9"'),
    ],
)
def test_a_mistake_names_arguments_and_not_options(tmp_path, options, message):
    with pytest.raises(wherefrom.UserError, match=message) as caught:
        wherefrom.Study(tmp_path / "x", **{"people": 40, **options}).run()
    assert "--" not in str(caught.value)
    assert not (tmp_path / "x").exists()


def test_what_is_in_the_folder_is_not_overwritten(tiny_study, tmp_path):
    with pytest.raises(wherefrom.UserError, match=r"add resume=True.* choose another out\.$"):
        wherefrom.Study(tiny_study, people=60, steps=8).run()
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(wherefrom.UserError, match="exists and is not a run"):
        wherefrom.Study(tmp_path, people=40, steps=1).run()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def assert_prints(found, begins, *words):
    """Short in a list, a few lines when printed, a table in a notebook."""
    assert repr(found).startswith(f"<{begins}")
    assert len(repr(found)) <= 102
    assert "\n" not in repr(found)
    assert len(str(found)) < 5000
    assert found._repr_html_().startswith("<table><tr>")
    for word in words:
        assert word in str(found)
        assert word in found._repr_html_()


def test_what_others_wrote_is_escaped_in_a_notebook():
    record = wherefrom.Record("names", {"name": "<b>Al</b>", "rows": [1]})
    assert "<td>&lt;b&gt;Al&lt;/b&gt;</td>" in record._repr_html_()
    assert_prints(record, "Record names: 2 keys", "rows")
    assert record.to_dict() == {"name": "<b>Al</b>", "rows": [1]}


# ---- a run


@pytest.fixture(scope="module")
def run(tiny_study):
    return wherefrom.Wherefrom(tiny_study)


def test_a_run_prints_and_the_newest_is_taken_or_a_sentence(run, tmp_path, monkeypatch, tiny_study):
    assert_prints(run.run, f"Run {str(tiny_study)[:40]}", "model")
    assert repr(run) == f"<Wherefrom {tiny_study}>"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(wherefrom.UserError, match="`wherefrom study --out runs/study`"):
        wherefrom.Wherefrom()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(tiny_study)
    assert wherefrom.Wherefrom().run.folder == Path("runs/mine")
    with pytest.raises(wherefrom.UserError, match="not a run"):
        wherefrom.load(tmp_path)


def flat(value, path=""):
    """Path -> leaf, of everything inside the value."""
    if not isinstance(value, dict | list) or not value:
        return {path: value}
    leaves = {}
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        leaves |= flat(each, f"{path} > {key}" if path else str(key))
    return leaves


def test_ask_takes_a_run_a_folder_or_an_open_run_and_one_question_or_several(run, tiny_study):
    question = wherefrom.read_questions(tiny_study / "world" / "dev.tsv").questions[0].text
    with wherefrom.open_asker(run.run) as asker:
        opened = (str(tiny_study), run.run, run, asker)
        assert repr(asker) == f"<Asker {tiny_study}>"
        found = [wherefrom.ask(each, question) for each in opened]
        found += [wherefrom.ask(each, [question, NOBODY])[0] for each in opened]
    found += [run.ask(question), run.ask([question])[0]]
    assert isinstance(found[0], wherefrom.Verdict)
    first, *rest = [flat(verdict.to_dict()) for verdict in found]
    numbers = {key for key, leaf in first.items() if isinstance(leaf, float)}  # sums in any order
    for each in rest:
        assert {key: each[key] for key in numbers} == pytest.approx(
            {key: first[key] for key in numbers}, rel=1e-3, abs=2e-4
        )
        assert {k: leaf for k, leaf in each.items() if k not in numbers} == {
            k: leaf for k, leaf in first.items() if k not in numbers
        }
    assert wherefrom.ask(run.run, []) == []
    for strange in (3, None, [question, 3]):
        with pytest.raises(wherefrom.UserError, match="question must be a text or texts"):
            run.ask(strange)
        with pytest.raises(wherefrom.UserError, match="by the path of its folder"):
            wherefrom.ask(strange, question)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: wherefrom.Study(None), "out must be a path, not None"),
        (lambda run: wherefrom.Study(), "missing a required argument: 'out'"),
        (lambda run: wherefrom.trace(3, NOBODY), "by the path of its folder, not by 3"),
        (lambda run: wherefrom.read_documents(None), "path must be a path"),
        (lambda run: wherefrom.law("one-head", betta=3), 'Did you mean "beta"'),
        (lambda run: run.ask(NOBODY, risk="x"), "risk must be a number, not 'x'"),
        (lambda run: wherefrom.ask(run.run, NOBODY, risk=2), "risk must lie between 0 and 1"),
        (lambda run: run.ask(NOBODY, guarantee="x"), 'a guarantee is "from-text" or "right"'),
        (lambda run: run.ask(NOBODY, alwys_answer=True), 'Did you mean "always_answer"'),
        (lambda run: run.trace(NOBODY, top="x"), "top must be a whole number"),
        (lambda run: run.evaluate(3), "path must be a path"),
        (lambda run: run.judge(seed=-1), "seed must be a whole number from 0 up"),
        (lambda run: run.judge(sed=1), 'Did you mean "seed"'),
        (lambda run: wherefrom.write_world(3, "x"), "world must be a World, not 3"),
        (lambda run: run.names(each=3), "unexpected keyword argument 'each'"),
        (lambda run: run.twins(3), "without must be a text"),
        (lambda run: run.report(form="pdf"), "add format, such as html"),
        (lambda run: run.export(None), "out must be a path"),
    ],
)
def test_a_wrong_argument_is_a_sentence_and_nothing_is_written(
    run, tmp_path, monkeypatch, call, message
):
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in run.run.folder.rglob("*")}
    with pytest.raises(wherefrom.UserError, match=message):
        call(run)
    assert not list(tmp_path.iterdir())
    assert {path: path.stat().st_mtime_ns for path in run.run.folder.rglob("*")} == before


def test_somebody_unseen_is_not_known_unless_an_answer_is_wanted(run):
    silent = run.ask(NOBODY)
    assert_prints(silent, "Verdict I don't know: ", "no line names Zzyzx Qwfp")
    assert (silent.shown, silent.verdict) == ("I don't know", "made up")
    always = run.ask(NOBODY, always_answer=True)
    assert always.shown == always.answer == silent.answer


def test_evaluate_counts_what_the_study_counted(run, tiny_study, tmp_path):
    dev = tiny_study / "world" / "dev.tsv"
    recall = run.evaluate(dev)
    counted = {row["name"]: row for row in run.run.record.results}
    rows = [counted["model"], counted["left-out subjects"]]
    assert recall.total == sum(row["total"] for row in rows)
    assert recall.correct == sum(row["correct"] for row in rows)
    assert wherefrom.evaluate(tiny_study, wherefrom.read_questions(dev)) == recall
    (tmp_path / "asked.tsv").write_text("Where was Al Bo born?\nWhere was Cy Do born?\n")
    with pytest.raises(wherefrom.UserError, match="answer"):
        run.evaluate(tmp_path / "asked.tsv")


def test_judge_names_and_report_do_what_their_commands_do(command, tiny_study, tmp_path):
    copy = Path(shutil.copytree(tiny_study, tmp_path / "run"))
    run = wherefrom.Wherefrom(copy)
    found = run.judge(resamples=20)  # which the command prints as it was written
    written = json.loads((copy / "judgement.json").read_text("utf-8"))
    assert json.loads(json.dumps(found)) == {"run": str(copy), **written}
    assert_prints(found, "Record judge", str(copy)[:40])
    found = run.names(people=1)
    assert found.keys() == {"run", *json.loads((copy / "origins.json").read_text("utf-8"))}
    path = run.report(tmp_path / "report.json")
    assert path.read_text("utf-8") == command("report", copy, "--format", "json").out
    for out, message in ((copy / "run.json", "choose another out"), ("r.pdf", "ends in neither")):
        with pytest.raises(wherefrom.UserError, match=message):
            run.report(out)
