"""Texts as people have them: JSONL, CSV, a folder of files, paragraphs, lines without a subject.

Whatever comes in, what is read is one document per line, `subject TAB text`. A text that is not of
that form, nor `Name. text`, is converted once, and a sentence says how it was understood.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from wherefrom.corpus.documents import LONGEST_DOCUMENT, check_length, find_subject, read_lines
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.questions import find_named_subject
from wherefrom.errors import UserError, did_you_mean

SUBJECT_FIELDS = ("subject", "title", "name", "entity", "heading", "id")
TEXT_FIELDS = ("text", "body", "content", "document", "abstract", "description", "summary")
SUFFIXES = {".txt", ".md"}
LONGEST_NAME = 80  # characters, and
MOST_WORDS = 10  # words of what can be the name at the head of a document
PASSAGE = 1_000  # characters above which a document is cut into passages
MATCHED = 0.05  # share of the questions whose subject must head a document

Rows = list[tuple[str, str, str]]  # subject ("" for none), text, and where it stands
Fields = tuple[str | None, str | None]  # that hold the subject and the text


def convert(
    path: str | Path,
    *,
    subject_field: str | None = None,
    text_field: str | None = None,
    questions: Sequence[str] = (),
    asked: Collection[str] = (),
) -> tuple[str, str] | None:
    """A text as `subject TAB text` lines, and how it was understood; None if it is in form already.

    questions: what will be asked, and asked: their subjects, as far as their wording shows them.
    Where documents have no subject of their own, each is about the one of these it names first.
    """
    path = Path(path)
    fields = subject_field, text_field
    lines = [] if path.is_dir() else [line for _, line in read_lines(path, "corpus").lines]
    kind = path.suffix.lower()
    if path.is_dir():
        rows, how = _read_folder(path)
    elif kind in (".jsonl", ".ndjson", ".json"):
        rows, how = _read_fields(path, _read_jsonl(path), fields, "JSONL")
    elif kind == ".csv" or any(fields):
        rows, how = _read_fields(path, _read_csv(path), fields, "a table")
    elif all("\t" in line for line in lines):
        return None
    elif lines[0].lstrip().startswith("{"):
        rows, how = _read_fields(path, _read_jsonl(path), fields, "JSONL")
    elif _have_names(lines) and _are_asked(lines, questions):
        return None
    else:
        rows, how = _read_paragraphs(path)
    for _, text, where in rows:
        check_length(text, where)
    if not any(subject for subject, _, _ in rows):
        rows = _assign_subjects(rows, asked, path)
        how += "; they have no subject of their own, so each is about the one it names first"
    passages = [(subject, part) for subject, text, _ in rows for part in cut_passages(text)]
    if len(passages) > len(rows):
        how += f", read in {len(passages):,} passages"
    made = (" ".join(subject.split()) + "\t" + " ".join(part.split()) for subject, part in passages)
    return "".join(f"{line}\n" for line in made), f"{path} was read as {how}."


def cut_passages(text: str) -> list[str]:
    """A long text in parts of at most PASSAGE characters, cut where a sentence or a line ends."""
    text = text.strip()
    parts = []
    while len(text) > PASSAGE:
        stops = re.finditer(r"\n|[.!?。！？](?=\s|$)|(?<=[。！？])", text[:PASSAGE])
        cut = max((stop.end() for stop in stops), default=0)
        if cut <= PASSAGE // 3:
            cut = text[:PASSAGE].rfind(" ") + 1 or PASSAGE
        parts.append(text[:cut].strip())
        text = text[cut:].strip()
    return [part for part in (*parts, text) if part]


def _have_names(lines: Sequence[str]) -> bool:
    """Whether at least half of the lines open with what can be a name, and a full stop."""
    names = [find_subject(line.lstrip()) or "" for line in lines[:5_000]]
    fits = [0 < len(n) <= LONGEST_NAME and len(n.split()) <= MOST_WORDS for n in names]
    return 2 * sum(fits) >= len(fits)


def _are_asked(lines: Sequence[str], questions: Sequence[str]) -> bool:
    """Whether questions name what documents open with; yes if there are none."""
    heads = {fold_words(name): name for line in lines if (name := find_subject(line.lstrip()))}
    some = questions[:: max(1, len(questions) // 400)]
    named = sum(find_named_subject(question, heads) is not None for question in some)
    return named >= MATCHED * len(some)


def _read_folder(path: Path) -> tuple[Rows, str]:
    files = sorted(f for f in path.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file())
    if not files:
        raise UserError(
            f"{path} is a folder without .txt or .md files; give a text, or a folder of such files."
        )
    rows = []
    for file in files:
        lines = [line for _, line in read_lines(file, "document").lines]
        title = re.match(r"#\s+(.+)", lines[0])
        subject = title[1] if title else re.sub(r"[_\s]+", " ", file.stem)
        rows.append((subject.strip(), "\n".join(lines[1:] if title else lines), str(file)))
    return rows, f"a folder of {len(files):,} files, each about what its heading or name says"


def _read_jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in read_lines(path, "corpus").lines:
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as problem:
            raise UserError(f"{where}: this is not JSON ({problem.msg}).") from None
        if not isinstance(record, dict):
            raise UserError(
                f"{where}: each line of a JSONL corpus is an object such as "
                f'{{"title": ..., "text": ...}}; this one is {line[:40]}.'
            )
        yield where, record


def _read_csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = [line for _, line in read_lines(path, "corpus").lines]
    csv.field_size_limit(LONGEST_DOCUMENT * 2)
    rows = csv.DictReader(
        [f"{line}\n" for line in lines], delimiter="\t" if "\t" in lines[0] else ","
    )
    try:
        for number, record in enumerate(rows, start=2):
            yield f"{path}, row {number}", record
    except csv.Error as problem:
        raise UserError(f"{path} cannot be read as CSV: {problem}.") from None


def _read_fields(
    path: Path, records: Iterator[tuple[str, dict[str, Any]]], fields: Fields, kind: str
) -> tuple[Rows, str]:
    """Subject and text of each record, from the fields that were named, or the usual ones."""
    first = next(records, None)
    if first is None:
        raise UserError(f"{path} has a header and no rows; a corpus needs at least one document.")
    subject_field, text_field = _choose(list(first[1]), fields, path)
    rows = []
    for where, record in chain([first], records):
        subject, text = record.get(subject_field or "") or "", record.get(text_field)
        if not isinstance(text, str) or not text.strip():
            raise UserError(f'{where}: the field "{text_field}" holds no text.')
        rows.append((str(subject).strip(), text, where))
    about = f'the subject from "{subject_field}" and ' if subject_field else ""
    return rows, f'{kind}, {about}the text from "{text_field}"'


def _choose(names: Sequence[str], fields: Fields, path: Path) -> tuple[str | None, str]:
    """The fields that hold subject and text."""
    for option, wanted in zip(("--subject-field", "--text-field"), fields, strict=True):
        if wanted is not None and wanted not in names:
            raise UserError(
                f'{path} has no field "{wanted}", which {option} names.'
                f"{did_you_mean(wanted, names)}"
            )
    lower = {name.lower(): name for name in reversed(names) if name}
    subject = fields[0] or next((lower[n] for n in SUBJECT_FIELDS if n in lower), None)
    text = fields[1] or next((lower[n] for n in TEXT_FIELDS if n in lower), None)
    if text is None:
        raise UserError(
            f"{path} has the fields {', '.join(lower.values()) or '(none)'}, and none is called "
            f"{', '.join(TEXT_FIELDS[:3])}; name the one that holds the text with --text-field."
        )
    return subject, text


def _read_paragraphs(path: Path) -> tuple[Rows, str]:
    """Blocks between blank lines if there are any, otherwise lines; neither has a subject."""
    content = path.read_text(encoding="utf-8-sig")
    blocks = [block for block in re.split(r"\n[ \t\r]*\n", content) if block.strip()]
    unit = "paragraphs"
    if len(blocks) < 2 or all("\n" not in block.strip() for block in blocks):
        blocks, unit = [line for line in content.split("\n") if line.strip()], "lines"
    rows = [("", block, f"{path}, {unit[:-1]} {i}") for i, block in enumerate(blocks, 1)]
    return rows, f"{len(rows):,} {unit}"


def _assign_subjects(rows: Rows, asked: Collection[str], path: Path) -> Rows:
    """Each text with the asked-for subject that it names first; texts that name none are kept."""
    known: dict[FoldedName, str] = {fold_words(name): name for name in asked}
    known.pop((), None)
    longest = max((len(name) for name in known), default=0)
    starts = {name[0] for name in known}

    def first_named(text: str) -> Iterator[str]:
        words = fold_words(text)
        for at in (at for at, word in enumerate(words) if word in starts):
            for length in range(min(longest, len(words) - at), 0, -1):
                if words[at : at + length] in known:
                    yield known[words[at : at + length]]

    named = [(next(first_named(text), ""), text, where) for _, text, where in rows]
    if not any(subject for subject, _, _ in named):
        raise UserError(
            f'{path}: no document opens with "Name. " and none names a subject of the questions, '
            "so that nothing in it can answer them; check that the files belong together and that "
            "each question stands before its answer, or give a text with a subject for each "
            "document (JSONL or CSV with --subject-field)."
        )
    return named
