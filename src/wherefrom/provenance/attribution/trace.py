"""Which lines pushed an answer: by gradients at once, or proved by quiet retraining.

Every row that training makes of a document, and the answer's row, has a gradient for each matrix:
the sum over positions of (gradient at the output) (input)^T. Both sides are projected to random
directions before they meet (LoGra; Choe et al. 2024). The result is divided by the root of its
second moment over all rows (the projected Fisher matrix) and scaled to length 1. The score of a
document is the sum, over its rows, of the third powers of the cosines with the answer's row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question, find_subject_in
from wherefrom.corpus.subjects import JUDGED, Subject, find_named, read_subjects
from wherefrom.errors import UserError, did_you_mean
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.attribution.replay import Replay
from wherefrom.provenance.attribution.retraining import (
    NOISE_SHARE,
    Count,
    Record,
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
from wherefrom.training.loop import Observer
from wherefrom.training.recipes import Phase
from wherefrom.training.run_folder import Run
from wherefrom.training.sources import TrainingData, stream_for

INDEX = "gradients.safetensors"
SIDE = 16  # random directions of each side of a matrix
TOKENS = 4096  # of the rows whose gradients are taken at once
DAMPING = 0.1  # as a share of the mean eigenvalue of a matrix's second moment
OTHER_NAMES = 16  # for which an answer is compared
POWER = 3  # odd; few lines push much, and sums of many small scores are noise


def project_gradients(model: Decoder, ids: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """By matrix (B, SIDE * SIDE): each row's gradient of its loss, both sides projected.

    Left out: embedding and output, matrices that no module applies, norms and biases.
    """
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, given: tuple[Tensor], out: Tensor) -> None:
        inputs[name], outputs[name] = given[0].detach(), out

    handles = [
        module.register_forward_hook(partial(keep, name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not model.head
    ]
    counts = weights[:, 1:].flatten()
    select = counts.nonzero().flatten()
    try:
        with torch.enable_grad():
            logits = model(ids[:, :-1], select=select)
            losses = F.cross_entropy(logits, ids[:, 1:].flatten()[select], reduction="none")
            slopes = torch.autograd.grad((losses * counts[select]).sum(), list(outputs.values()))
    finally:
        for handle in handles:
            handle.remove()
    found = {}
    for name, slope in zip(outputs, slopes, strict=True):
        into, out = inputs[name], slope
        given = into @ random_directions(f"{name} in", into.shape[-1])
        onto = out @ random_directions(f"{name} out", out.shape[-1])
        if onto.dim() == 3:
            found[name] = (onto.mT @ given.expand(len(ids), -1, -1)).flatten(1)
        else:  # of the selected positions alone
            each = (onto[:, :, None] * given[:, None, :]).flatten(1)
            row = select // (ids.shape[1] - 1)
            found[name] = torch.zeros(len(ids), each.shape[1]).index_add(0, row, each)
    return found


@lru_cache(maxsize=512)
def random_directions(name: str, size: int) -> Tensor:
    """(size, SIDE): orthogonal columns, the same for the same name; all of a small space."""
    random = torch.Generator().manual_seed(crc32(name.encode()))
    drawn = torch.randn(size, min(SIDE, size), generator=random)
    return torch.linalg.qr(drawn)[0]


@dataclass(frozen=True, eq=False)
class GradientIndex:
    """The gradients of all rows of a run's documents: (rows, features), each of length 1.

    roots: by matrix, what its projected gradients are multiplied by. owners: pairs of a row and a
    document that it was made of: (2, pairs).
    """

    roots: dict[str, Tensor]
    rows: Tensor
    owners: Tensor
    documents: int

    def features(self, found: dict[str, Tensor]) -> Tensor:
        """(B, features): projected gradients divided by the root of their second moment."""
        whole = torch.cat([found[name] @ self.roots[name] for name in sorted(self.roots)], dim=1)
        return F.normalize(whole, dim=1, eps=1e-30)

    def score_features(self, features: Tensor) -> NDArray[np.float64]:
        """The score of every document for features of one row."""
        cosines = torch.cat([part.float() @ features for part in self.rows.split(4096)])
        scores = cosines.double().numpy() ** POWER
        row, document = self.owners.numpy()
        totals = np.zeros(self.documents)
        np.add.at(totals, document, scores[row])
        return totals

    def scores(self, model: Decoder, ids: Tensor, weights: Tensor) -> NDArray[np.float64]:
        """The score of every document for one row."""
        found = project_gradients(model.eval(), ids[None], weights[None])
        return self.score_features(self.features(found)[0])

    def nearest(self, places: Sequence[int], count: int) -> set[int]:
        """Other documents whose gradients are nearest to those of the documents at some places."""
        row, document = self.owners
        own = row[torch.isin(document, torch.tensor(places))]
        scores = self.score_features(F.normalize(self.rows[own].float().sum(0), dim=0))
        order = [int(at) for at in np.argsort(-scores) if int(at) not in set(places)]
        return set(order[:count])


def build_index(run: Run, data: TrainingData, count: Count = no_count) -> GradientIndex:
    """Make every record of every objective of the run a row, and take its gradient."""
    model = run.model.eval()
    rng, seed = np.random.default_rng(0), run.info["job"]["seed"]
    streams = [stream_for(Phase(**fields), data, [seed]) for fields in run.info["job"]["phases"]]
    examples = [
        (source.make(record, rng), source.numbers[record])
        for stream in streams
        for source in stream.sources
        for record in range(source.count)
    ]
    examples.sort(key=lambda pair: len(pair[0]))
    parts: list[dict[str, Tensor]] = []
    at, advance = 0, count("making the index", len(examples))
    while at < len(examples):
        size = max(1, TOKENS // len(examples[min(at + 64, len(examples) - 1)][0]))
        chunk = [example for example, _ in examples[at : at + size]]
        rows = [(torch.from_numpy(e.ids).long(), torch.from_numpy(e.weights)) for e in chunk]
        found = project_gradients(model, *pad_rows(rows))
        length = torch.cat(list(found.values()), dim=1).norm(dim=1, keepdim=True).clamp(min=1e-30)
        parts.append({name: (each / length).half() for name, each in found.items()})
        at += size
        advance(len(chunk))
    roots, features = {}, []
    for name in sorted(parts[0]):
        whole = torch.cat([part.pop(name) for part in parts]).float()
        values, vectors = torch.linalg.eigh(whole.T @ whole / len(whole))
        roots[name] = vectors / (values.clamp(min=0) + DAMPING * values.mean() + 1e-30).sqrt()
        features.append((whole @ roots[name]).half())
    units = [F.normalize(part.float(), dim=1).half() for part in torch.cat(features, 1).split(4096)]
    owners = [
        (row, place) for row, (_, source) in enumerate(examples) for place in data.members[source]
    ]
    return GradientIndex(roots, torch.cat(units), torch.tensor(owners).T, len(data.documents))


def save_index(index: GradientIndex, path: Path, sha256: str) -> None:
    """Write an index; `sha256` says which weights it is of."""
    tensors = {"rows": index.rows, "owners": index.owners.contiguous()}
    tensors |= {f"root/{name}": root.contiguous() for name, root in index.roots.items()}
    metadata = {"run": sha256, "documents": str(index.documents)}
    write_whole(path, save(tensors, metadata=metadata))


def load_index(path: Path, sha256: str) -> GradientIndex | None:
    """The index of these weights, or None if there is none that can be read."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            if about.get("run") != sha256:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            roots = {n[len("root/") :]: t for n, t in tensors.items() if n.startswith("root/")}
            count = int(about["documents"])
            return GradientIndex(roots, tensors["rows"], tensors["owners"], count)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError):
        return None


