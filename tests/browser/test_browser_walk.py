"""Every page in a real Chromium: by keyboard and by mouse, wide and narrow, dark and light."""

from __future__ import annotations

import time
from urllib.parse import quote

import pytest
from web_samples import HOSTILE_RUN

PAGES = {
    "/ask": "Ask, and see",
    "/ask?run=small&question=Nobody+Here": "Ask, and see",
    "/workbench": "Workbench",
    "/workbench/self-attention?formulas=K%3DI%0AQ%3DI%0AV%3DI": "Keys, queries",
    "/inside?run=small&other=small/twins/scratch&question=Ann+Moe": "Inside",
    "/runs": "Runs",
    "/run?name=small": "small",
    f"/run?name={quote(HOSTILE_RUN)}": HOSTILE_RUN,
    "/compare?run=small&run=small/twins/scratch": "Side by side",
    "/report?run=small": "Report",
}
NARROW = {"width": 375, "height": 700}
# what is wider than the box that it stands in, unless that box can be scrolled
STICKING_OUT = """[...document.querySelectorAll('.card')].flatMap((card) => {
  const edge = card.getBoundingClientRect().right;
  return [...card.querySelectorAll('*')].filter((each) =>
    !each.closest('.scroll, .wide, svg, .away, .js-plotly-plot') && each.getClientRects().length
    && each.getBoundingClientRect().right > edge + 1).map((each) => each.outerHTML.slice(0, 80));
})"""


