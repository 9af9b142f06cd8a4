"""The report as a file and as a command: self-contained, nothing unescaped, nothing lost."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import HOSTILE, write_hostile_run, write_run

from wherefrom.report.figures import label
from wherefrom.report.study_report import make_report, render_html, show_cell


class Page(HTMLParser):
    """The tags of a page in order, its text, and what stands in its scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.text, self._inside = [], [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append([dict(attrs), ""])

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1][1] += data
        elif self._inside != "style":
            self.text += data

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    report = make_report(write_run(tmp_path_factory.mktemp("pages") / "run"))
    return report, Page(render_html(report))


def test_nothing_comes_from_elsewhere_and_only_what_the_page_holds_may_run(made):
    _, page = made
    foreign = {"link", "img", "iframe", "object", "embed", "base", "form"}
    assert not foreign & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        for name in ("src", "href", "action", "data", "srcset"):
            assert (attributes.get(name) or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    policy = next(m["content"] for m in page.of("meta") if "http-equiv" in m)
    scripts = [text for attributes, text in page.scripts if not attributes.get("type")]
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert len(hashes) == 2
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    assert policy.startswith(f"default-src 'none'; script-src {allowed}; ")


def test_all_of_the_dictionary_is_shown_and_links_lead_somewhere(made):
    report, page = made
    blocks = [json.loads(t) for a, t in page.scripts if a.get("type") == "application/json"]
    assert blocks == [section["figure"] for section in report["sections"] if section["figure"]]
    assert len(blocks) >= 8
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {a["href"][1:] for a in page.of("a")}
    assert links
    assert links <= set(ids)
    for one in report["headlines"]:
        assert one["value"] in page.text
        assert one["about"] in page.text
    for table in (section["table"] for section in report["sections"] if section["table"]):
        for row in table["rows"]:
            for value, form in zip(row, table["formats"], strict=True):
                assert show_cell(value, form) in page.text


def test_numbers_that_are_not_known_are_left_out_of_sentences(made):
    """It said "The right answer is -." and "– of what is given is not from the text"."""
    report = copy.deepcopy(made[0])
    examples = next(one for one in report["sections"] if one["id"] == "examples")["examples"]
    seen = next(one for one in examples if not one["right"] and one["seen"])
    assert f"The right answer is {seen['answer']}." in Page(render_html(report)).text
    seen["answer"] = "-"
    text = Page(render_html(report)).text
    assert "The right answer is -" not in text
    assert "No line states the right answer." in text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    bad = f'"><img src=x onerror=alert(1)>{HOSTILE}'.replace("/", "\u2215")
    row = {"name": HOSTILE, "about": HOSTILE, "correct": 1, "total": 2, "recall": 0.5}
    return write_hostile_run(
        tmp_path_factory.mktemp("hostile") / bad,
        command=["wherefrom", HOSTILE],
        versions={HOSTILE: HOSTILE},
        results=[{**row, "seconds": None}],
    )


def test_hostile_names_and_runs_are_escaped(hostile):
    report = make_report(hostile)
    page = Page(render_html(report))
    assert not page.of("img")
    assert not page.of("b")[len(report["headlines"]) :]
    figures = [section for section in report["sections"] if section["figure"]]
    assert len(page.scripts) == len(figures) + 2
    assert not [text for a, text in page.scripts if not a.get("type") and text.startswith("alert")]
    assert HOSTILE in page.text  # as text
    for section in figures:  # plotly would take a tag in a label for a tag
        assert "<script" not in json.dumps(section["figure"])


@given(st.text(max_size=80))
def test_a_label_is_one_short_line_without_tags(text):
    assert not set("<>\n") & set(label(text))


# ---- `wherefrom report`, and the report that a study ends with


@pytest.fixture(scope="module")
def studied(tiny_study, tmp_path_factory):
    """A copy of the study, in which reports are written and removed."""
    return Path(shutil.copytree(tiny_study, tmp_path_factory.mktemp("runs") / "run"))


@pytest.mark.usefixtures("small_training")
def test_a_study_ends_with_its_report(command, studied, quick_recipe, tiny_study_options):
    words = ("study", *tiny_study_options, "--recipe", quick_recipe, "--out", studied, "--resume")
    (studied / "report.html").unlink()
    ended = command(*words)
    assert ended.code == 0, ended.err
    assert f"report written to {studied / 'report.html'}" in ended.err
    assert "Recall against the baselines" in (studied / "report.html").read_text("utf-8")


def test_real_records_fill_every_section(studied):
    report = make_report(studied)
    assert [one["id"] for one in report["sections"] if one["missing"]] == ["leaning", "twins"]
    assert all(one["answered"] for one in report["questions"])
    results = json.loads((studied / "run.json").read_text("utf-8"))["results"]
    recall = next(one for one in report["sections"] if one["id"] == "recall")
    assert [row[2] for row in recall["table"]["rows"]] == [row["correct"] for row in results]
    # what a line states is shown without a guarantee, and was said not to be shown
    (note,) = [note for note in report["notes"] if note.startswith("from text, checked: no thr")]
    assert note.endswith("what a line states is shown all the same.")


def test_the_same_records_give_the_same_file_in_each_format(command, studied, tmp_path):
    ended = command("report", studied, "--out", tmp_path / "two.html")
    assert (ended.code, ended.out) == (0, "")
    assert (studied / "report.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    ended = command("report", studied, "--format", "json")
    assert json.loads(ended.out) == make_report(studied)
    command("report", studied, "--out", tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text("utf-8") == ended.out
