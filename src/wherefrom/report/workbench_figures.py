"""Figures of attention, by hand and in trained models: functions that return a plotly figure.

The page, `wherefrom law --plot` and `wherefrom attention --plot` draw the same ones.
Each takes results, never options: what is drawn can be printed as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from wherefrom.attention.designs import Design, design_for_noise
from wherefrom.attention.equation import attend
from wherefrom.attention.laws import A, HeadsLaw, NoisyKeys, WeightLaw
from wherefrom.attention.simulate import BINS, HeadsTrials, simulate
from wherefrom.corpus.tokenizer import MASK_CHARACTER
from wherefrom.recall.inside import InsideView
from wherefrom.report.figures import BLUE, COLOURS, GREY, ORANGE, SHADES, themed
from wherefrom.report.render import render_figures
from wherefrom.storage import write_whole

Floats = NDArray[np.float64]


def weights_against_beta(
    keys: Floats, direction: Floats, *, labels: Sequence[str], most: float = 15.0
) -> go.Figure:
    """How the weights of q = beta * direction part as beta grows; equal curves are drawn once."""
    beta = np.linspace(0.0, most, 121)
    weights = attend(beta[:, None] * direction, keys, keys).weights
    groups: list[list[int]] = []  # keys with equal curves
    for index in range(len(labels)):
        for group in groups:
            if np.allclose(weights[:, index], weights[:, group[0]], atol=1e-9):
                group.append(index)
                break
        else:
            groups.append([index])
    figure = go.Figure()
    for at, group in enumerate(groups):
        name = " and ".join(labels[index] for index in group)
        if len(group) > 2:
            name = f"{labels[group[0]]} and {len(group) - 1} more"
        line = {"color": COLOURS[at % len(COLOURS)]}
        figure.add_scatter(x=beta, y=weights[:, group[0]], name=name, line=line)
    figure.update_yaxes(range=[-0.02, 1.02])
    return themed(figure, x="factor β of the query", y="attention weight")


def law_and_trials(law: HeadsLaw, trials: HeadsTrials) -> go.Figure:
    """The exact density of the weight on a in c over the histogram of its trials."""
    figure = go.Figure()
    _add_law(figure, law, trials, colour=BLUE)
    return _density_axes(figure)


def one_head_against_two(
    one: tuple[HeadsLaw, HeadsTrials], two: tuple[HeadsLaw, HeadsTrials]
) -> go.Figure:
    """The weight on a in c: with one head it runs to 0 or 1, with two it stays near one half."""
    figure = go.Figure()
    _add_law(figure, *one, name="one head ", colour=ORANGE)
    _add_law(figure, *two, name="two heads ", colour=BLUE)
    return _density_axes(figure)


def noisy_key_picture(*, stretch: float = 0.5) -> go.Figure:
    """Samples of the keys around mu_a and mu_b: one cloud is a streak, the other a dot."""
    rng, points, alpha = np.random.default_rng(0), 120, 0.002
    figure = go.Figure()
    for index, (label, colour, along) in enumerate(
        (("key a, stretched", ORANGE, stretch), ("key b", BLUE, 0.0))
    ):
        mean = np.eye(2)[index]
        cloud = mean + math.sqrt(alpha) * rng.standard_normal((points, 2))
        cloud += math.sqrt(along) * rng.standard_normal((points, 1)) * mean
        figure.add_scatter(
            x=cloud[:, 0], y=cloud[:, 1], mode="markers", name=label,
            marker={"color": colour, "size": 6, "opacity": 0.55},
        )  # fmt: skip
        figure.add_annotation(
            x=mean[0], y=mean[1], ax=0, ay=0, axref="x", ayref="y", text="", showarrow=True,
            arrowhead=3, arrowwidth=2, arrowcolor=colour,
        )  # fmt: skip
        figure.add_annotation(
            x=mean[0], y=mean[1], text=f"μ<sub>{'ab'[index]}</sub>", showarrow=False,
            xshift=0 if index == 0 else 34, yshift=20 if index == 0 else 0, font={"size": 15},
        )  # fmt: skip
    themed(figure, x="along μ<sub>a</sub> (mean lengths)", y="along μ<sub>b</sub> (mean lengths)")
    figure.update_yaxes(range=[-0.4, 1.4])
    figure.update_xaxes(range=[-1.3, 3.3])
    return figure


def failure_against_n_and_beta(ns: Sequence[int] = (2, 10, 100, 1000)) -> go.Figure:
    """How often head 1 of two puts less than half its weight on a, with and without repelling."""
    figure = go.Figure()
    beta = np.linspace(2.0, 40.0, 96)
    lines = [("two-heads", n, f"n = {n}", {"color": COLOURS[i]}) for i, n in enumerate(ns)]
    dashed = {"color": GREY, "dash": "dash"}
    lines.append(("repelling-heads", ns[-1], f"n = {ns[-1]}, repelling, t = 1", dashed))
    for design, n, name, line in lines:
        curve = [_failure(design, n, float(b)) for b in beta]
        figure.add_scatter(x=beta, y=curve, name=name, line=line)
    themed(figure, x="factor β of the query", y="probability that head 1 fails")
    figure.update_yaxes(type="log", range=[-3, 0], dtick=1, tickformat=".3~g")
    return figure


def attention_map(weights: Floats, rows: Sequence[str], columns: Sequence[str]) -> go.Figure:
    """Who looks at whom: a row a query, a column a key, the shade the weight."""
    # positions, not labels, are the coordinates: two tokens may read the same
    figure = go.Figure(
        go.Heatmap(
            z=weights, zmin=0, zmax=1, colorscale=SHADES, xgap=1, ygap=1,
            customdata=np.array([[[row, column] for column in columns] for row in rows]),
            hovertemplate="%{customdata[0]} looks at %{customdata[1]}: %{z:.3f}<extra></extra>",
            colorbar={"title": {"text": "weight"}, "thickness": 10, "outlinewidth": 0},
        )
    )  # fmt: skip
    themed(figure, x="key", y="query")
    short = max(map(len, columns), default=0) <= 1
    figure.update_xaxes(
        tickvals=list(range(len(columns))), ticktext=list(columns), showgrid=False,
        zeroline=False, tickangle=0 if short or len(columns) <= 12 else -90,
    )  # fmt: skip
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=list(rows), autorange="reversed",
        showgrid=False, zeroline=False,
    )  # fmt: skip
    figure.update_layout(height=max(260, min(900, 110 + 22 * len(rows))))
    return figure


def law_page(design: Design, law: HeadsLaw, trials: HeadsTrials) -> str:
    """The file that `wherefrom law --plot` writes: every figure of one design under noisy keys."""
    keys, beta = law.keys, design.beta or 0.0
    pair = []
    for name in ("one-head", "two-heads"):
        other = design_for_noise(name, n=keys.n, d=keys.d, beta=beta)
        exact = HeadsLaw(keys, other.queries, other.targets)
        pair.append((exact, simulate(exact, count=trials.count, rng=np.random.default_rng(1))))
    labels = ["a", "b", *(f"key {i + 1}" for i in range(2, min(keys.n, 12)))]
    growing = weights_against_beta(
        np.eye(len(labels), keys.d), law.queries[0] / (beta or 1.0), labels=labels,
        most=max(15.0, beta),
    )  # fmt: skip
    sections = [
        (
            f"The weight on a in c: {design.name}",
            f"{design.formula}, n = {keys.n}, beta = {beta:.4g}. Bars are trials, the line is the "
            "exact law where one is known.",
            law_and_trials(law, trials),
        ),
        (
            "One head against two",
            "The same keys, asked once for both values or once for each.",
            one_head_against_two(*pair),
        ),
        ("Weights of head 1 against beta", f"Noise aside, with {len(labels)} keys.", growing),
        (
            "How often head 1 of two fails",
            "The probability of less than half its weight on a, exact.",
            failure_against_n_and_beta(),
        ),
        (
            "The noisy key",
            "Samples of key a and key b in the plane of their means.",
            noisy_key_picture(stretch=keys.stretch),
        ),
    ]
    return render_figures(f"wherefrom law {design.name}", sections)


def mass_figure(view: InsideView) -> go.Figure:
    """How much of each head's weight falls on the name, layer by layer."""
    layers = 1 + max(head.layer for head in view.heads)
    heads = 1 + max(head.head for head in view.heads)
    table = np.full((layers, heads), np.nan)
    for head in view.heads:
        if head.mass_on_name is not None:
            table[head.layer, head.head] = head.mass_on_name
    figure = go.Figure(
        go.Heatmap(z=table, zmin=0, zmax=1, colorscale=SHADES, xgap=2, ygap=2,
                   hovertemplate="layer %{y}, head %{x}: %{z:.3f}<extra></extra>",
                   colorbar={"title": {"text": "mass"}, "thickness": 10, "outlinewidth": 0})
    )  # fmt: skip
    themed(figure, x="head", y="layer")
    figure.update_xaxes(dtick=1, showgrid=False, zeroline=False)
    figure.update_yaxes(dtick=1, autorange="reversed", showgrid=False, zeroline=False)
    figure.update_layout(height=140 + 36 * layers)
    return figure


