"""What would the run have said, had it never read some lines? Found by training it again."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
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

from wherefrom.corpus.database import RUN_DATABASE, Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.corpus.split import (
    DEV,
    JUDGED,
    HeldOutQuestion,
    find_named,
    read_subjects,
)
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
from wherefrom.provenance.audited import BaseRun
from wherefrom.provenance.confidence.fit import load_confidence
from wherefrom.provenance.evidence import Evidence, save_database
from wherefrom.provenance.metrics import DEFINED, LEVEL, RESAMPLES, Answers, Floats, auroc, ratio
from wherefrom.provenance.signals.reader import RIVALS, SIGNS, SUPPORT
from wherefrom.provenance.verdicts import GUESSED, MADE_UP, AskedRun, AskOptions
from wherefrom.provenance.wording import DONT_KNOW, REMEMBERED, STATED
from wherefrom.recall.table import score
from wherefrom.storage import format_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.loop import Observer
from wherefrom.training.record import check_file, keep_files
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Runtime

SIDES = ("with", "without")  # the run, and the twin that did not read about the subject

# in truth: REMEMBERED is right with the documents and not without them, RIGHT_ANYWAY with and
# without them; of what was not read, GUESSED is right and MADE_UP is wrong
RIGHT_ANYWAY, WRONG = "right anyway", "wrong though read"
TRUTHS = (REMEMBERED, RIGHT_ANYWAY, WRONG, GUESSED, MADE_UP)
ONE_KIND = "all answers are of one kind, so there is nothing to tell apart."

# what takes an answer of one model for remembered, and is tested as such
TESTS: dict[str, Callable[[Record], bool]] = {
    "verdict stated": lambda answer: answer["verdict"] == STATED,
    "shown": lambda answer: answer["shown"] != DONT_KNOW,
    "shown without the text": lambda answer: answer["shown_internal"],
}


def draw_halves(learned: LearnedRun) -> tuple[list[list[HeldOutQuestion]], list[str]]:
    """The judged subjects that the run read about, in two random halves; and notes.

    A subject whom another subject's document names is in neither: the twin would read about it.
    """
    run = learned.run
    check_file(run.folder, RUN_DATABASE)
    judged = [s for s in read_subjects(run.folder) if s.role == JUDGED and s.source == DEV]
    judged_names = {fold_words(s.subject) for s in judged}
    about, named_in = learned.subjects, find_named(learned.documents, judged_names)
    names = sorted(n for n, rows in named_in.items() if rows and all(about[i] == n for i in rows))
    if len(names) < 2:
        raise UserError(
            f"two halves need at least two judged people whose documents can be left out, and "
            f"{run.folder} has {len(names)}."
        )
    order = np.random.default_rng([run.record.job.seed, 0x7717]).permutation(len(names))
    half_of = {names[i]: rank % 2 for rank, i in enumerate(order)}
    halves = [[s for s in judged if half_of.get(fold_words(s.subject)) == half] for half in (0, 1)]
    excluded = len(judged_names) - len(names)
    note = "dev people are not judged: no document is about them, or others name them too."
    return halves, [f"{excluded} {note}"] if excluded else []


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
        lines = learned.lines_about({fold_words(s.subject) for s in subjects})
        twin = learned.retrain(lines, folder, settings=settings, observe=observe)
        about = twin.record.model_dump(include={"steps", "seconds", "sha256"})
        twins.append({"folder": folder.name, **about})
        rows += pair_answers(learned, twin, subjects)
    right = [row["right"] for row in rows]
    recall = {side: score([row[side]["answer"] for row in rows], right) for side in SIDES}
    record = {
        "format": 2,
        "notes": notes,
        "recall": {side: found.to_dict() for side, found in recall.items()},
        "twins": twins,
        **summarise(rows, np.random.default_rng([run.job.seed, 0xD4A3])),
    }
    files = {"twins/twins.json": format_json(record)}
    join_processes().on_rank0(lambda: keep_files(run.folder, files))
    return record


def pair_answers(
    learned: LearnedRun, twin: Run, subjects: Sequence[HeldOutQuestion]
) -> list[Record]:
    """What the run and a twin that did not read about the subjects say, each with its verdict."""
    left_out = set(twin.job.without)
    corpus = learned.corpus.select(lambda document: document.line not in left_out)
    with_text = rate_answers(learned, learned.run, learned.corpus, subjects)
    answers = [row["answer"] for row in with_text]
    without_text = rate_answers(learned, twin, corpus, subjects, answers)
    rows = []
    for subject, reader, other in zip(subjects, with_text, without_text, strict=True):
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


def rate_answers(
    learned: LearnedRun,
    model: Run,
    corpus: Database,
    subjects: Sequence[HeldOutQuestion],
    answers: Sequence[str] | None = None,
) -> list[Record]:
    """A model's answers about the subjects, rated by the run's confidence and the corpus.

    answers: those whose log-probability is recorded, if not the model's own. scores: higher means
    more likely remembered.
    """
    run, confidence = learned.run, load_confidence(learned.run)
    questions, names = [s.question for s in subjects], [s.subject for s in subjects]
    rated_by = replace(confidence, run=replace(model, folder=run.folder))
    database = save_database(corpus, model.folder / RUN_DATABASE, learned.questions)
    with Evidence(database.reopen()) as evidence:
        known = confidence.signal_state.known_answers
        asked = AskedRun(model, evidence, rated_by, known)
        verdicts = asked.give_verdicts(questions, names, AskOptions(also=None))
        naming = [float(evidence.count(name).naming) for name in names]
    log_p = likelihoods(model, questions, answers or [verdict.answer for verdict in verdicts])
    rows = []
    for i, verdict in enumerate(verdicts):
        scores = {
            "internal confidence": verdict.internal_confidence or 0.0,
            "checked confidence": verdict.confidence or 0.0,
            "verdict stated": float(verdict.verdict == STATED),
        }
        signals = {**verdict.signals, SUPPORT: naming[i]}
        for rival, (columns, _) in RIVALS.items():
            if len(columns) == 1:
                value = signals.get(columns[0])
                scores[rival] = SIGNS.get(columns[0], 1) * (-1e3 if value is None else value)
        rows.append(
            {
                "answer": verdict.answer,
                "log_probability_of_with": log_p[i],
                "shown": verdict.shown,
                "shown_internal": verdict.shown_internal,
                "verdict": verdict.verdict or "",
                "scores": scores,
            }
        )
    return rows


def true_origin(reader: str, other: str, right: str) -> tuple[str, str]:
    """The truth about a reader's answer and about the answer of the model that did not read."""
    by_reader, by_other = (answer.strip() == right.strip() for answer in (reader, other))
    truth = (RIGHT_ANYWAY if by_other else REMEMBERED) if by_reader else WRONG
    return truth, GUESSED if by_other else MADE_UP


