"""The audit, top to bottom: a model and questions in; accuracy, confidence and judgement out."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.audit.asking import (
    OTHER_SHOTS,
    OTHERS,
    PROMPT,
    ROOM,
    AskState,
    Prompts,
    Shots,
    accepted,
    check_prompt,
    invent_names,
    is_match,
    read_block,
)
from wherefrom.audit.models import LanguageModel, open_model
from wherefrom.audit.runs import (
    ANSWERS,
    BLOCK,
    AuditConfidence,
    AuditRun,
    judge_run,
    open_run,
    read_answers,
    save_audit_confidence,
)
from wherefrom.audit.signals import SIGNS, learn_signals
from wherefrom.corpus.documents import Corpus, read_documents, read_lines
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question, QuestionSet, read_questions
from wherefrom.corpus.subjects import (
    CALIBRATION,
    DEV,
    FITTING,
    INVENTED,
    JUDGED,
    SET_ASIDE,
    UNSEEN_FILE,
    Role,
    Source,
    Subject,
    write_subjects,
)
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.fit import (
    INTERNAL,
    MODES,
    RIGHT,
    TARGETS,
    fit_policies,
    hash_subjects,
)
from wherefrom.provenance.evidence.index import EVIDENCE_FILE, Evidence, ensure_evidence
from wherefrom.provenance.evidence.lookup import Support, find_support
from wherefrom.provenance.judging.judge import write_judgement
from wherefrom.provenance.signals.reader import SignalState
from wherefrom.results import Printable
from wherefrom.storage import make_folder
from wherefrom.training.run_folder import (
    AUDIT,
    Run,
    check_folder,
    describe_file,
    digest_of,
    lock_run,
    open_folder,
    start_run,
    update_run,
)

SHARES = {FITTING: 0.45, CALIBRATION: 0.2}  # of the subjects; the others are judged
SHOTS = 5
FEWEST = 20  # questions of a relation that goes by itself, and of an audit
MADE_UP = 0.15  # invented subjects, as a share of a relation's questions
DECOYS = 3  # names that nobody has, whose answers others are compared with
UNKNOWABLE = ("-", "?", "unknown", "i don't know")  # an answer that says that there is none
LONGEST = 24  # tokens of an answer, unless most are longer
WORDY = 1.0  # tokens a letter, from which on a tokenizer was not made for the language
Say = Callable[[str], None]
Count = Callable[[str, int], Callable[[int], None]]


@dataclass(frozen=True)
class AuditPlan:
    """Who is asked what, and how."""

    subjects: tuple[Subject, ...]
    state: AskState
    notes: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class AuditResult(Printable):
    """All that an audit found, and the run that holds it."""

    run: Run
    rows: Sequence[dict[str, Any]]
    notes: Sequence[str]
    judgement: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        rest = {"notes": list(self.notes), "judgement": self.judgement}
        return {"run": str(self.run.folder), "results": list(self.rows), **rest}

    def summary(self) -> list[tuple[str, str]]:
        rows = [(row["name"], f"{row['correct']} of {row['total']}") for row in self.rows]
        return [("run", str(self.run.folder)), *rows, *(("note", note) for note in self.notes)]


def run_audit(
    model: str | Path,
    questions: str | Path,
    out: str | Path,
    *,
    text: str | Path | None = None,
    unseen: str | Path | None = None,
    prompt: str | None = None,
    shots: int = SHOTS,
    templates: Sequence[str] = (),
    risk: float = 0.1,
    delta: float = 0.05,
    seed: int = 0,
    resume: bool = False,
    say: Say = lambda _: None,
    count: Count = lambda _what, _total: lambda _more: None,
) -> AuditResult:
    """Ask a model that others trained, and learn which of its answers can be believed.

    unseen: questions about subjects that do not exist. text: documents in which answers are looked
    up. count: makes, from what is counted and how many there are, what is called with how many
    more are done. What was answered is kept as it comes; with `resume` it is not asked for again.
    """
    began, out = time.monotonic(), Path(out)
    check_folder(out, resume=resume)
    if prompt is not None:
        check_prompt(prompt)
    if not 0 <= shots <= 50:
        raise UserError(f"--shots is from 0 to 50, not {shots}.")
    file = read_audit_questions(questions, templates)
    strangers = read_audit_questions(unseen, file.templates) if unseen else None
    corpus = read_documents(text) if text else None
    say(f"loading {model}")
    opened = open_model(model)
    plan = plan_audit(opened, file, strangers, prompt=prompt, shots=shots, seed=seed)
    for note in plan.notes:
        say(note)
    place = os.path.abspath(model)
    job = {
        "weights": opened.sha256,
        "questions": file.sha256,
        "unseen": strangers.sha256 if strangers else None,
        "documents": digest_of([each.text for each in corpus.documents]) if corpus else None,
        "prompt": prompt,
        "shots": shots,
        "risk": risk,
        "seed": seed,
    }
    data = {}
    if corpus is not None:
        many = len(corpus.documents)
        data["corpus"] = describe_file(corpus.path, corpus.sha256, out, documents=many)
    details = {
        "kind": AUDIT,
        "model": place,
        "sha256": opened.sha256,
        "templates": list(file.templates),
        "data": data,
        "notes": list(plan.notes),
    }
    with lock_run(make_folder(out)):
        open_folder(out, job, resume=resume)
        start_run(out, job, details, say)
        ask_all(opened, plan, out, count)
        run = open_run(out)
        assert isinstance(run, AuditRun)
        subjects = calibrate(run, plan, corpus, risk=risk, delta=delta, seed=seed, say=say)
        say("judging by subjects that took no part")
        judgement = judge_run(run, seed=seed)
        rows = count_right(run, subjects, time.monotonic() - began)
        update_run(out, results=rows)
        write_judgement(run, judgement)
        notes = list(dict.fromkeys((*plan.notes, *judgement.record["notes"])))
        update_run(out, notes=notes, status="finished", seconds=rows[0]["seconds"])
    return AuditResult(open_run(out), rows, notes, judgement.record)


def read_audit_questions(path: str | Path, templates: Sequence[str]) -> QuestionSet:
    """A TSV of question, answers and subject; questions that share no wording are their subjects.

    Several answers that are accepted are separated by |.
    """
    try:
        file = read_questions(path, templates)
    except UserError as problem:
        if "share no wording" not in str(problem) and "is not worded like" not in str(problem):
            raise
        lines = read_lines(path, "questions")
        cells = [(number, line.split("\t")) for number, line in lines.lines]
        questions = tuple(
            Question(number, row[0].strip(), row[0].strip(), row[1].strip(), SLOT)
            for number, row in cells
        )
        file = QuestionSet(lines.path, lines.sha256, (SLOT,), questions)
    file.require_answers()
    return file


def plan_audit(
    model: LanguageModel,
    file: QuestionSet,
    unseen: QuestionSet | None,
    *,
    prompt: str | None,
    shots: int,
    seed: int,
) -> AuditPlan:
    """Who fits, tests and is judged; examples, known answers and invented names of each relation.

    Subjects of examples are asked about nowhere. Answers of judged subjects are used for nothing.
    """
    mask = model.mask if prompt is None else None
    rng = np.random.default_rng([seed, 43])
    sizes = Counter(question.template for question in file.questions)
    own = {each for each, size in sizes.items() if SLOT in each and size >= FEWEST}
    real = [row for row in file.questions if (row.answer or "").lower() not in UNKNOWABLE]
    strangers: list[tuple[Question, Source]] = [
        (row, UNSEEN_FILE) for row in file.questions if row not in real
    ]
    strangers += [(row, UNSEEN_FILE) for row in (unseen.questions if unseen else ())]
    decoys: dict[str, tuple[str, ...]] = {}
    for relation in sorted(own - {SLOT}):
        known = [row.subject for row in real if row.template == relation]
        names = invent_names(known, max(4, round(MADE_UP * len(known))) + DECOYS, rng)
        decoys[relation] = tuple(names[:DECOYS])
        strangers += [
            (Question(0, relation.replace(SLOT, name), name, None, relation), INVENTED)
            for name in names[DECOYS:]
        ]
    subjects = assign_roles(real, strangers, rng)
    groups: dict[str, list[Subject]] = defaultdict(list)
    for one in subjects:
        if one.answer is not None and one.role != JUDGED:
            groups[one.template if one.template in own else OTHERS].append(one)
    examples: dict[str, Shots] = {}
    other: dict[str, Shots] = {}
    answers: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    for relation, rows in groups.items():
        fitting = [one for one in rows if one.role == FITTING]
        first = list({accepted(one.answer)[0]: one for one in fitting}.values())
        first += [one for one in fitting if one not in first]  # other answers before the same
        most = 0 if mask else min(shots, len(fitting) // 3)
        drawn = first[: most + (OTHER_SHOTS if most else 0)]
        pairs = tuple((one.question, accepted(one.answer)[0]) for one in drawn)
        examples[relation], other[relation] = pairs[:most], pairs[most:]
        taken.update(question for question, _ in pairs)
        answers[relation] = tuple(dict.fromkeys(accepted(one.answer)[0] for one in rows))
    subjects = tuple(one for one in subjects if one.question not in taken)
    if len(real) - len(taken) < FEWEST:
        raise UserError(
            f"{file.path} leaves {len(real) - len(taken)} questions to ask beside the examples, "
            f"and an audit takes at least {FEWEST}; give more questions, or fewer --shots."
        )
    prompts = Prompts(prompt or PROMPT, examples, other, mask)
    plan = AuditPlan(subjects, AskState(prompts, answers, decoys, LONGEST), ())
    return check_lengths(model, plan, file)


def assign_roles(
    real: Sequence[Question],
    strangers: Sequence[tuple[Question, Source]],
    rng: np.random.Generator,
) -> tuple[Subject, ...]:
    """All questions about a subject have one role; those who exist and those who do not alike."""
    found: list[Subject] = []
    asked: set[str] = set()
    known: list[tuple[Question, Source | None]] = [(row, None) for row in real]
    for rows in (known, list(strangers)):
        names = list(dict.fromkeys(fold_words(row.subject) or (row.subject,) for row, _ in rows))
        roles: dict[tuple[str, ...], Role] = {}
        for rank, at in enumerate(rng.permutation(len(names))):
            place = (rank + 0.5) / len(names)
            fits, tests = SHARES[FITTING], SHARES[FITTING] + SHARES[CALIBRATION]
            roles[names[at]] = FITTING if place < fits else CALIBRATION if place < tests else JUDGED
        for row, source in rows:
            if row.text in asked:
                continue
            asked.add(row.text)
            role = roles[fold_words(row.subject) or (row.subject,)]
            origin = source or (DEV if role == JUDGED else SET_ASIDE)
            answer = row.answer if source is None else None
            subject = (role, source is None, origin, row.subject, row.text, answer, row.template)
            found.append(Subject(*subject))
    return tuple(found)


def check_lengths(model: LanguageModel, plan: AuditPlan, file: QuestionSet) -> AuditPlan:
    """The plan with room for its answers, and notes; a UserError where the context has none."""
    state, notes = plan.state, []
    lines = {question.text: question.line for question in file.questions}
    lengths, tokens, letters, unknown = [], 0, 0, 0
    for one in plan.subjects:
        relation = state.relation(one.template)
        text = state.prompts.render(relation, one.question)
        own = model.encode(one.question)
        tokens, letters = tokens + len(own), letters + len(one.question)
        unknown += model.is_unknown(own)
        for answer in accepted(one.answer)[:1]:
            told = model.continuation(text, answer)
            needed = len(model.prompt(text)) + len(told)
            if needed > model.longest:
                raise UserError(
                    f"{file.path}, line {lines[one.question]}: prompt and answer have {needed} "
                    f"tokens and {model.name} reads {model.longest}; shorten the answer, or give "
                    "fewer --shots."
                )
            lengths.append(len(told))
    if 2 * unknown > len(plan.subjects):
        raise UserError(
            f"{file.path}: the tokenizer of {model.name} does not know the letters of most "
            "questions; ask in a language that the model was made for."
        )
    if tokens > WORDY * letters:
        notes.append(
            f"the questions take {tokens / letters:.1f} tokens a letter: the tokenizer was hardly "
            "made for their language, and neither was the model, it seems."
        )
    room = int(np.quantile(lengths, 0.98)) + ROOM
    state = AskState(state.prompts, state.known, state.decoys, min(room, max(LONGEST, room // 2)))
    return AuditPlan(plan.subjects, state, tuple(notes))


def ask_all(model: LanguageModel, plan: AuditPlan, out: Path, count: Count) -> None:
    """Ask what answers.jsonl does not hold yet; it grows by a block of questions at a time."""
    known = {each["question"] for each in read_answers(out)}
    report = count("asking", len(plan.subjects))
    report(sum(one.question in known for one in plan.subjects))
    groups: dict[tuple[str, bool], list[Subject]] = defaultdict(list)
    for one in plan.subjects:
        if one.question not in known:
            # rivals are tuned on those who test, and compared on those who are judged
            groups[plan.state.relation(one.template), one.role != FITTING].append(one)
    path = out / ANSWERS
    broken = path.is_file() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" if broken else "")
        for (relation, rivals), rows in groups.items():
            for begin in range(0, len(rows), BLOCK):
                part = rows[begin : begin + BLOCK]
                asked = [(one.question, one.subject) for one in part]
                for record in read_block(model, plan.state, relation, asked, rivals=rivals):
                    file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
                report(len(part))


def calibrate(
    run: AuditRun,
    plan: AuditPlan,
    corpus: Corpus | None,
    *,
    risk: float,
    delta: float,
    seed: int,
    say: Say,
) -> tuple[Subject, ...]:
    """Fit the confidence on the subjects that are not judged, and keep it; returns all subjects.

    With a text, who is named in it was seen; without one, whoever exists is taken for seen.
    """
    subjects = plan.subjects
    evidence: Evidence | None = None
    if corpus is not None:
        say(f"looking up the evidence in {len(corpus.documents):,} documents")
        learned = [
            Question(0, one.question, one.subject, accepted(one.answer)[0], one.template)
            for one in subjects
            if one.role != JUDGED and one.answer
        ]
        evidence = ensure_evidence(corpus, run.folder / EVIDENCE_FILE, learned)
        subjects = tuple(_as_seen(one, evidence) for one in subjects)
    write_subjects(run.folder, subjects)
    asked = [one for one in subjects if one.role != JUDGED]
    kept = {each["question"]: each for each in read_answers(run.folder)}
    records = [kept[one.question] for one in asked]
    said = [each["answer"] for each in records]
    right = np.array([is_match(a, one.answer) for a, one in zip(said, asked, strict=True)])
    fits = np.array([one.role == FITTING for one in asked])
    learned_signals, columns = learn_signals(records, right, fits, seed)
    known = [a for answers in plan.state.known.values() for a in answers]
    if evidence is not None:
        names, relations = [one.subject for one in asked], [one.template for one in asked]
        with evidence:
            support = find_support(evidence, names, said, known, templates=relations)
    else:
        support = [Support(one.seen, False, False, (), ()) for one in asked]
    policies, seen = fit_policies(
        asked,
        {name: columns[name] for name in SIGNS},
        support,
        right,
        signs=SIGNS,
        fits=fits,
        risk=risk,
        delta=delta,
        seed=seed,
    )
    alone = policies[RIGHT][INTERNAL]
    if evidence is None:  # what is right is all that can be told, and the model alone tells it
        policies = {target: dict.fromkeys(MODES, alone) for target in TARGETS}
    remarks = dict.fromkeys(each.calibration.note for each in policies[RIGHT].values())
    confidence = AuditConfidence(
        run=run,
        policies=policies,
        seen=seen,
        share=alone.share,
        risk=risk,
        delta=delta,
        notes=tuple(note for note in remarks if note),
        weights_sha256=run.info["sha256"],
        subjects_sha256=hash_subjects(subjects),
        signal_state=SignalState(tuple(dict.fromkeys(known)), {}, ()),
        asking=plan.state,
        learned=learned_signals,
    )
    save_audit_confidence(run.folder, confidence)
    return subjects


def _as_seen(one: Subject, evidence: Evidence) -> Subject:
    there = bool(fold_words(one.subject)) and evidence.count(one.subject).naming > 0
    return replace(one, seen=there)


def count_right(run: Run, subjects: Sequence[Subject], seconds: float) -> list[dict[str, Any]]:
    """Rows of a table: normalised and exact match, and the commonest answer of each relation."""
    kept = {each["question"]: each["answer"] for each in read_answers(run.folder)}
    real = [one for one in subjects if one.answer is not None]
    answers = Counter((one.template, accepted(one.answer)[0]) for one in real if one.role != JUDGED)
    common = {template: answer for (template, answer), _ in reversed(answers.most_common())}
    said: dict[str, Callable[[Subject], bool]] = {
        "pretrained": lambda one: is_match(kept[one.question], one.answer),
        "exact": lambda one: kept[one.question] in accepted(one.answer),
        "majority": lambda one: is_match(common.get(one.template, ""), one.answer),
    }
    about = {
        "pretrained": "case, accents, articles and punctuation aside",
        "exact": "the very letters",
        "majority": "the commonest answer of its relation",
    }
    rows = []
    for name, hit in said.items():
        hits = {one.question: hit(one) for one in real}
        relations = {}
        for template in dict.fromkeys(one.template for one in real):
            here = [hits[one.question] for one in real if one.template == template]
            relations[template] = _share(here)
        took = seconds if name == "pretrained" else None
        head = {"name": name, "about": about[name], **_share(list(hits.values()))}
        rows.append({**head, "seconds": took, "relations": relations})
    return rows


def _share(hits: Sequence[bool]) -> dict[str, Any]:
    right = sum(hits)
    return {"correct": right, "total": len(hits), "recall": right / max(1, len(hits))}
