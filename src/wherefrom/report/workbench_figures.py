"""Figures of attention, by hand and in trained models, as plotly figures.

`DRAWINGS` are what the chapters of the workbench show: positions of sliders in, a sentence and a
figure out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from wherefrom.attention.designs import Design, copyability, law_of_design
from wherefrom.attention.equation import attend, softmax_over_keys
from wherefrom.attention.laws import HeadsLaw
from wherefrom.attention.simulate import BINS, HeadsTrials, simulate
from wherefrom.checker.problems.cost import model_cost
from wherefrom.checker.problems.variance import variances
from wherefrom.corpus.tokenizer import MASK_CHARACTER
from wherefrom.recall.inside import InsideView
from wherefrom.report.figures import BLUE, GREEN, GREY, ORANGE, SHADES, themed
from wherefrom.report.study_report import render_figures
from wherefrom.storage import write_whole

Floats = NDArray[np.float64]
Drawing = tuple[str, go.Figure]


def set_axes(figure: go.Figure, titles: tuple[str, str], x: Any = None, y: Any = None) -> go.Figure:
    """The shared look, with these titles; x and y are what else the axes are to have."""
    themed(figure, x=titles[0], y=titles[1])
    return figure.update_xaxes(x or {}).update_yaxes(y or {})


def add_line(figure: go.Figure, x: Any, y: Any, name: str, colour: str, **line: Any) -> None:
    figure.add_scatter(x=x, y=y, name=name, line={"color": colour, **line})


def add_dots(figure: go.Figure, points: Floats, name: str, **marker: Any) -> None:
    """Points (n, 2) as markers."""
    x, y = points.T
    figure.add_scatter(x=x, y=y, name=name, mode="markers", marker=marker)


# ---- the law of one design under noisy keys


def law_and_trials(*parts: tuple[str, str, HeadsLaw, HeadsTrials]) -> go.Figure:
    """The exact density of the weight on a in c over the histogram of its trials.
    A part is a name, which is empty if there is one, a colour, the law and the trials."""
    figure = go.Figure()
    for name, colour, law, trials in parts:
        figure.add_bar(
            x=(np.arange(BINS) + 0.5) / BINS,
            y=trials.average.histogram / trials.count * BINS,
            width=1 / BINS,
            name=f"{name}trials",
            marker={"color": colour, "line": {"width": 0}},
            opacity=0.4,
        )
        first, curve = law.on_a[0], law.average_curve(points=20_001)
        if len(law.queries) == 1 and not first.why_no_distribution and first.sd >= 1e-6:
            x = np.linspace(0.0025, 0.9975, 400)
            add_line(figure, x, first.pdf(x), f"{name}law", colour, width=2)
        elif len(law.queries) > 1 and curve is not None and np.ptp(curve[0]) >= 1e-6:
            # the slope of the distribution function over steps of equal width, interpolated
            # where both are smooth: the normal quantile of p against x
            edges = np.linspace(curve[0][0], curve[0][-1], 401)
            quantiles = np.interp(edges, curve[0], ndtri(np.clip(curve[1], 1e-300, 1 - 1e-16)))
            density = np.diff(ndtr(quantiles)) / np.diff(edges)
            add_line(figure, (edges[1:] + edges[:-1]) / 2, density, f"{name}law", colour, width=2)
    # the density may run to infinity at the ends; what matters is visible below 8
    tallest = max(float(np.max(trace.y)) for trace in figure.data)
    titles, top = ("weight on a in c", "probability density"), min(8.0, 1.05 * tallest)
    set_axes(figure, titles, {"range": [0, 1]}, {"range": [0, top]})
    return figure.update_layout(barmode="overlay", bargap=0)


def one_head_against_two(
    one: tuple[HeadsLaw, HeadsTrials], two: tuple[HeadsLaw, HeadsTrials]
) -> go.Figure:
    """The weight on a in c: with one head it runs to 0 or 1, with two it stays near one half."""
    return law_and_trials(("one head ", ORANGE, *one), ("two heads ", BLUE, *two))


def law_page(design: Design, law: HeadsLaw, trials: HeadsTrials) -> str:
    """The file that `wherefrom law --plot` writes."""
    about = f"{design.formula}, n = {law.keys.n}, beta = {design.beta:.4g}. Bars are trials, the "
    about += "line is the exact law where one is known."
    pair = []
    for name in ("one-head", "two-heads"):
        other = law_of_design(name, beta=design.beta, **vars(law.keys))[1]
        pair.append((other, simulate(other, count=trials.count, rng=np.random.default_rng(1))))
    twice = "The same keys, asked once for both values or once for each."
    sections = [
        (f"The weight on a in c: {design.name}", about, law_and_trials(("", BLUE, law, trials))),
        ("One head against two", twice, one_head_against_two(*pair)),
    ]
    return render_figures(f"wherefrom law {design.name}", sections)


# ---- inside a trained model


def _heatmap(table: Floats, what: str, gap: int, hover: str, **more: Any) -> go.Figure:
    bar = {"title": {"text": what}, "thickness": 10, "outlinewidth": 0}
    look = {"zmin": 0, "zmax": 1, "colorscale": SHADES, "xgap": gap, "ygap": gap}
    hover = f"{hover}: %{{z:.3f}}<extra></extra>"
    return go.Figure(go.Heatmap(z=table, colorbar=bar, hovertemplate=hover, **look, **more))


def attention_map(weights: Floats, rows: Sequence[str], columns: Sequence[str]) -> go.Figure:
    """Who looks at whom: a row a query, a column a key, the shade the weight."""
    # positions, not labels, are the coordinates: two tokens may read the same
    named = np.array([[[row, column] for column in columns] for row in rows])
    hover = "%{customdata[0]} looks at %{customdata[1]}"
    figure = themed(_heatmap(weights, "weight", 1, hover, customdata=named), x="key", y="query")
    plain = {"showgrid": False, "zeroline": False}
    flat = max(map(len, columns), default=0) <= 1 or len(columns) <= 12
    ticks: dict[str, Any] = {"ticktext": list(columns), "tickangle": 0 if flat else -90}
    figure.update_xaxes(tickvals=list(range(len(columns))), **ticks, **plain)
    ticks = {"ticktext": list(rows), "autorange": "reversed"}
    figure.update_yaxes(tickvals=list(range(len(rows))), **ticks, **plain)
    return figure.update_layout(height=max(260, min(900, 110 + 22 * len(rows))))


def mass_figure(view: InsideView) -> go.Figure:
    """How much of each head's weight falls on the name, layer by layer."""
    layers = 1 + max(head.layer for head in view.heads)
    table = np.full((layers, 1 + max(head.head for head in view.heads)), np.nan)
    for head in view.heads:
        if head.mass_on_name is not None:
            table[head.layer, head.head] = head.mass_on_name
    figure = themed(_heatmap(table, "mass", 2, "layer %{y}, head %{x}"), x="head", y="layer")
    figure.update_xaxes(dtick=1, showgrid=False, zeroline=False)
    figure.update_yaxes(dtick=1, autorange="reversed", showgrid=False, zeroline=False)
    return figure.update_layout(height=140 + 36 * layers)


