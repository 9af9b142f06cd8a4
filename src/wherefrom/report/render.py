"""The report as one HTML file that needs no other, or as Markdown; both are Jinja templates."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from wherefrom.errors import UserError
from wherefrom.report.figures import FIGURE_STYLE
from wherefrom.report.sections import show_cell
from wherefrom.storage import write_whole

FORMATS = {".html": "html", ".json": "json", ".md": "md", ".markdown": "md"}  # by ending


def render(report: dict[str, Any], form: str) -> str:
    """The report of `make_report` as html, json or md."""
    if form == "json":
        return json.dumps(report, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    return render_markdown(report) if form == "md" else render_html(report)


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
    write_whole(out, render(report, form or FORMATS.get(out.suffix.lower(), "html")))
    return out


def render_html(report: dict[str, Any]) -> str:
    """The page for the dictionary of a report; its policy forbids every request."""
    from plotly.offline import get_plotlyjs

    # as a browser reads them, so that the hashes are those of what runs
    scripts = [re.sub("\r\n?", "\n", text) for text in (str(get_plotlyjs()), _file("report.js"))]
    digests = (hashlib.sha256(script.encode("utf-8")).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(each).decode('ascii')}'" for each in digests)
    policy = (
        f"default-src 'none'; script-src {hashes}; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    environment = Environment(
        loader=PackageLoader("wherefrom.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"prose": prose, "data": as_data, "cell": show_cell}
    return environment.get_template("file.html").render(
        report=report,
        policy=policy,
        style=Markup(_file("report.css") + FIGURE_STYLE),
        scripts=[Markup(script) for script in scripts],
    )


def render_markdown(report: dict[str, Any]) -> str:
    """The text for the dictionary of a report; figures are told by their tables."""
    environment = Environment(
        loader=PackageLoader("wherefrom.report"),
        autoescape=False,  # what stands in the text is escaped by the filter `plain`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"plain": _plain, "prose": _markdown_prose, "cell": show_cell}
    text = environment.get_template("report.md").render(report=report)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def prose(text: str) -> Markup:
    """A sentence, escaped; what stands in backquotes is code, and no line starts with a %."""
    whole = str(escape(text)).replace(" %", "\u00a0%")
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", whole))


def as_data(value: Any) -> Markup:
    """A value as JSON that may stand inside a script element: no `<`, `>` or `&` is left in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _file(name: str) -> str:
    return (files("wherefrom.report") / name).read_text(encoding="utf-8")


def _plain(text: object) -> str:
    """A text on one line, with nothing in it that Markdown or HTML would act on."""
    return _escape(" ".join(str(text).split()))


def _markdown_prose(text: str) -> str:
    """A sentence of ours: what stands in backquotes stays code."""
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(piece if at % 2 else _escape(piece) for at, piece in enumerate(pieces))


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", text)
