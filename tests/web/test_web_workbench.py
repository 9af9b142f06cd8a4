"""The workbench's numbers are the library's, and the chapters' answers are proved."""

from __future__ import annotations

import html
import re
from base64 import b64decode
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from web_samples import PAGE

from wherefrom.checker import PROBLEMS, check
from wherefrom.web.workbench import CHAPTERS, draw_length


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_answer_of_a_chapter_is_proved_and_is_not_in_the_box(name, client):
    assert check(name, CHAPTERS[name]["formulas"]).verdict == "proved"
    assert set(CHAPTERS) == set(PROBLEMS)
    page = client.get(f"/workbench/{name}", headers=PAGE).text
    assert "<summary>Show the answer</summary>" in page
    assert "<details open" not in page
    assert re.search(r"<textarea[^>]*></textarea>", page)


def test_page_guide_and_command_have_one_order_and_numbering(client):
    guide = (Path(__file__).parents[2] / "docs" / "workbench.md").read_text(encoding="utf-8")
    in_guide = re.findall(r"(?m)^## (\d+)\. (.*)$", guide)
    for path in ("/workbench.json", "/workbench/rotary.json"):
        chapters = client.get(path).json()["chapters"]
        assert [(str(one["number"]), one["title"]) for one in chapters] == in_guide
        assert [one["name"] for one in chapters] == list(PROBLEMS)


def numbers_of(array):
    """The numbers of an array as a figure holds it."""
    return np.frombuffer(b64decode(array["bdata"]), array["dtype"])


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("K=[[2, 1], [1, 0], [0, 1], [3, 0]]\nq=beta*(1, 2)", [(2, 1), (1, 0), (0, 1), (3, 0)]),
        ("K=[[1/2,1/2],[1,0],[0,1]]\nw=(1/2,1/2)", [(0.5, 0.5), (1, 0), (0, 1)]),
        ("K=[[7,-1],[1,0]]\nq=beta*(1,0)", [(7, -1), (1, 0)]),
        ("K=[[-0.5,3],[0,0],[2,2],[4,4]]\nq=beta*(-1,1)", [(-0.5, 3), (0, 0), (2, 2), (4, 4)]),
    ],
)
def test_the_figure_of_the_hull_shows_the_keys_that_were_written(client, written, keys):
    drawing = client.get("/workbench/hull.json", params={"formulas": written}).json()["drawing"]
    assert drawing["sentence"].startswith("Your keys.")
    dots = [trace for trace in drawing["figure"]["data"] if trace.get("mode") == "markers"]
    drawn = np.hstack([[numbers_of(trace[axis]) for axis in "xy"] for trace in dots]).T
    assert sorted(drawn.tolist()) == sorted(map(list, keys))


def test_keys_that_cannot_be_drawn_leave_the_example(client):
    written = {"formulas": "K=[[1,2,3],[0,0,1]]\nq=beta*(0,1,1)"}
    record = client.get("/workbench/hull.json", params=written).json()
    assert record["verdict"]["verdict"] == "proved"
    assert "an example" in record["drawing"]["sentence"]


@pytest.mark.parametrize("name", [name for name in CHAPTERS if CHAPTERS[name]["sliders"]])
def test_a_slider_moves_the_figure(name, client):
    address, sliders = f"/workbench/{name}.json", CHAPTERS[name]["sliders"]
    first = client.get(address).json()["drawing"]
    for slider in sliders:
        settings = [{slider["name"]: slider[end]} for end in ("least", "most")]
        ends = [client.get(address, params=each).json()["drawing"] for each in settings]
        assert any(end["figure"] != first["figure"] for end in ends), slider
    refused = client.get(address, params={sliders[0]["name"]: "1e9"})
    assert refused.status_code == 400
    assert "must be a number between" in refused.json()["error"]


def test_the_caret_stands_under_its_column_and_what_was_read_is_typeset(client):
    asked = {"formulas": r"$q_1 = t\mu_a$" "\n" r"$q_2 = t\mu_b$"}
    page = client.get("/workbench/two-heads", params=asked, headers=PAGE).text
    assert "= β <i>μ</i><sub>a</sub>" in page
    assert "of samples that are kept" in page
    asked = {"formulas": "q = beta*(k_a + k_x)"}
    page = client.get("/workbench/average", params=asked, headers=PAGE).text
    shown = re.search(r'<pre class="caret">(.*?)</pre>', page, re.DOTALL)
    formula, caret = html.unescape(shown[1]).splitlines()
    assert formula[caret.index("^") :].startswith("k_x")


def test_one_head_runs_away_and_two_stay(client):
    one = client.get("/workbench.json", params={"design": "one-head", "e": 1.6, "beta": 10}).json()
    two = client.get("/workbench.json", params={"design": "two-heads", "e": 1.6, "beta": 10}).json()
    assert one["result"]["now"]["a"] > 0.99
    assert two["result"]["now"]["a"] == pytest.approx(0.5, abs=0.01)
    assert two["result"]["heads"] == 2
    assert one["result"]["law"]["sd"] == pytest.approx(0.442, abs=0.001)
    assert one["result"]["agrees"]


@pytest.mark.parametrize("design", ["one-head", "two-heads", "avoiding-head", "repelling-heads"])
@pytest.mark.parametrize(
    ("n", "alpha", "stretch"), [(2, 0.0, 0.0), (200, 0.05, 1.0), (3, 0.01, 0.5)]
)
def test_the_sliders_can_stand_anywhere(client, design, n, alpha, stretch):
    for beta in (0, 60):
        asked = {"design": design, "n": n, "alpha": alpha, "stretch": stretch, "beta": beta}
        asked["heads"] = 4
        reply = client.get("/workbench.json", params=asked)
        assert reply.status_code == 200, reply.text
        now = reply.json()["result"]["now"]
        assert now["a"] + now["b"] + now["others"] == pytest.approx(1.0)
    assert client.get("/workbench", params=asked, headers=PAGE).status_code == 200


def test_lengths_are_drawn_from_the_law():
    drawn = [draw_length(0.5, seed) for seed in range(300)]
    assert mean(drawn) == pytest.approx(1.0, abs=0.15)
    assert stdev(drawn) == pytest.approx(0.7, abs=0.1)
    assert -1 <= min(drawn) < max(drawn) <= 3
    assert draw_length(0.0, 5) == 1.0


def test_a_construction_is_checked_and_its_counterexample_drawn(client):
    reply = client.get("/workbench/average", params={"formulas": "q = k_a + k_b"}, headers=PAGE)
    assert 'class="chip refuted"' in reply.text
    assert 'class="bars"' in reply.text
    record = client.get("/workbench/average.json", params={"formulas": "q=beta*(k_a+k_b)"}).json()
    assert record["verdict"]["verdict"] == "proved"
    words = {"formulas": "K=I\r\nQ=I\r\nV=I"}
    assert (
        'class="bars"' in client.get("/workbench/self-attention", params=words, headers=PAGE).text
    )
    matrix = {"formulas": "M=B@B.T"}
    assert "wanted" in client.get("/workbench/extract", params=matrix, headers=PAGE).text


def test_a_formula_that_is_refused_stays_in_the_box_below_the_reason(client):
    written = {"formulas": "q=__import__('os')"}
    assert client.get("/workbench/copy.json", params=written).status_code == 400
    page = client.get("/workbench/copy", params=written, headers=PAGE)
    assert page.status_code == 400
    assert 'role="alert"' in page.text
    assert "q=__import__(&#39;os&#39;)" in page.text