def write_inside_page(view: InsideView, answer: str, path: Path) -> None:
    """Write the page; heads of a layer are averaged in its map, and the summary names each."""
    sections = []
    if view.name:
        about = "At the position that answers. A large weight shows where a head looked, not that "
        about += "the answer came from there."
        sections.append(("Weight on the name", about, mass_figure(view)))
    labels = ["MASK" if token == MASK_CHARACTER else token.strip() or "␣" for token in view.tokens]
    for layer, heads in enumerate(view.maps):
        if 0 in heads.shape[1:]:
            continue
        rows, columns = (
            labels if size == len(labels) else [f"latent {i}" for i in range(size)]
            for size in heads.shape[1:]
        )
        about = f"The mean of its {len(heads)} heads: a row a query, a column a key."
        drawn = attention_map(heads.mean(axis=0), rows, columns)
        sections.append((f"Layer {layer}", about, drawn))
    write_whole(path, render_figures(f"{view.question} {answer}", sections))


# ---- what is drawn beside a chapter


def _permutation(strength: float, shift: float) -> Drawing:
    """One attention layer on four words, as they stand and shifted; put back, they should agree."""
    rng = np.random.default_rng(4)
    words, table = rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
    order = np.roll(np.arange(4), int(shift))

    def layer(x: Floats) -> Floats:
        x = x + strength * table
        return np.asarray(attend(x, x, x).context)

    straight, moved = layer(words)[order], layer(words[order])
    figure = go.Figure()
    ring = {"size": 22, "symbol": "circle-open", "line": {"width": 3}}
    add_dots(figure, straight, "P f(X)", color=BLUE, **ring)
    names = [("Ada", "was", "born", "here")[i] for i in order]
    places = [f"{'bottom' if name == 'Ada' else 'top'} center" for name in names]
    figure.update_traces(mode="markers+text", text=names, textposition=places)
    add_dots(figure, moved, "f(P X)", color=ORANGE, size=10)
    gap = float(np.linalg.norm(straight - moved, axis=1).max())
    agree = "the two agree: the layer does not know the order" if gap < 1e-9 else "they differ"
    sentence = f"The largest distance between P f(X) and f(P X) is {gap:.3g}: {agree}."
    return sentence, set_axes(figure, ("first entry of the output", "second entry"))


