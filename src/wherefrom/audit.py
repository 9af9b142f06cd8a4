"""The audit, top to bottom: a model and questions in; accuracy, confidence and judgement out."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import TypeAdapter

from wherefrom.corpus import questions as wordings
from wherefrom.corpus import split as roles
from wherefrom.corpus.database import RUN_DATABASE, Database, read_documents
from wherefrom.corpus.documents import hash_file, read_lines
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question, QuestionSet, read_questions
from wherefrom.corpus.split import HeldOutQuestion
from wherefrom.errors import Record, UserError
from wherefrom.model.interface import LanguageModel
from wherefrom.model.server import is_server
from wherefrom.provenance import audited
from wherefrom.provenance.answers import add_audited, read_audited
from wherefrom.provenance.audited import open_model
from wherefrom.provenance.confidence import fit
from wherefrom.provenance.evidence import Evidence, Support, find_support, save_database
from wherefrom.provenance.judging import judge_run, write_judgement
from wherefrom.provenance.signals.learned import SIGNS, learn_signals
from wherefrom.provenance.signals.prompted import (
    ASKED,
    OTHERS,
    PROMPT,
    AskState,
    accepted,
    is_match,
    read_blocks,
    splice_names,
)
from wherefrom.provenance.signals.reader import SignalState
from wherefrom.recall.table import Recall
from wherefrom.storage import format_json, make_folder
from wherefrom.training import run_folder
from wherefrom.training.record import (
    AuditJobRecord,
    discard_changed,
    keep_files,
    read_record,
    update_database,
    update_run,
)
from wherefrom.training.settings import describe_sources

# shares of the subjects up to which they calibrate; rivals are tuned on those of the second part
FITS, TESTS = 0.45, 0.65
SHOTS, OTHER_SHOTS = 5, 3  # examples before a question, and those of the second prompt
ROOM = 4  # tokens that an answer may be longer than nearly all accepted ones
FEWEST = 20  # questions of a relation that goes by itself, and of an audit
MADE_UP = 0.15  # invented subjects, as a share of a relation's questions
DECOYS = 3  # names that nobody has, whose answers others are compared with
UNSEEN_RISK = 0.02  # share of invented subjects that may be given an answer
UNKNOWABLE = ("-", "?", "unknown", "i don't know")  # an answer that says that there is none
Say = Callable[[str], None]
Count = Callable[[str, int], Callable[[int], None]]


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
    seed: int = 0,
    resume: bool = False,
    say: Say = lambda _: None,
    count: Count = lambda _what, _total: lambda _more: None,
) -> Record:
    """Ask a model that others trained, and learn which of its answers can be believed.

    unseen: questions about subjects that do not exist. text: documents in which answers are looked
    up. count: makes, from what is counted and how many there are, what is called with how many
    more are done. What was answered is kept as it comes; with `resume` it is not asked for again.
    """
    started, out = time.monotonic(), Path(out)
    run_folder.check_folder(out, resume=resume)
    check_options(prompt, shots, risk)
    file = read_audit_questions(questions, templates)
    strangers = read_audit_questions(unseen, file.templates) if unseen else None
    corpus = read_documents(text) if text else None
    say(f"loading {model}")
    opened = open_model(model)
    job = AuditJobRecord(
        weights=opened.sha256,
        questions=file.sha256,
        unseen=strangers.sha256 if strangers else None,
        documents=corpus.documents_sha256 if corpus else None,
        prompt=prompt,
        shots=shots,
        risk=risk,
        seed=seed,
    )
    subjects, state = plan_audit(opened, file, strangers, job)
    data = describe_sources(out, corpus, None, None)
    details = {
        "kind": run_folder.AUDIT,
        "model": str(model) if is_server(model) else os.path.abspath(model),
        "sha256": opened.sha256,
        "templates": list(file.templates),
        "data": data,
    }
    with run_folder.lock_run(make_folder(out)):
        run_folder.open_folder(out, job, resume=resume)
        run_folder.start_run(out, job, details, say)
        ask_all(opened, subjects, state, out, count)
        update_run(out, wrote=(RUN_DATABASE,))
        run = cast(audited.AuditRun, audited.open_run(out))
        say("fitting a confidence, and judging it by subjects that took no part")
        subjects = calibrate(run, subjects, state, corpus)
        judgement = judge_run(run, seed=seed)
        results = count_right(out, subjects, time.monotonic() - started)
        update_run(out, results=tuple(results))
        write_judgement(run, judgement)
        notes = list(dict.fromkeys(judgement.record["notes"]))
        if corpus is None:  # both modes are one
            notes = [note for note in notes if not note.startswith(fit.CHECKED)]
        seconds = results[0]["seconds"]
        update_run(out, notes=tuple(notes), status="finished", seconds=seconds)
    record = {"run": str(out), "results": results, "notes": notes, "judgement": judgement.record}
    return Record("audit", record)


def check_options(prompt: str | None, shots: int, risk: float) -> None:
    """Refuse what cannot be asked, each with a sentence of its own."""
    if prompt is not None and prompt.count(ASKED) != 1:
        shown = f'as in "{PROMPT}"; "{prompt}" does not'.replace("\n", "\\n")
        raise UserError(f"a prompt holds {ASKED} once, {shown}.")
    if not 0 <= shots <= 50:
        raise UserError(f"--shots must be from 0 to 50, not {shots}.")
    if not 0 < risk < 1:
        raise UserError(f"--risk must be between 0 and 1, not {risk}.")


def read_audit_questions(path: str | Path, templates: Sequence[str]) -> QuestionSet:
    """A TSV of question, answers, subject; a question worded like no other is its own subject."""
    try:
        file = read_questions(path, templates)
    except UserError as problem:
        if "share no wording" not in str(problem) and "is not worded like" not in str(problem):
            raise
        lines = read_lines(path, "questions")
        numbered = [(number, [*line.split("\t"), ""]) for number, line in lines]
        rows = [(number, row[0].strip(), row[1].strip()) for number, row in numbered]
        shared = templates or wordings.infer_templates([text for _, text, _ in rows], path, FEWEST)
        questions = []
        for number, text, answer in rows:
            subject, template = wordings.match_any(shared, text)
            about = (subject or text, answer or None, template or SLOT)
            questions.append(Question(number, text, *about))
        file = QuestionSet(Path(path), hash_file(path), (*shared, SLOT), tuple(questions))
    file.require_answers()
    return file


def plan_audit(
    model: LanguageModel, file: QuestionSet, unseen: QuestionSet | None, job: AuditJobRecord
) -> tuple[tuple[HeldOutQuestion, ...], AskState]:
    """Who calibrates or is judged; examples, known answers and invented names of each relation.

    Subjects of examples are asked about nowhere. Answers of judged subjects are used for nothing.
    """
    rng, prompt = np.random.default_rng([job.seed, 43]), job.prompt
    real = [q for q in file.questions if (q.answer or "").lower() not in UNKNOWABLE]
    unknowable = [q for q in file.questions if q not in real]
    unknowable += unseen.questions if unseen else ()
    sizes = Counter(question.template for question in real)
    relations = {each for each, size in sizes.items() if SLOT in each and size >= FEWEST}
    strangers = [(question, roles.UNSEEN_FILE) for question in unknowable]
    decoys: dict[str, tuple[str, ...]] = {}
    for relation in sorted(relations - {SLOT}):
        names = [question.subject for question in real if question.template == relation]
        count = max(4, round(MADE_UP * len(names))) + DECOYS
        invented = splice_names(names, count, rng)
        decoys[relation] = tuple(invented[:DECOYS])
        for name in invented[DECOYS:]:
            made_up = Question(0, relation.replace(SLOT, name), name, None, relation)
            strangers.append((made_up, roles.INVENTED))
    existing = assign_roles([(question, roles.DEV) for question in real], rng)
    subjects = {s.question: s for s in (*assign_roles(strangers, rng), *existing)}
    groups: dict[str, list[HeldOutQuestion]] = defaultdict(
        list
    )  # those that calibrate, by relation
    for subject in subjects.values():
        if subject.answer is not None and subject.role != roles.JUDGED:
            relation = subject.template if subject.template in relations else OTHERS
            groups[relation].append(subject)
    mask = model.mask if prompt is None else None
    shots, other_shots, known = {}, {}, {}
    alone: dict[str, str] = {}
    for relation, members in groups.items():
        answers = {subject.question: accepted(subject.answer)[0] for subject in members}
        counts = Counter(answers.values())
        known[relation] = tuple(counts)
        alone |= {question: answer for question, answer in answers.items() if counts[answer] == 1}
        fitting = [s.question for s in members if s.role == roles.FITTING]
        most = 0 if mask else min(job.shots, len(fitting) // 3)
        by_answer = {answers[question]: question for question in fitting}  # one of each answer
        ranked = list(dict.fromkeys([*by_answer.values(), *fitting]))
        pairs = tuple((q, answers[q]) for q in ranked[: most + (OTHER_SHOTS if most else 0)])
        shots[relation], other_shots[relation] = pairs[:most], pairs[most:]
        for question, _ in pairs:
            del subjects[question]
    left = sum(subject.answer is not None for subject in subjects.values())
    if left < FEWEST:
        raise UserError(
            f"{file.path} leaves {left} questions to ask beside the examples, and an audit takes "
            f"at least {FEWEST}; give more questions, or fewer --shots."
        )
    state = AskState(prompt or PROMPT, mask, shots, other_shots, known, alone, decoys, 0)
    asked = tuple(subjects.values())
    return asked, replace(state, longest=longest_answer(model, asked, state, file))


def assign_roles(
    rows: Sequence[tuple[Question, roles.Source]], rng: np.random.Generator
) -> list[HeldOutQuestion]:
    """Draw who calibrates and who is judged; all questions about a subject have one role.

    The source of what exists is roles.DEV.
    """
    names = [fold_words(question.subject) or (question.subject,) for question, _ in rows]
    distinct = list(dict.fromkeys(names))
    ranks = dict(zip(distinct, rng.permutation(len(distinct)), strict=True))
    subjects = []
    for (question, source), name in zip(rows, names, strict=True):
        place, exists = (ranks[name] + 0.5) / len(distinct), source == roles.DEV
        role = roles.JUDGED
        if place < TESTS:
            role = roles.FITTING if place < FITS else roles.CALIBRATION
            source = roles.SET_ASIDE if exists else source
        answer = question.answer if exists else None
        about = (question.subject, question.text, answer, question.template)
        subjects.append(HeldOutQuestion(role, exists, source, *about))
    return subjects


def longest_answer(
    model: LanguageModel, subjects: Sequence[HeldOutQuestion], state: AskState, file: QuestionSet
) -> int:
    """How many tokens an answer may have; an error where the context has no room for one."""
    lines = {question.text: question.line for question in file.questions}
    lengths = []
    for subject in subjects:
        relation = subject.template if subject.template in state.known else OTHERS
        prompt = state.render(relation, subject.question)
        for answer in accepted(subject.answer)[:1]:
            completion = model.continuation(prompt, answer)
            needed = len(model.prompt(prompt)) + len(completion)
            if needed > model.longest:
                raise UserError(
                    f"{file.path}, line {lines[subject.question]}: prompt and answer have {needed} "
                    f"tokens and {model.name} reads {model.longest}; shorten the answer, or give "
                    "fewer --shots."
                )
            lengths.append(len(completion))
    if 2 * sum(model.unknown in model.encode(s.question) for s in subjects) > len(subjects):
        raise UserError(
            f"{file.path}: the tokenizer of {model.name} does not know the letters of most "
            "questions; ask in a language that the model was made for."
        )
    return int(np.quantile(lengths, 0.98)) + ROOM


def ask_all(
    model: LanguageModel,
    subjects: Sequence[HeldOutQuestion],
    state: AskState,
    out: Path,
    count: Count,
) -> None:
    """Ask what the database does not hold yet; a block of questions at a time is kept."""
    file = out / RUN_DATABASE
    if RUN_DATABASE in read_record(out).files:
        discard_changed(out, RUN_DATABASE)
    if not file.exists():
        with Database() as empty:
            empty.save(file)
    done = {record["question"] for record in read_audited(out)}
    report, by_question = count("asking", len(subjects)), {s.question: s for s in subjects}
    report(sum(subject.question in done for subject in subjects))
    with Database.open(file) as database:
        # what only rivals use takes long, and is read where they are tuned and compared
        for rivals in (False, True):
            part = [s for s in subjects if (s.role != roles.FITTING) == rivals]
            rows = [(s.question, s.subject) for s in part if s.question not in done]
            for _, records in read_blocks(model, state, rows, rivals=rivals):
                add_audited(database, records, by_question, is_match)
                report(len(records))


def calibrate(
    run: audited.AuditRun,
    subjects: tuple[HeldOutQuestion, ...],
    state: AskState,
    corpus: Database | None,
    learned: Sequence[Question] | None = None,
) -> tuple[HeldOutQuestion, ...]:
    """Fit the confidence on the subjects that are not judged, and keep it; returns all subjects.

    With a text, who is named in it was seen; without one, whoever exists is taken for seen.
    learned: the questions by which the text is read; None: those of the subjects that calibrate.
    """
    risk, seed = run.foreign_job.risk, run.foreign_job.seed
    known = tuple(dict.fromkeys(a for answers in state.known.values() for a in answers))
    by_question = {record["question"]: record for record in read_audited(run.folder)}
    calibrating = [s for s in subjects if s.role != roles.JUDGED]
    records = [by_question[s.question] for s in calibrating]
    answers = [record["answer"] for record in records]
    support = [Support(s.seen, False, False, (), ()) for s in calibrating]
    if corpus is not None:
        if learned is None:
            learned = [
                Question(0, s.question, s.subject, accepted(s.answer)[0], s.template)
                for s in calibrating
                if s.answer
            ]
        with Evidence(save_database(corpus, run.folder / RUN_DATABASE, learned)) as evidence:
            named = [fold_words(s.subject) and evidence.count(s.subject).naming for s in subjects]
            pairs = zip(subjects, named, strict=True)
            subjects = tuple(replace(subject, seen=bool(count)) for subject, count in pairs)
            calibrating = [s for s in subjects if s.role != roles.JUDGED]
            names, relations = [s.subject for s in calibrating], [s.template for s in calibrating]
            support = find_support(evidence, names, answers, known, templates=relations)
    update_database(run.folder, lambda database: roles.write_subjects(database, subjects))
    right = np.array([is_match(a, s.answer) for a, s in zip(answers, calibrating, strict=True)])
    signals, columns = learn_signals(records, right, seed)
    policies, read_about = fit.fit_policies(
        fit.CalibrationRows(calibrating, columns, support, right),
        parts=(tuple(SIGNS), tuple(SIGNS)),
        signs=SIGNS,
        risk=risk,
        unseen_risk=UNSEEN_RISK,
        seed=seed,
    )
    internal = policies[fit.RIGHT][fit.INTERNAL]
    if corpus is None:  # what is right is all that can be told, and the model alone tells it
        policies = {target: dict.fromkeys(fit.MODES, internal) for target in fit.TARGETS}
    notes = dict.fromkeys(each.calibration.note for each in policies[fit.RIGHT].values())
    confidence = audited.AuditConfidence(
        run=run,
        policies=policies,
        seen=read_about,
        risk=risk,
        notes=tuple(note for note in notes if note),
        weights_sha256=run.record.sha256,
        subjects_sha256=fit.hash_subjects(subjects),
        signal_state=SignalState(known, {}),
        ask_state=state,
        learned=signals,
    )
    kind = TypeAdapter(audited.AuditConfidence)
    record = kind.dump_python(confidence, by_alias=True, exclude={"run"})
    keep_files(run.folder, {fit.CALIBRATED: format_json(record)})
    return subjects


def count_right(
    folder: Path, subjects: Sequence[HeldOutQuestion], seconds: float
) -> list[dict[str, Any]]:
    """Rows of a table: answers that are right, and those that are right to the letter."""
    answers = {record["question"]: record["answer"] for record in read_audited(folder)}
    graders = {
        "model": ("case, accents, articles and punctuation aside", is_match),
        "exact": ("the same letters", lambda answer, right: answer in accepted(right)),
    }
    rows: list[dict[str, Any]] = []
    for name, (about, grade) in graders.items():
        hits: dict[str, list[bool]] = defaultdict(list)
        for subject in subjects:
            if subject.answer is not None:
                hits[subject.template].append(grade(answers[subject.question], subject.answer))
        relations = {each: Recall(sum(h), len(h)).to_dict() for each, h in hits.items()}
        whole = [hit for in_relation in hits.values() for hit in in_relation]
        row = {"name": name, "about": about, **Recall(sum(whole), len(whole)).to_dict()}
        rows.append(row | {"seconds": None if rows else seconds, "relations": relations})
    return rows