def write_inside_page(view: InsideView, answer: str, path: Path) -> None:
    """Write the page; heads of a layer are averaged in its map, and the summary names each."""
    sections = []
    if view.name:
        sections.append(
            (
                "Weight on the name",
                "At the position that answers. A large weight shows where a head looked, not that "
                "the answer came from there.",
                mass_figure(view),
            )
        )
    labels = ["MASK" if token == MASK_CHARACTER else token.strip() or "␣" for token in view.tokens]
    for layer, heads in enumerate(view.maps):
        queries, keys = heads.shape[1:]
        if not queries or not keys:
            continue
        rows = labels if queries == len(labels) else [f"latent {i}" for i in range(queries)]
        columns = labels if keys == len(labels) else [f"latent {i}" for i in range(keys)]
        sections.append(
            (
                f"Layer {layer}",
                f"The mean of its {len(heads)} heads: a row a query, a column a key.",
                attention_map(heads.mean(axis=0), rows, columns),
            )
        )
    write_whole(path, render_figures(f"{view.question} {answer}", sections))


def _failure(name: str, n: int, beta: float) -> float:
    built = design_for_noise(name, n=n, beta=beta)
    found = HeadsLaw(NoisyKeys(n, n), built.queries, built.targets).weight_law(0, A).p_below_half
    assert found is not None  # only key a is noisy here, so the law is logit-normal
    return found


