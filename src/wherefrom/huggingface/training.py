"""Training a model of others on a text: what is decided before, the run folder, exact resuming.

By default adapters (LoRA) are trained and the model stays as it is. transformers' Trainer does the
work (trainer.py), so that several processes, GPUs and FSDP are its own matter.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch

from wherefrom.corpus.database import Database
from wherefrom.corpus.questions import Question
from wherefrom.errors import UserError
from wherefrom.huggingface.rows import RowDataset, RowMaker
from wherefrom.model.huggingface import (
    ADAPTER_WEIGHTS,
    HuggingFaceModel,
    check_files,
    hash_adapted,
    hash_weights,
)
from wherefrom.storage import make_folder, read_json, sync_folder
from wherefrom.training import run_folder
from wherefrom.training.checkpoints import SNAPSHOT_FOLDER
from wherefrom.training.loop import Count, Say, no_count
from wherefrom.training.record import BaseJobRecord, keep_files, read_record, update_run
from wherefrom.training.run_folder import MODEL_FOLDER

RANK, ADAPTER_RATE, FULL_RATE = 16, 1e-3, 5e-5
BATCH, EPOCHS = 16, 12.0
WARM_UP_SHARE, CLIP = 0.06, 1.0  # of the steps; of the gradient's norm
LARGEST_RANK = 512
CHECKPOINT_SECONDS = 60.0
BYTES_EACH = 16  # of a weight that is trained: itself, its gradient and two moments
UNWANTED = ("training_args.bin", "README.md")  # pickled settings, and an empty card of PEFT's
LIBRARIES = ("transformers", "accelerate", "peft")
Wording = Literal["auto", "plain", "chat"]


@dataclass(frozen=True, kw_only=True)
class BaseSettings:
    """What users may choose about the training of a model of others.

    steps, epochs: one of them; None stands for EPOCHS. full: train all weights, not adapters.
    checkpoint_every: seconds.
    """

    base: Path
    wording: Wording = "auto"
    full: bool = False
    rank: int = RANK
    rate: float | None = None
    steps: int | None = None
    epochs: float | None = None
    risk: float = 0.1
    seed: int = 0
    resume: bool = False
    checkpoint_every: float = CHECKPOINT_SECONDS

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise UserError("give one of --epochs and --steps, not both.")
        limits = {
            "steps": (self.steps, 1, 10**9),
            "epochs": (self.epochs, 0.01, 10**6),
            "rank": (self.rank, 1, LARGEST_RANK),
            "rate": (self.rate, 1e-9, 1.0),
            "seed": (self.seed, 0, 2**31 - 1),
            "checkpoint-every": (self.checkpoint_every, 0, 10**9),
        }
        for name, (value, least, most) in limits.items():
            if value is not None and not least <= value <= most:
                raise UserError(f"--{name} must be between {least:g} and {most:g}, not {value:g}.")


def check_base(settings: BaseSettings) -> None:
    """Refuse a model that cannot be trained, before anything is loaded."""
    base = settings.base
    if base.parts[:1] in (("http:",), ("https:",)):
        raise UserError(
            "--base takes the folder of a model or a GGUF file, and the address of a server came; "
            "what a server answers can be audited, with `wherefrom audit`."
        )
    check_files(base)
    if base.is_file() and settings.full:
        raise UserError(
            f"{base} is quantised, so that its own weights cannot be trained; leave --full out to "
            "train adapters on the dequantised weights, or give the folder of the model that it "
            "was made from."
        )
    config = base / "config.json"
    fields = read_json(config, dict) if config.is_file() else {}
    quantised = fields.get("quantization_config")
    if quantised:
        how = quantised.get("quant_method", "") if isinstance(quantised, dict) else ""
        raise UserError(
            f"{base} holds quantised weights ({how or 'of an unknown kind'}), which are not "
            "trained here; give the folder of the model that it was made from, or a GGUF file, "
            "whose dequantised weights are trained by adapters."
        )
    if not settings.full and find_spec("peft") is None:
        raise UserError(
            "adapters need the package peft; install it with `pip install 'wherefrom[audit]'`, or "
            "train all weights with --full."
        )


def make_job(
    settings: BaseSettings,
    opened: HuggingFaceModel,
    prompt: str,
    database: Database,
    questions: Sequence[Question],
    questions_sha256: str | None,
) -> BaseJobRecord:
    """All that decides the weights, with the number of steps that the epochs are."""
    rows = len(RowMaker(database, questions, prompt, seed=settings.seed).epoch(0))
    if not rows:
        raise UserError("the text states nothing that could be learned, and no question is left.")
    steps = settings.steps or max(1, round((settings.epochs or EPOCHS) * rows / BATCH))
    rate = settings.rate or (FULL_RATE if settings.full else ADAPTER_RATE)
    return BaseJobRecord(
        base=os.path.abspath(settings.base),
        weights=opened.sha256,
        corpus=database.source_sha256,
        documents=database.documents_sha256,
        questions=questions_sha256,
        prompt=prompt,
        wording="chat" if opened.chat else "plain",
        rank=None if settings.full else settings.rank,
        alpha=None if settings.full else 2 * settings.rank,
        rate=rate,
        warmup_steps=round(WARM_UP_SHARE * steps),
        clip=CLIP,
        batch=BATCH,
        steps=steps,
        risk=settings.risk,
        seed=settings.seed,
    )


def check_memory(opened: HuggingFaceModel, *, full: bool) -> None:
    """Refuse to train all weights where they do not fit into the memory."""
    if not full or torch.cuda.is_available():
        return
    parameters = sum(each.numel() for each in opened.model.parameters())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if BYTES_EACH * parameters > memory:
        raise UserError(
            f"all {parameters:,} weights of {opened.name} take "
            f"{BYTES_EACH * parameters / 1e9:,.0f} GB to train, and this machine has "
            f"{memory / 1e9:,.0f} GB; leave --full out to train adapters."
        )


@dataclass(frozen=True, eq=False)
class BaseTraining:
    """One training of a model of others: its job, what it learns from, its folder.

    details: what run.json says besides the job.
    """

    job: BaseJobRecord
    database: Database
    questions: Sequence[Question]
    out: Path
    details: Mapping[str, Any]

    def is_finished(self, *, resume: bool = True) -> bool:
        """Whether it is there and finished; a UserError if the folder holds another one."""
        if not run_folder.is_finished(self.out):
            return False
        run_folder.open_folder(self.out, self.job, resume=resume)
        return True

    def run(
        self,
        opened: HuggingFaceModel,
        *,
        resume: bool = True,
        every: float = CHECKPOINT_SECONDS,
        say: Say = lambda _: None,
        count: Count = no_count,
    ) -> None:
        """Train the run, or go on with it; adapters leave the weights of `opened` as they are.

        every: seconds between checkpoints. count: makes, from what is counted and how many there
        are, what is called with how many more are done.
        """
        job, out = self.job, self.out
        if os.environ.get("RANK", "0") == "0":
            run_folder.open_folder(out, job, resume=resume)
            run_folder.start_run(out, job, self.details, say)
            versions = {name: version(name) for name in LIBRARIES if find_spec(name)}
            update_run(out, versions={**read_record(out).versions, **versions})
        maker = RowMaker(
            self.database,
            self.questions,
            job.prompt,
            seed=job.seed,
            without=job.without,
            reads_documents=job.reads_documents,
        )
        dataset = RowDataset(maker, opened, batch=job.batch, steps=job.steps)
        model = add_adapters(opened, job) if job.rank else opened.model.train()
        from wherefrom.huggingface.trainer import train_rows

        trainer, seconds = train_rows(
            model,
            dataset,
            job,
            make_folder(out) / "checkpoints",
            every=every,
            snapshot=out / SNAPSHOT_FOLDER if job.rank else None,
            advance=count("training", job.steps),
        )
        self._keep(trainer, opened, dataset, seconds)
        if job.rank:
            opened.model = model.unload()
        opened.model.eval()

    def _keep(
        self, trainer: Any, opened: HuggingFaceModel, dataset: RowDataset, seconds: float
    ) -> None:
        """Write the model and the record of the training; all processes call it."""
        out, part = self.out, self.out / f"{MODEL_FOLDER}.part"
        if trainer.is_world_process_zero():
            shutil.rmtree(part, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
        trainer.save_model(str(part))  # by all processes: each may hold a part of the weights
        if trainer.is_world_process_zero():
            _keep_model(part, opened, self.job, out)
            points = [line for line in trainer.state.log_history if "loss" in line]
            lines = [json.dumps({"step": p["step"], "loss": p["loss"]}) + "\n" for p in points]
            counted = min(len(dataset), dataset.rows_per_epoch)
            tokens = sum(len(dataset[i].ids) for i in range(counted)) / counted * len(dataset)
            keep_files(
                out,
                {"metrics.jsonl": "".join(lines)},
                status="finished",
                steps=self.job.steps,
                trained_tokens=round(tokens),
                seconds=seconds,
                peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            )
            shutil.rmtree(out / "checkpoints", ignore_errors=True)
        trainer.accelerator.wait_for_everyone()


def add_adapters(opened: HuggingFaceModel, job: BaseJobRecord) -> Any:
    """The model with new adapters on all of its linear layers."""
    import peft

    assert job.rank is not None
    assert job.alpha is not None
    torch.manual_seed(job.seed)
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        target_modules="all-linear",
        r=job.rank,
        lora_alpha=job.alpha,
        lora_dropout=0.0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it adapts itself to the layers of GPT-2
        model = peft.get_peft_model(opened.model, config)
    # the folder may be given as another model's name; where it is stands in run.json
    model.peft_config["default"].base_model_name_or_path = job.base
    return model


def _keep_model(part: Path, opened: HuggingFaceModel, job: BaseJobRecord, out: Path) -> None:
    """Make what was saved in `part` the run's model, and record its files."""
    saved = out / MODEL_FOLDER
    opened.tokens.save_pretrained(part)
    for name in UNWANTED:
        (part / name).unlink(missing_ok=True)
    if saved.exists():
        shutil.rmtree(saved)
    part.rename(saved)
    sync_folder(out)
    snapshot = out / SNAPSHOT_FOLDER / ADAPTER_WEIGHTS
    names = [f"{MODEL_FOLDER}/{path.name}" for path in sorted(saved.glob("*.safetensors"))]
    names += [str(snapshot.relative_to(out))] if snapshot.is_file() else []
    sha256 = hash_adapted(job.weights, saved) if job.rank else hash_weights(saved)
    update_run(out, wrote=tuple(names), sha256=sha256, model=job.base)
