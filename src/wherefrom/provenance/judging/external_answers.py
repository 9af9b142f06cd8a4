"""Answers of other models, judged by a run: by its text, and by what its model makes of them.

The verdict is the text's and holds for anybody's answer. The confidence is this run's: how likely
the answer is right, by the signals that its model gives for it. What the other model gave away, a
log-probability, is turned into a probability of its own, fitted on the very rows that the text
can check. What neither can tell: docs/verdicts.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wherefrom.errors import UserError
from wherefrom.provenance.ask import AskedRow, Asker
from wherefrom.provenance.confidence.calibration import (
    FEWEST,
    FEWEST_EACH,
    fit_calibration,
    out_of_fold,
)
from wherefrom.provenance.judging.metrics import Floats
from wherefrom.provenance.verdicts import REMEMBERED, Verdict

GIVEN, GIVEN_SURE = "given_log_probability", "given_confidence"


@dataclass(frozen=True)
class ForeignVerdicts:
    """Verdicts on another model's answers, and a sentence on what could not be fitted, if any."""

    verdicts: list[Verdict]
    note: str | None


def judge_answers(
    asker: Asker,
    rows: Sequence[AskedRow],
    *,
    always_answer: bool = False,
    risk: float | None = None,
    report: Callable[[int], None] | None = None,
) -> ForeignVerdicts:
    """A verdict on each row's answer; signals hold the other model's own numbers where it gave any.

    `given_confidence` is the share of checkable answers that the text states, among those to which
    the other model gave a like log-probability.
    """
    for row in rows:
        if row.answer is None:
            raise UserError(f"{row.where}there is no answer to judge.")
    verdicts = asker.ask_rows(rows, always_answer=always_answer, risk=risk, report=report)
    given = np.array(
        [np.nan if row.log_probability is None else row.log_probability for row in rows]
    )
    if np.isnan(given).all():
        return ForeignVerdicts(verdicts, None)
    checkable = np.array([any(line.about for line in each.evidence) for each in verdicts])
    stated = np.array([each.verdict == REMEMBERED for each in verdicts])
    sure, note = trust_log_probabilities(given, checkable, stated)
    return ForeignVerdicts(
        [
            replace(
                verdict,
                signals={**verdict.signals, GIVEN: row.log_probability, GIVEN_SURE: _or_none(p)},
            )
            for verdict, row, p in zip(verdicts, rows, sure, strict=True)
        ],
        note,
    )


def trust_log_probabilities(
    given: Floats, checkable: np.ndarray, stated: np.ndarray
) -> tuple[Floats, str | None]:
    """How often answers of such a log-probability are stated, by the rows that can be checked.

    Each checkable row by a fit without it, the others by the fit on all; NaN where there is no
    log-probability, and for all where too few can be checked.
    """
    sure = np.full(given.size, np.nan)
    has = ~np.isnan(given)
    fitting = has & checkable
    right = stated[fitting]
    fewer = min(int(right.sum()), int((~right).sum()))
    if right.size < FEWEST or fewer < FEWEST_EACH:
        return sure, (
            f"the given log-probabilities are not turned into probabilities: the text can check "
            f"{right.size} of the answers and states {int(right.sum())}, and it takes {FEWEST} "
            f"with {FEWEST_EACH} of either kind."
        )
    known = {GIVEN: given[fitting]}
    sure[fitting] = out_of_fold(known, right, signs={GIVEN: 1}, seed=0)
    fitted = fit_calibration(known, right, signs={GIVEN: 1}, seed=0).calibration
    others = has & ~checkable
    if others.any():
        sure[others] = fitted.probability({GIVEN: given[others]})
    return sure, None


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
