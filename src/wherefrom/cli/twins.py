"""`wherefrom twins`: what an answer would have been without its document, found by training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from wherefrom.api import make_settings
from wherefrom.cli.output import PATH, PEOPLE, TEMPLATE, option, print_json, print_table, show
from wherefrom.cli.progress import Progress
from wherefrom.cli.train import VARIANT, training_options
from wherefrom.corpus.documents import read_lines
from wherefrom.errors import UserError

RUNTIME = ("device", "resume", "checkpoint_every")
WITH_WITHOUT = {"paths", "without", "without_file", "as_json", *RUNTIME}
SEPARATOR = ";"  # between the names of a line of --without-file


@click.command()
@click.argument("paths", nargs=-1, type=PATH, metavar="[CORPUS TRAIN DEV | RUN]")
@option("--out", "Folder of the two readers and of twins.json.", type=PATH)
@option("--without", "Train RUN again without this person's documents.", metavar="NAME")
@option(
    "--without-file",
    "The same for each line of a file: a name, or several with a semicolon between.",
    type=PATH,
)
@VARIANT
@TEMPLATE
@PEOPLE
@option("--set-aside", "Share of the training people to calibrate with.", 0.2)
@training_options
@click.pass_context
def twins(
    ctx: click.Context, /, paths: tuple[Path, ...], out: Path | None, without: str | None,
    without_file: Path | None, people: int, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Train two models, each without the documents that the other reads, and judge verdicts by it.

    The embedded world is read if no files are given; --minutes is the budget of each model. With
    RUN and --without NAME, RUN is trained again exactly as it was, on the same batches, in which
    one person's documents and questions count nothing: what would it have said, had it never read
    them? --without-file trains one such twin for each line; what is finished is not trained again.
    """
    if without is not None or without_file is not None:
        _refuse_changes(ctx)
        groups = [[without]] if without is not None else []
        if without_file is not None:
            lines = read_lines(without_file, "file of names").lines
            groups += [[name.strip() for name in line.split(SEPARATOR)] for _, line in lines]
        records = _leave_out(paths, groups, {name: options[name] for name in RUNTIME})
        if without_file is None:
            print_json(records[0]) if as_json else _show_leave_one_out(records[0])
        else:
            print_json({"twins": records}) if as_json else _show_several(records)
        return
    if out is None:
        raise UserError("twins needs --out for its folder (or RUN and --without NAME).")
    if len(paths) not in (0, 3):
        raise UserError(
            "twins takes a corpus, training questions and dev questions, or none of them for the "
            f"embedded world; it got {len(paths)} path{'s' if len(paths) > 1 else ''}. To leave "
            "one person out of a run, give RUN and --without NAME."
        )
    from wherefrom.provenance.attribution.cross_pretraining import (
        check_twins_folder,
        cross_pretrain,
    )
    from wherefrom.study import embedded_files

    shares = {"set_aside": options.pop("set_aside"), "templates": options.pop("template")}
    settings = make_settings(**options)
    with Progress() as progress:
        if not paths:
            check_twins_folder(out, resume=settings.resume)
            progress.say(f"making the embedded world of {people:,} people")
            world = embedded_files(out / "world", people=people, seed=settings.seed)
            paths = (world.corpus, world.train, world.dev)
        files = (paths[0], paths[1], paths[2])
        record = cross_pretrain(files, settings, out, **shares, observe=progress, say=progress.say)
    print_json(record) if as_json else _show_cross_pretraining(record, out)


def _leave_out(
    paths: tuple[Path, ...], groups: Sequence[Sequence[str]], runtime: dict[str, Any]
) -> list[dict[str, Any]]:
    """The record of the twin without each group of names; nothing is trained if one is refused."""
    from wherefrom.provenance.attribution import leave_one_out
    from wherefrom.training.run_folder import load_run
    from wherefrom.training.settings import Runtime

    if len(paths) != 1:
        raise UserError(f"twins --without takes one RUN, and it got {len(paths)} paths.")
    run = load_run(paths[0])
    planned = [[leave_one_out.plan_twin(run, name) for name in names] for names in groups]
    records = []
    with Progress() as progress:
        for plans in planned:
            subjects = [plan.question.subject for plan in plans]
            if not leave_one_out.is_finished(leave_one_out.twin_folder(run, *subjects)):
                count = sum(len(plan.documents) for plan in plans)
                lines = "line" if count == 1 else "lines"
                progress.say(
                    f"training again without the {count} {lines} about {', '.join(subjects)}: "
                    f"{run.info['steps']:,} steps, which took the run {run.info['seconds']:.0f} s"
                )
            settings = Runtime(**runtime)
            records.append(
                leave_one_out.leave_out(run, *plans, settings=settings, observe=progress)
            )
    return records


