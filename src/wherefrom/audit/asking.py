"""Asking a model: prompts with examples, its answers, and what it gives away about each of them."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.audit.models import SAMPLES, LanguageModel, Reply
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT
from wherefrom.errors import UserError
from wherefrom.provenance.metrics import Floats

ASKED = "{question}"
PROMPT = "Q: {question}\nA:"
OTHER_PROMPT = "Question: {question}\nAnswer:"
NEUTRAL = "Yesterday I read an article about"
ARTICLES = {"the", "a", "an"}
OTHER_SHOTS = 3  # examples of the second prompt
ROOM = 4  # tokens that an answer may be longer than any accepted one
OTHERS = ""
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
class Prompts:
    """How questions are put to a model: a template, and examples of each relation before them."""

    template: str
    shots: Mapping[str, Shots]
    other: Mapping[str, Shots]
    mask: str | None = None  # where questions end in it, and stand alone

    def render(self, relation: str, question: str) -> str:
        return self._fill(self.template, self.shots.get(relation, ()), question)

    def render_other(self, relation: str, question: str) -> str:
        """The same question behind other examples, and in other words around it."""
        form = OTHER_PROMPT if self.template == PROMPT else self.template
        return self._fill(form, self.other.get(relation, ()), question)

    def _fill(self, form: str, shots: Shots, question: str) -> str:
        if self.mask:
            return f"{question}{self.mask}"
        space = "" if form[-1:].isspace() else " "
        before = "".join(f"{form.replace(ASKED, q)}{space}{a}\n" for q, a in shots)
        return before + form.replace(ASKED, question)

    def render_check(self, relation: str, question: str, answer: str) -> str:
        """Whether an answer is right, asked of the model itself: P(True) with examples."""
        shots = self.shots.get(relation, ())
        answers = [a for _, a in shots]
        pairs = [(q, a, "Yes") for q, a in shots[::2]]
        pairs += [(q, answers[at - 1], "No") for at, (q, a) in enumerate(shots) if at % 2]
        asked = [*((q, a, f" {said}\n") for q, a, said in pairs), (question, answer, "")]
        return "".join(
            f"Question: {q}\nProposed answer: {a}\nIs the proposed answer right?{said}"
            for q, a, said in asked
        )


@dataclass(frozen=True)
class AskState:
    """What is fixed before the first question is asked, as calibration.json keeps it.

    By relation: known answers, and decoys, which are names that nobody has. longest: tokens of an
    answer. A relation with few questions goes by the name OTHERS.
    """

    prompts: Prompts
    known: Mapping[str, tuple[str, ...]]
    decoys: Mapping[str, tuple[str, ...]]
    longest: int

    def relation(self, template: str) -> str:
        return template if template in self.known else OTHERS


def check_prompt(template: str) -> None:
    """Refuse a prompt that has no place for the question, or has two."""
    if template.count(ASKED) != 1:
        raise UserError(
            f'a prompt holds {ASKED} once, as in "{PROMPT}"; "{template}" does not.'.replace(
                "\n", "\\n"
            )
        )


def pack(states: NDArray[np.float16]) -> dict[str, Any]:
    return {"shape": states.shape, "data": base64.b64encode(states.tobytes()).decode()}


def unpack(record: Mapping[str, Any]) -> NDArray[np.float16]:
    raw = np.frombuffer(base64.b64decode(record["data"]), np.float16)
    return raw.reshape(record["shape"])


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

    rivals: read what only rivals use, too. answers: given ones to be judged instead of its own.
    """
    prompts, known = state.prompts, state.known.get(relation, ())
    texts = [prompts.render(relation, question) for question, _ in rows]
    ids = [model.prompt(text) for text in texts]
    for (question, _), each in zip(rows, ids, strict=True):
        if len(each) + 1 > model.longest:
            raise UserError(
                f'the prompt of "{question[:60]}" has {len(each)} tokens and {model.name} reads '
                f"{model.longest}; ask a shorter question, or give fewer --shots."
            )
    places = [_name_place(model, t, s) for t, (_, s) in zip(texts, rows, strict=True)]
    starts = sorted({model.continuation(texts[0], answer)[0] for answer in known})
    replies = model.answer(
        ids,
        places=[[min(place, len(each) - 1)] for place, each in zip(places, ids, strict=True)],
        first=starts,
        samples=[SAMPLES] * len(rows) if rivals else (),
        longest=state.longest,
    )
    if answers is not None:
        _replace_answers(model, replies, texts, answers)
    said = [reply.text for reply in replies]
    other = score_texts(model, [prompts.render_other(relation, q) for q, _ in rows], said)
    names = list(dict.fromkeys(subject for _, subject in rows))
    neutral = NEUTRAL if model.mask is None else ""
    likely = dict(zip(names, score_texts(model, [neutral] * len(names), names), strict=True))
    prior = score_decoys(model, prompts, relation, state.decoys.get(relation, ()), said)
    true = _ask_whether_true(model, prompts, relation, rows, said) if rivals else [None] * len(rows)
    records = []
    for at, ((question, subject), reply) in enumerate(zip(rows, replies, strict=True)):
        own, rest = np.array(reply.log_probabilities), np.array(reply.other)
        there, rival = other[at]
        name, _ = likely[subject]
        records.append(
            {
                "question": question,
                "subject": subject,
                "relation": relation,
                "answer": reply.text,
                "log_probability": float(own.sum()),
                "first_log_probability": float(own[0]),
                "margin": float((own - rest).min()),
                "entropy": reply.entropy,
                **_known_answers(reply, starts),
                "other_log_probability": float(there.sum()) if there.size else None,
                "other_margin": float((there - rival).min()) if there.size else None,
                "name_likelihood": float(name.mean()) if name.size else None,
                "prior": prior[reply.text],
                "p_true": true[at],
                "samples": reply.samples,
                "states": pack(reply.states),
            }
        )
    return records


