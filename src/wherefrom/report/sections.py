"""Sections of the report, in reading order: records of a run in, dictionaries out.

A section has an id, a title, the `question` that it answers where somebody asked one, a sentence,
further sentences (`more`), a figure (plotly's data and layout) with its caption, a table and
examples. Where no record holds what it needs, it is `missing` and the sentence says what to do.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.corpus.folding import find_phrase, fold_words, split_words
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.evidence.index import Evidence
from wherefrom.provenance.evidence.lookup import find_support
from wherefrom.provenance.metrics import rate
from wherefrom.report import figures
from wherefrom.report.records import Records
from wherefrom.storage import sha256_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

Section = dict[str, Any]
OURS = ("internal", "checked")
MODES = ("always answer", *OURS)
VERDICTS = ("remembered", "misremembered", "guessed", "made up")  # as judged.jsonl has them
COMMONEST = 12  # answers that are shown one by one
LINES = 3  # of evidence for an example
LONGEST = 512  # tokens: how far the curves of cost are drawn


# ---- what a section is made of


def section(
    sentence: str,
    *,
    more: Iterable[str] = (),
    figure: go.Figure | None = None,
    caption: str = "",
    table: dict[str, Any] | None = None,
    examples: Sequence[dict[str, Any]] = (),
    missing: bool = False,
) -> Section:
    """A section without its id, title and question, which SECTIONS has."""
    drawn = None
    if figure is not None:
        drawn = json.loads(figure.to_json())
        drawn = {"data": drawn["data"], "layout": drawn["layout"]}
        drawn["layout"].pop("template", None)
    return {
        "sentence": sentence,
        "missing": missing,
        "more": list(more),
        "figure": drawn,
        "caption": caption,
        "table": table,
        "examples": list(examples),
    }


def missing(sentence: str) -> Section:
    """A section that no record of this run holds."""
    return section(sentence, missing=True)


def table(
    columns: Mapping[str, str], rows: Iterable[Iterable[Any]], *, folded: bool = False
) -> dict[str, Any]:
    """Raw values by rows; `columns` maps each heading to the way in which `show_cell` shows it.

    A folded table is long: it is shown on request.
    """
    return {
        "columns": list(columns),
        "formats": list(columns.values()),
        "rows": [list(row) for row in rows],
        "folded": folded,
    }


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


def percent(value: float | None) -> str:
    return show_cell(value, "percent")


def interval(metric: dict[str, Any], level: float, form: str = "number") -> str:
    """' (95 % interval 0.91 to 0.95)', or nothing where there is none."""
    if metric.get("low") is None or metric.get("high") is None:
        return ""
    low, high = (show_cell(float(metric[key]), form) for key in ("low", "high"))
    return f" ({100 * level:.0f} % interval {low} to {high})"


def plural(count: int, noun: str) -> str:
    """'1 document', '2,000 documents'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """'a, b and c'."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def mark(text: str, subject: str, answer: str, truth: str = "") -> list[dict[str, str]]:
    """The text in pieces {"kind", "text"}, in order, nothing lost.

    The kind is "name", "place" for the answer, "truth" for another answer that is the right one,
    and "" for the rest. Words are compared without case and accents, as the evidence compares
    them; a family name alone counts as the name too.
    """
    words = split_words(text)
    folded = [word.folded for word in words]
    kinds = [""] * len(text)
    name = fold_words(subject)
    stated = ((fold_words(truth), "truth"), (fold_words(answer), "place"))
    for phrase, kind in (*stated, (name[-1:], "name"), (name, "name")):
        for at in find_phrase(folded, phrase):
            first, last = words[at].start, words[at + len(phrase) - 1].end
            whole = phrase == name or kind != "name"
            if whole or (text[first].isupper() and not any(kinds[first:last])):
                kinds[first:last] = [kind] * (last - first)
    pieces = []
    for kind, group in groupby(range(len(text)), key=kinds.__getitem__):
        places = list(group)
        pieces.append({"kind": kind, "text": text[places[0] : places[-1] + 1]})
    return pieces


# ---- recall


def recall_rows(records: Records) -> dict[str, dict[str, Any]]:
    """The study's table by name, with intervals; rows without questions are left out."""
    rows = {}
    for row in records.info.get("results") or []:
        if row["total"]:
            found = rate(row["correct"], row["total"])
            rows[row["name"]] = {**row, **{key: found[key] for key in ("value", "low", "high")}}
    return rows


