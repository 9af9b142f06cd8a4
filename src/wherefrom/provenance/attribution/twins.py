"""What would it have said, had it never read this line? A twin without it, or two without half."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from scipy.stats import rankdata
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.corpus.subjects import DEV, JUDGED, Subject, find_named, read_subjects
from wherefrom.errors import UserError
from wherefrom.model.decoder import Block, Decoder
from wherefrom.provenance.attribution.retraining import (
    LearnedRun,
    Record,
    answer_row,
    compare_others,
    likelihoods,
    open_learned,
    outcome,
)
from wherefrom.provenance.confidence.fit import load_confidence
from wherefrom.provenance.evidence import EVIDENCE_FILE, ensure_evidence
from wherefrom.provenance.judging import RIVALS, SUPPORT
from wherefrom.provenance.metrics import DEFINED, LEVEL, RESAMPLES, Answers, Floats, auroc, ratio
from wherefrom.provenance.signals.reader import SIGNS
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    GUESSED,
    MADE_UP,
    REMEMBERED,
    STATED,
    give_verdicts,
)
from wherefrom.recall.decode import score
from wherefrom.storage import write_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Runtime

SIDES = ("with", "without")  # the run, and the twin that did not read about the subject

# in truth: REMEMBERED is right with the documents and not without them, RIGHT_ANYWAY with and
# without them; of what was not read, GUESSED is right and MADE_UP is wrong
RIGHT_ANYWAY, WRONG = "right anyway", "wrong though read"
ONE_KIND = "all answers are of one kind, so there is nothing to tell apart."
CONSTANT = "one of the two scores is the same for everybody."
TRUTHS = (REMEMBERED, RIGHT_ANYWAY, WRONG, GUESSED, MADE_UP)

# what takes an answer of one model for remembered, and is tested as such
TESTS: dict[str, Callable[[Record], bool]] = {
    "verdict stated": lambda said: said["verdict"] == STATED,
    "shown": lambda said: said["shown"] != DONT_KNOW,
    "shown without the text": lambda said: said["shown_internal"],
}


def draw_halves(learned: LearnedRun) -> tuple[list[list[Subject]], list[str]]:
    """The judged subjects that the run read about, in two random halves; and notes.

    Those whom another subject's document names are in neither: they cannot be left out cleanly.
    """
    run = learned.run
    judged = [s for s in read_subjects(run.folder) if s.role == JUDGED and s.source == DEV]
    about = [fold_words(document.subject) for document in learned.documents]
    every = {fold_words(each.subject) for each in judged}
    found = find_named(learned.documents, every)
    names = sorted(n for n, at in found.items() if at and all(about[i] == n for i in at))
    if len(names) < 2:
        raise UserError(
            f"two halves need at least two judged people whose documents can be left out, and "
            f"{run.folder} has {len(names)}."
        )
    order = np.random.default_rng([run.info["job"]["seed"], 0x7717]).permutation(len(names))
    half = {names[at]: number % 2 for number, at in enumerate(order)}
    halves = [[s for s in judged if half.get(fold_words(s.subject)) == at] for at in (0, 1)]
    note = "dev people are not judged: no document, or another's too, has their name."
    others = len(every) - len(names)
    return halves, [f"{others} {note}"] if others else []


def cross_pretrain(
    run: Run,
    *,
    settings: Runtime | None = None,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Record:
    """Train both twins of a run, judge its answers by theirs, and write twins.json."""
    learned = open_learned(run)
    halves, notes = draw_halves(learned)
    rows: list[Record] = []
    twins = []
    for name, subjects in zip("ab", halves, strict=True):
        folder = run.folder / "twins" / f"half-{name}"
        say(f"training again without half {name.upper()} of the judged people ({folder})")
        gone = {fold_words(each.subject) for each in subjects}
        lines = [d.line for d in learned.documents if fold_words(d.subject) in gone]
        twin = learned.retrain(lines, folder, settings=settings, observe=observe)
        info = {key: twin.info[key] for key in ("steps", "seconds", "sha256")}
        twins.append({"folder": folder.name, **info})
        rows += pair_answers(learned, twin, subjects)
    right = [row["right"] for row in rows]
    recall = {side: score([row[side]["answer"] for row in rows], right) for side in SIDES}
    record = {
        "format": 2,
        "notes": notes,
        "recall": {side: each.to_dict() for side, each in recall.items()},
        "twins": twins,
        **summarise(rows, np.random.default_rng([run.info["job"]["seed"], 0xD4A3])),
    }
    join_processes().on_rank0(lambda: write_json(run.folder / "twins" / "twins.json", record))
    return record


def pair_answers(learned: LearnedRun, twin: Run, subjects: Sequence[Subject]) -> list[Record]:
    """What the run and a twin that did not read about the subjects say, each with its verdict.

    Both are rated by the run's confidence. scores: higher is likelier remembered, by one model.
    """
    confidence, run = load_confidence(learned.run), learned.run
    questions, names = [s.question for s in subjects], [s.subject for s in subjects]
    gone = {d.subject for d in learned.documents if d.line in set(twin.info["job"]["without"])}
    sides: dict[str, list[Record]] = {}
    for side, model in zip(SIDES, (run, twin), strict=True):
        corpus = learned.corpus.without(sorted(gone)) if model is twin else learned.corpus
        path = model.folder / EVIDENCE_FILE
        with closing(ensure_evidence(corpus, path, learned.questions)) as evidence:
            rated = confidence and replace(confidence, run=replace(model, folder=run.folder))
            said = give_verdicts(model, rated, evidence, questions, names, also=None)
            naming = [float(evidence.count(name).naming) for name in names]
        ours = [row["answer"] for row in sides["with"]] if model is twin else None
        likely = likelihoods(model, questions, ours or [verdict.answer for verdict in said])
        sides[side] = []
        for verdict, named, log_p in zip(said, naming, likely, strict=True):
            scores = {
                "internal confidence": verdict.internal_confidence or 0.0,
                "checked confidence": verdict.confidence or 0.0,
                "verdict stated": float(verdict.verdict == STATED),
            }
            for name, (columns, _) in RIVALS.items():
                value = named if columns == (SUPPORT,) else verdict.signals.get(columns[0])
                if len(columns) == 1 and columns[0] in (SUPPORT, *SIGNS):
                    scores[name] = SIGNS.get(columns[0], 1) * (-1e3 if value is None else value)
            sides[side].append(
                {
                    "answer": verdict.answer,
                    "log_probability_of_with": log_p,
                    "shown": verdict.shown,
                    "shown_internal": verdict.shown_internal,
                    "verdict": verdict.verdict or "",
                    "scores": scores,
                }
            )
    rows = []
    for subject, reader, other in zip(subjects, *sides.values(), strict=True):
        truth, without = true_origin(reader["answer"], other["answer"], subject.answer or "")
        rows.append(
            {
                "subject": subject.subject,
                "question": subject.question,
                "right": subject.answer or "",
                "twin": twin.folder.name,
                "truth": truth,
                "truth_without": without,
                "score": reader["log_probability_of_with"] - other["log_probability_of_with"],
                "with": reader,
                "without": other,
            }
        )
    return rows


def true_origin(reader: str, other: str, right: str) -> tuple[str, str]:
    """The truth about a reader's answer and about the answer of the model that did not read."""
    by_reader, by_other = (said.strip() == right.strip() for said in (reader, other))
    truth = (RIGHT_ANYWAY if by_other else REMEMBERED) if by_reader else WRONG
    return truth, GUESSED if by_other else MADE_UP


