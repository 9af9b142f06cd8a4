"""A run trained once more with other documents and nothing else changed: how a twin is made.

The twin takes the run's own vocabulary, shape, seed, phases and questions, and as many steps at the
same learning rates: a run that was given minutes left a record of its pace, which is followed
instead of the clock. With the same documents, the twin's weights are the run's to the last bit (on
the same number of threads).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from wherefrom.corpus.documents import Corpus, Document
from wherefrom.corpus.questions import Question, QuestionSet
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import Stopped, UserError
from wherefrom.model.config import ModelConfig, make_config, parse_size
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import find_variant
from wherefrom.storage import read_json, write_whole
from wherefrom.training.checkpoint import load_weights, whole_weights
from wherefrom.training.distributed import Processes, choose_device, join_processes
from wherefrom.training.loop import (
    CHECKPOINT_EVERY,
    MinutePace,
    Observer,
    Segment,
    peak_memory,
    train,
)
from wherefrom.training.recipes import Phase, Recipe
from wherefrom.training.run_folder import (
    Run,
    describe_file,
    digest_of,
    load_run,
    open_folder,
    question_rows,
    save_model,
    start_run,
    update_run,
    write_shape,
)
from wherefrom.training.sources import TrainingData, stream_for


def is_finished(out: Path) -> bool:
    """Whether the folder holds a run that needs no more training."""
    has_weights = (out / "model.safetensors").exists()
    return has_weights and bool(read_json(out / "run.json")["status"] == "finished")


def train_and_keep(
    model: Decoder,
    tokens: Tokenizer,
    phases: Sequence[Phase],
    data: TrainingData,
    out: Path,
    *,
    seed: int,
    processes: Processes,
    resume: bool = False,
    observe: Observer | None = None,
    compiled: bool = False,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> None:
    """Train to the end and leave a finished run in `out`; a run that is stopped is marked so."""
    try:
        outcome = train(
            model,
            phases,
            data,
            out,
            seed=seed,
            resume=resume,
            observe=observe,
            processes=processes,
            compiled=compiled,
            checkpoint_every=checkpoint_every,
        )
    except (Stopped, UserError) as end:
        if processes.is_rank0:
            update_run(out, status="stopped" if isinstance(end, Stopped) else "failed")
        raise
    weights = whole_weights(model)

    def finish() -> None:
        digest = save_model(out, model.config, tokens, weights)
        update_run(
            out,
            status="finished",
            sha256=digest,
            steps=outcome.steps,
            trained_tokens=outcome.tokens,
            seconds=round(outcome.seconds, 2),
            peak_mb=round(peak_memory(), 1),
        )

    processes.on_rank0(finish)


@dataclass(frozen=True)
class Budget:
    """How long a command may train: one of these, or what the recipe says."""

    minutes: float | None = None
    epochs: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        given = {k: v for k, v in vars(self).items() if v is not None}
        if len(given) > 1:
            raise UserError(f"give one of --minutes, --epochs and --steps, not {len(given)}.")
        for name, value in given.items():
            if not 0 < value < 1e9:
                raise UserError(f"--{name} must be a positive number, not {value}.")

    def divide(self, phases: Sequence[Phase], *, whole: bool = True) -> list[Phase]:
        """The phases, each with its share of this budget; `whole` spends all of it on them."""
        if self.minutes is None and self.epochs is None and self.steps is None:
            return list(phases)
        total = sum(phase.share for phase in phases) if whole else 1.0
        result = []
        for phase in phases:
            part = phase.share / total
            budget: dict[str, Any] = {"minutes": None, "epochs": None, "steps": None}
            if self.minutes is not None:
                budget["minutes"] = self.minutes * part
            elif self.epochs is not None:
                budget["epochs"] = self.epochs * part
            else:
                assert self.steps is not None
                budget["steps"] = max(1, round(self.steps * part))
            result.append(phase.model_copy(update=budget))
        return result


@dataclass(frozen=True)
class Settings:
    """What every training command can be told."""

    recipe: Recipe
    variant: str | None = None  # the recipe's, if not given
    size: str | None = None
    tokens: str | None = None
    block: int | None = None
    latents: int | None = None
    reads: str | None = None
    budget: Budget = Budget()
    seed: int = 0
    device: str = "auto"
    compiled: bool = False
    resume: bool = False
    shard: bool = False  # spread the model over the processes
    checkpoint_every: float = CHECKPOINT_EVERY  # seconds

    def __post_init__(self) -> None:
        if not 0 <= self.checkpoint_every < 1e9:
            raise UserError(
                f"--checkpoint-every must be a number of seconds, not {self.checkpoint_every}."
            )
        if self.shard and self.compiled:
            raise UserError("--shard and --compile do not go together; leave one of them out.")

    def model_config_for(self, vocabulary: int) -> ModelConfig:
        width, layers, heads = parse_size(self.size or self.recipe.size)
        find_variant(self.variant or self.recipe.variant)
        block = self.recipe.block if self.block is None else self.block
        latents = min(64, block) if self.latents is None else self.latents
        fields: dict[str, Any] = {"latents": latents}
        if self.reads is not None:
            fields["reads"] = self.reads
        return make_config(
            variant=self.variant or self.recipe.variant,
            vocabulary=vocabulary,
            block=block,
            layers=layers,
            heads=heads,
            width=width,
            dropout=self.recipe.dropout,
            **fields,
        )

    def build_tokens(self, texts: Sequence[str], asked: Sequence[str] = ()) -> Tokenizer:
        """A vocabulary of the texts; chars tokens need the letters of what is asked as well."""
        kind = self.tokens or self.recipe.tokens
        if kind == "chars":
            return Tokenizer.of_characters([*texts, *asked, "?"])
        return Tokenizer.of_bpe(texts, self.recipe.vocabulary)


@dataclass(frozen=True)
class TrainingJob:
    """What one run learns: phases over documents and questions, from a parent or from nothing."""

    kind: str
    phases: Sequence[Phase]
    corpus: Corpus | None = None
    questions: QuestionSet | None = None
    parent: Run | None = None
    vocabulary_from: Sequence[str] = ()  # the corpus, if not given
    asked: Sequence[str] = ()  # what it will be asked, as far as that is known
    details: Mapping[str, Any] = field(default_factory=dict)  # for run.json, from the start on


def run_training(
    lesson: TrainingJob, settings: Settings, out: str | Path, *, observe: Observer | None = None
) -> Run:
    """Train a model as the lesson says and leave a finished run in `out`.

    A run that is finished already is loaded when resuming, so that a job of several runs can be
    repeated until all of it is done.
    """
    processes = join_processes(sharded=settings.shard)
    out = Path(out)
    device = choose_device(settings.device)
    tokens = _tokens(lesson, settings, out)
    config = (
        lesson.parent.model.config
        if lesson.parent is not None
        else settings.model_config_for(tokens.size)
    )
    job = _job(lesson, settings, config)
    processes.on_rank0(lambda: open_folder(out, job, resume=settings.resume))
    if is_finished(out):
        return load_run(out, device=device)
    documents = lesson.corpus.documents if lesson.corpus else ()
    questions = lesson.questions.questions if lesson.questions else ()
    data = TrainingData.encode(documents, questions, tokens, config.block)
    model = Decoder(config).initialise(
        torch.Generator().manual_seed(settings.seed), zero_init=settings.recipe.zero_init
    )
    if lesson.parent is not None:
        load_weights(lesson.parent.folder / "model.safetensors", model)
    model.to(device)

    def start() -> None:
        start_run(
            out,
            job,
            kind=lesson.kind,
            template=_template(lesson),
            data=_sources(lesson, out),
            **lesson.details,
        )
        write_shape(out, config, tokens)

    processes.on_rank0(start)
    train_and_keep(
        model,
        tokens,
        lesson.phases,
        data,
        out,
        seed=settings.seed,
        processes=processes,
        resume=settings.resume,
        observe=observe,
        compiled=settings.compiled,
        checkpoint_every=settings.checkpoint_every,
    )
    return load_run(out, device=device)


def _tokens(lesson: TrainingJob, settings: Settings, out: Path) -> Tokenizer:
    if lesson.parent is not None:
        return lesson.parent.tokens
    if settings.resume and (out / "tokenizer.json").exists():
        return Tokenizer.from_json((out / "tokenizer.json").read_text(encoding="utf-8"))
    texts = list(lesson.vocabulary_from)
    if not texts and lesson.corpus is not None:
        texts = lesson.corpus.texts
    learned = lesson.questions.questions if lesson.questions else ()
    answers = [question.answer or "" for question in learned]
    asked = [question.text for question in learned]
    return settings.build_tokens(texts, [*lesson.asked, *asked, *answers])


def _job(lesson: TrainingJob, settings: Settings, config: ModelConfig) -> dict[str, Any]:
    return {
        "kind": lesson.kind,
        "model": config.model_dump(),
        "phases": [phase.model_dump(mode="json") for phase in lesson.phases],
        "seed": settings.seed,
        "zero_init": settings.recipe.zero_init,
        "tokens": _tokens_wanted(lesson, settings),
        "vocabulary": digest_of(lesson.vocabulary_from),
        "corpus": lesson.corpus.sha256 if lesson.corpus else None,
        "documents": digest_of(lesson.corpus.texts) if lesson.corpus else None,
        "questions": digest_of(question_rows(lesson.questions.questions))
        if lesson.questions
        else None,
        "parent": lesson.parent.info.get("sha256") if lesson.parent else None,
    }


def _tokens_wanted(lesson: TrainingJob, settings: Settings) -> str:
    if lesson.parent is not None:
        return lesson.parent.tokens.kind
    kind = settings.tokens or settings.recipe.tokens
    return kind if kind == "chars" else f"{kind} of {settings.recipe.vocabulary}"


def _template(lesson: TrainingJob) -> str | None:
    if lesson.questions is not None:
        return lesson.questions.template
    return lesson.parent.template if lesson.parent else None


def _sources(lesson: TrainingJob, out: Path) -> dict[str, Any]:
    sources: dict[str, Any] = {}
    if (corpus := lesson.corpus) is not None:
        count = len(corpus.documents)
        sources["corpus"] = describe_file(corpus.path, corpus.sha256, out, documents=count)
    if (asked := lesson.questions) is not None:
        count = len(asked.questions)
        sources["questions"] = describe_file(asked.path, asked.sha256, out, questions=count)
    if (parent := lesson.parent) is not None:
        sources["parent"] = describe_file(parent.folder, parent.info["sha256"], out)
    return sources


def retrain(
    run: Run,
    documents: Sequence[Document],
    questions: Sequence[Question],
    out: Path,
    *,
    instead_of: Sequence[Document],
    device: str = "cpu",
    resume: bool = False,
    observe: Observer | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> Run:
    """The run once more with `documents` where it read `instead_of`; a finished twin is loaded.

    Steps and learning rates are those that the run took, whatever its budget was.
    """
    processes = join_processes()
    job = run.info["job"]
    config, tokens, seed = run.model.config, run.tokens, int(job["seed"])
    where = choose_device(device)
    pace = _recorded_pace(run)
    phases = _same_steps(run, instead_of, questions)
    twin_job = {
        **job,
        "kind": "left out",
        "phases": [phase.model_dump(mode="json") for phase in phases],
        "documents": digest_of([document.text for document in documents]),
        "twin_of": run.info["sha256"],
    }
    processes.on_rank0(lambda: open_folder(out, twin_job, resume=resume))
    if is_finished(out):
        return load_run(out, device=where)
    data_record = {
        what: {**source, "relative_path": os.path.relpath(source["path"], out)}
        for what, source in run.info["data"].items()
    }
    data = TrainingData.encode(documents, questions, tokens, config.block)
    model = Decoder(config).initialise(
        torch.Generator().manual_seed(seed), zero_init=bool(job["zero_init"])
    )
    model.to(where)

    def start() -> None:
        start_run(out, twin_job, kind="left out", template=run.template, data=data_record)
        write_shape(out, config, tokens)
        if pace and not (out / "pace.jsonl").exists():
            lines = (json.dumps(asdict(stretch)) + "\n" for stretch in pace)
            write_whole(out / "pace.jsonl", "".join(lines))

    processes.on_rank0(start)
    train_and_keep(
        model,
        tokens,
        phases,
        data,
        out,
        seed=seed,
        processes=processes,
        resume=resume,
        observe=observe,
        checkpoint_every=checkpoint_every,
    )
    return load_run(out, device=where)


def _same_steps(
    run: Run, documents: Sequence[Document], questions: Sequence[Question]
) -> list[Phase]:
    """The run's phases; epochs become steps, since an epoch is shorter with a document less."""
    job = run.info["job"]
    phases = [Phase(**fields) for fields in job["phases"]]
    if all(phase.epochs is None for phase in phases):
        return phases
    data = TrainingData.encode(documents, questions, run.tokens, run.model.config.block)
    fixed = []
    for index, phase in enumerate(phases):
        if phase.epochs is not None:
            epoch = stream_for(phase, data, [int(job["seed"]), index]).epoch_steps()
            steps = max(1, round(phase.epochs * epoch))
            phase = phase.model_copy(update={"epochs": None, "steps": steps})
        fixed.append(phase)
    return fixed


def _recorded_pace(run: Run) -> list[Segment]:
    """How the run's minutes became steps, closed behind its last step so that no clock is read."""
    record = run.folder / "pace.jsonl"
    stretches: list[Segment] = []
    for index, fields in enumerate(run.info["job"]["phases"]):
        minutes = fields.get("minutes")
        if minutes is None:
            continue
        pace = MinutePace(60 * minutes, record, index, writes=False)
        steps = next((n for n in range(run.info["steps"] + 1) if pace.progress(n) >= 1), None)
        if not steps:
            raise UserError(
                f"{record} does not tell how many steps {run.folder} took; no twin can follow it."
            )
        decided = [Segment(**json.loads(line)) for line in record.read_text("utf-8").splitlines()]
        stretches += [stretch for stretch in decided if stretch.phase == index]
        stretches.append(Segment(index, steps - 1, pace.progress(steps - 1), 1.0))
    return stretches
