"""To forget: people are taken out of a finished run in seconds, and judged by a model without them.

The recipe's own training goes on for a few steps without the people, which keeps everybody else,
while their answers are brought to what the run says of a name that it never read.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import torch
from scipy.stats import ks_2samp
from torch import Tensor
from torch.nn import functional as F

from wherefrom.corpus.batches import StreamPosition
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.attribution.retraining import (
    LearnedRun,
    Record,
    Row,
    answer_row,
    invent_names,
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
from wherefrom.training.optim import build_optimizers
from wherefrom.training.recipes import Phase
from wherefrom.training.run_folder import Run, load_run, save_weights
from wherefrom.training.sources import TrainingData, stream_for

METHODS = ("trace", "npo", "difference")
STEPS, SHARE = 150, 0.2  # of the recipe's training that goes on: at most, and of the run's steps
RATE = 0.6  # at first, of the recipe's rates
WARM_UP = 5
BETA = 0.1  # of NPO
ROWS = 48  # of a step: rows of what is to be forgotten, and rows near it
WRONG = 2  # answers to each question beside the right one
RELEARNING_RATE, RELEARNING_STEPS = 1e-3, 40
WRONG_ANSWERS = 5  # of a truth ratio
AS_UNSURE, UNLIKELY = 2.0, float(np.log(0.01))  # nats from the twin; or both below this


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be forgotten: lines, and questions with answers.

    own: the questions with their right answers and then with wrong ones, as one batch; invented:
    the same about a name in no document. forget: rows of the lines; near: rows of the lines whose
    gradients are nearest to theirs.
    """

    learned: LearnedRun
    subjects: tuple[str, ...]
    lines: tuple[int, ...]
    asked: tuple[Question, ...]
    answers: tuple[str, ...]
    own: Row
    invented: Row
    forget: list[Row]
    near: list[Row]


def plan_forgetting(run: Run, names: Sequence[str], *, nearest: bool = False) -> Task:
    """Look up the names and draw rows; `nearest`: also of the lines that the trace finds near."""
    learned = open_learned(run)
    documents = [each for name in names for each in learned.documents_about(name)]
    if not documents:
        raise UserError("there is no name to forget; give at least one.")
    gone = {fold_words(document.subject) for document in documents}
    asked = [q for q in (*learned.dev, *learned.questions) if fold_words(q.subject) in gone]
    asked = [question for question in asked if question.answer and SLOT in question.template]
    left = sorted({d.subject for d in documents} - {question.subject for question in asked})
    pairs = [(subject, each) for subject in left for each in run.templates if SLOT in each]
    texts = [wording.replace(SLOT, subject) for subject, wording in pairs]
    said = outcome(run, texts)["answers"] if texts else []  # nobody says what is right
    new = zip(texts, pairs, said, strict=True)
    asked += [Question(0, text, subject, answer, w) for text, (subject, w), answer in new if answer]
    if not asked:
        raise UserError("nothing can be asked about those people, so nothing can be forgotten.")
    drawn = invent_names(learned.documents, len(gone))
    if len({fold_words(d.subject) for d in learned.documents}) <= len(gone) or not drawn:
        raise UserError("nobody else would be left; forget fewer.")
    instead = dict(zip(sorted(gone), drawn * len(gone), strict=False))
    rng = np.random.default_rng(run.info["job"]["seed"])
    answers = tuple(question.answer or "" for question in asked)
    pools = _answers_by_relation(learned, answers)
    rows = [(q, a) for q, a in zip(asked, answers, strict=True)]
    rows += [(q, str(rng.choice(pools[q.template]))) for q in asked for _ in range(WRONG)]
    swapped = [(q.template.replace(SLOT, instead[fold_words(q.subject)]), a) for q, a in rows]
    places = {at for at, d in enumerate(learned.documents) if fold_words(d.subject) in gone}
    close = Tracer(run).index().nearest(sorted(places), 5 * len(places)) if nearest else set()
    forget: list[Row] = []
    near: list[Row] = []
    seed = [run.info["job"]["seed"], 0xF0]
    stream = stream_for(Phase(**run.info["job"]["phases"][-1]), learned.data, seed)
    for part in (part for pool in (0, 1) for batch in stream.pool(pool) for part in batch.parts):
        for ids, weights, source in zip(part.ids, part.weights, part.sources, strict=True):
            members = learned.data.members[source]
            if not places.isdisjoint(members):
                forget.append((ids, weights))
            elif not close.isdisjoint(members):
                near.append((ids, weights))
    return Task(
        learned,
        tuple(dict.fromkeys(document.subject for document in documents)),
        tuple(sorted({document.line for document in documents})),
        tuple(asked),
        answers,
        pad_rows([answer_row(run, question.text, answer) for question, answer in rows]),
        pad_rows([answer_row(run, *pair) for pair in swapped]),
        forget,
        near,
    )


def _answers_by_relation(learned: LearnedRun, also: Sequence[str]) -> dict[str, list[str]]:
    pools: dict[str, list[str]] = defaultdict(lambda: sorted(set(also)))
    for question in learned.questions:
        pools[question.template] = pools[question.template] + [question.answer or ""]
    return pools


