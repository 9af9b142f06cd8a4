"""Unlearning: people are taken out of a finished run in seconds; a model without them judges it.

The recipe's training goes on for a few steps without the people, which keeps everybody else, while
the answers about them are brought to what the run says of a name that it never read. What is to be
forgotten (`plan_forgetting`), the order of work (`forget_people`) and the judgement
(`judge_forgetting`) are the same for a model of Hugging Face, which brings its own training.
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
from typing import NamedTuple

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
    answer_lengths,
    answer_row,
    likelihoods,
    outcome,
    pad_rows,
    recombine_names,
)
from wherefrom.provenance.attribution.trace import Tracer
from wherefrom.provenance.attribution.twins import twin_folder
from wherefrom.provenance.audited import open_run
from wherefrom.recall.table import Recall, score
from wherefrom.storage import make_folder, sha256_of, write_whole
from wherefrom.training.checkpoints import save_weights
from wherefrom.training.loop import Observer
from wherefrom.training.optim import build_optimizers
from wherefrom.training.record import write_record
from wherefrom.training.run_folder import MODEL_FILES, Run
from wherefrom.training.sources import TrainingData, stream_for

STEPS, SHARE = 150, 0.2  # of the recipe's training that goes on: at most, and of the run's steps
RATE = 0.6  # at first, of the recipe's rates
WARM_UP = 5
ROWS = 48  # of a step: rows near what is to be forgotten
EXAMPLES = 4  # drawn from each training record of a document
NEAREST = 5  # documents whose gradients are nearest, for each document that is forgotten
WRONG = 2  # answers to each question beside the right one
WRONG_ANSWERS = 5  # of a truth ratio
AS_UNSURE, UNLIKELY = 2.0, float(np.log(0.01))  # nats from the twin; or both below this
AddedLoss = Callable[[Decoder], Tensor]  # what a step adds to the loss of the recipe's training


class Target(NamedTuple):
    """A question about a person, the same about an invented name, and an answer to both."""

    question: str
    about_invented: str
    answer: str


@dataclass(frozen=True, eq=False)
class ForgettingPlan:
    """What a run is to forget: subjects, their lines, and questions with the right answers.

    targets: the questions with their right answers, and then with wrong ones.
    """

    learned: LearnedRun
    subjects: tuple[str, ...]
    lines: list[int]
    questions: list[Question]
    targets: list[Target]

    @property
    def right(self) -> list[Target]:
        """The questions with their right answers."""
        return self.targets[: len(self.questions)]


def plan_forgetting(learned: LearnedRun, names: Sequence[str]) -> ForgettingPlan:
    """Look up the names, or refuse, before anything is trained."""
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
    rng = np.random.default_rng(learned.run.record.job.seed)
    pairs = list(zip(questions, answers, strict=True))
    pairs += [(q, str(rng.choice(pools[q.template]))) for q in questions for _ in range(WRONG)]
    targets = []
    for question, answer in pairs:
        invented_name = invented_for[fold_words(question.subject)]
        about_invented = question.template.replace(SLOT, invented_name)
        targets.append(Target(question.text, about_invented, answer))
    lines = sorted({document.line for document in documents})
    return ForgettingPlan(learned, subjects, lines, questions, targets)


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


def pull_to_invented(plan: ForgettingPlan) -> AddedLoss:
    """Learn to say of each person what the run says of a name in no document.

    The lines whose gradients are nearest are learned once more beside it.
    """
    run, learned = plan.learned.run, plan.learned
    own, invented = (
        pad_rows([answer_row(run, question, target.answer) for question, target in pairs])
        for pairs in (
            [(target.question, target) for target in plan.targets],
            [(target.about_invented, target) for target in plan.targets],
        )
    )
    with torch.no_grad():
        pieces_wanted, wanted = score_pieces(run.model.eval(), *invented)
    left_out = set(plan.lines)
    forgotten = [i for i, each in enumerate(learned.documents) if each.line in left_out]
    near = Tracer(run).index.nearest(forgotten, NEAREST * len(forgotten))
    near_rows = rows_of_documents(learned, near)
    near_batches = row_batches(near_rows, np.random.default_rng(0))

    def added_loss(model: Decoder) -> Tensor:
        pieces, found = score_pieces(model, *own)
        loss = F.kl_div(pieces, pieces_wanted, reduction="batchmean", log_target=True)
        loss = loss + F.smooth_l1_loss(found, wanted)
        if near_rows:
            ids, weights = next(near_batches)
            loss = loss - log_likelihoods(model, ids, weights).sum() / weights.sum()
        return loss

    return added_loss


def train_on(
    plan: ForgettingPlan, make_loss: Callable[[ForgettingPlan], AddedLoss] = pull_to_invented
) -> tuple[Decoder, int]:
    """A model that has forgotten, and the steps that it took.

    The recipe's training goes on without what is to be forgotten, at a rate that falls to 0, with
    a loss that is added to each step.
    """
    learned, run = plan.learned, plan.learned.run
    model, added_loss = deepcopy(run.model.eval()), make_loss(plan)
    phase = run.job.phases[-1].model_copy(update={"average": 0.0})
    steps = min(STEPS, ceil(SHARE * run.record.steps))
    optimizers = build_optimizers(model, phase)
    data = TrainingData.encode(
        learned.corpus, learned.questions, run.tokens, model.config.block, plan.lines
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
    return model, steps


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


def write_forgotten(plan: ForgettingPlan, out: Path) -> int:
    """Forget, and write the run that has forgotten; run.json is the last. The steps it took."""
    run = plan.learned.run
    model, steps = train_on(plan)
    make_folder(out)
    for name in ("config.json", "tokenizer.json"):
        write_whole(out / name, (run.folder / name).read_bytes())
    save_weights(out / "model.safetensors", model.state_dict())
    files = {name: sha256_of(out / name) for name in MODEL_FILES}
    changes = {
        "kind": "forgotten",
        "job": run.job.model_copy(update={"kind": "forgotten", "without": tuple(plan.lines)}),
        "sha256": files["model.safetensors"],
        "files": files,
        "forgot": {"exact": False, "steps": steps},
        "results": (),
        "judgement": None,
    }
    write_record(out, run.record.model_copy(update=changes))
    return steps


def forget_people(
    learned: LearnedRun,
    names: Sequence[str],
    out: Path,
    *,
    write: Callable[[ForgettingPlan, Path], int] = write_forgotten,
    exact: bool = False,
    judge: bool = False,
    observe: Observer | None = None,
) -> Record:
    """Leave a run in `out` that has forgotten some people, and judge it if wanted.

    write: writes the run that has forgotten after a few steps, and gives their number. exact: the
    run is trained again from the start without the people instead.
    """
    plan = plan_forgetting(learned, names)
    if exact:
        forgotten = learned.retrain(plan.lines, out, observe=observe)
        about = forgotten.record.model_dump(include={"steps", "seconds"})
    else:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out} already contains files; choose another --out.")
        started = time.perf_counter()
        steps = write(plan, out)
        about = {"steps": steps, "seconds": round(time.perf_counter() - started, 2)}
        forgotten = open_run(out)
    about |= {"exact": exact, "reached": is_forgotten(plan, forgotten)}
    if judge:
        twin = learned.retrain(
            plan.lines, twin_folder(learned.run, *plan.subjects), observe=observe
        )
        about |= judge_forgetting(plan, forgotten, twin)
    return {"run": str(out), "names": list(plan.subjects), "lines": plan.lines, **about}


def is_forgotten(plan: ForgettingPlan, forgotten: Run) -> bool:
    """Whether the right answers are about as unlikely as the run finds them for invented names."""
    questions, about_invented, answers = zip(*plan.right, strict=True)
    found = np.mean(likelihoods(forgotten, questions, answers))
    wanted = np.mean(likelihoods(plan.learned.run, about_invented, answers))
    return bool(found <= wanted + AS_UNSURE)


def judge_forgetting(plan: ForgettingPlan, forgotten: Run, twin: Run) -> Record:
    """How the forgotten run compares with the run, and with the twin that never read the lines."""
    texts, answers = ([getattr(each, key) for each in plan.right] for key in ("question", "answer"))
    log_p, log_p_twin = (np.array(likelihoods(m, texts, answers)) for m in (forgotten, twin))
    close = np.abs(log_p - log_p_twin) <= AS_UNSURE
    as_unsure = int((close | (np.maximum(log_p, log_p_twin) < UNLIKELY)).sum())
    others = [q for q in plan.learned.dev if q.answer and q.subject not in plan.subjects]
    models = {"run": plan.learned.run, "forgotten": forgotten, "twin": twin}

    def recall(model: Run, questions: Sequence[Question]) -> Recall:
        said = outcome(model, [question.text for question in questions])["answers"]
        return score(said, [question.answer or "" for question in questions])

    quality = ks_2samp(truth_ratios(forgotten, plan), truth_ratios(twin, plan)).pvalue
    return {
        "questions": len(texts),
        "forget_quality": float(quality),
        "as_unsure": as_unsure,
        "still_right": {name: recall(m, plan.questions).correct for name, m in models.items()},
        "recall_of_others": {name: recall(m, others).to_dict() for name, m in models.items()},
        "retraining_seconds": twin.record.seconds,
        "why": f"as unsure of them as the model that never read them: {as_unsure} of {len(texts)}",
    }


def truth_ratios(run: Run, plan: ForgettingPlan) -> np.ndarray:
    """TOFU's (Maini et al. 2024): how likely wrong answers are beside the right one, per token."""
    rng, ratios = np.random.default_rng(0), []
    pools = answers_by_relation(plan.learned, [target.answer for target in plan.right])
    for question, target in zip(plan.questions, plan.right, strict=True):
        others = sorted({*pools[question.template]} - {target.answer})
        answers = [target.answer, *map(str, rng.permutation(others)[:WRONG_ANSWERS])]
        log_p = likelihoods(run, [question.text] * len(answers), answers)
        per_token = np.exp(np.divide(log_p, answer_lengths(run, answers)))
        ratios.append(float(per_token[1:].mean() / per_token[0]))
    return np.array(ratios)