def _refuse_changes(ctx: click.Context) -> None:
    """The twin is trained as RUN was; an option that says otherwise is a mistake."""
    for name in ctx.params:
        given = ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        if given and name not in WITH_WITHOUT:
            raise UserError(
                f"--{name.replace('_', '-')} cannot be given with --without: the twin is trained "
                "exactly as RUN was; leave the option out."
            )


def _show_leave_one_out(record: dict[str, Any]) -> None:
    rows = [
        (title, record[side]["answer"], f"{record[side]['log_probability']:.2f}")
        for title, side in (("having read it", "with"), ("never having read it", "without"))
    ]
    click.echo(record["question"])
    for document in record["documents"]:
        click.echo(f"  line {document['line']}: {document['text']}")
    print_table(("", "answer", "log-probability"), rows)
    click.echo(f"{record['truth']}: {record['why']}")
    click.echo(
        f"push {record['score']:.2f} nats: so much surer is the run of its answer than the twin of "
        "the same."
    )
    others = record["others"]
    if others["people"]:
        click.echo(
            f"For comparison, {others['other_answer']} of {others['people']} dev people whose "
            "documents both read got another answer by the chance of training; for 19 in 20 of "
            f"them log-probabilities differ by less than {record['noise_floor']:.2f} nats."
        )
    for note in record["notes"]:
        click.echo(f"Note: {note}")


def _show_several(records: Sequence[dict[str, Any]]) -> None:
    rows = []
    for record in records:
        for one in record.get("people", [record]):
            others = f"{record['others']['other_answer']} of {record['others']['people']}"
            said = (one["subject"], one["with"]["answer"], one["without"]["answer"])
            floor = record["noise_floor"]
            push = f"{one['score']:.2f}"
            rows.append((*said, push, "-" if floor is None else f"{floor:.2f}", others))
    head = ("without", "it says", "it would have said", "push", "noise floor", "others changed")
    print_table(head, rows)


def _show_cross_pretraining(record: dict[str, Any], out: Path) -> None:
    """Tables of at most 80 columns; --json has the rank correlations and every signal."""
    agreement, caught = record["agreement"], record["caught"]
    judged = record["people"]["judged"]
    print_table(
        ("score", "AUROC, all answers", "AUROC, readers' answers"),
        [
            (name, *(show(metrics[key], "{:.3f}") for key in ("all", "readers")))
            for name, metrics in agreement.items()
            if not name.startswith("signal ")
        ],
        title=f"remembered in truth or not: {judged} people, each read by one of two models",
    )
    for title, table in (
        ("verdict against truth", record["verdicts"]),
        ("internal confidence alone against truth", record["internal"]),
    ):
        truths = [truth.replace(" ", "\n", 1) for truth in next(iter(table.values()))]
        rows = [(word, *counts.values()) for word, counts in table.items()]
        print_table(("", *truths), rows, title=title)
    keys = ("precision", "recall")
    rows = [(name, *(show(found[key], "{:.3f}") for key in keys)) for name, found in caught.items()]
    print_table(("taken for remembered", *keys), rows)
    for reader in record["readers"]:
        read, unread = (
            f"{100 * reader[key]['recall']:.1f} % of {reader[key]['total']}"
            for key in ("read", "unread")
        )
        click.echo(
            f"{reader['folder']}: recall {read} people read of, {unread} not read of; "
            f"{reader['seconds']:.0f} s"
        )
    scores = [*agreement.values(), *caught.values()]
    reasons = [m["reason"] for score in scores for m in score.values() if m["reason"]]
    for note in dict.fromkeys([*record["notes"], *reasons]):
        click.echo(f"Note: {note}")
    click.echo(f"all answers: {out / 'twins.json'}")
