"""Asking any model by prompts with examples: its answers, and what is read beside each of them.

A record is kept with each answer of an audit; `signals/learned.py` makes signals of records.
"""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT
from wherefrom.errors import UserError
from wherefrom.model.interface import ASKED, LanguageModel, TokenScores

PROMPT = "Q: {question}\nA:"
OTHER_PROMPT = "Question: {question}\nAnswer:"
NEUTRAL = "Yesterday I read an article about"
ARTICLES = {"the", "a", "an"}
MIN_LOG_PROBABILITY = -50.0  # log-probabilities below this count as this
BLOCK = 128  # questions of a relation that are asked together, and kept when they are answered
OTHER_RELATIONS = ""  # the relation of questions that share their wording with few others
Record = Mapping[str, Any]  # what was read of an answer
Shots = tuple[tuple[str, str], ...]  # questions and answers that stand before the one asked


def normalise(answer: str) -> tuple[str, ...]:
    """The words of an answer, whatever its case, accents, punctuation and articles."""
    words = fold_words(answer)
    return tuple(word for word in words if word not in ARTICLES) or words


def accepted(answer: str | None) -> list[str]:
    """The answers that a cell accepts, separated by |; none for one that cannot be known."""
    return [part.strip() for part in (answer or "").split("|") if part.strip()]


def is_match(answer: str, right: str | None) -> bool:
    """Whether an answer is one of those accepted, as `normalise` reads them."""
    return normalise(answer) in map(normalise, accepted(right))


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

    @property
    def all_known(self) -> tuple[str, ...]:
        """The known answers of all relations."""
        return tuple(dict.fromkeys(answer for some in self.known.values() for answer in some))

    def render(self, relation: str, question: str, *, other: bool = False) -> str:
        """The prompt of a question; or the other one, with other examples and other words."""
        if self.mask:
            return f"{question}{self.mask}"
        form = OTHER_PROMPT if other and self.template == PROMPT else self.template
        shots = (self.other_shots if other else self.shots).get(relation, ())
        space = "" if form[-1:].isspace() else " "
        examples = "".join(f"{form.replace(ASKED, q)}{space}{a}\n" for q, a in shots)
        return examples + form.replace(ASKED, question)


def read_blocks(
    model: LanguageModel,
    state: AskState,
    rows: Sequence[tuple[str, str]],
) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
    """Ask (question, subject) pairs of any relations in blocks of one relation each.

    Yields the positions of some rows, and their records as `read_block` makes them.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for i, (question, subject) in enumerate(rows):
        same = (relation for relation in state.known if relation.replace(SLOT, subject) == question)
        groups[next(same, OTHER_RELATIONS)].append(i)
    for relation, members in groups.items():
        for start in range(0, len(members), BLOCK):
            block = members[start : start + BLOCK]
            pairs = [rows[i] for i in block]
            yield block, read_block(model, state, relation, pairs)


def read_block(
    model: LanguageModel,
    state: AskState,
    relation: str,
    rows: Sequence[tuple[str, str]],
) -> list[dict[str, Any]]:
    """A record of each (question, subject) of one relation: the answer and its raw signals."""
    prompts = [state.render(relation, question) for question, _ in rows]
    prompt_ids = [model.prompt(prompt) for prompt in prompts]
    name_ends = find_names(model, relation, rows, prompts, prompt_ids)
    known_answers = state.known.get(relation, ())
    replies = model.answer(
        prompt_ids,
        places=name_ends,
        known=[model.continuation(prompts[0], answer) for answer in known_answers],
        longest=state.longest,
    )
    texts = [reply.text for reply in replies]
    other_prompts = [state.render(relation, question, other=True) for question, _ in rows]
    behind_other = score_texts(model, other_prompts, texts)
    subjects = list(dict.fromkeys(subject for _, subject in rows))
    neutral = ["" if model.mask else NEUTRAL] * len(subjects)
    of_names = dict(zip(subjects, score_texts(model, neutral, subjects), strict=True))
    prior = score_decoys(model, state, relation, texts)
    records = []
    for (question, subject), reply, other in zip(rows, replies, behind_other, strict=True):
        log_p, runner_up = np.array(reply.log_probabilities), np.array(reply.other)
        other_log_p, other_runner_up = other
        name_log_p, _ = of_names[subject]
        known = dict(zip(known_answers, reply.known, strict=True))
        known.pop(state.alone.get(question, ""), None)
        states = base64.b64encode(reply.states.tobytes()).decode()
        records.append(
            {
                "question": question,
                "subject": subject,
                "relation": relation,
                "answer": reply.text,
                "log_probability": float(log_p.sum()),
                "first_log_probability": float(log_p[0]),
                "margin": float((log_p - runner_up).min()),
                "entropy": reply.entropy,
                **spread_over_known(known, reply.text, float(log_p.sum())),
                "other_log_probability": float(other_log_p.sum()) if other_log_p.size else None,
                "other_margin": (
                    float((other_log_p - other_runner_up).min()) if other_log_p.size else None
                ),
                "name_likelihood": float(name_log_p.mean()) if name_log_p.size else None,
                "prior": prior[reply.text],
                "states": {"shape": reply.states.shape, "data": states},
            }
        )
    return records


def find_names(
    model: LanguageModel,
    relation: str,
    rows: Sequence[tuple[str, str]],
    prompts: Sequence[str],
    prompt_ids: Sequence[list[int]],
) -> list[list[int]]:
    """Where in each prompt the name ends; a prompt that is too long is refused."""
    name_ends = []
    for (question, subject), prompt, ids in zip(rows, prompts, prompt_ids, strict=True):
        if len(ids) + 1 > model.longest:
            raise UserError(
                f'the prompt of "{question[:60]}" has {len(ids)} tokens and {model.name} reads '
                f"{model.longest}; ask a shorter question, or give fewer --shots."
            )
        name_ends.append([last_token_of_name(model, relation, question, subject, prompt, ids)])
    return name_ends


def last_token_of_name(
    model: LanguageModel, relation: str, question: str, subject: str, prompt: str, ids: list[int]
) -> int:
    """The position in a prompt's ids where the subject ends; of the question, if it has no name."""
    start = prompt.rfind(subject) if subject else -1
    if SLOT in relation:
        start = prompt.rfind(question) + relation.index(SLOT)
    until_name = prompt[: start + len(subject)]
    if start < 0:
        until_name = prompt.removesuffix(model.mask or "\0")
    return min(max(0, len(model.encode(until_name)) - 1), len(ids) - 1)


