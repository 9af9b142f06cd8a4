"""A run that was stopped, in whatever way, goes on to the weights of one that was not."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from training_samples import (
    BLOCK,
    make_phase,
    questions,
    read_metrics,
    same_weights,
    tokens,
    train_model,
)

from wherefrom.errors import Stopped
from wherefrom.model.decoder import Decoder
from wherefrom.training import loop, pace
from wherefrom.training.loop import Observer
from wherefrom.training.metrics import StepMetrics
from wherefrom.training.recipes import Mixture
from wherefrom.training.record import read_record, update_run
from wherefrom.training.sources import TrainingData

PROGRESS = "wherefrom.cli.train.Progress.__call__"
READ = {"name": "read", "steps": 14, "batch_examples": None, "batch_tokens": 256}
ASK = {"name": "ask", "steps": 13, "batch_examples": 4, "average": 0.2}
PHASES = {
    kind: [
        make_phase(**READ, mixture=Mixture(span=1.0, text=1.0), optimizer=kind),
        make_phase(**ASK, mixture=Mixture(question=1.0), optimizer=kind),
    ]
    for kind in ("adamw", "muon")
}


def stop_at(step: int, number: signal.Signals | None = signal.SIGINT) -> Observer:
    """A signal while the loop logs that step; without a number a crash, which saves nothing."""

    def observe(metrics: StepMetrics, _: Decoder) -> None:
        if metrics.step == step:
            if number is None:
                raise MemoryError
            signal.raise_signal(number)

    return observe


def curve(folder: Path) -> list[tuple[int, float, float, int]]:
    return [(x["step"], x["loss"], x["lr"], x["tokens"]) for x in read_metrics(folder)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, make_small):
    """Runs of both optimizers that were not stopped."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        return {
            kind: (train_model(folder / kind, PHASES[kind], dropout=0.1), folder / kind)
            for kind in PHASES
        }


@pytest.mark.usefixtures("small_training")
class TestInOneProcess:
    def test_it_ends_when_recall_stops_growing_also_after_a_stop(self, tmp_path, monkeypatch):
        monkeypatch.setattr(pace, "LEAST_STEPS", 100)
        learned = questions()[::2]
        how = {
            "data": TrainingData.encode(None, learned, tokens(), BLOCK),
            "stopping": learned,
        }
        keys = {"steps": None, "epochs": 40, "most_epochs": 900, "floor": 1.0, "average": 0.1}
        only = Mixture(question=1.0)
        phase = make_phase(mixture=only, batch_examples=10, optimizer="muon", **keys)
        messages: list[str] = []
        whole = train_model(tmp_path / "whole", [phase], **how, say=messages.append)
        with pytest.raises(Stopped):
            train_model(tmp_path / "parts", [phase], **how, observe=stop_at(60))
        parts = train_model(tmp_path / "parts", [phase], **how, resume=True)
        assert same_weights(whole, parts)
        assert curve(tmp_path / "whole") == curve(tmp_path / "parts")
        lines = read_metrics(tmp_path / "whole")
        assert 40 <= lines[-1]["step"] < 800
        assert lines[-1]["recall"] == 1.0 > lines[2]["recall"]
        assert "until recall on 10 questions stops growing" in messages[0]
        shown = [line["progress"] for line in lines]
        assert shown[-1] == 1 > shown[-2] > 0.5  # of where it ends, not of the 900 passes

    # in the first phase, at its last step, in the second phase, at the very last step
    @pytest.mark.parametrize(
        ("kind", "step", "number", "broken"),
        [
            ("adamw", 10, signal.SIGINT, False),
            ("muon", 14, signal.SIGTERM, False),
            ("adamw", 27, signal.SIGTERM, False),
            ("muon", 10, None, False),
            ("adamw", 20, None, True),
        ],
    )
    def test_after_a_signal_or_a_crash_it_goes_on_to_the_same_weights(
        self, tmp_path, whole, kind, step, number, broken
    ):
        parts = tmp_path / "parts"
        how = {"dropout": 0.1, "observe": stop_at(step, number)}
        if number is not None:
            with pytest.raises(Stopped) as end:
                train_model(parts, PHASES[kind], **how)
            assert end.value.signal_number == number
            assert (parts / "checkpoints" / f"step-{step:09d}.json").exists()  # nothing is lost
        else:
            with pytest.raises(MemoryError):
                train_model(parts, PHASES[kind], **how, checkpoint_every=0)
            assert read_metrics(parts)[-1]["step"] == step  # logged and not in a checkpoint
        if broken:  # costs steps and not the result
            newest = max((parts / "checkpoints").glob("*.safetensors"))
            newest.write_bytes(newest.read_bytes()[:-1])
            with open(parts / "metrics.jsonl", "a") as file:
                file.write('{"phase": "read", "step": 1')
        resumed = train_model(parts, PHASES[kind], dropout=0.1, resume=True)
        model, folder = whole[kind]
        assert same_weights(model, resumed)
        assert curve(parts) == curve(folder)
        if number is None:
            board = EventAccumulator(str(parts / "events")).Reload()
            assert [event.step for event in board.Scalars("loss")] == [10, 14, 20, 27]

    def test_minutes_go_on_where_they_were(self, tmp_path, monkeypatch):
        ticks = itertools.count()
        monkeypatch.setattr(loop.time, "perf_counter", lambda: 0.02 * next(ticks))
        phases = [make_phase(steps=None, minutes=0.6 / 60, optimizer="muon")]
        with pytest.raises(Stopped):
            train_model(tmp_path, phases, observe=stop_at(20))
        train_model(tmp_path, phases, resume=True)
        lines = read_metrics(tmp_path)
        assert [line["step"] for line in lines] == [10, 20, 30]
        assert [line["progress"] for line in lines] == pytest.approx([1 / 3, 2 / 3, 1], abs=0.04)
        for before, line in itertools.pairwise(lines):
            tokens, seconds = (line[key] - before[key] for key in ("tokens", "seconds"))
            assert line["tokens_per_second"] == pytest.approx(tokens / seconds)


