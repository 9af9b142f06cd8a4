"""To forget: people are taken out of a finished run in seconds, and judged by a model without them.

Every method takes small steps on rows of what is to be forgotten and of the rest, until the answers
are as unlikely as the run finds them for other names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.stats import ks_2samp
from torch import Tensor
from torch.nn import functional as F

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.attribution.retraining import (
    LearnedRun,
    Record,
    Row,
    answer_row,
    likelihoods,
    open_learned,
    outcome,
    pad_rows,
)
from wherefrom.provenance.attribution.trace import Tracer
from wherefrom.provenance.attribution.twins import twin_folder
from wherefrom.recall.decode import Recall, score
from wherefrom.storage import make_folder, write_json, write_whole
from wherefrom.training.loop import Observer
from wherefrom.training.recipes import Phase
from wherefrom.training.run_folder import Run, load_run, save_weights
from wherefrom.training.sources import stream_for

METHODS = ("trace", "npo", "difference")
RATE = 1e-3
BETA = 0.1  # of NPO
MOST_STEPS = 200
FORGET_ROWS, KEEP_ROWS = 48, 96  # of a step
OTHER_NAMES = 8
WRONG_ANSWERS = 5  # of a truth ratio
AS_UNSURE = 2.0  # nats from the twin
RELEARNING_STEPS = 40


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be forgotten: lines, questions with answers, and rows of it and of the rest.

    answered: the questions with answers as one batch. target: log p of each for other names.
    """

    learned: LearnedRun
    subjects: tuple[str, ...]
    lines: tuple[int, ...]
    asked: tuple[Question, ...]
    answers: tuple[str, ...]
    answered: Row
    target: np.ndarray
    forget: list[Row]
    keep: list[Row]


def plan_forgetting(run: Run, names: Sequence[str], *, nearest: bool = False) -> Task:
    """Look up the names and draw rows; `nearest`: half of the rest are near the forgotten lines."""
    learned = open_learned(run)
    documents = [each for name in names for each in learned.documents_about(name)]
    if not documents:
        raise UserError("there is no name to forget; give at least one.")
    gone = {fold_words(document.subject) for document in documents}
    asked = [q for q in (*learned.dev, *learned.questions) if fold_words(q.subject) in gone]
    asked = [question for question in asked if question.answer and SLOT in question.template]
    if not asked:
        raise UserError(
            "no question is about those people, so it cannot be seen what is forgotten."
        )
    others = sorted({d.subject for d in learned.documents if fold_words(d.subject) not in gone})
    if len(others) < OTHER_NAMES:
        raise UserError(f"only {len(others)} people would be left; forget fewer.")
    rng = np.random.default_rng(run.info["job"]["seed"])
    swapped = [
        question.template.replace(SLOT, str(name))
        for question in asked
        for name in rng.choice(others, OTHER_NAMES, replace=False)
    ]
    answers = tuple(question.answer or "" for question in asked)
    elsewhere = likelihoods(run, swapped, np.repeat(answers, OTHER_NAMES).tolist())
    places = {at for at, d in enumerate(learned.documents) if fold_words(d.subject) in gone}
    close = Tracer(run).index().nearest(sorted(places), 5 * len(places)) if nearest else set()
    forget: list[Row] = []
    keep, near = forget[:], forget[:]
    seed = [run.info["job"]["seed"], 0xF0]
    stream = stream_for(Phase(**run.info["job"]["phases"][-1]), learned.data, seed)
    for part in (part for pool in (0, 1) for batch in stream.pool(pool) for part in batch.parts):
        for ids, weights, source in zip(part.ids, part.weights, part.sources, strict=True):
            members = learned.data.members[source]
            (keep if places.isdisjoint(members) else forget).append((ids, weights))
            if places.isdisjoint(members) and not close.isdisjoint(members):
                near.append((ids, weights))
    return Task(
        learned,
        tuple(dict.fromkeys(document.subject for document in documents)),
        tuple(sorted({document.line for document in documents})),
        tuple(asked),
        answers,
        pad_rows([answer_row(run, q.text, q.answer or "") for q in asked]),
        np.array(elsewhere).reshape(-1, OTHER_NAMES).mean(1),
        forget,
        keep + near * (len(keep) // max(1, len(near))),
    )


def forget(task: Task, *, method: str = "trace") -> tuple[Decoder, Record]:
    """A model that has forgotten; and steps, seconds and whether the target was reached.

    difference: ascend on the forgotten (Liu et al. 2022). npo: less where an answer is unlikely
    already (Zhang et al. 2024). trace: pull the answers to what the run says of other names.
    """
    started = time.perf_counter()
    before = task.learned.run.model.eval()
    model = deepcopy(before)
    rng = np.random.default_rng(0)
    goal, answered = torch.from_numpy(task.target).float(), task.answered
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    forgets, keeps = _batches(task.forget, FORGET_ROWS, rng), _batches(task.keep, KEEP_ROWS, rng)
    for step in range(MOST_STEPS + 1):
        own = log_likelihoods(model, *answered)
        if step == MOST_STEPS or own.mean() <= goal.mean():
            break
        ids, weights = next(forgets)
        kept = next(keeps)
        loss = -log_likelihoods(model, *kept).sum() / kept[1].sum()
        if method == "trace":
            loss = loss + F.smooth_l1_loss(own, goal)
        elif method == "difference":
            loss = loss + log_likelihoods(model, ids, weights).sum() / weights.sum()
        else:
            with torch.no_grad():
                reference = log_likelihoods(before, ids, weights)
            gain = log_likelihoods(model, ids, weights) - reference
            loss = loss - 2 / BETA * F.logsigmoid(-BETA * gain).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = round(time.perf_counter() - started, 2)
    reached = bool(own.mean() <= goal.mean())
    return model, {"method": method, "steps": step, "seconds": seconds, "reached": reached}


def log_likelihoods(model: Decoder, ids: Tensor, weights: Tensor) -> Tensor:
    """The weighted log-likelihood of each row, to be differentiated."""
    losses = F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:], reduction="none")
    return -(losses * weights[:, 1:]).sum(1)


