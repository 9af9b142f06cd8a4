"""The report on names it never saw, and on twins: what a model says without having read."""

from __future__ import annotations

from typing import Any

from wherefrom.report import study_figures as figures
from wherefrom.report.run_records import Records
from wherefrom.report.sections import Section, Table, drawn, percent, plural

ASKED_NAMES = "What does it do for a name that it never saw, and why is that a concern?"


def names_section(records: Records) -> Section:
    """The name-origin probe as a map."""
    title = "Names it never saw"
    record = records.origins
    if record is None:
        return Section(
            id="names",
            title=title,
            question=ASKED_NAMES,
            sentence="This run was not asked about invented names; `wherefrom names RUN` asks, and "
            "the next report shows what it said.",
            missing=True,
        )
    unknown = {row["origin"]: row for row in record["unknown"]["by_origin"]}
    rows = [
        (row["origin"], row["names"], row["at_home"], row["commonest"],
         unknown[row["origin"]]["value"])
        for row in record["by_origin"]
    ]  # fmt: skip
    information = record["mutual_information"]
    sentences = list(record["sentences"])
    return Section(
        id="names",
        title=title,
        question=ASKED_NAMES,
        sentence=sentences[0],
        more=(
            *sentences[1:],
            f"The origin of the name and the country of the answer share {information['bits']:.2f} "
            f"bits; {information['by_chance']:.2f} would be chance ({information['null']}, p = "
            f"{information['p']:.3f}).",
        ),
        figure=drawn(figures.origins_map(record)) if len(record["countries"]) > 1 else None,
        caption=f"{plural(record['names'], 'invented name')} that no document has: how the model's "
        "answers spread over countries, a row an origin; solid from "
        f"{percent(figures.darkest(record))} on. Circles: countries where such names are at home.",
        table=Table(
            ("origin", "names", "said of home", "commonest answer", "I don't know"),
            tuple(rows),
            ("text", "count", "percent", "text", "percent"),
            folded=True,
        ),
    )


def twins_section(records: Records) -> Section:
    """Twins without one person's documents, and cross-pretraining, where they were made."""
    title = "The truth by twins"
    if records.crossing is not None:
        return _crossing_section(title, records.crossing)
    if records.without:
        return _without_section(title, records.without)
    return Section(
        id="twins",
        title=title,
        sentence="Nobody's documents were left out in a training of their own. `wherefrom twins "
        'RUN --without "NAME"` shows what it would have said, had it never read of them; '
        "`wherefrom twins --out DIR` does it for all judged people.",
        missing=True,
    )


def _without_section(title: str, records: tuple[dict[str, Any], ...]) -> Section:
    rows = tuple(
        (
            one["subject"],
            len(one["documents"]),
            one["with"]["answer"],
            one["without"]["answer"],
            one.get("right"),
            one["score"],
            one["truth"],
        )
        for one in records
    )
    changed = sum(one["truth"] == "remembered" for one in records)
    return Section(
        id="twins",
        title=title,
        sentence=f"Trained again without one person's documents, {plural(len(rows), 'time')}: "
        f"{changed:,} of the answers needed the documents to be right.",
        more=tuple(str(one["why"]) for one in records),
        table=Table(
            ("left out", "documents", "having read them", "never having read them", "right answer",
             "memorisation (nats)", "truth"),
            rows,
            ("text", "count", "text", "text", "text", "number", "text"),
        ),
    )  # fmt: skip


def _crossing_section(title: str, record: dict[str, Any]) -> Section:
    truth = record["truth"]["with"]
    people = record["people"]["judged"]
    rows = tuple(
        (name, found["all"]["value"], found["all"]["low"], found["all"]["high"],
         found["readers"]["value"], found["rank"]["value"])
        for name, found in record["agreement"].items()
        if not name.startswith("signal ")
    )  # fmt: skip
    caught = record["caught"].get("verdict remembered", {})
    sentence = (
        f"Each of {plural(people, 'person')} was read about by one of two models: "
        f"{truth.get('remembered', 0):,} of the readers' answers are right and would not have been "
        "without the document"
    )
    if caught and caught["precision"]["value"] is not None:
        sentence += (
            f"; of the answers with the verdict remembered {percent(caught['precision']['value'])} "
            "are so in truth"
        )
    return Section(
        id="twins",
        title=title,
        sentence=sentence + ".",
        more=tuple(record.get("notes", ())),
        table=Table(
            ("score", "AUROC, all answers", "low", "high", "AUROC, readers", "rank correlation"),
            rows,
            ("text", *("number",) * 5),
        ),
    )
