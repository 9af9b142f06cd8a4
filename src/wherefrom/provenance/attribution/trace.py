"""Which lines pushed an answer: by gradients at once, or proved by quiet retraining.

Every row that training makes of a document, and the answer's row, has a gradient for each matrix:
the sum over positions of (gradient at the output) (input)^T. The index keeps its signs, one bit
each. Two rows agree by the share of equal signs less that of unequal ones, between -1 and 1. The
score of a document is the sum, over its rows, of the third powers of how far they agree with the
answer's row: at the final weights, or in the mean of weights along the recorded training.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.questions import Question, find_subject_in
from wherefrom.corpus.subjects import JUDGED, Subject, find_named, read_subjects
from wherefrom.errors import UserError, did_you_mean
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.attribution.retraining import (
    NOISE_SHARE,
    Count,
    LearnedRun,
    Record,
    Row,
    answer_row,
    compare_others,
    invent_names,
    likelihoods,
    no_count,
    open_learned,
    outcome,
    pad_rows,
)
from wherefrom.provenance.names import draw_names
from wherefrom.provenance.verdicts import add_trace
from wherefrom.recall.decode import answer_all, guess_by_name
from wherefrom.storage import write_json, write_whole
from wherefrom.training.loop import Observer, StepMetrics
from wherefrom.training.recipes import Phase
from wherefrom.training.run_folder import Run, save_weights, whole_weights
from wherefrom.training.sources import TrainingData, stream_for

INDEX, REPLAY_INDEX = "gradients.safetensors", "replay.safetensors"
SNAPSHOTS = 5  # of the weights along the recorded training, for its index
BYTES = 40_000  # of the index for each document
TOKENS = 2048  # of the rows whose gradients are taken at once
OTHER_NAMES = 16  # for which an answer is compared
POWER = 3  # odd; few lines push much, and sums of many small scores are noise


Weights = dict[str, Tensor]  # by name; {} are the model's own


def matrices(model: Decoder) -> dict[str, nn.Linear]:
    """Those that a module applies, but embedding and output."""
    found = {n: each for n, each in model.named_modules() if isinstance(each, nn.Linear)}
    return {name: each for name, each in found.items() if each is not model.head}


def row_gradients(
    model: Decoder, ids: Tensor, weights: Tensor, share: float = 1.0, at: Weights | None = None
) -> dict[str, Tensor]:
    """By matrix (B, units, inputs): each row's gradient of its loss, of a share of the units.

    at: other weights than the model's own.
    """
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, given: tuple[Tensor], out: Tensor) -> None:
        inputs[name], outputs[name] = given[0].detach(), out

    handles = [
        module.register_forward_hook(partial(keep, name))
        for name, module in matrices(model).items()
    ]
    counts = weights[:, 1:].flatten()
    select = counts.nonzero().flatten()
    try:
        with torch.enable_grad():
            state = {name: value.requires_grad_() for name, value in (at or {}).items()}
            logits = functional_call(model, state, (ids[:, :-1],), {"select": select})
            losses = F.cross_entropy(logits, ids[:, 1:].flatten()[select], reduction="none")
            slopes = torch.autograd.grad((losses * counts[select]).sum(), list(outputs.values()))
    finally:
        for handle in handles:
            handle.remove()
    found = {}
    for name, slope in zip(outputs, slopes, strict=True):
        units = max(1, int(share * slope.shape[-1]))
        onto, given = slope[..., torch.arange(units) * slope.shape[-1] // units], inputs[name]
        if slope.dim() == 2:  # of the selected positions alone
            onto, given = (
                torch.zeros(counts.numel(), side.shape[1])
                .index_copy(0, select, side)
                .view(len(ids), -1, side.shape[1])
                for side in (onto, given)
            )
        found[name] = onto.mT @ given.expand(len(ids), -1, -1)
    return found


def pack(bits: Tensor) -> NDArray[np.uint64]:
    """(B, features) of bits in words of 64; what fills the last word is 0."""
    packed = np.packbits(bits.numpy(), axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)


@dataclass(frozen=True, eq=False)
class GradientIndex:
    """Which gradients of all rows of a run's documents are above 0: (rows, words of 64 bits).

    share: of the units of each matrix. owners: pairs of a row and a document that it was made of:
    (2, pairs). signs: at each of the `weights`, which are the run's own in an index by gradient.
    """

    share: float
    signs: list[NDArray[np.uint64]]
    weights: list[Weights]
    owners: NDArray[np.int64]
    documents: int

    def agreements(self, gradient: Tensor, at: int = 0) -> NDArray[np.float64]:
        """How far every row agrees with one gradient; where it is 0 no sign is compared."""
        positive, counted = pack(gradient[None] > 0), pack(gradient[None] != 0)
        unequal = [
            np.bitwise_count((rows ^ positive) & counted).sum(1, dtype=np.int64)
            for rows in np.array_split(self.signs[at], len(self.signs[at]) // 256 + 1)
        ]
        return 1 - 2 * np.concatenate(unequal) / max(1, int((gradient != 0).sum()))

    def sum_rows(self, agree: NDArray[np.float64]) -> NDArray[np.float64]:
        """The score of every document, by how far every row agrees."""
        row, document = self.owners
        totals = np.zeros(self.documents)
        np.add.at(totals, document, agree[row] ** POWER)
        return totals

    def scores(self, model: Decoder, ids: Tensor, weights: Tensor) -> NDArray[np.float64]:
        """The score of every document for one row."""
        agree = []
        for at, state in enumerate(self.weights):
            found = row_gradients(model.eval(), ids[None], weights[None], self.share, state)
            whole = torch.cat([each.flatten() for each in found.values()])
            agree.append(self.agreements(whole, at))
        return self.sum_rows(np.mean(agree, axis=0))

    def nearest(self, places: Sequence[int], count: int) -> set[int]:
        """Other documents whose gradients are nearest to those of the documents at some places."""
        row, document = self.owners
        own = np.unpackbits(self.signs[0][row[np.isin(document, places)]].view(np.uint8), axis=1)
        mean = torch.from_numpy(2 * own.sum(0, dtype=np.int64) - len(own))
        order = np.argsort(-self.sum_rows(self.agreements(mean))).tolist()
        return set([at for at in order if at not in set(places)][:count])


def training_rows(run: Run, data: TrainingData) -> tuple[list[Row], list[tuple[int, int]]]:
    """Every record of every objective once, shortest first; pairs of a row and a document of it."""
    rng, seed = np.random.default_rng(0), run.info["job"]["seed"]
    streams = [stream_for(Phase(**fields), data, [seed]) for fields in run.info["job"]["phases"]]
    examples = [
        (source.make(record, rng), data.members[source.numbers[record]])
        for stream in streams
        for source in stream.sources
        for record in range(len(source.numbers))
    ]
    examples.sort(key=lambda pair: len(pair[0]))
    rows = [(torch.from_numpy(e.ids).long(), torch.from_numpy(e.weights)) for e, _ in examples]
    return rows, [(row, at) for row, (_, members) in enumerate(examples) for at in members]


def build_index(
    run: Run, data: TrainingData, count: Count = no_count, weights: Sequence[Weights] = ({},)
) -> GradientIndex:
    """The signs of the gradients of all training rows, of as many units as there are bytes for."""
    model = run.model.eval()
    rows, owners = training_rows(run, data)
    bits = len(rows) * sum(each.weight.numel() for each in matrices(model).values())
    share = min(1.0, 8 * BYTES * len(data.documents) / (bits * len(weights)))
    signs, advance = [], count("making the index", len(rows) * len(weights))
    for state in weights:
        parts: list[NDArray[np.uint64]] = []
        at = 0
        while at < len(rows):
            chunk = rows[at : at + max(1, TOKENS // len(rows[min(at + 64, len(rows) - 1)][0]))]
            found = row_gradients(model, *pad_rows(chunk), share, state)
            parts.append(pack(torch.cat([each.flatten(1) > 0 for each in found.values()], dim=1)))
            at += len(chunk)
            advance(len(chunk))
        signs.append(np.concatenate(parts))
    return GradientIndex(share, signs, list(weights), np.array(owners).T, len(data.documents))


def take_snapshots(
    learned: LearnedRun, folder: Path, observe: Observer | None = None
) -> list[Weights]:
    """The weights at evenly spaced steps of the run, which is trained once more in `folder`.

    Each is the mean that the recipe keeps, as it would be had training ended there. The end is none
    of them: what is learned by heart has small gradients. Of a very short training it is the only.
    """
    if learned.run.info["job"].get("parent"):
        raise UserError("replay needs a run that was trained from nothing.")
    total = learned.run.info["steps"]

    def keep(line: StepMetrics, model: Decoder) -> None:
        number = line.step * (SNAPSHOTS + 1) // total
        path = folder / f"snapshot-{number}.safetensors"
        if 1 <= number <= SNAPSHOTS and not path.exists():
            save_weights(path, whole_weights(model))
        if observe is not None:
            observe(line, model)

    learned.retrain((), folder, observe=keep)
    return [load_file(path) for path in sorted(folder.glob("snapshot-*.safetensors"))] or [{}]


def save_index(index: GradientIndex, path: Path, sha256: str) -> None:
    """Write an index; `sha256` says which weights it is of."""
    tensors = {"owners": torch.from_numpy(index.owners).contiguous()}
    for at, (signs, weights) in enumerate(zip(index.signs, index.weights, strict=True)):
        tensors[f"signs/{at}"] = torch.from_numpy(signs.view(np.int64))
        tensors |= {f"weights/{at}/{name}": value.detach() for name, value in weights.items()}
    about = {"run": sha256, "documents": str(index.documents), "share": repr(index.share)}
    write_whole(path, save(tensors, metadata=about | {"snapshots": str(len(index.signs))}))


def load_index(path: Path, sha256: str) -> GradientIndex | None:
    """The index of these weights, or None if there is none that can be read."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            if about.get("run") != sha256:
                return None
            many = range(int(about["snapshots"]))
            signs = [file.get_tensor(f"signs/{at}").numpy().view(np.uint64) for at in many]
            weights: list[Weights] = [{} for _ in many]
            for name in file.keys():  # noqa: SIM118
                if name.startswith("weights/"):
                    _, at, own = name.split("/", 2)
                    weights[int(at)][own] = file.get_tensor(name)
            owners = file.get_tensor("owners").numpy()
            return GradientIndex(
                float(about["share"]), signs, weights, owners, int(about["documents"])
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError):
        return None


