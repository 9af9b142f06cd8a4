"""Before any training: texts as people have them in one form, and what is wrong with the files.

Whatever comes in (JSONL, CSV, a folder of files, paragraphs, lines without a subject), what is read
is one document per line, `subject TAB text` or `Name. text`. A sentence says how it was understood.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from wherefrom.corpus.documents import (
    LONGEST_DOCUMENT,
    STOPS,
    Corpus,
    Document,
    check_length,
    decode_text,
    find_subject,
    read_lines,
)
from wherefrom.corpus.facts import FEWEST, RelationReading, read_relations
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.questions import SLOT, Question, QuestionSet, find_named_subject
from wherefrom.corpus.subjects import find_named
from wherefrom.errors import UserError, did_you_mean

SUBJECT_FIELDS = ("subject", "title", "name", "entity", "heading", "id")
TEXT_FIELDS = ("text", "body", "content", "document", "abstract", "description", "summary")
SUFFIXES = {".txt", ".md"}
LONGEST_NAME = 80  # characters, and
MOST_WORDS = 10  # words of what can be the name at the head of a document
PASSAGE = 1_000  # characters above which a document is cut into passages
TEXT_LENGTH = 30  # characters, on average, of a field that can be the text
MATCHED = 0.05  # share of the questions whose subject must head a document
SEVERAL_ANSWERS = 0.02  # share of the questions that may have them
FOUND = 0.8  # share of the training answers in the text below which some are shown that are not
FEW = 3  # lines as short as a header, from which on the first is none
ENDINGS = range(1, 5)  # letters that may be glued to a name
READ = 0.8  # probability of a subject that is read off a text
UNCLEAR = 0.3  # probability of the likeliest answer that the text states
SHOWN = 3  # examples in a sentence
Rows = list[tuple[str, str, str]]  # subject ("" for none), text, and where it stands


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
    as_json = kind in (".jsonl", ".ndjson", ".json") or "".join(lines[:1]).lstrip()[:1] == "{"
    tabs = all("\t" in line for line in lines)
    if path.is_dir():
        rows, how = _read_folder(path)
    elif not as_json and (kind == ".csv" or any(fields) or (tabs and _has_header(path, lines))):
        rows, how = _read_fields(path, [*_read_csv(path, lines)], fields, asked, "a table")
    elif as_json:
        rows, how = _read_fields(path, [*_read_json(path)], fields, asked, "JSON")
    elif tabs or _open_with_names(lines, questions):
        return None
    else:  # blocks between blank lines if there are any, otherwise lines; neither has a subject
        content = decode_text(path.read_bytes())
        blocks = [block for block in re.split(r"\n[ \t]*\n", content) if block.strip()]
        unit = "paragraphs"
        if len(blocks) < 2 or all("\n" not in block.strip() for block in blocks):
            blocks, unit = lines, "lines"
        rows = [("", block, f"{path}, {unit[:-1]} {i}") for i, block in enumerate(blocks, 1)]
        how = f"{len(rows):,} {unit}"
    for _, text, where in rows:
        check_length(text, where)
    if not any(subject for subject, _, _ in rows):
        rows, about = _assign_subjects(rows, asked, path)
        how += about
    parts = [(subject, part) for subject, text, _ in rows for part in cut_passages(text)]
    if len(parts) > len(rows):
        how += f", read in {len(parts):,} passages"
    made = (" ".join(who.split()) + "\t" + " ".join(part.split()) + "\n" for who, part in parts)
    return "".join(made), f"{path} was read as {how}."


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


def _has_header(path: Path, lines: Sequence[str]) -> bool:
    """Whether the first of the lines with tabs names fields; if it seems to name others, refuse."""
    first = [cell.strip() for cell in lines[0].split("\t")]
    if {cell.lower() for cell in first} & set(TEXT_FIELDS):
        return True
    short = [line for line in lines if len(line.split()) <= len(first)]
    if all(len(cell.split()) == 1 for cell in first) and len(lines) > FEW > len(short):
        raise UserError(
            f"{path}, line 1: {', '.join(first)} seem to be the names of fields; remove the line, "
            "or choose two of them with --subject-field and --text-field."
        )
    return False


def _open_with_names(lines: Sequence[str], questions: Sequence[str]) -> bool:
    """Whether half of the lines open with what can be a name, and questions name some of them."""
    names = [find_subject(line.lstrip()) or "" for line in lines]
    fits = [0 < len(n) <= LONGEST_NAME and len(n.split()) <= MOST_WORDS for n in names[:5_000]]
    known = {fold_words(name): name for name in names if name}
    some = questions[:: max(1, len(questions) // 400)]
    named = sum(find_named_subject(question, known) is not None for question in some)
    return 2 * sum(fits) >= len(fits) and named >= MATCHED * len(some)


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


def _read_json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSONL file, one per line, or of one JSON array, each with where it is."""
    lines = [(f"{path}, line {at}", line) for at, line in read_lines(path, "corpus").lines]
    whole = path.suffix.lower() == ".json" and lines[0][1].lstrip().startswith("[")
    for where, text in [(str(path), "\n".join(line for _, line in lines))] if whole else lines:
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


