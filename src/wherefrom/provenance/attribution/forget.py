"""Unlearning: people are taken out of a finished run in seconds; a model without them judges it.

The run's training goes on for a few steps without the people, which keeps everybody else, while the
answers about them are brought to what the run says of a name that it never read.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.errors import UserError
from wherefrom.model.interface import LanguageModel
from wherefrom.provenance.attribution.gradients import log_likelihoods, score_pieces
from wherefrom.provenance.attribution.retraining import (
    LearnedRun,
    Record,
    Row,
    answers_of,
    likelihoods,
    pad_rows,
    recombine_names,
)
from wherefrom.provenance.attribution.trace import Tracer
from wherefrom.provenance.attribution.twins import twin_folder
from wherefrom.provenance.audited import open_run
from wherefrom.recall.table import Recall, score
from wherefrom.training.loop import Observer
from wherefrom.training.record import write_record
from wherefrom.training.run_folder import Run

RATE = 0.6  # at first, of the run's rates
WARM_UP = 5
EXAMPLES = 4  # drawn from each training record of a document
NEAR_DOCUMENTS_EACH = (
    5  # documents whose gradients are nearest, for each document that is forgotten
)
WRONG_ANSWERS_EACH = 2  # answers to each question beside the right one
AS_UNSURE, UNLIKELY = 2.0, float(np.log(0.01))  # nats from the twin; or both below this
AddedLoss = Callable[[LanguageModel], Tensor]  # what a step adds to the loss of the training


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
    pairs += [
        (q, str(rng.choice(pools[q.template])))
        for q in questions
        for _ in range(WRONG_ANSWERS_EACH)
    ]
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
    answers = answers_of(run, [q.text for q in more])["answers"] if more else []
    pairs = zip(more, answers, strict=True)
    return questions + [replace(question, answer=answer) for question, answer in pairs if answer]


def answers_by_relation(learned: LearnedRun, answers: Sequence[str]) -> dict[str, list[str]]:
    """Answers to draw wrong ones from, by template: those given, and those to learned questions."""
    pools: dict[str, list[str]] = defaultdict(lambda: sorted(set(answers)))
    for question in learned.questions:
        pools[question.template].append(question.answer or "")
    return pools


def pull_to_invented(plan: ForgettingPlan, model: LanguageModel, near_rows: int) -> AddedLoss:
    """Learn to say of each person what the run says of a name in no document.

    model: the run's, before it forgets. So many rows of the lines whose gradients are nearest are
    learned once more beside it.
    """
    learned = plan.learned
    own, invented = (
        pad_rows([learned.answer_rows(q, "", a)[0] for q, a in pairs])
        for pairs in (
            [(target.question, target.answer) for target in plan.targets],
            [(target.about_invented, target.answer) for target in plan.targets],
        )
    )
    with torch.no_grad():
        pieces_wanted, wanted = score_pieces(model, *invented)
    near_batches: Iterator[Row] = iter(())
    if near_rows:
        forgotten = [i for i, each in enumerate(learned.documents) if each.line in set(plan.lines)]
        near = Tracer(learned).index.nearest(forgotten, NEAR_DOCUMENTS_EACH * len(forgotten))
        rows, _ = learned.training_rows(near, EXAMPLES)
        near_batches = row_batches(rows, near_rows)

    def added_loss(model: LanguageModel) -> Tensor:
        pieces, found = score_pieces(model, *own)
        loss = F.kl_div(pieces, pieces_wanted, reduction="batchmean", log_target=True)
        loss = loss + F.smooth_l1_loss(found, wanted)
        for ids, weights in islice(near_batches, 1):
            loss = loss - log_likelihoods(model, ids, weights).sum() / weights.sum()
        return loss

    return added_loss


def train_on(
    plan: ForgettingPlan, make_loss: Callable[..., AddedLoss] = pull_to_invented
) -> tuple[LanguageModel, int]:
    """A model that has forgotten, and the steps that it took.

    The run's training goes on without what is to be forgotten, at a rate that falls to 0, with a
    loss that is added to each step.
    """
    training = plan.learned.continue_training(plan.lines)
    model, steps = training.model, training.steps
    added_loss = make_loss(plan, model, training.near_rows)
    for step in range(steps):
        scale = RATE * min(1, (step + 1) / WARM_UP) * (1 - step / steps)
        for optimizer in training.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * scale
        next(training.losses).backward()
        added_loss(model).backward()
        torch.nn.utils.clip_grad_norm_(training.parameters, 1.0)
        for optimizer in training.optimizers:
            optimizer.step()
    return model, steps


def row_batches(rows: Sequence[Row], size: int) -> Iterator[Row]:
    """An endless stream of batches of rows, drawn at random."""
    rng = np.random.default_rng(0)
    while rows:
        drawn = rng.integers(len(rows), size=min(size, len(rows)))
        yield pad_rows([rows[i] for i in drawn])


def write_forgotten(plan: ForgettingPlan, out: Path) -> int:
    """Forget, and write the run that has forgotten; run.json is the last. The steps it took."""
    learned = plan.learned
    model, steps = train_on(plan)
    about = learned.save_model(model, out)
    about["job"] = about["job"].model_copy(update={"without": tuple(plan.lines)})
    about["forgot"] = {"exact": False, "steps": steps}
    changes = {"kind": "forgotten", "results": (), "judgement": None, **about}
    write_record(out, learned.run.record.model_copy(update=changes))
    return steps


def forget_people(
    learned: LearnedRun,
    names: Sequence[str],
    out: Path,
    *,
    exact: bool = False,
    judge: bool = False,
    observe: Observer | None = None,
) -> Record:
    """Leave a run in `out` that has forgotten some people, and judge it if wanted.

    exact: the run is trained again from the start without the people instead.
    """
    plan = plan_forgetting(learned, names)
    if exact:
        forgotten = learned.retrain(plan.lines, out, observe=observe)
        about = forgotten.record.model_dump(include={"steps", "seconds"})
    else:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out} already contains files; choose another --out.")
        started = time.perf_counter()
        steps = write_forgotten(plan, out)
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
        said = answers_of(model, [question.text for question in questions])["answers"]
        return score(said, [question.answer or "" for question in questions])

    return {
        "questions": len(texts),
        "as_unsure": as_unsure,
        "still_right": {name: recall(m, plan.questions).correct for name, m in models.items()},
        "recall_of_others": {name: recall(m, others).to_dict() for name, m in models.items()},
        "retraining_seconds": twin.record.seconds,
        "why": f"as unsure of them as the model that never read them: {as_unsure} of {len(texts)}",
    }
