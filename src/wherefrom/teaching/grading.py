"""Grades: one submission or a class of them, as Gradescope's results.json and as a table.

Each check is worth the same within its part; half of that for the handed-out cases, half for the
hidden ones. A submission that cannot be graded gets 0 and says why; the others go on.
"""

from __future__ import annotations

import csv
import hashlib
import io
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from wherefrom.errors import UserError
from wherefrom.storage import make_folder, read_json, write_json, write_whole
from wherefrom.teaching.checks import restore, verdict
from wherefrom.teaching.sandbox import CODE, Launcher, Sandbox, SandboxLimits, read_submission

GROUPS = {"handed out": "visible", "hidden": "after_published"}  # cases -> Gradescope's visibility
Record = dict[str, Any]


def read_assignment(path: Path) -> Record:
    """What `wherefrom assignment` left for the teacher: name, points, adapters and cases."""
    record = restore(read_json(path))
    if not isinstance(record, dict) or not {"points", "adapters", *GROUPS} <= set(record):
        raise UserError(f"{path} is not the assignment.json of a teacher's folder.")
    return record


def start_launcher(assignment: Mapping[str, Any]) -> Launcher:
    """A process in which the libraries that this assignment needs are loaded."""
    return Launcher(["torch"] if "variants" in assignment["points"] else [])


def grade_submission(
    folder: Path, assignment: Mapping[str, Any], launcher: Launcher, limits: SandboxLimits
) -> Record:
    """The record of one submission, as Gradescope reads it from results.json."""
    printed, note, protected = "", "", True
    wrong: dict[tuple[str, str], str] = {}  # (cases, title of a check) -> what is wrong
    try:
        files = read_submission(folder, assignment["adapters"])
        with closing(Sandbox(files, limits, launcher)) as sandbox:
            for group in GROUPS:
                for title in assignment[group]:
                    wrong[group, title] = verdict(title, sandbox.call, assignment[group])
                # hidden cases could be printed, so only what came before them is shown
                printed = printed or sandbox.printed()
            note, protected = sandbox.broken.get("", ""), sandbox.isolated and sandbox.confined
    except (UserError, OSError) as problem:
        note = f"this submission was not graded: {problem}"
        wrong = {(group, title): note for group in GROUPS for title in assignment[group]}
    tests = []
    for (group, title), sentence in wrong.items():
        part = title.split(":")[0]
        checks = [other for other in assignment[group] if other.split(":")[0] == part]
        most = assignment["points"][part] / len(checks) / len(GROUPS)
        tests.append(
            {
                "name": f"{title} ({group} cases)",
                "score": 0.0 if sentence else most,
                "max_score": most,
                "status": "failed" if sentence else "passed",
                "output": sentence or "passed",
                "output_format": "text",
                "visibility": GROUPS[group],
            }
        )
    score = round(sum(test["score"] for test in tests), 2)
    output = f"{score:g} of {sum(assignment['points'].values()):g} points. {note}".strip()
    return {
        "score": score,
        "output": output
        + (f"\n\nYour code printed (the end of it):\n{printed}" if printed else ""),
        "output_format": "text",
        "stdout_visibility": "hidden",
        "tests": tests,
        "extra_data": {"note": note, "protected": protected},
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
    jobs: int,
    limits: SandboxLimits,
    report: Callable[[str, Record], None],
) -> dict[str, Record]:
    """Grade all; writes OUT/STUDENT/results.json as they come, and OUT/grades.csv.

    Submissions of the same files are graded once.
    """
    records: dict[str, Record] = {}
    alike: dict[str, list[str]] = {}
    for student, folder in submissions.items():
        alike.setdefault(_fingerprint(folder), []).append(student)
    launchers: SimpleQueue[Launcher] = SimpleQueue()
    for _ in range(jobs := min(jobs, len(alike))):
        launchers.put(start_launcher(assignment))

    def grade(folder: Path) -> Record:
        launcher = launchers.get()
        try:
            return grade_submission(folder, assignment, launcher, limits)
        finally:
            launchers.put(launcher)

    try:
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            started = {
                pool.submit(grade, submissions[students[0]]): students
                for students in alike.values()
            }
            for done in as_completed(started):
                for student in started[done]:
                    records[student] = done.result()
                    write_json(make_folder(out / student) / "results.json", records[student])
                    report(student, records[student])
    finally:
        for _ in range(jobs):
            launchers.get().close()
    records = {student: records[student] for student in submissions}
    write_whole(out / "grades.csv", _table(records, assignment["points"]))
    return records


def _fingerprint(folder: Path) -> str:
    """The same for the same files; the folder's own name where they cannot be read."""
    try:
        known = hashlib.sha256()
        for name, content in read_submission(folder).items():
            known.update(f"{name!r} {len(content)}\n".encode() + content)
    except (UserError, OSError):
        return str(folder)
    return known.hexdigest()


def _table(records: Mapping[str, Record], points: Mapping[str, float]) -> str:
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
    with closing(start_launcher(assignment)) as launcher:
        record = grade_submission(submission, assignment, launcher, SandboxLimits())
    write_json(results, record)


if __name__ == "__main__":
    main()
