"""Before any training: texts as people have them in one form, and what is wrong with the files.

Whatever comes in (JSONL, CSV, a folder of files, paragraphs, lines without a subject), what is read
is one document per line, `subject TAB text` or `Name. text`. A sentence says how it was understood.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.documents import (
    LONGEST_DOCUMENT,
    STOPS,
    Corpus,
    Document,
    Documents,
    Lines,
    check_length,
    find_subject,
    names_of,
    number_lines,
)
from wherefrom.corpus.facts import FEWEST, RelationReading, read_relations
from wherefrom.corpus.folding import FoldedName, find_phrase, fold_words
from wherefrom.corpus.inflection import find_form, find_inflected, learn_endings
from wherefrom.corpus.packed import Computed
from wherefrom.corpus.questions import (
    SLOT,
    Question,
    QuestionSet,
    find_named_subject,
)
from wherefrom.corpus.subjects import find_named
from wherefrom.errors import UserError, did_you_mean

SUBJECT_FIELDS = ("subject", "title", "name", "entity", "heading", "id")
TEXT_FIELDS = ("text", "body", "content", "document", "abstract", "description", "summary")
SUFFIXES = {".txt", ".md"}
LONGEST_NAME = 80  # characters, and
MOST_WORDS = 10  # words of what can be the name at the head of a document
PASSAGE = 1_000  # characters above which a document is cut into passages
TEXT_LENGTH = 30  # characters, on average, of a field that can be the text
SOME_QUESTIONS = 400  # that are looked at for the names of subjects
LEAST_NAME = 2  # letters of such a name
MATCHED = 0.05  # share of the questions whose subject must head a document
SEVERAL_ANSWERS = 0.02  # share of the questions that may have them
FOUND = 0.8  # share of the training answers in the text below which some are shown that are not
UNSTATED = 0.2  # share of dev answers in no document, above which that is said
FEW = 3  # lines as short as a header, from which on the first is none
ENDINGS = range(1, 5)  # letters that may be glued to a name
READ = 0.8  # probability of a subject that is read off a text
UNCLEAR = 0.3  # probability of the likeliest answer that the text states
SHOWN = 3  # examples in a sentence
Rows = Iterable[tuple[str, str, str]]  # subject ("" for none), text, and where it stands
Records = Iterable[tuple[str, dict[str, Any]]]  # where each stands, and its fields


def convert(
    path: str | Path,
    *,
    subject_field: str | None = None,
    text_field: str | None = None,
    questions: Sequence[str] = (),
    asked: Collection[str] = (),
) -> tuple[Documents, str] | None:
    """The documents of a text, and how it was understood; None if it is in form already.

    questions: what will be asked, and asked: their subjects, as far as their wording shows them.
    Where documents have no subject of their own, each is about the one of these it names first.
    """
    path = Path(path)
    fields, lines = (subject_field, text_field), Lines(path, "corpus")
    first = "" if path.is_dir() else next(iter(lines))[1]
    kind = path.suffix.lower()
    as_json = kind in (".jsonl", ".ndjson", ".json") or first.lstrip()[:1] == "{"
    tabs = not path.is_dir() and all("\t" in line for _, line in lines)
    if path.is_dir():
        rows, how = _read_folder(path)
    elif not as_json and (kind == ".csv" or any(fields) or (tabs and _has_header(lines))):
        rows, how = _read_fields(path, lambda: _read_csv(path, lines), fields, asked, questions)
        how = "a table" + how
    elif as_json:
        rows, how = _read_fields(path, lambda: _read_json(path), fields, asked, questions)
        how = "JSON" + how
    elif tabs or _open_with_names(lines, questions):
        return None
    else:  # blocks between blank lines if there are any, otherwise lines; neither has a subject
        several = [False, *("\n" in block for block in _read_paragraphs(path))]
        blocks, unit = _read_paragraphs(path), "paragraphs"
        if len(several) < 3 or not any(several):
            blocks, unit = (line for _, line in lines), "lines"
        rows = (("", block, f"{path}, {unit[:-1]} {at}") for at, block in enumerate(blocks, 1))
        how = ""
    texts = Documents()
    for subject, text, where in rows:
        check_length(text, where)
        texts.add(len(texts), len(subject), f"{subject}. {text}" if subject else text)
    how = how or f"{len(texts):,} {unit}"
    subjects: Sequence[str] = Computed(lambda at: texts[at].subject, len(texts))
    if not any(document.subject for document in texts):
        subjects, about = _assign_subjects(texts, asked, path)
        how += about
    made = Documents()
    for subject, document in zip(subjects, texts, strict=True):
        head, body = " ".join(subject.split()), document.body
        for part in cut_passages(body):
            part = " ".join(part.split())
            made.add(len(made) + 1, len(head), f"{head}. {part}" if head else part)
    if len(made) > len(texts):
        how += f", read in {len(made):,} passages"
    return made, f"{path} was read as {how}."


def cut_passages(text: str) -> list[str]:
    """A long text in parts of at most PASSAGE characters, cut where a sentence or a line ends."""
    text = text.strip()
    parts = []
    while len(text) > PASSAGE:
        stops = re.finditer(rf"\n|[.!?](?=\s|$)|(?<=[{STOPS}！？])", text[:PASSAGE])
        cut = max((stop.end() for stop in stops), default=0)
        if cut <= PASSAGE // 3:
            cut = text[:PASSAGE].rfind(" ") + 1 or PASSAGE
        parts.append(text[:cut].strip())
        text = text[cut:].strip()
    return [part for part in (*parts, text) if part]


def _has_header(lines: Lines) -> bool:
    """Whether the first of the lines with tabs names fields: a known one, or all of them are single
    words where other lines have many."""
    first = [cell.strip() for cell in next(iter(lines))[1].split("\t")]
    if {cell.lower() for cell in first} & set(TEXT_FIELDS):
        return True
    some = list(islice(lines, FEW + 1))
    short = list(islice((1 for _, line in lines if len(line.split()) <= len(first)), FEW))
    return all(len(cell.split()) == 1 for cell in first) and len(some) > FEW > len(short)


def _open_with_names(lines: Lines, questions: Sequence[str]) -> bool:
    """Whether half of the lines open with what can be a name, and questions name some of them."""
    heads, fits = Documents(), list[bool]()
    for number, line in lines:
        name = find_subject(line.lstrip()) or ""
        heads.add(number, len(name), name)
        if len(fits) < 5_000:
            fits.append(0 < len(name) <= LONGEST_NAME and len(name.split()) <= MOST_WORDS)
    return 2 * sum(fits) >= len(fits) and (
        not questions or _share_named(questions, heads.names) >= MATCHED
    )


def _read_paragraphs(path: Path) -> Iterator[str]:
    """The blocks of a text between its blank lines."""
    block: list[str] = []
    with open(path, "rb", buffering=0) as file:
        for _, line in chain(number_lines(file), [(0, "")]):
            if line.strip():
                block.append(line)
            elif block:
                yield "\n".join(block).strip()
                block = []


def _read_folder(path: Path) -> tuple[Rows, str]:
    files = sorted(f for f in path.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file())
    if not files:
        raise UserError(
            f"{path} is a folder without .txt or .md files; give a text, or a folder of such files."
        )
    how = f"a folder of {len(files):,} files, each about what its heading or name says"
    return map(_read_page, files), how


def _read_page(file: Path) -> tuple[str, str, str]:
    lines = [line for _, line in Lines(file, "document")]
    title = re.match(r"#\s+(.+)", lines[0])
    subject = title[1] if title else re.sub(r"[_\s]+", " ", file.stem)
    return subject.strip(), "\n".join(lines[1:] if title else lines), str(file)


def _read_json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSONL file, one per line, or of one JSON array, each with where it is."""
    lines: Iterable[tuple[int, str]] = Lines(path, "corpus")
    whole = path.suffix.lower() == ".json" and next(iter(lines))[1].lstrip().startswith("[")
    if whole:  # which is in memory at once
        lines = [(0, "\n".join(line for _, line in lines))]
    for number, text in lines:
        where = f"{path}, line {number}" if number else str(path)
        try:
            found = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as problem:
            why = getattr(problem, "msg", "nested too deeply")
            raise UserError(f"{where}: this is not JSON ({why}).") from None
        items = enumerate(found, start=1) if whole else [(0, found)]
        for at, record in items:
            here = f"{where}, item {at}" if at else where
            if not isinstance(record, dict):
                raise UserError(
                    f"{here}: each document of a JSON corpus is an object such as "
                    f'{{"title": ..., "text": ...}}; this one is {json.dumps(record)[:40]}.'
                )
            yield here, dict(_flatten("", record))


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of an object, those inside other objects by a path such as "meta.title"."""
    for key, inner in value.items():
        path = f"{name}{key}"
        yield from _flatten(f"{path}.", inner) if isinstance(inner, dict) else [(path, inner)]


def _read_csv(path: Path, lines: Lines) -> Iterator[tuple[str, dict[str, Any]]]:
    csv.field_size_limit(LONGEST_DOCUMENT * 2)
    delimiter = max(",;\t", key=next(iter(lines))[1].count)
    rows = csv.DictReader((f"{line}\n" for _, line in lines), delimiter=delimiter)
    try:
        yield from ((f"{path}, row {number}", record) for number, record in enumerate(rows, 2))
    except csv.Error as problem:
        raise UserError(f"{path} cannot be read as CSV: {problem}.") from None


def _read_fields(
    path: Path,
    read: Callable[[], Records],
    fields: tuple[str | None, str | None],
    asked: Collection[str],
    questions: Sequence[str],
) -> tuple[Rows, str]:
    """Subject and text of each record, from the fields that were named, or those that look so.

    The text is in a field of a usual name, or in the one that is by far the longest; the subject
    in the field that holds most of the subjects asked about, or in one of a usual name.
    """
    _, head = next(iter(read()), ("", None))
    if head is None:
        raise UserError(f"{path} has a header and no rows; a corpus needs at least one document.")
    names = [name for name in head if name]
    for option, wanted in zip(("--subject-field", "--text-field"), fields, strict=True):
        if wanted is not None and wanted not in names:
            raise UserError(
                f'{path} has no field "{wanted}", which {option} names.'
                f"{did_you_mean(wanted, names)}"
            )
    lower = {name.lower().rpartition(".")[2]: name for name in reversed(names)}
    text_field = fields[1] or next((lower[n] for n in TEXT_FIELDS if n in lower), None)
    if text_field is None:
        sizes, many = Counter(dict.fromkeys(names, 0)), 0
        for _, record in read():
            many += 1
            sizes.update({name: len(_cell(record, name)) for name in names})
        longest = sorted(names, key=lambda name: -sizes[name])
        least = [TEXT_LENGTH * many, *(2 * sizes[name] for name in longest[1:2])]
        if not longest or sizes[longest[0]] < max(least):
            raise UserError(
                f"{path} has the fields {', '.join(names) or '(none)'}, and none is called "
                f"{', '.join(TEXT_FIELDS[:3])}; name the one that holds the text with --text-field."
            )
        text_field = longest[0]
    subject_field = fields[0]
    if subject_field is None:
        wanted_names = {fold_words(name) for name in asked} - {()}
        held: dict[str, set[FoldedName]] = {name: set() for name in names if name != text_field}
        for _, record in read() if wanted_names else ():
            for name, found in held.items():
                found |= wanted_names & {fold_words(_cell(record, name))}
        best = max(held, key=lambda name: len(held[name]), default=None)
        if best and held[best] and len(held[best]) >= MATCHED * len(wanted_names):
            subject_field = best
        elif named := _find_named_field(read, held, questions):
            subject_field = named
        else:
            subject_field = next((lower[n] for n in SUBJECT_FIELDS if n in lower), None)

    def rows() -> Iterator[tuple[str, str, str]]:
        for where, record in read():
            text = record.get(text_field)
            if not isinstance(text, str) or not text.strip():
                raise UserError(f'{where}: the field "{text_field}" holds no text.')
            yield _cell(record, subject_field).strip() if subject_field else "", text, where

    about = f'the subject from "{subject_field}" and ' if subject_field else ""
    return rows(), f', {about}the text from "{text_field}"'


def _find_named_field(
    read: Callable[[], Records], fields: Iterable[str], questions: Sequence[str]
) -> str | None:
    """The field whose values most questions name, inflected or with something glued to them."""
    values: dict[str, dict[FoldedName, str]] = {field: {} for field in fields}
    for _, record in read():
        for field, known in values.items():
            value = _cell(record, field).strip()
            if len(value) >= LEAST_NAME:
                known[fold_words(value)] = value
    named = {field: _share_named(questions, known) for field, known in values.items()}
    best = max(named, key=lambda field: named[field], default=None)
    return best if best and named[best] >= MATCHED else None


def _share_named(questions: Sequence[str], known: Mapping[FoldedName, str]) -> float:
    """The share of some questions that name one of these, inflected if many names are."""
    some = questions[:: max(1, len(questions) // SOME_QUESTIONS)]
    named = sum(find_named_subject(question, known) is not None for question in some)
    if some and known and named < MATCHED * len(some):
        endings = learn_endings(some, known)
        named = sum(find_inflected(each, known, endings) is not None for each in some)
    return named / max(1, len(some))


def _cell(record: Mapping[str, Any], name: str) -> str:
    return str(record.get(name) or "")


def _assign_subjects(
    texts: Sequence[Document], asked: Collection[str], path: Path
) -> tuple[list[str], str]:
    """For each text the asked-for subject that it names first, or what stands where others name
    theirs, or "". And a clause that says so."""
    known: dict[FoldedName, str] = {fold_words(name): name for name in asked}
    known.pop((), None)
    longest = max((len(name) for name in known), default=0)

    def first_named(text: str, cuts: Sequence[int]) -> str:
        """The first name that is there, its last word less so many letters (of a case ending)."""
        words = fold_words(text)
        for at in range(len(words)):
            for length in range(min(longest, len(words) - at), 0, -1):
                *start, last = words[at : at + length]
                for cut in (cut for cut in cuts if len(last) > 2 * cut):
                    if (name := (*start, last[: len(last) - cut])) in known:
                        return known[name]
        return ""

    named = [first_named(d.text, [0]) or first_named(d.text, ENDINGS) for d in texts]
    if not any(named):
        who = _some(asked) or "their wording does not show them"
        raise UserError(
            f"{path}: no document names a subject of the questions ({who}), so that "
            "nothing in it can answer them; check that the files belong together and that each "
            "question stands before its answer, or give the subjects (--subject-field, --template, "
            "or a third column of the questions)."
        )
    numbered = Documents(Document(at, f"{at}", f"{at}. {d.text}") for at, d in enumerate(texts))
    pairs = [Question(0, "", f"{at}", name, SLOT) for at, name in enumerate(named) if name]
    (reading,) = read_relations(numbered, pairs)
    how = "; they have no subject of their own, so each is about the one it names first"
    read = {at: reading.answers.get((f"{at}",)) for at, name in enumerate(named) if not name}
    others = {at: each[0].text for at, each in read.items() if each and each[0].probability >= READ}
    if others:
        how += f", and {len(others):,} about what stands where others do ({_some(others.values())})"
    return [name or others.get(at, "") for at, name in enumerate(named)], how


def check_files(corpus: Corpus, train: QuestionSet, dev: QuestionSet) -> list[str]:
    """Notes on the files of a study; what makes its numbers meaningless is a UserError."""
    learned = {fold_words(q.text): q for q in train.questions}
    shared = [(q, learned[text]) for q in dev.questions if (text := fold_words(q.text)) in learned]
    same = [(q, other) for q, other in shared if q.answer == other.answer]
    if same:
        first, other = same[0]
        raise UserError(
            f'{dev.path}, line {first.line}: "{first.text}" is a training question too '
            f"({train.path}, line {other.line}); {len(same):,} in all: remove them from one "
            "of the files, or recall is of what was learned by heart."
        )
    notes = []
    if train.endings:
        forms = [f'"-{form}" for "-{ending}"' for ending, form in train.endings if ending and form]
        forms += [f'"-{form}" added' for ending, form in train.endings if not ending]
        notes.append(
            f"Questions inflect the names of their subjects ({_some(forms)}): they are asked with "
            "the names as documents spell them."
        )
    if shared:
        notes.append(
            f"{len(shared):,} of {len(dev.questions):,} questions of {dev.path.name} are training "
            f'questions with another answer ("{shared[0][0].text}"), and cannot be judged.'
        )
    for file in (train, dev):  # a few questions with several answers are noted, many refused
        by_text: dict[str, list[Question]] = defaultdict(list)
        for question in file.questions:
            by_text[question.text].append(question)
        several = [each for each in by_text.values() if len({q.answer for q in each}) > 1]
        if several:
            first, answers = several[0][0], sorted({q.answer or "" for q in several[0]})[:2]
            what = f'"{first.text}" has the answers ' + " and ".join(f'"{a}"' for a in answers)
            count = f"{len(several):,} of {len(by_text):,} questions have several"
            if len(several) > max(1, SEVERAL_ANSWERS * len(by_text)):
                raise UserError(
                    f"{file.path}, line {first.line}: {what}, and {count}; keep one for each."
                )
            notes.append(f"{count} answers in {file.path.name} ({what}).")
    new = [f'"{q.template}"' for q in dev.questions if q.template not in train.templates]
    if new:
        notes.append(
            f"{len(new):,} of {len(dev.questions):,} questions of {dev.path.name} are worded like "
            f"no training question ({_some(new)}): the model does not learn what they ask for."
        )
    subjects = {fold_words(q.subject) for file in (train, dev) for q in file.questions}
    named = find_named(corpus.documents, subjects)
    for file in (train, dev):
        gone = [q.subject for q in file.questions if not named.get(fold_words(q.subject))]
        if len(gone) == len(file.questions):
            raise UserError(
                f"no document of {corpus.path} names any subject of {file.path} "
                f"({_some(gone)}); check that the two files belong together."
            )
        if gone:
            notes.append(
                f"{len(gone):,} of {len(file.questions):,} questions of {file.path.name} are about "
                f"subjects that no document names ({_some(gone)}): answers to them are made up."
            )
    names, unstated = names_of(corpus.documents), []
    for question in dev.questions:
        answer, words = question.answer or "", fold_words(question.answer or "")
        about = [corpus.documents[at].text for at in names.about(fold_words(question.subject))]
        stated = (
            answer in text or find_phrase(fold_words(text), words) or find_form(text, answer)
            for text in about
        )
        if about and not any(stated):
            unstated.append(question)
    if len(unstated) > UNSTATED * len(dev.questions):
        notes.append(
            f"{len(unstated):,} of {len(dev.questions):,} answers of {dev.path.name} stand in no "
            f"document about their subject ({_some(q.answer or '' for q in unstated)}): they "
            "cannot be recalled."
        )
    many = len(corpus.documents)
    texts = np.fromiter((hash(document.text) for document in corpus.documents), np.int64, many)
    repeated = many - len(np.unique(texts))
    if repeated:
        notes.append(f"{repeated:,} documents repeat another one word for word.")
    return notes


def describe_readings(readings: Sequence[RelationReading], path: object) -> list[str]:
    """One note on each relation: how many questions, and how many answers stand in the text.

    Training answers that are nowhere in the documents cannot be learned from them: a UserError.
    """
    if not any(reading.found for reading in readings):
        missing = [answer for reading in readings for answer in reading.missing]
        raise UserError(
            f"{path}: none of the {len(missing):,} training answers stands in a document about its "
            f"subject ({_some(missing)}); the answers have to be words of the text. Check that "
            "question and answer are not swapped, and that text and questions belong together."
        )
    notes = []
    few = [f'"{r.template}"' for r in readings if not r.answers and not r.missing]
    if few:
        notes.append(
            f"fewer than {FEWEST} training questions are worded like {_some(few)}, so that no "
            f"answers are read off the text; give at least {FEWEST} of each wording."
        )
    for reading in (each for each in readings if each.answers or each.missing):
        note = (
            f'"{reading.template}": {reading.asked:,} training questions, '
            f"{reading.found / reading.asked:.0%} of their answers stand in a document about the "
            f"subject, and {len(reading.answers):,} subjects have an answer that was read off"
        )
        if reading.same_as:
            note += f', as for "{reading.same_as}", which the training answers agree with'
        rivals = [x for x in reading.answers.values() if x[0].probability < UNCLEAR]
        if rivals:
            several = " or ".join(each.text for each in rivals[0][:SHOWN])
            note += f"; of {len(rivals):,} it is not clear which (such as {several})"
        if reading.found < FOUND * reading.asked:
            note += (
                f"; what is not in the text cannot be learned from it ({_some(reading.missing)})"
            )
        notes.append(note + ".")
    return notes


def _some(texts: Iterable[str]) -> str:
    common = [text for text, _ in Counter(texts).most_common(SHOWN + 1)]
    return ", ".join(common[:SHOWN]) + (", ..." if len(common) > SHOWN else "")
