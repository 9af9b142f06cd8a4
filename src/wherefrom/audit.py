"""The audit, top to bottom: a model and questions in; accuracy, confidence and judgement out."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
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
from wherefrom.model.interface import ASKED, LanguageModel
from wherefrom.model.server import is_server
from wherefrom.provenance import audited
from wherefrom.provenance.answers import add_audited, read_audited
from wherefrom.provenance.audited import open_model
from wherefrom.provenance.confidence import fit
from wherefrom.provenance.evidence import Evidence, Support, find_support, save_database
from wherefrom.provenance.judging import judge_run, write_judgement
from wherefrom.provenance.signals.learned import SIGNS, learn_signals
from wherefrom.provenance.signals.prompted import (
    OTHER_RELATIONS,
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
from wherefrom.training.loop import Count, no_count
from wherefrom.training.record import (
    AuditJobRecord,
    discard_changed,
    keep_files,
    read_record,
    update_database,
    update_run,
)
from wherefrom.training.settings import describe_sources

CALIBRATING = 0.65  # share of the subjects that calibrate; the others are judged
SHOTS, OTHER_SHOTS = 5, 3  # examples before a question, and those of the second prompt
EXTRA_ANSWER_TOKENS = 4  # tokens that an answer may be longer than nearly all accepted ones
MIN_QUESTIONS = 20  # questions of a relation that goes by itself, and of an audit
MADE_UP = 0.15  # invented subjects, as a share of a relation's questions
DECOYS = 3  # names that nobody has, whose answers others are compared with
UNSEEN_RISK = 0.02  # share of invented subjects that may be given an answer
LIKELIHOOD = ("log_probability",)  # all that the confidence is made of where nothing adds to it
LEAST_PROBABILITY = 1e-3  # of a grade, where losses are compared
UNKNOWABLE = ("-", "?", "unknown", "i don't know")  # an answer that says that there is none
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What users may choose about an audit.

    text: documents in which answers are looked up. unseen: questions about subjects that do not
    exist. prompt: None stands for PROMPT, or what a run of ours reads. resume: what was answered is
    not asked for again.
    """

    text: Path | None = None
    unseen: Path | None = None
    prompt: str | None = None
    shots: int = SHOTS
    templates: tuple[str, ...] = ()
    risk: float = 0.1
    seed: int = 0
    resume: bool = False

    def __post_init__(self) -> None:
        if self.prompt is not None and self.prompt.count(ASKED) != 1:
            shown = f'as in "{PROMPT}"; "{self.prompt}" does not'.replace("\n", "\\n")
            raise UserError(f"a prompt holds {ASKED} once, {shown}.")
        if not 0 <= self.shots <= 50:
            raise UserError(f"--shots must be from 0 to 50, not {self.shots}.")
        if not 0 < self.risk < 1:
            raise UserError(f"--risk must be between 0 and 1, not {self.risk}.")


