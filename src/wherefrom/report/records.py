"""What a run folder has written down about itself, read for a report and never computed anew.

A run may be older than some of its records, or come from a stranger: what is missing is None or
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

    metrics, scratch: training as it went, of the model and of its twin that read nothing;
    judgement: with the curves where judgement.json has them; without: twins that did not read one
    person's documents; crossing: twins.json of the folder that this run is a reader of.
    """

    folder: Path
    info: dict[str, Any]
    metrics: Rows
    scratch: Rows
    scratch_info: dict[str, Any]
    judgement: dict[str, Any] | None
    judged: Rows
    people: Rows
    calibration: dict[str, Any] | None
    origins: dict[str, Any] | None
    without: Rows
    crossing: dict[str, Any] | None
    problems: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.folder.resolve().name


def read_records(folder: str | Path) -> Records:
    """The records of a finished run, or a sentence about why there can be no report."""
    folder = Path(folder)
    if not (folder / "run.json").is_file():
        raise UserError(f"{folder} is not a run: it holds no run.json.")
    problems: list[str] = []
    info = _record(folder / "run.json", problems)
    if info is None:
        raise UserError(f"{folder / 'run.json'} is not the record of a run: it is broken.")
    if info.get("status") != "finished":
        raise UserError(
            f"the run {folder} has not finished training, so there is nothing to report; go on "
            "with it by repeating its command with --resume."
        )
    twin = folder / "twins" / "scratch"
    judgement = _judgement(folder, info, problems)
    return Records(
        folder=folder,
        info=info,
        metrics=_lines(folder / "metrics.jsonl", problems),
        scratch=_lines(twin / "metrics.jsonl", problems),
        scratch_info=_record(twin / "run.json", problems) or {},
        judgement=judgement,
        judged=_lines(folder / "judged.jsonl", problems) if judgement else (),
        people=_lines(folder / "subjects.jsonl", problems),
        calibration=_record(folder / "calibration.json", problems),
        origins=_record(folder / "origins.json", problems),
        without=_without(folder, problems),
        crossing=_crossing(folder, problems),
        problems=tuple(problems),
    )


def _judgement(folder: Path, info: dict[str, Any], problems: list[str]) -> dict[str, Any] | None:
    """The numbers on the verdicts, if they are of these weights."""
    short = info.get("judgement")
    whole = _record(folder / "judgement.json", problems)
    for found in (whole, short):
        if not isinstance(found, dict) or not isinstance(found.get("scores"), dict):
            continue
        if "guarantees" not in found:
            problems.append(
                "the judgement in the folder was written by an earlier version, and is left out; "
                "make it anew with `wherefrom judge`."
            )
            return None
        if found.get("weights_sha256") in (None, info.get("sha256")):
            return found
        problems.append(
            "the judgement in the folder is of other weights than the run's, and is left out; "
            "make it anew with `wherefrom judge`."
        )
        return None
    return None


def _without(folder: Path, problems: list[str]) -> Rows:
    """What was found by the twins that did not read of one person."""
    paths = sorted((folder / "twins").glob("without-*/without.json"))
    found = (_record(path, problems) for path in paths)
    return tuple(record for record in found if record is not None)


def _crossing(folder: Path, problems: list[str]) -> dict[str, Any] | None:
    """The cross-pretraining that this run is one of the two readers of."""
    here = folder.resolve()
    found = _record(here.parent / "twins.json", problems)
    if found is None:
        return None
    readers = found.get("readers")
    names = [one.get("folder") for one in readers if isinstance(one, dict)] if readers else []
    return found if here.name in names else None


def _record(path: Path, problems: list[str]) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        # NaN and infinity are no numbers to report
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError, RecursionError):
        problems.append(f"{path.name} is broken and was left out.")
        return None
    if not isinstance(found, dict):
        problems.append(f"{path.name} is not what was written there and was left out.")
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
            bad += 1
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            bad += 1
    if bad:
        problems.append(f"{path.name} has {bad} broken lines, which were left out.")
    return tuple(rows)
