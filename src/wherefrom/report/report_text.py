"""The report as Markdown: the same sentences and tables, for a terminal or a repository."""

from __future__ import annotations

import re
from typing import Any

from wherefrom.report.sections import show_cell

NUMBERS = ("count", "percent", "number")


def render_markdown(report: dict[str, Any]) -> str:
    """The text for the dictionary of a report; figures are told by their tables."""
    parts = [f"# {_plain(report['title'])}", _prose(report["sentence"])]
    tiles = [
        f"- **{_plain(one['value'])}** {_plain(one['label'])}: {_plain(one['about'])}"
        for one in report["headlines"]
    ]
    parts.append("\n".join(tiles))
    if report["questions"]:
        parts.append("## The questions, answered")
        parts += [
            f"**{_plain(one['question'])}**\n{_prose(one['answer'])}" for one in report["questions"]
        ]
    for section in report["sections"]:
        parts += _section(section)
    if report["notes"]:
        parts += ["## Notes", "\n".join(f"- {_prose(note)}" for note in report["notes"])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: dict[str, Any]) -> list[str]:
    parts = [f"## {_plain(section['title'])}", _prose(section["sentence"])]
    parts.append("\n".join(f"- {_prose(sentence)}" for sentence in section["more"]))
    if section["table"]:
        parts.append(_table(section["table"]))
    parts += [_example(one) for one in section["examples"]]
    return parts


def _table(table: dict[str, Any]) -> str:
    head = " | ".join(_plain(column) for column in table["columns"])
    rule = " | ".join("---:" if form in NUMBERS else "---" for form in table["formats"])
    rows = [
        " | ".join(
            _plain(show_cell(value, form))
            for value, form in zip(row, table["formats"], strict=True)
        )
        for row in table["rows"]
    ]
    return "\n".join(f"| {row} |" for row in (head, rule, *rows))


def _example(one: dict[str, Any]) -> str:
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


def _prose(text: str) -> str:
    """A sentence of ours: what stands in backticks stays code."""
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(piece if at % 2 else _plain_inside(piece) for at, piece in enumerate(pieces))


def _plain_inside(piece: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", piece)
