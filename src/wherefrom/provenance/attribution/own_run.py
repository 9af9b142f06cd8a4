"""A run of ours with what it learned."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from math import ceil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from wherefrom.corpus.batches import StreamPosition
from wherefrom.corpus.examples import Example, cloze_example, draw_window
from wherefrom.corpus.tokenizer import MASK
from wherefrom.errors import UserError
from wherefrom.model.interface import LanguageModel
from wherefrom.model.own import OwnModel
from wherefrom.provenance.attribution.gradients import log_likelihoods
from wherefrom.provenance.attribution.retraining import Continuation, LearnedRun, Record, Row
from wherefrom.storage import make_folder, sha256_of, write_whole
from wherefrom.training.checkpoints import load_snapshot, save_weights
from wherefrom.training.loop import Observer, Say, run_training
from wherefrom.training.optim import build_optimizers
from wherefrom.training.recipes import find_rung
from wherefrom.training.run_folder import MODEL_FILES, Run
from wherefrom.training.settings import Runtime, twin_job
from wherefrom.training.sources import ClozeMaker, TrainingData, stream_for

STEPS, SHARE = 150, 0.2  # of the training that goes on: at most, and of the run's steps
NEAR_ROWS = 48


class LearnedOwnRun(LearnedRun):
    """A run of ours, its text, and its questions."""

    @cached_property
    def data(self) -> TrainingData:
        """All of it in tokens, as it was trained on."""
        return self._encode()

    def _encode(self, without: Collection[int] = ()) -> TrainingData:
        block = self.run.model.config.block
        return TrainingData.encode(self.corpus, self.questions, self.run.tokens, block, without)

    @cached_property
    def _clozes(self) -> ClozeMaker:
        return ClozeMaker(self.run.job.phases[-1], self.data)

    @property
    def is_in_nats(self) -> bool:
        return find_rung(self.run.job.phases) == "pointed"

    def retrain(
        self,
        without: Collection[int],
        folder: Path,
        *,
        seed: int = 0,
        settings: Runtime | None = None,
        observe: Observer | None = None,
    ) -> Run:
        job = self.run.job.model_copy(update={"seed": self.run.job.seed + seed})
        run = replace(self.run, record=self.run.record.model_copy(update={"job": job}))
        twin = twin_job(run, self.corpus, self.questions, folder, without)
        settings = settings or Runtime(device="cpu", resume=True)
        return run_training(twin, settings, observe=observe)

    def training_rows(
        self, only: Collection[int] | None = None, examples: int = 1
    ) -> tuple[list[Row], list[list[int]]]:
        rng, rows, documents = np.random.default_rng(0), [], []
        for phase in self.run.job.phases:
            for source in stream_for(phase, self.data, [self.run.job.seed]).sources:
                for record, number in enumerate(source.numbers):
                    about = self.data.documents_of(number)
                    if only is None or not set(about).isdisjoint(only):
                        made = (as_row(source.make(record, rng)) for _ in range(examples))
                        rows += [(ids, whole_losses(weights)) for ids, weights in made]
                        documents += [about] * examples
        return rows, documents

    def answer_rows(self, question: str, subject: str, answer: str, windows: int = 0) -> list[Row]:
        rows = [answer_row(self.run, question, answer)]
        relation = self.relation_id(question, subject)
        wordings = self._clozes.records.wordings.get(relation) if windows else None
        if wordings is None:
            return rows
        encoded_pair = self.run.tokens.encode_all([f"{subject}.", answer])
        name, masked = (np.array(ids, dtype=np.int32) for ids in encoded_pair)
        rng = np.random.default_rng(0)
        for _ in range(windows):
            document, fact = wordings[rng.integers(len(wordings))].tolist()
            encoded = self._clozes.documents[document]
            window = draw_window(encoded, fact, self._clozes.pointed_size, rng)
            rows.append(as_row(cloze_example(name, window, masked, self._clozes.block)))
        return rows

    def open_snapshot(self, say: Say) -> LanguageModel:
        weights = load_snapshot(self.run.folder)
        model = deepcopy(self.run.model).eval()
        if weights:
            model.load_state_dict(weights)
        return OwnModel(model, self.run.tokens)

    def continue_training(self, without: Collection[int]) -> Continuation:
        model = OwnModel(deepcopy(self.run.model.eval()), self.run.tokens)
        phase = self.run.job.phases[-1].model_copy(update={"average": 0.0})
        stream = stream_for(phase, self._encode(without), [self.run.job.seed, 0xF1])
        batches = stream.from_position(StreamPosition())

        def losses() -> Iterator[Tensor]:
            for batch, _ in batches:
                parts = [log_likelihoods(model, p.ids, p.weights).sum() for p in batch.parts]
                yield -torch.stack(parts).sum() / batch.weight

        return Continuation(
            model=model,
            parameters=list(model.decoder.parameters()),
            losses=losses(),
            optimizers=build_optimizers(model.decoder, phase),
            steps=min(STEPS, ceil(SHARE * self.run.record.steps)),
            near_rows=NEAR_ROWS,
        )

    def save_model(self, model: LanguageModel, out: Path) -> Record:
        assert isinstance(model, OwnModel)
        make_folder(out)
        for name in ("config.json", "tokenizer.json"):
            write_whole(out / name, (self.run.folder / name).read_bytes())
        save_weights(out / "model.safetensors", model.decoder.state_dict())
        files = {name: sha256_of(out / name) for name in MODEL_FILES}
        job = self.run.job.model_copy(update={"kind": "forgotten"})
        return {"job": job, "files": files, "sha256": files["model.safetensors"]}


def answer_row(run: Run, question: str, answer: str) -> Row:
    """Token ids of a question with its answer, and loss weights: 1 on the answer, else 0."""
    prompt, completion = run.tokens.encode_all([question, answer])
    ids, longest = [*prompt, MASK, *completion, MASK], run.model.config.longest_input
    if len(ids) - 1 > longest:
        raise UserError(
            f"the question and its answer have {len(ids)} tokens and this model reads {longest}; "
            "ask a shorter one."
        )
    weights = torch.ones(len(ids))
    weights[: len(prompt) + 1] = 0
    return torch.tensor(ids), weights


def whole_losses(weights: Tensor) -> Tensor:
    """The weights without the small ones, as of the name before a masked fact.

    A fact that is learned has next to no gradient, and its name would drown it.
    """
    return weights.where(weights == weights.max(), 0)


def as_row(example: Example) -> Row:
    return torch.from_numpy(example.ids).long(), torch.from_numpy(example.weights)