def summarise(rows: Sequence[Record], rng: Generator) -> Record:
    """All numbers about the judged subjects, and the subjects themselves.

    rank: the correlation of a score with the push. Intervals draw a subject with both answers.
    """
    people = len(rows)
    truths = [row[key] for row in rows for key in ("truth", "truth_without")]
    true, push = np.array(truths) == REMEMBERED, np.array([row["score"] for row in rows])
    drawn = rng.multinomial(people, np.full(people, 1 / people), size=RESAMPLES)
    weights = np.vstack([np.ones(people), drawn])  # the first row is everybody once
    both = np.repeat(weights, 2, axis=1)

    def values(of: Callable[[Record], float]) -> Floats:
        return np.array([float(of(row[side])) for row in rows for side in SIDES])

    def tabulate(word: Callable[[Record], str]) -> dict[str, dict[str, int]]:
        words = [word(row[side]) for row in rows for side in SIDES]
        counts = Counter(zip(words, truths, strict=True))
        return {each: {t: counts[each, t] for t in TRUTHS} for each in sorted(set(words))}

    agreement, caught = {}, {}
    for name in rows[0]["with"]["scores"]:
        scores = values(lambda said: said["scores"][name])  # noqa: B023
        readers = Answers(scores[::2], true[::2])
        agreement[name] = {
            "all": _estimate(auroc(Answers(scores, true), both), ONE_KIND),
            "readers": _estimate(auroc(readers, weights), ONE_KIND),
            "rank": _estimate(_rank_correlations(scores[::2], push, weights), CONSTANT),
        }
    for name, test in TESTS.items():
        yes = values(test)
        hits, taken, there = (both @ each for each in (yes * true, yes, true))
        caught[name] = {
            "precision": _estimate(ratio(hits, taken), "no answer is taken for remembered."),
            "recall": _estimate(ratio(hits, there), "no answer is remembered."),
        }
    return {
        "people": {"judged": people},
        "truth": {"with": dict(Counter(truths[::2])), "without": dict(Counter(truths[1::2]))},
        "verdicts": tabulate(lambda said: said["verdict"]),
        "internal": tabulate(lambda said: "shown" if said["shown_internal"] else DONT_KNOW),
        "agreement": agreement,
        "caught": caught,
        "judged": list(rows),
    }


