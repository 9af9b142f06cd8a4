"""Commands that count right answers: evaluate and baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wherefrom.cli.output import (
    JSON,
    PATH,
    SEED,
    TEMPLATE,
    Progress,
    echo_err,
    option,
    print_json,
    print_recall,
    print_sections,
    print_table,
)
from wherefrom.errors import UserError


@click.command()
@click.argument("run", type=PATH)
@click.argument("questions", type=PATH, metavar="TSV")
@option("--out", "Write the predictions to this file, one per line.", type=PATH)
@option(
    "--beside",
    "Another run for the table; may be repeated.",
    multiple=True,
    type=PATH,
    metavar="RUN",
)
@option(
    "--samples",
    "Print this many questions with answer and prediction.",
    0,
    type=click.IntRange(0, 10_000),
)
@option(
    "--judge judged",
    "Also fit a confidence on half of the subjects and judge it on the others.",
    is_flag=True,
)
@SEED
@TEMPLATE
@JSON
def evaluate(
    run: Path, questions: Path, out: Path | None, samples: int, as_json: bool, **options: Any
) -> None:
    """Ask RUN the questions of TSV and count the exact answers, beside the baselines.

    The table has the commonest training answer, a guess by the name, the runs of --beside, RUN, and
    the reader, which has the text at hand. RUN keeps it for its report, unless RUN is a study,
    which has its own.
    """
    from wherefrom.evaluation import (
        evaluate_run,
        plan_judging,
        read_asked_questions,
        record_evaluation,
    )
    from wherefrom.provenance.after_training import calibrate_and_judge
    from wherefrom.report.study_report import make_report
    from wherefrom.storage import make_folder, write_whole
    from wherefrom.training.run_folder import load_run

    seed, judged = options["seed"], options["judged"]
    loaded, others = load_run(run), [load_run(folder) for folder in options["beside"]]
    asked, refused = read_asked_questions(loaded, questions, options["template"], say=echo_err)
    split = plan_judging(loaded, asked, seed=seed) if judged else None
    with Progress() as progress:
        report = progress.count("asking", len(asked.questions))
        found = evaluate_run(loaded, asked, refused=refused, beside=others, report=report)
    if out is not None:
        lines = [" ".join(answer.text.splitlines()) + "\n" for answer in found.answers]
        write_whole(make_folder(out.parent) / out.name, "".join(lines))
        echo_err(f"predictions written to {out}")
    try:
        record_evaluation(loaded, found)
    except UserError as problem:
        echo_err(f"the run does not keep the table: {problem}")
    if split is not None:
        calibrate_and_judge(loaded, split, seed=seed, say=echo_err)
    if as_json:
        print_json(found.to_dict())
        return
    if found.recall is not None:
        click.echo(str(found.recall))
        print_recall(found.rows)
    elif out is None and not samples:
        click.echo("\n".join(answer.text for answer in found.answers))
    if judged:
        print_sections(make_report(run), ("confidence", "grades", "verdicts"))
    if samples:
        drawn = found.pick_samples(samples, seed)
        rows = [(question, answer, said or "(empty)") for question, answer, said in drawn]
        print_table(("question", "answer", "prediction"), rows, title="samples")
    for note in found.notes:
        echo_err(note)
    if judged:
        echo_err(f"wherefrom report {run} answers the written questions from this")


@click.command()
@click.argument("train", type=PATH)
@click.argument("dev", type=PATH)
@TEMPLATE
@JSON
def baseline(train: Path, dev: Path, template: tuple[str, ...], as_json: bool) -> None:
    """Score answers that need no text: the majority answer, a guess by the name."""
    from wherefrom.corpus.questions import read_questions
    from wherefrom.recall.table import guess_by_name, majority_answer, score

    known = read_questions(train, template)
    known.require_answers()
    asked = read_questions(dev, known.templates)
    asked.require_answers()
    learned = [question for question in known.questions if not question.is_silent]
    stated = [question for question in asked.questions if not question.is_silent]
    right = [question.answer or "" for question in stated]
    common = majority_answer(learned)
    rows = {"majority": (common, score([common] * len(right), right))}
    guesses = guess_by_name(learned, stated)
    rows["by name"] = ("letters of the name", score(guesses, right))
    if as_json:
        print_json({name: {"answer": a, **recall.to_dict()} for name, (a, recall) in rows.items()})
        return
    for name, (answer, recall) in rows.items():
        click.echo(f"{name} ({answer})  {recall}")
