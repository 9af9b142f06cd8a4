"""The report as a dictionary: every number from the records, and what is missing is said."""

from __future__ import annotations

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import make_judgement, write, write_run

from wherefrom.errors import UserError
from wherefrom.report.sections import mark
from wherefrom.report.study_report import WORDS, make_report

OF_THE_JUDGED = ["documents", "answers", "telling", "grades", "risk", "probabilities",
                 "calibration", "verdicts", "examples"]  # fmt: skip
IDS = [words["id"] for words in WORDS["section"]]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("reported") / "run")


@pytest.fixture(scope="module")
def report(run):
    return make_report(run)


def section(report, id):
    return next(one for one in report["sections"] if one["id"] == id)


def column(found, name):
    at = found["table"]["columns"].index(name)
    return [row[at] for row in found["table"]["rows"]]


def test_a_whole_run_has_every_section_but_twins(report):
    assert [one["id"] for one in report["sections"]] == [
        name for name in dict.fromkeys(IDS) if name != "relations"
    ]
    assert [one["id"] for one in report["sections"] if one["missing"]] == ["twins"]
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_recall_stands_beside_the_baselines(report):
    found = section(report, "recall")
    assert column(found, "who answers") == ["majority", "no pretraining", "pretrained"]
    assert column(found, "correct") == [5, 7, 81]
    assert found["figure"]["data"][0]["x"] == [0.05, 0.07, 0.81]
    assert "81 of 100 (81.0 %)" in found["sentence"]
    assert "5.0 % for always answering Rome" in found["sentence"]
    assert "+76.0 points" in found["sentence"]
    assert found["sentence"].startswith("Yes")
    assert "81 of 100: 81.0 %" in found["figure"]["data"][0]["y"][2]


@pytest.mark.parametrize(
    ("counts", "total", "found"),
    # majority, no pretraining, ours
    [((6, 7, 8), 100, "Not shown here"), ((2, 0, 11), 51, "Yes"), ((5, 0, 5), 100, "No, it does")],
)
def test_whether_pretraining_helps_is_decided_by_a_paired_test(tmp_path, counts, total, found):
    row = {"about": "always Rome", "total": total, "recall": 0.05, "seconds": None}
    names = ("majority", "no pretraining", "pretrained")
    rows = [{**row, "name": n, "correct": c} for n, c in zip(names, counts, strict=True)]
    warning = "The model does not beat the majority answer: train for longer."
    report = make_report(write_run(tmp_path / "run", results=rows, notes=[warning]))
    assert section(report, "recall")["sentence"].startswith(found)
    alone = (
        f"the model alone answers {counts[2] - counts[1]} and the twin without pretraining alone 0"
    )
    assert alone in section(report, "recall")["more"][1]
    assert report["warning"] == (warning if found.startswith("No, ") else "")


def test_each_kind_of_question_has_its_recall_and_its_baselines(tmp_path):
    kinds = {"Where was {subject} born?": (3, 4), "What did {subject} do?": (1, 5)}
    rows = [
        {"name": name, "about": "", "correct": 4, "total": 9, "recall": 4 / 9, "seconds": None,
         "relations": {
             kind: {"correct": right, "total": total, "recall": factor * right / total}
             for kind, (right, total) in kinds.items()
         }}
        for name, factor in (("majority", 0.1), ("no pretraining", 0.2), ("pretrained", 1.0))
    ]  # fmt: skip
    found = section(make_report(write_run(tmp_path / "run", results=rows)), "relations")
    assert column(found, "recall") == [0.75, 0.2]
    assert column(found, "majority") == [pytest.approx(0.075), pytest.approx(0.02)]
    assert column(found, "by name") == [None, None]
    assert column(found, "kind of question") == ["Where was … born?", "What did … do?"]
    assert column(found, "right of the judged") == [pytest.approx(4 / 7), None]
    assert "75.0 % of “Where was" in found["sentence"]


