"""The main job, top to bottom: a text and questions in; recall, confidence and verdicts out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.checks import check_files, describe_facts, describe_readings
from wherefrom.corpus.database import RUN_DATABASE, Database, read_documents
from wherefrom.corpus.documents import as_table
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.formats import convert
from wherefrom.corpus.matching import match_documents, respell
from wherefrom.corpus.questions import SLOT, Question, QuestionFile, QuestionSet
from wherefrom.corpus.split import (
    CALIBRATION,
    JUDGED,
    LEFT_OUT,
    SET_ASIDE,
    Split,
    split_subjects,
    write_learned,
)
from wherefrom.corpus.world import make_world, write_world
from wherefrom.errors import Printable, UserError
from wherefrom.provenance.after_training import calibrate_and_judge
from wherefrom.provenance.answers import write_dev_answers
from wherefrom.provenance.names import are_people
from wherefrom.recall.decode import answer_all
from wherefrom.recall.table import (
    Recall,
    Row,
    answer_by_baselines,
    compare_rows,
    count_right,
    make_row,
    make_table,
    read_answer,
)
from wherefrom.storage import make_folder, write_whole
from wherefrom.training.distributed import join_processes
from wherefrom.training.learned_files import find_source, read_learned_documents
from wherefrom.training.loop import Observer, Say, run_training
from wherefrom.training.memory import trim_memory
from wherefrom.training.recipes import Phase
from wherefrom.training.record import (
    discard_changed,
    read_record,
    update_database,
    update_run,
)
from wherefrom.training.run_folder import (
    Run,
    check_folder,
    describe_file,
    is_run,
    load_run,
    lock_run,
    open_folder,
)
from wherefrom.training.settings import Settings, TrainingJob

MAX_STOPPING_QUESTIONS = 200  # at most so many questions are asked while training
SCRATCH = Path("twins", "scratch")  # the model that learns from the questions alone
MIN_STOPPING_SUBJECTS = 10  # fewer subjects than this are not held out


@dataclass(frozen=True)
class StudyFiles:
    """What a study reads: documents, questions to learn from, questions to be judged by."""

    corpus: Path
    train: Path
    dev: Path
    unseen: Path | None = None


@dataclass(frozen=True, repr=False)
class StudyResult(Printable):
    """What a study found, and its run; the judgement is None where no subject is judged."""

    run: Run
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    judgement: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": str(self.run.folder),
            "results": list(self.rows),
            "notes": list(self.notes),
            "judgement": self.judgement,
        }

    def summary(self) -> list[tuple[str, str]]:
        rows = [
            (row["name"], f"{Recall(row['correct'], row['total'])} ({row['about']})")
            for row in self.rows
        ]
        return [("run", str(self.run.folder)), *rows, *(("note", note) for note in self.notes)]


@dataclass(frozen=True)
class StudyInput:
    """The files of a study, read, with notes on how they were understood."""

    corpus: Database
    train: QuestionSet
    dev: QuestionSet
    unseen: QuestionSet | None
    notes: tuple[str, ...]
    converted: bool = False  # the corpus had another format: its table is kept with the run
    respelled: bool = False  # questions were respelled or reworded: they are kept with the run

    def write_converted(self) -> None:
        """Write the files that are kept with the run."""
        if self.converted:
            write_whole(self.corpus.source, as_table(self.corpus.documents))
        if self.respelled:
            write_whole(self.train.path, self.train.to_tsv())
            write_whole(self.dev.path, self.dev.to_tsv())


def read_input(
    files: StudyFiles,
    out: Path,
    *,
    templates: Sequence[str] = (),
    subject_field: str | None = None,
    text_field: str | Sequence[str] | None = None,
) -> StudyInput:
    """Read and check the files of a study, the text in any format; writes nothing."""
    paths = filter(None, (files.train, files.dev, files.unseen))
    train_file, dev_file, *others = asked = [QuestionFile.read(path) for path in paths]
    converted = convert(
        files.corpus,
        subject_field=subject_field,
        text_field=text_field,
        questions=train_file.texts,
        answers=[answer for answer in train_file.answers if answer],
        asked=_asked_subjects(asked, templates),
        kept_as=out / "documents.tsv",
    )
    notes = []
    if converted is None:
        corpus = read_documents(files.corpus)
    else:
        corpus, note = converted
        notes.append(note)
    subjects = corpus.spellings()
    train = train_file.find_questions(templates, subjects=subjects)
    for template in templates:
        if template not in train.templates:
            raise UserError(f'--template "{template}" fits no question of {files.train}.')
    known = tuple(dict.fromkeys((*templates, *(t for t in train.templates if SLOT in t))))
    like_train: dict[str, Any] = {"subjects": subjects, "endings": train.endings}
    dev = dev_file.find_questions(known, **like_train)
    train.require_answers()
    dev.require_answers()
    unseen = others[0].find_questions(known, **like_train) if others else None
    notes += check_files(corpus, train, dev)
    matcher = match_documents(train, corpus)
    spelled = [respell(file, matcher) for file in (train, dev)]
    respelled = train.endings or dev.endings or spelled != [train, dev]
    if respelled:
        train, dev = spelled[0].with_path(out / "train.tsv"), spelled[1].with_path(out / "dev.tsv")
    unseen = respell(unseen, matcher) if unseen else None
    is_converted = converted is not None
    return StudyInput(corpus, train, dev, unseen, tuple(notes), is_converted, bool(respelled))


def _asked_subjects(files: Sequence[QuestionFile], templates: Sequence[str]) -> set[str]:
    """The subjects of all questions, as far as the questions show them without the documents."""
    subjects: set[str] = set()
    wordings = tuple(templates)
    with suppress(UserError):
        for file in files:
            asked = file.find_questions(wordings)
            subjects |= _subjects(asked)
            wordings = wordings or tuple(t for t in asked.templates if SLOT in t)
    return subjects


@dataclass(frozen=True)
class PreparedStudy:
    """A study before training: what is learned, held out and asked.

    stopping_questions: questions about subjects that neither calibrate nor judge; recall on them
    decides when training ends. notes: how files and relations were understood.
    """

    given: StudyInput
    settings: Settings
    split: Split
    stopping_questions: Sequence[Question]
    notes: tuple[str, ...]
    phases: Sequence[Phase]  # of the training; none if the documents are only read
    parent: Run | None = None  # the run that it continues

    @property
    def unread_subjects(self) -> set[str]:
        """Dev subjects whose documents the model does not read."""
        return {s.subject for s in self.split.with_role(JUDGED) if s.source == LEFT_OUT}

    @property
    def _letters(self) -> list[str]:
        """Texts that a vocabulary of characters must cover."""
        files = filter(None, (self.given.dev, self.given.unseen))
        letters = [question.text for file in files for question in file.questions]
        letters += [subject.question for subject in self.split.subjects]
        return letters + [question.text for question in self.stopping_questions]

    def questions_only_job(self, out: Path) -> TrainingJob:
        """The job of the same model that learns from the training questions alone."""
        settings = self.settings
        return settings.job(
            out,
            kind="scratch",
            phases=settings.budget.divide([settings.recipe.scratch], whole=False),
            corpus=self.split.corpus,
            questions=self.split.train,
            letters=self._letters,
        )

    def job(self, out: Path) -> TrainingJob:
        """The job of the model that the study is about."""
        settings, split, train = self.settings, self.split, self.given.train
        details: dict[str, Any] = {
            "left_out": list(split.left_out),
            "not_learned": sorted(_subjects(train) - _subjects(split.train)),
            "rung": settings.recipe.rung,
            "about_people": are_people(sorted(_subjects(train))),
        }
        if train.endings:
            details["endings"] = train.endings
        job = settings.job(
            out,
            kind="study",
            phases=self.phases,
            parent=self.parent,
            corpus=split.corpus,
            questions=split.train,
            letters=self._letters,
        )
        return job.add_details(**details).stop_by(self.stopping_questions)

    def save(self, out: Path) -> None:
        """Write the database of the run, and the files that were converted."""
        self.given.write_converted()
        if is_run(out):
            discard_changed(out, RUN_DATABASE)
        self.split.corpus.save(out / RUN_DATABASE)
        if is_run(out):
            update_run(out, wrote=(RUN_DATABASE,))
            update_database(out, self._write_learned)
        else:
            self._write_learned(self.split.corpus)

    def _write_learned(self, database: Database) -> None:
        """Write the questions that the model learns from, and those that end its training."""
        write_learned(database, "train", self.split.train.questions)
        write_learned(database, "stopping", self.stopping_questions)

    def recall(self, run: Run) -> Recall:
        """Recall of the dev questions by a run."""
        return count_right(self.given.dev.questions, ask_file(run, self.given.dev))

    def recall_of_reader(self) -> Recall:
        """Recall of the dev questions by the reader, which has the text before it."""
        dev = self.given.dev.questions
        return count_right(dev, [read_answer(question, self.split.corpus) for question in dev])


def prepare_study(
    files: StudyFiles,
    settings: Settings,
    out: Path,
    *,
    set_aside: float | None = None,
    leave_out: float = 0.0,
    parent: Run | None = None,
    train: bool = True,
    **reading: Any,
) -> PreparedStudy:
    """Read the files, split the subjects, and read the documents for each relation.

    parent: the run whose training goes on; what it learned neither calibrates nor judges. train:
    whether it goes on, or only the documents are read.
    """
    given = read_input(files, out, **reading)
    split = split_subjects(
        given.corpus,
        given.train,
        given.dev,
        given.unseen,
        set_aside=set_aside,
        leave_out=leave_out,
        seed=settings.seed,
    )
    phases = settings.budget.divide(settings.recipe.phases) if train else []
    stopping: list[Question] = []
    ends_by_recall = any(phase.most_epochs for phase in phases)
    if ends_by_recall:
        split, stopping = hold_out_stopping_questions(split, seed=settings.seed)
    read_facts(split.corpus, split.train.questions)
    trim_memory()
    if ends_by_recall and not stopping:
        stopping = extract_stopping_questions(split, seed=settings.seed)
    notes = (*given.notes, *describe_facts(split.corpus, files.train), *split.notes)
    if parent is not None:
        _check_not_learned(parent, split)
    return PreparedStudy(given, settings, split, stopping, notes, phases, parent)


def _check_not_learned(parent: Run, split: Split) -> None:
    """Refuse to calibrate by subjects whose questions the run learned before."""
    spared = {fold_words(name) for name in (*parent.record.not_learned, *parent.record.left_out)}
    for one in split.with_role(CALIBRATION):
        if one.source in (SET_ASIDE, LEFT_OUT) and fold_words(one.subject) not in spared:
            raise UserError(
                f"{parent.folder} learned from the questions about {one.subject}, which would "
                "calibrate the new run; repeat --set-aside and --leave-out as that run had them, "
                "or start a new study with all documents."
            )


def add_documents(
    added: Path,
    folder: Path,
    settings: Settings,
    out: Path,
    *,
    train: bool = True,
    observe: Observer | None = None,
    say: Say = lambda _: None,
    **options: Any,
) -> StudyResult:
    """A study that continues a finished run with more documents, in another folder.

    All documents are written to documents.tsv of the new folder, those of the run first, and read
    again with the run's questions. The model starts with the run's weights and learns from old and
    new documents; without `train` it keeps them.
    """
    run = load_run(folder)
    sources = {what: find_source(run, what) for what in ("corpus", "questions", "dev")}
    missing = [what for what, source in sources.items() if source is None]
    corpus, questions, dev = sources.values()
    if corpus is None or questions is None or dev is None:
        raise UserError(
            f"{folder} has no {' and no '.join(missing)}; documents can be added to the run of a "
            "study."
        )
    check_folder(out, resume=settings.resume)
    if out.resolve() == run.folder.resolve():
        raise UserError(f"--out must be another folder than {folder}, which stays as it is.")
    settings = replace(settings, seed=run.job.seed)
    old = read_learned_documents(corpus)
    fields = {name: options.pop(name, None) for name in ("subject_field", "text_field")}
    converted = convert(added, **fields, asked=set(old.spellings().values()))
    new, note = converted if converted else (read_documents(added), "")
    known = {old.subject_id(fold_words(d.subject)) for d in new.documents} - {0}
    names = {fold_words(document.subject) for document in new.documents}
    say(note) if note else None
    say(
        f"{len(new.documents):,} documents about {len(names):,} subjects are added to the "
        f"{len(old.documents):,} of {folder}; {len(known):,} of these subjects were known. "
        + (
            "The model goes on learning from all of them."
            if train
            else "They are read, and the model is not trained."
        )
    )
    table = out / "documents.tsv"
    make_folder(out)
    write_whole(table, as_table(chain(old.documents, new.documents)))
    files = StudyFiles(table, questions.locate(), dev.locate())
    options |= {"parent": run, "train": train}
    return run_study(files, settings, out, observe=observe, say=say, **options)


def run_study(
    files: StudyFiles,
    settings: Settings,
    out: str | Path,
    *,
    observe: Observer | None = None,
    say: Say = lambda _: None,
    **options: Any,
) -> StudyResult:
    """Split the subjects, train both models, measure their recall, judge the answers.

    `options` go to `prepare_study`. With `settings.resume`, a study that was stopped at any point
    goes on from there.
    """
    out = Path(out)
    check_folder(out, resume=settings.resume)
    processes = join_processes()
    with ExitStack() as stack:

        def prepare() -> PreparedStudy:
            prepared = prepare_study(files, settings, out, **options)
            for job in (prepared.questions_only_job(out / SCRATCH), prepared.job(out)):
                if is_run(job.out):  # what cannot be resumed is refused before anything is written
                    open_folder(job.out, job.record, resume=settings.resume)
            stack.enter_context(lock_run(make_folder(out)))
            prepared.save(out)
            return prepared

        prepared = processes.from_rank0(prepare)
        for note in prepared.notes:
            say(note)
        say(describe_readings(prepared.split.corpus))
        say("training the same model on the questions only")
        job = prepared.questions_only_job(out / SCRATCH)
        questions_only = run_training(job, settings, observe=observe, say=say)
        trim_memory()
        say(f"training the model by the recipe {settings.recipe.name}")
        job = prepared.job(out)
        run = run_training(job, settings, observe=observe, say=say)
        trim_memory()
        answers, rows = measure_recall(prepared, run, questions_only)
        notes = [*compare_rows(rows), _describe_shown(run), *prepared.notes]

        def finish() -> None:
            dev = prepared.given.dev
            source = describe_file(dev.path, dev.sha256, out, questions=len(dev.questions))
            details = {"results": tuple(rows), "dev": source, "notes": tuple(notes)}
            write_dev_answers(out, dev, answers, **details)
            update_run(out, wrote=("twins/scratch/model.safetensors",))
            calibrate_and_judge(run, prepared.split, seed=settings.seed, say=say)

        processes.on_rank0(finish)
    record = read_record(out)
    return StudyResult(replace(run, record=record), rows, record.notes, record.judgement)


def measure_recall(
    prepared: PreparedStudy, run: Run, questions_only: Run
) -> tuple[dict[str, list[str]], list[Row]]:
    """The answers to the dev questions by who answers, and the table of recall."""
    split, dev, unseen = prepared.split, prepared.given.dev, prepared.given.unseen
    answers = answer_by_baselines(split.train.questions, dev.questions, split.corpus)
    answers |= {"questions only": ask_file(questions_only, dev), "model": ask_file(run, dev)}
    config, recipe = run.model.config, prepared.settings.recipe
    shape = f"{config.variant}, {config.layers} layers, width {config.width}"
    unread = prepared.unread_subjects
    read = "; dev subjects in its documents" if unread else ""
    about = {"model": f"{recipe.rung}: recipe {recipe.name}; {shape}{read}"}
    seconds = {"model": run.record.seconds, "questions only": questions_only.record.seconds}
    rows = make_table(dev.questions, answers, about, seconds, unread)
    if unseen is not None:
        pairs = list(zip(unseen.questions, ask_file(run, unseen), strict=True))
        rows.append(make_row("unseen subjects", "in no document: guesses", pairs, seconds["model"]))
    return answers, rows


def hold_out_stopping_questions(split: Split, *, seed: int) -> tuple[Split, list[Question]]:
    """The split without a twentieth of the subjects that it learns from, and their questions.

    They decide when training ends, and neither calibrate nor judge. With few subjects, none.
    """
    questions = split.train.questions
    names = sorted(_subjects(split.train))
    count = min(len(names) // 20, MAX_STOPPING_QUESTIONS * len(names) // max(1, len(questions)))
    if count < MIN_STOPPING_SUBJECTS:
        return split, []
    order = np.random.default_rng([seed, 31]).permutation(len(names))
    held_out = {names[i] for i in order[:count]}
    learned = tuple(q for q in questions if q.subject not in held_out)
    train = replace(split.train, questions=learned)
    stopping = [q for q in questions if q.subject in held_out and not q.is_silent]
    return replace(split, train=train), stopping


def extract_stopping_questions(split: Split, *, seed: int) -> list[Question]:
    """For texts with few questions: facts read off the text, about subjects that do not judge."""
    corpus = split.corpus
    judged = {corpus.subject_id(fold_words(s.subject)) for s in split.with_role(JUDGED)}
    stated = [
        (template, number)
        for template, number in corpus.stated_subjects()
        if SLOT in template and number not in judged
    ]
    order = np.random.default_rng([seed, 31]).permutation(len(stated))
    chosen = [stated[i] for i in order[:MAX_STOPPING_QUESTIONS].tolist()]
    questions = []
    for template, number in chosen:
        name = corpus.spell(number)
        answer = corpus.extracted(template, fold_words(name))[0].text
        questions.append(Question(0, template.replace(SLOT, name), name, answer, template))
    return questions


def find_files(
    files: Sequence[str | Path], settings: Settings, out: Path, *, people: int, say: Say
) -> StudyFiles:
    """The three files that a study was given, or those of the embedded world, made inside `out`."""
    if len(files) not in (0, 3):
        raise UserError(
            "study takes a corpus, training questions and dev questions, or none of them for the "
            f"embedded world; it got {len(files)} file{'s' if len(files) > 1 else ''}."
        )
    if files:
        return StudyFiles(*map(Path, files))
    check_folder(out, resume=settings.resume)
    say(f"making the embedded world of {people:,} people")
    return embedded_files(out / "world", people=people, seed=settings.seed)


def embedded_files(folder: Path, *, people: int, seed: int) -> StudyFiles:
    """The embedded world, written out like any other text; another one that is there is kept."""

    def write() -> None:
        world = make_world(people, seed)
        documents = folder / "documents.txt"
        text = "".join(document.text + "\n" for document in world.documents)
        if documents.exists() and documents.read_bytes() != text.encode("utf-8"):
            raise UserError(
                f"{folder} holds another world than that of {people:,} people and seed {seed}; "
                "repeat the first command, or choose another --out."
            )
        write_world(world, folder)

    join_processes().on_rank0(write)
    names = ("documents.txt", "train.tsv", "dev.tsv", "unseen.tsv")
    return StudyFiles(*(folder / name for name in names))


def _describe_shown(run: Run) -> str:
    """A sentence on how much of the text training showed the model."""
    shown = run.record.text_shown
    assert shown is not None
    return (
        f"Training rows show the model {shown.shown:.0%} of the text's tokens, and it learns to "
        f"predict {shown.learned:.0%} of them."
    )


def ask_file(run: Run, file: QuestionSet) -> list[str]:
    texts = [question.text for question in file.questions]
    return [answer.text for answer in answer_all(run.model, run.tokens, texts)]


def _subjects(file: QuestionSet) -> set[str]:
    return {question.subject for question in file.questions}
