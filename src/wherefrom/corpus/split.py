"""Which subject is in which part of a study: learned from, calibrating, judged or left out.

The questions about most training subjects are learned. Some subjects are set aside: the model reads
their documents but not their questions, and the confidence is calibrated on them. On request others
are left out altogether, documents included, so that they are unseen. The subjects of the dev
questions are judged.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import numpy as np
from numpy.random import Generator
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from wherefrom.corpus.database import RUN_DATABASE, Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import FoldedName, find_phrase, fold_words
from wherefrom.corpus.questions import NOT_STATED, SLOT, Question, QuestionSet
from wherefrom.corpus.world.names import ORIGINS, read_names
from wherefrom.errors import UserError

# fitting: not in the calibration's mix; these help to fit weights, not the guarantee
Role = Literal["calibration", "judged", "fitting"]
CALIBRATION, JUDGED, FITTING = HELD_OUT = get_args(Role)
# text: the subject of a document about which no question is known
Source = Literal["set aside", "left out", "dev", "unseen file", "invented", "text"]
SET_ASIDE, LEFT_OUT, DEV, UNSEEN_FILE, INVENTED, TEXT = get_args(Source)

ASSUMED_UNSEEN_SHARE = (
    0.2  # share of unseen calibration subjects, where no judged subject is unseen
)
# Subjects to set aside. A guarantee of 5 % takes 59 answers without a mistake, and not every
# subject has an answer that is shown.
SURE_GUARANTEE_SUBJECTS, GUARANTEE_SUBJECTS, CALIBRATION_SUBJECTS = 200, 100, 20
LARGEST_UNGUARANTEED_SHARE = 0.2  # of the subjects, where no guarantee can be had
ENOUGH_UNSEEN_SUBJECTS = 20  # unseen calibration subjects from which on no names are invented
LARGEST_SHARE = 0.9
SPARE_NAMES = 200  # invented names beyond those of the calibration, where any are invented
NAME_ROUNDS = 6  # attempts to find as many names as wanted; few names have few recombinations
SPARE_CANDIDATES = 10  # candidates beyond those wanted, since some turn out to be taken
# each draw has its own random stream, so that changing one share does not change the other draws
_LEAVE_TRAIN, _LEAVE_DEV, _ASIDE, _HALVES, _MIX, _NAMES, _SPARE = range(1, 8)
_Text = Annotated[str, Field(min_length=1)]
T = TypeVar("T")


@dataclass(frozen=True)
class HeldOutQuestion:
    """A question that is asked after training and not learned: a row of the table `questions`.

    seen: whether a document that was read names the subject. answer: None where no answer is right.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    role: Role
    seen: bool
    source: Source
    subject: _Text
    question: _Text
    answer: str | None
    template: str

    @property
    def is_silent(self) -> bool:
        """Whether it is known that no document states an answer."""
        return self.answer == NOT_STATED


@dataclass(frozen=True)
class Split:
    """What is learned and read, who calibrates and is judged, and notes for the report.

    left_out: subjects whose documents are not read, as the documents spell them.
    """

    train: QuestionSet
    corpus: Database
    subjects: tuple[HeldOutQuestion, ...]
    notes: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    def with_role(self, role: Role) -> list[HeldOutQuestion]:
        return [subject for subject in self.subjects if subject.role == role]


