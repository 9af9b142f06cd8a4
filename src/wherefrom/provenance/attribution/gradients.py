"""The index of a run: the signs of the gradients of all rows that its documents were trained on.

Every row that training makes of a document, and the answer's row, has a gradient for each matrix:
the sum over positions of (gradient at the output) (input)^T. The index keeps its signs, one bit
each. Two rows agree by the share of equal signs less that of unequal ones, between -1 and 1. The
score of a document is the sum, over its rows, of the third powers of how far they agree with the
answer's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.model.decoder import Decoder
from wherefrom.provenance.attribution.retraining import Count, Row, no_count, pad_rows
from wherefrom.storage import write_whole
from wherefrom.training.run_folder import Run
from wherefrom.training.sources import TrainingData, stream_for

FORMAT = "3"
BYTES = 40_000  # of the index for each document
TOKENS = 2048  # of the rows whose gradients are taken at once
POWER = 3  # odd; few lines push much, and sums of many small scores are noise
Floats = NDArray[np.float64]


def matrices(model: Decoder) -> dict[str, nn.Linear]:
    """The linear layers by name, without the output head."""
    modules = model.named_modules()
    return {n: m for n, m in modules if isinstance(m, nn.Linear) and m is not model.head}


def row_gradients(
    model: Decoder, ids: Tensor, weights: Tensor, share: float = 1.0
) -> dict[str, Tensor]:
    """The gradient of each row's loss by matrix: (B, units, inputs).

    share: of the units, evenly spaced.
    """
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        inputs[name], outputs[name] = args[0].detach(), output

    with ExitStack() as stack, torch.enable_grad():
        for name, module in matrices(model).items():
            stack.enter_context(module.register_forward_hook(partial(keep, name)))
        logits = model(ids[:, :-1])
        losses = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        slopes = torch.autograd.grad((losses * weights[:, 1:]).sum(), list(outputs.values()))
    gradients = {}
    for name, slope in zip(outputs, slopes, strict=True):
        units = max(1, int(share * slope.shape[-1]))
        chosen = slope[..., torch.arange(units) * slope.shape[-1] // units]
        gradients[name] = chosen.mT @ inputs[name].expand(len(ids), -1, -1)
    return gradients


def pack(bits: Tensor) -> NDArray[np.uint64]:
    """(B, features) of bits in words of 64; the last word is filled up with 0."""
    packed = np.packbits(bits.numpy(), axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)


@dataclass(frozen=True, eq=False)
class GradientIndex:
    """The signs of the gradients of all training rows of a run's documents.

    share: of the units of each matrix. signs: one bit for each gradient above 0: (rows, words of
    64 bits). owners: pairs of a row and a document that it was made of: (2, pairs).
    """

    share: float
    signs: NDArray[np.uint64]
    owners: NDArray[np.int64]
    documents: int

    def agreements(self, gradient: Tensor) -> Floats:
        """How far every row agrees with one gradient; components that are 0 do not count."""
        positive, counted = pack(gradient[None] > 0), pack(gradient[None] != 0)
        unequal = [
            np.bitwise_count((rows ^ positive) & counted).sum(1, dtype=np.int64)
            for rows in np.array_split(self.signs, len(self.signs) // 256 + 1)
        ]
        return 1 - 2 * np.concatenate(unequal) / max(1, int((gradient != 0).sum()))

    def sum_rows(self, agreements: Floats) -> Floats:
        """The score of every document, by how far every row agrees."""
        rows, documents = self.owners
        totals = np.zeros(self.documents)
        np.add.at(totals, documents, agreements[rows] ** POWER)
        return totals

    def scores(self, model: Decoder, rows: Sequence[Row]) -> Floats:
        """The score of every document for an answer, summed over its rows."""
        totals = np.zeros(self.documents)
        for row in rows:
            found = row_gradients(model, *pad_rows([row]), self.share).values()
            gradient = torch.cat([matrix.flatten() for matrix in found])
            totals += self.sum_rows(self.agreements(gradient))
        return totals

    def nearest(self, documents: Sequence[int], count: int) -> set[int]:
        """The `count` other documents whose gradients are nearest to those of some documents."""
        rows, owners = self.owners
        signs = self.signs[rows[np.isin(owners, documents)]]
        bits = np.unpackbits(signs.view(np.uint8), axis=1)
        mean = torch.from_numpy(2 * bits.sum(0, dtype=np.int64) - len(bits))
        order = np.argsort(-self.sum_rows(self.agreements(mean)))
        return set(order[~np.isin(order, documents)][:count].tolist())


def training_rows(run: Run, data: TrainingData) -> tuple[list[Row], list[tuple[int, int]]]:
    """Every record of every objective once, shortest first; pairs of a row and its document.

    A row belongs to the document without which it would have no loss: a question about a subject
    with several documents belongs to none of them, since leaving out one leaves it in place.
    """
    rng = np.random.default_rng(0)
    streams = [stream_for(phase, data, [run.job.seed]) for phase in run.job.phases]
    examples = [
        (source.make(record, rng), data.documents_of(source.numbers[record]))
        for stream in streams
        for source in stream.sources
        for record in range(len(source.numbers))
    ]
    examples.sort(key=lambda pair: len(pair[0]))
    rows = [(torch.from_numpy(e.ids).long(), torch.from_numpy(e.weights)) for e, _ in examples]
    owners = [(row, members[0]) for row, (_, members) in enumerate(examples) if len(members) == 1]
    return rows, owners


def build_index(
    run: Run, model: Decoder, data: TrainingData, count: Count = no_count
) -> GradientIndex:
    """The index of all training rows at the model's weights, of as many units as BYTES allows."""
    rows, owners = training_rows(run, data)
    bits = len(rows) * sum(each.weight.numel() for each in matrices(model).values())
    share = min(1.0, 8 * BYTES * len(data.documents) / bits)
    advance = count("making the index", len(rows))
    signs: list[NDArray[np.uint64]] = []
    done = 0
    while done < len(rows):
        longest = len(rows[min(done + 64, len(rows) - 1)][0])
        batch = rows[done : done + max(1, TOKENS // longest)]
        gradients = row_gradients(model, *pad_rows(batch), share).values()
        signs.append(pack(torch.cat([each.flatten(1) > 0 for each in gradients], dim=1)))
        done += len(batch)
        advance(len(batch))
    pairs = np.ascontiguousarray(np.array(owners).T)
    return GradientIndex(share, np.concatenate(signs), pairs, len(data.documents))


def save_index(index: GradientIndex, path: Path, sha256: str) -> None:
    """Write an index; `sha256` identifies the run's weights."""
    tensors = {"signs": torch.from_numpy(index.signs.view(np.int64))}
    tensors["owners"] = torch.from_numpy(index.owners)
    about = {"format": FORMAT, "run": sha256}
    about |= {"documents": str(index.documents), "share": repr(index.share)}
    write_whole(path, save(tensors, metadata=about))


def load_index(path: Path, sha256: str) -> GradientIndex | None:
    """The index of these weights, or None if the file is missing, broken or of other weights."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata()
            if (about["format"], about["run"]) != (FORMAT, sha256):
                return None
            signs, owners = (file.get_tensor(name).numpy() for name in ("signs", "owners"))
        documents, share = int(about["documents"]), float(about["share"])
    except (OSError, KeyError, TypeError, ValueError, SafetensorError):
        return None
    return GradientIndex(share, signs.view(np.uint64), owners, documents)
