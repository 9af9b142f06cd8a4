"""The report as one HTML file that needs no other, or as Markdown."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

from wherefrom.report.figures import FIGURE_STYLE
from wherefrom.report.sections import show_cell

NUMBERS = ("count", "percent", "number")
MANY = 4  # columns from which on a table scrolls on a phone
WIDE = {"names"}  # sections whose figure scrolls on a phone rather than shrink
ABSENT = "What this run cannot tell"


def render_html(report: dict[str, Any]) -> str:
    """The page for the dictionary of a report."""
    scripts = [_plotly(), _ours("report.js")]
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    told = [section for section in report["sections"] if not section["missing"]]
    absent = [section for section in report["sections"] if section["missing"]]
    title = escape(f"{report['title']}: report")
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="referrer" content="no-referrer">\n',
            f"<title>{title}</title>\n<style>{_ours('report.css')}{FIGURE_STYLE}</style>\n",
            "</head>\n<body>\n",
            _head(report),
            _contents(report, told, absent),
            "<main>\n",
            _questions(report["questions"]),
            *map(_section, told),
            _absent(absent),
            _notes(report["notes"]),
            "</main>\n",
            f"<footer>Every number and figure is from the records in "
            f'<span class="mono">{escape(report["run"])}</span>; '
            "<code>wherefrom report</code> makes this file from them.</footer>\n",
            *(f"<script>{script}</script>\n" for script in scripts),
            "</body>\n</html>\n",
        ]
    )


def _head(report: dict[str, Any]) -> str:
    tiles = "".join(
        f"<li><b>{escape(one['value'])}</b><span>{escape(one['label'])}</span>"
        f"<small>{escape(one['about'])}</small></li>"
        for one in report["headlines"]
    )
    return (
        f'<header>\n<p class="kicker">Wherefrom report</p>\n<h1>{escape(report["title"])}</h1>\n'
        f'<p class="lead">{_prose(report["sentence"])}</p>\n<ul class="tiles">{tiles}</ul>\n'
        "</header>\n"
    )


def _contents(report: dict[str, Any], told: list[Any], absent: list[Any]) -> str:
    entries = [("questions", "The questions, answered")] if report["questions"] else []
    entries += [(section["id"], section["title"]) for section in told]
    entries += [("absent", ABSENT)] if absent else []
    entries += [("notes", "Notes")] if report["notes"] else []
    items = "".join(f'<li><a href="#{escape(i)}">{escape(t)}</a></li>' for i, t in entries)
    return f'<nav aria-label="Contents"><ol>{items}</ol></nav>\n'


def _questions(questions: list[dict[str, Any]]) -> str:
    if not questions:
        return ""
    items = []
    for one in questions:
        where = one["section"] if one["answered"] else "absent"
        kind = "" if one["answered"] else ' class="quiet"'
        link = f' <a href="#{escape(where)}">The figure</a>.' if one["answered"] else ""
        items.append(
            f"<dt>{escape(one['question'])}</dt><dd{kind}>{_prose(one['answer'])}{link}</dd>"
        )
    return (
        '<section id="questions">\n<h2>The questions, answered</h2>\n'
        f'<dl class="questions">{"".join(items)}</dl>\n</section>\n'
    )


def _section(section: dict[str, Any]) -> str:
    parts = [f'<section id="{escape(section["id"])}">\n<h2>{escape(section["title"])}</h2>\n']
    if section["question"]:
        parts.append(f'<p class="asked">{escape(section["question"])}</p>\n')
    parts.append(f"<p>{_prose(section['sentence'])}</p>\n")
    if section["figure"]:
        parts.append(_figure(section))
    if section["more"]:
        items = "".join(f"<li>{_prose(sentence)}</li>" for sentence in section["more"])
        parts.append(f'<ul class="more">{items}</ul>\n')
    if section["examples"]:
        parts.append(f'<div class="examples">{"".join(map(_example, section["examples"]))}</div>\n')
    if section["table"]:
        parts.append(_table(section["table"], section["title"]))
    parts.append("</section>\n")
    return "".join(parts)


def _figure(section: dict[str, Any]) -> str:
    # a block of JSON ends at the first "</script", so no "<" may stand in it
    data = json.dumps(section["figure"], ensure_ascii=False, allow_nan=False).replace(
        "<", "\\u003c"
    )
    wide = ' class="wide" tabindex="0" role="region" aria-label="Figure"'
    wide = wide if section["id"] in WIDE else ""
    return (
        f"<figure><div{wide}>"
        f'<div class="drawing" role="img" aria-label="{escape(section["caption"])}">'
        '<span class="quiet">Figures need JavaScript; the numbers are in tables.</span></div>'
        f'<script type="application/json">{data}</script></div>\n'
        f"<figcaption>{escape(section['caption'])}</figcaption></figure>\n"
    )


def _table(table: dict[str, Any], title: str) -> str:
    kinds = [_kind(form) for form in table["formats"]]
    head = "".join(
        f'<th scope="col"{kind}>{escape(column)}</th>'
        for column, kind in zip(table["columns"], kinds, strict=True)
    )
    body = []
    for row in table["rows"]:
        cells = [
            f"<td{kind}>{escape(show_cell(value, form))}</td>"
            for value, form, kind in zip(row, table["formats"], kinds, strict=True)
        ]
        cells[0] = f'<th scope="row">{escape(show_cell(row[0], table["formats"][0]))}</th>'
        body.append(f"<tr>{''.join(cells)}</tr>")
    facts = ' class="facts"' if "code" in table["formats"] else ""
    facts = facts or (' class="many"' if len(kinds) > MANY else "")
    made = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="Table: {escape(title)}">'
        f"<table{facts}><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>\n"
    )
    if table["folded"]:
        return (
            f"<details><summary>The numbers ({len(table['rows'])} rows)</summary>{made}</details>\n"
        )
    return made


def _kind(form: str) -> str:
    if form in NUMBERS:
        return ' class="number"'
    return ' class="code"' if form == "code" else ""


def _example(one: dict[str, Any]) -> str:
    truth = "" if one["right"] else (
        f" The right answer is {escape(one['answer'])}." if one["answer"] is not None
        else " Nobody of that name exists."
    )  # fmt: skip
    told = "is given" if one["shown"] else "is withheld"
    alone = "is given" if one["shown_internal"] else "is withheld"
    lines = "".join(
        f'<li><span class="where">line {line["line"]}, '
        f"{'states the answer' if line['states_answer'] else 'does not state the answer'}</span>"
        f"{_marked(line['pieces'])}</li>"
        for line in one["evidence"]
    )
    lines += "".join(
        f'<li><span class="where">line {line["line"]}, about a similar name: no evidence</span>'
        f"{escape(line['text'])}</li>"
        for line in one["similar"]
    )
    nothing = '<p class="quiet">No line names this person.</p>' if not one["evidence"] else ""
    return (
        f'<article class="example"><span class="chip {escape(one["verdict"].replace(" ", "-"))}">'
        f"{escape(one['verdict'])}</span>"
        f'<p class="quiet">{escape(one["question"])}</p><p class="said">{escape(one["said"])}</p>'
        f"<p>{'Right.' if one['right'] else 'Wrong.'}{truth} By its own signals "
        f"{100 * one['internal_confidence']:.0f} % sure: the answer {alone}. With the lines looked "
        f"up {100 * one['confidence']:.0f} %: it {told}.</p>"
        f'{nothing}<ul class="evidence">{lines}</ul></article>\n'
    )


def _marked(pieces: Iterable[dict[str, str]]) -> str:
    return "".join(
        f'<mark class="{escape(piece["kind"])}">{escape(piece["text"])}</mark>'
        if piece["kind"]
        else escape(piece["text"])
        for piece in pieces
    )


def _absent(absent: list[dict[str, Any]]) -> str:
    if not absent:
        return ""
    items = "".join(
        f"<dt>{escape(one['title'])}</dt><dd>{_prose(one['sentence'])}</dd>" for one in absent
    )
    return (
        f'<section id="absent">\n<h2>{ABSENT}</h2>\n<dl class="absent">{items}</dl>\n</section>\n'
    )


def _notes(notes: list[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{_prose(note)}</li>" for note in notes)
    return f'<section id="notes">\n<h2>Notes</h2>\n<ul class="more">{items}</ul>\n</section>\n'


def _prose(text: str) -> str:
    """A sentence, escaped; what stands in backticks is code, and no line starts with a %."""
    whole = escape(text).replace(" %", "\u00a0%")
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", whole)


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return _as_parsed(str(get_plotlyjs()))


def _ours(name: str) -> str:
    return _as_parsed((files("wherefrom.report") / name).read_text(encoding="utf-8"))


def _as_parsed(text: str) -> str:
    """As a browser reads it, so that the hash is that of what runs."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


