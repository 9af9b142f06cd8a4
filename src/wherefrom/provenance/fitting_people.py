"""The people on whom a confidence is fitted: how much each counts, and what is read of them.

Of people who were not read about there are often more than the judged people's mix allows. They
help to fit weights all the same, each counting less, so that the mix stays. Signals that are
fitted themselves are, for these people, those of a fit without the person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from wherefrom.corpus.people import CALIBRATION, FITTING, Person
from wherefrom.provenance.answers import Bools, Floats
from wherefrom.provenance.calibration import fit_with_held_out
from wherefrom.provenance.choosing import pick_signals
from wherefrom.provenance.signal_reader import SignalReader
from wherefrom.provenance.signals import CORE, NAME_SIGNALS, SIGNALS, SignalTable

PROBE, READ = "known_name", "name_read"
FEWEST_FOR_PROBE = 10  # people known and unknown, each, below which no name can be told apart


def with_spare_people(people: Sequence[Person]) -> tuple[list[Person], Floats]:
    """The calibration people and behind them those for fitting alone; how much each counts.

    All people of a kind (seen or not, and where from) count together as many as the calibration
    has of that kind; a kind that it has not is left out.
    """
    asked = [person for person in people if person.role == CALIBRATION]
    wanted = Counter(map(_kind, asked))
    spare = [one for one in people if one.role == FITTING and wanted[_kind(one)]]
    there = Counter(map(_kind, [*asked, *spare]))
    everybody = [*asked, *spare]
    return everybody, np.array([wanted[_kind(one)] / there[_kind(one)] for one in everybody])


def read_signals(
    reader: SignalReader,
    people: Sequence[Person],
    counts: Floats,
    *,
    seed: int,
    notes: list[str],
    report: Callable[[int], None] | None = None,
) -> tuple[SignalTable, Bools]:
    """The signals that were chosen, and whether each answer is right; fits the reader's parts.

    All signals are read of the calibration people, who come first, and the choice is made on
    them; of the others the chosen ones alone. A note says what could not be fitted.
    """
    many = sum(person.role == CALIBRATION for person in people)
    asked, spare = people[:many], people[many:]
    probe = _fit_probe(reader, people, counts, seed, notes)
    table, others = _read(reader, asked, None, report), _read(reader, spare, CORE, report)
    fitted = {PROBE: probe, READ: _fit_curve(reader, _join(table, others), people, counts, seed)}
    answers = (*table.answers, *others.answers)
    right = np.array([is_right(said, one) for said, one in zip(answers, people, strict=True)])
    columns = {**table.columns, **{name: column[:many] for name, column in fitted.items()}}
    signs = {name: SIGNALS[name].sign for name in columns}
    chosen = pick_signals(columns, right[:many], signs=signs, core=CORE, seed=seed)
    missing = {*chosen} - others.columns.keys() - fitted.keys()
    if missing:
        others = _read(reader, spare, [*CORE, *missing], None)
    whole = {**_join(table, others), **fitted}
    return SignalTable(
        questions=(*table.questions, *others.questions),
        subjects=(*table.subjects, *others.subjects),
        answers=answers,
        columns={name: whole[name] for name in chosen},
    ), right


def is_right(answer: str, person: Person) -> bool:
    """Exact match, blanks aside; of an invented person every answer is wrong."""
    return person.answer is not None and answer.strip() == person.answer.strip()


def _kind(person: Person) -> tuple[bool, str]:
    return person.seen, person.source


def _read(
    reader: SignalReader,
    people: Sequence[Person],
    only: Sequence[str] | None,
    report: Callable[[int], None] | None,
) -> SignalTable:
    questions = [person.question for person in people]
    return reader.read(questions, [one.subject for one in people], only=only, report=report)


def _join(one: SignalTable, other: SignalTable) -> dict[str, Floats]:
    """The columns that both have, one below the other."""
    return {
        name: np.concatenate((one.columns[name], column)) for name, column in other.columns.items()
    }


def _fit_probe(
    reader: SignalReader, people: Sequence[Person], counts: Floats, seed: int, notes: list[str]
) -> Floats:
    """The known-name score of each person by a probe fitted without them, NaN without a probe."""
    scores = np.full(len(people), np.nan)
    known, unknown = _split(people)
    if min(len(known), len(unknown)) < FEWEST_FOR_PROBE:
        notes.append(
            f"the calibration has {len(known)} people who were read about and {len(unknown)} who "
            f"were not; a probe for known names takes {FEWEST_FOR_PROBE} of each and is left out."
        )
        return scores
    pairs = [(person.question, person.subject) for person in people]
    order = [*known, *unknown]
    scores[order] = reader.fit_probe(
        [pairs[at] for at in known], [pairs[at] for at in unknown], seed=seed, counts=counts[order]
    )
    return scores


def _fit_curve(
    reader: SignalReader,
    columns: dict[str, Floats],
    people: Sequence[Person],
    counts: Floats,
    seed: int,
) -> Floats:
    """Each person's probability of having been read about, by a curve fitted without them."""
    if min(map(len, _split(people))) < FEWEST_FOR_PROBE:
        return np.full(len(people), np.nan)
    fitted = fit_with_held_out(
        {name: columns[name] for name in NAME_SIGNALS},
        [person.seen for person in people],
        signs={name: SIGNALS[name].sign for name in NAME_SIGNALS},
        counts=counts,
        bend=False,
        seed=seed,
    )
    reader.name_curve = fitted.calibration
    return fitted.held_out


def _split(people: Sequence[Person]) -> tuple[list[int], list[int]]:
    """The places of those who were read about and of those who were not."""
    known = [at for at, person in enumerate(people) if person.seen]
    return known, [at for at, person in enumerate(people) if not person.seen]
