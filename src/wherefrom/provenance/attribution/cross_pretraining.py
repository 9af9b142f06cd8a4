"""Two-fold twins: two quiet retrainings of a run, each without half of the judged people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np
from numpy.random import Generator
from scipy.stats import rankdata

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.subjects import DEV, JUDGED, Subject, find_named, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.retraining import (
    LearnedRun,
    Record,
    likelihoods,
    open_learned,
)
from wherefrom.provenance.confidence.fit import load_confidence
from wherefrom.provenance.evidence.index import EVIDENCE_FILE, ensure_evidence
from wherefrom.provenance.judging.judge import RIVALS, SUPPORT
from wherefrom.provenance.metrics import DEFINED, LEVEL, RESAMPLES, Answers, Floats, auroc, ratio
from wherefrom.provenance.signals.reader import SIGNS, SLOW
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    GUESSED,
    MADE_UP,
    REMEMBERED,
    STATED,
    give_verdicts,
)
from wherefrom.recall.decode import score
from wherefrom.storage import write_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Runtime

FORMAT = 2
RESULT = "twins/twins.json"
SIDES = ("with", "without")  # the run, and the twin that did not read about the subject

# in truth: REMEMBERED is right with the documents and not without them, RIGHT_ANYWAY with and
# without them; of what was not read, GUESSED is right and MADE_UP is wrong
RIGHT_ANYWAY, WRONG = "right anyway", "wrong though read"
ONE_KIND = "all answers are of one kind, so there is nothing to tell apart."
CONSTANT = "one of the two scores is the same for everybody."
TRUTHS = (REMEMBERED, RIGHT_ANYWAY, WRONG, GUESSED, MADE_UP)

# what takes an answer of one model for remembered, and is tested as such
TESTS: dict[str, Callable[[Record], bool]] = {
    "verdict stated": lambda said: said["verdict"] == STATED,
    "shown": lambda said: said["shown"] != DONT_KNOW,
    "shown without the text": lambda said: said["shown_internal"],
}


def draw_halves(learned: LearnedRun) -> tuple[list[list[Subject]], list[str]]:
    """The judged subjects that the run read about, in two random halves; and notes.

    Those whom another subject's document names are in neither: they cannot be left out cleanly.
    """
    run = learned.run
    judged = [s for s in read_subjects(run.folder) if s.role == JUDGED and s.source == DEV]
    about = [fold_words(document.subject) for document in learned.documents]
    every = {fold_words(each.subject) for each in judged}
    found = find_named(learned.documents, every)
    names = sorted(n for n, at in found.items() if at and all(about[i] == n for i in at))
    if len(names) < 2:
        raise UserError(
            f"two halves need at least two judged people whose documents can be left out, and "
            f"{run.folder} has {len(names)}."
        )
    order = np.random.default_rng([run.info["job"]["seed"], 0x7717]).permutation(len(names))
    half = {names[at]: number % 2 for number, at in enumerate(order)}
    note = (
        f"{len(every) - len(names)} of the dev people are not judged: they have no document of "
        "their own, or a name that another document holds too."
    )
    halves = [[s for s in judged if half.get(fold_words(s.subject)) == at] for at in (0, 1)]
    return halves, [note] if len(every) > len(names) else []


def cross_pretrain(
    run: Run,
    *,
    settings: Runtime | None = None,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Record:
    """Train both twins of a run, judge its answers by theirs, and write twins.json.

    Twins that are there are not trained again.
    """
    learned = open_learned(run)
    halves, notes = draw_halves(learned)
    rows: list[Record] = []
    twins = []
    for name, subjects in zip("ab", halves, strict=True):
        folder = run.folder / "twins" / f"half-{name}"
        say(f"training again without half {name.upper()} of the judged people ({folder})")
        gone = {fold_words(each.subject) for each in subjects}
        lines = [d.line for d in learned.documents if fold_words(d.subject) in gone]
        twin = learned.retrain(lines, folder, settings=settings, observe=observe)
        info = {key: twin.info[key] for key in ("steps", "seconds", "sha256")}
        twins.append({"folder": folder.name, **info})
        rows += pair_answers(learned, twin, subjects)
    right = [row["right"] for row in rows]
    recall = {side: score([row[side]["answer"] for row in rows], right) for side in SIDES}
    record = {
        "format": FORMAT,
        "notes": notes,
        "recall": {side: each.to_dict() for side, each in recall.items()},
        "twins": twins,
        **summarise(rows, np.random.default_rng([run.info["job"]["seed"], 0xD4A3])),
    }
    join_processes().on_rank0(lambda: write_json(run.folder / RESULT, record))
    return record


def pair_answers(learned: LearnedRun, twin: Run, subjects: Sequence[Subject]) -> list[Record]:
    """What the run and a twin that did not read about the subjects say, each with its verdict.

    The twin's answers are looked up in what it read, and rated by the run's confidence. The scores
    are what one model alone gives away about its answer; higher: likelier remembered.
    """
    confidence = load_confidence(learned.run)
    questions, names = [s.question for s in subjects], [s.subject for s in subjects]
    gone = {d.subject for d in learned.documents if d.line in set(twin.info["job"]["without"])}
    sides: dict[str, list[Record]] = {}
    for side, model in zip(SIDES, (learned.run, twin), strict=True):
        corpus = learned.corpus.without(sorted(gone)) if model is twin else learned.corpus
        path = model.folder / EVIDENCE_FILE
        with closing(ensure_evidence(corpus, path, learned.questions)) as evidence:
            said = give_verdicts(model, confidence, evidence, questions, names, also=None)
            naming = [float(evidence.count(name).naming) for name in names]
        ours = [row["answer"] for row in sides["with"]] if model is twin else None
        likely = likelihoods(model, questions, ours or [verdict.answer for verdict in said])
        sides[side] = []
        for verdict, named, log_p in zip(said, naming, likely, strict=True):
            scores = {
                "internal confidence": verdict.internal_confidence or 0.0,
                "checked confidence": verdict.confidence or 0.0,
                "verdict stated": float(verdict.verdict == STATED),
            }
            for name, (columns, _) in RIVALS.items():
                value = named if columns == (SUPPORT,) else verdict.signals.get(columns[0])
                if len(columns) == 1 and columns[0] in (SUPPORT, *SIGNS) and columns[0] not in SLOW:
                    scores[name] = SIGNS.get(columns[0], 1) * (-1e3 if value is None else value)
            sides[side].append(
                {
                    "answer": verdict.answer,
                    "log_probability_of_with": log_p,
                    "shown": verdict.shown,
                    "shown_internal": verdict.shown_internal,
                    "verdict": verdict.verdict or "",
                    "scores": scores,
                }
            )
    rows = []
    for subject, reader, other in zip(subjects, *sides.values(), strict=True):
        truth, without = true_origin(reader["answer"], other["answer"], subject.answer or "")
        rows.append(
            {
                "subject": subject.subject,
                "question": subject.question,
                "right": subject.answer or "",
                "twin": twin.folder.name,
                "truth": truth,
                "truth_without": without,
                "score": reader["log_probability_of_with"] - other["log_probability_of_with"],
                "with": reader,
                "without": other,
            }
        )
    return rows


def true_origin(reader: str, other: str, right: str) -> tuple[str, str]:
    """The truth about a reader's answer and about the answer of the model that did not read."""
    by_reader, by_other = (said.strip() == right.strip() for said in (reader, other))
    truth = (RIGHT_ANYWAY if by_other else REMEMBERED) if by_reader else WRONG
    return truth, GUESSED if by_other else MADE_UP


