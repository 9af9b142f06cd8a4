"""The main job, top to bottom: a text and questions in; baselines, twin, model and recall out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import QuestionSet, read_questions
from wherefrom.corpus.world import make_world, write_world
from wherefrom.errors import UserError
from wherefrom.recall.baselines import guess_by_name, majority_answer
from wherefrom.recall.decode import Answer, answer_all
from wherefrom.recall.evaluate import Recall, score
from wherefrom.storage import make_folder, write_whole
from wherefrom.training.jobs import Lesson, Settings, teach
from wherefrom.training.loop import Observer
from wherefrom.training.processes import join_processes
from wherefrom.training.run import Run, check_folder, update_run


@dataclass(frozen=True)
class StudyFiles:
    """What a study reads: documents, questions to learn from, questions to be judged by."""

    corpus: Path
    train: Path
    dev: Path
    unseen: Path | None = None


@dataclass(frozen=True)
class Row:
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


@dataclass(frozen=True)
class StudyResult:
    """All that a study found, and the run that holds it."""

    run: Run
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"run": str(self.run.folder), "results": [row.to_dict() for row in self.rows]}


def run_study(
    files: StudyFiles,
    settings: Settings,
    out: str | Path,
    *,
    template: str | None = None,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> StudyResult:
    """Baselines, the twin without pretraining, the model, and how much each recalls."""
    out = Path(out)
    check_folder(out, resume=settings.resume)
    corpus = read_documents(files.corpus)
    train = read_questions(files.train, template)
    train.require_answers()
    dev = read_questions(files.dev, template or train.template)
    dev.require_answers()
    unseen = read_questions(files.unseen, template or train.template) if files.unseen else None
    asked = [question.text for each in (dev, unseen) if each for question in each.questions]

    rows = _baselines(train, dev)
    say("training the twin without pretraining")
    lesson = Lesson(
        kind="scratch",
        phases=settings.budget.divide([settings.recipe.scratch], whole=False),
        questions=train,
        vocabulary_from=corpus.texts,
        asked=asked,
    )
    twin = teach(lesson, settings, out / "twins" / "scratch", observe=observe)
    rows.append(_row("no pretraining", "same model, questions only", twin, dev))
    say("training the model")
    lesson = Lesson(
        kind="study",
        phases=settings.budget.divide(settings.recipe.phases),
        corpus=corpus,
        questions=train,
        asked=asked,
    )
    run = teach(lesson, settings, out, observe=observe)
    answers = _answers(run, dev)
    rows.append(_row("pretrained", _about(run), run, dev, answers))
    if unseen is not None:
        rows.append(_row("unseen people", "in no document: guesses", run, unseen))

    def record() -> None:
        write_predictions(out / "predictions" / "dev.txt", answers)
        update_run(out, results=[row.to_dict() for row in rows], dev=_described(dev))

    join_processes().lead(record)
    return StudyResult(run=run, rows=tuple(rows))


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

    join_processes().lead(write)
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


def _baselines(train: QuestionSet, dev: QuestionSet) -> list[Row]:
    right = [question.answer or "" for question in dev.questions]
    common = majority_answer(train.questions)
    guesses = guess_by_name(train.questions, dev.questions)
    return [
        Row("majority", f"always {common}", score([common] * len(right), right)),
        Row("by name", "naive Bayes on the letters of the name", score(guesses, right)),
    ]


def _row(
    name: str, about: str, run: Run, asked: QuestionSet, answers: list[Answer] | None = None
) -> Row:
    answers = answers if answers is not None else _answers(run, asked)
    right = [question.answer or "" for question in asked.questions]
    return Row(name, about, score([answer.text for answer in answers], right), run.info["seconds"])


def _answers(run: Run, asked: QuestionSet) -> list[Answer]:
    return answer_all(run.model, run.tokens, [question.text for question in asked.questions])


def _about(run: Run) -> str:
    config = run.model.config
    return f"{config.variant}, {config.layers} layers, width {config.width}"


def _described(asked: QuestionSet) -> dict[str, Any]:
    return {
        "path": str(asked.path),
        "sha256": asked.sha256,
        "questions": len(asked.questions),
    }
