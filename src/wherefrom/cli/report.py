"""`wherefrom report`: what a study found, as one file to open, to read or to compute with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from wherefrom.cli.output import echo_err
from wherefrom.errors import UserError

FORMATS = ("html", "json", "md")
ENDINGS = {".json": "json", ".md": "md", ".markdown": "md"}
NAME = "report.html"


@click.command()
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The file to write; for html RUN/report.html if left out, else stdout.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="The format; by the ending of --out if left out, html otherwise.",
)
def report(run: Path | None, out: Path | None, form: str | None) -> None:
    """Write the report on RUN (the newest if left out) from its records: one HTML file."""
    from wherefrom.report.study_report import make_report
    from wherefrom.training.run_folder import find_newest_run

    form = form or (ENDINGS.get(out.suffix.lower(), "html") if out is not None else "html")
    made = make_report(find_newest_run() if run is None else run)
    if out is None and form != "html":
        click.echo(_render(made, form), nl=False)
        return
    _write(made, Path(made["run"]) / NAME if out is None else out, form, echo_err)


def write_study_report(folder: Path, *, say: Callable[[str], None]) -> None:
    """The report at the end of a study; what hinders it is told and costs nothing else."""
    from wherefrom.report.study_report import make_report
    from wherefrom.training.distributed import join_processes

    if not join_processes().is_rank0:
        return
    try:
        _write(make_report(folder), folder / NAME, "html", say)
    except UserError as problem:
        echo_err(f"no report: {problem}")


def _write(made: dict[str, Any], out: Path, form: str, say: Callable[[str], None]) -> None:
    from wherefrom.storage import write_whole

    inside = out.resolve().parent == Path(made["run"]).resolve()
    if inside and out.exists() and not out.name.startswith("report"):
        raise UserError(f"{out} belongs to the run and is not overwritten; choose another --out.")
    write_whole(out, _render(made, form))
    say(f"report written to {out}")


def _render(made: dict[str, Any], form: str) -> str:
    import json

    if form == "json":
        return json.dumps(made, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    if form == "md":
        from wherefrom.report.render import render_markdown

        return render_markdown(made)
    from wherefrom.report.render import render_html

    return render_html(made)