def _sinusoids(base: float, width: float) -> Drawing:
    """How far position t is from position 0."""
    size = 2 * int(width)
    angles = np.arange(201)[:, None] * (10**base) ** (-np.arange(0, size, 2) / size)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(201, -1)
    distance = np.linalg.norm(table - table[0], axis=1)
    nearest = int(distance[1:].argmin()) + 1
    figure = go.Figure(go.Scatter(x=np.arange(201), y=distance, line={"color": BLUE}))
    sentence = f"Of positions 1 to 200, {nearest} is nearest to position 0, at a distance of "
    sentence += f"{distance[nearest]:.4f}: never 0."
    return sentence, set_axes(figure, ("position t", "distance of p(t) and p(0)"))


def _rotary(s: float, t: float, theta: float) -> Drawing:
    """A query and a key, turned; their product depends on s - t."""
    q, k = np.array([1.0, 0.0]), np.array([0.6, 0.8])

    def turned(x: Floats, position: float) -> Floats:
        cos, sin = math.cos(position * theta), math.sin(position * theta)
        return np.array([[cos, -sin], [sin, cos]]) @ x

    figure = go.Figure()
    for name, x, position, colour in (("query", q, s, ORANGE), ("key", k, t, BLUE)):
        arrows = {"as it is": (x, "dot"), f"at {position:g}": (turned(x, position), "solid")}
        for where, (end, dash) in arrows.items():
            label = f"{name} {where}"
            add_line(figure, [0, end[0]], [0, end[1]], label, colour, dash=dash, width=3)
    products = [turned(q, s + by) @ turned(k, t + by) for by in (0, 1)]
    sentence = f"The product is {products[0]:.4f}; one position later for both it is "
    sentence += f"{products[1]:.4f}. It depends on s - t = {s - t:g} alone."
    square, titles = {"range": [-1.15, 1.15]}, ("first entry of the pair", "second entry")
    return sentence, set_axes(figure, titles, square, {**square, "scaleanchor": "x"})


def _perceiver_cost(tokens: float, latents: float, layers: float) -> Drawing:
    """Multiplications against the number of tokens, at a width of 256."""
    lengths, m, L = np.geomspace(16, 8192, 60), 2 ** int(latents), int(layers)
    figure, now = go.Figure(), {}
    for name, colour in (("vanilla", ORANGE), ("perceiver", BLUE)):
        add_line(figure, lengths, model_cost(name, L, lengths, m, 256), name, colour)
        now[name] = model_cost(name, L, 2**tokens, m, 256)
    figure.add_vline(x=2**tokens, line={"color": GREY, "dash": "dot"})
    ratio = now["vanilla"] / now["perceiver"]
    sentence = f"With {2 ** int(tokens):,} tokens and {m} latents the vanilla model multiplies "
    sentence += f"{now['vanilla'] / 1e6:,.1f} million times, {ratio:.2f} times as often as the "
    sentence += "perceiver."
    log = {"type": "log", "dtick": 1}  # a phone has no room for more ticks
    return sentence, set_axes(figure, ("tokens", "multiplications"), log, log)


