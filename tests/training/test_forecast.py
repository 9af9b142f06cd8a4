"""What a budget reaches is said before training and recorded after it."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_samples import documents, make_job, make_phase, training_data

from wherefrom.cli.output import Progress
from wherefrom.training.checkpoints import TrainingState
from wherefrom.training.forecast import (
    NO_BETTER,
    describe_budget,
    describe_passes,
    format_number,
    made_few_passes,
)
from wherefrom.training.recipes import Mixture
from wherefrom.training.sources import stream_for

READING = Mixture(span=1.0)


def forecast(folder, recipe, *, kind="pretrain", step_seconds=0.5, spent=2.5, **budget):
    """What is said after 5 steps, which took `spent` seconds: 20 documents, 7 in a batch."""
    nothing = {"epochs": None, "steps": None, "minutes": None}
    recipe_phase = make_phase(mixture=READING, **{**nothing, **recipe})
    phase = recipe_phase.model_copy(update={**nothing, **budget})
    job = make_job(folder, [phase])
    record = job.record.model_copy(update={"kind": kind})
    job = replace(job, record=record, recipe_phases=[recipe_phase])
    state = TrainingState(step=5, seconds=spent)
    return describe_budget(job, stream_for(phase, training_data(), [3, 0]), state, step_seconds)


def test_minutes_become_steps_and_passes_at_the_pace_that_was_measured(tmp_path):
    """20 documents in batches of 7: a pass is 20 / 7 steps."""
    said = forecast(tmp_path, {"epochs": 650}, minutes=2)
    assert "2 minutes on this machine, about 240 steps: 84 passes over the text" in said
    assert "(the recipe makes 650 in 15 minutes)" in said
    assert NO_BETTER not in said  # 84 is more than a tenth of 650
    # after a slow start the time that is left counts, not the whole budget
    assert "about 105 steps" in forecast(tmp_path, {"epochs": 650}, minutes=1, spent=10)
    said = forecast(tmp_path, {"epochs": 650}, minutes=1, step_seconds=1.0, spent=5)
    assert "60 seconds on this machine, about 60 steps" in said


def test_few_passes_are_said_to_teach_nothing_and_the_whole_recipe_is_not(tmp_path):
    assert NO_BETTER in forecast(tmp_path, {"epochs": 650}, epochs=64)
    whole = forecast(tmp_path, {"epochs": 650}, epochs=650)
    assert "650 passes over the text." in whole
    assert "recipe" not in whole
    assert NO_BETTER not in whole
    assert NO_BETTER in forecast(tmp_path, {"steps": 100}, steps=9)
    said = forecast(tmp_path, {"minutes": 3}, minutes=1)
    assert "the text (the recipe takes 3 minutes)." in said  # it has no passes to compare with
    assert "the recipe" not in forecast(tmp_path, {"minutes": 3}, minutes=3)
    assert "can only guess" in forecast(tmp_path, {"epochs": 5}, kind="scratch", epochs=5)


@given(st.floats(1e-3, 1e6))
def test_a_number_of_passes_keeps_its_size(value):
    shown = float(format_number(value).replace(",", ""))
    assert shown == pytest.approx(value, rel=0.06)


@pytest.mark.usefixtures("small_training")
class TestCommands:
    @pytest.fixture
    def homework(self, command, small_world, tmp_path):
        """Run a command of the homework; its last line of output, its messages, its record."""

        def run(*arguments, out):
            size = () if arguments[0] == "finetune" and "--scratch" not in arguments else ("tiny",)
            shape = ("--size", *size) if size else ()
            options = ("--recipe", "course", *shape, "--out", tmp_path / out)
            ended = command(*arguments, *options)
            assert ended.code == 0, ended.err
            return ended, json.loads((tmp_path / out / "run.json").read_text("utf-8"))

        return run

    def test_pretraining_and_finetuning_count_their_passes(self, homework, small_world, tmp_path):
        corpus, train = small_world / "documents.txt", small_world / "train.tsv"
        texts = len(corpus.read_text("utf-8").splitlines())
        asked = sum(not row.endswith("\t-") for row in train.read_text("utf-8").splitlines())
        ended, info = homework("pretrain", "vanilla", corpus, "--steps", 6, out="pre")
        (reading,) = info["passes"]
        assert reading["passes"] == pytest.approx(6 * 128 / texts)  # 128 documents in a batch
        assert (reading["steps"], reading["recipe_passes"]) == (6, 650)
        assert ended.err.count(NO_BETTER) == 1
        assert f"{describe_passes([reading])}, " in ended.out
        ended, info = homework("finetune", tmp_path / "pre", train, out="fine")
        assert info["passes"][0] == reading
        assert (info["passes"][1]["passes"], info["passes"][1]["over"]) == (10, "questions")
        assert info["passes"][1]["steps"] == max(1, round(10 * asked / 256))
        assert info["rung"] == "ordered"
        ended, info = homework("finetune", "--scratch", "vanilla", corpus, train, out="alone")
        assert [row["passes"] for row in info["passes"]] == [75]
        assert info["rung"] == "questions only"
        assert "can only guess" in ended.err

    def test_a_resumed_run_counts_all_of_its_steps(
        self, small_world, quick_recipe, command, tmp_path
    ):

        arguments = ("pretrain", "vanilla", small_world / "documents.txt", "--steps", 30)
        arguments += ("--recipe", quick_recipe, "--out", tmp_path / "run")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Progress, "__call__", lambda *_: signal.raise_signal(signal.SIGINT))
            assert command(*arguments).code == 130
        assert command(*arguments, "--resume").code == 0
        info = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
        assert [row["steps"] for row in info["passes"]] == [30]


def test_few_passes_are_a_tenth_of_the_recipes_and_questions_do_not_count():
    def row(over, passes, recipe_passes):
        return {"over": over, "passes": passes, "recipe_passes": recipe_passes}

    assert made_few_passes([row("text", 64, 650)])
    assert not made_few_passes([row("text", 66, 650)])
    assert not made_few_passes([row("questions", 1, 75)])
    assert not made_few_passes([row("text", 1, None)])
    assert not made_few_passes([])
    assert made_few_passes([row("text", 40, 100), row("text", 2, 650), row("questions", 10, 10)])
    both = describe_passes([row("text", 40, 100), row("text", 2, 650), row("questions", 10, 10)])
    assert both == "42 passes over the text (the recipe makes 750), 10 passes over the questions"
    assert describe_passes([row("text", 4, None), row("text", 1, 9)]) == "5 passes over the text"
    assert len(documents()) == 20  # what the forecasts above count on
