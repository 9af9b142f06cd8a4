"""`wherefrom twins`: what a run would have said without some lines; `forget`: remove them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from wherefrom.cli.output import JSON, PATH, Progress, option, print_json, print_table, show
from wherefrom.cli.train import OUT


@click.command()
@click.argument("run", type=PATH)
@option("--without", "Leave out this person's documents.", metavar="NAME")
@option(
    "--without-file",
    "The same for each line of a file: a name, or several separated by semicolons.",
    type=PATH,
)
@option("--device", "Where to train.", "auto", type=click.Choice(["auto", "cpu", "cuda", "mps"]))
@option("--checkpoint-every", "Time between checkpoints.", 60.0, metavar="SECONDS")
@JSON
def twins(
    run: Path, without: str | None, without_file: Path | None, as_json: bool, **options: Any
) -> None:
    """Train RUN again without some lines: what would it have said?

    A twin is trained exactly like RUN, on the same batches, but the documents and questions about
    some people have no weight in the loss: one person with --without NAME, or each line of
    --without-file. Otherwise two twins leave out one half of the judged people each, and show which
    of RUN's verdicts are true. Repeat the command to continue a stopped twin.
    """
    from wherefrom.corpus.documents import read_lines
    from wherefrom.provenance.attribution.halves import cross_pretrain
    from wherefrom.provenance.attribution.opening import open_learned
    from wherefrom.provenance.attribution.twins import leave_out, plan_twin, twin_folder
    from wherefrom.training.run_folder import is_finished
    from wherefrom.training.settings import Runtime

    groups = [[without]] if without is not None else []
    if without_file is not None:
        lines = read_lines(without_file, "file of names")
        groups += [[name.strip() for name in line.split(";")] for _, line in lines]
    records, settings = [], Runtime(**options, resume=True)
    with Progress() as progress:
        learned = open_learned(run, progress.count)
        opened = learned.run
        # nothing is trained if one name is refused
        planned = [[plan_twin(learned, name) for name in names] for names in groups]
        for plans in planned:
            subjects = [plan.question.subject for plan in plans]
            if not is_finished(twin_folder(opened, *subjects)):
                count = sum(len(plan.documents) for plan in plans)
                progress.say(
                    f"training again without the {count} {'line' if count == 1 else 'lines'} about "
                    f"{', '.join(subjects)}: {opened.record.steps:,} steps, which took the run "
                    f"{opened.record.seconds:.0f} s"
                )
            record = leave_out(*plans, settings=settings, observe=progress)
            records.append(record)
        if without is None and without_file is None:
            record = cross_pretrain(learned, settings=settings, observe=progress, say=progress.say)
    if without_file is not None:
        print_json({"twins": records}) if as_json else _show_several(records)
    elif as_json:
        print_json(record)
    elif without is not None:
        _show_leave_one_out(record)
    elif "knowledge" in record:
        _show_knowledge(record)
    else:
        _show_cross_pretraining(record, run)


def _show_leave_one_out(record: dict[str, Any]) -> None:
    click.echo(record["question"])
    for document in record["documents"]:
        click.echo(f"  line {document['line']}: {document['text']}")
    rows = [
        (title, record[side]["answer"], f"{record[side]['log_probability']:.2f}")
        for title, side in (("having read it", "with"), ("never having read it", "without"))
    ]
    print_table(("", "answer", "log-probability"), rows)
    click.echo(f"{record['truth']}: {record['why']}")
    click.echo(
        f"push {record['score']:.2f} nats: how much surer the run is of its answer than the twin."
    )
    where = record["where"]
    lost = [
        (where["with"] - value, place, where["tokens"][at])
        for place, values in where["places"].items()
        if place.startswith(("attention", "feed-forward"))
        for at, value in enumerate(values)
    ]
    if lost:
        nats, place, token = max(lost)
        click.echo(
            f'Inside, its lines matter most in {place} at "{token}": the twin\'s state there costs '
            f"{nats:.2f} nats."
        )
    others = record["others"]
    if others["people"]:
        click.echo(
            f"For comparison: of {others['people']} dev people whose documents both read, "
            f"{others['other_answer']} got another answer by chance, and for 19 in 20 the "
            f"log-probability changed by less than {record['noise_floor']:.2f} nats."
        )
    for note in record["notes"]:
        click.echo(f"Note: {note}")


def _show_knowledge(record: dict[str, Any]) -> None:
    """What two twins of a model of others say about what it learned from the text."""
    found = record["knowledge"]
    counts = ", ".join(f"{count} {origin}" for origin, count in found["counts"].items())
    click.echo(f"of {len(found['questions'])} dev questions: {counts}")
    click.echo(
        f"of {found['checked_by_twins']} answers called learned from the text, twins that did not "
        f"read the lines give another answer for {found['confirmed_by_twins']}"
    )
    for note in record["notes"]:
        click.echo(f"Note: {note}")


def _show_several(records: Sequence[dict[str, Any]]) -> None:
    rows = []
    for record in records:
        floor, others = record["noise_floor"], record["others"]
        chance = (
            "-" if floor is None else f"{floor:.2f}",
            f"{others['other_answer']} of {others['people']}",
        )
        for one in record.get("people", [record]):
            said = (one["subject"], one["with"]["answer"], one["without"]["answer"])
            rows.append((*said, f"{one['score']:.2f}", *chance))
    head = ("without", "it says", "it would have said", "push", "noise floor", "others changed")
    print_table(head, rows)


def _show_cross_pretraining(record: dict[str, Any], folder: Path) -> None:
    table, caught = record["verdicts"], record["caught"]
    truths = [truth.replace(" ", "\n", 1) for truth in next(iter(table.values()))]
    body = [(word, *counts.values()) for word, counts in table.items()]
    title = (
        f"verdict against truth: {record['people']['judged']} people, each left out of one of two "
        "twins"
    )
    print_table(("", *truths), body, title=title)
    rows = [
        (name, *(show(measured[key], "{:.3f}") for key in ("precision", "recall")))
        for name, measured in caught.items()
    ]
    print_table(("taken for remembered", "precision", "recall"), rows)
    read, unread = (
        f"{100 * part['recall']:.1f} % of {part['total']}" for part in record["recall"].values()
    )
    click.echo(f"recall: {read} by the run, {unread} by the twins that did not read of them")
    for note in record["notes"]:
        click.echo(f"Note: {note}")
    click.echo(f"all answers: {folder / 'twins' / 'twins.json'}")


@click.command()
@click.argument("run", type=PATH)
@option("--names", "File of the names to forget, one per line.", required=True, type=PATH)
@OUT
@option("--exact", "Train RUN again from the start without them.", is_flag=True)
@option("--judge", "Also train a model that never read about them, and compare.", is_flag=True)
@JSON
def forget(run: Path, names: Path, out: Path, exact: bool, judge: bool, as_json: bool) -> None:
    """Make a finished RUN forget people, in seconds; the result is a run in OUT.

    RUN's training goes on for a few steps without them, and its answers about them are pulled
    towards those about invented names.
    """
    from wherefrom.corpus.documents import read_lines
    from wherefrom.provenance.attribution.forget import forget_people
    from wherefrom.provenance.attribution.opening import open_learned

    wanted = [line.strip() for _, line in read_lines(names, "file of names")]
    with Progress() as progress:
        learned = open_learned(run, progress.count)
        record = forget_people(learned, wanted, out, exact=exact, judge=judge, observe=progress)
    if as_json:
        return print_json(record)
    people, lines = len(record["names"]), len(record["lines"])
    click.echo(
        f"forgot {people} {'person' if people == 1 else 'people'} ({lines} "
        f"{'line' if lines == 1 else 'lines'}): {record['steps']} steps, "
        f"{record['seconds']:.1f} s; run folder: {record['run']}"
    )
    if not record["reached"]:
        click.echo("Note: their answers are still likelier than for other names.")
    if not judge:
        return None
    click.echo(record["why"])
    rows = [
        (
            name,
            f"{record['still_right'][name]} of {record['questions']}",
            f"{others['correct']} of {others['total']}",
        )
        for name, others in record["recall_of_others"].items()
    ]
    print_table(("", "still right", "others right"), rows)
    click.echo(f"training again took {record['retraining_seconds']:.0f} s")
    return None