def _add_law(
    figure: go.Figure, law: HeadsLaw, trials: HeadsTrials, *, colour: str, name: str = ""
) -> None:
    figure.add_bar(
        x=(np.arange(BINS) + 0.5) / BINS, y=trials.average.histogram / trials.count * BINS,
        width=1 / BINS, name=f"{name}trials", marker={"color": colour, "line": {"width": 0}},
        opacity=0.4,
    )  # fmt: skip
    curve = _density(law.on_a[0]) if len(law.queries) == 1 else _density_of_average(law)
    if curve is not None:
        x, y = curve
        figure.add_scatter(x=x, y=y, name=f"{name}law", line={"color": colour, "width": 2})


def _density(law: WeightLaw) -> tuple[Floats, Floats] | None:
    if law.why_no_distribution or law.sd < 1e-6:
        return None
    x = np.linspace(0.0025, 0.9975, 400)
    return x, law.pdf(x)


def _density_of_average(law: HeadsLaw) -> tuple[Floats, Floats] | None:
    """The slope of the exact distribution function, over steps of equal width."""
    curve = law.average_curve(points=20_001)
    if curve is None or np.ptp(curve[0]) < 1e-6:
        return None
    x, p = curve
    edges = np.linspace(x[0], x[-1], 401)
    # interpolate where both are smooth: the normal quantile of p against x
    at = np.interp(edges, x, ndtri(np.clip(p, 1e-300, 1 - 1e-16)))
    mass = np.diff(ndtr(at))
    return (edges[1:] + edges[:-1]) / 2, mass / np.diff(edges)


def _density_axes(figure: go.Figure) -> go.Figure:
    themed(figure, x="weight on a in c", y="probability density")
    figure.update_layout(barmode="overlay", bargap=0)
    figure.update_xaxes(range=[0, 1])
    # the density may run to infinity at the ends; what matters is visible below 8
    tallest = max(float(np.max(trace.y)) for trace in figure.data)
    figure.update_yaxes(range=[0, min(8.0, 1.05 * tallest)])
    return figure
