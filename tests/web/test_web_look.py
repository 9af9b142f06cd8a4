"""What a picture would show and a test can count: contrast, shared colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wherefrom.report import figures
from wherefrom.web import app

REPORT = Path(figures.__file__).parent / "report.css"
SITE = Path(app.__file__).parent / "static" / "site.css"
# what stands on which ground
WORDS = {
    "ink": ("paper", "card", "wash", "name-wash", "place-wash", "odd-wash", "field"),
    "quiet": ("paper", "card", "wash", "field"),
    "accent": ("paper", "card", "wash"),
    "accent-ink": ("accent",),
    "good": ("good-wash",),
    "odd": ("odd-wash",),
    "bad": ("bad-wash",),
}
SHAPES = {"edge": ("paper", "field", "card")}
SHAPES |= dict.fromkeys(("blue", "orange", "green", "pink", "grey"), ("card",))


def colours(path, scheme):
    """The colours of a style sheet by name as (red, green, blue); dark ones replace light ones."""
    light, _, dark = path.read_text(encoding="utf-8").partition("prefers-color-scheme: dark")
    text = light + dark.partition("* {")[0] if scheme == "dark" else light
    found = {
        name: bytes.fromhex(code) for name, code in re.findall(r"--([a-z-]+): #(\w{6});", text)
    }
    for heat in re.findall(r"--heat: (\d+), (\d+), (\d+);", text):
        found["heat"] = bytes(map(int, heat))
    return found


def luminance(colour):
    """Relative luminance, as WCAG 2 defines it."""
    parts = [part / 255 for part in colour]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_shapes_can_be_seen_and_page_and_report_share_their_colours(scheme):
    page, report = colours(SITE, scheme), colours(REPORT, scheme)
    assert {name: page[name] for name in report} == report
    drawn = [page[name] for name in ("blue", "orange", "green", "pink")]
    assert drawn == [bytes.fromhex(code[1:]) for code in figures.COLOURS[:4]]
    for least, pairs in ((4.5, WORDS | {"heat": ("ink",)}), (3, SHAPES)):
        for name, grounds in pairs.items():
            for ground in grounds:
                assert contrast(page[name], page[ground]) >= least, (name, ground)
    (number,) = re.findall(r"bartext \{ fill: #(\w{6})", REPORT.read_text(encoding="utf-8"))
    for colour in (*drawn, page["grey"]):  # numbers on bars
        assert contrast(bytes.fromhex(number), colour) >= 4.5, colour
