"""The main job, top to bottom: a text and questions in; recall, confidence and verdicts out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.checks import check_files, describe_readings
from wherefrom.corpus.documents import (
    Corpus,
    cut_lines,
    parse_documents,
    read_documents,
    read_lines,
)
from wherefrom.corpus.facts import RelationReading, read_relations
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.formats import convert
from wherefrom.corpus.questions import SLOT, Question, QuestionSet, check_form, read_questions
from wherefrom.corpus.subjects import JUDGED, LEFT_OUT, Split, split_subjects
from wherefrom.corpus.world import make_world, write_world
from wherefrom.errors import UserError
from wherefrom.provenance.after_training import Say, calibrate_and_judge
from wherefrom.recall.baselines import guess_by_name, majority_answer
from wherefrom.recall.decode import answer_all
from wherefrom.recall.evaluate import Recall, score
from wherefrom.results import Printable
from wherefrom.storage import make_folder, read_json, write_whole
from wherefrom.training.distributed import join_processes
from wherefrom.training.jobs import run_training
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run, check_folder, describe_file, lock_run, update_run
from wherefrom.training.settings import Settings


@dataclass(frozen=True)
class StudyFiles:
    """What a study reads: documents, questions to learn from, questions to be judged by."""

    corpus: Path
    train: Path
    dev: Path
    unseen: Path | None = None


PROBES = 200  # questions that are asked while training
FEWEST_PROBES = 10  # subjects held out for that
Row = dict[str, Any]  # one line of the study's table, as run.json keeps it


@dataclass(frozen=True, repr=False)
class StudyResult(Printable):
    """All that a study found, and the run that holds it.

    notes: what a reader of the numbers must know; judgement: the numbers on the verdicts, None
    where nobody calibrates or is judged.
    """

    run: Run
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    judgement: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        rest = {"notes": list(self.notes), "judgement": self.judgement}
        return {"run": str(self.run.folder), "results": list(self.rows), **rest}

    def summary(self) -> list[tuple[str, str]]:
        rows = [(row["name"], f"{_recall(row)} ({row['about']})") for row in self.rows]
        return [("run", str(self.run.folder)), *rows, *(("note", note) for note in self.notes)]


@dataclass(frozen=True)
class StudyInput:
    """The files of a study, read: what they hold, and notes on how they were understood.

    converted: the content of the corpus where it was not in form, to be kept in the run folder.
    """

    corpus: Corpus
    train: QuestionSet
    dev: QuestionSet
    unseen: QuestionSet | None
    notes: tuple[str, ...]
    converted: str | None = None


def read_input(
    files: StudyFiles,
    out: Path,
    *,
    templates: Sequence[str] = (),
    subject_field: str | None = None,
    text_field: str | None = None,
) -> StudyInput:
    """Read and check the files of a study; a mistake in them is one sentence, and nothing is kept.

    The text may be of any form that corpus/formats.py knows.
    """
    learned = read_lines(files.train, "questions")
    check_form(learned)
    raw = [line.split("\t")[0] for _, line in learned.lines]
    try:
        asked = {q.subject for q in read_questions(files.train, templates).questions}
    except UserError:
        asked = set()
    in_form = convert(
        files.corpus,
        subject_field=subject_field,
        text_field=text_field,
        questions=raw,
        asked=asked,
    )
    notes, converted = [], None
    if in_form is None:
        corpus = read_documents(files.corpus)
    else:
        converted, note = in_form
        notes.append(note)
        corpus = parse_documents(cut_lines(out / "documents.tsv", converted.encode()))
    subjects = [document.subject for document in corpus.documents]
    train = read_questions(files.train, templates, subjects=subjects)
    train.require_answers()
    known = tuple(dict.fromkeys((*templates, *(t for t in train.templates if SLOT in t))))
    dev = read_questions(files.dev, known, subjects=subjects)
    dev.require_answers()
    unseen = read_questions(files.unseen, known, subjects=subjects) if files.unseen else None
    notes += check_files(corpus, train, dev)
    return StudyInput(corpus, train, dev, unseen, tuple(notes), converted)


def run_study(
    files: StudyFiles,
    settings: Settings,
    out: str | Path,
    *,
    templates: Sequence[str] = (),
    subject_field: str | None = None,
    text_field: str | None = None,
    set_aside: float | None = None,
    leave_out: float = 0.0,
    observe: Observer | None = None,
    say: Say = lambda _: None,
) -> StudyResult:
    """Split the subjects, train the twin and the model, count what they recall, give verdicts.

    `set_aside` of the training subjects are not learned from and calibrate the confidence, and
    the documents about `leave_out` of all subjects are not read either. A study that was stopped
    anywhere goes on when it is repeated with `settings.resume`.
    """
    out = Path(out)
    check_folder(out, resume=settings.resume)
    given = read_input(
        files, out, templates=templates, subject_field=subject_field, text_field=text_field
    )
    dev, unseen = given.dev, given.unseen
    split = split_subjects(
        given.corpus,
        given.train,
        dev,
        unseen,
        set_aside=set_aside,
        leave_out=leave_out,
        seed=settings.seed,
    )
    phases = settings.budget.divide(settings.recipe.phases)
    watched = any(phase.most_epochs for phase in phases)
    split, probes = hold_out_probes(split, seed=settings.seed) if watched else (split, [])
    readings = read_relations(split.corpus.documents, split.train.questions)
    if watched and not probes:
        probes = read_probes(split, readings, seed=settings.seed)
    notes = [*given.notes, *describe_readings(readings, files.train), *split.notes]
    for note in notes:
        say(note)
    letters = [question.text for each in (dev, unseen) if each for question in each.questions]
    letters += [subject.question for subject in split.subjects] + [q.text for q in probes]
    processes = join_processes(sharded=settings.shard)
    with ExitStack() as stack:

        def claim() -> None:
            stack.enter_context(lock_run(make_folder(out)))
            if given.converted is not None:
                write_whole(given.corpus.path, given.converted)

        processes.on_rank0(claim)
        say("training the twin without pretraining")
        job = settings.job(
            out / "twins" / "scratch",
            kind="scratch",
            phases=settings.budget.divide([settings.recipe.scratch], whole=False),
            questions=split.train,
            vocabulary_from=split.corpus.vocabulary,
            letters_from=letters,
        )
        twin = run_training(job, settings, observe=observe, say=say)
        say("training the model")
        job = settings.job(
            out,
            kind="study",
            phases=phases,
            corpus=split.corpus,
            questions=split.train,
            letters_from=letters,
            probes=probes,
            details={
                "left_out": list(split.left_out),
                "not_learned": sorted(_subjects(given.train) - _subjects(split.train)),
            },
        )
        run = run_training(job, settings, observe=observe, say=say)
        answers = _answers(run, dev.questions)
        bare = _answers(twin, dev.questions)
        said = {**_baselines(split.train, dev, readings), "no pretraining": bare}
        common = set(said["majority"])
        kind = common.pop() if len(common) == 1 else "the commonest answer of its kind"
        about = {
            "majority": f"always {kind}",
            "by name": "naive Bayes on the letters",
            "reader": "with the text at hand; no model",
            "no pretraining": "same model, questions only",
        }
        trained = {"no pretraining": twin.info["seconds"]}
        rows = [
            _row(name, about[name], dev.questions, answered, trained.get(name))
            for name, answered in said.items()
        ]
        rows += _dev_rows(run, dev, answers, split)
        if unseen is not None:
            guessed, seconds = _answers(run, unseen.questions), run.info["seconds"]
            rows.append(
                _row("unseen people", "in no document: guesses", unseen.questions, guessed, seconds)
            )
        notes = [*_compare(rows), *notes]

        def finish() -> None:
            write_predictions(out / "predictions" / "dev.txt", answers)
            write_comparison(out, dev, {**said, "pretrained": answers})
            update_run(
                out,
                results=rows,
                dev=describe_file(dev.path, dev.sha256, out, questions=len(dev.questions)),
                notes=notes,
            )
            calibrate_and_judge(run, split, seed=settings.seed, say=say)

        processes.on_rank0(finish)
    info = read_json(out / "run.json")
    return StudyResult(run, rows, info["notes"], info.get("judgement"))


def hold_out_probes(split: Split, *, seed: int) -> tuple[Split, list[Question]]:
    """The split without a twentieth of the subjects that it learns from, and their questions.

    They are asked while training, to tell when it may end, and neither calibrate nor judge. None
    are held out where that would be few.
    """
    questions = split.train.questions
    names = sorted(_subjects(split.train))
    wanted = min(len(names) // 20, PROBES * len(names) // max(1, len(questions)))
    if wanted < FEWEST_PROBES:
        return split, []
    drawn = {names[at] for at in _stream(seed).permutation(len(names))[:wanted]}
    learned = tuple(q for q in questions if q.subject not in drawn)
    train = replace(split.train, questions=learned)
    return replace(split, train=train), [q for q in questions if q.subject in drawn]


def read_probes(split: Split, readings: Sequence[RelationReading], *, seed: int) -> list[Question]:
    """What was read off the text about any subjects but those that judge, as questions.

    For texts with few questions; these are learned, so they tell how much of the text is known.
    """
    judged = {fold_words(subject.subject) for subject in split.with_role(JUDGED)}
    spelling = {fold_words(d.subject): d.subject for d in split.corpus.documents}
    read = [
        Question(0, r.template.replace(SLOT, spelling[name]), spelling[name], stated[0].text)
        for r in readings
        for name, stated in r.answers.items()
        if SLOT in r.template and stated and name in spelling and name not in judged
    ]
    return [read[at] for at in _stream(seed).permutation(len(read))[:PROBES]]


def _stream(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, 31])


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
    """The embedded world, written out so that it can be read like any other text.

    A folder that holds another world already is what some run learned from: it is left alone.
    """

    def write() -> None:
        world = make_world(people, seed)
        documents = folder / "documents.txt"
        text = "".join(document.line + "\n" for document in world.documents)
        if documents.exists() and documents.read_bytes() != text.encode("utf-8"):
            raise UserError(
                f"{folder} holds another world than that of {people:,} people and seed {seed}; "
                "repeat the first command, or choose another --out."
            )
        write_world(world, folder)

    join_processes().on_rank0(write)
    return StudyFiles(
        corpus=folder / "documents.txt",
        train=folder / "train.tsv",
        dev=folder / "dev.tsv",
        unseen=folder / "unseen.tsv",
    )


def write_predictions(path: Path, said: Sequence[str]) -> None:
    """One prediction a line, in the order of the questions."""
    make_folder(path.parent)
    write_whole(path, "".join(" ".join(answer.splitlines()) + "\n" for answer in said))


def write_comparison(out: Path, dev: QuestionSet, said: Mapping[str, Sequence[str]]) -> None:
    """What the model, its twin and the baselines answer, question by question: for paired tests."""
    lines = [
        {
            **{key: getattr(question, key) for key in ("line", "text", "subject", "answer")},
            "said": {name: answers[at] for name, answers in said.items()},
        }
        for at, question in enumerate(dev.questions)
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_whole(out / "predictions" / "dev.jsonl", text)


def _baselines(
    train: QuestionSet, dev: QuestionSet, readings: Sequence[RelationReading]
) -> dict[str, list[str]]:
    """What needs no model: the majority answer, a guess by the name, and the reader of the text."""
    read = {reading.template: reading.answers for reading in readings}
    said: dict[str, dict[Question, str]] = {"majority": {}, "by name": {}, "reader": {}}
    for template in dev.templates:
        asked = [q for q in dev.questions if q.template == template]
        learned = [q for q in train.questions if q.template == template] or train.questions
        said["majority"] |= dict.fromkeys(asked, majority_answer(learned))
        said["by name"] |= dict(zip(asked, guess_by_name(learned, asked), strict=True))
        for q in asked:
            answers = read.get(template, {}).get(fold_words(q.subject), ())
            said["reader"][q] = answers[0].text if answers else ""
    return {name: [answers[q] for q in dev.questions] for name, answers in said.items()}


def _compare(rows: Sequence[Row]) -> list[str]:
    """A first sentence where the model does not beat the majority answer, and the likely reason."""
    by_name = {row["name"]: row for row in rows}
    model, common, reader = (by_name[name] for name in ("pretrained", "majority", "reader"))
    if model["correct"] > common["correct"]:
        # with subjects left out, both rows count what both can know
        if model["correct"] < 0.9 * reader["correct"]:
            return [
                f"The model recalls less than can be read off the text ({model['correct']} "
                f"against {reader['correct']} answers): train for longer, such as with "
                "--epochs 100."
            ]
        return []
    why = "the training answers hardly stand in the documents, or not in words that can be told"
    if reader["recall"] > 2 * common["recall"]:
        why = "the text states the answers, so train for longer or with a larger --size"
    return [
        f"The model does not beat the majority answer ({_recall(model)} against "
        f"{_recall(common)}): it has not learned to answer; {why}."
    ]


def _dev_rows(run: Run, dev: QuestionSet, said: Sequence[str], split: Split) -> list[Row]:
    """The model's row: one, or with subjects left out one on those it read and one on the rest."""
    config, seconds = run.model.config, run.info["seconds"]
    about = f"{config.variant}, {config.layers} layers, width {config.width}"
    gone = {s.subject for s in split.subjects if s.role == JUDGED and s.source == LEFT_OUT}
    if not gone:
        return [_row("pretrained", about, dev.questions, said, seconds)]
    rows = []
    for name, described, is_gone in (
        ("pretrained", f"{about}; dev subjects in its documents", False),
        ("left-out people", "dev subjects left out: guesses", True),
    ):
        pairs = zip(dev.questions, said, strict=True)
        kept = [(q, answer) for q, answer in pairs if (q.subject in gone) == is_gone]
        rows.append(_row(name, described, [q for q, _ in kept], [a for _, a in kept], seconds))
    return rows


def _row(
    name: str,
    about: str,
    questions: Sequence[Question],
    said: Sequence[str],
    seconds: float | None = None,
) -> Row:
    """A line of the table; `relations` has the same by relation, where there are several."""

    def recall(template: str | None = None) -> dict[str, float | int]:
        pairs = zip(said, questions, strict=True)
        kept = [(a, q.answer or "") for a, q in pairs if template in (None, q.template)]
        return score([a for a, _ in kept], [right for _, right in kept]).to_dict()

    templates = list(dict.fromkeys(question.template for question in questions))
    relations = {each: recall(each) for each in templates if len(templates) > 1}
    head = {"name": name, "about": about}
    return {**head, **recall(), "seconds": seconds, "relations": relations}


def _recall(row: Row) -> Recall:
    return Recall(row["correct"], row["total"])


def _answers(run: Run, questions: Sequence[Question]) -> list[str]:
    said = answer_all(run.model, run.tokens, [question.text for question in questions])
    return [answer.text for answer in said]


def _subjects(file: QuestionSet) -> set[str]:
    return {question.subject for question in file.questions}
