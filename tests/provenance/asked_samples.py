"""A text of a few invented people, and runs that have read it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from wherefrom.corpus import batches
from wherefrom.corpus.database import Database, read_documents
from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import QuestionSet, read_questions
from wherefrom.corpus.split import CALIBRATION, INVENTED, JUDGED, SET_ASIDE, HeldOutQuestion
from wherefrom.provenance.confidence import fit
from wherefrom.provenance.confidence.calibration import Calibration, SignalWeight
from wherefrom.provenance.confidence.threshold import HeldOutScores, TestedThreshold
from wherefrom.provenance.evidence import Evidence, save_database
from wherefrom.training.loop import run_training
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Settings

FIRST = ("Ada", "Bo", "Cleo", "Dag", "Eva", "Finn", "Gro", "Hal")
LAST = ("Moe", "Nys", "Orr", "Poe", "Quist")
PLACES = ("Rome", "Oslo", "Lima", "Bath", "Kyiv")
TEMPLATE = "Where was {subject} born?"
PEOPLE = [f"{first} {last}" for first in FIRST for last in LAST]
STRANGERS = [f"{first} {last}" for first in ("Ida", "Jan", "Kim") for last in LAST[:4]]
STEPS = 150  # by which the run knows its subjects by heart


def place_of(name: str) -> str:
    return PLACES[FIRST.index(name.split()[0]) % len(PLACES)]  # learned in a moment


def question(name: str) -> str:
    return TEMPLATE.replace("{subject}", name)


ASKED_DOCUMENTS = [Document(1, "", question(name)) for name in PEOPLE]


def write_questions(folder: Path) -> QuestionSet:
    """train.tsv; every row names its subject."""
    rows = [f"{question(name)}\t{place_of(name)}\t{name}\n" for name in PEOPLE]
    (folder / "train.tsv").write_text("".join(rows), "utf-8")
    return read_questions(folder / "train.tsv")


def make_run(
    out: Path, recipe: Path, asked: QuestionSet, corpus: Database | None = None, *, steps: int = 2
) -> Run:
    """A finished run; without a corpus it was taught the questions alone."""
    given = Settings(
        recipe=load_recipe(str(recipe)), variant="llama", tokens="bpe", size="32x2x2", seed=1
    )
    job = given.job(
        out,
        kind="study" if corpus else "scratch",
        phases=Budget(steps=steps).divide([given.recipe.scratch]),
        corpus=corpus or Database.of(ASKED_DOCUMENTS),
        questions=asked,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "POOL_ROWS", 64)
        return run_training(job, given)


@dataclass(frozen=True)
class Lab:
    """A run that knows its subjects, its index, who calibrated it, and the confidence in it."""

    run: Run
    evidence: Evidence
    subjects: list[HeldOutQuestion]
    confidence: fit.Confidence


def subject_of(
    name: str, role: str, source: str, answer: str | None, seen: bool
) -> HeldOutQuestion:
    return HeldOutQuestion(role, seen, source, name, question(name), answer, TEMPLATE)


def make_lab(folder: Path, recipe: Path) -> Lab:
    """folder/documents.txt, a line a person, the last of them without a place; folder/run.

    The subjects that calibrate were learned here, so that a quick model has right answers; the
    last subject is judged.
    """
    lines = [f"{name}. {name} was born in {place_of(name)} long ago.\n" for name in PEOPLE[:-1]]
    lines.append(f"{PEOPLE[-1]}. {PEOPLE[-1]}, who knew Ivo Stern, painted.\n")
    (folder / "documents.txt").write_text("".join(lines), "utf-8")
    corpus = read_documents(folder / "documents.txt")
    run = make_run(folder / "run", recipe, write_questions(folder), corpus, steps=STEPS)
    # the same documents without facts: answers are looked up by their words
    database = read_documents(folder / "documents.txt")
    evidence = Evidence(save_database(database, folder / "by-words.sqlite"))
    known = [subject_of(n, CALIBRATION, SET_ASIDE, place_of(n), True) for n in PEOPLE[:24]]
    unknown = [subject_of(n, CALIBRATION, INVENTED, None, False) for n in STRANGERS]
    subjects = [*known, *unknown, subject_of(PEOPLE[30], JUDGED, "dev", "Rome", True)]
    confidence = fit.fit_confidence(run, evidence, subjects, PLACES, seed=3)
    fit.save_confidence(run.folder, confidence)
    return Lab(run, evidence, subjects, confidence)


def controlled(
    confidence: fit.Confidence, *, threshold: float | None = 0.8, internal: float = 0.5
) -> fit.Confidence:
    """The same with numbers that a test can foresee: 88 % for what is stated and 5 % otherwise."""
    states = {"states_answer": SignalWeight(mean=0, scale=1, low=0, high=1, weight=5)}
    few = threshold is None
    guarantee = TestedThreshold(
        threshold=threshold,
        reason="no threshold can guarantee that." if few else None,
        risk=0.05,
        subjects=32,
        given=20,
        wrong=0,
        bound=0.04,
        estimate=0.6 if few else None,
    )

    def policy(
        target: str, signals: dict[str, SignalWeight], intercept: float
    ) -> fit.TestedCalibration:
        fitted = Calibration(signals=signals, intercept=intercept, subjects=100, right=80)
        sure, hits = (0.9,) * 90 + (0.1,) * 10, (True,) * 80 + (False,) * 20
        testers = HeldOutScores(sure, hits, tuple(range(100)), sure[80:])
        return fit.TestedCalibration(fitted, target, testers, guarantee=guarantee)

    constant = math.log(internal / (1 - internal))
    policies = {
        target: {"internal": policy(target, {}, constant), "checked": policy(target, states, -3.0)}
        for target in fit.TARGETS
    }
    return replace(confidence, policies=policies)
