"""What each section of the report is made from: records of a run in, facts out.

`sections.toml` has the sections in reading order with their words. The function of a section
returns the facts for these words, and with them `rows` of its table, a `figure`, `examples`. It
returns None if no record holds them, and {} if the section does not apply to the run.
"""

from __future__ import annotations

import shlex
from collections import Counter
from functools import reduce
from itertools import groupby
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wherefrom.corpus.database import RUN_DATABASE, Database
from wherefrom.corpus.folding import find_phrase, fold_words, split_words
from wherefrom.corpus.questions import SLOT
from wherefrom.errors import UserError
from wherefrom.provenance.evidence import Evidence, EvidenceLine, find_support
from wherefrom.provenance.metrics import share_with_interval
from wherefrom.report import figures
from wherefrom.training.forecast import describe_passes
from wherefrom.training.record import BaseJobRecord, JobRecord, check_file

if TYPE_CHECKING:
    from wherefrom.report.study_report import Records

Facts = dict[str, Any]
OUR_SCORES = ("internal", "checked")
ANSWERING_MODES = ("always answer", *OUR_SCORES)
GRADES = ("correct", "wrong", "not_attempted")
INTERVAL = "value low high"
VERDICTS = ("stated", "misremembered", "guessed", "made up")  # in the order of the report
# fields of `Judged` that an example has
EXAMPLE_FIELDS = (
    "verdict",
    "question",
    "subject",
    "said",
    "answer",
    "right",
    "seen",
    "shown",
    "shown_internal",
    "confidence",
    "internal_confidence",
    "from_text",
    "internal_from_text",
)
RELATION_ROWS = ("majority", "by name", "questions only", "model")


def pick(record: Facts, paths: str) -> list[Any]:
    """Values out of a nested record: "seed model.width" are its "seed" and the model's "width"."""
    return [reduce(getitem, path.split("."), record) for path in paths.split()]


def mark(text: str, subject: str, answer: str, truth: str = "") -> list[dict[str, str]]:
    """The whole text in pieces {"kind", "text"}, in order; accents and case are ignored.

    The kind is "name" (also for a family name alone), "place" for the answer, "truth" for the right
    answer if it is another one, and "" for all else.
    """
    words = split_words(text)
    folded = [word.folded for word in words]
    kinds = [""] * len(text)
    name = fold_words(subject)
    stated = ((fold_words(truth), "truth"), (fold_words(answer), "place"))
    for phrase, kind in (*stated, (name[-1:], "name"), (name, "name")):
        for i in find_phrase(folded, phrase):
            start, end = words[i].start, words[i + len(phrase) - 1].end
            whole = phrase == name or kind != "name"
            if whole or (text[start].isupper() and not any(kinds[start:end])):
                kinds[start:end] = [kind] * (end - start)
    return [
        {"kind": kind, "text": "".join(text[i] for i in places)}
        for kind, places in groupby(range(len(text)), key=kinds.__getitem__)
    ]


# ---- recall


def recall_rows(records: Records) -> dict[str, Facts]:
    """The study's table by name, with intervals; rows without questions are left out."""
    rows = {}
    for row in records.run.results:
        if row["total"]:
            interval = share_with_interval(row["correct"], row["total"])
            rows[row["name"]] = {**row, **{key: interval[key] for key in INTERVAL.split()}}
    return rows


def recall(records: Records) -> Facts | None:
    """Recall beside what can be had without reading."""
    rows = recall_rows(records)
    if not rows:
        return None
    model, common, twin = (rows.get(n) for n in ("model", "majority", "questions only"))
    tests = [_compare_pairs(records, name) for name in ("majority", "questions only")]
    beaten = bool(model and common and model["value"] <= common["value"])
    notes = records.run.notes
    columns = "name about correct total value low high seconds"
    return {
        "model": model,
        "common": common,
        "twin": twin,
        "left_out": rows.get("left-out subjects"),
        "paired": [test for test in tests if test],
        "better": all(test and test["p"] < 0.05 for test in tests),
        "beaten": beaten,
        # the study's own sentence on it, which has the likely reason
        "warning": next((n for n in notes if beaten and n.startswith("The model does not")), ""),
        "passes": describe_passes(records.run.passes),
        "rows": [pick(row, columns) for row in rows.values()],
        "figure": figures.recall_bars(list(rows.values())),
    }


