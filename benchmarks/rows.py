"""Rows of a table that take minutes each: kept as they finish, and never measured twice.

A row is a record with its `settings`, everything that decides it. Before a row is run, the JSON
lines of earlier runs are searched for the same settings; so a command that was stopped goes on
where it was, and a changed recipe or data file is measured anew. Trainings run in a process of
their own, so that the peak memory of one is not that of another.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from records import RESULTS, keep

from wherefrom.cli import set_what_torch_reads
from wherefrom.errors import UserError
from wherefrom.training.memory import peak_memory

if TYPE_CHECKING:
    from wherefrom.study import PreparedStudy
    from wherefrom.training.recipes import Recipe
    from wherefrom.training.settings import Settings

Record = dict[str, Any]
LINE_EVERY = 30.0  # seconds between lines of progress


def say(sentence: str) -> None:
    """Progress goes to stderr, so that stdout holds the table alone."""
    print(sentence, file=sys.stderr, flush=True)


def digest(settings: Any) -> str:
    """A short name for any settings that JSON can write."""
    text = json.dumps(settings, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def recipe_digest(recipe: Recipe) -> str:
    """What a recipe says, whatever it is called and whatever keys it leaves as they are."""
    return digest(recipe.model_dump(mode="json", exclude={"name", "about"}, exclude_defaults=True))


def read_rows(file: str | Path) -> list[Record]:
    """All whole lines of a results file; a line that was cut short by a kill is passed over."""
    path = RESULTS / file if Path(file).parent == Path(".") else Path(file)
    rows = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                rows.append(json.loads(line))
    return rows


def find_row(file: str | Path, settings: Record) -> Record | None:
    """The latest row with these very settings."""
    wanted = json.loads(json.dumps(settings))
    return next((row for row in read_rows(file)[::-1] if row.get("settings") == wanted), None)


def keep_row(row: Record, file: str | Path) -> None:
    with contextlib.redirect_stdout(sys.stderr):
        keep([row], file)


def measure_rows(
    plan: Sequence[Record], measure: Callable[[Record], Record], file: str | Path
) -> list[Record]:
    """A row for each settings of the plan: found in the file, or measured and kept there.

    One that cannot be measured is told of and left out, so that the rest of a night is not lost.
    """
    rows = []
    for number, settings in enumerate(plan, start=1):
        row = find_row(file, settings)
        label = f"row {number} of {len(plan)}: {settings['row']}, seed {settings['seed']}"
        if row is None:
            say(label)
            try:
                row = {**measure(settings), "settings": settings}
            except UserError as problem:  # a rate at which the loss explodes, for one
                say(f"  no row: {problem}")
                continue
            keep_row(row, file)
        else:
            say(f"{label} was measured on {row['time']}")
        rows.append(row)
    return rows


def run_apart(function: Callable[..., Record], *arguments: Any, threads: int) -> Record:
    """Call in a new process with that many threads; the answer says how much memory it took."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    set_what_torch_reads()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, function, arguments).result()


def _measured(function: Callable[..., Record], arguments: Sequence[Any]) -> Record:
    return {**function(*arguments), "peak_mb": round(peak_memory(), 1)}


def measure_trainings(
    plan: Sequence[Record], train: Callable[[Record, Path], Record], options: argparse.Namespace
) -> list[Record]:
    """A row for each settings of the plan: `train` gets them and a folder, in a new process."""

    def measure(settings: Record) -> Record:
        folder = options.runs / digest(settings)
        folder.mkdir(parents=True, exist_ok=True)
        row = run_apart(train, settings, folder, threads=settings["threads"])
        shutil.rmtree(folder, ignore_errors=True)
        return row

    return measure_rows(plan, measure, options.out)


def prepare_training(
    files: Sequence[Path],
    recipe: Recipe,
    settings: Record,
    folder: Path,
    set_aside: float | None = None,
) -> tuple[PreparedStudy, Settings]:
    """A study of a text, training and dev questions, up to its training; minutes: of training."""
    import torch

    from wherefrom.study import StudyFiles, prepare_study
    from wherefrom.training.recipes import Budget
    from wherefrom.training.settings import Settings

    torch.set_num_threads(settings["threads"])
    budget = Budget(minutes=settings.get("minutes"))
    options = Settings(
        recipe=recipe, budget=budget, seed=settings["seed"], resume=True, device="cpu"
    )
    prepared = prepare_study(StudyFiles(*files), options, folder, set_aside=set_aside)
    return prepared, options


def run_main(main: Callable[[], None]) -> int:
    """A command's end as a person wants to read it: a mistake or a stop is one sentence."""
    try:
        main()
    except UserError as problem:
        say(str(problem))
        return 2
    except KeyboardInterrupt:
        say("stopped; the same command goes on from here")
        return 130
    return 0


class Progress:
    """Observes a training: a line on stderr now and then."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, tick: Any, _: object) -> None:
        if time.monotonic() - self._last > LINE_EVERY:
            self._last = time.monotonic()
            say(
                f"  {tick.phase}  {tick.progress:4.0%}  {tick.seconds:5.0f} s  "
                f"loss {tick.loss:.3f}  {tick.tokens_per_second:,.0f} tokens/s"
            )


def add_row_options(parser: argparse.ArgumentParser, out: str) -> None:
    """What every command that trains can be told."""
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    runs = Path("runs") / Path(out).stem
    parser.add_argument("--runs", type=Path, default=runs, help="folder for trainings in progress")
    parser.add_argument("--out", default=out, help="JSON lines (a bare name: benchmarks/results)")


def numbers(text: str) -> list[int]:
    """ "0,1,2" as an argument."""
    return [int(word) for word in text.split(",")]


def percent(values: Sequence[float]) -> str:
    """Mean and range of shares: 81.8 % (80.3 to 83.0)."""
    mean = f"{100 * statistics.fmean(values):.1f} %"
    if len(values) == 1:
        return mean
    return f"{mean} ({100 * min(values):.1f} to {100 * max(values):.1f})"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