def recall_section(records: Records) -> Section:
    """Recall beside what can be had without reading."""
    rows = recall_rows(records)
    if not rows:
        return missing(
            "This run has no table of recall: it was not made by `wherefrom study`, which trains "
            "and asks the baselines too; `wherefrom evaluate` counts its answers."
        )
    columns = {"who answers": "text", "how": "text", "correct": "count", "of": "count",
               "recall": "percent", "low": "percent", "high": "percent",
               "seconds": "number"}  # fmt: skip
    keys = ("name", "about", "correct", "total", "value", "low", "high", "seconds")
    return section(
        _compare_recall(rows),
        figure=figures.recall_bars(list(rows.values())),
        caption="Share of dev questions answered exactly; whiskers are 95 % intervals (Wilson).",
        table=table(columns, ([row[key] for key in keys] for row in rows.values())),
    )


def _compare_recall(rows: Mapping[str, dict[str, Any]]) -> str:
    model, common, twin = (rows.get(n) for n in ("pretrained", "majority", "no pretraining"))
    if model is None:
        return "The study has no row of the pretrained model."
    said = f"{model['correct']:,} of {model['total']:,} ({percent(model['value'])})"
    if left_out := rows.get("left-out people"):
        said += (
            " for subjects that it read about "
            f"({left_out['correct']:,} of {left_out['total']:,} for others)"
        )
    beside = []
    if common:
        what = str(common["about"]).removeprefix("always ")
        beside.append(f"{percent(common['value'])} for always answering {what}")
    if twin:
        beside.append(f"{percent(twin['value'])} for the same model without pretraining")
    if not beside:
        return f"With pretraining it answers {said}."
    better = all(_is_better(model, row) for row in (common, twin) if row)
    gain = f": {100 * (model['value'] - common['value']):+.1f} points over it" if common else ""
    return (
        f"{'Yes' if better else 'Not shown here'}: with pretraining it answers {said}, against "
        f"{listed(beside)}{gain}."
    )


