"""The signals: each is one function and its line in SIGNALS; read for many questions at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from wherefrom.errors import UserError, did_you_mean
from wherefrom.provenance.confidence.calibration import Calibration
from wherefrom.provenance.metrics import Floats
from wherefrom.provenance.signals.known_answers import (
    AnswerTrie,
    add_up_countries,
    are_places,
    entropy_of,
    find_countries,
    outcomes,
)
from wherefrom.provenance.signals.likelihood import (
    IMPOSSIBLE,
    TokenScores,
    can_encode,
    encode_answers,
    encode_prompts,
    score_answers,
    score_tokens,
)
from wherefrom.provenance.signals.names import encode_names, encode_words, space_of
from wherefrom.recall.decode import answer_all
from wherefrom.training.run_folder import Run

PART = 256  # questions that are read together
TRIE_PART = 32  # the same where the trie is walked, which more do not make faster
FIRST_WORDS = 4  # before which a last word is also tried
LEAST = 1e-8  # a last word that is less likely than this behind other first words counts as this

Ids = list[int]
Column = Callable[[], Floats]


class SignalBatch:
    """Questions that are read together, the answers asked about, and what several signals share.

    A signal first asks for the tokens that it wants scored (`ask`) and returns a function that
    makes its column of the scores. So all that the signals ask for goes through the model in one
    batched pass, when the first column is made.
    """

    def __init__(
        self,
        reader: SignalReader,
        questions: Sequence[str],
        subjects: Sequence[str],
        answers: Sequence[str] | None,
    ) -> None:
        self.reader, self.questions, self.subjects = reader, questions, subjects
        self.model, self.tokens = reader.run.model, reader.run.tokens
        if self.model.training:
            self.model.eval()
        self.prompts = encode_prompts(self.model, self.tokens, questions)
        if answers is None:
            greedy = answer_all(self.model, self.tokens, questions)
            self.answers = [answer.text for answer in greedy]
            self.log_probability = np.array([answer.log_probability for answer in greedy])
            self.answer_ids = encode_answers(self.tokens, self.answers)
        else:
            self.answers = [answer.strip() for answer in answers]
            self.answer_ids = encode_answers(self.tokens, self.answers)
            self.log_probability = score_answers(self.model, self.prompts, self.answer_ids)
        self._asked: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        self._with_other: set[int] = set()

    def ask(self, before: Ids, scored: Ids | None, *, with_other: bool = False) -> int | None:
        """The row in which these tokens are scored; None where the model cannot hold them."""
        longest = self.model.config.longest_input
        if not before or not scored or len(before) + len(scored) - 1 > longest:
            return None
        assert "scores" not in self.__dict__, "the pass is over"
        row = self._asked.setdefault((tuple(before), tuple(scored)), len(self._asked))
        if with_other:
            self._with_other.add(row)
        return row

    @cached_property
    def scores(self) -> list[TokenScores]:
        """All rows that were asked for, in one pass."""
        sequences = [[*before, *scored] for before, scored in self._asked]
        begins = [len(before) for before, _ in self._asked]
        return score_tokens(self.model, sequences, begins, with_other=self._with_other)

    def total(self, row: int | None) -> float:
        """log p of all tokens of a row."""
        return IMPOSSIBLE if row is None else max(IMPOSSIBLE, float(self.scores[row].own.sum()))

    @cached_property
    def names(self) -> list[Ids]:
        """`Name.` of each subject."""
        return encode_names(self.tokens, self.subjects)

    @cached_property
    def outcomes(self) -> Floats:
        """(n, k + 2): probabilities of the known answers, this answer if unknown, anything else."""
        trie = self.reader.trie
        position = np.array([trie.position.get(answer, -1) for answer in self.answers], dtype=int)
        found = trie.log_probabilities(self.model, self.prompts)
        return outcomes(found, position, self.log_probability)


def log_probability(batch: SignalBatch) -> Column:
    """log p(answer | question), of all tokens and the closing one."""
    return lambda: batch.log_probability


def token_margin(batch: SignalBatch) -> Column:
    """The least lead in log p of a token of the answer over the likeliest other token."""
    pairs = zip(batch.prompts, batch.answer_ids, strict=True)
    rows = [batch.ask(prompt, answer, with_other=True) for prompt, answer in pairs]

    def lead(row: int | None) -> float:
        return IMPOSSIBLE if row is None else float(np.subtract(*batch.scores[row]).min())

    return lambda: np.array([lead(row) for row in rows])


def context_infill(batch: SignalBatch) -> Column:
    """log p(answer) as a masked fact behind the name and the words that lead to such in the text.

    Of several wordings the one that finds the answer likeliest counts.
    """
    wordings = [encode_words(batch.tokens, words) for words in batch.reader.state.contexts or [""]]
    rows = [
        [batch.ask(name and [*name, *words], answer) for words in wordings]
        for name, answer in zip(batch.names, batch.answer_ids, strict=True)
    ]
    return lambda: np.array([max(map(batch.total, several)) for several in rows])


def name_likelihood(batch: SignalBatch) -> Column:
    """log p of the name as a document's opening, mean of its tokens."""
    rows = [batch.ask(name[:1], name[1:]) for name in batch.names]
    return lambda: np.array(
        [np.nan if row is None else float(batch.scores[row].own.mean()) for row in rows]
    )


