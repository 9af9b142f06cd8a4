"""What is wrong with the files of a study, and how they were understood: before any training."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from wherefrom.corpus.documents import Corpus
from wherefrom.corpus.facts import FEWEST, RelationReading
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question, QuestionSet
from wherefrom.corpus.subjects import find_named
from wherefrom.errors import UserError

SEVERAL_ANSWERS = 0.02  # share of the questions that may have them
FOUND = 0.5  # share of the training answers in the text below which little can be learned
SHOWN = 3  # examples in a sentence


def check_files(corpus: Corpus, train: QuestionSet, dev: QuestionSet) -> list[str]:
    """Notes on the files of a study; what makes its numbers meaningless is a UserError."""
    notes = []
    learned = {(q.text, q.answer): q for q in train.questions}
    shared = [q for q in dev.questions if (q.text, q.answer) in learned]
    if shared:
        first, same = shared[0], learned[shared[0].text, shared[0].answer]
        raise UserError(
            f'{dev.path}, line {first.line}: "{first.text}" is a training question too '
            f"({train.path}, line {same.line}), and {len(shared):,} are in all; remove them from "
            "one of the files, or recall is of what was learned by heart."
        )
    for file in (train, dev):
        notes += _check_answers(file)
    new = [f'"{q.template}"' for q in dev.questions if q.template not in train.templates]
    if new:
        notes.append(
            f"{len(new):,} of {len(dev.questions):,} questions of {dev.path.name} are worded like "
            f"no training question ({_some(new)}): the model does not learn what they ask for."
        )
    named = find_named(
        corpus.documents, {fold_words(q.subject) for f in (train, dev) for q in f.questions}
    )
    for file in (train, dev):
        gone = [q.subject for q in file.questions if not named.get(fold_words(q.subject))]
        if len(gone) == len(file.questions):
            raise UserError(
                f"no document of {corpus.path} names any subject of {file.path} "
                f"({_some(gone)}); check that the two files belong together."
            )
        if gone:
            notes.append(
                f"{len(gone):,} of {len(file.questions):,} questions of {file.path.name} are about "
                f"subjects that no document names ({_some(gone)}): answers to them are made up."
            )
    repeated = len(corpus.documents) - len({document.text for document in corpus.documents})
    if repeated:
        notes.append(f"{repeated:,} documents repeat another one word for word.")
    return notes


def _check_answers(file: QuestionSet) -> list[str]:
    """A note on questions with several answers; many of them are refused."""
    answers: dict[str, set[str]] = defaultdict(set)
    first: dict[str, Question] = {}
    for question in file.questions:
        first.setdefault(question.text, question)
        answers[question.text].add(question.answer or "")
    several = [text for text, each in answers.items() if len(each) > 1]
    if not several:
        return []
    question = first[several[0]]
    given = " and ".join(f'"{each}"' for each in sorted(answers[question.text])[:2])
    what = f'"{question.text}" has the answers {given}'
    if len(several) > max(1, SEVERAL_ANSWERS * len(answers)):
        raise UserError(
            f"{file.path}, line {question.line}: {what}, and {len(several):,} of "
            f"{len(answers):,} questions have several; keep one answer for each."
        )
    return [f"{len(several):,} questions of {file.path.name} have several answers ({what})."]


def describe_readings(readings: Sequence[RelationReading], path: object) -> list[str]:
    """One note on each relation: how many questions, and how many answers stand in the text.

    Training answers that are nowhere in the documents cannot be learned from them: a UserError.
    """
    if not any(reading.found for reading in readings):
        missing = [answer for reading in readings for answer in reading.missing]
        raise UserError(
            f"{path}: none of the {len(missing):,} training answers stands in a document about its "
            f"subject ({_some(missing)}); the answers have to be words of the text. Check that "
            "question and answer are not swapped, and that text and questions belong together."
        )
    notes = []
    few = [f'"{reading.template}"' for reading in readings if reading.found < FEWEST]
    if few:
        notes.append(
            f"for {len(few):,} kind{'s' * (len(few) > 1)} of question fewer than {FEWEST} training "
            f"answers stand in the text, so that no others are read off it ({_some(few)}); give at "
            f"least {FEWEST} questions of each wording."
        )
    for reading in (each for each in readings if each.found >= FEWEST):
        note = (
            f'"{reading.template}": {reading.asked:,} training questions, '
            f"{reading.found / reading.asked:.0%} of their answers stand in a document about the "
            f"subject, and {len(reading.answers):,} subjects have an answer that was read off"
        )
        if reading.found < FOUND * reading.asked:
            note += f"; little can be learned from the text (not found: {_some(reading.missing)})"
        notes.append(note + ".")
    return notes


def _some(texts: Iterable[str]) -> str:
    common = [text for text, _ in Counter(texts).most_common(SHOWN + 1)]
    return ", ".join(common[:SHOWN]) + (", ..." if len(common) > SHOWN else "")
