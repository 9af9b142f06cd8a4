"""A run opened for asking: whole or refused, asked in batches and by several at once."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
from asked_samples import (
    PEOPLE,
    calibrate,
    make_run,
    open_index,
    place_of,
    question,
    write_questions,
    write_text,
)

from wherefrom.errors import UserError
from wherefrom.provenance import ask as asking
from wherefrom.provenance.ask import AskedRow, open_asker
from wherefrom.provenance.confidence.fit import save_confidence
from wherefrom.provenance.verdicts import Verdict
from wherefrom.training.run_folder import load_run

NAMES = [*PEOPLE[20:30], "Tibor Ashdown", "Ivo Stern", PEOPLE[-1]]
ASKED = [question(name) for name in NAMES]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, quick_recipe: Path) -> Path:
    """A run with its index and its calibration."""
    folder = tmp_path_factory.mktemp("asking")
    corpus = write_text(folder / "text")
    asked = write_questions(folder / "text")
    run = make_run(folder / "run", quick_recipe, corpus=corpus, questions=asked)
    with open_index(run, corpus) as evidence:
        save_confidence(run.folder, calibrate(run, evidence))
    return folder / "run"


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def brief(verdicts: list[Verdict]) -> list[tuple[str, str | None, int | None, int | None]]:
    """What must not change with the company that a question is asked in."""

    def hundredths(share: float | None) -> int | None:
        return None if share is None else round(100 * share)

    return [
        (v.answer, v.verdict, hundredths(v.confidence), hundredths(v.internal_confidence))
        for v in verdicts
    ]


def test_a_run_is_opened_and_asked(folder: Path) -> None:
    with open_asker(folder) as asker:
        assert asker.notes == ()
        found = asker.ask(ASKED)
    assert [each.subject for each in found] == NAMES
    assert [each.seen for each in found] == [name != "Tibor Ashdown" for name in NAMES]
    for each in found:
        assert each.confidence is not None
        assert each.internal_confidence is not None
        assert 0 < each.confidence < 1
        assert 0 < each.internal_confidence < 1
        assert each.signals.keys() == found[0].signals.keys()


def test_batches_make_no_difference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_asker(folder) as asker:
        together = brief(asker.ask(ASKED))
        monkeypatch.setattr(asking, "BATCH", 5)
        done: list[int] = []
        rows = [AskedRow(each) for each in ASKED]
        assert brief(asker.ask_rows(rows, report=done.append)) == together
        assert done == [5, 5, 3]
        assert [brief(asker.ask([each]))[0] for each in ASKED[:3]] == together[:3]


def test_several_may_ask_at_once(folder: Path) -> None:
    told: dict[int, list[tuple[str, str | None, int | None, int | None]]] = {}
    with open_asker(folder) as asker:
        expected = brief(asker.ask(ASKED))

        def ask(at: int) -> None:
            told[at] = brief(asker.ask(ASKED))

        threads = [threading.Thread(target=ask, args=(at,)) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert list(told.values()) == [expected] * 4


def test_one_bad_question_is_refused_before_any_is_asked(folder: Path) -> None:
    with open_asker(folder) as asker:
        with pytest.raises(UserError, match=r'question 2: "Ada" is not worded like'):
            asker.ask([ASKED[0], "Ada", ASKED[1]])
        assert asker.check(ASKED[0]) == NAMES[0]
        with pytest.raises(UserError, match="the question is empty"):
            asker.check("  ")
        for risk in (0.0, 1.0, -3.0, float("nan")):
            with pytest.raises(UserError, match="the risk must lie between 0 and 1"):
                asker.ask(ASKED, risk=risk)
        assert asker.ask([]) == []


def test_a_run_that_was_not_calibrated_is_asked_all_the_same(folder: Path) -> None:
    (folder / "calibration.json").unlink()
    with open_asker(folder) as asker:
        assert len(asker.notes) == 1
        assert "was not calibrated" in asker.notes[0]
        found = asker.ask_rows([AskedRow(ASKED[0], answer="Nowhere")])[0]
        assert found.confidence is None
        assert f"does not state Nowhere but {place_of(NAMES[0])}" in found.why  # from train.tsv
        stated = asker.ask_rows([AskedRow(ASKED[0], answer=place_of(NAMES[0]))])[0]
        assert stated.shown == place_of(NAMES[0])


def test_known_answers_are_not_taken_from_a_file_that_has_changed(
    folder: Path, made: Path, tmp_path: Path
) -> None:
    (folder / "calibration.json").unlink()
    copied = tmp_path / "train.tsv"
    shutil.copy(made.parent / "text" / "train.tsv", copied)
    info = json.loads((folder / "run.json").read_text("utf-8"))
    info["data"]["questions"]["path"] = str(copied)
    (folder / "run.json").write_text(json.dumps(info), "utf-8")
    assert open_asker(folder).known_answers
    copied.write_text(copied.read_text("utf-8").replace("Rome", "Nome"), "utf-8")
    assert open_asker(folder).known_answers == ()
    copied.write_text("", "utf-8")
    assert open_asker(folder).known_answers == ()
    copied.unlink()
    assert open_asker(folder).known_answers == ()


def test_a_calibration_that_is_there_and_does_not_fit_is_refused(folder: Path) -> None:
    record = json.loads((folder / "calibration.json").read_text("utf-8"))
    (folder / "calibration.json").write_text(
        json.dumps({**record, "weights_sha256": "0" * 64}), "utf-8"
    )
    with pytest.raises(UserError, match="other weights"):
        open_asker(folder)
    (folder / "calibration.json").write_text("{", "utf-8")
    with pytest.raises(UserError, match=r"calibration\.json"):
        open_asker(folder)


def test_a_run_of_questions_alone_is_asked_and_says_what_it_lacks(
    made: Path, tmp_path: Path, quick_recipe: Path
) -> None:
    asked = write_questions(made.parent / "text")
    make_run(tmp_path / "alone", quick_recipe, questions=asked, kind="scratch")
    with open_asker(tmp_path / "alone") as asker:
        assert len(asker.notes) == 2
        (found,) = asker.ask(ASKED[:1])
    assert (found.verdict, found.seen, found.shown) == (None, None, "I don't know")


def test_an_unfinished_run_and_no_run_are_sentences(folder: Path, tmp_path: Path) -> None:
    assert load_run(folder).template == "Where was {subject} born?"
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="has not finished training"):
        open_asker(folder)
    with pytest.raises(UserError, match="is not a run"):
        open_asker(tmp_path / "none")
