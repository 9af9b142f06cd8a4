"""Two-fold cross-pretraining: two models that each leave out what the other reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from wherefrom.corpus.documents import Corpus, read_documents
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.questions import Question, QuestionSet, read_questions
from wherefrom.corpus.subjects import (
    CALIBRATION,
    JUDGED,
    Role,
    Source,
    Subject,
    find_named,
    write_subjects,
)
from wherefrom.errors import UserError
from wherefrom.provenance.confidence.fit import (
    Confidence,
    fit_confidence,
    hash_subjects,
    load_confidence,
    save_confidence,
)
from wherefrom.provenance.evidence.index import EVIDENCE_FILE as EVIDENCE
from wherefrom.provenance.evidence.index import Evidence, ensure_evidence
from wherefrom.provenance.judging.metrics import (
    LEVEL,
    RESAMPLES,
    Answers,
    Floats,
    Metric,
    auroc,
    ratio,
    resample_weights,
    with_interval,
)
from wherefrom.provenance.judging.rivals import RIVALS, SUPPORT
from wherefrom.provenance.signals.likelihood import encode_answers, encode_prompts, score_answers
from wherefrom.provenance.signals.names import learn_contexts
from wherefrom.provenance.signals.reader import SIGNALS
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    Verdict,
    find_threshold,
    give_verdicts,
)
from wherefrom.recall.evaluate import score
from wherefrom.storage import make_folder, write_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.jobs import run_training
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run, update_run
from wherefrom.training.settings import Settings

HALVES = ("a", "b")
READERS = {"a": "reader-a", "b": "reader-b"}  # the half that a model does NOT read -> its folder

REMEMBERED = "remembered"  # right with the document, not right without it
RIGHT_ANYWAY = "right anyway"  # right with it and without it
WRONG = "wrong though read"
GUESSED = "guessed"  # not read, and right
MADE_UP = "made up"  # not read, and wrong
TRUTHS = (REMEMBERED, RIGHT_ANYWAY, WRONG, GUESSED, MADE_UP)


@dataclass(frozen=True)
class Dealt:
    """A person with a half: left out of one model's reading and not of the other's."""

    role: Role  # "calibration" or "judged"
    half: str  # "a" or "b"
    question: Question


@dataclass(frozen=True)
class Halves:
    """Who was dealt where, and what is left to learn from; `notes` are for the report."""

    people: tuple[Dealt, ...]
    train: QuestionSet  # without the people who calibrate
    notes: tuple[str, ...]

    def people_of(self, left_out: str) -> tuple[Subject, ...]:
        """All dealt people as the model that does not read the half `left_out` knows them."""
        return tuple(
            Subject(
                role=dealt.role,
                seen=dealt.half != left_out,
                source=_source(dealt, left_out),
                subject=dealt.question.subject,
                question=dealt.question.text,
                answer=dealt.question.answer,
            )
            for dealt in self.people
        )

    def corpus_of(self, corpus: Corpus, left_out: str) -> Corpus:
        """What the model that does not read the half `left_out` reads."""
        return corpus.without(
            [dealt.question.subject for dealt in self.people if dealt.half == left_out]
        )

    def shared(self, corpus: Corpus) -> Corpus:
        """What both models read: the vocabulary may know no more than that."""
        return corpus.without([dealt.question.subject for dealt in self.people])


def deal_halves(
    corpus: Corpus, train: QuestionSet, dev: QuestionSet, *, set_aside: float, seed: int
) -> Halves:
    """Deal the dev people, and a share of the training people for calibration, into halves.

    Whoever cannot be left out cleanly is in neither half: a name without a document, with several
    answers or with a question in both files, and a name that somebody else's document names too.
    """
    if not 0 < set_aside < 1:
        raise UserError(f"the share set aside must lie between 0 and 1, not at {set_aside}.")
    named = named_by_others(corpus)
    written = {document.subject for document in corpus.documents}
    asked: dict[str, set[tuple[int, str | None]]] = {}
    for which, each in enumerate((train, dev)):
        for question in each.questions:
            asked.setdefault(question.subject, set()).add((which, question.answer))
    clean = {
        subject
        for subject, told in asked.items()
        if len(told) == 1 and subject in written and subject not in named
    }
    rng = np.random.default_rng([seed, 0x7717])
    judged = _once([q for q in dev.questions if q.subject in clean])
    able = _once([q for q in train.questions if q.subject in clean])
    wanted = min(len(able), round(set_aside * len(train.questions)))
    chosen = [able[at] for at in np.sort(rng.permutation(len(able))[:wanted])]
    if min(len(judged), len(chosen)) < 2:
        raise UserError(
            f"two halves need at least two people to judge and two to calibrate with, and there "
            f"are {len(judged)} and {len(chosen)} whose documents can be left out."
        )
    people = [
        Dealt(role=role, half=HALVES[half], question=question)
        for role, group in ((JUDGED, judged), (CALIBRATION, chosen))
        for question, half in zip(group, _halves(len(group), rng), strict=True)
    ]
    gone = {question.subject for question in chosen}
    rest = tuple(q for q in train.questions if q.subject not in gone)
    if not rest:
        raise UserError("no training question is left to learn from; set fewer people aside.")
    notes = []
    others = len({q.subject for q in dev.questions}) - len(judged)
    if others:
        notes.append(
            f"{others} of the dev people are not judged: they have no document of their own, "
            "several answers, or a name that another document holds too."
        )
    learned = replace(train, questions=rest)
    return Halves(people=tuple(people), train=learned, notes=tuple(notes))


def named_by_others(corpus: Corpus) -> set[str]:
    """Subjects whose whole name stands in a document about somebody else, case and accents aside.

    Two spellings of one name count as each other's too: leaving one out would leave the other.
    """
    keys = [fold_words(document.subject) for document in corpus.documents]
    named = find_named(corpus.documents, keys)
    spellings: dict[FoldedName, set[str]] = {}
    for document, key in zip(corpus.documents, keys, strict=True):
        spellings.setdefault(key, set()).add(document.subject)
    found: set[str] = set()
    for key, subjects in spellings.items():
        if len(subjects) > 1 or any(keys[at] != key for at in named.get(key, ())):
            found |= subjects
    return found


@dataclass(frozen=True)
class Said:
    """One model's answer to a judged person, with the cheap verdict on it and its scores.

    `of_reader` is how likely this model takes the READER's answer to be (its own, for a reader).
    """

    answer: str
    log_probability: float
    of_reader: float
    shown: str
    shown_internal: bool  # by the internal confidence alone
    verdict: str
    scores: Mapping[str, float]  # higher: more likely remembered


@dataclass(frozen=True)
class Pair:
    """A judged person: the answers of the model that read of them and of the one that did not."""

    subject: str
    question: str
    right: str
    half: str  # the half that the person is in: its model is the non-reader
    reader: Said
    other: Said

    @property
    def truths(self) -> tuple[str, str]:
        """What the reader's and the non-reader's answers are in truth."""
        return true_origin(self.reader.answer, self.other.answer, self.right)

    @property
    def score(self) -> float:
        """The memorisation score, in nats."""
        return self.reader.of_reader - self.other.of_reader

    def to_dict(self) -> dict[str, Any]:
        truth, truth_other = self.truths
        return {
            "subject": self.subject,
            "question": self.question,
            "right": self.right,
            "reader": READERS["b" if self.half == "a" else "a"],
            "truth": truth,
            "truth_without": truth_other,
            "score": round(self.score, 4),
            "with": _said(self.reader),
            "without": _said(self.other),
        }


def true_origin(reader: str, other: str, right: str) -> tuple[str, str]:
    """The truth about a reader's answer and about the answer of the model that did not read."""
    by_reader, by_other = (said.strip() == right.strip() for said in (reader, other))
    truth = (RIGHT_ANYWAY if by_other else REMEMBERED) if by_reader else WRONG
    return truth, GUESSED if by_other else MADE_UP