def wait_for(process: subprocess.Popen[str], folder: Path, step: int) -> None:
    """Until the run in `folder` has logged that step and has a checkpoint to go on from."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        logged = "".join(path.read_text() for path in folder.glob("metrics.jsonl"))
        if f'"step": {step},' in logged and any(folder.glob("checkpoints/*.json")):
            return
        time.sleep(0.01)
    pytest.fail(f"no step {step} within a minute")


def test_killed_with_9_and_then_stopped_by_a_signal_it_ends_in_the_same_bytes(
    tmp_path, small_world, quick_recipe, command, start_process, monkeypatch
):
    first = ("pretrain", "synthesizer", small_world / "documents.txt", "--recipe", quick_recipe)
    options = ("--steps", 60, "--seed", 4, "--quiet")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert command(*first, "--out", whole, *options).code == 0
    arguments = (*first, "--out", parts, *options, "--checkpoint-every", "0.05")
    process = start_process(*arguments)
    wait_for(process, parts, 20)
    second = command(*arguments, "--resume")
    assert second.code == 2
    assert f"is in use by process {process.pid} on {socket.gethostname()};" in second.err
    assert second.err.count("\n") == 1
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not (parts / "model.safetensors").exists()
    with monkeypatch.context() as patch:
        patch.setattr(PROGRESS, lambda *_: signal.raise_signal(signal.SIGTERM))
        stopped = command(*arguments, "--resume")
    said = "wherefrom: stopped; continue it by repeating the command with --resume."
    assert (stopped.code, stopped.out, stopped.err.strip()) == (143, "", said)
    assert json.loads((parts / "run.json").read_text())["status"] == "stopped"
    refused = command("evaluate", parts, small_world / "dev.tsv")
    assert refused.code == 2
    assert "has not finished training; go on with it by repeating" in refused.err
    assert command(*arguments, "--resume").code == 0
    info = json.loads((parts / "run.json").read_text())
    assert info["status"] == "finished"
    assert "--resume" not in info["command"]  # the run's command, not the last one
    weights = "model.safetensors"
    assert (parts / weights).read_bytes() == (whole / weights).read_bytes()
    assert curve(parts) == curve(whole)


@pytest.mark.usefixtures("small_training")
class TestRefusals:
    @pytest.fixture
    def arguments(self, small_world, quick_recipe, tmp_path):
        corpus = shutil.copy(small_world / "documents.txt", tmp_path / "documents.txt")
        options = ["--recipe", quick_recipe, "--steps", 12, "--out", tmp_path / "run", "--quiet"]
        return ["pretrain", "vanilla", corpus, *options]

    @pytest.fixture
    def stopped(self, arguments, command, monkeypatch):
        """The arguments of a run that Ctrl-C stopped at its tenth step."""
        with monkeypatch.context() as patch:
            patch.setattr(PROGRESS, lambda *_: signal.raise_signal(signal.SIGINT))
            assert command(*arguments).code == 130
        return arguments

    def test_another_configuration_or_text_is_refused(self, stopped, command):
        for changed, sentence in (
            ([*stopped, "--seed", 1], "seed was 0 and is now 1;"),
            ([*stopped, "--size", "32x3x2"], "model.width was 16 and is now 32;"),
            ([*stopped, "--steps", 13], "phases.0.steps was 12 and is now 13;"),
            ([*stopped, "--tokens", "bpe"], "tokens was chars and is now bpe of 1000;"),
            (["pretrain", "llama", *stopped[2:]], "model.variant was vanilla and is now llama;"),
        ):
            ended = command(*changed, "--resume")
            assert (ended.code, ended.out) == (2, "")
            assert f"cannot be resumed: {sentence}" in ended.err
            assert ended.err.count("\n") == 1
        ended = command(*stopped)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert "already holds a run; add --resume to go on with it" in ended.err
        corpus = Path(str(stopped[2]))
        text = corpus.read_text("utf-8")
        corpus.write_text(text + "Al Bo. Al Bo sang.\n", "utf-8")
        ended = command(*stopped, "--resume")
        assert ended.code == 2
        assert "cannot be resumed: the text of its corpus changed since it started" in ended.err
        corpus.write_text(text, "utf-8")
        assert command(*stopped, "--resume").code == 0  # and nothing was harmed

    def test_what_is_not_a_run_is_left_alone(self, arguments, command, tmp_path):
        mine = tmp_path / "run" / "thesis.tex"
        mine.parent.mkdir()
        mine.write_text("mine")
        for more in ((), ("--resume",)):
            ended = command(*arguments, *more)
            assert (ended.code, ended.err.count("\n")) == (2, 1)
            assert "run exists and is not a run; choose another --out." in ended.err
        assert list((tmp_path / "run").rglob("*")) == [mine]

    def test_other_threads_or_libraries_are_warned_of_and_recorded(
        self, stopped, command, tmp_path
    ):
        now = read_record(tmp_path / "run").versions
        was = {**now, "threads": "31", "tokenizers": "0.1", "wherefrom": "0.0"}
        update_run(tmp_path / "run", versions=was)
        ended = command(*(word for word in stopped if word != "--quiet"), "--resume")
        assert ended.code == 0
        (warning,) = [
            line for line in ended.err.splitlines() if "may differ in the last bits" in line
        ]
        assert f"threads was 31 and is now {now['threads']}" in warning
        assert f"tokenizers was 0.1 and is now {now['tokenizers']})" in warning
        assert "torch" not in warning
        record = read_record(tmp_path / "run")
        assert record.versions == now
        assert record.earlier_versions == (was,)

    def test_resume_of_nothing_starts_and_of_a_finished_run_changes_nothing(
        self, arguments, command, tmp_path
    ):
        first = command(*arguments, "--resume", "--json")
        assert first.code == 0
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
        again = command(*arguments, "--resume", "--json")
        assert (again.code, again.out, again.err) == (0, first.out, "")
        assert {path: path.stat().st_mtime_ns for path in before} == before
