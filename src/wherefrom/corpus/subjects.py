"""Which subject plays which part: learned from, calibrating, judged, left out."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from wherefrom.corpus.documents import Corpus, Document
from wherefrom.corpus.questions import SLOT, Question, QuestionSet
from wherefrom.corpus.world.names import ORIGINS, fold, read_names
from wherefrom.errors import UserError
from wherefrom.storage import write_whole

Key = tuple[str, ...]
# scripts without spaces: every letter is a word
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+")


def key_of(name: str) -> Key:
    """The words of a name as they are compared."""
    return tuple(_WORD.findall(fold(name)))


def find_named(documents: Sequence[Document], names: Iterable[Key]) -> dict[Key, set[int]]:
    """For each name the places, in `documents`, of those that hold its words in a row."""
    starts: dict[Key, list[Key]] = defaultdict(list)  # by the first two words, which few share
    named: dict[Key, set[int]] = {}
    for name in names:
        if name and name not in named:
            starts[name[:2]].append(name)
            named[name] = set()
    for at, document in enumerate(documents):
        words = key_of(document.text)
        for place in range(len(words)):
            for start in (words[place : place + 1], words[place : place + 2]):
                for name in starts.get(start, ()):
                    if words[place : place + len(name)] == name:
                        named[name].add(at)
    return named


class SubjectIndex:
    """Whom the files ask about, and which documents name them."""

    def __init__(
        self, corpus: Corpus, train: QuestionSet, dev: QuestionSet, unseen: QuestionSet | None
    ) -> None:
        self.corpus = corpus
        files = [each for each in (train, dev, unseen) if each is not None]
        answers: dict[tuple[Key, str], set[str]] = defaultdict(set)
        self._first: dict[int, dict[Key, Question]] = {}
        self._spelled: dict[Key, set[str]] = defaultdict(set)
        keys = {
            name: key_of(name) for each in files for name in {q.subject for q in each.questions}
        }
        for each in files:
            first = self._first[id(each)] = {}
            for question in each.questions:
                key = keys[question.subject]
                first.setdefault(key, question)
                self._spelled[key].add(question.subject)
                answers[key, question.text].add((question.answer or "").strip())
        self._namesakes = {key for (key, _), told in answers.items() if len(told) > 1}
        self._files = Counter(key for first in self._first.values() for key in first)
        self._about = [key_of(document.subject) for document in corpus.documents]
        self._named = find_named(corpus.documents, self._files)
        self._unread: set[int] = set()
        self._common: dict[int, Counter[str]] = {}

    @property
    def names(self) -> set[Key]:
        """Everybody whom a question or a document is about."""
        return {*self._files, *self._about}

    def count(self, file: QuestionSet) -> int:
        """How many people a file asks about."""
        return len(self._first[id(file)])

    def usable(self, file: QuestionSet) -> list[Key]:
        """Whom this file alone asks about and gives one answer for, in its order."""
        return [
            key
            for key in self._first[id(file)]
            if key and self._files[key] == 1 and key not in self._namesakes
        ]

    def spellings(self, keys: Iterable[Key]) -> set[str]:
        """How the questions spell these."""
        return {name for key in keys for name in self._spelled[key]}

    def told_alone(self, file: QuestionSet) -> list[Key]:
        """Those of them who have documents of their own and whom no other document names."""
        return [
            key
            for key in self.usable(file)
            if self._named[key] and all(self._about[at] == key for at in self._named[key])
        ]

    def leave_out(self, gone: Collection[Key]) -> tuple[str, ...]:
        """From now on these are unseen; returns how the documents about them spell them."""
        self._unread = {at for at, key in enumerate(self._about) if key in gone}
        return tuple(sorted({self.corpus.documents[at].subject for at in self._unread}))

    def first(self, file: QuestionSet, key: Key) -> Question:
        """The first question that the file asks about somebody."""
        return self._first[id(file)][key]

    def kind_of(self, file: QuestionSet, key: Key) -> tuple[bool, int, int]:
        """What makes somebody easy or hard, as far as it can be counted beforehand.

        Whether a document that names them holds the answer's words, how many name them, and how
        many people of the file have the same answer.
        """
        answer = self.first(file, key).answer or ""
        words, documents = key_of(answer), self._named[key]
        told = any(_holds(key_of(self.corpus.documents[at].text), words) for at in documents)
        return told, len(documents), self._answers(file)[answer.strip()]

    def _answers(self, file: QuestionSet) -> Counter[str]:
        if id(file) not in self._common:
            first = self._first[id(file)].values()
            self._common[id(file)] = Counter((each.answer or "").strip() for each in first)
        return self._common[id(file)]

    def is_seen(self, key: Key) -> bool:
        """Whether a document that is read names them."""
        return not self._named[key] <= self._unread


def _holds(words: Key, phrase: Key) -> bool:
    return any(words[at : at + len(phrase)] == phrase for at in range(len(words)))


ROUNDS = 6  # tries to find as many as are wanted; a handful of names has few recombinations
SPARE = 10  # candidates beyond those wanted, since some will turn out to be somebody's name


def invent_names(
    names: Sequence[str],
    count: int,
    *,
    documents: Sequence[Document],
    taken: Collection[Key] = (),
    rng: np.random.Generator,
) -> list[str]:
    """Up to `count` names that no document holds and that are not `taken`, no two alike.

    `names` are those of the data. Letters that none of them has do not occur: a model would know
    such a name by its letters alone.
    """
    letters = set("".join(names))
    parts = [_split(name) for name in names]
    usable = [part for part in parts if part is not None]
    found: list[str] = []
    known = {*taken, *map(key_of, names)}
    for _ in range(ROUNDS if count > 0 else 0):
        wanted = count - len(found) + SPARE
        foreign = [_draw_foreign(rng) for _ in range(wanted)]
        own = [_recombine(usable, rng) for _ in range(wanted)] if len(usable) > 1 else foreign
        fresh: dict[Key, str] = {}
        for name in (each for pair in zip(own, foreign, strict=True) for each in pair):
            if letters.issuperset(name) and key_of(name) not in known:
                fresh.setdefault(key_of(name), name)
        held = find_named(documents, fresh)
        found += [name for key, name in fresh.items() if not held[key]]
        known.update(fresh)
        if len(found) >= count:
            break
    return found[:count]


def _split(name: str) -> tuple[str, str] | None:
    """Given names and family name, where a name has both: "Ann B.", "Clark"."""
    given, _, family = name.rpartition(" ")
    fits = given.strip() and family[:1].isalpha() and not family.endswith((".", ")"))
    return (given.strip(), family) if fits else None


def _recombine(parts: Sequence[tuple[str, str]], rng: np.random.Generator) -> str:
    one, other = rng.choice(len(parts), size=2, replace=False)
    return f"{parts[one][0]} {parts[other][1]}"


def _draw_foreign(rng: np.random.Generator) -> str:
    """A name from Faker's lists, every origin as likely as every other."""
    lists = read_names(ORIGINS[int(rng.integers(len(ORIGINS)))])
    woman = bool(rng.random() < 0.5)
    given, family = lists.given(woman), lists.family(woman)
    return f"{given[int(rng.integers(len(given)))]} {family[int(rng.integers(len(family)))]}"