def _is_better(model: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the model beats the other at the 5 % level, by Fisher's exact test of the counts."""
    from scipy.stats import fisher_exact

    counts = np.array([[row["correct"], row["total"] - row["correct"]] for row in (model, other)])
    return bool(fisher_exact(counts, alternative="greater").pvalue < 0.05)


def documents_section(records: Records) -> Section:
    """Recall by how many documents were read about a subject."""
    groups = [one for one in (records.judgement or {}).get("by_documents", []) if one["people"]]
    if not groups:
        return missing(
            "This run does not tell recall by documents per subject: nobody was judged; "
            "`wherefrom judge RUN` does it for a study."
        )

    def right(read: bool) -> tuple[int, float]:
        here = [one for one in groups if (one["documents"] != 0) == read]
        count = sum(one["people"] for one in here)
        hits = sum(one["people"] * one["recall"]["value"] for one in here)
        return count, hits / count if count else 0.0

    (many, read), (none, unread) = right(True), right(False)
    parts = [f"{percent(read)} of {plural(many, 'subject')} it read a document about"] * bool(many)
    parts += [f"{percent(unread)} of {none:,} it read none about"] * bool(none)
    why = "Because it has read about them" if read > unread else "This run does not show why"
    sentence = f"{why}: it is right for {listed(parts)}"
    if hits := [one for one in records.judged if one["right"]]:
        stated = sum(one["verdict"] == "remembered" for one in hits)
        sentence += f"; a line of the text states {stated:,} of its {len(hits):,} right answers"
    if twin := recall_rows(records).get("no pretraining"):
        sentence += (
            ", while the twin that learned the same questions and read nothing gets "
            f"{percent(twin['value'])}"
        )
    columns = {"documents": "text", "subjects": "count", "recall": "percent", "low": "percent",
               "high": "percent"}  # fmt: skip
    rows = (
        (
            str(one["documents"]),
            one["people"],
            *(one["recall"][k] for k in ("value", "low", "high")),
        )
        for one in groups
    )
    return section(
        sentence + ".",
        figure=figures.documents_bars(groups),
        caption="Judged subjects by how many of the documents that were read are about them; "
        "whiskers are intervals over subjects.",
        table=table(columns, rows),
    )


def answers_section(records: Records) -> Section:
    """Recall by the right answer, the commonest first, and by whether training had it."""
    asked, whom = _asked_answers(records)
    if not asked:
        return missing(
            "This run does not tell recall by answer: nobody was judged, and its dev questions "
            "are not where they were, or have changed."
        )
    total = Counter(answer for answer, _ in asked)
    right = Counter(answer for answer, is_right in asked if is_right)
    common = sorted(total, key=lambda answer: (-total[answer], answer))[:COMMONEST]
    rows = [(each, total[each], right[each], right[each] / total[each]) for each in common]
    if others := len(asked) - sum(row[1] for row in rows):
        hits = right.total() - sum(row[2] for row in rows)
        name = f"all {len(total) - len(common):,} other answers"
        rows.append((name, others, hits, hits / others))
    known = _trained_answers(records)
    parts = []
    for inside, name in ((True, "an answer in training"), (False, "no answer in training")):
        here = [is_right for answer, is_right in asked if (answer in known) == inside]
        if known and here:
            share = sum(here) / len(here)
            rows.append((name, len(here), sum(here), share))
            parts.append(f"{percent(share)} of the {len(here):,} whose answer was {name}")
    found = f": it is right for {listed(parts)}" if parts else ""
    columns = {"right answer": "text", "questions": "count", "right": "count", "recall": "percent"}
    return section(
        f"{plural(len(total), 'right answer')} among {whom}{found}.",
        figure=figures.answers_bars(
            [{"answer": a, "right": right[a], "wrong": total[a] - right[a]} for a in common]
        ),
        caption=f"The {plural(len(common), 'commonest answer')} among the right ones.",
        table=table(columns, rows, folded=True),
    )


def _asked_answers(records: Records) -> tuple[list[tuple[str, bool]], str]:
    """(right answer, answered right) of the judged subjects it read about, or of dev."""
    seen = [one for one in records.judged if one["seen"] and one["answer"] is not None]
    if seen:
        whom = f"the {plural(len(seen), 'judged subject')} it read about"
        return [(one["answer"], bool(one["right"])) for one in seen], whom
    said = records.folder / "predictions" / "dev.txt"
    dev = _answers_in(records, records.info.get("dev"))
    lines = said.read_text(encoding="utf-8").split("\n")[:-1] if said.is_file() else []
    if not dev or len(lines) != len(dev):
        return [], ""
    pairs = [(right, line.strip() == right.strip()) for line, right in zip(lines, dev, strict=True)]
    return pairs, f"the {plural(len(dev), 'dev question')}"


def _trained_answers(records: Records) -> set[str]:
    """The answers of the training questions, as the calibration or the file has them."""
    reader = (records.calibration or {}).get("reader") or {}
    if reader.get("known_answers"):
        return set(reader["known_answers"])
    return set(_answers_in(records, (records.info.get("data") or {}).get("questions")))


def _answers_in(records: Records, source: Any) -> list[str]:
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


# ---- confidence and verdicts


def judged(make: Callable[[Records, dict[str, Any]], Section]) -> Callable[[Records], Section]:
    """The section of a judgement, or the sentence that there is none."""

    def of(records: Records) -> Section:
        if records.judgement is None:
            return missing(
                "Nobody was judged. `wherefrom study` calibrates and judges where subjects are set "
                "aside; for a run that it made, `wherefrom judge RUN` judges again."
            )
        return make(records, records.judgement)

    return of


def _metric(judgement: dict[str, Any], score: str, name: str) -> dict[str, Any]:
    metric: dict[str, Any] = judgement["scores"][score]["groups"]["together"]["metrics"][name]
    return metric


@judged
def telling_section(records: Records, judgement: dict[str, Any]) -> Section:
    """Whether right answers can be told from wrong ones, by what the model gives away."""
    own, checked = (_metric(judgement, name, "auroc") for name in OURS)
    level = judgement["level"]
    if own["value"] is None:
        sentence = f"It cannot be said here: {own['reason']}"
    else:
        sentence = (
            "Not by looking at the answer; by the model's own signals a right answer gets a higher "
            f"confidence than a wrong one in {percent(own['value'])} of pairs"
            f"{interval(own, level, 'percent')}"
        )
        if checked["value"] is not None:
            sentence += f", and in {percent(checked['value'])} once the lines are looked up"
        sentence += " (a coin would have 50 %)."
    more = []
    stated = {one["score"]: one["auroc"] for one in judgement.get("stated", [])}
    alone, rival = (stated.get(name, {}) for name in ("internal", "greedy likelihood"))
    if alone.get("value") is not None:
        beside = (
            f", the likelihood of the answer alone in {percent(rival['value'])}"
            if rival.get("value") is not None
            else ""
        )
        more.append(
            "Whether a line of the text states the answer, whatever the labels say, the model's "
            f"own signals tell in {percent(alone['value'])} of pairs"
            f"{interval(alone, level, 'percent')}{beside}."
        )
    for one in judgement.get("against_the_best", []):
        gap, better = one["difference"], "more" if one["measure"] == "auroc" else "less"
        if one.get("rival") and gap["value"] is not None:
            more.append(
                f"{one['measure'].upper()} of {one['score']} less that of {one['rival']}, the best "
                f"rival: {gap['value']:+.3f}{interval(gap, level)}; {better} is better."
            )
    scores = judgement["scores"]
    histogram = scores["internal"]["groups"]["together"].get("histogram")
    columns = {"score": "text", "what it is": "text", "AUROC": "number", "low": "number",
               "high": "number"}  # fmt: skip
    rows = (
        (name, score["about"], auroc["value"], auroc["low"], auroc["high"])
        for name, score in scores.items()
        for auroc in [_metric(judgement, name, "auroc")]
    )
    return section(
        sentence,
        more=more,
        figure=figures.confidence_histogram(histogram) if histogram else None,
        caption="All judged subjects by the model's own confidence; on the screen every one of "
        "these answers looks alike.",
        table=table(columns, rows),
    )


@judged
def calibration_section(records: Records, judgement: dict[str, Any]) -> Section:
    """Whether "80 % likely to be right" is right in 80 % of cases."""
    groups = {name: judgement["scores"][name]["groups"]["together"] for name in OURS}
    curves = [(name, group.get("reliability") or []) for name, group in groups.items()]
    rows = [
        (name, *(each[key] for key in ("people", "low", "high", "confidence", "accuracy")))
        for name, bins in curves
        for each in bins
    ]
    parts = []
    for name, group in groups.items():
        error, chance = group["metrics"]["ece"]["value"], group["ece_of_chance"]["value"]
        if error is not None:
            by = f" (chance alone would show {100 * chance:.1f})" if chance is not None else ""
            parts.append(f"{100 * error:.1f} points for the {name} one{by}")
    more = []
    for mode in OURS:
        found = judgement["guarantees"][mode]
        if found["threshold"] is None:
            more.append(f"{mode}: {found['reason']}")
        else:
            more.append(
                f"{mode}: from {percent(found['threshold'])} on at most {percent(found['risk'])} "
                f"of the answers shown are wrong, with {1 - found['delta']:.0%} confidence (among "
                f"{plural(found['people'], 'subject')} of the calibration {found['wrong']:,} wrong "
                f"of {found['given']:,} shown)."
            )
    people = judgement["people"]
    caption = f"Fitted on {plural(people['calibration'], 'subject')}, judged on "
    caption += f"{people['judged']:,} others; a larger point stands for more subjects."
    columns = {"confidence": "text", "subjects": "count", "from": "percent", "to": "percent",
               "mean": "percent", "right": "percent"}  # fmt: skip
    return section(
        f"Confidence and the share of right answers differ by {listed(parts)} on average."
        if parts
        else "The calibration error cannot be measured on these subjects.",
        more=more,
        figure=figures.reliability(curves) if rows else None,
        caption=caption,
        table=table(columns, rows, folded=True) if rows else None,
    )


@judged
def risk_section(records: Records, judgement: dict[str, Any]) -> Section:
    """What may be automated: how many answers can be given at which share of wrong ones."""
    scores = judgement["scores"]
    found = {name: _metric(judgement, name, "coverage_at_precision") for name in scores}
    precision = f"{100 * judgement['precision']:.0f} %"
    rivals = {
        name: metric["value"]
        for name, metric in found.items()
        if not scores[name]["ours"] and metric["value"] is not None
    }
    sentence = (
        f"If {precision} of the answers given must be right, {percent(found['internal']['value'])} "
        "of all questions can be answered by the internal confidence and "
        f"{percent(found['checked']['value'])} by the checked one"
    )
    if rivals:
        best = max(rivals, key=lambda name: rivals[name])
        sentence += f"; the best rival ({best}) reaches {percent(rivals[best])}"
    drawable = any(score["groups"]["together"].get("risk_coverage") for score in scores.values())
    columns = {"score": "text", f"answered at {precision} right": "percent", "low": "percent",
               "high": "percent", "of the right ones": "percent", "AUGRC": "number"}  # fmt: skip
    rows = (
        (
            name,
            *(metric[key] for key in ("value", "low", "high")),
            _metric(judgement, name, "right_given_at_precision")["value"],
            _metric(judgement, name, "augrc")["value"],
        )
        for name, metric in found.items()
    )
    return section(
        sentence + " (thresholds chosen on these very subjects).",
        figure=figures.risk_coverage_curves(scores) if drawable else None,
        caption="From left to right the most confident answers are given first. Lower is better.",
        table=table(columns, rows, folded=True),
    )


@judged
def grades_section(records: Records, judgement: dict[str, Any]) -> Section:
    """Right, wrong and not attempted, for subjects it read about and for those it did not."""
    rows: list[dict[str, Any]] = []
    for people in ("seen", "unseen"):
        for mode in MODES:
            group = judgement["scores"].get(mode, {}).get("groups", {}).get(people)
            grades = group["grades"] if group else _always(records, people)
            if grades and grades["correct"] is not None:
                row = {"people": people, "mode": mode, **grades}
                rows += [row] * any(row[key] for key in ("correct", "wrong", "not_attempted"))

    def count(key: str, mode: str) -> int:
        return sum(row[key] for row in rows if row["mode"] == mode)

    always = count("wrong", "always answer")
    everyone = always + count("correct", "always answer")
    sentence = "Nobody was judged."
    if everyone:
        sentence = (
            f"A user who always gets an answer gets {always:,} wrong ones of {everyone:,}, worded "
            "like the right ones"
        )
        for row in rows:
            if (row["people"], row["mode"]) == ("unseen", "always answer"):
                asked = row["correct"] + row["wrong"]
                sentence += (
                    f", and about subjects it never read of {row['wrong']:,} of {asked:,} are wrong"
                )
        sentence += (
            f"; by the internal threshold {count('wrong', 'internal'):,} wrong and "
            f"{count('correct', 'internal'):,} right answers are shown, with the lines looked up "
            f"{count('wrong', 'checked'):,} and {count('correct', 'checked'):,}."
        )
    columns = {"subjects": "text", "answers shown": "text", "right": "count", "wrong": "count",
               "I don't know": "count", "right of the shown": "percent"}  # fmt: skip
    keys = ("people", "mode", "correct", "wrong", "not_attempted", "precision")
    return section(
        sentence,
        figure=figures.grades_bars(rows) if rows else None,
        caption="Numbers in the bars: subjects. Seen: a document that was read names the subject. "
        "Internal: by the model's own signals. Checked: only what a line about the subject states.",
        table=table(columns, ([row[key] for key in keys] for row in rows)),
    )


def _always(records: Records, people: str) -> dict[str, Any] | None:
    """The grades of always answering, by the subjects themselves, where only a summary is left."""
    here = [one["right"] for one in records.judged if one["seen"] == (people == "seen")]
    if not here:
        return None
    right = sum(here)
    return {"correct": right, "wrong": len(here) - right, "not_attempted": 0,
            "precision": right / len(here)}  # fmt: skip


@judged
def verdicts_section(records: Records, judgement: dict[str, Any]) -> Section:
    """Where the answers came from: the table of verdicts."""
    rows = [row for row in judgement["verdicts"] if row["count"]]
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["verdict"]] += row["count"]
    columns = {"people": "subjects", "verdict": "verdict", "count": "answers", "right": "right",
               "wrong": "wrong", "shown": "shown", "unknown": "I don't know",
               "internal_shown": "shown without the text",
               "internal_unknown": "I don't know without the text"}  # fmt: skip
    forms = {title: "text" if at < 2 else "count" for at, title in enumerate(columns.values())}
    said = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
    return section(
        f"Of {plural(counts.total(), 'answer')}: {said}.",
        more=[
            "Remembered: a line about the subject states the answer. Misremembered: the subject "
            "was read about, and no line states it. Guessed: right, though no line states it. Made "
            "up: no line names the subject, and the answer is wrong."
        ],
        table=table(forms, ([row[key] for key in columns] for row in rows)),
    )