UNITS = {"gradient": "score", "replay": "score", "retrain": "nats"}  # of each method
LEANING = "leaning.json"
SUBJECT, GIVEN, FAMILY, ANSWER, ORIGIN, NOTHING = KINDS = (
    "lines about them",
    "people with the same given name",
    "people with the same family name",
    "lines with the same answer",
    "names of the same origin",
    "lines that share nothing",
)


class Tracer:
    """A run with the documents and questions that it learned, and the index of their gradients."""

    def __init__(
        self, run: Run, *, say: Callable[[str], None] = lambda _: None, count: Count = no_count
    ) -> None:
        self.run, self._say, self._count = run, say, count
        self.learned = open_learned(run)
        self.documents = self.learned.documents

    def index(self, *, replay: bool = False, observe: Observer | None = None) -> GradientIndex:
        """The index of the run, made and kept in its folder if it is not there.

        replay: along the training, which is recorded once more for it.
        """
        folder, digest = self.run.folder, self.run.info["sha256"]
        path = folder / (REPLAY_INDEX if replay else INDEX)
        found = load_index(path, digest)
        if found is None or found.documents != len(self.documents):
            weights: list[Weights] = [{}]
            if replay:
                self._say("training once more to record the weights along the way, once")
                weights = take_snapshots(self.learned, folder / "twins" / "replay", observe)
            self._say(f"making the index of {len(self.documents):,} documents, once")
            found = build_index(self.run, self.learned.data, self._count, weights)
            save_index(found, path, digest)
            if replay:
                shutil.rmtree(folder / "twins" / "replay")
        return found

    def trace(
        self,
        question: str,
        *,
        answer: str | None = None,
        top: int = 5,
        method: str = "gradient",
        observe: Observer | None = None,
    ) -> Record:
        """The record that docs/trace.md describes, of the run's own answer or of another one."""
        if method not in UNITS:
            raise UserError(f'there is no method "{method}".{did_you_mean(method, UNITS)}')
        if not question.strip():
            raise UserError("trace takes a question, and an empty one came.")
        if not 1 <= top <= len(self.documents):
            raise UserError(f"--top must be between 1 and {len(self.documents)}, not {top}.")
        verdict, subject = None, find_subject_in(self.run.templates, question) or ""
        try:
            with open_asker(self.run) as asker:
                question, subject = asker.understand(question)  # as the run is asked it
                verdict = asker.ask(question)
        except UserError as problem:
            self._say(f"The answer is not looked up: {problem}")
        said = answer_all(self.run.model, self.run.tokens, [question])[0].text
        verdict = verdict if answer in (None, said) else None
        answer = said if answer is None else answer
        index = self.index(replay=method == "replay", observe=observe)
        scores = index.scores(self.run.model, *answer_row(self.run, question, answer))
        stating = find_stating(self.documents, [answer]).get(fold_words(answer), set())
        kinds = kinds_of(self.documents, subject, stating)
        floor, shares = noise_floor(kinds, scores), leaning(kinds, scores)
        order = np.argsort(-scores, kind="stable").tolist()
        ends = [*order[:top], *(at for at in order[::-1][:top] if scores[at] < 0)]
        pushes = dict(enumerate(scores.tolist()))
        if method == "retrain":
            ends = ends[:top]
            (whole,) = likelihoods(self.run, [question], [answer])
            floors = [0.0]
            for at in ends:
                document = self.documents[at]
                self._say(f"training again without line {document.line}")
                folder = self.run.folder / "twins" / f"line-{document.line}"
                twin = self.learned.retrain([document.line], folder, observe=observe)
                pushes[at] = whole - likelihoods(twin, [question], [answer])[0]
                but = [subject, document.subject]
                others = compare_others(self.learned, twin, but)
                floors.append(others["noise_floor"] or 0.0)
            floor = max(floors)
        lines = verdict.evidence if verdict else ()
        looked_up = {line.line for line in lines if line.states_answer}
        rows = [
            {
                "line": self.documents[at].line,
                "text": self.documents[at].text,
                "push": float(f"{pushes[at]:.4g}"),
                "states": at in stating or self.documents[at].line in looked_up,
            }
            for at in sorted(dict.fromkeys(ends), key=lambda at: -abs(pushes[at]))
        ]
        parts = sorted(shares.items(), key=lambda item: -item[1])
        leans = ", ".join(f"{kind} ({share:.0%} of the push)" for kind, share in parts)
        record = {
            "question": question,
            "answer": answer,
            "verdict": None,
            "method": method,
            "unit": UNITS[method],
            "noise_floor": float(f"{floor:.4g}"),
            "likelier_than_for_other_names": self._gap(question, subject, answer),
            "pushed_by": [row for row in rows if row["push"] > 0],
            "pushed_away_by": [row for row in rows if row["push"] < 0],
            "leans_on": shares,
            "why": f"The answer leans on {leans}." if leans else "No line stands out.",
        }
        if verdict is not None:
            record["verdict"] = add_trace(verdict, record).verdict
        return record

    def _gap(self, question: str, subject: str, answer: str) -> float | None:
        """log p(answer) less the log of its mean p for names that no line is about, in nats."""
        names = invent_names(self.documents, OTHER_NAMES) if subject in question else []
        if not subject or not names:
            return None
        asked = [question, *(question.replace(subject, name) for name in names)]
        own, *others = likelihoods(self.run, asked, [answer] * len(asked))
        return round(own - float(np.logaddexp.reduce(others) - np.log(len(others))), 4)

    def trace_unseen(self) -> Iterator[tuple[Subject, str, NDArray[np.float64], NDArray[np.str_]]]:
        """Judged people in no document: answer, scores by gradient, and kinds of all documents."""
        read = {fold_words(document.subject) for document in self.documents}
        asked = [s for s in read_subjects(self.run.folder) if s.role == JUDGED]
        asked = [s for s in asked if fold_words(s.subject) not in read]
        if not asked:
            raise UserError(f"{self.run.folder} judges nobody whom no document is about.")
        index = self.index()
        said = outcome(self.run, [each.question for each in asked])["answers"]
        found = find_stating(self.documents, said)
        names = [*(d.subject for d in self.documents), *(s.subject for s in asked)]
        known = [Question(0, "", name, origin.name) for name, origin in draw_names(100, Random(0))]
        origins = np.array(guess_by_name(known, [Question(0, "", name, None) for name in names]))
        for at, (subject, answer) in enumerate(zip(asked, said, strict=True)):
            scores = index.scores(self.run.model, *answer_row(self.run, subject.question, answer))
            same = np.flatnonzero(origins[: len(self.documents)] == origins[-len(asked) + at])
            stating = set(found.get(fold_words(answer), ()))
            kinds = kinds_of(self.documents, subject.subject, stating, set(same.tolist()))
            yield subject, answer, scores, kinds

    def lean_unseen(self) -> Record:
        """What answers about judged people in no document lean on, by gradient: RUN/leaning.json.

        push: the mean share of a kind, with its interval; lines: how many of all are of the kind.
        """
        people: list[Record] = []
        counts = []
        for subject, answer, scores, kinds in self.trace_unseen():
            shares = leaning(kinds, scores)
            people.append({"question": subject.question, "answer": answer, "leans_on": shares})
            counts.append([float((kinds == kind).mean()) for kind in KINDS])
        table = np.array([[each["leans_on"].get(kind, 0.0) for kind in KINDS] for each in people])
        drawn = np.random.default_rng(0).integers(len(table), size=(1000, len(table)))
        low, high = np.quantile(table[drawn].mean(axis=1), [0.025, 0.975], axis=0)
        columns = zip(KINDS, table.mean(0), low, high, np.mean(counts, axis=0), strict=True)
        keys = ("push", "low", "high", "lines")
        record = {
            "run": self.run.info["sha256"],
            "kinds": {
                kind: dict(zip(keys, (round(float(v), 4) for v in values), strict=True))
                for kind, *values in columns
                if kind != SUBJECT
            },
            "people": people,
        }
        write_json(self.run.folder / LEANING, record)
        return record


