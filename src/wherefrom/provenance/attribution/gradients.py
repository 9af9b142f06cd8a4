"""The index of a run: the signs of the gradients of all rows that its documents were trained on.

Every row that training makes of a document, and the answer's row, has a gradient for each matrix:
the sum over positions of (gradient at the output) (input)^T. The index keeps its signs, one bit
each. Two rows agree by the share of equal signs less that of unequal ones, between -1 and 1. The
score of a document is the sum, over its rows, of the third powers of how far they agree with the
answer's rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
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

from wherefrom.errors import UserError
from wherefrom.model.interface import LanguageModel
from wherefrom.provenance.attribution.retraining import LearnedRun, Row, pad_rows
from wherefrom.storage import write_whole
from wherefrom.training.loop import Count, no_count

FORMAT = "4"
BYTES = 40_000  # of the index for each document
TOKENS, LOGITS = 2048, 2**26  # of the rows whose gradients are taken at once
AGREEMENT_POWER = 3  # odd; few lines push much, and sums of many small scores are noise
Floats = NDArray[np.float64]


def row_gradients(model: LanguageModel, rows: Sequence[Row], share: float = 1.0) -> Tensor:
    """The gradient of each row's loss by the linear layers: (rows, features).

    share: of the units of each layer, evenly spaced.
    """
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        inputs[name], outputs[name] = args[0].detach(), output

    ids, weights = (each.to(model.device) for each in pad_rows(rows))
    with ExitStack() as stack, torch.enable_grad():
        for name, layer in model.linear_layers().items():
            stack.enter_context(layer.register_forward_hook(partial(keep, name)))
        logits = model.logits(ids[:, :-1]).float()
        losses = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        slopes = torch.autograd.grad((losses * weights[:, 1:]).sum(), list(outputs.values()))
    parts = []
    for name, slope in zip(outputs, slopes, strict=True):
        units = max(1, int(share * slope.shape[-1]))
        chosen = slope[..., torch.arange(units) * slope.shape[-1] // units].float()
        parts.append((chosen.mT @ inputs[name].float().expand(len(rows), -1, -1)).flatten(1))
    return torch.cat(parts, dim=1).cpu()


def score_pieces(model: LanguageModel, ids: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """log p of the vocabulary at each weighted position; and the weighted log p of each row."""
    weights = weights[:, 1:].flatten()
    select = weights.nonzero().flatten()
    log_p = model.logits_at(ids[:, :-1], None, select).float().log_softmax(-1)
    of_targets = log_p.gather(1, ids[:, 1:].flatten()[select, None])[:, 0] * weights[select]
    return log_p, torch.zeros(len(ids)).index_add(0, select // (ids.shape[1] - 1), of_targets)


def log_likelihoods(model: LanguageModel, ids: Tensor, weights: Tensor) -> Tensor:
    """The weighted log-likelihood of each row, to be differentiated."""
    return score_pieces(model, ids, weights)[1]


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
        np.add.at(totals, documents, agreements[rows] ** AGREEMENT_POWER)
        return totals

    def scores(self, model: LanguageModel, rows: Sequence[Row]) -> Floats:
        """The score of every document for an answer, summed over its rows."""
        gradients = row_gradients(model, rows, self.share)
        return np.sum([self.sum_rows(self.agreements(each)) for each in gradients], axis=0)

    def nearest(self, documents: Sequence[int], count: int) -> set[int]:
        """The `count` other documents whose gradients are nearest to those of some documents."""
        rows, owners = self.owners
        signs = self.signs[rows[np.isin(owners, documents)]]
        bits = np.unpackbits(signs.view(np.uint8), axis=1)
        mean = torch.from_numpy(2 * bits.sum(0, dtype=np.int64) - len(bits))
        order = np.argsort(-self.sum_rows(self.agreements(mean)))
        return set(order[~np.isin(order, documents)][:count].tolist())


def build_index(
    learned: LearnedRun, model: LanguageModel, count: Count = no_count
) -> GradientIndex:
    """The index of all training rows at the model's weights, of as many units as BYTES allows.

    A row belongs to the document without which it would have no loss: a question about a subject
    with several documents belongs to none of them, since leaving out one leaves it in place.
    """
    examples = sorted(zip(*learned.training_rows(), strict=True), key=lambda pair: len(pair[0][0]))
    rows = [row for row, _ in examples]
    weights = [layer.weight for layer in model.linear_layers().values()]
    bits = len(rows) * sum(each.numel() for each in weights if isinstance(each, Tensor))
    share = min(1.0, 8 * BYTES * len(learned.documents) / bits)
    check_disk(learned.run.folder, int(share * bits / 8))
    advance = count("making the index", len(rows))
    signs: list[NDArray[np.uint64]] = []
    for batch in batch_rows(rows, min(TOKENS, LOGITS // model.vocabulary)):
        signs.append(pack(row_gradients(model, batch, share) > 0))
        advance(len(batch))
    owners = [(row, of[0]) for row, (_, of) in enumerate(examples) if len(of) == 1]
    pairs = np.ascontiguousarray(np.array(owners, dtype=np.int64).reshape(-1, 2).T)
    return GradientIndex(share, np.concatenate(signs), pairs, len(learned.documents))


def batch_rows(rows: Sequence[Row], tokens: int) -> Iterator[Sequence[Row]]:
    """Rows, which are sorted by length, in batches of about so many tokens."""
    done = 0
    while done < len(rows):
        longest = len(rows[min(done + 64, len(rows) - 1)][0])
        batch = rows[done : done + max(1, tokens // longest)]
        done += len(batch)
        yield batch


def check_disk(folder: Path, needed: int) -> None:
    """Refuse to begin with an index that the disk has no room for."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"the index of {folder} takes {needed / 1e6:,.0f} MB and its disk has "
            f"{free / 1e6:,.0f} MB left; make room, or copy the run to a larger disk."
        )


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