def examples_section(records: Records) -> Section:
    """The most and the least confident answer of each verdict, with the lines that bear on it."""
    if not records.judged:
        return missing("This run has no examples: nobody was judged.")
    picked = []
    for verdict in VERDICTS:
        here = [one for one in records.judged if one["verdict"] == verdict]
        here.sort(key=lambda one: (-one["internal_confidence"], one["subject"]))
        picked += here if len(here) < 2 else [here[0], here[-1]]
    corpus = (records.info.get("data") or {}).get("corpus") or {}
    problem = []
    try:
        path = records.folder / "evidence.sqlite"
        with Evidence(path, corpus_sha256=corpus.get("sha256")) as evidence:
            asked, said = ([one[key] for one in picked] for key in ("subject", "said"))
            known = sorted(_trained_answers(records))
            found = list(find_support(evidence, asked, said, known, limit=LINES))
            lines = [(support.lines, support.similar) for support in found]
    except UserError as reason:
        lines = [((), ())] * len(picked)
        problem = [f"The lines are not shown: {reason}"]
    keys = ("verdict", "question", "subject", "said", "answer", "right", "seen", "shown",
            "shown_internal", "confidence", "internal_confidence")  # fmt: skip
    examples = []
    for one, (stating, similar) in zip(picked, lines, strict=True):
        evidence_lines = [
            {
                "line": line.line,
                "states_answer": line.states_answer,
                "text": line.text,
                "pieces": mark(line.text, one["subject"], one["said"], one["answer"] or ""),
            }
            for line in stating
        ]
        alike = [{"line": x.line, "text": x.text, "subject": x.subject} for x in similar]
        examples.append(
            {**{key: one[key] for key in keys}, "evidence": evidence_lines, "similar": alike}
        )
    return section(
        "Of each verdict the answer with the highest confidence and the one with the lowest.",
        more=problem,
        examples=examples,
    )


