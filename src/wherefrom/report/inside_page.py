"""The maps of a trained model's attention as one page: a summary of the heads, then each layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from wherefrom.corpus.tokenizer import MASK_CHARACTER
from wherefrom.recall.inside import InsideView
from wherefrom.report.figures import SHADES, page, themed
from wherefrom.report.workbench_figures import attention_map
from wherefrom.storage import write_whole


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
    labels = [_label(token) for token in view.tokens]
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
    write_whole(path, page(f"{view.question} {answer}", sections))


def _label(token: str) -> str:
    if token == MASK_CHARACTER:
        return "MASK"
    return token.strip() or "␣"