def _estimate(values: Floats, why: str) -> Record:
    """The first value with the interval of the others, or why there is none."""
    if not np.isfinite(values[0]):
        return {"value": None, "reason": why, "low": None, "high": None}
    drawn = values[1:][np.isfinite(values[1:])]
    low, high = None, None
    if len(drawn) >= DEFINED * RESAMPLES:
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return {"value": float(values[0]), "reason": None, "low": low, "high": high}


def _rank_correlations(one: Floats, other: Floats, weights: Floats) -> Floats:
    """Pearson's of the ranks, for each row of weights."""
    x, y = rankdata(one), rankdata(other)
    count = weights.sum(axis=1)
    mean_x, mean_y, mean_xy, mean_xx, mean_yy = (
        weights @ each / count for each in (x, y, x * y, x * x, y * y)
    )
    spread = np.clip((mean_xx - mean_x**2) * (mean_yy - mean_y**2), 0, None)
    spread[spread < 1e-9] = 0
    return ratio(mean_xy - mean_x * mean_y, np.sqrt(spread))


@dataclass(frozen=True, eq=False)
class Plan:
    """What the twin is to be trained without, and what both are asked."""

    learned: LearnedRun
    documents: tuple[Document, ...]
    question: Question


def plan_twin(run: Run, name: str) -> Plan:
    """All that can be refused, before anything is trained."""
    learned = open_learned(run)
    documents = learned.documents_about(name)
    subject = documents[0].subject
    for question in (*learned.dev, *learned.questions):
        if fold_words(question.subject) == fold_words(subject):
            return Plan(learned, documents, question)
    wording = next((each for each in run.templates if SLOT in each), None)
    if wording is None:
        raise UserError(
            f'nobody asks about "{subject}", and the questions of {run.folder} share no wording '
            "to ask in; choose somebody whom a question is about."
        )
    question = Question(0, wording.replace(SLOT, subject), subject, None, wording)
    return Plan(learned, documents, question)


