"""To forget: people are taken out of a finished run in seconds, and judged by a model without them.

Every method takes small steps on rows drawn as the run drew them: some made of what is to be
forgotten, some of the rest. It stops once the answers about the forgotten are as unlikely as the
run finds the same answers for other names, which needs no model that never read of them.

    difference   descend on the rest, ascend on the forgotten (gradient difference; Liu et al. 2022)
    npo          the same, ascending less where the answer is unlikely already (Zhang et al. 2024)
    trace        pull the forgotten answers to what the run says of other names; half of the rest
                 are lines that the trace finds nearest to the forgotten ones

The judgement compares with the quiet twin that never read of them. `forget_quality` is TOFU's
(Maini et al. 2024): the p-value of a Kolmogorov-Smirnov test between the truth ratios of both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import ks_2samp
from torch import Tensor
from torch.nn import functional as F

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.attribution.gradients import answer_row
from wherefrom.provenance.attribution.leave_one_out import find_documents, twin_folder
from wherefrom.provenance.attribution.retraining import LearnedRun, likelihoods, open_learned
from wherefrom.provenance.attribution.trace import Tracer
from wherefrom.recall.decode import Recall, answer_all, score
from wherefrom.storage import make_folder, write_json, write_whole
from wherefrom.training.loop import Observer
from wherefrom.training.recipes import Phase
from wherefrom.training.run_folder import Run, load_run, save_weights
from wherefrom.training.sources import TrainingData, stream_for

METHODS = ("trace", "npo", "difference")
RATE = 1e-3
BETA = 0.1  # of NPO
MOST_STEPS = 200
FORGET_ROWS, KEEP_ROWS = 48, 96  # of a step
OTHER_NAMES = 8
WRONG_ANSWERS = 5  # of a truth ratio
AS_UNSURE = 2.0  # nats from the twin
RELEARNING_STEPS = 40

Row = tuple[Tensor, Tensor]  # token ids and loss weights


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be forgotten: lines, questions with the answers that the run learned; the rest."""

    learned: LearnedRun
    subjects: tuple[str, ...]
    lines: tuple[int, ...]
    asked: tuple[Question, ...]
    answers: tuple[str, ...]
    swapped: tuple[tuple[str, ...], ...]  # each question, about other names
    forget: tuple[Row, ...]
    keep: tuple[Row, ...]


def plan_forgetting(run: Run, names: Sequence[str], *, nearest: bool = False) -> Task:
    """Look up the names and draw rows; `nearest`: half of the rest are near the forgotten lines."""
    learned = open_learned(run)
    documents = [each for name in names for each in find_documents(learned.corpus, name)]
    if not documents:
        raise UserError("there is no name to forget; give at least one.")
    lines = tuple(sorted({document.line for document in documents}))
    gone = {fold_words(document.subject) for document in documents}
    asked = [q for q in (*learned.dev, *learned.questions) if fold_words(q.subject) in gone]
    asked = [question for question in asked if question.answer and SLOT in question.template]
    if not asked:
        raise UserError(
            "no question is about those people, so it cannot be seen what is forgotten."
        )
    rng = np.random.default_rng(run.info["job"]["seed"])
    others = sorted({d.subject for d in learned.documents if fold_words(d.subject) not in gone})
    if len(others) < OTHER_NAMES:
        raise UserError(f"only {len(others)} people would be left; forget fewer.")
    swapped = [
        tuple(
            question.template.replace(SLOT, str(name))
            for name in rng.choice(others, OTHER_NAMES, replace=False)
        )
        for question in asked
    ]
    data = TrainingData.encode(
        learned.documents, learned.questions, run.tokens, run.model.config.block
    )
    places = {at for at, document in enumerate(learned.documents) if document.line in set(lines)}
    close = _nearest(run, sorted(places)) if nearest else set()
    rows: dict[str, list[Row]] = {"forget": [], "keep": [], "near": []}
    phase = Phase(**run.info["job"]["phases"][-1])
    stream = stream_for(phase, data, [run.info["job"]["seed"], 0xF0])
    for part in (
        part for number in (0, 1) for batch in stream.pool(number) for part in batch.parts
    ):
        for ids, weights, source in zip(part.ids, part.weights, part.sources, strict=True):
            members = data.members[source]
            kind = "keep" if places.isdisjoint(members) else "forget"
            rows[kind].append((ids, weights))
            if kind == "keep" and not close.isdisjoint(members):
                rows["near"].append((ids, weights))
    repeats = len(rows["keep"]) // max(1, len(rows["near"])) if nearest else 0
    return Task(
        learned,
        tuple(dict.fromkeys(document.subject for document in documents)),
        lines,
        tuple(asked),
        tuple(question.answer or "" for question in asked),
        tuple(swapped),
        tuple(rows["forget"]),
        (*rows["keep"], *rows["near"] * repeats),
    )


