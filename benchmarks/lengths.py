"""Time of forward and backward against length, beside the cost as written.

    python benchmarks/lengths.py [--quick]

Every variant runs one sequence of each length in the course's shape: width 256, 4 layers, 8 heads,
64 latents, vocabulary 256. Time is one thread's, of the processor; rounds go through the variants
in turns, so that a slow minute is nobody's alone. The written cost is `pass_flops`: every matrix
product of the mathematics, forward and backward, the causal square in full; a test holds it to
torch's own counter. Exponents are slopes in log-log, over lengths of 128 and more and over the
three longest.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from collections.abc import Callable, Sequence

import torch
from records import keep, summarise
from rows import Record, say, table
from torch.nn import functional as F

from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder, swiglu_width

VARIANTS = ("vanilla", "rotary", "synthesizer", "perceiver", "llama")
LENGTHS, ROUNDS = [64, 96, 128, 256, 512, 1024, 2048, 4096], 5
FROM = 128  # exponents count lengths from here on
WIDTH, LAYERS, HEADS, LATENTS, VOCABULARY = 256, 4, 8, 64, 256
LEAST_SECONDS = 0.3  # of timed passes in a round


def pass_flops(variant: str, length: int) -> float:
    """FLOPs of one forward and backward pass of a block of this length; a product counts 2.

    l inputs (a block holds one token more), d the width, m the latents that the l inputs complete.
    In each layer: projections of queries, keys and values and of the output (4 l d^2), a feed
    (8 l d^2; Llama's 3 l d h), scores and context (2 l^2 d; the
    synthesizer's bias is one dimension more of each head). The backward pass costs twice that.
    """
    l, d = length - 1, WIDTH  # noqa: E741
    feed = 3 * d * swiglu_width(d) if variant == "llama" else 8 * d * d
    head = l * d * VOCABULARY
    if variant == "perceiver":
        m = min(LATENTS, l // -(-length // LATENTS))
        down = 2 * m * d * d + 2 * l * d * d + m * feed + 2 * m * l * d
        up = 2 * l * d * d + 2 * m * d * d + l * feed + 2 * l * m * d
        inside = m * (4 * d * d + feed) + 2 * m * m * d
        products = down + (LAYERS - 2) * inside + up + head
    else:
        projections, mixed = (3, d + HEADS) if variant == "synthesizer" else (4, d)
        products = LAYERS * (l * (projections * d * d + feed) + 2 * l * l * mixed) + head
    return 3 * 2 * products


def make_pass(variant: str, length: int) -> Callable[[], None]:
    """A function that goes forward and backward once."""
    config = make_config(
        variant=variant,
        vocabulary=VOCABULARY,
        block=length,
        layers=LAYERS,
        heads=HEADS,
        width=WIDTH,
        latents=min(LATENTS, length),
    )
    generator = torch.Generator().manual_seed(0)
    model = Decoder(config).initialise(generator)
    ids = torch.randint(2, VOCABULARY, (1, length), generator=generator)

    def run() -> None:
        model.zero_grad(set_to_none=True)
        logits = model(ids[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()

    return run


def fastest(run: Callable[[], None]) -> float:
    """The processor seconds of the quickest of several passes, after one that is not timed."""
    run()
    spent: list[float] = []
    while sum(spent) < LEAST_SECONDS:
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    return min(spent)


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The slope of a straight line through the logarithms."""
    xs, ys = [math.log(x) for x in lengths], [math.log(y) for y in values]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    across = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    return across / sum((a - x) ** 2 for a in xs)


def exponents(records: Sequence[Record]) -> list[Record]:
    """The exponents of time and of the written cost, for each variant."""
    found: list[Record] = []
    for variant in dict.fromkeys(record["variant"] for record in records):
        those = [r for r in records if r["variant"] == variant and r["length"] >= FROM]
        for which, some in (("all", those), ("long end", those[-3:])):
            if len(some) < 2:
                continue
            lengths = [record["length"] for record in some]
            found.append(
                {
                    "name": f"exponent of length, {variant}, {which}",
                    "lengths": lengths,
                    "value": exponent(lengths, [record["value"] for record in some]),
                    "unit": "exponent of time",
                    "written": exponent(lengths, [record["flops"] for record in some]),
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three lengths, one round")
    parser.add_argument("--out", default="lengths.jsonl")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lengths, rounds = ([128, 512, 2048], 1) if options.quick else (LENGTHS, ROUNDS)
    cases = [(variant, length) for variant in VARIANTS for length in lengths]
    seconds: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}: {len(cases)} cases")
        for case in cases if number % 2 == 0 else cases[::-1]:
            seconds[case].append(fastest(make_pass(*case)))
    records = [
        summarise(
            f"forward and backward, {variant}, length {length}",
            seconds[variant, length],
            "s",
            variant=variant,
            length=length,
            flops=pass_flops(variant, length),
            threads=1,
        )
        for variant, length in cases
    ]
    slopes = exponents(records)
    with contextlib.redirect_stdout(sys.stderr):
        keep([*records, *slopes], options.out)
    lines = [(r["variant"], r["length"], f"{1e3 * r['value']:.1f}") for r in records]
    print(table(("variant", "length", "ms"), lines))
    print()
    lines = [(r["name"], f"{r['value']:.2f}", f"{r['written']:.2f}") for r in slopes]
    print(table(("exponent", "time", "written cost"), lines))


if __name__ == "__main__":
    main()
