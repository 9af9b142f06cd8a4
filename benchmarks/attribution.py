"""How far scores of documents can be believed, judged by models that were really retrained.

    python benchmarks/attribution.py bank RUN --out BANK [--models 32] [--repeats 8]
    python benchmarks/attribution.py score RUN --bank BANK [--out FILE.jsonl]

`bank` retrains a run quietly (docs/trace.md) on random halves of its subjects and keeps, as JSON
lines, what each model thinks of the run's own answers to a fixed set of questions: the questions of
dev people, who are in the text, and of unseen people, who are not. `score` compares methods:

    LDS          Spearman's correlation, over the halves, of the sum of a method's scores of what
                 was kept with log p of the answer by the model that was retrained; mean over
                 questions. The ceiling replaces the sum by the log p of a model that was retrained
                 on the same half from another start, in another order.
    MRR, R@10    mean reciprocal rank, and share in the first ten, of the subject's own lines
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rows import Record, keep_row, run_main, say, table
from scipy.stats import spearmanr

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question
from wherefrom.corpus.subjects import JUDGED, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.cross_pretraining import likelihoods
from wherefrom.provenance.attribution.gradients import answer_row
from wherefrom.provenance.attribution.trace import Tracer
from wherefrom.recall.decode import answer_all
from wherefrom.training.jobs import retrain
from wherefrom.training.run_folder import (
    Run,
    find_source,
    load_run,
    read_learned_documents,
    read_learned_questions,
)
from wherefrom.training.settings import Runtime

Floats = NDArray[np.float64]
OTHER_SEED = 1_000_003  # added to the run's for a repeated half


@dataclass(frozen=True)
class Material:
    """A run with what it learned, the questions that models are asked, and its answers to them."""

    run: Run
    documents: tuple[Document, ...]
    learned: tuple[Question, ...]
    asked: tuple[Question, ...]
    answers: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> Material:
        run = load_run(folder)
        corpus, questions = find_source(run, "corpus"), find_source(run, "questions")
        if corpus is None or questions is None:
            raise UserError(f"{folder} did not learn documents and questions in one training.")
        asked = tuple(
            Question(0, each.question, each.subject, each.answer, each.template)
            for each in read_subjects(folder)
            if each.role == JUDGED
        )
        said = answer_all(run.model, run.tokens, [question.text for question in asked])
        return cls(
            run,
            read_learned_documents(corpus).documents,
            read_learned_questions(questions).questions,
            asked,
            tuple(answer.text for answer in said),
        )

    def seen(self) -> list[bool]:
        """Whether a document is about the subject of each question that is asked."""
        subjects = {fold_words(document.subject) for document in self.documents}
        return [fold_words(question.subject) in subjects for question in self.asked]

    def retrain(self, without: Iterable[int], folder: Path, *, seed: int = 0) -> Record:
        """Log p of the run's answers, and the answers, of a model without the documents on lines.

        seed: added to the run's, for another start and order. The weights are not kept.
        """
        info = self.run.info
        job = {**info["job"], "seed": info["job"]["seed"] + seed}
        start = replace(self.run, info={**info, "job": job})
        lines = sorted(without)
        twin = retrain(
            start,
            self.documents,
            self.learned,
            folder,
            without=lines,
            settings=Runtime(device="cpu", resume=True),
        )
        texts = [question.text for question in self.asked]
        said = answer_all(twin.model, twin.tokens, texts)
        found = likelihoods(twin, texts, self.answers)
        shutil.rmtree(folder)
        return {
            "without": lines,
            "seed": seed,
            "log_probability": [round(value, 4) for value in found],
            "answers": [answer.text for answer in said],
        }


def draw_half(documents: Sequence[Document], number: int) -> list[int]:
    """The lines that half `number` leaves out: those of a random half of the subjects."""
    subjects = sorted({fold_words(document.subject) for document in documents})
    order = np.random.default_rng([0xBA4C, number]).permutation(len(subjects))
    gone = {subjects[at] for at in order[: len(subjects) // 2]}
    return [document.line for document in documents if fold_words(document.subject) in gone]


def read_bank(folder: Path, name: str) -> list[Record]:
    path = folder / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else ()
    return [json.loads(line) for line in lines]


def append(folder: Path, name: str, row: Record) -> None:
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def fill_bank(args: argparse.Namespace) -> None:
    """Train what is missing of the bank, one model after another."""
    material, out = Material.of(args.run), args.out
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "questions.jsonl").exists():
        for at, question in enumerate(material.asked):
            row = {"question": question.text, "subject": question.subject, "right": question.answer}
            append(out, "questions.jsonl", {**row, "answer": material.answers[at]})
    done = {(row["half"], row["seed"]) for row in read_bank(out, "models.jsonl")}
    wanted = [(half, 0) for half in range(args.models)]
    wanted += [(half, OTHER_SEED) for half in range(args.repeats)]
    for half, seed in wanted:
        if (half, seed) in done:
            continue
        row = material.retrain(draw_half(material.documents, half), out / "model", seed=seed)
        append(out, "models.jsonl", {"half": half, **row})
        say(f"half {half}, seed {seed}: done")


def by_name(material: Material) -> Floats:
    """1 for documents about the subject; ties are broken at random."""
    names = [fold_words(document.subject) for document in material.documents]
    same = [[float(name == fold_words(q.subject)) for name in names] for q in material.asked]
    return np.array(same) + 1e-9 * np.random.default_rng(0).random((len(same), len(names)))


def by_words(material: Material) -> Floats:
    """BM25 (k1 = 1.2, b = 0.75) of the question with its answer."""
    texts = [list(fold_words(document.text)) for document in material.documents]
    counts = [Counter(words) for words in texts]
    lengths = np.array([len(words) for words in texts]) / np.mean([len(words) for words in texts])
    scores = np.zeros((len(material.asked), len(texts)))
    for row, (question, answer) in enumerate(zip(material.asked, material.answers, strict=True)):
        for word in set(fold_words(f"{question.text} {answer}")):
            here = np.array([count[word] for count in counts], dtype=float)
            found = (here > 0).sum()
            idf = np.log(1 + (len(texts) - found + 0.5) / (found + 0.5))
            scores[row] += idf * here * 2.2 / (here + 1.2 * (0.25 + 0.75 * lengths))
    return scores


def by_hidden_state(material: Material) -> Floats:
    """Cosine of the mean last hidden states of question with answer, and of document."""
    run = material.run

    def states(texts: Sequence[str]) -> Any:
        rows = []
        for ids in run.tokens.encode_all(list(texts)):
            cut = torch.tensor([ids[: run.model.config.longest_input]])
            with torch.inference_mode():
                rows.append(run.model.hidden(cut)[0].mean(0))
        return torch.nn.functional.normalize(torch.stack(rows), dim=1)

    both = zip(material.asked, material.answers, strict=True)
    asked = states([f"{question.text} {answer}" for question, answer in both])
    read = states([document.text for document in material.documents])
    return np.asarray((asked @ read.T).numpy(), dtype=np.float64)


def by_gradient(material: Material) -> Floats:
    """`wherefrom trace --method gradient`."""
    index = Tracer(material.run, say=say).index()
    both = zip(material.asked, material.answers, strict=True)
    rows = [answer_row(material.run, question.text, answer) for question, answer in both]
    return np.array([index.scores(material.run.model, *row) for row in rows])


METHODS = {
    "look-up by name": by_name,
    "BM25": by_words,
    "hidden states": by_hidden_state,
    "gradient": by_gradient,
}


def correlate(one: Floats, other: Floats) -> Floats:
    """Spearman's over the rows, for each column; 0 where one of the two is constant."""
    pairs = zip(one.T, other.T, strict=True)
    return np.nan_to_num([float(spearmanr(a, b).statistic) for a, b in pairs])


