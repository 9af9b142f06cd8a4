"""What each section of the report is made from: records of a run in, facts out.

`sections.toml` has the sections in reading order with their words. The function of a section gives
the facts for these words, and with them `rows` of its table, a `figure`, `examples`. It gives None
where no record holds them, and {} where the section does not apply to the run.
"""

from __future__ import annotations

import shlex
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wherefrom.corpus.folding import find_phrase, fold_words, split_words
from wherefrom.corpus.questions import SLOT
from wherefrom.errors import UserError
from wherefrom.provenance.evidence import Evidence, find_support
from wherefrom.provenance.metrics import rate
from wherefrom.report import figures

if TYPE_CHECKING:
    from wherefrom.report.study_report import Records

Facts = dict[str, Any]
OURS = ("internal", "checked")
MODES = ("always answer", *OURS)
GRADES = ("correct", "wrong", "not_attempted")
INTERVAL = ("value", "low", "high")
VERDICTS = ("stated", "misremembered", "guessed", "made up")  # as judged.jsonl has them
RELATION_ROWS = ("majority", "by name", "no pretraining", "pretrained")
COMMONEST = 12  # answers that are shown one by one
LINES = 3  # of evidence for an example


def pick(record: Facts, keys: str | tuple[str, ...]) -> list[Any]:
    """The values of several keys, named in a tuple or in one text."""
    return [record[key] for key in (keys.split() if isinstance(keys, str) else keys)]


def mark(text: str, subject: str, answer: str, truth: str = "") -> list[dict[str, str]]:
    """The text in pieces {"kind", "text"}, in order, nothing lost; accents and case do not count.

    The kind is "name" (a family name alone too), "place" for the answer, "truth" for another
    answer that is the right one, and "" for the rest.
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
    return [
        {"kind": kind, "text": "".join(text[at] for at in places)}
        for kind, places in groupby(range(len(text)), key=kinds.__getitem__)
    ]


# ---- recall


def recall_rows(records: Records) -> dict[str, Facts]:
    """The study's table by name, with intervals; rows without questions are left out."""
    return {
        row["name"]: {**row, **{key: found[key] for key in INTERVAL}}
        for row in records.info.get("results") or []
        if row["total"]
        for found in [rate(row["correct"], row["total"])]
    }


def recall(records: Records) -> Facts | None:
    """Recall beside what can be had without reading."""
    rows = recall_rows(records)
    if not rows:
        return None
    model, common, twin = (rows.get(n) for n in ("pretrained", "majority", "no pretraining"))
    paired = [_compare_pairs(records, name) for name in ("majority", "no pretraining")]
    beaten = bool(model and common and model["value"] <= common["value"])
    notes = [str(note) for note in records.info.get("notes") or ()]
    return {
        "audited": records.audited,
        "model": model,
        "common": common,
        "twin": twin,
        "left_out": rows.get("left-out subjects"),
        "paired": [one for one in paired if one],
        "better": all(one and one["p"] < 0.05 for one in paired),
        "beaten": beaten,
        # the study's own sentence on it, which has the likely reason
        "warning": next((n for n in notes if beaten and n.startswith("The model does not")), ""),
        "rows": [pick(row, "name about correct total value low high seconds")
                 for row in rows.values()],
        "figure": figures.recall_bars(list(rows.values())),
    }  # fmt: skip


def _compare_pairs(records: Records, other: str) -> Facts | None:
    """McNemar's exact test: which questions the model alone and which the other alone answers."""
    from scipy.stats import binomtest

    left_out = set(records.info.get("left_out") or ())
    right = [
        tuple(row["said"][name].strip() == row["answer"].strip() for name in ("pretrained", other))
        for row in records.predictions
        if row["subject"] not in left_out and row["said"].keys() >= {"pretrained", other}
    ]
    if not right:
        return None
    ours, theirs = right.count((True, False)), right.count((False, True))
    p = binomtest(ours, ours + theirs, alternative="greater").pvalue if ours + theirs else 1.0
    return {"other": other, "ours": ours, "theirs": theirs, "p": float(p)}


