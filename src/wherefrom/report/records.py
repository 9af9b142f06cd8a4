"""What a run folder has recorded about itself, read for a report and never computed again.

A run may be older than some of its records, or come from somebody else: what is missing is None or
empty, and what is broken is named in `problems`. No model is loaded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError

Rows = tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Records:
    """The records of one finished run.

    metrics, scratch: the training of the model and of its twin that read nothing; judgement: with
    the curves where judgement.json has them; without: twins that did not read one subject's
    documents; crossing: twins.json of the folder that this run is a reader of.
    """

    folder: Path
    info: dict[str, Any]
    metrics: Rows
    scratch: Rows
    judgement: dict[str, Any] | None
    judged: Rows
    subjects: Rows
    calibration: dict[str, Any] | None
    origins: dict[str, Any] | None
    without: Rows
    crossing: dict[str, Any] | None
    problems: tuple[str, ...]


def read_records(folder: str | Path) -> Records:
    """The records of a finished run; UserError for what is no run or has not finished."""
    folder = Path(folder)
    if not (folder / "run.json").is_file():
        raise UserError(f"{folder} is not a run: it holds no run.json.")
    problems: list[str] = []
    info = _record(folder / "run.json", problems)
    if info is None:
        raise UserError(f"{folder / 'run.json'} is not the record of a run: it is broken.")
    if info.get("status") != "finished":
        raise UserError(
            f"the run {folder} has not finished training, so there is nothing to report; continue "
            "it by repeating its command with --resume."
        )
    judgement = _judgement(folder, info, problems)
    without = [_record(p, problems) for p in sorted(folder.glob("twins/without-*/without.json"))]
    here = folder.resolve()
    crossing = _record(here.parent / "twins.json", problems) or {}
    readers = [one for one in crossing.get("readers") or () if isinstance(one, dict)]
    return Records(
        folder=folder,
        info=info,
        metrics=_lines(folder / "metrics.jsonl", problems),
        scratch=_lines(folder / "twins" / "scratch" / "metrics.jsonl", problems),
        judgement=judgement,
        judged=_lines(folder / "judged.jsonl", problems) if judgement else (),
        subjects=_lines(folder / "subjects.jsonl", problems),
        calibration=_record(folder / "calibration.json", problems),
        origins=_record(folder / "origins.json", problems)
        or _record(folder / "names.json", problems),  # of `wherefrom names`
        without=tuple(record for record in without if record is not None),
        crossing=crossing if here.name in [one.get("folder") for one in readers] else None,
        problems=tuple(problems),
    )


def _judgement(folder: Path, info: dict[str, Any], problems: list[str]) -> dict[str, Any] | None:
    """The numbers on the verdicts, if they are of these weights."""
    whole = _record(folder / "judgement.json", problems)
    for found in (whole, info.get("judgement")):
        if not isinstance(found, dict) or not isinstance(found.get("scores"), dict):
            continue
        if "guarantees" not in found:
            why = "was written by an earlier version"
        elif found.get("weights_sha256") not in (None, info.get("sha256")):
            why = "is of other weights than the run's"
        else:
            return found
        problems.append(
            f"the judgement in the folder {why}, and is left out; make it again with "
            "`wherefrom judge`."
        )
        return None
    return None


def _record(path: Path, problems: list[str]) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        # NaN and infinity are no numbers to report
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        problems.append(f"{path.name} is broken and was left out.")
        return None
    return found


def _lines(path: Path, problems: list[str]) -> Rows:
    if not path.is_file():
        return ()
    rows, bad = [], 0
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        problems.append(f"{path.name} cannot be read and was left out.")
        return ()
    for line in text.splitlines():
        try:
            row = json.loads(line, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            bad += 1
    if bad:
        problems.append(f"{path.name} has {bad} broken lines, which were left out.")
    return tuple(rows)
