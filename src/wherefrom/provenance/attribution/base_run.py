"""The study of a model that others trained, with what it learned."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from wherefrom.errors import UserError
from wherefrom.huggingface.rows import EncodedRow, RowDataset, RowMaker, TrainingRow, encode_row
from wherefrom.huggingface.training import CHECKPOINT_SECONDS, BaseTraining
from wherefrom.model.huggingface import (
    ADAPTER_WEIGHTS,
    HuggingFaceModel,
    hash_adapted,
    hash_weights,
    load_adapter,
)
from wherefrom.model.interface import ASKED, LanguageModel
from wherefrom.provenance.attribution.retraining import Continuation, LearnedRun, Record, Row
from wherefrom.provenance.audited import BaseRun, open_run, open_trained
from wherefrom.storage import make_folder, sha256_of
from wherefrom.training.checkpoints import SNAPSHOT_FOLDER
from wherefrom.training.loop import Count, Observer, Say, no_count
from wherefrom.training.record import BaseJobRecord, check_file
from wherefrom.training.run_folder import MODEL_FOLDER, Run
from wherefrom.training.settings import Runtime

STEPS, SHARE = 30, 0.2  # of the training that goes on: at most, and of the run's steps
NO_SNAPSHOT = "The run kept no adapters of a third of its training; gradients are at its end."


@dataclass(frozen=True, eq=False)
class LearnedBaseRun(LearnedRun):
    """The study of a model that others trained, its text, and its questions.

    Gradients are those of the adapters or, where all weights were trained, of the linear layers.
    """

    count: Count = no_count

    @property
    def job(self) -> BaseJobRecord:
        return cast(BaseRun, self.run).base_job

    def rows(self, without: Collection[int] = ()) -> RowMaker:
        """The rows that it was trained on, those of some lines without a loss."""
        job = self.job
        return RowMaker(self.corpus, self.questions, job.prompt, seed=job.seed, without=without)

    def retrain(
        self,
        without: Collection[int],
        folder: Path,
        *,
        seed: int = 0,
        settings: Runtime | None = None,
        observe: Observer | None = None,
    ) -> Run:
        job, record = self.job, self.run.record
        changes = {
            "without": tuple(sorted(without)),
            "twin_of": record.sha256,
            "seed": job.seed + seed,
        }
        kept = ("model", "templates", "data", "dev", "left_out", "not_learned")
        details = {"kind": "left out"} | {name: getattr(record, name) for name in kept}
        again = job.model_copy(update=changes)
        training = BaseTraining(again, self.corpus, self.questions, folder, details)
        if not training.is_finished():
            every = settings.checkpoint_every if settings else CHECKPOINT_SECONDS
            training.run(open_untrained(job), every=every, count=self.count)
        return open_run(folder)

    def training_rows(
        self, only: Collection[int] | None = None, examples: int = 1
    ) -> tuple[list[Row], list[list[int]]]:
        opened, maker = cast(BaseRun, self.run).audited, self.rows()
        rows = [
            row
            for epoch in range(examples)
            for row in maker.one_of_each(epoch)
            if only is None or not set(row.documents).isdisjoint(only)
        ]
        encoded = [as_row(encode_row(opened, row, maker)) for row in rows]
        return encoded, [list(row.documents) for row in rows]

    def answer_rows(self, question: str, subject: str, answer: str, windows: int = 0) -> list[Row]:
        opened, maker = cast(BaseRun, self.run).audited, self.rows()
        rows = [TrainingRow(self.job.prompt.replace(ASKED, question), answer, ())]
        if windows:
            relation = self.relation_id(question, subject)
            rows += maker.rows_asking(relation, subject, answer, windows)
        return [as_row(encode_row(opened, row, maker)) for row in rows]

    def open_snapshot(self, say: Say) -> LanguageModel:
        folder = self.run.folder
        opened = open_trained(folder, to_train=True)
        name = f"{SNAPSHOT_FOLDER}/{ADAPTER_WEIGHTS}"
        if self.job.rank is None or not (folder / name).is_file():
            say(NO_SNAPSHOT)
            opened.model.requires_grad_(True)
            return opened
        check_file(folder, name)
        opened.model = load_adapter(opened.model.unload(), folder / SNAPSHOT_FOLDER, to_train=True)
        return opened

    def continue_training(self, without: Collection[int]) -> Continuation:
        from wherefrom.huggingface.trainer import pad_batch, weighted_loss

        job, opened = self.job, open_trained(self.run.folder, to_train=True)
        if job.rank is None:
            opened.model.requires_grad_(True)
        kept = RowDataset(self.rows(without), opened, batch=job.batch, steps=job.steps)

        def losses() -> Iterator[Tensor]:
            for first in range(0, len(kept), job.batch):
                batch = pad_batch([kept[first + i] for i in range(job.batch)])
                yield weighted_loss(opened.model, batch)

        trained = [each for each in opened.model.parameters() if each.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=job.rate, weight_decay=0.0)
        optimizer.param_groups[0]["base_lr"] = job.rate
        steps = min(STEPS, max(1, round(SHARE * job.steps)))
        advance = self.count("forgetting", steps)
        optimizer.register_step_post_hook(lambda *_: advance(1))
        return Continuation(opened, trained, losses(), [optimizer], steps)

    def save_model(self, model: LanguageModel, out: Path) -> Record:
        assert isinstance(model, HuggingFaceModel)
        saved, part = make_folder(out) / MODEL_FOLDER, out / f"{MODEL_FOLDER}.part"
        shutil.rmtree(part, ignore_errors=True)
        model.model.save_pretrained(part)
        model.tokens.save_pretrained(part)
        (part / "README.md").unlink(missing_ok=True)
        part.rename(saved)
        weights, adapted = sorted(saved.glob("*.safetensors")), self.job.rank is not None
        return {
            "job": self.job,
            "files": {f"{MODEL_FOLDER}/{path.name}": sha256_of(path) for path in weights},
            "sha256": hash_adapted(self.job.weights, saved) if adapted else hash_weights(saved),
        }


def as_row(row: EncodedRow) -> Row:
    weights = torch.full((len(row.ids),), row.weight)
    weights[: row.prompt_length] = 0
    return torch.tensor(row.ids), weights


def open_untrained(job: BaseJobRecord) -> HuggingFaceModel:
    """The base model of a run as it was before the run, or a UserError."""
    base = Path(job.base)
    if not base.exists():
        raise UserError(f"the model {base} that the run started from is not there; put it back.")
    opened = HuggingFaceModel(base, chat=job.wording == "chat", to_train=True)
    if opened.sha256 != job.weights:
        raise UserError(
            f"{base} has other weights than those that the run started from; put the model back."
        )
    return opened
