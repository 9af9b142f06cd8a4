"""What a budget reaches is said before training and recorded after it."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_samples import make_job, make_phase, training_data

from wherefrom.cli.output import Progress
from wherefrom.training.checkpoints import TrainingState
from wherefrom.training.forecast import NO_BETTER, describe_length, describe_passes, format_number
from wherefrom.training.pace import Pace
from wherefrom.training.recipes import Mixture
from wherefrom.training.record import PassesRecord
from wherefrom.training.sources import stream_for

WHOLE = "650 passes over the text."
GUESS = "it can only guess: expect"
LITTLE = "too little to remember single documents: expect"


# 20 documents in batches of 7, so a pass is 20 / 7 steps; 5 steps are done
@pytest.mark.parametrize(
    ("recipe", "budget", "about", "passes"),
    [
        (
            {"epochs": 650},
            {"minutes": 2},
            "2 minutes on this machine (the recipe takes 15 minutes), about 240 steps",
            "84 passes over the text (the recipe makes 650).",
        ),
        # after a slow start the time that is left counts, not the whole budget
        ({"epochs": 650}, {"minutes": 1, "spent": 10}, "about 105 steps", LITTLE),
        (
            {"epochs": 650},
            {"minutes": 1, "spent": 5, "step_seconds": 1.0},
            "60 seconds on this machine (the recipe takes 31 minutes), about 60 steps",
            LITTLE,
        ),
        ({"epochs": 650}, {"epochs": 64}, "(the recipe takes 15 minutes)", LITTLE),
        ({"epochs": 650}, {"epochs": 650}, "15 minutes on this machine, about", WHOLE),
        ({"steps": 100}, {"steps": 9}, "about 9 steps: 3.1 passes", LITTLE),
        # a recipe of minutes has no passes to compare with
        ({"minutes": 3}, {"minutes": 1}, "(the recipe takes 3 minutes)", "over the text."),
        ({"minutes": 3}, {"minutes": 3}, "3 minutes on this machine, about", "over the text."),
        ({"epochs": 5}, {"epochs": 5, "kind": "scratch"}, "5 passes over the text.", GUESS),
    ],
)
def test_what_a_budget_reaches_is_said_at_the_pace_that_was_measured(
    tmp_path, recipe, budget, about, passes
):
    given = {"kind": "pretrain", "spent": 2.5, "step_seconds": 0.5, **budget}
    kind, spent, step_seconds = (given.pop(key) for key in ("kind", "spent", "step_seconds"))
    nothing = {"epochs": None, "steps": None, "minutes": None}
    recipe_phase = make_phase(mixture=Mixture(span=1.0), **{**nothing, **recipe})
    phase = recipe_phase.model_copy(update={**nothing, **given})
    job = make_job(tmp_path, [phase])
    record = job.record.model_copy(update={"kind": kind})
    job = replace(job, record=record, recipe_phases=[recipe_phase])
    state, stream = TrainingState(step=5, seconds=spent), stream_for(phase, training_data(), [3, 0])
    said = describe_length(Pace(job, stream, state), step_seconds)
    assert about in said
    assert passes in said
    assert (NO_BETTER in said) == (passes in (LITTLE, GUESS))


def test_passes_of_phases_are_added_up_over_the_text_and_over_the_questions():
    def row(over, passes, recipe_passes):
        return PassesRecord(
            phase="", over=over, steps=1, passes=passes, recipe_passes=recipe_passes
        )

    both = [row("text", 40, 100), row("text", 2, 650), row("questions", 10, 10)]
    said = "42 passes over the text (the recipe makes 750), 10 passes over the questions"
    assert describe_passes(both) == said
    assert describe_passes([row("text", 1, None)]) == "1 pass over the text"
    assert describe_passes([row("text", 4, None), row("text", 1, 9)]) == "5 passes over the text"


@given(st.floats(1e-3, 1e6))
def test_a_number_of_passes_keeps_its_size(value):
    assert float(format_number(value).replace(",", "")) == pytest.approx(value, rel=0.06)


@pytest.mark.usefixtures("small_training")
def test_commands_count_their_passes_also_after_a_stop(command, small_world, tmp_path, monkeypatch):
    corpus, train = small_world / "documents.txt", small_world / "train.tsv"
    texts = len(corpus.read_text("utf-8").splitlines())
    asked = sum(not row.endswith("\t-") for row in train.read_text("utf-8").splitlines())

    def run(*arguments, out, code=0):
        ended = command(*arguments, "--recipe", "course", "--out", tmp_path / out)
        assert ended.code == code, ended.err
        return ended, json.loads((tmp_path / out / "run.json").read_text("utf-8"))

    pretrain = ("pretrain", "vanilla", corpus, "--steps", 12, "--size", "tiny")
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", lambda *_: signal.raise_signal(signal.SIGINT))
        stopped, _ = run(*pretrain, out="pre", code=130)
    assert stopped.err.count(NO_BETTER) == 1
    ended, info = run(*pretrain, "--resume", out="pre")
    (reading,) = info["passes"]
    assert reading["passes"] == pytest.approx(12 * 128 / texts)  # 128 documents in a batch
    assert (reading["steps"], reading["recipe_passes"]) == (12, 650)
    assert f"{describe_passes([PassesRecord(**reading)])}, " in ended.out
    _, info = run("finetune", tmp_path / "pre", train, out="fine")
    first, second = info["passes"]
    assert (first, info["rung"]) == (reading, "ordered")
    assert (second["passes"], second["over"]) == (10, "questions")
    assert second["steps"] == max(1, round(10 * asked / 256))
    scratch = ("finetune", "--scratch", "vanilla", corpus, train, "--size", "tiny")
    ended, info = run(*scratch, out="alone")
    assert [row["passes"] for row in info["passes"]] == [75]
    assert info["rung"] == "questions only"
    assert GUESS in ended.err
