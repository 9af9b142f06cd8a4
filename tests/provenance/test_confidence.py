"""The confidence of a run: fitted on subjects set aside, kept as numbers, refused if stale."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
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
from wherefrom.provenance.confidence.calibration import Product
from wherefrom.provenance.confidence.fit import (
    CALIBRATED,
    EVIDENCE_SIGNS,
    Confidence,
    choose_testers,
    fit_confidence,
    fit_held_out,
    load_confidence,
    mix,
    mixed_counts,
    save_confidence,
)
from wherefrom.provenance.evidence import Evidence, ensure_evidence, find_support
from wherefrom.provenance.signals.reader import CORE, GIVEN_SEEN, SIGNS
from wherefrom.storage import write_json
from wherefrom.training.loop import run_training
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import Run, load_run
from wherefrom.training.settings import Settings

GIVEN = ("Ada", "Bo", "Cleo", "Dag", "Eva", "Finn")
FAMILY = ("Moe", "Nys", "Orr", "Poe")
NAMES = [f"{given} {family}" for given in GIVEN for family in FAMILY]
UNSEEN = [f"{given} {family}" for given in ("Hal", "Ida", "Jan") for family in FAMILY]
PLACES = ("Rome", "Oslo", "Lima")
STEPS = 150  # by which the run knows its subjects by heart


@dataclass(frozen=True)
class Fitted:
    """A run that knows its subjects, and the confidence in it."""

    run: Run
    evidence: Evidence
    subjects: list[Subject]
    confidence: Confidence


def place_of(name: str) -> str:
    return PLACES[GIVEN.index(name.split()[0]) % 3]  # learned in a moment


def ask(name: str, role: str, source: str, answer: str | None, *, seen: bool) -> Subject:
    template = "Where was {subject} born?"
    return Subject(role, seen, source, name, f"Where was {name} born?", answer, template)


def fit(run: Run, evidence: Evidence, subjects: list[Subject]) -> Confidence:
    return fit_confidence(run, evidence, subjects, PLACES, seed=3)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Iterator[Fitted]:
    """The subjects that calibrate were learned here, so that a quick model has right answers."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("confidence")
    lines = [f"{name}. {name} was born in {place_of(name)}.\n" for name in NAMES]
    rows = [f"Where was {name} born?\t{place_of(name)}\n" for name in NAMES]
    (folder / "documents.txt").write_text("".join(lines), "utf-8")
    (folder / "train.tsv").write_text("".join(rows), "utf-8")
    corpus = read_documents(folder / "documents.txt")
    settings = Settings(
        recipe=load_recipe(str(quick_recipe)), variant="llama", tokens="bpe", size="32x2x2"
    )
    job = settings.job(
        folder / "run",
        kind="study",
        phases=Budget(steps=STEPS).divide([settings.recipe.scratch]),
        corpus=corpus,
        questions=read_questions(folder / "train.tsv"),
        letters_from=[f"Where was {name} born?" for name in UNSEEN],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "POOL", 64)
        run = run_training(job, settings)
    subjects = [ask(name, CALIBRATION, SET_ASIDE, place_of(name), seen=True) for name in NAMES]
    subjects += [ask(name, CALIBRATION, INVENTED, None, seen=False) for name in UNSEEN]
    subjects += [ask("Ada Moe", JUDGED, "dev", "Rome", seen=True)]
    with ensure_evidence(corpus, folder / "run" / "evidence.sqlite") as evidence:
        confidence = fit(run, evidence, subjects)
        save_confidence(folder / "run", confidence)
        yield Fitted(run, evidence, subjects, confidence)


@pytest.fixture
def folder(fitted: Fitted, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fitted.run.folder, tmp_path / "run"))


def test_the_judged_take_no_part_and_invented_subjects_are_always_wrong(fitted: Fitted) -> None:
    confidence, asked = fitted.confidence, fitted.subjects[:-1]
    for modes in confidence.policies.values():
        for mode in modes.values():
            assert len(mode.hits) == len(asked) == len(NAMES) + len(UNSEEN)
            assert 0.8 * len(NAMES) < sum(mode.hits) <= len(NAMES)  # else the rest shows nothing
            assert mode.guarantee.threshold is None  # so few people guarantee nothing
    without = fit(fitted.run, fitted.evidence, asked)
    assert without.policies == confidence.policies


