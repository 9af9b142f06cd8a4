"""Draw the pictures of the docs as small SVG files: the workbench's own figures, and measurements.

    python docs/figures/make.py [--check]

Those of docs/attention.md are computed by the attention equation and the laws; the recall and
the times show what benchmarks/results holds. Their lines, bars and points are written as plain SVG,
which needs no browser and reads well in a diff. With --check nothing is
written, and the command fails if a file is not what it would write.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from wherefrom.attention.designs import build_design, law_of_design
from wherefrom.attention.equation import attend
from wherefrom.attention.laws import HeadsLaw
from wherefrom.attention.simulate import HeadsTrials, simulate
from wherefrom.report.figures import BLUE, COLOURS, ORANGE, themed
from wherefrom.report.workbench_figures import (
    add_dots,
    add_line,
    attention_map,
    one_head_against_two,
    set_axes,
)

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
LENGTHS, LADDER = RESULTS / "lengths.jsonl", RESULTS / "ladder.jsonl"
SCALE = RESULTS / "scale.jsonl"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 380, 62, 26, 14, 84
GREY = "#7c838d"


def drawn() -> dict[str, Callable[[], go.Figure]]:
    """File name -> figure."""
    words = build_design("words", beta=1.2).matrices["weights"]
    names = ["x1", "x2", "x3"]
    return {
        "weights-against-beta": weights_against_beta,
        "noisy-key": noisy_key_picture,
        "one-head-against-two": lambda: one_head_against_two(_both("one-head"), _both("two-heads")),
        "failure": failure_against_n_and_beta,
        "three-words": lambda: attention_map(words, names, names),
    }


def weights_against_beta() -> go.Figure:
    """How the weights of q = beta * (k_a + k_b) part as beta grows, with ten orthonormal keys."""
    keys, beta, figure = np.eye(10), np.linspace(0.0, 15.0, 121), go.Figure()
    weights = attend(beta[:, None] * (keys[0] + keys[1]), keys, keys).weights
    add_line(figure, beta, weights[:, 0], "a and b", COLOURS[0])
    add_line(figure, beta, weights[:, 2], "key 3 and 7 more", COLOURS[1])
    return set_axes(
        figure, ("factor β of the query", "attention weight"), y={"range": [-0.02, 1.02]}
    )


def noisy_key_picture() -> go.Figure:
    """Samples of the keys around mu_a and mu_b: one cloud is a streak, the other a dot."""
    rng, points, alpha, stretch = np.random.default_rng(0), 120, 0.002, 0.5
    figure = go.Figure()
    looks = (("key a, stretched", ORANGE, stretch, 0, 20), ("key b", BLUE, 0.0, 34, 0))
    for mean, letter, (label, colour, along, right, up) in zip(np.eye(2), "ab", looks, strict=True):
        cloud = mean + math.sqrt(alpha) * rng.standard_normal((points, 2))
        cloud += math.sqrt(along) * rng.standard_normal((points, 1)) * mean
        add_dots(figure, cloud, label, color=colour, size=6, opacity=0.55)
        place = {"x": mean[0], "y": mean[1]}
        arrow = {"showarrow": True, "arrowhead": 3, "arrowwidth": 2, "arrowcolor": colour}
        figure.add_annotation(ax=0, ay=0, axref="x", ayref="y", text="", **place, **arrow)
        name = {"text": f"μ<sub>{letter}</sub>", "showarrow": False, "font": {"size": 15}}
        figure.add_annotation(xshift=right, yshift=up, **place, **name)
    titles = ("along μ<sub>a</sub> (mean lengths)", "along μ<sub>b</sub> (mean lengths)")
    return set_axes(figure, titles, {"range": [-1.3, 3.3]}, {"range": [-0.4, 1.4]})


def failure_against_n_and_beta() -> go.Figure:
    """How often head 1 of two puts less than half its weight on a, with and without repelling."""
    figure, beta, ns = go.Figure(), np.linspace(2.0, 40.0, 96), (2, 10, 100, 1000)
    lines = [("two-heads", n, f"n = {n}", {"colour": COLOURS[i]}) for i, n in enumerate(ns)]
    dashed = {"colour": GREY, "dash": "dash"}
    lines.append(("repelling-heads", ns[-1], f"n = {ns[-1]}, repelling, t = 1", dashed))
    for design, n, name, look in lines:
        laws = [law_of_design(design, n=n, beta=float(b))[1] for b in beta]
        add_line(figure, beta, [law.weight_law(0, 0).p_below_half for law in laws], name, **look)
    axis = {"type": "log", "range": [-3, 0], "dtick": 1, "tickformat": ".3~g"}
    return set_axes(figure, ("factor β of the query", "probability that head 1 fails"), y=axis)


def measured(results: Path = LENGTHS) -> dict[str, Callable[[], go.Figure]]:
    """File name -> figure, as far as there are results to draw."""
    figures: dict[str, Callable[[], go.Figure]] = {}
    if rows := _last_whole_run(results):
        time = "time-against-length"
        figures[time] = lambda: against_length(rows, "value", 1e3, "ms per sequence")
    if SCALE.exists():
        figures["cost-against-people"] = cost_against_people
    return figures


def cost_against_people(results: Path = SCALE) -> go.Figure:
    """Seconds and million tokens until the model knows 95 % of what the reader reads."""
    newest = {}
    for record in map(json.loads, results.read_text(encoding="utf-8").splitlines()):
        if record["reached"]:
            newest[record["settings"]["people"]] = record
    people = sorted(newest)
    figure = go.Figure()
    heights = []
    for i, (key, factor, name) in enumerate(
        (("value", 1.0, "seconds"), ("tokens", 1e-6, "million tokens"))
    ):
        values = [factor * newest[count][key] for count in people]
        slope = math.log(values[-1] / values[0]) / math.log(people[-1] / people[0])
        add_line(figure, people, values, f"{name}, exponent {slope:.2f}", COLOURS[i])
        heights += values
    themed(figure, x="people", y="until 95 % of the reader's recall")
    figure.update_xaxes(
        type="log",
        range=[math.log10(people[0]), math.log10(people[-1])],
        tickvals=people,
        ticktext=[f"{count:,}" for count in people],
    )
    around = [math.log10(min(heights)) - 0.1, math.log10(max(heights)) + 0.1]
    figure.update_yaxes(type="log", range=around)
    return figure


# dev recall on A5 of the best public solution (documents first, then questions), and of guesses
PUBLIC = {"ordered, best public (rotary)": 0.404}
GUESSES = {"always London": 0.050, "the letters of the name": 0.068}
RUNGS = ("questions only", "ordered", "unpointed", "pointed")


def ladder_bars(results: Path = LADDER) -> str:
    """Recall on A5 as SVG: guesses, rungs (means over seeds), the best public one, the reader."""
    newest: dict[str, dict[int, dict[str, Any]]] = {}  # by rung: seed -> record
    for line in results.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        settings = record["settings"]
        if settings["data"] != "world" and not settings["questions"] and not settings["minutes"]:
            newest.setdefault(settings["rung"], {})[settings["seed"]] = record

    def mean(rung: str, key: str) -> float:
        return float(np.mean([record[key] for record in newest[rung].values()]))

    bars = [(name, value, GREY) for name, value in GUESSES.items()]
    for rung in filter(newest.__contains__, RUNGS):
        bars.append((rung, mean(rung, "value"), COLOURS[0]))
        if rung == "ordered":
            bars += [(name, value, GREY) for name, value in PUBLIC.items()]
    bars.append(("the reader, with the text", mean("pointed", "reader"), GREY))
    height, left, wide = 24, 220, 410
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height * len(bars) + 12}" '
        'font-family="sans-serif" font-size="13" role="img" aria-label="Recall on A5">'
    ]
    for at, (label, value, colour) in enumerate(bars):
        y = 6 + at * height
        text = f'y="{y + 15}" fill="{GREY}"'
        parts.append(
            f'<text x="{left - 8}" {text} text-anchor="end">{escape(label)}</text>'
            f'<rect x="{left}" y="{y + 3}" width="{wide * value:.1f}" height="{height - 6}" '
            f'fill="{colour}"/><text x="{left + wide * value + 6:.1f}" {text}>{value:.1%}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _last_whole_run(results: Path) -> list[dict[str, Any]]:
    """The records of one run (they share their time): the last one of many lengths, if any."""
    runs: dict[str, list[dict[str, Any]]] = {}
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    for record in map(json.loads, lines):
        if "length" in record:
            runs.setdefault(record["time"], []).append(record)
    most = max((len({row["length"] for row in rows}) for rows in runs.values()), default=0)
    whole = [rows for rows in runs.values() if len({row["length"] for row in rows}) == most]
    return sorted(whole[-1], key=lambda row: row["length"]) if whole else []


def against_length(rows: list[dict[str, Any]], key: str, factor: float, what: str) -> go.Figure:
    """A line for each variant on two logarithmic axes; the written cost of two of them, dashed.

    The written cost is in FLOPs: it is drawn as time, equal to the measured one at the longest.
    """
    figure, lengths, heights = go.Figure(), set(), []
    for at, variant in enumerate(sorted({row["variant"] for row in rows})):
        those = [row for row in rows if row["variant"] == variant and row[key] > 0]
        xs, ys = [row["length"] for row in those], [factor * row[key] for row in those]
        colour = COLOURS[at % len(COLOURS)]
        figure.add_scatter(x=xs, y=ys, name=variant, mode="lines", line={"color": colour})
        if key == "value" and variant in ("vanilla", "perceiver"):
            cost = [row["flops"] / those[-1]["flops"] * ys[-1] for row in those]
            line = {"color": colour, "dash": "dash"}
            figure.add_scatter(x=xs, y=cost, name="", mode="lines", line=line)
            heights += cost
        lengths |= set(xs)
        heights += ys
    themed(figure, x="length", y=what)
    ticks = sorted(length for length in lengths if length & (length - 1) == 0)
    figure.update_xaxes(
        type="log",
        range=[math.log10(min(lengths)), math.log10(max(lengths))],
        tickvals=ticks,
        ticktext=[str(tick) for tick in ticks],
    )
    around = [math.log10(min(heights)) - 0.1, math.log10(max(heights)) + 0.1]
    figure.update_yaxes(type="log", range=around)
    return figure


def _both(name: str) -> tuple[HeadsLaw, HeadsTrials]:
    law = law_of_design(name, n=8, beta=10.0)[1]
    return law, simulate(law, count=100_000, rng=np.random.default_rng(0))


class Scale:
    """From a number on an axis to a place in the picture."""

    def __init__(self, axis: Any, values: list[float], start: float, end: float) -> None:
        self.log = axis.type == "log"
        # a log axis gives its range as exponents, and so does this class
        low, high = axis.range or (min(values), max(values))
        if axis.autorange == "reversed":
            low, high = max(values) + 0.5, min(values) - 0.5
        self.low, self.high, self.start, self.end = float(low), float(high), start, end

    def __call__(self, value: float) -> float:
        number = math.log10(max(value, 1e-300)) if self.log else value
        share = (number - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, axis: Any) -> list[tuple[float, str]]:
        if axis.tickvals is not None:
            return list(zip(axis.tickvals, axis.ticktext, strict=True))
        if self.log:
            powers = range(math.ceil(self.low), math.floor(self.high) + 1)
            return [(10.0**p, f"{10.0**p:g}") for p in powers]
        span = abs(self.high - self.low)
        step = 10 ** math.floor(math.log10(span / 3))
        step *= 5 if span / step > 15 else 2 if span / step > 6 else 1
        first = math.ceil(min(self.low, self.high) / step)
        last = math.floor(max(self.low, self.high) / step)
        return [(i * step, f"{round(i * step, 10):g}") for i in range(first, last + 1)]


def svg(figure: go.Figure) -> str:
    """The figure as SVG: axes, then each trace, then the legend."""
    layout = figure.layout
    xs = [float(x) for t in figure.data for x in (t.x if t.x is not None else range(len(t.z[0])))]
    ys = [float(y) for t in figure.data for y in (t.y if t.y is not None else range(len(t.z)))]
    if figure.data[0].type == "heatmap":
        xs, ys = [-0.5, *xs, max(xs) + 0.5], ys
    across = Scale(layout.xaxis, xs, LEFT, WIDTH - RIGHT)
    up = Scale(layout.yaxis, ys, HEIGHT - BOTTOM, TOP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="{GREY}">',
        f'<clipPath id="inside"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{HEIGHT - TOP - BOTTOM}"/></clipPath>',
    ]
    out += _axes(layout, across, up)
    out.append('<g clip-path="url(#inside)">')
    for trace in figure.data:
        out += _trace(trace, across, up)
    out.append("</g>")
    out += _legend(figure)
    return "\n".join([*out, "</svg>"]) + "\n"


def _axes(layout: Any, across: Scale, up: Scale) -> list[str]:
    floor, out = HEIGHT - BOTTOM, []
    for value, label in across.ticks(layout.xaxis):
        x = across(value)
        out.append(f'<path d="M{x} {TOP}V{floor}" stroke="{GREY}" stroke-opacity=".2"/>')
        out.append(f'<text x="{x}" y="{floor + 18}" text-anchor="middle">{escape(label)}</text>')
    for value, label in up.ticks(layout.yaxis):
        y = up(value)
        out.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="{GREY}" stroke-opacity=".2"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(label)}</text>')
    x_title, y_title = (_plain(axis.title.text) for axis in (layout.xaxis, layout.yaxis))
    middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + floor) / 2
    out.append(f'<text x="{middle_x}" y="{floor + 40}" text-anchor="middle">{x_title}</text>')
    out.append(
        f'<text transform="translate(16 {middle_y}) rotate(-90)" text-anchor="middle">'
        f"{y_title}</text>"
    )
    return out


def _trace(trace: Any, across: Scale, up: Scale) -> list[str]:
    if trace.type == "heatmap":
        return [
            f'<rect x="{across(column - 0.48)}" y="{up(row - 0.48)}" '
            f'width="{across(column + 0.48) - across(column - 0.48):.1f}" '
            f'height="{up(row + 0.48) - up(row - 0.48):.1f}" fill="#3b82d0" '
            f'fill-opacity="{weight:.3f}"><title>{weight:.3f}</title></rect>'
            for row, line in enumerate(trace.z)
            for column, weight in enumerate(line)
        ]
    if trace.type == "bar":
        wide = across(trace.width) - across(0.0)
        return [
            f'<path d="M{across(x - trace.width / 2)} {up(0.0)}v{up(y) - up(0.0):.1f}h{wide:.1f}'
            f'V{up(0.0)}z" fill="{trace.marker.color}" fill-opacity=".4"/>'
            for x, y in zip(trace.x, trace.y, strict=True)
            if y > 0
        ]
    if trace.mode == "markers":
        return [
            f'<circle cx="{across(x)}" cy="{up(y)}" r="3" fill="{trace.marker.color}" '
            'fill-opacity=".55"/>'
            for x, y in zip(trace.x, trace.y, strict=True)
        ]
    places = " ".join(f"{across(x)},{up(y)}" for x, y in zip(trace.x, trace.y, strict=True))
    dash = ' stroke-dasharray="7 5"' if trace.line.dash == "dash" else ""
    return [
        f'<polyline points="{places}" fill="none" stroke="{trace.line.color}" '
        f'stroke-width="2"{dash}/>'
    ]


def _legend(figure: go.Figure) -> list[str]:
    out, x = [], float(LEFT)
    for trace in figure.data:
        if not trace.name or len(figure.data) == 1:
            continue
        colour = trace.marker.color or trace.line.color
        out.append(
            f'<rect x="{x:.0f}" y="{HEIGHT - 21}" width="16" height="8" fill="{colour}" '
            f'fill-opacity="{0.4 if trace.type == "bar" else 1}"/>'
        )
        out.append(f'<text x="{x + 22:.0f}" y="{HEIGHT - 13}">{escape(trace.name)}</text>')
        x += 44 + 6.9 * len(trace.name)
    return out


def _plain(text: str) -> str:
    return escape(text.replace("<sub>", "_").replace("</sub>", ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    texts = {name: svg(build()) for name, build in {**drawn(), **measured()}.items()}
    if LADDER.exists():
        texts["ladder"] = ladder_bars()
    for name, text in texts.items():
        path = HERE / f"{name}.svg"
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            stale.append(path.name)
        elif not check:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"not up to date: {', '.join(stale)}; run python docs/figures/make.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
