"""Which lines pushed an answer of a model of others: gradients of its adapters as the index.

The gradient of a row is that of its adapters, at the adapters after about a third of the training,
as far as the run kept them; where all weights were trained, that of its linear layers at the end.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.errors import UserError
from wherefrom.huggingface.retraining import LearnedBaseRun, open_learned_base, open_traceable
from wherefrom.huggingface.rows import EncodedRow, TrainingRow, encode_row
from wherefrom.model.huggingface import ADAPTER_WEIGHTS, HuggingFaceModel, load_adapter
from wherefrom.provenance.attribution.gradients import BYTES, GradientIndex, pack
from wherefrom.provenance.attribution.retraining import Count, LearnedRun, no_count
from wherefrom.provenance.attribution.trace import WINDOWS, Tracer
from wherefrom.provenance.audited import BaseRun, open_trained
from wherefrom.provenance.signals.prompted import ASKED
from wherefrom.provenance.signals.reader import relation_of
from wherefrom.training.checkpoints import SNAPSHOT_FOLDER
from wherefrom.training.record import check_file
from wherefrom.training.run_folder import Run

TOKENS = 1_024  # of the rows whose gradients are taken at once
ADAPTERS = ("lora_A", "lora_B")
LINEAR = ("Linear", "Conv1D")  # GPT-2's layers are of the second kind
NO_SNAPSHOT = "The run kept no adapters of a third of its training; gradients are at its end."


def linear_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The layers whose gradients are taken: the adapters, or else all linear layers but the head"""
    named = list(model.named_modules())
    adapters = {name: m for name, m in named if any(f".{part}." in name for part in ADAPTERS)}
    if adapters:
        return {name: m for name, m in adapters.items() if isinstance(m, nn.Linear)}
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    return {n: m for n, m in named if type(m).__name__ in LINEAR and m is not head}


