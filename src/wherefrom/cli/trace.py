"""`wherefrom trace`: which lines pushed an answer; `wherefrom bank`: how far to believe it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wherefrom.cli.output import JSON, PATH, Progress, open_run, option, print_json, print_table
from wherefrom.errors import UserError


@click.command()
@click.argument("run", type=PATH)
@click.argument("question", required=False)
@option("--answer", "Trace this answer instead of the run's.")
@option("--top", "Lines to show.", 5)
@option(
    "--method",
    "gradient: at the weights after a third of the training; replay: at five points of it, which "
    "takes one more training; retrain: train again without each of the top lines.",
    "gradient",
    type=click.Choice(["gradient", "replay", "retrain"]),
)
@option("--unseen", "Trace the answers about all judged unseen people.", is_flag=True)
@JSON
def trace(run: Path, question: str | None, unseen: bool, as_json: bool, **options: Any) -> None:
    """Show which lines pushed RUN's answer to QUESTION, and which pushed it away.

    The first trace by gradient or replay indexes the documents, once. With retrain a push is in
    nats of log p(answer); otherwise it is a score.
    """
    from wherefrom.provenance.attribution.trace import Tracer
    from wherefrom.training.run_folder import load_run

    if unseen == (question is not None):
        raise UserError("trace takes RUN and a QUESTION, or RUN and --unseen.")
    with Progress() as progress:
        tracer = Tracer(load_run(run), say=progress.say, count=progress.count)
        if question is not None:
            record = tracer.trace(question, observe=progress, **options)
        else:
            record = tracer.lean_unseen()
    if as_json:
        print_json(record)
    elif question is not None:
        show_trace(record)
    else:
        push, kinds = "{push:.0%} ({low:.0%} to {high:.0%})", record["kinds"]
        rows = [(kind, push.format(**row), f"{row['lines']:.0%}") for kind, row in kinds.items()]
        title = f"what {len(record['people'])} answers about unseen people lean on"
        print_table(("", "share of the push", "share of the lines"), rows, title=title)


def show_trace(record: dict[str, Any], *, answer: bool = True) -> None:
    """Print the lines that pushed; first the answer and its verdict if `answer` is set."""
    from wherefrom.provenance.verdicts import excerpt

    if answer:
        click.echo(f"{record['answer']:<20}{record['verdict'] or 'not looked up'}")
    unit = " nats" if record["unit"].startswith("nats") else ""
    for title, key in (("pushed by", "pushed_by"), ("pushed away by", "pushed_away_by")):
        for number, row in enumerate(record[key]):
            states = ", states it" if row["states"] else ""
            text = excerpt(row["text"], record["answer"])
            label = title if number == 0 else ""
            push = f"{row['push']:+.2g}{unit}{states}"
            click.echo(f"  {label:<16}line {row['line']:<6}{push:<20}  {text}")
    click.echo(f"  noise floor     {record['noise_floor']:.2g}{unit}")
    click.echo(f"  {record['why']}")


@click.command()
@click.argument("run", type=PATH, required=False)
@option("--out", "Folder of the bank.", required=True, type=PATH)
@option("--models", "Number of models, each trained on a random half of the subjects.", 32)
@option("--repeats", "Halves to train again from another start: the noise ceiling.", 8)
@JSON
def bank(run: Path | None, out: Path, as_json: bool, **counts: int) -> None:
    """Train RUN (default: the newest) again on random halves of its text, and keep the answers.

    benchmarks/attribution.py uses a bank to judge traces. Repeat the command to continue a stopped
    bank.
    """
    from wherefrom.provenance.attribution.retraining import fill_bank

    with Progress() as progress:
        found = fill_bank(open_run(run), out, **counts, observe=progress, say=progress.say)
    parts = ("questions", "models", "repeated")
    record = {"folder": str(out), **{part: len(getattr(found, part)) for part in parts}}
    say = "{models} models and {repeated} repeated ones, asked {questions} questions: {folder}"
    print_json(record) if as_json else click.echo(say.format(**record))
