"""What a model knew before it read the text, what it learned from it, and what it made up.

Known before: the base model answers the question rightly. Learned from the text: it does not, the
trained model does, and a line states the answer. Made up: everything else. A twin that did not
read the lines about the subject checks what is called learned: it must not give the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from wherefrom.corpus.questions import Question
from wherefrom.provenance.audited import BaseRun
from wherefrom.provenance.evidence import Evidence, find_support
from wherefrom.provenance.signals.prompted import is_match
from wherefrom.storage import format_json, read_json
from wherefrom.training.record import check_file, keep_files

FILE = "knowledge.json"
KNOWN_BEFORE, LEARNED, MADE_UP = ORIGINS = ("known before", "learned from the text", "made up")
Record = dict[str, Any]


def describe_knowledge(
    evidence: Evidence,
    questions: Sequence[Question],
    before: Sequence[str],
    after: Sequence[str],
    known_answers: Sequence[str],
) -> Record:
    """The record of knowledge.json: every dev question with both answers and its origin."""
    names = [question.subject for question in questions]
    relations = [question.template for question in questions]
    support = find_support(evidence, names, after, known_answers, templates=relations)
    rows = []
    for question, first, now, found in zip(questions, before, after, support, strict=True):
        was_right, is_right = (is_match(said, question.answer) for said in (first, now))
        is_stated = any(line.states_answer for line in found.lines)
        origin = MADE_UP
        if was_right:
            origin = KNOWN_BEFORE
        elif is_right and is_stated:
            origin = LEARNED
        rows.append(
            {
                "question": question.text,
                "subject": question.subject,
                "right": question.answer,
                "before": first,
                "after": now,
                "is_right": is_right,
                "origin": origin,
                "without_its_lines": None,  # what a twin says that did not read them
            }
        )
    return summarise({"questions": rows})


def summarise(record: Record) -> Record:
    """The record with its counts: by origin, and of what is called learned, what twins confirm."""
    rows = record["questions"]
    counts = Counter(row["origin"] for row in rows)
    checked = [row for row in rows if row["origin"] == LEARNED and row["without_its_lines"]]
    confirmed = [row for row in checked if not is_match(row["without_its_lines"], row["right"])]
    lost = [row for row in rows if row["origin"] == KNOWN_BEFORE and not row["is_right"]]
    return {
        "counts": {origin: counts[origin] for origin in ORIGINS},
        "lost": len(lost),  # known before, and wrong after training
        "checked_by_twins": len(checked),
        "confirmed_by_twins": len(confirmed),
        "questions": rows,
    }


def add_twin_answers(run: BaseRun, answers: Mapping[str, str]) -> Record | None:
    """Put a twin's answers, by question, beside what was learned; None if the run has no record."""
    if FILE not in run.record.files:
        return None
    record = read_json(check_file(run.folder, FILE), dict)
    for row in record["questions"]:
        if row["question"] in answers:
            row["without_its_lines"] = answers[row["question"]]
    record = summarise(record)
    keep_files(run.folder, {FILE: format_json(record)})
    return record
