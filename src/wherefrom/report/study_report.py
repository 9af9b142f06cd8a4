"""The report on a study, as a dictionary, from the records of its run alone.

Nothing is asked of the model again: what a run has not recorded is said to be missing, with the
command that makes it. A run may be older than some of its records, or come from somebody else: a
record that is broken is named in a note. `render` turns the dictionary into HTML or Markdown.
"""

from __future__ import annotations

import json
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, UndefinedError

from wherefrom.errors import UserError
from wherefrom.report import sections
from wherefrom.report.figures import as_record
from wherefrom.training.run_folder import AUDIT

FORMAT = 2
OF_AUDITS = ("telling", "grades")  # questions that are asked of a model that others trained
WORDS = tomllib.loads((files("wherefrom.report") / "sections.toml").read_text(encoding="utf-8"))
# what reading a record of an unknown shape may end in
ODD = (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError,
       UndefinedError)  # fmt: skip
Rows = tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Records:
    """What one finished run has recorded about itself; None or empty where there is nothing.

    metrics, scratch: the training of the model and of its twin that read nothing; predictions: what
    each answers to the dev questions; without: twins
    that did not read one subject's documents; crossing: twins.json, of two twins without
    half of the judged people each.
    """

    folder: Path
    info: dict[str, Any]
    metrics: Rows
    predictions: Rows
    scratch: Rows
    judgement: dict[str, Any] | None
    judged: Rows
    subjects: Rows
    calibration: dict[str, Any] | None
    origins: dict[str, Any] | None
    without: Rows
    crossing: dict[str, Any] | None
    problems: tuple[str, ...]

    @property
    def audited(self) -> str:
        """The model that others trained, of an audit; "" of a run of ours."""
        return str(self.info.get("model", "")) if self.info.get("kind") == AUDIT else ""


def make_report(run_folder: str | Path) -> dict[str, Any]:
    """The report on a finished run; UserError for what is no run or has not finished."""
    records = read_records(run_folder)
    made, facts = [], {}
    for words in WORDS["section"]:
        section, found = _write_section(words, records)
        if found != {}:
            made.append(section)
            facts[section["id"]] = found
    notes = [records.info.get("notes"), (records.judgement or {}).get("notes"), records.problems]
    sentences = [str(note) for each in notes if isinstance(each, list | tuple) for note in each]
    said = {sentence for section in made for sentence in section["more"]}
    return {
        "format": FORMAT,
        "run": str(records.folder),
        "title": records.folder.resolve().name,
        "warning": (facts.get("recall") or {}).get("warning", ""),
        "sentence": next(one["sentence"] for one in made if one["id"] == "made"),
        "headlines": _write_headlines(facts),
        "questions": [
            {
                "question": section["question"],
                "answer": section["sentence"],
                "answered": not section["missing"],
                "section": section["id"],
            }
            for section in made
            if section["question"] is not None
            and (not records.audited or section["id"] in OF_AUDITS)
        ],
        "notes": [note for note in dict.fromkeys(sentences) if note not in said],
        "sections": made,
    }


def read_report(run_folder: str | Path) -> dict[str, Any] | None:
    """The report, or None where there can be none yet."""
    try:
        return make_report(run_folder)
    except UserError:
        return None


# ---- facts into words


