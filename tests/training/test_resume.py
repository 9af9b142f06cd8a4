"""A run that was stopped, in whatever way, goes on to the weights of one that was not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from training_samples import make_phase, read_metrics, train_model

from wherefrom.errors import Stopped
from wherefrom.model.decoder import Decoder
from wherefrom.training.loop import Observer, Tick
from wherefrom.training.recipes import Mixture, Phase

PHASES = {
    kind: [
        make_phase(
            name="read",
            mixture=Mixture(span=1.0, text=1.0),
            steps=14,
            batch_examples=None,
            batch_tokens=256,
            optimizer=kind,
        ),
        make_phase(
            name="ask",
            mixture=Mixture(question=1.0),
            steps=13,
            batch_examples=4,
            optimizer=kind,
        ),
    ]
    for kind in ("adamw", "muon")
}


def interrupt_at(step: int) -> Observer:
    """Ctrl-C while the loop tells of that step."""

    def observe(tick: Tick, model: Decoder) -> None:
        if tick.step == step:
            signal.raise_signal(signal.SIGINT)

    return observe


def crash_at(step: int) -> Observer:
    """The step is told of and then nothing more is done, as with a kill."""

    def observe(tick: Tick, model: Decoder) -> None:
        if tick.step == step:
            raise MemoryError

    return observe


def same_weights(a: Decoder, b: Decoder) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def curve(folder: Path) -> list[tuple[int, float, float, int]]:
    return [(x["step"], x["loss"], x["lr"], x["tokens"]) for x in read_metrics(folder)]


@pytest.mark.usefixtures("small_pools")
class TestInOneProcess:
    @pytest.mark.parametrize("kind", ["adamw", "muon"])
    @pytest.mark.parametrize("dropout", [0.0, 0.2])
    # in the first phase, with its last step, in the second phase, with the very last step
    @pytest.mark.parametrize("step", [10, 14, 20, 27])
    def test_after_ctrl_c_it_goes_on_to_the_same_weights(
        self, tmp_path: Path, kind: str, dropout: float, step: int
    ) -> None:
        phases = PHASES[kind]
        whole = train_model(tmp_path / "whole", phases, dropout=dropout)
        parts = tmp_path / "parts"
        stop = interrupt_at(step)
        if step < 27:
            with pytest.raises(Stopped):
                train_model(parts, phases, dropout=dropout, observe=stop)
        else:  # asked for when all steps were done: it may as well finish
            train_model(parts, phases, dropout=dropout, observe=stop)
        resumed = train_model(parts, phases, dropout=dropout, resume=True)
        assert same_weights(whole, resumed)
        assert curve(parts) == curve(tmp_path / "whole")

    @pytest.mark.parametrize("kind", ["adamw", "muon"])
    @pytest.mark.parametrize("step", [10, 14, 20, 27])
    def test_after_a_crash_it_goes_on_to_the_same_weights_and_tells_no_step_twice(
        self, tmp_path: Path, kind: str, step: int
    ) -> None:
        phases = PHASES[kind]
        whole = train_model(tmp_path / "whole", phases, dropout=0.1)
        parts = tmp_path / "parts"
        with pytest.raises(MemoryError):
            train_model(parts, phases, dropout=0.1, observe=crash_at(step), checkpoint_every=0)
        assert read_metrics(parts)[-1]["step"] == step  # told of and not in a checkpoint
        resumed = train_model(parts, phases, dropout=0.1, resume=True)
        assert same_weights(whole, resumed)
        assert curve(parts) == curve(tmp_path / "whole")
        board = EventAccumulator(str(parts / "events")).Reload()
        assert [event.step for event in board.Scalars("loss")] == [10, 14, 20, 27]

    def test_it_may_be_stopped_again_and_again(self, tmp_path: Path) -> None:
        phases = PHASES["muon"]
        whole = train_model(tmp_path / "whole", phases)
        for step in (10, 20):
            with pytest.raises(Stopped):
                train_model(tmp_path / "parts", phases, resume=True, observe=interrupt_at(step))
        assert same_weights(whole, train_model(tmp_path / "parts", phases, resume=True))

    def test_without_any_checkpoint_it_starts_over(self, tmp_path: Path) -> None:
        phases = PHASES["adamw"]
        whole = train_model(tmp_path / "whole", phases)
        with pytest.raises(MemoryError):
            train_model(tmp_path / "parts", phases, observe=crash_at(10))
        assert same_weights(whole, train_model(tmp_path / "parts", phases, resume=True))
        assert curve(tmp_path / "parts") == curve(tmp_path / "whole")

    def test_a_broken_newest_checkpoint_costs_steps_and_not_the_result(
        self, tmp_path: Path
    ) -> None:
        phases = PHASES["muon"]
        whole = train_model(tmp_path / "whole", phases)
        parts = tmp_path / "parts"
        with pytest.raises(MemoryError):
            train_model(parts, phases, observe=crash_at(20), checkpoint_every=0)
        newest = max((parts / "checkpoints").glob("*.safetensors"))
        newest.write_bytes(newest.read_bytes()[:-1])
        assert same_weights(whole, train_model(parts, phases, resume=True))
        assert curve(parts) == curve(tmp_path / "whole")

    def test_a_metrics_line_cut_short_is_dropped(self, tmp_path: Path) -> None:
        phases = PHASES["adamw"]
        train_model(tmp_path / "whole", phases)
        parts = tmp_path / "parts"
        with pytest.raises(Stopped):
            train_model(parts, phases, observe=interrupt_at(10))
        with open(parts / "metrics.jsonl", "a") as file:
            file.write('{"phase": "read", "step": 1')
        train_model(parts, phases, resume=True)
        assert curve(parts) == curve(tmp_path / "whole")

    def test_minutes_are_replayed_step_by_step(self, tmp_path: Path) -> None:
        def phases() -> list[Phase]:
            return [make_phase(steps=None, minutes=0.6 / 60, optimizer="muon")]

        whole = train_model(tmp_path / "whole", phases(), checkpoint_every=0.1)
        # a run that was killed early: its record of the pace is there and its checkpoints are not
        parts = tmp_path / "parts"
        parts.mkdir()
        shutil.copy(tmp_path / "whole" / "pace.jsonl", parts)
        resumed = train_model(parts, phases(), resume=True)
        assert same_weights(whole, resumed)
        assert curve(parts) == curve(tmp_path / "whole")


Start = Callable[..., "subprocess.Popen[str]"]


def wait_for(process: subprocess.Popen[str], folder: Path, step: int) -> None:
    """Until the run in `folder` has told of that step and has a checkpoint to go on from."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        if (folder / "metrics.jsonl").exists() and any(folder.glob("checkpoints/*.json")):
            told = (folder / "metrics.jsonl").read_text().splitlines()
            if told and f'"step": {step},' in "".join(told):
                return
        time.sleep(0.01)
    pytest.fail(f"no step {step} within a minute")


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


class TestRealProcesses:
    def test_killed_with_9_in_the_middle_it_ends_in_the_same_bytes(
        self, tmp_path: Path, small_world: Path, quick_recipe: Path, command, start_process: Start
    ) -> None:
        files = [small_world / name for name in ("documents.txt", "train.tsv", "dev.tsv")]
        options = ["--recipe", quick_recipe, "--steps", 120, "--seed", 4, "--quiet"]
        whole = tmp_path / "whole"
        assert command("study", *files, "--out", whole, *options).code == 0
        parts = tmp_path / "parts"
        arguments = ("study", *files, "--out", parts, *options, "--checkpoint-every", "0.05")
        process = start_process(*arguments)
        wait_for(process, parts, 30)
        os.kill(process.pid, signal.SIGKILL)
        assert end(process)[0] == -signal.SIGKILL
        assert not (parts / "model.safetensors").exists()
        code, _, err = end(start_process(*arguments, "--resume"))
        assert (code, err) == (0, "")
        for name in ("model.safetensors", "twins/scratch/model.safetensors", "predictions/dev.txt"):
            assert (parts / name).read_bytes() == (whole / name).read_bytes()
        assert curve(parts) == curve(whole)

    def test_ctrl_c_saves_says_how_to_go_on_and_ends_in_the_same_bytes(
        self, tmp_path: Path, small_world: Path, quick_recipe: Path, command, start_process: Start
    ) -> None:
        first = ("pretrain", "synthesizer", small_world / "documents.txt", "--recipe", quick_recipe)
        options = ("--steps", 120, "--seed", 4, "--quiet")
        whole, parts = tmp_path / "whole", tmp_path / "parts"
        assert command(*first, "--out", whole, *options).code == 0
        process = start_process(*first, "--out", parts, *options, "--checkpoint-every", "0.05")
        wait_for(process, parts, 30)
        os.kill(process.pid, signal.SIGINT)
        code, out, err = end(process)
        assert (code, out) == (130, "")
        said = "wherefrom: stopped; go on with it by repeating the command with --resume."
        assert err.strip() == said
        assert json.loads((parts / "run.json").read_text())["status"] == "stopped"
        refused = command("evaluate", parts, small_world / "dev.tsv")
        assert refused.code == 2
        assert "has not finished training; go on with it by repeating" in refused.err
        assert command(*first, "--out", parts, *options, "--resume").code == 0
        info = json.loads((parts / "run.json").read_text())
        assert info["status"] == "finished"
        assert "--resume" not in info["command"]  # the run's command, not the last one
        weights = "model.safetensors"
        assert (parts / weights).read_bytes() == (whole / weights).read_bytes()


@pytest.mark.usefixtures("small_pools")
class TestRefusals:
    @pytest.fixture
    def arguments(self, small_world: Path, quick_recipe: Path, tmp_path: Path) -> list[object]:
        corpus = shutil.copy(small_world / "documents.txt", tmp_path / "documents.txt")
        options = ["--recipe", quick_recipe, "--steps", 12, "--out", tmp_path / "run", "--quiet"]
        return ["pretrain", "vanilla", corpus, *options]

    @pytest.fixture
    def stopped(self, arguments: list[object], command, monkeypatch) -> list[object]:
        """The arguments of a run that Ctrl-C stopped at its tenth step."""
        with monkeypatch.context() as patch:
            patch.setattr("wherefrom.cli.train.TrainingProgress.__call__", self._interrupt)
            assert command(*arguments).code == 130
        return arguments

    @staticmethod
    def _interrupt(progress: object, tick: Tick, model: Decoder) -> None:
        signal.raise_signal(signal.SIGINT)

    @pytest.mark.parametrize(
        ("more", "sentence"),
        [
            (("--seed", 1), "cannot be resumed: seed was 0 and is now 1;"),
            (("--size", "32x3x2"), "cannot be resumed: model.width was 16 and is now 32;"),
            (("--steps", 13), "cannot be resumed: phases.0.steps was 12 and is now 13;"),
            (("--tokens", "bpe"), "cannot be resumed: tokens was chars and is now bpe of 1500;"),
            (("--recipe", "course"), "cannot be resumed: "),
        ],
    )
    def test_another_configuration_is_refused(
        self, stopped: list[object], command, more: tuple[object, ...], sentence: str
    ) -> None:
        ended = command(*stopped, *more, "--resume")
        assert (ended.code, ended.out) == (2, "")
        assert sentence in ended.err
        assert ended.err.count("\n") == 1
        assert command(*stopped, "--resume").code == 0  # and nothing was harmed

    def test_another_variant_is_refused(self, stopped: list[object], command) -> None:
        ended = command("pretrain", "llama", *stopped[2:], "--resume")
        assert ended.code == 2
        assert "model.variant was vanilla and is now llama" in ended.err

    def test_changed_documents_are_refused(self, stopped: list[object], command) -> None:
        corpus = Path(str(stopped[2]))
        corpus.write_text(corpus.read_text("utf-8") + "Al Bo. Al Bo sang.\n", "utf-8")
        ended = command(*stopped, "--resume")
        assert ended.code == 2
        assert "cannot be resumed: the corpus has changed since it started" in ended.err

    def test_a_run_that_is_there_needs_resume(self, stopped: list[object], command) -> None:
        ended = command(*stopped)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert "already holds a run; add --resume to go on with it" in ended.err

    def test_a_folder_that_is_not_a_run_is_left_alone(
        self, arguments: list[object], command, tmp_path: Path
    ) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "thesis.tex").write_text("mine")
        for more in ((), ("--resume",)):
            ended = command(*arguments, *more)
            assert (ended.code, ended.err.count("\n")) == (2, 1)
            assert "run exists and is not a run; choose another --out." in ended.err
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]

    def test_a_file_in_place_of_a_folder_is_left_alone(
        self, arguments: list[object], command, tmp_path: Path
    ) -> None:
        (tmp_path / "run").write_text("mine")
        ended = command(*arguments, "--resume")
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert (tmp_path / "run").read_text() == "mine"

    def test_resume_of_nothing_starts_and_of_a_finished_run_changes_nothing(
        self, arguments: list[object], command, tmp_path: Path
    ) -> None:
        first = command(*arguments, "--resume", "--json")
        assert first.code == 0
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
        assert command(*arguments, "--resume", "--json").out == first.out
        assert {path: path.stat().st_mtime_ns for path in before} == before
