"""Unlearning: people are taken out of a finished run in seconds; a model without them judges it.

The recipe's training goes on for a few steps without the people, which keeps everybody else, while
the answers about them are brought to what the run says of a name that it never read.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import cycle
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
    likelihoods,
    open_learned,
    outcome,
    pad_rows,
    recombine_names,
)
from wherefrom.provenance.attribution.trace import Tracer
from wherefrom.provenance.attribution.twins import twin_folder
from wherefrom.recall.decode import Recall, score
from wherefrom.storage import make_folder, sha256_of, write_whole
from wherefrom.training.loop import Observer
from wherefrom.training.optim import build_optimizers
from wherefrom.training.record import write_record
from wherefrom.training.run_folder import MODEL_FILES, Run, load_run, save_weights
from wherefrom.training.sources import TrainingData, stream_for

STEPS, SHARE = 150, 0.2  # of the recipe's training that goes on: at most, and of the run's steps
RATE = 0.6  # at first, of the recipe's rates
WARM_UP = 5
ROWS = 48  # of a step: rows near what is to be forgotten
EXAMPLES = 4  # drawn from each training record of a document
NEAREST = 5  # documents whose gradients are nearest, for each document that is forgotten
WRONG = 2  # answers to each question beside the right one
RELEARNING_RATE, RELEARNING_STEPS = 1e-3, 40
WRONG_ANSWERS = 5  # of a truth ratio
AS_UNSURE, UNLIKELY = 2.0, float(np.log(0.01))  # nats from the twin; or both below this
AddedLoss = Callable[[Decoder], Tensor]  # what a step adds to the loss of the recipe's training


@dataclass(frozen=True, eq=False)
class ForgettingTask:
    """What is to be forgotten: subjects, their lines, and questions about them with right answers.

    own: the questions with their right answers and then with wrong ones, as one batch; invented:
    the same about a name in no document. forgotten_rows: training rows of the lines; near_rows:
    those of the lines whose gradients are nearest to theirs.
    """

    learned: LearnedRun
    subjects: tuple[str, ...]
    lines: list[int]
    questions: list[Question]
    answers: list[str]
    own: Row
    invented: Row
    forgotten_rows: list[Row]
    near_rows: list[Row]


def plan_forgetting(run: Run, names: Sequence[str], *, nearest: bool = True) -> ForgettingTask:
    """Look up the names and draw rows; `nearest`: also of the lines that the trace finds near."""
    learned = open_learned(run)
    documents = [document for name in names for document in learned.documents_about(name)]
    if not documents:
        raise UserError("there is no name to forget; give at least one.")
    subjects = tuple(dict.fromkeys(document.subject for document in documents))
    folded = {fold_words(subject) for subject in subjects}
    questions = questions_about(learned, subjects)
    if not questions:
        raise UserError("nothing can be asked about those people, so nothing can be forgotten.")
    invented = recombine_names(learned.documents, len(folded))
    if set(learned.subjects) == folded or not invented:
        raise UserError("nobody else would be left; forget fewer.")
    invented_for = dict(zip(sorted(folded), cycle(invented), strict=False))
    answers = [question.answer or "" for question in questions]
    pools = answers_by_relation(learned, answers)
    rng = np.random.default_rng(run.job.seed)
    pairs = list(zip(questions, answers, strict=True))
    pairs += [(q, str(rng.choice(pools[q.template]))) for q in questions for _ in range(WRONG)]
    own = [answer_row(run, question.text, answer) for question, answer in pairs]
    about_invented = [
        answer_row(run, q.template.replace(SLOT, invented_for[fold_words(q.subject)]), answer)
        for q, answer in pairs
    ]
    indices = {i for i, subject in enumerate(learned.subjects) if subject in folded}
    near = set()
    if nearest:
        near = Tracer(run).index.nearest(sorted(indices), NEAREST * len(indices))
    return ForgettingTask(
        learned=learned,
        subjects=subjects,
        lines=sorted({document.line for document in documents}),
        questions=questions,
        answers=answers,
        own=pad_rows(own),
        invented=pad_rows(about_invented),
        forgotten_rows=rows_of_documents(learned, indices),
        near_rows=rows_of_documents(learned, near) if near else [],
    )


def rows_of_documents(learned: LearnedRun, indices: Collection[int]) -> list[Row]:
    """Training rows of some documents: EXAMPLES of each record, from every phase of the run."""
    job, data, wanted = learned.run.job, learned.data, set(indices)
    rng = np.random.default_rng([job.seed, 0xF0])
    rows = []
    for phase in job.phases:
        for source in stream_for(phase, data, [job.seed]).sources:
            for record, number in enumerate(source.numbers):
                if wanted.isdisjoint(data.documents_of(number)):
                    continue
                for _ in range(EXAMPLES):
                    example = source.make(record, rng)
                    ids, weights = map(torch.from_numpy, (example.ids, example.weights))
                    rows.append((ids.long(), weights))
    return rows


def questions_about(learned: LearnedRun, subjects: Sequence[str]) -> list[Question]:
    """Questions of the files about the subjects; about others, what the run itself answers."""
    run, folded = learned.run, {fold_words(subject) for subject in subjects}
    questions = [
        question
        for question in (*learned.dev, *learned.questions)
        if fold_words(question.subject) in folded and question.answer and SLOT in question.template
    ]
    without = sorted(set(subjects) - {question.subject for question in questions})
    templates = [template for template in run.templates if SLOT in template]
    more = [
        Question(0, template.replace(SLOT, subject), subject, None, template)
        for subject in without
        for template in templates
    ]
    answers = outcome(run, [q.text for q in more])["answers"] if more else []
    pairs = zip(more, answers, strict=True)
    return questions + [replace(question, answer=answer) for question, answer in pairs if answer]


def answers_by_relation(learned: LearnedRun, answers: Sequence[str]) -> dict[str, list[str]]:
    """Answers to draw wrong ones from, by template: those given, and those to learned questions."""
    pools: dict[str, list[str]] = defaultdict(lambda: sorted(set(answers)))
    for question in learned.questions:
        pools[question.template].append(question.answer or "")
    return pools


def pull_to_invented(task: ForgettingTask) -> AddedLoss:
    """Learn to say of each person what the run says of a name in no document.

    The lines whose gradients are nearest are learned once more beside it.
    """
    with torch.no_grad():
        target_pieces, target = score_pieces(task.learned.run.model.eval(), *task.invented)
    near_batches = row_batches(task.near_rows, np.random.default_rng(0))

    def added_loss(model: Decoder) -> Tensor:
        pieces, own = score_pieces(model, *task.own)
        loss = F.kl_div(pieces, target_pieces, reduction="batchmean", log_target=True)
        loss = loss + F.smooth_l1_loss(own, target)
        if task.near_rows:
            ids, weights = next(near_batches)
            loss = loss - log_likelihoods(model, ids, weights).sum() / weights.sum()
        return loss

    return added_loss


def forget(
    task: ForgettingTask, make_loss: Callable[[ForgettingTask], AddedLoss] = pull_to_invented
) -> tuple[Decoder, Record]:
    """A model that has forgotten; and steps, seconds and whether the answers are as unlikely.

    The recipe's training goes on without what is to be forgotten, at a rate that falls to 0, with
    a loss that is added to each step.
    """
    started, learned, run = time.perf_counter(), task.learned, task.learned.run
    model, added_loss = deepcopy(run.model.eval()), make_loss(task)
    phase = run.job.phases[-1].model_copy(update={"average": 0.0})
    steps = min(STEPS, ceil(SHARE * run.record.steps))
    optimizers = build_optimizers(model, phase)
    data = TrainingData.encode(
        learned.corpus, learned.questions, run.tokens, model.config.block, task.lines
    )
    stream = stream_for(phase, data, [run.job.seed, 0xF1])
    batches = stream.from_position(StreamPosition())
    for step in range(steps):
        batch, _ = next(batches)
        kept = [log_likelihoods(model, part.ids, part.weights).sum() for part in batch.parts]
        loss = -torch.stack(kept).sum() / batch.weight + added_loss(model)
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
        own, target = (
            log_likelihoods(each, *rows)[: len(task.questions)].mean()
            for each, rows in ((model, task.own), (run.model, task.invented))
        )
    seconds = round(time.perf_counter() - started, 2)
    return model, {"steps": steps, "seconds": seconds, "reached": bool(own <= target + AS_UNSURE)}


def score_pieces(model: Decoder, ids: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """log p of the vocabulary at each weighted position; and the weighted log p of each row."""
    weights = weights[:, 1:].flatten()
    select = weights.nonzero().flatten()
    log_p = model(ids[:, :-1], select=select).log_softmax(-1)
    of_targets = log_p.gather(1, ids[:, 1:].flatten()[select, None])[:, 0] * weights[select]
    return log_p, torch.zeros(len(ids)).index_add(0, select // (ids.shape[1] - 1), of_targets)


def log_likelihoods(model: Decoder, ids: Tensor, weights: Tensor) -> Tensor:
    """The weighted log-likelihood of each row, to be differentiated."""
    return score_pieces(model, ids, weights)[1]


def row_batches(rows: Sequence[Row], rng: np.random.Generator) -> Iterator[Row]:
    """An endless stream of batches of ROWS rows, drawn at random."""
    while True:
        drawn = rng.integers(len(rows), size=min(ROWS, len(rows)))
        yield pad_rows([rows[i] for i in drawn])


def forget_people(
    run: Run,
    names: Sequence[str],
    out: Path,
    *,
    exact: bool = False,
    judge: bool = False,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Record:
    """Leave a run in `out` that has forgotten some people, and judge it if wanted.

    exact: the run is trained again without them, instead of being trained on for a few steps.
    """
    task = plan_forgetting(run, names, nearest=not exact)
    about: Record = {"exact": exact, "reached": True}
    if exact:
        forgotten = task.learned.retrain(task.lines, out, observe=observe)
        about |= forgotten.record.model_dump(include={"steps", "seconds"})
    else:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out} already contains files; choose another --out.")
        model, found = forget(task)
        about |= found
        write_forgotten(task, model, out, about)
        forgotten = load_run(out)
    if judge:
        say("training the model that never read of them, to judge by")
        twin = task.learned.retrain(task.lines, twin_folder(run, *task.subjects), observe=observe)
        about = about | judge_forgetting(task, forgotten, twin)
    return {"run": str(out), "names": list(task.subjects), "lines": task.lines, **about}


def write_forgotten(task: ForgettingTask, model: Decoder, out: Path, about: Record) -> None:
    """Write the run that has forgotten; run.json is the last, and makes it one."""
    run = task.learned.run
    make_folder(out)
    for name in ("config.json", "tokenizer.json"):
        write_whole(out / name, (run.folder / name).read_bytes())
    save_weights(out / "model.safetensors", model.state_dict())
    files = {name: sha256_of(out / name) for name in MODEL_FILES}
    changes = {
        "kind": "forgotten",
        "job": run.job.model_copy(update={"kind": "forgotten", "without": tuple(task.lines)}),
        "sha256": files["model.safetensors"],
        "files": files,
        "forgot": about,
        "results": (),
        "judgement": None,
    }
    write_record(out, run.record.model_copy(update=changes))


def judge_forgetting(task: ForgettingTask, forgotten: Run, twin: Run) -> Record:
    """How the forgotten run compares with the run, and with the twin that never read the lines."""
    texts = [question.text for question in task.questions]
    log_p, log_p_twin = (np.array(likelihoods(m, texts, task.answers)) for m in (forgotten, twin))
    close = np.abs(log_p - log_p_twin) <= AS_UNSURE
    as_unsure = int((close | (np.maximum(log_p, log_p_twin) < UNLIKELY)).sum())
    others = [q for q in task.learned.dev if q.answer and q.subject not in task.subjects]
    models = {"run": task.learned.run, "forgotten": forgotten, "twin": twin}

    def recall(model: Run, questions: Sequence[Question]) -> Recall:
        answers = outcome(model, [question.text for question in questions])["answers"]
        return score(answers, [question.answer or "" for question in questions])

    return {
        "questions": len(texts),
        "forget_quality": float(
            ks_2samp(truth_ratios(forgotten, task), truth_ratios(twin, task)).pvalue
        ),
        "as_unsure": as_unsure,
        "within_2_nats": int(close.sum()),
        "still_right": {name: recall(m, task.questions).correct for name, m in models.items()},
        "recall_of_others": {name: recall(m, others).to_dict() for name, m in models.items()},
        "relearning_steps": {"forgotten": relearn(forgotten, task), "twin": relearn(twin, task)},
        "retraining_seconds": twin.record.seconds,
        "why": f"as unsure of them as the model that never read them: {as_unsure} of {len(texts)}",
    }


def truth_ratios(run: Run, task: ForgettingTask) -> np.ndarray:
    """TOFU's (Maini et al. 2024): how likely wrong answers are beside the right one, per token."""
    rng, ratios = np.random.default_rng(0), []
    pools = answers_by_relation(task.learned, task.answers)
    for question, right in zip(task.questions, task.answers, strict=True):
        wrong = rng.permutation(sorted({*pools[question.template]} - {right}))[:WRONG_ANSWERS]
        answers = [right, *map(str, wrong)]
        sizes = [len(ids) + 1 for ids in run.tokens.encode_all(answers)]
        log_p = np.array(likelihoods(run, [question.text] * len(answers), answers))
        per_token = np.exp(log_p / sizes)
        ratios.append(float(per_token[1:].mean() / per_token[0]))
    return np.array(ratios)


def relearn(run: Run, task: ForgettingTask) -> int | None:
    """Steps on the forgotten rows until half of the answers are likelier than not; None: never."""
    if not task.forgotten_rows:
        return None
    model = deepcopy(run.model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RELEARNING_RATE, weight_decay=0.0)
    batches = row_batches(task.forgotten_rows, np.random.default_rng(0))
    for step in range(RELEARNING_STEPS + 1):
        with torch.no_grad():
            log_p = log_likelihoods(model, *task.own)[: len(task.questions)]
        if float((log_p > np.log(0.5)).float().mean()) >= 0.5:
            return step
        ids, weights = next(batches)
        optimizer.zero_grad()
        (-log_likelihoods(model, ids, weights).sum() / weights.sum()).backward()
        optimizer.step()
    return None
