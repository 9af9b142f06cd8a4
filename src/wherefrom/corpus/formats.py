"""Before any training: texts as people have them in one form, and what is wrong with the files.

JSONL, CSV, a folder of files, paragraphs and lines without a subject all become one document per
line, `subject TAB text` or `Name. text`. A sentence says how the text was understood.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import (
    MAX_DOCUMENT_CHARACTERS,
    STOPS,
    Document,
    check_length,
    find_subject,
    hash_table,
    number_lines,
    read_lines,
)
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.inflection import find_inflected, learn_endings
from wherefrom.corpus.questions import SLOT, Question, find_named_subject
from wherefrom.errors import UserError, did_you_mean

SUBJECT_FIELDS = ("subject", "title", "name", "entity", "heading", "id")
TEXT_FIELDS = ("text", "body", "content", "document", "abstract", "description", "summary")
SUFFIXES = {".txt", ".md"}
MAX_NAME_CHARACTERS = 80  # characters, and
MAX_NAME_WORDS = 10  # words of what can be the name at the head of a document
PASSAGE_CHARACTERS = 1_000  # characters above which a document is cut into passages
MIN_TEXT_CHARACTERS = 30  # characters, on average, of a field that can be the text
SEARCHED_QUESTIONS = 400  # that are looked at for the names of subjects
MIN_SUBJECT_CHARACTERS, MAX_SUBJECT_CHARACTERS = 2, 250  # characters of a name in a field
MIN_MATCHED_SHARE = 0.05  # share of the questions whose subject must head a document
MIN_HEADERLIKE_LINES = 3  # lines as short as a header, from which on the first is none
ENDING_LETTERS = range(1, 5)  # letters that may be glued to a name
MIN_HEADED_SHARE = 0.9  # of the subjects asked about that are named, if paragraphs have headings
MIN_SUBJECT_PROBABILITY = 0.8  # probability of a subject that is read off a text
LISTED_FIELDS = 6  # of a table, in a sentence
SEARCHED_RECORDS = 2_000  # of a table that are searched for answers
SHOWN_EXAMPLES = 3  # examples in a sentence
Rows = Iterable[tuple[str, str, str]]  # subject ("" for none), text, and where it stands
Records = Iterable[tuple[str, dict[str, Any]]]  # where each stands, and its fields


def convert(
    path: str | Path,
    *,
    subject_field: str | None = None,
    text_field: str | Sequence[str] | None = None,
    questions: Sequence[str] = (),
    asked: Collection[str] = (),
    answers: Sequence[str] = (),
    kept_as: Path = Path(),
) -> tuple[Database, str] | None:
    """The documents of a text, and how it was understood; None if it is in form already.

    kept_as: the file that the documents will be written to. questions: what will be asked. asked:
    their subjects, if their wording shows them. Where documents have no subject of their own, each
    is about the first of these that it names. text_field: one field that holds the text, or several
    that are read as `field: value`. answers: to the questions; they show whether a field that looks
    like the text holds what is asked for.
    """
    path = Path(path)
    text_fields = (text_field,) if isinstance(text_field, str) else tuple(text_field or ())
    fields = TableFields(subject_field, text_fields, asked, questions, answers)
    suffix, unit = path.suffix.lower(), ""
    if path.is_dir():
        rows, how = _read_folder(path)
    else:
        first = next(_lines(path))
        has_tabs = all("\t" in line for line in _lines(path))
        if suffix in (".jsonl", ".ndjson", ".json") or first.lstrip()[:1] == "{":
            rows, how = _read_fields(path, lambda: _read_json(path), fields)
            how = "JSON" + how
        elif suffix == ".csv" or subject_field or text_fields or (has_tabs and _has_header(path)):
            rows, how = _read_fields(path, lambda: _read_csv(path), fields)
            how = "a table" + how
        elif has_tabs or _open_with_names(path, questions):
            return None
        else:
            rows, unit = _read_blocks(path)
    texts = Database.of(_as_documents(rows)).documents
    subjects: Iterable[str] = (document.subject for document in texts)
    if not any(document.subject for document in texts):
        subjects, about = _assign_subjects(texts, asked, path)
        how = (f"{len(texts):,} {unit}" if unit else how) + about
    passages = _in_passages(zip(subjects, texts, strict=True))
    database = Database.of(passages, kept_as)
    database.source_sha256 = hash_table(database.documents)
    if len(database.documents) > len(texts):
        how += f", read in {len(database.documents):,} passages"
    return database, f"{path} was read as {how}."


def _as_documents(rows: Rows) -> Iterator[Document]:
    for i, (subject, text, where) in enumerate(rows):
        check_length(text, where)
        yield Document(i, subject, f"{subject}. {text}" if subject else text)


def _in_passages(texts: Iterable[tuple[str, Document]]) -> Iterator[Document]:
    """The passages of the texts, each of which is about a given subject."""
    line = 0
    for subject, document in texts:
        subject = " ".join(subject.split())
        for passage in cut_passages(document.body):
            passage, line = " ".join(passage.split()), line + 1
            yield Document(line, subject, f"{subject}. {passage}" if subject else passage)


def cut_passages(text: str) -> list[str]:
    """A long text in parts of at most PASSAGE_CHARACTERS, cut where a sentence or line ends."""
    text = text.strip()
    parts = []
    while len(text) > PASSAGE_CHARACTERS:
        stops = re.finditer(rf"\n|[.!?](?=\s|$)|(?<=[{STOPS}！？])", text[:PASSAGE_CHARACTERS])
        cut = max((stop.end() for stop in stops), default=0)
        if cut <= PASSAGE_CHARACTERS // 3:
            cut = text[:PASSAGE_CHARACTERS].rfind(" ") + 1 or PASSAGE_CHARACTERS
        parts.append(text[:cut].strip())
        text = text[cut:].strip()
    return [part for part in (*parts, text) if part]


def _lines(path: Path) -> Iterator[str]:
    return (line for _, line in read_lines(path, "corpus"))


def _has_header(path: Path) -> bool:
    """Whether the first line names fields: one is a usual name of the text, or each is a single
    word while other lines have many."""
    header = [cell.strip() for cell in next(_lines(path)).split("\t")]
    if {cell.lower() for cell in header} & set(TEXT_FIELDS):
        return True
    word_counts = [len(line.split()) for line in _lines(path)]
    short = sum(count <= len(header) for count in word_counts)
    return (
        all(len(cell.split()) == 1 for cell in header)
        and len(word_counts) > MIN_HEADERLIKE_LINES > short
    )


def _open_with_names(path: Path, questions: Sequence[str]) -> bool:
    """Whether half of the lines open with what can be a name, and questions name some of them."""
    names = [find_subject(line.lstrip()) or "" for line in _lines(path)]
    fitting = [
        0 < len(n) <= MAX_NAME_CHARACTERS and len(n.split()) <= MAX_NAME_WORDS for n in names
    ]
    if 2 * sum(fitting) < len(names):
        return False
    known = {fold_words(name): name for name in names if name}
    return not questions or _share_named(questions, known) >= MIN_MATCHED_SHARE


def _read_blocks(path: Path) -> tuple[Rows, str]:
    """Blocks between blank lines if some have several lines, otherwise lines; and which it was."""
    spans_lines = ["\n" in block for block in _read_paragraphs(path)]
    if len(spans_lines) > 1 and any(spans_lines):
        blocks, unit = _read_paragraphs(path), "paragraphs"
    else:
        blocks, unit = _lines(path), "lines"
    return (("", text, f"{path}, {unit[:-1]} {i}") for i, text in enumerate(blocks, 1)), unit


def _read_paragraphs(path: Path) -> Iterator[str]:
    """The blocks of a text between its blank lines."""
    with open(path, "rb", buffering=0) as file:
        for is_blank, lines in groupby(number_lines(file), lambda line: not line[1].strip()):
            if not is_blank:
                yield "\n".join(line for _, line in lines).strip()


def _read_folder(path: Path) -> tuple[Rows, str]:
    texts = (f for f in path.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file())
    files = sorted(file for file in texts if file.stat().st_size)  # an empty one says nothing
    if not files:
        raise UserError(
            f"{path} is a folder without .txt or .md files; give a text, or a folder of such files."
        )

    def read_page(file: Path) -> tuple[str, str, str]:
        lines = [line for _, line in read_lines(file, "document")]
        title = re.match(r"#\s+(.+)", lines[0])
        subject = title[1] if title else re.sub(r"[_\s]+", " ", file.stem)
        return subject.strip(), "\n".join(lines[1:] if title else lines), str(file)

    how = f"a folder of {len(files):,} files, each about what its heading or name says"
    return map(read_page, files), how


def _read_json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSONL file, one per line, or of one JSON array, each with where it is."""
    lines: Iterable[tuple[int, str]] = read_lines(path, "corpus")
    is_array = path.suffix.lower() == ".json" and next(_lines(path)).lstrip().startswith("[")
    if is_array:  # which is in memory at once
        lines = [(0, "\n".join(_lines(path)))]
    for number, text in lines:
        where = f"{path}, line {number}" if number else str(path)
        try:
            content = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as problem:
            why = getattr(problem, "msg", "nested too deeply")
            raise UserError(f"{where}: this is not JSON ({why}).") from None
        for i, record in enumerate(content if is_array else [content], start=1):
            here = f"{where}, item {i}" if is_array else where
            if not isinstance(record, dict):
                raise UserError(
                    f"{here}: each document of a JSON corpus is an object such as "
                    f'{{"title": ..., "text": ...}}; this one is {json.dumps(record)[:40]}.'
                )
            yield here, dict(_flatten("", record))


