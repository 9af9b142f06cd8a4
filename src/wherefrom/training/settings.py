"""What a training is given: settings that users choose, and the job that follows from them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from wherefrom.corpus.documents import Corpus, Document, texts_of
from wherefrom.corpus.questions import SLOT, Question, QuestionSet
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.config import ModelConfig, make_config, parse_size
from wherefrom.model.mixers import find_variant
from wherefrom.training.recipes import Budget, Phase, Recipe
from wherefrom.training.run_folder import Run, Segment, describe_file, digest_of, question_rows

LARGEST_SEED = 2**31 - 1
MOST_WORDINGS = 20  # of questions, whose words the vocabulary has beside those of the text


@dataclass(frozen=True)
class TrainingJob:
    """One run to train: where to, and everything that decides its weights.

    record: what run.json keeps of it and a resumed run must repeat; details: what else run.json
    says. left_out: lines whose rows count nothing. probes: questions that decide when it ends.
    """

    out: Path
    tokens: Tokenizer
    record: Mapping[str, Any]
    details: Mapping[str, Any] = field(default_factory=dict)
    documents: Sequence[Document] = ()
    questions: Sequence[Question] = ()
    parent: Run | None = None
    segments: Sequence[Segment] = ()  # how budgets became steps, if a run before it decided that
    left_out: Collection[int] = ()
    probes: Sequence[Question] = ()

    @cached_property
    def phases(self) -> list[Phase]:
        return [Phase(**fields) for fields in self.record["phases"]]

    @cached_property
    def config(self) -> ModelConfig:
        return make_config(**self.record["model"])


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How a training is executed; apart from rounding, none of it decides the weights."""

    device: str = "auto"
    compiled: bool = False
    resume: bool = False
    shard: bool = False  # spread the model over the processes
    checkpoint_every: float = 60.0  # seconds

    def __post_init__(self) -> None:
        if not 0 <= self.checkpoint_every < 1e9:
            raise UserError(
                f"--checkpoint-every must be a number of seconds, not {self.checkpoint_every}."
            )
        if self.shard and self.compiled:
            raise UserError("--shard and --compile do not go together; leave one of them out.")


