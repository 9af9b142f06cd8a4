"""What follows training, stage by stage: subjects, evidence, confidence, judgement, names.

Each stage leaves a file in the run folder, and keeps one that was made from the same subjects and
weights. So a study can be stopped anywhere after its training, and a finished one repeats its
numbers at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from wherefrom.corpus.database import RUN_DATABASE
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT
from wherefrom.corpus.split import (
    CALIBRATION,
    FITTING,
    INVENTED,
    JUDGED,
    TEXT,
    HeldOutQuestion,
    Split,
    invent_names,
    read_subjects,
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
from wherefrom.provenance.evidence import Evidence, save_database
from wherefrom.provenance.judging import NUMBERS_FILE, judge_run, write_judgement
from wherefrom.provenance.names import STUDY_FILE, place_relation, probe_run
from wherefrom.provenance.signals.reader import learn_windows
from wherefrom.storage import format_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.memory import trim_memory
from wherefrom.training.record import (
    find_problem,
    keep_files,
    read_record,
    update_database,
    update_run,
)
from wherefrom.training.run_folder import Run

Say = Callable[[str], None]
MAX_TEXT_SUBJECTS = 800  # most subjects of the text without a question that help to fit
UNSEEN_SUBJECTS = 1_000  # unseen subjects in all; names are invented until there are so many,
MAX_UNSEEN_PER_CALIBRATING = 5  # but at most so many for each subject that calibrates
SAY_SECONDS = 2.0  # seconds between estimates of how long a stage still takes
NAMES_PER_ORIGIN = 8  # invented names of each origin; `wherefrom names` asks about more


def calibrate_and_judge(run: Run, split: Split, *, seed: int, say: Say = lambda _: None) -> None:
    """All that follows training; without calibration subjects only the evidence.

    The judgement in run.json is written last: it says that nothing is missing.
    """
    folder = run.folder
    if split.with_role(CALIBRATION):
        split = replace(split, subjects=(*split.subjects, *free_subjects(split, seed=seed)))
    calibrating, judged = split.with_role(CALIBRATION), split.with_role(JUDGED)
    database = save_database(split.corpus, folder / RUN_DATABASE, split.train.questions)
    written: tuple[HeldOutQuestion, ...] | None = None
    with suppress(UserError):  # not written yet
        written = read_subjects(folder)
    if written != split.subjects:
        update_run(folder, judgement=None)
        update_database(folder, lambda database: write_subjects(database, split.subjects))
    if not calibrating:
        return
    confidence = ensure_confidence(run, Evidence(database), split, seed=seed, say=say)
    before = read_record(folder).notes
    update_run(folder, notes=tuple(dict.fromkeys((*before, *confidence.notes))))
    if not judged or _is_judged(run, confidence):
        return
    trim_memory()
    say(f"judging by {len(judged):,} questions")
    estimate = TimeLeft("asked", len(split.subjects), say)
    judgement = judge_run(run, seed=seed, report=estimate)
    trim_memory()
    if run.record.about_people and place_relation(split.train.questions) is not None:
        say("asking about invented names of many origins")
        probe = probe_run(run, each=NAMES_PER_ORIGIN, seed=seed)
        keep_files(folder, {STUDY_FILE: format_json(probe)})
    write_judgement(run, judgement)


def _is_judged(run: Run, confidence: Confidence) -> bool:
    """Whether the folder has the judgement of these weights at this risk."""
    record = read_record(run.folder)
    expected = {"weights_sha256": record.sha256, "risk": confidence.risk}
    if not expected.items() <= (record.judgement or {}).items():
        return False
    made = [name for name in (RUN_DATABASE, NUMBERS_FILE, STUDY_FILE) if name in record.files]
    return all(find_problem(run.folder, name, record) is None for name in made)


def ensure_confidence(
    run: Run, evidence: Evidence, split: Split, *, seed: int, say: Say
) -> Confidence:
    """The confidence in the folder if it is of these subjects and weights, else a new fit."""
    subjects = [*split.with_role(CALIBRATION), *split.with_role(FITTING)]
    try:
        confidence = load_confidence(run)
        if confidence.subjects_sha256 == hash_subjects(subjects):
            return confidence
    except UserError:
        pass  # missing, broken or of other weights: a new fit replaces it
    processes = join_processes()
    if processes.is_rank0:
        update_run(run.folder, judgement=None)
    say(f"fitting the confidence on {len(subjects):,} questions that were not learned")
    confidence = fit_confidence(
        run,
        evidence,
        subjects,
        sorted({q.answer or "" for q in split.train.questions if not q.is_silent}),
        windows=learn_windows(evidence.database, run.tokens),
        seed=seed,
        report=TimeLeft("signals read of", len(subjects), say),
    )
    notes = tuple(dict.fromkeys([*split.notes, *confidence.notes]))
    confidence = replace(confidence, notes=notes)
    if processes.is_rank0:
        save_confidence(run.folder, confidence)
    return confidence


def free_subjects(split: Split, *, seed: int) -> list[HeldOutQuestion]:
    """Subjects that need no label, each asked about for a random relation.

    Of the text: subjects of documents without a known question. What the text states about them is
    read from it, so that they help to fit *from the text*, not *right*. Invented: names that no
    document has, if too few subjects are unseen.
    """
    corpus, learned = split.corpus, split.train.questions
    templates = sorted({q.template for q in learned if SLOT in q.template})
    if not templates:
        return []
    asked = {fold_words(subject.subject) for subject in split.subjects}
    asked |= {fold_words(question.subject) for question in learned}
    subjects = np.arange(1, corpus.subject_count + 1)
    others = np.setdiff1d(subjects, [corpus.subject_id(name) for name in asked])
    rng = np.random.default_rng([seed, 29])
    drawn = others[np.sort(rng.permutation(len(others))[:MAX_TEXT_SUBJECTS])]
    of_text = [corpus.spell(number) for number in drawn.tolist()]
    helping = [one for one in split.subjects if one.role != JUDGED and not one.seen]
    wanted = min(UNSEEN_SUBJECTS, MAX_UNSEEN_PER_CALIBRATING * len(split.with_role(CALIBRATION)))
    lacking = wanted - len({fold_words(subject.subject) for subject in helping})
    known = [*corpus.spellings().values(), *(question.subject for question in learned)]
    taken = {*asked, *map(fold_words, split.left_out)}
    invented = invent_names(
        known, max(0, lacking), documents=corpus.documents, taken=taken, rng=rng
    )
    free = []
    for seen, source, found in ((True, TEXT, of_text), (False, INVENTED, invented)):
        for name in found:
            template = templates[int(rng.integers(len(templates)))]
            question = template.replace(SLOT, name)
            free.append(HeldOutQuestion(FITTING, seen, source, name, question, None, template))
    return free


class TimeLeft:
    """Called with the number of questions just done; says how long a stage will still take."""

    def __init__(self, what: str, total: int, say: Say) -> None:
        self.what, self.total, self.say, self.done = what, total, say, 0
        self.began = self.last_said = time.monotonic()

    def __call__(self, more: int) -> None:
        now = time.monotonic()
        self.done += more
        if 0 < self.done < self.total and now - self.last_said >= SAY_SECONDS:
            self.last_said = now
            left = (now - self.began) * (self.total - self.done) / self.done
            self.say(
                f"{self.what} {self.done:,} of {self.total:,} questions, about {left:.0f} s left"
            )