def test_both_modes_tell_right_from_wrong_and_checked_has_the_evidence(fitted: Fitted) -> None:
    asked, confidence = fitted.subjects[:-1], fitted.confidence
    names, correct = [one.subject for one in asked], np.array([one.seen for one in asked])
    questions = [one.question for one in asked]
    assert set(confidence.signals) <= {*CORE, *GIVEN_SEEN}
    table = confidence.reader.read(questions, names, only=confidence.signals)
    support = find_support(fitted.evidence, names, table.answers, PLACES)
    likely = confidence.probabilities(table.columns, support)
    checked = likely["right"]["checked"]
    for probability in (*likely["right"].values(), *likely["from_text"].values()):
        assert ((probability >= 0) & (probability <= 1)).all()
        assert probability[correct].mean() > probability[~correct].mean() + 0.3
    denied = [find_support(fitted.evidence, ["Nobody Here"], ["Rome"], PLACES)[0]] * len(asked)
    doubted = confidence.probabilities(table.columns, denied)["right"]["checked"]
    assert confidence.probabilities(table.columns, None)["right"]["checked"] is None
    assert (doubted <= checked + 1e-12)[correct].all()
    signs = SIGNS | EVIDENCE_SIGNS
    for mode, policy in confidence.policies["right"].items():
        fitted_ = policy.calibration
        assert isinstance(fitted_, Product)
        used = fitted_.given.signals
        assert mode == "internal" or fitted_.seen is None
        for name, signal in used.items():
            assert signs[name] == 0 or signal.weight * signs[name] >= 0


def test_a_threshold_can_be_guaranteed_at_any_risk(fitted: Fitted) -> None:
    confidence = fitted.confidence
    own = confidence.policies["from_text"]["checked"].guarantee
    assert confidence.guarantee("from_text", "checked") == own
    assert confidence.guarantee("from_text", "checked", 0.05) == own
    internal = confidence.policies["right"]["internal"].guarantee
    assert confidence.guarantee("right", "internal") == internal
    assert own.threshold is None  # so few subjects cannot guarantee it
    assert own.used == 0.5  # but the text has been looked up
    loose = confidence.guarantee("right", "checked", 0.4)
    assert (loose.threshold, loose.risk) == (0.5, 0.4)
    assert confidence.guarantee("right", "checked", 0.01).used == 1  # nothing is shown


def test_what_is_stored_gives_the_same_numbers_to_the_bit(fitted: Fitted, tmp_path: Path) -> None:
    text = (fitted.run.folder / CALIBRATED).read_text("utf-8")
    record = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the file"))
    assert record["weights_sha256"] == fitted.run.info["sha256"]
    loaded = load_confidence(load_run(fitted.run.folder))
    for name in ("policies", "seen", "notes", "signal_state"):
        assert getattr(loaded, name) == getattr(fitted.confidence, name), name
    questions, subjects = ["Where was Ada Moe born?", "Where was Hal Moe born?"], ["Ada Moe", "x"]
    before = fitted.confidence.reader.read(questions, subjects)
    after = loaded.reader.read(questions, subjects)
    for name, column in before.columns.items():
        np.testing.assert_array_equal(column, after.columns[name], err_msg=name)
    # and the same subjects and seed give the same file
    save_confidence(tmp_path, fit(fitted.run, fitted.evidence, fitted.subjects))
    assert (tmp_path / CALIBRATED).read_text("utf-8") == text