def _compare_pairs(records: Records, other: str) -> Facts | None:
    """McNemar's exact test: which questions the model alone and which the other alone answers."""
    from scipy.stats import binomtest

    left_out = set(records.run.left_out)
    own, others = (records.dev_answers.get(name, {}) for name in ("model", other))
    right = [
        (bool(row["is_right"]), bool(others[question]["is_right"]))
        for question, row in own.items()
        if question in others and row["subject"] not in left_out and row["is_right"] is not None
    ]
    if not right:
        return None
    ours, theirs = right.count((True, False)), right.count((False, True))
    p = binomtest(ours, ours + theirs, alternative="greater").pvalue if ours + theirs else 1.0
    return {"other": other, "ours": ours, "theirs": theirs, "p": float(p)}


def knowledge(records: Records) -> Facts:
    """What a model of others knew before it was trained on the text, learned, and made up."""
    record = records.knowledge or {}
    columns = "question before after right origin without_its_lines"
    return {
        **record,
        "total": len(record["questions"]),
        "known": record["counts"]["known before"],
        "learned": record["counts"]["learned from the text"],
        "made_up": record["counts"]["made up"],
        "rows": [pick(row, columns) for row in record["questions"]],
    }


def relations(records: Records) -> Facts:
    """Recall, baselines and calibration of each kind of question, where there are several."""
    by_name = recall_rows(records)
    by_wording = {n: by_name[n].get("relations") or {} for n in RELATION_ROWS if n in by_name}
    if not by_wording.get("model"):
        return {}
    names, table = [], []

    def mean(rows: list[Facts], key: str) -> float | None:
        return sum(row[key] for row in rows) / len(rows) if rows else None

    for wording, pretrained in by_wording["model"].items():
        names.append(wording.replace(SLOT, "…"))
        judged = [row for row in records.judged if row["template"] == wording]
        shown = [row for row in judged if row["shown"]]
        recalls = {name: rows[wording]["recall"] for name, rows in by_wording.items()}
        confidence = [mean(judged, "internal_confidence"), mean(judged, "right")]
        precision = [len(shown), mean(shown, "right")]
        columns = [*map(recalls.get, RELATION_ROWS), *confidence, *precision]
        table.append([names[-1], pretrained["total"], *columns])
    shares = {n: [row["recall"] for row in rows.values()] for n, rows in by_wording.items()}
    ranked = sorted(zip(shares["model"], names, strict=True))
    colours = (figures.GREY, figures.VIOLET, figures.ORANGE, figures.BLUE)
    return {
        "count": len(names),
        "best": ranked[-1],
        "worst": ranked[0],
        "rows": table,
        "figure": figures.share_bars(names, shares, x="recall", colours=colours),
    }


def documents(records: Records) -> Facts | None:
    """Recall by how many documents were read about a subject."""
    judgement = records.judgement or {}
    groups = [group for group in judgement.get("by_documents", []) if group["subjects"]]
    if not groups:
        return None

    def recall_of(groups: list[Facts]) -> Facts:
        count = sum(group["subjects"] for group in groups)
        right = sum(group["subjects"] * group["recall"]["value"] for group in groups)
        return {"asked": count, "share": right / count if count else 0.0}

    right = [row for row in records.judged if row["right"]]
    columns = "subjects recall.value recall.low recall.high"
    read = recall_of([group for group in groups if group["documents"] != 0])
    unread = recall_of([group for group in groups if group["documents"] == 0])
    rows = recall_rows(records)
    model, common, twin = (rows.get(n) for n in ("model", "majority", "questions only"))
    # without reading: what it gets for subjects that it did not read about, or else what the twin
    # gets; a model that does not beat one fixed answer has nothing to explain
    rivals = [unread["share"]] if unread["asked"] else [twin["value"]] if twin else []
    beaten = bool(model and common and model["value"] <= common["value"])
    return {
        "read": read,
        "unread": unread,
        "because": bool(rivals) and read["share"] > max(rivals) and not beaten,
        "right": len(right),
        "stated": sum(row["verdict"] == "stated" for row in right),
        "twin": twin,
        "rows": [[str(group["documents"]), *pick(group, columns)] for group in groups],
        "figure": figures.documents_bars(groups),
    }


# ---- confidence and verdicts; each of these needs a judgement


def _scores(judgement: Facts) -> dict[str, Facts]:
    """Every score, with what was measured over all judged subjects."""
    scores = judgement["scores"].items()
    return {name: {**score, **score["groups"]["together"]} for name, score in scores}


