"""The study of a model that others trained, top to bottom: the same steps as any other study.

Read the text, ask the base model, train it on rows of the text, ask it again, compare it with the
same baselines, fit a confidence, judge.
"""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from wherefrom.audit import DECOYS, EXTRA_ANSWER_TOKENS, ask_all, calibrate
from wherefrom.corpus.checks import describe_readings
from wherefrom.corpus.database import RUN_DATABASE
from wherefrom.corpus.questions import SLOT, Question, QuestionSet, question_rows
from wherefrom.corpus.split import (
    CALIBRATION,
    JUDGED,
    Split,
    write_learned,
    write_subjects,
)
from wherefrom.errors import UserError
from wherefrom.huggingface.rows import RECIPE, RowMaker, encode_row
from wherefrom.huggingface.training import (
    BaseSettings,
    BaseTraining,
    check_base,
    check_memory,
    make_job,
)
from wherefrom.model.huggingface import HuggingFaceModel
from wherefrom.model.interface import ASKED, LanguageModel
from wherefrom.provenance.answers import read_audited, write_dev_answers
from wherefrom.provenance.audited import BaseRun, open_run
from wherefrom.provenance.evidence import open_run_evidence
from wherefrom.provenance.judging import judge_run, write_judgement
from wherefrom.provenance.knowledge import FILE as KNOWLEDGE_FILE
from wherefrom.provenance.knowledge import describe_knowledge
from wherefrom.provenance.names import are_people
from wherefrom.provenance.signals.prompted import (
    OTHER_RELATIONS,
    PROMPT,
    AskState,
    accepted,
    splice_names,
)
from wherefrom.recall.table import answer_by_baselines, compare_rows, make_row, make_table
from wherefrom.storage import digest_of, format_json, make_folder, read_json
from wherefrom.study import (
    SCRATCH,
    PreparedStudy,
    StudyFiles,
    StudyResult,
    prepare_study,
)
from wherefrom.training import run_folder
from wherefrom.training.loop import Count, Say, no_count
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.record import (
    BaseJobRecord,
    discard_changed,
    find_problem,
    keep_files,
    read_record,
    update_database,
    update_run,
)
from wherefrom.training.settings import Settings

BEFORE = "before.json"  # the base model's answers to the dev questions
SHOTS = 4  # examples that stand before a question to the base model, of the training file
QUESTIONS_ONLY_SHARE = 0.15  # of the steps, for the model that learns from the questions alone


def run_base_study(
    files: StudyFiles,
    settings: BaseSettings,
    out: Path,
    *,
    say: Say = lambda _: None,
    count: Count = no_count,
    **options: Any,
) -> StudyResult | None:
    """Study a model of others on a text; `options` go to `prepare_study`.

    Under torchrun all processes but the first return None.
    """
    run_folder.check_folder(out, resume=settings.resume)
    check_base(settings)
    recipe = Settings(recipe=load_recipe(RECIPE), budget=Budget(steps=1), seed=settings.seed)
    prepared = prepare_study(files, recipe, out, **options)
    is_first = os.environ.get("RANK", "0") == "0"
    with ExitStack() as stack:
        opened = open_base(settings)
        job = plan_job(settings, opened, prepared, out)
        if is_first:
            for note in prepared.notes:
                say(note)
            say(describe_readings(prepared.split.corpus))
            start_folder(prepared, job, settings, out, stack)
        before = ask_before(opened, prepared, job, out, say) if is_first else []
        run, questions_only = train_both(settings, job, opened, prepared, out, say, count)
        if not is_first:
            return None
        del opened
        say("asking the trained model")
        return finish_study(run, questions_only, prepared, before, count, say)


def open_base(settings: BaseSettings) -> HuggingFaceModel:
    """The base model with its wording: its chat template where it has one, unless told otherwise"""
    opened = HuggingFaceModel(settings.base, to_train=True)
    has_template = bool(getattr(opened.tokens, "chat_template", None))
    opened.chat = settings.wording == "chat" or (settings.wording == "auto" and has_template)
    check_memory(opened, full=settings.full)
    return opened


