"""Tensors in pieces: with FSDP each process holds its rows of every tensor, and no one all of it.

Checkpoints, saved weights and Muon want whole tensors, and hand them back as pieces. PyTorch's
sharding takes a while to import, so only those who shard do.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

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


def put_together(tensor: Tensor) -> Tensor:
    """The whole of a tensor; all processes must ask for it at once."""
    piece: Any = tensor
    whole: Tensor = piece.full_tensor() if _in_pieces(tensor) else tensor
    return whole


def cut_like(tensor: Tensor, piece: Any) -> Tensor:
    """A whole tensor, which every process has, as the piece that this one keeps of it."""
    if not _in_pieces(piece) or tensor.shape != piece.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    tensor = tensor.to(piece.device)
    return distribute_tensor(tensor, piece.device_mesh, piece.placements, src_data_rank=None)


def _in_pieces(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # a DTensor, told without importing the class