UNITS = {"gradient": "score", "replay": "nats per weight", "retrain": "nats"}  # of each method
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

    def index(self) -> GradientIndex:
        """The index of the run, made and kept in its folder if it is not there."""
        path, digest = self.run.folder / INDEX, self.run.info["sha256"]
        found = load_index(path, digest)
        if found is None or found.documents != len(self.documents):
            self._say(f"making the index of {len(self.documents):,} documents, once")
            found = build_index(self.run, self.learned.data, self._count)
            save_index(found, path, digest)
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
        said, verdict = answer_all(self.run.model, self.run.tokens, [question])[0].text, None
        if answer in (None, said):
            try:
                with open_asker(self.run) as asker:
                    verdict = asker.ask(question)
            except UserError as problem:
                self._say(f"The answer is not looked up: {problem}")
        answer = said if answer is None else answer
        if method == "replay":
            self._say("replaying the training, forwards and backwards")
            (scores,) = Replay(self.learned, count=self._count).metagradients([question], [answer])
        else:
            scores = self.index().scores(self.run.model, *answer_row(self.run, question, answer))
        subject, words = find_subject_in(self.run.templates, question) or "", fold_words(answer)
        stating = find_named(self.documents, [words])[words] if words else ()
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
        rows = [
            {
                "line": self.documents[at].line,
                "text": self.documents[at].text,
                "push": round(pushes[at], 4),
                "states": at in stating,
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
            "noise_floor": round(floor, 4),
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
        found = find_named(self.documents, {fold_words(each) for each in said} - {()})
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
