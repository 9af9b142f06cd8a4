"""The main job from end to end, and what it refuses, on a world of a few people."""

from __future__ import annotations

import inspect
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import wherefrom
from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.subjects import split_subjects
from wherefrom.corpus.world import make_world, write_world
from wherefrom.errors import UserError
from wherefrom.model.mixers import VARIANTS
from wherefrom.storage import sha256_of
from wherefrom.study import PROBES, StudyFiles, hold_out_probes, run_study, write_predictions
from wherefrom.training.optim import Muon
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import load_run
from wherefrom.training.settings import Settings

pytestmark = pytest.mark.usefixtures("small_training")
FILES = ("documents.txt", "train.tsv", "dev.tsv")


def lines_of(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    assert text.endswith("\n")
    return text.split("\n")[:-1]


@pytest.fixture
def repeat(
    tiny_study: Path,
    tmp_path: Path,
    quick_recipe: Path,
    tiny_study_options: tuple[object, ...],
    command: Any,
) -> Any:
    """The command that made `tiny_study`, with more options, on a copy in tmp_path / "run"."""
    out = shutil.copytree(tiny_study, tmp_path / "run")
    words = ("study", *tiny_study_options, "--recipe", quick_recipe, "--out", out)
    return lambda *more: command(*words, *more)


def test_a_study_compares_the_model_with_all_that_needs_no_reading(tiny_study: Path) -> None:
    run = load_run(tiny_study)
    rows = {row["name"]: row for row in run.info["results"]}
    dev, unseen = (lines_of(tiny_study / "world" / f"{name}.tsv") for name in ("dev", "unseen"))
    left_out = set(run.info["left_out"])
    gone = sum(any(name in line for name in left_out) for line in dev)
    assert {name: (row["total"], row["seconds"] is None) for name, row in rows.items()} == {
        "majority": (len(dev), True),
        "by name": (len(dev), True),
        "reader": (len(dev), True),
        "no pretraining": (len(dev), False),
        "pretrained": (len(dev) - gone, False),
        "left-out people": (gone, False),
        "unseen people": (len(unseen), False),
    }
    assert rows["majority"]["about"].startswith("always ")
    predictions = lines_of(tiny_study / "predictions" / "dev.txt")
    right = [line.split("\t")[1] for line in dev]
    correct = sum(a.strip() == b for a, b in zip(predictions, right, strict=True))
    assert correct == rows["pretrained"]["correct"] + rows["left-out people"]["correct"]
    twin = load_run(tiny_study / "twins" / "scratch")
    assert twin.info["kind"] == "scratch"
    assert twin.tokens.to_json() == run.tokens.to_json()
    assert twin.model.config == run.model.config


def test_run_json_holds_all_that_the_numbers_depend_on(tiny_study: Path) -> None:
    info = json.loads((tiny_study / "run.json").read_text("utf-8"))
    assert info["command"][:3] == ["wherefrom", "study", "--people"]
    assert info["job"]["seed"] == 2
    assert sum(phase["steps"] for phase in info["job"]["phases"]) == 20
    hashed = (info["data"]["corpus"], info["data"]["questions"], info["dev"])
    assert [each["sha256"] for each in hashed] == [
        sha256_of(tiny_study / "world" / name) for name in FILES
    ]
    assert info["sha256"] == sha256_of(tiny_study / "model.safetensors")
    assert {"wherefrom", "commit", "python", "torch"} <= info["versions"].keys()
    assert info["started"].startswith("20")
    assert info["seconds"] > 0
    assert (info["status"], info["kind"], info["steps"]) == ("finished", "study", 20)
    assert info["templates"][0] == "Where was {subject} born?"
    expected = {"config.json", "tokenizer.json", "model.safetensors", "run.json", "metrics.jsonl"}
    assert expected <= {path.name for path in tiny_study.iterdir()}


def test_resuming_a_finished_study_trains_nothing_and_prints_its_json(
    repeat: Any, tiny_study: Path, tmp_path: Path
) -> None:
    metrics = tmp_path / "run" / "metrics.jsonl"
    before = metrics.stat().st_mtime_ns
    ended = repeat("--resume", "--json")
    result = json.loads(ended.out)
    info = json.loads((tiny_study / "run.json").read_text("utf-8"))
    assert (ended.code, result["run"]) == (0, str(tmp_path / "run"))
    assert {key: result[key] for key in ("results", "notes", "judgement")} == {
        key: info[key] for key in ("results", "notes", "judgement")
    }
    assert "training the model" in ended.err
    assert metrics.stat().st_mtime_ns == before


def test_another_seed_or_size_of_the_world_is_refused_and_nothing_changes(
    repeat: Any, tmp_path: Path
) -> None:
    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = contents()
    for more, sentence in (
        ((), "already holds a run; add --resume"),
        (("--seed", 1), "already holds a run; add --resume"),
        (("--seed", 1, "--resume"), "holds another world than that of"),
        (("--people", 50, "--resume"), "holds another world than that of"),
        (("--steps", 5, "--resume"), "cannot be resumed"),
    ):
        ended = repeat(*more)
        assert ended.code == 2
        assert sentence in ended.err
    assert contents() == before


def test_files_are_studied_and_few_functions_lie_between_the_shell_and_the_optimizers_step(
    tmp_path: Path,
    quick_recipe: Path,
    small_world: Path,
    command: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Path(wherefrom.__file__).parent
    stacks: set[tuple[str, ...]] = set()

    def step(*_: object) -> None:
        frames = [each for each in inspect.stack() if Path(each.filename).is_relative_to(source)]
        stacks.add(tuple(each.function for each in reversed(frames)))

    monkeypatch.setattr(Muon, "step", step)
    out = tmp_path / "run"
    options = ("--recipe", quick_recipe, "--steps", 4, "--out", out, "--quiet")
    ended = command("study", *(small_world / name for name in FILES), *options)
    (stack,) = stacks
    assert stack[0] == "main"
    assert stack[-3:] == ("run_study", "run_training", "train")
    assert len(stack) <= 6
    assert (ended.code, ended.err) == (0, "")
    for name in ("majority", "by name", "no pretraining", "pretrained"):
        assert name in ended.out
    assert "in no document: guesses" not in ended.out  # that is known of the embedded world alone
    assert "invented names stand in for unseen subjects" in ended.out
    assert ended.out.rstrip().endswith(f"run folder: {out}")


@pytest.mark.parametrize("option", ["--set-aside", "--leave-out"])
@pytest.mark.parametrize("share", ["0.9", "-1", "nan", "much"])
def test_a_share_that_is_none_is_one_sentence_and_nothing_is_written(
    tmp_path: Path, quick_recipe: Path, command: Any, option: str, share: str
) -> None:
    out = tmp_path / "run"
    ended = command("study", "--recipe", quick_recipe, "--out", out, option, share)
    assert (ended.code, ended.err.count("\n"), out.exists()) == (2, 1, False)
    assert option in ended.err


def test_what_only_people_left_out_are_told_of_is_in_no_vocabulary(
    tmp_path: Path, quick_recipe: Path
) -> None:
    names = [f"Person {chr(65 + at)}{chr(97 + at)}" for at in range(26)]
    letters = [chr(0x4E00 + at) for at in range(26)]
    documents = [f"{n}. {n} came from Rome {x}." for n, x in zip(names, letters, strict=True)]
    rows = [f"Where was {name} born?\tRome" for name in names]
    for name, content in zip(FILES, (documents, rows[:16], rows[16:]), strict=True):
        (tmp_path / name).write_text("".join(line + "\n" for line in content), "utf-8")
    files = StudyFiles(*(tmp_path / name for name in FILES))
    settings = Settings(recipe=load_recipe(str(quick_recipe)), budget=Budget(steps=2))
    result = run_study(files, settings, tmp_path / "run", leave_out=0.5)
    left_out = set(json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["left_out"])
    assert len(left_out) == 13
    for run in (result.run, load_run(tmp_path / "run" / "twins" / "scratch")):
        vocabulary = json.loads(run.tokens.to_json())["model"]["vocab"]
        known = {name for name, x in zip(names, letters, strict=True) if x in vocabulary}
        assert known == set(names) - left_out


def test_those_who_tell_when_training_ends_are_not_learned_nor_calibrate_nor_judge(
    tmp_path: Path,
) -> None:
    place = write_world(make_world(700, 1), tmp_path / "world")
    corpus = read_documents(place / "documents.txt")
    train, dev = (read_questions(place / f"{name}.tsv") for name in ("train", "dev"))
    whole = split_subjects(corpus, train, dev, seed=3)
    split, probes = hold_out_probes(whole, seed=3)
    asked = {question.subject for question in probes}
    learned = {question.subject for question in split.train.questions}
    assert 10 <= len(asked) <= len(learned) / 19
    assert len(probes) <= PROBES
    assert not asked & learned
    assert not asked & {subject.subject for subject in split.subjects}
    assert len(probes) + len(split.train.questions) == len(whole.train.questions)
    assert hold_out_probes(whole, seed=3)[1] == probes != hold_out_probes(whole, seed=4)[1]


def test_a_study_that_may_end_by_itself_asks_as_it_trains_and_is_resumed_as_it_was(
    tmp_path: Path, quick_recipe: Path, small_world: Path, command: Any
) -> None:
    recipe, out = tmp_path / "own.toml", tmp_path / "run"
    more = "most_epochs = 3\nfloor = 1.0\naverage = 0.2\nbatch_examples = 5\n"
    recipe.write_text(
        quick_recipe.read_text("utf-8").replace("batch_examples = 5\n", more), "utf-8"
    )
    arguments = ("study", *(small_world / name for name in FILES), "--recipe", recipe, "--out", out)
    ended = command(*arguments)
    assert ended.code == 0
    # so few subjects that none is held out: what was read off the text is asked
    assert "documents, at most" in ended.err
    recalls = [json.loads(line)["recall"] for line in lines_of(out / "metrics.jsonl")]
    assert recalls[0] is None
    assert recalls[-1] is not None
    assert command(*arguments, "--resume").code == 0
    assert command(*arguments, "--resume", "--steps", 9).code == 2


def test_a_prediction_is_one_line_whatever_was_said(tmp_path: Path) -> None:
    said = ["a\nb", "c\u2028d", "", "e"]
    write_predictions(tmp_path / "deep" / "out.txt", said)
    assert lines_of(tmp_path / "deep" / "out.txt") == ["a b", "c d", "", "e"]


def test_a_folder_of_other_things_is_refused_before_any_training(
    tmp_path: Path, quick_recipe: Path, small_world: Path, command: Any
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for given in ((), [small_world / name for name in FILES]):
        ended = command("study", *given, "--recipe", quick_recipe, "--out", tmp_path)
        assert ended.code == 2
        assert "exists and is not a run" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("changed", "more", "sentence"),
    [
        ("documents.txt", "Al Bo. Al Bo sang.\n", "its vocabulary comes from has changed"),
        ("train.tsv", "Where was Al Bo born?\tRome\n", "questions"),
    ],
)
def test_a_changed_file_is_refused_while_only_the_twin_has_started(
    tmp_path: Path, quick_recipe: Path, small_world: Path, changed: str, more: str, sentence: str
) -> None:
    files = StudyFiles(*(Path(shutil.copy(small_world / name, tmp_path)) for name in FILES))
    settings = {"recipe": load_recipe(str(quick_recipe)), "budget": Budget(steps=12)}

    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_study(files, Settings(**settings), tmp_path / "run", observe=stop)
    with (tmp_path / changed).open("a", encoding="utf-8") as file:
        file.write(more)
    with pytest.raises(UserError, match=sentence):
        run_study(files, Settings(**settings, resume=True), tmp_path / "run")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_resumes_decodes_and_is_judged_on_the_embedded_world(
    tmp_path: Path, quick_recipe: Path, small_world: Path, command: Any, variant: str, monkeypatch
) -> None:
    base, tuned = tmp_path / "base", tmp_path / "tuned"
    options = ("--recipe", quick_recipe, "--quiet")
    pretrain = ("pretrain", variant, small_world / "documents.txt", "--out", base, *options)
    with monkeypatch.context() as patch:
        patch.setattr(
            "wherefrom.cli.train.Progress.__call__",
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
    assert len(lines_of(out)) == len(lines_of(small_world / "dev.tsv"))
    assert load_run(tuned).model.config.variant == variant
