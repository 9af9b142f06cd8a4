"""What a report is made of: sections with a sentence, a figure, a table and examples, as records.

A section is written once, here; JSON, Markdown and the page are three ways to show it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go

FORMATS = ("text", "count", "percent", "number", "code")


@dataclass(frozen=True)
class Table:
    """Raw values by rows; `formats` says for each column how a reader would like to see them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    formats: tuple[str, ...]
    folded: bool = False  # long: shown on request

    def __post_init__(self) -> None:
        assert len(self.columns) == len(self.formats)
        assert all(len(row) == len(self.columns) for row in self.rows)
        assert set(self.formats) <= set(FORMATS)


@dataclass(frozen=True)
class Section:
    """One thing that was found, or the reason why this run cannot tell it.

    question: what it answers, where somebody asked; missing: no record holds it, and `sentence`
    says why and what to do; figure: plotly's data and layout.
    """

    id: str
    title: str
    sentence: str
    question: str | None = None
    missing: bool = False
    more: tuple[str, ...] = ()
    figure: dict[str, Any] | None = None
    caption: str = ""
    table: Table | None = None
    examples: tuple[dict[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        record["more"], record["examples"] = list(self.more), list(self.examples)
        if self.table is not None:
            record["table"] = {
                "columns": list(self.table.columns),
                "formats": list(self.table.formats),
                "rows": [list(row) for row in self.table.rows],
                "folded": self.table.folded,
            }
        return record


def drawn(figure: go.Figure) -> dict[str, Any]:
    """The figure as plain data and layout, without plotly's template."""
    record: dict[str, Any] = json.loads(figure.to_json())
    record.get("layout", {}).pop("template", None)
    return {"data": record["data"], "layout": record["layout"]}


def show_cell(value: Any, form: str) -> str:
    """A cell as a person reads it; a dash where there is nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if form == "percent":
        return f"{100 * value:.1f} %"
    if form == "count":
        return f"{value:,.0f}"
    if form == "number":
        if isinstance(value, int) or abs(value) >= 10:
            return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
        return f"{value:.3f}"
    return f"{value:g}"


def percent(value: float | None) -> str:
    """A share in a sentence."""
    return "–" if value is None else f"{100 * value:.1f} %"


def interval(metric: dict[str, Any], level: float, form: str = "number") -> str:
    """' (95 % interval 0.91 to 0.95)', or nothing where it has none."""
    if metric.get("low") is None or metric.get("high") is None:
        return ""
    low, high = (show_cell(float(metric[key]), form) for key in ("low", "high"))
    return f" ({level:.0%} interval {low} to {high})".replace("%", " %", 1)


def plural(count: int, noun: str) -> str:
    """'1 document', '2,000 documents', '3 people'."""
    if noun == "person":
        return f"{count:,} {'person' if count == 1 else 'people'}"
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """'a, b and c'."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