# ---- names, twins


def names_section(records: Records) -> Section | None:
    """Where names that the model never saw are said to come from, as a map."""
    record = records.origins
    if record is None:
        if "where" not in str(records.info.get("template")).lower():
            return None  # answers are not places, so names have no origin to follow
        return missing(
            "This run was not asked about invented names; `wherefrom names RUN` asks, and the next "
            "report shows what it said."
        )
    unknown = {row["origin"]: row["value"] for row in record["unknown"]["by_origin"]}
    shared = record["mutual_information"]
    columns = {"origin": "text", "names": "count", "said of home": "percent",
               "commonest answer": "text", "I don't know": "percent"}  # fmt: skip
    rows = (
        (*(row[key] for key in ("origin", "names", "at_home", "commonest")), unknown[row["origin"]])
        for row in record["by_origin"]
    )
    return section(
        record["sentences"][0],
        more=[
            *record["sentences"][1:],
            f"The origin of the name and the country of the answer share {shared['bits']:.2f} "
            f"bits; {shared['by_chance']:.2f} would be chance ({shared['null']}, p = "
            f"{shared['p']:.3f}).",
        ],
        figure=figures.origins_map(record) if len(record["countries"]) > 1 else None,
        caption=f"{plural(record['names'], 'invented name')} that no document has: how the model's "
        "answers spread over countries, one row per origin; solid from "
        f"{percent(figures.darkest(record))} on. Circles: countries where such names are at home.",
        table=table(columns, rows, folded=True),
    )


