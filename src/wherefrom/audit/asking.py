"""Asking a model: prompts with examples, its answers, and signals that it gives about each of them.

Some signals are learned from the subjects that calibrate: how often answers of a relation,
and this very answer, are right, and linear probes. What they say of those subjects leaves them out.
"""

from __future__ import annotations

import base64
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.audit.models import LanguageModel
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT
from wherefrom.errors import UserError
from wherefrom.provenance.metrics import Bools, Floats

ASKED = "{question}"
PROMPT = "Q: {question}\nA:"
OTHER_PROMPT = "Question: {question}\nAnswer:"
NEUTRAL = "Yesterday I read an article about"
ARTICLES = {"the", "a", "an"}
SAMPLES = 10  # answers that are drawn for semantic entropy
LEAST = -50.0  # log-probability below which differences tell nothing
BLOCK = 128  # questions of a relation that are asked together, and kept when they are answered
OTHERS = ""  # the relation of questions that share their wording with few others
PLACES = ("name", "prompt", "answer")  # whose last tokens' hidden states are probed
PENALTIES = np.logspace(-1, 3, 5)  # of the probe, per dimension
FOLDS = 5
SHRINK = 4.0  # answers that a relation's share of right ones counts for, beside those of an answer
FEWEST_PROBED = 40  # subjects that fit, for probes, a quarter of them right and a quarter wrong
# +1: more of it speaks for a right answer; the first ones stand in the records as they are
RAW = {"log_probability": 1, "first_log_probability": 1, "margin": 1, "entropy": -1,
       "known_mass": 1, "known_entropy": -1, "known_gap": 1, "is_known": 1,
       "other_log_probability": 1, "other_margin": 1, "name_likelihood": 1}  # fmt: skip
COUNTED = {"relation_recall": 1, "answer_recall": 1, "answer_count": -1}
SIGNS = {**RAW, "lift": 1, **COUNTED, **{f"probe_{place}": 1 for place in PLACES}}
# what others would use, each tuned on the same subjects
RIVALS = {
    "greedy likelihood": (("log_probability",), "log p of the model's own answer"),
    "semantic entropy": (("semantic_entropy",), f"of {SAMPLES} samples that mean the same or not"),
}
Record = Mapping[str, Any]  # what was read of an answer, a line of answers.jsonl
Counts = Mapping[str, Mapping[str, tuple[int, int]]]
Shots = tuple[tuple[str, str], ...]  # questions and answers that stand before the one asked


def normalise(answer: str) -> tuple[str, ...]:
    """The words of an answer, whatever its case, accents, punctuation and articles."""
    words = fold_words(answer)
    return tuple(word for word in words if word not in ARTICLES) or words


def accepted(answer: str | None) -> list[str]:
    """The answers that a cell accepts, separated by |; none for one that cannot be known."""
    return [each.strip() for each in (answer or "").split("|") if each.strip()]


def is_match(said: str, answer: str | None) -> bool:
    """Whether an answer is one of those accepted, as `normalise` reads them."""
    return normalise(said) in [normalise(each) for each in accepted(answer)]


@dataclass(frozen=True)
class AskState:
    """What is fixed before the first question is asked, as calibration.json keeps it.

    By relation: examples, those of the second prompt, known answers, and names that nobody has.
    alone: by question, the known answer that is known from it alone, and so not of use for it.
    mask: where a model of ours is asked. longest: tokens of an answer.
    """

    template: str
    mask: str | None
    shots: Mapping[str, Shots]
    other_shots: Mapping[str, Shots]
    known: Mapping[str, tuple[str, ...]]
    alone: Mapping[str, str]
    decoys: Mapping[str, tuple[str, ...]]
    longest: int

    def render(self, relation: str, question: str, *, other: bool = False) -> str:
        """The prompt of a question; or the other one, with other examples and other words."""
        if self.mask:
            return f"{question}{self.mask}"
        form = OTHER_PROMPT if other and self.template == PROMPT else self.template
        shots = (self.other_shots if other else self.shots).get(relation, ())
        space = "" if form[-1:].isspace() else " "
        before = "".join(f"{form.replace(ASKED, q)}{space}{a}\n" for q, a in shots)
        return before + form.replace(ASKED, question)


