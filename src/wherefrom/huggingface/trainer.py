"""transformers' Trainer for rows whose loss has weights; checkpoints that a kill cannot break."""

from __future__ import annotations

import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import SequentialSampler

os.environ["HF_HUB_OFFLINE"] = "1"  # read as transformers is imported
import transformers

from wherefrom.huggingface.rows import EncodedRow, RowDataset
from wherefrom.storage import read_json, sha256_of, write_json
from wherefrom.training.record import BaseJobRecord

NO_LOSS = -100  # the label of a token that is not learned
COMPLETE = "complete.json"  # hashes of a checkpoint's files, written when all of them are there
SAVES_TOGETHER = 20  # checkpoints of a training by several processes
LOGGED_POINTS = 100  # of the curve of the loss
SNAPSHOT_SHARE = 0.38  # of the steps, after which the adapters are kept for traces
Advance = Callable[[int], None]  # called with the number of steps just done


def pad_batch(rows: Sequence[EncodedRow]) -> dict[str, Tensor]:
    """A batch, padded at the end with a token that is neither read nor learned."""
    ids = [torch.tensor(row.ids) for row in rows]
    labels = [each.clone() for each in ids]
    for row, label in zip(rows, labels, strict=True):
        label[: row.prompt_length] = NO_LOSS
    return {
        "input_ids": pad_sequence(ids, True),
        "attention_mask": pad_sequence([torch.ones_like(each) for each in ids], True),
        "labels": pad_sequence(labels, True, NO_LOSS),
        "weights": torch.tensor([row.weight for row in rows]),
    }


def weighted_loss(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """The mean cross-entropy of the answers' tokens, each row times its weight.

    The mean is over all tokens, those of rows without weight too, so that the other rows of a
    batch count as much in a twin as in the run.
    """
    labels, weights = batch["labels"], batch["weights"]
    learned = labels != NO_LOSS
    first = int(learned.any(0).nonzero()[0])  # logits before it are of no use
    keep = labels.shape[1] - first + 1
    logits = model(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        logits_to_keep=keep,
        use_cache=False,
    ).logits[:, -keep:-1]
    losses = F.cross_entropy(
        logits.float().transpose(1, 2), labels[:, first:], ignore_index=NO_LOSS, reduction="none"
    )
    return (losses * weights[:, None]).sum() / learned.sum()


class RowTrainer(transformers.Trainer):
    """Trainer on a RowDataset: rows come in the order of the dataset."""

    def _get_train_sampler(self, train_dataset: Any = None) -> SequentialSampler:
        dataset: Any = train_dataset if train_dataset is not None else self.train_dataset
        return SequentialSampler(dataset)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        loss = weighted_loss(model, inputs)
        return (loss, None) if return_outputs else loss


class Keeper(transformers.TrainerCallback):
    """Saves by the clock, marks checkpoints that are whole, and keeps one snapshot of adapters."""

    def __init__(
        self, every: float, snapshot: Path | None, snapshot_step: int, advance: Advance
    ) -> None:
        self.every, self.snapshot, self.snapshot_step = every, snapshot, snapshot_step
        self.advance, self.saved_at = advance, time.monotonic()
        self.started, self.earlier_seconds = time.monotonic(), 0.0

    @property
    def seconds(self) -> float:
        """Of the training so far, with what it took before it was interrupted."""
        return self.earlier_seconds + time.monotonic() - self.started

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.advance(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        is_due = time.monotonic() - self.saved_at >= self.every
        if args.world_size > 1:  # all processes save at the same step, and their clocks differ
            is_due = state.global_step % max(1, state.max_steps // SAVES_TOGETHER) == 0
        if is_due and state.global_step < state.max_steps:
            control.should_save = True
        is_sharded = bool(args.fsdp)  # no process has all of the adapters
        at_snapshot = state.global_step == self.snapshot_step and not is_sharded
        if self.snapshot and at_snapshot and args.should_save:
            found["model"].save_pretrained(self.snapshot)
        self.advance(1)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.saved_at = time.monotonic()
        if args.should_save:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            write_json(folder / COMPLETE, {"files": _hashes(folder), "seconds": self.seconds})


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != COMPLETE)
    return {str(path.relative_to(folder)): sha256_of(path) for path in files}


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that is whole; others are deleted, by the first process."""
    newest, is_first = None, os.environ.get("RANK", "0") == "0"
    found = [path for path in folder.glob("checkpoint-*") if path.name[11:].isdigit()]
    for path in sorted(found, key=lambda path: -int(path.name[11:])):
        marked = read_json(path / COMPLETE, dict) if (path / COMPLETE).is_file() else {}
        is_whole = marked.get("files") == _hashes(path)
        if newest is None and is_whole:
            newest = path
        elif not is_whole and is_first:
            shutil.rmtree(path, ignore_errors=True)
    return newest


def train_rows(
    model: Any,
    dataset: RowDataset,
    job: BaseJobRecord,
    folder: Path,
    *,
    every: float,
    snapshot: Path | None = None,
    advance: Advance = lambda _: None,
) -> tuple[Any, float]:
    """The Trainer when it is done, and the seconds that it took.

    `folder` holds the checkpoints, from which it goes on. Under torchrun or `accelerate launch`
    all processes call it.
    """
    gpu = torch.cuda.is_available()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=job.steps,
        per_device_train_batch_size=max(1, job.batch // int(os.environ.get("WORLD_SIZE", "1"))),
        learning_rate=job.rate,
        lr_scheduler_type=job.schedule,
        warmup_steps=job.warmup_steps,
        max_grad_norm=job.clip,
        weight_decay=job.weight_decay,
        bf16=gpu,
        dataloader_pin_memory=gpu,
        save_strategy="no",  # by the clock
        save_total_limit=2,
        logging_strategy="steps",
        logging_steps=max(1, job.steps // LOGGED_POINTS),
        remove_unused_columns=False,
        report_to=[],
        disable_tqdm=True,
        seed=job.seed,
        data_seed=job.seed,
        use_cpu=not gpu,
        ddp_backend="gloo" if "RANK" in os.environ and not gpu else None,
    )
    at = max(1, round(SNAPSHOT_SHARE * job.steps))
    keeper = Keeper(every, snapshot, at, advance)
    trainer = RowTrainer(
        model=model,
        args=arguments,
        data_collator=pad_batch,
        train_dataset=dataset,
        callbacks=[keeper],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    start = newest_checkpoint(folder)
    if start is not None:
        keeper.earlier_seconds = float(read_json(start / COMPLETE, dict)["seconds"])
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries about each other
        trainer.train(resume_from_checkpoint=str(start) if start else None)
    return trainer, keeper.seconds