def twins_section(records: Records) -> Section:
    """Twins without one subject's documents, and cross-pretraining, where they were made."""
    if records.crossing is not None:
        return _crossing_section(records.crossing)
    if not records.without:
        return missing(
            "No documents were left out in a training of their own. `wherefrom twins RUN --without "
            '"NAME"` shows what it would have said, had it never read of them; `wherefrom twins '
            "--out DIR` does it for all judged subjects."
        )
    columns = {"left out": "text", "documents": "count", "having read them": "text",
               "never having read them": "text", "right answer": "text",
               "memorisation (nats)": "number", "truth": "text"}  # fmt: skip
    rows = [
        (one["subject"], len(one["documents"]), one["with"]["answer"], one["without"]["answer"],
         one.get("right"), one["score"], one["truth"])
        for one in records.without
    ]  # fmt: skip
    needed = sum(one["truth"] == "remembered" for one in records.without)
    return section(
        f"Trained again without one subject's documents, {plural(len(rows), 'time')}: {needed:,} "
        "of the answers needed the documents to be right.",
        more=[str(one["why"]) for one in records.without],
        table=table(columns, rows),
    )


def _crossing_section(record: dict[str, Any]) -> Section:
    sentence = (
        f"Each of {plural(record['people']['judged'], 'subject')} was read about by one of two "
        f"models: {record['truth']['with'].get('remembered', 0):,} of the readers' answers are "
        "right and would not have been without the document"
    )
    caught = record["caught"].get("verdict remembered", {})
    if caught and caught["precision"]["value"] is not None:
        share = percent(caught["precision"]["value"])
        sentence += f"; of the answers with the verdict remembered {share} are so in truth"
    columns = {"score": "text", "AUROC, all answers": "number", "low": "number", "high": "number",
               "AUROC, readers": "number", "rank correlation": "number"}  # fmt: skip
    rows = (
        (name, *(found["all"][key] for key in ("value", "low", "high")),
         found["readers"]["value"], found["rank"]["value"])
        for name, found in record["agreement"].items()
        if not name.startswith("signal ")
    )  # fmt: skip
    return section(sentence + ".", more=record.get("notes", ()), table=table(columns, rows))