PEOPLE = "people.jsonl"
CALIBRATION, JUDGED = "calibration", "judged"
FITTING = "fitting"  # beyond the calibration's mix: they help to fit weights, and promise nothing
SET_ASIDE, LEFT_OUT, DEV, UNSEEN_FILE, INVENTED = (
    "set aside",
    "left out",
    "dev",
    "unseen file",
    "invented",
)
SOURCES = (SET_ASIDE, LEFT_OUT, DEV, UNSEEN_FILE, INVENTED)
ASSUMED_UNSEEN = 0.2  # of the calibration, where nobody among the judged shows how many to expect
ENOUGH = 20  # unseen people of the calibration from which on nobody has to be invented
LARGEST_SHARE = 0.9
SPARE_NAMES = 200  # invented names beyond those of the calibration, where any are invented
# each draw has a stream of its own, so that another share changes nothing else
_LEAVE_TRAIN, _LEAVE_DEV, _ASIDE, _HALVES, _MIX, _NAMES, _SPARE = range(1, 8)


@dataclass(frozen=True)
class Subject:
    """Somebody who is asked about and not learned from.

    seen: a document that was read names them. answer: None where whatever is said is made up.
    """

    role: str
    seen: bool
    source: str
    subject: str
    question: str
    answer: str | None


@dataclass(frozen=True)
class Split:
    """What is learned and read, who calibrates and is judged, and what a report must say of it.

    left_out: whom no document is about any more, as the documents spelled them.
    """

    train: QuestionSet
    corpus: Corpus
    people: tuple[Subject, ...]
    notes: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    def with_role(self, role: str) -> list[Subject]:
        return [person for person in self.people if person.role == role]


