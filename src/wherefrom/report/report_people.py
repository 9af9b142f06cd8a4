"""The report on people: recall by documents and by place, examples of each verdict with lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from wherefrom.corpus.questions import read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.evidence import open_evidence
from wherefrom.provenance.proportions import rate
from wherefrom.provenance.support import Support, find_support
from wherefrom.report import study_figures as figures
from wherefrom.report.marks import mark
from wherefrom.report.run_records import Records
from wherefrom.report.sections import Section, Table, drawn, percent, plural
from wherefrom.storage import sha256_of

PLACES = 12
LINES = 3
REMEMBERED = "remembered"
VERDICTS = (REMEMBERED, "misremembered", "guessed", "made up")  # as judged.jsonl has them
ASKED_WHY = "Why does the pretrained model beat the one without pretraining?"


def documents_section(records: Records) -> Section:
    """Recall by how many documents were read about a person."""
    title = "By documents per person"
    judgement = records.judgement
    groups = [one for one in (judgement or {}).get("by_documents", []) if one["people"]]
    if not groups:
        return Section(
            id="documents",
            title=title,
            question=ASKED_WHY,
            sentence="This run does not tell recall by documents per person: nobody was judged, or "
            "it is older than that record; `wherefrom judge RUN` makes it for a study.",
            missing=True,
        )
    rows = [
        (str(one["documents"]), one["people"], one["recall"]["value"], one["recall"]["low"],
         one["recall"]["high"])
        for one in groups
    ]  # fmt: skip
    return Section(
        id="documents",
        title=title,
        question=ASKED_WHY,
        sentence=_tell_documents(records, groups),
        figure=drawn(figures.documents_bars(groups)),
        caption="Judged people by how many of the documents that were read are about them; "
        "whiskers are intervals over people.",
        table=Table(
            ("documents", "people", "recall", "low", "high"),
            tuple(rows),
            ("text", "count", "percent", "percent", "percent"),
        ),
    )


def _tell_documents(records: Records, groups: Sequence[dict[str, Any]]) -> str:
    def of(some: Sequence[dict[str, Any]]) -> tuple[float, int]:
        people = sum(one["people"] for one in some)
        right = sum(one["people"] * one["recall"]["value"] for one in some)
        return (right / people if people else 0.0), people

    read, many = of([one for one in groups if one["documents"] != 0])
    unread, none = of([one for one in groups if one["documents"] == 0])
    parts = []
    if many:
        parts.append(f"{percent(read)} of {plural(many, 'person')} it read a document about")
    if none:
        parts.append(f"{percent(unread)} of {none:,} it read none about")
    shown = many and read > unread
    why = "Because it has read about the people" if shown else "This run does not show why"
    sentence = f"{why}: it is right for {' and '.join(parts)}"
    right = [one for one in records.judged if one["right"]]
    if right:
        stated = sum(one["verdict"] == REMEMBERED for one in right)
        sentence += f"; a line of the text states {stated:,} of its {len(right):,} right answers"
    rows = records.info.get("results") or []
    twin = next((row for row in rows if row.get("name") == "no pretraining"), None)
    if twin is not None:
        sentence += (
            f", while the twin that learned the same questions and read nothing gets "
            f"{percent(twin['recall'])}"
        )
    return sentence + "."


def places_section(records: Records) -> Section:
    """Recall by the right place, the commonest first, and by whether it was a training answer."""
    noun = "place" if "where" in str(records.info.get("template")).lower() else "answer"
    title = f"By {noun}"
    asked, whom = _asked_places(records)
    if not asked:
        return Section(
            id="places",
            title=title,
            sentence=f"This run does not tell recall by {noun}: nobody was judged, and its dev "
            "questions are not where they were, or have changed.",
            missing=True,
        )
    people = Counter(place for place, _ in asked)
    right = Counter(place for place, is_right in asked if is_right)
    common = sorted(people, key=lambda place: (-people[place], place))[:PLACES]
    bars = [{"place": p, "right": right[p], "wrong": people[p] - right[p]} for p in common]
    rows = [(p, people[p], right[p], right[p] / people[p]) for p in common]
    others = sum(people.values()) - sum(people[p] for p in common)
    if others:
        hit = sum(right.values()) - sum(right[p] for p in common)
        rows.append((f"all {len(people) - len(common):,} other {noun}s", others, hit, hit / others))
    known = _trained_answers(records)
    sentence = f"{plural(len(people), f'right {noun}')} among {whom}"
    if known is None:
        sentence += "; which of them were answers in training is not written down in this run."
    else:
        split = []
        for inside, name in ((True, "an answer in training"), (False, "no answer in training")):
            here = [is_right for place, is_right in asked if (place in known) == inside]
            found = rate(sum(here), len(here))
            rows.append((name, len(here), sum(here), found["value"]))
            split.append(f"{percent(found['value'])} of the {len(here):,} whose {noun} was {name}")
        sentence += f": it is right for {' and '.join(split)}."
    return Section(
        id="places",
        title=title,
        sentence=sentence,
        figure=drawn(figures.places_bars(bars)),
        caption=f"The {plural(len(common), f'commonest {noun}')} among the right ones.",
        table=Table(
            (f"right {noun}", "people", "right", "recall"),
            tuple(rows),
            ("text", "count", "count", "percent"),
            folded=True,
        ),
    )


def _asked_places(records: Records) -> tuple[list[tuple[str, bool]], str]:
    """(right place, answered right) of the judged people it read about, or of the dev questions."""
    seen = [one for one in records.judged if one["seen"] and one["answer"] is not None]
    if seen:
        pairs = [(one["answer"], bool(one["right"])) for one in seen]
        return pairs, f"the {plural(len(seen), 'judged person')} it read about".replace(
            "judged persons", "judged people"
        )
    said = records.folder / "predictions" / "dev.txt"
    dev = _questions(records, records.info.get("dev"))
    if not dev or not said.is_file():
        return [], ""
    lines = said.read_text(encoding="utf-8").split("\n")[:-1]
    if len(lines) != len(dev):
        return [], ""
    pairs = [(right, line.strip() == right.strip()) for line, right in zip(lines, dev, strict=True)]
    return pairs, f"the {plural(len(dev), 'dev question')}"


def _trained_answers(records: Records) -> set[str] | None:
    """The answers of the training questions, as the calibration or the file has them."""
    reader = (records.calibration or {}).get("reader") or {}
    if reader.get("known_answers"):
        return set(reader["known_answers"])
    source = (records.info.get("data") or {}).get("questions")
    return set(_questions(records, source)) or None


def _questions(records: Records, source: Any) -> list[str]:
    """The answers in a file of questions, if it is still the one that was used."""
    if not isinstance(source, dict):
        return []
    path = Path(str(source.get("path")))
    for place in (path, records.folder / "world" / path.name):
        try:
            if place.is_file() and sha256_of(place) == source.get("sha256"):
                asked = read_questions(place, records.info.get("template"))
                return [question.answer or "" for question in asked.questions]
        except (OSError, UserError):
            continue
    return []


def examples_section(records: Records) -> Section:
    """The surest and the least sure answer of each verdict, with the lines that bear on it."""
    title = "Examples of each verdict"
    if not records.judged:
        return Section(
            id="examples",
            title=title,
            sentence="This run has no examples: nobody was judged.",
            missing=True,
        )
    chosen = [one for verdict in VERDICTS for one in _ends(records.judged, verdict)]
    supports, problem = _supports(records, chosen)
    examples = [_example(one, support) for one, support in zip(chosen, supports, strict=True)]
    return Section(
        id="examples",
        title=title,
        sentence="Of each verdict the answer that the model was surest of and the one that it was "
        "least sure of.",
        more=(problem,) if problem else (),
        examples=tuple(examples),
    )


def _ends(judged: Sequence[dict[str, Any]], verdict: str) -> list[dict[str, Any]]:
    here = [one for one in judged if one["verdict"] == verdict]
    here.sort(key=lambda one: (-one["internal_confidence"], one["subject"]))
    return here if len(here) < 2 else [here[0], here[-1]]


def _supports(
    records: Records, chosen: Sequence[dict[str, Any]]
) -> tuple[list[Support | None], str]:
    """What the text says of each, where the run still has its index; else a sentence."""
    corpus = (records.info.get("data") or {}).get("corpus") or {}
    known = ((records.calibration or {}).get("reader") or {}).get("known_answers") or []
    try:
        path = records.folder / "evidence.sqlite"
        with closing(open_evidence(path, corpus_sha256=corpus.get("sha256"))) as evidence:
            subjects = [one["subject"] for one in chosen]
            said = [one["said"] for one in chosen]
            return list(find_support(evidence, subjects, said, known, limit=LINES)), ""
    except UserError as problem:
        return [None] * len(chosen), f"The lines are not shown: {problem}"


def _example(one: dict[str, Any], support: Support | None) -> dict[str, Any]:
    keys = ("verdict", "question", "subject", "said", "answer", "right", "seen", "told",
            "told_internal", "confidence", "internal_confidence")  # fmt: skip
    lines = support.lines if support else ()
    similar = support.similar if support else ()
    return {
        **{key: one[key] for key in keys},
        "evidence": [
            {
                "line": line.line,
                "states_answer": line.states_answer,
                "text": line.text,
                "pieces": mark(line.text, one["subject"], one["said"], one["answer"] or ""),
            }
            for line in lines
        ],
        "similar": [
            {"line": line.line, "text": line.text, "subject": line.subject} for line in similar
        ],
    }
