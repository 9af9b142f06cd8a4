"""Understanding a question: its relation, and its subject as the documents spell it.

All commands that read questions use `QuestionMatcher`. A question in the wording of a relation is
taken as it is, whatever its case, accents, quotes and marks. One in other words is taken only if
exactly one relation asks for the same: the same kind of answer (when, where, who, ...), and the
same content words by their stems, on the same side of the name, with no others. Everything else is
refused, with the one or two relations that may be meant.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from wherefrom.corpus.database import Database
from wherefrom.corpus.folding import FoldedName, fold_words, split_words
from wherefrom.corpus.inflection import Ending, base_forms, find_inflected
from wherefrom.corpus.questions import (
    END_MARKS,
    MAX_QUESTION_CHARACTERS,
    SLOT,
    Question,
    QuestionFile,
    QuestionSet,
    count_templates,
    find_named_subject,
    match_template,
)
from wherefrom.errors import UserError, shorten

TIME, NUMBER, OTHER = "time", "number", "other"  # kinds of answers that have a rule of their own
QUOTES = "\"'“”„‟‘’‚«»‹›「」『』"
MAX_NAME_CHARACTERS = 80
MAX_SEARCHED_WORDS = 40  # words of a question in which a name is looked for
MAX_BARE_NAME_WORDS = 6  # words of a question that is a name alone
MAX_TYPO_WINDOW = 5  # words of a name that is looked for among misspelt ones
MAX_CANDIDATES = 2  # relations that are offered for a refused question
MAX_LISTED_WORDINGS = 4  # wordings that an error lists
NEAR_WORDS = 6  # words on either side of a fact that stand near it
LEAST_NEAR_SHARE = 0.03  # share of a relation's facts that have such a word near them, at least
NEAR_WEIGHT = 0.6  # of a word that is near the facts of one relation alone
SENTENCE_END = re.compile(r"[.!?;]\s|[。！？]")
CLOSE_SCORE = 0.6  # share of the best score from which on a relation is a candidate too
LINE_NUMBER = re.compile(r"[\s,(]+(?:(?:of|in|on|from|at) )?line (\d{1,9})\b[),]*", re.IGNORECASE)
Spell = Callable[[Iterable[str]], Mapping[FoldedName, str]]


class NotUnderstoodError(UserError):
    """A question that is not taken; `candidates` are the questions that may be meant."""

    def __init__(self, reason: str, candidates: Sequence[UnderstoodQuestion] = ()) -> None:
        super().__init__(reason)
        self.candidates = tuple(candidates)


@dataclass(frozen=True)
class UnderstoodQuestion:
    """A question in the wording of its relation, with its subject as the documents spell it.

    lines: of the text that it is about, if a qualifier picks one of several subjects of one name.
    """

    text: str
    subject: str
    template: str
    lines: tuple[int, ...] = ()


@dataclass(frozen=True)
class Language:
    """The function words of one language (question_words.toml), folded."""

    asks: Mapping[str, str] = field(default_factory=dict)  # question word -> kind of answer
    nouns: Mapping[str, str] = field(default_factory=dict)  # noun -> kind of answer
    same: Mapping[str, str] = field(default_factory=dict)  # noun that says no more than the kind
    open: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()
    openers: tuple[FoldedName, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)  # word -> the first form of that word
    titles: frozenset[str] = frozenset()

    @property
    def words(self) -> set[str]:
        return {*self.asks, *self.open, *self.plain, *self.roles}

    def kinds_of(self, words: Iterable[str]) -> set[str]:
        """The kinds of answer that these words ask for; "how many" is not a "how"."""
        kinds = {**self.nouns, **self.asks}
        found = {kinds[word] for word in words if word in kinds}
        return found - {OTHER} if NUMBER in found else found

    def content_of(self, words: Iterable[str], kinds: set[str]) -> list[str]:
        """The words that are neither function words nor nouns that only repeat these kinds."""
        return [
            word for word in words if word not in self.words and self.same.get(word) not in kinds
        ]

    def roles_of(self, words: Iterable[str]) -> list[str]:
        return sorted(self.roles[word] for word in words if word in self.roles)

    def without_opener(self, words: FoldedName) -> FoldedName:
        """The words without a phrase such as "tell me" at their start."""
        fitting = [opener for opener in self.openers if words[: len(opener)] == opener]
        return words[max(map(len, fitting), default=0) :]


@cache
def read_languages() -> tuple[Language, ...]:
    """The languages of question_words.toml."""
    source = files("wherefrom.corpus") / "question_words.toml"
    tables: dict[str, Any] = tomllib.loads(source.read_text(encoding="utf-8"))
    languages = []
    for table in tables.values():
        by_kind: dict[str, Any] = {
            name: {word: kind for kind, words in table[name].items() for word in words}
            for name in ("asks", "nouns", "same")
        }
        roles = {word: forms[0] for forms in table["roles"] for word in forms}
        sets: dict[str, Any] = {
            name: frozenset(table[name]) for name in ("open", "plain", "titles")
        }
        openers = tuple(tuple(opener.split()) for opener in table["openers"])
        languages.append(Language(**by_kind, **sets, roles=roles, openers=openers))
    return tuple(languages)


def choose_language(wordings: Iterable[str]) -> Language:
    """The language that has most of the wordings' words; one without words if none has any."""
    words = [word for wording in wordings for word in fold_words(wording.replace(SLOT, " "))]

    def count(language: Language) -> int:
        return sum(word in language.words for word in words)

    best = max(read_languages(), key=count)
    return best if count(best) else Language()


