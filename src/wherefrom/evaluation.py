"""Evaluating a run on a question file: the homework's last step.

The run's recall stands beside what needs no text (the commonest answer, a guess by the name), runs
that the user names, and the reader. What is found is recorded in the run folder, for its report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.database import Database
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.matching import read_matched_questions
from wherefrom.corpus.questions import SLOT, QuestionSet, read_questions
from wherefrom.corpus.split import Split, split_dev
from wherefrom.errors import UserError
from wherefrom.provenance.answers import write_dev_answers
from wherefrom.provenance.ask import open_asker
from wherefrom.recall.decode import Answer, answer_all
from wherefrom.recall.table import (
    Recall,
    Row,
    answer_by_baselines,
    compare_rows,
    count_right,
    make_table,
)
from wherefrom.training.forecast import describe_passes
from wherefrom.training.learned_files import (
    find_source,
    read_learned_documents,
    read_learned_questions,
)
from wherefrom.training.record import read_record
from wherefrom.training.run_folder import Run, describe_file, is_run, load_run

QUESTIONS_ONLY, STUDY = "scratch", "study"  # kinds of runs
# of the predictions; if so many are the same, the model ignores the subject
SAME_ANSWER_SHARE = 0.9


@dataclass(frozen=True)
class LearnedFrom:
    """The questions and documents that a run learned from, as far as they are still there."""

    questions: QuestionSet | None
    corpus: Database | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Evaluation:
    """A run's answers to a question file.

    recall: None if the file has no answers; rows: the table of recall, said: the answers of each of
    its rows, both empty then. notes: what is odd about the answers, and what to do.
    """

    asked: QuestionSet
    answers: Sequence[Answer]
    recall: Recall | None
    rows: Sequence[Row]
    said: Mapping[str, Sequence[str]]
    notes: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """What `wherefrom evaluate --json` prints."""
        counted = self.recall.to_dict() if self.recall else {"total": len(self.answers)}
        answers = [
            {
                "question": question.text,
                "answer": question.answer,
                "prediction": answer.text,
                "log_probability": answer.log_probability,
            }
            for question, answer in zip(self.asked.questions, self.answers, strict=True)
        ]
        return {**counted, "rows": list(self.rows), "notes": list(self.notes), "answers": answers}

    def pick_samples(self, count: int, seed: int = 0) -> list[tuple[str, str, str]]:
        """Up to `count` drawn answers as (question, answer, prediction), in the file's order.

        Half of them are right and half are wrong, as far as there are so many.
        """
        pairs = list(zip(self.asked.questions, self.answers, strict=True))
        order = np.random.default_rng([seed, 37]).permutation(len(pairs)).tolist()
        right = [i for i in order if self._is_right(i)]
        wrong = [i for i in order if not self._is_right(i)]
        half = min(len(right), max(count // 2, count - len(wrong)))
        drawn = sorted([*right[:half], *wrong[: count - half]])
        return [
            (question.text, question.answer or "", answer.text)
            for question, answer in (pairs[i] for i in drawn)
        ]

    def _is_right(self, i: int) -> bool:
        answer = self.asked.questions[i].answer
        return answer is not None and self.answers[i].text.strip() == answer.strip()


def read_asked_questions(
    run: Run,
    path: str | Path,
    templates: Sequence[str] = (),
    *,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[QuestionSet, dict[int, str]]:
    """The questions of a file as `wherefrom ask` understands them, and by line why some are not.

    templates: wordings instead of those that the run learned.
    """
    if templates or not any(SLOT in template for template in run.templates):
        return read_questions(path, templates or run.templates), {}
    with open_asker(run, say=say) as asker:
        return read_matched_questions(path, asker.matcher)


def answer_questions(
    run: Run,
    asked: QuestionSet,
    refused: Collection[int] = (),
    *,
    report: Callable[[int], None] | None = None,
) -> list[Answer]:
    """The run's answers in the order of the file; an empty one on a line that is refused."""
    texts = [question.text for question in asked.questions if question.line not in refused]
    said = iter(answer_all(run.model, run.tokens, texts, report=report))
    nothing = Answer("", (), 0.0, 0.0)
    return [nothing if one.line in refused else next(said) for one in asked.questions]


def evaluate_run(
    run: Run,
    asked: QuestionSet,
    *,
    refused: Mapping[int, str] | None = None,
    beside: Sequence[Run] = (),
    report: Callable[[int], None] | None = None,
) -> Evaluation:
    """Ask a run all questions; if they have answers, count the right ones beside the baselines.

    refused: by line, why a question is not asked; it counts as not answered.
    """
    refused = refused or {}
    answers = answer_questions(run, asked, refused, report=report)
    predictions = [answer.text for answer in answers]
    right = [question.answer or "" for question in asked.questions]
    taken = [i for i, question in enumerate(asked.questions) if question.line not in refused]
    notes = describe_predictions(
        run, [predictions[i] for i in taken], [right[i] for i in taken] if asked.answered else None
    )
    notes += [f"{asked.path}, line {line}: {reason}" for line, reason in refused.items()]
    if not asked.answered:
        return Evaluation(asked, answers, None, (), {}, notes)
    learned = find_learned(run)
    said = _answer_without_model(learned, asked)
    models = {_name_own_row(run): run}
    for other in (*_stored_twin(run), *beside):
        is_twin = "questions only" not in models and _is_questions_only_twin(other, run)
        models["questions only" if is_twin else str(other.folder)] = other
    for name, model in models.items():
        others = answers if model is run else answer_questions(model, asked, refused)
        said[name] = [answer.text for answer in others]
    seconds = {
        name: model.record.earlier_seconds + model.record.seconds for name, model in models.items()
    }
    about = {name: describe_model(model) for name, model in models.items()}
    rows = make_table(asked.questions, said, about, seconds)
    notes += [*learned.notes, *_note_learned(learned, asked)]
    by_name = {row["name"] for row in rows}
    if by_name >= {"model", "majority", "reader"}:
        notes += compare_rows(rows)
    recall = count_right(asked.questions, predictions)
    return Evaluation(asked, answers, recall, rows, said, notes)


