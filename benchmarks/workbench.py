"""How long the workbench takes: a law at n = 1,000, and a million trials at n = 8, d = 8.

    python benchmarks/workbench.py [--repeats 7] [--out FILE.jsonl]

Prints a JSON line a measurement, see `records.py`, with the goal, and appends it to
benchmarks/results.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from records import keep, summarise

from wherefrom.attention.designs import law_of_design
from wherefrom.attention.laws import HeadsLaw
from wherefrom.attention.simulate import compare, simulate


def law(name: str, *, n: int, alpha: float) -> HeadsLaw:
    """Everything that `wherefrom law` prints of the exact side."""
    found = law_of_design(name, n=n, beta=10.0, alpha=alpha)[1]
    assert found.spread is not None
    assert 0 < found.mean < 1
    return found


def million_trials(alpha: float) -> None:
    """A million trials at n = 8, d = 8, keys drawn in full, checked against the law."""
    found = law("one-head", n=8, alpha=alpha)
    seen = simulate(found, count=1_000_000, rng=np.random.default_rng(0))
    assert seen.drawn == "keys"
    assert compare(found, seen).agrees


MEASURED: list[tuple[str, Callable[[], object], float, str]] = [
    ("law one-head, n = 1000", partial(law, "one-head", n=1000, alpha=0.0), 50, "ms"),
    ("law two-heads, n = 1000", partial(law, "two-heads", n=1000, alpha=0.0), 50, "ms"),
    ("law one-head, n = 1000, alpha 1e-6", partial(law, "one-head", n=1000, alpha=1e-6), 50, "ms"),
    (
        "law two-heads, n = 1000, alpha 1e-6",
        partial(law, "two-heads", n=1000, alpha=1e-6),
        50,
        "ms",
    ),
    ("a million trials, n = 8, d = 8, alpha 0", partial(million_trials, 0.0), 2, "s"),
    ("a million trials, n = 8, d = 8, alpha 1e-6", partial(million_trials, 1e-6), 2, "s"),
]


def measure(run: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each repeat, after one that warms up."""
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", default="workbench.jsonl")
    options = parser.parse_args()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = []
    for name, run, goal, unit in MEASURED:
        factor = 1000.0 if unit == "ms" else 1.0
        values = [factor * seconds for seconds in measure(run, options.repeats)]
        found.append(summarise(name, values, unit, goal=goal))
    added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    found.append(summarise("memory added by all of the above at its peak", [added], "MB"))
    keep(found, options.out)


if __name__ == "__main__":
    main()
