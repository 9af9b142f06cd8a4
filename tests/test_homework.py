"""The homework's path: examples, pretrain, finetune, evaluate, report, as a student walks it."""

from __future__ import annotations

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from wherefrom.cli import cli, output
from wherefrom.corpus.database import read_documents
from wherefrom.corpus.questions import Question, QuestionSet, read_questions
from wherefrom.corpus.split import CALIBRATION, JUDGED, split_dev
from wherefrom.corpus.tokenizer import MASK_CHARACTER
from wherefrom.errors import UserError
from wherefrom.evaluation import Evaluation, describe_predictions
from wherefrom.provenance.answers import read_dev_answers, read_judged
from wherefrom.recall.decode import Answer
from wherefrom.report.study_report import make_report
from wherefrom.storage import read_json, sha256_of
from wherefrom.training.record import read_record, update_run
from wherefrom.training.run_folder import load_run

RUNS = ("pre", "fine")
WRITTEN = (
    "recall",
    "documents",
    "confidence",
    "grades",
    "names",
)  # sections with questions 2 and 3


@pytest.fixture(scope="module")
def runs(tmp_path_factory, small_world, quick_recipe, make_small):
    """A folder with the runs pre, fine and scratch, which know next to nothing."""
    folder = tmp_path_factory.mktemp("homework")
    corpus, train = small_world / "documents.txt", small_world / "train.tsv"
    options = ("--recipe", quick_recipe, "--steps", 12, "--quiet")
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        for arguments in (
            ("pretrain", "vanilla", corpus, "--out", folder / "pre"),
            ("finetune", folder / "pre", train, "--out", folder / "fine"),
            ("finetune", "--scratch", "vanilla", corpus, train, "--out", folder / "scratch"),
        ):
            cli.main([str(word) for word in (*arguments, *options)], standalone_mode=False)
    return folder


@pytest.fixture
def fine(runs, tmp_path):
    """A copy of the finetuned run, to be changed."""
    return shutil.copytree(runs / "fine", tmp_path / "fine")


def section(report, id):
    return next(one for one in report["sections"] if one["id"] == id)


