"""Commands that show a run (report, serve) or list things (world, variants, recipes)."""

from __future__ import annotations

from pathlib import Path

import click

from wherefrom.cli.output import JSON, PATH, RUN, echo_err, option, print_json, print_table


@click.command()
@RUN
@option("--out", "File to write; default: RUN/report.html, or stdout for json.", type=PATH)
@option(
    "--format form",
    "Format; default: by the ending of --out, else html.",
    type=click.Choice(("html", "json")),
)
def report(run: Path | None, out: Path | None, form: str | None) -> None:
    """Write the report on RUN (default: the newest) as one HTML file."""
    from wherefrom.report.study_report import make_report, render_json, write_report
    from wherefrom.training.run_folder import find_newest_run

    made = make_report(run or find_newest_run())
    if out is None and form == "json":
        click.echo(render_json(made), nl=False)
    else:
        echo_err(f"report written to {write_report(made, out, form)}")


@click.command()
@click.argument("folder", required=False, type=PATH, metavar="[RUN]")
@option("--port", "The port to listen on.", 8765, type=click.IntRange(0, 65535))
@option("--host", "The address to listen on.", "127.0.0.1")
@option(
    "--allow names",
    "Another host name that browsers may use for the page.",
    multiple=True,
    metavar="NAME",
)
def serve(folder: Path | None, port: int, host: str, names: tuple[str, ...]) -> None:
    """Show RUN, or all runs of a folder (default: runs/), in the browser.

    The page loads nothing from the network and sends nothing. Ctrl-C ends the server (exit code
    130; 143 after SIGTERM); a training that it started stops, and can be resumed from the page.
    """
    from wherefrom.storage import make_folder
    from wherefrom.web.app import create_app, listen, serve_until_signal

    if folder is None:
        folder = make_folder("runs")
    socket = listen(host, port)
    app = create_app(folder, hosts=(host, *names))
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{socket.getsockname()[1]}/"
    empty = "" if app.state.site.index.runs() else "; there is no run to serve yet: start one there"
    echo_err(f"serving {folder} at {address} (Ctrl-C ends it){empty}")
    if host not in ("127.0.0.1", "localhost", "::1"):
        echo_err("anybody who can reach this machine can use the page and train models on it.")

    def on_exit() -> None:
        trainings = app.state.site.trainings
        trainings.interrupt()
        name = trainings.running()
        echo_err(f"ended; the training of {name} stops and can be resumed." if name else "ended.")

    serve_until_signal(app, socket, on_exit)


@click.command()
@option("--people", "Number of people, including unseen ones.", 3000)
@option("--seed", "The same seed gives the same bytes.", 0)
@option("--out", "Folder to write to.", required=True, type=PATH)
@JSON
def world(people: int, seed: int, out: Path, as_json: bool) -> None:
    """Write the embedded world: documents about invented people, questions and all facts."""
    from wherefrom.corpus.world import make_world, summarize_world, write_world

    made = make_world(people, seed)
    summary = summarize_world(made)
    write_world(made, out)
    if as_json:
        print_json(summary | {"out": str(out)})
        return

    def by_split(counts: dict[str, int]) -> str:
        return " / ".join(f"{counts[split]:,}" for split in ("train", "dev", "unseen"))

    rows = [
        ("people", f"{summary['people']:,}"),
        ("  train / dev / unseen", by_split(summary)),
        ("documents", f"{summary['documents']:,}"),
        ("characters", f"{summary['characters']:,}"),
        ("questions", "train / dev / unseen"),
        *((f"  {each['question']}", by_split(each)) for each in summary["relations"].values()),
    ]
    print_table(("world", f"seed {summary['seed']}"), rows)
    echo_err(f"written to {out}")


@click.command()
@JSON
def variants(as_json: bool) -> None:
    """List the model variants with their parameter counts at the course's size."""
    from wherefrom.model.config import ModelConfig
    from wherefrom.model.decoder import count_parameters
    from wherefrom.model.mixers import VARIANTS

    rows = []
    for name, variant in VARIANTS.items():
        parameters = count_parameters(ModelConfig(variant=name, vocabulary=256))
        rows.append({"name": name, "parameters": parameters, "about": variant.about})
    if as_json:
        print_json(rows)
        return
    cells = [(row["name"], f"{row['parameters']:,}", row["about"]) for row in rows]
    print_table(("variant", "parameters", ""), cells)
    echo_err("at block 128, 4 layers, 8 heads, width 256, vocabulary 256, 64 latents")


@click.command()
@click.argument("name", required=False)
@JSON
def recipes(name: str | None, as_json: bool) -> None:
    """List the shipped recipes, or print one.

    Its rung says what reaches the model about a subject whose question is not in the training file.
    """
    from wherefrom.training.recipes import RUNGS, load_recipe, shipped_recipes

    if name is not None:
        print_json(load_recipe(name).model_dump(mode="json"))
        return
    loaded = [load_recipe(each) for each in shipped_recipes()]
    if as_json:
        print_json([{"name": r.name, "rung": r.rung, "about": r.about} for r in loaded])
        return
    rows = [(r.name, r.rung, f"{RUNGS[r.rung]} ({r.about})") for r in loaded]
    print_table(("recipe", "rung", "what reaches the model about a subject not asked about"), rows)
