"""`wherefrom trace`: which lines pushed an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wherefrom.cli.output import JSON, PATH, Progress, option, print_json, print_table
from wherefrom.errors import UserError


@click.command()
@click.argument("run", type=PATH)
@click.argument("question", required=False)
@option("--answer", "Trace this answer instead of the run's.")
@option("--top", "Lines to show.", 5)
@option(
    "--method",
    "gradient: at the weights after a third of the training; retrain: train again without each of "
    "the top lines.",
    "gradient",
    type=click.Choice(["gradient", "retrain"]),
)
@option("--unseen", "Trace the answers about all judged unseen people.", is_flag=True)
@JSON
def trace(run: Path, question: str | None, unseen: bool, as_json: bool, **options: Any) -> None:
    """Show which lines pushed RUN's answer to QUESTION, and which pushed it away.

    The first trace indexes the documents, once. A push is in nats of log p(answer): measured with
    retrain, otherwise estimated, with a 90 % interval.
    """
    from wherefrom.provenance.attribution.trace import open_tracer
    from wherefrom.provenance.attribution.unseen import lean_unseen

    if unseen == (question is not None):
        raise UserError("trace takes RUN and a QUESTION, or RUN and --unseen.")
    if options["answer"] is not None and not options["answer"].strip():
        raise UserError("--answer takes an answer, and an empty one came; leave it out.")
    with Progress() as progress:
        tracer = open_tracer(run, say=progress.say, count=progress.count)
        if question is not None:
            record = tracer.trace(question, observe=progress, **options)
        else:
            record = lean_unseen(tracer)
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
    from wherefrom.provenance.wording import excerpt

    if answer:
        click.echo(f"{record['answer']:<20}{record['verdict'] or 'not looked up'}")
    unit = " nats" if record["unit"] == "nats" else ""
    for title, key in (("pushed by", "pushed_by"), ("pushed away by", "pushed_away_by")):
        for number, row in enumerate(record[key]):
            states = ", states it" if row["states"] else ""
            text = excerpt(row["text"], record["answer"])
            label = title if number == 0 else ""
            push = f"{format_push(row, unit)}{states}"
            click.echo(f"  {label:<16}line {row['line']:<6}{push:<42}  {text}")
    click.echo(f"  noise floor     {record['noise_floor']:.2g}{unit}")
    click.echo(f"  {record['why']}")


def format_push(row: dict[str, Any], unit: str) -> str:
    """Such as "+2.1 nats (90 %: 1.2 to 3.4)"; a push that was measured has no interval."""
    interval = f" (90 %: {row['low']:.1f} to {row['high']:.1f})" if row["low"] < row["high"] else ""
    return f"{row['push']:+.2g}{unit}{interval}"