def kinds_of_answers(answers: Iterable[str]) -> frozenset[str]:
    """What numbers among the answers tell: a year is an answer to "when", a number to "how many".

    Empty for answers in words, of which only the wording of the question tells the kind.
    """
    texts = [answer.strip() for answer in answers if answer.strip()]
    if not texts:
        return frozenset()
    if all(re.fullmatch(r"1\d{3}|20\d{2}", text) for text in texts):
        return frozenset({TIME, NUMBER})
    has_digits = sum(any(c.isdigit() for c in text) for text in texts)
    has_letters = sum(any(c.isalpha() for c in text) for text in texts)
    if 2 * has_digits <= len(texts):
        return frozenset()
    return frozenset({TIME, NUMBER}) if has_letters else frozenset({NUMBER})


def have_one_stem(word: str, other: str) -> bool:
    """Whether two words begin alike, as "founder" and "founded" do."""
    if word == other:
        return True
    shared = _count_shared_letters(word, other)
    return shared >= 4 and shared >= 0.6 * max(len(word), len(other))


def have_one_root(word: str, other: str) -> bool:
    """Whether two words may have one root: a long part in common ("Gründer", "gegründet")."""
    if have_one_stem(word, other):
        return True
    shorter, longer = sorted((word, other), key=len)
    if _count_shared_letters(word, other) >= max(3, len(shorter) - 1) and len(longer) <= 6:
        return True  # "make", "making"
    block = SequenceMatcher(None, word, other, autojunk=False).find_longest_match()
    return block.size >= 4 and block.size >= 0.6 * len(shorter)


def _count_shared_letters(word: str, other: str) -> int:
    pairs = zip(word, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(word), len(other)))


def learn_near_words(
    facts: Mapping[str, Sequence[tuple[str, int, int]]],
) -> dict[str, dict[str, float]]:
    """By template, words that stand in a sentence near the facts of the relation, with weights.

    facts: by template, some texts with the start and end of what answers the relation there. A word
    that is near the facts of several relations has a smaller weight.
    """
    shares: dict[str, dict[str, float]] = {}
    for template, places in facts.items():
        counts: Counter[str] = Counter()
        for text, start, end in places:
            before, after = SENTENCE_END.split(text[:start])[-1], SENTENCE_END.split(text[end:])[0]
            counts.update({*fold_words(before)[-NEAR_WORDS:], *fold_words(after)[:NEAR_WORDS]})
        least = max(2.0, LEAST_NEAR_SHARE * len(places))
        shares[template] = {
            word: count / len(places)
            for word, count in counts.items()
            if count >= least and len(word) > 2 and not any(c.isdigit() for c in word)
        }
    totals = Counter[str]()
    for words in shares.values():
        totals.update(words)
    return {
        template: {word: NEAR_WEIGHT * share / totals[word] for word, share in words.items()}
        for template, words in shares.items()
    }