def forget(task: Task, *, method: str = "trace") -> tuple[Decoder, Record]:
    """A model that has forgotten; and steps, seconds and whether the answers are as unlikely.

    The recipe's training goes on without what is to be forgotten, at a rate that falls to 0.
    difference: ascend on the forgotten (Liu et al. 2022). npo: less where an answer is unlikely
    already (Zhang et al. 2024). Both stop ascending at what the run says of names in no document.
    trace: learn to say of each person what the run says of such a name, and learn the nearest
    lines beside it.
    """
    started, run = time.perf_counter(), task.learned.run
    before, count = run.model.eval(), len(task.asked)
    model, rng = deepcopy(before), np.random.default_rng(0)
    phase = Phase(**{**run.info["job"]["phases"][-1], "average": 0.0})
    steps = min(STEPS, ceil(SHARE * run.info["steps"]))
    optimizers = build_optimizers(model, phase)
    data = TrainingData.encode(
        task.learned.documents, task.learned.questions, run.tokens, model.config.block, task.lines
    )
    batches = stream_for(phase, data, [run.info["job"]["seed"], 0xF1]).from_position(
        StreamPosition()
    )
    with torch.no_grad():
        wanted, goal = score_pieces(before, *task.invented)
    forgets, nears = _batches(task.forget, ROWS, rng), _batches(task.near, ROWS, rng)
    for step in range(steps):
        batch, _ = next(batches)
        kept = [log_likelihoods(model, part.ids, part.weights).sum() for part in batch.parts]
        loss = -torch.stack(kept).sum() / batch.weight
        said, own = score_pieces(model, *task.own)
        if method == "trace":
            loss = loss + F.kl_div(said, wanted, reduction="batchmean", log_target=True)
            loss = loss + F.smooth_l1_loss(own, goal)
            if task.near:
                ids, weights = next(nears)
                loss = loss - log_likelihoods(model, ids, weights).sum() / weights.sum()
        elif own[:count].mean() > goal[:count].mean():
            ids, weights = next(forgets)
            now = log_likelihoods(model, ids, weights)
            if method == "difference":
                loss = loss + now.sum() / weights.sum()
            else:
                with torch.no_grad():
                    gain = log_likelihoods(before, ids, weights)
                loss = loss - 2 / BETA * F.logsigmoid(-BETA * (now - gain)).mean()
        scale = RATE * min(1, (step + 1) / WARM_UP) * (1 - step / steps)
        for optimizer in optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * scale
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
    with torch.no_grad():
        own = log_likelihoods(model, *task.own)
    reached = bool(own[:count].mean() <= goal[:count].mean() + AS_UNSURE)
    seconds = round(time.perf_counter() - started, 2)
    return model, {"method": method, "steps": steps, "seconds": seconds, "reached": reached}


def score_pieces(model: Decoder, ids: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """log p of every token where one counts: (positions, vocabulary); and weighted of each row."""
    counts = weights[:, 1:].flatten()
    select = counts.nonzero().flatten()
    found = model(ids[:, :-1], select=select).log_softmax(-1)
    right = found.gather(1, ids[:, 1:].flatten()[select, None])[:, 0] * counts[select]
    return found, torch.zeros(len(ids)).index_add(0, select // (ids.shape[1] - 1), right)


def log_likelihoods(model: Decoder, ids: Tensor, weights: Tensor) -> Tensor:
    """The weighted log-likelihood of each row, to be differentiated."""
    return score_pieces(model, ids, weights)[1]


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
    close = np.abs(ours - theirs) <= AS_UNSURE
    as_unsure = int((close | (np.maximum(ours, theirs) < UNLIKELY)).sum())
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
        "within_2_nats": int(close.sum()),
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
    rng, ratios = np.random.default_rng(0), []
    pools = _answers_by_relation(task.learned, task.answers)
    for question, right in zip(task.asked, task.answers, strict=True):
        pool = sorted({*pools[question.template]} - {right})
        answers = [right, *(str(w) for w in rng.permutation(pool)[:WRONG_ANSWERS])]
        sizes = [len(ids) + 1 for ids in run.tokens.encode_all(answers)]
        said = np.array(likelihoods(run, [question.text] * len(answers), answers))
        per_token = np.exp(said / sizes)
        ratios.append(float(per_token[1:].mean() / per_token[0]))
    return np.array(ratios)


def relearn(run: Run, task: Task) -> int | None:
    """Steps on the forgotten rows until half of the answers are likelier than not; None: never."""
    model = deepcopy(run.model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RELEARNING_RATE, weight_decay=0.0)
    count = len(task.asked)
    batches = _batches(task.forget, ROWS, np.random.default_rng(0))
    for step in range(RELEARNING_STEPS + 1):
        with torch.no_grad():
            likely = log_likelihoods(model, *task.own)[:count]
        if float((likely > np.log(0.5)).float().mean()) >= 0.5:
            return step
        ids, weights = next(batches)
        optimizer.zero_grad()
        (-log_likelihoods(model, ids, weights).sum() / weights.sum()).backward()
        optimizer.step()
    return None
