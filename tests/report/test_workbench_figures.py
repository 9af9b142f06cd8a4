"""The figures show the numbers they were given, in a look that holds on any page."""

from __future__ import annotations

import numpy as np
import pytest

from wherefrom.attention.designs import law_of_design
from wherefrom.attention.laws import HeadsLaw
from wherefrom.attention.simulate import HeadsTrials, simulate
from wherefrom.report.render import render_figures
from wherefrom.report.workbench_figures import (
    attention_map,
    failure_against_n_and_beta,
    law_and_trials,
    noisy_key_picture,
    one_head_against_two,
    weights_against_beta,
)


def both(name: str, alpha: float = 0.0) -> tuple[HeadsLaw, HeadsTrials]:
    law = law_of_design(name, n=8, beta=6.0, alpha=alpha)[1]
    return law, simulate(law, count=20_000, rng=np.random.default_rng(0))


def test_every_figure_has_axis_titles_and_no_background_of_its_own() -> None:
    for figure in (
        weights_against_beta(np.eye(5), np.eye(5)[0] + np.eye(5)[1], labels=list("abcde")),
        law_and_trials(("", "blue", *both("one-head"))),
        one_head_against_two(both("one-head"), both("two-heads")),
        noisy_key_picture(),
        failure_against_n_and_beta(ns=(2, 10)),
        attention_map(np.eye(3), list("xyz"), list("xyx")),
    ):
        assert figure.layout.xaxis.title.text
        assert figure.layout.yaxis.title.text
        assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
        assert figure.layout.width is None  # it takes the room there is
        assert figure.layout.margin.l + figure.layout.margin.r < 90  # of a phone's 375


def test_equal_weights_are_one_curve() -> None:
    figure = weights_against_beta(np.eye(5), np.eye(5)[0] + np.eye(5)[1], labels=list("abcde"))
    assert [trace.name for trace in figure.data] == ["a and b", "c and 2 more"]
    assert figure.data[0].y[0] == pytest.approx(0.2)
    assert figure.data[0].y[-1] == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("name", ["one-head", "two-heads"])
def test_bars_and_curve_have_the_same_area(name: str) -> None:
    law, trials = both(name)
    bars, curve = law_and_trials(("", "blue", law, trials)).data
    assert float(np.sum(bars.y) * bars.width) == pytest.approx(1, abs=1e-12)
    inner = (np.asarray(curve.x) > 0.1) & (np.asarray(curve.x) < 0.4)
    inside = np.trapezoid(np.asarray(curve.y)[inner], np.asarray(curve.x)[inner])
    seen = np.asarray(bars.y)[5:20].sum() * 0.02
    assert inside == pytest.approx(seen, abs=0.012)  # 20,000 trials: three errors of 0.003, a bin


def test_no_curve_is_drawn_where_no_law_is_known() -> None:
    figure = law_and_trials(("", "blue", *both("repelling-heads", alpha=1e-3)))
    assert [trace.type for trace in figure.data] == ["bar"]


def test_failure_at_two_keys_is_the_same_at_every_beta() -> None:
    figure = failure_against_n_and_beta(ns=(2, 10))
    np.testing.assert_allclose(figure.data[0].y, 0.0786496, atol=1e-6)
    assert np.all(np.diff(figure.data[1].y) < 0)


def test_a_map_keeps_tokens_that_read_the_same_apart() -> None:
    figure = attention_map(np.eye(3), list("xyz"), list("xyx"))
    assert list(figure.layout.xaxis.ticktext) == list("xyx")
    assert list(figure.layout.xaxis.tickvals) == [0, 1, 2]


def test_a_page_stands_alone_and_escapes_what_it_is_told() -> None:
    html = render_figures("a <b> title", [("h", "s & t", noisy_key_picture())] * 2)
    assert "a &lt;b&gt; title" in html
    assert "s &amp; t" in html
    assert "src=" not in html.split("<body>")[0]
    assert 'src="http' not in html
    # the drawing script is in the file once
    assert html.count("plotly.js v") == 1
