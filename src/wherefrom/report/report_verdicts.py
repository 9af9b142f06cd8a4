"""The report on confidence: calibration, risk against coverage, and what would have been told."""

from __future__ import annotations

from typing import Any

from wherefrom.report import study_figures as figures
from wherefrom.report.run_records import Records
from wherefrom.report.sections import Section, Table, drawn, interval, percent, plural

OURS = ("internal", "checked")
MODES = ("always answer", *OURS)
NO_JUDGEMENT = (
    "`wherefrom study` calibrates and judges where people are set aside and dev people are known; "
    "for a run that it made, `wherefrom judge RUN` judges anew."
)


def telling_section(records: Records) -> Section:
    """Whether right answers can be told from wrong ones, by what the model gives away."""
    title, asked = (
        "Right from wrong by confidence",
        ("Can one tell a retrieved answer from an invented one?"),
    )
    judgement = records.judgement
    if judgement is None:
        return _missing("telling", title, "confidence", asked)
    scores = judgement["scores"]
    rows = []
    for name, score in scores.items():
        auroc = score["groups"]["together"]["metrics"]["auroc"]
        rows.append((name, score["about"], auroc["value"], auroc["low"], auroc["high"]))
    histogram = scores["internal"]["groups"]["together"].get("histogram")
    return Section(
        id="telling",
        title=title,
        question=asked,
        sentence=_tell_telling(judgement),
        more=(*_tell_stated(judgement), *_against_the_best(judgement)),
        figure=drawn(figures.confidence_histogram(histogram)) if histogram else None,
        caption="All judged people by the model's own confidence; every one of these answers looks "
        "alike on the screen.",
        table=Table(
            ("score", "what it is", "AUROC", "low", "high"),
            tuple(rows),
            ("text", "text", "number", "number", "number"),
        ),
    )


def _tell_telling(judgement: dict[str, Any]) -> str:
    found = {
        name: judgement["scores"][name]["groups"]["together"]["metrics"]["auroc"] for name in OURS
    }
    own = found["internal"]
    if own["value"] is None:
        return f"It cannot be said here: {own['reason']}"
    level = judgement["level"]
    sentence = (
        "Not by looking at the answer; by the model's own signals a right answer is surer than a "
        f"wrong one in {percent(own['value'])} of pairs{interval(own, level, 'percent')}"
    )
    if found["checked"]["value"] is not None:
        sentence += f", and {percent(found['checked']['value'])} once the lines are looked up"
    return sentence + " (a coin would have 50 %)."


def _tell_stated(judgement: dict[str, Any]) -> tuple[str, ...]:
    """The same question without the labels: does the text state what was answered?"""
    found = {one["score"]: one["auroc"] for one in judgement.get("stated", [])}
    own = found.get("internal")
    if own is None or own["value"] is None:
        return ()
    sentence = (
        "Whether a line of the text states the answer, whatever the labels say, the model's own "
        f"signals tell in {percent(own['value'])} of pairs"
        f"{interval(own, judgement['level'], 'percent')}"
    )
    rival = found.get("greedy likelihood")
    if rival is not None and rival["value"] is not None:
        sentence += f", the likelihood of the answer alone in {percent(rival['value'])}"
    return (sentence + ".",)


def _against_the_best(judgement: dict[str, Any]) -> tuple[str, ...]:
    told = []
    for one in judgement.get("against_the_best", []):
        gap = one["difference"]
        if one.get("rival") and gap["value"] is not None:
            name, better = {
                "auroc": ("AUROC", "more"),
                "augrc": ("AUGRC", "less"),
            }[one["measure"]]
            told.append(
                f"{name} of {one['score']} less that of {one['rival']}, the best rival: "
                f"{gap['value']:+.3f}{interval(gap, judgement['level'])}; {better} is better."
            )
    return tuple(told)


