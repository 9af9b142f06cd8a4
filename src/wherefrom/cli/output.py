"""Output of the commands, and the options that several commands share.

Results go to stdout, as JSON or as tables that fit the terminal; messages and progress go to
stderr. There are no colour codes if stdout is not a terminal or NO_COLOR is set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from wherefrom.model.decoder import Decoder
    from wherefrom.training.metrics import StepMetrics
    from wherefrom.training.run_folder import Run

Command = TypeVar("Command", bound=Callable[..., Any])
QUIET = "wherefrom.quiet"  # in the meta of click's context
PIPED_WIDTH = 200  # columns of a table that goes to a file or a program
PROGRESS_AFTER_SECONDS = 2.0  # until progress is shown
PROGRESS_LINE_SECONDS = 15.0  # seconds between lines of progress when stderr is not a terminal


def option(
    name: str, about: str | None, default: Any = None, **more: Any
) -> Callable[[Command], Command]:
    """click.option with help and a visible default; `name` may be "--json as_json"."""
    if default is not None:
        more |= {"default": default, "show_default": True}
    return click.option(*name.split(), help=about, **more)


# arguments and options that several commands have
PATH = click.Path(path_type=Path)
RUN = click.argument("run", required=False, type=PATH)
SEED = option("--seed", "Seed of everything random.", 0)
JSON = option("--json as_json", "Print as JSON.", is_flag=True)
PEOPLE = option("--people", "Size of the embedded world.", 3000)
TEMPLATE = option(
    "--template",
    'Wording of the questions, such as "Where was {subject} born?"; may be repeated.',
    multiple=True,
)


def open_run(folder: Path | None) -> Run:
    """The run in `folder`, or the newest run."""
    from wherefrom.provenance.audited import open_run as open_any
    from wherefrom.training.run_folder import find_newest_run

    return open_any(find_newest_run() if folder is None else folder)


def with_quiet(command: click.Command) -> click.Command:
    """Add --quiet to the command if it has none; errors are still printed."""

    def set_quiet(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        ctx.meta[QUIET] = value or ctx.meta.get(QUIET, False)

    if not any("--quiet" in parameter.opts for parameter in command.params):
        about = "Print only errors on stderr."
        flag = click.Option(["--quiet"], is_flag=True, expose_value=False, help=about)
        flag.callback = set_quiet
        command.params.append(flag)
    return command


def print_json(record: Any) -> None:
    """Print the record as JSON on stdout; NaN is refused."""
    click.echo(json.dumps(record, ensure_ascii=False, indent=2, allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table on stdout; columns of numbers are aligned right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    body = [list(row) for row in rows]
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPED_WIDTH, no_color=True)
    table = Table(
        title=title or None, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    cells = [[str(column), *(str(row[at]) for row in body)] for at, column in enumerate(columns)]
    longest = [max(map(len, " ".join(each).split()), default=0) for each in cells]
    fits = sum(longest) + 2 * len(cells) + 2 <= console.width  # then no word is cut
    for (column, *inside), width in zip(cells, longest, strict=True):
        numeric = all(re.fullmatch(r"[-\d,.]+( %)?|–", cell) for cell in inside)
        look: Any = {"justify": "right" if numeric else "left", "overflow": "fold"}
        table.add_column(column, min_width=width if fits else None, **look)
    for row in body:
        table.add_row(*(Text(str(cell)) for cell in row))  # a cell is text, never markup
    console.print(table)


def print_recall(
    rows: Iterable[dict[str, Any]], relations_of: Collection[str] | None = None
) -> None:
    """Print the table of a study or an evaluation: who answers how many questions exactly.

    relations_of: whose answers are counted by relation too; None for all.
    """
    cells = []
    for row in rows:
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.0f} s"
        cells.append((row["name"], row["about"], *_count_cells(row), seconds))
        by_relation = (
            row["relations"] if relations_of is None or row["name"] in relations_of else {}
        )
        for template, part in by_relation.items():
            cells.append(("", template, *_count_cells(part), ""))
    print_table(("answers", "", "correct", "recall", "trained"), cells)


def _count_cells(row: dict[str, Any]) -> tuple[str, str]:
    return f"{row['correct']} / {row['total']}", f"{100 * row['recall']:.1f} %"


def print_row(inputs: Sequence[str], targets: Sequence[str], weights: Sequence[float]) -> None:
    """Print a training row in lines that fit the terminal: x, y, and where the loss counts."""
    from rich.cells import cell_len, set_cell_size

    between = "" if all(len(text) == 1 for text in (*inputs, *targets)) else "|"
    room = shutil.get_terminal_size().columns - len("loss  ")
    lines: list[list[tuple[str, str, str]]] = [[]]
    used = 0
    for read, target, weight in zip(inputs, targets, weights, strict=True):
        x, y = (re.sub(r"[^\S ]|[\x00-\x1f\x7f-\x9f]", " ", text) for text in (read, target))
        width = max(1, cell_len(x), cell_len(y))
        mark = " " if weight == 0 else "^" if weight == 1 else "-"
        used += width + len(between)
        if used > room and lines[-1]:
            lines.append([])
            used = width + len(between)
        lines[-1].append((set_cell_size(x, width), set_cell_size(y, width), mark * width))
    for line in lines:
        texts, predicted, marks = zip(*line, strict=True)
        click.echo(f"x     {between.join(texts)}")
        click.echo(f"y     {between.join(predicted)}")
        click.echo(f"loss  {(' ' * len(between)).join(marks)}".rstrip())
    click.echo()


def print_sections(report: dict[str, Any], ids: Sequence[str]) -> None:
    """Print these sections of a report with their tables."""
    from wherefrom.report.study_report import show_cell

    for section in report["sections"]:
        if section["id"] not in ids or section["missing"]:
            continue
        click.secho(f"\n{section['question'] or section['title']}", bold=True)
        click.echo("\n".join([section["sentence"], *section["more"]]))
        if table := section["table"]:
            rows = [[*map(show_cell, row, table["formats"])] for row in table["rows"]]
            print_table(table["columns"], rows)


def show(metric: dict[str, Any], form: str = "{:.1%}", *, interval: bool = True) -> str:
    """A metric as text, with its interval; a dash if it has no value."""
    if metric["value"] is None:
        return "-"
    value = form.format(metric["value"])
    if not interval or metric.get("low") is None or metric.get("high") is None:
        return value
    return f"{value} ({form.format(metric['low'])} to {form.format(metric['high'])})"


def echo_err(sentence: str) -> None:
    """Print a message on stderr, unless --quiet."""
    if is_verbose():
        click.echo(sentence, err=True)


def is_verbose() -> bool:
    """Whether messages are printed: not with --quiet, and under torchrun only by rank 0."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(QUIET):
        return False
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


