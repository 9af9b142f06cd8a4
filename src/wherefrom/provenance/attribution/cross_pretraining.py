"""Two-fold cross-pretraining: two models that each leave out what the other reads.

Every judged subject is read by one model, its reader, and not by the other. An answer is
remembered in truth if it is right with the documents and not without them; what the cheap scores
of one model say about that is measured against it (docs/twins.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from wherefrom.corpus.documents import Corpus, read_documents
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import QuestionSet, read_questions
from wherefrom.corpus.subjects import (
    CALIBRATION,
    DEV,
    JUDGED,
    LEFT_OUT,
    SET_ASIDE,
    Split,
    Subject,
    SubjectIndex,
    write_subjects,
)
from wherefrom.errors import UserError
from wherefrom.provenance.after_training import ensure_confidence
from wherefrom.provenance.confidence.fit import Confidence
from wherefrom.provenance.evidence.index import EVIDENCE_FILE, Evidence, ensure_evidence
from wherefrom.provenance.judging.judge import RIVALS, SUPPORT
from wherefrom.provenance.metrics import (
    Answers,
    Bootstrap,
    Floats,
    Metric,
    auroc,
    ratio,
)
from wherefrom.provenance.signals.likelihood import encode_answers, encode_prompts, score_answers
from wherefrom.provenance.signals.reader import SIGNS
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    GUESSED,
    MADE_UP,
    REMEMBERED,
    Verdict,
    give_verdicts,
)
from wherefrom.recall.evaluate import score
from wherefrom.storage import make_folder, write_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.jobs import run_training
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Settings

FORMAT = 1
RESULT = "twins.json"
HALVES = ("a", "b")
READERS = {"a": "reader-a", "b": "reader-b"}  # the half that a model does NOT read -> its folder
HELD = {*READERS.values(), RESULT, "world"}  # what the folder may hold
SHARE = 0.2  # of the training subjects, set aside; half of them are unread by either model

# in truth: REMEMBERED is right with the documents and not without them, RIGHT_ANYWAY with and
# without them; of what was not read, GUESSED is right and MADE_UP is wrong
RIGHT_ANYWAY, WRONG = "right anyway", "wrong though read"
TRUTHS = (REMEMBERED, RIGHT_ANYWAY, WRONG, GUESSED, MADE_UP)

Row = dict[str, Any]  # a judged subject as twins.json has it: "with" is the reader, "without" not
# what takes an answer of one model for remembered, and is tested as such
TESTS: dict[str, Callable[[Row], bool]] = {
    "verdict remembered": lambda said: said["verdict"] == REMEMBERED,
    "shown": lambda said: said["shown"] != DONT_KNOW,
    "shown without the text": lambda said: said["shown_internal"],
}


def draw_halves(
    corpus: Corpus, train: QuestionSet, dev: QuestionSet, *, set_aside: float, seed: int
) -> dict[str, Split]:
    """Draw the dev subjects, and a share of the training ones for calibration, into halves.

    The result is, by the half that a model does not read, what that model reads and learns, and
    all drawn subjects as it knows them.

    A subject that cannot be left out cleanly is in neither half: one without a document, with
    several answers, with a question in both files, or that another subject's document names.
    """
    if not 0 < set_aside < 1:
        raise UserError(f"the share set aside must lie between 0 and 1, not at {set_aside}.")
    index = SubjectIndex(corpus, {"train": train, "dev": dev})
    judged, able = (
        [index.asked(file, name) for name in index.separable(file)] for file in ("dev", "train")
    )
    rng = np.random.default_rng([seed, 0x7717])
    wanted = min(len(able), round(set_aside * len(index.questions["train"])))
    chosen = [able[at] for at in np.sort(rng.permutation(len(able))[:wanted])]
    if min(len(judged), len(chosen)) < 2:
        raise UserError(
            f"two halves need at least two people to judge and two to calibrate with, and there "
            f"are {len(judged)} and {len(chosen)} whose documents can be left out."
        )
    gone = {fold_words(questions[0].subject) for questions in chosen}
    rest = tuple(q for q in train.questions if fold_words(q.subject) not in gone)
    if not rest:
        raise UserError("no training question is left to learn from; set fewer people aside.")
    others = len(index.questions["dev"]) - len(judged)
    note = (
        f"{others} of the dev people are not judged: they have no document of their own, several "
        "answers, or a name that another document holds too."
    )
    drawn = [
        (Subject(role, True, source, q.subject, q.text, q.answer, q.template), HALVES[half])
        for role, source, group in ((JUDGED, DEV, judged), (CALIBRATION, SET_ASIDE, chosen))
        for asked, half in zip(group, rng.permutation(np.arange(len(group)) % 2), strict=True)
        for q in asked
    ]
    splits = {}
    for unread in HALVES:
        subjects = tuple(
            replace(one, seen=False, source=LEFT_OUT) if half == unread else one
            for one, half in drawn
        )
        names = {fold_words(each.subject) for each in subjects if not each.seen}
        spellings = {d.subject for d in corpus.documents if fold_words(d.subject) in names}
        left_out = tuple(sorted(spellings))
        splits[unread] = Split(
            train=replace(train, questions=rest),
            corpus=corpus.without(left_out),
            subjects=subjects,
            notes=(note,) if others else (),
            left_out=left_out,
        )
    return splits


@dataclass(frozen=True)
class Reader:
    """One of the two models with all that is needed to ask it and to judge what it says."""

    unread: str  # the half that it did not read
    run: Run
    evidence: Evidence
    confidence: Confidence
    judged: tuple[Subject, ...]


def check_twins_folder(out: Path, *, resume: bool) -> None:
    """Refuse a folder with other things in it, or with twins that are not to be resumed."""
    if not out.exists():
        return
    inside = {path.name for path in out.iterdir()} if out.is_dir() else {out.name}
    strange = sorted(name for name in inside - HELD if not name.startswith(f".{RESULT}."))
    if strange:
        raise UserError(f"{out} holds {strange[0]}, which is not of twins; choose another --out.")
    if inside & {RESULT, *READERS.values()} and not resume:
        raise UserError(
            f"{out} already holds twins; add --resume to go on with them, or choose another --out."
        )


def cross_pretrain(
    files: tuple[Path, Path, Path],
    settings: Settings,
    out: str | Path,
    *,
    set_aside: float = SHARE,
    templates: Sequence[str] = (),
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train both readers on CORPUS, TRAIN and DEV, judge them by each other, write twins.json."""
    out = Path(out)
    check_twins_folder(out, resume=settings.resume)
    corpus = read_documents(files[0])
    subjects = [document.subject for document in corpus.documents]
    train = read_questions(files[1], templates, subjects=subjects)
    dev = read_questions(files[2], train.templates, subjects=subjects)
    train.require_answers()
    dev.require_answers()
    splits = draw_halves(corpus, train, dev, set_aside=set_aside, seed=settings.seed)
    make_folder(out)
    readers = {}
    for half in HALVES:
        say(f"training the model that does not read half {half.upper()} ({READERS[half]})")
        readers[half] = _train_reader(half, splits[half], corpus, settings, out, observe, say)
    say("asking both about the judged people")
    rows = pair_answers(readers)
    for reader in readers.values():
        reader.evidence.close()
    notes = [
        f"{READERS[half]}: {note}"
        for half, reader in readers.items()
        for note in reader.confidence.notes
    ]
    sources: dict[str, Corpus | QuestionSet] = {"corpus": corpus, "train": train, "dev": dev}
    record = {
        "format": FORMAT,
        "seed": settings.seed,
        "set_aside": set_aside,
        "data": {k: {"path": str(s.path), "sha256": s.sha256} for k, s in sources.items()},
        "notes": [*splits["a"].notes, *notes],
        "readers": [_describe(reader, rows) for reader in readers.values()],
        **summarise(rows, Bootstrap(seed=(settings.seed, 0xD4A3))),
    }
    record["people"]["calibration"] = len(splits["a"].subjects) - len(rows)
    join_processes().on_rank0(lambda: write_json(out / RESULT, record))
    return record


