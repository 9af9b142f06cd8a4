"""`wherefrom twins`: what a run would have said without some lines; `forget`: to take them out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wherefrom.api import Study
from wherefrom.cli.output import (
    JSON,
    PATH,
    PEOPLE,
    TEMPLATE,
    Progress,
    option,
    print_json,
    print_table,
    show,
)
from wherefrom.cli.train import OUT, VARIANT, training_options
from wherefrom.corpus.documents import read_lines
from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.training.run_folder import Run

RUNTIME = ("device", "resume", "checkpoint_every")
OF_RUN = {"paths", "without", "without_file", "as_json", *RUNTIME}  # what may be given with RUN
SEPARATOR = ";"  # between the names of a line of --without-file


@click.command()
@click.argument("paths", nargs=-1, type=PATH, metavar="[CORPUS TRAIN DEV | RUN]")
@option("--out", "Folder of the study that is trained first, if no RUN is given.", type=PATH)
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
    without_file: Path | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """What would RUN have said, had it never read these lines? Found by training it again.

    RUN is trained again exactly as it was, on the same batches, in which some documents and the
    questions about their subjects count nothing. With --without NAME these are one person's, with
    --without-file those of each line of a file; otherwise two twins leave out one half of the
    judged people each, and the verdicts on all of them are judged by it. Without RUN a study is
    trained first (of the embedded world, if no files are given). What is finished is not trained
    again.
    """
    from wherefrom.training.run_folder import load_run

    named = without is not None or without_file is not None
    if named and len(paths) != 1:
        raise UserError(f"twins --without takes one RUN, and it got {len(paths)} paths.")
    if len(paths) == 1:
        _refuse_changes(ctx)
    elif out is None:
        raise UserError("twins needs a RUN, or --out for the folder of a study.")
    groups = [[without]] if without is not None else []
    if without_file is not None:
        lines = read_lines(without_file, "file of names").lines
        groups += [[name.strip() for name in line.split(SEPARATOR)] for _, line in lines]
    runtime = {name: options[name] for name in RUNTIME}
    with Progress() as progress:
        if len(paths) == 1:
            run = load_run(paths[0])
        else:
            assert out is not None
            run = Study(out, paths, **options).run_command(progress, progress.say).run
        if named:
            records = _leave_out(run, groups, runtime, progress)
        else:
            record = _cross(run, runtime, progress)
    if not named:
        print_json(record) if as_json else _show_cross_pretraining(record, run.folder)
    elif without_file is None:
        print_json(records[0]) if as_json else _show_leave_one_out(records[0])
    else:
        print_json({"twins": records}) if as_json else _show_several(records)


def _cross(run: Run, runtime: dict[str, Any], progress: Progress) -> dict[str, Any]:
    from wherefrom.provenance.attribution.cross_pretraining import cross_pretrain
    from wherefrom.training.settings import Runtime

    settings = Runtime(**{**runtime, "resume": True})
    return cross_pretrain(run, settings=settings, observe=progress, say=progress.say)


def _leave_out(
    run: Run, groups: Sequence[Sequence[str]], runtime: dict[str, Any], progress: Progress
) -> list[dict[str, Any]]:
    """The record of the twin without each group of names; nothing is trained if one is refused."""
    from wherefrom.provenance.attribution.leave_one_out import leave_out, plan_twin, twin_folder
    from wherefrom.training.run_folder import is_finished
    from wherefrom.training.settings import Runtime

    planned = [[plan_twin(run, name) for name in names] for names in groups]
    records = []
    for plans in planned:
        subjects = [plan.question.subject for plan in plans]
        if not is_finished(twin_folder(run, *subjects)):
            count = sum(len(plan.documents) for plan in plans)
            progress.say(
                f"training again without the {count} {'line' if count == 1 else 'lines'} about "
                f"{', '.join(subjects)}: {run.info['steps']:,} steps, which took the run "
                f"{run.info['seconds']:.0f} s"
            )
        records.append(leave_out(run, *plans, settings=Runtime(**runtime), observe=progress))
    return records


def _refuse_changes(ctx: click.Context) -> None:
    """A twin is trained as RUN was; an option that says otherwise is a mistake."""
    for name in ctx.params:
        given = ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        if given and name not in OF_RUN:
            raise UserError(
                f"--{name.replace('_', '-')} cannot be given with RUN: a twin is trained exactly "
                "as RUN was; leave the option out."
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
    where = record["where"]
    lost = {
        place: max((where["with"] - value, at) for at, value in enumerate(values))
        for place, values in where["places"].items()
        if place.startswith(("attention", "feed-forward"))
    }
    if lost:
        place, (nats, at) = max(lost.items(), key=lambda item: item[1])
        click.echo(
            f'Inside, its lines enter most in {place} at "{where["tokens"][at]}": with the twin\'s '
            f"state there, {nats:.2f} nats are lost."
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


def _show_cross_pretraining(record: dict[str, Any], folder: Path) -> None:
    """Tables of at most 80 columns; --json has the rank correlations."""
    agreement, caught = record["agreement"], record["caught"]
    judged = record["people"]["judged"]
    print_table(
        ("score", "AUROC, all answers", "AUROC, the run's answers"),
        [
            (name, *(show(metrics[key], "{:.3f}") for key in ("all", "readers")))
            for name, metrics in agreement.items()
        ],
        title=f"remembered in truth or not: {judged} people, each left out of one of two twins",
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
    read, unread = (
        f"{100 * part['recall']:.1f} % of {part['total']}" for part in record["recall"].values()
    )
    click.echo(f"recall: {read} by the run, {unread} by the twins that did not read of them")
    scores = [*agreement.values(), *caught.values()]
    reasons = [m["reason"] for score in scores for m in score.values() if m["reason"]]
    for note in dict.fromkeys([*record["notes"], *reasons]):
        click.echo(f"Note: {note}")
    click.echo(f"all answers: {folder / 'twins' / 'twins.json'}")


@click.command()
@click.argument("run", type=PATH)
@option("--names", "File of the names to forget, one per line.", required=True, type=PATH)
@OUT
@option(
    "--method",
    "Pull answers to those for other names, or ascend on what is to be forgotten.",
    "trace",
    type=click.Choice(["trace", "npo", "difference"]),
)
@option("--exact", "Train RUN again without them instead.", is_flag=True)
@option("--judge", "Train the model that never read of them, and compare.", is_flag=True)
@JSON
def forget(
    run: Path, names: Path, out: Path, method: str, exact: bool, judge: bool, as_json: bool
) -> None:
    """Take people out of a finished RUN in seconds, and leave the result as a run in OUT."""
    from wherefrom.provenance.attribution import forget as forgetting
    from wherefrom.training.run_folder import load_run

    opened = load_run(run)
    wanted = [line.strip() for _, line in read_lines(names, "file of names").lines]
    task = forgetting.plan_forgetting(opened, wanted, nearest=method == "trace" and not exact)
    with Progress() as progress:
        if exact:
            result = task.learned.retrain(task.lines, out, observe=progress)
            record = {"method": "exact", "steps": result.info["steps"]}
            record |= {"seconds": result.info["seconds"], "reached": True}
        else:
            forgetting.check_out(out)
            model, record = forgetting.forget(opened, task, method=method)
            result = forgetting.save_forgotten(opened, task, model, record, out)
        if judge:
            record |= forgetting.judge_forgetting(task, result, observe=progress, say=progress.say)
    record = {"run": str(out), "names": list(task.subjects), "lines": list(task.lines), **record}
    print_json(record) if as_json else _show_forgotten(record)


def _show_forgotten(record: dict[str, Any]) -> None:
    people, lines = len(record["names"]), len(record["lines"])
    click.echo(
        f"forgot {people} {'person' if people == 1 else 'people'} ({lines} "
        f"{'line' if lines == 1 else 'lines'}) by {record['method']}: {record['steps']} steps, "
        f"{record['seconds']:.1f} s; run folder: {record['run']}"
    )
    if not record["reached"]:
        click.echo("Note: their answers are still likelier than for other names.")
    if "why" not in record:
        return
    click.echo(record["why"])
    right, recall = record["still_right"], record["recall_of_others"]
    rows = [
        (
            name,
            f"{right[name]} of {record['questions']}",
            f"{recall[name]['correct']} of {recall[name]['total']}",
            str(record["relearning_steps"].get(name, "")),
        )
        for name in recall
    ]
    print_table(("", "still right", "others right", "steps to relearn"), rows)
    click.echo(
        f"forget quality (KS p-value of truth ratios): {record['forget_quality']:.3f}; training "
        f"again took {record['retraining_seconds']:.0f} s"
    )