def _synthesizer(angle: float, beta: float) -> Drawing:
    """The weights of word 1 as word 2 turns away from it, compared and read off."""
    words = np.array([[1.0, 0.0], [math.cos(math.radians(angle)), math.sin(math.radians(angle))]])
    compared = softmax_over_keys(beta * words @ words.T)[0]
    rng = np.random.default_rng(1)
    scores = np.maximum(words @ rng.normal(size=(2, 2)), 0) @ rng.normal(size=(2, 2))
    read_off = softmax_over_keys(scores)[0]
    figure, places = go.Figure(), ["word 1", "word 2"]
    figure.add_bar(x=places, y=compared, name="keys and queries", marker={"color": BLUE})
    figure.add_bar(x=places, y=read_off, name="synthesizer", marker={"color": ORANGE})
    sentence = f"Word 2 gets {compared[1]:.3f} of word 1's weight where keys are compared, and "
    sentence += f"{read_off[1]:.3f} in the synthesizer, whatever word 2 is."
    return sentence, set_axes(figure, ("what word 1 looks at", "weight"), y={"range": [0, 1]})


def _variance(beta: float, keys: float) -> Drawing:
    """The variances of the weight on a, exactly."""
    by_name = variances(int(keys), beta)
    names = {"var_one": "one<br>head", "var_c1": "c<sub>1</sub>", "var_c2": "c<sub>2</sub>"}
    names |= {"var_c": "two<br>heads", "var_norm": "QK-<br>norm"}
    colours = {"color": [ORANGE, BLUE, BLUE, BLUE, GREEN]}
    bars = go.Bar(x=list(names.values()), y=[by_name[x] for x in names], marker=colours)
    ratio = by_name["var_one"] / by_name["var_c"] if by_name["var_c"] else math.inf
    sentence = f"Two heads leave a variance of {by_name['var_c']:.4f}, one head {ratio:.1f} times "
    sentence += f"as much; normalised keys leave {by_name['var_norm']:.4f} with one head."
    figure = go.Figure(bars)
    return sentence, set_axes(figure, ("", "variance"), {"tickangle": 0}, {"range": [0, 0.26]})


def _hull(x: float, y: float) -> Drawing:
    """Key 1 among three others: outside their triangle it can be copied."""
    sentence, figure = draw_keys(np.array([[x, y], [-1.0, -0.8], [1.0, -0.8], [0.0, 1.0]]))
    return sentence, figure.update_xaxes(range=[-1.6, 1.6]).update_yaxes(range=[-1.4, 1.6])


def draw_keys(keys: Floats) -> Drawing:
    """Keys in the plane (n, 2): the first, the hull of the others, and whether it can be copied."""
    margin, mixture, most = copyability(keys, 0)
    figure = go.Figure()
    corners = _corners(keys[1:])
    around = np.vstack([corners, corners[:1]])
    add_line(figure, around[:, 0], around[:, 1], "hull of the other keys", BLUE)
    figure.update_traces(fill="toself", mode="lines")
    add_dots(figure, keys[1:], "other keys", color=BLUE, size=8)
    add_dots(figure, keys[:1], "key 1", color=ORANGE, size=14)
    if margin > 0:
        ends, label = np.stack([mixture @ keys, keys[0]]), "direction of the best query"
        add_line(figure, ends[:, 0], ends[:, 1], label, ORANGE, dash="dot")
        sentence = f"Key 1 can be copied: the best query leads by {margin:.3g} per unit of length."
    else:
        sentence = f"Key 1 lies within the others: no query gives it more than {most:.4f}."
    return sentence, set_axes(figure, ("first entry of a key", "second entry"))


def _corners(points: Floats) -> Floats:
    """The corners of the convex hull of points in the plane, in order around it."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        return np.asarray(points[ConvexHull(points).vertices])
    except (QhullError, ValueError):  # all on one line, or one point
        return points[np.lexsort(points.T)][[0, -1]]


DRAWINGS: dict[str, Callable[..., Drawing]] = {
    "permutation": _permutation,
    "sinusoids": _sinusoids,
    "rotary": _rotary,
    "perceiver-cost": _perceiver_cost,
    "synthesizer": _synthesizer,
    "variance": _variance,
    "hull": _hull,
}
