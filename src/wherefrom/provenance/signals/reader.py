"""The signals: each is one function and its line in SIGNALS; read for many questions at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import SLOT
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.errors import UserError, did_you_mean
from wherefrom.model.interface import Ids, TokenScores
from wherefrom.model.own import OwnModel
from wherefrom.provenance.metrics import Floats
from wherefrom.provenance.signals import likelihood
from wherefrom.provenance.signals.likelihood import score_answers
from wherefrom.recall.decode import answer_all, encode_prompts
from wherefrom.training.run_folder import Run

PART = 1_024  # questions that are read together
WINDOWS = 8  # of a relation, in which the answer is masked
LEAST_PROBABILITY = 0.8  # that a fact whose words make a window states an answer
WINDOW_WORDS = (3, 2)  # before and behind the mask, about as many as in training;
SHORT_WINDOW_WORDS = (2, 1)  # with a single relation
CLIP = 30.0  # nats; windows count at most this much for or against an answer
MAX_OTHER_QUESTIONS = 3  # other kinds of question about the subject that are also asked
Window = tuple[tuple[int, ...], tuple[int, ...]]  # the tokens before and behind a mask


def relation_of(question: str, subject: str) -> str:
    """The question with a slot in place of its subject."""
    return question.replace(subject, SLOT, 1) if subject else question


class SignalBatch:
    """Questions that are read together, their answers, and what several signals share."""

    def __init__(
        self, reader: SignalReader, questions: Sequence[str], subjects: Sequence[str]
    ) -> None:
        self.reader, self.questions, self.subjects = reader, questions, subjects
        self.templates = list(map(relation_of, questions, subjects))
        self.model, self.tokens = reader.model, reader.run.tokens
        self.prompts = encode_prompts(reader.run.model, self.tokens, questions)
        self.greedy = answer_all(reader.run.model, self.tokens, questions)
        self.answers = [answer.text for answer in self.greedy]
        self.answer_ids = likelihood.encode_answers(self.tokens, self.answers)

    @cached_property
    def names(self) -> list[Ids]:
        """`Name.` of each subject."""
        return likelihood.encode_names(self.tokens, self.subjects)

    @cached_property
    def in_windows(self) -> list[list[TokenScores | None]]:
        """The scores of each answer as a masked fact, in every window of its relation.

        Training masks facts in the same way, in words that surround facts of other subjects. So an
        answer that was read is likely in all of them, and a guess only in some.
        """
        prompts: list[Ids] = []
        answers: list[Ids] = []
        ends = [0]
        for template, name, answer in zip(self.templates, self.names, self.answer_ids, strict=True):
            for before, behind in self.reader.state.windows.get(template) or (((), ()),):
                prompts.append(name and [*name, *before, MASK, *behind, MASK])
                answers.append(answer)
            ends.append(len(prompts))
        scores = self.model.score(prompts, answers)
        return [scores[start:end] for start, end in pairwise(ends)]

    @cached_property
    def name_tokens(self) -> list[Floats | None]:
        """log p of the tokens of each `Name.` behind its first one."""
        heads, tails = [name[:1] for name in self.names], [name[1:] for name in self.names]
        return [row and row.own for row in self.model.score(heads, tails)]


def log_probability(batch: SignalBatch) -> Floats:
    """log p(answer | question), of all tokens and the closing one."""
    return np.array([answer.log_probability for answer in batch.greedy])


def token_margin(batch: SignalBatch) -> Floats:
    """The least lead in log p of a token of the answer over the likeliest other token."""
    leads = [
        answer.margin if list(answer.ids) == ids else None
        for answer, ids in zip(batch.greedy, batch.answer_ids, strict=True)
    ]
    # the text of some answers has other tokens than were decoded
    others = [i for i, lead in enumerate(leads) if lead is None]
    prompts, answers = ([rows[i] for i in others] for rows in (batch.prompts, batch.answer_ids))
    for i, row in zip(others, batch.model.score(prompts, answers), strict=True):
        leads[i] = likelihood.IMPOSSIBLE if row is None else float((row.own - row.other).min())
    return np.array(leads)


def reworded(batch: SignalBatch) -> Floats:
    """The median over the windows of log p(answer)."""
    sums = [[CLIP if s is None else -s.own.sum() for s in row] for row in batch.in_windows]
    return np.array([-min(CLIP, float(np.median(row))) for row in sums])


def reworded_margin(batch: SignalBatch) -> Floats:
    """The mean over the windows of the least lead in log p of a token of the answer."""
    leads = [
        [-CLIP if s is None else float((s.own - s.other).min()) for s in row]
        for row in batch.in_windows
    ]
    return np.array([np.clip(row, -CLIP, CLIP).mean() for row in leads])


def elsewhere(batch: SignalBatch) -> Floats:
    """log p of this answer to other kinds of question about the subject, the largest; NaN without.

    Another fact of the subject may have been taken for the one that was asked for.
    """
    rows: list[int] = []
    questions: list[str] = []
    for row, (template, name) in enumerate(zip(batch.templates, batch.subjects, strict=True)):
        known = batch.reader.state.windows if name else ()
        others = [other for other in known if other != template and SLOT in other][
            :MAX_OTHER_QUESTIONS
        ]
        asked = [other.replace(SLOT, name) for other in others]
        asked = [question for question in asked if likelihood.can_encode(batch.tokens, question)]
        questions += asked
        rows += [row] * len(asked)
    prompts = encode_prompts(batch.reader.run.model, batch.tokens, questions)
    scores = score_answers(batch.model, prompts, [batch.answer_ids[row] for row in rows])
    best = np.full(len(batch.subjects), -np.inf)
    np.maximum.at(best, np.array(rows, dtype=int), scores)
    return np.where(np.isin(np.arange(best.size), rows), best, np.nan)


def _reduce_name(batch: SignalBatch, reduce: Callable[[Floats], Any]) -> Floats:
    return np.array([np.nan if row is None else reduce(row) for row in batch.name_tokens])


# each signal: its function, and its sign (+1: more of it speaks for a right answer, -1: less)
SIGNALS: dict[str, tuple[Callable[[SignalBatch], Floats], int]] = {
    "log_probability": (log_probability, 1),
    "token_margin": (token_margin, 1),
    # as a masked fact in the words of other documents
    "reworded": (reworded, 1),
    "reworded_margin": (reworded_margin, 1),
    # a name that was read about is likely throughout; an invented one has an unlikely token
    "name_likelihood": (lambda batch: _reduce_name(batch, np.mean), 1),
    "name_least": (lambda batch: _reduce_name(batch, np.min), 1),
    "elsewhere": (elsewhere, -1),
}
SIGNS = {name: sign for name, (_, sign) in SIGNALS.items()}
# what tells who was seen, and what tells right among the seen
CORE = ("log_probability", "token_margin", "reworded_margin", "name_likelihood", "name_least")
GIVEN_SEEN = ("log_probability", "token_margin", "reworded", "reworded_margin", "elsewhere")

SUPPORT = "documents_naming"  # the column that counts the documents that name the subject
# what others would use: the signals, and what they are
Rivals = Mapping[str, tuple[tuple[str, ...], str]]
RIVALS: Rivals = {
    "greedy likelihood": (("log_probability",), "log p of the model's own answer"),
    "name support": ((SUPPORT,), "documents that name the subject; it needs the text"),
}


class SignalTable(NamedTuple):
    """The answers, and a column per signal: a number per question, NaN where it is not defined."""

    answers: tuple[str, ...]
    columns: Mapping[str, Floats]


@dataclass(frozen=True)
class SignalState:
    """What was prepared once for a run, as calibration.json keeps it.

    windows: by relation, words around answers in the text, in tokens.
    """

    known_answers: tuple[str, ...]
    windows: Mapping[str, tuple[Window, ...]]


class SignalReader:
    """A run and what was prepared for reading its signals."""

    def __init__(self, run: Run, state: SignalState) -> None:
        self.run, self.state = run, state

    @cached_property
    def model(self) -> OwnModel:
        return OwnModel(self.run.model.eval(), self.run.tokens)

    def read(
        self,
        questions: Sequence[str],
        subjects: Sequence[str],
        *,
        only: Collection[str] | None = None,
        report: Callable[[int], None] | None = None,
    ) -> SignalTable:
        """The signals of the greedy answers.

        only: the signals to read, all if None. report: called with the number of questions that
        were just read.
        """
        wanted = set(SIGNALS if only is None else only)
        for name in sorted(wanted - SIGNALS.keys()):
            raise UserError(f'there is no signal "{name}".{did_you_mean(name, SIGNALS)}')
        all_answers: list[str] = []
        columns: dict[str, list[Floats]] = {name: [] for name in SIGNALS if name in wanted}
        for start in range(0, max(1, len(questions)), PART):
            part = slice(start, start + PART)
            batch = SignalBatch(self, questions[part], subjects[part])
            for name, pieces in columns.items():
                function, _ = SIGNALS[name]
                pieces.append(function(batch))
            all_answers += batch.answers
            if report is not None:
                report(len(batch.subjects))
        whole = {name: np.concatenate(pieces) for name, pieces in columns.items()}
        return SignalTable(tuple(all_answers), whole)


def learn_windows(database: Database, tokens: Tokenizer) -> dict[str, tuple[Window, ...]]:
    """By relation, the words around the answers in some documents, evenly spread over the text."""
    relations = database.relations()
    words = WINDOW_WORDS if len(relations) > 1 else SHORT_WINDOW_WORDS
    windows = {}
    for relation in relations:
        spans = [
            stated[0].spans[0]
            for _, stated in database.all_extracted(relation.template)
            if stated[0].probability >= LEAST_PROBABILITY
        ]
        chosen = np.unique(np.linspace(0, len(spans) - 1, min(WINDOWS, len(spans))).astype(int))
        windows[relation.template] = tuple(
            cut_window(database.documents[doc], (start, end), words, tokens)
            for doc, start, end in (spans[i] for i in chosen.tolist())
        )
    return windows


def cut_window(
    document: Document, span: tuple[int, int], words: tuple[int, int], tokens: Tokenizer
) -> Window:
    """The tokens of so many words before and behind a span of a document."""
    start, end = span
    text, (most_before, most_behind) = document.text, words
    word_starts = [word.start() for word in re.finditer(r"(?<=\s)\S", text)]
    before = [i for i in word_starts if len(document.subject) < i < start][-most_before:]
    behind = [i for i in word_starts if i >= end]
    first = before[0] - 1 if before else start  # with the blank before the first word
    last = behind[most_behind] - 1 if len(behind) > most_behind else len(text)
    ((ids, offsets),) = tokens.encode_with_offsets([text])
    tokens_before = [i for i, (a, b) in zip(ids, offsets, strict=True) if first <= a and b <= start]
    tokens_behind = [i for i, (a, _) in zip(ids, offsets, strict=True) if end <= a < last]
    return tuple(tokens_before), tuple(tokens_behind)
