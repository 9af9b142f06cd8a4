"""Decoding speed: 500 questions by the course's way, by transformers' generate, and by ours.

    python benchmarks/decoding.py [--repeats 5] [--questions 500] [--quick] [--out decoding.jsonl]

One briefly trained vanilla model on the embedded world answers the same questions three ways, in
turns: one question at a time with full passes and 32 tokens each (as the course's starter code
does; timed on a sample and scaled up), batched with a cache by `transformers` after export, and by
`wherefrom.recall.decode`. Loading is left out; tokenizing and decoding to text are in. The answers
of all three must agree, but for one in a hundred whose best two tokens are as good as equal.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from records import keep, summarise

from wherefrom.corpus.database import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.tokenizer import MASK
from wherefrom.corpus.world import make_world, write_world
from wherefrom.model.export import export_model
from wherefrom.recall.decode import LONGEST_ANSWER, answer_all
from wherefrom.training.loop import run_training
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Settings

BATCH = 128  # questions that generate() gets at once


def train(
    folder: Path, tokens: str, size: str, steps: int, people: int = 3000
) -> tuple[Run, list[str]]:
    """A model of the embedded world, and the dev questions for it."""
    files = write_world(make_world(people, 0), folder / "world")
    settings = Settings(
        recipe=load_recipe("pointed"),
        variant="vanilla",
        tokens=tokens,
        size=size,
        block=128,
        budget=Budget(steps=steps),
        device="cpu",
    )
    dev = [question.text for question in read_questions(files / "dev.tsv").questions]
    job = settings.job(
        folder / f"run-{tokens}",
        kind="study",
        phases=settings.budget.divide(settings.recipe.phases),
        corpus=read_documents(files / "documents.txt"),
        questions=read_questions(files / "train.tsv"),
        letters=dev,
    )
    return run_training(job, settings), dev


@torch.inference_mode()
def one_at_a_time(run: Run, questions: list[str]) -> list[str]:
    """Full passes over the growing text, always 32 of them, one question after the other."""
    answers = []
    for question in questions:
        ids = [*run.tokens.encode(question), MASK]
        start = len(ids)
        for _ in range(LONGEST_ANSWER):
            window = torch.tensor([ids[-run.model.config.longest_input :]])
            ids.append(int(run.model(window)[0, -1].argmax()))
        answers.append(run.tokens.decode(ids[start:]))
    return answers


class Generate:
    """transformers' model and tokenizer as they load from the exported folder."""

    def __init__(self, run: Run, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        export_model(run.model, run.tokens, folder)
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._mask = self._tokenizer.convert_ids_to_tokens(MASK)

    @torch.inference_mode()
    def __call__(self, questions: list[str]) -> list[str]:
        answers = []
        for at in range(0, len(questions), BATCH):
            some = [question + self._mask for question in questions[at : at + BATCH]]
            inputs = self._tokenizer(some, padding=True, return_tensors="pt")
            said = self._model.generate(**inputs, max_new_tokens=LONGEST_ANSWER, do_sample=False)
            for row in said[:, inputs["input_ids"].shape[1] :].tolist():
                kept = row[: row.index(MASK)] if MASK in row else row
                text = self._tokenizer.decode([token for token in kept if token > MASK])
                answers.append(text.strip())
        return answers


def timed(run: Callable[[], list[str]]) -> tuple[float, list[str]]:
    start = time.perf_counter()
    answers = run()
    return time.perf_counter() - start, answers


def compare(
    run: Run, questions: list[str], folder: Path, *, label: str, repeats: int, sample: int
) -> list[dict[str, Any]]:
    """Three ways in turns; each repeat goes round them from another one on."""
    theirs = Generate(run, folder / f"exported-{run.tokens.kind}")
    few = questions[:sample]

    def ours() -> list[str]:
        return [answer.text for answer in answer_all(run.model, run.tokens, questions)]

    ways: dict[str, Callable[[], list[str]]] = {
        "ours": ours,
        "the course's way": partial(one_at_a_time, run, few),
        "transformers": partial(theirs, questions),
    }
    for warm in (ours, partial(one_at_a_time, run, few[:1]), partial(theirs, few[:2])):
        warm()
    spent: dict[str, list[float]] = {way: [] for way in ways}
    names = list(ways)
    for number in range(repeats):
        said = {}
        for way in names[number % 3 :] + names[: number % 3]:
            seconds, said[way] = timed(ways[way])
            spent[way].append(seconds * len(questions) / len(said[way]))
        for way, answers in said.items():
            same = sum(a == b for a, b in zip(answers, said["ours"], strict=False))
            assert same >= 0.99 * len(answers) - 1, f"{way}: {same} answers of {len(answers)} agree"
    threads = torch.get_num_threads()
    records = [summarise(f"{label}: ours", spent["ours"], "s", threads=threads)]
    middle = sorted(spent["ours"])[repeats // 2]
    for way in names[1:]:
        ratios = [b / a for a, b in zip(spent["ours"], spent[way], strict=True)]
        details = {"ours": middle, "rival": sorted(spent[way])[repeats // 2], "sides_unit": "s"}
        records.append(summarise(f"{label}: {way} over ours", ratios, "ratio", **details))
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--sample", type=int, help="questions asked the course's way")
    parser.add_argument("--steps", type=int, help="of training before")
    parser.add_argument("--quick", action="store_true", help="BPE alone, less of everything")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", default="decoding.jsonl")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.threads:
        torch.set_num_threads(options.threads)
    quick = options.quick
    for tokens, size in (("bpe", "small"), ("chars", "course"))[: 1 if quick else 2]:
        with tempfile.TemporaryDirectory() as name:
            run, questions = train(
                Path(name), tokens, size, options.steps or (60 if quick else 150)
            )
            questions = questions[: options.questions]
            records = compare(
                run,
                questions,
                Path(name),
                label=f"{len(questions)} questions, vanilla {size}, {tokens}",
                repeats=options.repeats or (3 if quick else 5),
                sample=options.sample or (8 if quick else 20),
            )
            keep(records, options.out)


if __name__ == "__main__":
    main()