class TestEvaluate:
    def test_one_table_has_the_baselines_questions_only_and_the_run(
        self, command, runs, fine, small_world
    ):
        train, dev = small_world / "train.tsv", small_world / "dev.tsv"
        ended = command("evaluate", fine, dev, "--beside", runs / "scratch", "--json")
        record = json.loads(ended.out)
        rows = {row["name"]: row for row in record["rows"]}
        assert list(rows) == ["majority", "by name", "questions only", "model", "reader"]
        assert rows["model"]["correct"] == record["correct"]
        assert {row["total"] for row in rows.values()} == {record["total"]}
        # the other rows are what the commands that make them say
        alone = json.loads(command("evaluate", runs / "scratch", dev, "--json").out)
        assert rows["questions only"]["correct"] == alone["correct"]
        assert [row["name"] for row in alone["rows"]].count("questions only") == 1
        by_name = json.loads(command("baseline", train, dev, "--json").out)["by name"]
        assert rows["by name"]["total"] == by_name["total"]
        assert rows["reader"]["recall"] > 0.5
        seconds = [read_json(folder / "run.json")["seconds"] for folder in (fine, runs / "pre")]
        assert rows["model"]["seconds"] == pytest.approx(sum(seconds), abs=0.02)

    def test_the_table_is_printed_with_samples_on_request(self, command, fine, small_world):
        dev = small_world / "dev.tsv"
        ended = command("evaluate", fine, dev, "--samples", 10)
        table, _, samples = ended.out.partition("samples")
        assert re.match(r"Correct: \d+ out of \d+: ", table)
        for name in ("majority", "by name", "model", "reader"):
            assert re.search(rf"^ *{name} ", table, re.M)
        asked = [line.split("\t") for line in dev.read_text("utf-8").splitlines()]
        assert sum(question in samples and answer in samples for question, answer in asked) >= 10
        assert "training question" not in ended.err

    def test_each_run_beside_has_a_row_and_one_of_another_shape_is_no_twin(
        self, command, runs, fine, small_world, quick_recipe, small_training, tmp_path
    ):
        files = (small_world / "documents.txt", small_world / "train.tsv")
        shape = ("--size", "32x3x2", "--recipe", quick_recipe, "--steps", 1)
        wide = tmp_path / "wide"
        assert command("finetune", "--scratch", "vanilla", *files, *shape, "--out", wide).code == 0
        others = ("--beside", wide, "--beside", runs / "scratch", "--beside", runs / "pre")
        ended = command("evaluate", fine, small_world / "dev.tsv", *others, "--json")
        names = [row["name"] for row in json.loads(ended.out)["rows"]]
        assert names[2:-1] == ["questions only", str(wide), str(runs / "pre"), "model"]

    def test_the_run_keeps_it_for_its_report(self, command, fine, small_world, tmp_path):
        assert section(make_report(fine), "recall")["missing"]
        record = json.loads(command("evaluate", fine, small_world / "dev.tsv", "--json").out)
        found = section(make_report(fine), "recall")
        assert not found["missing"]
        assert [row[2] for row in found["table"]["rows"]] == [r["correct"] for r in record["rows"]]
        answers = [row["answer"] for row in read_dev_answers(fine)["model"].values()]
        assert answers == [answer["prediction"] for answer in record["answers"]]
        (fine / "run.sqlite").write_text("broken")  # it is made again
        ended = command("evaluate", fine, small_world / "dev.tsv")
        assert ended.code == 0
        assert "run.sqlite is not the file that the run wrote" in ended.err
        assert [row["answer"] for row in read_dev_answers(fine)["model"].values()] == answers

    def test_a_study_keeps_its_own_table(self, command, tiny_study, small_world):
        before = (tiny_study / "run.json").read_bytes()
        ended = command("evaluate", tiny_study, small_world / "dev.tsv", "--json")
        assert "questions only" in {row["name"] for row in json.loads(ended.out)["rows"]}
        assert (tiny_study / "run.json").read_bytes() == before
        ended = command("evaluate", tiny_study, small_world / "dev.tsv", "--judge")
        assert (ended.code, ended.out) == (2, "")
        assert "leave out --judge" in ended.err

    def test_without_its_training_questions_the_run_is_still_counted(
        self, command, fine, small_world, tmp_path
    ):
        data = read_record(fine).data
        gone = {"path": str(tmp_path / "gone"), "relative_path": "gone"}
        update_run(fine, data={**data, "questions": data["questions"].model_copy(update=gone)})
        ended = command("evaluate", fine, small_world / "dev.tsv", "--json")
        assert ended.code == 0
        record = json.loads(ended.out)
        assert [row["name"] for row in record["rows"]] == ["model"]
        assert any("There are no baselines" in note for note in record["notes"])

    def test_questions_that_were_learned_are_told(self, command, fine, small_world):
        train = small_world / "train.tsv"
        count = len(train.read_text("utf-8").splitlines())
        note = f"{count} of the {count} questions are also training questions"
        assert note in command("evaluate", fine, train).err

    def test_empty_predictions_are_warned_of_with_what_to_do(self, command, fine, small_world):
        """A head of zeros makes every logit equal, and the first token is PAD: no letter at all."""
        weights = load_file(fine / "model.safetensors")
        save_file(
            {name: 0 * tensor for name, tensor in weights.items()}, fine / "model.safetensors"
        )
        short = {"phase": "read", "over": "text", "steps": 4, "passes": 2.1, "recipe_passes": 650}
        digest = sha256_of(fine / "model.safetensors")
        update_run(fine, wrote=("model.safetensors",), sha256=digest, passes=(short,))
        dev = small_world / "dev.tsv"
        count = len(dev.read_text("utf-8").splitlines())
        ended = command("evaluate", fine, dev)
        assert f"{count} of {count} predictions are empty" in ended.err
        assert "2.1 passes over the text (the recipe makes 650)" in ended.err
        assert "Train for longer" in ended.err
        assert "predictions are empty" in make_report(fine)["notes"][0]

    @pytest.mark.parametrize(
        ("said", "right", "warned"),
        [
            (["Rome"] * 10, ["Rome", *["Oslo"] * 9], True),
            (["Rome"] * 10, None, True),
            (["Rome"] * 9 + ["Oslo"], ["Oslo"] * 10, True),
            (["Rome"] * 10, ["Rome"] * 8 + ["Oslo"] * 2, False),  # most answers are Rome
            (["Rome"] * 5 + ["Oslo"] * 5, ["Lima"] * 10, False),
            (["Rome"], ["Oslo"], False),
            (["Rome", " "], ["Rome", "Oslo"], True),
            ([], [], False),
        ],
    )
    def test_one_answer_to_every_question_is_warned_of(self, runs, said, right, warned):
        assert bool(describe_predictions(load_run(runs / "fine"), said, right)) == warned

    def test_a_run_that_learned_no_questions_is_to_be_finetuned_first(self, runs):
        said = {name: describe_predictions(load_run(runs / name), [""], None)[0] for name in RUNS}
        assert "finetune it first" in said["pre"]
        assert "Train for longer" in said["fine"]


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40), st.integers(1, 30)
)
def test_samples_are_half_right_and_half_wrong_as_far_as_possible(rows, count):
    """Each row: whether the file has an answer for it, and whether the model gives it."""
    questions, answers = [], []
    for line, (known, is_right) in enumerate(rows, start=1):
        truth = f"place {line}" if known else None
        questions.append(Question(line, f"Where was {line} born?", str(line), truth))
        answers.append(Answer(f"place {line}" if is_right else "Nowhere", (), 0.0, 0.0))
    asked = QuestionSet(None, "", (), tuple(questions))  # type: ignore[arg-type]
    drawn = Evaluation(asked, answers, None, (), {}, ()).pick_samples(count)
    assert len(drawn) == len(set(drawn)) == min(count, len(rows))
    every = {
        q.text: (q.text, q.answer or "", a.text) for q, a in zip(questions, answers, strict=True)
    }
    assert drawn == [row for row in every.values() if row in drawn]  # in the file's order
    right = sum(answer == said for _, answer, said in drawn)
    all_right = sum(known and is_right for known, is_right in rows)
    if min(all_right, len(rows) - all_right) >= count // 2 + 1:
        assert right == count // 2