def split_subjects(
    corpus: Database,
    train: QuestionSet,
    dev: QuestionSet,
    unseen: QuestionSet | None = None,
    *,
    set_aside: float | None = None,
    leave_out: float = 0.0,
    seed: int,
) -> Split:
    """Draw which subjects are set aside and left out; both are shares of each file's subjects.

    With no share given, as many are set aside as buy a guarantee (`default_set_aside`). A
    question with several answers, or one that two files ask, is neither used to calibrate nor
    judged.
    """
    check_shares(set_aside, leave_out)
    files = {"train": train, "dev": dev} | ({"unseen": unseen} if unseen is not None else {})
    index = SubjectIndex(corpus, files)
    notes: list[str] = []

    def generator(stream: int) -> Generator:
        return np.random.default_rng([seed, stream])

    gone = _leave_out(index, leave_out, generator, notes)
    all_gone = {*gone["train"], *gone["dev"]}
    unread = {doc for name in all_gone for doc in index.documents_about(name)}
    left_out = tuple(sorted({corpus.documents[doc].subject for doc in unread}))
    kept = corpus.without(left_out)
    if not kept.documents:
        raise UserError(f"{corpus.source}: --leave-out {leave_out:g} leaves no document to read.")
    aside = _set_aside(index, all_gone, set_aside, generator, notes)
    spared = {*gone["train"], *aside}
    if len(spared) == len(index.questions["train"]):
        raise UserError(
            f"{train.path}: --set-aside {len(aside) / len(spared):g} and --leave-out {leave_out:g} "
            "leave no question to learn from; choose smaller shares."
        )
    questions = tuple(q for q in train.questions if fold_words(q.subject) not in spared)
    learned = replace(train, questions=questions)

    calibrating, judged = _hold_out(index, aside, gone, unread, generator)
    spare: list[HeldOutQuestion] = []
    if aside:
        calibrating, spare = _mix(calibrating, judged, index, learned, generator, notes)
    else:
        why = "--set-aside is 0" if set_aside == 0 else "no training subject can be spared"
        notes.append(f"no subject is set aside ({why}), so no confidence can be fitted.")
        calibrating = []
    if not judged:
        notes.append(
            "no subject is judged: the training questions are about all subjects of the dev "
            "questions too, or the questions give several answers for them."
        )
    fitting = (replace(subject, role=FITTING) for subject in spare)
    return Split(learned, kept, (*calibrating, *judged, *fitting), tuple(notes), left_out)


def _leave_out(
    index: SubjectIndex,
    share: float,
    generator: Callable[[int], Generator],
    notes: list[str],
) -> dict[str, list[FoldedName]]:
    """By file, the subjects whose documents the model does not read."""
    gone, wanted = {}, 0
    for file, stream in (("train", _LEAVE_TRAIN), ("dev", _LEAVE_DEV)):
        count = round(share * len(index.questions[file]))
        gone[file] = _draw(index.separable(file), count, generator(stream))
        wanted += count
    found = len({*gone["train"], *gone["dev"]})
    if found < wanted:
        notes.append(
            f"{found} subjects are left out where {wanted} were wanted: documents about others "
            "name the rest, or no document is about them."
        )
    return gone


def _set_aside(
    index: SubjectIndex,
    gone: set[FoldedName],
    share: float | None,
    generator: Callable[[int], Generator],
    notes: list[str],
) -> list[FoldedName]:
    """The training subjects that the model reads about and whose questions it does not learn."""
    free = [name for name in index.usable("train") if name not in gone]
    total = len(index.questions["train"])
    fewest = int(len(free) > 1)  # one at least calibrates, if another is left to learn from
    if share is None:
        wanted = max(fewest, default_set_aside(total))
        if wanted < GUARANTEE_SUBJECTS:
            notes.append(_explain_no_guarantee(total, wanted))
    else:
        wanted = max(fewest, round(share * total)) if share else 0
    return index.draw_typical(free, wanted, generator(_ASIDE))


