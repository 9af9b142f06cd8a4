"""What a picture would show and a test can count: contrast, shared colours, nothing unescaped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wherefrom.report import figures as theme
from wherefrom.web import replies
from wherefrom.web.replies import TEMPLATES

REPORT = Path(theme.__file__).parent / "report.css"
HERE = Path(replies.__file__).parent
SITE = HERE / "static" / "site.css"
WORDS = [
    ("ink", "paper"), ("ink", "card"), ("ink", "wash"), ("ink", "name-wash"), ("ink", "place-wash"),
    ("quiet", "paper"), ("quiet", "card"), ("quiet", "wash"),
    ("accent", "paper"), ("accent", "card"), ("accent", "wash"),
    ("good", "good-wash"), ("odd", "odd-wash"), ("bad", "bad-wash"),
]  # fmt: skip
FORMS = [("accent-ink", "accent"), ("ink", "field"), ("quiet", "field"), ("ink", "odd-wash")]
SHAPES = [("edge", "paper"), ("edge", "field"), ("edge", "card")]
SHAPES += [(colour, "card") for colour in ("blue", "orange", "green", "pink", "grey")]


def colours(path: Path, scheme: str) -> dict[str, str]:
    """The colours of a style sheet by name; the dark ones stand over the light ones."""
    light, _, rest = path.read_text(encoding="utf-8").partition("prefers-color-scheme: dark")
    found = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", light))
    if scheme == "dark":
        dark = rest.partition("* {")[0]
        found |= dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", dark))
    return found


def light_of(colour: str | tuple[float, ...]) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    if isinstance(colour, str):
        colour = tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
    parts = [part / 255 for part in colour]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str | tuple[float, ...], other: str | tuple[float, ...]) -> float:
    dark, light = sorted((light_of(one), light_of(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("sheet", [SITE, REPORT], ids=["page", "report"])
def test_words_can_be_read(sheet: Path, scheme: str) -> None:
    found = colours(sheet, scheme)
    for word, ground in WORDS + (FORMS if sheet == SITE else []):
        assert contrast(found[word], found[ground]) >= 4.5, (word, ground)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_shapes_and_numbers_on_them_can_be_seen(scheme: str) -> None:
    found = colours(SITE, scheme)
    for shape, ground in SHAPES:
        assert contrast(found[shape], found[ground]) >= 3, (shape, ground)
    light, dark = re.findall(r"--heat: (\d+), (\d+), (\d+);", SITE.read_text(encoding="utf-8"))
    strongest = tuple(map(int, dark if scheme == "dark" else light))
    assert contrast(found["ink"], strongest) >= 4.5
    (number,) = re.findall(
        r"text\.bartext \{ fill: (#[0-9a-f]{6})", REPORT.read_text(encoding="utf-8")
    )
    for colour in (*theme.COLOURS[:4], colours(SITE, "light")["grey"]):
        assert contrast(number, colour) >= 4.5, colour


def test_page_and_report_share_their_colours() -> None:
    for scheme in ("light", "dark"):
        page, report = colours(SITE, scheme), colours(REPORT, scheme)
        assert {name: page[name] for name in report} == report
    drawn = colours(SITE, "light")
    assert (drawn["blue"], drawn["orange"], drawn["green"], drawn["pink"]) == theme.COLOURS[:4]


def test_the_page_draws_figures_as_the_report_does() -> None:
    sheet = (HERE / "static" / "plotly.css").read_text(encoding="utf-8")
    rules = re.findall(r"^\.js-plotly.*$", REPORT.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rules) == 4
    for rule in rules:
        assert rule in sheet or "modebar" in rule, rule


def test_no_template_switches_escaping_off() -> None:
    for path in (HERE / "templates").glob("*.html"):
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", path.read_text(encoding="utf-8")), (
            path
        )


def test_a_line_of_evidence_is_escaped() -> None:
    pieces = [{"kind": "", "text": "<b>"}, {"kind": "name", "text": "<i>"}]
    made = str(TEMPLATES.get_template("sections.html").module.pieces(pieces))  # type: ignore[attr-defined]
    assert made == '&lt;b&gt;<mark class="name">&lt;i&gt;</mark>'