def find_stating(documents: Sequence[Document], said: Sequence[str]) -> dict[FoldedName, set[int]]:
    """By an answer's words the documents that have them; Korean glues endings to words."""
    found = find_named(documents, {fold_words(answer) for answer in said} - {()})
    texts = [" ".join(("", *fold_words(document.text))) for document in documents]
    for name in (each for each in found if "가" <= each[-1][-1] <= "힣"):
        found[name] |= {at for at, text in enumerate(texts) if f" {' '.join(name)}" in text}
    return found


def kinds_of(
    documents: Sequence[Document],
    subject: str,
    stating: Collection[int],
    alike: Collection[int] = (),
) -> NDArray[np.str_]:
    """The first kind that fits each document; `stating` it, or about people `alike` in origin."""
    name, found = fold_words(subject), []
    for at, about in enumerate(fold_words(document.subject) for document in documents):
        fits = {
            SUBJECT: bool(name) and about == name,
            GIVEN: bool(name) and name[0] in about,
            FAMILY: bool(name) and name[-1] in about,
            ANSWER: at in stating,
            ORIGIN: at in alike,
            NOTHING: True,
        }
        found.append(next(kind for kind, fit in fits.items() if fit))
    return np.array(found)


def noise_floor(kinds: NDArray[np.str_], scores: NDArray[np.float64]) -> float:
    """What 19 in 20 of the lines that share nothing, and cannot matter, stay below."""
    nothing = np.abs(scores[kinds == NOTHING])
    return float(np.quantile(nothing, NOISE_SHARE)) if len(nothing) else 0.0


def leaning(kinds: NDArray[np.str_], scores: NDArray[np.float64]) -> dict[str, float]:
    """The share of each kind of line in the scores above the noise floor; {} if none is above."""
    above = np.where(scores > noise_floor(kinds, scores), scores, 0)
    totals = {kind: float(above[kinds == kind].sum()) for kind in KINDS}
    whole = sum(totals.values())
    return {kind: round(total / whole, 4) for kind, total in totals.items() if total}
