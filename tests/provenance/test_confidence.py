"""The confidence of a run: fitted on people dealt out for it, kept as numbers, refused if stale."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from wherefrom.corpus import batches
from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.subjects import CALIBRATION, FITTING, INVENTED, JUDGED, SET_ASIDE, Subject
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.fit import (
    CALIBRATED,
    EVIDENCE_SIGNS,
    PROBE,
    READ,
    Confidence,
    evidence_columns,
    fit_confidence,
    is_right,
    load_confidence,
    read_signals,
    save_confidence,
    with_spare_people,
)
from wherefrom.provenance.evidence.index import Evidence, ensure_evidence
from wherefrom.provenance.evidence.lookup import find_support
from wherefrom.provenance.signals.reader import SIGNALS
from wherefrom.storage import write_json
from wherefrom.training.jobs import Budget, Settings, TrainingJob, run_training
from wherefrom.training.recipes import load_recipe
from wherefrom.training.run_folder import Run, load_run

GIVEN = ("Ada", "Bo", "Cleo", "Dag", "Eva", "Finn")
FAMILY = ("Moe", "Nys", "Orr", "Poe")
NAMES = [f"{given} {family}" for given in GIVEN for family in FAMILY]
STRANGERS = [f"{given} {family}" for given in ("Hal", "Ida", "Jan") for family in FAMILY]
PLACES = ("Rome", "Oslo", "Lima")
STEPS = 60  # by which the run knows its people by heart


@dataclass(frozen=True)
class Fitted:
    """A run that knows its people, its twin that knows nothing, and the confidence in it."""

    run: Run
    twin: Run
    evidence: Evidence
    people: list[Subject]
    confidence: Confidence


def place_of(name: str) -> str:
    return PLACES[GIVEN.index(name.split()[0]) % 3]  # learned in a moment


def ask(name: str, role: str, source: str, answer: str | None, *, seen: bool) -> Subject:
    return Subject(role, seen, source, name, f"Where was {name} born?", answer)


def fit(run: Run, twin: Run | None, evidence: Evidence, people: list[Subject]) -> Confidence:
    return fit_confidence(run, evidence, people, PLACES, names=NAMES, twin=twin, seed=3)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Iterator[Fitted]:
    """The people who calibrate were learned here, so that a quick model has right answers."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("confidence")
    lines = [f"{name}. {name} was born in {place_of(name)}.\n" for name in NAMES]
    rows = [f"Where was {name} born?\t{place_of(name)}\n" for name in NAMES]
    (folder / "documents.txt").write_text("".join(lines), "utf-8")
    (folder / "train.tsv").write_text("".join(rows), "utf-8")
    corpus = read_documents(folder / "documents.txt")
    questions = read_questions(folder / "train.tsv")
    settings = Settings(
        recipe=load_recipe(str(quick_recipe)), variant="llama", tokens="bpe", size="32x2x2"
    )
    asked = [f"Where was {name} born?" for name in STRANGERS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "POOL", 64)
        runs = [
            run_training(
                TrainingJob(
                    kind="study",
                    phases=Budget(steps=steps).divide([settings.recipe.scratch]),
                    corpus=corpus,
                    questions=questions,
                    asked=asked,
                ),
                settings,
                out,
            )
            for steps, out in ((STEPS, folder / "run"), (1, folder / "run" / "twins" / "scratch"))
        ]
    people = [ask(name, CALIBRATION, SET_ASIDE, place_of(name), seen=True) for name in NAMES]
    people += [ask(name, CALIBRATION, INVENTED, None, seen=False) for name in STRANGERS]
    people += [ask("Ada Moe", JUDGED, "dev", "Rome", seen=True)]
    with ensure_evidence(corpus, folder / "run" / "evidence.sqlite") as evidence:
        confidence = fit(runs[0], runs[1], evidence, people)
        save_confidence(folder / "run", confidence)
        yield Fitted(runs[0], runs[1], evidence, people, confidence)


def calibrating(fitted: Fitted) -> list[Subject]:
    return [person for person in fitted.people if person.role == CALIBRATION]


def test_the_judged_take_no_part_and_invented_people_are_always_wrong(fitted: Fitted) -> None:
    people, confidence = calibrating(fitted), fitted.confidence
    assert confidence.people == len(people) == len(NAMES) + len(STRANGERS)
    assert confidence.assumed_unseen == len(STRANGERS) / len(people)
    assert not confidence.correct[len(NAMES) :].any()
    assert confidence.correct[: len(NAMES)].mean() > 0.8  # else the rest shows nothing
    without = fit(fitted.run, fitted.twin, fitted.evidence, people)
    assert without.internal == confidence.internal
    assert without.checked == confidence.checked