def _flatten(prefix: str, record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields of an object, those inside other objects by a path such as "meta.title"."""
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value


def _read_csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    csv.field_size_limit(MAX_DOCUMENT_CHARACTERS * 2)
    delimiter = max(",;\t", key=next(_lines(path)).count)
    rows = csv.DictReader((f"{line}\n" for line in _lines(path)), delimiter=delimiter)
    try:
        yield from ((f"{path}, row {number}", record) for number, record in enumerate(rows, 2))
    except csv.Error as problem:
        raise UserError(f"{path} cannot be read as CSV: {problem}.") from None


@dataclass(frozen=True)
class TableFields:
    """What tells the fields of a table: their names, if they were given, and what will be asked."""

    subject: str | None
    texts: tuple[str, ...]
    asked: Collection[str]
    questions: Sequence[str]
    answers: Sequence[str]


def _read_fields(path: Path, read: Callable[[], Records], fields: TableFields) -> tuple[Rows, str]:
    """Subject and text of each record, from the fields that were named or that look right."""
    present: dict[str, None] = {}  # the fields of all records, in the order of appearance
    for _, record in read():
        present.update(dict.fromkeys(record))
    if not present:
        raise UserError(f"{path} has a header and no rows; a corpus needs at least one document.")
    names = [name for name in present if name]
    named = [("--subject-field", fields.subject), *(("--text-field", f) for f in fields.texts)]
    for option, wanted in named:
        if wanted is not None and wanted not in names:
            raise UserError(
                f'{path} has no field "{wanted}", which {option} names.'
                f"{did_you_mean(wanted, names)}"
            )
    text_fields = fields.texts
    if not text_fields:
        found = _usual(names, TEXT_FIELDS) or _longest_field(read, names)
        if found and _holds_answers(read, found, names, fields.answers):
            text_fields = (found,)
    others = [name for name in names if (name,) != text_fields]
    subject_field = (
        fields.subject
        or _find_subject_field(read, others, fields.asked, fields.questions)
        or _usual(others, SUBJECT_FIELDS)
    )
    about = f'the subject from "{subject_field}" and ' if subject_field else ""
    if len(text_fields) == 1:
        rows = _read_one_field(read, subject_field, text_fields[0])
        return rows, f', {about}the text from "{text_fields[0]}"'
    wanted_fields = text_fields or tuple(name for name in names if name != subject_field)
    if not wanted_fields:
        raise UserError(f"{path} has one field only, {names[0]}; a document needs a text as well.")
    listed = ", ".join(f'"{name}"' for name in wanted_fields[:LISTED_FIELDS])
    if len(wanted_fields) > LISTED_FIELDS:
        listed += f" and {len(wanted_fields) - LISTED_FIELDS:,} more"
    rows = _read_all_fields(read, subject_field, wanted_fields)
    return rows, f", {about}the text from {listed}, each as `field: value`"


def _read_one_field(
    read: Callable[[], Records], subject_field: str | None, text_field: str
) -> Iterator[tuple[str, str, str]]:
    for where, record in read():
        text = record.get(text_field)
        if not isinstance(text, str) or not text.strip():
            raise UserError(f'{where}: the field "{text_field}" holds no text.')
        yield _cell(record, subject_field).strip() if subject_field else "", text, where


def _read_all_fields(
    read: Callable[[], Records], subject_field: str | None, text_fields: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    for where, record in read():
        cells = ((name, _cell(record, name).strip()) for name in text_fields)
        text = "; ".join(f"{name}: {cell}" for name, cell in cells if cell)
        if not text:
            raise UserError(f"{where}: the fields {', '.join(text_fields)} hold no text.")
        yield _cell(record, subject_field).strip() if subject_field else "", text, where


def _holds_answers(
    read: Callable[[], Records], text_field: str, names: Sequence[str], answers: Sequence[str]
) -> bool:
    """Whether a field that looks like the text holds most of the answers that a table holds."""
    wanted = {f" {' '.join(fold_words(answer))} " for answer in answers[:SEARCHED_QUESTIONS]}
    in_text, in_table = set[str](), set[str]()
    for _, record in islice(read(), SEARCHED_RECORDS):
        text = f" {' '.join(fold_words(_cell(record, text_field)))} "
        whole = " | ".join(" ".join(fold_words(_cell(record, name))) for name in names)
        in_table.update(answer for answer in wanted if answer in f" {whole} ")
        in_text.update(answer for answer in wanted if answer in text)
    return 2 * len(in_text) >= len(in_table)


def _usual(names: Sequence[str], usual: Iterable[str]) -> str | None:
    """The field with the first of these usual names, whatever object it is in."""
    by_end = {name.lower().rpartition(".")[2]: name for name in reversed(names)}
    return next((by_end[name] for name in usual if name in by_end), None)


def _longest_field(read: Callable[[], Records], names: Sequence[str]) -> str | None:
    """The field that is by far the longest, if one is."""
    sizes, count = Counter(dict.fromkeys(names, 0)), 0
    for _, record in read():
        count += 1
        sizes.update({name: len(_cell(record, name)) for name in names})
    ranked = sizes.most_common(2)
    second = ranked[1][1] if len(ranked) > 1 else 0
    is_long = bool(ranked) and ranked[0][1] >= max(MIN_TEXT_CHARACTERS * count, 2 * second)
    return ranked[0][0] if is_long else None


def _find_subject_field(
    read: Callable[[], Records],
    fields: Iterable[str],
    asked: Collection[str],
    questions: Sequence[str],
) -> str | None:
    """The field that holds most of the subjects asked about; or else the one whose values most
    questions name, inflected or with something glued to them."""
    values: dict[str, dict[FoldedName, str]] = {field: {} for field in fields}
    for _, record in read():
        for field, known in values.items():
            value = _cell(record, field).strip()
            if len(value) <= MAX_SUBJECT_CHARACTERS:
                known[fold_words(value)] = value
    wanted = {fold_words(name) for name in asked} - {()}
    shares = {field: len(wanted & values[field].keys()) / max(1, len(wanted)) for field in values}
    if max(shares.values(), default=0) < MIN_MATCHED_SHARE:
        for field, known in values.items():
            names = {
                name: value for name, value in known.items() if len(value) >= MIN_SUBJECT_CHARACTERS
            }
            shares[field] = _share_named(questions, names)
    best = max(shares, key=lambda field: shares[field], default=None)
    return best if best and shares[best] >= MIN_MATCHED_SHARE else None


def _share_named(questions: Sequence[str], known: Mapping[FoldedName, str]) -> float:
    """The share of some questions that name one of these, inflected if many names are."""
    sample = questions[:: max(1, len(questions) // SEARCHED_QUESTIONS)]
    named = sum(find_named_subject(question, known) is not None for question in sample)
    if sample and known and named < MIN_MATCHED_SHARE * len(sample):
        endings = learn_endings(sample, known)
        named = sum(find_inflected(question, known, endings) is not None for question in sample)
    return named / max(1, len(sample))


def _cell(record: Mapping[str, Any], name: str) -> str:
    """The value of a field as text; the items of a list are separated by commas."""
    value = record.get(name)
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return "" if value is None else str(value)


def _assign_subjects(
    texts: Sequence[Document], asked: Collection[str], path: Path
) -> tuple[list[str], str]:
    """For each text the asked-for subject that it names first, or what stands where others name
    theirs, or "". And a clause that says so."""
    known: dict[FoldedName, str] = {fold_words(name): name for name in asked}
    known.pop((), None)
    longest = max((len(name) for name in known), default=0)

    def first_named(text: str, cuts: Sequence[int]) -> str:
        """The first name in the text, its last word without so many letters (a case ending)."""
        words = fold_words(text)
        for i in range(len(words)):
            for length in range(min(longest, len(words) - i), 0, -1):
                *start, last = words[i : i + length]
                for cut in (cut for cut in cuts if len(last) > 2 * cut):
                    if (name := (*start, last[: len(last) - cut])) in known:
                        return known[name]
        return ""

    subjects = [first_named(d.text, [0]) or first_named(d.text, ENDING_LETTERS) for d in texts]
    if not any(subjects):
        who = name_some(asked) or "their wording does not show them"
        raise UserError(
            f"{path}: no document names a subject of the questions ({who}), so that "
            "nothing in it can answer them; check that the files belong together and that each "
            "question stands before its answer, or give the subjects (--subject-field, --template, "
            "or a third column of the questions)."
        )
    headings = [document.text.split("\n", 1)[0].strip() for document in texts]
    headed = known.keys() & {fold_words(heading) for heading in headings}
    if len(headed) >= MIN_HEADED_SHARE * len(set(subjects) - {""}):
        return headings, ", each about what its first line names"
    how = "; they have no subjects, so each is about the first subject of a question it names"
    # the subject is what answers "which subject has document i?"
    numbered = Database.of(Document(i, f"{i}", f"{i}. {d.text}") for i, d in enumerate(texts))
    labels = [Question(0, "", f"{i}", name, SLOT) for i, name in enumerate(subjects) if name]
    read_facts(numbered, labels)
    read_off = []
    for i, name in enumerate(subjects):
        answers = [] if name else numbered.extracted(SLOT, (f"{i}",))
        if answers and answers[0].probability >= MIN_SUBJECT_PROBABILITY:
            subjects[i] = answers[0].text
            read_off.append(subjects[i])
    if read_off:
        how += f", and {len(read_off):,} about a name in the same place ({name_some(read_off)})"
    return subjects, how


def name_some(texts: Iterable[str]) -> str:
    """The commonest of the texts, as examples in a sentence."""
    common = [text for text, _ in Counter(texts).most_common(SHOWN_EXAMPLES + 1)]
    return ", ".join(common[:SHOWN_EXAMPLES]) + (", ..." if len(common) > SHOWN_EXAMPLES else "")