def relations(records: Records) -> Facts:
    """Recall, baselines and calibration of each kind of question, where there are several."""
    by_name = recall_rows(records)
    rows = {n: by_name[n].get("relations") or {} for n in RELATION_ROWS if n in by_name}
    if not rows.get("pretrained"):
        return {}
    shares: dict[str, list[float]] = {name: [] for name in rows}
    table = []

    def mean(those: list[Facts], key: str) -> float | None:
        return sum(one[key] for one in those) / len(those) if those else None

    for wording, own in rows["pretrained"].items():
        for name, found in rows.items():
            shares[name].append(found[wording]["recall"])
        here = [one for one in records.judged if one["template"] == wording]
        shown = [one for one in here if one["shown"]]
        recalls = [shares[name][-1] if name in shares else None for name in RELATION_ROWS]
        sure = [mean(here, "internal_confidence"), mean(here, "right")]
        name = wording.replace(SLOT, "…")
        table.append([name, own["total"], *recalls, *sure, len(shown), mean(shown, "right")])
    names = [row[0] for row in table]
    ranked = sorted(zip(shares["pretrained"], names, strict=True))
    colours = (figures.GREY, figures.VIOLET, figures.ORANGE, figures.BLUE)
    figure = figures.share_bars(names, shares, x="recall", colours=colours)
    return {"count": len(names), "best": ranked[-1], "worst": ranked[0], "rows": table,
            "figure": figure}  # fmt: skip


def documents(records: Records) -> Facts | None:
    """Recall by how many documents were read about a subject."""
    groups = [one for one in (records.judgement or {}).get("by_documents", []) if one["subjects"]]
    if not groups or records.no_text:
        return {} if records.no_text else None

    def right(read: bool) -> Facts:
        here = [one for one in groups if (one["documents"] != 0) == read]
        count = sum(one["subjects"] for one in here)
        hits = sum(one["subjects"] * one["recall"]["value"] for one in here)
        return {"asked": count, "share": hits / count if count else 0.0}

    hits = [one for one in records.judged if one["right"]]
    return {
        "read": right(True),
        "unread": right(False),
        "right": len(hits),
        "stated": sum(one["verdict"] == "stated" for one in hits),
        "twin": recall_rows(records).get("no pretraining"),
        "rows": [[str(one["documents"]), one["subjects"], *pick(one["recall"], INTERVAL)]
                 for one in groups],
        "figure": figures.documents_bars(groups),
    }  # fmt: skip


def answers(records: Records) -> Facts | None:
    """Recall by the right answer, the commonest first, and by whether training had it."""
    seen = [one for one in records.judged if one["seen"] and one["answer"] is not None]
    if not seen:
        return None
    total = Counter(one["answer"] for one in seen)
    right = Counter(one["answer"] for one in seen if one["right"])
    common = sorted(total, key=lambda answer: (-total[answer], answer))[:COMMONEST]
    known = records.known_answers()
    kinds = {
        **{each: [each] for each in common},
        f"all {len(total) - len(common):,} other answers": [a for a in total if a not in common],
        "an answer in training": [a for a in total if a in known],
        "no answer in training": [a for a in total if known and a not in known],
    }
    rows = [
        [name, count, hits, hits / count]
        for name, those in kinds.items()
        if (count := sum(total[a] for a in those))
        for hits in [sum(right[a] for a in those)]
    ]
    counts = {"right": [right[each] for each in common]}
    counts["wrong"] = [total[each] - right[each] for each in common]
    names = [figures.label(each) for each in common]
    return {
        "asked": len(seen),
        "distinct": len(total),
        "commonest": len(common),
        "by_training": [row for row in rows if row[0].endswith("in training")],
        "rows": rows,
        "figure": figures.stacked_bars(names, counts, x="questions"),
    }


# ---- confidence and verdicts; each of these needs a judgement


def _metrics(judgement: Facts, name: str) -> dict[str, Facts]:
    """One metric of every score, over all judged subjects."""
    return {
        score: found["groups"]["together"]["metrics"][name]
        for score, found in judgement["scores"].items()
    }


def telling(records: Records) -> Facts:
    """Whether right answers can be told from wrong ones, by what the model gives away."""
    judgement = records.judgement or {}
    found, scores = _metrics(judgement, "auroc"), judgement["scores"]
    errors = _metrics(judgement, "ece")
    stated = {one["score"]: one["auroc"] for one in judgement.get("stated", [])}
    histogram = scores["internal"]["groups"]["together"]["histogram"]
    return {
        "own": found["internal"],
        "checked": found.get("checked", {"value": None}),
        "unknown": _metrics(judgement, "unseen_unknown")["internal"],
        "level": judgement["level"],
        "alone": stated.get("internal", {"value": None}),
        "rival": stated.get("greedy likelihood", {"value": None}),
        "against": judgement.get("against_the_best", []),
        "rows": [[name, scores[name]["about"], *pick(auroc, INTERVAL), errors[name]["value"]]
                 for name, auroc in found.items()],
        "figure": figures.confidence_histogram(histogram),
    }  # fmt: skip


def probabilities(records: Records) -> Facts:
    """Both probabilities, by the model alone and with the text: how good, and what they show."""
    if records.no_text:
        return {}
    targets, rows = (records.judgement or {})["targets"], []
    names = {"from_text": "is from the text", "right": "is right"}
    for target, name in names.items():
        for mode, found in targets[target].items():
            metrics = [found["metrics"].get(key, {}).get("value")
                       for key in ("auroc", "auroc_among_seen", "ece")]  # fmt: skip
            counts = pick(found, "right_shown missed wrong_shown unseen_shown")
            rows.append([name, mode, *metrics, found["used"], *(one["value"] for one in counts)])
    return {"internal": {name: targets[name]["internal"] for name in names}, "rows": rows}


def calibration(records: Records) -> Facts:
    """Whether "80 % likely to be right" is right in 80 % of cases."""
    judgement = records.judgement or {}
    ours = [name for name in OURS if name in judgement["scores"]]
    groups = {name: judgement["scores"][name]["groups"]["together"] for name in ours}
    curves = [(name, group["reliability"]) for name, group in groups.items()]
    keys = "subjects low high confidence accuracy"
    rows = [[name, *pick(each, keys)] for name, bins in curves for each in bins]
    errors = [
        {"mode": name, "error": error, "chance": group["ece_of_chance"]["value"]}
        for name, group in groups.items()
        if (error := group["metrics"]["ece"]["value"]) is not None
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
    found, given, augrc = (
        _metrics(judgement, name)
        for name in ("coverage_at_precision", "right_given_at_precision", "augrc")
    )
    scores = judgement["scores"]
    rivals = [n for n, one in found.items() if not scores[n]["ours"] and one["value"] is not None]
    return {
        "found": found,
        "precision": f"{100 * judgement['precision']:.0f} %",
        "best": max(rivals, key=lambda name: found[name]["value"], default=None),
        "rows": [[name, *pick(one, INTERVAL), given[name]["value"], augrc[name]["value"]]
                 for name, one in found.items()],
        "figure": figures.risk_coverage_curves(scores),
    }  # fmt: skip


def grades(records: Records) -> Facts:
    """Right, wrong and not attempted, for subjects it read about and for those it did not."""
    scores, rows = (records.judgement or {})["scores"], []
    for people in ("seen", "unseen"):
        for mode in MODES:
            found = (scores.get(mode, {}).get("groups", {}).get(people) or {}).get("grades")
            if found and found["correct"] is not None and any(found[key] for key in GRADES):
                rows.append({"people": people, "mode": mode, **found})
    by_group = {(row["people"], row["mode"]): row for row in rows}
    names = [f"<b>{row['people']}</b>, {figures.label(row['mode'])}" for row in rows]
    kinds = dict(zip(("right", "wrong", "I don't know"), GRADES, strict=True))
    parts = {kind: [row[key] for row in rows] for kind, key in kinds.items()}
    return {
        "shown": {
            mode: {key: sum(row[key] for row in rows if row["mode"] == mode) for key in GRADES}
            for mode in MODES
        },
        "unread": by_group.get(("unseen", "always answer")),
        "looked_up": "checked" in scores,
        "headline": scores.get("checked", scores["internal"])["groups"]["together"]["grades"],
        "rows": [pick(row, ("people", "mode", *GRADES, "precision")) for row in rows],
        "figure": figures.stacked_bars(names, parts, x="share of questions", shares=True),
    }


def verdicts(records: Records) -> Facts:
    """Where the answers came from: the table of verdicts."""
    if records.no_text:
        return {}
    found = [row for row in (records.judgement or {})["verdicts"] if row["count"]]
    counts: Counter[str] = Counter()
    for row in found:
        counts[row["verdict"]] += row["count"]
    keys = "subjects verdict count right wrong shown internal_shown"
    return {"counts": counts, "rows": [pick(row, keys) for row in found]}


def examples(records: Records) -> Facts | None:
    """The most and the least confident answer of each verdict, with the lines that bear on it."""
    if not records.judged or records.no_text:
        return {} if records.no_text else None
    picked = []
    for verdict in VERDICTS:
        here = [one for one in records.judged if one["verdict"] == verdict]
        here.sort(key=lambda one: (-one["internal_confidence"], one["subject"]))
        picked += here if len(here) < 2 else [here[0], here[-1]]
    asked, said = ([one[key] for one in picked] for key in ("subject", "said"))
    relations = [one.get("template", "") for one in picked]
    corpus = (records.info.get("data") or {}).get("corpus") or {}
    lines: list[Any] = [((), ())] * len(picked)  # stating, similar
    problem = None
    try:
        path = records.folder / "evidence.sqlite"
        with Evidence(path, corpus_sha256=corpus.get("sha256")) as evidence:
            known = sorted(records.known_answers())
            found = find_support(evidence, asked, said, known, templates=relations)
            lines = [(support.lines, support.similar) for support in found]
    except UserError as reason:
        problem = str(reason)
    keys = ("verdict", "question", "subject", "said", "answer", "right", "seen", "shown",
            "shown_internal", "confidence", "internal_confidence", "from_text",
            "internal_from_text")  # fmt: skip
    shown = []
    for one, (stating, alike) in zip(picked, lines, strict=True):
        names = (one["subject"], one["said"], one["answer"] or "")
        bearing = [
            {"line": line.line, "states_answer": line.states_answer, "text": line.text,
             "pieces": mark(line.text, *names)}
            for line in stating
        ]  # fmt: skip
        similar = [{"line": x.line, "text": x.text, "subject": x.subject} for x in alike]
        shown.append({**{key: one[key] for key in keys}, "evidence": bearing, "similar": similar})
    return {"problem": problem, "examples": shown}


# ---- names, twins


def names(records: Records) -> Facts | None:
    """Where names that the model never saw are said to come from, as a map."""
    record = records.origins
    if record is None:  # where answers are not places, names have no origin to follow
        return None if "where" in str(records.info.get("templates")).lower() else {}
    unknown = {row["origin"]: row["value"] for row in record["unknown"]["by_origin"]}
    return {
        "sentences": record["sentences"],
        "shared": record["mutual_information"],
        "names": record["names"],
        "darkest": figures.darkest(record),
        "rows": [[*pick(row, "origin names at_home commonest"), unknown[row["origin"]]]
                 for row in record["by_origin"]],
        "figure": figures.origins_map(record) if len(record["countries"]) > 1 else None,
    }  # fmt: skip


def leaning(records: Records) -> Facts | None:
    """Which lines push answers about people whom no document is about."""
    record = records.leaning
    if record is None or record["run"] != records.info.get("sha256"):
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
        "needed": sum(one["truth"] == "remembered" for one in records.without),
        "reasons": [str(one["why"]) for one in records.without],
        "rows": [
            [one["subject"], len(one["documents"]), one["with"]["answer"],
             one["without"]["answer"], one.get("right"), one["score"], one["truth"]]
            for one in records.without
        ],
    }  # fmt: skip


def crossing(records: Records) -> Facts:
    """Cross-pretraining: two models that each leave out what the other reads."""
    record = records.crossing or {}
    caught = record["caught"].get("verdict stated") or {"precision": {"value": None}}
    rows = [
        [name, *pick(found["all"], INTERVAL), found["readers"]["value"], found["rank"]["value"]]
        for name, found in record["agreement"].items()
    ]
    return {"people": record["people"], "truth": record["truth"], "notes": record.get("notes", ()),
            "precision": caught["precision"]["value"], "rows": rows}  # fmt: skip


# ---- training


def curves(records: Records) -> Facts | None:
    """Loss and speed during training."""
    if not records.metrics:
        return None
    runs = [("pretrained", records.metrics), ("no pretraining", records.scratch)]
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


def cost(records: Records) -> Facts:
    """The perceiver's bottleneck against full attention, at this run's shape, by the formula."""
    if records.audited:
        return {}
    model = records.info["job"]["model"]
    layers, width, m, block = pick(model, "layers width latents block")
    vanilla = layers * block**2 * width
    perceiver = 2 * block * m * width + (layers - 2) * m**2 * width
    rows = [["vanilla", vanilla], ["perceiver", perceiver]]
    return {"layers": layers, "block": block, "latents": m, "rows": rows}


def made(records: Records) -> Facts:
    """Data with hashes, model, seed, command, time and versions."""
    info, job = records.info, records.info.get("job", {})
    model, seconds, tokens = (
        job.get("model", {}),
        info.get("seconds"),
        info.get("trained_tokens", 0),
    )
    took, read, rows = "an unknown time", [], []
    if isinstance(seconds, int | float):
        took = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.1f} minutes"

    def pairs(record: Facts) -> str:
        return ", ".join(f"{key} {value}" for key, value in record.items())

    for what, source in {**info.get("data", {}), "dev": info.get("dev")}.items():
        if isinstance(source, dict):
            noun = next((noun for noun in ("document", "question") if f"{noun}s" in source), "")
            count = source.get(f"{noun}s")
            used = "" if count is None else f", {count:,}{'' if what == 'dev' else ' used'}"
            rows.append([what, f"{source.get('path')}{used}"])
            rows.append([f"{what}, SHA-256", str(source.get("sha256"))])
            if count is not None and what in ("corpus", "questions"):
                read.append(f"{plural(count, noun)} ({Path(str(source['path'])).name})")
    rows += [["model", pairs(model)], ["tokens", str(job.get("tokens", "–"))]]
    for phase in job.get("phases", []):
        about = f"{pairs(phase['mixture'])}; {phase['optimizer']}, {phase['lr']:g}"
        rows.append([f"phase {phase['name']}", about])
    command = [str(word) for word in info.get("command", [])]
    if command and command[0].endswith(("/wherefrom", "__main__.py")):
        command[0] = "wherefrom"
    rows += [
        ["seed", str(job.get("seed", "–"))],
        ["command", shlex.join(command)],
        ["started", str(info.get("started", "–"))],
        ["training", f"{took}, {info.get('steps', 0):,} steps, {tokens:,} tokens"],
        ["weights, SHA-256", str(info.get("sha256", "–"))],
        ["versions", pairs(info.get("versions", {}))],
    ]
    parts = Counter(f"{one.get('role')}, {one.get('source')}" for one in records.subjects)
    apart = [f"{count:,} {part}" for part, count in parts.items()]
    if left_out := info.get("left_out"):
        apart.append(f"documents of {plural(len(left_out), 'subject')} were not read")
    if apart:
        rows.append(["subjects kept apart", "; ".join(apart)])
    return {"model": model, "read": read, "took": took, "seconds": seconds, "tokens": tokens,
            "audited": records.audited, "rows": rows}  # fmt: skip


def plural(count: int, noun: str) -> str:
    """'1 document', '2,000 documents'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
