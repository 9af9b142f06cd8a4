"""Audits: run folders about a model that others trained, asked and judged as any other run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import TypeAdapter, ValidationError

from wherefrom.corpus.database import RUN_DATABASE
from wherefrom.corpus.split import HeldOutQuestion
from wherefrom.errors import UserError
from wherefrom.model.huggingface import HuggingFaceModel, check_files, load_adapter
from wherefrom.model.interface import ASKED, LanguageModel
from wherefrom.model.own import OwnModel
from wherefrom.model.server import ServerModel, is_server
from wherefrom.provenance.answers import read_audited
from wherefrom.provenance.confidence import fit
from wherefrom.provenance.confidence.fit import CALIBRATED, Confidence
from wherefrom.provenance.signals import learned as learned_signals
from wherefrom.provenance.signals.learned import LearnedSignals
from wherefrom.provenance.signals.prompted import AskState, is_match, read_blocks
from wherefrom.provenance.signals.reader import Rivals, SignalReader, SignalTable
from wherefrom.storage import read_json
from wherefrom.training.record import AuditJobRecord, BaseJobRecord, check_file, read_record
from wherefrom.training.run_folder import AUDIT, MODEL_FOLDER, Run, is_run, load_run

Record = dict[str, Any]


def open_model(source: str | Path) -> LanguageModel:
    """A run, a folder of Hugging Face, a GGUF file, or a server on this machine."""
    if is_server(source):
        return ServerModel(str(source))
    if is_run(source):
        run = load_run(source)
        sha256 = run.record.sha256
        return OwnModel(run.model.eval(), run.tokens, name=str(run.folder), sha256=sha256)
    check_files(Path(source))
    return HuggingFaceModel(Path(source))


_open = lru_cache(maxsize=1)(open_model)  # threads of the page share one model


@dataclass(frozen=True, repr=False)
class AuditRun(Run):
    """An audit: the model of others, and what was recorded of its answers."""

    @property
    def foreign_job(self) -> AuditJobRecord | BaseJobRecord:
        """What was asked, and how."""
        job = self.record.job
        assert isinstance(job, AuditJobRecord | BaseJobRecord)
        return job

    @cached_property
    def audited(self) -> LanguageModel:
        """The model itself, loaded for what was not asked yet; it must be the one audited."""
        model = _open(self.record.model)
        if model.sha256 != self.record.sha256:
            raise UserError(
                f"{self.record.model} has other weights than those that {self.folder} audited; "
                "audit it again, with another --out."
            )
        return model

    def measure(self, question: str) -> tuple[int, int]:
        return 0, 1  # a prompt that is too long is refused where it is rendered

    def summary(self) -> list[tuple[str, str]]:
        rows = [(str(self.folder), f"audit, {self.record.status}")]
        rows += [("model", self.record.model), ("questions", "; ".join(self.templates))]
        results = self.record.results
        return rows + [(row["name"], f"{row['correct']} of {row['total']}") for row in results]


@dataclass(frozen=True, repr=False)
class BaseRun(AuditRun):
    """The study of a model that others trained: what it learned is in RUN/model."""

    @property
    def base_job(self) -> BaseJobRecord:
        """What it was trained on, and how."""
        job = self.record.job
        assert isinstance(job, BaseJobRecord)
        return job

    @property
    def has_adapters(self) -> bool:
        return self.base_job.rank is not None

    @cached_property
    def audited(self) -> HuggingFaceModel:
        """The trained model."""
        return _open_trained(self.folder.resolve(), self.record.sha256)

    def answer_questions(self, questions: Sequence[str]) -> list[str]:
        """The greedy answer to each question."""
        return [reply.text for reply in self.audited.answer(self._prompts(questions))]

    def score_answers(self, questions: Sequence[str], answers: Sequence[str]) -> list[float]:
        """log p of each answer to its question, with the token that ends it."""
        model, prompt = self.audited, self.base_job.prompt
        completions = [model.continuation(prompt, answer) for answer in answers]
        scores = model.score(self._prompts(questions), completions)
        return [float(each.own.sum()) if each is not None else -np.inf for each in scores]

    def _prompts(self, questions: Sequence[str]) -> list[list[int]]:
        model, prompt = self.audited, self.base_job.prompt
        prompts = [model.prompt(prompt.replace(ASKED, question)) for question in questions]
        for question, ids in zip(questions, prompts, strict=True):
            if len(ids) >= model.longest:
                raise UserError(
                    f'the question "{question[:40]}..." has {len(ids)} tokens and this model '
                    f"reads {model.longest}; ask a shorter one."
                )
        return prompts

    def summary(self) -> list[tuple[str, str]]:
        return [
            (str(self.folder), f"study of a model that others trained, {self.record.status}"),
            *super().summary()[1:],
        ]


def open_trained(folder: Path, *, to_train: bool = False) -> HuggingFaceModel:
    """The model that a study of somebody else's model left, its adapters merged unless to_train.

    A UserError if the base model has gone or changed, or a file of the run is not the run's.
    """
    record = read_record(folder)
    job, saved = record.job, folder / MODEL_FOLDER
    assert isinstance(job, BaseJobRecord)
    for name in record.files:
        if name.startswith(f"{MODEL_FOLDER}/"):
            check_file(folder, name, record)
    if job.rank is None:
        return HuggingFaceModel(saved, chat=job.wording == "chat", to_train=to_train)
    base = Path(job.base)
    if not base.exists():
        raise UserError(
            f"the model {base} that {folder} trained adapters for is not there any more; put it "
            "back."
        )
    adapter = None if to_train else saved
    model = HuggingFaceModel(base, adapter=adapter, chat=job.wording == "chat", to_train=to_train)
    expected = job.weights if to_train else record.sha256
    if model.sha256 != expected:
        raise UserError(
            f"{base} has other weights than those that {folder} trained adapters for; put the "
            "model back, or study it again with another --out."
        )
    if to_train:
        model.model = load_adapter(model.model, saved, to_train=True)
    return model


@lru_cache(maxsize=1)  # threads of the page share one model
def _open_trained(folder: Path, sha256: str) -> HuggingFaceModel:
    return open_trained(folder)


class AuditReader(SignalReader):
    """Signals of a model that others trained; answers that are kept are not asked for again."""

    def __init__(self, confidence: AuditConfidence) -> None:
        super().__init__(confidence.run, confidence.signal_state)
        self.audit, self.confidence = cast(AuditRun, confidence.run), confidence

    @cached_property
    def kept(self) -> dict[str, Record]:
        return {each["question"]: each for each in read_audited(self.audit.folder)}

    def read(
        self,
        questions: Sequence[str],
        subjects: Sequence[str],
        *,
        only: Collection[str] | None = None,
        report: Callable[[int], None] | None = None,
    ) -> SignalTable:
        """As SignalReader's."""
        records: list[Any] = [self.kept.get(question) for question in questions]
        missing = [i for i, record in enumerate(records) if record is None]
        report = report or (lambda _: None)
        report(len(records) - len(missing))
        if missing:
            model, state = self.audit.audited, self.confidence.ask_state
            rows = [(questions[i], subjects[i]) for i in missing]
            for block, read in read_blocks(model, state, rows):
                for i, record in zip(block, read, strict=True):
                    records[missing[i]] = record
                report(len(block))
        columns = learned_signals.read_signals(records, self.confidence.learned)
        columns = {k: column for k, column in columns.items() if only is None or k in only}
        return SignalTable(tuple(record["answer"] for record in records), columns)