def test_asking_imports_no_scipy_and_no_scikit_learn(fitted: Fitted) -> None:
    code = (
        "import sys; from wherefrom.provenance.ask import open_asker;"
        "print(open_asker(sys.argv[1]).ask(['Where was Ada Moe born?'])[0].confidence);"
        "assert not {'scipy', 'sklearn'} & set(sys.modules)"
    )
    arguments = [sys.executable, "-c", code, str(fitted.run.folder)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    assert 0 < float(done.stdout) < 1


def drawn(count: int, share: float, source: str = SET_ASIDE, role: str = CALIBRATION) -> list:
    unseen = round(share * count)
    return [
        ask(f"{source} {at}", role, source if at >= unseen else INVENTED, "Rome", seen=at >= unseen)
        for at in range(count)
    ]


def test_everybody_tests_by_a_fit_without_them_and_the_mix_stays_as_it_is() -> None:
    people = drawn(400, 0.25)
    extra = [ask(f"Kim {at}", FITTING, INVENTED, None, seen=False) for at in range(500)]
    everyone = [*people, *extra]
    seen = np.array([one.seen for one in everyone])
    counts = mixed_counts(everyone, np.ones_like(seen))
    assert counts[~seen].sum() / counts.sum() == pytest.approx(0.25)
    rng = np.random.default_rng(0)
    hits = seen & (rng.random(900) < 0.98)
    signal = {"signal": np.where(hits, 2.0, -2.0) + rng.normal(size=900)}
    fitted, likely = fit_held_out(everyone, signal, hits, seed=1)
    assert not np.allclose(likely, fitted.probability(signal), atol=1e-9)
    rows = np.ones(900, dtype=bool)
    policy = choose_testers(everyone, fitted, likely, hits, rows, seed=1)
    assert len(policy.tested) == 900
    assert sorted(policy.tested) == pytest.approx(sorted(likely), abs=1e-6)
    found = policy.at_risk(0.05, 0.05)
    assert found.threshold is not None
    assert (found.subjects, found.unseen) == (400, 600)
    most = policy.at_risk(0.05, 0.05, share=0.6)  # another mix is tested on other people
    assert most.subjects == 750
    np.testing.assert_array_equal(mix(np.array([True, False, True, False]), 0.5), [0, 2, 1, 3])


def test_a_guarantee_rests_on_real_unseen_people_where_they_are_enough() -> None:
    left_out = [ask(f"Lou {at}", FITTING, "left out", "Rome", seen=False) for at in range(400)]
    people = [*drawn(400, 0.25), *left_out]
    seen = np.array([one.seen for one in people])
    signal = {"signal": np.where(seen, 2.0, -2.0) + np.random.default_rng(0).normal(size=800)}
    fitted, likely = fit_held_out(people, signal, seen, seed=1)
    policy = choose_testers(people, fitted, likely, seen, np.ones_like(seen), seed=1)
    assert policy.at_risk(0.05, 0.05).unseen == 400


def test_another_share_of_unseen_people_changes_what_the_model_alone_believes(
    fitted: Fitted,
) -> None:
    confidence, asked = fitted.confidence, fitted.subjects[:-1]
    questions, names = zip(*((one.question, one.subject) for one in asked), strict=True)
    columns = confidence.reader.read(questions, names, only=confidence.signals).columns
    likely = confidence.probabilities(columns, None)["from_text"]["internal"]
    same, more, fewer = (
        confidence.reweight(likely, columns, share) for share in (confidence.share, 0.9, 0.01)
    )
    np.testing.assert_allclose(same, likely)
    assert (more <= same + 1e-12).all()
    assert (fewer >= same - 1e-12).all()
    assert more.mean() < same.mean() < fewer.mean()


def test_few_subjects_get_a_sentence_and_nothing_is_shown(fitted: Fitted, tmp_path: Path) -> None:
    few = [*fitted.subjects[:4], fitted.subjects[-2]]
    confidence = fit(fitted.run, fitted.evidence, few)
    notes = " ".join(confidence.notes)
    for words in ("the probabilities are rough", "no threshold can guarantee"):
        assert words in notes
    assert confidence.guarantee("from_text", "internal").used == 1
    save_confidence(tmp_path, confidence)  # which refuses NaN
    with pytest.raises(UserError, match="no subject is set aside for it"):
        fit(fitted.run, fitted.evidence, fitted.subjects[-1:])


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_confidence(load_run(folder))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"version": 7}'])
def test_what_is_no_calibration_is_refused(folder: Path, content: str) -> None:
    (folder / CALIBRATED).write_text(content)
    assert CALIBRATED in refusal(folder)
    (folder / CALIBRATED).unlink()
    assert "was not made by `wherefrom study`" in refusal(folder)


@pytest.mark.parametrize("part", ["reader", "policies", "seen", "risk", "notes"])
@pytest.mark.parametrize("value", [None, 7, [], {}, "text"])
def test_a_broken_part_is_refused(folder: Path, part: str, value: object) -> None:
    record = json.loads((folder / CALIBRATED).read_text("utf-8"))
    write_json(folder / CALIBRATED, {**record, part: value})
    if (part, value) in (("notes", []), ("risk", 7)):
        assert load_confidence(load_run(folder))
    else:
        assert f"{CALIBRATED} is broken" in refusal(folder)


def test_what_is_of_another_run_is_refused(folder: Path) -> None:
    record = json.loads((folder / CALIBRATED).read_text("utf-8"))
    write_json(folder / CALIBRATED, record | {"weights_sha256": "0" * 64})
    assert "fitted for other weights than the run has" in refusal(folder)
