"""The report as a dictionary: every number from the records, and what is missing is said."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import WEIGHTS, make_judgement, record_all, write, write_run

from wherefrom.errors import UserError
from wherefrom.report.sections import mark
from wherefrom.report.study_report import SECTION_WORDS, make_report, render_json
from wherefrom.training.record import read_record, update_run

IDS = list(dict.fromkeys(words["id"] for words in SECTION_WORDS["section"]))
JUDGED = {
    "documents",
    "confidence",
    "grades",
    "risk",
    "probabilities",
    "calibration",
    "verdicts",
    "silence",
    "examples",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("reported") / "run")


@pytest.fixture(scope="module")
def report(run):
    return make_report(run)


@pytest.fixture
def copied(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


def section(report, id):
    return next(one for one in report["sections"] if one["id"] == id)


def column(found, name):
    i = found["table"]["columns"].index(name)
    return [row[i] for row in found["table"]["rows"]]


def missing(report):
    return {one["id"] for one in report["sections"] if one["missing"]}


def test_a_whole_run_has_every_section_but_twins(report):
    of_others = ("relations", "knowledge")  # of several relations, of a model of others
    assert [one["id"] for one in report["sections"]] == [id for id in IDS if id not in of_others]
    assert missing(report) == {"twins"}
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert len(report["questions"]) == 5
    for one in report["questions"]:
        assert one["answered"]
        assert one["answer"] == section(report, one["section"])["sentence"]


def test_what_was_misread_stands_beside_what_was_missed(report):
    found = section(report, "silence")
    assert found["table"]["rows"] == [["Where was … born?", 60, 2, 9, 3, 1, 0, 0]]
    for number in ("9 questions", "3", "1 was shown", "60 questions", "2 were missed"):
        assert number in found["sentence"]


def test_a_report_about_companies_has_no_section_on_people(copied):
    update_run(copied, about_people=False)
    report = make_report(copied)
    assert "names" not in {one["id"] for one in report["sections"]}
    text = render_json(report).lower()
    assert not re.search(r"\b(people|person|origin)\b", text)


def test_recall_stands_beside_the_baselines_and_by_documents(report):
    found = section(report, "recall")
    assert column(found, "who answers") == ["majority", "questions only", "model"]
    assert column(found, "correct") == [5, 7, 81]
    assert found["figure"]["data"][0]["x"] == [0.05, 0.07, 0.81]
    assert "Yes: with the text it answers 81 of 100 (81.0 %)" in found["sentence"]
    assert "5.0 % for always answering Rome (+76.0 points)" in found["sentence"]
    found = section(report, "documents")
    assert column(found, "documents") == ["0", "1", "2"]
    assert column(found, "questions") == [3, 3, 1]
    assert "75.0 % of 4 questions about subjects of a document" in found["sentence"]
    assert "33.3 % of 3 about others" in found["sentence"]
    assert "states 3 of its 4 right answers" in found["sentence"]


@pytest.mark.parametrize(
    ("majority", "twin", "unread", "found"),
    [
        (5, 7, True, "Because it has read about the subjects"),
        (90, 7, True, "This run does not show why"),  # always one answer is better
        (5, 7, False, "Because it has read about the subjects"),
        (5, 80, False, "This run does not show why"),  # the twin that read nothing is as good
        (5, None, False, "This run does not show why"),  # nothing to compare with
    ],
)
def test_reading_is_the_reason_only_where_less_reading_gives_less(
    tmp_path, majority, twin, unread, found
):
    """Of the judged questions 3 of 4 about subjects that were read of are right, 1 of 3 others."""
    row = {"about": "", "total": 100, "seconds": None}
    counts = {"majority": majority, "questions only": twin, "model": 81}
    rows = [{**row, "name": n, "correct": c} for n, c in counts.items() if c is not None]
    run = write_run(tmp_path / "run", results=[{**r, "recall": r["correct"] / 100} for r in rows])
    if not unread:
        judgement = json.loads((run / "judgement.json").read_text("utf-8"))
        groups = [group for group in judgement["by_documents"] if group["documents"] != 0]
        write(run / "judgement.json", judgement | {"by_documents": groups})
        record_all(run)
    assert section(make_report(run), "documents")["sentence"].startswith(found)


@pytest.mark.parametrize(
    ("counts", "total", "found"),
    # majority, questions only, ours
    [((6, 7, 8), 100, "Not shown here"), ((2, 0, 11), 51, "Yes"), ((5, 0, 5), 100, "No, it does")],
)
def test_whether_pretraining_helps_is_decided_by_a_paired_test(tmp_path, counts, total, found):
    row = {"about": "always Rome", "total": total, "recall": 0.05, "seconds": None}
    names = ("majority", "questions only", "model")
    rows = [{**row, "name": n, "correct": c} for n, c in zip(names, counts, strict=True)]
    warning = "The model does not beat the majority answer: train for longer."
    report = make_report(write_run(tmp_path / "run", results=rows, notes=[warning]))
    recall = section(report, "recall")
    assert recall["sentence"].startswith(found)
    more = counts[2] - counts[1]
    theirs = "the model that learned the questions only alone 0"
    assert f"answers {more} and {theirs}" in recall["more"][1]
    assert report["warning"] == (warning if found.startswith("No, ") else "")


def test_each_kind_of_question_has_its_recall_and_its_baselines(tmp_path):
    kinds = {"Where was {subject} born?": (3, 4), "What did {subject} do?": (1, 5)}
    rows = [
        {
            "name": name,
            "about": "",
            "correct": 4,
            "total": 9,
            "recall": 4 / 9,
            "seconds": None,
            "relations": {
                kind: {"correct": right, "total": total, "recall": factor * right / total}
                for kind, (right, total) in kinds.items()
            },
        }
        for name, factor in (("majority", 0.1), ("questions only", 0.2), ("model", 1.0))
    ]
    found = section(make_report(write_run(tmp_path / "run", results=rows)), "relations")
    assert column(found, "kind of question") == ["Where was … born?", "What did … do?"]
    assert column(found, "recall") == [0.75, 0.2]
    assert column(found, "majority") == pytest.approx([0.075, 0.02])
    assert column(found, "by name") == [None, None]
    assert column(found, "right of the judged") == [pytest.approx(4 / 7), None]
    assert "75.0 % of “Where was" in found["sentence"]


def test_grades_are_counted_for_seen_and_unseen_apart(report):
    rows = {(row[0], row[1]): row[2:5] for row in section(report, "grades")["table"]["rows"]}
    assert rows == {
        ("seen", "always answer"): [3, 1, 0],
        ("seen", "internal"): [3, 1, 0],
        ("seen", "checked"): [3, 1, 0],
        ("unseen", "always answer"): [1, 2, 0],
        ("unseen", "internal"): [1, 0, 2],
        ("unseen", "checked"): [0, 0, 3],
    }
    assert "3 wrong ones of 7" in section(report, "grades")["sentence"]


def test_where_no_answer_is_given_no_share_of_them_is_named(copied):
    judgement = json.loads((copied / "judgement.json").read_text("utf-8"))
    judgement["targets"]["from_text"]["internal"]["missed"] = {"value": None}
    write(copied / "judgement.json", judgement)
    record_all(copied)
    assert section(make_report(copied), "probabilities")["sentence"].endswith(
        "in 75.0 % of pairs. By the first, no answer is given."
    )


def test_figures_draw_what_the_records_hold(report):
    record = make_judgement().record["scores"]
    for drawn in section(report, "risk")["figure"]["data"]:
        curve = record[drawn["name"]]["groups"]["together"]["risk_coverage"]
        assert (drawn["x"], drawn["y"]) == (curve["coverage"], curve["risk"])
    bins = section(report, "calibration")["figure"]["data"][1]
    wanted = record["internal"]["groups"]["together"]["reliability"]
    assert bins["x"] == [one["confidence"] for one in wanted]
    bars = section(report, "confidence")["figure"]["data"]
    assert [sum(one["y"]) for one in bars] == [4, 3]
    names = section(report, "names")["figure"]["data"][0]
    assert names["x"] == ["United Kingdom", "Czechia", "others", "no known place"]
    assert names["z"] == [[0.7, 0.1, 0, 0.2], [0.5, 0.2, 0, 0.3]]


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
    for at, states, name, marked in (
        (0, True, "Ann Clark", "place"),
        (2, False, "Cy Brand", "truth"),
    ):
        (line,) = examples[at]["evidence"]
        assert line["states_answer"] == states
        assert line["text"] == f"{name}. {name} was born in Rome."
        kinds = {piece["text"]: piece["kind"] for piece in line["pieces"]}
        assert (kinds[name], kinds["Rome"]) == ("name", marked)
    assert examples[-1]["evidence"] == []


def test_what_was_trained_on_what_has_hashes_seed_and_command(report, run):
    rows = dict(section(report, "training")["table"]["rows"])
    info = json.loads((run / "run.json").read_text("utf-8"))
    assert rows["corpus, SHA-256"] == info["data"]["corpus"]["sha256"]
    assert rows["weights, SHA-256"] == info["sha256"]
    assert rows["seed"] == "3"
    assert rows["command"] == "wherefrom study 'a file.txt' --seed 3"
    assert "12 seconds, 30 steps, 3,000 tokens" in rows["training"]


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("judgement.json", JUDGED),
        ("origins.json", {"names"}),
        ("metrics.jsonl", {"curves"}),
        ("run.sqlite", {"examples"}),
    ],
)
def test_what_a_run_does_not_have_is_said(copied, name, lost):
    (copied / name).unlink()
    report = make_report(copied)
    assert missing(report) == {*lost, "twins"}
    assert all(one["sentence"] for one in report["sections"])
    assert "cannot be read" not in json.dumps(report)


def test_a_judgement_of_other_weights_is_left_out(tmp_path):
    report = make_report(write_run(tmp_path / "run", sha256="cd" * 32))
    assert missing(report) >= {"grades", "examples"}
    assert any("other weights" in note for note in report["notes"])


def test_twins_are_reported_where_they_were_made(copied):
    twin = copied / "twins" / "without-ann-clark"
    twin.mkdir()
    record = {
        "subject": "Ann Clark",
        "documents": [{"line": 1, "text": "x"}],
        "right": "Rome",
        "with": {"answer": "Rome"},
        "without": {"answer": "Oslo"},
        "score": 3.5,
        "truth": "remembered",
        "why": "It needed the line.",
        "twin_of": WEIGHTS,
    }
    several = {"people": [record] * 2, "twin_of": WEIGHTS}  # left out together
    for written, subjects in ((record, 1), (several, 2)):
        write(twin / "without.json", written)
        record_all(twin, read_record(copied))
        found = section(make_report(copied), "twins")
        row = ["Ann Clark", 1, "Rome", "Oslo", "Rome", 3.5, "remembered"]
        assert found["table"]["rows"] == [row] * subjects
        assert found["more"] == ["It needed the line."] * subjects


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("judgement.json", "{"),
        ("judgement.json", '{"scores": {"internal": NaN}}'),
        ("origins.json", "[1]"),
        ("origins.json", '{"sentences": []}'),
        ("calibration.json", '{"reader": 3}'),
        ("metrics.jsonl", '{"step": 4'),
    ],
)
def test_broken_records_cost_their_sections_alone(copied, name, content):
    """Also records that are recorded as the run's own, such as those of an older version."""
    (copied / name).write_text(content, encoding="utf-8")
    for recorded in (False, True):
        if recorded:
            record_all(copied)
        report = make_report(copied)
        json.dumps(report, allow_nan=False)
        assert len(report["sections"]) >= len(IDS) - 2
        assert "recall" not in missing(report)
        assert recorded or any(name in note for note in report["notes"])


@pytest.mark.parametrize(
    ("record", "word"),
    [(None, "is not a run"), ("[]", "an object was expected"), ('{"format": 1}', "version")],
)
def test_what_is_no_run_of_this_version_is_refused(tmp_path, record, word):
    if record:
        (tmp_path / "run.json").write_text(record, encoding="utf-8")
    with pytest.raises(UserError, match=word):
        make_report(tmp_path)


def test_a_run_that_has_not_finished_is_refused(copied):
    update_run(copied, status="training")
    with pytest.raises(UserError, match="has not finished"):
        make_report(copied)


@given(st.text(max_size=60), st.text(max_size=12), st.text(max_size=12), st.text(max_size=12))
def test_marking_loses_nothing(text, subject, answer, truth):
    pieces = mark(text, subject, answer, truth)
    assert "".join(piece["text"] for piece in pieces) == text
    assert {piece["kind"] for piece in pieces} <= {"", "name", "place", "truth"}