def split_subjects(
    corpus: Corpus,
    train: QuestionSet,
    dev: QuestionSet,
    unseen: QuestionSet | None = None,
    *,
    set_aside: float = 0.1,
    leave_out: float = 0.0,
    seed: int,
) -> Split:
    """Draw who is set aside and who is left out; shares are of the people of each file.

    Whoever the questions give several answers for (namesakes) plays no part, nor does anybody
    whom two files ask about. People are left out only if no other document names them.
    """
    check_shares(set_aside, leave_out)
    asked = SubjectIndex(corpus, train, dev, unseen)
    notes: list[str] = []
    gone_train, gone_dev = (
        _draw(asked.told_alone(file), round(leave_out * asked.count(file)), _stream(seed, which))
        for file, which in ((train, _LEAVE_TRAIN), (dev, _LEAVE_DEV))
    )
    wanted = sum(round(leave_out * asked.count(each)) for each in (train, dev))
    gone = {*gone_train, *gone_dev}
    if len(gone) < wanted:
        notes.append(
            f"{len(gone)} people are left out where {wanted} were wanted: documents about others "
            "name the rest, or none is about them."
        )
    left_out = asked.leave_out(gone)
    kept = corpus.without(left_out)
    if not kept.documents:
        raise UserError(
            f"{corpus.path}: leaving so many people out leaves no document to read; choose a "
            "smaller --leave-out."
        )

    free = [key for key in asked.usable(train) if key not in gone]
    spared = int(len(free) > 1)  # of few people one calibrates, if one is left to learn from
    wanted = max(spared, round(set_aside * asked.count(train))) if set_aside else 0
    aside = _draw_alike(free, wanted, lambda key: asked.kind_of(train, key), _stream(seed, _ASIDE))
    if len(gone_train) + len(aside) == asked.count(train):
        raise UserError(
            f"{train.path}: --set-aside {set_aside:g} and --leave-out {leave_out:g} leave no "
            "question to learn from; choose smaller shares."
        )
    learned = train.without(asked.spellings([*gone_train, *aside]))

    people = [_person(asked, train, key, CALIBRATION, SET_ASIDE) for key in aside]
    people += [_person(asked, train, key, CALIBRATION, LEFT_OUT) for key in gone_train]
    people += [
        _person(asked, dev, key, JUDGED, LEFT_OUT if key in gone else DEV)
        for key in asked.usable(dev)
    ]
    if unseen is not None:
        strangers = asked.usable(unseen)
        half = set(_draw(strangers, round(len(strangers) / 2), _stream(seed, _HALVES)))
        people += [
            _person(asked, unseen, key, CALIBRATION if key in half else JUDGED, UNSEEN_FILE)
            for key in strangers
        ]
    judged = [person for person in people if person.role == JUDGED]
    spare: list[Subject] = []
    calibrating = [person for person in people if person.role == CALIBRATION]
    if not aside:
        why = "--set-aside is 0" if set_aside == 0 else "no training person can be spared"
        notes.append(f"nobody is set aside ({why}), so no confidence can be fitted.")
        calibrating = []
    else:
        calibrating, spare = _mix(calibrating, judged, asked, learned, seed, notes)
    if not judged:
        notes.append(
            "nobody is judged: the training questions ask about all people of the dev questions "
            "too, or the questions give several answers for them."
        )
    return Split(
        train=learned,
        corpus=kept,
        people=(*calibrating, *judged, *(replace(one, role=FITTING) for one in spare)),
        notes=tuple(notes),
        left_out=left_out,
    )


def check_shares(set_aside: float, leave_out: float) -> None:
    """Refuse what is no share of the people."""
    for option, share in (("--set-aside", set_aside), ("--leave-out", leave_out)):
        if not 0 <= share < LARGEST_SHARE:
            raise UserError(
                f"{option} is a share of the people, from 0 to below {LARGEST_SHARE}, as 0.1 for "
                f"a tenth; {share:g} is none."
            )


def write_people(folder: Path, people: Iterable[Subject]) -> None:
    """One person a line, in the run folder."""
    write_whole(folder / PEOPLE, people_text(people))


def people_text(people: Iterable[Subject]) -> str:
    """What people.jsonl holds of these."""
    return "".join(json.dumps(asdict(person), ensure_ascii=False) + "\n" for person in people)


def read_people(folder: Path) -> tuple[Subject, ...]:
    """The people of a run, or a sentence about why they cannot be had."""
    path = folder / PEOPLE
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist: the run was not made by `wherefrom study`, or has not come "
            "that far; repeat its command with --resume."
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{path} cannot be read: {problem}.") from None
    people = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            person = Subject(**json.loads(line))
        except (ValueError, TypeError):
            person = None
        if person is None or not _is_whole(person):
            raise UserError(
                f"{path}, line {number}: this is not a person as the study writes them; repeat "
                "the study's command with --resume."
            )
        people.append(person)
    return tuple(people)


def _stream(seed: int, which: int) -> np.random.Generator:
    return np.random.default_rng([seed, which])


def _person(asked: SubjectIndex, file: QuestionSet, key: Key, role: str, source: str) -> Subject:
    question = asked.first(file, key)
    return Subject(
        role=role,
        seen=asked.is_seen(key),
        source=source,
        subject=question.subject,
        question=question.text,
        answer=question.answer,
    )