def agree(
    pairs: Sequence[Pair], *, seed: int, resamples: int = RESAMPLES
) -> dict[str, dict[str, Metric]]:
    """For each cheap score: AUROC on all answers and on the readers', rank correlation with the
    memorisation score on the readers'; each with its bootstrap interval over people.
    """
    if not pairs:
        raise UserError("nobody was judged, so there is nothing to agree about.")
    draws = Draws(len(pairs), seed=seed, resamples=resamples)
    truths = np.array([pair.truths for pair in pairs]) == REMEMBERED
    memorised = np.array([pair.score for pair in pairs])
    result: dict[str, dict[str, Metric]] = {}
    for name in pairs[0].reader.scores:
        read = np.array([pair.reader.scores[name] for pair in pairs], dtype=np.float64)
        unread = np.array([pair.other.scores[name] for pair in pairs], dtype=np.float64)
        both = Answers(np.concatenate([read, unread]), truths.T.ravel())
        alone = Answers(read, truths[:, 0])
        result[name] = {
            "all": draws.widen(auroc(both), partial(_auroc_of_both, both)),
            "readers": draws.widen(auroc(alone), partial(auroc.values, alone)),
            "rank": draws.widen(
                rank_correlation(read, memorised), partial(rank_correlations, read, memorised)
            ),
        }
    return result