def read_block(
    model: LanguageModel,
    state: AskState,
    relation: str,
    rows: Sequence[tuple[str, str]],
    *,
    rivals: bool = False,
    answers: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """A record of each (question, subject) of one relation: the answer and its raw signals.

    rivals: read what only rivals use, too. answers: given ones to be judged instead of its own;
    the hidden state behind the answer stays the prompt's.
    """
    texts = [state.render(relation, question) for question, _ in rows]
    ids, places = [model.prompt(text) for text in texts], []
    for (question, subject), text, each in zip(rows, texts, ids, strict=True):
        if len(each) + 1 > model.longest:
            raise UserError(
                f'the prompt of "{question[:60]}" has {len(each)} tokens and {model.name} reads '
                f"{model.longest}; ask a shorter question, or give fewer --shots."
            )
        at = text.rfind(subject) if subject else -1
        if SLOT in relation:
            at = text.rfind(question) + relation.index(SLOT)
        named = text[: at + len(subject)] if at >= 0 else text.removesuffix(model.mask or "\0")
        places.append([min(max(0, len(model.encode(named)) - 1), len(each) - 1)])
    answers_known = state.known.get(relation, ())
    known = [model.continuation(texts[0], each) for each in answers_known]
    samples = SAMPLES if rivals else 0
    replies = model.answer(ids, places=places, known=known, samples=samples, longest=state.longest)
    if answers is not None:
        scored = score_texts(model, texts, answers)
        for reply, (own, rest), answer in zip(replies, scored, answers, strict=True):
            reply.text, reply.log_probabilities, reply.other = answer, own.tolist(), rest.tolist()
    said = [reply.text for reply in replies]
    again = [state.render(relation, question, other=True) for question, _ in rows]
    other = score_texts(model, again, said)
    names = list(dict.fromkeys(subject for _, subject in rows))
    neutral = ["" if model.mask else NEUTRAL] * len(names)
    likely = dict(zip(names, score_texts(model, neutral, names), strict=True))
    prior = score_decoys(model, state, relation, said)
    records = []
    for at, ((question, subject), reply) in enumerate(zip(rows, replies, strict=True)):
        own, rest = np.array(reply.log_probabilities), np.array(reply.other)
        (there, rival), (name, _) = other[at], likely[subject]
        found = dict(zip(answers_known, reply.known, strict=True))
        found.pop(state.alone.get(question, ""), None)
        packed = base64.b64encode(reply.states.tobytes()).decode()
        records.append({
            "question": question, "subject": subject, "relation": relation, "answer": reply.text,
            "log_probability": float(own.sum()), "first_log_probability": float(own[0]),
            "margin": float((own - rest).min()), "entropy": reply.entropy,
            **spread(found, reply.text, float(own.sum())),
            "other_log_probability": float(there.sum()) if there.size else None,
            "other_margin": float((there - rival).min()) if there.size else None,
            "name_likelihood": float(name.mean()) if name.size else None,
            "prior": prior[reply.text], "samples": reply.samples,
            "states": {"shape": reply.states.shape, "data": packed},
        })  # fmt: skip
    return records


def read_blocks(
    model: LanguageModel,
    state: AskState,
    rows: Sequence[tuple[str, str]],
    *,
    rivals: bool = False,
    answers: Sequence[str] | None = None,
) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
    """As `read_block` for any relations, in blocks: the places of some rows, and their records."""
    groups: dict[str, list[int]] = defaultdict(list)
    for at, (question, subject) in enumerate(rows):
        own = (each for each in state.known if each.replace(SLOT, subject) == question)
        groups[next(own, OTHERS)].append(at)
    for relation, places in groups.items():
        for begin in range(0, len(places), BLOCK):
            part = places[begin : begin + BLOCK]
            given = None if answers is None else [answers[at] for at in part]
            asked = [rows[at] for at in part]
            yield part, read_block(model, state, relation, asked, rivals=rivals, answers=given)


def spread(known: Mapping[str, float], said: str, log_probability: float) -> dict[str, float]:
    """The distribution over the known answers, this answer if it is unknown, and anything else."""
    is_known = normalise(said) in map(normalise, known)
    shares = np.exp([*known.values(), -np.inf if is_known else log_probability])
    whole = np.array([*shares, max(0.0, 1 - shares.sum())])
    second, best = np.sort(np.maximum([LEAST, LEAST, *known.values()], LEAST))[-2:]
    return {
        "known_mass": float(shares[:-1].sum()),
        "known_entropy": float(-(whole * np.log(np.maximum(whole, 1e-12))).sum()),
        "known_gap": float(best - second),
        "is_known": float(is_known),
    }


def score_texts(
    model: LanguageModel, texts: Sequence[str], answers: Sequence[str]
) -> list[tuple[Floats, Floats]]:
    """log p of the tokens of each answer behind its prompt, and of the likeliest others."""
    told = [model.continuation(text, answer) for text, answer in zip(texts, answers, strict=True)]
    ids = [model.prompt(text) or told[at][:1] for at, text in enumerate(texts)]
    told = [each if text else each[1:] or each for text, each in zip(texts, told, strict=True)]
    fits = [at for at, each in enumerate(told) if len(ids[at]) + len(each) <= model.longest]
    found = [(np.empty(0), np.empty(0))] * len(texts)
    scored = model.score([ids[at] for at in fits], [told[at] for at in fits])
    for at, pair in zip(fits, scored, strict=True):
        found[at] = pair
    return found


def score_decoys(
    model: LanguageModel, state: AskState, relation: str, answers: Sequence[str]
) -> dict[str, float | None]:
    """log of the mean probability of each answer to the same question about other names."""
    distinct = list(dict.fromkeys(answers))
    columns = []
    for name in state.decoys.get(relation, ()):
        text = state.render(relation, relation.replace(SLOT, name))
        found = score_texts(model, [text] * len(distinct), distinct)
        columns.append([max(own.sum(), LEAST) if own.size else LEAST for own, _ in found])
    if not columns:
        return dict.fromkeys(distinct)
    mean = np.logaddexp.reduce(np.array(columns), axis=0) - np.log(len(columns))
    return dict(zip(distinct, mean.tolist(), strict=True))


def invent_names(names: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    """Names that are none of these; a word begins like one of theirs and ends like another."""
    words = [each for name in names for each in re.findall(r"\w+", name)]
    taken = {fold_words(each) for each in (*names, *words)}
    found: dict[tuple[str, ...], str] = {}
    shortest = min(4, *map(len, names))  # a short one may well exist

    def word(_: re.Match[str]) -> str:
        one, other = (words[at] for at in rng.integers(len(words), size=2).tolist())
        return one[: (len(one) + 1) // 2] + other[len(other) // 2 :]

    for at in rng.integers(len(names), size=60 * count).tolist():
        name = re.sub(r"\w+", word, names[at])
        if len(name) >= shortest and fold_words(name) and fold_words(name) not in taken:
            found.setdefault(fold_words(name), name)
    return list(found.values())[:count]


@dataclass(frozen=True)
class Probe:
    """A linear read-out of the hidden states at one place and layer; centers are by relation."""

    layer: int
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    centers: Mapping[str, tuple[float, ...]]

    def read(self, states: Floats, relations: Sequence[str]) -> Floats:
        """One number for each row of states (n, layers, width)."""
        zero = np.zeros(len(self.weights))
        centers = np.array([self.centers.get(relation, zero) for relation in relations])
        scaled = (states[:, self.layer] - centers) / np.array(self.scale)
        return np.asarray(scaled @ np.array(self.weights))


@dataclass(frozen=True)
class Learned:
    """What fitting subjects teach: by relation and answer, right ones and all; by place, probes."""

    counts: Counts
    probes: Mapping[str, Probe]


def learn_signals(
    records: Sequence[Record], right: Bools, seed: int
) -> tuple[Learned, dict[str, Floats]]:
    """What is learned from records that are right or not, and their signals, held out."""
    counts: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for record, hit in zip(records, right.tolist(), strict=True):
        said = " ".join(normalise(record["answer"]))
        good, many = counts[record["relation"]].get(said, (0, 0))
        counts[record["relation"]][said] = (good + hit, many + 1)
    probes: dict[str, Probe] = {}
    held_out: dict[str, Floats] = {}
    enough = min(right.sum(), (~right).sum()) >= FEWEST_PROBED / 4 and right.size >= FEWEST_PROBED
    if enough and all(np.prod(each["states"]["shape"]) for each in records):
        names = [" ".join(fold_words(each["subject"])) or each["subject"] for each in records]
        group = np.unique(names, return_inverse=True)[1]
        folds = np.random.default_rng([seed, 41]).permutation(group.max() + 1)[group] % FOLDS
        states, relations = _states(records), [each["relation"] for each in records]
        for at, place in enumerate(PLACES):
            found = fit_probe(states[:, at], right, relations, folds)
            probes[place], held_out[f"probe_{place}"] = found
    learned = Learned(counts, probes)
    return learned, read_signals(records, learned, right.tolist()) | held_out


def read_signals(
    records: Sequence[Record], learned: Learned, own: Sequence[bool | None] | None = None
) -> dict[str, Floats]:
    """A column of each signal, and of those of the rivals; NaN where one is not known.

    own: of records that `learned` was learned from, whether each is right.
    """
    rows: list[dict[str, Any]] = []
    for record, mine in zip(records, own or [None] * len(records), strict=True):
        row = {name: record[name] for name in (*RAW, "prior")}
        same = np.array(list(Counter(map(normalise, record["samples"])).values()))  # in meaning
        share = same / max(1, same.sum())
        row["semantic_entropy"] = float(-(share * np.log(share)).sum()) if same.size else None
        rows.append(row | read_counts(learned.counts, record, mine))
    names = rows[0] if rows else ()
    columns = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in names}
    columns["lift"] = columns["log_probability"] - columns.pop("prior")
    relations = [each["relation"] for each in records]
    states = _states(records) if learned.probes else None
    for at, place in enumerate(PLACES):
        columns[f"probe_{place}"] = (
            np.full(len(records), np.nan)
            if states is None
            else learned.probes[place].read(states[:, at], relations)
        )
    return columns


def _states(records: Sequence[Record]) -> Floats:
    """(n, places, layers, width)"""
    packed = [each["states"] for each in records]
    raw = [np.frombuffer(base64.b64decode(each["data"]), np.float16) for each in packed]
    return np.stack(raw).reshape(-1, *packed[0]["shape"]).astype(np.float64)


def fit_probe(
    states: Floats, right: Bools, relations: Sequence[str], folds: NDArray[np.intp]
) -> tuple[Probe, Floats]:
    """The probe at the layer and penalty that separate best, and what it says held out.

    Ridge regression on what the shares of right answers by relation do not explain already.
    """
    kinds = np.array(relations)
    hits = right - np.array([right[kinds == one].mean() for one in relations])
    centers = {one: states[kinds == one].mean(0) for one in dict.fromkeys(relations)}
    centred = states - np.stack([centers[one] for one in relations])
    scales = centred.std(0) + 1e-6
    best: tuple[float, int, Floats, Floats] = (-np.inf, 0, hits, hits)
    for layer in range(states.shape[1]):
        columns = centred[:, layer] / scales[layer]
        kernel = columns @ columns.T
        for penalty in PENALTIES * columns.shape[1]:
            inside = kernel + penalty * np.eye(hits.size)
            held_out = np.zeros(hits.size)
            for fold in range(FOLDS):
                out, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
                solved = np.linalg.solve(inside[np.ix_(rest, rest)], hits[rest])
                held_out[out] = kernel[np.ix_(out, rest)] @ solved
            score = float(np.corrcoef(held_out, hits)[0, 1]) if held_out.std() else 0.0
            if score > best[0]:
                weights = columns.T @ np.linalg.solve(inside, hits)
                best = (score, layer, weights, held_out)
    _, layer, weights, held_out = best
    flat = {one: tuple(each[layer].tolist()) for one, each in centers.items()}
    return Probe(layer, tuple(scales[layer].tolist()), tuple(weights.tolist()), flat), held_out


def read_counts(counts: Counts, record: Record, own: bool | None = None) -> dict[str, float]:
    """What the counts say of an answer; `own`: it is among them itself, right or not."""
    here = counts.get(record["relation"], {})
    pairs = [pair for each in counts.values() for pair in each.values()]
    overall = (1 + sum(good for good, _ in pairs)) / (2 + sum(many for _, many in pairs))
    right, total = np.sum([(0, 0), *here.values()], axis=0)
    good, many = here.get(" ".join(normalise(record["answer"])), (0, 0))
    if own is not None:
        right, total, good, many = right - own, total - 1, good - own, many - 1
    share = (right + SHRINK * overall) / (total + SHRINK)
    answer = (good + SHRINK * share) / (many + SHRINK)
    return {
        "relation_recall": float(np.log(share / (1 - share))),
        "answer_recall": float(np.log(answer / (1 - answer)) - np.log(share / (1 - share))),
        "answer_count": float(np.log1p(many) - np.log1p(total)),
    }