def test_recall_by_documents_and_by_place_adds_up(report):
    found = section(report, "documents")
    assert dict(zip(column(found, "documents"), column(found, "questions"), strict=True)) == {
        "0": 3, "1": 3, "2": 1,
    }  # fmt: skip
    assert "75.0 % of 4 questions about subjects of a document" in found["sentence"]
    assert "33.3 % of 3 about others" in found["sentence"]
    assert "states 3 of its 4 right answers" in found["sentence"]
    assert "gets 7.0 %" in found["sentence"]
    answers = section(report, "answers")
    rows = {row[0]: row[1:] for row in answers["table"]["rows"]}
    assert rows["Rome"] == [2, 1, 0.5]
    assert rows["an answer in training"] == [3, 2, pytest.approx(2 / 3)]
    assert rows["no answer in training"] == [1, 1, 1.0]


def test_grades_are_counted_for_seen_and_unseen_apart(report):
    found = section(report, "grades")
    rows = {(row[0], row[1]): row[2:5] for row in found["table"]["rows"]}
    assert rows == {
        ("seen", "always answer"): [3, 1, 0],
        ("seen", "internal"): [3, 1, 0],
        ("seen", "checked"): [3, 1, 0],
        ("unseen", "always answer"): [1, 2, 0],
        ("unseen", "internal"): [1, 0, 2],
        ("unseen", "checked"): [0, 0, 3],
    }
    assert "3 wrong ones of 7" in found["sentence"]
    assert "2 of 3 are wrong" in found["sentence"]


def test_curves_are_those_of_the_judgement(report):
    record = make_judgement().record["scores"]
    drawn = section(report, "risk")["figure"]["data"]
    assert [one["name"] for one in drawn] == list(record)
    for one in drawn:
        curve = record[one["name"]]["groups"]["together"]["risk_coverage"]
        assert one["x"] == curve["coverage"]
        assert one["y"] == curve["risk"]
    bins = section(report, "calibration")["figure"]["data"][1]
    wanted = record["internal"]["groups"]["together"]["reliability"]
    assert bins["x"] == [one["confidence"] for one in wanted]
    assert bins["customdata"] == [one["subjects"] for one in wanted]
    bars = section(report, "telling")["figure"]["data"]
    assert [sum(one["y"]) for one in bars] == [4, 3]


def test_examples_show_the_ends_of_each_verdict_with_their_lines(report):
    examples = section(report, "examples")["examples"]
    assert [(one["verdict"], one["subject"]) for one in examples] == [
        ("stated", "Ann Clark"),
        ("stated", "Di Moss"),
        ("misremembered", "Cy Brand"),
        ("guessed", "Ed Fox"),
        ("made up", "Flo Reed"),
        ("made up", "Gus Hall"),
    ]
    ann, cy = examples[0], examples[2]
    assert [line["text"] for line in ann["evidence"]] == ["Ann Clark. Ann Clark was born in Rome."]
    assert ann["evidence"][0]["states_answer"]
    kinds = {piece["text"]: piece["kind"] for piece in ann["evidence"][0]["pieces"]}
    assert kinds["Ann Clark"] == "name"
    assert kinds["Rome"] == "place"
    wrong = {piece["text"]: piece["kind"] for piece in cy["evidence"][0]["pieces"]}
    assert wrong["Rome"] == "truth"
    assert not cy["evidence"][0]["states_answer"]
    assert examples[-1]["evidence"] == []


def test_every_question_has_an_answer_and_its_figure(report):
    assert len(report["questions"]) == 6
    for one in report["questions"]:
        assert one["answered"]
        assert section(report, one["section"])["figure"] or one["section"] == "cost"
        assert one["answer"] == section(report, one["section"])["sentence"]


def test_what_was_trained_on_what_has_hashes_seed_and_command(report, run):
    rows = dict(section(report, "made")["table"]["rows"])
    info = json.loads((run / "run.json").read_text("utf-8"))
    assert rows["corpus, SHA-256"] == info["data"]["corpus"]["sha256"]
    assert rows["weights, SHA-256"] == info["sha256"]
    assert rows["seed"] == "3"
    assert rows["command"] == "wherefrom study 'a file.txt' --seed 3"
    assert "12 seconds, 30 steps, 3,000 tokens" in rows["training"]


def test_the_map_of_names_keeps_every_share(report):
    drawn = section(report, "names")["figure"]["data"][0]
    assert drawn["x"] == ["United Kingdom", "Czechia", "others", "no known place"]
    assert drawn["z"] == [[0.7, 0.1, 0, 0.2], [0.5, 0.2, 0, 0.3]]