def _nearest(run: Run, places: Sequence[int]) -> set[int]:
    """As many documents as five a forgotten one, whose gradients are nearest to them."""
    documents = Tracer(run).index().documents.float()
    near = (documents[list(places)] @ documents.T).amax(0)
    near[list(places)] = -2
    return set(near.topk(min(5 * len(places), len(documents) - len(places))).indices.tolist())


def forget(
    run: Run, task: Task, *, method: str = "trace", seed: int = 0
) -> tuple[Decoder, dict[str, Any]]:
    """A model that has forgotten; and steps, seconds and whether the target was reached."""
    if method not in METHODS:
        raise UserError(f'there is no method "{method}"; there are {", ".join(METHODS)}.')
    started = time.perf_counter()
    model, before = deepcopy(run.model).eval(), run.model.eval()
    rng = np.random.default_rng(seed)
    target = _other_names(run, task)
    rows = [answer_row(run, q.text, a) for q, a in zip(task.asked, task.answers, strict=True)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    likely, step = np.full(len(rows), np.inf), 0
    forgets, keeps = _batches(task.forget, FORGET_ROWS, rng), _batches(task.keep, KEEP_ROWS, rng)
    for step in range(MOST_STEPS + 1):
        likely = _log_likelihoods(model, *pad_rows(rows)).detach().numpy()
        if step == MOST_STEPS or likely.mean() <= target.mean():
            break
        ids, weights = next(forgets)
        kept = next(keeps)
        loss = -_log_likelihoods(model, *kept).sum() / kept[1].sum()
        said = _log_likelihoods(model, ids, weights)
        if method == "difference":
            loss = loss + said.sum() / weights.sum()
        elif method == "npo":
            with torch.no_grad():
                reference = _log_likelihoods(before, ids, weights)
            loss = loss - 2 / BETA * F.logsigmoid(-BETA * (said - reference)).mean()
        else:
            goal = torch.from_numpy(target).float()
            own = _log_likelihoods(model, *pad_rows(rows))
            loss = loss + F.smooth_l1_loss(own, goal)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model, {
        "method": method,
        "steps": step,
        "seconds": round(time.perf_counter() - started, 2),
        "reached": bool(likely.mean() <= target.mean()),
    }


def _other_names(run: Run, task: Task) -> np.ndarray:
    """log p of each answer to the same question about other names: the mean over names."""
    texts = [text for texts in task.swapped for text in texts]
    answers = [answer for answer in task.answers for _ in range(OTHER_NAMES)]
    return np.array(likelihoods(run, texts, answers)).reshape(-1, OTHER_NAMES).mean(1)


def pad_rows(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one batch; what is added counts nothing."""
    longest = max(len(ids) for ids, _ in rows)
    pads = [(F.pad(i, (0, longest - len(i))), F.pad(w, (0, longest - len(w)))) for i, w in rows]
    return torch.stack([ids for ids, _ in pads]), torch.stack([weights for _, weights in pads])


def _batches(
    rows: Sequence[Row], size: int, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield pad_rows([rows[at] for at in rng.integers(len(rows), size=min(size, len(rows)))])


def _log_likelihoods(model: Decoder, ids: Tensor, weights: Tensor) -> Tensor:
    """The weighted log-likelihood of each row."""
    losses = F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:], reduction="none")
    return -(losses * weights[:, 1:]).sum(1)


def check_out(out: Path) -> None:
    """Refuse a folder that holds anything."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already and holds files; choose another --out.")


def save_forgotten(run: Run, task: Task, model: Decoder, about: dict[str, Any], out: Path) -> Run:
    """A run folder like the run's own, with the new weights and what was forgotten."""
    check_out(out)
    make_folder(out)
    for name in ("config.json", "tokenizer.json"):
        write_whole(out / name, (run.folder / name).read_text(encoding="utf-8"))
    job = {**run.info["job"], "kind": "forgotten", "without": list(task.lines)}
    digest = save_weights(out / "model.safetensors", model.state_dict())
    kept = {key: value for key, value in run.info.items() if key not in ("results", "judgement")}
    info = {**kept, "kind": "forgotten", "job": job, "sha256": digest, "forgot": about}
    write_json(out / "run.json", info)
    return load_run(out)


def judge_forgetting(
    task: Task,
    forgotten: Run,
    *,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """How the forgotten run compares with the run, and with the quiet twin that never read them."""
    run, learned = task.learned.run, task.learned
    say("training the model that never read of them, to judge by")
    twin = learned.retrain(task.lines, twin_folder(run, *task.subjects), observe=observe)
    ratios = {
        name: _truth_ratios(each, task) for name, each in (("ours", forgotten), ("twin", twin))
    }
    texts = [question.text for question in task.asked]
    ours, theirs = (np.array(likelihoods(each, texts, task.answers)) for each in (forgotten, twin))
    as_unsure = int((np.abs(ours - theirs) <= AS_UNSURE).sum())
    others = [q for q in learned.dev if q.answer and q.subject not in set(task.subjects)]
    models = {"run": run, "forgotten": forgotten, "twin": twin}
    return {
        "questions": len(texts),
        "forget_quality": float(ks_2samp(ratios["ours"], ratios["twin"]).pvalue),
        "as_unsure": as_unsure,
        "still_right": {name: _recall(each, task.asked).correct for name, each in models.items()},
        "recall_of_others": {
            name: _recall(each, others).to_dict() for name, each in models.items()
        },
        "relearning_steps": {
            name: relearn(each, task) for name, each in models.items() if name != "run"
        },
        "retraining_seconds": twin.info["seconds"],
        "why": f"as unsure of them as the model that never read them: {as_unsure} of {len(texts)}",
    }


def _recall(run: Run, questions: Sequence[Question]) -> Recall:
    said = answer_all(run.model, run.tokens, [question.text for question in questions])
    return score([each.text for each in said], [question.answer or "" for question in questions])


def _truth_ratios(run: Run, task: Task) -> np.ndarray:
    """TOFU's: how likely wrong answers are beside the right one, each per token."""
    rng = np.random.default_rng(0)
    pools: dict[str, list[str]] = {}
    for question in task.learned.questions:
        pools.setdefault(question.template, []).append(question.answer or "")
    ratios = []
    for question, right in zip(task.asked, task.answers, strict=True):
        pool = sorted({*pools.get(question.template, ()), *task.answers} - {right})
        wrong = [str(w) for w in rng.permutation(pool)[:WRONG_ANSWERS]]
        said = likelihoods(run, [question.text] * (1 + len(wrong)), [right, *wrong])
        sizes = [len(ids) + 1 for ids in run.tokens.encode_all([right, *wrong])]
        per_token = np.exp(np.array(said) / sizes)
        ratios.append(float(per_token[1:].mean() / per_token[0]))
    return np.array(ratios)


def relearn(run: Run, task: Task) -> int | None:
    """Steps on the forgotten rows until half of the answers are likelier than not; None: never."""
    model = deepcopy(run.model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    rows = [answer_row(run, q.text, a) for q, a in zip(task.asked, task.answers, strict=True)]
    batches = _batches(task.forget, FORGET_ROWS, np.random.default_rng(0))
    for step in range(RELEARNING_STEPS + 1):
        with torch.no_grad():
            likely = _log_likelihoods(model, *pad_rows(rows))
        if float((likely > np.log(0.5)).float().mean()) >= 0.5:
            return step
        ids, weights = next(batches)
        optimizer.zero_grad()
        (-_log_likelihoods(model, ids, weights).sum() / weights.sum()).backward()
        optimizer.step()
    return None