def plan_job(
    settings: BaseSettings, opened: HuggingFaceModel, prepared: PreparedStudy, out: Path
) -> BaseJobRecord:
    """The job, after all that can be refused before the long work has been looked at."""
    prompt = opened.chat_prompt(ASKED) if opened.chat else PROMPT
    if settings.resume and run_folder.is_run(out):  # a template may hold the date
        earlier = read_record(out).job
        if isinstance(earlier, BaseJobRecord) and opened.chat == (earlier.wording == "chat"):
            prompt = earlier.prompt
    corpus, train = prepared.split.corpus, prepared.split.train.questions
    for file in (prepared.given.train, prepared.given.dev):
        check_spelling(opened, file, prompt)
    maker = RowMaker(corpus, train, prompt, seed=settings.seed)
    for row in maker.one_of_each():
        encode_row(opened, row, maker)
    questions_sha256 = digest_of(question_rows(train))
    return make_job(settings, opened, prompt, corpus, train, questions_sha256)


def check_spelling(opened: HuggingFaceModel, file: QuestionSet, prompt: str) -> None:
    """Refuse a question that is too long, and an answer that the tokenizer cannot spell."""
    for question in file.questions:
        if question.is_silent or question.answer is None:
            continue
        asked = prompt.replace(ASKED, question.text)
        ids = opened.continuation(asked, question.answer)
        needed = len(opened.prompt(asked)) + len(ids)
        if needed > opened.longest:
            raise UserError(
                f"{file.path}, line {question.line}: question and answer have {needed} tokens and "
                f"{opened.name} reads {opened.longest}; shorten them, or take a model with a "
                "longer context."
            )
        spelled = opened.read_answer(ids)
        if _plain(spelled) != _plain(question.answer):
            raise UserError(
                f"{file.path}, line {question.line}: the tokenizer of {opened.name} spells "
                f'"{question.answer[:40]}" as "{spelled[:40]}"; change the answer, or take a model '
                "that knows its letters."
            )


def _plain(text: str) -> str:
    """A text without differences that tokenizers make in spaces and in composed letters."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def start_folder(
    prepared: PreparedStudy,
    job: BaseJobRecord,
    settings: BaseSettings,
    out: Path,
    stack: ExitStack,
) -> None:
    """Lock the folder, and write the text's database and run.json into it."""
    if run_folder.is_run(out):  # what cannot be resumed is refused before anything is written
        run_folder.open_folder(out, job, resume=settings.resume)
    stack.enter_context(run_folder.lock_run(make_folder(out)))
    prepared.given.write_converted()
    if run_folder.is_run(out):
        discard_changed(out, RUN_DATABASE)
    else:
        run_folder.start_run(out, job, describe_run(prepared, job, out), lambda _: None)
    database = prepared.split.corpus
    database.save(out / RUN_DATABASE)
    write_learned(database, "train", prepared.split.train.questions)
    update_run(out, wrote=(RUN_DATABASE,))


def describe_run(prepared: PreparedStudy, job: BaseJobRecord, out: Path) -> dict[str, Any]:
    """What run.json says besides the job."""
    given, split = prepared.given, prepared.split
    corpus, train = split.corpus, given.train
    learned = {question.subject for question in split.train.questions}
    everybody = {question.subject for question in train.questions}
    return {
        "kind": run_folder.BASE,
        "model": job.base,
        "templates": split.train.templates,
        "data": {
            "corpus": run_folder.describe_file(
                corpus.source, corpus.source_sha256, out, documents=len(corpus.documents)
            ),
            "questions": run_folder.describe_file(
                train.path, train.sha256, out, questions=len(split.train.questions)
            ),
        },
        "dev": run_folder.describe_file(
            given.dev.path, given.dev.sha256, out, questions=len(given.dev.questions)
        ),
        "left_out": split.left_out,
        "not_learned": tuple(sorted(everybody - learned)),
        "about_people": are_people(sorted(everybody)),
        "endings": train.endings or (),
        "recipe": RECIPE,
        "rung": load_recipe(RECIPE).rung,
    }


