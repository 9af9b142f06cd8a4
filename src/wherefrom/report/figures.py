"""Figures of a study's report, in one theme for light and dark pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from itertools import cycle, pairwise
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

GREY, GRID = "#7c838d", "rgba(128, 134, 144, 0.25)"
# told apart by lightness as well as by hue, and readable on white and on near-black
BLUE, ORANGE, GREEN, PINK, VIOLET = "#3b82d0", "#cf7820", "#2a9d6f", "#cf5a8a", "#8a6fd1"
COLOURS = (BLUE, ORANGE, GREEN, PINK, VIOLET)
RIGHT_COLOUR, WRONG_COLOUR, WITHHELD_COLOUR = BLUE, ORANGE, "#878e98"
# shades for maps: nothing is transparent, much is solid, so both grounds show through at zero
SHADES = [[0.0, "rgba(59, 130, 208, 0.0)"], [1.0, "rgba(59, 130, 208, 1.0)"]]
# lines beside the two that are ours
RIVAL_LINES = (
    (ORANGE, "dot"),
    (PINK, "dash"),
    (VIOLET, "dashdot"),
    (GREY, "longdash"),
    ("#8b6f47", "longdashdot"),
)
MAX_MAP_COUNTRIES = 20  # countries of a map that can still be read
TICKS_AT_FIFTHS = {"tickformat": ".0%", "tickvals": [0, 0.2, 0.4, 0.6, 0.8, 1]}
TICKS_AT_HALVES = {"tickformat": ".0%", "tickvals": [0, 0.5, 1]}  # a phone leaves room for no more
LEGEND_ON_TOP: dict[str, Any] = {
    "legend": {"x": 0, "y": 1.04, "xanchor": "left", "yanchor": "bottom", "traceorder": "normal"},
    "margin": {"t": 40},
}
Record = Mapping[str, Any]


def themed(figure: go.Figure, *, x: str, y: str, height: int = 420, **layout: Any) -> go.Figure:
    """Give a figure the shared look: titles, legend below, margins that leave a phone its room."""
    figure.update_layout(
        title=None,
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": GREY},
        margin={"l": 58, "r": 12, "t": 14, "b": 54},
        legend={"orientation": "h", "x": 0, "y": -0.22, "xanchor": "left", "yanchor": "top"},
        colorway=list(COLOURS),
        height=height,
        autosize=True,
        hoverlabel={"font": {"size": 13}},
    )
    figure.update_layout(layout)
    lines = dict.fromkeys(("gridcolor", "zerolinecolor", "linecolor", "tickcolor"), GRID)
    axis = {**lines, "ticks": "outside", "automargin": True, "title": {"standoff": 8}}
    figure.update_xaxes(**axis, title_text=x)
    return figure.update_yaxes(**axis, title_text=y)


def as_record(figure: go.Figure) -> dict[str, Any]:
    """A figure's data and layout as JSON has them, without plotly's template."""
    drawn = json.loads(figure.to_json())
    drawn["layout"].pop("template", None)
    return {"data": drawn["data"], "layout": drawn["layout"]}


def label(text: Any, longest: int = 26) -> str:
    """A text from outside as a label: one line, not too long, and no markup."""
    line = " ".join(str(text).split())
    return escape(line if len(line) <= longest else line[: longest - 1] + "…", quote=False)


def whiskers(rows: Sequence[Record]) -> dict[str, Any]:
    """The intervals of rows (value, low, high) as error bars; none where a row has none."""
    above, below = (
        [0.0 if row.get(key) is None else abs(row[key] - row["value"]) for row in rows]
        for key in ("high", "low")
    )
    look = {"color": GREY, "thickness": 1.5, "width": 4}
    return {"type": "data", "array": above, "arrayminus": below, **look}


def bars(
    names: Sequence[str],
    traces: Sequence[Record],
    *,
    x: str,
    height: int,
    above: int = 0,
    **layout: Any,
) -> go.Figure:
    """Horizontal bars, one a name.

    above: for shares, how many pixels a name stands above its bars: beside them it would leave a
    phone no room.
    """
    figure = go.Figure()
    for trace in traces:
        figure.add_bar(y=list(names), orientation="h", **trace)
    themed(figure, x=x, y="", height=height, **layout)
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    if above:
        figure.update_xaxes(range=[0, 1.03], **TICKS_AT_HALVES)
        place = {"x": 0, "xref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": above}
        for name in names:
            figure.add_annotation(text=name, y=name, showarrow=False, **place)
        figure.update_layout(margin={"l": 12}).update_yaxes(showticklabels=False, ticks="")
    return figure


def recall_bars(rows: Sequence[Record]) -> go.Figure:
    """Recall of rows (name, correct, total, value, low, high); the model's own bar stands out."""
    names = [
        f"<b>{label(row['name'])}</b>  {row['correct']:,} of {row['total']:,}: "
        f"{100 * row['value']:.1f} %"
        for row in rows
    ]
    trace = {
        "x": [row["value"] for row in rows],
        "marker": {"color": [BLUE if row["name"] == "model" else GREY for row in rows]},
        "error_x": whiskers(rows),
        "hovertemplate": "%{x:.1%}<extra></extra>",
        "showlegend": False,
        "width": 0.4,
    }
    return bars(names, [trace], x="recall", height=80 + 50 * len(rows), above=11)