class Progress:
    """Progress of training (as its observer) or of a count; one bar at a time.

    It appears after two seconds. If stderr is not a terminal, it prints a line now and then. The
    seconds of a training are those that its summary and run.json count.
    """

    def __init__(self) -> None:
        self._bar: Any = None
        self._task = ""
        self._began = self._last_line = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar, if there is one."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def say(self, sentence: str) -> None:
        """Print a message between bars."""
        self.close()
        echo_err(sentence)

    def __call__(self, step: StepMetrics, model: Decoder) -> None:
        """Called by training after every step."""
        recall = "" if step.recall is None else f"  recall {step.recall:.0%}"
        text = f"loss {step.loss:.3f}  {step.tokens_per_second:,.0f} tokens/s{recall}"
        self._show(step.phase, step.progress, text, seconds=step.seconds)

    def count(self, what: str, total: int) -> Callable[[int], None]:
        """A function to call with how many more of `total` are done."""
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            self._show(what, done / max(1, total), f"{done:,} of {total:,}")

        return advance

    def _show(self, task: str, share: float, text: str, seconds: float | None = None) -> None:
        """Show how much of a task is done; `seconds` of training, or else of this clock."""
        now = time.monotonic()
        if task != self._task:
            self.close()
            self._task, self._began = task, now
        passed = now - self._began if seconds is None else seconds
        if not is_verbose() or passed < PROGRESS_AFTER_SECONDS:
            return
        if sys.stderr.isatty():
            self._bar = self._bar or _start_bar(task)
            self._bar.update(self._bar.task_ids[0], completed=share, text=text)
        elif now - self._last_line > PROGRESS_LINE_SECONDS or share >= 1:
            self._last_line = now
            click.echo(f"{task}  {share:4.0%}  {passed:5.0f} s  {text}", err=True)


def _start_bar(task: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    texts = [TextColumn(form) for form in ("{task.percentage:3.0f} %", "{task.fields[text]}")]
    columns = (TextColumn("{task.description}"), BarColumn(), *texts)
    bar = Progress(*columns, TimeRemainingColumn(compact=True), console=Console(stderr=True))
    bar.start()
    bar.add_task(task, total=1.0, text="")
    return bar
