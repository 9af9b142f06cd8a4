"""Figures of a study's report, in one theme for light and dark pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from itertools import cycle, pairwise
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

GREY = "#7c838d"
GRID = "rgba(128, 134, 144, 0.25)"
# told apart by lightness as well as by hue, and readable on white and on near-black
BLUE, ORANGE, GREEN, PINK, VIOLET = "#3b82d0", "#cf7820", "#2a9d6f", "#cf5a8a", "#8a6fd1"
COLOURS = (BLUE, ORANGE, GREEN, PINK, VIOLET)

# shades for maps: nothing is transparent, much is solid, so both grounds show through at zero
SHADES = [[0.0, "rgba(59, 130, 208, 0.0)"], [1.0, "rgba(59, 130, 208, 1.0)"]]

FIGURE_STYLE = """
.js-plotly-plot text { fill: currentColor !important; }
.js-plotly-plot text.bartext { fill: #10151b !important; }
.js-plotly-plot .errorbar path { stroke: currentColor !important; }
.js-plotly-plot .plotly .modebar { display: none; }
"""


def themed(
    figure: go.Figure, *, x: str, y: str, title: str = "", height: int = 420, **layout: Any
) -> go.Figure:
    """Give a figure the shared look: titles, legend below, margins that leave a phone its room.

    layout: what else the figure's layout is to have.
    """
    figure.update_layout(
        title={"text": title, "x": 0, "xanchor": "left", "font": {"size": 15}} if title else None,
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": GREY},
        margin={"l": 58, "r": 12, "t": 44 if title else 14, "b": 54},
        legend={"orientation": "h", "x": 0, "y": -0.22, "xanchor": "left", "yanchor": "top"},
        colorway=list(COLOURS),
        height=height,
        autosize=True,
        hoverlabel={"font": {"size": 13}},
    )
    figure.update_layout(layout)
    axis = {
        "gridcolor": GRID,
        "zerolinecolor": GRID,
        "linecolor": GRID,
        "ticks": "outside",
        "tickcolor": GRID,
        "automargin": True,
        "title": {"standoff": 8},
    }
    figure.update_xaxes(**axis, title_text=x)
    figure.update_yaxes(**axis, title_text=y)
    return figure


def as_record(figure: go.Figure) -> dict[str, Any]:
    """A figure's data and layout as JSON has them, without plotly's template."""
    drawn = json.loads(figure.to_json())
    drawn["layout"].pop("template", None)
    return {"data": drawn["data"], "layout": drawn["layout"]}


RIGHT, WRONG, WITHHELD = BLUE, ORANGE, "#878e98"
# for a few bars or lines, beside the two that are ours
OTHERS = (ORANGE, PINK, VIOLET, GREY, "#8b6f47")
DASHES = ("dot", "dash", "dashdot", "longdash", "longdashdot")
LONGEST_LABEL = 26
COLUMNS = 20  # countries of a map that can still be read
FIFTHS = {"tickformat": ".0%", "tickvals": [0, 0.2, 0.4, 0.6, 0.8, 1]}
HALVES = {"tickformat": ".0%", "tickvals": [0, 0.5, 1]}  # a phone leaves room for no more
LEGEND_ON_TOP: dict[str, Any] = {
    "legend": {"x": 0, "y": 1.0, "xanchor": "left", "yanchor": "bottom", "traceorder": "normal"},
    "margin": {"t": 40},
}

Record = Mapping[str, Any]


def label(text: Any) -> str:
    """A text of somebody else's as a label: one line, not too long, and no markup."""
    line = " ".join(str(text).split())
    if len(line) > LONGEST_LABEL:
        line = line[: LONGEST_LABEL - 1] + "…"
    return escape(line, quote=False)


def recall_bars(rows: Sequence[Record]) -> go.Figure:
    """Recall of every row with its exact count and interval; the model's own bar stands out.

    rows: name, correct, total, value, low, high.
    """
    names = [
        f"<b>{label(row['name'])}</b><br>{row['correct']:,} of {row['total']:,}: "
        f"{100 * row['value']:.1f} %"
        for row in rows
    ]
    figure = go.Figure().add_bar(
        x=[row["value"] for row in rows], y=names, orientation="h", showlegend=False,
        marker={"color": [BLUE if row["name"] == "pretrained" else GREY for row in rows]},
        error_x=_whiskers(rows), hovertemplate="%{x:.1%}<extra></extra>", width=0.6,
    )  # fmt: skip
    themed(figure, x="recall", y="", height=80 + 50 * len(rows))
    figure.update_xaxes(range=[0, 1.03], **HALVES)
    return figure.update_yaxes(autorange="reversed", showgrid=False)


def documents_bars(groups: Sequence[Record]) -> go.Figure:
    """Recall by how many documents are about a subject, with the number of subjects."""
    names, rows = [str(one["documents"]) for one in groups], [one["recall"] for one in groups]
    figure = go.Figure().add_bar(
        x=names, y=[row["value"] for row in rows], error_y=_whiskers(rows), width=0.6,
        marker={"color": BLUE}, showlegend=False,
        hovertemplate="%{x} documents: %{y:.1%}<extra></extra>",
    )  # fmt: skip
    for name, group, row in zip(names, groups, rows, strict=True):
        top = row["high"] if row.get("high") is not None else row["value"]
        text = f"{100 * row['value']:.0f} %<br>of {group['people']:,}"
        figure.add_annotation(x=name, y=top, yshift=22, showarrow=False, text=text)
    themed(figure, x="documents about them", y="recall", height=360)
    figure.update_xaxes(type="category", showgrid=False)
    return figure.update_yaxes(range=[0, 1.2], **FIFTHS)


def answers_bars(rows: Sequence[Record]) -> go.Figure:
    """Right and wrong, by the commonest right answers. rows: answer, right, wrong."""
    figure = go.Figure()
    for key, colour in (("right", RIGHT), ("wrong", WRONG)):
        figure.add_bar(
            x=[row[key] for row in rows], y=[label(row["answer"]) for row in rows], name=key,
            marker={"color": colour}, text=[str(row[key] or "") for row in rows],
            hovertemplate="%{y}: %{x} " + key + "<extra></extra>", **STACKED,
        )  # fmt: skip
    themed(figure, x="questions", y="", height=130 + 26 * len(rows), **LEGEND_ON_TOP)
    figure.update_layout(barmode="stack", uniformtext=READABLE)
    return figure.update_yaxes(autorange="reversed", showgrid=False, type="category")


def grades_bars(rows: Sequence[Record]) -> go.Figure:
    """Right, wrong and not attempted. rows: people, mode, correct, wrong, not_attempted."""
    kinds = {"correct": ("right", RIGHT), "wrong": ("wrong", WRONG),
             "not_attempted": ("I don't know", WITHHELD)}  # fmt: skip
    totals = [max(1, sum(row[key] for key in kinds)) for row in rows]
    figure = go.Figure()
    for key, (name, colour) in kinds.items():
        figure.add_bar(
            x=[row[key] / total for row, total in zip(rows, totals, strict=True)],
            y=[f"<b>{row['people']}</b><br>{label(row['mode'])}" for row in rows], name=name,
            marker={"color": colour}, text=[f"{row[key]:,}" if row[key] else "" for row in rows],
            customdata=[row[key] for row in rows],
            hovertemplate="%{customdata} " + name + " (%{x:.1%})<extra>%{y}</extra>", **STACKED,
        )  # fmt: skip
    themed(figure, x="share of subjects", y="", height=120 + 46 * len(rows), **LEGEND_ON_TOP)
    figure.update_layout(barmode="stack", uniformtext=READABLE)
    figure.update_xaxes(range=[0, 1.03], **HALVES)
    return figure.update_yaxes(autorange="reversed", showgrid=False)


STACKED: dict[str, Any] = {"orientation": "h", "textposition": "inside",
                           "insidetextanchor": "middle", "textangle": 0}  # fmt: skip
READABLE = {"mode": "hide", "minsize": 11}  # a number too large for its bar is left out


def training_curves(runs: Sequence[tuple[str, Sequence[Record]]]) -> go.Figure:
    """Loss and speed over the minutes of training, for the model and its twin."""

    def minutes(point: Record) -> float | None:
        seconds = point.get("seconds")
        return None if seconds is None else seconds / 60

    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.09,
                           row_heights=[0.62, 0.38])  # fmt: skip
    for (name, points), colour in zip(runs, (BLUE, ORANGE), strict=False):
        for row, key in ((1, "loss"), (2, "tokens_per_second")):
            figure.add_scatter(
                x=[minutes(point) for point in points], y=[point.get(key) for point in points],
                name=name, row=row, col=1, legendgroup=name, showlegend=row == 1,
                mode="lines" if len(points) > 2 else "lines+markers",
                line={"color": colour, "width": 2},
            )  # fmt: skip
    themed(figure, x="", y="", height=460, **LEGEND_ON_TOP)
    for before, after in pairwise(runs[0][1]):
        if before.get("phase") != after.get("phase"):
            _mark_x(figure, minutes(before), label(after.get("phase")), row=1, col=1)
    figure.update_xaxes(title_text="minutes of training", row=2, col=1)
    for row, title in ((1, "loss (nats per token)"), (2, "tokens / s")):
        figure.update_yaxes(title_text=title, rangemode="tozero", row=row, col=1)
    return figure