@dataclass(frozen=True)
class SplitWording:
    """The folded words of a question before and after its subject."""

    before: FoldedName
    after: FoldedName

    @property
    def words(self) -> FoldedName:
        return (*self.before, *self.after)


class Relation:
    """A kind of question, with what tells whether a question in other words asks for the same.

    kinds: of its answers, by its wording or else by the answers that are known.
    """

    def __init__(self, template: str, answer_kinds: frozenset[str], language: Language) -> None:
        self.template, self.language = template, language
        before, after = template.split(SLOT)
        self.wording = SplitWording(fold_words(before), fold_words(after))
        self.asked_kinds = language.kinds_of(self.wording.words)
        self.kinds = self.asked_kinds or set(answer_kinds)
        self.content = language.content_of(self.wording.words, self.kinds)
        self.is_open = not language.open.isdisjoint(self.wording.words)

    def asks_the_same(self, question: SplitWording) -> bool:
        """Whether a question has this relation's meaning, word for word by stems."""
        language, kinds = self.language, self.language.kinds_of(question.words)
        if kinds:
            if not kinds <= self.kinds:
                return False
        elif self.asked_kinds or self.is_open == language.open.isdisjoint(question.words):
            return False
        pairs = (
            (self.wording.before, question.before),
            (self.wording.after, question.after),
        )
        return all(self._says_the_same(own, other) for own, other in pairs)

    def _says_the_same(self, own: FoldedName, other: FoldedName) -> bool:
        """Whether two sides of a name have the same role words, and content words of one stem."""
        language = self.language
        if language.roles_of(own) != language.roles_of(other):
            return False
        own_content = language.content_of(own, self.kinds)
        other_content = language.content_of(other, self.kinds)
        if len(own_content) != len(other_content):
            return False
        return all(
            any(have_one_stem(word, one) for one in other_content) for word in own_content
        ) and all(any(have_one_stem(word, one) for one in own_content) for word in other_content)

    def fits(self, kinds: set[str]) -> bool:
        """Whether its answers may be of one of these kinds; any kind if there are none."""
        if not kinds:
            return True
        if OTHER in kinds - self.kinds:
            return False
        numeric = {TIME, NUMBER}
        return bool(kinds & self.kinds) or (not self.kinds and not kinds <= numeric)

    def score(self, words: Sequence[str], near: Mapping[str, float]) -> float:
        """How much of a question's content words this relation explains: by its own words, or by
        words that stand `near` its facts in the text, which have a weight."""
        content = self.language.content_of(words, self.kinds)
        total = 0.0
        for word in content:
            own = any(have_one_root(word, one) for one in self.content)
            beside = (weight for one, weight in near.items() if have_one_stem(word, one))
            total += 1.0 if own else max(beside, default=0.0)
        return total / max(1, len(content))


def _no_words(_: str) -> Mapping[str, float]:
    return {}


