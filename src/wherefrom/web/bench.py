"""The workbench's numbers: what the sliders say, computed by the one equation and its laws.

Nothing is computed in the browser. A slider that moves asks for these numbers again, so what is
drawn is what `attend`, the exact law and the trials gave.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from wherefrom.attention.designs import Design, design_for_noise, tv_distance
from wherefrom.attention.equation import attend
from wherefrom.attention.laws import A, B, HeadsLaw, NoisyKeys
from wherefrom.attention.simulate import compare, simulate

MOST_LOGITS = 600_000  # what the trials of one picture may cost
FEWEST, MOST = 2_000, 20_000  # trials
DESIGNS = {
    "one-head": "both values with one query",
    "two-heads": "one value for each head",
    "avoiding-head": "push the others away",
    "repelling-heads": "two heads that also repel",
}
# where the values are drawn: a and b at the ends of the base, all others at the top
CORNERS = {"a": (0.0, 0.0), "b": (1.0, 0.0), "others": (0.5, 0.8)}


@dataclass(frozen=True)
class Setting:
    """Where the sliders stand."""

    design: str = "one-head"
    n: int = 8
    beta: float = 10.0
    alpha: float = 0.0
    stretch: float = 0.5
    heads: int = 1
    e: float = 1.0
    seed: int = 0


def work_out(setting: Setting) -> dict[str, Any]:
    """Everything that the page shows for one setting."""
    from wherefrom.report.workbench_figures import law_and_trials

    heads = None if setting.design == "repelling-heads" else setting.heads
    built = design_for_noise(setting.design, n=setting.n, beta=setting.beta, heads=heads)
    keys = NoisyKeys(setting.n, setting.n, setting.alpha, setting.stretch)
    law = HeadsLaw(keys, built.queries, built.targets)
    count = MOST_LOGITS // (setting.n * len(law.queries))
    count = max(FEWEST, min(MOST, count - count % 2))
    trials = simulate(law, count=count, rng=np.random.default_rng(setting.seed))
    figure = law_and_trials(law, trials).update_layout(height=340)
    drawn: dict[str, Any] = json.loads(figure.to_json())
    agreement = compare(law, trials)
    return {
        "formula": built.formula,
        "claim": built.claim,
        "heads": len(law.queries),
        "now": weights_now(setting, built),
        "law": {
            "mean": law.mean,
            "sd": law.spread,
            "fails": law.heads[0].p_below_half,
            "backwards": law.p_negative,
            "only_trials": law.why_no_spread or law.heads[0].why_no_distribution or "",
        },
        "trials": {
            "count": trials.count,
            "mean": trials.average.mean.value,
            "sd": trials.average.sd.value,
            "fails": trials.heads[0].p_below_half.value,
        },
        "agrees": agreement.agrees,
        "agreement": agreement.sentence,
        "figure": {"data": drawn["data"], "layout": drawn["layout"]},
    }


def weights_now(setting: Setting, built: Design) -> dict[str, Any]:
    """The weights and c for one length e of key a, blur aside."""
    n = setting.n
    keys = np.eye(n)
    keys[A] *= setting.e
    places = np.array([CORNERS["a"], CORNERS["b"], *([CORNERS["others"]] * (n - 2))])
    result = attend(built.queries, keys, places)
    heads = [
        {
            "a": float(row[A]),
            "b": float(row[B]),
            "others": float(row[2:].sum()),
            "logit_a": float(scores[A]),
            "logit_b": float(scores[B]),
        }
        for row, scores in zip(result.weights, result.scores, strict=True)
    ]
    mean = result.weights.mean(axis=0)
    c = result.context.mean(axis=0)
    # the queries in the plane of the two means, as arrows of length one
    plane = built.queries[:, [A, B]]
    lengths = np.linalg.norm(plane, axis=1)
    return {
        "e": setting.e,
        "heads": heads,
        "weights": [float(weight) for weight in mean[: min(n, 12)]],
        "a": float(mean[A]),
        "b": float(mean[B]),
        "others": float(mean[2:].sum()),
        "c": [float(c[0]), float(c[1])],
        "queries": (plane[lengths > 0] / lengths[lengths > 0, None]).tolist(),
        "misses": tv_distance(mean, (np.arange(n) <= B) / 2),
    }


def draw_length(stretch: float, seed: int) -> float:
    """A length e of key a, drawn from its law."""
    drawn = 1 + math.sqrt(stretch) * float(np.random.default_rng(seed).standard_normal())
    return round(min(3.0, max(-1.0, drawn)), 2)
