"""Two-fold cross-pretraining: two models that each leave out what the other reads, and the truth.

DIR/reader-a reads all documents but those of half A's people, DIR/reader-b all but half B's; both
learn the same questions, with a vocabulary made of what both read. Each is a run folder as a study
leaves it (people.jsonl, evidence.sqlite, calibration.json, twins/scratch), calibrated on its own
people set aside: those of the other half, whom it read, and those of its own, whom it did not.

DIR/twins.json holds what was found:

    format, seed, set_aside, data, notes
    readers     [{folder, left_out, read, unread, steps, seconds, sha256, thresholds}]: recall on
                the judged people it read of and on those it did not
    people      {judged, calibration}
    truth       {with, without}: how many answers of readers and non-readers are what in truth
    verdicts    {verdict: {truth: count}}, all answers of both models
    internal    the same for "told" and "I don't know" by the internal confidence alone
    agreement   {score: {all, readers, rank}}: AUROC for remembered against not, over all answers
                and over readers' alone; rank correlation with the memorisation score
    caught      {verdict remembered, told, told by internal confidence: {precision, recall}}
    judged      one record a person: subject, question, right, reader (folder), truth,
                truth_without, score, with and without {answer, log_probability,
                log_probability_of_with, told, sure, verdict, scores}

Numbers with an interval are {value, low, high, reason}.
"""

from __future__ import annotations

import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.documents import Corpus, read_documents
from wherefrom.corpus.people import JUDGED, Person, write_people
from wherefrom.corpus.questions import QuestionSet, read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.confidence import (
    TWIN,
    Confidence,
    fit_confidence,
    hash_people,
    load_confidence,
    save_confidence,
)
from wherefrom.provenance.evidence import Evidence, ensure_evidence
from wherefrom.provenance.likelihood import encode_answers, encode_prompts, score_answers
from wherefrom.provenance.openings import learn_contexts
from wherefrom.provenance.rivals import RIVALS, SUPPORT
from wherefrom.provenance.run_evidence import NAME as EVIDENCE
from wherefrom.provenance.signals import SIGNALS
from wherefrom.provenance.twins import (
    HALVES,
    READERS,
    Halves,
    Pair,
    Said,
    agree,
    catch,
    count_table,
    deal_halves,
)
from wherefrom.provenance.verdicts import (
    DONT_KNOW,
    REMEMBERED,
    Verdict,
    find_threshold,
    give_verdicts,
)
from wherefrom.recall.evaluate import score
from wherefrom.storage import make_folder, write_json
from wherefrom.training.jobs import Lesson, Settings, teach
from wherefrom.training.loop import Observer
from wherefrom.training.processes import join_processes
from wherefrom.training.run import Run, update_run

FORMAT = 1
RESULT = "twins.json"
HELD = {*READERS.values(), RESULT, "world"}  # what the folder may hold
SET_ASIDE = 0.2  # of the training people; half of them are unread by either model
YES: dict[str, Callable[[Said], bool]] = {
    "verdict remembered": lambda said: said.verdict == REMEMBERED,
    "told": lambda said: said.told != DONT_KNOW,
    "told by internal confidence": lambda said: said.sure,
}


@dataclass(frozen=True)
class Reader:
    """One of the two models with all that is needed to ask it and to judge what it says."""

    left_out: str  # the half that it did not read
    run: Run
    evidence: Evidence
    confidence: Confidence
    people: tuple[Person, ...]  # judged


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
    join_processes().lead(lambda: write_json(out / RESULT, record))
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
        "internal": count_table(pairs, lambda said: "told" if said.sure else DONT_KNOW),
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
            half: _said(
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
    twin = _scratch_twin(half, halves.train, shared, letters, settings, out, observe)
    read = halves.corpus_of(corpus, half)
    lesson = Lesson(
        kind="study",
        phases=settings.budget.divide(settings.recipe.phases),
        corpus=read,
        questions=halves.train,
        vocabulary_from=shared,
        asked=letters,
    )
    run = teach(lesson, settings, folder, observe=observe)
    left_out = sorted({person.subject for person in people if not person.seen})

    def record() -> None:
        write_people(folder, people)
        update_run(folder, left_out=left_out)
        ensure_evidence(read, folder / EVIDENCE).close()

    join_processes().lead(record)
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
            twin=twin,
            seed=settings.seed,
        )
        fitted = confidence
        join_processes().lead(lambda: save_confidence(folder, fitted))
    judged = tuple(person for person in people if person.role == JUDGED)
    return Reader(half, run, evidence, confidence, judged)


def _scratch_twin(
    half: str,
    train: QuestionSet,
    shared: Sequence[str],
    letters: Sequence[str],
    settings: Settings,
    out: Path,
    observe: Observer | None,
) -> Run:
    """The twin without pretraining: it has read neither half, so one serves both readers."""
    lesson = Lesson(
        kind="scratch",
        phases=settings.budget.divide([settings.recipe.scratch], whole=False),
        questions=train,
        vocabulary_from=shared,
        asked=letters,
    )
    first, folder = out / READERS[HALVES[0]] / TWIN, out / READERS[half] / TWIN
    if folder != first and not folder.exists():

        def copy() -> None:
            make_folder(folder.parent)
            copied = folder.parent / f".{folder.name}.{secrets.token_hex(8)}"
            shutil.copytree(first, copied)
            copied.rename(folder)

        join_processes().lead(copy)
        settings = replace(settings, resume=True)
    return teach(lesson, settings, folder, observe=observe)


def _known_confidence(run: Run, people: Sequence[Person]) -> Confidence | None:
    """What an earlier call fitted for these weights and these people, if anything."""
    try:
        confidence = load_confidence(run)
    except UserError:
        return None
    return confidence if confidence.people_sha256 == hash_people(people) else None


def _verdicts(reader: Reader) -> list[Verdict]:
    return give_verdicts(
        reader.run,
        reader.confidence,
        reader.evidence,
        [person.question for person in reader.people],
        [person.subject for person in reader.people],
        also=None,
    )


def _likelihoods(run: Run, people: Sequence[Person], answers: Sequence[str]) -> list[float]:
    prompts = encode_prompts(run.model, run.tokens, [person.question for person in people])
    found = score_answers(run.model, prompts, encode_answers(run.tokens, answers))
    return [float(value) for value in found]


def _said(
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
        told=verdict.told,
        sure=internal >= find_threshold(reader.confidence, checked=False).value,
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