def name_lift(batch: SignalBatch) -> Column:
    """log p of the last word behind its own first words, less log of its mean behind others."""
    tokens, space = batch.tokens, space_of(batch.tokens)
    others = [tokens.encode(word + space) for word in batch.reader.state.first_words]
    asked: list[tuple[int | None, int, list[int]]] = []
    for subject, name in zip(batch.subjects, batch.names, strict=True):
        first, _, last = subject.rpartition(" ")
        row, start = batch.ask(name[:1], name[1:]), 0
        elsewhere: list[int | None] = []
        if row is not None and first.strip():
            head, tail = tokens.encode(first + space), tokens.encode(f"{last}.")
            start = len(head) - 1
            if [*head, *tail] != name:  # cut otherwise than in the name
                row, start = batch.ask(head, tail), 0
            elsewhere = [batch.ask(other, tail) for other in others]
        asked.append((row, start, [each for each in elsewhere if each is not None]))

    def lift(row: int | None, start: int, elsewhere: list[int]) -> float:
        if row is None or not elsewhere:
            return np.nan
        mean = np.mean([np.exp(batch.scores[each].own.sum()) for each in elsewhere])
        return float(batch.scores[row].own[start:].sum() - np.log(max(float(mean), LEAST)))

    return lambda: np.array([lift(*each) for each in asked])


def name_read(batch: SignalBatch) -> Column:
    """The probability that the name was read, by a logistic curve over the name signals."""
    curve = batch.reader.state.name_curve
    columns = {name: SIGNALS[name].read(batch) for name in NAME_SIGNALS}
    if curve is None or not batch.questions:
        return lambda: np.full(len(batch.questions), np.nan)
    return lambda: curve.probability({name: column() for name, column in columns.items()})


def entropy(batch: SignalBatch) -> Column:
    """Entropy over the known answers, this answer, and anything else."""
    return lambda: entropy_of(batch.outcomes)


def country_entropy(batch: SignalBatch) -> Column:
    """The same after adding up the answers by country; NaN where most of them are not places."""
    countries = batch.reader.state.countries
    if not are_places(countries):
        return lambda: np.full(len(batch.questions), np.nan)
    known = batch.reader.trie.position
    new = list({answer for answer in batch.answers if answer not in known})
    located = dict(zip(new, find_countries(new), strict=True))
    own = [located.get(answer) for answer in batch.answers]
    return lambda: entropy_of(add_up_countries(batch.outcomes, countries, own))


@dataclass(frozen=True)
class SignalInfo:
    """A signal: its function, and its sign (+1: more of it speaks for a right answer, -1: less)."""

    read: Callable[[SignalBatch], Column]
    sign: int


