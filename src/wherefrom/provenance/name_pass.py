"""One batched pass for the cheap signals: the answer, and the name as documents open with it.

By how much the answer leads, how likely a name is, how likely its last word is behind other
first words, and how likely the answer is as a fact of a document about the name: all of them rows
of one pass, whoever is asked about.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from wherefrom.corpus.tokens import Tokens
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.answers import Floats
from wherefrom.provenance.likelihood import IMPOSSIBLE, score_tokens
from wherefrom.provenance.openings import encode_names, encode_words, space_of

LEAST = 1e-8  # what decoys, other names or the twin find less likely than this counts as this
PASSED = frozenset({"token_margin", "infill", "context_infill", "name_likelihood", "name_lift"})

Ids = list[int]


@dataclass
class _Rows:
    """Sequences that are scored together; one that the model cannot hold is None."""

    longest: int
    sequences: list[Ids] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)

    def add(self, before: Ids, scored: Ids | None) -> int | None:
        if not before or not scored or len(before) + len(scored) - 1 > self.longest:
            return None
        self.sequences.append([*before, *scored])
        self.begins.append(len(before))
        return len(self.begins) - 1


def read_names(
    model: Decoder,
    tokens: Tokens,
    prompts: Sequence[Ids],
    subjects: Sequence[str],
    answers: Sequence[Ids | None],
    *,
    contexts: Sequence[str],
    first_words: Sequence[str],
    wanted: Collection[str],
) -> dict[str, Floats]:
    """Those of PASSED that are wanted, one number a question.

    Of several contexts the one that finds the answer likeliest counts.
    """
    rows = _Rows(model.config.longest_input)
    leads: list[int | None] = []
    if "token_margin" in wanted:
        leads = [rows.add(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
    names = encode_names(tokens, subjects)
    asked: dict[str, list[list[int | None]]] = {}
    for signal, wordings in (("infill", [""]), ("context_infill", contexts or [""])):
        if signal in wanted:
            behind = [encode_words(tokens, words) for words in wordings]
            asked[signal] = [
                [
                    rows.add([*name, *words], answer)
                    for name, answer in zip(names, answers, strict=True)
                ]
                for words in behind
            ]
    of_name = {"name_likelihood", "name_lift"} & set(wanted)
    space = len(space_of(tokens))
    bare = [name[: len(name) - space] for name in names]
    whole = [rows.add(name[:1], name[1:]) for name in bare if of_name]
    lifts = None
    if "name_lift" in of_name:
        lifts = _ask_lifts(rows, tokens, subjects, bare, whole, first_words)
    rivals = {row for row in leads if row is not None}
    found = score_tokens(model, rows.sequences, rows.begins, rivals=rivals)
    own = [each.own for each in found]

    def total(row: int | None) -> float:
        return IMPOSSIBLE if row is None else max(IMPOSSIBLE, float(own[row].sum()))

    columns = {
        signal: np.array([[total(row) for row in each] for each in several]).max(axis=0)
        for signal, several in asked.items()
    }
    if "token_margin" in wanted:
        columns["token_margin"] = np.array(
            [
                IMPOSSIBLE if row is None else float((own[row] - found[row].other).min())
                for row in leads
            ]
        )
    if "name_likelihood" in of_name:
        means = [np.nan if row is None else float(own[row].mean()) for row in whole]
        columns["name_likelihood"] = np.array(means)
    if lifts is not None:
        columns["name_lift"] = np.array([lift.read(own) for lift in lifts])
    return columns


@dataclass(frozen=True)
class _Lift:
    """Where a last word was scored: behind its own first words, and behind those of others.

    `start`: the token of the row from which on it is the last word.
    """

    row: int | None = None
    start: int = 0
    elsewhere: tuple[int, ...] = ()

    def read(self, own: Sequence[Floats]) -> float:
        if self.row is None or not self.elsewhere:
            return float("nan")
        mean = np.mean([np.exp(own[row].sum()) for row in self.elsewhere])
        return float(own[self.row][self.start :].sum() - np.log(max(float(mean), LEAST)))


def _ask_lifts(
    rows: _Rows,
    tokens: Tokens,
    subjects: Sequence[str],
    names: Sequence[Ids],
    whole: Sequence[int | None],
    first_words: Sequence[str],
) -> list[_Lift]:
    space = space_of(tokens)
    parts = [subject.rpartition(" ") for subject in subjects]
    able = [at for at, row in enumerate(whole) if row is not None and parts[at][0].strip()]
    texts = [parts[at][0] + space for at in able] + [f"{parts[at][2]}." for at in able]
    encoded = tokens.encode_all([*texts, *(word + space for word in first_words)])
    many = len(able)
    heads, tails, firsts = encoded[:many], encoded[many : 2 * many], encoded[2 * many :]
    lifts = [_Lift()] * len(subjects)
    for at, head, tail in zip(able, heads, tails, strict=True):
        row, start = whole[at], len(head) - 1
        if [*head, *tail] != names[at]:  # cut otherwise than in the name
            row, start = rows.add(head, tail), 0
        elsewhere = (rows.add(first, tail) for first in firsts)
        lifts[at] = _Lift(row, start, tuple(each for each in elsewhere if each is not None))
    return lifts