def confidence(records: Records) -> Facts:
    """Whether right answers can be told from wrong ones, by what the model gives away."""
    judgement = records.judgement or {}
    scores, unmeasured = _scores(judgement), {"value": None}
    aurocs = {name: score["metrics"]["auroc"] for name, score in scores.items()}
    from_text = judgement["targets"]["from_text"]["internal"]["metrics"]
    columns = "about metrics.auroc.value metrics.auroc.low metrics.auroc.high "
    columns += "groups.seen.metrics.auroc.value within_relations.value metrics.ece.value"
    return {
        "own": aurocs["internal"],
        "checked": aurocs.get("checked", unmeasured),
        "unknown": scores["internal"]["metrics"]["unseen_unknown"],
        "level": judgement["level"],
        "alone": from_text.get("auroc", unmeasured),
        "relation_only": aurocs.get("relation only", unmeasured),
        "name_only": aurocs.get("name only", unmeasured),
        "seen": judgement.get("seen_from_unseen"),
        "from_text_by": judgement.get("from_text_by", "the reader"),
        "rows": [[name, *pick(score, columns)] for name, score in scores.items()],
        "figure": figures.confidence_histogram(scores["internal"]["histogram"]),
    }


def probabilities(records: Records) -> Facts:
    """Both probabilities, by the model alone and with the text: how good, and what they show."""
    if records.no_text:
        return {}
    targets, rows = (records.judgement or {})["targets"], []
    names = {"from_text": "is from the text", "right": "is right"}
    for target, name in names.items():
        for mode, record in targets[target].items():
            metrics = [record["metrics"].get(key, {}).get("value") for key in ("auroc", "ece")]
            shares = "used right_shown.value missed.value unseen_shown.value"
            rows.append([name, mode, *metrics, *pick(record, shares)])
    return {"internal": {name: targets[name]["internal"] for name in names}, "rows": rows}


def calibration(records: Records) -> Facts:
    """Whether "80 % likely to be right" is right in 80 % of cases."""
    judgement = records.judgement or {}
    ours = {name: score for name, score in _scores(judgement).items() if name in OUR_SCORES}
    curves = [(name, score["reliability"]) for name, score in ours.items()]
    keys = "subjects low high confidence accuracy"
    rows = [[name, *pick(one, keys)] for name, bins in curves for one in bins]
    errors = [
        {"mode": name, "error": error}
        for name, score in ours.items()
        if (error := score["metrics"]["ece"]["value"]) is not None
    ]
    return {
        "errors": errors,
        "guarantees": [(mode, judgement["guarantees"][mode]) for mode in ours],
        "error": "wrong" if judgement.get("guarantee") == "right" else "not from the text",
        "people": judgement["subjects"],
        "rows": rows,
        "figure": figures.reliability(curves) if rows else None,
    }


def risk(records: Records) -> Facts:
    """What may be automated: how many answers can be given at which share of wrong ones."""
    judgement = records.judgement or {}
    scores = _scores(judgement)
    coverage = {name: score["metrics"]["coverage_at_precision"] for name, score in scores.items()}
    rivals = {
        name: coverage[name]["value"]
        for name, score in scores.items()
        if not score["ours"] and coverage[name]["value"] is not None
    }
    others = "metrics.right_given_at_precision.value metrics.augrc.value"
    return {
        "found": coverage,
        "precision": f"{100 * judgement['precision']:.0f} %",
        "best": max(rivals, key=rivals.__getitem__, default=None),
        "rows": [[n, *pick(coverage[n], INTERVAL), *pick(scores[n], others)] for n in scores],
        "figure": figures.risk_coverage_curves(scores),
    }


def grades(records: Records) -> Facts:
    """Right, wrong and not attempted, for subjects it read about and for those it did not."""
    scores, rows = (records.judgement or {})["scores"], []
    for people in ("seen", "unseen"):
        for mode in ANSWERING_MODES:
            grades = (scores.get(mode, {}).get("groups", {}).get(people) or {}).get("grades")
            if grades and grades["correct"] is not None and any(grades[key] for key in GRADES):
                rows.append({"people": people, "mode": mode, **grades})
    by_group = {(row["people"], row["mode"]): row for row in rows}
    names = [f"<b>{row['people']}</b>, {figures.label(row['mode'])}" for row in rows]
    kinds = dict(zip(("right", "wrong", "I don't know"), GRADES, strict=True))
    parts = {kind: [row[key] for row in rows] for kind, key in kinds.items()}
    return {
        "shown": {
            mode: {key: sum(row[key] for row in rows if row["mode"] == mode) for key in GRADES}
            for mode in ANSWERING_MODES
        },
        "unread": by_group.get(("unseen", "always answer")),
        "looked_up": "checked" in scores,
        "headline": scores.get("checked", scores["internal"])["groups"]["together"]["grades"],
        "rows": [pick(row, "people mode correct wrong not_attempted precision") for row in rows],
        "figure": figures.stacked_bars(names, parts, x="share of questions"),
    }


