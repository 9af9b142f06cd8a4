"""The tables of docs/calibration.md, on synthetic people: one JSON line a row.

python benchmarks/calibration.py steps      # which second step, if any
python benchmarks/calibration.py guarantee  # whose confidences the threshold is tested on
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np
from sklearn.isotonic import IsotonicRegression

from wherefrom.provenance import metrics
from wherefrom.provenance.confidence import calibration as logistic
from wherefrom.provenance.confidence.calibration import (
    fit_calibration,
    sigmoid,
)
from wherefrom.provenance.confidence.guarantee import guarantee_threshold
from wherefrom.provenance.metrics import Answers, Bools, Floats

FRESH = 20_000
People = tuple[dict[str, Floats], Bools]


def remembering(count: int, rng: np.random.Generator, *, known_right: float = 0.93) -> People:
    """Four of five are seen, 85 % of them remembered; the rest is right in 6 % of the cases."""
    remembered = (rng.random(count) < 0.8) & (rng.random(count) < 0.85)
    right = rng.random(count) < np.where(remembered, known_right, 0.06)
    signals = {
        f"signal{at}": 2.2 * weight * remembered + rng.normal(size=count)
        for at, weight in enumerate((1, 0.7, 0.4, 0, 0.2))
    }
    signals["skewed"] = -np.exp(-(1.76 * remembered + 0.8 * rng.normal(size=count)))
    return signals, right


def logistic_truth(count: int, rng: np.random.Generator) -> People:
    table = rng.normal(size=(count, 6))
    chance = sigmoid(table @ np.array([2.5, 1.5, 0.8, 0, 0.3, 0.5]) + 0.8)
    return {f"signal{at}": table[:, at] for at in range(6)}, rng.random(count) < chance


def second_steps(signals: dict[str, Floats], right: Bools, fresh: dict[str, Floats], seed: int):
    """The fresh people's probabilities under each second step, from one set of weights."""
    signs = dict.fromkeys(signals, 1)
    chosen = fit_calibration(signals, right, signs=signs, seed=seed).calibration
    unbent = fit_calibration(signals, right, signs=signs, bend=False, seed=seed)
    plain = unbent.calibration.probability(fresh)
    logits = np.log(plain / (1 - plain))
    held_out = np.log(unbent.held_out / (1 - unbent.held_out))
    platt = logistic.fit_logistic(
        held_out[:, None], right, np.zeros(1, dtype=int), np.ones(right.size), 1e-6
    )
    least = 1 / (right.size + 2)
    steps = IsotonicRegression(y_min=least, y_max=1 - least, out_of_bounds="clip")
    return {
        "none": plain,
        "platt": sigmoid(platt[0] * logits + platt[1]),
        "isotonic": steps.fit(held_out, right).predict(logits),
        "venn-abers": logistic.fit_curve(held_out, right, np.ones(right.size)).bend(logits),
        "chosen": chosen.probability(fresh),
    }


def compare_steps(repeats: int) -> None:
    worlds: dict[str, Callable[..., People]] = {
        "remembering": remembering,
        "logistic": logistic_truth,
    }
    measures = (metrics.log_loss, metrics.ece, metrics.auroc)
    for name, world in worlds.items():
        for people in (200, 400, 800):
            found: dict[str, list[list[float | None]]] = {}
            for seed in range(repeats):
                rng = np.random.default_rng([seed, people])
                signals, right = world(people, rng)
                fresh, truth = world(FRESH, rng)
                for step, values in second_steps(signals, right, fresh, seed).items():
                    row = [measure(Answers(values, truth)).value for measure in measures]
                    found.setdefault(step, []).append(row)
            for step, rows in found.items():
                means = np.mean(np.array(rows, dtype=float), axis=0).round(4).tolist()
                numbers = dict(zip(("log_loss", "ece", "auroc"), means, strict=True))
                print(json.dumps({"world": name, "people": people, "step": step} | numbers))


def compare_guarantees(repeats: int) -> None:
    for people in (400, 800):
        found: dict[str, list[tuple[bool, bool, float]]] = {}
        for seed in range(repeats):
            rng = np.random.default_rng([seed, people, 7])
            signals, right = remembering(people, rng, known_right=0.985)
            fresh, truth = remembering(FRESH, rng, known_right=0.985)
            signs = dict.fromkeys(signals, 1)
            whole = fit_calibration(signals, right, signs=signs, seed=seed)
            fits = rng.random(people) < 0.4
            part = fit_calibration(
                {k: v[fits] for k, v in signals.items()}, right[fits], signs=signs, seed=seed
            ).calibration
            tested = part.probability({k: v[~fits] for k, v in signals.items()})
            ways = {
                "held out, one curve": (whole.calibration, whole.held_out, right),
                "split": (part, tested, right[~fits]),
            }
            for way, (calibration, confidence, grades) in ways.items():
                threshold = guarantee_threshold(confidence, grades).threshold
                given = calibration.probability(fresh) >= (2 if threshold is None else threshold)
                wrong = float((given & ~truth).sum() / max(1, given.sum()))
                share = float((given & truth).sum() / truth.sum())
                found.setdefault(way, []).append((threshold is None, wrong > 0.05, share))
        for way, rows in found.items():
            none, broken, share = np.mean(np.array(rows, dtype=float), axis=0).round(3).tolist()
            row = {"people": people, "way": way, "no_guarantee": none, "broken": broken}
            print(json.dumps(row | {"right_given": share}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=("steps", "guarantee"))
    parser.add_argument("--repeats", type=int, default=20)
    asked = parser.parse_args()
    {"steps": compare_steps, "guarantee": compare_guarantees}[asked.table](asked.repeats)