SIGNALS: dict[str, SignalInfo] = {
    "log_probability": SignalInfo(log_probability, 1),
    "token_margin": SignalInfo(token_margin, 1),
    "context_infill": SignalInfo(context_infill, 1),
    "name_likelihood": SignalInfo(name_likelihood, 1),
    "name_lift": SignalInfo(name_lift, 1),
    "name_read": SignalInfo(name_read, 1),
    "entropy": SignalInfo(entropy, -1),
    "country_entropy": SignalInfo(country_entropy, -1),
}
CORE = ("log_probability", "token_margin", "context_infill", "name_read")  # a confidence takes them
NAME_SIGNALS = ("name_likelihood", "name_lift")  # what name_read is computed from
AMONG_KNOWN = ("entropy", "country_entropy")  # what walks the trie


@dataclass(frozen=True, eq=False)
class SignalTable:
    """One row per question; a column has NaN where its signal is not defined."""

    questions: tuple[str, ...]
    subjects: tuple[str, ...]
    answers: tuple[str, ...]
    columns: Mapping[str, Floats]


@dataclass(frozen=True)
class SignalState:
    """What was prepared once for a run, as calibration.json keeps it.

    contexts: the words that lead to an answer in the text. first_words: of other names. countries:
    of the answers in the trie. name_curve: from the name signals to `name_read`, once fitted.
    """

    known_answers: tuple[str, ...]
    contexts: tuple[str, ...]
    first_words: tuple[str, ...]
    countries: tuple[str | None, ...]
    name_curve: Calibration | None = None


class SignalReader:
    """A run and what was prepared for reading its signals."""

    def __init__(self, run: Run, state: SignalState) -> None:
        self.run = run
        self.state = state
        self.known_answers = state.known_answers
        self.trie = AnswerTrie(run.tokens, state.known_answers)

    @classmethod
    def prepare(
        cls,
        run: Run,
        known_answers: Sequence[str],
        names: Sequence[str],
        *,
        contexts: Sequence[str] = (),
        seed: int,
    ) -> SignalReader:
        """Choose other names' first words among `names`, and locate the known answers."""
        known = tuple(dict.fromkeys(answer.strip() for answer in known_answers))
        words = list(dict.fromkeys(name.split()[0] for name in names if name.split()))
        picked = np.random.default_rng([seed, 11]).permutation(len(words))[:FIRST_WORDS]
        first = [words[at] for at in picked if can_encode(run.tokens, words[at])]
        countries = find_countries(AnswerTrie(run.tokens, known).answers)
        state = SignalState(known, tuple(contexts), tuple(first), countries)
        return cls(run, state)

    def with_curve(self, curve: Calibration) -> SignalReader:
        """The same with a fitted `name_read`."""
        return SignalReader(self.run, replace(self.state, name_curve=curve))

    def read(
        self,
        questions: Sequence[str],
        subjects: Sequence[str],
        *,
        answers: Sequence[str] | None = None,
        only: Collection[str] | None = None,
        report: Callable[[int], None] | None = None,
    ) -> SignalTable:
        """The signals of the greedy answers, or of `answers` where they are given.

        `only` names the signals to read, all if not given, and `name_read` brings the two that it
        is computed from. `report` is called with the number of questions that were just read.
        """
        wanted = set(SIGNALS if only is None else only)
        for name in sorted(wanted - SIGNALS.keys()):
            raise UserError(f'there is no signal "{name}".{did_you_mean(name, SIGNALS)}')
        if "name_read" in wanted:
            wanted.update(NAME_SIGNALS)
        size = TRIE_PART if wanted.intersection(AMONG_KNOWN) else PART
        said: list[str] = []
        parts: dict[str, list[Floats]] = {name: [] for name in SIGNALS if name in wanted}
        for start in range(0, max(1, len(questions)), size):
            part = slice(start, start + size)
            given = None if answers is None else answers[part]
            batch = SignalBatch(self, questions[part], subjects[part], given)
            columns = {name: SIGNALS[name].read(batch) for name in parts}
            for name, column in columns.items():
                parts[name].append(column())
            said += batch.answers
            if report is not None:
                report(len(batch.questions))
        whole = {name: np.concatenate(pieces) for name, pieces in parts.items()}
        return SignalTable(tuple(questions), tuple(subjects), tuple(said), whole)
