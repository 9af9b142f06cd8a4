"""The command line: instant help, one sentence for a mistake, results on stdout alone."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from wherefrom.cli import COMMANDS, cli
from wherefrom.recall.evaluate import Recall

README = Path(__file__).parents[1] / "README.md"
HEAVY = {"faker", "numpy", "pydantic", "rich", "sklearn", "tokenizers", "torch", "plotly", "scipy"}


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from wherefrom.cli import cli\n"
        "for arguments in (['--help'], ['study', '--help'], ['evaluate', '--help']):\n"
        "    cli.main(arguments, standalone_mode=False)\n"
        "print('loaded:', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *_, last = ended.stdout.splitlines()
    assert "click" in last.split()
    assert not HEAVY & set(last.split())


@pytest.mark.parametrize("own", [None, "7"])
def test_what_torch_reads_as_it_loads_is_set_unless_the_user_did(own: str | None) -> None:
    names = {"GOMP_SPINCOUNT": "1000", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}
    code = (
        "import os, sys\n"
        "from wherefrom import cli\n"
        "cli.cli.main = lambda **_: 0\n"
        "try:\n"
        "    cli.main()\n"
        "finally:\n"
        f"    print(*(os.environ[name] for name in {list(names)}), 'torch' in sys.modules)"
    )
    around = {key: value for key, value in os.environ.items() if key not in names}
    given = {} if own is None else dict.fromkeys(names, own)
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**around, **given},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    wanted = list(names.values()) if own is None else [own, own]
    assert ended.stdout.split() == [*wanted, "False"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_there_and_says_what_it_is_for(
    name: str, command: Any
) -> None:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    assert found.name == name
    ended = command(name, "--help")
    assert ended.code == 0
    begins = " ".join(found.get_short_help_str().split()[:3])
    assert re.search(rf"^  {name} +{re.escape(begins)}", command("--help").out, re.M)
    for parameter in found.params:
        if isinstance(parameter, click.Option) and parameter.name != "help":
            assert parameter.opts[0] in ended.out


def test_no_arguments_show_what_there_is(command: Any) -> None:
    ended = command()
    assert (ended.code, ended.err) == (0, "")
    assert set(COMMANDS) <= set(ended.out.split())


def test_the_version_is_told(command: Any) -> None:
    assert re.fullmatch(r"wherefrom \d+\.\d+\.\d+\n", command("--version").out)


@pytest.fixture
def run(tiny_study: Path) -> Path:
    return tiny_study


MISTAKES: dict[str, tuple[list[str], str]] = {
    "command": (["studdy"], 'there is no command "studdy". Did you mean "study"?'),
    "option": (["study", "--stepps", "3"], "--stepps"),
    "option of all": (["--colour"], "--colour"),
    "missing option": (["study"], "--out"),
    "missing argument": (["pretrain", "--out", "{out}"], "VARIANT"),
    "not a number": (["study", "--out", "{out}", "--steps", "ten"], "'ten'"),
    "number of files": (["study", "{docs}", "--out", "{out}"], "it got 1 file."),
    "variant": (["study", "--variant", "rotery", "--out", "{out}"], 'Did you mean "rotary"?'),
    "pretrain's variant": (["pretrain", "lama", "{docs}", "--out", "{out}"], 'mean "llama"?'),
    "recipe": (["study", "--recipe", "cours", "--out", "{out}"], 'Did you mean "course"?'),
    "recipes": (["recipes", "cours"], 'Did you mean "course"?'),
    "size": (["pretrain", "llama", "{docs}", "--size", "big", "--out", "{out}"], 'no size "big"'),
    "odd size": (["pretrain", "llama", "{docs}", "--size", "9x2x2", "--out", "{out}"], "divisible"),
    "few layers": (
        ["pretrain", "perceiver", "{docs}", "--size", "8x2x2", "--out", "{out}"],
        "at least 3 layers",
    ),
    "tokens": (["study", "--tokens", "words", "--out", "{out}"], "'words'"),
    "block": (["pretrain", "llama", "{docs}", "--block", "0", "--out", "{out}"], "block: "),
    "latents": (["pretrain", "perceiver", "{docs}", "--latents", "0", "--out", "{out}"], "latents"),
    "seed": (["study", "--seed", "-1", "--out", "{out}"], "--seed must be between 0 and"),
    "steps": (["study", "--steps", "0", "--out", "{out}"], "--steps must be a positive number"),
    "minutes": (["study", "--minutes", "nan", "--out", "{out}"], "--minutes must be a positive"),
    "two budgets": (
        ["study", "--steps", "3", "--epochs", "2", "--out", "{out}"],
        "give one of --minutes, --epochs and --steps, not 2.",
    ),
    "checkpoints": (["study", "--checkpoint-every", "-1", "--out", "{out}"], "--checkpoint-every"),
    "device": (["study", "--device", "tpu", "--out", "{out}"], "'tpu'"),
    "shard": (
        ["pretrain", "llama", "{docs}", "--shard", "--out", "{out}"],
        "--shard spreads a model over several processes",
    ),
    "people": (["study", "--people", "3", "--out", "{out}", "--quiet"], "and 3 were"),
    "corpus": (["pretrain", "llama", "{none}", "--out", "{out}"], "none"),
    "corpus is a folder": (["pretrain", "llama", "{folder}", "--out", "{out}"], "folder"),
    "corpus without names": (["pretrain", "llama", "{answers}", "--out", "{out}"], "line 1"),
    "arguments of finetune": (["finetune", "a", "b", "c", "--out", "{out}"], "it got 3 arguments."),
    "run to finetune": (["finetune", "{none}", "{train}", "--out", "{out}"], "is not a run"),
    "shape in finetune": (
        ["finetune", "{run}", "{train}", "--size", "tiny", "--out", "{out}"],
        "--size cannot be changed",
    ),
    "questions to finetune": (["finetune", "{run}", "{none}", "--out", "{out}"], "none"),
    "questions without answers": (["finetune", "{run}", "{asked}", "--out", "{out}"], "answer"),
    "template": (
        ["finetune", "{run}", "{train}", "--template", "Who?", "--out", "{out}"],
        "a template holds {subject} once",
    ),
    "run to evaluate": (["evaluate", "{folder}", "{dev}"], "is not a run: it holds no run.json."),
    "questions to evaluate": (["evaluate", "{run}", "{none}"], "none"),
    "predictions into a file's folder": (["evaluate", "{run}", "{dev}", "--out", "{dev}/x"], "x"),
    "baseline's file": (["baseline", "{train}", "{none}"], "none"),
    "baseline's answers": (["baseline", "{train}", "{asked}"], "answer"),
    "baseline's arguments": (["baseline", "{train}"], "DEV"),
    "run to export": (["export", "{none}", "--out", "{out}"], "is not a run"),
    "variants' arguments": (["variants", "llama"], "llama"),
    "world's people": (["world", "--people", "3", "--out", "{out}"], "and 3 were"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_2(
    name: str, command: Any, run: Path, small_world: Path, tmp_path: Path
) -> None:
    arguments, sentence = MISTAKES[name]
    (tmp_path / "asked.tsv").write_text("Where was Al Bo born?\nWhere was Cy Do born?\n")
    (tmp_path / "folder").mkdir()
    places = {
        "{asked}": tmp_path / "asked.tsv",
        "{answers}": small_world / "train.tsv",
        "{dev}": small_world / "dev.tsv",
        "{docs}": small_world / "documents.txt",
        "{folder}": tmp_path / "folder",
        "{none}": tmp_path / "none",
        "{out}": tmp_path / "out",
        "{run}": run,
        "{train}": small_world / "train.tsv",
    }
    for place, path in places.items():
        arguments = [argument.replace(place, str(path)) for argument in arguments]
    budgets = {"--steps", "--minutes", "--epochs", "--stepps"}
    if arguments[0] in ("study", "pretrain", "finetune") and not budgets & set(arguments):
        arguments += ["--steps", "1"]  # a mistake that is overlooked shall not train for a day
    ended = command(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("wherefrom: ")
    assert ended.err.count("\n") == 1
    assert sentence in ended.err
    assert ended.err.rstrip().endswith((".", "?", ")"))
    assert not (tmp_path / "out" / "run.json").exists()


def test_a_failure_of_ours_shows_its_trace_and_exits_1(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken inside")

    monkeypatch.setattr("wherefrom.training.recipes.shipped_recipes", fail)
    ended = command("recipes")
    assert ended.code == 1
    assert "broken inside" in ended.err
    assert "failure of ours" in ended.err


def test_recall_is_told_as_the_course_does() -> None:
    assert str(Recall(72, 500)) == "Correct: 72 out of 500: 14.4%"
    assert str(Recall(25, 500)) == "Correct: 25 out of 500: 5%"
    assert str(Recall(0, 3)) == "Correct: 0 out of 3: 0%"
    assert str(Recall(3, 3)) == "Correct: 3 out of 3: 100%"


class TestEvaluate:
    def test_with_answers_it_counts(self, command: Any, run: Path, small_world: Path) -> None:
        ended = command("evaluate", run, small_world / "dev.tsv")
        asked = len((small_world / "dev.tsv").read_text("utf-8").splitlines())
        assert re.fullmatch(rf"Correct: \d+ out of {asked}: [\d.]+%\n", ended.out)
        assert ended.err == ""

    def test_without_answers_it_prints_what_the_model_said_in_order(
        self, command: Any, run: Path, small_world: Path, tmp_path: Path
    ) -> None:
        rows = (small_world / "dev.tsv").read_text("utf-8").splitlines()
        texts = [row.split("\t")[0] for row in rows]
        said = []
        for number, order in enumerate((texts, texts[::-1])):
            path = tmp_path / f"{number}.tsv"
            path.write_text("".join(f"{text}\n" for text in order), "utf-8")
            ended = command("evaluate", run, path)
            assert ended.code == 0
            out = tmp_path / f"{number}.txt"
            silent = command("evaluate", run, path, "--out", out)
            assert silent.out == ""
            assert out.read_text("utf-8") == ended.out
            said.append(ended.out.split("\n")[:-1])
        assert len(said[0]) == len(texts)
        assert said[0] == said[1][::-1]

    def test_as_json_it_says_all(self, command: Any, run: Path, small_world: Path) -> None:
        ended = command("evaluate", run, small_world / "dev.tsv", "--json")
        told = json.loads(ended.out)
        rows = (small_world / "dev.tsv").read_text("utf-8").splitlines()
        assert [a["question"] for a in told["answers"]] == [row.split("\t")[0] for row in rows]
        assert all(answer["log_probability"] <= 0 for answer in told["answers"])
        right = [row.split("\t")[1] for row in rows]
        said = [answer["prediction"] for answer in told["answers"]]
        assert told["correct"] == sum(a == b for a, b in zip(said, right, strict=True))
        assert told["total"] == len(rows)


def test_baseline_scores_the_majority_one_answer_and_the_name(command: Any, tmp_path: Path) -> None:
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text(
        "Where was Ada Moe born?\tRome\n"
        "Where was Bo Nys born?\tOslo\n"
        "Where was Cleo Moe born?\tRome\n"
    )
    dev.write_text("Where was Dag Nys born?\tOslo\nWhere was Eva Moe born?\tRome\n")
    told = json.loads(command("baseline", train, dev, "--always", "Lima", "--json").out)
    assert told["majority"] == {"answer": "Rome", "correct": 1, "total": 2, "recall": 0.5}
    assert (told["always"]["answer"], told["always"]["correct"]) == ("Lima", 0)
    assert told["by name"]["correct"] == 2  # the surnames tell
    lines = command("baseline", train, dev).out.splitlines()
    assert lines[0] == "majority (Rome)  Correct: 1 out of 2: 50%"
    assert len(lines) == 2


def test_variants_are_listed_with_their_parameters(command: Any) -> None:
    told = {row["name"]: row["parameters"] for row in json.loads(command("variants", "--json").out)}
    assert told.pop("llama") > 0
    assert told == {
        "vanilla": 3_323_392,
        "rotary": 3_290_624,
        "synthesizer": 3_076_988,
        "perceiver": 3_339_776,
    }
    assert "3,323,392" in command("variants").out


def test_recipes_are_listed_and_shown(command: Any) -> None:
    names = [row["name"] for row in json.loads(command("recipes", "--json").out)]
    assert {"course", "speedrun"} <= set(names)
    table = command("recipes").out
    assert all(name in table for name in names)
    assert json.loads(command("recipes", "course").out)["phases"][0]["lr"] == 6e-3


def test_every_command_of_the_readme_exists() -> None:
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)
    text = "\n".join(blocks).replace("\\\n", " ")
    written = re.findall(r"^[$ ]*(?:\S*/)?wherefrom ([a-z].*)$", text, re.M)
    written += re.findall(r"`wherefrom ([a-z][^`\n]*)`", README.read_text("utf-8"))
    assert written
    for line in written:
        name, *rest = shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True)
        assert name in COMMANDS, line
        found = cli.get_command(click.Context(cli), name)
        assert found is not None
        known = {option for parameter in found.params for option in parameter.opts} | {"--help"}
        for word in rest:
            if word.startswith("--"):
                assert word.split("=")[0] in known, line


@pytest.mark.parametrize(
    ("package", "command", "extra"), [("fastapi", "serve", "[page]"), ("rich", "problems", "")]
)
def test_a_missing_package_is_a_sentence(package, command, extra, tmp_path):
    code = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['wherefrom', {command!r}]\n"
        "from wherefrom.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"wherefrom: this needs {package}")
    assert f'pip install "wherefrom{extra}"' in ended.stderr
    assert "Traceback" not in ended.stderr