def _train_reader(
    half: str,
    split: Split,
    corpus: Corpus,
    settings: Settings,
    out: Path,
    observe: Observer | None,
    say: Callable[[str], None],
) -> Reader:
    """The model that does not read this half, calibrated on its own subjects set aside."""
    folder, processes = out / READERS[half], join_processes()
    job = settings.job(
        folder,
        kind="study",
        phases=settings.budget.divide(settings.recipe.phases),
        corpus=split.corpus,
        questions=split.train,
        # the vocabulary may know no more than what both models read
        vocabulary_from=corpus.without([each.subject for each in split.subjects]).texts,
        # letters are no knowledge: chars tokens need those of all that will be read or asked
        letters_from=[*(each.question for each in split.subjects), *corpus.texts],
        details={"left_out": list(split.left_out)},
    )
    run = run_training(job, settings, observe=observe, say=say)
    processes.on_rank0(lambda: write_subjects(folder, split.subjects))
    processes.on_rank0(
        lambda: ensure_evidence(split.corpus, folder / EVIDENCE_FILE, split.train.questions).close()
    )
    evidence = ensure_evidence(split.corpus, folder / EVIDENCE_FILE, split.train.questions)
    confidence = ensure_confidence(
        run, evidence, replace(split, notes=()), seed=settings.seed, say=say
    )
    return Reader(half, run, evidence, confidence, tuple(split.with_role(JUDGED)))


