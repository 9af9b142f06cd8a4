"""Unlearning in a model of others: people are taken out of its adapters in a few steps.

Training goes on for some steps without the people, which keeps everybody else, while the answers
about them are brought to what the run says of a name that it never read. The other way (--exact)
trains the adapters again from the start without them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
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
from wherefrom.huggingface.retraining import LearnedBaseRun, open_learned_base
from wherefrom.huggingface.rows import EncodedRow, RowDataset, TrainingRow, encode_row
from wherefrom.model.huggingface import HuggingFaceModel, hash_adapted, hash_weights
from wherefrom.provenance.attribution.forget import (
    AS_UNSURE,
    UNLIKELY,
    WRONG,
    WRONG_ANSWERS,
    answers_by_relation,
    questions_about,
)
from wherefrom.provenance.attribution.retraining import (
    Count,
    Record,
    likelihoods,
    no_count,
    outcome,
    recombine_names,
)
from wherefrom.provenance.attribution.twins import twin_folder
from wherefrom.provenance.audited import BaseRun, open_run, open_trained
from wherefrom.provenance.signals.prompted import ASKED
from wherefrom.recall.table import Recall, score
from wherefrom.storage import make_folder, sha256_of
from wherefrom.training.record import write_record
from wherefrom.training.run_folder import MODEL_FOLDER, Run

STEPS, SHARE = 30, 0.2  # of the training that goes on: at most, and of the run's steps
RATE = 0.6  # at first, of the run's rate
NOT_MEASURED = "how fast it learns them again is not measured for a model of others"


@dataclass(frozen=True, eq=False)
class BaseForgettingTask:
    """What is to be forgotten: subjects, their lines, questions about them and right answers.

    own, invented: rows of the questions with right and wrong answers, and the same rows about
    names in no document.
    """

    learned: LearnedBaseRun
    subjects: tuple[str, ...]
    lines: list[int]
    questions: list[Question]
    own: list[TrainingRow]
    invented: list[TrainingRow]

    @property
    def answers(self) -> list[str]:
        return [question.answer or "" for question in self.questions]


def plan_forgetting(run: BaseRun, names: Sequence[str], count: Count) -> BaseForgettingTask:
    """Look up the names, or refuse, before anything is trained."""
    learned = open_learned_base(run, count)
    assert isinstance(learned, LearnedBaseRun)
    documents = [document for name in names for document in learned.documents_about(name)]
    if not documents:
        raise UserError("there is no name to forget; give at least one.")
    subjects = tuple(dict.fromkeys(document.subject for document in documents))
    folded = {fold_words(subject) for subject in subjects}
    questions = questions_about(learned, subjects)
    invented = recombine_names(learned.documents, len(folded))
    if not questions:
        raise UserError("nothing can be asked about those people, so nothing can be forgotten.")
    if set(learned.subjects) == folded or not invented:
        raise UserError("nobody else would be left; forget fewer.")
    stand_ins = dict(zip(sorted(folded), cycle(invented), strict=False))
    pools = answers_by_relation(learned, [question.answer or "" for question in questions])
    rng = np.random.default_rng(learned.job.seed)
    pairs = [(question, question.answer or "") for question in questions]
    pairs += [(q, str(rng.choice(pools[q.template]))) for q in questions for _ in range(WRONG)]
    prompt = learned.job.prompt
    own, others = [], []
    for question, answer in pairs:
        name = stand_ins[fold_words(question.subject)]
        own.append(TrainingRow(prompt.replace(ASKED, question.text), answer, ()))
        other = question.template.replace(SLOT, name)
        others.append(TrainingRow(prompt.replace(ASKED, other), answer, ()))
    lines = sorted({document.line for document in documents})
    return BaseForgettingTask(learned, subjects, lines, questions, own, others)


def forget_people_base(
    run: BaseRun,
    names: Sequence[str],
    out: Path,
    *,
    exact: bool = False,
    judge: bool = False,
    say: Callable[[str], None] = lambda _: None,
    count: Count = no_count,
) -> Record:
    """Leave a run in `out` that has forgotten some people, and judge it if wanted."""
    task = plan_forgetting(run, names, count)
    about: Record = {"exact": exact, "reached": True}
    if exact:
        forgotten = task.learned.retrain(task.lines, out)
        about |= forgotten.record.model_dump(include={"steps", "seconds"})
    else:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out} already contains files; choose another --out.")
        about |= forget(task, out, count)
        forgotten = open_run(out)
    if judge:
        say("training the model that never read of them, to judge by")
        twin = task.learned.retrain(task.lines, twin_folder(run, *task.subjects))
        about |= judge_forgetting(task, forgotten, twin)
    return {"run": str(out), "names": list(task.subjects), "lines": task.lines, **about}


def answer_logits(model: Any, rows: Sequence[EncodedRow]) -> Tensor:
    """log p of the vocabulary at each answer token of the rows, one below the other."""
    from wherefrom.huggingface.trainer import NO_LOSS, pad_batch

    batch = pad_batch(rows)
    logits = model(
        input_ids=batch["input_ids"].to(model.device),
        attention_mask=batch["attention_mask"].to(model.device),
        use_cache=False,
    ).logits
    return logits[:, :-1][batch["labels"][:, 1:] != NO_LOSS].float().log_softmax(-1)


def forget(task: BaseForgettingTask, out: Path, count: Count) -> Record:
    """Train on for a few steps, and write the run; steps, seconds, and whether it was enough."""
    from wherefrom.huggingface.trainer import pad_batch, weighted_loss

    started, learned, job = time.perf_counter(), task.learned, task.learned.job
    opened = open_trained(learned.run.folder, to_train=True)
    model = opened.model
    if job.rank is None:
        model.requires_grad_(True)
    maker = learned.rows(without=task.lines)
    own, invented = (
        [encode_row(opened, row, maker) for row in rows] for rows in (task.own, task.invented)
    )
    with torch.no_grad():
        target = answer_logits(model, invented)
    steps = min(STEPS, max(1, round(SHARE * job.steps)))
    kept = RowDataset(maker, opened, batch=job.batch, steps=job.steps)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=job.rate, weight_decay=0.0)
    advance = count("forgetting", steps)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * job.rate * (1 - step / steps)
        optimizer.zero_grad()
        batch = pad_batch([kept[step * job.batch + i] for i in range(job.batch)])
        weighted_loss(model, batch).backward()
        pulled = answer_logits(model, own)
        F.kl_div(pulled, target, reduction="batchmean", log_target=True).backward()
        torch.nn.utils.clip_grad_norm_(trained, job.clip)
        optimizer.step()
        advance(1)
    tokens = sum(len(row.ids) - row.prompt_length for row in own[: len(task.questions)])
    with torch.no_grad():
        right = torch.tensor([t for row in own for t in row.ids[row.prompt_length :]])[:, None]
        found, wanted = (
            float(logits[:tokens].gather(1, right[:tokens]).sum()) / len(task.questions)
            for logits in (answer_logits(model, own), target)
        )
    about = {"steps": steps, "seconds": round(time.perf_counter() - started, 2)}
    about["reached"] = bool(found <= wanted + AS_UNSURE)
    write_forgotten(task, opened, out, {"exact": False, **about})
    return about


def write_forgotten(
    task: BaseForgettingTask, opened: HuggingFaceModel, out: Path, about: Record
) -> None:
    """Write the run that has forgotten; run.json is the last, and makes it one."""
    learned, job = task.learned, task.learned.job
    saved = make_folder(out) / MODEL_FOLDER
    part = out / f"{MODEL_FOLDER}.part"
    shutil.rmtree(part, ignore_errors=True)
    opened.model.save_pretrained(part)
    opened.tokens.save_pretrained(part)
    (part / "README.md").unlink(missing_ok=True)
    part.rename(saved)
    weights = sorted(saved.glob("*.safetensors"))
    changes = {
        "kind": "forgotten",
        "job": job.model_copy(update={"without": tuple(task.lines)}),
        "sha256": hash_adapted(job.weights, saved) if job.rank else hash_weights(saved),
        "files": {f"{MODEL_FOLDER}/{path.name}": sha256_of(path) for path in weights},
        "forgot": about,
        "results": (),
        "judgement": None,
    }
    write_record(out, learned.run.record.model_copy(update=changes))


def judge_forgetting(task: BaseForgettingTask, forgotten: Run, twin: Run) -> Record:
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

    quality = ks_2samp(truth_ratios(forgotten, task), truth_ratios(twin, task)).pvalue
    return {
        "questions": len(texts),
        "forget_quality": float(quality),
        "as_unsure": as_unsure,
        "within_2_nats": int(close.sum()),
        "still_right": {name: recall(m, task.questions).correct for name, m in models.items()},
        "recall_of_others": {name: recall(m, others).to_dict() for name, m in models.items()},
        "relearning_steps": {},
        "retraining_seconds": twin.record.seconds,
        "why": f"as unsure of them as the model that never read them: {as_unsure} of {len(texts)}; "
        f"{NOT_MEASURED}",
    }


def truth_ratios(run: Run, task: BaseForgettingTask) -> np.ndarray:
    """TOFU's: how likely wrong answers are beside the right one, per token."""
    assert isinstance(run, BaseRun)
    rng, ratios = np.random.default_rng(0), []
    pools = answers_by_relation(task.learned, task.answers)
    model, prompt = run.audited, run.base_job.prompt
    for question, right in zip(task.questions, task.answers, strict=True):
        wrong = rng.permutation(sorted({*pools[question.template]} - {right}))[:WRONG_ANSWERS]
        answers = [right, *map(str, wrong)]
        sizes = [len(model.continuation(prompt, answer)) for answer in answers]
        log_p = np.array(likelihoods(run, [question.text] * len(answers), answers))
        per_token = np.exp(log_p / sizes)
        ratios.append(float(per_token[1:].mean() / per_token[0]))
    return np.array(ratios)
