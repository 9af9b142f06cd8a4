"""What a picture would show and a test can count: contrast, shared colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wherefrom.report import figures
from wherefrom.web import replies

REPORT = Path(figures.__file__).parent / "report.css"
STATIC = Path(replies.__file__).parent / "static"
SITE = STATIC / "site.css"
WORDS = [
    ("ink", "paper"), ("ink", "card"), ("ink", "wash"), ("ink", "name-wash"), ("ink", "place-wash"),
    ("quiet", "paper"), ("quiet", "card"), ("quiet", "wash"),
    ("accent", "paper"), ("accent", "card"), ("accent", "wash"),
    ("good", "good-wash"), ("odd", "odd-wash"), ("bad", "bad-wash"),
]  # fmt: skip
FORMS = [("accent-ink", "accent"), ("ink", "field"), ("quiet", "field"), ("ink", "odd-wash")]
SHAPES = [("edge", "paper"), ("edge", "field"), ("edge", "card")]
SHAPES += [(colour, "card") for colour in ("blue", "orange", "green", "pink", "grey")]


def colours(path, scheme):
    """The colours of a style sheet by name; the dark ones stand over the light ones."""
    light, _, rest = path.read_text(encoding="utf-8").partition("prefers-color-scheme: dark")
    found = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", light))
    if scheme == "dark":
        found |= dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", rest.partition("* {")[0]))
    return found


def light_of(colour):
    """Relative luminance, as WCAG 2 defines it."""
    if isinstance(colour, str):
        colour = tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
    parts = [part / 255 for part in colour]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    dark, light = sorted((light_of(one), light_of(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_shapes_can_be_seen_and_page_and_report_share_their_colours(scheme):
    page, report = colours(SITE, scheme), colours(REPORT, scheme)
    assert {name: page[name] for name in report} == report
    for word, ground in WORDS + FORMS:
        assert contrast(page[word], page[ground]) >= 4.5, (word, ground)
    for shape, ground in SHAPES:
        assert contrast(page[shape], page[ground]) >= 3, (shape, ground)
    light, dark = re.findall(r"--heat: (\d+), (\d+), (\d+);", SITE.read_text(encoding="utf-8"))
    strongest = tuple(map(int, dark if scheme == "dark" else light))
    assert contrast(page["ink"], strongest) >= 4.5


def test_figures_look_alike_on_page_and_report_and_numbers_on_bars_can_be_read():
    drawn = colours(SITE, "light")
    assert (drawn["blue"], drawn["orange"], drawn["green"], drawn["pink"]) == figures.COLOURS[:4]
    sheet = (STATIC / "plotly.css").read_text(encoding="utf-8")
    rules = re.findall(r"^\.js-plotly.*$", REPORT.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rules) == 4
    assert all(rule in sheet or "modebar" in rule for rule in rules)
    (number,) = re.findall(r"text\.bartext \{ fill: (#[0-9a-f]{6})", "".join(rules))
    for colour in (*figures.COLOURS[:4], drawn["grey"]):
        assert contrast(number, colour) >= 4.5, colour