def verdicts(records: Records) -> Facts:
    """Where the answers came from: the table of verdicts."""
    if records.no_text:
        return {}
    rows = [row for row in (records.judgement or {})["verdicts"] if row["count"]]
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["verdict"]] += row["count"]
    keys = "subjects verdict count right wrong shown internal_shown"
    return {"counts": counts, "rows": [pick(row, keys) for row in rows]}


def silence(records: Records) -> Facts | None:
    """By kind of question: what the text states and was missed, and what it seemed to state."""
    counts = (records.judgement or {}).get("silence")
    if records.no_text:
        return {}
    if not counts:
        return None
    columns = "stated missed_stated silent false_stated false_shown removed misread"
    names = columns.split()
    total = {name: sum(row.get(name, 0) for row in counts.values()) for name in names}
    rows = [
        [wording.replace(SLOT, "…"), *(row.get(name, 0) for name in names)]
        for wording, row in counts.items()
    ]
    return {**total, "rows": rows}


def examples(records: Records) -> Facts | None:
    """The most and the least confident answer of each verdict, with the lines that bear on it."""
    if records.no_text:
        return {}
    if not records.judged:
        return None
    picked = []
    for verdict in VERDICTS:
        rows = [row for row in records.judged if row["verdict"] == verdict]
        rows.sort(key=lambda row: (-row["internal_confidence"], row["subject"]))
        picked += rows if len(rows) < 2 else [rows[0], rows[-1]]
    subjects, answers, wordings = (
        [row.get(key, "") for row in picked] for key in ("subject", "said", "template")
    )
    problem = None
    lines: list[Any] = [((), ())] * len(picked)  # about the subject, about similar names
    try:
        path = check_file(records.folder, RUN_DATABASE, records.run)
        with Evidence(Database.open(path)) as evidence:
            known = sorted(records.known_answers())
            supports = find_support(evidence, subjects, answers, known, templates=wordings)
            lines = [(support.lines, support.similar) for support in supports]
    except UserError as reason:
        problem = str(reason)

    def as_record(line: EvidenceLine, *keys: str) -> Facts:
        return {key: getattr(line, key) for key in keys}

    shown = []
    for row, (evidence_lines, similar_lines) in zip(picked, lines, strict=True):
        example = {key: row[key] for key in EXAMPLE_FIELDS}
        example["evidence"] = [
            as_record(line, "line", "states_answer", "states", "text")
            | {"pieces": mark(line.text, row["subject"], row["said"], row["answer"] or "")}
            for line in evidence_lines
        ]
        example["similar"] = [as_record(x, "line", "text", "subject") for x in similar_lines]
        shown.append(example)
    return {"problem": problem, "examples": shown}


# ---- names, twins


def names(records: Records) -> Facts | None:
    """Where names that the model never saw are said to come from, as a map."""
    record = records.origins
    if record is None:  # where answers are not places, names have no origin to follow
        return None if "where" in str(records.run.templates).lower() else {}
    unknown = {row["origin"]: row["value"] for row in record["unknown"]["by_origin"]}
    return {
        **record,
        "darkest": figures.darkest(record),
        "rows": [
            [*pick(row, "origin names at_home commonest"), unknown[row["origin"]]]
            for row in record["by_origin"]
        ],
        "figure": figures.origins_map(record) if len(record["countries"]) > 1 else None,
    }


def leaning(records: Records) -> Facts | None:
    """Which lines push answers about people whom no document is about."""
    record = records.leaning
    if record is None or record["run"] != records.run.sha256:
        return None
    kinds = record["kinds"]
    largest = max(kinds, key=lambda kind: float(kinds[kind]["push"]))
    pushes = [{**row, "value": row["push"]} for row in kinds.values()]
    shares = {f"of the {key}": [row[key] for row in pushes] for key in ("push", "lines")}
    colours, errors = (figures.BLUE, figures.GREY), {"of the push": figures.whiskers(pushes)}
    return {
        "people": len(record["people"]),
        "largest": largest,
        **kinds[largest],
        "rows": [[kind, *pick(row, "push low high lines")] for kind, row in kinds.items()],
        "figure": figures.share_bars([*kinds], shares, x="share", colours=colours, errors=errors),
    }


