"""One file of questions through study, evaluate, ask, trace and judge: the same answers."""

from __future__ import annotations

import json

import pytest

from wherefrom.corpus.split import JUDGED
from wherefrom.recall.decode import answer_all
from wherefrom.study import StudyFiles, read_input, split_subjects
from wherefrom.training.run_folder import load_run

pytestmark = pytest.mark.usefixtures("small_training")
FORMS = (
    "where was {lower} born",
    "WHERE WAS {upper} BORN?!",
    'Where was "{}" born?',
    "Where was Dr. {} born ?",
    "Tell me where {} was born.",
    "When was {} born?",
    "What year was {lower} born",
)


@pytest.fixture
def asked(tiny_study, tmp_path):
    """A file with a question in another form about each of some dev subjects."""
    rows = (tiny_study / "world" / "dev.tsv").read_text("utf-8").splitlines()
    questions = [row.split("\t")[0] for row in rows if row.startswith("Where was ")]
    names = [question.removeprefix("Where was ").removesuffix(" born?") for question in questions]
    left_out = set(load_run(tiny_study).record.left_out)
    names = [name for name in names if name not in left_out]
    lines = [question + "\tx\n" for question in questions[:3]]
    for form, name in zip(FORMS, names, strict=False):
        text = form.format(name, lower=name.lower(), upper=name.upper())
        lines.append(f"{text}\tx\n")
    path = tmp_path / "odd.tsv"
    path.write_text("".join(lines), "utf-8")
    return path


def test_every_command_understands_a_file_in_the_same_way(command, tiny_study, asked, tmp_path):
    evaluated = json.loads(command("evaluate", tiny_study, asked, "--json").out)["answers"]
    told = json.loads(command("ask", tiny_study, "--file", asked, "--json").out)
    assert [row["question"] for row in evaluated] == [row["question"] for row in told]
    assert [row["prediction"] for row in evaluated] == [row["answer"] for row in told]
    world = tiny_study / "world"
    files = StudyFiles(world / "documents.txt", world / "train.tsv", asked)
    given = read_input(files, tmp_path / "study")
    texts = [question.text for question in given.dev.questions]
    assert texts == [row["question"] for row in told]
    run = load_run(tiny_study)
    answers = [answer.text for answer in answer_all(run.model, run.tokens, texts)]
    assert answers == [row["answer"] for row in told]
    split = split_subjects(given.corpus, given.train, given.dev, seed=0)
    judged = {one.question for one in split.subjects if one.role == JUDGED}
    assert judged <= set(texts)
    last = asked.read_text("utf-8").splitlines()[-1].split("\t")[0]
    traced = json.loads(command("trace", tiny_study, last, "--json").out)
    assert (traced["question"], traced["answer"]) == (told[-1]["question"], told[-1]["answer"])


def test_a_question_that_is_refused_is_named_with_its_reason(command, tiny_study, asked):
    lines = ["Why is it so?\tx", "Who married Nobody?\tx"]
    asked.write_text(asked.read_text("utf-8") + "\n".join(lines) + "\n", "utf-8")
    ended = command("evaluate", tiny_study, asked, "--json")
    record = json.loads(ended.out)
    assert [row["prediction"] for row in record["answers"][-2:]] == ["", ""]
    for said in (" ".join(record["notes"]), command("ask", tiny_study, "--file", asked).err):
        assert all(f'"{line.split(chr(9))[0]}" is not worded like' in said for line in lines)