def summarise(rows: Sequence[Record], rng: Generator) -> Record:
    """All numbers about the judged subjects, and the subjects themselves.

    rank: the correlation of a score with the push. The bootstrap draws a subject with both answers.
    """
    people = len(rows)
    answers = [row[side] for row in rows for side in SIDES]
    truths = [row[key] for row in rows for key in ("truth", "truth_without")]
    remembered = np.array(truths) == REMEMBERED
    push = np.array([row["score"] for row in rows])
    drawn = rng.multinomial(people, np.full(people, 1 / people), size=RESAMPLES)
    weights = np.vstack([np.ones(people), drawn])  # the first row counts everybody once
    both = np.repeat(weights, 2, axis=1)

    def count_truths(words: Sequence[str]) -> dict[str, dict[str, int]]:
        counts = Counter(zip(words, truths, strict=True))
        return {word: {t: counts[word, t] for t in TRUTHS} for word in sorted(set(words))}

    agreement, caught = {}, {}
    for name in answers[0]["scores"]:
        scores = np.array([answer["scores"][name] for answer in answers])
        readers = Answers(scores[::2], remembered[::2])
        rank = _rank_correlations(scores[::2], push, weights)
        agreement[name] = {
            "all": _estimate(auroc(Answers(scores, remembered), both), ONE_KIND),
            "readers": _estimate(auroc(readers, weights), ONE_KIND),
            "rank": _estimate(rank, "one of the two scores is the same for everybody."),
        }
    for name, test in TESTS.items():
        taken = np.array([float(test(answer)) for answer in answers])
        hits = both @ (taken * remembered)
        precision, recall = ratio(hits, both @ taken), ratio(hits, both @ remembered)
        caught[name] = {
            "precision": _estimate(precision, "no answer is taken for remembered."),
            "recall": _estimate(recall, "no answer is remembered."),
        }
    shown = ["shown" if answer["shown_internal"] else DONT_KNOW for answer in answers]
    return {
        "people": {"judged": people},
        "truth": {"with": dict(Counter(truths[::2])), "without": dict(Counter(truths[1::2]))},
        "verdicts": count_truths([answer["verdict"] for answer in answers]),
        "internal": count_truths(shown),
        "agreement": agreement,
        "caught": caught,
        "judged": list(rows),
    }