def twin_folder(run: Run, *names: str) -> Path:
    """Where the twin without these subjects is; names that are compared as one share it."""
    words = "--".join(sorted({"-".join(fold_words(name)) for name in names}))
    if len(words) > 60:
        words = f"{words[:60]}-{sha256(words.encode()).hexdigest()[:8]}"
    return run.folder / "twins" / f"without-{words}"


def command_without(folder: Path, subject: str) -> str:
    """The command that trains a twin of the run in `folder`, to be typed in this directory."""
    relative = os.path.relpath(folder)
    path = relative if not relative.startswith("..") else os.path.abspath(folder)
    return shlex.join(["wherefrom", "twins", path, "--without", subject])


def leave_out(
    run: Run,
    *plans: Plan,
    settings: Runtime | None = None,
    observe: Observer | None = None,
) -> Record:
    """Train the twin without the documents of all plans, compare, and write `without.json`."""
    subjects = [plan.question.subject for plan in plans]
    folder, learned = twin_folder(run, *subjects), plans[0].learned
    twin = learned.retrain(
        [document.line for plan in plans for document in plan.documents],
        folder,
        settings=settings,
        observe=observe,
    )
    others = compare_others(learned, twin, subjects)
    records = [compare(run, twin, plan) | others for plan in plans]
    record = records[0]
    if len(plans) > 1:
        keys = ("format", "twin_of", "others", "noise_floor")
        record = {**{key: record[key] for key in keys}, "subjects": subjects, "people": records}
    join_processes().on_rank0(lambda: write_json(folder / "without.json", record))
    return record


def compare(run: Run, twin: Run, plan: Plan) -> Record:
    """What both say, and whether the documents made the difference: see docs/trace.md."""
    question, wanted, read = plan.question, fold_words(plan.question.subject), plan.learned
    ours, own = (outcome(each, [question.text]) for each in (run, twin))
    said, instead = ours["answers"][0], own["answers"][0]
    of_run = ours["log_probability"][0]
    of_twin = outcome(twin, [question.text], [said])["log_probability"][0]
    expected = question.answer
    if expected is None:  # a line that states the answer makes it right
        words = fold_words(said)
        stated = bool(words) and bool(find_named(plan.documents, [words])[words])
        expected = said if stated else "\0"
    truth, _ = true_origin(said, instead, expected)
    in_training = any(fold_words(q.subject) == wanted for q in read.questions)
    naming = {read.documents[at].line for at in find_named(read.documents, [wanted])[wanted]}
    elsewhere = sorted(naming - {document.line for document in plan.documents})
    threads, here = run.info.get("versions", {}).get("threads"), torch.get_num_threads()
    notes = {
        "the run learned their question and its answer in training too; the twin learned neither "
        "the question nor the document.": in_training,
        f"{len(elsewhere)} other documents name them and were read by the twin.": bool(elsewhere),
        "no file has the right answer; a line that states the answer makes it right.": (
            question.answer is None
        ),
        f"the run was trained on {threads} threads and this machine uses {here}: sums differ in "
        "their last bits.": threads != str(here),
    }
    lines = "the line" if len(plan.documents) == 1 else f"the {len(plan.documents)} lines"
    same = "the same" if said == instead else f'"{instead}"'
    what = f"{lines} do not state it"
    if question.answer is not None:
        what = f"the right answer is {question.answer!r}"
    why = {
        REMEMBERED: f'With {lines} about them it says "{said}"; had it never read {lines}, it '
        f"would have said {same}: it remembers.",
        RIGHT_ANYWAY: f'It says "{said}" without {lines} too, so {lines} cannot be why.',
        WRONG: f'It says "{said}" although {what}; without {lines} it says {same}.',
    }
    return {
        "format": 1,
        "twin_of": run.info["sha256"],
        "subject": question.subject,
        "question": question.text,
        "documents": [{"line": d.line, "text": d.text} for d in plan.documents],
        "named_elsewhere": elsewhere,
        "asked_in_training": in_training,
        "right": question.answer,
        "with": {"answer": said, "log_probability": of_run},
        "without": {
            "answer": instead,
            "log_probability": own["log_probability"][0],
            "log_probability_of_with": of_twin,
        },
        "score": round(of_run - of_twin, 4),
        "where": map_line(run, twin, question.text, said),
        "truth": truth,
        "why": why[truth],
        "notes": [note for note, applies in notes.items() if applies],
    }


