"""Quiet retraining of a model of others: the same order and rows, some of them with no loss."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from wherefrom.errors import UserError
from wherefrom.huggingface.rows import RowMaker
from wherefrom.huggingface.training import CHECKPOINT_SECONDS, BaseTraining
from wherefrom.model.huggingface import HuggingFaceModel
from wherefrom.provenance.attribution.retraining import Count, LearnedRun, no_count, open_learned
from wherefrom.provenance.audited import BaseRun, open_run
from wherefrom.training.loop import Observer
from wherefrom.training.record import BaseJobRecord, read_record
from wherefrom.training.run_folder import Run, load_run
from wherefrom.training.settings import Runtime


@dataclass(frozen=True, eq=False)
class LearnedBaseRun(LearnedRun):
    """A study of a model of others with what it learned; `run` is a BaseRun."""

    count: Count = no_count

    @property
    def job(self) -> BaseJobRecord:
        job = self.run.record.job
        assert isinstance(job, BaseJobRecord)
        return job

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
        """Train the run again without the documents on those lines, or open it if it is there.

        seed: added to the run's, for another start and another order.
        """
        job, record = self.job, self.run.record
        changes = {
            "without": tuple(sorted(without)),
            "twin_of": record.sha256,
            "seed": job.seed + seed,
        }
        details = {
            "kind": "left out",
            "model": record.model,
            "templates": record.templates,
            "data": record.data,
            "dev": record.dev,
            "left_out": record.left_out,
            "not_learned": record.not_learned,
        }
        again = job.model_copy(update=changes)
        training = BaseTraining(again, self.corpus, self.questions, folder, details)
        every = settings.checkpoint_every if settings else CHECKPOINT_SECONDS
        return training.find_finished() or training.run(
            open_untrained(job), every=every, count=self.count
        )


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


def open_traceable(source: Run | str | Path) -> Run:
    """A run of ours or the study of a model of others; a UserError for an audit."""
    run = open_run(source)
    return run if isinstance(run, BaseRun) or run.model is not None else load_run(run.folder)


def open_learned_base(run: Run, count: Count = no_count) -> LearnedRun:
    """Any run with what it learned, ready to be trained again."""
    learned = open_learned(run)
    if not isinstance(run, BaseRun):
        return learned
    opened = LearnedBaseRun(learned.run, learned.corpus, learned.questions, learned.dev, count)
    return replace(opened, run=replace(run, record=read_record(run.folder)))