@pytest.fixture(scope="module")
def judged(runs, small_world, tmp_path_factory, make_small):
    """A copy of the finetuned run, evaluated with --judge."""
    run = shutil.copytree(runs / "fine", tmp_path_factory.mktemp("judged") / "fine")
    arguments = ("evaluate", run, small_world / "dev.tsv", "--beside", runs / "scratch")
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        words = [str(word) for word in (*arguments, "--judge", "--quiet")]
        cli.main(words, standalone_mode=False)
    return run


class TestReport:
    def test_a_finetuned_run_answers_the_written_questions(self, judged, runs):
        before = {q["section"] for q in make_report(runs / "fine")["questions"] if q["answered"]}
        assert not before & set(WRITTEN)
        report = make_report(judged)
        answered = {q["section"] for q in report["questions"] if q["answered"]}
        assert answered >= set(WRITTEN)
        assert "questions only" in section(report, "recall")["sentence"]
        assert " ." not in section(report, "recall")["sentence"]
        made = section(report, "training")
        assert "of training in pre." in made["sentence"]
        assert [row[0] for row in made["table"]["rows"]].count("passes of read") == 1

    def test_asked_again_it_keeps_what_was_judged(self, judged, command, small_world):
        before = read_json(judged / "run.json")
        assert before["judgement"]
        assert command("evaluate", judged, small_world / "dev.tsv").code == 0
        after = read_json(judged / "run.json")
        assert after["judgement"] == before["judgement"]
        assert set(after["notes"]) >= {n for n in before["notes"] if "calibration" in n}
        ended = command("ask", judged, "--json", before_question(judged))
        assert json.loads(ended.out)[0]["confidence"] is not None

    def test_a_pretrained_run_has_nothing_to_judge(self, runs, command, small_world, tmp_path):
        run = shutil.copytree(runs / "pre", tmp_path / "pre")
        before = (run / "run.json").read_bytes()
        ended = command("evaluate", run, small_world / "dev.tsv", "--judge", "--quiet")
        assert (ended.code, ended.out) == (2, "")
        assert "judging needs the text and the questions" in ended.err
        assert (run / "run.json").read_bytes() == before


def before_question(run):
    """A question that the run was judged by."""
    return read_judged(run)[0]["question"]