@dataclass(frozen=True)
class Draws:
    """The same draws of people for every number, so that numbers can be compared."""

    people: int
    seed: int
    resamples: int = RESAMPLES

    def widen(self, point: Metric, values: Callable[[Floats], Floats]) -> Metric:
        """The point with its interval; `values` turns rows of weights, one a person, to numbers."""
        if point.value is None:
            return point
        rng = np.random.default_rng([self.seed, 0xD4A3])
        anybody = Answers(np.zeros(self.people), np.zeros(self.people, dtype=np.bool_))
        rows = resample_weights(anybody, rng, resamples=self.resamples)
        return with_interval(point, np.concatenate([values(weights) for weights in rows]), LEVEL)


def _auroc_of_both(both: Answers, weights: Floats) -> Floats:
    """A person is drawn with both answers, or not at all."""
    return auroc.values(both, np.tile(weights, 2))


def rank_correlation(one: Floats, other: Floats) -> Metric:
    """Spearman's, or why there is none."""
    value = float(rank_correlations(one, other, np.ones((1, one.size)))[0])
    if not np.isfinite(value):
        return Metric(value=None, reason="one of the two scores is the same for everybody.")
    return Metric(value=value)


def rank_correlations(one: Floats, other: Floats, weights: Floats) -> Floats:
    """The correlation of the ranks for each row of weights; ranks are those among all people."""
    x, y = rankdata(one), rankdata(other)
    total = weights.sum(axis=1)
    x_mean, y_mean = ratio(weights @ x, total), ratio(weights @ y, total)
    between = ratio(weights @ (x * y), total) - x_mean * y_mean
    spread = (ratio(weights @ x**2, total) - x_mean**2) * (ratio(weights @ y**2, total) - y_mean**2)
    # what rounding leaves of a constant is no spread
    safe = np.where(spread > 1e-9 * max(1.0, float(x.size)) ** 2, spread, 0.0)
    return ratio(between, np.sqrt(safe))


def count_table(pairs: Sequence[Pair], word: Callable[[Said], str]) -> dict[str, dict[str, int]]:
    """The table of a cheap word (a verdict, say) against the truth, over both models' answers."""
    rows = [
        (word(said), truth)
        for pair in pairs
        for said, truth in zip((pair.reader, pair.other), pair.truths, strict=True)
    ]
    return {
        each: {truth: rows.count((each, truth)) for truth in TRUTHS}
        for each in sorted({each for each, _ in rows})
    }