def run_audit(
    model: str | Path,
    questions: Path,
    out: Path,
    settings: AuditSettings,
    *,
    say: Say = lambda _: None,
    count: Count = no_count,
) -> Record:
    """Ask a model that others trained, and learn which of its answers can be believed.

    count: makes, from what is counted and how many there are, what is called with how many more
    are done. What was answered is kept as it comes.
    """
    started = time.monotonic()
    run_folder.check_folder(out, resume=settings.resume)
    file = read_audit_questions(questions, settings.templates)
    strangers = read_audit_questions(settings.unseen, file.templates) if settings.unseen else None
    corpus = read_documents(settings.text) if settings.text else None
    say(f"loading {model}")
    opened = open_model(model)
    job = AuditJobRecord(
        weights=opened.sha256,
        questions=file.sha256,
        unseen=strangers.sha256 if strangers else None,
        documents=corpus.documents_sha256 if corpus else None,
        prompt=settings.prompt,
        shots=settings.shots,
        risk=settings.risk,
        seed=settings.seed,
    )
    subjects, state = plan_audit(opened, file, strangers, job)
    details = {
        "kind": run_folder.AUDIT,
        "model": str(model) if is_server(model) else os.path.abspath(model),
        "sha256": opened.sha256,
        "templates": list(file.templates),
        "data": describe_sources(out, corpus, None, None),
    }
    with run_folder.lock_run(make_folder(out)):
        run_folder.open_folder(out, job, resume=settings.resume)
        run_folder.start_run(out, job, details, say)
        ask_all(opened, subjects, state, out, count)
        update_run(out, wrote=(RUN_DATABASE,))
        run = cast(audited.AuditRun, audited.open_run(out))
        say("fitting a confidence, and judging it by subjects that took no part")
        subjects = calibrate(run, subjects, state, corpus)
        judgement = judge_run(run, seed=settings.seed)
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
        shared = templates or wordings.infer_templates(
            [text for _, text, _ in rows], path, MIN_QUESTIONS
        )
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
    rng = np.random.default_rng([job.seed, 43])
    real = [q for q in file.questions if (q.answer or "").lower() not in UNKNOWABLE]
    unknowable = [q for q in file.questions if q not in real]
    unknowable += unseen.questions if unseen else ()
    sizes = Counter(question.template for question in real)
    relations = {each for each, size in sizes.items() if SLOT in each and size >= MIN_QUESTIONS}
    decoys, invented = invent_subjects(real, relations, rng)
    strangers = [(question, roles.UNSEEN_FILE) for question in unknowable]
    strangers += [(question, roles.INVENTED) for question in invented]
    existing = assign_roles([(question, roles.DEV) for question in real], rng)
    subjects = {s.question: s for s in (*assign_roles(strangers, rng), *existing)}
    calibrating: dict[str, list[HeldOutQuestion]] = defaultdict(list)  # by relation
    for subject in subjects.values():
        if subject.answer is not None and subject.role != roles.JUDGED:
            relation = subject.template if subject.template in relations else OTHER_RELATIONS
            calibrating[relation].append(subject)
    mask = model.mask if job.prompt is None else None
    shots, other_shots, known = {}, {}, {}
    alone: dict[str, str] = {}
    for relation, members in calibrating.items():
        answers = {subject.question: accepted(subject.answer)[0] for subject in members}
        counts = Counter(answers.values())
        known[relation] = tuple(counts)
        alone |= {question: answer for question, answer in answers.items() if counts[answer] == 1}
        pairs, most = choose_examples(members, answers, 0 if mask else job.shots)
        shots[relation], other_shots[relation] = pairs[:most], pairs[most:]
        for question, _ in pairs:
            del subjects[question]
    left = sum(subject.answer is not None for subject in subjects.values())
    if left < MIN_QUESTIONS:
        raise UserError(
            f"{file.path} leaves {left} questions to ask beside the examples, and an audit takes "
            f"at least {MIN_QUESTIONS}; give more questions, or fewer --shots."
        )
    state = AskState(job.prompt or PROMPT, mask, shots, other_shots, known, alone, decoys, 0)
    asked = tuple(subjects.values())
    return asked, replace(state, longest=longest_answer(model, asked, state, file))


def invent_subjects(
    real: Sequence[Question], relations: Collection[str], rng: np.random.Generator
) -> tuple[dict[str, tuple[str, ...]], list[Question]]:
    """By relation names that nobody has, and questions about others of the kind."""
    decoys: dict[str, tuple[str, ...]] = {}
    questions = []
    for relation in sorted(set(relations) - {SLOT}):
        names = [question.subject for question in real if question.template == relation]
        count = max(4, round(MADE_UP * len(names))) + DECOYS
        invented = splice_names(names, count, rng)
        decoys[relation] = tuple(invented[:DECOYS])
        for name in invented[DECOYS:]:
            questions.append(Question(0, relation.replace(SLOT, name), name, None, relation))
    return decoys, questions