@pytest.mark.parametrize(
    ("files", "lost"),
    [
        (["judgement.json"], OF_THE_JUDGED),
        (["origins.json"], ["names"]),
        (["metrics.jsonl"], ["curves"]),
        (["evidence.sqlite"], []),
        (["judged.jsonl"], ["answers", "examples"]),
    ],
)
def test_what_a_run_does_not_have_is_said(tmp_path, files, lost):
    run = write_run(tmp_path / "run")
    for name in files:
        (run / name).unlink()
    report = make_report(run)
    missing = [one["id"] for one in report["sections"] if one["missing"]]
    assert set(missing) == {*lost, "twins"}
    assert all(one["sentence"] for one in report["sections"])
    assert "cannot be read" not in json.dumps(report)
    if files == ["evidence.sqlite"]:
        assert "The lines are not shown" in section(report, "examples")["more"][0]


def test_a_judgement_of_other_weights_is_left_out(tmp_path):
    run = write_run(tmp_path / "run", sha256="cd" * 32)
    report = make_report(run)
    assert section(report, "grades")["missing"]
    assert section(report, "examples")["missing"]
    assert any("other weights" in note for note in report["notes"])


def test_twins_are_reported_where_they_were_made(tmp_path):
    run = write_run(tmp_path / "run")
    twin = run / "twins" / "without-ann-clark"
    twin.mkdir()
    record = {"subject": "Ann Clark", "documents": [{"line": 1, "text": "x"}], "right": "Rome",
              "with": {"answer": "Rome"}, "without": {"answer": "Oslo"}, "score": 3.5,
              "truth": "remembered", "why": "It needed the line."}  # fmt: skip
    for written, subjects in ((record, 1), ({"people": [record] * 2}, 2)):  # several left out
        write(twin / "without.json", written)
        found = section(make_report(run), "twins")
        assert not found["missing"]
        row = ["Ann Clark", 1, "Rome", "Oslo", "Rome", 3.5, "remembered"]
        assert found["table"]["rows"] == [row] * subjects
        assert found["more"] == ["It needed the line."] * subjects


@pytest.mark.parametrize(
    ("broken", "content"),
    [
        ("judgement.json", "{"),
        ("judgement.json", '{"scores": {"internal": NaN}}'),
        ("origins.json", "[1]"),
        ("origins.json", '{"sentences": []}'),
        ("calibration.json", '{"reader": 3}'),
        ("metrics.jsonl", '{"step": 4'),
    ],
)
def test_broken_records_cost_their_sections_alone(run, tmp_path, broken, content):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / broken).write_text(content, encoding="utf-8")
    report = make_report(tmp_path / "run")
    assert not section(report, "recall")["missing"]
    json.dumps(report, allow_nan=False)
    if broken == "metrics.jsonl":
        assert "metrics.jsonl has 1 broken line" in " ".join(report["notes"])


@pytest.mark.parametrize(
    ("record", "word"),
    [(None, "is not a run"), ("[]", "broken"), ('{"status": "training"}', "has not finished")],
)
def test_what_is_no_finished_run_is_refused(tmp_path, record, word):
    if record:
        (tmp_path / "run.json").write_text(record, encoding="utf-8")
    with pytest.raises(UserError, match=word):
        make_report(tmp_path)


@given(st.text(max_size=60), st.text(max_size=12), st.text(max_size=12), st.text(max_size=12))
def test_marking_loses_nothing(text, subject, answer, truth):
    pieces = mark(text, subject, answer, truth)
    assert "".join(piece["text"] for piece in pieces) == text
    assert {piece["kind"] for piece in pieces} <= {"", "name", "place", "truth"}


def test_a_strange_run_json_still_gives_a_report(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    info = json.loads((run / "run.json").read_text("utf-8"))
    for key, odd in (("job", 3), ("data", ["x"]), ("results", 3), ("versions", ["x"]),
                     ("notes", 3), ("command", 3)):  # fmt: skip
        write(tmp_path / "run" / "run.json", {**info, key: odd})
        report = make_report(tmp_path / "run")
        assert len(report["sections"]) >= len(set(IDS)) - 1
        json.dumps(report, allow_nan=False)
