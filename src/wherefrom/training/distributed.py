"""One process or many: the same loop under `torchrun`, by PyTorch's own engine."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from wherefrom.corpus.batches import Batch, MicroBatch
from wherefrom.errors import UserError
from wherefrom.model.decoder import Block

PASSED_ON: tuple[type[BaseException], ...] = (UserError, KeyboardInterrupt, RuntimeError)


def gather(tensor: Tensor) -> Tensor:
    """The whole of a tensor; all processes must call it at once."""
    piece: Any = tensor
    whole: Tensor = piece.full_tensor() if hasattr(piece, "full_tensor") else piece  # a DTensor
    return whole


def shard_like(tensor: Tensor, piece: Any) -> Tensor:
    """A whole tensor, which every process has, as the piece that this one keeps of it."""
    if not hasattr(piece, "full_tensor") or tensor.shape != piece.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    tensor = tensor.to(piece.device)
    return distribute_tensor(tensor, piece.device_mesh, piece.placements, src_data_rank=None)


@dataclass(frozen=True)
class Processes:
    """This process among those that train together."""

    rank: int = 0
    count: int = 1
    sharded: bool = False  # no process holds the whole model

    @property
    def is_rank0(self) -> bool:
        """Whether this one writes files and prints."""
        return self.rank == 0

    def rows_of(self, batch: Batch) -> Batch:
        """This process's share of a batch; the loss denominator stays that of the whole."""
        parts = []
        for part in batch.parts:
            ids, weights = part.ids[self.rank :: self.count], part.weights[self.rank :: self.count]
            if len(ids) == 0:  # nothing left for this one: a row that counts for nothing
                ids, weights = part.ids[:1], torch.zeros_like(part.weights[:1])
            parts.append(MicroBatch(ids=ids, weights=weights))
        return replace(batch, parts=tuple(parts))

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is to be called in training; FSDP shards it in place."""
        if self.count == 1:
            return model
        if not self.sharded:
            return DistributedDataParallel(model)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(next(model.parameters()).device.type, (self.count,))
        for module in (*(each for each in model.modules() if isinstance(each, Block)), model):
            fully_shard(module, mesh=mesh)
        return model

    def accumulating(self, model: Any, *, last: bool) -> AbstractContextManager[None]:
        """Gradients travel once a step, with its last part."""
        if self.sharded:
            model.set_requires_gradient_sync(last)
        alone = last or not isinstance(model, DistributedDataParallel)
        return nullcontext() if alone else model.no_sync()

    def all_reduce_sum(self, number: float) -> float:
        return self._collect(number, dist.all_reduce)

    def all_reduce_max(self, number: float) -> float:
        return self._collect(number, dist.all_reduce, op=dist.ReduceOp.MAX)

    def broadcast(self, number: float) -> float:
        """The number of rank 0, on every rank."""
        return self._collect(number, dist.broadcast, src=0)

    def _collect(self, number: float, collective: Callable[..., object], **how: Any) -> float:
        if self.count == 1:
            return number
        tensor = torch.tensor([number], dtype=torch.float64)
        collective(tensor, **how)
        return float(tensor.item())

    def on_rank0(self, act: Callable[[], object]) -> None:
        """Call `act` on rank 0 while the others wait for it, however long it takes.

        What it raises is raised on every rank, so that none goes on or waits alone.
        """
        if self.count == 1:
            act()
            return
        failure: BaseException | None = None
        if self.is_rank0:
            try:
                act()
            except BaseException as raised:
                failure = raised
        kind = next((each for each in PASSED_ON if isinstance(failure, each)), RuntimeError)
        outcome = [None if failure is None else (PASSED_ON.index(kind), str(failure))]
        cpu = torch.device("cpu")
        dist.broadcast_object_list(outcome, src=0, group=_patient_group(), device=cpu)
        if failure is not None:
            raise failure
        if outcome[0] is not None:
            number, message = outcome[0]
            raise PASSED_ON[number](message or "rank 0 failed")


@cache
def _patient_group() -> Any:
    """A group for waiting: judging may take longer than the half hour that gloo allows."""
    return dist.new_group(backend="gloo", timeout=timedelta(days=365))


def join_processes(*, sharded: bool = False) -> Processes:
    """Find the others when started by torchrun; alone otherwise."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        if sharded:
            raise UserError(
                "--shard spreads a model over several processes, and this is one alone; start "
                "them with torchrun --nproc-per-node N -m wherefrom, or leave --shard out."
            )
        return Processes()
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return Processes(rank=dist.get_rank(), count=count, sharded=sharded)


def end_process(status: int) -> NoReturn:
    """Part from the others, if there were any, and end this process.

    Threads of gloo may abort it while Python is torn down (pytorch#179291), so among several
    processes that is left out: what was written is on disk, and what was printed is flushed.
    """
    if not (dist.is_available() and dist.is_initialized()):
        sys.exit(status)
    gc.collect()  # models that hold a group in a cycle
    dist.destroy_process_group()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def choose_device(name: str) -> torch.device:
    """`auto` takes the fastest kind there is; a kind that is missing is one sentence."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    available["cpu"] = True
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    if not available.get(name, False):
        raise UserError(f'the device "{name}" is not there; use --device auto or cpu.')
    if name == "cuda":  # of several processes on a machine, each has a card of its own
        return torch.device(name, int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device(name)
