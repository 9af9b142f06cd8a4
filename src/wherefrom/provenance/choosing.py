"""Which signals a confidence uses: a cheap core, and others only where they clearly help.

Every signal costs time whenever somebody asks, and on a few hundred people each one adds noise.
So a further signal must earn its place: held-out people's log loss has to fall with it, by more
than chance would make it fall for one of so many candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wherefrom.provenance.answers import Bools, Floats
from wherefrom.provenance.logistic import (
    choose_strength,
    deal_folds,
    losses_of,
    standardise,
    tells_something,
)

DEALS = 3  # of the folds; what one deal favours the next does not
GAIN = 0.02  # of the log loss, that a signal has to save
SURE = 2.0  # standard errors of the saving, which it has to exceed
MOST = 4  # signals beyond the core
FEWEST_EACH = 10  # right and wrong answers, below which the core is all


def pick_signals(
    columns: Mapping[str, Floats],
    correct: Bools,
    *,
    signs: Mapping[str, int],
    core: Sequence[str],
    seed: int,
) -> tuple[str, ...]:
    """The core as far as it tells anything, and whatever clearly helps beside it, best first.

    By forward selection on these people alone, each judged by fits without them.
    """
    usable = {name: column for name, column in columns.items() if tells_something(column)}
    chosen = [name for name in core if name in usable]
    rest = [name for name in usable if name not in chosen]
    if min(int(correct.sum()), int((~correct).sum())) < FEWEST_EACH:
        return tuple(chosen or core)
    losses = _losses({name: usable[name] for name in chosen}, correct, signs, seed)
    while rest and len(chosen) < len(core) + MOST:
        tried = {
            name: _losses({each: usable[each] for each in (*chosen, name)}, correct, signs, seed)
            for name in rest
        }
        best = min(rest, key=lambda name: float(tried[name].mean()))
        saved = losses - tried[best]
        error = float(saved.std()) / np.sqrt(saved.size)
        if saved.mean() < max(GAIN * losses.mean(), SURE * error):
            break
        chosen.append(best)
        rest.remove(best)
        losses = tried[best]
    return tuple(chosen or core)


def _losses(
    columns: Mapping[str, Floats], correct: Bools, signs: Mapping[str, int], seed: int
) -> Floats:
    """Each person's held-out log loss, the mean over the deals of the folds."""
    if not columns:
        share = (correct.sum() + 1) / (correct.size + 2)
        return losses_of(np.full(correct.size, np.log(share / (1 - share))), correct)
    table = standardise(columns, signs)
    people = np.arange(correct.size)
    losses = []
    for deal in range(DEALS):
        folds = deal_folds(correct, people, np.random.default_rng([seed, deal, 23]))
        _, logits = choose_strength(table.columns, correct, folds, table.signs)
        losses.append(losses_of(logits, correct))
    return np.asarray(np.mean(losses, axis=0))