def record_evaluation(run: Run, evaluation: Evaluation) -> None:
    """Write the table and the answers into the run folder, for its report.

    The table of a study is its own, on its own dev questions, and stays.
    """
    if run.record.kind == STUDY or evaluation.recall is None:
        return
    asked = evaluation.asked
    dev = describe_file(asked.path, asked.sha256, run.folder, questions=len(asked.questions))
    before = read_record(run.folder)
    same_file = before.dev is not None and before.dev.sha256 == asked.sha256
    notes = dict.fromkeys([*evaluation.notes, *(before.notes if same_file else ())])
    details = {"results": tuple(evaluation.rows), "dev": dev, "notes": tuple(notes)}
    write_dev_answers(run.folder, asked, evaluation.said, **details)


def plan_judging(run: Run, asked: QuestionSet, *, seed: int) -> Split:
    """Which subjects asked about calibrate a confidence, and which judge it (`split_dev`).

    `calibrate_and_judge` does so; then the report answers whether right answers can be told from
    wrong ones, and `ask` says how likely an answer is to be right. A study has set subjects aside
    for this.
    """
    if run.record.kind == STUDY:
        raise UserError(
            f"{run.folder} is a study, which has its own calibration; leave out --judge and use "
            "`wherefrom judge`."
        )
    asked.require_answers()
    learned = find_learned(run)
    if learned.questions is None or learned.corpus is None:
        why = " ".join(learned.notes) or f"{run.folder} learned from no text or no questions."
        raise UserError(
            f"judging needs the text and the questions that the run learned from: {why}"
        )
    return split_dev(learned.corpus, learned.questions, asked, seed=seed)


def find_learned(run: Run) -> LearnedFrom:
    """What the run and those that it started from learned from; notes say what is not there."""
    questions, corpus, notes = None, None, []
    try:
        if source := find_source(run, "questions"):
            questions = read_learned_questions(source)
    except UserError as problem:
        notes.append(f"There are no baselines: {problem}")
    try:
        if source := find_source(run, "corpus"):
            corpus = read_learned_documents(source)
    except UserError as problem:
        notes.append(f"The reader cannot be asked: {problem}")
    return LearnedFrom(questions, corpus, tuple(notes))


def _stored_twin(run: Run) -> list[Run]:
    """The questions-only model that a study trains beside its own."""
    folder = run.folder / "twins" / "scratch"
    return [load_run(folder)] if is_run(folder) else []


def _name_own_row(run: Run) -> str:
    return "questions only" if run.record.kind == QUESTIONS_ONLY else "model"


def _is_questions_only_twin(other: Run, run: Run) -> bool:
    """Whether `other` has the shape of `run` and learned from questions only."""
    shapes = [
        model.config.model_copy(update={"vocabulary": 0}) for model in (other.model, run.model)
    ]
    return other.record.kind == QUESTIONS_ONLY and shapes[0] == shapes[1]


def _answer_without_model(learned: LearnedFrom, asked: QuestionSet) -> dict[str, list[str]]:
    """The answers of the baselines and of the reader, as far as their sources are there."""
    if learned.questions is None:
        return {}
    database = learned.corpus and read_facts(learned.corpus, learned.questions.questions)
    return answer_by_baselines(learned.questions.questions, asked.questions, database)


def describe_model(run: Run) -> str:
    """What reached a model, how often, and its shape, in one line."""
    config, record = run.model.config, run.record
    parts = [record.rung] if record.rung and record.kind != QUESTIONS_ONLY else []
    trained = [f"recipe {record.recipe}"] if record.recipe else []
    trained += [describe_passes(record.passes)] if record.passes else []
    parts += [", ".join(trained)] if trained else []
    parts.append(f"{config.variant}, {config.layers} layers, width {config.width}")
    return "; ".join(parts)


def _note_learned(learned: LearnedFrom, asked: QuestionSet) -> list[str]:
    """A note if some of the questions were learned."""
    questions = learned.questions.questions if learned.questions else ()
    known = {question.text for question in questions}
    count, total = sum(question.text in known for question in asked.questions), len(asked.questions)
    are = "is also a training question" if count == 1 else "are also training questions"
    return [f"{count:,} of the {total:,} questions {are}."] if count else []


def describe_predictions(
    run: Run, predictions: Sequence[str], right: Sequence[str] | None
) -> list[str]:
    """A warning if predictions are empty or all the same, with what to do."""
    total, empty = len(predictions), sum(not text.strip() for text in predictions)
    commonest, count = Counter(predictions).most_common(1)[0] if predictions else ("", 0)
    if empty:
        verb = "is" if empty == 1 else "are"
        problem = (
            f"{empty:,} of {total:,} predictions {verb} empty: the model ends its answer before "
            "the first letter"
        )
    elif (
        count >= SAME_ANSWER_SHARE * total
        and total > 1
        and count > 2 * list(right or ()).count(commonest)
    ):
        problem = f'{count:,} of {total:,} predictions are "{commonest}", whoever is asked about'
    else:
        return []
    passes = run.record.passes
    made = f" It has made {describe_passes(passes)}." if passes else ""
    advice = "Train for longer (--minutes or --epochs), or by another recipe (`wherefrom recipes`)."
    if not run.templates:
        advice = "It has learned from no questions: finetune it first, with `wherefrom finetune`."
    return [f"{problem}.{made} {advice}"]
