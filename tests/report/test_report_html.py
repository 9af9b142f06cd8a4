"""The report as a file: self-contained, nothing runs but what it names, nothing unescaped."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import HOSTILE, write_lines, write_run

from wherefrom.report.figures import label
from wherefrom.report.render import render_html, render_markdown
from wherefrom.report.study_report import make_report, show_cell


class Page(HTMLParser):
    """The tags of a page in order, and what stands in its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._inside != "style":
            self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def render(run: Path) -> tuple[dict[str, Any], Page]:
    report = make_report(run)
    return report, Page(render_html(report))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Page]:
    return render(write_run(tmp_path_factory.mktemp("pages") / "run"))


def test_nothing_comes_from_elsewhere(made):
    _, page = made
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & {
        t for t, _ in page.tags
    }
    for _, attributes in page.tags:
        for name in ("src", "href", "action", "data", "srcset"):
            assert (attributes.get(name) or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]


def test_the_policy_lets_run_what_the_page_holds_and_nothing_else(made):
    _, page = made
    policy = next(m["content"] for m in page.of("meta") if "http-equiv" in m)
    assert policy is not None
    assert "default-src 'none'" in policy
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    scripts = [text for attributes, text in page.scripts if not attributes.get("type")]
    found = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert found == allowed
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert len(scripts) == 2


def test_the_figures_are_those_of_the_dictionary(made):
    report, page = made
    blocks = [json.loads(t) for a, t in page.scripts if a.get("type") == "application/json"]
    figures = [section["figure"] for section in report["sections"] if section["figure"]]
    assert blocks == figures
    assert len(blocks) >= 8


def test_every_link_of_the_contents_leads_somewhere(made):
    _, page = made
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [str(a["href"])[1:] for a in page.of("a")]
    assert links
    assert set(links) <= set(ids)


def test_headlines_questions_and_cells_are_all_shown(made):
    report, page = made
    text = "".join(page.text)
    for one in report["headlines"]:
        assert one["value"] in text
        assert one["about"] in text
    for one in report["questions"]:
        assert one["question"] in text
    for section in report["sections"]:
        if section["table"]:
            for row in section["table"]["rows"]:
                for value, form in zip(row, section["table"]["formats"], strict=True):
                    assert show_cell(value, form) in text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bad = f'"><img src=x onerror=alert(1)>{HOSTILE}'.replace("/", "\u2215")
    run = write_run(
        tmp_path_factory.mktemp("hostile") / bad,
        notes=[HOSTILE, "`<b>`"],
        command=["wherefrom", HOSTILE],
        versions={HOSTILE: HOSTILE},
        results=[{"name": HOSTILE, "about": HOSTILE, "correct": 1, "total": 2, "recall": 0.5,
                  "seconds": None}],
    )  # fmt: skip
    judged = [json.loads(line) for line in (run / "judged.jsonl").read_text("utf-8").splitlines()]
    for one in judged:
        one |= {"subject": f"Ann {HOSTILE}", "question": HOSTILE, "said": HOSTILE}
        one["answer"] = f"{HOSTILE} Rome"
    write_lines(run / "judged.jsonl", judged)
    return run


def test_hostile_names_and_runs_are_escaped(hostile):
    report, page = render(hostile)
    assert not page.of("img")
    assert not page.of("b")[len(report["headlines"]) :]
    figures = [section for section in report["sections"] if section["figure"]]
    assert len(page.scripts) == len(figures) + 2
    ours = [text for attributes, text in page.scripts if not attributes.get("type")]
    assert not [text for text in ours if text.startswith("alert")]
    shown = "".join(page.text)
    assert HOSTILE in shown  # as text
    for section in figures:  # plotly would take a tag in a label for a tag
        assert "<script" not in json.dumps(section["figure"])


def test_markdown_has_no_markup_of_strangers(hostile, made):
    text = render_markdown(make_report(hostile))
    assert not re.search(r"(?<!\\)<script", text)
    assert not re.search(r"(?<!\\)<img", text)
    report, _ = made
    text = render_markdown(report)
    assert "| pretrained | llama | 81 | 100 | 81.0 % |" in text
    assert "> line 1: Ann Clark. Ann Clark was born in Rome." in text
    for one in report["sections"]:
        assert f"## {one['title']}" in text


@given(st.text(max_size=80))
def test_a_label_is_one_short_line_without_tags(text):
    made = label(text)
    assert "<" not in made
    assert ">" not in made
    assert "\n" not in made


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (None, "percent", "–"),
        (0.8125, "percent", "81.2 %"),
        (1234567, "count", "1,234,567"),
        (0.93267, "number", "0.933"),
        (299.77, "number", "299.8"),
        ("a | b", "text", "a | b"),
        (True, "count", "True"),
    ],
)
def test_cells_read_as_people_write_them(value, form, shown):
    assert show_cell(value, form) == shown
