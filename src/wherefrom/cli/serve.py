"""`wherefrom serve`: the page, on this machine alone unless --host says otherwise."""

from __future__ import annotations

from pathlib import Path

import click

from wherefrom.cli.output import PATH, echo_err


@click.command()
@click.argument("folder", required=False, type=PATH, metavar="[RUN]")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535))
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--allow",
    "names",
    multiple=True,
    metavar="NAME",
    help="Another host name that browsers may use for the page.",
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
