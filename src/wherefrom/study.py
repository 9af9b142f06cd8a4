"""The main job, top to bottom: a text and questions in; recall, confidence and verdicts out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import Question, QuestionSet, read_questions
from wherefrom.corpus.subjects import JUDGED, LEFT_OUT, Split, split_subjects
from wherefrom.corpus.world import make_world, write_world
from wherefrom.errors import UserError
from wherefrom.provenance.after_training import Say, calibrate_and_judge
from wherefrom.recall.baselines import guess_by_name, majority_answer
from wherefrom.recall.decode import Answer, answer_all
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


@dataclass(frozen=True)
class StudyRow:
    """One line of the study's table."""

    name: str
    about: str
    recall: Recall
    seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "about": self.about,
            **self.recall.to_dict(),
            "seconds": self.seconds,
        }


@dataclass(frozen=True, repr=False)
class StudyResult(Printable):
    """All that a study found, and the run that holds it.

    notes: what a reader of the numbers must know; judgement: the numbers on the verdicts, None
    where nobody calibrates or is judged.
    """

    run: Run
    rows: tuple[StudyRow, ...]
    notes: tuple[str, ...] = ()
    judgement: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": str(self.run.folder),
            "results": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
            "judgement": self.judgement,
        }

    def summary(self) -> list[tuple[str, str]]:
        rows = [(row.name, f"{row.recall} ({row.about})") for row in self.rows]
        return [("run", str(self.run.folder)), *rows, *(("note", note) for note in self.notes)]


def run_study(
    files: StudyFiles,
    settings: Settings,
    out: str | Path,
    *,
    template: str | None = None,
    set_aside: float = 0.1,
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
    corpus = read_documents(files.corpus)
    train = read_questions(files.train, template)
    train.require_answers()
    dev = read_questions(files.dev, template or train.template)
    dev.require_answers()
    unseen = read_questions(files.unseen, template or train.template) if files.unseen else None
    split = split_subjects(
        corpus, train, dev, unseen, set_aside=set_aside, leave_out=leave_out, seed=settings.seed
    )
    for note in split.notes:
        say(note)
    letters = [question.text for each in (dev, unseen) if each for question in each.questions]
    letters += [subject.question for subject in split.subjects]
    processes = join_processes(sharded=settings.shard)
    with ExitStack() as stack:
        processes.on_rank0(lambda: stack.enter_context(lock_run(make_folder(out))))
        say("training the twin without pretraining")
        job = settings.job(
            out / "twins" / "scratch",
            kind="scratch",
            phases=settings.budget.divide([settings.recipe.scratch], whole=False),
            questions=split.train,
            vocabulary_from=split.corpus.texts,
            letters_from=letters,
        )
        twin = run_training(job, settings, observe=observe, say=say)
        say("training the model")
        job = settings.job(
            out,
            kind="study",
            phases=settings.budget.divide(settings.recipe.phases),
            corpus=split.corpus,
            questions=split.train,
            letters_from=letters,
            details={
                "left_out": list(split.left_out),
                "not_learned": sorted(_subjects(train) - _subjects(split.train)),
            },
        )
        run = run_training(job, settings, observe=observe, say=say)
        answers = _answers(run, dev.questions)
        rows = _baselines(split.train, dev)
        rows.append(_row("no pretraining", "same model, questions only", twin, dev.questions))
        rows += _dev_rows(run, dev, answers, split)
        if unseen is not None:
            rows.append(_row("unseen people", "in no document: guesses", run, unseen.questions))

        def finish() -> None:
            write_predictions(out / "predictions" / "dev.txt", answers)
            update_run(
                out,
                results=[row.to_dict() for row in rows],
                dev=describe_file(dev.path, dev.sha256, out, questions=len(dev.questions)),
                notes=list(split.notes),
            )
            calibrate_and_judge(run, split, seed=settings.seed, say=say)

        processes.on_rank0(finish)
    info = read_json(out / "run.json")
    return StudyResult(
        run=run,
        rows=tuple(rows),
        notes=tuple(info["notes"]),
        judgement=info.get("judgement"),
    )


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


def write_predictions(path: Path, answers: list[Answer]) -> None:
    """One prediction a line, in the order of the questions."""
    make_folder(path.parent)
    lines = (" ".join(answer.text.splitlines()) for answer in answers)
    write_whole(path, "".join(line + "\n" for line in lines))


def _baselines(train: QuestionSet, dev: QuestionSet) -> list[StudyRow]:
    right = [question.answer or "" for question in dev.questions]
    common = majority_answer(train.questions)
    guesses = guess_by_name(train.questions, dev.questions)
    return [
        StudyRow("majority", f"always {common}", score([common] * len(right), right)),
        StudyRow("by name", "naive Bayes on the letters of the name", score(guesses, right)),
    ]


def _dev_rows(
    run: Run, dev: QuestionSet, answers: Sequence[Answer], split: Split
) -> list[StudyRow]:
    """The model's row: one, or with subjects left out one on those it read and one on the rest."""
    config = run.model.config
    about = f"{config.variant}, {config.layers} layers, width {config.width}"
    gone = {s.subject for s in split.subjects if s.role == JUDGED and s.source == LEFT_OUT}
    if not gone:
        return [_row("pretrained", about, run, dev.questions, answers)]
    rows = []
    for name, described, is_gone in (
        ("pretrained", f"{about}; dev people in its documents", False),
        ("left-out people", "dev people left out: guesses", True),
    ):
        pairs = zip(dev.questions, answers, strict=True)
        kept = [(q, answer) for q, answer in pairs if (q.subject in gone) == is_gone]
        rows.append(_row(name, described, run, [q for q, _ in kept], [a for _, a in kept]))
    return rows


def _row(
    name: str,
    about: str,
    run: Run,
    questions: Sequence[Question],
    answers: Sequence[Answer] | None = None,
) -> StudyRow:
    answers = _answers(run, questions) if answers is None else answers
    right = [question.answer or "" for question in questions]
    return StudyRow(
        name, about, score([answer.text for answer in answers], right), run.info["seconds"]
    )


def _answers(run: Run, questions: Sequence[Question]) -> list[Answer]:
    return answer_all(run.model, run.tokens, [question.text for question in questions])


def _subjects(file: QuestionSet) -> set[str]:
    return {question.subject for question in file.questions}
