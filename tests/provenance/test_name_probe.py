"""The probe finds what is in the states, finds nothing in noise, and survives being stored."""

from __future__ import annotations

import json

import numpy as np
import pytest

from wherefrom.errors import UserError
from wherefrom.provenance.judging.metrics import Answers, auroc
from wherefrom.provenance.signals.probes import NameProbe, fit_name_probe

PEOPLE, WIDTH = 120, 30
KNOWN = np.arange(PEOPLE) % 2 == 0
NAMES = [f"Person {at}" for at in range(PEOPLE)]


def states_with(signal: float) -> np.ndarray:
    states = np.random.default_rng(4).normal(size=(PEOPLE, WIDTH))
    states[:, 7] += signal * KNOWN
    states[:, 3] = 2.0  # a state that never changes
    return states


def area(scores: np.ndarray) -> float:
    value = auroc(Answers(scores, KNOWN)).value
    assert value is not None
    return value


def test_scores_out_of_fold_show_a_signal_and_do_not_show_noise():
    probe, held_out = fit_name_probe(states_with(3.0), KNOWN, NAMES, seed=0)
    assert area(held_out) > 0.9
    assert area(probe.score(states_with(3.0))) > 0.9
    noisy, blind = fit_name_probe(states_with(0.0), KNOWN, NAMES, seed=0)
    assert 0.3 < area(blind) < 0.65
    assert area(noisy.score(states_with(0.0))) > area(blind)  # why they are held out


def test_a_stored_probe_scores_the_same_and_a_broken_one_is_a_sentence():
    probe, _ = fit_name_probe(states_with(1.0), KNOWN, NAMES, seed=0)
    record = json.loads(json.dumps(probe.to_dict()))
    again = NameProbe.from_dict(record, WIDTH)
    assert (again.score(states_with(1.0)) == probe.score(states_with(1.0))).all()
    for broken in (None, {}, {**record, "weights": [1.0]}, {**record, "mean": "x"}):
        with pytest.raises(UserError, match="probe"):
            NameProbe.from_dict(broken, WIDTH)


def test_too_few_names_of_a_kind_are_refused():
    with pytest.raises(UserError, match="5 unknown"):
        fit_name_probe(states_with(1.0), np.arange(PEOPLE) > 3, NAMES, seed=0)