@dataclass(frozen=True, eq=False)
class QuestionMatcher:
    """Understands questions about the relations of a run or a study.

    templates: the wordings. answer_kinds: by template. spell: which of some names are subjects of
    the documents, by their folded words, as the documents spell them. endings: how the questions
    inflect names. near_words: by template, words near its facts, with weights up to 1. similar:
    known names that are like a given one; is_name_word: whether a folded word is part of a known
    name. Both serve to correct a misspelt name, and without them none is corrected. lines_about:
    the lines about a name with their texts; without it no qualifier picks one of them.
    """

    templates: Sequence[str]
    spell: Spell
    answer_kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    endings: Sequence[Ending] = ()
    near_words: Callable[[str], Mapping[str, float]] = _no_words
    similar: Callable[[str], Sequence[str]] | None = None
    is_name_word: Callable[[str], bool] = lambda _: False
    lines_about: Callable[[str], Mapping[int, str]] | None = None

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        return tuple(
            Relation(template, self.answer_kinds.get(template, frozenset()), self.language)
            for template in dict.fromkeys(self.templates)
            if SLOT in template and template != SLOT
        )

    @cached_property
    def language(self) -> Language:
        return choose_language(self.templates)

    def understand(
        self, question: str, subject: str | None = None, *, correct_names: bool = False
    ) -> UnderstoodQuestion:
        """The question in the wording of its relation; else a NotUnderstoodError.

        subject: if it is known beside the question. correct_names: whether a misspelt name is read
        as the known one that it must be.
        """
        check_text(question, self.templates)
        if subject is not None:
            return self._with_subject(question, subject)
        if not any(SLOT in template for template in self.templates):
            raise NotUnderstoodError(
                f'what "{shorten(question)}" is about cannot be told, since the questions that '
                "this run was taught share no wording; give a TSV with the subject in a column of "
                "its own."
            )
        matched = self._match_wordings(question, correct_names)
        if matched is not None and self.spell_name(matched.subject):
            return matched
        if qualified := self._match_qualified(question, matched.subject if matched else ""):
            return qualified
        return matched or self._match_other_words(question, correct_names)

    def _match_qualified(self, question: str, unknown: str) -> UnderstoodQuestion | None:
        """A question about one of several subjects of one name: "the painter Peter Berg", "Peter
        Berg (painter)" or "Peter Berg (line 40)".

        unknown: the unknown subject that a wording found, which then holds the name; or "".
        """
        if self.lines_about is None:
            return None
        line = LINE_NUMBER.search(question)
        plain = question[: line.start()] + question[line.end() :] if line else question
        is_inside = line is None and unknown and unknown in plain
        searched = unknown if is_inside else plain
        typed, start, end = self._find_name(searched)
        start, end = start + plain.index(searched), end + plain.index(searched)
        name = self.spell_name(typed) if typed else ""
        texts = self.lines_about(name) if name else {}
        if line is not None:
            found = self._understand_known(plain, name)
            if found is None:
                return None
            number = int(line[1])
            if number not in texts:
                known = ", ".join(map(str, texts))
                raise NotUnderstoodError(f"line {number} is not about {name}; {known} would be.")
            return replace(found, lines=(number,))
        if len(texts) < 2:
            return None
        for qualifier, asked in self._cut_qualifiers(plain, start, end):
            picked = [n for n, text in texts.items() if set(qualifier) <= {*fold_words(text)}]
            found = self._understand_known(asked, name) if picked else None
            if found is not None:
                return replace(found, lines=tuple(picked))
        return None

    def _understand_known(self, question: str, name: str) -> UnderstoodQuestion | None:
        """The question if it is understood as one about this name, else None."""
        try:
            found = self._match_wordings(question, False) or self._match_other_words(
                question, False
            )
        except NotUnderstoodError:
            return None
        return found if found.subject == name else None

    def _cut_qualifiers(
        self, question: str, start: int, end: int
    ) -> Iterator[tuple[FoldedName, str]]:
        """Words that may tell which subject of a name is meant, and the question without them:
        those in brackets behind the name, or the words right before it with their article."""
        behind = re.match(r"\s*\(([^()]*)\)", question[end:])
        if behind and fold_words(behind[1]):
            yield fold_words(behind[1]), question[:end] + question[end + behind.end() :]
        words = split_words(question[:start])
        first = len(words)
        while first and words[first - 1].folded not in self.language.words:
            first -= 1
        for i in range(len(words) - 1, first - 1, -1):
            qualifier = tuple(word.folded for word in words[i:])
            cuts = [i, i - 1] if i and words[i - 1].folded in self.language.plain else [i]
            for cut in reversed(cuts):
                yield qualifier, question[: words[cut].start] + question[start:]

    def find_bare_name(self, question: str) -> str:
        """The name of a question that is nothing but a name, as documents spell it; or ""."""
        words = question.split()
        is_short = len(words) <= MAX_BARE_NAME_WORDS and len(question) <= MAX_NAME_CHARACTERS
        if not is_short or not fold_words(question):
            return ""
        if any(match_template(relation.template, question) for relation in self.relations):
            return ""
        if name := self.spell_name(question.rstrip(END_MARKS)):
            return name
        typed, *_ = self._find_name(question)
        is_sentence = bool(typed) or (len(words) > 2 and words[0].islower())
        asks = not self.language.words.isdisjoint(fold_words(question))
        return "" if "?" in question or is_sentence or asks else " ".join(words)

    def spell_name(self, name: str) -> str:
        """The name as the documents about it spell it, or "".

        Case, accents, quotes, titles before it and, if the questions inflect names, endings make no
        difference.
        """
        plain = " ".join(name.split()).strip(QUOTES + END_MARKS + " ")
        choices = [name, plain]
        words = split_words(plain)
        first = next(
            (i for i, word in enumerate(words) if word.folded not in self.language.titles), 0
        )
        if first:
            choices.append(plain[words[first].start :])
        for choice in dict.fromkeys(choices):
            forms = list(base_forms(fold_words(choice), self.endings))
            known = self.spell([choice, *(" ".join(form) for form in forms[1:])])
            for form in forms:
                if form in known:
                    return known[form]
        return ""

    def correct_name(self, name: str) -> str:
        """The known name of which this one is a misspelling, or "" if there is no such one."""
        typed = fold_words(name)
        if self.similar is None or not typed:
            return ""
        found = {
            known
            for known in self.similar(" ".join(typed))
            if is_misspelt(typed, fold_words(known), self.is_name_word)
        }
        return found.pop() if len(found) == 1 else ""

    def _with_subject(self, question: str, subject: str) -> UnderstoodQuestion:
        if not fold_words(subject):
            raise _no_letters(subject)
        name = self.spell_name(subject) or subject
        for relation in self.relations:
            matched = match_template(relation.template, question)
            if matched and fold_words(matched) in (fold_words(subject), fold_words(name)):
                text = relation.template.replace(SLOT, name)
                return UnderstoodQuestion(text, name, relation.template)
        if subject in question:
            text = question.replace(subject, name)
            return UnderstoodQuestion(text, name, text.replace(name, SLOT, 1))
        return UnderstoodQuestion(question, subject, question)

    def _match_wordings(self, question: str, correct_names: bool) -> UnderstoodQuestion | None:
        """By the wording of a relation, the longest first, if any has a known name; else the
        longest wording, about somebody unknown."""
        unknown: list[tuple[str, str]] = []
        for template in sorted(self.templates, key=len, reverse=True):
            matched = match_template(template, question) if SLOT in template else None
            if not matched:
                continue
            if name := self.spell_name(matched):
                return UnderstoodQuestion(template.replace(SLOT, name), name, template)
            unknown.append((template, _without_quotes(matched)))
        for template, matched in unknown if correct_names else ():
            if name := self.correct_name(matched):
                return UnderstoodQuestion(template.replace(SLOT, name), name, template)
        for template, matched in unknown:
            if not fold_words(matched):
                raise _no_letters(matched)
            return UnderstoodQuestion(template.replace(SLOT, matched), matched, template)
        return None

    def _match_other_words(self, question: str, correct_names: bool) -> UnderstoodQuestion:
        """By the meaning of a question that names a known subject in words of its own."""
        typed, start, end = self._find_name(question)
        name = self.spell_name(typed) or typed if typed else ""
        if not name and correct_names:
            name, start, end = self._find_misspelt(question)
        if not name:
            name = self.find_bare_name(question) if self.relations else ""
            if not name:
                raise self._refuse(question)
            start, end = 0, len(question)
        wording = self._split(question, start, end)
        same = [relation for relation in self.relations if relation.asks_the_same(wording)]
        if len(same) == 1:
            template = same[0].template
            return UnderstoodQuestion(template.replace(SLOT, name), name, template)
        if not wording.words:  # a name alone
            template = self.relations[0].template
            return UnderstoodQuestion(template.replace(SLOT, name), name, template)
        raise self._refuse(question, name, same or self._find_candidates(wording))

    def _find_candidates(self, question: SplitWording) -> list[Relation]:
        """The one or two relations that a question may mean."""
        kinds = self.language.kinds_of(question.words)
        fitting = [relation for relation in self.relations if relation.fits(kinds)]
        scores = {
            relation: relation.score(question.words, self.near_words(relation.template))
            for relation in fitting
        }
        best = max(scores.values(), default=0.0)
        if best > 0:
            ranked = sorted(fitting, key=lambda relation: -scores[relation])
            close = [one for one in ranked if scores[one] >= CLOSE_SCORE * best]
            return close[:MAX_CANDIDATES]
        if kinds:
            of_kind = [relation for relation in fitting if relation.kinds & kinds]
        else:  # "what is ...": a relation whose wording tells no kind either
            of_kind = [relation for relation in fitting if not relation.asked_kinds]
        return of_kind if len(of_kind) <= MAX_CANDIDATES else []

    def _split(self, question: str, start: int, end: int) -> SplitWording:
        """The words around the name, without an opening phrase and titles of the name."""
        before = self.language.without_opener(fold_words(question[:start]))
        while before and before[-1] in self.language.titles:
            before = before[:-1]
        return SplitWording(before, fold_words(question[end:]))

    def _find_name(self, question: str) -> tuple[str, int, int]:
        """The longest known name in the question, as it is typed, and its place; or ""."""
        starts = [word.start for word in split_words(question)[:MAX_SEARCHED_WORDS]]
        lengths = range(1, MAX_NAME_CHARACTERS + 1)
        names = {question[start : start + length] for start in starts for length in lengths}
        known = self.spell(names) if names else {}
        if found := find_named_subject(question, known):
            start = question.index(found)
            return found, start, start + len(found)
        if self.endings:
            forms = [
                " ".join(form)
                for name in names
                for form in base_forms(fold_words(name), self.endings)
            ]
            if place := find_inflected(question, self.spell(forms), self.endings):
                name, start, end = place
                return name, start, end
        return "", 0, 0

    def _find_misspelt(self, question: str) -> tuple[str, int, int]:
        """A known name that is misspelt in the question, and its place; or ""."""
        words = split_words(question)[:MAX_SEARCHED_WORDS]
        windows = [
            (words[i].start, words[i + length - 1].end)
            for length in range(min(MAX_TYPO_WINDOW, len(words)), 0, -1)
            for i in range(len(words) - length + 1)
            if any(word.folded not in self.language.words for word in words[i : i + length])
        ]
        for start, end in windows:
            if name := self.correct_name(question[start:end]):
                return name, start, end
        return "", 0, 0

    def _refuse(
        self, question: str, name: str = "", relations: Sequence[Relation] = ()
    ) -> NotUnderstoodError:
        candidates = [
            UnderstoodQuestion(relation.template.replace(SLOT, name), name, relation.template)
            for relation in relations[:MAX_CANDIDATES]
        ]
        if candidates:
            return NotUnderstoodError(
                f'"{shorten(question)}" is not worded like a question of this run; did you mean '
                f"{_list_texts(candidates)}?",
                candidates,
            )
        wordings = [template for template in self.templates if SLOT in template]
        known = " or ".join(f'"{wording}"' for wording in wordings[:MAX_LISTED_WORDINGS])
        hint = f"write it so, with {name or 'a name'} for {SLOT}"
        return NotUnderstoodError(f'"{shorten(question)}" is not worded like {known}; {hint}.')


