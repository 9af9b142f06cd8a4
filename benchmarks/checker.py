"""How long a check takes, for the example of every problem and for the slowest inputs known.

    python benchmarks/checker.py [--repeats 7] [--out FILE.jsonl]
    python benchmarks/checker.py --constructions 100000 [--seed 1]

Prints a JSON line a measurement: the median, its spread (the range between the quarters), the
goal, and what it was measured on. The last lines are whole commands, start of Python included,
and the largest memory that any of them took.

With --constructions so many random constructions are judged, by the checker and by brute force
(tests/checker/brute_force.py); a contradiction is printed and the exit code is 1.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from records import keep, measure, summarise

from wherefrom.checker import PROBLEMS, check
from wherefrom.errors import UserError

GOAL = 2.0  # seconds, for any input whatever
CHUNK = 1000  # constructions between two lines of progress
OTHERS = {
    "refuted: average without a large factor": ("average", ["q=(k_a+k_b)/2"]),
    "refuted: one head, stretched key": ("stretched-average", ["q=beta*(mu_a+mu_b)"]),
    "refuted: fixed factor, n found by bisection": ("average", ["q=20*(k_a+k_b)"]),
    "holds: numbers only": ("average", ["q=exp(beta)*(k_a+k_b)"]),
    "holds: numbers only, four pseudo-inverses": (
        "average",
        ["q=exp(beta)*pinv(pinv(pinv(pinv(K)))).T@(e_a+e_b)"],
    ),
    "slow: exact form beyond its budget": (
        "average",
        ["q=(beta+n+1)**8*(beta+n+2)**8*(beta+n+3)**8*(beta+n+4)**8*(k_a+k_b)"],
    ),
    "slow: two heads in numbers only": (
        "two-heads",
        ["q1=exp(beta)*mu_a", "q2=exp(beta)*mu_b"],
    ),
    "not writable": ("average", ["q=__import__('os')"]),
}


def run(problem: str, formulas: list[str]) -> None:
    try:
        check(problem, formulas)
    except UserError:
        return


def command(*arguments: str) -> None:
    code = "from wherefrom.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr


def measurements() -> list[tuple[str, Callable[[], object]]]:
    cases = {f"check {p.name}": (p.name, list(p.example)) for p in PROBLEMS.values()} | OTHERS
    whole = [
        ("command: check average", partial(command, "check", "average", "q=beta*(k_a+k_b)")),
        (
            "command: check two-heads",
            partial(command, "check", "two-heads", "q1=beta*mu_a", "q2=beta*mu_b"),
        ),
    ]
    return [(name, partial(run, *case)) for name, case in cases.items()] + whole


def soundness(count: int, seed: int, out: str) -> int:
    """Judge random constructions by brute force too; the number of contradictions, at most 1."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/checker"))
    import brute_force

    verdicts: Counter[str] = Counter()
    contradictions = 0
    for done in range(0, count, CHUNK):
        found, wrong = brute_force.run(min(CHUNK, count - done), seed + done, figures=False)
        verdicts.update(found)
        contradictions += len(wrong)
        print(*wrong, f"{verdicts.total():,} judged, {contradictions} wrong", sep="\n", flush=True)
    by_verdict = Counter[str]()
    for name, times in verdicts.items():
        by_verdict[name.split(" ", 1)[1]] += times
    name = "verdicts that brute force contradicts"
    keep(
        [summarise(name, [contradictions], "constructions", of=count, seed=seed, **by_verdict)], out
    )
    return min(contradictions, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", default="checker.jsonl")
    parser.add_argument("--constructions", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.constructions:
        sys.exit(soundness(options.constructions, options.seed, options.out))
    records = [
        summarise(name, measure(task, options.repeats), "s", goal=GOAL)
        for name, task in measurements()
    ]
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    records.append(summarise("largest memory of a command", [children / 1024], "MB", goal=200))
    keep(records, options.out)


if __name__ == "__main__":
    main()