def pair_answers(readers: dict[str, Reader]) -> list[Row]:
    """Every judged subject's two answers, each with the cheap verdict of the model that gave it."""
    asked = readers["a"].judged
    questions, subjects = [each.question for each in asked], [each.subject for each in asked]
    verdicts = {
        half: give_verdicts(
            each.run, each.confidence, each.evidence, questions, subjects, also=None
        )
        for half, each in readers.items()
    }
    # log p by one model of the answers of the same or of the other
    likely = {
        (by, of): likelihoods(reader.run, questions, [each.answer for each in verdicts[of]])
        for by, reader in readers.items()
        for of in HALVES
    }
    signals = [verdict.signals for each in verdicts.values() for verdict in each]
    # a signal that is undefined for somebody cannot be compared with the others
    whole = [name for name in SIGNS if all(row.get(name) is not None for row in signals)]
    rows = []
    for at, subject in enumerate(asked):
        # a subject is read by the model that leaves the other half out
        read, unread = ("a", "b") if subject.seen else ("b", "a")
        answers = {
            side: {
                "answer": verdicts[half][at].answer,
                "log_probability": likely[half, half][at],
                "log_probability_of_with": likely[half, read][at],
                **_judge_cheaply(readers[half], verdicts[half][at], whole),
            }
            for side, half in (("with", read), ("without", unread))
        }
        right = subject.answer or ""
        truths = true_origin(answers["with"]["answer"], answers["without"]["answer"], right)
        rows.append(
            {
                "subject": subject.subject,
                "question": subject.question,
                "right": right,
                "reader": READERS[read],
                "truth": truths[0],
                "truth_without": truths[1],
                "score": likely[read, read][at] - likely[unread, read][at],
                **answers,
            }
        )
    return rows


def true_origin(reader: str, other: str, right: str) -> tuple[str, str]:
    """The truth about a reader's answer and about the answer of the model that did not read."""
    by_reader, by_other = (said.strip() == right.strip() for said in (reader, other))
    truth = (RIGHT_ANYWAY if by_other else REMEMBERED) if by_reader else WRONG
    return truth, GUESSED if by_other else MADE_UP


def likelihoods(run: Run, questions: Sequence[str], answers: Sequence[str]) -> list[float]:
    """log p of each answer to its question, with the mark that ends it."""
    prompts = encode_prompts(run.model, run.tokens, questions)
    found = score_answers(run.model, prompts, encode_answers(run.tokens, answers))
    return [float(value) for value in found]


def _judge_cheaply(reader: Reader, verdict: Verdict, signals: Sequence[str]) -> Row:
    """What one model alone gives away about its answer; higher scores: likelier remembered."""
    internal = verdict.internal_confidence or 0.0
    scores = {
        "internal confidence": internal,
        "checked confidence": verdict.confidence or 0.0,
        "verdict remembered": float(verdict.verdict == REMEMBERED),
    }
    naming = float(reader.evidence.count(verdict.subject).naming)
    for name, ((column, *_), _) in RIVALS.items():
        value = naming if column == SUPPORT else verdict.signals.get(column)
        scores[name] = SIGNS.get(column, 1) * (-1e3 if value is None else value)
    for name in signals:
        scores[f"signal {name}"] = SIGNS[name] * float(verdict.signals[name] or 0.0)
    return {
        "shown": verdict.shown,
        "shown_internal": verdict.shown_internal,
        "verdict": verdict.verdict or "",
        "scores": scores,
    }


def summarise(rows: Sequence[Row], bootstrap: Bootstrap) -> dict[str, Any]:
    """All numbers about the judged subjects, and the subjects themselves."""
    return {
        "people": {"judged": len(rows)},
        "truth": {
            "with": dict(Counter(row["truth"] for row in rows)),
            "without": dict(Counter(row["truth_without"] for row in rows)),
        },
        "verdicts": count_table(rows, lambda said: said["verdict"]),
        "internal": count_table(rows, lambda s: "shown" if s["shown_internal"] else DONT_KNOW),
        "agreement": measure_agreement(rows, bootstrap),
        "caught": {name: measure_test(rows, test, bootstrap) for name, test in TESTS.items()},
        "judged": list(rows),
    }


def count_table(rows: Sequence[Row], word: Callable[[Row], str]) -> dict[str, dict[str, int]]:
    """The table of a cheap word (a verdict, say) against the truth, over both models' answers."""
    pairs = [(word(row["with"]), row["truth"]) for row in rows]
    pairs += [(word(row["without"]), row["truth_without"]) for row in rows]
    words = sorted({word for word, _ in pairs})
    return {each: {truth: pairs.count((each, truth)) for truth in TRUTHS} for each in words}


