"""What a training is given: settings that users choose, and the job that follows from them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import SLOT, Question, QuestionSet, question_rows
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.config import ModelConfig, make_config, parse_size
from wherefrom.model.mixers import find_variant
from wherefrom.recall.table import read_answer, score
from wherefrom.storage import digest_of, read_json_lines
from wherefrom.training.checkpoints import PaceSegment
from wherefrom.training.memory import check_memory
from wherefrom.training.recipes import Budget, Phase, Recipe
from wherefrom.training.record import JobRecord, SourceRecord, check_file, find_problem
from wherefrom.training.run_folder import Run, describe_file, is_run

LARGEST_SEED = 2**31 - 1
MAX_WORDINGS = 20  # of questions, whose words the vocabulary has beside those of the text


@dataclass(frozen=True)
class TrainingJob:
    """One run to train: its folder, and everything that decides its weights.

    record: the part of run.json that must be the same when the run is resumed; details: the rest.
    left_out: lines of documents that have no loss. stopping_questions: recall on them decides when
    it ends; readable: the share of them whose answers can be read from the documents.
    recipe_phases: the phases without the budget, if their passes are to be counted.
    """

    out: Path
    tokens: Tokenizer
    record: JobRecord
    details: Mapping[str, Any] = field(default_factory=dict)
    database: Database | None = None
    questions: Sequence[Question] = ()
    parent: Run | None = None
    segments: Sequence[PaceSegment] = ()  # of the run whose steps it repeats
    left_out: Collection[int] = ()
    stopping_questions: Sequence[Question] = ()
    readable: float = 0.0
    recipe_phases: Sequence[Phase] = ()

    @property
    def phases(self) -> tuple[Phase, ...]:
        return self.record.phases

    @property
    def config(self) -> ModelConfig:
        return self.record.model

    def add_details(self, **details: Any) -> TrainingJob:
        """The same job with more fields of run.json."""
        return replace(self, details={**self.details, **details})

    def stop_by(self, questions: Sequence[Question]) -> TrainingJob:
        """The same job, which ends when recall on these questions stops growing."""
        readable = 0.0
        if self.database is not None:
            answers = [read_answer(question, self.database) for question in questions]
            readable = score(answers, [question.answer or "" for question in questions]).share
        digest = digest_of(question_rows(questions))
        record = self.record.model_copy(update={"stopping_questions": digest})
        return replace(self, record=record, stopping_questions=tuple(questions), readable=readable)


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How a training is executed; apart from rounding, none of this changes the weights."""

    device: str = "auto"
    resume: bool = False
    checkpoint_every: float = 60.0  # seconds

    def __post_init__(self) -> None:
        if not 0 <= self.checkpoint_every < 1e9:
            raise UserError(
                f"--checkpoint-every must be a number of seconds, not {self.checkpoint_every}."
            )


@dataclass(frozen=True, kw_only=True)
class Settings(Runtime):
    """What users may choose about a training; None stands for what the recipe says."""

    recipe: Recipe
    variant: str | None = None
    size: str | None = None
    tokens: str | None = None
    block: int | None = None
    latents: int | None = None
    budget: Budget = field(default_factory=Budget)
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.seed) is not int or not 0 <= self.seed <= LARGEST_SEED:
            raise UserError(f"--seed must be between 0 and {LARGEST_SEED}, not {self.seed}.")
        find_variant(self.variant or self.recipe.variant)
        # an impossible shape is refused before any work
        check_memory(self.config(vocabulary=2**31 - 1))

    def config(self, vocabulary: int) -> ModelConfig:
        """The shape of a new model."""
        width, layers, heads = parse_size(self.size or self.recipe.size)
        block = self.recipe.block if self.block is None else self.block
        return make_config(
            variant=self.variant or self.recipe.variant,
            vocabulary=vocabulary,
            block=block,
            layers=layers,
            heads=heads,
            width=width,
            latents=min(64, block) if self.latents is None else self.latents,
            dropout=self.recipe.dropout,
        )

    def job(
        self,
        out: str | Path,
        *,
        kind: str,
        phases: Sequence[Phase],
        corpus: Database | None = None,
        questions: QuestionSet | None = None,
        parent: Run | None = None,
        letters: Sequence[str] = (),
    ) -> TrainingJob:
        """The job of training one run in `out`, from a parent run or a new model.

        A new model's vocabulary is that of the corpus; a run of the kind "scratch" does not read
        it. letters: texts, such as dev questions, that a vocabulary of characters must cover.
        """
        out, learned = Path(out), questions.questions if questions else ()
        documents = corpus.documents if corpus else ()
        reads_corpus = kind != "scratch"
        corpus = corpus if reads_corpus else None
        if parent is not None:
            templates = questions.templates if questions else parent.templates
            tokens, config = parent.tokens, parent.model.config
            token_kind: str = tokens.kind
        else:
            templates = questions.templates if questions else ()
            asked = [text for q in learned for text in (q.text, q.answer or "")]
            tokens = self._tokenizer(out, documents, templates, [*letters, *asked])
            config = self.config(tokens.size)
            token_kind = self._describe_tokens(documents)
        record = JobRecord(
            kind=kind,
            model=config,
            phases=tuple(phases),
            seed=self.seed,
            zero_init=self.recipe.zero_init,
            tokens=token_kind,
            vocabulary=digest_of(vocabulary_texts(() if reads_corpus else documents)),
            corpus=corpus.source_sha256 if corpus else None,
            documents=corpus.documents_sha256 if corpus else None,
            questions=digest_of(question_rows(learned)),
            parent=parent.record.sha256 if parent else None,
        )
        data = describe_sources(out, corpus, questions, parent)
        return TrainingJob(
            out=out,
            tokens=tokens,
            record=record,
            details={"templates": tuple(templates), "data": data},
            database=corpus,
            questions=learned,
            parent=parent,
        )

    def _vocabulary_size(self, documents: Sequence[Document]) -> int:
        return self.recipe.vocabulary or vocabulary_for(documents)

    def _describe_tokens(self, documents: Sequence[Document]) -> str:
        """The kind of tokens and the size of their vocabulary, for run.json."""
        kind = self.tokens or self.recipe.tokens
        return kind if kind == "chars" else f"{kind} of {self._vocabulary_size(documents)}"

    def _tokenizer(
        self,
        out: Path,
        documents: Sequence[Document],
        templates: Sequence[str],
        letters: Sequence[str],
    ) -> Tokenizer:
        """The vocabulary of the documents; a resumed run has it already."""
        stored, texts = out / "tokenizer.json", vocabulary_texts(documents)
        if self.resume and is_run(out) and find_problem(out, stored.name) is None:
            return Tokenizer.from_json(stored.read_text(encoding="utf-8"))
        if (self.tokens or self.recipe.tokens) == "chars":
            return Tokenizer.of_characters(chain(texts, letters, "?"))
        # words that only questions have would be spelt in bytes, in every question: count each
        # wording as if every second document were such a question
        wordings = [t.replace(SLOT, "") for t in templates if SLOT in t][:MAX_WORDINGS]
        repeated = (repeat(wording, 1 + len(documents)) for wording in wordings)
        return Tokenizer.of_bpe(chain(texts, *repeated), self._vocabulary_size(documents))


