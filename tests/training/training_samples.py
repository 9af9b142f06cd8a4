"""A text small enough to train on in a moment, and ways to train on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.model.config import ModelConfig
from wherefrom.model.decoder import Decoder
from wherefrom.training.loop import Observer, train
from wherefrom.training.recipes import Mixture, Phase
from wherefrom.training.record import JobRecord
from wherefrom.training.settings import Runtime, TrainingJob
from wherefrom.training.sources import TrainingData

FIRST = ("Ada", "Bo", "Cleo", "Dag", "Eva")
LAST = ("Moe", "Nys", "Orr", "Poe")
TOWNS = ("Cork", "Bonn", "Lodz", "Graz", "Nice", "Brno", "Gent", "Pisa", "Leon", "Umea")
PLACES = ("Rome", "Oslo", "Lima", "Bath", "Kyiv")
BLOCK = 64


def documents() -> list[Document]:
    names = [f"{first} {last}" for first in FIRST for last in LAST]
    return [
        Document(line, name, f"{name}. {name} was born in {_place(line)} and lives in {town}.")
        for line, (name, town) in enumerate(zip(names, 2 * TOWNS, strict=True), start=1)
    ]


def questions() -> list[Question]:
    return [
        Question(d.line, f"Where was {d.subject} born?", d.subject, _place(d.line))
        for d in documents()
    ]


def _place(line: int) -> str:
    return PLACES[line * line * 7 % 11 % len(PLACES)]


def tokens() -> Tokenizer:
    known = [document.text for document in documents()]
    return Tokenizer.of_characters([*known, *(question.text for question in questions())])


def training_data() -> TrainingData:
    return encode(documents(), questions(), tokens())


def encode(
    documents: Sequence[Document],
    questions: Sequence[Question],
    tokens: Tokenizer,
    left_out: Sequence[int] = (),
) -> TrainingData:
    """Documents with the facts that the questions teach to read, and the questions, in tokens."""
    database = read_facts(Database.of(documents), questions)
    return TrainingData.encode(database, questions, tokens, BLOCK, left_out)


def make_phase(**changes: Any) -> Phase:
    fields: dict[str, Any] = {
        "name": "mixed",
        "mixture": Mixture(question=0.5, span=0.2, pointed=0.2, text=0.1),
        "steps": 20,
        "batch_examples": 7,
        "lr": 1e-2,
    }
    fields.update(changes)
    return Phase(**fields)


def model_shape(variant: str = "llama", dropout: float = 0.0) -> ModelConfig:
    sizes = {"vocabulary": tokens().size, "block": BLOCK, "layers": 3, "heads": 2, "width": 16}
    return ModelConfig(variant=variant, **sizes, latents=16, dropout=dropout)


def make_model(variant: str = "llama", dropout: float = 0.0) -> Decoder:
    return Decoder(model_shape(variant, dropout)).initialise(torch.Generator().manual_seed(5))


def make_job(
    folder: Path, phases: Sequence[Phase], seed: int = 3, stopping: Sequence[Question] = ()
) -> TrainingJob:
    folder.mkdir(exist_ok=True)
    given = {"kind": "test", "seed": seed, "zero_init": False, "tokens": "chars"}
    record = JobRecord(model=model_shape(), phases=tuple(phases), **given)
    return TrainingJob(folder, tokens(), record, stopping_questions=stopping)


def train_model(
    folder: Path,
    phases: Sequence[Phase],
    *,
    variant: str = "llama",
    dropout: float = 0.0,
    seed: int = 3,
    resume: bool = False,
    observe: Observer | None = None,
    checkpoint_every: float = 1e8,
    data: TrainingData | None = None,
    stopping: Sequence[Question] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Decoder:
    model = make_model(variant, dropout=dropout)
    job = make_job(folder, phases, seed, stopping)
    how = Runtime(resume=resume, checkpoint_every=checkpoint_every)
    train(model, data or training_data(), job, how, observe=observe, say=say)
    return model


def same_weights(a: Decoder, b: Decoder) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]