def _remembered(rows: Sequence[Row]) -> np.ndarray:
    """(n, 2): whether each answer, with and without the documents, is remembered in truth."""
    return np.array([(row["truth"], row["truth_without"]) for row in rows]) == REMEMBERED


def measure_agreement(rows: Sequence[Row], bootstrap: Bootstrap) -> dict[str, dict[str, Any]]:
    """For each cheap score: AUROC on all answers and on the readers', rank correlation with the
    memorisation score on the readers'; each with its interval over subjects.
    """
    if not rows:
        raise UserError("nobody was judged, so there is nothing to agree about.")
    truths = _remembered(rows)
    memorised = np.array([row["score"] for row in rows])
    found = {}
    for name in rows[0]["with"]["scores"]:
        read, unread = (
            np.array([row[side]["scores"][name] for row in rows], dtype=np.float64)
            for side in ("with", "without")
        )
        both = Answers(np.concatenate([read, unread]), truths.T.ravel())
        readers = Answers(read, truths[:, 0])
        rank = float(rank_correlations(read, memorised, np.ones((1, len(rows))))[0])
        ranked = Metric(value=None, reason="one of the two scores is the same for everybody.")
        points = {
            "all": auroc(both),
            "readers": auroc(readers),
            "rank": Metric(value=rank) if np.isfinite(rank) else ranked,
        }
        formulas: dict[str, Callable[[Floats], Floats]] = {
            "all": partial(_auroc_of_pairs, both),
            "readers": partial(auroc.values, readers),
            "rank": partial(rank_correlations, read, memorised),
        }
        metrics = bootstrap.intervals(points, formulas, len(rows))
        found[name] = {key: asdict(metric) for key, metric in metrics.items()}
    return found


def _auroc_of_pairs(both: Answers, weights: Floats) -> Floats:
    """A subject is drawn with both answers, or not at all."""
    return auroc.values(both, np.tile(weights, 2))


def rank_correlations(one: Floats, other: Floats, weights: Floats) -> Floats:
    """Spearman's for each row of weights; ranks are those among all subjects."""
    x, y = rankdata(one), rankdata(other)
    total = weights.sum(axis=1)
    x_mean, y_mean = ratio(weights @ x, total), ratio(weights @ y, total)
    between = ratio(weights @ (x * y), total) - x_mean * y_mean
    spread = (ratio(weights @ x**2, total) - x_mean**2) * (ratio(weights @ y**2, total) - y_mean**2)
    # what rounding leaves of a constant is no spread
    safe = np.where(spread > 1e-9 * max(1.0, float(x.size)) ** 2, spread, 0.0)
    return ratio(between, np.sqrt(safe))


def measure_test(
    rows: Sequence[Row], test: Callable[[Row], bool], bootstrap: Bootstrap
) -> dict[str, Any]:
    """Precision and recall of a cheap test for being remembered, over both models' answers."""
    yes = np.array([(test(row["with"]), test(row["without"])) for row in rows])
    true = _remembered(rows)
    both = (yes & true).sum(axis=1).astype(np.float64)
    totals = {"precision": yes.sum(axis=1), "recall": true.sum(axis=1)}
    why = {"precision": "no answer is taken for remembered.", "recall": "no answer is remembered."}
    points = {
        name: Metric(value=float(both.sum() / total.sum()))
        if total.any()
        else Metric(value=None, reason=why[name])
        for name, total in totals.items()
    }
    formulas: dict[str, Callable[[Floats], Floats]] = {
        name: partial(_weighted_ratio, both, total) for name, total in totals.items()
    }
    found = bootstrap.intervals(points, formulas, len(rows))
    return {name: asdict(metric) for name, metric in found.items()}


def _weighted_ratio(above: Floats, below: Floats, weights: Floats) -> Floats:
    return ratio(weights @ above, weights @ below)


def _describe(reader: Reader, rows: Sequence[Row]) -> dict[str, Any]:
    read = [row for row in rows if row["reader"] == reader.run.folder.name]
    unread = [row for row in rows if row["reader"] != reader.run.folder.name]
    return {
        "folder": reader.run.folder.name,
        "left_out": reader.unread,
        "read": score([r["with"]["answer"] for r in read], [r["right"] for r in read]).to_dict(),
        "unread": score(
            [r["without"]["answer"] for r in unread], [r["right"] for r in unread]
        ).to_dict(),
        **{key: reader.run.info[key] for key in ("steps", "seconds", "sha256")},
        "thresholds": {
            mode: reader.confidence.guarantee(checked=mode == "checked").used
            for mode in ("internal", "checked")
        },
    }