def describe_sources(
    out: Path, corpus: Database | None, questions: QuestionSet | None, parent: Run | None
) -> dict[str, SourceRecord]:
    """What a run in `out` learns from, for run.json."""
    data = {}
    if parent is not None:
        data["parent"] = describe_file(parent.folder, parent.record.sha256, out)
    if corpus is not None:
        count = len(corpus.documents)
        data["corpus"] = describe_file(corpus.source, corpus.source_sha256, out, documents=count)
    if questions is not None:
        count = len(questions.questions)
        data["questions"] = describe_file(questions.path, questions.sha256, out, questions=count)
    return data


def vocabulary_texts(documents: Sequence[Document]) -> Iterator[str]:
    """What tokens are learned from: the texts, then the subjects."""
    yield from (document.text for document in documents)
    yield from (document.subject for document in documents)


def vocabulary_for(documents: Sequence[Document]) -> int:
    """The size of a BPE vocabulary: one token per 80 bytes, 1,000 to 8,192 (benchmarks/log.md)."""
    size = sum(len(text.encode()) for text in vocabulary_texts(documents))
    return max(1000, min(8192, size // 80))


def twin_job(
    run: Run,
    database: Database,
    questions: Sequence[Question],
    out: Path,
    without: Collection[int] = (),
) -> TrainingJob:
    """The job of training a run again without the documents on some lines.

    Start, batches, steps and rates are the run's, and rows made of those documents have no loss.
    If nothing is left out, the weights are equal to the last bit, given as many threads.
    """
    left_out = sorted({*run.job.without, *without})
    phases, segments = same_steps(run)
    changes = {
        "kind": "left out",
        "phases": tuple(phases),
        "documents": database.documents_sha256,
        "twin_of": run.record.sha256,
        "without": tuple(left_out),
    }
    data = {
        what: source.model_copy(update={"relative_path": os.path.relpath(source.path, out)})
        for what, source in run.record.data.items()
    }
    details = {
        "templates": run.templates,
        "data": data,
        "left_out": run.record.left_out,
        "not_learned": run.record.not_learned,
    }
    return TrainingJob(
        out=Path(out),
        tokens=run.tokens,
        record=run.job.model_copy(update=changes),
        details=details,
        database=database,
        questions=questions,
        segments=segments,
        left_out=left_out,
    )


def same_steps(run: Run) -> tuple[list[Phase], list[PaceSegment]]:
    """The run's phases with its number of steps in place of epochs, and the pace of its minutes."""
    record = run.folder / "pace.jsonl"
    segments = []
    if "pace.jsonl" in run.record.files:
        check_file(run.folder, "pace.jsonl", run.record)
        segments = [PaceSegment(**line) for line in read_json_lines(record)]
    phases = []
    for index, phase in enumerate(run.job.phases):
        steps = [segment.step + 1 for segment in segments if segment.phase == index]
        if phase.steps is None and not steps:
            raise UserError(
                f"{record} does not say how many steps {run.folder} took; no twin can follow it."
            )
        if phase.epochs is not None:
            changed = {"epochs": None, "most_epochs": None, "steps": steps[-1]}
            phase = phase.model_copy(update=changed)
        phases.append(phase)
    return phases, segments
