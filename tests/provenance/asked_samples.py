"""A text of a few invented people, and runs that have read it: barely trained, and real."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from wherefrom.corpus import batches
from wherefrom.corpus.documents import Corpus, read_documents
from wherefrom.corpus.questions import QuestionSet, read_questions
from wherefrom.corpus.subjects import CALIBRATION, INVENTED, SET_ASIDE, Subject
from wherefrom.provenance.confidence.calibration import Calibration, Guarantee, SignalWeight
from wherefrom.provenance.confidence.fit import Confidence, Policy, fit_confidence, save_confidence
from wherefrom.provenance.evidence import Evidence, ensure_evidence
from wherefrom.training.loop import run_training
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Settings

FIRST = ("Ada", "Bo", "Cleo", "Dag", "Eva", "Finn", "Gro", "Hal")
LAST = ("Moe", "Nys", "Orr", "Poe", "Quist")
PLACES = ("Rome", "Oslo", "Lima", "Bath", "Kyiv")
TEMPLATE = "Where was {subject} born?"
PEOPLE = tuple(f"{first} {last}" for first in FIRST for last in LAST)


def place_of(name: str) -> str:
    at = PEOPLE.index(name)
    return PLACES[(at * at * 7 + at) % 11 % len(PLACES)]


def question(name: str) -> str:
    return TEMPLATE.replace("{subject}", name)


def write_text(folder: Path) -> Corpus:
    """documents.txt, a line a person, the last of them without a place."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name}. {name} was born in {place_of(name)} long ago." for name in PEOPLE[:-1]]
    lines.append(f"{PEOPLE[-1]}. {PEOPLE[-1]}, who knew Ivo Stern, painted.")
    (folder / "documents.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return read_documents(folder / "documents.txt")


def write_questions(folder: Path, *, subjects: bool = False) -> QuestionSet:
    """train.tsv; with `subjects` every row names its own, and there is no template."""
    rows = [
        f"{question(name)}\t{place_of(name)}" + (f"\t{name}" if subjects else "") for name in PEOPLE
    ]
    (folder / "train.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    return read_questions(folder / "train.tsv")


def make_run(
    out: Path,
    recipe: Path,
    *,
    left_out: tuple[str, ...] = (),
    corpus: Corpus | None = None,
    questions: QuestionSet | None = None,
    parent: Run | None = None,
    kind: str = "study",
) -> Run:
    """A finished run; without a corpus or questions it was not taught any."""
    loaded = load_recipe(str(recipe))
    given = Settings(recipe=loaded, tokens="bpe", budget=Budget(steps=2), seed=1)
    phases = {
        "pretrain": given.recipe.pretraining(),
        "finetune": given.recipe.finetuning(),
        "scratch": [given.recipe.scratch],
    }.get(kind, list(given.recipe.phases))
    job = given.job(
        out,
        kind=kind,
        phases=given.budget.divide(phases),
        corpus=corpus.without(left_out) if corpus is not None else None,
        questions=questions,
        parent=parent,
        vocabulary_from=[question(name) for name in PEOPLE] if kind == "scratch" else (),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "POOL", 64)
        return run_training(job, given)


@dataclass(frozen=True)
class Lab:
    """A run that has read the text, its index, and a confidence as a study fits it."""

    run: Run
    evidence: Evidence
    confidence: Confidence


def make_lab(folder: Path, recipe: Path) -> Lab:
    """folder/text, folder/run; of so little training the confidence knows next to nothing."""
    corpus = write_text(folder / "text")
    asked = write_questions(folder / "text")
    run = make_run(folder / "run", recipe, corpus=corpus, questions=asked)
    evidence = ensure_evidence(corpus, run.folder / "evidence.sqlite")
    seen = [
        Subject(CALIBRATION, True, SET_ASIDE, name, question(name), place_of(name), TEMPLATE)
        for name in PEOPLE[:24]
    ]
    strangers = [f"{first} Unheard" for first in FIRST]
    unseen = [
        Subject(CALIBRATION, False, INVENTED, name, question(name), None, TEMPLATE)
        for name in strangers
    ]
    people = [*seen, *unseen]
    confidence = fit_confidence(run, evidence, people, PLACES, seed=1)
    save_confidence(run.folder, confidence)
    return Lab(run, evidence, confidence)


def controlled(
    confidence: Confidence, *, threshold: float | None = 0.8, internal: float = 0.5
) -> Confidence:
    """The same with numbers that a test can foresee: 88 % for what is stated and 5 % otherwise."""
    states = {"states_answer": SignalWeight(mean=0, scale=1, low=0, high=1, weight=5)}
    reason = None if threshold is not None else "no threshold can guarantee that on 32 subjects."
    guarantee = Guarantee(
        threshold=threshold,
        reason=reason,
        risk=0.05,
        delta=0.05,
        subjects=32,
        given=20,
        wrong=0,
        bound=0.04,
        estimate=0.6 if threshold is None else None,
    )

    def policy(target: str, signals: dict[str, SignalWeight], intercept: float) -> Policy:
        fitted = Calibration(signals=signals, intercept=intercept, subjects=100, right=80)
        tested, hits = (0.9,) * 90 + (0.1,) * 10, (True,) * 80 + (False,) * 20
        seen = (True,) * 80 + (False,) * 20
        return Policy(fitted, target, tested, hits, seen, 0.2, guarantee=guarantee)

    constant = math.log(internal / (1 - internal))
    policies = {
        target: {"internal": policy(target, {}, constant), "checked": policy(target, states, -3.0)}
        for target in ("from_text", "right")
    }
    return replace(confidence, policies=policies)
