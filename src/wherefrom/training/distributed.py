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
from typing import Any, NoReturn, TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from wherefrom.corpus.batches import Batch, MicroBatch
from wherefrom.errors import UserError

T = TypeVar("T")
SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX


@dataclass(frozen=True)
class Processes:
    """This process among those that train together."""

    rank: int = 0
    count: int = 1

    @property
    def is_rank0(self) -> bool:
        """Whether this one writes files and prints."""
        return self.rank == 0

    def rows_of(self, batch: Batch) -> Batch:
        """This process's rows of a batch, with the loss denominator of the whole batch."""
        parts = []
        for part in batch.parts:
            ids, weights = part.ids[self.rank :: self.count], part.weights[self.rank :: self.count]
            if len(ids) == 0:  # more processes than rows: a row without loss
                ids, weights = part.ids[:1], torch.zeros_like(part.weights[:1])
            parts.append(MicroBatch(ids=ids, weights=weights))
        return replace(batch, parts=tuple(parts))

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as training calls it: several processes average their gradients."""
        return model if self.count == 1 else DistributedDataParallel(model)

    def accumulating(self, model: Any, *, last: bool) -> AbstractContextManager[None]:
        """Inside, gradients are exchanged only if this is the last part of a batch."""
        is_ddp = isinstance(model, DistributedDataParallel)
        return model.no_sync() if is_ddp and not last else nullcontext()

    def all_reduce(self, number: float, op: Any = SUM) -> float:
        """The sum or the maximum of every rank's number."""
        if self.count == 1:
            return number
        tensor = torch.tensor([number], dtype=torch.float64)
        dist.all_reduce(tensor, op)
        return float(tensor.item())

    def broadcast(self, number: float) -> float:
        """The number of rank 0, on every rank."""
        return self.all_reduce(number if self.is_rank0 else 0.0)

    def on_rank0(self, act: Callable[[], object]) -> None:
        """Call `act` on rank 0 while the others wait for it, however long it takes.

        If it fails, every rank raises an error with the same message.
        """

        def call() -> None:
            act()

        self.from_rank0(call)

    def from_rank0(self, make: Callable[[], T]) -> T:
        """What `make` returns on rank 0, on every rank; the same with a failure as `on_rank0`."""
        if self.count == 1:
            return make()
        made: T | None = None
        failure: BaseException | None = None
        if self.is_rank0:
            try:
                made = make()
            except BaseException as raised:
                failure = raised
        error = None if failure is None else (isinstance(failure, UserError), str(failure))
        shared: list[Any] = [error, made]
        dist.broadcast_object_list(shared, src=0, group=_patient_group())
        if failure is not None:
            raise failure
        if shared[0] is not None:
            is_user_error, text = shared[0]
            raise UserError(text) if is_user_error else RuntimeError(text or "rank 0 failed")
        return cast(T, made if self.is_rank0 else shared[1])


@cache
def _patient_group() -> Any:
    """Processes that may wait for each other for more than gloo's half hour, as judging needs."""
    return dist.new_group(backend="gloo", timeout=timedelta(days=365))


def join_processes() -> Processes:
    """This process among those that torchrun started; alone without torchrun."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return Processes()
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return Processes(rank=dist.get_rank(), count=count)


def end_process(status: int) -> NoReturn:
    """Leave the group of processes, if there is one, and end this process.

    Threads of gloo may abort Python's teardown (pytorch#179291), so under torchrun the process
    ends without it, after flushing what was printed.
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
    """The device of that name; `auto` is the fastest that this machine has."""
    available = ["cuda"] if torch.cuda.is_available() else []
    available += ["mps", "cpu"] if torch.backends.mps.is_available() else ["cpu"]
    if name == "auto":
        name = available[0]
    if name not in available:
        raise UserError(f'this machine has no device "{name}"; use --device auto or cpu.')
    if name == "cuda":  # under torchrun, each process has its own card
        return torch.device(name, int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device(name)
