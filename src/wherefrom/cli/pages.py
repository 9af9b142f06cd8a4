"""Commands that show runs, `report` as one file, `serve` as a page; and `completion`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from wherefrom.cli.output import PATH, RUN, echo_err, option
from wherefrom.errors import UserError


@click.command()
@RUN
@option("--out", "The file to write; for html RUN/report.html if left out, else stdout.", type=PATH)
@option(
    "--format form",
    "The format; by the ending of --out if left out, html otherwise.",
    type=click.Choice(("html", "json", "md")),
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


def write_study_report(folder: Path) -> dict[str, Any]:
    """Write the report at the end of a study; an error is printed and does not fail the study."""
    from wherefrom.report.render import write_report
    from wherefrom.report.study_report import make_report
    from wherefrom.training.distributed import join_processes

    report: dict[str, Any] = {"sections": []}
    if join_processes().is_rank0:
        try:
            report = make_report(folder)
            echo_err(f"report written to {write_report(report)}")
        except UserError as problem:
            echo_err(f"no report: {problem}")
    return report


@click.command()
@click.argument("folder", required=False, type=PATH, metavar="[RUN]")
@option("--port", None, 8765, type=click.IntRange(0, 65535))
@option("--host", "The address to listen on.", "127.0.0.1")
@option(
    "--allow names",
    "Another host name that browsers may use for the page.",
    multiple=True,
    metavar="NAME",
)
def serve(folder: Path | None, port: int, host: str, names: tuple[str, ...]) -> None:
    """Show RUN, or all runs of a folder (runs/ if none is given), as a page in the browser.

    Ask, workbench, inside, runs, report; nothing is loaded from elsewhere and nothing is sent
    anywhere. The address is printed; Ctrl-C ends it at once (exit code 130; 143 after a plain
    kill), and a training that it started goes on.
    """
    from wherefrom.storage import make_folder
    from wherefrom.web.app import create_app, listen, serve_until_signal

    if folder is None:
        folder = make_folder("runs")
    socket = listen(host, port)
    app = create_app(folder, hosts=(host, *names))
    shown = f"[{host}]" if ":" in host else host
    echo_err(f"serving {folder} at http://{shown}:{socket.getsockname()[1]}/ (Ctrl-C ends it)")
    if host not in ("127.0.0.1", "localhost", "::1"):
        echo_err("anybody who can reach this machine can use the page, and train on it.")

    def on_exit() -> None:
        going_on = app.state.site.close()
        echo_err(f"ended; the training of {going_on[0]} goes on." if going_on else "ended.")

    serve_until_signal(app, socket, on_exit)


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the script that completes wherefrom's commands and options in SHELL.

    bash: put eval "$(wherefrom completion bash)" into ~/.bashrc; zsh: the same with zsh in
    ~/.zshrc, behind compinit; fish: wherefrom completion fish >
    ~/.config/fish/completions/wherefrom.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    # not .source(): for bash that starts a bash to look at its version
    writer = found(root, {}, "wherefrom", "_WHEREFROM_COMPLETE")
    click.echo(writer.source_template % writer.source_vars())
    if sys.stdout.isatty():  # somebody looks at it; a start-up file is not
        echo_err("wherefrom completion --help says where to put it.")