def is_misspelt(typed: FoldedName, known: FoldedName, is_name_word: Callable[[str], bool]) -> bool:
    """Whether a name is a known one with one or two wrong letters in one word.

    A word that is part of a known name is no misspelling: Ann Berg is not Ann Borg.
    """
    from rapidfuzz.distance import OSA

    if len(typed) != len(known):
        return False
    different = [(a, b) for a, b in zip(typed, known, strict=True) if a != b]
    if len(different) != 1:
        return False
    ((word, right),) = different
    most = 2 if len(right) >= 8 else 1
    is_long = len(right) >= 4 and any(c.isalpha() for c in right)
    return is_long and OSA.distance(word, right) <= most and not is_name_word(word)


def check_text(question: str, templates: Sequence[str]) -> None:
    """Refuse what is no question: nothing, too much, or no Unicode."""
    if not question.strip():
        example = f', as in "{templates[0]}"' if templates else ""
        raise NotUnderstoodError(f"the question is empty; write one{example}.")
    if len(question) > MAX_QUESTION_CHARACTERS:
        raise NotUnderstoodError(
            f"a question may have {MAX_QUESTION_CHARACTERS:,} characters; "
            f'"{shorten(question)}" has {len(question):,}.'
        )
    if re.search("[\ud800-\udfff]", question):
        raise NotUnderstoodError(f"{question[:60]!a} is not Unicode text; write it as UTF-8.")