def show_cell(value: Any, form: str) -> str:
    """A cell as a person reads it; a dash where there is nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if form == "percent":
        return f"{100 * value:.1f} %"
    if form == "count" or (form == "number" and isinstance(value, int)):
        return f"{value:,.0f}"
    if form == "number":
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3f}"
    return f"{value:g}"


def show_interval(metric: dict[str, Any], level: float, form: str = "number") -> str:
    """' (95 % interval 0.91 to 0.95)', or nothing where there is none."""
    if metric.get("low") is None or metric.get("high") is None:
        return ""
    low, high = (show_cell(float(metric[key]), form) for key in ("low", "high"))
    return f" ({100 * level:.0f} % interval {low} to {high})"


TEMPLATES = Environment(undefined=StrictUndefined)  # of plain text; `render` escapes it
TEMPLATES.filters |= {
    "cell": show_cell,
    "count": "{:,.0f}".format,
    "interval": show_interval,
    "percent": lambda value: show_cell(value, "percent"),
    "plural": sections.plural,
}


def _write(template: str, facts: dict[str, Any]) -> list[str]:
    """The lines of a rendered template that have anything on them."""
    lines = TEMPLATES.from_string(template).render(facts).splitlines()
    return [" ".join(line.split()) for line in lines if line.strip()]


def _write_line(template: str, facts: dict[str, Any]) -> str:
    return " ".join(_write(template, facts))


def _write_section(words: dict[str, Any], records: Records) -> tuple[dict[str, Any], Any]:
    """The section as a dictionary, and its facts: None where it is missing, {} if left out."""
    section: dict[str, Any] = {
        **{key: words.get(key) for key in ("id", "title", "question")},
        "sentence": words.get("missing", WORDS["no_judgement"]),
        "missing": True,
        "more": [],
        "figure": None,
        "caption": "",
        "table": None,
        "examples": [],
    }
    try:
        if (needed := words.get("needs")) and getattr(records, needed) is None:
            return section, None if needed == "judgement" else {}
        facts = getattr(sections, words.get("facts", words["id"]))(records)
        if facts:
            section |= _fill_section(words, facts)
    except ODD as odd:  # records of a shape that this version does not know cost this section
        reason = f"{type(odd).__name__}: {odd}"
        section["sentence"] = (
            "The run's records on this cannot be read: they are of another version, or broken "
            f"({reason})."
        )
        facts = None
    return section, facts


def _fill_section(words: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    table = None
    if "rows" in facts and (facts["rows"] or not words.get("folded")):
        table = {
            "columns": [_write_line(title, facts) for title in words["columns"]],
            "formats": list(words["columns"].values()),
            "rows": facts["rows"],
            "folded": words.get("folded", False),  # it is long, and shown on request
        }
    return {
        "sentence": _write_line(words["sentence"], facts),
        "missing": False,
        "more": _write(words.get("more", ""), facts),
        "figure": as_record(facts["figure"]) if facts.get("figure") else None,
        "caption": _write_line(words.get("caption", ""), facts),
        "table": table,
        "examples": facts.get("examples", []),
    }


def _write_headlines(facts: dict[str, Any]) -> list[dict[str, str]]:
    """The numbers that are seen first; what its section does not give is left out."""
    found = []
    for words in WORDS["headline"]:
        here = facts.get(words["section"])
        with suppress(*ODD):
            if here and (value := _write_line(words["value"], here)):
                about = _write_line(words["about"], here)
                found.append({"value": value, "label": words["label"], "about": about})
    return found


# ---- records


def read_records(folder: str | Path) -> Records:
    """The records of a finished run; UserError for what is no run or has not finished."""
    folder = Path(folder)
    problems: list[str] = []

    def record(path: Path) -> dict[str, Any] | None:
        (found,) = _objects(path, [path.read_bytes()], problems) if path.is_file() else [None]
        return found

    def lines(path: Path) -> Rows:
        raw = path.read_bytes().splitlines() if path.is_file() else []
        return tuple(row for row in _objects(path, raw, problems) if row is not None)

    if not (folder / "run.json").is_file():
        raise UserError(f"{folder} is not a run: it holds no run.json.")
    info = record(folder / "run.json")
    if info is None:
        raise UserError(f"{folder / 'run.json'} is not the record of a run: it is broken.")
    if info.get("status") != "finished":
        raise UserError(
            f"the run {folder} has not finished training, so there is nothing to report; continue "
            "it by repeating its command with --resume."
        )
    judgement = record(folder / "judgement.json")
    if judgement and judgement.get("weights_sha256") not in (None, info.get("sha256")):
        judgement = None
        problems.append(
            "the judgement in the folder is of other weights than the run's, and is left out; "
            "make it again with `wherefrom judge`."
        )
    without = [record(path) for path in sorted(folder.glob("twins/without-*/without.json"))]
    return Records(
        folder=folder,
        info=info,
        metrics=lines(folder / "metrics.jsonl"),
        predictions=lines(folder / "predictions" / "dev.jsonl"),
        scratch=lines(folder / "twins" / "scratch" / "metrics.jsonl"),
        judgement=judgement,
        judged=lines(folder / "judged.jsonl") if judgement else (),
        subjects=lines(folder / "subjects.jsonl"),
        calibration=record(folder / "calibration.json"),
        # what `wherefrom names` found, unless the study asked itself
        origins=record(folder / "origins.json") or record(folder / "names.json"),
        without=tuple(one for one in without if one is not None),
        crossing=record(folder / "twins" / "twins.json"),
        problems=tuple(problems),
    )


def _objects(path: Path, texts: list[bytes], problems: list[str]) -> list[dict[str, Any] | None]:
    """The JSON objects of a file; None, and a note, for what is broken. NaN is no number."""
    found: list[dict[str, Any] | None] = []
    for text in texts:
        made = None
        with suppress(ValueError, RecursionError):
            made = json.loads(text, parse_constant=lambda _: None)
        found.append(made if isinstance(made, dict) else None)
    if bad := found.count(None):
        what = f"{bad} broken line{'s' if bad > 1 else ''}" if path.suffix == ".jsonl" else "errors"
        problems.append(f"{path.name} has {what}, left out here.")
    return found