def ask_before(
    opened: HuggingFaceModel, prepared: PreparedStudy, job: BaseJobRecord, out: Path, say: Say
) -> list[str]:
    """The base model's answers to the dev questions, behind examples; they are kept."""
    if BEFORE in read_record(out).files and find_problem(out, BEFORE) is None:
        kept = read_json(out / BEFORE, dict)
        if all(question.text in kept for question in prepared.given.dev.questions):
            return [kept[question.text] for question in prepared.given.dev.questions]
    say("asking the base model, before it is trained")
    train = prepared.split.train.questions
    state = make_ask_state(opened, train, job, shots=SHOTS)
    answers = ask_questions(opened, state, prepared.given.dev.questions)
    texts = [question.text for question in prepared.given.dev.questions]
    keep_files(out, {BEFORE: format_json(dict(zip(texts, answers, strict=True)))})
    return answers


def make_ask_state(
    opened: LanguageModel, train: Sequence[Question], job: BaseJobRecord, *, shots: int = 0
) -> AskState:
    """How questions are asked: the prompt of the rows, known answers and names nobody has."""
    rng = np.random.default_rng([job.seed, 43])
    by_relation: dict[str, list[Question]] = defaultdict(list)
    for question in train:
        if not question.is_silent:
            by_relation[question.template].append(question)
    known, examples, decoys = {}, {}, {}
    for relation, questions in by_relation.items():
        known[relation] = tuple(dict.fromkeys(accepted(q.answer)[0] for q in questions))
        by_answer = {accepted(q.answer)[0]: q for q in questions}  # one of each answer
        chosen = list(by_answer.values())[:shots]
        examples[relation] = tuple((q.text, accepted(q.answer)[0]) for q in chosen)
        names = list(dict.fromkeys(q.subject for q in questions))
        decoys[relation] = tuple(splice_names(names, DECOYS, rng)) if SLOT in relation else ()
    answers = [answer for some in known.values() for answer in some]
    lengths = [len(opened.continuation(job.prompt, answer)) for answer in answers]
    longest = int(np.quantile(lengths, 0.98)) + EXTRA_ANSWER_TOKENS
    return AskState(job.prompt, None, examples, {}, known, {}, decoys, longest)


def ask_questions(
    model: LanguageModel, state: AskState, questions: Sequence[Question]
) -> list[str]:
    """The greedy answer to each question."""
    prompts = [
        model.prompt(
            state.render(q.template if q.template in state.known else OTHER_RELATIONS, q.text)
        )
        for q in questions
    ]
    return [reply.text for reply in model.answer(prompts, longest=state.longest)]


def train_both(
    settings: BaseSettings,
    job: BaseJobRecord,
    opened: HuggingFaceModel,
    prepared: PreparedStudy,
    out: Path,
    say: Say,
    count: Count,
) -> tuple[BaseRun, BaseRun]:
    """The run, and the same model that learns from the training questions alone."""
    split = prepared.split
    learned = (split.corpus, split.train.questions)
    changes: dict[str, Any] = {
        "steps": max(1, round(QUESTIONS_ONLY_SHARE * job.steps)),
        "warmup_steps": round(QUESTIONS_ONLY_SHARE * job.warmup_steps),
        "reads_documents": False,
    }
    details = describe_run(prepared, job, out)
    what = "adapters" if job.rank else "all weights"
    runs: list[BaseRun] = []
    for folder, each, about in (
        (out / SCRATCH, job.model_copy(update=changes), "the questions only"),
        (out, job, "the text and the questions"),
    ):
        training = BaseTraining(each, *learned, folder, details)
        resume = settings.resume or folder == out  # whose run.json is there already
        if not training.is_finished(resume=resume):
            say(f"training {what} on {about}: {each.steps:,} steps")
            model = open_base(settings) if settings.full and runs else opened
            every = settings.checkpoint_every
            training.run(model, resume=resume, every=every, say=say, count=count)
        runs.append(cast(BaseRun, open_run(folder)))
    return runs[1], runs[0]