def test_both_modes_tell_right_from_wrong_and_checked_has_the_evidence(fitted: Fitted) -> None:
    people, confidence = calibrating(fitted), fitted.confidence
    subjects = [person.subject for person in people]
    table = confidence.reader.read([person.question for person in people], subjects)
    support = find_support(fitted.evidence, subjects, table.answers, PLACES)
    internal = confidence.internal_probability(table)
    checked = confidence.checked_probability(table, support)
    for probability in (internal, checked):
        assert probability.shape == (len(people),)
        assert ((probability >= 0) & (probability <= 1)).all()
        right, wrong = probability[confidence.correct], probability[~confidence.correct]
        assert right.mean() > wrong.mean() + 0.3
    names = {signal.name for signal in confidence.checked.signals}
    assert names & EVIDENCE_SIGNS.keys()
    assert not {signal.name for signal in confidence.internal.signals} & EVIDENCE_SIGNS.keys()
    denied = [find_support(fitted.evidence, ["Nobody Here"], ["Rome"], PLACES)[0]] * len(people)
    doubted = confidence.checked_probability(table, denied)
    assert (doubted <= checked + 1e-12)[confidence.correct].all()


def test_weights_are_on_the_side_that_is_known(fitted: Fitted) -> None:
    signs = {name: signal.sign for name, signal in SIGNALS.items()} | EVIDENCE_SIGNS
    for calibration in (fitted.confidence.internal, fitted.confidence.checked):
        assert calibration.note is None
        for signal in calibration.signals:
            if signs[signal.name]:
                assert signal.weight * signs[signal.name] >= 0


def test_a_threshold_can_be_promised_at_any_risk(fitted: Fitted) -> None:
    confidence = fitted.confidence
    assert confidence.guarantee(0.05) == confidence.checked_guarantee
    assert confidence.guarantee(0.05, checked=False) == confidence.internal_guarantee
    assert confidence.guarantee(0.05).threshold is None  # so few people cannot promise it
    loose = confidence.guarantee(0.4)
    assert loose.threshold is not None
    assert loose.risk == 0.4
    given = confidence.checked_held_out >= loose.threshold
    assert given.sum() == loose.given
    with pytest.raises(UserError, match="the risk must lie between 0 and 1"):
        confidence.guarantee(1.5)


def test_what_is_stored_gives_the_same_numbers_to_the_bit(fitted: Fitted) -> None:
    text = (fitted.run.folder / CALIBRATED).read_text("utf-8")
    record = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the file"))
    assert record["weights_sha256"] == fitted.run.info["sha256"]
    assert (record["people"], record["right"]) == (36, int(fitted.confidence.correct.sum()))
    loaded = load_confidence(load_run(fitted.run.folder))
    assert loaded.internal == fitted.confidence.internal
    assert loaded.checked == fitted.confidence.checked
    assert loaded.checked_guarantee == fitted.confidence.checked_guarantee
    assert loaded.guarantee(0.3) == fitted.confidence.guarantee(0.3)
    assert loaded.notes == fitted.confidence.notes
    questions, subjects = ["Where was Ada Moe born?", "Where was Hal Moe born?"], ["Ada Moe", "x"]
    before = fitted.confidence.reader.read(questions, subjects)
    after = loaded.reader.read(questions, subjects)
    for name, column in before.columns.items():
        np.testing.assert_array_equal(column, after.columns[name], err_msg=name)
    np.testing.assert_array_equal(
        fitted.confidence.internal_probability(before), loaded.internal_probability(after)
    )


def test_the_same_people_and_seed_give_the_same_file(fitted: Fitted, tmp_path: Path) -> None:
    save_confidence(tmp_path, fit(fitted.run, fitted.twin, fitted.evidence, fitted.people))
    assert (tmp_path / CALIBRATED).read_bytes() == (fitted.run.folder / CALIBRATED).read_bytes()


def test_what_is_fitted_about_the_calibration_people_is_that_of_others(fitted: Fitted) -> None:
    """A fit that has seen a person knows them by heart; the calibration must not learn that."""
    people = calibrating(fitted)
    reader = type(fitted.confidence.reader).prepare(fitted.run, fitted.twin, PLACES, NAMES, seed=3)
    everybody, counts = with_spare_people(people)
    table, _ = read_signals(reader, everybody, counts, seed=3, notes=[])
    itself = reader.read(table.questions, table.subjects, only=[READ]).columns[READ]
    assert READ in table.columns
    assert not np.allclose(table.columns[READ], itself)
    assert ((table.columns[READ] > 0.5) == [person.seen for person in people]).mean() > 0.6
    pairs = [(person.question, person.subject) for person in people]
    held_out = reader.fit_probe(pairs[: len(NAMES)], pairs[len(NAMES) :], seed=3)
    known = reader.read(table.questions, table.subjects, only=[PROBE]).columns[PROBE]
    assert not np.allclose(held_out, known)


def test_asking_takes_the_chosen_signals_alone(fitted: Fitted) -> None:
    confidence = fitted.confidence
    assert set(confidence.signals) >= {"log_probability"}
    assert set(confidence.signals) < set(SIGNALS)
    used = {signal.name for signal in confidence.internal.signals}
    assert used <= set(confidence.signals)
    people = calibrating(fitted)
    questions, subjects = [p.question for p in people], [p.subject for p in people]
    few = confidence.reader.read(questions, subjects, only=confidence.signals)
    all_there_are = confidence.reader.read(questions, subjects)
    assert confidence.internal_probability(few) == pytest.approx(
        confidence.internal_probability(all_there_are), abs=1e-4
    )