@torch.inference_mode()
def run_patched(
    model: Decoder, ids: Tensor, patches: dict[str, tuple[Tensor, Tensor]]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits with patched states; and the states at every place, from embedding to output.

    patches: by place the donor's states, and which of them to take (B, T).
    """
    places: dict[str, nn.Module] = {"embedding": model.embed}
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        places[f"attention {layer}"] = block.mixer
        places[f"feed-forward {layer}"] = block.feed
        places[f"hidden {layer}"] = block
    places["output"] = model.head
    states: dict[str, Tensor] = {}

    def patch(name: str, module: nn.Module, given: Any, out: Tensor) -> Tensor:
        states[name] = out
        donor, where = patches.get(name, (out, torch.ones(1, 1, dtype=torch.bool)))
        return torch.where(where[..., None], donor, out)

    with ExitStack() as stack:
        for name, module in places.items():
            stack.enter_context(module.register_forward_hook(partial(patch, name)))
        return model.eval()(ids), states


def map_line(
    run: Run, twin: Run, question: str, answer: str, *, everywhere: Collection[str] = ()
) -> dict[str, Any]:
    """log p of the answer with the twin's state at each place and position.

    everywhere: places at which the twin's states are taken at all positions in any case.
    """
    ids, weights = answer_row(run, question, answer)
    given, targets, counts = ids[None, :-1], ids[1:], weights[1:]
    length = given.shape[1]

    def log_p(logits: Tensor) -> list[float]:
        wanted = targets.expand(len(logits), -1)
        losses = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none")
        return [round(-float(value), 4) for value in (losses * counts).sum(1)]

    of_run, _ = run_patched(run.model, given, {})
    of_twin, donor = run_patched(twin.model, given, {})
    whole = torch.ones(1, length, dtype=torch.bool)
    always = {place: (donor[place], whole) for place in everywhere}
    rows = {}
    for place, state in donor.items():
        if state.shape[1] == length:  # a perceiver's latents are no positions
            patches = {place: (state, torch.eye(length, dtype=torch.bool)), **always}
            rows[place] = log_p(run_patched(run.model, given.expand(length, -1), patches)[0])
    return {
        "tokens": [run.tokens.surface(token) for token in given[0].tolist()],
        "with": log_p(of_run)[0],
        "without": log_p(of_twin)[0],
        "places": rows,
    }


@torch.inference_mode()
def logit_lens(run: Run, question: str, answer: str) -> dict[str, Any]:
    """What the head reads off the hidden states after each layer, where the answer is said.

    layers: for each piece of the answer its probability, and the piece that is the most likely.
    """
    ids, weights = answer_row(run, question, answer)
    _, states = run_patched(run.model, ids[None, :-1], {})
    where, wanted, rows = weights[1:] > 0, ids[1:], []
    for place, state in states.items():
        if place.startswith("hidden") and state.shape[1] == len(where):
            shares = run.model.head(run.model.norm(state[0, where])).softmax(1)
            said = [run.tokens.surface(token) for token in shares.argmax(1).tolist()]
            of_answer = shares.gather(1, wanted[where, None])[:, 0].tolist()
            shares = [round(share, 4) for share in of_answer]
            rows.append({"layer": int(place.split()[1]), "probability": shares, "says": said})
    return {"tokens": [run.tokens.surface(each) for each in wanted[where].tolist()], "layers": rows}
