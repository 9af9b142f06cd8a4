"""The signals: what each says, and how they are computed for many questions at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.questions import SLOT
from wherefrom.corpus.tokenizer import MASK
from wherefrom.errors import UserError, did_you_mean
from wherefrom.provenance.confidence.calibration import Calibration
from wherefrom.provenance.judging.metrics import Floats
from wherefrom.provenance.signals.known_answers import (
    FLOOR,
    AnswerTrie,
    Countries,
    country_entropy_of,
    entropy_of,
    margin_of,
    others,
    outcomes,
    rank_of,
)
from wherefrom.provenance.signals.likelihood import (
    can_encode,
    encode_answers,
    encode_prompts,
    score_answers,
)
from wherefrom.provenance.signals.names import (
    LEAST,
    PASSED,
    NameWords,
    ask_about,
    read_names,
    reword,
)
from wherefrom.provenance.signals.probes import (
    NameProbe,
    attention_on,
    find_names,
    fit_name_probe,
    read_states,
)
from wherefrom.recall.decode import answer_all
from wherefrom.training.run_folder import Run


@dataclass(frozen=True)
class SignalInfo:
    """+1 where more of it speaks for a right answer, -1 against, and what it is."""

    sign: int
    about: str


SIGNALS: dict[str, SignalInfo] = {
    "log_probability": SignalInfo(1, "log p(answer | question), all tokens and the closing one"),
    "entropy": SignalInfo(-1, "entropy over the known answers, this one, and anything else"),
    "margin": SignalInfo(1, "log p of the answer minus that of the likeliest other known answer"),
    "rank": SignalInfo(-1, "1 + how many known answers are likelier than this one"),
    "country_entropy": SignalInfo(-1, "the same entropy after adding up the answers by country"),
    "decoy_lift": SignalInfo(1, "log p(answer) minus its log mean over recombined names"),
    "relative_lift": SignalInfo(1, "log p(answer) minus its log mean over names that share a word"),
    "twin_lift": SignalInfo(1, "log p(answer) minus the same by the twin without pretraining"),
    "name_attention": SignalInfo(1, "attention on the name as the answer begins, mean of heads"),
    "known_name": SignalInfo(1, "logit of a linear probe on hidden states: was the name read?"),
    "rewording_agreement": SignalInfo(1, "share of rewordings that get the same answer"),
    "infill": SignalInfo(
        1, "log p(answer) as a masked fact of a document that opens with the name"
    ),
    "name_likelihood": SignalInfo(1, "log p of the name as a document's opening, mean of tokens"),
    "name_lift": SignalInfo(1, "log p(last word | rest of the name) minus its log mean elsewhere"),
    "token_margin": SignalInfo(1, "least lead of a token of the answer over the likeliest other"),
    "context_infill": SignalInfo(
        1, "log p(answer) as a fact behind the name and the words that the text puts before such"
    ),
    "name_read": SignalInfo(1, "probability that the name was read, by the two name signals"),
}
CORE = ("log_probability", "token_margin", "context_infill", "name_read")  # cheap, and always read
NAME_SIGNALS = ("name_likelihood", "name_lift")  # what name_read is computed from


@dataclass(frozen=True, eq=False)
class SignalTable:
    """One row a question; a column has NaN where its signal is not defined."""

    questions: tuple[str, ...]
    subjects: tuple[str, ...]
    answers: tuple[str, ...]
    columns: dict[str, Floats]

    @classmethod
    def join(cls, tables: Sequence[SignalTable]) -> SignalTable:
        """The rows of tables with the same columns, one after the other."""
        return cls(
            questions=tuple(text for table in tables for text in table.questions),
            subjects=tuple(text for table in tables for text in table.subjects),
            answers=tuple(text for table in tables for text in table.answers),
            columns={
                name: np.concatenate([table.columns[name] for table in tables])
                for name in tables[0].columns
            },
        )

    def row(self, at: int) -> dict[str, float | None]:
        """One question's signals for JSON: None where there is none."""
        values = {name: float(column[at]) for name, column in self.columns.items()}
        return {name: value if np.isfinite(value) else None for name, value in values.items()}


def choose_signals(only: Collection[str] | None) -> set[str]:
    """The names of the signals to compute: all, or those given and what they are made of.

    An unknown one is refused.
    """
    for name in only or ():
        if name not in SIGNALS:
            raise UserError(f'there is no signal "{name}".{did_you_mean(name, SIGNALS)}')
    wanted = set(SIGNALS) if only is None else set(only)
    return wanted | set(NAME_SIGNALS) if "name_read" in wanted else wanted