class TestSplit:
    def test_half_of_the_dev_subjects_calibrate_and_no_learned_one_is_used(self, small_world):
        corpus = read_documents(small_world / "documents.txt")
        train, dev = (read_questions(small_world / f"{name}.tsv") for name in ("train", "dev"))
        split = split_dev(corpus, train, dev, seed=0)
        asked = {q.text for q in dev.questions}
        groups = [
            {s.subject for s in split.with_role(role) if s.question in asked}
            for role in (CALIBRATION, JUDGED)
        ]
        assert groups[0].isdisjoint(groups[1])
        assert groups[0] | groups[1] == {q.subject for q in dev.questions}
        assert abs(len(groups[0]) - len(groups[1])) <= 1
        assert {s.question for s in split.subjects}.isdisjoint(q.text for q in train.questions)
        with pytest.raises(UserError, match="has 0 subjects with one answer that were not learned"):
            split_dev(corpus, train, train, seed=0)


class TestExamples:
    def rows(self, command, *arguments):
        ended = command("examples", *arguments, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    def test_span_corruption_moves_one_span_of_its_document_to_the_end(self, command, small_world):
        corpus = small_world / "documents.txt"
        texts = corpus.read_text("utf-8").splitlines()
        rows = self.rows(command, corpus, "--count", 20)
        assert len(rows) == 20
        for row in rows:
            assert row["x"][1:] == row["y"][:-1]
            assert row["loss"] == [1] * len(row["y"])
            whole = row["x"][0] + "".join(row["y"])
            prefix, suffix, masked = whole.split(MASK_CHARACTER)
            assert masked
            assert texts[row["line"] - 1].startswith(prefix + masked + suffix)

    def test_a_question_has_its_loss_on_the_answer(self, command, small_world):
        train = small_world / "train.tsv"
        known = dict(line.split("\t")[:2] for line in train.read_text("utf-8").splitlines())
        rows = self.rows(command, small_world / "documents.txt", train, "--recipe", "course")
        rows = [row for row in rows if row["objective"] == "question"]
        assert len(rows) == 4
        for row in rows:
            question, answer, end = (row["x"][0] + "".join(row["y"])).split(MASK_CHARACTER)
            assert (known[question], end) == (answer, "")
            pairs = zip(row["y"], row["loss"], strict=True)
            learned = "".join(text for text, weight in pairs if weight)
            assert learned == f"{MASK_CHARACTER}{answer}{MASK_CHARACTER}"

    def test_rows_are_shown_and_the_marks_stand_below_what_is_predicted(
        self, command, small_world, monkeypatch
    ):
        monkeypatch.setenv("COLUMNS", "60")
        files = (small_world / "documents.txt", small_world / "train.tsv")
        for recipe in ("course", "pointed"):
            shown = command("examples", *files, "--recipe", recipe, "--count", 1).out
            for block in shown.split("\n\n"):
                x, y = (re.findall(rf"^{name:<6}(.*)$", block, re.M) for name in "xy")
                marks = [line[2:] for line in re.findall(r"^loss(.*)$", block, re.M)]
                assert len(x) == len(y) == len(marks)
                assert all(len(line) <= 54 for line in (*x, *y, *marks))
                assert all(len(m) <= len(t) for m, t in zip(marks, y, strict=True))

    def test_control_characters_of_a_text_do_not_reach_the_terminal(self, command, tmp_path):
        (tmp_path / "c.txt").write_text("Al Bo. Al Bo \x1b[31mwas born in Rome.\n", "utf-8")
        ended = command("examples", tmp_path / "c.txt", "--count", 3)
        assert (ended.code, "\x1b" in ended.out) == (0, False)


def test_progress_counts_the_seconds_of_training(monkeypatch, capsys):
    monkeypatch.setattr(output, "PROGRESS_LINE_SECONDS", -1.0)
    numbers = {"phase": "read", "loss": 1.0, "tokens_per_second": 9.0, "recall": None}
    with output.Progress() as progress:
        for share in np.linspace(0.1, 1, 4):
            step = SimpleNamespace(progress=share, seconds=123 * share, **numbers)
            progress(step, None)  # type: ignore[arg-type]
    seconds = re.findall(r"(\d+) s  loss", capsys.readouterr().err)
    assert seconds == ["12", "49", "86", "123"]
