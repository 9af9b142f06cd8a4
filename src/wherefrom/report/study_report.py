"""The report on a study, from the records of its run alone: a dictionary first, then three formats.

Nothing is asked of the model again and nothing is made up: what a run has not written down is said
to be missing, with the command that makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError
from wherefrom.report.records import Records, read_records
from wherefrom.report.sections import (
    Section,
    calibration_section,
    cost_section,
    curves_section,
    documents_section,
    examples_section,
    find_row,
    grades_section,
    made_section,
    names_section,
    percent,
    places_section,
    recall_rows,
    recall_section,
    risk_section,
    telling_section,
    twins_section,
    verdicts_section,
)

FORMAT = 1
# what reading a record of an unknown shape may end in
ODD = (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError)
# id, title, and what makes the section: the order in which a reader sees them
SECTIONS: tuple[tuple[str, str, Callable[[Records], Section]], ...] = (
    ("recall", "Recall against the baselines", recall_section),
    ("documents", "By documents per person", documents_section),
    ("places", "By place", places_section),
    ("telling", "Right from wrong by confidence", telling_section),
    ("grades", "Right, wrong, not attempted", grades_section),
    ("risk", "Risk against coverage", risk_section),
    ("calibration", "Calibration", calibration_section),
    ("verdicts", "Verdicts", verdicts_section),
    ("examples", "Examples of each verdict", examples_section),
    ("names", "Names it never saw", names_section),
    ("twins", "The truth by twins", twins_section),
    ("curves", "Training curves", curves_section),
    ("cost", "What mixing costs", cost_section),
    ("made", "What was trained on what", made_section),
)


@dataclass(frozen=True)
class Headline:
    """A number to be seen first, and what it is."""

    value: str
    label: str
    about: str = ""


@dataclass(frozen=True)
class Report:
    """All that is told about a run; `to_dict` is the JSON format, and the others show it."""

    run: Path
    title: str
    sentence: str
    headlines: tuple[Headline, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "run": str(self.run),
            "title": self.title,
            "sentence": self.sentence,
            "headlines": [vars(one) for one in self.headlines],
            "questions": [
                {
                    "question": section.question,
                    "answer": section.sentence,
                    "answered": not section.missing,
                    "section": section.id,
                }
                for section in self.sections
                if section.question is not None
            ],
            "notes": list(self.notes),
            "sections": [section.to_dict() for section in self.sections],
        }


def make_report(run_folder: str | Path) -> Report:
    """The report on a finished run; UserError for what is no run or has not finished."""
    records = read_records(run_folder)
    sections = tuple(_make(records, *each) for each in SECTIONS)
    notes = [*_sentences(records.info), *_sentences(records.judgement or {})]
    told = {sentence for section in sections for sentence in section.more}
    return Report(
        run=records.folder,
        title=records.name,
        sentence=next(one.sentence for one in sections if one.id == "made"),
        headlines=tuple(_headlines(records)),
        sections=sections,
        notes=tuple(n for n in dict.fromkeys([*notes, *records.problems]) if n not in told),
    )


def _sentences(record: dict[str, Any]) -> list[str]:
    notes = record.get("notes")
    return [str(note) for note in notes] if isinstance(notes, list) else []


def read_report(run_folder: str | Path) -> dict[str, Any] | None:
    """The report as a dictionary, or None where there can be none yet."""
    try:
        return make_report(run_folder).to_dict()
    except UserError:
        return None


def _make(records: Records, id: str, title: str, make: Callable[[Records], Section]) -> Section:
    """The section; records of a shape that this version does not know cost that section alone."""
    try:
        return make(records)
    except ODD as odd:
        return Section(
            id=id,
            title=title,
            sentence="The run's records on this cannot be read: they are of another version, or "
            f"broken ({type(odd).__name__}: {odd}).",
            missing=True,
        )


def _headlines(records: Records) -> list[Headline]:
    """What is seen first; a number that its record does not give is left out."""
    found: list[Headline] = []
    for count in (_count_recall, _count_confidence, _count_training):
        with suppress(*ODD):
            found += count(records)
    return found


def _count_recall(records: Records) -> list[Headline]:
    rows = recall_rows(records)
    found = []
    model, common = find_row(rows, "pretrained"), find_row(rows, "majority")
    if model is not None:
        about = f"{model['correct']:,} of {model['total']:,} answered exactly"
        found.append(Headline(percent(model["value"]), "recall", about))
    if common is not None:
        found.append(Headline(percent(common["value"]), "baseline", str(common["about"])))
    return found


def _count_confidence(records: Records) -> list[Headline]:
    if records.judgement is None:
        return []
    found = []
    scores = records.judgement["scores"]
    metrics = scores["internal"]["groups"]["together"]["metrics"]
    auroc, unknown = (metrics[key]["value"] for key in ("auroc", "unseen_unknown"))
    if auroc is not None:
        about = "right from wrong by the model's own signals"
        found.append(Headline(f"{auroc:.3f}", "AUROC", about))
    checked = scores["checked"]["groups"]["together"]["grades"]
    if checked["precision"] is not None:
        given = checked["correct"] + checked["wrong"]
        everyone = given + checked["not_attempted"]
        about = f"right of the {given:,} answers given, of {everyone:,}, with the lines looked up"
        found.append(Headline(percent(checked["precision"]), "precision", about))
    if unknown is not None:
        about = 'of people it never read of are told "I don\'t know" by its own signals'
        found.append(Headline(percent(unknown), "unseen", about))
    return found


def _count_training(records: Records) -> list[Headline]:
    seconds, tokens = (records.info[key] for key in ("seconds", "trained_tokens"))
    shown = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
    return [Headline(shown, "training", f"{tokens:,} tokens")]
