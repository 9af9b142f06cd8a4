"""Time and memory of forward and backward against length, beside the cost as written.

    python benchmarks/lengths.py [--quick] [--lengths 64,96,128,...] [--rounds 5] [--threads 1]

For every variant and length a process of its own runs one sequence (or, with --tokens N, as many
as hold N tokens) of the course's shape: width 256, 4 layers, 8 heads, 64 latents, vocabulary 256.
Rounds alternate the variants, so that a slow minute is nobody's alone. Time is a sequence's, of
the processor; memory is what the pass adds at its peak to what the process held before (VmHWM, set
back before a first pass that also allocates the gradients; a tiny pass has loaded the code by
then).

The written cost is `pass_flops`: every matrix product of the mathematics, forward and backward, the
causal square in full; a test holds it to torch's own counter. Exponents are slopes in log-log,
over 128 and more and over the three longest; the crossover is the length from which the perceiver
is quicker than vanilla.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from records import keep, summarise
from rows import Record, numbers, say, table

from wherefrom.cli import TORCH_READS
from wherefrom.training.loop import peak_memory

VARIANTS = ("vanilla", "rotary", "synthesizer", "perceiver", "llama")
LENGTHS = [64, 96, 128, 256, 512, 1024, 2048, 4096]
FROM = 128  # shorter ones only help to find the crossover
WIDTH, LAYERS, HEADS, LATENTS, VOCABULARY = 256, 4, 8, 64, 256
LEAST_SECONDS = 0.3  # of timed passes in a process


def pass_flops(variant: str, length: int) -> float:
    """FLOPs of one forward and backward pass of a block of this length; a product counts 2.

    l inputs (a block holds one token more), d the width, m the latents that the l inputs complete.
    In each layer: projections of queries, keys and values and of the output (4 l d^2), a feed
    (8 l d^2; Llama's 3 l d h), scores and context (2 l^2 d; the
    synthesizer's bias is one dimension more of each head). The backward pass costs twice that.
    """
    from wherefrom.model.decoder import swiglu_width

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


def make_pass(variant: str, length: int, rows: int = 1) -> Callable[[], None]:
    """A function that goes forward and backward once."""
    import torch
    from torch.nn import functional as F

    from wherefrom.model.config import make_config
    from wherefrom.model.decoder import Decoder

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
    ids = torch.randint(2, VOCABULARY, (rows, length), generator=generator)

    def run() -> None:
        model.zero_grad(set_to_none=True)
        logits = model(ids[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()

    return run


def measure_here(variant: str, length: int, tokens: int | None) -> Record:
    """Seconds of a sequence and megabytes of a pass, in this process."""
    rows = max(1, tokens // length) if tokens else 1
    make_pass(variant, 16)()
    run = make_pass(variant, length, rows)
    before = _resident()
    _set_peak_back()
    first = _seconds(run)
    megabytes = max(0.0, peak_memory() - before)
    if first < LEAST_SECONDS:
        run()
    seconds = [_seconds(run)]
    while sum(seconds) < LEAST_SECONDS or (len(seconds) < 3 and sum(seconds) < 3 * LEAST_SECONDS):
        seconds.append(_seconds(run))
    return {"seconds": min(seconds) / rows, "megabytes": megabytes, "rows": rows}


def _seconds(run: Callable[[], None]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def _resident() -> float:
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return peak_memory()


def _set_peak_back() -> None:
    """Linux forgets the peak so far; elsewhere it stands, and a short pass may not show."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def measure_apart(variant: str, length: int, tokens: int | None, threads: int) -> Record:
    command = [sys.executable, __file__, "--one", variant, str(length)]
    if tokens:
        command += ["--tokens", str(tokens)]
    around = {"OMP_NUM_THREADS": str(threads), **TORCH_READS}
    done = subprocess.run(
        command, env={**os.environ, **around}, stdout=subprocess.PIPE, check=True, text=True
    )
    found: Record = json.loads(done.stdout)
    return found


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The slope of a straight line through the logarithms."""
    xs, ys = [math.log(x) for x in lengths], [math.log(max(y, 1e-12)) for y in values]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    across = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    return across / sum((a - x) ** 2 for a in xs)


def crossover(lengths: Sequence[int], slow: Sequence[float], quick: Sequence[float]) -> str:
    """From which length on `quick` stays below `slow`, by a straight line between neighbours."""
    apart = [math.log(a / b) for a, b in zip(quick, slow, strict=True)]
    if apart[-1] >= 0:
        return f"above {lengths[-1]}"
    last = max((at for at, gap in enumerate(apart) if gap >= 0), default=None)
    if last is None:
        return f"below {lengths[0]}"
    share = apart[last] / (apart[last] - apart[last + 1])
    near, far = math.log(lengths[last]), math.log(lengths[last + 1])
    return f"{math.exp(near + share * (far - near)):.0f}"


def summary(records: Sequence[Record]) -> list[Record]:
    """Exponents of time, memory and written cost, and the crossover in time and in FLOPs."""
    found: list[Record] = []
    by_variant: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record["length"]):
        by_variant.setdefault(record["variant"], []).append(record)
    for variant, those in by_variant.items():
        long = [record for record in those if record["length"] >= FROM]
        for which, some in (("all", long), ("long end", long[-3:])):
            if len(some) < 2:
                continue
            lengths = [record["length"] for record in some]
            found.append(
                {
                    "name": f"exponent of length, {variant}, {which}",
                    "variant": variant,
                    "lengths": lengths,
                    "value": exponent(lengths, [record["value"] for record in some]),
                    "unit": "exponent of time",
                    "memory": exponent(lengths, [record["megabytes"] for record in some]),
                    "written": exponent(lengths, [record["flops"] for record in some]),
                }
            )
    both = [by_variant.get(name, []) for name in ("vanilla", "perceiver")]
    shared = sorted({r["length"] for r in both[0]} & {r["length"] for r in both[1]})
    if len(shared) > 1:
        pairs = [[r for r in those if r["length"] in shared] for those in both]
        found.append(
            {
                "name": "crossover of perceiver and vanilla",
                "value": crossover(shared, *([r["value"] for r in those] for those in pairs)),
                "unit": "length",
                "written": crossover(shared, *([r["flops"] for r in those] for those in pairs)),
            }
        )
    return found


def markdown(records: Sequence[Record], sums: Sequence[Record]) -> str:
    """The tables of docs/variants.md."""
    lengths = sorted({record["length"] for record in records if record["length"] >= FROM})
    cells = {(record["variant"], record["length"]): record for record in records}
    variants = [name for name in VARIANTS if any(name == record["variant"] for record in records)]
    parts = []
    kinds = {
        "ms": lambda record: f"{1e3 * record['value']:.1f}",
        "MB": lambda record: f"{record['megabytes']:.0f}",
        "GFLOP": lambda record: f"{record['flops'] / 1e9:.1f}",
    }
    for kind, write in kinds.items():
        rows = [
            (variant, *(write(cells[variant, x]) if (variant, x) in cells else "" for x in lengths))
            for variant in variants
        ]
        parts.append(table((kind, *lengths), rows))
    rows = [
        (
            record["name"].removeprefix("exponent of length, "),
            f"{record['value']:.2f}",
            f"{record['memory']:.2f}",
            f"{record['written']:.2f}",
        )
        for record in sums
        if "memory" in record
    ]
    parts.append(table(("exponent", "time", "memory", "written cost"), rows))
    for record in sums:
        if "memory" not in record:
            parts.append(
                "The length from which the perceiver is quicker than vanilla: "
                f"{record['value']}; from which it needs fewer FLOPs: {record['written']}."
            )
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--lengths", type=numbers)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--tokens", type=int, help="sequences side by side up to this many tokens")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="three lengths, one round")
    parser.add_argument("--one", nargs=2, metavar=("VARIANT", "LENGTH"), help=argparse.SUPPRESS)
    parser.add_argument("--out", default="lengths.jsonl")
    options = parser.parse_args()
    if options.one:
        variant, length = options.one
        print(json.dumps(measure_here(variant, int(length), options.tokens)))
        return
    lengths = options.lengths or ([128, 512, 2048] if options.quick else LENGTHS)
    rounds = options.rounds or (1 if options.quick else 5)
    cases = [(v, x) for x in lengths for v in options.variants.split(",")]
    seen: dict[tuple[str, int], list[Record]] = {case: [] for case in cases}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}: {len(cases)} processes")
        for case in cases if number % 2 == 0 else cases[::-1]:
            seen[case].append(measure_apart(*case, options.tokens, options.threads))
    records = [
        summarise(
            f"forward and backward, {variant}, length {length}",
            [one["seconds"] for one in each],
            "s",
            variant=variant,
            length=length,
            megabytes=sorted(one["megabytes"] for one in each)[len(each) // 2],
            flops=pass_flops(variant, length),
            rows=each[0]["rows"],
            threads=options.threads,
        )
        for (variant, length), each in seen.items()
    ]
    sums = summary(records)
    with contextlib.redirect_stdout(sys.stderr):
        keep([*records, *sums], options.out)
    print(markdown(records, sums))


if __name__ == "__main__":
    main()
