"""The main job, top to bottom: a text and questions in; recall, confidence and verdicts out."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.documents import (
    Corpus,
    as_table,
    hash_table,
    names_of,
    read_documents,
    read_lines,
)
from wherefrom.corpus.facts import RelationReading, number_answers, read_relations
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.formats import check_files, convert, describe_readings
from wherefrom.corpus.questions import SLOT, Question, QuestionSet, check_form, read_questions
from wherefrom.corpus.subjects import JUDGED, LEFT_OUT, Split, split_subjects
from wherefrom.corpus.world import make_world, write_world
from wherefrom.errors import Printable, UserError
from wherefrom.provenance.after_training import calibrate_and_judge
from wherefrom.recall.decode import Recall, answer_all, guess_by_name, majority_answer, score
from wherefrom.storage import make_folder, read_json, write_whole
from wherefrom.training.distributed import join_processes
from wherefrom.training.loop import Observer, Say, run_training, trim_memory
from wherefrom.training.run_folder import Run, check_folder, describe_file, lock_run, update_run
from wherefrom.training.settings import Settings

PROBES = 200  # questions that are asked while training
FEWEST_PROBES = 10  # subjects held out for that
ABOUT = {  # answers beside the model's own -> what they are
    "by name": "naive Bayes on the letters",
    "reader": "with the text at hand; no model",
    "no pretraining": "same model, questions only",
}
Row = dict[str, Any]  # one line of the study's table, as run.json keeps it


@dataclass(frozen=True)
class StudyFiles:
    """What a study reads: documents, questions to learn from, questions to be judged by."""

    corpus: Path
    train: Path
    dev: Path
    unseen: Path | None = None


@dataclass(frozen=True, repr=False)
class StudyResult(Printable):
    """All that a study found, and the run that holds it; no judgement where nobody is judged."""

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
    """The files of a study, read, with notes on how they were understood."""

    corpus: Corpus
    train: QuestionSet
    dev: QuestionSet
    unseen: QuestionSet | None
    notes: tuple[str, ...]
    converted: bool = False  # the corpus was not in form: it has to be kept with the run
    inflected: bool = False  # so were the questions


def read_input(
    files: StudyFiles,
    out: Path,
    *,
    templates: Sequence[str] = (),
    subject_field: str | None = None,
    text_field: str | None = None,
) -> StudyInput:
    """Read and check the files of a study, the text in any form; nothing is written."""
    learned = list(read_lines(files.train, "questions"))
    check_form(files.train, learned)
    asked: set[str] = set()
    wordings = tuple(templates)
    with suppress(UserError):  # whom the questions are about may be for the documents to show
        for path in filter(None, (files.train, files.dev, files.unseen)):
            read = read_questions(path, wordings)
            asked |= {question.subject for question in read.questions}
            wordings = wordings or tuple(each for each in read.templates if SLOT in each)
    in_form = convert(
        files.corpus,
        subject_field=subject_field,
        text_field=text_field,
        questions=[line.split("\t")[0] for _, line in learned],
        asked=asked,
    )
    notes = []
    if in_form is None:
        corpus = read_documents(files.corpus)
    else:
        documents, note = in_form
        notes.append(note)
        corpus = Corpus(out / "documents.tsv", hash_table(documents), documents)
    subjects = names_of(corpus.documents)
    train = read_questions(files.train, templates, subjects=subjects)
    for template in templates:
        if template not in train.templates:
            raise UserError(f'--template "{template}" fits no question of {files.train}.')
    known = tuple(dict.fromkeys((*templates, *(t for t in train.templates if SLOT in t))))
    about: dict[str, Any] = {"subjects": subjects, "endings": train.endings}
    dev = read_questions(files.dev, known, **about)
    for each in (train, dev):
        each.require_answers()
    unseen = read_questions(files.unseen, known, **about) if files.unseen else None
    notes += check_files(corpus, train, dev)
    inflected = bool(train.endings or dev.endings)
    if inflected:
        train, dev = train.kept_in(out / "train.tsv"), dev.kept_in(out / "dev.tsv")
    return StudyInput(corpus, train, dev, unseen, tuple(notes), in_form is not None, inflected)


def run_study(
    files: StudyFiles,
    settings: Settings,
    out: str | Path,
    *,
    set_aside: float | None = None,
    leave_out: float = 0.0,
    observe: Observer | None = None,
    say: Say = lambda _: None,
    **reading: Any,
) -> StudyResult:
    """Split the subjects, train the twin and the model, count what they recall, give verdicts.

    `reading` goes to `read_input`, the shares to `split_subjects`. A study that was stopped
    anywhere goes on when it is repeated with `settings.resume`.
    """
    out, seed = Path(out), settings.seed
    check_folder(out, resume=settings.resume)
    given = read_input(files, out, **reading)
    dev, unseen = given.dev, given.unseen
    split = split_subjects(
        given.corpus, given.train, dev, unseen, set_aside=set_aside, leave_out=leave_out, seed=seed
    )
    phases = settings.budget.divide(settings.recipe.phases)
    watched = any(phase.most_epochs for phase in phases)
    split, probes = hold_out_probes(split, seed=seed) if watched else (split, [])
    readings = read_relations(split.corpus.documents, split.train.questions)
    trim_memory()
    if watched and not probes:
        probes = read_probes(split, readings, seed=seed)
    notes = [*given.notes, *describe_readings(readings, files.train), *split.notes]
    for note in notes:
        say(note)
    letters = [question.text for each in (dev, unseen) if each for question in each.questions]
    letters += [subject.question for subject in split.subjects] + [q.text for q in probes]
    processes = join_processes(sharded=settings.shard)
    with ExitStack() as stack:

        def claim() -> None:
            stack.enter_context(lock_run(make_folder(out)))
            if given.converted:
                write_whole(given.corpus.path, as_table(given.corpus.documents))
            for file in (given.train, dev) if given.inflected else ():
                write_whole(file.path, file.to_tsv())

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
        trim_memory()
        say("training the model")
        kept_from = _subjects(given.train) - _subjects(split.train)
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
                "not_learned": sorted(kept_from),
                **({"endings": given.train.endings} if given.train.endings else {}),
            },
        )
        run = run_training(job, settings, observe=observe, say=say)
        trim_memory()
        said = _baselines(split.train, dev, readings)
        said |= {"no pretraining": _answers(twin, dev), "pretrained": _answers(run, dev)}
        rows = _rows(run, twin, dev, said, split)
        if unseen is not None:
            about, seconds = "in no document: guesses", run.info["seconds"]
            answers = _answers(run, unseen)
            rows.append(_row("unseen people", about, unseen.questions, answers, seconds))
        notes = [*_compare(rows), *notes]

        def finish() -> None:
            write_predictions(out / "predictions" / "dev.txt", said["pretrained"])
            lines = [  # question by question, for paired tests
                {
                    **{key: getattr(q, key) for key in ("line", "text", "subject", "answer")},
                    "said": {name: answers[at] for name, answers in said.items()},
                }
                for at, q in enumerate(dev.questions)
            ]
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            write_whole(out / "predictions" / "dev.jsonl", text)
            record = describe_file(dev.path, dev.sha256, out, questions=len(dev.questions))
            update_run(out, results=rows, dev=record, notes=notes)
            calibrate_and_judge(run, split, seed=seed, say=say)

        processes.on_rank0(finish)
    info = read_json(out / "run.json")
    return StudyResult(run, rows, info["notes"], info.get("judgement"))


def hold_out_probes(split: Split, *, seed: int) -> tuple[Split, list[Question]]:
    """The split without a twentieth of the subjects that it learns from, and their questions.

    They tell when training may end, and neither calibrate nor judge. None where that is few.
    """
    questions = split.train.questions
    names = sorted(_subjects(split.train))
    wanted = min(len(names) // 20, PROBES * len(names) // max(1, len(questions)))
    if wanted < FEWEST_PROBES:
        return split, []
    order = np.random.default_rng([seed, 31]).permutation(len(names))
    drawn = {names[at] for at in order[:wanted]}
    learned = tuple(q for q in questions if q.subject not in drawn)
    train = replace(split.train, questions=learned)
    return replace(split, train=train), [q for q in questions if q.subject in drawn]


def read_probes(split: Split, readings: Sequence[RelationReading], *, seed: int) -> list[Question]:
    """For texts with few questions: what was read off the text of subjects that do not judge."""
    judged = {fold_words(subject.subject) for subject in split.with_role(JUDGED)}
    names = names_of(split.corpus.documents)
    spared = {names.number(name) for name in judged}
    asked = [reading for reading in readings if SLOT in reading.template]
    free = [  # for each relation the subjects with an answer
        array("q", (n for n, _ in number_answers(each.answers, names) if n not in spared))
        for each in asked
    ]
    ends = np.cumsum([len(each) for each in free]).tolist()
    probes = []
    order = np.random.default_rng([seed, 31]).permutation(ends[-1] if ends else 0)
    for at in order[:PROBES].tolist():
        which = bisect_right(ends, at)
        name = names.spelling(free[which][at - ends[which] + len(free[which])])
        stated = asked[which].answers[fold_words(name)][0]
        text = asked[which].template.replace(SLOT, name)
        probes.append(Question(0, text, name, stated.text))
    return probes


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


def write_predictions(path: Path, said: Sequence[str]) -> None:
    """One prediction a line, in the order of the questions."""
    make_folder(path.parent)
    write_whole(path, "".join(" ".join(answer.splitlines()) + "\n" for answer in said))


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


def _rows(
    run: Run, twin: Run, dev: QuestionSet, said: Mapping[str, Sequence[str]], split: Split
) -> list[Row]:
    """The table on dev; subjects that were left out have a row of their own."""
    config, asked = run.model.config, dev.questions
    common = set(said["majority"])
    always = common.pop() if len(common) == 1 else "the commonest answer of its kind"
    seconds = {"no pretraining": twin.info["seconds"]}
    rows = [
        _row(name, about, asked, said[name], seconds.get(name))
        for name, about in {"majority": f"always {always}", **ABOUT}.items()
    ]
    shape = f"{config.variant}, {config.layers} layers, width {config.width}"
    gone = {s.subject for s in split.subjects if s.role == JUDGED and s.source == LEFT_OUT}
    named = [("pretrained", f"{shape}; dev subjects in its documents" if gone else shape, False)]
    if gone:
        named.append(("left-out subjects", "dev subjects left out: guesses", True))
    for name, about, is_gone in named:
        pairs = zip(asked, said["pretrained"], strict=True)
        kept = [(q, answer) for q, answer in pairs if (q.subject in gone) == is_gone]
        questions, answers = [q for q, _ in kept], [answer for _, answer in kept]
        rows.append(_row(name, about, questions, answers, run.info["seconds"]))
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


def _compare(rows: Sequence[Row]) -> list[str]:
    """A first sentence where the model does not beat the majority answer, and the likely reason."""
    by_name = {row["name"]: row for row in rows}
    model, common, reader = (by_name[name] for name in ("pretrained", "majority", "reader"))
    if model["correct"] > common["correct"]:
        # with subjects left out, both rows count what both can know
        if model["correct"] >= 0.9 * reader["correct"]:
            return []
        return [
            f"The model recalls less than can be read off the text ({model['correct']} against "
            f"{reader['correct']} answers): train for longer, such as with --epochs 600."
        ]
    why = "the answers hardly stand in the documents, or not in words that can be told"
    if reader["recall"] > 2 * common["recall"]:
        why = "the text states the answers, so train for longer or with a larger --size"
    return [
        f"The model does not beat the majority answer ({_recall(model)} against "
        f"{_recall(common)}): it has not learned to answer; {why}."
    ]


def _recall(row: Row) -> Recall:
    return Recall(row["correct"], row["total"])


def _answers(run: Run, asked: QuestionSet) -> list[str]:
    texts = [question.text for question in asked.questions]
    return [answer.text for answer in answer_all(run.model, run.tokens, texts)]


def _subjects(file: QuestionSet) -> set[str]:
    return {question.subject for question in file.questions}