def _read_csv(path: Path, lines: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    csv.field_size_limit(LONGEST_DOCUMENT * 2)
    delimiter = max(",;\t", key=lines[0].count)
    rows = csv.DictReader((f"{line}\n" for line in lines), delimiter=delimiter)
    try:
        yield from ((f"{path}, row {number}", record) for number, record in enumerate(rows, 2))
    except csv.Error as problem:
        raise UserError(f"{path} cannot be read as CSV: {problem}.") from None


def _read_fields(
    path: Path,
    records: Sequence[tuple[str, dict[str, Any]]],
    fields: tuple[str | None, str | None],
    asked: Collection[str],
    kind: str,
) -> tuple[Rows, str]:
    """Subject and text of each record, from the fields that were named, or those that look so.

    The text is in a field of a usual name, or in the one that is by far the longest; the subject
    in the field that holds most of the subjects asked about, or in one of a usual name.
    """
    if not records:
        raise UserError(f"{path} has a header and no rows; a corpus needs at least one document.")
    names = [name for name in records[0][1] if name]
    for option, wanted in zip(("--subject-field", "--text-field"), fields, strict=True):
        if wanted is not None and wanted not in names:
            raise UserError(
                f'{path} has no field "{wanted}", which {option} names.'
                f"{did_you_mean(wanted, names)}"
            )
    lower = {name.lower().rpartition(".")[2]: name for name in reversed(names)}
    cells = {name: [str(record.get(name) or "") for _, record in records] for name in names}
    text_field = fields[1] or next((lower[n] for n in TEXT_FIELDS if n in lower), None)
    if text_field is None:
        sizes = {name: sum(map(len, cells[name])) for name in names}
        longest = sorted(names, key=lambda name: -sizes[name])
        least = [TEXT_LENGTH * len(records), *(2 * sizes[name] for name in longest[1:2])]
        if not longest or sizes[longest[0]] < max(least):
            raise UserError(
                f"{path} has the fields {', '.join(names) or '(none)'}, and none is called "
                f"{', '.join(TEXT_FIELDS[:3])}; name the one that holds the text with --text-field."
            )
        text_field = longest[0]
    subject_field = fields[0]
    if subject_field is None:
        wanted_names = {fold_words(name) for name in asked} - {()}
        rest = [name for name in names if name != text_field]
        held = {name: len(wanted_names & set(map(fold_words, cells[name]))) for name in rest}
        best = max(held, key=lambda name: held[name], default=None)
        if best and held[best] and held[best] >= MATCHED * len(wanted_names):
            subject_field = best
        else:
            subject_field = next((lower[n] for n in SUBJECT_FIELDS if n in lower), None)
    rows = []
    for at, (where, record) in enumerate(records):
        text = record.get(text_field)
        if not isinstance(text, str) or not text.strip():
            raise UserError(f'{where}: the field "{text_field}" holds no text.')
        rows.append((cells[subject_field][at].strip() if subject_field else "", text, where))
    about = f'the subject from "{subject_field}" and ' if subject_field else ""
    return rows, f'{kind}, {about}the text from "{text_field}"'


def _assign_subjects(rows: Rows, asked: Collection[str], path: Path) -> tuple[Rows, str]:
    """Each text with the asked-for subject that it names first, or with what stands where others
    name theirs; texts with neither are kept. And a clause that says so."""
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

    named = [first_named(text, [0]) or first_named(text, ENDINGS) for _, text, _ in rows]
    if not any(named):
        who = _some(asked) or "their wording does not show them"
        raise UserError(
            f"{path}: no document names a subject of the questions ({who}), so that "
            "nothing in it can answer them; check that the files belong together and that each "
            "question stands before its answer, or give the subjects (--subject-field, --template, "
            "or a third column of the questions)."
        )
    texts = [Document(at, f"{at}", f"{at}. {text}") for at, (_, text, _) in enumerate(rows)]
    pairs = [Question(0, "", f"{at}", name, SLOT) for at, name in enumerate(named) if name]
    (reading,) = read_relations(texts, pairs)
    how = "; they have no subject of their own, so each is about the one it names first"
    read = {at: reading.answers.get((f"{at}",)) for at, name in enumerate(named) if not name}
    others = {at: each[0].text for at, each in read.items() if each and each[0].probability >= READ}
    if others:
        how += f", and {len(others):,} about what stands where others do ({_some(others.values())})"
    return [(named[at] or others.get(at, ""), *row[1:]) for at, row in enumerate(rows)], how


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
    repeated = len(corpus.documents) - len({document.text for document in corpus.documents})
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
