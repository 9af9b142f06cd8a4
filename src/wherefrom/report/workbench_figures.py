"""Figures of the attention workbench, as functions that return a plotly figure.

The page, the report and `wherefrom law --plot` draw the same ones. Each takes results, never
options: what is drawn was computed elsewhere and can be printed as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from wherefrom.attention.heads import HeadsLaw
from wherefrom.attention.laws import WeightLaw, law_of_weight
from wherefrom.attention.noise import A, NoisyKeys
from wherefrom.attention.noisy_queries import design_for_noise
from wherefrom.attention.trials import BINS, HeadsTrials, WeightTrials
from wherefrom.errors import UserError
from wherefrom.report.figures import BLUE, COLOURS, GREY, ORANGE, SHADES, themed

Floats = NDArray[np.float64]


def weights_against_beta(
    keys: Floats, direction: Floats, *, labels: Sequence[str], most: float = 15.0
) -> go.Figure:
    """How the weights of q = beta * direction part as beta grows; equal curves are drawn once."""
    from wherefrom.attention.equation import attend

    beta = np.linspace(0.0, most, 121)
    weights = attend(beta[:, None] * direction, keys, keys).weights
    figure = go.Figure()
    drawn: list[Floats] = []
    for index, label in enumerate(labels):
        if any(np.allclose(weights[:, index], other, atol=1e-9) for other in drawn):
            continue
        drawn.append(weights[:, index])
        same = [
            name
            for other, name in enumerate(labels)
            if np.allclose(weights[:, other], weights[:, index], atol=1e-9)
        ]
        name = same[0] if len(same) == 1 else f"{same[0]} and {same[1]}"
        if len(same) > 2:
            name = f"{label} and {len(same) - 1} more"
        colour = COLOURS[(len(drawn) - 1) % len(COLOURS)]
        figure.add_scatter(x=beta, y=weights[:, index], name=name, line={"color": colour})
    figure.update_yaxes(range=[-0.02, 1.02])
    return themed(figure, x="factor β of the query", y="attention weight")


def law_and_trials(
    law: HeadsLaw, trials: HeadsTrials | None, *, head: int | None = None, name: str = ""
) -> go.Figure:
    """The exact density of a weight over the histogram of its trials.

    Without `head` it is the weight on a of the average over heads, which is what c shows.
    """
    figure = go.Figure()
    _add_law(figure, law, trials, head=head, name=name, colour=BLUE)
    return _density_axes(figure, "weight" if head is not None else "weight on a in c")


def one_head_against_two(
    one: tuple[HeadsLaw, HeadsTrials | None], two: tuple[HeadsLaw, HeadsTrials | None]
) -> go.Figure:
    """The weight on a in c: with one head it runs to 0 or 1, with two it stays near one half."""
    figure = go.Figure()
    _add_law(figure, *one, head=None, name="one head", colour=ORANGE)
    _add_law(figure, *two, head=None, name="two heads", colour=BLUE)
    return _density_axes(figure, "weight on a in c")


def noisy_key_picture(
    *, alpha: float = 0.002, stretch: float = 0.5, points: int = 120, seed: int = 0
) -> go.Figure:
    """Samples of the keys around mu_a and mu_b: one cloud is a streak, the other a dot."""
    rng = np.random.default_rng(seed)
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


def failure_against_n_and_beta(
    *, ns: Sequence[int] = (2, 10, 100, 1000), most: float = 40.0, repel: float = 1.0
) -> go.Figure:
    """How often head 1 of two puts less than half its weight on a, with and without repelling."""
    figure = go.Figure()
    beta = np.linspace(2.0, most, 96)
    for index, n in enumerate(ns):
        curve = [_failure("two-heads", n, float(b)) for b in beta]
        colour = COLOURS[index % len(COLOURS)]
        figure.add_scatter(x=beta, y=curve, name=f"n = {n}", line={"color": colour})
    curve = [_failure("repelling-heads", ns[-1], float(b), repel) for b in beta]
    figure.add_scatter(
        x=beta, y=curve, name=f"n = {ns[-1]}, repelling, t = {repel:g}",
        line={"color": GREY, "dash": "dash"},
    )  # fmt: skip
    themed(figure, x="factor β of the query", y="probability that head 1 fails")
    figure.update_yaxes(type="log", range=[-3, 0], dtick=1, tickformat=".3~g")
    return figure


def attention_map(weights: Floats, rows: Sequence[str], columns: Sequence[str]) -> go.Figure:
    """Who looks at whom: a row a query, a column a key, the shade the weight."""
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (len(rows), len(columns)):
        raise UserError(
            f"a map of {weights.shape} needs as many labels; "
            f"there are {len(rows)} rows and {len(columns)} columns."
        )
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


def _failure(name: str, n: int, beta: float, repel: float = 1.0) -> float:
    built = design_for_noise(name, n=n, beta=beta, repel=repel)
    found = law_of_weight(NoisyKeys(n, n), built.design.queries[0]).p_below_half
    assert found is not None  # only key a is noisy here, so the law is logit-normal
    return found


def _add_law(
    figure: go.Figure,
    law: HeadsLaw,
    trials: HeadsTrials | None,
    *,
    head: int | None,
    name: str,
    colour: str,
) -> None:
    if trials is not None:
        seen: WeightTrials = trials.average if head is None else trials.heads[head]
        heights = seen.histogram / trials.count * BINS
        figure.add_bar(
            x=(np.arange(BINS) + 0.5) / BINS, y=heights, width=1 / BINS,
            name=f"{name} trials".strip(), marker={"color": colour, "line": {"width": 0}},
            opacity=0.4,
        )  # fmt: skip
    single = law.heads[head] if head is not None else law.heads[0]
    if head is not None or len(law.queries) == 1:
        curve = _density(single if head is not None else law.weight_law(0, A))
    else:
        curve = _density_of_average(law)
    if curve is not None:
        figure.add_scatter(
            x=curve[0], y=curve[1], name=f"{name} law".strip(), line={"color": colour, "width": 2}
        )


def _density(law: WeightLaw) -> tuple[Floats, Floats] | None:
    if law.why_no_distribution or law.sd < 1e-6:
        return None
    x = np.linspace(0.0025, 0.9975, 400) * law.share
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


def _density_axes(figure: go.Figure, what: str) -> go.Figure:
    themed(figure, x=what, y="probability density")
    figure.update_layout(barmode="overlay", bargap=0)
    figure.update_xaxes(range=[0, 1])
    # the density may run to infinity at the ends; what matters is visible below 8
    tallest = max((float(np.max(trace.y)) for trace in figure.data), default=1.0)
    figure.update_yaxes(range=[0, min(8.0, 1.05 * tallest)])
    return figure


__all__ = [
    "attention_map",
    "failure_against_n_and_beta",
    "law_and_trials",
    "noisy_key_picture",
    "one_head_against_two",
    "weights_against_beta",
]
