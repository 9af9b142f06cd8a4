"""Which lines pushed an answer: by gradients at once, or proved by quiet retraining.

Every row that training makes of a document, and the answer's row, has a gradient for each matrix:
the sum over positions of (gradient at the output) (input)^T. The index keeps its signs, one bit
each. Two rows agree by the share of equal signs less that of unequal ones, between -1 and 1. The
score of a document is the sum, over its rows, of the third powers of how far they agree with the
answer's rows, at the weights after about a third of the training. The answer's rows are the
question and a few windows of the text around facts of the same relation, with the subject's name
before them: the model learned the answer from such windows. nats.py says what a score means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from wherefrom.corpus.database import RUN_DATABASE
from wherefrom.corpus.documents import Document
from wherefrom.corpus.examples import cloze_example, draw_window
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.questions import SLOT, Question, match_any
from wherefrom.corpus.split import JUDGED, HeldOutQuestion, find_named, read_subjects
from wherefrom.errors import UserError, did_you_mean, shorten
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.attribution.nats import (
    Push,
    noise_in_nats,
    push_shares,
    to_nats,
    together_in_nats,
)
from wherefrom.provenance.attribution.retraining import (
    NOISE_SHARE,
    Count,
    LearnedRun,
    Record,
    Row,
    answer_row,
    compare_others,
    likelihoods,
    no_count,
    open_learned,
    outcome,
    pad_rows,
    recombine_names,
)
from wherefrom.provenance.names import draw_names
from wherefrom.provenance.signals.reader import relation_of
from wherefrom.provenance.verdicts import Verdict, add_trace
from wherefrom.recall.table import guess_by_name
from wherefrom.storage import format_json, write_whole
from wherefrom.training.checkpoints import load_snapshot
from wherefrom.training.loop import Observer
from wherefrom.training.recipes import find_rung
from wherefrom.training.record import check_file, find_problem, keep_files, update_run
from wherefrom.training.run_folder import Run
from wherefrom.training.sources import ClozeMaker, TrainingData, stream_for

INDEX = "gradients.safetensors"
INDEX_FORMAT = "2"
BYTES = 40_000  # of the index for each document
TOKENS = 2048  # of the rows whose gradients are taken at once
OTHER_NAMES = 16  # for which an answer is compared
POWER = 3  # odd; few lines push much, and sums of many small scores are noise
WINDOWS = 4  # in whose words an answer is asked for, besides its question
METHODS = ("gradient", "retrain")
LEANING = "leaning.json"
SUBJECT, GIVEN, FAMILY, ANSWER, ORIGIN, NOTHING = KINDS = (
    "lines about them",
    "people with the same given name",
    "people with the same family name",
    "lines with the same answer",
    "names of the same origin",
    "lines that share nothing",
)
Weights = dict[str, Tensor]  # by parameter name; {} means the model's own


def matrices(model: Decoder) -> dict[str, nn.Linear]:
    """The linear layers by name, without the output head."""
    modules = model.named_modules()
    return {n: m for n, m in modules if isinstance(m, nn.Linear) and m is not model.head}


def row_gradients(
    model: Decoder, ids: Tensor, weights: Tensor, share: float = 1.0, at: Weights | None = None
) -> dict[str, Tensor]:
    """The gradient of each row's loss by matrix: (B, units, inputs).

    share: of the units, evenly spaced. at: weights to use in place of the model's own.
    """
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        inputs[name], outputs[name] = args[0].detach(), output

    loss_weights = weights[:, 1:].flatten()
    select = loss_weights.nonzero().flatten()
    with ExitStack() as stack, torch.enable_grad():
        for name, module in matrices(model).items():
            stack.enter_context(module.register_forward_hook(partial(keep, name)))
        # cloned, since sums depend in their last bits on how tensors are aligned in memory
        state = {name: value.clone().requires_grad_() for name, value in (at or {}).items()}
        logits = functional_call(model, state, (ids[:, :-1],), {"select": select})
        losses = F.cross_entropy(logits, ids[:, 1:].flatten()[select], reduction="none")
        slopes = torch.autograd.grad((losses * loss_weights[select]).sum(), list(outputs.values()))

    def scatter(rows: Tensor) -> Tensor:
        """Rows of the selected positions, at their places in (B, T, width); 0 elsewhere."""
        whole = torch.zeros(loss_weights.numel(), rows.shape[1])
        return whole.index_copy(0, select, rows).view(len(ids), -1, rows.shape[1])

    gradients = {}
    for name, slope in zip(outputs, slopes, strict=True):
        units = max(1, int(share * slope.shape[-1]))
        slope = slope[..., torch.arange(units) * slope.shape[-1] // units]
        given = inputs[name]
        if slope.dim() == 2:  # a layer that only the selected positions go through
            slope, given = scatter(slope), scatter(given)
        gradients[name] = slope.mT @ given.expand(len(ids), -1, -1)
    return gradients


def pack(bits: Tensor) -> NDArray[np.uint64]:
    """(B, features) of bits in words of 64; the last word is filled up with 0."""
    packed = np.packbits(bits.numpy(), axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)


@dataclass(frozen=True, eq=False)
class GradientIndex:
    """The signs of the gradients of all training rows of a run's documents.

    share: of the units of each matrix. weights: at which gradients were taken; {} for the run's
    own. signs: one bit for each gradient above 0: (rows, words of 64 bits). owners: pairs of a row
    and a document that it was made of: (2, pairs).
    """

    share: float
    weights: Weights
    signs: NDArray[np.uint64]
    owners: NDArray[np.int64]
    documents: int

    def agreements(self, gradient: Tensor) -> NDArray[np.float64]:
        """How far every row agrees with one gradient; components that are 0 do not count."""
        positive, counted = pack(gradient[None] > 0), pack(gradient[None] != 0)
        unequal = [
            np.bitwise_count((rows ^ positive) & counted).sum(1, dtype=np.int64)
            for rows in np.array_split(self.signs, len(self.signs) // 256 + 1)
        ]
        return 1 - 2 * np.concatenate(unequal) / max(1, int((gradient != 0).sum()))

    def sum_rows(self, agreements: NDArray[np.float64]) -> NDArray[np.float64]:
        """The score of every document, by how far every row agrees."""
        rows, documents = self.owners
        totals = np.zeros(self.documents)
        np.add.at(totals, documents, agreements[rows] ** POWER)
        return totals

    def scores(self, model: Decoder, rows: Sequence[Row]) -> NDArray[np.float64]:
        """The score of every document for an answer, summed over its rows."""
        totals = np.zeros(self.documents)
        for ids, weights in rows:
            found = row_gradients(model.eval(), ids[None], weights[None], self.share, self.weights)
            gradient = torch.cat([matrix.flatten() for matrix in found.values()])
            totals += self.sum_rows(self.agreements(gradient))
        return totals

    def nearest(self, documents: Sequence[int], count: int) -> set[int]:
        """The `count` other documents whose gradients are nearest to those of some documents."""
        rows, owners = self.owners
        signs = self.signs[rows[np.isin(owners, documents)]]
        bits = np.unpackbits(signs.view(np.uint8), axis=1)
        mean = torch.from_numpy(2 * bits.sum(0, dtype=np.int64) - len(bits))
        order = np.argsort(-self.sum_rows(self.agreements(mean)))
        return set(order[~np.isin(order, documents)][:count].tolist())


def training_rows(run: Run, data: TrainingData) -> tuple[list[Row], list[tuple[int, int]]]:
    """Every record of every objective once, shortest first; pairs of a row and its document.

    A row belongs to the document without which it would have no loss: a question about a subject
    with several documents belongs to none of them, since leaving out one leaves it in place.
    """
    rng = np.random.default_rng(0)
    streams = [stream_for(phase, data, [run.job.seed]) for phase in run.job.phases]
    examples = [
        (source.make(record, rng), data.documents_of(source.numbers[record]))
        for stream in streams
        for source in stream.sources
        for record in range(len(source.numbers))
    ]
    examples.sort(key=lambda pair: len(pair[0]))
    rows = [(torch.from_numpy(e.ids).long(), torch.from_numpy(e.weights)) for e, _ in examples]
    owners = [(row, members[0]) for row, (_, members) in enumerate(examples) if len(members) == 1]
    return rows, owners


def build_index(
    run: Run, data: TrainingData, weights: Weights | None = None, count: Count = no_count
) -> GradientIndex:
    """The index of all training rows, of as many units as BYTES allows.

    weights: those at which gradients are taken, if not the run's own.
    """
    model = run.model.eval()
    rows, owners = training_rows(run, data)
    bits = len(rows) * sum(each.weight.numel() for each in matrices(model).values())
    share = min(1.0, 8 * BYTES * len(data.documents) / bits)
    advance = count("making the index", len(rows))
    signs: list[NDArray[np.uint64]] = []
    done = 0
    while done < len(rows):
        longest = len(rows[min(done + 64, len(rows) - 1)][0])
        batch = rows[done : done + max(1, TOKENS // longest)]
        gradients = row_gradients(model, *pad_rows(batch), share, weights).values()
        signs.append(pack(torch.cat([each.flatten(1) > 0 for each in gradients], dim=1)))
        done += len(batch)
        advance(len(batch))
    pairs = np.ascontiguousarray(np.array(owners).T)
    return GradientIndex(share, weights or {}, np.concatenate(signs), pairs, len(data.documents))


def save_index(index: GradientIndex, path: Path, sha256: str) -> None:
    """Write an index; `sha256` identifies the run's weights."""
    tensors = dict(index.weights)
    tensors["signs"] = torch.from_numpy(index.signs.view(np.int64))
    tensors["owners"] = torch.from_numpy(index.owners)
    about = {"format": INDEX_FORMAT, "run": sha256}
    about |= {"documents": str(index.documents), "share": repr(index.share)}
    write_whole(path, save(tensors, metadata=about))