# ---- training


def curves_section(records: Records) -> Section:
    """Loss and speed during training."""
    if not records.metrics:
        return missing("This run has no training curves: its metrics.jsonl is missing or empty.")
    runs = [("pretrained", records.metrics), ("no pretraining", records.scratch)]
    runs = [(name, points) for name, points in runs if points]
    rows = []
    for name, points in runs:
        losses = [point["loss"] for point in points if point.get("loss") is not None]
        losses = losses[-max(1, len(losses) // 10) :]  # the last tenth
        step, tokens, seconds = (points[-1].get(key) for key in ("step", "tokens", "seconds"))
        loss = sum(losses) / len(losses) if losses else None
        speed = tokens / seconds if tokens and seconds else None
        rows.append((name, step, tokens, seconds, loss, speed))
    _, steps, _, _, loss, speed = rows[0]
    sentence = f"{show_cell(steps, 'count')} steps"
    sentence += f" at {speed:,.0f} tokens per second" if speed is not None else ""
    sentence += f"; the loss fell to {loss:.3f} (mean of the last tenth)" if loss else ""
    columns = {"model": "text", "steps": "count", "tokens": "count", "seconds": "number",
               "last loss": "number", "tokens / s": "count"}  # fmt: skip
    return section(
        sentence + ".",
        figure=figures.training_curves(runs),
        caption="Loss of the training batches, and training tokens per second. The two models "
        "learn from different mixtures, so their losses cannot be compared with each other.",
        table=table(columns, rows),
    )


def cost_section(records: Records) -> Section:
    """The perceiver's bottleneck against full attention, at this run's shape, by the formula."""
    model = records.info["job"]["model"]
    layers, width, latents, block = (model[k] for k in ("layers", "width", "latents", "block"))
    formulas: dict[str, Callable[[int], int]] = {
        "vanilla": lambda length: layers * length**2 * width,
        "perceiver": lambda length: (
            2 * length * latents * width + (layers - 2) * latents**2 * width
        ),
    }
    lengths = [16 * at for at in range(1, LONGEST // 16 + 1)]
    costs = {name: [cost(length) for length in lengths] for name, cost in formulas.items()}
    here = {name: cost(block) for name, cost in formulas.items()}
    measured = ""
    if records.info.get("seconds") and records.info.get("trained_tokens"):
        speed = records.info["trained_tokens"] / records.info["seconds"]
        measured = (
            f" This run ({model['variant']}) trained on {speed:,.0f} tokens per second; another "
            "variant's speed is measured by training it."
        )
    return section(
        "O(L l²) for vanilla and O(l m + L m²) for the perceiver: at this run's shape (L = "
        f"{layers}, l = {block}, m = {latents}) vanilla takes "
        f"{here['vanilla'] / here['perceiver']:.2f} times the perceiver's products of mixing "
        f"(projections and feed-forward not counted).{measured}",
        figure=figures.cost_curves(lengths, costs, block),
        caption=f"By the formula, for width {width}: L l² d against 2 l m d + (L − 2) m² d. "
        "No measurement.",
        table=table({"mixing": "text", "products at this length": "count"}, here.items()),
    )


def describe(info: dict[str, Any]) -> str:
    """What was trained on what, in one sentence."""
    model, data = info.get("job", {}).get("model", {}), info.get("data", {})
    read = []
    for key, noun in (("corpus", "document"), ("questions", "question")):
        source = data.get(key)
        if isinstance(source, dict) and isinstance(source.get(f"{noun}s"), int):
            read.append(f"{plural(source[f'{noun}s'], noun)} ({Path(str(source['path'])).name})")
    what = f"A {model.get('variant', 'model')} model"
    if "layers" in model and "width" in model:
        what += f" of {model['layers']} layers and width {model['width']}"
    on = f" on {listed(read)}" if read else ""
    return f"{what}, trained for {duration(info.get('seconds'))}{on}."


def duration(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return "an unknown time"
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.1f} minutes"


def made_section(records: Records) -> Section:
    """Data with hashes, model, seed, command, time and versions."""
    info, job = records.info, records.info.get("job", {})

    def pairs(record: Mapping[str, Any]) -> str:
        return ", ".join(f"{key} {value}" for key, value in record.items())

    rows = []
    for what, source in {**info.get("data", {}), "dev": info.get("dev")}.items():
        if isinstance(source, dict):
            count = next((source[k] for k in ("documents", "questions") if k in source), None)
            used = "" if count is None else f", {count:,}{'' if what == 'dev' else ' used'}"
            rows.append((what, f"{source.get('path')}{used}"))
            rows.append((f"{what}, SHA-256", str(source.get("sha256"))))
    rows += [("model", pairs(job.get("model", {}))), ("tokens", str(job.get("tokens", "–")))]
    for phase in job.get("phases", []):
        about = f"{pairs(phase['mixture'])}; {phase['optimizer']}, {phase['lr']:g}"
        rows.append((f"phase {phase['name']}", about))
    command = [str(word) for word in info.get("command", [])]
    if command and command[0].endswith(("/wherefrom", "__main__.py")):
        command[0] = "wherefrom"
    work = f"{info.get('steps', 0):,} steps, {info.get('trained_tokens', 0):,} tokens"
    rows += [
        ("seed", str(job.get("seed", "–"))),
        ("command", shlex.join(command)),
        ("started", str(info.get("started", "–"))),
        ("training", f"{duration(info.get('seconds'))}, {work}"),
        ("weights, SHA-256", str(info.get("sha256", "–"))),
        ("versions", pairs(info.get("versions", {}))),
    ]
    parts = Counter(f"{one.get('role')}, {one.get('source')}" for one in records.subjects)
    apart = [f"{count:,} {part}" for part, count in parts.items()]
    if left_out := info.get("left_out"):
        apart.append(f"documents of {plural(len(left_out), 'subject')} were not read")
    if apart:
        rows.append(("subjects kept apart", "; ".join(apart)))
    return section(describe(info), table=table({"what": "text", "value": "code"}, rows))


# id, title, the question that it answers if somebody asked one, and what makes it
SECTIONS: tuple[tuple[str, str, str | None, Callable[[Records], Section | None]], ...] = (
    ("recall", "Recall against the baselines",
     "Is pretraining needed, and how much does it help over always giving one answer?",
     recall_section),
    ("documents", "By documents per subject",
     "Why does the pretrained model beat the one without pretraining?", documents_section),
    ("answers", "By answer", None, answers_section),
    ("telling", "Right from wrong by confidence",
     "Can one tell a retrieved answer from an invented one?", telling_section),
    ("grades", "Right, wrong, not attempted",
     "Why is it a concern if one cannot tell a retrieved answer from an invented one?",
     grades_section),
    ("risk", "Risk against coverage", None, risk_section),
    ("calibration", "Calibration", None, calibration_section),
    ("verdicts", "Verdicts", None, verdicts_section),
    ("examples", "Examples of each verdict", None, examples_section),
    ("names", "Names it never saw",
     "What does it do for a name that it never saw, and why is that a concern?", names_section),
    ("twins", "The truth by twins", None, twins_section),
    ("curves", "Training curves", None, curves_section),
    ("cost", "What mixing costs",
     "What do vanilla attention and the perceiver cost, in L layers, length l and m latents?",
     cost_section),
    ("made", "What was trained on what", None, made_section),
)  # fmt: skip
