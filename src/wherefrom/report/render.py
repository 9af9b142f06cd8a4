"""The report as one HTML file that needs no other, or as Markdown; both are Jinja templates."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from wherefrom.errors import UserError
from wherefrom.report.figures import as_record
from wherefrom.storage import write_whole

if TYPE_CHECKING:
    import plotly.graph_objects as go

FORMATS = {".html": "html", ".json": "json", ".md": "md", ".markdown": "md"}  # by ending


def write_report(
    report: dict[str, Any], out: str | Path | None = None, form: str | None = None
) -> Path:
    """Write the report and return where: report.html in the run folder if `out` is not given.

    The format follows the ending of `out` if it is not given. Records of the run are not replaced.
    """
    folder = Path(report["run"])
    out = folder / f"report.{form or 'html'}" if out is None else Path(out)
    inside = out.resolve().parent == folder.resolve()
    if inside and out.exists() and not out.name.startswith("report"):
        raise UserError(f"{out} belongs to the run and is not overwritten; choose another --out.")
    form = FORMATS.get(f".{form}" if form else out.suffix.lower())
    if form is None:
        raise UserError(f"{out} ends in none of {', '.join(FORMATS)}; add --format, such as html.")
    write_whole(out, render(report, form))
    return out


def render(report: dict[str, Any], form: str) -> str:
    """The report of `make_report` as html, json or md."""
    if form == "json":
        return json.dumps(report, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    return render_markdown(report) if form == "md" else render_html(report)


def show_cell(value: Any, form: str) -> str:
    """A cell as a person reads it; a dash where there is nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if form == "percent":
        return f"{100 * value:.1f} %"
    if form == "count" or (form == "number" and isinstance(value, int)):
        return f"{value:,.0f}"
    if form == "number":
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3f}"
    return f"{value:g}"


def prose(text: str) -> Markup:
    """A sentence, escaped; what stands in backquotes is code, and no line starts with a %."""
    whole = str(escape(text)).replace(" %", "\u00a0%")
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", whole))


def likely(share: float) -> str:
    """A probability as people read it; certainty is not claimed by rounding."""
    from wherefrom.provenance.verdicts import percent

    return percent(share).replace(" %", "\u00a0%")


def as_data(value: Any) -> Markup:
    """A value as JSON that may stand inside a script element: no `<`, `>` or `&` is left in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def make_environment(*packages: str, escaping: bool = True, **filters: Any) -> Environment:
    """Jinja over the templates of these packages; a name that is not there is an error."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=escaping,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cell": show_cell, "data": as_data, "prose": prose, "likely": likely}
    environment.filters |= filters
    return environment


def render_html(report: dict[str, Any]) -> str:
    """The page for the dictionary of a report; its policy forbids every request."""
    from plotly.offline import get_plotlyjs

    here = files("wherefrom.report")
    script, style = (
        (here / f"report.{kind}").read_text(encoding="utf-8") for kind in ("js", "css")
    )
    # as a browser reads them, so that the hashes are those of what runs
    scripts = [re.sub("\r\n?", "\n", text) for text in (str(get_plotlyjs()), script)]
    digests = (hashlib.sha256(script.encode("utf-8")).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(each).decode('ascii')}'" for each in digests)
    policy = (
        f"default-src 'none'; script-src {hashes}; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return make_environment("wherefrom.report").get_template("file.html").render(
        report=report, policy=policy, style=Markup(style), scripts=[*map(Markup, scripts)]
    )  # fmt: skip


def blank_section(id: str, title: str, sentence: str, **more: Any) -> dict[str, Any]:
    """A section of a report that has a sentence and nothing else yet."""
    return {"id": id, "title": title, "question": None, "sentence": sentence, "missing": False,
            "more": [], "figure": None, "caption": "", "table": None, "examples": [],
            **more}  # fmt: skip


def render_figures(title: str, figures: Iterable[tuple[str, str, go.Figure]]) -> str:
    """A file like the report's: a heading, a sentence and a figure for each section."""
    sections = [
        blank_section(f"figure-{at}", name, sentence, figure=as_record(figure), caption=name)
        for at, (name, sentence, figure) in enumerate(figures)
    ]
    blank = {"run": "", "warning": "", "sentence": "", "headlines": [], "questions": []}
    return render_html({**blank, "title": title, "notes": [], "sections": sections})


def render_markdown(report: dict[str, Any]) -> str:
    """The text for the dictionary of a report; figures are told by their tables."""

    def plain(text: object) -> str:
        """A text on one line, with nothing in it that Markdown or HTML would act on."""
        return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", " ".join(str(text).split()))

    def sentence(text: str) -> str:
        """A sentence of ours: what stands in backquotes stays code."""
        pieces = re.split(r"( *`[^`]+` *)", text)
        return "".join(piece if at % 2 else plain(piece) for at, piece in enumerate(pieces))

    environment = make_environment("wherefrom.report", escaping=False, plain=plain, prose=sentence)
    text = environment.get_template("report.txt").render(report=report)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