def _without_quotes(name: str) -> str:
    """A name without the quotes around it; a quote at one end belongs to it."""
    is_quoted = len(name) > 2 and name[0] in QUOTES and name[-1] in QUOTES
    return name[1:-1].strip() if is_quoted else name


def _no_letters(subject: str) -> NotUnderstoodError:
    return NotUnderstoodError(
        f'a name needs at least one letter or digit, and "{shorten(subject)}" has none.'
    )


def _list_texts(questions: Sequence[UnderstoodQuestion]) -> str:
    return " or ".join(f'"{shorten(question.text)}"' for question in questions)


# ---- files of questions


def match_documents(train: QuestionSet, corpus: Database) -> QuestionMatcher:
    """What understands questions like those of a training file, about subjects of the documents."""
    answers: dict[str, list[str]] = defaultdict(list)
    for question in train.questions:
        if not question.is_silent:
            answers[question.template].append(question.answer or "")

    kinds = {template: kinds_of_answers(texts) for template, texts in answers.items()}
    return QuestionMatcher(train.templates, corpus.spell_names, kinds, train.endings)


def respell(file: QuestionSet, matcher: QuestionMatcher) -> QuestionSet:
    """The questions of a file as `understand` reads them; those that it refuses stay as is."""
    questions = []
    for question in file.questions:
        try:
            found = matcher.understand(question.text)
        except NotUnderstoodError:
            found = UnderstoodQuestion(question.text, question.subject, question.template)
        if fold_words(found.subject) != fold_words(question.subject):  # a column names the subject
            found = matcher.understand(question.text, question.subject)
        questions.append(
            replace(question, text=found.text, subject=found.subject, template=found.template)
        )
    return replace(file, questions=tuple(questions), templates=count_templates(questions))


def read_matched_questions(
    path: str | Path, matcher: QuestionMatcher
) -> tuple[QuestionSet, dict[int, str]]:
    """A TSV of questions, and by line number why some are refused; these have no template."""
    file = QuestionFile.read(path)
    questions, refused = [], {}
    for number, (text, *others) in zip(file.lines, file.rows, strict=True):
        answer, subject = (*others, None, None)[:2]
        try:
            found = matcher.understand(text, subject)
        except NotUnderstoodError as problem:
            refused[number] = str(problem)
            found = UnderstoodQuestion(text, subject or "", "")
        questions.append(Question(number, found.text, found.subject, answer, found.template))
    templates = count_templates(questions)
    return QuestionSet(file.path, file.sha256, templates, tuple(questions)), refused
