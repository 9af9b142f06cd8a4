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
    print_sections,
)

# sections of the report that `judge` prints; --json has the other metrics and all intervals
SHOWN = ("documents", "telling", "grades", "risk", "probabilities", "calibration", "verdicts")
LEVEL = option("--level", "Of the intervals.", 0.95)
SEED = option("--seed", "Decides all that is random.", 0)


@click.command()
@RUN
@option("--risk", "Share of wrong answers to allow; the study's if left out.", type=float)
@option("--guarantee", "Of what is shown.", "from-text", type=click.Choice(["from-text", "right"]))
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
    from wherefrom.report.study_report import make_report

    loaded = open_run(run)
    people = sum(person.role != FITTING for person in read_subjects(loaded.folder))
    judgement = judge_run(loaded, report=TimeLeft("asked", people, echo_err), **options)
    write_judgement(loaded, judgement)
    if as_json:
        print_json({"run": str(loaded.folder), **judgement.record})
        return
    print_sections(make_report(loaded.folder), SHOWN)
    for note in judgement.record["notes"]:
        echo_err(note)
    click.echo(f"written to {loaded.folder}: judged.jsonl, judgement.json, run.json")


@click.command()
@RUN
@option("--people", "Invented names of each origin.", 20)
@LEVEL
@SEED
@JSON
def names(run: Path | None, people: int, as_json: bool, **options: Any) -> None:
    """Ask RUN (the newest if left out) about invented names: what it makes of a name alone."""
    from wherefrom.provenance.names import FILE, probe_run
    from wherefrom.report.study_report import make_report
    from wherefrom.storage import write_json

    loaded = open_run(run)
    record = probe_run(loaded, each=people, **options)
    write_json(loaded.folder / FILE, record)
    if as_json:
        print_json({"run": str(loaded.folder), **record})
        return
    print_sections(make_report(loaded.folder, origins=record), ("names",))
    click.echo(f"written to {loaded.folder}: {FILE}")