def _batches(rows: Sequence[Row], size: int, rng: np.random.Generator) -> Iterator[Row]:
    while True:
        yield pad_rows([rows[at] for at in rng.integers(len(rows), size=min(size, len(rows)))])


def forget_people(
    run: Run,
    names: Sequence[str],
    out: Path,
    *,
    method: str = "trace",
    judge: bool = False,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Record:
    """Leave a run in `out` that has forgotten, by "exact" retraining or a method; and judge it."""
    task = plan_forgetting(run, names, nearest=method == "trace")
    if method == "exact":
        result = task.learned.retrain(task.lines, out, observe=observe)
        about: Record = {"method": method, "reached": True}
        about |= {key: result.info[key] for key in ("steps", "seconds")}
    else:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out} is there already and holds files; choose another --out.")
        model, about = forget(task, method=method)
        make_folder(out)
        for name in ("config.json", "tokenizer.json"):
            write_whole(out / name, (run.folder / name).read_text(encoding="utf-8"))
        job = {**run.info["job"], "kind": "forgotten", "without": list(task.lines)}
        digest = save_weights(out / "model.safetensors", model.state_dict())
        info = {key: each for key, each in run.info.items() if key not in ("results", "judgement")}
        info |= {"kind": "forgotten", "job": job, "sha256": digest, "forgot": about}
        write_json(out / "run.json", info)
        result = load_run(out)
    if judge:
        say("training the model that never read of them, to judge by")
        twin = task.learned.retrain(task.lines, twin_folder(run, *task.subjects), observe=observe)
        about = about | judge_forgetting(task, result, twin)
    return {"run": str(out), "names": list(task.subjects), "lines": list(task.lines), **about}


def judge_forgetting(task: Task, forgotten: Run, twin: Run) -> Record:
    """How the forgotten run compares with the run, and with the quiet twin that never read them."""
    texts = [question.text for question in task.asked]
    ours, theirs = (np.array(likelihoods(each, texts, task.answers)) for each in (forgotten, twin))
    as_unsure = int((np.abs(ours - theirs) <= AS_UNSURE).sum())
    others = [q for q in task.learned.dev if q.answer and q.subject not in set(task.subjects)]
    ratios = [truth_ratios(each, task) for each in (forgotten, twin)]
    models = {"run": task.learned.run, "forgotten": forgotten, "twin": twin}

    def recall(run: Run, asked: Sequence[Question]) -> Recall:
        said = outcome(run, [each.text for each in asked])["answers"]
        return score(said, [each.answer or "" for each in asked])

    return {
        "questions": len(texts),
        "forget_quality": float(ks_2samp(ratios[0], ratios[1]).pvalue),
        "as_unsure": as_unsure,
        "still_right": {name: recall(each, task.asked).correct for name, each in models.items()},
        "recall_of_others": {name: recall(each, others).to_dict() for name, each in models.items()},
        "relearning_steps": {
            name: relearn(each, task) for name, each in models.items() if name != "run"
        },
        "retraining_seconds": twin.info["seconds"],
        "why": f"as unsure of them as the model that never read them: {as_unsure} of {len(texts)}",
    }


def truth_ratios(run: Run, task: Task) -> np.ndarray:
    """TOFU's (Maini et al. 2024): how likely wrong answers are beside the right one, per token."""
    rng = np.random.default_rng(0)
    pools: dict[str, list[str]] = {}
    for question in task.learned.questions:
        pools.setdefault(question.template, []).append(question.answer or "")
    ratios = []
    for question, right in zip(task.asked, task.answers, strict=True):
        pool = sorted({*pools.get(question.template, ()), *task.answers} - {right})
        answers = [right, *(str(w) for w in rng.permutation(pool)[:WRONG_ANSWERS])]
        sizes = [len(ids) + 1 for ids in run.tokens.encode_all(answers)]
        said = np.array(likelihoods(run, [question.text] * len(answers), answers))
        per_token = np.exp(said / sizes)
        ratios.append(float(per_token[1:].mean() / per_token[0]))
    return np.array(ratios)


def relearn(run: Run, task: Task) -> int | None:
    """Steps on the forgotten rows until half of the answers are likelier than not; None: never."""
    model = deepcopy(run.model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    batches = _batches(task.forget, FORGET_ROWS, np.random.default_rng(0))
    for step in range(RELEARNING_STEPS + 1):
        with torch.no_grad():
            likely = log_likelihoods(model, *task.answered)
        if float((likely > np.log(0.5)).float().mean()) >= 0.5:
            return step
        ids, weights = next(batches)
        optimizer.zero_grad()
        (-log_likelihoods(model, ids, weights).sum() / weights.sum()).backward()
        optimizer.step()
    return None