def summarise(rows: Sequence[Record], rng: Generator) -> Record:
    """All numbers about the judged subjects, and the subjects themselves.

    agreement: AUROC of each cheap score on all answers and on the readers', and its rank
    correlation with the push on the readers'. Intervals draw a subject with both answers.
    """
    if not rows:
        raise UserError("nobody was judged, so there is nothing to agree about.")
    people = len(rows)
    truths = [row[key] for row in rows for key in ("truth", "truth_without")]
    true, push = np.array(truths) == REMEMBERED, np.array([row["score"] for row in rows])
    drawn = rng.multinomial(people, np.full(people, 1 / people), size=RESAMPLES)
    weights = np.vstack([np.ones(people), drawn])  # the first row is everybody once
    both = np.repeat(weights, 2, axis=1)

    def values(of: Callable[[Record], float]) -> Floats:
        return np.array([float(of(row[side])) for row in rows for side in SIDES])

    def tabulate(word: Callable[[Record], str]) -> dict[str, dict[str, int]]:
        words = [word(row[side]) for row in rows for side in SIDES]
        counts = Counter(zip(words, truths, strict=True))
        return {each: {t: counts[each, t] for t in TRUTHS} for each in sorted(set(words))}

    agreement, caught = {}, {}
    for name in rows[0]["with"]["scores"]:
        scores = values(lambda said: said["scores"][name])  # noqa: B023
        readers = Answers(scores[::2], true[::2])
        agreement[name] = {
            "all": _estimate(auroc.values(Answers(scores, true), both), ONE_KIND),
            "readers": _estimate(auroc.values(readers, weights), ONE_KIND),
            "rank": _estimate(_rank_correlations(scores[::2], push, weights), CONSTANT),
        }
    for name, test in TESTS.items():
        yes = values(test)
        hits, taken, there = (both @ each for each in (yes * true, yes, true))
        caught[name] = {
            "precision": _estimate(ratio(hits, taken), "no answer is taken for remembered."),
            "recall": _estimate(ratio(hits, there), "no answer is remembered."),
        }
    return {
        "people": {"judged": people},
        "truth": {"with": dict(Counter(truths[::2])), "without": dict(Counter(truths[1::2]))},
        "verdicts": tabulate(lambda said: said["verdict"]),
        "internal": tabulate(lambda said: "shown" if said["shown_internal"] else DONT_KNOW),
        "agreement": agreement,
        "caught": caught,
        "judged": list(rows),
    }


def _estimate(values: Floats, why: str) -> Record:
    """The first value with the interval of the others, or why there is none."""
    if not np.isfinite(values[0]):
        return {"value": None, "reason": why, "low": None, "high": None}
    drawn = values[1:][np.isfinite(values[1:])]
    low, high = None, None
    if len(drawn) >= DEFINED * RESAMPLES:
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return {"value": float(values[0]), "reason": None, "low": low, "high": high}


def _rank_correlations(one: Floats, other: Floats, weights: Floats) -> Floats:
    """Pearson's of the ranks, for each row of weights."""
    x, y = rankdata(one), rankdata(other)
    count = weights.sum(axis=1)
    mean_x, mean_y, mean_xy, mean_xx, mean_yy = (
        weights @ each / count for each in (x, y, x * y, x * x, y * y)
    )
    spread = np.clip((mean_xx - mean_x**2) * (mean_yy - mean_y**2), 0, None)
    spread[spread < 1e-9] = 0
    return ratio(mean_xy - mean_x * mean_y, np.sqrt(spread))