def finish_study(
    run: BaseRun,
    questions_only: BaseRun,
    prepared: PreparedStudy,
    before: Sequence[str],
    count: Count,
    say: Say,
) -> StudyResult:
    """All that follows training: answers, rows, confidence, judgement, what it knew before."""
    out, split, dev = run.folder, prepared.split, prepared.given.dev
    train, job = split.train.questions, run.base_job
    state = make_ask_state(questions_only.audited, train, job)
    answers = answer_by_baselines(train, dev.questions, split.corpus)
    answers["base model"] = list(before)
    answers["questions only"] = ask_questions(questions_only.audited, state, dev.questions)
    answers["model"] = ask_trained(run, split, dev, state, count)
    shape = f"adapters of rank {job.rank}" if job.rank else "all weights"
    about = {
        "base model": f"before training, behind {SHOTS} examples",
        "model": f"{run.record.rung}: {shape}, {job.steps:,} steps",
    }
    seconds = {"model": run.record.seconds, "questions only": questions_only.record.seconds}
    rows = make_table(dev.questions, answers, about, seconds, prepared.unread_subjects)
    unseen = prepared.given.unseen
    if unseen is not None:
        said = ask_questions(run.audited, state, unseen.questions)
        pairs = list(zip(unseen.questions, said, strict=True))
        rows.append(make_row("unseen subjects", "in no document: guesses", pairs, seconds["model"]))
    notes = [*compare_rows(rows), *prepared.notes]
    write_dev_answers(out, dev, answers, results=tuple(rows), notes=tuple(notes))
    update_database(out, lambda database: write_subjects(database, split.subjects))
    if split.with_role(CALIBRATION):
        say("fitting a confidence, and judging it by subjects that took no part")
        calibrate(run, split.subjects, state, split.corpus, train)
    if split.with_role(CALIBRATION) and split.with_role(JUDGED):
        judgement = judge_run(run, seed=job.seed)
        write_judgement(run, judgement)
        notes = list(dict.fromkeys([*notes, *judgement.record["notes"]]))
        update_run(out, notes=tuple(notes))
    keep_knowledge(run, dev, before, answers["model"], state)
    found = read_record(out)
    return StudyResult(replace(run, record=found), rows, found.notes, found.judgement)


def ask_trained(
    run: BaseRun, split: Split, dev: QuestionSet, state: AskState, count: Count
) -> list[str]:
    """The answers to the dev questions; those to all held-out questions are kept with signals."""
    ask_all(run.audited, split.subjects, state, run.folder, count)
    update_run(run.folder, wrote=(RUN_DATABASE,))
    kept = {record["question"]: record["answer"] for record in read_audited(run.folder)}
    others = [question for question in dev.questions if question.text not in kept]
    texts = [question.text for question in others]
    kept |= zip(texts, ask_questions(run.audited, state, others), strict=True)
    return [kept[question.text] for question in dev.questions]


def keep_knowledge(
    run: BaseRun, dev: QuestionSet, before: Sequence[str], after: Sequence[str], state: AskState
) -> None:
    """Write what the model knew before, learned and made up."""
    asked = [i for i, question in enumerate(dev.questions) if not question.is_silent]
    evidence = open_run_evidence(run)
    assert evidence is not None
    with evidence:
        record = describe_knowledge(
            evidence,
            [dev.questions[i] for i in asked],
            [before[i] for i in asked],
            [after[i] for i in asked],
            state.all_known,
        )
    keep_files(run.folder, {KNOWLEDGE_FILE: format_json(record)})
