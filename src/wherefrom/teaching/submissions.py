"""Submissions: every file and folder of a class is read, and none is left out of the result.

What cannot be read is a note of its submission. Links are never followed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wherefrom.errors import UserError
from wherefrom.teaching.rubric import (
    MAX_FILE_BYTES,
    QUESTION_FIELDS,
    answer_rows,
    parse_toml,
)

MAX_CODE_BYTES = 50 << 20
MAX_NAME_CHARS = 100  # of a student
CODE_FILES = ("adapters.py", "transformer.py", "model.py")
DOCUMENTS = (".docx", ".html", ".ipynb", ".md", ".odt", ".pdf", ".rtf", ".tex", ".txt")
UNREAD_ANSWER = "a part of the submission could not be read, and may answer this question."


@dataclass
class Submission:
    """What one student handed in, at one place."""

    name: str  # of the file or folder; two submissions never share it
    student: str
    answers: dict[str, tuple[str, ...]] = field(default_factory=dict)  # id -> formulas
    unread: dict[str, str] = field(default_factory=dict)  # id -> why the answer was not read
    code: dict[str, bytes] = field(default_factory=dict)  # path -> content
    others: list[str] = field(default_factory=list)  # files that are no answers and no code
    notes: list[str] = field(default_factory=list)  # what is wrong with it

    def why_unread(self, id_: str, expected: str) -> str:
        """Why there is no answer with this id, if it may be in what could not be read."""
        if self.others and id_ not in self.unread:
            return f"{', '.join(self.others)[:200]} was not read; expected: {expected}."
        return self.unread.get(id_) or self.unread.get("", "")


def printable(text: str) -> str:
    """A text from a submission without control characters and broken Unicode."""
    return "".join(character if character.isprintable() else "�" for character in text)


def read_submissions(path: Path, *, of_one: bool = False) -> list[Submission]:
    """The submissions of a folder (a file or a folder per student), or of one file.

    A folder is the work of one student if it holds code itself, or if `of_one` says so.
    """
    if not path.exists():
        raise UserError(f"{path} cannot be read: No such file or directory.")
    is_one = not path.is_dir() or of_one or any((path / name).is_file() for name in CODE_FILES)
    if is_one:
        return [_read_entry(path)]
    entries = [entry for entry in sorted(path.iterdir()) if not is_passed_over(entry)]
    if not entries:
        raise UserError(f"{path} holds no submissions: one file or folder per student is expected.")
    return [_read_entry(entry) for entry in entries]


def passed_over(path: Path) -> list[str]:
    """Names in a folder of submissions that are not taken for submissions."""
    if not path.is_dir():
        return []
    return [entry.name for entry in sorted(path.iterdir()) if is_passed_over(entry)]


def is_passed_over(path: Path) -> bool:
    """Whether a path is no submission but a trace of a program, such as .git or __MACOSX."""
    is_answer = path.is_file() and is_toml(path)
    return path.name.startswith("._" if is_answer else (".", "__"))


def _read_entry(path: Path) -> Submission:
    """The submission of a file or folder of the class."""
    path = path if path.name else path.resolve()  # it may be given as "."
    name = printable(path.name)
    submission = Submission(name, name if path.is_dir() else printable(path.stem))
    if path.is_symlink():
        _note_unread(submission, f"{name} is a symbolic link, which is not followed.")
    elif path.is_dir():
        _read_folder(path, submission)
    elif is_toml(path):
        _read_file(path, submission)
    else:
        submission.others.append(name)
    return submission


def is_toml(path: Path) -> bool:
    return path.suffix.lower() == ".toml"


def _read_folder(folder: Path, submission: Submission) -> None:
    """Add all that one student handed in: files of answers at any depth, and code."""
    code = _find_code(folder)
    if code is not None:
        _read_code(code, submission)
    for path in _walk(folder, submission):
        if is_toml(path):
            _read_file(path, submission)
        elif code is None or not path.is_relative_to(code) or is_document(path):
            submission.others.append(printable(str(path.relative_to(folder))))
    if not (submission.answers or submission.code or submission.unread or submission.others):
        _note_unread(submission, "nothing was handed in that can be graded.")


def is_document(path: Path) -> bool:
    """Whether a file beside code may hold answers in prose."""
    return path.suffix.lower() in DOCUMENTS and path.stem.lower() != "readme"


def _walk(folder: Path, submission: Submission) -> Iterable[Path]:
    """The files of a folder, at any depth; links are noted and not followed."""
    for root, folders, files in os.walk(folder):
        links = [name for name in folders if Path(root, name).is_symlink()]
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for name in sorted([*files, *links]):
            path = Path(root, name)
            if path.is_symlink():
                shown = path.relative_to(folder)
                _note_unread(submission, f"{shown} is a symbolic link, which is not followed.")
            elif not is_passed_over(path):
                yield path


def _find_code(folder: Path) -> Path | None:
    """The folder that holds the code: the submission itself, or one or two levels below it."""
    for depth in ("", "*/", "*/*/"):
        for name in CODE_FILES:
            for path in sorted(folder.glob(depth + name)):
                inside = path.parent.resolve().is_relative_to(folder.resolve())
                if inside and path.is_file() and not path.is_symlink():
                    return path.parent
    return None


def _read_code(folder: Path, submission: Submission) -> None:
    """All regular files beside the code, since it may read them."""
    size = 0
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for path in (Path(root, name) for name in sorted(files)):
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode):
                continue
            size += found.st_size
            if size > MAX_CODE_BYTES:
                submission.code.clear()
                _note_unread(submission, f"the code is larger than {MAX_CODE_BYTES >> 20} MB.")
                return
            try:
                submission.code[str(path.relative_to(folder))] = path.read_bytes()
            except OSError as problem:
                _note_unread(submission, f"{path.name} cannot be read: {problem.strerror}.")


def _read_file(path: Path, submission: Submission) -> None:
    """Add the answers of a file to a submission."""
    text = _read_text(path, submission)
    if text is None:
        return
    try:
        record = parse_toml(text)
        rows = answer_rows(record)
    except UserError as mistake:
        _note_unread(submission, f"{path.name}: {mistake}")
        return
    for name in sorted(set(record) - {"title", "student", "answer"})[:1]:
        submission.notes.append(
            f'{path.name} has "{name}"; only title, student and [[answer]] are known.'
        )
    if isinstance(record.get("student"), str):
        submission.student = printable(record["student"])[:MAX_NAME_CHARS]
    for number, row in enumerate(rows, start=1):
        _add_row(row, f"answer {number}", submission)


def _read_text(path: Path, submission: Submission) -> str | None:
    """The text of a file, or None with a note."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            _note_unread(submission, f"{path.name} is not a regular file.")
        elif path.stat().st_size > MAX_FILE_BYTES:
            _note_unread(submission, f"{path.name} is too long for a file of answers.")
        else:
            return path.read_bytes().decode("utf-8-sig")
    except OSError as problem:
        _note_unread(submission, f"{path.name} cannot be read: {problem.strerror}.")
    except UnicodeDecodeError as problem:
        byte = problem.start + 1
        _note_unread(submission, f"{path.name} is not text in UTF-8 (byte {byte}).")
    return None