def _name_place(model: LanguageModel, text: str, subject: str) -> int:
    """The last token of the name in the question that a prompt ends with."""
    at = text.rfind(subject) if subject else -1
    end = at + len(subject) if at >= 0 else len(text)
    return max(0, len(model.encode(text[:end].removesuffix(model.mask or "\0"))) - 1)


def _replace_answers(
    model: LanguageModel, replies: Sequence[Reply], texts: Sequence[str], answers: Sequence[str]
) -> None:
    """Given answers instead of the model's own; the state behind the answer stays the prompt's."""
    for reply, (own, other), answer in zip(
        replies, score_texts(model, texts, answers), answers, strict=True
    ):
        reply.text, reply.log_probabilities, reply.other = answer, own.tolist(), other.tolist()


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
    model: LanguageModel,
    prompts: Prompts,
    relation: str,
    decoys: Sequence[str],
    answers: Sequence[str],
) -> dict[str, float | None]:
    """log of the mean probability of each answer to the same question about other names."""
    distinct = list(dict.fromkeys(answers))
    columns = []
    for name in decoys if SLOT in relation else ():
        text = prompts.render(relation, relation.replace(SLOT, name))
        found = score_texts(model, [text] * len(distinct), distinct)
        columns.append([own.sum() if own.size else -np.inf for own, _ in found])
    if not columns:
        return dict.fromkeys(distinct)
    mean = np.logaddexp.reduce(np.array(columns), axis=0) - np.log(len(columns))
    return {answer: float(max(value, -50.0)) for answer, value in zip(distinct, mean, strict=True)}


def _known_answers(reply: Reply, starts: Sequence[int]) -> dict[str, float]:
    """The distribution over the known answers, by their first tokens."""
    total = reply.first
    if not total.size:
        return {"known_mass": 0.0, "known_entropy": 0.0, "known_gap": 0.0, "is_known": 0.0}
    mass = np.logaddexp.reduce(total)
    share = np.exp(total - mass)
    ranked = np.sort(total)[::-1]
    gap = float(ranked[0] - ranked[1]) if ranked.size > 1 else 0.0
    return {
        "known_mass": float(np.exp(mass)),
        "known_entropy": float(-(share * np.log(np.maximum(share, 1e-12))).sum()),
        "known_gap": gap,
        "is_known": float(reply.ids[0] in starts),
    }


def _ask_whether_true(
    model: LanguageModel,
    prompts: Prompts,
    relation: str,
    rows: Sequence[tuple[str, str]],
    said: Sequence[str],
) -> list[float | None]:
    """log p(Yes) - log p(No) behind each answer; None of a model that only knows its questions."""
    if model.mask:
        return [None] * len(rows)
    texts = [prompts.render_check(relation, q, a) for (q, _), a in zip(rows, said, strict=True)]
    ids = [model.prompt(text) for text in texts]
    if max(map(len, ids)) >= model.longest:
        return [None] * len(rows)
    sides = [model.continuation(texts[0], word)[0] for word in ("Yes", "No")]
    found = model.answer(ids, first=sides, longest=1)
    return [float(reply.first[0] - reply.first[1]) for reply in found]


_WORD = re.compile(r"\w+")


def invent_names(names: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    """Names that are none of these, with letters in the order that theirs have (three by three).

    As many words as a name that is drawn has; what stands between words is kept.
    """
    words = [each for name in names for each in _WORD.findall(name)]
    after: dict[str, list[str]] = {}
    for each in words:
        padded = f"\0\0{each}\0"
        for at in range(len(each) + 1):
            after.setdefault(padded[at : at + 2], []).append(padded[at + 2])
    taken = {" ".join(fold_words(each)) for each in (*names, *words)}

    def pick(items: Sequence[str]) -> str:
        return items[int(rng.integers(len(items)))]

    def word(like: re.Match[str]) -> str:
        made = "\0\0"
        while not made.endswith("\0", 2):
            made += pick(after[made[-2:]])
        return made.strip("\0")

    found: dict[str, str] = {}
    for _ in range(60 * count):
        like = pick(names)
        name = _WORD.sub(word, like)
        key = " ".join(fold_words(name))
        if key and key not in taken and 4 <= len(name) <= 2 * len(like) + 4:
            found.setdefault(key, name)
        if len(found) == count:
            break
    return list(found.values())