def _hold_out(
    index: SubjectIndex,
    aside: Sequence[FoldedName],
    gone: Mapping[str, Sequence[FoldedName]],
    unread: Collection[int],
    generator: Callable[[int], Generator],
) -> tuple[list[HeldOutQuestion], list[HeldOutQuestion]]:
    """The questions that calibrate and those that judge.

    aside, gone: subjects whose questions or documents are not learned. unread: their documents.
    """
    hold_out = partial(index.hold_out, unread=unread)
    calibrating = hold_out("train", aside, CALIBRATION, SET_ASIDE)
    calibrating += hold_out("train", gone["train"], CALIBRATION, LEFT_OUT)
    read_about = _without(index.questions["dev"], gone["dev"])
    judged = hold_out("dev", read_about, JUDGED, DEV)
    judged += hold_out("dev", gone["dev"], JUDGED, LEFT_OUT)
    if "unseen" in index.questions:
        names = index.usable("unseen")
        half = _draw(names, round(len(names) / 2), generator(_HALVES))
        calibrating += hold_out("unseen", half, CALIBRATION, UNSEEN_FILE)
        judged += hold_out("unseen", _without(names, half), JUDGED, UNSEEN_FILE)
    return calibrating, judged


def split_dev(corpus: Database, train: QuestionSet, dev: QuestionSet, *, seed: int) -> Split:
    """For a run that learned from all training questions: half of the dev subjects calibrate.

    The others are judged. Subjects that the training questions ask about too do neither.
    """
    index = SubjectIndex(corpus, {"train": train, "dev": dev})
    notes: list[str] = []

    def generator(stream: int) -> Generator:
        return np.random.default_rng([seed, stream])

    names = index.usable("dev")
    half = _draw(names, len(names) // 2, generator(_HALVES))
    others = _without(names, half)
    calibrating = index.hold_out("dev", half, CALIBRATION, SET_ASIDE)
    judged = index.hold_out("dev", others, JUDGED, DEV)
    if not calibrating or not judged:
        raise UserError(
            f"{dev.path} has {len(names)} subjects with one answer that were not learned from, and "
            "judging takes two at least; give other questions."
        )
    calibrating, spare = _mix(calibrating, judged, index, train, generator, notes)
    notes.append(
        f"the confidence is fitted on {len(half)} of the {len(names)} subjects in {dev.path.name} "
        "and judged on the others."
    )
    fitting = (replace(subject, role=FITTING) for subject in spare)
    return Split(train, corpus, (*calibrating, *judged, *fitting), tuple(notes))


def default_set_aside(subjects: int) -> int:
    """How many training subjects to set aside: as many as buy a guarantee, if at least as many are
    left to learn from; else a few, to calibrate on."""
    for enough in (SURE_GUARANTEE_SUBJECTS, GUARANTEE_SUBJECTS):
        if subjects >= 2 * enough:
            return enough
    return min(CALIBRATION_SUBJECTS, round(LARGEST_UNGUARANTEED_SHARE * subjects))


def _explain_no_guarantee(subjects: int, aside: int) -> str:
    verb = "is" if aside == 1 else "are"
    return (
        f"{aside} of the {subjects} training subjects {verb} set aside for the confidence, "
        f"which guarantees nothing: a guarantee takes about {GUARANTEE_SUBJECTS}, and so at least "
        f"{2 * GUARANTEE_SUBJECTS} training subjects."
    )


def check_shares(set_aside: float | None, leave_out: float) -> None:
    """Refuse shares outside 0 to LARGEST_SHARE."""
    for option, share in (("--set-aside", set_aside), ("--leave-out", leave_out)):
        if share is None or (isinstance(share, int | float) and 0 <= share < LARGEST_SHARE):
            continue
        raise UserError(
            f"{option} is a share of the subjects, from 0 to below {LARGEST_SHARE}, such as 0.1 "
            f"for a tenth; {share} is not."
        )


class SubjectIndex:
    """The subjects of each question file, by their folded names, and the documents naming them."""

    def __init__(self, corpus: Database, files: Mapping[str, QuestionSet]) -> None:
        self.documents, self.documents_about = corpus.documents, corpus.documents_about
        self.questions: dict[str, dict[FoldedName, list[Question]]] = {file: {} for file in files}
        answers: dict[tuple[FoldedName, str], set[tuple[str, str]]] = defaultdict(set)
        for file, content in files.items():
            for question in content.questions:
                if name := fold_words(question.subject):
                    self.questions[file].setdefault(name, []).append(question)
                    answers[name, question.template].add((file, (question.answer or "").strip()))
        self._unfit = {key for key, given in answers.items() if len(given) > 1}
        self._file_counts = Counter(chain.from_iterable(self.questions.values()))
        self.named_in = find_named(corpus.documents, self._file_counts)

    def __contains__(self, name: Any) -> bool:
        """Whether a question or a document is about that name."""
        return name in self._file_counts or bool(self.documents_about(name))

    def fit_questions(self, file: str, name: FoldedName) -> list[Question]:
        """The file's questions about a subject, each once, that have one answer in one file."""
        by_template = {q.template: q for q in self.questions[file][name]}
        return [q for q in by_template.values() if (name, q.template) not in self._unfit]

    def hold_out(
        self,
        file: str,
        names: Iterable[FoldedName],
        role: Role,
        source: Source,
        *,
        unread: Collection[int] = (),
    ) -> list[HeldOutQuestion]:
        """The file's fit questions about these subjects; unread: documents that are left out."""
        held_out = []
        for name in names:
            seen = not self.named_in[name].issubset(unread)
            for q in self.fit_questions(file, name):
                about = (q.subject, q.text, q.answer, q.template)
                held_out.append(HeldOutQuestion(role, seen, source, *about))
        return held_out

    def usable(self, file: str) -> list[FoldedName]:
        """Subjects that only this file asks about, with one answer to each question."""
        return [
            name
            for name, questions in self.questions[file].items()
            if self._file_counts[name] == 1
            and not any((name, question.template) in self._unfit for question in questions)
        ]

    def separable(self, file: str) -> list[FoldedName]:
        """Usable subjects that have documents, and that only their own documents name."""
        return [
            name
            for name in self.usable(file)
            if self.named_in[name] and self.named_in[name].issubset(self.documents_about(name))
        ]

    def draw_typical(
        self, names: Sequence[FoldedName], wanted: int, rng: Generator
    ) -> list[FoldedName]:
        """Up to `wanted` training subjects that are asked the same and as easy or hard as all.

        They lie at even distances in an order, from a random start: which relations a subject is
        asked about, so that each has its share; then its difficulty, which is whether a
        document states the answer, how many name the subject, how common the answer is. Drawn
        freely, they may hold too few of the hard cases, and the confidence is then too high.
        """
        wanted = min(wanted, len(names))
        if not wanted:
            return []
        answers = {n: (q[0].answer or "").strip() for n, q in self.questions["train"].items()}
        counts = Counter(answers.values())

        def rank(name: FoldedName) -> tuple[list[str], bool, int, int]:
            relations = sorted({question.template for question in self.questions["train"][name]})
            naming, phrase = self.named_in[name], fold_words(answers[name])
            texts = (self.documents[doc].text for doc in naming)
            stated = any(find_phrase(fold_words(text), phrase) for text in texts)
            return relations, stated, len(naming), counts[answers[name]]

        ranked = sorted((names[i] for i in rng.permutation(len(names))), key=rank)
        step = len(names) / wanted
        start = rng.random() * step
        chosen = {ranked[int(start + i * step)] for i in range(wanted)}
        return [name for name in names if name in chosen]


def find_named(
    documents: Sequence[Document], names: Iterable[FoldedName]
) -> dict[FoldedName, set[int]]:
    """For each name the indices of the documents that hold its words in a row."""
    named: dict[FoldedName, set[int]] = {name: set() for name in names if name}
    by_start: dict[FoldedName, list[FoldedName]] = defaultdict(list)  # by the first two words
    for name in named:
        by_start[name[:2]].append(name)
    first_words = {name[0] for name in named}
    for doc, document in enumerate(documents):
        words = fold_words(document.text)
        for i in (i for i, word in enumerate(words) if word in first_words):
            for start in (words[i : i + 1], words[i : i + 2]):
                for name in by_start.get(start, ()):
                    if words[i : i + len(name)] == name:
                        named[name].add(doc)
    return named


def _draw(items: Sequence[T], wanted: int, rng: Generator) -> list[T]:
    """Up to `wanted` of the items, in their order."""
    return [items[i] for i in sorted(rng.permutation(len(items))[:wanted])]


def _without(names: Iterable[FoldedName], others: Iterable[FoldedName]) -> list[FoldedName]:
    """The names that are not among the others, in their order."""
    excluded = set(others)
    return [name for name in names if name not in excluded]


def _mix(
    calibrating: list[HeldOutQuestion],
    judged: list[HeldOutQuestion],
    index: SubjectIndex,
    learned: QuestionSet,
    generator: Callable[[int], Generator],
    notes: list[str],
) -> tuple[list[HeldOutQuestion], list[HeldOutQuestion]]:
    """Calibration subjects with the judged subjects' share of unseen ones, and those to spare.

    Where fewer than ENOUGH_UNSEEN_SUBJECTS exist, invented names stand in, and a note says so.
    """
    seen = [subject for subject in calibrating if subject.seen]
    unseen = [subject for subject in calibrating if not subject.seen]
    expected = sum(not subject.seen for subject in judged)
    share = expected / len(judged) if expected else ASSUMED_UNSEEN_SHARE
    if not seen or share == 1:
        return unseen, []
    rng = generator(_MIX)
    wanted = max(1, round(len(seen) * share / (1 - share)))
    unseen = _draw(unseen, wanted, rng)
    if len(unseen) < min(wanted, ENOUGH_UNSEEN_SUBJECTS):
        few = "too few subjects are" if unseen else "no subject is"
        lacking = min(wanted, len(seen)) - len(unseen)
        invented = _invent_subjects(lacking, index, learned, generator(_NAMES))
        more = _invent_subjects(SPARE_NAMES, index, learned, generator(_SPARE))
        used = {fold_words(subject.subject) for subject in invented}
        unseen += invented
        calibrating = [*calibrating, *(s for s in more if fold_words(s.subject) not in used)]
        if invented:
            notes.append(
                f"{few} left out, so {len(invented)} of the {len(seen) + len(unseen)} calibration "
                "subjects are invented names; guarantees about unseen subjects rest on them."
            )
    if ENOUGH_UNSEEN_SUBJECTS <= len(unseen) < wanted:
        seen = _draw(seen, round(len(unseen) * (1 - share) / share), rng)
    elif len(unseen) < wanted:
        notes.append(
            f"the calibration has {len(unseen)} unseen subjects instead of {wanted}: there are no "
            "more, and too few names to invent more from."
        )
    mixed = [*seen, *unseen]
    taken = {(subject.subject, subject.question) for subject in mixed}
    return mixed, [s for s in calibrating if (s.subject, s.question) not in taken]


def _invent_subjects(
    count: int, index: SubjectIndex, learned: QuestionSet, rng: Generator
) -> list[HeldOutQuestion]:
    """Unseen subjects with invented names, asked about in the wording of the learned questions."""
    templates = [q.template for q in learned.questions if SLOT in q.template]
    if not templates:
        return []
    names = chain((q.subject for q in learned.questions), (d.subject for d in index.documents))
    invented = invent_names(
        list(dict.fromkeys(names)), count, documents=index.documents, taken=index, rng=rng
    )
    result = []
    for name in invented:
        template = templates[int(rng.integers(len(templates)))]
        question = template.replace(SLOT, name)
        result.append(HeldOutQuestion(CALIBRATION, False, INVENTED, name, question, None, template))
    return result


def invent_names(
    names: Sequence[str],
    count: int,
    *,
    documents: Sequence[Document],
    taken: Container[FoldedName] = (),
    rng: Generator,
) -> list[str]:
    """Up to `count` names that no document holds and that are not `taken`, no two alike.

    `names` are those of the data. They are recombined, and names of all origins are drawn beside
    them; but a letter that the data do not have never occurs, since it would give the name away.
    """
    if count <= 0:
        return []
    letters = set().union(*names)
    divisible = [i for i, name in enumerate(names) if _halve(name)]

    def recombine() -> str:
        one, other = rng.choice(len(divisible), size=2, replace=False)
        return _halve(names[divisible[one]])[0] + _halve(names[divisible[other]])[1]

    def draw_foreign() -> str:
        lists = read_names(ORIGINS[int(rng.integers(len(ORIGINS)))])
        woman = bool(rng.random() < 0.5)
        parts = lists.given[woman], lists.family[woman]
        return " ".join(part[int(rng.integers(len(part)))] for part in parts)

    invented: list[str] = []
    tried: set[FoldedName] = set()
    for _ in range(NAME_ROUNDS):
        if len(invented) >= count:
            break
        wanted = count - len(invented) + SPARE_CANDIDATES
        foreign = [draw_foreign() for _ in range(wanted)]
        own = [recombine() for _ in range(wanted)] if len(divisible) > 1 else foreign
        fresh: dict[FoldedName, str] = {}
        for name in chain.from_iterable(zip(own, foreign, strict=True)):
            folded = fold_words(name)
            is_new = folded not in tried and folded not in taken
            if folded and is_new and letters.issuperset(name):
                fresh.setdefault(folded, name)
        named_in = find_named(documents, fresh)
        invented += [name for folded, name in fresh.items() if not named_in[folded]]
        tried.update(fresh)
    return invented[:count]


def _halve(name: str) -> tuple[str, ...]:
    """ "Ann B. " and "Clark"; a name without blanks by its letters; nothing if it has no halves."""
    given, blank, family = name.rpartition(" ")
    middle = (len(name) + 1) // 2
    if not given.strip() and len(name) > 1:
        return name[:middle], name[middle:]
    if given.strip() and family[:1].isalpha() and not family.endswith((".", ")")):
        return given.strip() + blank, family
    return ()


def write_learned(database: Database, role: str, questions: Iterable[Question]) -> None:
    """Write the questions that a run learns from ("train") or that end its training."""
    rows = ((role, True, role, q.subject, q.text, q.answer, q.template) for q in questions)
    database.write_questions([role], rows)


def read_learned(database: Database, role: str = "train") -> list[Question]:
    """The questions that `write_learned` wrote, without their lines; none if there are none."""
    rows = database.questions([role]) or ()
    return [
        Question(0, text, subject, answer, wording) for *_, subject, text, answer, wording in rows
    ]


def write_subjects(database: Database, subjects: Iterable[HeldOutQuestion]) -> None:
    """Write the held-out questions of a run."""
    database.write_questions(HELD_OUT, map(astuple, subjects))


def read_subjects(folder: Path) -> tuple[HeldOutQuestion, ...]:
    """The held-out questions of a run; if they are missing or broken, that is one sentence."""
    file = folder / RUN_DATABASE
    rows = None
    if file.exists():
        with Database.open(file) as database:
            rows = database.questions(HELD_OUT)
    if rows is None:
        raise UserError(
            f"{file} holds no held-out questions: the run was not made by `wherefrom study`, or "
            "has not come that far; repeat its command with --resume."
        )
    names = [field.name for field in fields(HeldOutQuestion)]
    adapter, subjects = TypeAdapter(HeldOutQuestion), []
    for number, row in enumerate(rows, start=1):
        record = dict(zip(names, row, strict=True))
        record["seen"] = bool(record["seen"])
        try:
            subjects.append(adapter.validate_json(json.dumps(record)))
        except ValidationError:
            raise UserError(
                f"{file}, held-out question {number}: this is not a question as a study writes it; "
                "repeat the study's command with --resume."
            ) from None
    return tuple(subjects)