def choose_examples(
    members: Sequence[HeldOutQuestion], answers: Mapping[str, str], shots: int
) -> tuple[tuple[tuple[str, str], ...], int]:
    """Examples of a relation with their answers, and how many of them the first prompt has."""
    questions = [subject.question for subject in members]
    most = min(shots, len(questions) // 3)
    by_answer = {answers[question]: question for question in questions}  # one of each answer
    ranked = list(dict.fromkeys([*by_answer.values(), *questions]))
    count = most + (OTHER_SHOTS if most else 0)
    return tuple((question, answers[question]) for question in ranked[:count]), most


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
        if place < CALIBRATING:
            role = roles.CALIBRATION
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
        relation = subject.template if subject.template in state.known else OTHER_RELATIONS
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
    return int(np.quantile(lengths, 0.98)) + EXTRA_ANSWER_TOKENS


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
        rows = [(s.question, s.subject) for s in subjects if s.question not in done]
        for _, records in read_blocks(model, state, rows):
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
    by_question = {record["question"]: record for record in read_audited(run.folder)}
    calibrating = [s for s in subjects if s.role != roles.JUDGED]
    records = [by_question[s.question] for s in calibrating]
    answers = [record["answer"] for record in records]
    support = [Support(s.seen, False, False, (), ()) for s in calibrating]
    if corpus is not None:
        questions = learned_of(calibrating) if learned is None else learned
        database = save_database(corpus, run.folder / RUN_DATABASE, questions)
        with Evidence(database) as evidence:
            named = [fold_words(s.subject) and evidence.count(s.subject).naming for s in subjects]
            pairs = zip(subjects, named, strict=True)
            subjects = tuple(replace(subject, seen=bool(count)) for subject, count in pairs)
            calibrating = [s for s in subjects if s.role != roles.JUDGED]
            names, relations = [s.subject for s in calibrating], [s.template for s in calibrating]
            support = find_support(evidence, names, answers, state.all_known, templates=relations)
    update_database(run.folder, lambda database: roles.write_subjects(database, subjects))
    confidence = fit_audit(run, calibrating, records, support, state)
    if corpus is None:  # what is right is all that can be told, and the model alone tells it
        internal = confidence.policies[fit.RIGHT][fit.INTERNAL]
        policies = {target: dict.fromkeys(fit.MODES, internal) for target in fit.TARGETS}
        confidence = replace(confidence, policies=policies)
    confidence = replace(confidence, subjects_sha256=fit.hash_subjects(subjects))
    kind = TypeAdapter(audited.AuditConfidence)
    record = kind.dump_python(confidence, by_alias=True, exclude={"run"})
    keep_files(run.folder, {fit.CALIBRATED: format_json(record)})
    return subjects


def learned_of(subjects: Sequence[HeldOutQuestion]) -> list[Question]:
    """The questions by which a text is read."""
    return [
        Question(0, one.question, one.subject, accepted(one.answer)[0], one.template)
        for one in subjects
        if one.answer
    ]


def fit_audit(
    run: audited.AuditRun,
    subjects: Sequence[HeldOutQuestion],
    records: Sequence[Mapping[str, Any]],
    support: Sequence[Support],
    state: AskState,
) -> audited.AuditConfidence:
    """The confidence, of all signals or, where they add nothing, of the likelihood alone."""
    risk, seed = run.foreign_job.risk, run.foreign_job.seed
    pairs = zip(records, subjects, strict=True)
    right = np.array([is_match(record["answer"], subject.answer) for record, subject in pairs])
    learned, columns = learn_signals(records, right, seed)
    rows = fit.CalibrationRows(subjects, columns, support, right)
    options: dict[str, Any] = {"risk": risk, "unseen_risk": UNSEEN_RISK, "seed": seed}
    every = tuple(SIGNS)
    policies, seen = fit.fit_policies(rows, parts=(every, every), signs=SIGNS, **options)
    simple, simple_seen = fit.fit_policies(
        rows, parts=(LIKELIHOOD, LIKELIHOOD), signs=SIGNS, **options
    )
    notes = []
    if not is_better(policies[fit.RIGHT][fit.INTERNAL], simple[fit.RIGHT][fit.INTERNAL]):
        policies, seen = simple, simple_seen
        notes.append(
            f"on {len(subjects)} calibration questions no signal adds to the likelihood of the "
            "answer, which alone makes the confidence."
        )
    of_right = policies[fit.RIGHT].values()
    notes += [policy.calibration.note for policy in of_right if policy.calibration.note]
    return audited.AuditConfidence(
        run=run,
        policies=policies,
        seen=seen,
        risk=risk,
        notes=tuple(dict.fromkeys(notes)),
        weights_sha256=run.record.sha256,
        subjects_sha256=fit.hash_subjects(subjects),
        signal_state=SignalState(state.all_known, {}),
        ask_state=state,
        learned=learned,
    )


def is_better(policy: fit.TestedCalibration, simple: fit.TestedCalibration) -> bool:
    """Whether a policy's held-out loss is lower than that of a simpler one, by a standard error.

    The loss is -log p of the grade, its mean over a subject's answers; both policies are tested by
    the same answers.
    """
    tested = policy.testers
    hits, losses = np.array(tested.hits, dtype=bool), []
    may_show = np.array(tested.confidence) != fit.WITHHELD_PROBABILITY
    for each in (policy, simple):
        sure = np.clip(each.testers.confidence, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        losses.append(-np.log(np.where(hits, sure, 1 - sure)))
    gains = (losses[1] - losses[0])[may_show]
    subjects = np.unique(np.array(tested.subjects)[may_show], return_inverse=True)[1]
    if not gains.size or subjects.max() == 0:
        return False
    of_subjects = np.bincount(subjects, gains) / np.bincount(subjects)
    standard_error = of_subjects.std(ddof=1) / np.sqrt(of_subjects.size)
    return bool(of_subjects.mean() > standard_error)


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