def reliability(curves: Sequence[tuple[str, Sequence[Record]]]) -> go.Figure:
    """Confidence against what came true; the larger a point the more subjects it holds."""
    figure = go.Figure().add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="perfect", hoverinfo="skip",
        line={"color": GREY, "dash": "dash", "width": 1},
    )  # fmt: skip
    for (name, bins), colour in zip(curves, (BLUE, GREEN), strict=False):
        most = max((one["people"] for one in bins), default=1)
        figure.add_scatter(
            x=[one["confidence"] for one in bins], y=[one["accuracy"] for one in bins],
            name=name, mode="lines+markers", line={"color": colour, "width": 1.5},
            marker={"size": [5 + 6 * one["people"] / most for one in bins]},
            customdata=[one["people"] for one in bins],
            hovertemplate="%{customdata} subjects at %{x:.1%}: %{y:.1%} right<extra></extra>",
        )  # fmt: skip
    themed(figure, x="confidence", y="share that was right", height=440, **LEGEND_ON_TOP)
    for axis in (figure.update_xaxes, figure.update_yaxes):
        axis(range=[-0.03, 1.06], **FIFTHS)
    return figure


def confidence_histogram(histogram: Record) -> go.Figure:
    """How confident the model was of answers that are right and of those that are wrong."""
    edges = histogram["edges"]
    figure = go.Figure()
    for key, colour in (("right", RIGHT), ("wrong", WRONG)):
        figure.add_bar(
            x=[(low + high) / 2 for low, high in pairwise(edges)], y=histogram[key], name=key,
            width=edges[1] - edges[0], marker={"color": colour, "line": {"width": 0}},
            hovertemplate="%{y} " + key + " near %{x:.0%}<extra></extra>",
        )  # fmt: skip
    themed(figure, x="internal confidence", y="answers", height=340, **LEGEND_ON_TOP)
    figure.update_xaxes(range=[0, 1.03], **FIFTHS)
    return figure.update_layout(barmode="stack", bargap=0.06)


