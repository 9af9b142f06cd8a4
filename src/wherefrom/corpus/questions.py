"""Questions: a TSV of question, answer and (optionally) subject, one per line.

A relation is a kind of question, known by its template: "Where was {subject} born?". A file may ask
about several relations. The subject of a question is written in the third column, or is a subject
of the documents that the question names, or stands where the questions of the file differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from pathlib import Path

from wherefrom.corpus.documents import QUESTION_MARKS, hash_file, read_lines
from wherefrom.corpus.folding import FoldedName, fold_words, split_words
from wherefrom.corpus.inflection import Ending, find_inflected, learn_endings, shared_start
from wherefrom.errors import UserError

SLOT = "{subject}"
NOT_STATED = "-"  # the answer of a question that no document answers
MAX_QUESTION_CHARACTERS = 2_000
MAX_SUBJECT_WORDS = 40  # words of a subject that is looked for in a question,
MAX_GLUED_CHARACTERS = 60  # and characters of one that something is glued to,
MAX_PREFIX_LETTERS = 3  # with so many letters before it
END_MARKS = "?!.,;:…？！。؟"  # the end of a question may have any of these marks or none
COLUMNS = ("question", "answer", "subject")
MIN_INFLECTED_QUESTIONS = 3  # questions of a wording that inflects its subjects,
MIN_INFLECTED_SHARE = 0.1  # and their share among those that fit it


@dataclass(frozen=True)
class Question:
    """One row of a file: `answer` is None if the file has no answers; `template` is its wording."""

    line: int
    text: str
    subject: str
    answer: str | None
    template: str = ""

    @property
    def is_silent(self) -> bool:
        """Whether the file says that no document states an answer."""
        return self.answer == NOT_STATED


@dataclass(frozen=True)
class QuestionSet:
    """The questions of one file; `templates` are their relations, most frequent first.

    endings: how the file inflects subjects; here they are spelled as in the documents.
    """

    path: Path
    sha256: str
    templates: tuple[str, ...]
    questions: tuple[Question, ...]
    endings: tuple[Ending, ...] = ()

    @property
    def answered(self) -> bool:
        return self.questions[0].answer is not None

    def to_tsv(self) -> str:
        """The questions as a file, each with its subject."""
        rows = [(q.text, q.answer or "", q.subject) for q in self.questions]
        return "".join("\t".join(row) + "\n" for row in rows)

    def with_path(self, path: Path) -> QuestionSet:
        """The same questions, as read from a file that holds `to_tsv()`."""
        digest = sha256(self.to_tsv().encode("utf-8")).hexdigest()
        return replace(self, path=path, sha256=digest)

    def require_answers(self) -> None:
        """Refuse a file without answers where there is something to learn or to score."""
        if not self.answered:
            raise UserError(
                f"{self.path}, line {self.questions[0].line}: an answer was expected after a tab, "
                "and the rows of this file have none."
            )


@dataclass(frozen=True)
class QuestionFile:
    """A file of questions as it was read: the cells of each row, and their line numbers."""

    path: Path
    sha256: str
    lines: tuple[int, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def read(cls, path: str | Path) -> QuestionFile:
        """Read a TSV, all rows with the same columns, none of them empty or too long."""
        path = Path(path)
        numbered = list(read_lines(path, "questions"))
        check_form(path, numbered)
        rows = tuple(tuple(cell.strip() for cell in line.split("\t")) for _, line in numbered)
        for (number, _), row in zip(numbered, rows, strict=True):
            if problem := _describe_problem(row, len(rows[0])):
                raise UserError(f"{path}, line {number}: {problem}")
        return cls(path, hash_file(path), tuple(number for number, _ in numbered), rows)

    @property
    def texts(self) -> list[str]:
        return [row[0] for row in self.rows]

    @property
    def answers(self) -> list[str | None]:
        return [row[1] if len(row) > 1 else None for row in self.rows]

    def find_questions(
        self,
        templates: Sequence[str] = (),
        *,
        subjects: Mapping[FoldedName, str] | None = None,
        endings: Sequence[Ending] = (),
    ) -> QuestionSet:
        """The questions with their subjects.

        templates: wordings that are known. subjects: those of the documents by their folded names;
        they show where the subject of a question stands, and how it is inflected beside the known
        `endings`. With neither, the wording that the questions share is inferred.
        """
        for template in templates:
            if template.count(SLOT) != 1 or not template.replace(SLOT, "").strip():
                raise UserError(
                    f"a template holds {SLOT} once, with words around it, as in "
                    f'"Where was {SLOT} born?"; "{template[:60]}" does not.'
                )
        texts, known = self.texts, subjects or {}
        if len(self.rows[0]) == len(COLUMNS):
            matches, endings = self._match_given_subjects(), list(endings)
        else:
            matches = find_subjects(texts, templates, known, self.path)
            inflecting = templates if endings else ()
            matches, endings = undo_inflection(texts, matches, known, list(endings), inflecting)
        questions = []
        for number, text, answer, (subject, template) in zip(
            self.lines, texts, self.answers, matches, strict=True
        ):
            if not subject:
                raise self._nobody_named(number, text, templates)
            if SLOT in template and subject not in text:  # it was inflected
                text = template.replace(SLOT, subject)
            questions.append(Question(number, text, subject, answer, template))
        relations = count_templates(questions)
        return QuestionSet(self.path, self.sha256, relations, tuple(questions), tuple(endings))

    def _match_given_subjects(self) -> list[tuple[str, str]]:
        """Subject and template of each row that names its subject in a column of its own."""
        # "de" stands twice in "Which language has the code de?": other rows show which is meant
        wordings = [_with_slots(text, subject) for text, _, subject in self.rows]
        counts = Counter(wording for choices in wordings for wording in choices)
        best = (max(choices, key=counts.__getitem__) for choices in wordings)
        return [(row[2], wording) for row, wording in zip(self.rows, best, strict=True)]

    def _nobody_named(self, number: int, text: str, templates: Sequence[str]) -> UserError:
        wanted = " or ".join(f'"{template}"' for template in templates[:3]) or "other rows"
        header = "remove it if it is a header, " if number == self.lines[0] else ""
        return UserError(
            f'{self.path}, line {number}: "{text[:60]}" names no subject of the documents and is '
            f"not worded like {wanted}; {header}give its wording with --template, or the subject "
            "in column three."
        )


def read_questions(
    path: str | Path,
    templates: Sequence[str] = (),
    *,
    subjects: Mapping[FoldedName, str] | None = None,
    endings: Sequence[Ending] = (),
) -> QuestionSet:
    """The questions of a TSV with their subjects, as `QuestionFile.find_questions` finds them."""
    return QuestionFile.read(path).find_questions(templates, subjects=subjects, endings=endings)


def count_templates(questions: Iterable[Question]) -> tuple[str, ...]:
    """The templates of the questions, the most frequent first."""
    counts = Counter(question.template for question in questions if question.template)
    return tuple(template for template, _ in counts.most_common())


def _describe_problem(row: Sequence[str], columns: int) -> str:
    """What is wrong with the cells of a row, where the first one has so many columns; or ""."""
    found = f"{len(row)} column{'s' if len(row) != 1 else ''}"
    if len(row) > len(COLUMNS):
        return f"{found}; question, answer and subject, separated by tabs, were expected."
    if "" in row:
        return f"the {COLUMNS[row.index('')]} is empty."
    if len(row[0]) > MAX_QUESTION_CHARACTERS:
        limit = f"{MAX_QUESTION_CHARACTERS:,} characters"
        return f"a question has at most {limit}, not {len(row[0]):,}."
    if len(row) != columns:
        return f"{found} where the first row has {columns}; give every row as many."
    return ""


def check_form(path: Path, numbered: Sequence[tuple[int, str]]) -> None:
    """Refuse a header row, CSV, JSON and swapped columns, each with a sentence of its own."""
    lines = [line for _, line in numbered]
    first = {cell.strip().lower() for cell in lines[0].split("\t")}
    asking = [[c.strip().endswith(QUESTION_MARKS) for c in line.split("\t")[:2]] for line in lines]
    no_tabs = not any("\t" in line for line in lines)
    problem = None
    if len(lines) > 1 and first <= {*COLUMNS, "questions", "answers", "subjects", "q", "a"}:
        problem = "this is a header; remove it, every line is a question."
    elif no_tabs and lines[0].lstrip().startswith(("{", "[")):
        problem = "this is JSON; questions are a TSV, question TAB answer on each line."
    elif no_tabs and re.search(r"[?？]\"?[,;]\s*\"?[^\s,;]", lines[min(1, len(lines) - 1)]):
        problem = "columns are separated by commas; questions are a TSV, question TAB answer."
    elif 2 * asking.count([False, True]) > len(lines):
        problem = "question and answer seem to be swapped; the question comes first, then a tab."
    if problem:
        raise UserError(f"{path}, line {numbered[0][0]}: {problem}")


def find_subjects(
    texts: Sequence[str],
    templates: Sequence[str],
    known: Mapping[FoldedName, str],
    where: str | Path,
) -> list[tuple[str, str]]:
    """Subject and template of each question; both are empty if nothing shows them.

    known: the subjects of the documents by their folded names.
    """
    matches = [match_any(templates, text) for text in texts]
    unmatched = [i for i, (subject, _) in enumerate(matches) if not subject]
    if known and unmatched:
        by_name: dict[int, tuple[str, str]] = {}
        for i in unmatched:
            if name := find_named_subject(texts[i], known):
                by_name[i] = name, _with_slots(texts[i], name)[0]
        counts = Counter(template for _, template in by_name.values())
        # a wording that hardly any question has is one with part of a name in it
        fewest = min(len(unmatched), max(2, len(unmatched) // 100))
        repeated = [template for template, count in counts.most_common() if count >= fewest]
        for i in unmatched:
            matched = match_any((*templates, *repeated), texts[i])
            matches[i] = matched if matched[0] else by_name.get(i, ("", ""))
    if templates or any(subject for subject, _ in matches):
        return matches
    inferred = infer_templates(list(texts), where)
    return [match_any(inferred, text) for text in texts]


def undo_inflection(
    texts: Sequence[str],
    matches: list[tuple[str, str]],
    known: Mapping[FoldedName, str],
    endings: list[Ending],
    inflecting: Sequence[str],
) -> tuple[list[tuple[str, str]], list[Ending]]:
    """The matches of `find_subjects` with inflected names as documents spell them; and all endings.

    Only wordings count that are known as `inflecting`, or that inflect many of their subjects: a
    single name that is like another one is somebody else's.
    """
    unknown = [i for i, (subject, _) in enumerate(matches) if fold_words(subject) not in known]
    if not known or not unknown:
        return matches, endings
    # a template that goes on inside a word: the rest of that word is an ending too
    glued = [i for i, (_, template) in enumerate(matches) if re.search(r"\}\w", template)]
    candidates = sorted({*unknown, *glued})
    learned = learn_endings((texts[i] for i in candidates), known)
    endings = list(dict.fromkeys([*endings, *learned]))
    inflected: dict[int, tuple[str, str]] = {}
    for i in candidates if endings else ():
        if place := find_inflected(texts[i], known, endings):
            name, start, end = place
            inflected[i] = name, texts[i][:start] + SLOT + texts[i][end:]
    counts = Counter(template for _, template in inflected.values())
    for template, count in counts.items():
        fitting = sum(match_template(template, text) is not None for text in texts)
        few = count < max(MIN_INFLECTED_QUESTIONS, MIN_INFLECTED_SHARE * fitting)
        if few and template not in inflecting:
            inflected = {i: match for i, match in inflected.items() if match[1] != template}
    corrected = [inflected.get(i, match) for i, match in enumerate(matches)]
    return corrected, endings if inflected else []


def infer_templates(questions: list[str], where: str | Path, fewest: int = 0) -> list[str]:
    """The wordings of the questions, by their own words alone: one that all share, or several.

    Of several, each is the start and the end that most words of the questions left over share.
    fewest: leave out wordings that fewer questions have; by default each question must have one.
    """
    try:
        return _part_relations(infer_template(questions, where), questions)
    except UserError as problem:
        left = set(questions)
        templates: list[str] = []
        while left and (template := _commonest_wording(left, max(2, fewest))):
            alike = {question for question in left if match_template(template, question)}
            with suppress(UserError):  # what is glued to every subject belongs to the wording
                template = infer_template(sorted(alike), where)
            templates += _part_relations(template, sorted(alike))
            left -= alike
        if left and not fewest:
            raise problem from None
        return templates


def _commonest_wording(questions: Collection[str], fewest: int) -> str:
    """The start and the end that most words of these questions share; "" if fewer than that do."""
    shared: Counter[tuple[str, str]] = Counter()
    for question in questions:
        bare = question.rstrip("?!. ")
        words, marks = re.split(r" +", bare), question[len(bare) :]
        shared.update(
            (" ".join(words[:first]), " ".join(["", *words[last:]]) + marks)
            for first in range(len(words))
            for last in range(first + 1, len(words) + 1)
            if first or last < len(words)
        )
    if not shared:  # no blanks: nothing shows where a wording ends
        return ""
    ends, count = max(shared.items(), key=lambda x: (x[1] * len(fold_words(str(x[0]))), x))
    template = f"{ends[0]} {SLOT}{ends[1]}".strip()
    is_shared = count >= fewest and any(match_template(template, each) for each in questions)
    return template if is_shared else ""


def _part_relations(template: str, questions: Sequence[str]) -> list[str]:
    """The wordings that a shared one stands for: more than one if its subjects have words beside
    their names.

    "Which country {subject} in?" may share "is Ede located" and "was Oz created". A word belongs to
    a wording if it has no capital, several subjects begin or end with it, and some name with a
    capital is left beside it.
    """
    subjects = {question: match_template(template, question) or "" for question in questions}
    firsts, lasts = Counter[str](), Counter[str]()
    for subject in subjects.values():
        words = subject.split()
        firsts.update(words[:1])
        lasts.update(words[-1:])
    groups: dict[tuple[str, str], list[str]] = {}
    for question, subject in subjects.items():
        words = subject.split()
        has_name = any(word[0].isupper() for word in words)
        first = words[0] if words and words[0].islower() and firsts[words[0]] > 1 else ""
        last = words[-1] if words and words[-1].islower() and lasts[words[-1]] > 1 else ""
        beside = (first, last) if has_name else ("", "")
        groups.setdefault(beside, []).append(question)
    in_wording = sum(len(several) for beside, several in groups.items() if any(beside))
    if 2 * in_wording <= len(subjects):
        return [template]
    parts = []
    for (first, last), several in groups.items():
        longer = f"{first} {SLOT} {last}".strip()
        part = template.replace(SLOT, longer)
        parts += _part_relations(part, several) if first or last else [template]
    return list(dict.fromkeys(parts))


def infer_template(questions: list[str], where: str | Path) -> str:
    """The wording that all questions share, with the subject's place marked.

    Prefix and suffix are cut back to whole words, since subjects may share letters, and then to
    words without a capital, since subjects may share a name ("Where was Anna {subject} born?").
    """
    distinct = sorted(set(questions))
    if len(distinct) > 1:
        before = shared_start(distinct)
        after = shared_start([question[::-1] for question in distinct])[::-1]
        before = before[: before.rfind(" ") + 1]
        after = re.sub(r"^[^\W_]+", "", after)
        while (word := re.search(r" (\S+ )$", before)) and word[1][0].isupper():
            before = before[: word.start(1)]
        while (word := re.match(r" \S+(?= )", after)) and word[0][1].isupper():
            after = after[word.end() :]
        template = before + SLOT + after
        fits = all(match_template(template, question) for question in distinct)
        if re.search(r"\w", before + after) and fits:
            return template
    raise UserError(
        f"{where}: the questions share no wording that shows the subject of each; give it with "
        f'--template "Where was {SLOT} born?" or name the subject in a third column.'
    )


def find_named_subject(text: str, known: Mapping[FoldedName, str]) -> str | None:
    """The longest known subject (by its folded name) that the question names, as it spells it.

    A name may have something glued to either end of it; then its spelling must be the known one.
    """
    if not known:
        return None
    words = split_words(text)
    folded = tuple(word.folded for word in words)
    for length in range(min(len(words), MAX_SUBJECT_WORDS), 0, -1):
        for i in range(len(words) - length + 1):
            if folded[i : i + length] in known:
                return text[words[i].start : words[i + length - 1].end]
    first_letters = (range(word.start, word.end)[: MAX_PREFIX_LETTERS + 1] for word in words)
    starts = set(chain.from_iterable(first_letters))
    parts = {
        text[start : start + size]
        for start in starts
        for size in range(1, MAX_GLUED_CHARACTERS + 1)
    }
    spelled = parts.intersection(known.values())
    glued = [part for part in spelled if known.get(fold_words(part)) == part]
    return max(glued, key=lambda part: (len(part), part), default=None)


def _with_slots(text: str, subject: str) -> list[str]:
    """The question with one place of its subject marked, for each place; or the question itself."""
    places = re.finditer(re.escape(subject), text)
    return [text[: m.start()] + SLOT + text[m.end() :] for m in places] or [text]


def match_any(templates: Iterable[str], text: str) -> tuple[str, str]:
    """Subject and template by the first template that fits, the most specific one first."""
    for template in sorted(templates, key=len, reverse=True):
        if SLOT in template and (subject := match_template(template, text)):
            return subject, template
    return "", ""


def match_template(template: str, question: str) -> str | None:
    """The subject of a question worded like the template; None if it is not worded so.

    Case, blanks and end marks make no difference, unless the question fits letter by letter.
    """
    before, after = template.split(SLOT)
    if question.startswith(before) and question.endswith(after):
        return question[len(before) : len(question) - len(after)].strip() or None
    match = _template_pattern(template).fullmatch(question)
    return " ".join(match[1].split()) or None if match else None


@lru_cache(maxsize=1 << 10)
def _template_pattern(template: str) -> re.Pattern[str]:
    before, after = (
        re.sub(r"(\\?\s)+", r"\\s+", re.escape(part))
        for part in template.strip().rstrip(END_MARKS).split(SLOT)
    )
    pattern = rf"\s*{before}(.+?){after}[\s{END_MARKS}]*"
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def question_rows(questions: Iterable[Question]) -> list[str]:
    """One line per question, for `storage.digest_of`."""
    return [f"{row.text}\t{row.answer or ''}\t{row.subject}" for row in questions]
