"""One process or many: the same loop under `torchrun`, by PyTorch's own engine.

Every process draws the same batches and takes its own rows of each; gradients are summed over
processes by DistributedDataParallel (or, for what does not fit, by FSDP), so that the weights after
a step are those of one process with the whole batch, up to the order of additions.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from wherefrom.corpus.batches import Batch, MicroBatch
from wherefrom.errors import UserError
from wherefrom.model.decoder import Block


def shard(model: nn.Module) -> None:
    """Spread a model over the processes in place, a block at a time, by PyTorch's FSDP."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    device = next(model.parameters()).device.type
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)


def gather(tensor: Tensor) -> Tensor:
    """The whole of a tensor; all processes must ask for it at once."""
    piece: Any = tensor
    whole: Tensor = piece.full_tensor() if _in_pieces(tensor) else tensor
    return whole


def shard_like(tensor: Tensor, piece: Any) -> Tensor:
    """A whole tensor, which every process has, as the piece that this one keeps of it."""
    if not _in_pieces(piece) or tensor.shape != piece.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    tensor = tensor.to(piece.device)
    return distribute_tensor(tensor, piece.device_mesh, piece.placements, src_data_rank=None)


def _in_pieces(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # a DTensor, told without importing the class


@dataclass(frozen=True)
class Processes:
    """This process among those that train together."""

    rank: int = 0
    count: int = 1
    sharded: bool = False  # no process holds the whole model

    @property
    def is_rank0(self) -> bool:
        """Whether this one writes files and talks."""
        return self.rank == 0

    def rows_of(self, batch: Batch) -> Batch:
        """This process's share of a batch; the loss denominator stays that of the whole."""
        if self.count == 1:
            return batch
        return replace(batch, parts=tuple(self._rows(part) for part in batch.parts))

    def _rows(self, part: MicroBatch) -> MicroBatch:
        ids, weights = part.ids[self.rank :: self.count], part.weights[self.rank :: self.count]
        if len(ids) == 0:  # nothing left for this one: a row that counts for nothing
            ids, weights = part.ids[:1], torch.zeros_like(part.weights[:1])
        return MicroBatch(ids=ids, weights=weights)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is to be called in training."""
        if self.count == 1:
            return model
        if self.sharded:
            shard(model)
            return model
        return DistributedDataParallel(model)

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager[None]:
        """Gradients travel once a step, with its last part."""
        if self.sharded:
            sharded: Any = model
            sharded.set_requires_gradient_sync(last)
        if last or not isinstance(model, DistributedDataParallel):
            return nullcontext()
        return model.no_sync()

    def all_reduce_sum(self, number: float) -> float:
        """The sum over processes."""
        return self._reduce(number, sum_up=True)

    def broadcast(self, number: float) -> float:
        """The leading process's number, for all."""
        return self._reduce(number, sum_up=False)

    def _reduce(self, number: float, *, sum_up: bool) -> float:
        if self.count == 1:
            return number
        tensor = torch.tensor([number], dtype=torch.float64)
        if sum_up:
            dist.all_reduce(tensor)
        else:
            dist.broadcast(tensor, src=0)
        return float(tensor.item())

    def on_rank0(self, act: Callable[[], object]) -> None:
        """Let the leading process act while the others wait; what it refuses, all refuse."""
        refusal: str | None = None
        if self.is_rank0:
            try:
                act()
            except UserError as mistake:
                refusal = str(mistake)
        if self.count > 1:
            told = [refusal]
            dist.broadcast_object_list(told, src=0, device=torch.device("cpu"))
            refusal = told[0]
        if refusal is not None:
            raise UserError(refusal)


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

    Threads of gloo may let go of their last tensors while Python is being torn down, and then
    abort the process after all its work is done (pytorch#179291). So among several processes
    the tearing down is left out: what was written is on disk, and what was printed is flushed.
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
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    if not available.get(name, False):
        raise UserError(f'the device "{name}" is not there; use --device auto or cpu.')
    if name == "cuda":  # of several processes on a machine, each has a card of its own
        return torch.device(name, int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device(name)