def share_bars(
    names: Sequence[str],
    shares: Mapping[str, Sequence[float]],
    *,
    x: str,
    colours: Sequence[str],
    errors: Record | None = None,
) -> go.Figure:
    """Of each name several shares side by side; errors: whiskers of some of them."""
    traces = [
        {
            "x": list(values),
            "name": name,
            "marker": {"color": colour},
            "error_x": (errors or {}).get(name),
            "hovertemplate": "%{y}: %{x:.1%}<extra>" + name + "</extra>",
        }
        for (name, values), colour in zip(shares.items(), colours, strict=False)
    ]
    labels, look = [label(name, 40) for name in names], {**LEGEND_ON_TOP, "bargap": 0.35}
    return bars(labels, traces, x=x, height=130 + 80 * len(labels), above=25, **look)


def stacked_bars(names: Sequence[str], parts: Mapping[str, Sequence[int]], *, x: str) -> go.Figure:
    """Shares by kind ("right", "wrong", "I don't know"), one bar a name, with counts in them."""
    colours = {"right": RIGHT_COLOUR, "wrong": WRONG_COLOUR}
    totals = [max(1, sum(bar)) for bar in zip(*parts.values(), strict=True)]
    traces = [
        {
            "x": [count / total for count, total in zip(counts, totals, strict=True)],
            "name": kind,
            "marker": {"color": colours.get(kind, WITHHELD_COLOUR)},
            "text": [f"{count:,}" if count else "" for count in counts],
            "customdata": list(counts),
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "hovertemplate": "%{customdata} " + kind + "<extra>%{y}</extra>",
        }
        for kind, counts in parts.items()
    ]
    # a number too large for its bar is left out
    look = {"barmode": "stack", "uniformtext": {"mode": "hide", "minsize": 11}, **LEGEND_ON_TOP}
    height = 130 + 52 * len(names)
    return bars(names, traces, x=x, height=height, above=13, bargap=0.5, **look)


def documents_bars(groups: Sequence[Record]) -> go.Figure:
    """Recall by how many documents are about a subject, with the number of subjects."""
    rows = [group["recall"] for group in groups]
    names = [
        f"{str(group['documents']).replace(' or more', '+')}<br>"
        f"{100 * group['recall']['value']:.0f} %<br>of {group['subjects']:,}"
        for group in groups
    ]
    figure = go.Figure().add_bar(
        x=names,
        y=[row["value"] for row in rows],
        error_y=whiskers(rows),
        width=0.6,
        marker={"color": BLUE},
        showlegend=False,
        hovertemplate="%{y:.1%}<extra></extra>",
    )
    themed(figure, x="documents about them", y="recall", height=360)
    figure.update_xaxes(type="category", showgrid=False, tickangle=0, tickfont={"size": 11})
    return figure.update_yaxes(range=[0, 1.05], **TICKS_AT_FIFTHS)


def training_curves(runs: Sequence[tuple[str, Sequence[Record]]]) -> go.Figure:
    """Loss, speed and recall on held-out questions over the minutes of training."""

    def minutes(point: Record) -> float | None:
        return None if point.get("seconds") is None else point["seconds"] / 60

    parts = {"loss": "loss (nats per token)", "tokens_per_second": "tokens / s"}
    if any(point.get("recall") is not None for _, points in runs for point in points):
        parts["recall"] = "held-out recall"
    last, heights = len(parts), [0.5, 0.25, 0.25][: len(parts)]
    figure = make_subplots(last, 1, shared_xaxes=True, vertical_spacing=0.07, row_heights=heights)
    for (name, points), colour in zip(runs, cycle(COLOURS), strict=False):
        for row, key in enumerate(parts, 1):
            known = [point for point in points if point.get(key) is not None]
            figure.add_scatter(
                x=[minutes(point) for point in known],
                y=[point[key] for point in known],
                name=name,
                row=row,
                col=1,
                legendgroup=name,
                showlegend=row == 1,
                mode="lines" if len(known) > 2 else "lines+markers",
                line={"color": colour, "width": 2},
            )
    themed(figure, x="", y="", height=190 + 135 * last, **LEGEND_ON_TOP)
    for before, after in pairwise(runs[0][1]):
        if before.get("phase") != after.get("phase"):
            line = {"color": GREY, "dash": "dot", "width": 1}
            word = {"text": label(after.get("phase")), "font": {"size": 12}}
            figure.add_vline(x=minutes(before), line=line, annotation=word, row=1, col=1)
    figure.update_xaxes(title_text="minutes of training", row=last, col=1)
    for row, (key, title) in enumerate(parts.items(), 1):
        form = {"tickformat": ".0%", "range": [0, 1.03]} if key == "recall" else {}
        figure.update_yaxes(title_text=title, rangemode="tozero", row=row, col=1, **form)
    return figure