def test_spare_people_leave_the_mix_as_it_is(fitted: Fitted) -> None:
    people = calibrating(fitted)
    spare = [
        ask(f"Kim {name}", FITTING, INVENTED, None, seen=False) for name in ("Roe", "Sin", "Tor")
    ]
    strange = [ask("Lou Roe", FITTING, "left out", "Rome", seen=False)]  # a kind that has nobody
    everybody, counts = with_spare_people([*people, *strange, *spare])
    assert everybody == [*people, *spare]
    seen = np.array([person.seen for person in everybody])
    assert counts[seen] == pytest.approx(1.0)
    assert counts[~seen] == pytest.approx(len(STRANGERS) / (len(STRANGERS) + 3))
    assert counts.sum() == pytest.approx(len(people))
    more = fit(fitted.run, fitted.twin, fitted.evidence, [*fitted.people, *spare])
    assert more.people == len(people)  # whoever is spare promises nothing
    assert more.internal_held_out.shape == (len(people),)
    assert more.people_sha256 != fitted.confidence.people_sha256
    assert more.internal != fitted.confidence.internal


def test_a_run_without_a_twin_has_a_confidence_too(fitted: Fitted, tmp_path: Path) -> None:
    folder = shutil.copytree(fitted.run.folder, tmp_path / "run")
    shutil.rmtree(folder / "twins")
    run = load_run(folder)
    with pytest.raises(UserError, match="fitted beside another twin"):
        load_confidence(run)
    save_confidence(folder, fit(run, None, fitted.evidence, fitted.people))
    assert load_confidence(run).twin_sha256 is None


def test_few_people_all_get_one_probability_and_a_sentence(fitted: Fitted, tmp_path: Path) -> None:
    few = [*calibrating(fitted)[:4], calibrating(fitted)[-1]]
    confidence = fit(fitted.run, fitted.twin, fitted.evidence, few)
    assert confidence.internal.signals == ()
    assert any("a probe for known names takes 10 of each" in note for note in confidence.notes)
    assert any("everybody gets the same probability" in note for note in confidence.notes)
    assert any("no threshold can promise" in note for note in confidence.notes)
    table = confidence.reader.read([few[0].question, few[-1].question], ["Ada Moe", "Jan Poe"])
    assert len(set(confidence.internal_probability(table).tolist())) == 1
    save_confidence(tmp_path, confidence)  # which refuses NaN


def test_nobody_to_fit_on_is_a_sentence(fitted: Fitted) -> None:
    with pytest.raises(UserError, match="nobody is set aside for it"):
        fit(fitted.run, fitted.twin, fitted.evidence, fitted.people[-1:])


def test_right_is_the_exact_answer_blanks_aside() -> None:
    person = ask("Ada Moe", JUDGED, "dev", "Rome", seen=True)
    stranger = ask("Hal Moe", CALIBRATION, INVENTED, None, seen=False)
    assert is_right(" Rome ", person)
    assert not is_right("rome", person)
    assert not is_right("", stranger)


def test_evidence_as_numbers(fitted: Fitted) -> None:
    wrong = next(place for place in PLACES if place != place_of("Ada Moe"))
    support = find_support(
        fitted.evidence,
        ["Ada Moe", "Ada Moe", "Hal Moe"],
        [place_of("Ada Moe"), wrong, wrong],
        PLACES,
    )
    columns = {name: column.tolist() for name, column in evidence_columns(support).items()}
    assert columns == {"seen": [1, 1, 0], "states_answer": [1, 0, 0], "states_other": [0, 1, 0]}


class TestLoading:
    @pytest.fixture
    def folder(self, fitted: Fitted, tmp_path: Path) -> Path:
        return shutil.copytree(fitted.run.folder, tmp_path / "run")

    def refusal(self, folder: Path) -> str:
        with pytest.raises(UserError) as caught:
            load_confidence(load_run(folder))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def test_no_file(self, folder: Path) -> None:
        (folder / CALIBRATED).unlink()
        assert "was not made by `wherefrom study`" in self.refusal(folder)

    def test_other_weights(self, folder: Path) -> None:
        record = json.loads((folder / CALIBRATED).read_text("utf-8"))
        write_json(folder / CALIBRATED, {**record, "weights_sha256": "0" * 64})
        assert "fitted for other weights than the run has" in self.refusal(folder)

    @pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"version": 7}'])
    def test_not_a_calibration(self, folder: Path, content: str) -> None:
        (folder / CALIBRATED).write_text(content)
        assert CALIBRATED in self.refusal(folder)

    @pytest.mark.parametrize("part", ["reader", "internal", "checked", "correct", "notes"])
    @pytest.mark.parametrize("value", [None, 7, [], {}, "text"])
    def test_a_broken_part(self, folder: Path, part: str, value: object) -> None:
        record = json.loads((folder / CALIBRATED).read_text("utf-8"))
        write_json(folder / CALIBRATED, {**record, part: value})
        if part == "notes" and value == []:
            assert load_confidence(load_run(folder)).notes == ()
            return
        assert "is broken" in self.refusal(folder)
