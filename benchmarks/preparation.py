"""What it takes to prepare a text for training: CPU seconds of each stage, and the peak of memory.

wherefrom world --people 48000 --out world      59,172 documents of about 140 characters
python benchmarks/preparation.py world --questions 4000
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from wherefrom.corpus.database import RUN_DATABASE
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.split import split_subjects
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.study import StudyFiles, read_input
from wherefrom.training.recipes import load_recipe
from wherefrom.training.settings import vocabulary_for, vocabulary_texts
from wherefrom.training.sources import TrainingData, stream_for


class Stages:
    """Prints each stage as it ends."""

    def __init__(self) -> None:
        self.before = time.process_time()

    def done(self, stage: str) -> None:
        now = time.process_time()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{stage:<12} {now - self.before:6.1f} s of CPU, peak {peak:.2f} GB", flush=True)
        self.before = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with documents.txt, train.tsv and dev.tsv")
    parser.add_argument("--questions", type=int, default=4_000, help="of each file")
    options = parser.parse_args()
    recipe = load_recipe("pointed")
    with tempfile.TemporaryDirectory() as made:
        files = [options.folder / "documents.txt"]
        for name in ("train.tsv", "dev.tsv"):
            lines = (options.folder / name).read_text(encoding="utf-8").splitlines(keepends=True)
            files.append(Path(made) / name)
            files[-1].write_text("".join(lines[: options.questions]), encoding="utf-8")
        stages = Stages()
        given = read_input(StudyFiles(*files), Path(made) / "run")
        stages.done("files")
        split = split_subjects(given.corpus, given.train, given.dev, seed=0)
        stages.done("split")
        database, questions = split.corpus, split.train.questions
        read_facts(database, questions)
        stages.done("facts")
        database.save(Path(made) / RUN_DATABASE)
        stages.done("database")
        texts = vocabulary_texts(database.documents)
        tokens = Tokenizer.of_bpe(texts, vocabulary_for(database.documents))
        stages.done("vocabulary")
        data = TrainingData.encode(database, questions, tokens, recipe.block)
        stages.done("encoding")
        pool = stream_for(recipe.phases[0], data, [0]).pool(0)
        stages.done(f"{len(pool)} batches")


if __name__ == "__main__":
    main()
