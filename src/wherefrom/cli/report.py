"""`wherefrom report`: what a study found, as one file to open, to read or to compute with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from wherefrom.cli.output import PATH, RUN, echo_err
from wherefrom.errors import UserError


@click.command()
@RUN
@click.option(
    "--out", type=PATH, help="The file to write; for html RUN/report.html if left out, else stdout."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("html", "json", "md")),
    help="The format; by the ending of --out if left out, html otherwise.",
)
def report(run: Path | None, out: Path | None, form: str | None) -> None:
    """Write the report on RUN (the newest if left out) from its records: one HTML file."""
    from wherefrom.report.render import render, write_report
    from wherefrom.report.study_report import make_report
    from wherefrom.training.run_folder import find_newest_run

    made = make_report(run or find_newest_run())
    if out is None and form in ("json", "md"):
        click.echo(render(made, form), nl=False)
    else:
        echo_err(f"report written to {write_report(made, out, form)}")


def write_study_report(folder: Path, *, say: Callable[[str], None]) -> None:
    """The report at the end of a study; an error is printed and does not fail the study."""
    from wherefrom.report.render import write_report
    from wherefrom.report.study_report import make_report
    from wherefrom.training.distributed import join_processes

    if not join_processes().is_rank0:
        return
    try:
        say(f"report written to {write_report(make_report(folder))}")
    except UserError as problem:
        echo_err(f"no report: {problem}")
