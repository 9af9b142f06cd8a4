"""Commands that judge a run: `judge` for its verdicts, `names` for what a name alone does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wherefrom.cli.output import (
    JSON,
    RUN,
    echo_err,
    open_run,
    option,
    print_json,
    print_table,
    show,
)

LEVEL = option("--level", "Of the intervals.", 0.95)
SEED = option("--seed", "Decides all that is random.", 0)


@click.command()
@RUN
@option("--risk", "Share of wrong answers to allow; the study's if left out.", type=float)
@option("--guarantee", "Of what is shown.", "from-text", type=click.Choice(["from-text", "right"]))
@option("--all-rivals", "Also those that draw many answers, which takes longer.", is_flag=True)
@LEVEL
@option("--resamples", "Of the questions, for intervals.", 1000)
@SEED
@JSON
def judge(run: Path | None, as_json: bool, **options: Any) -> None:
    """Judge the verdicts of RUN (the newest if left out) on subjects kept for that."""
    from wherefrom.audit.runs import judge_run
    from wherefrom.corpus.subjects import FITTING, read_subjects
    from wherefrom.provenance.after_training import TimeLeft
    from wherefrom.provenance.judging.judge import write_judgement
    from wherefrom.training.run_folder import AUDIT

    loaded = open_run(run)
    people = sum(person.role != FITTING for person in read_subjects(loaded.folder))
    judgement = judge_run(loaded, report=TimeLeft("asked", people, echo_err), **options)
    write_judgement(loaded, judgement)
    record = judgement.record
    if as_json:
        print_json({"run": str(loaded.folder), **record})
        return
    print_scores(record)
    for one in record["against_the_best"]:
        if one["rival"]:
            gap = show(one["difference"], "{:+.3f}")
            name = one["measure"].upper()
            click.echo(f"{name} of {one['score']} less that of {one['rival']}, the best: {gap}")
    if loaded.info.get("kind") != AUDIT or loaded.info["data"]:  # there is a text to look it up in
        print_targets(record)
        print_verdicts(record["verdicts"])
        for group in record["by_documents"]:
            if group["subjects"]:
                count = group["documents"]
                about = f"{count} document{'' if count == 1 else 's'}"
                click.echo(
                    f"recall of {group['subjects']} questions with {about}: {show(group['recall'])}"
                )
        found = "; ".join(
            f"{one['score']} {show(one['auroc'], '{:.3f}')}" for one in record["stated"]
        )
        click.echo(f"AUROC for being stated by a line, without the text: {found}")
    for note in record["notes"]:
        echo_err(note)
    click.echo(f"written to {loaded.folder}: judged.jsonl, judgement.json, run.json")


def print_scores(record: dict[str, Any]) -> None:
    """Every score on all judged questions: how it ranks, and what would be given by it.

    The tables fit 80 columns; --json has the other metrics and all intervals.
    """
    ranks, gives = [], []
    for name, score in record["scores"].items():
        metrics, grades = (score["groups"]["together"][key] for key in ("metrics", "grades"))
        counts = [grades[key] for key in ("correct", "wrong", "not_attempted")]
        shown = "no threshold" if None in counts else " / ".join(map(str, counts))
        ranks.append((name, *(show(metrics[key], "{:.3f}") for key in ("auroc", "ece"))))
        unseen = show(metrics["unseen_unknown"], interval=False)
        at_precision = show(metrics["coverage_at_precision"], interval=False)
        gives.append((name, shown, at_precision, "by look-up" if score["reads_text"] else unseen))
    people = record["subjects"]
    title = (
        f"{people['judged']} questions judged ({people['seen']} seen, {people['unseen']} unseen); "
        f"intervals of {record['level']:.0%}"
    )
    print_table(("score", "AUROC", "ECE"), ranks, title=title)
    given = ("correct / wrong\n/ not attempted", f"given at\n{record['precision']:.0%} precision")
    print_table(("score", *given, "unseen:\nI don't know"), gives)


def print_targets(record: dict[str, Any]) -> None:
    """Both probabilities in both modes, and what each would show at the risk."""
    rows = []
    for target, modes in record["targets"].items():
        for mode, found in modes.items():
            measured = found["metrics"]
            numbers = [
                show(measured[key], "{:.3f}", interval=False) if measured else ""
                for key in ("auroc", "auroc_among_seen", "ece")
            ]
            shares = [
                show(found[key], interval=False)
                for key in ("right_shown", "missed", "unseen_shown")
            ]
            rows.append((f"{target.replace('_', ' ')}, {mode}", *numbers, *shares))
    columns = (
        "probability",
        "AUROC",
        "among\nseen",
        "ECE",
        "right\nshown",
        "not so",
        "unseen\nshown",
    )
    print_table(columns, rows, title=f"shown at a risk of {record['risk']:.1%}")


def print_verdicts(rows: list[dict[str, Any]]) -> None:
    """The table of verdicts that a study ends with."""
    keys = ("subjects", "verdict", "right", "wrong", "shown", "unknown", "internal_shown")
    titles = {"unknown": "I don't\nknow", "internal_shown": "shown without\nthe text"}
    shown = [[row[key] for key in keys] for row in rows if row["count"]]
    print_table([titles.get(key, key) for key in keys], shown)


@click.command()
@RUN
@option("--people", "Invented names of each origin.", 20)
@LEVEL
@SEED
@JSON
def names(run: Path | None, people: int, as_json: bool, **options: Any) -> None:
    """Ask RUN (the newest if left out) about invented names: what it makes of a name alone."""
    from wherefrom.provenance.names import FILE, probe_run
    from wherefrom.storage import write_json

    loaded = open_run(run)
    record = probe_run(loaded, each=people, **options)
    write_json(loaded.folder / FILE, record)
    if as_json:
        print_json({"run": str(loaded.folder), **record})
        return
    unknown = {row["origin"]: row for row in record["unknown"]["by_origin"]}
    rows = []
    for row in record["by_origin"]:
        silent = show(unknown[row["origin"]], interval=False)
        home = f"{row['at_home']:.0%}"
        rows.append((row["origin"], row["names"], home, row["commonest"], silent))
    columns = ("origin", "names", "said of home", "commonest answer", "I don't know")
    print_table(columns, rows, title=f"{record['names']} names that nobody has written about")
    information = record["mutual_information"]
    click.echo(
        f"origin and country share {information['bits']:.2f} bits "
        f"({information['by_chance']:.2f} by chance; {information['null']}, "
        f"p = {information['p']:.3f})"
    )
    for group in ("seen", "unseen"):
        found = record["subjects"][group]["wrong"]
        if found["difference"]["value"] is not None:
            click.echo(
                f"wrong about {group} people whose country the name does not give away: "
                f"{show(found['group'])}; whose it does: {show(found['others'])}"
            )
    for sentence in record["sentences"]:
        click.echo(sentence)
    click.echo(f"written to {loaded.folder}: {FILE}")