@dataclass(frozen=True, eq=False)
class AuditConfidence(Confidence):
    """The confidence in a model that others trained, as calibration.json of an audit keeps it."""

    ask_state: AskState = field(kw_only=True)
    learned: LearnedSignals = field(kw_only=True)

    @cached_property
    def reader(self) -> SignalReader:
        return AuditReader(self)

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(learned_signals.SIGNS)

    @property
    def rivals(self) -> Rivals:
        return learned_signals.RIVALS

    def grade(self, answer: str, subject: HeldOutQuestion) -> bool:
        return is_match(answer, subject.answer)


def open_run(folder: Run | str | Path) -> Run:
    """A run, loaded, or an audit, whose model is loaded once it is needed."""
    if isinstance(folder, Run):
        return folder
    if not isinstance(folder, str | Path):
        raise UserError(f"a run is named by the path of its folder, not by {folder!r:.60}.")
    record = read_record(folder) if is_run(folder) else None
    nothing = cast(Any, None)  # of ours, and nothing is loaded yet
    if record is not None and isinstance(record.job, BaseJobRecord):
        if record.status != "finished":
            raise UserError(
                f"the run {folder} has not finished training; go on with it by repeating its "
                "command with --resume."
            )
        return BaseRun(Path(folder), nothing, nothing, record)
    if record is None or record.kind != AUDIT:
        return load_run(folder)
    return AuditRun(Path(folder), nothing, nothing, record)


def load_confidence(run: Run) -> Confidence:
    """The confidence of a run or an audit, or an error that says why there is none."""
    return load_audit_confidence(run) if isinstance(run, AuditRun) else fit.load_confidence(run)


def load_audit_confidence(run: AuditRun) -> AuditConfidence:
    """The confidence of an audit, or an error that says why there is none."""
    path, again = run.folder / CALIBRATED, "repeat the audit's command with --resume"
    record = read_record(run.folder)
    if not path.is_file() and CALIBRATED not in record.files:
        raise UserError(f"{run.folder} holds no {CALIBRATED}: it is not finished; {again}.")
    fields = read_json(check_file(run.folder, CALIBRATED, record), dict)
    if record.status == "finished":
        check_file(run.folder, RUN_DATABASE, record)
    try:
        return TypeAdapter(AuditConfidence).validate_python({**fields, "run": run})
    except (ValidationError, TypeError):
        raise UserError(f"{path} is broken or of another version; {again}.") from None
