"""Unlearning in a model of others: training goes on for a few steps, people are taken out.

What is to be forgotten, and the judgement, are those of `provenance/attribution/forget.py`. Here is
the training: on the rows of the text without the people, which keeps everybody else, while the
answers about them are brought to what the run says of a name that it never read.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from wherefrom.huggingface.retraining import LearnedBaseRun, open_learned_base
from wherefrom.huggingface.rows import EncodedRow, RowDataset, TrainingRow, encode_row
from wherefrom.model.huggingface import HuggingFaceModel, hash_adapted, hash_weights
from wherefrom.provenance.attribution.forget import ForgettingPlan, forget_people
from wherefrom.provenance.attribution.retraining import Count, Record, no_count
from wherefrom.provenance.audited import BaseRun, open_trained
from wherefrom.provenance.signals.prompted import ASKED
from wherefrom.storage import make_folder, sha256_of
from wherefrom.training.record import write_record
from wherefrom.training.run_folder import MODEL_FOLDER

STEPS, SHARE = 30, 0.2  # of the training that goes on: at most, and of the run's steps
RATE = 0.6  # at first, of the run's rate


def forget_people_base(
    run: BaseRun,
    names: Sequence[str],
    out: Path,
    *,
    count: Count = no_count,
    **options: Any,
) -> Record:
    """Leave a run in `out` that has forgotten some people; `options` go to `forget_people`."""
    learned = open_learned_base(run, count)
    return forget_people(
        learned, names, out, write=partial(write_forgotten, count=count), **options
    )


def write_forgotten(plan: ForgettingPlan, out: Path, count: Count = no_count) -> int:
    """Forget, and write the run that has forgotten; run.json is the last. The steps it took."""
    learned = plan.learned
    assert isinstance(learned, LearnedBaseRun)
    opened, steps = train_on(plan, learned, count)
    job, saved = learned.job, make_folder(out) / MODEL_FOLDER
    part = out / f"{MODEL_FOLDER}.part"
    shutil.rmtree(part, ignore_errors=True)
    opened.model.save_pretrained(part)
    opened.tokens.save_pretrained(part)
    (part / "README.md").unlink(missing_ok=True)
    part.rename(saved)
    weights = sorted(saved.glob("*.safetensors"))
    changes = {
        "kind": "forgotten",
        "job": job.model_copy(update={"without": tuple(plan.lines)}),
        "sha256": hash_adapted(job.weights, saved) if job.rank else hash_weights(saved),
        "files": {f"{MODEL_FOLDER}/{path.name}": sha256_of(path) for path in weights},
        "forgot": {"exact": False, "steps": steps},
        "results": (),
        "judgement": None,
    }
    write_record(out, learned.run.record.model_copy(update=changes))
    return steps


def train_on(
    plan: ForgettingPlan, learned: LearnedBaseRun, count: Count
) -> tuple[HuggingFaceModel, int]:
    """A model that has forgotten, and the steps that it took."""
    from wherefrom.huggingface.trainer import pad_batch, weighted_loss

    job = learned.job
    opened = open_trained(learned.run.folder, to_train=True)
    model = opened.model
    if job.rank is None:
        model.requires_grad_(True)
    maker = learned.rows(without=plan.lines)

    def encode(question: str, answer: str) -> EncodedRow:
        row = TrainingRow(job.prompt.replace(ASKED, question), answer, ())
        return encode_row(opened, row, maker)

    own = [encode(target.question, target.answer) for target in plan.targets]
    invented = [encode(target.about_invented, target.answer) for target in plan.targets]
    with torch.no_grad():
        wanted = answer_logits(model, invented)
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
        F.kl_div(pulled, wanted, reduction="batchmean", log_target=True).backward()
        torch.nn.utils.clip_grad_norm_(trained, job.clip)
        optimizer.step()
        advance(1)
    return opened, steps


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