def own_ranks(material: Material, scores: Floats) -> Floats:
    """The best rank of a document about the subject, for each question; infinite without one."""
    names = [fold_words(document.subject) for document in material.documents]
    ranks = []
    for question, row in zip(material.asked, scores, strict=True):
        order = np.argsort(-row, kind="stable")
        own = [n for n, at in enumerate(order, 1) if names[at] == fold_words(question.subject)]
        ranks.append(min(own, default=np.inf))
    return np.array(ranks)


def score(args: argparse.Namespace) -> None:
    """A table of the methods, and a JSON line for each."""
    material = Material.of(args.run)
    bank = read_bank(args.bank, "models.jsonl")
    models = {row["half"]: row for row in bank if row["seed"] == 0}
    again = {row["half"]: row for row in bank if row["seed"]}
    kept = np.array(
        [[d.line not in set(r["without"]) for d in material.documents] for r in models.values()]
    )
    truth = np.array([row["log_probability"] for row in models.values()])
    seen = np.array(material.seen())
    right = (
        np.array([a == q.answer for q, a in zip(material.asked, material.answers, strict=True)])
        & seen
    )
    rows = []
    for name, method in METHODS.items():
        scores = method(material)
        lds, ranks = correlate(kept @ scores.T, truth), own_ranks(material, scores)
        rows.append(
            {
                "name": f"attribution, {name}",
                "value": round(float(lds[seen].mean()), 3),
                "unit": "LDS, seen people",
                "lds_unseen": round(float(lds[~seen].mean()), 3),
                "mrr": round(float((1 / ranks[seen]).mean()), 3),
                "recall_at_10": round(float((ranks[seen] <= 10).mean()), 3),
                "mrr_right": round(float((1 / ranks[right]).mean()), 3),
                "recall_at_10_right": round(float((ranks[right] <= 10).mean()), 3),
                "models": len(models),
                "questions": {"seen": int(seen.sum()), "unseen": int((~seen).sum())},
            }
        )
    if len(again) > 2:
        first, second = (
            np.array([rows[half]["log_probability"] for half in sorted(again)])
            for rows in (models, again)
        )
        ceiling = correlate(first, second)
        value, unseen = (round(float(ceiling[which].mean()), 3) for which in (seen, ~seen))
        row = {"name": "attribution, ceiling", "value": value, "unit": "LDS, seen people"}
        rows.append({**row, "lds_unseen": unseen, "models": len(again)})
    for row in rows:
        keep_row(row, args.out)
    keys = ("name", "value", "lds_unseen", "mrr", "recall_at_10", "mrr_right", "recall_at_10_right")
    print(table(keys, [[row.get(key, "") for key in keys] for row in rows]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    bank = commands.add_parser("bank", help="retrain on random halves")
    bank.add_argument("run", type=Path)
    bank.add_argument("--out", type=Path, required=True)
    bank.add_argument("--models", type=int, default=32)
    bank.add_argument("--repeats", type=int, default=8)
    bank.set_defaults(act=fill_bank)
    judge = commands.add_parser("score", help="compare methods by a bank")
    judge.add_argument("run", type=Path)
    judge.add_argument("--bank", type=Path, required=True)
    judge.add_argument("--out", default="attribution.jsonl", help="JSON lines")
    judge.set_defaults(act=score)
    args = parser.parse_args(arguments)
    args.act(args)


if __name__ == "__main__":
    raise SystemExit(run_main(main))
