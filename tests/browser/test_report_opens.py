"""The exported report, opened from disk in a real Chromium with the network switched off."""

from __future__ import annotations

import pytest
from report_samples import HOSTILE, write_hostile_run

from wherefrom.report.study_report import make_report, render_html

WIDE, NARROW = {"width": 1200, "height": 800}, {"width": 375, "height": 700}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The report on a run whose people and notes would like to run scripts."""
    run = write_hostile_run(tmp_path_factory.mktemp("opened") / "run")
    path = run / "report.html"
    path.write_text(render_html(make_report(run)), encoding="utf-8")
    return path


@pytest.fixture
def opened(open_page, exported):
    """The report without a network; no other file is asked for."""
    asked = []

    def begin(**options):
        page = open_page(exported.as_uri(), offline=True, **options)
        page.on("request", lambda request: asked.append(request.url))
        return page

    yield begin
    assert not [url for url in asked if not url.startswith("data:")]


def test_it_is_drawn_whole_read_by_keyboard_and_light_on_paper(opened, tmp_path):
    page = opened(viewport=WIDE)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Recall against the baselines"
    page.keyboard.press("Enter")
    page.wait_for_url("**#recall")  # Chromium may take a moment
    page.focus("#names summary")
    page.keyboard.press("Enter")
    assert page.is_visible("#names table")
    figures = page.query_selector_all(".drawing")
    assert len(figures) >= 8
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        for figure in figures:
            assert figure.query_selector(".main-svg") is not None
        page.wait_for_timeout(100)  # until the figures have taken the new width
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), size
    assert HOSTILE in page.inner_text("#notes")
    # a line of evidence is read as one text: its marks stand beside nothing but words
    lines = page.query_selector_all("#examples .evidence li")
    assert lines
    assert {line.evaluate("each => each.childElementCount") for line in lines} == {2}
    look = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert (page.evaluate(look)[0] == "rgb(20, 23, 27)") == (scheme == "dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(look) == ["rgb(255, 255, 255)", "rgb(27, 31, 36)"]
    assert not page.is_visible("nav")
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000


def test_without_scripts_the_numbers_are_there(opened):
    page = opened(java_script_enabled=False, viewport=NARROW)
    assert "81.0 %" in page.inner_text("#recall table")
    assert "JavaScript" in page.inner_text("#recall figure")
