"""Decoding speed: 500 questions by the course's way, by transformers' generate, and by ours.

    python benchmarks/decoding.py [--repeats 3] [--questions 500] [--out decoding.jsonl]

One briefly trained vanilla model on the embedded world answers the same questions three ways, in
turns: one question at a time with full passes and 32 tokens each (as the course's starter code
does; timed on a sample and scaled up), batched with a cache by `transformers` after export, and by
`wherefrom.recall.decode`. Loading is left out; tokenizing and decoding to text are in. The answers
of all three must be the same.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from records import keep, summarise

from wherefrom.corpus.tokens import MASK
from wherefrom.model.export import export_model
from wherefrom.recall.decode import LONGEST_ANSWER, answer_all
from wherefrom.study import embedded_files
from wherefrom.training.jobs import Budget, Lesson, Settings, teach
from wherefrom.training.recipes import load_recipe
from wherefrom.training.run import Run


def train(folder: Path, tokens: str, size: str, steps: int) -> tuple[Run, list[str]]:
    from wherefrom.corpus.documents import read_documents
    from wherefrom.corpus.questions import read_questions

    files = embedded_files(folder / "world", people=3000, seed=0)
    settings = Settings(
        recipe=load_recipe("speedrun"), variant="vanilla", tokens=tokens, size=size, block=128,
        budget=Budget(steps=steps),
    )  # fmt: skip
    questions = read_questions(files.train)
    lesson = Lesson(
        kind="study", phases=settings.budget.divide(settings.recipe.phases),
        corpus=read_documents(files.corpus), questions=questions,
    )  # fmt: skip
    run = teach(lesson, settings, folder / f"run-{tokens}")
    return run, [question.text for question in read_questions(files.dev).questions]


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


@torch.inference_mode()
def by_transformers(model: Any, tokenizer: Any, questions: list[str], batch: int) -> list[str]:
    answers = []
    for at in range(0, len(questions), batch):
        some = questions[at : at + batch]
        inputs = tokenizer([question + tokenizer.mask_text for question in some], padding=True,
                           return_tensors="pt")  # fmt: skip
        said = model.generate(**inputs, max_new_tokens=LONGEST_ANSWER, do_sample=False)
        for row in said[:, inputs["input_ids"].shape[1] :].tolist():
            kept = row[: row.index(MASK)] if MASK in row else row
            answers.append(tokenizer.decode([t for t in kept if t > MASK]).strip())
    return answers


def timed(run: Any) -> tuple[float, list[str]]:
    start = time.perf_counter()
    answers = run()
    return time.perf_counter() - start, answers


def main() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--sample", type=int, default=20, help="questions asked the course's way")
    parser.add_argument("--steps", type=int, default=150, help="of training before")
    parser.add_argument("--out", default="decoding.jsonl")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for tokens, size in (("bpe", "small"), ("chars", "course")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            run, questions = train(folder, tokens, size, arguments.steps)
            questions = questions[: arguments.questions]
            export_model(run.model, run.tokens, folder / "exported")
            model = AutoModelForCausalLM.from_pretrained(folder / "exported").eval()
            tokenizer = AutoTokenizer.from_pretrained(folder / "exported")
            tokenizer.mask_text = tokenizer.convert_ids_to_tokens(MASK)
            ratios: dict[str, list[float]] = {"the course's way": [], "transformers": []}
            ours_seconds = []
            for _ in range(arguments.repeats):
                slow, said_slow = timed(
                    lambda run=run, some=questions[: arguments.sample]: one_at_a_time(run, some)
                )
                ours, answers = timed(
                    lambda run=run, all_=questions: answer_all(run.model, run.tokens, all_)
                )
                theirs, said = timed(
                    lambda m=model, t=tokenizer, q=questions: by_transformers(m, t, q, 128)
                )
                texts = [answer.text for answer in answers]
                assert texts[: len(said_slow)] == said_slow, "the answers differ"
                same = sum(a == b for a, b in zip(texts, said, strict=True))
                assert same >= 0.99 * len(texts), f"only {same} answers of {len(texts)} agree"
                ours_seconds.append(ours)
                ratios["the course's way"].append(slow / len(said_slow) * len(texts) / ours)
                ratios["transformers"].append(theirs / ours)
            label = f"{len(questions)} questions, vanilla {size}, {tokens}"
            records = [summarise(f"{label}: ours", ours_seconds, "s")]
            records += [
                summarise(f"{label}: {name} over ours", values, "ratio")
                for name, values in ratios.items()
            ]
            keep(records, arguments.out)


if __name__ == "__main__":
    main()
