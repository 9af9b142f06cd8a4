"""The signals: what each says in a sentence, which way it points, and a table of them.

How they are computed is in `signal_reader`; what they cost and what they cannot tell is in
docs/signals.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wherefrom.errors import UserError, did_you_mean
from wherefrom.provenance.answers import Floats


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
