"""Homework: `assignment` writes it, `grade` grades written answers and code by one rubric."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wherefrom.cli.output import JSON, PATH, echo_err, option, print_json, print_table
from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.teaching.results import Result

MAX_TIMEOUT_SECONDS = 3600
MIN_MEMORY_GB, MAX_MEMORY_GB = 0.3, 1024  # with less, numpy cannot be imported


@click.command()
@click.argument("name", required=False)
@option("--out", "The folder to write; it must be new or empty.", type=PATH)
@option("--seed", "Seed of the hidden cases; default: random.", type=int)
@JSON
def assignment(name: str | None, out: Path | None, seed: int | None, as_json: bool) -> None:
    """Write an assignment: what students get, and what the teacher keeps.

    NAME is "transformer", one part of it, or the file of a rubric (.toml); without NAME the parts
    are listed.
    """
    from wherefrom.teaching.assignment import ALL_PARTS, write_assignment
    from wherefrom.teaching.checks import PARTS

    if name is None:
        columns = ("part", "points", "functions", "about")
        rows = [(part, n, ", ".join(names), about) for part, (n, about, names) in PARTS.items()]
        if as_json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows)
            echo_err(f"wherefrom assignment {ALL_PARTS} --out DIR writes all of them.")
        return
    if out is None:
        raise UserError(f"wherefrom assignment {name} needs --out DIR, the folder to write.")
    if seed == 0:
        raise UserError("--seed 0 would make the hidden cases those that are handed out.")
    questions = write_assignment(name, out, seed).questions
    points = {question.id: question.points for question in questions}
    if as_json:
        print_json({"name": name, "points": points, "out": str(out)})
    count = "1 question" if len(points) == 1 else f"{len(points)} questions"
    echo_err(f"{count}, {sum(points.values()):g} points, written to {out}")
    echo_err(f"students get {out / 'handout'}; keep {out / 'teacher'} to yourself.")


@click.command()
@click.argument("submissions", type=PATH)
@option(
    "--rubric",
    "The rubric: a TOML file, or the teacher's folder with one.",
    required=True,
    type=PATH,
)
@option("--out", "The folder for grades.csv and results.json.", Path("grades"), type=PATH)
@option("--one", "The folder is the work of one student.", is_flag=True)
@option("--jobs", "Submissions at a time; as many as cores.", type=click.IntRange(1, 256))
@option("--timeout", "Seconds that a function of the code may take.", 10.0)
@option("--memory", "GB that a submission may take, all its processes together.", 2.0)
@JSON
def grade(
    submissions: Path,
    rubric: Path,
    out: Path,
    one: bool,
    jobs: int | None,
    as_json: bool,
    **limits_given: float,
) -> None:
    """Grade written answers and code: a folder with a file or folder per student, or one file.

    Prints the points of the class, or the answers of one student. Writes OUT/grades.csv and, as
    Gradescope reads it, OUT/STUDENT/results.json.
    """
    from wherefrom.storage import make_folder
    from wherefrom.teaching.grading import Grader
    from wherefrom.teaching.results import write_results
    from wherefrom.teaching.rubric import read_rubric
    from wherefrom.teaching.sandbox import SandboxLimits, find_protection
    from wherefrom.teaching.submissions import passed_over, read_submissions

    timeout, memory = limits_given["timeout"], limits_given["memory"]
    if not 0 < timeout <= MAX_TIMEOUT_SECONDS:
        raise UserError(f"--timeout must lie between 0 and {MAX_TIMEOUT_SECONDS} seconds.")
    if not MIN_MEMORY_GB <= memory <= MAX_MEMORY_GB:
        raise UserError(f"--memory must lie between {MIN_MEMORY_GB} and {MAX_MEMORY_GB} GB.")
    asked = read_rubric(rubric)
    handed_in = read_submissions(submissions, of_one=one)
    if ignored := passed_over(submissions):
        echo_err(f"not taken for submissions: {', '.join(ignored)}")
    for gap in find_protection().gaps() if asked.of_kind("code") else ():
        echo_err(f"Not protected: {gap}")
    if submissions.resolve() in (out.resolve(), *out.resolve().parents):
        raise UserError(f"--out {out} lies inside the submissions; give it another folder.")
    make_folder(out)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left behind
    limits = SandboxLimits(call=timeout, total=max(60, 4 * timeout), memory=memory)

    def report(result: Result) -> None:
        notes = "".join(f" {note}" for note in result.notes)
        review = f" For review: {', '.join(result.for_review())}." if result.for_review() else ""
        line = f"{result.submission}: {result.score:g} of {result.points:g} points.{review}{notes}"
        echo_err(line)

    jobs = jobs or os.cpu_count() or 1
    results = Grader(asked, limits).grade_class(handed_in, jobs, report)
    write_results(results, out)
    if as_json:
        print_json([result.to_dict() for result in results])
    else:
        print_results(results)
    echo_err(f"written to {out}")


def print_results(results: list[Result]) -> None:
    """Print a table of the class, or of the answers of one submission."""
    from wherefrom.teaching.results import class_table
    from wherefrom.teaching.submissions import printable

    if len(results) > 1:
        columns, *rows = class_table(results)
        print_table(columns[:-1], [row[:-1] for row in rows])  # the notes are on stderr
        return
    rows = []
    for answer in results[0].answers:
        points = f"{answer.score:g}/{answer.points:g}"
        because = printable(answer.sentence.partition("\n")[0])
        rows.append([answer.name, answer.verdict, points, because])
    print_table(("question", "verdict", "points", "because"), rows)
