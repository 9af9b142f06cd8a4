"""What a study of a Hugging Face model reaches: recall, trace, and a twin without some people.

    wherefrom study world/documents.txt world/train.tsv world/dev.tsv --base MODEL --out RUN
    python benchmarks/your_model.py RUN            # recall, and own lines first by trace
    python benchmarks/your_model.py RUN --twin 15  # also one twin without 15 people

One JSON object goes to stdout. CPU times are those of this process.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.folding import fold_words
from wherefrom.provenance.attribution.opening import open_learned
from wherefrom.provenance.attribution.retraining import answers_of
from wherefrom.provenance.attribution.trace import open_tracer
from wherefrom.provenance.audited import BaseRun, open_run


def measure_trace(run: BaseRun) -> dict[str, Any]:
    """Of the dev questions that are answered rightly, whose own line comes first."""
    tracer = open_tracer(run, say=lambda sentence: print(sentence, file=sys.stderr))
    started = time.process_time()
    _ = tracer.index  # made here, so that its cost is measured
    index_seconds = time.process_time() - started
    dev = [question for question in tracer.learned.dev if question.answer]
    answers = answers_of(run, [question.text for question in dev])["answers"]
    ranks = []
    started = time.process_time()
    for question, answer in zip(dev, answers, strict=True):
        if answer != question.answer:
            continue
        scores = tracer.scores(question.text, question.subject, answer)
        own = tracer.learned.corpus.documents_about(fold_words(question.subject))
        if own:
            ranks.append(int((scores > scores[own].max()).sum()) + 1)
    found = np.array(ranks)
    return {
        "right": sum(a == q.answer for a, q in zip(answers, dev, strict=True)),
        "asked": len(dev),
        "traced": len(ranks),
        "own_line_first": float((found == 1).mean()) if ranks else None,
        "mrr": float((1 / found).mean()) if ranks else None,
        "index_cpu_seconds": round(index_seconds, 1),
        "trace_cpu_seconds": round((time.process_time() - started) / max(1, len(ranks)), 2),
    }


def measure_twin(run: BaseRun, people: int) -> dict[str, Any]:
    """One twin without some people whose answers are right; how many answers change."""
    learned = open_learned(run)
    read_about = set(learned.subjects)
    dev = [q for q in learned.dev if q.answer and fold_words(q.subject) in read_about]
    before = answers_of(run, [question.text for question in dev])["answers"]
    right = [q for q, answer in zip(dev, before, strict=True) if answer == q.answer]
    names = sorted({fold_words(question.subject) for question in right})
    chosen = np.random.default_rng(0).permutation(len(names))[:people]
    gone = {names[i] for i in chosen}
    started = time.process_time()
    folder = run.folder / "twins" / f"benchmark-{people}"
    twin = learned.retrain(learned.lines_about(gone), folder)
    seconds = time.process_time() - started
    after = answers_of(twin, [question.text for question in dev])["answers"]
    changed = [one != other for one, other in zip(before, after, strict=True)]
    is_right = [one == q.answer for one, q in zip(before, dev, strict=True)]
    left_out = [fold_words(q.subject) in gone for q in dev]
    table = np.array([changed, is_right, left_out])
    own, others = table[1] & table[2], ~table[2]
    return {
        "people": len(gone),
        "right_answers_about_them": int(own.sum()),
        "changed": float(table[0][own].mean()) if own.any() else None,
        "others": int(others.sum()),
        "others_changed": float(table[0][others].mean()) if others.any() else None,
        "others_right_changed": float(table[0][others & table[1]].mean()),
        "cpu_seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--twin", type=int, default=0, metavar="PEOPLE")
    options = parser.parse_args()
    run = open_run(options.run)
    if not isinstance(run, BaseRun):
        raise SystemExit(f"{options.run} is not a study of a Hugging Face model.")
    record = run.record
    found: dict[str, Any] = {
        "rows": {row["name"]: [row["correct"], row["total"]] for row in record.results},
        "training_seconds": round(record.seconds),
        "trained_tokens": record.trained_tokens,
        "peak_mb_training": round(record.peak_mb),
        "trace": measure_trace(run),
    }
    if options.twin:
        found["twin"] = measure_twin(run, options.twin)
    found["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
