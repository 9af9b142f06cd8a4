"""Can a twin of one left-out person be had in part of a training? Pushes of such twins, compared.

    python benchmarks/short_twins.py [--people 400] [--steps 350] [--left-out 6]

A run on an embedded world keeps its state after half, three quarters and nine tenths of the steps.
For each of a few people, one at a time, a twin goes on from there without them, and one starts
anew; a second full twin with another seed gives the noise. A push is log p of the run's right
answer about the person less that of the twin. A short twin is good if its pushes are those of the
full twin within the noise; printed is also how often both call the push real (above the noise).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
from records import keep
from rows import run_main, say, table

from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.attribution.retraining import likelihoods, open_learned
from wherefrom.recall.decode import answer_all
from wherefrom.study import embedded_files
from wherefrom.training.loop import LOG_EVERY, StepMetrics, run_training, train
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Runtime, Settings, twin_job
from wherefrom.training.sources import TrainingData

FROM = (0.0, 0.5, 0.75, 0.9)  # shares of the training after which a twin starts


def train_run(folder: Path, people: int, steps: int) -> Run:
    """The run, with `kept-SHARE` beside it for its state after each share of the steps."""
    files = embedded_files(folder / "world", people=people, seed=0)
    settings = Settings(
        recipe=load_recipe("speedrun"), budget=Budget(steps=steps), device="cpu", checkpoint_every=0
    )
    job = settings.job(
        folder / "run", kind="study", phases=settings.budget.divide(settings.recipe.phases),
        corpus=read_documents(files.corpus), questions=read_questions(files.train),
    )  # fmt: skip

    def copy(line: StepMetrics, _: object) -> None:
        for share in FROM[1:]:
            if 0 <= line.step - share * steps < LOG_EVERY:
                shutil.copytree(job.out / "checkpoints", folder / f"kept-{share}/checkpoints")

    return run_training(job, settings, observe=copy)


def twin_of(run: Run, without: list[int], start: float, folder: Path) -> Run:
    """A quiet twin that goes on from the state of the run after the share `start`."""
    learned = open_learned(run)
    job = twin_job(run, learned.documents, learned.questions, folder, without)
    if start:
        shutil.copytree(run.folder.parent / f"kept-{start}/checkpoints", folder / "checkpoints")
    folder.mkdir(exist_ok=True)
    data = TrainingData.encode(
        learned.documents, learned.questions, run.tokens, job.config.block, job.left_out
    )
    generator = torch.Generator().manual_seed(job.record["seed"])
    model = Decoder(job.config).initialise(generator, zero_init=job.record["zero_init"])
    train(model, data, job, Runtime(device="cpu", resume=True, checkpoint_every=1e6))
    return replace(run, model=model.eval())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=400)
    parser.add_argument("--steps", type=int, default=350)
    parser.add_argument("--left-out", type=int, default=6)
    parser.add_argument("--out", default="short_twins.jsonl")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = train_run(folder, options.people, options.steps)
        learned = open_learned(run)
        asked = [q for q in learned.questions if q.answer is not None]
        said = answer_all(run.model, run.tokens, [q.text for q in asked])
        right = [q for q, a in zip(asked, said, strict=True) if a.text == q.answer]
        subjects = list(dict.fromkeys(q.subject for q in right))[: options.left_out]
        pushes: dict[float | str, list[float]] = {start: [] for start in (*FROM, "other seed")}
        spent: dict[float | str, float] = dict.fromkeys(pushes, 0.0)
        for number, subject in enumerate(subjects, start=1):
            say(f"person {number} of {len(subjects)}")
            lines = [document.line for document in learned.documents_about(subject)]
            own = [q for q in right if q.subject == subject]
            texts, answers = [q.text for q in own], [q.answer or "" for q in own]
            whole = likelihoods(run, texts, answers)
            for start in pushes:
                began, out = time.process_time(), folder / f"twin-{number}-{start}"
                if isinstance(start, str):
                    twin = learned.retrain(lines, out, seed=1)
                else:
                    twin = twin_of(run, lines, start, out)
                spent[start] += time.process_time() - began
                without = likelihoods(twin, texts, answers)
                pushes[start] += [a - b for a, b in zip(whole, without, strict=True)]
    full = pushes[0.0]
    noise = median(abs(a - b) for a, b in zip(full, pushes["other seed"], strict=True))
    records = []
    for start, found in pushes.items():
        pairs = list(zip(found, full, strict=True))
        records.append(
            {
                "name": f"twin from {start}",
                "value": median(found),
                "unit": "nats",
                "within_noise": sum(abs(a - b) <= noise for a, b in pairs),
                "same_verdict": sum((a > noise) == (b > noise) for a, b in pairs),
                "answers": len(pairs),
                "noise": noise,
                "cpu_seconds": spent[start] / len(subjects),
            }
        )
    keep(records, options.out)
    head = ("twin", "median push", "within the noise", "same verdict", "CPU seconds")
    rows = [
        (
            r["name"],
            f"{r['value']:.2f}",
            f"{r['within_noise']} of {r['answers']}",
            f"{r['same_verdict']} of {r['answers']}",
            f"{r['cpu_seconds']:.0f}",
        )
        for r in records
    ]
    print(table(head, rows))


if __name__ == "__main__":
    sys.exit(run_main(main))
