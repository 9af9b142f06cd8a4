"""Answers of other models, judged by a run: by its text, and by what its model makes of them.

The verdict is the text's and holds for any answer. The confidence is this run's: how likely the
answer is right, by the signals that its model gives for it. A log-probability of the other model
becomes a probability of its own, fitted on the rows that the text can check (docs/verdicts.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from wherefrom.errors import UserError
from wherefrom.provenance.ask import AskedRow, Asker
from wherefrom.provenance.confidence.calibration import (
    FEWEST,
    FEWEST_EACH,
    fit_calibration,
)
from wherefrom.provenance.metrics import Bools, Floats
from wherefrom.provenance.verdicts import REMEMBERED, Verdict

GIVEN, GIVEN_CONFIDENCE = "given_log_probability", "given_confidence"


def judge_answers(
    asker: Asker,
    rows: Sequence[AskedRow],
    *,
    always_answer: bool = False,
    risk: float | None = None,
    report: Callable[[int], None] | None = None,
) -> tuple[list[Verdict], str | None]:
    """A verdict on each row's answer, and a sentence on what could not be fitted, if any.

    Where the other model gave a log-probability, signals hold it and `given_confidence`: the share
    of checkable answers that the text states, among those with a similar log-probability.
    """
    for row in rows:
        if row.answer is None:
            raise UserError(f"{row.where}there is no answer to judge.")
    verdicts = asker.ask_rows(rows, always_answer=always_answer, risk=risk, report=report)
    given = np.array([row.log_probability for row in rows], dtype=np.float64)  # None becomes NaN
    if np.isnan(given).all():
        return verdicts, None
    checkable = np.array([any(line.about for line in each.evidence) for each in verdicts])
    stated = np.array([each.verdict == REMEMBERED for each in verdicts])
    confidence, note = calibrate_log_probabilities(given, checkable, stated)
    numbers = [None if np.isnan(each) else float(each) for each in confidence]
    return [
        replace(each, signals={**each.signals, GIVEN: row.log_probability, GIVEN_CONFIDENCE: p})
        for each, row, p in zip(verdicts, rows, numbers, strict=True)
    ], note


def calibrate_log_probabilities(
    given: Floats, checkable: Bools, stated: Bools
) -> tuple[Floats, str | None]:
    """How often answers of such a log-probability are stated, by the rows that can be checked.

    Each checkable row by a fit without it, the others by the fit on all; NaN where there is no
    log-probability, and for all (with a sentence why) where too few can be checked.
    """
    confidence = np.full(given.size, np.nan)
    fitting, others = ~np.isnan(given) & checkable, ~np.isnan(given) & ~checkable
    right = stated[fitting]
    if right.size < FEWEST or min(right.sum(), (~right).sum()) < FEWEST_EACH:
        return confidence, (
            f"the given log-probabilities are not turned into probabilities: the text can check "
            f"{right.size} of the answers and states {int(right.sum())}, and it takes {FEWEST} "
            f"with {FEWEST_EACH} of either kind."
        )
    known = {GIVEN: given[fitting]}
    fitted, confidence[fitting] = fit_calibration(known, right, signs={GIVEN: 1}, seed=0)
    if others.any():
        confidence[others] = fitted.probability({GIVEN: given[others]})
    return confidence, None