def risk_coverage_curves(scores: Mapping[str, Record]) -> go.Figure:
    """The share of wrong answers among those given, as more and more are given; lower is better."""
    figure, others = go.Figure(), cycle(zip(OTHERS, DASHES, strict=True))
    ours = {"internal": BLUE, "checked": GREEN}
    for name, score in scores.items():
        curve = score["groups"]["together"].get("risk_coverage") or {}
        if not curve.get("coverage"):
            continue
        colour, dash = (ours[name], "solid") if name in ours else next(others)
        figure.add_scatter(
            x=curve["coverage"], y=curve.get("risk", []), name=label(name),
            mode="markers" if len(curve["coverage"]) == 1 else "lines", marker={"size": 9},
            line={"color": colour, "width": 3 if name in ours else 1.6, "dash": dash},
            hovertemplate="%{x:.1%} given, %{y:.1%} of them wrong<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    themed(figure, x="coverage: share answered", y="risk: share of these wrong", height=460)
    figure.update_xaxes(range=[0, 1.02], **FIFTHS)
    return figure.update_yaxes(rangemode="tozero", tickformat=".0%")


def darkest(record: Record) -> float:
    """The share from which on a cell of the map is solid: the largest of any one country."""
    return max([0.1, *(value for row in record["matrix"] for value in row[:-1][:COLUMNS])])


def origins_map(record: Record) -> go.Figure:
    """Where names of each origin are said to be born: a row per origin, a column per country."""
    countries, matrix = list(record["countries"]), record["matrix"]
    shown = min(COLUMNS, len(countries) - 1)  # the last one stands for places in no gazetteer
    names = [*map(label, countries[:shown]), "others", "no known place"]
    figure = go.Figure().add_heatmap(
        z=[[*row[:shown], sum(row[shown:-1]), row[-1]] for row in matrix], x=names,
        y=[label(origin) for origin in record["origins"]], zmin=0, zmax=darkest(record),
        colorscale=SHADES, xgap=1, ygap=1, hovertemplate="%{y} names: %{z:.1%} %{x}<extra></extra>",
        colorbar={"title": {"text": "share"}, "thickness": 10, "outlinewidth": 0,
                  "tickformat": ".0%"},
    )  # fmt: skip
    at_home = [
        (name, label(row["origin"]))
        for row in record["by_origin"]
        for code, name in zip(record.get("codes", ())[:shown], names, strict=False)
        if code in row.get("home", ())
    ]
    figure.add_scatter(
        x=[name for name, _ in at_home], y=[origin for _, origin in at_home], mode="markers",
        marker={"symbol": "circle-open", "size": 8, "color": ORANGE}, hoverinfo="skip",
        name="at home", showlegend=False,
    )  # fmt: skip
    height = 170 + 17 * len(matrix)
    themed(figure, x="country of the answer", y="origin of the name", height=height)
    plain = {"showgrid": False, "zeroline": False, "dtick": 1}
    figure.update_xaxes(tickangle=-60, range=[-0.5, len(names) - 0.5], **plain)
    return figure.update_yaxes(range=[len(matrix) - 0.5, -0.5], **plain)


def cost_curves(lengths: Sequence[int], costs: Mapping[str, Sequence[float]], at: int) -> go.Figure:
    """Multiplications of mixing against the length of the text, with this run's length marked."""
    figure = go.Figure()
    for (name, curve), colour in zip(costs.items(), (ORANGE, BLUE), strict=False):
        figure.add_scatter(x=list(lengths), y=list(curve), name=name, line={"color": colour})
    _mark_x(figure, at, "this run")
    labels = {"x": "length of the text, in tokens", "y": "products of mixing"}
    themed(figure, **labels, height=340, **LEGEND_ON_TOP)
    return figure.update_yaxes(rangemode="tozero", tickformat="~s")


def _mark_x(figure: go.Figure, at: float | None, text: str, **where: int) -> None:
    """A dotted line at one place of the x axis, with a word."""
    figure.add_vline(
        x=at, line={"color": GREY, "dash": "dot", "width": 1},
        annotation={"text": text, "font": {"size": 12}}, **where,
    )  # fmt: skip


def _whiskers(rows: Sequence[Record]) -> dict[str, Any]:
    """Intervals as plotly's error bars; none where a row has none."""
    reach = [
        [0.0 if row.get(key) is None else abs(row[key] - row["value"]) for row in rows]
        for key in ("high", "low")
    ]
    return {"type": "data", "array": reach[0], "arrayminus": reach[1], "color": GREY,
            "thickness": 1.5, "width": 4}  # fmt: skip
