"""No training row holds a question that is not in the training file, for any shipped recipe."""

from __future__ import annotations

import re
from itertools import chain

import pytest

from wherefrom.corpus.database import read_documents
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.questions import SLOT, read_questions
from wherefrom.corpus.split import split_subjects
from wherefrom.corpus.tokenizer import MASK, PAD
from wherefrom.corpus.world import make_world, write_world
from wherefrom.study import hold_out_stopping_questions
from wherefrom.training.recipes import load_recipe, shipped_recipes
from wherefrom.training.settings import Settings
from wherefrom.training.sources import TrainingData, stream_for

POOLS = 3  # of 4,096 rows each, from each phase


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """The split that a study of a small world makes, with every kind of held-out subject."""
    folder = tmp_path_factory.mktemp("world")
    write_world(make_world(600, 3), folder)
    corpus = read_documents(folder / "documents.txt")
    names = corpus.spellings()
    train = read_questions(folder / "train.tsv", subjects=names)
    dev = read_questions(folder / "dev.tsv", train.templates, subjects=names)
    split = split_subjects(corpus, train, dev, set_aside=0.1, leave_out=0.1, seed=1)
    split, stopping = hold_out_stopping_questions(split, seed=1)
    assert stopping
    assert {"calibration", "judged"} <= {subject.role for subject in split.subjects}
    assert any(subject.source == "left out" for subject in split.subjects)
    return split, [question.text for file in (train, dev) for question in file.questions]


def texts_between_masks(ids, tokens):
    """The parts of a row that MASK tokens separate, as text."""
    parts = [[]]
    for token in ids:
        if token == PAD:
            break
        if token == MASK:
            parts.append([])
        else:
            parts[-1].append(token)
    return [tokens.decode(part) for part in parts]


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_question_in_a_training_row_is_a_line_of_the_training_file(name, split, tmp_path):
    split, asked = split
    learned = {question.text for question in split.train.questions}
    withheld = set(asked) - learned
    assert len(withheld) > 100
    # the wording of a question, whoever it is about
    wordings = [re.escape(t).replace(re.escape(SLOT), "(.+)") for t in split.train.templates]
    question = re.compile("|".join(wordings))
    recipe = load_recipe(name)
    job = Settings(recipe=recipe).job(
        tmp_path / "run",
        kind="study",
        phases=recipe.phases,
        corpus=split.corpus,
        questions=split.train,
        letters=asked,
    )
    with_text, without = (
        TrainingData.encode(database, job.questions, job.tokens, job.config.block)
        for database in (read_facts(split.corpus, job.questions), None)
    )
    question_rows = 0
    for number, phase in enumerate((*recipe.phases, recipe.scratch)):
        stream = stream_for(phase, without if phase is recipe.scratch else with_text, [1, number])
        for batch in chain.from_iterable(map(stream.pool, range(POOLS))):
            for row in chain.from_iterable(part.ids.tolist() for part in batch.parts):
                first, *_ = parts = texts_between_masks(row, job.tokens)
                question_rows += first in learned
                for part in parts:
                    assert part not in withheld
                    assert first in learned or not question.search(part), f"{name}: {parts}"
    assert question_rows > 100