@dataclass(frozen=True, kw_only=True)
class Settings(Runtime):
    """What users may choose about a training; None stands for what the recipe says."""

    recipe: Recipe
    variant: str | None = None
    size: str | None = None
    tokens: str | None = None
    block: int | None = None
    latents: int | None = None
    reads: str | None = None
    budget: Budget = field(default_factory=Budget)
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.seed) is not int or not 0 <= self.seed <= LARGEST_SEED:
            raise UserError(f"--seed must be between 0 and {LARGEST_SEED}, not {self.seed}.")
        find_variant(self.variant or self.recipe.variant)
        self.config(LARGEST_SEED)  # a shape that cannot be is refused before anything is written

    def config(self, vocabulary: int) -> ModelConfig:
        """The shape of a model that starts from nothing."""
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
            reads=self.reads or "strided",
            dropout=self.recipe.dropout,
        )

    def job(
        self,
        out: str | Path,
        *,
        kind: str,
        phases: Sequence[Phase],
        corpus: Corpus | None = None,
        questions: QuestionSet | None = None,
        parent: Run | None = None,
        vocabulary_from: Sequence[str] = (),
        letters_from: Sequence[str] = (),
        probes: Sequence[Question] = (),
        details: Mapping[str, Any] | None = None,
    ) -> TrainingJob:
        """The job of training one run in `out`, from a parent or from nothing.

        vocabulary_from: the texts of the vocabulary, if not those of the corpus. letters_from:
        texts, such as dev questions, that a vocabulary of characters must be able to write.
        """
        out = Path(out)
        texts = corpus.texts if corpus else ()
        learned = questions.questions if questions else ()
        data = {}
        if parent is not None:
            tokens, config = parent.tokens, parent.model.config
            spelling: str = tokens.kind
            data["parent"] = describe_file(parent.folder, parent.info["sha256"], out)
        else:
            letters = [*letters_from, *(text for q in learned for text in (q.text, q.answer or ""))]
            source = vocabulary_from or (corpus.vocabulary if corpus else [])
            asked = questions.templates if questions else ()
            # a wording that the text does not have would be spelt in bytes, in every question
            wordings = [each.replace(SLOT, "") for each in asked if SLOT in each][:MOST_WORDINGS]
            tokens, spelling = self._tokens(out, source, wordings, letters)
            config = self.config(tokens.size)
        if corpus is not None:
            data["corpus"] = describe_file(corpus.path, corpus.sha256, out, documents=len(texts))
        if questions is not None:
            data["questions"] = describe_file(
                questions.path, questions.sha256, out, questions=len(learned)
            )
        record = {
            "kind": kind,
            "model": config.model_dump(),
            "phases": [phase.model_dump(mode="json") for phase in phases],
            "seed": self.seed,
            "zero_init": self.recipe.zero_init,
            "tokens": spelling,
            "vocabulary": digest_of(vocabulary_from),
            "corpus": corpus.sha256 if corpus else None,
            "documents": digest_of(texts),
            "questions": digest_of(question_rows(learned)),
            "parent": parent.info["sha256"] if parent else None,
            "probes": digest_of(question_rows(probes)),
        }
        templates = list(questions.templates if questions else parent.templates if parent else ())
        return TrainingJob(
            out=out,
            tokens=tokens,
            record=record,
            details={"kind": kind, "templates": templates, "data": data, **(details or {})},
            documents=corpus.documents if corpus else (),
            questions=learned,
            parent=parent,
            probes=probes,
        )

    def _tokens(
        self, out: Path, texts: Sequence[str], wordings: Sequence[str], letters: Sequence[str]
    ) -> tuple[Tokenizer, str]:
        """The vocabulary of the texts, or that of a resumed run, and what it is called."""
        kind, stored = self.tokens or self.recipe.tokens, out / "tokenizer.json"
        size = self.recipe.vocabulary or vocabulary_for(texts)
        spelling = kind if kind == "chars" else f"{kind} of {size}"
        if self.resume and stored.exists():
            return Tokenizer.from_json(stored.read_text(encoding="utf-8")), spelling
        if kind == "chars":
            return Tokenizer.of_characters(chain(texts, letters, "?")), spelling
        # every second document stands for a question in each wording
        asked = (repeat(each, 1 + len(texts) // 2) for each in wordings)
        return Tokenizer.of_bpe(chain(texts, *asked), size), spelling


def vocabulary_for(texts: Sequence[str]) -> int:
    """Tokens for a text: one for every 80 bytes, from 1,000 to 8,192 (benchmarks/log.md)."""
    return max(1000, min(8192, sum(len(text.encode()) for text in texts) // 80))


def twin_job(
    run: Run,
    documents: Sequence[Document],
    questions: Sequence[Question],
    out: Path,
    without: Collection[int] = (),
) -> TrainingJob:
    """The run once more, quietly without the documents on some lines.

    Start, batches, steps and rates are the run's; rows made of what is left out count nothing.
    With nothing left out the weights are the run's to the last bit, on as many threads.
    """
    before = run.info["job"]
    left_out = sorted({*before.get("without", ()), *without})
    phases, segments = same_steps(run)
    record = {
        **before,
        "kind": "left out",
        "phases": [phase.model_dump(mode="json") for phase in phases],
        "documents": digest_of(texts_of(documents)),
        "twin_of": run.info["sha256"],
        "without": left_out,
    }
    data = {
        what: {**source, "relative_path": os.path.relpath(source["path"], out)}
        for what, source in run.info["data"].items()
    }
    gone = ("left_out", "not_learned")
    details: dict[str, Any] = {key: run.info[key] for key in gone if key in run.info}
    details |= {"kind": "left out", "templates": list(run.templates), "data": data}
    return TrainingJob(
        out=Path(out),
        tokens=run.tokens,
        record=record,
        details=details,
        documents=documents,
        questions=questions,
        segments=segments,
        left_out=left_out,
    )


def same_steps(run: Run) -> tuple[list[Phase], list[Segment]]:
    """The run's phases and how their minutes became steps; epochs become that many steps."""
    record = run.folder / "pace.jsonl"
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else ()
    segments = [Segment(**json.loads(line)) for line in lines]
    phases = [Phase(**fields) for fields in run.info["job"]["phases"]]
    for index, phase in enumerate(phases):
        if phase.steps is None:
            steps = [segment.step + 1 for segment in segments if segment.phase == index]
            if not steps:
                raise UserError(
                    f"{record} does not say how many steps {run.folder} took; no twin can "
                    "follow it."
                )
            if phase.epochs is not None:
                changed = {"epochs": None, "most_epochs": None, "steps": steps[-1]}
                phases[index] = phase.model_copy(update=changed)
    return phases, segments