def _estimate(values: Floats, reason: str) -> Record:
    """The first value with the interval of the others, or the reason why it is undefined."""
    if not np.isfinite(values[0]):
        return {"value": None, "reason": reason, "low": None, "high": None}
    drawn = values[1:][np.isfinite(values[1:])]
    low, high = None, None
    if len(drawn) >= DEFINED * RESAMPLES:
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return {"value": float(values[0]), "reason": None, "low": low, "high": high}


def _rank_correlations(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Pearson's correlation of the ranks, for each row of weights."""
    x, y = rankdata(first), rankdata(second)
    count = weights.sum(axis=1)
    mean_x, mean_y, mean_xy, mean_xx, mean_yy = (
        weights @ column / count for column in (x, y, x * y, x * x, y * y)
    )
    spread = np.clip((mean_xx - mean_x**2) * (mean_yy - mean_y**2), 0, None)
    spread[spread < 1e-9] = 0
    return ratio(mean_xy - mean_x * mean_y, np.sqrt(spread))


@dataclass(frozen=True, eq=False)
class Plan:
    """The documents of one subject that the twin is trained without, and what both are asked."""

    learned: LearnedRun
    documents: tuple[Document, ...]
    question: Question


def plan_twin(run: Run, name: str, learned: LearnedRun | None = None) -> Plan:
    """Find the documents and a question, or refuse, before anything is trained.

    learned: the run with what it learned, where it is opened already.
    """
    learned = learned or open_learned(run)
    documents = learned.documents_about(name)
    subject = documents[0].subject
    for question in (*learned.dev, *learned.questions):
        if fold_words(question.subject) == fold_words(subject):
            return Plan(learned, documents, question)
    template = next((template for template in run.templates if SLOT in template), None)
    if template is None:
        raise UserError(
            f'nobody asks about "{subject}", and the questions of {run.folder} share no wording '
            "to ask in; choose somebody whom a question is about."
        )
    text = template.replace(SLOT, subject)
    return Plan(learned, documents, Question(0, text, subject, None, template))


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
    lines = [document.line for plan in plans for document in plan.documents]
    folder, learned = twin_folder(run, *subjects), plans[0].learned
    twin = learned.retrain(lines, folder, settings=settings, observe=observe)
    others = compare_others(learned, twin, subjects)
    records = [compare(run, twin, plan) | others for plan in plans]
    record = records[0]
    if len(plans) > 1:
        keys = ("format", "twin_of", "others", "noise_floor")
        record = {**{key: record[key] for key in keys}, "subjects": subjects, "people": records}
    files = {"without.json": format_json(record)}
    join_processes().on_rank0(lambda: keep_files(folder, files))
    return record


def compare(run: Run, twin: Run, plan: Plan) -> Record:
    """What both say, and whether the documents made the difference: see docs/trace.md."""
    question, learned = plan.question, plan.learned
    subject = fold_words(question.subject)
    by_run, by_twin = (outcome(model, [question.text]) for model in (run, twin))
    answer, instead = by_run["answers"][0], by_twin["answers"][0]
    log_p_run, log_p_instead = by_run["log_probability"][0], by_twin["log_probability"][0]
    log_p_twin = round(likelihoods(twin, [question.text], [answer])[0], 4)
    right = question.answer
    if right is None:  # a line that states the answer makes it right
        words = fold_words(answer)
        is_stated = bool(words) and bool(find_named(plan.documents, [words])[words])
        right = answer if is_stated else "\0"
    truth, _ = true_origin(answer, instead, right)
    asked_in_training = any(fold_words(q.subject) == subject for q in learned.questions)
    naming = {learned.documents[i].line for i in find_named(learned.documents, [subject])[subject]}
    elsewhere = sorted(naming - {document.line for document in plan.documents})
    notes = []
    if asked_in_training:
        notes.append(
            "the run learned their question and its answer in training too; the twin learned "
            "neither the question nor the document."
        )
    if elsewhere:
        notes.append(f"{len(elsewhere)} other documents name them and were read by the twin.")
    if question.answer is None:
        notes.append("no file has the right answer; a line that states the answer makes it right.")
    threads, here = run.record.versions.get("threads"), torch.get_num_threads()
    if threads != str(here):
        notes.append(
            f"the run was trained on {threads} threads and this machine uses {here}: sums differ "
            "in their last bits."
        )
    where: Record = {"tokens": [], "with": log_p_run, "without": log_p_twin, "places": {}}
    if isinstance(run, BaseRun):
        notes.append("where in the model its lines matter is not mapped for a model of others.")
    else:
        where = map_line(run, twin, question.text, answer)
    lines = "the line" if len(plan.documents) == 1 else f"the {len(plan.documents)} lines"
    same = "the same" if answer == instead else f'"{instead}"'
    although = f"{lines} do not state it"
    if question.answer is not None:
        although = f"the right answer is {question.answer!r}"
    why = {
        REMEMBERED: f'With {lines} about them it says "{answer}"; had it never read {lines}, it '
        f"would have said {same}: it remembers.",
        RIGHT_ANYWAY: f'It says "{answer}" without {lines} too, so {lines} cannot be why.',
        WRONG: f'It says "{answer}" although {although}; without {lines} it says {same}.',
    }
    return {
        "format": 1,
        "twin_of": run.record.sha256,
        "subject": question.subject,
        "question": question.text,
        "documents": [{"line": d.line, "text": d.text} for d in plan.documents],
        "named_elsewhere": elsewhere,
        "asked_in_training": asked_in_training,
        "right": question.answer,
        "with": {"answer": answer, "log_probability": log_p_run},
        "without": {
            "answer": instead,
            "log_probability": log_p_instead,
            "log_probability_of_with": log_p_twin,
        },
        "score": round(log_p_run - log_p_twin, 4),
        "where": where,
        "truth": truth,
        "why": why[truth],
        "notes": notes,
    }


@torch.inference_mode()
def run_patched(
    model: Decoder, ids: Tensor, patches: dict[str, tuple[Tensor, Tensor]]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits with patched states; and the states at every place, from embedding to output.

    patches: by place the donor's states, and a mask (B, T) of those to take.
    """
    places: dict[str, nn.Module] = {"embedding": model.embed}
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        places[f"attention {layer}"] = block.mixer
        places[f"feed-forward {layer}"] = block.feed
        places[f"hidden {layer}"] = block
    places["output"] = model.head
    states: dict[str, Tensor] = {}

    def patch(place: str, module: nn.Module, inputs: Any, state: Tensor) -> Tensor:
        states[place] = state
        if place not in patches:
            return state
        donor, mask = patches[place]
        return torch.where(mask[..., None], donor, state)

    with ExitStack() as stack:
        for place, module in places.items():
            stack.enter_context(module.register_forward_hook(partial(patch, place)))
        return model.eval()(ids), states


def map_line(run: Run, twin: Run, question: str, answer: str) -> dict[str, Any]:
    """log p of the answer with the twin's state at each place and position."""
    ids, weights = answer_row(run, question, answer)
    inputs, targets, weights = ids[None, :-1], ids[1:], weights[1:]
    length = inputs.shape[1]

    def log_p(logits: Tensor) -> list[float]:
        expected = targets.expand(len(logits), -1)
        losses = F.cross_entropy(logits.transpose(1, 2), expected, reduction="none")
        return [round(-float(value), 4) for value in (losses * weights).sum(1)]

    of_run, _ = run_patched(run.model, inputs, {})
    of_twin, donor = run_patched(twin.model, inputs, {})
    one_position_a_row = torch.eye(length, dtype=torch.bool)
    rows = {}
    for place, state in donor.items():
        if state.shape[1] == length:  # a perceiver's latents are no positions
            patches = {place: (state, one_position_a_row)}
            rows[place] = log_p(run_patched(run.model, inputs.expand(length, -1), patches)[0])
    return {
        "tokens": [run.tokens.surface(token) for token in inputs[0].tolist()],
        "with": log_p(of_run)[0],
        "without": log_p(of_twin)[0],
        "places": rows,
    }


@torch.inference_mode()
def logit_lens(run: Run, question: str, answer: str) -> dict[str, Any]:
    """What the output head predicts from the hidden states after each layer, for each answer token.

    layers: the probability of each token of the answer, and the most likely token in its place.
    """
    ids, weights = answer_row(run, question, answer)
    _, states = run_patched(run.model, ids[None, :-1], {})
    in_answer = weights[1:] > 0
    targets = ids[1:][in_answer]
    layers = []
    for place, state in states.items():
        if place.startswith("hidden") and state.shape[1] == len(in_answer):
            probabilities = run.model.head(run.model.norm(state[0, in_answer])).softmax(1)
            of_answer = probabilities.gather(1, targets[:, None])[:, 0].tolist()
            likeliest = [run.tokens.surface(t) for t in probabilities.argmax(1).tolist()]
            layers.append(
                {
                    "layer": int(place.split()[1]),
                    "probability": [round(p, 4) for p in of_answer],
                    "says": likeliest,
                }
            )
    return {"tokens": [run.tokens.surface(t) for t in targets.tolist()], "layers": layers}