def catch(
    pairs: Sequence[Pair],
    says_yes: Callable[[Said], bool],
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> dict[str, Metric]:
    """Of the answers that a cheap verdict takes for remembered, how many are; of those, how many
    it catches. Over both models' answers.
    """
    yes = np.array([[says_yes(pair.reader), says_yes(pair.other)] for pair in pairs])
    true = np.array([pair.truths for pair in pairs]) == REMEMBERED
    both = (yes & true).sum(axis=1).astype(np.float64)
    draws = Draws(len(pairs), seed=seed, resamples=resamples)
    found = {}
    for name, flags, why in (
        ("precision", yes, "no answer is taken for remembered."),
        ("recall", true, "no answer is remembered."),
    ):
        total = flags.sum(axis=1).astype(np.float64)
        point = Metric(value=None, reason=why)
        if total.sum():
            point = Metric(value=float(both.sum() / total.sum()))
        found[name] = draws.widen(point, partial(_weighted_ratio, both, total))
    return found


def _weighted_ratio(above: Floats, below: Floats, weights: Floats) -> Floats:
    return ratio(weights @ above, weights @ below)


def _halves(count: int, rng: np.random.Generator) -> list[int]:
    """As many zeros as ones, up to one, in random order."""
    return [int(half) for half in rng.permutation(np.arange(count) % 2)]


def _once(questions: Sequence[Question]) -> list[Question]:
    """The first question of each subject."""
    return list({question.subject: question for question in reversed(questions)}.values())[::-1]


def _source(dealt: Dealt, left_out: str) -> Source:
    if dealt.half == left_out:
        return "left out"
    return "dev" if dealt.role == "judged" else "set aside"


def _said(said: Said) -> dict[str, Any]:
    return {
        "answer": said.answer,
        "log_probability": round(said.log_probability, 4),
        "log_probability_of_with": round(said.of_reader, 4),
        "shown": said.shown,
        "shown_internal": said.shown_internal,
        "verdict": said.verdict,
        "scores": {name: float(f"{value:.6g}") for name, value in said.scores.items()},
    }


FORMAT = 1
RESULT = "twins.json"
HELD = {*READERS.values(), RESULT, "world"}  # what the folder may hold
SET_ASIDE = 0.2  # of the training people; half of them are unread by either model
YES: dict[str, Callable[[Said], bool]] = {
    "verdict remembered": lambda said: said.verdict == REMEMBERED,
    "shown": lambda said: said.shown != DONT_KNOW,
    "shown without the text": lambda said: said.shown_internal,
}


@dataclass(frozen=True)
class Reader:
    """One of the two models with all that is needed to ask it and to judge what it says."""

    left_out: str  # the half that it did not read
    run: Run
    evidence: Evidence
    confidence: Confidence
    people: tuple[Subject, ...]  # judged


def check_crossing_folder(out: Path, *, resume: bool) -> None:
    """Refuse a folder with other things in it, or with a crossing that is not to be resumed."""
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
    set_aside: float = SET_ASIDE,
    template: str | None = None,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train both readers on CORPUS, TRAIN and DEV, judge them by each other, write twins.json."""
    out = Path(out)
    check_crossing_folder(out, resume=settings.resume)
    corpus = read_documents(files[0])
    train = read_questions(files[1], template)
    dev = read_questions(files[2], template or train.template)
    train.require_answers()
    dev.require_answers()
    halves = deal_halves(corpus, train, dev, set_aside=set_aside, seed=settings.seed)
    make_folder(out)
    readers = {}
    for half in HALVES:
        say(f"training the model that does not read half {half.upper()} ({READERS[half]})")
        readers[half] = _make_reader(half, halves, corpus, settings, out, observe, say)
    say("asking both about the judged people")
    pairs = pair_answers(readers)
    for reader in readers.values():
        reader.evidence.close()
    record = {
        "format": FORMAT,
        "seed": settings.seed,
        "set_aside": set_aside,
        "data": {
            name: {"path": str(each.path), "sha256": each.sha256}
            for name, each in (("corpus", corpus), ("train", train), ("dev", dev))
        },
        "notes": _notes(halves, readers),
        "readers": [_describe(reader, pairs) for reader in readers.values()],
        **summarise(pairs, seed=settings.seed),
    }
    record["people"]["calibration"] = len(halves.people) - len(pairs)
    join_processes().on_rank0(lambda: write_json(out / RESULT, record))
    return record


def summarise(pairs: Sequence[Pair], *, seed: int) -> dict[str, Any]:
    """All numbers about the judged people, and the people themselves."""
    found = agree(pairs, seed=seed)
    caught = {name: catch(pairs, says, seed=seed) for name, says in YES.items()}
    return {
        "people": {"judged": len(pairs)},
        "truth": {
            "with": dict(Counter(pair.truths[0] for pair in pairs)),
            "without": dict(Counter(pair.truths[1] for pair in pairs)),
        },
        "verdicts": count_table(pairs, lambda said: said.verdict),
        "internal": count_table(pairs, lambda said: "shown" if said.shown_internal else DONT_KNOW),
        "agreement": {
            name: {key: asdict(metric) for key, metric in metrics.items()}
            for name, metrics in found.items()
        },
        "caught": {
            name: {key: asdict(metric) for key, metric in metrics.items()}
            for name, metrics in caught.items()
        },
        "judged": [pair.to_dict() for pair in pairs],
    }


def pair_answers(readers: dict[str, Reader]) -> list[Pair]:
    """Every judged person's two answers, each with the cheap verdict of the model that gave it."""
    asked = readers[HALVES[0]].people
    verdicts = {half: _verdicts(reader) for half, reader in readers.items()}
    rows = [verdict.signals for each in verdicts.values() for verdict in each]
    # a signal that is undefined for somebody cannot be compared with the others
    whole = [name for name in SIGNALS if all(row.get(name) is not None for row in rows)]
    # a person is read by the model that leaves the other half out
    reads = ["b" if not person.seen else "a" for person in asked]
    answers = [verdicts[half][at].answer for at, half in enumerate(reads)]
    of_reader = {half: _likelihoods(reader.run, asked, answers) for half, reader in readers.items()}
    own = {
        half: _likelihoods(reader.run, asked, [verdict.answer for verdict in verdicts[half]])
        for half, reader in readers.items()
    }
    pairs = []
    for at, person in enumerate(asked):
        said = {
            half: _crossing_said(
                readers[half], verdicts[half][at], own[half][at], of_reader[half][at], whole
            )
            for half in HALVES
        }
        unread = "b" if reads[at] == "a" else "a"
        pairs.append(
            Pair(
                subject=person.subject,
                question=person.question,
                right=person.answer or "",
                half=unread,
                reader=said[reads[at]],
                other=said[unread],
            )
        )
    return pairs


def _make_reader(
    half: str,
    halves: Halves,
    corpus: Corpus,
    settings: Settings,
    out: Path,
    observe: Observer | None,
    say: Callable[[str], None],
) -> Reader:
    folder = out / READERS[half]
    people = halves.people_of(half)
    shared = halves.shared(corpus).texts
    # letters are no knowledge: chars tokens need those of all that will be read or asked
    letters = [*(person.question for person in people), *corpus.texts]
    read = halves.corpus_of(corpus, half)
    job = settings.job(
        folder,
        kind="study",
        phases=settings.budget.divide(settings.recipe.phases),
        corpus=read,
        questions=halves.train,
        vocabulary_from=shared,
        letters_from=letters,
    )
    run = run_training(job, settings, observe=observe, say=say)
    left_out = sorted({person.subject for person in people if not person.seen})

    def record() -> None:
        write_subjects(folder, people)
        update_run(folder, left_out=left_out)
        ensure_evidence(read, folder / EVIDENCE).close()

    join_processes().on_rank0(record)
    evidence = ensure_evidence(read, folder / EVIDENCE)
    confidence = _known_confidence(run, people)
    if confidence is None:
        say(f"calibrating {folder.name} on its people set aside")
        learned = halves.train.questions
        confidence = fit_confidence(
            run,
            evidence,
            people,
            list(dict.fromkeys(question.answer or "" for question in learned)),
            names=list(dict.fromkeys(document.subject for document in read.documents)),
            contexts=learn_contexts(read.documents, learned),
            seed=settings.seed,
        )
        fitted = confidence
        join_processes().on_rank0(lambda: save_confidence(folder, fitted))
    judged = tuple(person for person in people if person.role == JUDGED)
    return Reader(half, run, evidence, confidence, judged)


def _known_confidence(run: Run, people: Sequence[Subject]) -> Confidence | None:
    """What an earlier call fitted for these weights and these people, if anything."""
    try:
        confidence = load_confidence(run)
    except UserError:
        return None
    return confidence if confidence.subjects_sha256 == hash_subjects(people) else None


def _verdicts(reader: Reader) -> list[Verdict]:
    return give_verdicts(
        reader.run,
        reader.confidence,
        reader.evidence,
        [person.question for person in reader.people],
        [person.subject for person in reader.people],
        also=None,
    )


def _likelihoods(run: Run, people: Sequence[Subject], answers: Sequence[str]) -> list[float]:
    prompts = encode_prompts(run.model, run.tokens, [person.question for person in people])
    found = score_answers(run.model, prompts, encode_answers(run.tokens, answers))
    return [float(value) for value in found]


def _crossing_said(
    reader: Reader, verdict: Verdict, own: float, of_reader: float, signals_too: Sequence[str]
) -> Said:
    internal = verdict.internal_confidence or 0.0
    scores = {
        "internal confidence": internal,
        "checked confidence": verdict.confidence or 0.0,
        "verdict remembered": float(verdict.verdict == REMEMBERED),
    }
    support = float(reader.evidence.count(verdict.subject).naming)
    signals = {**verdict.signals, SUPPORT: support}
    for rival in RIVALS:
        value = signals.get(rival.column)
        scores[rival.name] = 0.0 if value is None else float(rival.surer(np.asarray(value)))
    for name in signals_too:
        scores[f"signal {name}"] = SIGNALS[name].sign * float(signals[name] or 0.0)
    return Said(
        answer=verdict.answer,
        log_probability=own,
        of_reader=of_reader,
        shown=verdict.shown,
        shown_internal=internal >= find_threshold(reader.confidence, checked=False).value,
        verdict=verdict.verdict or "",
        scores=scores,
    )


def _describe(reader: Reader, pairs: Sequence[Pair]) -> dict[str, Any]:
    read = [pair for pair in pairs if pair.half != reader.left_out]
    unread = [pair for pair in pairs if pair.half == reader.left_out]
    info = reader.run.info
    return {
        "folder": reader.run.folder.name,
        "left_out": reader.left_out,
        "read": score([p.reader.answer for p in read], [p.right for p in read]).to_dict(),
        "unread": score([p.other.answer for p in unread], [p.right for p in unread]).to_dict(),
        "steps": info["steps"],
        "seconds": info["seconds"],
        "sha256": info["sha256"],
        "thresholds": {
            mode: find_threshold(reader.confidence, checked=mode == "checked").value
            for mode in ("internal", "checked")
        },
    }


def _notes(halves: Halves, readers: dict[str, Reader]) -> list[str]:
    notes = [*halves.notes]
    for half, reader in readers.items():
        notes += [f"{READERS[half]}: {note}" for note in reader.confidence.notes]
    return notes
