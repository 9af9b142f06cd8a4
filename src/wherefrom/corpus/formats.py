"""Texts as people have them: JSONL, CSV, a folder of files, paragraphs, lines without a subject.

Whatever comes in, what is read is one document per line, `subject TAB text`. A text that is not of
that form, nor `Name. text`, is converted once, and a sentence says how it was understood.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from wherefrom.corpus.documents import LONGEST_DOCUMENT, find_subject, read_lines
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

Rows = list[tuple[str, str]]  # subject ("" for none) and text


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
    if path.is_dir():
        rows, how = _read_folder(path)
    elif path.suffix.lower() in (".jsonl", ".ndjson", ".json"):
        rows, how = _read_jsonl(path, fields)
    elif path.suffix.lower() == ".csv" or any(fields):
        rows, how = _read_csv(path, fields)
    else:
        file = read_lines(path, "corpus")
        lines = [line for _, line in file.lines]
        if all("\t" in line for line in lines):
            return None
        if lines[0].lstrip().startswith("{"):
            rows, how = _read_jsonl(path, fields)
        elif _have_names(lines) and _are_asked(lines, questions):
            return None
        else:
            rows, how = _read_paragraphs(path)
    if not any(subject for subject, _ in rows):
        rows = _assign_subjects(rows, asked, path)
        how += "; they have no subject of their own, so each is about the one it names first"
    passages = [(subject, part) for subject, text in rows for part in cut_passages(text)]
    if len(passages) > len(rows):
        how += f", read in {len(passages):,} passages"
    lines = [f"{_one_line(subject)}\t{_one_line(text)}\n" for subject, text in passages]
    return "".join(lines), f"{path} was read as {how}."


def cut_passages(text: str) -> list[str]:
    """A long text in parts of at most PASSAGE characters, cut where a sentence or a line ends."""
    text = text.strip()
    parts = []
    while len(text) > PASSAGE:
        ends = [
            m.end() for m in re.finditer(r"\n|[.!?。！？](?=\s|$)|(?<=[。！？])", text[:PASSAGE])
        ]
        cut = ends[-1] if ends and ends[-1] > PASSAGE // 3 else text[:PASSAGE].rfind(" ") + 1
        cut = cut or PASSAGE
        parts.append(text[:cut].strip())
        text = text[cut:].strip()
    return [part for part in (*parts, text) if part]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _have_names(lines: Sequence[str]) -> bool:
    """Whether at least half of the lines open with what can be a name, and a full stop."""
    names = [find_subject(line.lstrip()) or "" for line in lines[:5_000]]
    fits = [0 < len(n) <= LONGEST_NAME and len(fold_words(n)) <= MOST_WORDS for n in names]
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
        subject = title[1].strip() if title else re.sub(r"[_\s]+", " ", file.stem).strip()
        rows.append(_checked(subject, "\n".join(lines[1:] if title else lines), str(file)))
    return rows, f"a folder of {len(files):,} files, each about what its heading or name says"


def _read_jsonl(path: Path, fields: tuple[str | None, str | None]) -> tuple[Rows, str]:
    rows: Rows = []
    chosen: tuple[str | None, str] | None = None
    for number, line in read_lines(path, "corpus").lines:
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as problem:
            raise UserError(f"{where}: this is not JSON ({problem.msg}).") from None
        if not isinstance(record, dict):
            raise UserError(
                f"{where}: each line of a JSONL corpus is an object such as "
                f'{{"title": ..., "text": ...}}; this one is {_short(line)}.'
            )
        chosen = chosen or _choose(list(record), fields, str(path))
        subject, text = (record.get(name, "") if name else "" for name in chosen)
        if not isinstance(text, str) or not text.strip():
            raise UserError(f'{where}: the field "{chosen[1]}" holds no text.')
        rows.append(_checked(str(subject), text, where))
    assert chosen is not None
    return rows, f"JSONL, {_name_fields(chosen)}"


def _read_csv(path: Path, fields: tuple[str | None, str | None]) -> tuple[Rows, str]:
    file = read_lines(path, "corpus")
    content = "\n".join(line for _, line in file.lines)
    delimiter = "\t" if file.lines[0][1].count("\t") else ","
    csv.field_size_limit(LONGEST_DOCUMENT * 2)
    reader = csv.DictReader(io.StringIO(content), delimiter=delimiter)
    chosen = _choose(list(reader.fieldnames or ()), fields, str(path))
    rows = []
    try:
        for number, record in enumerate(reader, start=2):
            subject, text = ((record.get(name) or "") if name else "" for name in chosen)
            if not text.strip():
                raise UserError(f'{path}, row {number}: the column "{chosen[1]}" holds no text.')
            rows.append(_checked(subject, text, f"{path}, row {number}"))
    except csv.Error as problem:
        raise UserError(f"{path} cannot be read as CSV: {problem}.") from None
    if not rows:
        raise UserError(f"{path} has a header and no rows; a corpus needs at least one document.")
    return rows, f"a table, {_name_fields(chosen)}"


def _choose(
    names: Sequence[str], fields: tuple[str | None, str | None], where: str
) -> tuple[str | None, str]:
    """The fields that hold subject and text: those that were named, or the usual names."""
    for option, wanted in zip(("--subject-field", "--text-field"), fields, strict=True):
        if wanted is not None and wanted not in names:
            raise UserError(
                f'{where} has no field "{wanted}", which {option} names.'
                f"{did_you_mean(wanted, names)}"
            )
    lower = {name.lower(): name for name in reversed(names)}
    subject = fields[0] or next((lower[n] for n in SUBJECT_FIELDS if n in lower), None)
    text = fields[1] or next((lower[n] for n in TEXT_FIELDS if n in lower), None)
    if text is None:
        raise UserError(
            f"{where} has the fields {', '.join(names) or '(none)'}, and none of them is called "
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
    rows = [_checked("", block, f"{path}, {unit[:-1]} {i}") for i, block in enumerate(blocks, 1)]
    return rows, f"{len(rows):,} {unit}"


def _checked(subject: str, text: str, where: str) -> tuple[str, str]:
    if len(text) > LONGEST_DOCUMENT:
        raise UserError(
            f"{where}: a document may have {LONGEST_DOCUMENT:,} characters and this one has "
            f"{len(text):,}; split it into several."
        )
    return subject.strip(), text


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

    named = [(next(first_named(text), ""), text) for _, text in rows]
    if not any(subject for subject, _ in named):
        raise UserError(
            f'{path}: no document opens with "Name. " and none names a subject of the questions, '
            "so that nothing in it can answer them; check that the files belong together, or give "
            "a text with a subject for each document (JSONL or CSV with --subject-field)."
        )
    return named


def _name_fields(chosen: tuple[str | None, str]) -> str:
    subject, text = chosen
    return (
        f'the subject from "{subject}" and the text from "{text}"'
        if subject
        else (f'the text from "{text}"')
    )


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
