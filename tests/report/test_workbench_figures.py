"""The figures show the numbers they were given, in a look that holds on any page."""

from __future__ import annotations

import numpy as np
import pytest

from wherefrom.attention.designs import law_of_design
from wherefrom.attention.simulate import simulate
from wherefrom.report.study_report import render_figures
from wherefrom.report.workbench_figures import (
    attention_map,
    law_and_trials,
    one_head_against_two,
)


def both(name, alpha=0.0):
    law = law_of_design(name, n=8, beta=6.0, alpha=alpha)[1]
    return law, simulate(law, count=20_000, rng=np.random.default_rng(0))


def test_a_figure_has_axis_titles_and_no_background_and_a_page_escapes_what_it_is_told():
    figures = [
        one_head_against_two(both("one-head"), both("two-heads")),
        attention_map(np.eye(3), list("xyz"), list("xyx")),
    ]
    for figure in figures:
        assert figure.layout.xaxis.title.text
        assert figure.layout.yaxis.title.text
        assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
        assert figure.layout.width is None  # it takes the room there is
        assert figure.layout.margin.l + figure.layout.margin.r < 90  # of a phone's 375
    # tokens that read the same are kept apart
    assert list(figures[1].layout.xaxis.ticktext) == list("xyx")
    assert list(figures[1].layout.xaxis.tickvals) == [0, 1, 2]
    html = render_figures("a <b> title", [("h", "s & t", figure) for figure in figures])
    assert "a &lt;b&gt; title" in html
    assert "s &amp; t" in html
    assert 'src="http' not in html
    assert html.count("plotly.js v") == 1  # the drawing script is in the file once


@pytest.mark.parametrize("name", ["one-head", "two-heads"])
def test_bars_and_curve_have_the_same_area(name):
    bars, curve = law_and_trials(("", "blue", *both(name))).data
    assert float(np.sum(bars.y) * bars.width) == pytest.approx(1, abs=1e-12)
    inner = (np.asarray(curve.x) > 0.1) & (np.asarray(curve.x) < 0.4)
    inside = np.trapezoid(np.asarray(curve.y)[inner], np.asarray(curve.x)[inner])
    seen = np.asarray(bars.y)[5:20].sum() * 0.02
    assert inside == pytest.approx(seen, abs=0.012)  # 20,000 trials: three errors of 0.003, a bin


def test_no_curve_is_drawn_where_no_law_is_known():
    figure = law_and_trials(("", "blue", *both("repelling-heads", alpha=1e-3)))
    assert [trace.type for trace in figure.data] == ["bar"]