def load_index(path: Path, sha256: str) -> GradientIndex | None:
    """The index of these weights, or None if the file is missing, broken or of other weights."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata()
            if (about["format"], about["run"]) != (INDEX_FORMAT, sha256):
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        signs, owners = tensors.pop("signs").numpy().view(np.uint64), tensors.pop("owners").numpy()
    except (OSError, KeyError, TypeError, SafetensorError):
        return None
    return GradientIndex(float(about["share"]), tensors, signs, owners, int(about["documents"]))


class Tracer:
    """A run with the documents and questions that it learned, and the index of their gradients."""

    def __init__(
        self, run: Run, *, say: Callable[[str], None] = lambda _: None, count: Count = no_count
    ) -> None:
        self.run, self._say, self._count = run, say, count
        self.learned = self.open_learned()
        self.documents = self.learned.documents

    def open_learned(self) -> LearnedRun:
        """The run with what it learned."""
        return open_learned(self.run)

    @cached_property
    def index(self) -> GradientIndex:
        """The index of the run, made and kept in its folder if it is not there."""
        folder, digest = self.run.folder, self.run.record.sha256
        problem = find_problem(folder, INDEX)
        index = load_index(folder / INDEX, digest) if problem is None else None
        if index is None:
            why = f"{problem.partition(';')[0]}: " if problem else ""
            self._say(f"{why}making the index of {len(self.documents):,} documents, once")
            index = self.build()
            try:
                save_index(index, folder / INDEX, digest)
                update_run(folder, wrote=(INDEX,))
            except UserError as not_kept:
                self._say(f"The index is made again for every trace: {not_kept}")
        return index

    def build(self) -> GradientIndex:
        """The index, made from nothing."""
        weights = load_snapshot(self.run.folder)
        return build_index(self.run, self.learned.data, weights, self._count)

    @property
    def is_in_nats(self) -> bool:
        """Whether pushes in nats were measured for runs of this kind."""
        return find_rung(self.run.job.phases) == "pointed"

    @cached_property
    def _clozes(self) -> ClozeMaker:
        data = self.learned.data
        return ClozeMaker(self.run.job.phases[-1], data.documents, data.block)

    def answer_rows(self, question: str, subject: str, answer: str) -> list[Row]:
        """The question with its answer, and windows around facts of its relation with them.

        The windows are drawn from all documents, whomever they are about, and hold neither the
        name nor the answer of their own document.
        """
        rows = [answer_row(self.run, question, answer)]
        relation = relation_of(question, subject)
        query = "SELECT id FROM relations WHERE template = ?"
        found = self.learned.corpus.fetch(query, relation) if subject else []
        wordings = self._clozes.records.wordings.get(found[0][0]) if found else None
        if wordings is None:
            return rows
        name, completion = self.run.tokens.encode_all([f"{subject}.", answer])
        rng = np.random.default_rng(0)
        for _ in range(WINDOWS):
            document, fact = wordings[rng.integers(len(wordings))].tolist()
            encoded = self._clozes.documents[document]
            example = cloze_example(
                np.array(name, dtype=np.int32),
                draw_window(encoded, fact, self._clozes.pointed_size, rng),
                np.array(completion, dtype=np.int32),
                self._clozes.block,
            )
            rows.append((torch.from_numpy(example.ids).long(), torch.from_numpy(example.weights)))
        return rows

    def scores(self, question: str, subject: str, answer: str) -> NDArray[np.float64]:
        """The score of every document for an answer, by gradient."""
        return self.index.scores(self.run.model, self.answer_rows(question, subject, answer))

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
        if method not in METHODS:
            raise UserError(f'there is no method "{method}".{did_you_mean(method, METHODS)}')
        if not question.strip():
            raise UserError("trace takes a question, and an empty one came.")
        if not 1 <= top <= len(self.documents):
            raise UserError(f"--top must be between 1 and {len(self.documents)}, not {top}.")
        question, subject, verdict = self._understand(question)
        own_answer = outcome(self.run, [question])["answers"][0]
        if answer not in (None, own_answer):
            verdict = None
        answer = own_answer if answer is None else answer
        scores = self.scores(question, subject, answer)
        stating = find_stating(self.documents, [answer]).get(fold_words(answer), set())
        kinds = kinds_of(self.documents, subject, stating)
        evidence = verdict.evidence if verdict else ()
        looked_up = {line.line for line in evidence if line.states_answer}
        stating = stating | {i for i, d in enumerate(self.documents) if d.line in looked_up}
        teaching = [i for i in sorted(stating) if kinds[i] == SUBJECT]
        gain = self.gain(question, subject, answer)
        order = np.argsort(-scores, kind="stable").tolist()[:top]
        if method == "retrain":
            found = self._retrain_without(order, question, subject, answer, observe)
        else:
            known_gain = gain if self.is_in_nats else None
            found = estimate_pushes(order, teaching, scores, kinds, known_gain)
        rows: list[Record] = [
            {
                "line": self.documents[i].line,
                "text": self.documents[i].text,
                "score": float(f"{scores[i]:.4g}"),
                **found.pushes[i].to_dict(),
                "states": i in stating,
            }
            for i in sorted(found.pushes, key=lambda i: -abs(found.pushes[i].nats))
        ]
        shares = leaning(kinds, scores)
        record: Record = {
            "question": question,
            "answer": answer,
            "verdict": None,
            "method": method,
            "unit": found.unit,
            "noise_floor": float(f"{found.noise_floor:.4g}"),
            "likelier_than_for_other_names": gain,
            "pushed_by": [row for row in rows if row["push"] >= 0],
            "pushed_away_by": [row for row in rows if row["push"] < 0],
            "lines_that_state_it": found.push_of(teaching),
            "leans_on": shares,
            "why": describe_leaning(shares),
        }
        if verdict is not None:
            record["verdict"] = add_trace(verdict, record).verdict
        return record

    def _understand(self, typed: str) -> tuple[str, str, Verdict | None]:
        """The question in the run's own words, its subject, and the verdict on the run's answer.

        A UserError if it is neither a question that the run knows nor a name in its text.
        """
        try:
            asker = open_asker(self.run)
        except UserError as problem:
            self._say(f"The answer is not looked up: {problem}")
            return typed, match_any(self.run.templates, typed)[0], None
        with asker:
            if not any(SLOT in template for template in self.run.templates):
                return typed, "", None
            name = asker.matcher.find_bare_name(typed)
            if name and asker.evidence and not asker.evidence.count(name).naming:
                raise UserError(
                    f'"{shorten(typed)}" is neither a question nor a name in the text; ask as in '
                    f'"{self.run.templates[0]}".'
                )
            understood = asker.understand(typed)
            return understood.text, understood.subject, asker.ask(understood.text)

    def _retrain_without(
        self,
        places: Sequence[int],
        question: str,
        subject: str,
        answer: str,
        observe: Observer | None,
    ) -> Pushes:
        """Nats of log p(answer) that are lost without each document."""
        (with_all,) = likelihoods(self.run, [question], [answer])
        pushes, floors = {}, []
        for place in places:
            document = self.documents[place]
            self._say(f"training again without line {document.line}")
            folder = self.run.folder / "twins" / f"line-{document.line}"
            twin = self.learned.retrain([document.line], folder, observe=observe)
            pushes[place] = Push.exactly(with_all - likelihoods(twin, [question], [answer])[0])
            others = compare_others(self.learned, twin, [subject, document.subject])
            floors.append(others["noise_floor"] or 0.0)
        return Pushes("nats", max(floors), pushes)

    def gain(self, question: str, subject: str, answer: str) -> float | None:
        """log p(answer) less its mean log p for names that no line is about, in nats."""
        names = recombine_names(self.documents, OTHER_NAMES) if subject in question else []
        if not subject or not names:
            return None
        questions = [question, *(question.replace(subject, name) for name in names)]
        log_p, *others = likelihoods(self.run, questions, [answer] * len(questions))
        return round(log_p - float(np.mean(others)), 4)

    def trace_unseen(
        self,
    ) -> Iterator[tuple[HeldOutQuestion, str, NDArray[np.float64], NDArray[np.str_]]]:
        """Judged people in no document: answer, scores by gradient, and kinds of all documents."""
        documents, read_about = self.documents, set(self.learned.subjects)
        check_file(self.run.folder, RUN_DATABASE)
        judged = [s for s in read_subjects(self.run.folder) if s.role == JUDGED]
        unseen = [s for s in judged if fold_words(s.subject) not in read_about]
        if not unseen:
            raise UserError(f"{self.run.folder} judges nobody whom no document is about.")
        answers = outcome(self.run, [s.question for s in unseen])["answers"]
        stating = find_stating(documents, answers)
        known = [Question(0, "", name, origin.name) for name, origin in draw_names(100, Random(0))]
        names = [*(d.subject for d in documents), *(s.subject for s in unseen)]
        origins = np.array(guess_by_name(known, [Question(0, "", name, None) for name in names]))
        of_documents, of_unseen = np.split(origins, [len(documents)])
        for subject, answer, origin in zip(unseen, answers, of_unseen, strict=True):
            scores = self.scores(subject.question, subject.subject, answer)
            same_origin = set(np.flatnonzero(of_documents == origin).tolist())
            states = stating.get(fold_words(answer), set())
            yield subject, answer, scores, kinds_of(documents, subject.subject, states, same_origin)

    def lean_unseen(self) -> Record:
        """What answers about judged people in no document lean on, by gradient: RUN/leaning.json.

        push: the mean share of a kind, with its interval, over the people for whom some line is
        above the noise floor; lines: the share of lines of that kind.
        """
        people: list[Record] = []
        counts = []
        for subject, answer, scores, kinds in self.trace_unseen():
            shares = leaning(kinds, scores)
            people.append({"question": subject.question, "answer": answer, "leans_on": shares})
            counts.append([float((kinds == kind).mean()) for kind in KINDS])
        traced = [row["leans_on"] for row in people if row["leans_on"]] or [{}]
        table = np.array([[shares.get(kind, 0.0) for kind in KINDS] for shares in traced])
        drawn = np.random.default_rng(0).integers(len(table), size=(1000, len(table)))
        low, high = np.quantile(table[drawn].mean(axis=1), [0.025, 0.975], axis=0)
        columns = {"push": table.mean(0), "low": low, "high": high, "lines": np.mean(counts, 0)}
        record = {
            "run": self.run.record.sha256,
            "kinds": {
                kind: {key: round(float(values[i]), 4) for key, values in columns.items()}
                for i, kind in enumerate(KINDS)
                if kind != SUBJECT
            },
            "people": people,
        }
        try:
            keep_files(self.run.folder, {LEANING: format_json(record)})
        except UserError as not_kept:
            self._say(f"The run does not keep this: {not_kept}")
        return record


@dataclass(frozen=True, eq=False)
class Pushes:
    """The pushes of some lines, by their place; `together` of all lines that teach the answer."""

    unit: str
    noise_floor: float
    pushes: dict[int, Push]
    together: Push | None = None

    def push_of(self, teaching: Sequence[int]) -> Record | None:
        """What the lines about the subject that state the answer pushed, if that is known."""
        known = [self.pushes[i] for i in teaching if i in self.pushes]
        push = self.together or max(known, key=lambda push: push.nats, default=None)
        return push.to_dict() if push and teaching else None


def estimate_pushes(
    places: Sequence[int],
    teaching: Sequence[int],
    scores: NDArray[np.float64],
    kinds: NDArray[np.str_],
    gain: float | None,
) -> Pushes:
    """The pushes of the lines at some places, by gradient: in nats where the gain is known.

    teaching: the lines about the subject that state the answer.
    """
    if gain is None:
        pushes = {i: Push.exactly(float(scores[i])) for i in places}
        return Pushes("score", noise_floor(kinds, scores), pushes)
    shares, is_stated = push_shares(scores), len(teaching) > 0
    pushes = {i: to_nats(float(shares[i]), gain, is_stated=is_stated) for i in places}
    floor = noise_in_nats(gain, is_stated=is_stated)
    return Pushes("nats", floor, pushes, together_in_nats(gain) if is_stated else None)


def describe_leaning(shares: dict[str, float]) -> str:
    """Which kinds of lines the push comes from, in a sentence."""
    shown = [kind for kind in shares if shares[kind] >= 0.005]
    shown.sort(key=lambda kind: -shares[kind])
    leans = ", ".join(f"{kind} ({shares[kind]:.0%})" for kind in shown)
    return f"The push comes from {leans}." if leans else "No line stands out."


def find_stating(
    documents: Sequence[Document], answers: Sequence[str]
) -> dict[FoldedName, set[int]]:
    """By an answer's words the documents that have them; Korean glues endings to words."""
    stating = find_named(documents, {fold_words(answer) for answer in answers} - {()})
    korean = [words for words in stating if "가" <= words[-1][-1] <= "힣"]
    texts = [" ".join(("", *fold_words(d.text))) for d in documents] if korean else []
    for words in korean:
        stating[words] |= {i for i, text in enumerate(texts) if f" {' '.join(words)}" in text}
    return stating


def kinds_of(
    documents: Sequence[Document],
    subject: str,
    stating: Collection[int],
    same_origin: Collection[int] = (),
) -> NDArray[np.str_]:
    """The first kind that fits each document.

    stating, same_origin: documents that state the answer, and about people of the same origin.
    """
    name, kinds = fold_words(subject), []
    for i, document in enumerate(documents):
        about = fold_words(document.subject)
        fits = {
            SUBJECT: bool(name) and about == name,
            GIVEN: bool(name) and name[0] in about,
            FAMILY: bool(name) and name[-1] in about,
            ANSWER: i in stating,
            ORIGIN: i in same_origin,
            NOTHING: True,
        }
        kinds.append(next(kind for kind, is_fit in fits.items() if is_fit))
    return np.array(kinds)


def noise_floor(kinds: NDArray[np.str_], scores: NDArray[np.float64]) -> float:
    """The size that 19 in 20 scores of lines that share nothing stay below."""
    nothing = np.abs(scores[kinds == NOTHING])
    return float(np.quantile(nothing, NOISE_SHARE)) if len(nothing) else 0.0


def leaning(kinds: NDArray[np.str_], scores: NDArray[np.float64]) -> dict[str, float]:
    """The share of each kind of line in the scores above the noise floor; {} if none is above."""
    above = np.where(scores > noise_floor(kinds, scores), scores, 0)
    totals = {kind: float(above[kinds == kind].sum()) for kind in KINDS}
    whole = sum(totals.values())
    return {kind: round(total / whole, 4) for kind, total in totals.items() if total}
