"""What is drawn beside a chapter of the workbench: positions of sliders in, a sentence and a figure
out. Everything is computed by the attention equation and the laws."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go

from wherefrom.attention.checker.judge_claims import variances
from wherefrom.attention.designs import copyability
from wherefrom.attention.equation import attend, softmax_over_keys
from wherefrom.attention.positions import cost_at, model_cost, rotate, sinusoid_table
from wherefrom.report.figures import BLUE, GREEN, GREY, ORANGE, themed

Drawing = tuple[str, go.Figure]
WORDS = ("Ada", "was", "born", "here")


def permutation(strength: float, shift: float) -> Drawing:
    """One attention layer on four words, as they stand and shifted; put back, they should agree."""
    rng = np.random.default_rng(4)
    words, table = rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
    order = np.roll(np.arange(4), int(shift))

    def layer(x: np.ndarray) -> np.ndarray:
        x = x + strength * table
        return np.asarray(attend(x, x, x).context)

    straight, moved = layer(words)[order], layer(words[order])
    figure = go.Figure()
    looks = (("P f(X)", straight, BLUE, 22, "circle-open"), ("f(P X)", moved, ORANGE, 10, "circle"))
    for name, points, colour, size, sign in looks:
        figure.add_scatter(
            x=points[:, 0], y=points[:, 1], name=name, mode="markers+text",
            text=[WORDS[i] for i in order] if size > 10 else None, textposition="top center",
            marker={"color": colour, "size": size, "symbol": sign, "line": {"width": 3}},
        )  # fmt: skip
    gap = float(np.linalg.norm(straight - moved, axis=1).max())
    agree = "the two agree: the layer does not know the order" if gap < 1e-9 else "they differ"
    sentence = f"The largest distance between P f(X) and f(P X) is {gap:.3g}: {agree}."
    return sentence, themed(figure, x="first entry of the output", y="second entry")


def sinusoids(base: float, width: float) -> Drawing:
    """How far position t is from position 0."""
    table = sinusoid_table(201, 2 * int(width), 10**base)
    distance = np.linalg.norm(table - table[0], axis=1)
    nearest = int(distance[1:].argmin()) + 1
    figure = go.Figure(go.Scatter(x=np.arange(201), y=distance, line={"color": BLUE}))
    sentence = f"Of positions 1 to 200, {nearest} is nearest to position 0, at a distance of "
    sentence += f"{distance[nearest]:.4f}: never 0."
    return sentence, themed(figure, x="position t", y="distance of p(t) and p(0)")


def rotary(s: float, t: float, theta: float) -> Drawing:
    """A query and a key, turned; their product depends on s - t."""
    q, k = np.array([1.0, 0.0]), np.array([0.6, 0.8])
    figure = go.Figure()
    for name, x, at, colour in (("query", q, s, ORANGE), ("key", k, t, BLUE)):
        for vector, dash in ((x, "dot"), (rotate(x, at, theta), "solid")):
            label = f"{name} as it is" if dash == "dot" else f"{name} at {at:g}"
            figure.add_scatter(
                x=[0, vector[0]], y=[0, vector[1]], name=label,
                line={"color": colour, "dash": dash, "width": 3},
            )  # fmt: skip
    products = [rotate(q, s + by, theta) @ rotate(k, t + by, theta) for by in (0, 1)]
    sentence = f"The product is {products[0]:.4f}; one position later for both it is "
    sentence += f"{products[1]:.4f}. It depends on s - t = {s - t:g} alone."
    themed(figure, x="first entry of the pair", y="second entry")
    figure.update_xaxes(range=[-1.15, 1.15])
    figure.update_yaxes(range=[-1.15, 1.15], scaleanchor="x")
    return sentence, figure


def perceiver_cost(tokens: float, latents: float, layers: float) -> Drawing:
    """Multiplications against the number of tokens, at a width of 256."""
    lengths = np.geomspace(16, 8192, 60)
    m, L = 2 ** int(latents), int(layers)
    figure = go.Figure()
    now = {}
    for name, colour in (("vanilla", ORANGE), ("perceiver", BLUE)):
        cost = model_cost(name)
        figure.add_scatter(
            x=lengths, y=[cost_at(cost, L, x, m, 256) for x in lengths], name=name,
            line={"color": colour},
        )  # fmt: skip
        now[name] = cost_at(cost, L, 2**tokens, m, 256)
    figure.add_vline(x=2**tokens, line={"color": GREY, "dash": "dot"})
    ratio = now["vanilla"] / now["perceiver"]
    sentence = f"With {2 ** int(tokens):,} tokens and {m} latents the vanilla model multiplies "
    sentence += f"{now['vanilla'] / 1e6:,.1f} million times, {ratio:.2f} times as often as the "
    sentence += "perceiver."
    themed(figure, x="tokens", y="multiplications")
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    return sentence, figure


def synthesizer(angle: float, beta: float) -> Drawing:
    """The weights of word 1 as word 2 turns away from it, compared and read off."""
    words = np.array([[1.0, 0.0], [math.cos(math.radians(angle)), math.sin(math.radians(angle))]])
    compared = softmax_over_keys(beta * words @ words.T)[0]
    rng = np.random.default_rng(1)
    scores = np.maximum(words @ rng.normal(size=(2, 2)), 0) @ rng.normal(size=(2, 2))
    read_off = softmax_over_keys(scores)[0]
    figure = go.Figure()
    for name, weights, colour in (
        ("keys and queries", compared, BLUE),
        ("synthesizer", read_off, ORANGE),
    ):
        figure.add_bar(x=["word 1", "word 2"], y=weights, name=name, marker={"color": colour})
    sentence = f"Word 2 gets {compared[1]:.3f} of word 1's weight where keys are compared, and "
    sentence += f"{read_off[1]:.3f} in the synthesizer, whatever word 2 is."
    themed(figure, x="what word 1 looks at", y="weight")
    figure.update_yaxes(range=[0, 1])
    return sentence, figure


def variance(beta: float, keys: float) -> Drawing:
    """The variances of the weight on a, exactly."""
    found = variances(int(keys), beta)
    names = {"var_one": "one head", "var_c1": "c<sub>1</sub>", "var_c2": "c<sub>2</sub>"}
    names |= {"var_c": "two heads", "var_norm": "QK-norm"}
    colours = [ORANGE, BLUE, BLUE, BLUE, GREEN]
    figure = go.Figure(
        go.Bar(x=list(names.values()), y=[found[x] for x in names], marker={"color": colours})
    )
    ratio = found["var_one"] / found["var_c"] if found["var_c"] else math.inf
    sentence = f"Two heads leave a variance of {found['var_c']:.4f}, one head {ratio:.1f} times as "
    sentence += f"much; normalised keys leave {found['var_norm']:.4f} with one head."
    themed(figure, x="", y="variance")
    figure.update_xaxes(tickangle=0)
    figure.update_yaxes(range=[0, 0.26])
    return sentence, figure


def hull(x: float, y: float) -> Drawing:
    """Key 1 among three others: outside their triangle it can be copied."""
    others = np.array([[-1.0, -0.8], [1.0, -0.8], [0.0, 1.0]])
    keys = np.vstack([[x, y], others])
    margin, mixture, most = copyability(keys, 0)
    nearest = mixture @ keys
    figure = go.Figure()
    corners = np.vstack([others, others[:1]])
    figure.add_scatter(
        x=corners[:, 0], y=corners[:, 1], name="hull of the other keys", fill="toself",
        line={"color": BLUE}, mode="lines+markers",
    )  # fmt: skip
    figure.add_scatter(
        x=[x], y=[y], name="key 1", mode="markers", marker={"color": ORANGE, "size": 14}
    )
    if margin > 0:
        figure.add_scatter(
            x=[nearest[0], x], y=[nearest[1], y], name="direction of the best query",
            line={"color": ORANGE, "dash": "dot"},
        )  # fmt: skip
        sentence = f"Key 1 can be copied: the best query leads by {margin:.3f} per unit of length."
    else:
        sentence = f"Key 1 lies within the others: no query gives it more than {most:.4f}."
    themed(figure, x="first entry of a key", y="second entry")
    figure.update_xaxes(range=[-1.6, 1.6])
    figure.update_yaxes(range=[-1.4, 1.6])
    return sentence, figure


DRAWINGS: dict[str, Callable[..., Drawing]] = {
    "permutation": permutation,
    "sinusoids": sinusoids,
    "rotary": rotary,
    "perceiver-cost": perceiver_cost,
    "synthesizer": synthesizer,
    "variance": variance,
    "hull": hull,
}