def reliability(curves: Sequence[tuple[str, Sequence[Record]]]) -> go.Figure:
    """Confidence against what came true; the larger a point the more subjects it holds."""
    figure = go.Figure().add_scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        name="perfect",
        hoverinfo="skip",
        line={"color": GREY, "dash": "dash", "width": 1},
    )
    for (name, bins), colour in zip(curves, (BLUE, GREEN), strict=False):
        subjects = [point["subjects"] for point in bins]
        most = max(subjects, default=1)
        figure.add_scatter(
            x=[point["confidence"] for point in bins],
            y=[point["accuracy"] for point in bins],
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 1.5},
            marker={"size": [5 + 6 * count / most for count in subjects]},
            customdata=subjects,
            hovertemplate="%{customdata} answers at %{x:.1%}: %{y:.1%} right<extra></extra>",
        )
    themed(figure, x="confidence", y="share that was right", height=440, **LEGEND_ON_TOP)
    figure.update_xaxes(range=[-0.03, 1.06], **TICKS_AT_FIFTHS)
    return figure.update_yaxes(range=[-0.03, 1.06], **TICKS_AT_FIFTHS)


def confidence_histogram(histogram: Record) -> go.Figure:
    """How confident the model was of answers that are right and of those that are wrong."""
    edges, figure = histogram["edges"], go.Figure()
    for key, colour in (("right", RIGHT_COLOUR), ("wrong", WRONG_COLOUR)):
        figure.add_bar(
            x=[(low + high) / 2 for low, high in pairwise(edges)],
            y=histogram[key],
            name=key,
            width=edges[1] - edges[0],
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate="%{y} " + key + " near %{x:.0%}<extra></extra>",
        )
    look = {"barmode": "stack", "bargap": 0.06, **LEGEND_ON_TOP}
    themed(figure, x="internal confidence", y="answers", height=340, **look)
    return figure.update_xaxes(range=[0, 1.03], **TICKS_AT_FIFTHS)


def risk_coverage_curves(scores: Mapping[str, Record]) -> go.Figure:
    """The share of wrong answers among those given, as more and more are given; lower is better."""
    figure, others = go.Figure(), cycle(RIVAL_LINES)
    ours = {"internal": BLUE, "checked": GREEN}
    for name, score in scores.items():
        curve = score.get("risk_coverage") or {}
        if not curve.get("coverage"):
            continue
        colour, dash = (ours[name], "solid") if name in ours else next(others)
        figure.add_scatter(
            x=curve["coverage"],
            y=curve.get("risk", []),
            name=label(name),
            mode="markers" if len(curve["coverage"]) == 1 else "lines",
            marker={"size": 9},
            line={"color": colour, "width": 3 if name in ours else 1.6, "dash": dash},
            hovertemplate="%{x:.1%} given, %{y:.1%} of them wrong<extra>%{fullData.name}</extra>",
        )
    themed(figure, x="coverage: share answered", y="risk: share of these wrong", height=460)
    figure.update_xaxes(range=[0, 1.02], **TICKS_AT_FIFTHS)
    return figure.update_yaxes(rangemode="tozero", tickformat=".0%")


def darkest(record: Record) -> float:
    """The share from which on a cell of the map is solid: the largest of any one country."""
    return max(
        [0.1, *(value for row in record["matrix"] for value in row[:-1][:MAX_MAP_COUNTRIES])]
    )


def origins_map(record: Record) -> go.Figure:
    """Where names of each origin are said to be born: a row per origin, a column per country."""
    countries, matrix = list(record["countries"]), record["matrix"]
    shown = min(
        MAX_MAP_COUNTRIES, len(countries) - 1
    )  # the last one stands for places in no gazetteer
    names = [*map(label, countries[:shown]), "others", "no known place"]
    figure = go.Figure().add_heatmap(
        z=[[*row[:shown], sum(row[shown:-1]), row[-1]] for row in matrix],
        x=names,
        y=[label(origin) for origin in record["origins"]],
        zmin=0,
        zmax=darkest(record),
        colorscale=SHADES,
        xgap=1,
        ygap=1,
        hovertemplate="%{y} names: %{z:.1%} %{x}<extra></extra>",
        colorbar={
            "title": {"text": "share"},
            "thickness": 10,
            "outlinewidth": 0,
            "tickformat": ".0%",
        },
    )
    at_home = [
        (name, label(row["origin"]))
        for row in record["by_origin"]
        for code, name in zip(record.get("codes", ())[:shown], names, strict=False)
        if code in row.get("home", ())
    ]
    figure.add_scatter(
        x=[name for name, _ in at_home],
        y=[origin for _, origin in at_home],
        mode="markers",
        marker={"symbol": "circle-open", "size": 8, "color": ORANGE},
        hoverinfo="skip",
        name="at home",
        showlegend=False,
    )
    height = 170 + 17 * len(matrix)
    themed(figure, x="country of the answer", y="origin of the name", height=height)
    plain = {"showgrid": False, "zeroline": False, "dtick": 1}
    figure.update_xaxes(tickangle=-60, range=[-0.5, len(names) - 0.5], **plain)
    return figure.update_yaxes(range=[len(matrix) - 0.5, -0.5], **plain)
