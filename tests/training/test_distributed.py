"""Two processes under torchrun learn what one learns."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training_samples import make_model, read_metrics
from two_processes import LOG_EVERY, descend, train_one

from wherefrom.corpus.batches import Batch, MicroBatch
from wherefrom.errors import UserError
from wherefrom.training import loop
from wherefrom.training.distributed import Processes, choose_device

# Gradients are sums of the same float32 terms in another order: a relative 1e-7 at each step,
# which a dozen steps of training carry on and enlarge somewhat. A row that is learned twice or not
# at all is off by percents.
ANOTHER_ORDER = 1e-4


@pytest.fixture(scope="module")
def run_two(start_process, small_world, quick_recipe):
    """Run two_processes.py under torchrun; its exit code, what it printed, and said."""

    def run(out, *words):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = ("--nproc-per-node", 2, "--master-addr", "127.0.0.1", "--master-port", port)
        given = (Path(__file__).parent / "two_processes.py", small_world, quick_recipe, out, *words)
        process = start_process(*address, *given, module="torch.distributed.run")
        printed, err = process.communicate(timeout=240)
        return process.returncode, printed, err

    return run


@pytest.fixture(scope="module")
def together(tmp_path_factory, run_two):
    """The folder in which two processes have done all that two_processes.py says."""
    out = tmp_path_factory.mktemp("together")
    code, printed, err = run_two(out)
    assert code == 0, err
    assert "Warning" not in err, err
    assert "Traceback" not in err, err
    (out / "printed.json").write_text(printed)
    return out


@pytest.fixture(scope="module")
def alone(tmp_path_factory, small_world, quick_recipe, make_small):
    """The same jobs, done by one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        patch.setattr(loop, "LOG_STEPS", LOG_EVERY)
        train_one(small_world, quick_recipe, out)
    return out


@pytest.mark.usefixtures("small_training")
def test_the_gradient_of_two_is_that_of_one_in_length_too(together):
    # AdamW and Muon look at the direction alone: their curves would not show a factor of two
    ours = load_file(together / "step.safetensors")
    start, theirs = make_model().state_dict(), descend(Processes())
    for name, weights in theirs.items():
        expected, moved = weights - start[name], ours[name] - start[name]
        # one step, so no more than the order of additions and of subtracting the start again
        torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-6)
    assert max(float((theirs[name] - start[name]).norm()) for name in theirs) > 0.1


def test_two_processes_have_the_loss_curve_and_the_weights_of_one_and_resume_to_them(
    together, alone
):
    ours, theirs = read_metrics(together / "run"), read_metrics(alone)
    for key in ("step", "tokens", "lr"):
        assert [line[key] for line in ours] == [line[key] for line in theirs]
    losses = [line["loss"] for line in theirs]
    assert losses[-1] < 0.95 * losses[0]  # it is a curve
    assert [line["loss"] for line in ours] == pytest.approx(losses, rel=ANOTHER_ORDER)
    weights = "model.safetensors"
    one, two = (load_file(folder / weights) for folder in (alone, together / "run"))
    far = max(float((one[name] - two[name]).norm()) for name in one)
    assert far < 100 * ANOTHER_ORDER * max(float(one[name].norm()) for name in one)
    again = together / "resumed"
    assert (again / weights).read_bytes() == (together / "run" / weights).read_bytes()
    assert [line["loss"] for line in read_metrics(again)] == [line["loss"] for line in ours]


def test_two_processes_of_which_one_is_killed_resume_to_the_same_weights(
    together, run_two, tmp_path
):
    code, _, err = run_two(tmp_path, "killed")
    assert code != 0
    assert "exitcode: -9" in err
    weights = "model.safetensors"
    assert not (tmp_path / weights).exists()
    code, _, err = run_two(tmp_path, "resumed")
    assert code == 0, err
    steps = [line["step"] for line in read_metrics(tmp_path)]
    assert steps == [line["step"] for line in read_metrics(together / "run")]
    assert (tmp_path / weights).read_bytes() == (together / "run" / weights).read_bytes()


def test_the_command_under_torchrun_writes_and_prints_once(together):
    out, result = together / "study", json.loads((together / "printed.json").read_text())
    assert json.loads((out / "run.json").read_text())["results"] == result["results"]
    assert [line["step"] for line in read_metrics(out)] == [7, 10]
    assert [path for path in out.rglob("*") if path.name.startswith(".")] == []


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_every_row_goes_to_one_process_and_none_is_left_without_work(rows):
    ids = torch.arange(rows)[:, None].expand(rows, 3)
    part = MicroBatch(ids=ids, weights=torch.ones(rows, 3))
    batch = Batch(parts=(part,), weight=2.0 * rows, tokens=1)
    shares = [Processes(rank=rank, count=3).rows_of(batch) for rank in range(3)]
    counted = sorted(
        int(ids[0])
        for share in shares
        for ids, weights in zip(share.parts[0].ids, share.parts[0].weights, strict=True)
        if weights.sum() > 0
    )
    assert counted == list(range(rows))
    assert all(len(share.parts[0].ids) > 0 for share in shares)
    assert {share.weight for share in shares} == {batch.weight}


def test_what_cannot_be_is_a_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match='this machine has no device "cuda"'):
        choose_device("cuda")