def twins(records: Records) -> Facts | None:
    """Twins without one subject's documents, where no cross-pretraining says more."""
    if records.crossing is not None:
        return {}
    if not records.without:
        return None
    return {
        "needed": sum(twin["truth"] == "remembered" for twin in records.without),
        "reasons": [str(twin["why"]) for twin in records.without],
        "rows": [
            pick(
                {"right": None, **twin, "documents": len(twin["documents"])},
                "subject documents with.answer without.answer right score truth",
            )
            for twin in records.without
        ],
    }


def crossing(records: Records) -> Facts:
    """Cross-pretraining: two models that each leave out what the other reads."""
    record = records.crossing or {}
    caught = record.get("caught", {})
    columns = "precision.value precision.low precision.high recall.value"
    rows = [[name, *pick(row, columns)] for name, row in caught.items()]
    stated = caught.get("verdict stated", {}).get("precision", {}).get("value")
    return {"notes": (), **record, "precision": stated, "rows": rows}


# ---- training


def curves(records: Records) -> Facts | None:
    """Loss and speed during training."""
    if not records.metrics:
        return None
    runs = [("model", records.metrics), ("questions only", records.scratch)]
    runs = [(name, points) for name, points in runs if points]
    rows = []
    for name, points in runs:
        losses = [point["loss"] for point in points if point.get("loss") is not None]
        losses = losses[-max(1, len(losses) // 10) :]  # the last tenth
        step, tokens, seconds = (points[-1].get(key) for key in ("step", "tokens", "seconds"))
        loss = sum(losses) / len(losses) if losses else None
        speed = tokens / seconds if tokens and seconds else None
        rows.append([name, step, tokens, seconds, loss, speed])
    _, steps, _, _, loss, speed = rows[0]
    figure = figures.training_curves(runs)
    return {"steps": steps, "loss": loss, "speed": speed, "rows": rows, "figure": figure}


def training(records: Records) -> Facts:
    """Data with hashes, model, seed, command, time and versions."""
    run, job = records.run, records.run.job
    model: Facts = job.model.model_dump() if isinstance(job, JobRecord) else {}
    read, rows = [], []
    took = _say_time(run.seconds)
    parent = run.data.get("parent")

    def pairs(record: Facts) -> str:
        return ", ".join(f"{key} {value}" for key, value in record.items())

    for what, source in run.sources.items():
        noun = "document" if source.documents is not None else "question"
        count = source.questions if source.documents is None else source.documents
        used = "" if count is None else f", {count:,}{'' if what == 'dev' else ' used'}"
        rows.append([what, f"{source.path}{used}"])
        rows.append([f"{what}, SHA-256", source.sha256])
        if count is not None and what in ("corpus", "questions"):
            read.append(f"{plural(count, noun)} ({Path(source.path).name})")
    if isinstance(job, JobRecord):
        rows += [["model", pairs(model)], ["tokens", job.tokens]]
        for phase in job.phases:
            mixture = pairs(phase.mixture.model_dump())
            about = f"{mixture}; {phase.optimizer}, {phase.lr:g}"
            rows.append([f"phase {phase.name}", about])
    if isinstance(job, BaseJobRecord):
        model = {"variant": Path(job.base).name}
        hidden = {"corpus", "documents", "questions", "prompt", "without", "twin_of"}
        rows += [["model", job.base], ["settings", pairs(job.model_dump(exclude=hidden))]]
        rows.append(["prompt", job.prompt])
    command = list(run.command)
    if command and command[0].endswith(("/wherefrom", "__main__.py")):
        command[0] = "wherefrom"
    for counted in run.passes:
        made = f"{counted.steps:,} steps, {describe_passes([counted])}"
        rows.append([f"passes of {counted.phase}", made])
    rows += [
        ["seed", str(job.seed)],
        ["command", shlex.join(command)],
        ["started", run.started],
        ["training", f"{took}, {run.steps:,} steps, {run.trained_tokens:,} tokens"],
        ["weights, SHA-256", run.sha256],
        ["versions", pairs(run.versions)],
    ]
    parts = Counter(f"{row.get('role')}, {row.get('source')}" for row in records.subjects)
    apart = [f"{count:,} {part}" for part, count in parts.items()]
    if run.left_out:
        apart.append(f"documents of {plural(len(run.left_out), 'subject')} were not read")
    if apart:
        rows.append(["subjects kept apart", "; ".join(apart)])
    return {
        "model": model,
        "read": read,
        "took": took,
        "earlier": _say_time(run.earlier_seconds) if run.earlier_seconds else "",
        "parent": Path(parent.path).name if parent else "",
        "seconds": run.seconds,
        "tokens": run.trained_tokens,
        "rows": rows,
    }


def _say_time(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.1f} minutes"


def plural(count: int, noun: str) -> str:
    """'1 document', '2,000 documents'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
