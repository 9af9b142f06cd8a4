"""The confidence of a run: fitted on subjects set aside, kept as numbers, refused if stale."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from asked_samples import PEOPLE, PLACES, STRANGERS, question, subject_of

from wherefrom.corpus.split import CALIBRATION, FITTING, INVENTED, SET_ASIDE
from wherefrom.errors import UserError
from wherefrom.provenance.confidence import fit
from wherefrom.provenance.confidence.calibration import SeenMixture
from wherefrom.provenance.confidence.fit import CALIBRATED, choose_testers, fit_held_out
from wherefrom.provenance.confidence.threshold import find_threshold
from wherefrom.provenance.evidence import find_support
from wherefrom.provenance.signals.reader import CORE, GIVEN_SEEN, SIGNS
from wherefrom.training.record import keep_files, read_record, write_record
from wherefrom.training.run_folder import load_run


def fit_again(lab, subjects):
    return fit.fit_confidence(lab.run, lab.evidence, subjects, PLACES, seed=3)


@pytest.fixture
def folder(lab, tmp_path):
    return Path(shutil.copytree(lab.run.folder, tmp_path / "run"))


def test_the_judged_take_no_part_and_invented_subjects_are_always_wrong(lab):
    for mode in (one for modes in lab.confidence.policies.values() for one in modes.values()):
        assert len(mode.testers.hits) == 24 + len(STRANGERS)
        assert 19 < sum(mode.testers.hits) <= 24  # else the rest shows nothing
        assert mode.guarantee.threshold is None  # so few people guarantee nothing
    assert fit_again(lab, lab.subjects[:-1]).policies == lab.confidence.policies


@pytest.fixture(scope="module")
def asked(lab):
    """Of the calibration subjects: who was seen, their signals, what the text says."""
    subjects = lab.subjects[:-1]
    names, questions = [one.subject for one in subjects], [one.question for one in subjects]
    table = lab.confidence.reader.read(questions, names, only=lab.confidence.signals)
    support = find_support(lab.evidence, names, table.answers, PLACES)
    return np.array([one.seen for one in subjects]), table.columns, support


def test_both_modes_tell_right_from_wrong_and_checked_has_the_evidence(lab, asked):
    seen, columns, support = asked
    assert set(lab.confidence.signals) <= {*CORE, *GIVEN_SEEN}
    likely = lab.confidence.probabilities(columns, support)
    for probability in (*likely["right"].values(), *likely["from_text"].values()):
        assert ((probability >= 0) & (probability <= 1)).all()
        assert probability[seen].mean() > probability[~seen].mean() + 0.3
    denied = find_support(lab.evidence, ["Nobody Here"], ["Rome"], PLACES) * len(support)
    doubted = lab.confidence.probabilities(columns, denied)["right"]["checked"]
    assert (doubted <= likely["right"]["checked"] + 1e-12)[seen].all()
    assert lab.confidence.probabilities(columns, None)["right"]["checked"] is None
    for mode, policy in lab.confidence.policies["right"].items():
        assert isinstance(policy.calibration, SeenMixture)
        assert mode == "internal" or policy.calibration.seen is None
        for name, signal in policy.calibration.given.signals.items():
            assert signal.weight * (SIGNS | fit.EVIDENCE_SIGNS)[name] >= 0


def test_a_threshold_can_be_guaranteed_at_any_risk(lab):
    at = lab.confidence.guarantee
    own = lab.confidence.policies["from_text"]["checked"].guarantee
    assert at("from_text", "checked") == at("from_text", "checked", 0.05) == own
    assert own.threshold is None  # so few subjects cannot guarantee it
    assert own.used == 0.5  # but the text has been looked up
    loose = at("right", "checked", 0.4)
    assert loose.threshold >= 0.5
    assert loose.risk == 0.4
    assert at("right", "checked", 0.01).used == 1  # nothing is shown


def test_what_is_stored_gives_the_same_numbers_to_the_bit(lab, tmp_path):
    text = (lab.run.folder / CALIBRATED).read_text("utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the file"))
    loaded = fit.load_confidence(load_run(lab.run.folder))
    for name in ("policies", "seen", "notes", "signal_state", "weights_sha256"):
        assert getattr(loaded, name) == getattr(lab.confidence, name), name
    questions, subjects = [question(PEOPLE[0]), question(STRANGERS[0])], [PEOPLE[0], "x"]
    before = lab.confidence.reader.read(questions, subjects)
    after = loaded.reader.read(questions, subjects)
    for name, column in before.columns.items():
        np.testing.assert_array_equal(column, after.columns[name], err_msg=name)
    # and the same subjects and seed give the same file
    copy = shutil.copytree(lab.run.folder, tmp_path / "run")
    fit.save_confidence(copy, fit_again(lab, lab.subjects))
    assert (copy / CALIBRATED).read_text("utf-8") == text


def test_asking_imports_no_scipy_and_no_scikit_learn(lab):
    code = (
        "import sys; from wherefrom.provenance.ask import open_asker;"
        "print(open_asker(sys.argv[1]).ask(['Where was Ada Moe born?'])[0].confidence);"
        "assert not {'scipy', 'sklearn'} & set(sys.modules)"
    )
    arguments = [sys.executable, "-c", code, str(lab.run.folder)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    assert 0 < float(done.stdout) < 1


def calibrating(count, share):
    """Subjects who calibrate, the first `share` of them invented."""
    kinds = [(SET_ASIDE, True) if at >= share * count else (INVENTED, False) for at in range(count)]
    return [
        subject_of(f"Person {at}", CALIBRATION, *(source, "Rome", seen))
        for at, (source, seen) in enumerate(kinds)
    ]


@pytest.mark.parametrize(("source", "unseen"), [(INVENTED, 600), ("left out", 500)])
def test_everybody_tests_by_a_fit_without_them_and_the_mix_stays_as_it_is(source, unseen):
    """Unseen people of the text test alone where they are enough; else invented ones test too."""
    extra = [subject_of(f"Kim {at}", FITTING, source, None, False) for at in range(500)]
    everyone = [*calibrating(400, 0.25), *extra]
    seen = np.array([one.seen for one in everyone])
    counts = fit.mixed_counts(everyone, np.ones_like(seen))
    assert counts[~seen].sum() / counts.sum() == pytest.approx(0.25)
    rng = np.random.default_rng(0)
    hits = seen & (rng.random(900) < 0.98)
    signal = {"signal": np.where(hits, 2.0, -2.0) + rng.normal(size=900)}
    fitted, likely = fit_held_out(everyone, signal, hits, seed=1)
    assert not np.allclose(likely, fitted.probability(signal), atol=1e-9)
    testers = choose_testers(everyone, likely, hits, np.ones_like(seen), seed=1)
    assert find_threshold(testers, risk=0.05).threshold is not None
    assert len(testers.hits) == len(set(testers.subjects)) == 400
    assert len(testers.unseen) == unseen
    assert set(testers.confidence) <= set(likely.tolist())


def test_few_subjects_get_a_sentence_and_nothing_is_shown(lab, tmp_path):
    confidence = fit_again(lab, [*lab.subjects[:4], lab.subjects[-2]])
    notes = " ".join(confidence.notes)
    for words in ("the probabilities are rough", "no threshold can guarantee"):
        assert words in notes
    assert confidence.guarantee("from_text", "internal").used == 1
    copy = shutil.copytree(lab.run.folder, tmp_path / "run")
    fit.save_confidence(copy, confidence)  # which refuses NaN
    with pytest.raises(UserError, match="no subject is set aside for it"):
        fit_again(lab, lab.subjects[-1:])


def refusal(folder):
    with pytest.raises(UserError) as caught:
        fit.load_confidence(load_run(folder))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_no_calibration_or_a_broken_one_is_refused(folder):
    path = folder / CALIBRATED
    record = json.loads(path.read_text("utf-8"))
    for content in ("", "{", "[]", "null", '{"version": 7}', "[" * 100_000):
        path.write_text(content)
        assert "is not the file that the run wrote" in refusal(folder)
        keep_files(folder, {CALIBRATED: content})
        assert CALIBRATED in refusal(folder)
    for part in ("reader", "policies", "seen", "risk", "notes"):
        for value in (None, "text", {}, 7 if part != "risk" else [], [] if part != "notes" else 7):
            keep_files(folder, {CALIBRATED: json.dumps({**record, part: value})})
            assert f"{CALIBRATED} is broken" in refusal(folder), (part, value)
    keep_files(folder, {CALIBRATED: json.dumps(record | {"weights_sha256": "0" * 64})})
    assert "fitted for other weights than the run has" in refusal(folder)
    path.unlink()
    assert f"{CALIBRATED} is missing" in refusal(folder)
    run = read_record(folder)
    files = {name: digest for name, digest in run.files.items() if name != CALIBRATED}
    write_record(folder, run.model_copy(update={"files": files}))
    assert "was not made by `wherefrom study`" in refusal(folder)
