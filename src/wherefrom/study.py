"""The main job, top to bottom: a text and questions in; baselines, twin, model and recall out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherefrom.corpus.documents import Corpus, read_documents
from wherefrom.corpus.questions import QuestionSet, read_questions
from wherefrom.corpus.world import make_world, write_world
from wherefrom.recall.baselines import guess_by_name, majority_answer
from wherefrom.recall.decode import Answer, answer_all
from wherefrom.recall.evaluate import Recall, score
from wherefrom.storage import make_folder, write_whole
from wherefrom.training.jobs import Lesson, Settings, teach
from wherefrom.training.loop import Observer
from wherefrom.training.run import Run, update_run

WORLD_PEOPLE = 3000


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
    corpus = read_documents(files.corpus)
    train = read_questions(files.train, template)
    train.require_answers()
    dev = read_questions(files.dev, template or train.template)
    dev.require_answers()

    rows = _baselines(train, dev)
    say("training the twin without pretraining")
    twin = _teach_twin(corpus, train, settings, out, observe)
    rows.append(_row("no pretraining", "same model, questions only", twin, dev))
    say("training the model")
    run = _teach_model(corpus, train, settings, out, observe)
    answers = _answers(run, dev)
    rows.append(_row("pretrained", _about(run), run, dev, answers))
    write_predictions(out / "predictions" / "dev.txt", answers)
    if files.unseen is not None:
        unseen = read_questions(files.unseen, template or train.template)
        rows.append(_row("unseen people", "in no document: guesses", run, unseen))
    result = StudyResult(run=run, rows=tuple(rows))
    update_run(out, results=result.to_dict()["results"], dev=_described(dev))
    return result


def embedded_files(folder: Path, *, people: int, seed: int) -> StudyFiles:
    """The embedded world, written out so that it can be read like any other text."""
    write_world(make_world(people, seed), folder)
    return StudyFiles(
        corpus=folder / "documents.txt",
        train=folder / "train.tsv",
        dev=folder / "dev.tsv",
        unseen=folder / "unseen.tsv",
    )


def write_predictions(path: Path, answers: list[Answer]) -> None:
    """One prediction a line, in the order of the questions."""
    make_folder(path.parent)
    lines = (" ".join(answer.text.split("\n")) for answer in answers)
    write_whole(path, "".join(line + "\n" for line in lines))


def _baselines(train: QuestionSet, dev: QuestionSet) -> list[Row]:
    right = [question.answer or "" for question in dev.questions]
    common = majority_answer(train.questions)
    guesses = guess_by_name(train.questions, dev.questions)
    return [
        Row("majority", f"always {common}", score([common] * len(right), right)),
        Row("by name", "naive Bayes on the letters of the name", score(guesses, right)),
    ]


def _teach_twin(
    corpus: Corpus, train: QuestionSet, settings: Settings, out: Path, observe: Observer | None
) -> Run:
    lesson = Lesson(
        kind="scratch",
        phases=settings.budget.divide([settings.recipe.scratch], whole=False),
        questions=train,
        vocabulary_from=corpus.texts,
    )
    return teach(lesson, settings, out / "twins" / "scratch", observe=observe)


def _teach_model(
    corpus: Corpus, train: QuestionSet, settings: Settings, out: Path, observe: Observer | None
) -> Run:
    lesson = Lesson(
        kind="study",
        phases=settings.budget.divide(settings.recipe.phases),
        corpus=corpus,
        questions=train,
    )
    return teach(lesson, settings, out, observe=observe)


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