def signs_of(names: Collection[str]) -> dict[str, Any]:
    """The signs as a calibration takes them."""
    return {name: SIGNALS[name].sign for name in names}


PART = 256  # questions that are read together
TRIE_PART = 32  # the same where the trie is walked, which more do not make faster
DECOYS = 32  # recombined names, the same for all questions
RELATIVES = 3  # names that keep a first word, and as many that keep a last word
FIRST_WORDS = 4  # before which a last word is also tried
PRIOR_FLOOR = 1e-7  # prefixes less likely than this under a decoy are not followed
AMONG_KNOWN = frozenset({"entropy", "margin", "rank", "country_entropy"})


@dataclass(eq=False)
class SignalReader:
    """A run, its twin, and what was prepared once: decoys, the prior, the probe."""

    run: Run
    twin: Run | None
    known_answers: tuple[str, ...]
    names: tuple[str, ...]
    seed: int
    decoys: tuple[str, ...]
    first_words: tuple[str, ...]
    prior: Floats  # mean p(answer | decoy) of each answer of the trie
    contexts: tuple[str, ...] = ()  # the words that lead to an answer in the text
    probe: NameProbe | None = None
    name_curve: Calibration | None = None  # from name_likelihood and name_lift to name_read
    templates: tuple[str, ...] = ()  # of rewordings that a user adds
    countries: tuple[str | None, ...] | None = None  # of the trie's answers, if looked up before
    _priors: dict[str, float] = field(default_factory=dict)  # of answers that are not known

    @classmethod
    def prepare(
        cls,
        run: Run,
        twin: Run | None,
        known_answers: Sequence[str],
        names: Sequence[str],
        *,
        contexts: Sequence[str] = (),
        seed: int,
    ) -> SignalReader:
        """Choose decoys, and read the prior of the answers under them."""
        known = tuple(dict.fromkeys(answer.strip() for answer in known_answers))
        rng = np.random.default_rng([seed, 11])
        words = NameWords.of(names)
        decoys = [n for n in words.recombine(DECOYS, rng) if can_encode(run.tokens, n)]
        picked = rng.permutation(len(words.first))[:FIRST_WORDS]
        first = [w for w in (words.first[at] for at in picked) if can_encode(run.tokens, w)]
        empty = np.zeros(0)
        reader = cls(
            run,
            twin,
            known,
            tuple(names),
            seed,
            tuple(decoys),
            tuple(first),
            prior=empty,
            contexts=tuple(contexts),
        )
        prompts = reader._decoy_prompts
        if prompts:
            found = reader.trie.distribution(run.model, prompts, floor=PRIOR_FLOOR)
            reader.prior = np.exp(found.log_probabilities).mean(axis=0)
        return reader

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

        `only` names the signals to compute; `report` is told of questions as they are done.
        """
        wanted = choose_signals(only)
        size = TRIE_PART if wanted & AMONG_KNOWN else PART
        tables = []
        for start in range(0, max(1, len(questions)), size):
            part = slice(start, start + size)
            given = None if answers is None else answers[part]
            tables.append(self._read_part(questions[part], subjects[part], given, wanted))
            if report is not None:
                report(len(tables[-1].questions))
        return SignalTable.join(tables)

    def _read_part(
        self,
        questions: Sequence[str],
        subjects: Sequence[str],
        answers: Sequence[str] | None,
        wanted: set[str],
    ) -> SignalTable:
        model, tokens = self.run.model, self.run.tokens
        if model.training:
            model.eval()
        prompts = encode_prompts(model, tokens, questions)
        if answers is None:
            said = answer_all(model, tokens, questions)
            texts = [answer.text for answer in said]
            scores = np.array([answer.log_probability for answer in said])
        else:
            texts = [answer.strip() for answer in answers]
            scores = score_answers(model, prompts, encode_answers(tokens, texts))
        ids = encode_answers(tokens, texts)
        columns: dict[str, Floats] = {"log_probability": scores}
        if wanted & AMONG_KNOWN:
            columns |= self._among_known(prompts, texts, scores, wanted)
        if "decoy_lift" in wanted:
            columns["decoy_lift"] = scores - self._log_priors(texts)
        if "relative_lift" in wanted:
            columns["relative_lift"] = scores - self._log_relatives(questions, subjects, ids)
        if "twin_lift" in wanted:
            columns["twin_lift"] = scores - self._by_twin(questions, texts)
        if "name_attention" in wanted:
            places = find_names(tokens, questions, subjects)
            columns["name_attention"] = attention_on(model, prompts, places)
        if "known_name" in wanted:
            columns["known_name"] = np.full(len(questions), np.nan)
            if self.probe is not None and len(questions):
                states = self._states(questions, subjects, prompts)
                columns["known_name"] = self.probe.score(states)
        if "rewording_agreement" in wanted:
            columns["rewording_agreement"] = self._agreement(questions, subjects, texts)
        if wanted & PASSED:
            columns |= read_names(
                model,
                tokens,
                prompts,
                subjects,
                ids,
                contexts=self.contexts,
                first_words=self.first_words,
                wanted=wanted,
            )
        if "name_read" in wanted:
            columns["name_read"] = self._name_read(columns)
        columns = {name: columns[name] for name in SIGNALS if name in wanted}
        return SignalTable(tuple(questions), tuple(subjects), tuple(texts), columns)

    def fit_probe(
        self,
        known: Sequence[tuple[str, str]],
        unknown: Sequence[tuple[str, str]],
        *,
        seed: int,
        counts: Floats | None = None,
    ) -> Floats:
        """Fit `known_name` on (question, subject) pairs; returns their scores out of fold.

        `counts` is how many people each stands for, those known first.
        """
        questions = [question for question, _ in (*known, *unknown)]
        subjects = [subject for _, subject in (*known, *unknown)]
        prompts = encode_prompts(self.run.model, self.run.tokens, questions)
        states = self._states(questions, subjects, prompts)
        flags = np.arange(len(questions)) < len(known)
        self.probe, held_out = fit_name_probe(states, flags, subjects, seed=seed, counts=counts)
        return held_out

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words for JSON."""
        return {
            "known_answers": list(self.known_answers),
            "names": list(self.names),
            "seed": self.seed,
            "decoys": list(self.decoys),
            "first_words": list(self.first_words),
            "prior": self.prior.tolist(),
            "contexts": list(self.contexts),
            "probe": None if self.probe is None else self.probe.to_dict(),
            "name_curve": None if self.name_curve is None else self.name_curve.to_dict(),
            "templates": list(self.templates),
            "countries": self._countries.located,
        }

    @classmethod
    def from_dict(cls, record: Any, run: Run, twin: Run | None) -> SignalReader:
        """What `to_dict` wrote, for the same run."""
        try:
            fields = ("known_answers", "names", "decoys", "first_words", "templates", "contexts")
            lists: dict[str, Any] = {name: tuple(map(str, record[name])) for name in fields}
            prior = np.array(record["prior"], dtype=np.float64)
            probe, curve, seed = record["probe"], record["name_curve"], int(record["seed"])
            found = tuple(None if name is None else str(name) for name in record["countries"])
        except (KeyError, TypeError, ValueError):
            raise UserError("the signals' record is broken; calibrate the run again.") from None
        read = None if probe is None else NameProbe.from_dict(probe, 2 * run.model.config.width)
        reader = cls(
            run=run,
            twin=twin,
            seed=seed,
            prior=prior,
            probe=read,
            name_curve=None if curve is None else Calibration.from_dict(curve),
            countries=found,
            **lists,
        )
        answers = len(reader.trie.answers)
        if prior.shape not in ((0,), (answers,)) or len(found) != answers:
            raise UserError("the signals' record does not fit the run; calibrate it again.")
        return reader

    @cached_property
    def trie(self) -> AnswerTrie:
        return AnswerTrie(self.run.tokens, self.known_answers)

    @cached_property
    def _words(self) -> NameWords:
        return NameWords.of(self.names)

    @cached_property
    def _countries(self) -> Countries:
        return Countries(self.trie.answers, self.countries)

    @cached_property
    def _decoy_prompts(self) -> list[list[int]]:
        template = self.run.template
        if template is None:
            return []
        asked = [template.replace(SLOT, decoy) for decoy in self.decoys]
        return encode_prompts(self.run.model, self.run.tokens, asked)

    def _among_known(
        self, prompts: list[list[int]], texts: list[str], scores: Floats, wanted: set[str]
    ) -> dict[str, Floats]:
        found = self.trie.distribution(self.run.model, prompts)
        position = np.array([self.trie.position.get(text, -1) for text in texts], dtype=np.intp)
        masses = outcomes(found, position, scores)
        rest = others(found, position)
        columns = {
            "entropy": entropy_of(masses),
            "margin": margin_of(rest, scores, FLOOR),
            "rank": rank_of(rest, scores),
        }
        if "country_entropy" in wanted:
            countries = country_entropy_of(masses, self._countries, texts, position)
            columns["country_entropy"] = countries
        return columns

    def _log_priors(self, texts: list[str]) -> Floats:
        """log of the mean probability under the decoys; NaN where there are none."""
        prompts = self._decoy_prompts
        if not prompts:
            return np.full(len(texts), np.nan)
        known = self.trie.position
        new = sorted({text for text in texts if text not in known and text not in self._priors})
        ids = encode_answers(self.run.tokens, new)
        pairs = [(prompt, answer) for answer in ids for prompt in prompts]
        scores = score_answers(self.run.model, [p for p, _ in pairs], [a for _, a in pairs])
        means = np.exp(scores).reshape(len(new), len(prompts)).mean(axis=1)
        self._priors.update(zip(new, means.tolist(), strict=True))
        prior = [self.prior[known[t]] if t in known else self._priors[t] for t in texts]
        return np.log(np.maximum(np.array(prior), LEAST))

    def _log_relatives(
        self, questions: Sequence[str], subjects: Sequence[str], ids: list[list[int] | None]
    ) -> Floats:
        rows, asked = [], []
        for at, (question, subject) in enumerate(zip(questions, subjects, strict=True)):
            for name in self._words.relatives(subject, RELATIVES, self.seed):
                other = ask_about(question, subject, name)
                if other is not None and can_encode(self.run.tokens, other):
                    rows.append(at)
                    asked.append([*self.run.tokens.encode(other), MASK])
        scores = score_answers(self.run.model, asked, [ids[at] for at in rows])
        return _log_mean(np.exp(scores), np.array(rows, dtype=np.intp), len(questions))

    def _by_twin(self, questions: Sequence[str], texts: list[str]) -> Floats:
        scores = np.full(len(questions), np.nan)
        if self.twin is None:
            return scores
        tokens, model = self.twin.tokens, self.twin.model
        rows = [at for at, question in enumerate(questions) if can_encode(tokens, question)]
        prompts = [[*ids, MASK] for ids in tokens.encode_all([questions[at] for at in rows])]
        answers = encode_answers(tokens, [texts[at] for at in rows])
        scores[rows] = np.maximum(score_answers(model.eval(), prompts, answers), np.log(LEAST))
        return scores

    def _states(
        self, questions: Sequence[str], subjects: Sequence[str], prompts: list[list[int]]
    ) -> Floats:
        places = find_names(self.run.tokens, questions, subjects)
        return read_states(self.run.model.eval(), prompts, [max(0, end - 1) for _, end in places])

    def _agreement(
        self, questions: Sequence[str], subjects: Sequence[str], texts: list[str]
    ) -> Floats:
        """The share of rewordings with this answer; NaN for a question that has none."""
        rows, asked = [], []
        tokens, longest = self.run.tokens, self.run.model.config.longest_input
        for at, (question, subject) in enumerate(zip(questions, subjects, strict=True)):
            for other in reword(question, subject, self.templates):
                if can_encode(tokens, other) and len(tokens.encode(other)) < longest:
                    rows.append(at)
                    asked.append(other)
        said = answer_all(self.run.model, tokens, asked)
        same = [answer.text == texts[at] for answer, at in zip(said, rows, strict=True)]
        return _mean(np.array(same, dtype=np.float64), np.array(rows, dtype=np.intp), len(texts))

    def _name_read(self, columns: dict[str, Floats]) -> Floats:
        rows = len(columns["name_likelihood"])
        if self.name_curve is None or not rows:
            return np.full(rows, np.nan)
        return self.name_curve.probability({name: columns[name] for name in NAME_SIGNALS})


def _mean(values: Floats, rows: NDArray[np.intp], count: int) -> Floats:
    """The mean of the values of each row; NaN for a row that has none."""
    many = np.bincount(rows, minlength=count)
    total = np.bincount(rows, weights=values, minlength=count)
    return np.divide(total, many, out=np.full(count, np.nan), where=many > 0)


def _log_mean(values: Floats, rows: NDArray[np.intp], count: int) -> Floats:
    return np.asarray(np.log(np.maximum(_mean(values, rows, count), LEAST)))