def until(page, question, seconds=120):
    """Wait for something to become true; the page's policy forbids what playwright has for that."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(question):
        assert time.monotonic() < deadline, question
        page.wait_for_timeout(50)


@pytest.fixture
def somebody(served):
    from wherefrom.corpus.questions import read_questions

    return read_questions(served / "small" / "world" / "dev.tsv").questions[0].subject


@pytest.mark.parametrize("size", [{"width": 1280, "height": 800}, NARROW], ids=["wide", "narrow"])
def test_every_page_is_drawn_without_a_complaint(visit, size):
    page = visit("/runs", viewport=size)
    for path, title in PAGES.items():
        page.goto(path)
        assert title in page.inner_text("h1")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        assert page.evaluate(STICKING_OUT) == [], path
        for figure in page.query_selector_all("[data-figure]"):
            assert figure.query_selector(".main-svg") is not None, path
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(20, 23, 27)") == (scheme == "dark")


def test_the_pages_are_reached_by_keyboard_with_a_focus_to_be_seen(visit):
    page = visit("/runs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    box = page.query_selector(".skip").bounding_box()
    assert box["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.reload()
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        style = page.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            " return [e.tagName, e.id || e.textContent.trim(), s.outlineStyle]; })()"
        )
        if style[0] == "BODY":
            break
        assert style[2] != "none", style
        seen.append(style[1])
    assert {"Wherefrom", "Ask", "Report", "own-name", "corpus", "name", "people"} <= set(seen)


def test_a_question_is_asked_by_keyboard(visit, somebody):
    page = visit("/ask?run=small")
    assert page.evaluate("document.activeElement.id") == "question"
    page.keyboard.type(somebody)
    page.keyboard.press("Enter")
    page.wait_for_selector("#shown")
    assert page.inner_text(".evidence mark.name >> nth=0") == somebody
    page.wait_for_selector(f"#history >> text={somebody}")  # written before the page is left
    page.goto("/ask?run=small")
    page.wait_for_selector(f"#history >> text={somebody}")


def test_many_are_asked_and_downloaded(visit, somebody, tmp_path):
    page = visit("/ask?run=small")
    (tmp_path / "people.tsv").write_text(f"{somebody}\nTibor Ashdown", encoding="utf-8")
    page.click("summary >> text=Ask many")
    page.set_input_files("#file", tmp_path / "people.tsv")
    page.click("text=Ask all")
    page.wait_for_selector("h1 >> text=/[0-9]+ questions/")  # a name asks all relations
    with page.expect_download() as found:
        page.click("text=Download with verdicts")
    assert found.value.suggested_filename == "verdicts.tsv"


def test_the_sliders_move_the_weights(visit):
    page = visit("/workbench?e=1&beta=10&n=8")
    assert "50.0 %" in page.inner_text(".below")
    arrow = page.get_attribute("line.stroke-a", "x2")
    page.focus("#e")
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('.below').textContent.includes('95.3 %')")
    assert float(page.get_attribute("line.stroke-a", "x2")) > float(arrow)
    assert page.inner_text("output[for=e]") == "1.3"
    assert page.evaluate("document.activeElement.id") == "e"
    assert "e=1.3" in page.url
    before = page.inner_text("#law table")
    page.select_option("#design", "two-heads")
    until(page, "document.querySelectorAll('.weights tr').length === 3")
    assert page.inner_text("#law table") != before
    assert page.query_selector("#law .main-svg") is not None
    page.click("text=Draw another key")
    until(page, "location.search.includes('seed=1')")
    page.click("text=Keep drawing")
    until(page, "location.search.includes('seed=3')")
    page.click("text=Keep drawing")
    assert page.get_attribute("#play", "aria-pressed") == "false"


def test_sliders_beside_each_other_are_aligned_on_a_phone(visit):
    page = visit("/workbench", viewport=NARROW)
    boxes = [slider.bounding_box() for slider in page.query_selector_all("input[type=range]")]
    assert len(boxes) == 6
    for left, right in zip(boxes[::2], boxes[1::2], strict=True):
        assert left["x"] < right["x"]
        assert left["y"] == pytest.approx(right["y"], abs=1)


@pytest.mark.parametrize("viewport", [NARROW, {"width": 1200, "height": 800}])
@pytest.mark.parametrize("written", ["q=beta*(1,2)", "q=beta*(-1,0)"])
def test_the_verdict_stands_directly_under_the_button(visit, viewport, written):
    page = visit("/workbench/hull", viewport=viewport)
    page.fill("#formulas", f"K=[[2,1],[1,0],[0,1]]\n{written}")
    page.click("text=Check it")
    verdict = page.wait_for_selector("#verdict .chip").bounding_box()
    button = page.query_selector("text=Check it").bounding_box()
    assert 0 < verdict["y"] - (button["y"] + button["height"]) < 80


def test_a_construction_is_written_and_checked(visit):
    page = visit("/workbench/average")
    page.fill("#formulas", "q = beta*(k_a + k_b)")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#verdict .chip.proved")
    page.fill("#formulas", "q = k_a")
    page.click("text=Check it")
    page.wait_for_selector("#verdict .chip.refuted")
    assert page.query_selector("#verdict .bars svg") is not None
    page.focus("summary >> text=Show the answer")
    assert not page.is_visible("text=Check the answer")
    page.keyboard.press("Enter")
    assert page.is_visible("text=Check the answer")
    page.click("text=next chapter")
    page.wait_for_selector("h1 >> text=slightly blurred")


def test_a_head_is_chosen_and_its_map_shown(visit, somebody):
    page = visit(f"/inside?run=small&question={quote(somebody)}")
    page.click("#m1-0-1")
    page.wait_for_selector("h3 >> text=The whole map of head 0.1")
    page.focus("#m1-2-0")
    page.keyboard.press("Enter")
    page.wait_for_selector("h3 >> text=The whole map of head 2.0")
    assert page.evaluate("document.activeElement.id") == "m1-2-0"


def test_the_page_says_something_without_scripts(visit, somebody):
    page = visit("/ask?run=small", java_script_enabled=False)
    page.fill("#question", somebody)
    page.click("button >> text=Ask >> nth=0")
    assert page.inner_text("#shown")
    page.goto("/workbench?e=2")
    page.click("text=Work it out")
    assert "exact law" in page.inner_text("#law table")
    page.goto("/workbench/copy")
    page.fill("#formulas", "q = k_j")
    page.click("text=Check it")
    assert page.inner_text("#verdict .chip") == "refuted"
    page.goto(f"/inside?run=small&question={quote(somebody)}")
    assert page.query_selector(".strip td") is not None
    page.goto("/run?name=small")
    assert "recall" in page.inner_text("main").lower()


def test_a_training_on_an_uploaded_text_is_started_watched_and_stopped(visit, small_world):
    page = visit("/runs")
    page.fill("#own-name", "from-the-page")
    page.set_input_files("#corpus", small_world / "documents.txt")
    page.set_input_files("#train", small_world / "train.tsv")
    page.click("summary >> text=More >> nth=0")
    page.set_input_files("#dev", small_world / "dev.tsv")
    page.click("text=Look at it")
    assert "questions to learn from" in page.inner_text("main")
    page.click("summary >> text=More")
    page.select_option("#size", "tiny")
    page.click("text=Start training")
    page.wait_for_selector(".chip.training")
    until(page, "/[Ss]tep \\d/.test(document.getElementById('live').textContent)")
    page.click("text=Stop it")
    page.wait_for_selector("button >> text=Go on", timeout=60_000)
    assert page.query_selector(".chip.training") is None
