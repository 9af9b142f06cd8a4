"""Grades: one submission or a class of them, as Gradescope's results.json and as a table.

Each check is worth the same within its part; half of that for the handed-out cases, half for the
hidden ones. A submission that cannot be graded gets 0 and says why; the others go on.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError
from wherefrom.storage import make_folder, read_json, write_json, write_whole
from wherefrom.teaching.checks import restore, verdict
from wherefrom.teaching.sandbox import CODE, Sandbox, SandboxLimits

GROUPS = {"handed out": "visible", "hidden": "after_published"}  # cases -> Gradescope's visibility


def read_assignment(path: Path) -> dict[str, Any]:
    """What `wherefrom assignment` left for the teacher: name, points, adapters and cases."""
    record = restore(read_json(path))
    if not isinstance(record, dict) or not {"points", "adapters", *GROUPS} <= set(record):
        raise UserError(f"{path} is not the assignment.json of a teacher's folder.")
    return record


def grade_submission(
    folder: Path, assignment: Mapping[str, Any], limits: SandboxLimits | None = None
) -> dict[str, Any]:
    """The record of one submission, as Gradescope reads it from results.json."""
    tests, printed, note, isolated = [], "", "", True
    limits = limits or SandboxLimits()
    try:
        with closing(Sandbox(folder, limits, assignment["adapters"])) as sandbox:
            for group, visibility in GROUPS.items():
                for title in assignment[group]:
                    wrong = verdict(title, sandbox.call, assignment[group])
                    tests.append(_entry(title, group, visibility, wrong, assignment))
                # hidden cases could be printed, so only what came before them is shown
                printed = printed or sandbox.printed()
            note, isolated = sandbox.broken.get("", ""), sandbox.isolated
    except (UserError, OSError) as problem:
        note = f"this submission was not graded: {problem}"
        tests = [
            _entry(title, group, visibility, note, assignment)
            for group, visibility in GROUPS.items()
            for title in assignment[group]
        ]
    score = round(sum(test["score"] for test in tests), 2)
    output = f"{score:g} of {sum(assignment['points'].values()):g} points. {note}".strip()
    return {
        "score": score,
        "output": output
        + (f"\n\nYour code printed (the end of it):\n{printed}" if printed else ""),
        "output_format": "text",
        "stdout_visibility": "hidden",
        "tests": tests,
        "extra_data": {"note": note, "isolated": isolated},
    }


def _entry(
    title: str, group: str, visibility: str, wrong: str, assignment: Mapping[str, Any]
) -> dict[str, Any]:
    part = title.split(":")[0]
    checks = [other for other in assignment[group] if other.split(":")[0] == part]
    most = assignment["points"][part] / len(checks) / len(GROUPS)
    return {
        "name": f"{title} ({group} cases)",
        "score": 0.0 if wrong else most,
        "max_score": most,
        "status": "failed" if wrong else "passed",
        "output": wrong or "passed",
        "output_format": "text",
        "visibility": visibility,
    }


def find_submissions(folder: Path) -> dict[str, Path]:
    """Student -> folder; a folder that holds code itself is one submission."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of submissions.")
    if any((folder / name).exists() for name in CODE):
        return {folder.resolve().name: folder}
    found = {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}
    found = {name: path for name, path in found.items() if not name.startswith(".")}
    if not found:
        raise UserError(f"{folder} holds no submissions: one folder per student was expected.")
    return found


def grade_all(
    submissions: Mapping[str, Path],
    assignment: Mapping[str, Any],
    out: Path,
    *,
    jobs: int = 1,
    limits: SandboxLimits | None = None,
    report: Callable[[str, dict[str, Any]], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Grade all; writes OUT/STUDENT/results.json as they come, and OUT/grades.csv."""
    records: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        started = {
            pool.submit(grade_submission, folder, assignment, limits): student
            for student, folder in submissions.items()
        }
        for done in as_completed(started):
            student, record = started[done], done.result()
            write_json(make_folder(out / student) / "results.json", record)
            records[student] = record
            if report is not None:
                report(student, record)
    records = {student: records[student] for student in submissions}
    write_whole(out / "grades.csv", _table(records, assignment["points"]))
    return records


def _table(records: Mapping[str, dict[str, Any]], points: Mapping[str, float]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["student", "score", "out of", *points, "note"])
    for student, record in records.items():
        of_part = dict.fromkeys(points, 0.0)
        for test in record["tests"]:
            of_part[test["name"].split(":")[0]] += test["score"]
        row = [round(score, 2) for score in of_part.values()]
        note = record["extra_data"]["note"]
        writer.writerow([student, record["score"], sum(points.values()), *row, note])
    return text.getvalue()


def main() -> None:
    """On Gradescope: the folder of a submission, and the file for the results."""
    submission, results = map(Path, sys.argv[1:3])
    assignment = read_assignment(Path("assignment.json"))
    write_json(results, grade_submission(submission, assignment))


if __name__ == "__main__":
    main()