REPORT_TEXT_NUMBERS = ("count", "percent", "number")


def render_markdown(report: dict[str, Any]) -> str:
    """The text for the dictionary of a report; figures are told by their tables."""
    parts = [f"# {_plain(report['title'])}", _report_text_prose(report["sentence"])]
    tiles = [
        f"- **{_plain(one['value'])}** {_plain(one['label'])}: {_plain(one['about'])}"
        for one in report["headlines"]
    ]
    parts.append("\n".join(tiles))
    if report["questions"]:
        parts.append("## The questions, answered")
        parts += [
            f"**{_plain(one['question'])}**\n{_report_text_prose(one['answer'])}"
            for one in report["questions"]
        ]
    for section in report["sections"]:
        parts += _report_text_section(section)
    if report["notes"]:
        parts += [
            "## Notes",
            "\n".join(f"- {_report_text_prose(note)}" for note in report["notes"]),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _report_text_section(section: dict[str, Any]) -> list[str]:
    parts = [f"## {_plain(section['title'])}", _report_text_prose(section["sentence"])]
    parts.append("\n".join(f"- {_report_text_prose(sentence)}" for sentence in section["more"]))
    if section["table"]:
        parts.append(_report_text_table(section["table"]))
    parts += [_report_text_example(one) for one in section["examples"]]
    return parts


def _report_text_table(table: dict[str, Any]) -> str:
    head = " | ".join(_plain(column) for column in table["columns"])
    rule = " | ".join("---:" if form in REPORT_TEXT_NUMBERS else "---" for form in table["formats"])
    rows = [
        " | ".join(
            _plain(show_cell(value, form))
            for value, form in zip(row, table["formats"], strict=True)
        )
        for row in table["rows"]
    ]
    return "\n".join(f"| {row} |" for row in (head, rule, *rows))


def _report_text_example(one: dict[str, Any]) -> str:
    lines = [
        f"**{_plain(one['verdict'])}**: {_plain(one['question'])} {_plain(one['said'])} "
        f"({'right' if one['right'] else 'wrong'}"
        + (f", it is {_plain(one['answer'])}" if not one["right"] and one["answer"] else "")
        + f"; {100 * one['internal_confidence']:.0f} % sure by its own signals, "
        f"{100 * one['confidence']:.0f} % with the lines looked up)"
    ]
    lines += [f"> line {line['line']}: {_plain(line['text'])}" for line in one["evidence"]]
    lines += [
        f"> line {line['line']}, about a similar name: {_plain(line['text'])}"
        for line in one["similar"]
    ]
    return "\n".join([*lines[:1], "", *lines[1:]]) if len(lines) > 1 else lines[0]


def _plain(text: str) -> str:
    """Somebody else's text on one line, with nothing in it that Markdown or HTML would act on."""
    line = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", line)


def _report_text_prose(text: str) -> str:
    """A sentence of ours: what stands in backticks stays code."""
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(piece if at % 2 else _plain_inside(piece) for at, piece in enumerate(pieces))


def _plain_inside(piece: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", piece)
