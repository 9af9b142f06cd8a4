"""`wherefrom assignment` and `wherefrom grade`: programming homework, and its points."""

from __future__ import annotations

import os
from pathlib import Path

import click

from wherefrom.cli.output import JSON, PATH, echo_err, option, print_json, print_table
from wherefrom.errors import UserError


@click.command()
@click.argument("name", required=False)
@option("--out", "The folder to write; it must be new or empty.", type=PATH)
@option("--seed", "Decides the hidden cases; by chance unless told.", type=int)
@JSON
def assignment(name: str | None, out: Path | None, seed: int | None, as_json: bool) -> None:
    """Write a programming assignment: what students get, and what the teacher keeps.

    NAME is "transformer" or one part of it; without NAME the parts are listed.
    """
    from wherefrom.teaching.assignment import WHOLE, write_assignment
    from wherefrom.teaching.checks import PARTS

    if name is None:
        columns = ("part", "points", "functions", "about")
        rows = [(part, n, ", ".join(names), about) for part, (n, about, names) in PARTS.items()]
        if as_json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows)
            echo_err(f"wherefrom assignment {WHOLE} --out DIR writes all of them.")
        return
    if out is None:
        raise UserError(f"wherefrom assignment {name} needs --out DIR, the folder to write.")
    if seed == 0:
        raise UserError("--seed 0 would make the hidden cases those that are handed out.")
    points = write_assignment(name, out, seed)["points"]
    if as_json:
        print_json({"name": name, "points": points, "out": str(out)})
    echo_err(f"{len(points)} parts, {sum(points.values())} points, written to {out}")
    echo_err(f"students get {out / 'handout'}; keep {out / 'teacher'} to yourself.")


@click.command()
@click.argument("folder", type=PATH)
@option(
    "--assignment assignment_file",
    "The teacher's folder or assignment.json; all parts with other cases unless told.",
    type=PATH,
)
@option("--out", "For the grades.", Path("grades"), type=PATH)
@option("--jobs", "Submissions at a time; as many as cores.", type=click.IntRange(1, 256))
@option("--timeout", "Seconds that a call may take.", 10.0)
@option("--memory", "GB that a submission may take.", 2.0)
@JSON
def grade(
    folder: Path, assignment_file: Path | None, out: Path, jobs: int | None, timeout: float,
    memory: float, as_json: bool,
) -> None:  # fmt: skip
    """Grade students' code: one submission, or a folder with a folder per student.

    Writes OUT/STUDENT/results.json, as Gradescope reads it, and OUT/grades.csv.
    """
    from wherefrom.storage import make_folder
    from wherefrom.teaching import grading
    from wherefrom.teaching.assignment import WHOLE, make_assignment

    if not (0 < timeout < float("inf") and 0 < memory < float("inf")):
        raise UserError("--timeout and --memory must be positive numbers.")
    submissions, path = grading.find_submissions(folder), assignment_file
    path = path / "assignment.json" if path and path.is_dir() else path
    known = make_assignment(WHOLE, 1) if path is None else grading.read_assignment(path)
    limits = grading.SandboxLimits(call=timeout, total=max(60, 4 * timeout), memory=memory)
    records = grading.grade_all(
        submissions, known, make_folder(out), jobs=jobs or os.cpu_count() or 1, limits=limits,
        report=lambda who, record: echo_err(f"{who}: {record['output'].splitlines()[0]}"),
    )  # fmt: skip
    if as_json:
        print_json(records)
    else:
        rows = [(student, record["score"]) for student, record in records.items()]
        print_table(("student", f"of {sum(known['points'].values()):g}"), rows)
    if not all(record["extra_data"]["protected"] for record in records.values()):
        echo_err(
            "this system gives students' code no namespaces or no Landlock: it could reach the "
            "network, or read the hidden cases; grade strangers in a container."
        )
    echo_err(f"written to {out}")