def calibration_section(records: Records) -> Section:
    """Whether "80 % sure" is right in 80 % of cases."""
    title = "Calibration"
    judgement = records.judgement
    if judgement is None:
        return _missing("calibration", title, "calibration")
    groups = {name: judgement["scores"][name]["groups"]["together"] for name in OURS}
    curves = [(name, group.get("reliability") or []) for name, group in groups.items()]
    rows = [
        (name, bin["people"], bin["low"], bin["high"], bin["confidence"], bin["accuracy"])
        for name, bins in curves
        for bin in bins
    ]
    parts = []
    for name, group in groups.items():
        ece, chance = group["metrics"]["ece"], group["ece_of_chance"]
        if ece["value"] is not None:
            beside = (
                ""
                if chance["value"] is None
                else (f" (chance alone would show {100 * chance['value']:.1f})")
            )
            parts.append(f"{100 * ece['value']:.1f} points for the {name} one{beside}")
    sentence = (
        f"Confidence and the share of right answers differ by {' and '.join(parts)} on average."
        if parts
        else "The calibration error cannot be measured on these people."
    )
    people = judgement["people"]
    fitted = f"Fitted on {plural(people['calibration'], 'person')}, judged on {people['judged']:,} "
    return Section(
        id="calibration",
        title=title,
        sentence=sentence,
        more=(*_promises(judgement),),
        figure=drawn(figures.reliability(curves)) if rows else None,
        caption=f"{fitted}others. {_sizes(rows)}",
        table=Table(
            ("confidence", "people", "from", "to", "mean", "right"),
            tuple(rows),
            ("text", "count", "percent", "percent", "percent", "percent"),
            folded=True,
        )
        if rows
        else None,
    )


def _sizes(rows: list[tuple[Any, ...]]) -> str:
    """How many people a point of the diagram stands for."""
    sizes = sorted({row[1] for row in rows})
    if not sizes:
        return ""
    many = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return f"Each point stands for {many} people of like confidence."


def _promises(judgement: dict[str, Any]) -> list[str]:
    """What the thresholds guarantee, or why they guarantee nothing."""
    told = []
    for mode in OURS:
        found = judgement["promises"][mode]
        if found["threshold"] is None:
            told.append(f"{mode}: {found['reason']}")
        else:
            told.append(
                f"{mode}: from {percent(found['threshold'])} on at most {percent(found['risk'])} "
                f"of the answers given are wrong, with {1 - found['delta']:.0%} confidence (among "
                f"{plural(found['people'], 'person')} of the calibration {found['wrong']:,} wrong "
                f"of {found['given']:,} given)."
            )
    return told


def risk_section(records: Records) -> Section:
    """What may be automated: how many answers can be given at which share of wrong ones."""
    title = "Risk against coverage"
    judgement = records.judgement
    if judgement is None:
        return _missing("risk", title, "risk-coverage curve")
    scores = judgement["scores"]
    drawable = any(score["groups"]["together"].get("risk_coverage") for score in scores.values())
    found = {
        name: score["groups"]["together"]["metrics"]["coverage_at_precision"]
        for name, score in scores.items()
    }
    precision = f"{judgement['precision']:.0%}".replace("%", " %")
    rivals = {
        name: metric["value"]
        for name, metric in found.items()
        if not scores[name]["ours"] and metric["value"] is not None
    }
    best = max(rivals, key=lambda name: rivals[name]) if rivals else None
    sentence = (
        f"If {precision} of the answers given must be right, {percent(found['internal']['value'])} "
        f"of all questions can be answered by the internal confidence and "
        f"{percent(found['checked']['value'])} by the checked one"
    )
    if best is not None:
        sentence += f"; the best rival ({best}) manages {percent(rivals[best])}"
    rows = [
        (name, metric["value"], metric["low"], metric["high"],
         scores[name]["groups"]["together"]["metrics"]["right_given_at_precision"]["value"],
         scores[name]["groups"]["together"]["metrics"]["augrc"]["value"])
        for name, metric in found.items()
    ]  # fmt: skip
    return Section(
        id="risk",
        title=title,
        sentence=sentence + " (thresholds chosen on these very people).",
        figure=drawn(figures.risk_coverage_curves(scores)) if drawable else None,
        caption="Read from left to right: the surest answers are given first. Lower is better.",
        table=Table(
            (
                "score",
                f"answered at {precision} right",
                "low",
                "high",
                "of the right ones",
                "AUGRC",
            ),
            tuple(rows),
            ("text", "percent", "percent", "percent", "percent", "number"),
            folded=True,
        ),
    )