def _add_row(row: Mapping[str, Any], where: str, submission: Submission) -> None:
    """Add one [[answer]] of a file."""
    id_ = row.get("id")
    if not isinstance(id_, str) or not id_:
        submission.notes.append(f'{where} needs id = "...".')
        submission.unread[""] = UNREAD_ANSWER
        return
    formulas = []
    if "student" in row:
        submission.notes.append(f"{where}: the student's name belongs at the top of the file.")
    for name, formula in row.items():
        if name in QUESTION_FIELDS or name == "student":
            continue
        if not isinstance(formula, str):
            mistake = f'{name} must be a formula in quotes, as in {name} = "...".'
            submission.notes.append(f"{where}: {mistake}")
            submission.unread.setdefault(id_, mistake)
            return
        has_name = name == "answer" or re.match(rf"[\s$\\(\[]*{re.escape(name)}\s*(=|≈)", formula)
        formulas.append(formula if has_name else f"{name}={formula}")
    formulas = [formula for formula in formulas if formula.strip()]
    if id_ in submission.answers:
        submission.notes.append(
            f'there are two answers with the id "{id_[:40]}"; the first one counts.'
        )
    elif formulas:
        submission.answers[id_] = tuple(formulas)


def _note_unread(submission: Submission, note: str) -> None:
    """Note a file that was not read: questions without an answer are for a person to see."""
    submission.notes.append(note)
    submission.unread[""] = UNREAD_ANSWER


def mark_shared_students(submissions: Iterable[Submission]) -> list[Submission]:
    """Note where several submissions name the same student; a person decides which one counts."""
    places: dict[str, list[str]] = {}
    listed = list(submissions)
    for submission in listed:
        places.setdefault(submission.student, []).append(submission.name)
    marked = []
    for submission in listed:
        others = [name for name in places[submission.student] if name != submission.name]
        if others:
            note = f"the student has other submissions as well: {', '.join(others)[:200]}."
            submission = replace(submission, notes=[*submission.notes, note])
        marked.append(submission)
    return marked