def spread_over_known(
    known: Mapping[str, float], answer: str, log_probability: float
) -> dict[str, float]:
    """Signals of the distribution over the known answers, an unknown answer, and anything else.

    known: log p by known answer. log_probability: of the answer that was given.
    """
    is_known = normalise(answer) in map(normalise, known)
    shares = np.exp([*known.values(), -np.inf if is_known else log_probability])
    whole = np.array([*shares, max(0.0, 1 - shares.sum())])
    second, best = np.sort(
        np.maximum([MIN_LOG_PROBABILITY, MIN_LOG_PROBABILITY, *known.values()], MIN_LOG_PROBABILITY)
    )[-2:]
    return {
        "known_mass": float(shares[:-1].sum()),
        "known_entropy": float(-(whole * np.log(np.maximum(whole, 1e-12))).sum()),
        "known_gap": float(best - second),
        "is_known": float(is_known),
    }


def score_texts(
    model: LanguageModel, prompts: Sequence[str], answers: Sequence[str]
) -> list[TokenScores]:
    """log p of the tokens of each answer behind its prompt, and of the likeliest other tokens.

    Both are empty where prompt and answer are too long. Without a prompt, the first token of the
    answer is given.
    """
    before, after = [], []
    for prompt, answer in zip(prompts, answers, strict=True):
        completion = model.continuation(prompt, answer)
        before.append(model.prompt(prompt) or completion[:1])
        after.append(completion if prompt else completion[1:] or completion)
    nothing = TokenScores(np.empty(0), np.empty(0))
    return [scores or nothing for scores in model.score(before, after)]


def score_decoys(
    model: LanguageModel, state: AskState, relation: str, answers: Sequence[str]
) -> dict[str, float | None]:
    """log of the mean probability of each answer to the same question about other names."""
    distinct = list(dict.fromkeys(answers))
    columns = []
    for name in state.decoys.get(relation, ()):
        prompt = state.render(relation, relation.replace(SLOT, name))
        scores = score_texts(model, [prompt] * len(distinct), distinct)
        columns.append(
            [
                max(log_p.sum(), MIN_LOG_PROBABILITY) if log_p.size else MIN_LOG_PROBABILITY
                for log_p, _ in scores
            ]
        )
    if not columns:
        return dict.fromkeys(distinct)
    mean = np.logaddexp.reduce(np.array(columns), axis=0) - np.log(len(columns))
    return dict(zip(distinct, mean.tolist(), strict=True))


def splice_names(names: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    """Names that are none of these; each word has the first half of one and the end of another."""
    words = [word for name in names for word in re.findall(r"\w+", name)]
    taken = {fold_words(text) for text in (*names, *words)}
    shortest = min(4, *map(len, names))  # a short one may well exist
    invented: dict[tuple[str, ...], str] = {}

    def mix(_: re.Match[str]) -> str:
        first, second = (words[i] for i in rng.integers(len(words), size=2).tolist())
        return first[: (len(first) + 1) // 2] + second[len(second) // 2 :]

    for i in rng.integers(len(names), size=60 * count).tolist():
        name = re.sub(r"\w+", mix, names[i])
        folded = fold_words(name)
        if len(name) >= shortest and folded and folded not in taken:
            invented.setdefault(folded, name)
    return list(invented.values())[:count]
