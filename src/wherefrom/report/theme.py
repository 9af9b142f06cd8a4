"""One look for every figure, on a light page and on a dark one, wide or as narrow as a phone.

Figures have no background of their own. Their text is a grey that can be read on white and on
near-black; a page that includes FIGURE_STYLE lets the text take the page's own colour instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

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

PAGE_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem;
       color: #1d2126; background: #ffffff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
@media (prefers-color-scheme: dark) { body { color: #e4e7eb; background: #14171b; } }
"""


def themed(figure: go.Figure, *, x: str, y: str, title: str = "") -> go.Figure:
    """Give a figure the shared look: titles, legend below, margins that leave a phone its room."""
    figure.update_layout(
        title={"text": title, "x": 0, "xanchor": "left", "font": {"size": 15}} if title else None,
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": GREY},
        margin={"l": 58, "r": 12, "t": 44 if title else 14, "b": 54},
        legend={"orientation": "h", "x": 0, "y": -0.22, "xanchor": "left", "yanchor": "top"},
        colorway=list(COLOURS),
        height=420,
        autosize=True,
        hoverlabel={"font": {"size": 13}},
    )
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


def page(title: str, sections: Sequence[tuple[str, str, go.Figure]]) -> str:
    """One HTML file that needs no other: heading, a sentence and a figure for each section.

    The script that draws is inside, so the file works offline and can be sent on.
    """
    from html import escape

    body = [f"<h1>{escape(title)}</h1>"]
    for index, (heading, sentence, figure) in enumerate(sections):
        drawing = figure.to_html(
            full_html=False,
            include_plotlyjs=index == 0,
            config={"responsive": True, "displaylogo": False},
        )
        body.append(f"<h2>{escape(heading)}</h2><p>{escape(sentence)}</p>{drawing}")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{PAGE_STYLE}{FIGURE_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )
