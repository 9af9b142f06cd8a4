"""A small run folder with every record that a study leaves, written without training anything."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict
from functools import lru_cache

import numpy as np

from wherefrom.corpus.database import Database, read_documents
from wherefrom.corpus.questions import Question, QuestionSet
from wherefrom.corpus.split import HeldOutQuestion, write_subjects
from wherefrom.provenance.answers import write_dev_answers, write_judged
from wherefrom.provenance.judging import Judgement, measure_scores
from wherefrom.provenance.metrics import Bootstrap, as_metric
from wherefrom.provenance.rivals import Score
from wherefrom.storage import sha256_of
from wherefrom.training.record import RUN_FILES, RunRecord, read_record, write_record

WEIGHTS = "ab" * 32
HOSTILE = "<script>alert(1)</script>"

# subject, answer, said, verdict, documents, confidence
PEOPLE = [
    ("Ann Clark", "Rome", "Rome", "stated", 1, 0.95),
    ("Bo Lind", "Oslo", "Oslo", "stated", 2, 0.9),
    ("Cy Brand", "Rome", "Oslo", "misremembered", 1, 0.8),
    ("Di Moss", "Lima", "Lima", "stated", 1, 0.7),
    ("Ed Fox", "Rome", "Rome", "guessed", 0, 0.6),
    ("Flo Reed", "Oslo", "Rome", "made up", 0, 0.3),
    ("Gus Hall", "Lima", "Rome", "made up", 0, 0.1),
]


SHARE = {"value": 0.75, "low": 0.5, "high": 0.9}
TARGET = {
    "used": 0.95,
    "metrics": dict.fromkeys(("auroc", "auroc_among_seen", "ece"), SHARE),
    **dict.fromkeys(("right_shown", "missed", "wrong_shown", "unseen_shown"), SHARE),
}


def write_run(folder, **changes):
    """The folder of a run with all records; `changes` are merged into run.json."""
    folder.mkdir(parents=True)
    corpus = folder / "text.txt"
    lines = [f"{p[0]}. {p[0]} was born in {p[1]}." for p in PEOPLE for _ in range(p[4])]
    corpus.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    read_documents(corpus).save(folder / "run.sqlite")
    judgement = make_judgement()
    rows = [
        ("majority", "always Rome", 5, None),
        ("questions only", "questions only", 7, 2.0),
        ("model", "llama", 81, 12.0),
    ]
    mixture = {"mixture": {"text": 1}, "steps": 30, "batch_tokens": 64}
    fields = {
        "kind": "study",
        "status": "finished",
        "started": "2026-01-01T00:00:00+00:00",
        "command": ["/usr/bin/wherefrom", "study", "a file.txt", "--seed", "3"],
        "templates": ["Where was {subject} born?"],
        "job": {
            "model": {
                "variant": "llama",
                "vocabulary": 99,
                "block": 96,
                "layers": 5,
                "width": 32,
                "latents": 24,
            },
            "phases": [{"name": "mixed", **mixture, "optimizer": "muon", "lr": 0.01}],
            "kind": "study",
            "seed": 3,
            "tokens": "chars",
            "zero_init": True,
        },
        "data": {
            "corpus": {
                "path": str(corpus),
                "relative_path": "text.txt",
                "sha256": sha256_of(corpus),
                "documents": len(lines),
            }
        },
        "versions": {"wherefrom": "0.1.0"},
        "sha256": WEIGHTS,
        "notes": ["nobody is left out."],
        "steps": 30,
        "trained_tokens": 3_000,
        "seconds": 12.0,
        "results": [
            {
                "name": name,
                "about": about,
                "correct": right,
                "total": 100,
                "recall": right / 100,
                "seconds": seconds,
            }
            for name, about, right, seconds in rows
        ],
        "judgement": judgement.summary(),
        **changes,
    }
    write(folder / "judgement.json", judgement.record)
    keys = HeldOutQuestion.__match_args__
    held_out = [HeldOutQuestion(*(row[key] for key in keys)) for row in judgement.rows]
    with Database.open(folder / "run.sqlite") as database:
        write_subjects(database, held_out)
    write(folder / "calibration.json", {"reader": {"known_answers": ["Oslo", "Rome"]}})
    write(folder / "origins.json", make_origins())
    push = {"push": 0.6, "low": 0.5, "high": 0.7, "lines": 0.1}
    kinds = {"lines with the same answer": push, "lines that share nothing": {**push, "push": 0.4}}
    write(folder / "leaning.json", {"run": WEIGHTS, "kinds": kinds, "people": [{}]})
    points = [
        {
            "phase": "mixed",
            "step": 10 * at,
            "loss": 5.0 - at,
            "tokens": 1000 * at,
            "seconds": 4.0 * at,
            "tokens_per_second": 250.0,
        }
        for at in (1, 2, 3)
    ]
    write_lines(folder / "metrics.jsonl", points)
    record_all(folder, RunRecord.model_validate(fields))
    write_dev(folder, fields["results"])
    write_judged(folder, judgement.rows)
    scratch = folder / "twins" / "scratch"
    scratch.mkdir(parents=True)
    write_lines(scratch / "metrics.jsonl", points[:2])
    record_all(scratch, RunRecord.model_validate({**fields, "results": (), "judgement": None}))
    return folder


def record_all(folder, record=None):
    """Record the files of a run as they are now."""
    names = [name for name in RUN_FILES if (folder / name).is_file()]
    files = {name: sha256_of(folder / name) for name in names}
    write_record(folder, (record or read_record(folder)).model_copy(update={"files": files}))


def write_hostile_run(folder, **changes):
    """A run whose people, answers and notes would like to run scripts."""
    run = write_run(folder, notes=[HOSTILE, "`<b>`"], **changes)
    with closing(sqlite3.connect(run / "run.sqlite")) as database, database:
        hostile = "question = ? || id, answer = ?, truth = ?"
        values = (HOSTILE, HOSTILE, f"{HOSTILE} Rome")
        database.execute(f"UPDATE answers SET {hostile} WHERE verdict IS NOT NULL", values)
        database.execute(  # the line of Ann Clark is still found
            "UPDATE answers SET subject = ? WHERE verdict IS NOT NULL AND subject != 'Ann Clark'",
            (f"Ann {HOSTILE}",),
        )
    record_all(run)
    return run


def write_dev(folder, results):
    """What each row answers, question by question: the first ones rightly, as many as it says."""
    rows = {row["name"]: row for row in results if isinstance(row, dict)}
    count = max((row["total"] for row in rows.values()), default=0)
    template = "Where was {subject} born?"
    names = [f"A {at}" for at in range(count)]
    questions = tuple(
        Question(at, template.replace("{subject}", name), name, "Rome", template)
        for at, name in enumerate(names, start=1)
    )
    dev = QuestionSet(folder / "dev.tsv", "", (template,), questions)
    said = {
        name: ["Rome" if at < row["correct"] else "Oslo" for at in range(count)]
        for name, row in rows.items()
    }
    write_dev_answers(folder, dev, said)


@lru_cache
def make_judgement():
    template = "Where was {subject} born?"
    rows = []
    for name, right, said, verdict, documents, confidence in PEOPLE:
        question = template.replace("{subject}", name)
        asked = ("judged", documents > 0, "dev", name, question, right, template)
        rows.append(
            {
                **asdict(HeldOutQuestion(*asked)),
                "said": said,
                "right": said == right,
                "verdict": verdict,
                "shown": verdict == "stated",
                "shown_internal": confidence >= 0.5,
                "confidence": confidence,
                "internal_confidence": confidence,
                "from_text": 0.0,
                "internal_from_text": 0.0,
                "naming": documents,
                "about": documents,
                "stated": verdict == "stated",
                "states_truth": False,
                "reads_any": False,
                "in_text": False,
            }
        )
    people = tuple(rows)
    confidence = np.array([row["confidence"] for row in people])
    scores = [
        Score("internal", "our probability", confidence, confidence >= 0.5, 0.5, ours=True),
        Score("checked", "with lines", confidence, confidence >= 0.65, 0.5, ours=True),
        Score("always answer", "every answer", np.ones(len(people)), confidence >= 0),
        Score("greedy likelihood", "its own", confidence**2, confidence**2 >= 0.5, 0.5, "no more."),
    ]
    how = {"resamples": 20, "level": 0.95, "seed": 0}
    promise = {
        "threshold": None,
        "reason": "too few subjects.",
        "risk": 0.05,
        "delta": 0.05,
        "subjects": 4,
        "given": 0,
        "wrong": 0,
    }
    kept = {**promise, "threshold": 0.5, "reason": None, "given": 3}
    record = {
        "weights_sha256": WEIGHTS,
        "subjects": {"judged": 7, "seen": 4, "unseen": 3, "calibration": 4},
        "risk": 0.05,
        "delta": 0.05,
        "precision": 0.95,
        **how,
        "guarantees": {"internal": promise, "checked": kept},
        "targets": {
            key: dict.fromkeys(("internal", "checked"), TARGET) for key in ("from_text", "right")
        },
        **measure_scores(scores, people, precision=0.95, bootstrap=Bootstrap(20, 0.95, (0, 0))),
        "open_world_floor": as_metric(0.3),
        "notes": ["internal: too few subjects.", "a note of the judgement."],
        "silence": {
            "Where was {subject} born?": {
                "stated": 60,
                "missed_stated": 2,
                "silent": 9,
                "false_stated": 3,
                "false_shown": 1,
            }
        },
    }
    return Judgement(rows=people, record=json.loads(json.dumps(record)))


def make_origins():
    rows = [
        {"origin": "English", "names": 2, "at_home": 0.7, "commonest": "London"},
        {"origin": "Czech", "names": 2, "at_home": 0.2, "commonest": "Prague"},
    ]
    return {
        "names": 4,
        "origins": ["English", "Czech"],
        "countries": ["United Kingdom", "Czechia", "unknown"],
        "matrix": [[0.7, 0.1, 0.2], [0.5, 0.2, 0.3]],
        "by_origin": rows,
        "unknown": {"by_origin": [{"origin": row["origin"], "value": 0.5} for row in rows]},
        "sentences": ["It follows the sound of the name.", "Abstaining is biased."],
    }


def write(path, record):
    path.write_text(json.dumps(record), encoding="utf-8")


def write_lines(path, records):
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