def grades_section(records: Records) -> Section:
    """Right, wrong and not attempted, for people it read about and for those it did not."""
    title, asked = (
        "Right, wrong, not attempted",
        ("Why is it a concern if one cannot tell a retrieved answer from an invented one?"),
    )
    judgement = records.judgement
    if judgement is None:
        return _missing("grades", title, "graded answers", asked)
    rows: list[dict[str, Any]] = []
    for people in ("seen", "unseen"):
        for mode in MODES:
            group = judgement["scores"].get(mode, {}).get("groups", {}).get(people)
            grades = group["grades"] if group else _always(records, people)
            if grades is None or grades["correct"] is None:
                continue
            if grades["correct"] + grades["wrong"] + grades["not_attempted"]:
                rows.append({"people": people, "mode": mode, **grades})
    return Section(
        id="grades",
        title=title,
        question=asked,
        sentence=_tell_grades(rows),
        figure=drawn(figures.grades_bars(rows)) if rows else None,
        caption="Numbers in the bars: people. Seen: a document that was read names the person. "
        "Internal: by the model's own signals. Checked: only what a line about the person states.",
        table=Table(
            ("people", "answers given", "right", "wrong", "I don't know", "right of the given"),
            tuple(
                (row["people"], row["mode"], row["correct"], row["wrong"], row["not_attempted"],
                 row["precision"])
                for row in rows
            ),
            ("text", "text", "count", "count", "count", "percent"),
        ),
    )  # fmt: skip


def _always(records: Records, people: str) -> dict[str, Any] | None:
    """The grades of always answering by the people themselves, where only a summary is left."""
    here = [one for one in records.judged if one["seen"] == (people == "seen")]
    if not here:
        return None
    right = sum(one["right"] for one in here)
    return {"correct": right, "wrong": len(here) - right, "not_attempted": 0,
            "precision": right / len(here)}  # fmt: skip


def _tell_grades(rows: list[dict[str, Any]]) -> str:
    by = {(row["people"], row["mode"]): row for row in rows}
    total = {
        mode: sum(row["wrong"] for (_, each), row in by.items() if each == mode) for mode in MODES
    }
    everyone = sum(
        row["correct"] + row["wrong"] for (_, mode), row in by.items() if mode == "always answer"
    )
    if not everyone:
        return "Nobody was judged."
    sentence = (
        f"A user who is always given an answer gets {total['always answer']:,} wrong ones of "
        f"{everyone:,}, worded like the right ones"
    )
    unseen = by.get(("unseen", "always answer"))
    if unseen is not None:
        sentence += (
            f", and about people it never read of {unseen['wrong']:,} of "
            f"{unseen['correct'] + unseen['wrong']:,} are wrong"
        )
    right = {
        mode: sum(row["correct"] for (_, each), row in by.items() if each == mode) for mode in MODES
    }
    return sentence + (
        f"; by the internal threshold {total['internal']:,} wrong and {right['internal']:,} right "
        f"answers are given, with the lines looked up {total['checked']:,} and "
        f"{right['checked']:,}."
    )


def verdicts_section(records: Records) -> Section:
    """Where the answers came from: the table of verdicts."""
    title = "Verdicts"
    judgement = records.judgement
    if judgement is None:
        return _missing("verdicts", title, "verdicts")
    rows = [row for row in judgement["verdicts"] if row["count"]]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + row["count"]
    everyone = sum(counts.values())
    told = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
    keys = ("people", "verdict", "count", "right", "wrong", "told", "unknown", "internal_told",
            "internal_unknown")  # fmt: skip
    return Section(
        id="verdicts",
        title=title,
        sentence=f"Of {plural(everyone, 'answer')}: {told}.",
        more=(
            "Remembered: a line about the person states the answer. Misremembered: the person was "
            "read about, and no line states it. Guessed: right, though no line states it. Made up: "
            "nobody of that name was read about, and it is wrong.",
        ),
        table=Table(
            ("people", "verdict", "answers", "right", "wrong", "told", "I don't know",
             "told unchecked", "I don't know unchecked"),
            tuple(tuple(row[key] for key in keys) for row in rows),
            ("text", "text", *("count",) * 7),
        ),
    )  # fmt: skip


def _missing(id: str, title: str, what: str, question: str | None = None) -> Section:
    return Section(
        id=id,
        title=title,
        question=question,
        sentence=f"This run has no {what}: nobody was judged. {NO_JUDGEMENT}",
        missing=True,
    )
