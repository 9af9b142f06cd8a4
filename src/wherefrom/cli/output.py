"""How results leave the command line: JSON or a table on stdout, messages and progress on stderr.

Tables are aligned plain text that folds to the width of the terminal; colour codes are left out
when stdout is no terminal or NO_COLOR is set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

QUIET = "wherefrom.quiet"  # in the meta of click's context
PIPED_WIDTH = 200  # columns of a table that goes to a file or a program

# arguments and options that several commands have
PATH = click.Path(path_type=Path)
RUN = click.argument("run", required=False, type=PATH)
JSON = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
TEMPLATE = click.option(
    "--template", help='How questions name their subject: "Where was {subject} born?".'
)


def with_quiet(command: click.Command) -> click.Command:
    """The command with --quiet, unless it has one of its own; errors are printed all the same."""

    def set_quiet(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        ctx.meta[QUIET] = value or ctx.meta.get(QUIET, False)

    if not any("--quiet" in parameter.opts for parameter in command.params):
        about = "Say nothing on stderr but errors."
        option = click.Option(
            ["--quiet"], is_flag=True, expose_value=False, callback=set_quiet, help=about
        )
        command.params.append(option)
    return command


def print_json(record: Any) -> None:
    """The record as JSON on stdout, keys in their own order, no NaN ever."""
    click.echo(json.dumps(record, ensure_ascii=False, indent=2, allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table on stdout; numbers are aligned right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    body = [list(row) for row in rows]
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPED_WIDTH, no_color=True)
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in body) and bool(body)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in body:
        table.add_row(*(Text(str(cell)) for cell in row))  # a cell is text, never markup
    console.print(table)


def echo_err(sentence: str) -> None:
    """A remark for the person at the terminal, on stderr."""
    if is_verbose():
        click.echo(sentence, err=True)


def is_verbose() -> bool:
    """Whether remarks are printed: by one process of several under torchrun, not with --quiet."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(QUIET):
        return False
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"