def _draw(keys: Sequence[Key], wanted: int, rng: np.random.Generator) -> list[Key]:
    """So many of the keys, as far as there are any, in their order."""
    return [keys[at] for at in sorted(rng.permutation(len(keys))[:wanted])]


def _draw_alike(
    keys: Sequence[Key],
    wanted: int,
    kind_of: Callable[[Key], tuple[bool, int, int]],
    rng: np.random.Generator,
) -> list[Key]:
    """So many of the keys, at even distances in the order of their kinds, from a random start.

    Drawn freely, two hundred people may hold a tenth of the hard cases that they should, and then
    the confidence fitted on them promises too much (docs/log.md).
    """
    wanted = min(wanted, len(keys))
    if not wanted:
        return []
    kinds = [kind_of(key) for key in keys]
    ranked = sorted(rng.permutation(len(keys)).tolist(), key=lambda at: kinds[at])
    step = len(keys) / wanted
    start = rng.random() * step
    return [keys[at] for at in sorted(ranked[int(start + i * step)] for i in range(wanted))]


def _mix(
    calibrating: list[Subject],
    judged: list[Subject],
    asked: SubjectIndex,
    learned: QuestionSet,
    seed: int,
    notes: list[str],
) -> tuple[list[Subject], list[Subject]]:
    """The calibration people with the share of unseen ones that the judged people have.

    Of whom there are too many, some go into the second list. Where fewer than ENOUGH unseen ones
    can be had, invented names stand in, and a note says so.
    """
    seen = [person for person in calibrating if person.seen]
    unseen = [person for person in calibrating if not person.seen]
    expected = sum(not person.seen for person in judged)
    share = expected / len(judged) if expected else ASSUMED_UNSEEN
    if not seen or share == 1:
        return unseen, []
    rng = _stream(seed, _MIX)
    wanted = max(1, round(len(seen) * share / (1 - share)))
    unseen = _some(unseen, wanted, rng)
    if len(unseen) < min(wanted, ENOUGH):
        lacking = min(wanted, len(seen)) - len(unseen)
        whom = "too few people are left out" if unseen else "nobody is left out"
        invented = _invent(lacking, asked, learned, _stream(seed, _NAMES))
        unseen += invented
        more = _invent(SPARE_NAMES, asked, learned, _stream(seed, _SPARE))
        known = {key_of(person.subject) for person in invented}
        calibrating = [*calibrating, *(one for one in more if key_of(one.subject) not in known)]
        notes.append(
            f"{whom}: {len(invented)} invented names stand in for the unseen in the calibration, "
            f"{len(unseen)} of its {len(seen) + len(unseen)} people, and what is promised of "
            "unseen people rests on them."
        )
    if ENOUGH <= len(unseen) < wanted:
        seen = _some(seen, round(len(unseen) * (1 - share) / share), rng)
    elif len(unseen) < wanted:
        notes.append(
            f"the calibration has {len(unseen)} unseen people where {wanted} were wanted: the "
            "data have no more, and do not show how to invent more."
        )
    mixed = [*seen, *unseen]
    taken = {(person.subject, person.question) for person in mixed}
    spare = [one for one in calibrating if (one.subject, one.question) not in taken]
    return mixed, spare


def _some(people: list[Subject], count: int, rng: np.random.Generator) -> list[Subject]:
    return [people[at] for at in sorted(rng.permutation(len(people))[:count])]


def _invent(
    count: int, asked: SubjectIndex, learned: QuestionSet, rng: np.random.Generator
) -> list[Subject]:
    wordings = [learned.template] if learned.template else _wordings(learned)
    if not wordings:
        return []
    subjects = [question.subject for question in learned.questions]
    subjects += [document.subject for document in asked.corpus.documents]
    names = invent_names(
        list(dict.fromkeys(subjects)),
        count,
        documents=asked.corpus.documents,
        taken=asked.names,
        rng=rng,
    )
    return [
        Subject(
            role=CALIBRATION,
            seen=False,
            source=INVENTED,
            subject=name,
            question=wordings[int(rng.integers(len(wordings)))].replace(SLOT, name),
            answer=None,
        )
        for name in names
    ]


def _wordings(learned: QuestionSet) -> list[str]:
    """How questions with a subject of their own are worded, where they spell the subject out."""
    return [
        question.text.replace(question.subject, SLOT)
        for question in learned.questions
        if question.text.count(question.subject) == 1 and SLOT not in question.text
    ]


def _is_whole(person: Subject) -> bool:
    texts = (person.role, person.source, person.subject, person.question)
    return (
        all(isinstance(text, str) and text for text in texts)
        and isinstance(person.seen, bool)
        and (person.answer is None or isinstance(person.answer, str))
        and person.role in (CALIBRATION, JUDGED, FITTING)
        and person.source in SOURCES
    )