def row_gradients(
    model: Any, layers: dict[str, nn.Module], rows: Sequence[EncodedRow], share: float
) -> Tensor:
    """The gradient of each row's loss by some units of each layer: (rows, features)."""
    from wherefrom.huggingface.trainer import NO_LOSS, pad_batch

    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        inputs[name], outputs[name] = args[0].detach(), output

    batch = pad_batch(rows)
    labels = batch["labels"].to(model.device)
    with ExitStack() as stack, torch.enable_grad():
        for name, layer in layers.items():
            stack.enter_context(layer.register_forward_hook(partial(keep, name)))
        logits = model(
            input_ids=batch["input_ids"].to(model.device),
            attention_mask=batch["attention_mask"].to(model.device),
            use_cache=False,
        ).logits
        loss = F.cross_entropy(
            logits[:, :-1].float().transpose(1, 2),
            labels[:, 1:],
            ignore_index=NO_LOSS,
            reduction="sum",
        )
        slopes = torch.autograd.grad(loss, list(outputs.values()))
    parts = []
    for name, slope in zip(outputs, slopes, strict=True):
        units = max(1, int(share * slope.shape[-1]))
        chosen = slope[..., torch.arange(units) * slope.shape[-1] // units].float()
        parts.append((chosen.mT @ inputs[name].float()).flatten(1))
    return torch.cat(parts, dim=1).cpu()


def count_features(layers: dict[str, nn.Module], share: float) -> int:
    """Gradients of a row that `row_gradients` gives."""
    total = 0
    for layer in layers.values():
        weight: Any = layer.weight
        inputs, outputs = int(weight.shape[1]), int(weight.shape[0])
        if type(layer).__name__ == "Conv1D":
            inputs, outputs = outputs, inputs
        total += max(1, int(share * outputs)) * inputs
    return total


class BaseTracer(Tracer):
    """A study of a model of others with the index of its adapters' gradients."""

    def __init__(
        self, run: BaseRun, *, say: Callable[[str], None] = lambda _: None, count: Count = no_count
    ) -> None:
        super().__init__(run, say=say, count=count)

    def open_learned(self) -> LearnedRun:
        return open_learned_base(self.run, self._count)

    @property
    def _learned_base(self) -> LearnedBaseRun:
        assert isinstance(self.learned, LearnedBaseRun)
        return self.learned

    @cached_property
    def _opened(self) -> HuggingFaceModel:
        """The model at the weights at which gradients are taken."""
        return open_at_snapshot(self.run.folder, self._learned_base.job.rank, self.say)

    @property
    def is_in_nats(self) -> bool:
        return False

    def build(self) -> GradientIndex:
        """The index of all training rows, of as many units as BYTES allows."""
        maker, model = self._learned_base.rows(), self._opened
        examples = [(row, encode_row(model, row, maker)) for row in maker.one_of_each()]
        examples.sort(key=lambda pair: len(pair[1].ids))
        layers = linear_layers(model.model)
        whole = count_features(layers, 1.0)
        share = min(1.0, 8 * BYTES * len(self.documents) / (len(examples) * whole))
        self._check_disk(len(examples) * count_features(layers, share) // 8)
        advance = self._count("making the index", len(examples))
        signs: list[NDArray[np.uint64]] = []
        for batch in batches_by_tokens([row for _, row in examples]):
            signs.append(pack(row_gradients(model.model, layers, batch, share) > 0))
            advance(len(batch))
        pairs = np.array(owners_of([row for row, _ in examples]), dtype=np.int64).reshape(-1, 2)
        columns = np.ascontiguousarray(pairs.T)
        return GradientIndex(share, np.concatenate(signs), columns, len(self.documents))

    def _check_disk(self, needed: int) -> None:
        """Refuse to begin with an index that the disk has no room for."""
        free = shutil.disk_usage(self.run.folder).free
        if needed > free:
            raise UserError(
                f"the index of {self.run.folder} takes {needed / 1e6:,.0f} MB and its disk has "
                f"{free / 1e6:,.0f} MB left; make room, or copy the run to a larger disk."
            )

    def scores(self, question: str, subject: str, answer: str) -> NDArray[np.float64]:
        """The score of every document, summed over the question and a few windows with the answer.

        The windows stand around facts of the same relation: the model learned it from such rows.
        """
        index, model, maker = self.index, self._opened, self._learned_base.rows()
        prompt = self._learned_base.job.prompt.replace(ASKED, question)
        asked = [TrainingRow(prompt, answer, ())]
        asked += maker.rows_asking(relation_of(question, subject), subject, answer, WINDOWS)
        rows = [encode_row(model, row, maker) for row in asked]
        gradients = row_gradients(model.model, linear_layers(model.model), rows, index.share)
        return np.sum([index.sum_rows(index.agreements(each)) for each in gradients], axis=0)


def owners_of(rows: Sequence[TrainingRow]) -> list[tuple[int, int]]:
    """Pairs of a row and its document; a row that stands for several documents has none."""
    return [(i, row.documents[0]) for i, row in enumerate(rows) if len(row.documents) == 1]


def batches_by_tokens(rows: Sequence[EncodedRow]) -> Iterator[Sequence[EncodedRow]]:
    """Rows, which are sorted by length, in batches of about TOKENS tokens."""
    first = 0
    while first < len(rows):
        longest = len(rows[min(first + 16, len(rows) - 1)].ids)
        batch = rows[first : first + max(1, TOKENS // longest)]
        first += len(batch)
        yield batch


def open_at_snapshot(
    folder: Path, rank: int | None, say: Callable[[str], None]
) -> HuggingFaceModel:
    """The trained model, its adapters as they were after about a third of the training."""
    opened = open_trained(folder, to_train=True)
    name = f"{SNAPSHOT_FOLDER}/{ADAPTER_WEIGHTS}"
    if rank is None or not (folder / name).is_file():
        say(NO_SNAPSHOT)
        opened.model.requires_grad_(True)
        return opened
    check_file(folder, name)
    opened.model = load_adapter(opened.model.unload(), folder / SNAPSHOT_FOLDER, to_train=True)
    return opened


def open_tracer(
    source: Run | str | Path,
    *,
    say: Callable[[str], None] = lambda _: None,
    count: Count = no_count,
) -> Tracer:
    """A run of ours, or the study of a model of others, opened for traces."""
    run = open_traceable(source)
    if isinstance(run, BaseRun):
        return BaseTracer(run, say=say, count=count)
    return Tracer(run, say=say, count=count)
