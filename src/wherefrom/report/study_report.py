"""The report on a study, as a dictionary, from the records of its run alone.

Nothing is asked of the model again: what a run has not recorded is said to be missing, with the
command that makes it. `render` turns the dictionary into HTML or Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError
from wherefrom.report.records import Records, read_records
from wherefrom.report.sections import SECTIONS, missing, percent, recall_rows

FORMAT = 2
# what reading a record of an unknown shape may end in
ODD = (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError)


def make_report(run_folder: str | Path) -> dict[str, Any]:
    """The report on a finished run; UserError for what is no run or has not finished."""
    records = read_records(run_folder)
    sections = []
    for id, title, question, make in SECTIONS:
        try:
            found = make(records)
        except ODD as odd:  # records of a shape that this version does not know cost this section
            found = missing(
                "The run's records on this cannot be read: they are of another version, or broken "
                f"({type(odd).__name__}: {odd})."
            )
        if found is not None:
            sections.append({"id": id, "title": title, "question": question, **found})
    notes = [records.info.get("notes"), (records.judgement or {}).get("notes"), records.problems]
    sentences = [str(note) for each in notes if isinstance(each, list | tuple) for note in each]
    said = {sentence for section in sections for sentence in section["more"]}
    return {
        "format": FORMAT,
        "run": str(records.folder),
        "title": records.folder.resolve().name,
        "sentence": next(one["sentence"] for one in sections if one["id"] == "made"),
        "headlines": _headlines(records),
        "questions": [
            {
                "question": section["question"],
                "answer": section["sentence"],
                "answered": not section["missing"],
                "section": section["id"],
            }
            for section in sections
            if section["question"] is not None
        ],
        "notes": [note for note in dict.fromkeys(sentences) if note not in said],
        "sections": sections,
    }


def read_report(run_folder: str | Path) -> dict[str, Any] | None:
    """The report, or None where there can be none yet."""
    try:
        return make_report(run_folder)
    except UserError:
        return None


def _headlines(records: Records) -> list[dict[str, str]]:
    """The numbers that are seen first; what its record does not give is left out."""
    found = []
    for numbers in (_recall, _confidence, _training):
        with suppress(*ODD):
            for value, label, about in numbers(records):
                found.append({"value": value, "label": label, "about": about})
    return found


def _recall(records: Records) -> Iterator[tuple[str, str, str]]:
    rows = recall_rows(records)
    if model := rows.get("pretrained"):
        about = f"{model['correct']:,} of {model['total']:,} answered exactly"
        yield percent(model["value"]), "recall", about
    if common := rows.get("majority"):
        yield percent(common["value"]), "baseline", str(common["about"])


def _confidence(records: Records) -> Iterator[tuple[str, str, str]]:
    if records.judgement is None:
        return
    scores = records.judgement["scores"]
    metrics = scores["internal"]["groups"]["together"]["metrics"]
    auroc, unknown = (metrics[key]["value"] for key in ("auroc", "unseen_unknown"))
    if auroc is not None:
        yield f"{auroc:.3f}", "AUROC", "right from wrong by the model's own signals"
    checked = scores["checked"]["groups"]["together"]["grades"]
    if checked["precision"] is not None:
        shown = checked["correct"] + checked["wrong"]
        everyone = shown + checked["not_attempted"]
        about = f"right of the {shown:,} answers shown, of {everyone:,}, with the lines looked up"
        yield percent(checked["precision"]), "precision", about
    if unknown is not None:
        about = 'of subjects it never read of get "I don\'t know" by its own signals'
        yield percent(unknown), "unseen", about


def _training(records: Records) -> Iterator[tuple[str, str, str]]:
    seconds, tokens = (records.info[key] for key in ("seconds", "trained_tokens"))
    shown = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
    yield shown, "training", f"{tokens:,} tokens"
