"""Texts that were uploaded for a new run, kept inside the served folder."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from wherefrom.errors import UserError
from wherefrom.storage import make_folder, read_json, write_json, write_whole
from wherefrom.web.runs import NEW_NAME, Record

PRIVATE_FOLDER = ".wherefrom"  # inside the served folder
TEXTS_FOLDER = "texts"  # inside that one
SUFFIXES = {".txt", ".tsv", ".md", ".csv", ".json", ".jsonl", ".ndjson"}
JUDGED_EVERY = 5  # of the questions one is kept to judge by, where none were given for that
OPTIONS = ("subject_field", "text_field", "template")  # of `wherefrom study`
MAX_NAME_BYTES = 200  # of a file or a folder; file systems take 255
MAX_NESTED_FOLDERS = 8


class UploadedText:
    """The files that were uploaded for the run `name` of the served folder `root`."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.folder = root / PRIVATE_FOLDER / TEXTS_FOLDER / name

    def keep(
        self,
        corpus: Sequence[tuple[str, bytes]],
        train: bytes,
        dev: bytes,
        options: Mapping[str, str],
    ) -> None:
        """Write what was uploaded in the place of an earlier upload.

        corpus: (name, content) of one file, or of many that become a folder.
        """
        paths = [Path("corpus" + _known_suffix(corpus[0][0]))]
        if len(corpus) > 1:
            paths = [Path("corpus", *parts) for parts in split_names([name for name, _ in corpus])]
        if not dev.strip():
            lines = [line for line in train.splitlines(keepends=True) if line.strip()]
            dev = b"".join(lines[::JUDGED_EVERY])
            train = b"".join(line for i, line in enumerate(lines) if i % JUDGED_EVERY)
        self.remove()
        for path, (_, content) in zip(paths, corpus, strict=True):
            make_folder((self.folder / path).parent)
            write_whole(self.folder / path, content)
        write_whole(self.folder / "train.tsv", train)
        write_whole(self.folder / "dev.tsv", dev)
        write_json(self.folder / "options.json", {key: options.get(key, "") for key in OPTIONS})

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def files(self) -> list[Path]:
        """The text, the questions to learn and those to judge by."""
        if not NEW_NAME.fullmatch(self.name) or not (self.folder / "options.json").is_file():
            raise UserError(f'no text was uploaded for a run "{self.name[:60]}".')
        corpus = sorted(self.folder.glob("corpus*"))[:1]
        return [*corpus, self.folder / "train.tsv", self.folder / "dev.tsv"]

    def options(self) -> dict[str, str]:
        options = read_json(self.folder / "options.json", dict)
        return {key: str(options.get(key) or "") for key in OPTIONS}

    def study_arguments(self) -> list[str]:
        """The text and its options as words of `wherefrom study`."""
        words = [str(file) for file in self.files()]
        for key, value in self.options().items():
            if value:
                words.append(f"--{key.replace('_', '-')}={value}")
        return words

    def hide_folder(self, text: str) -> str:
        """A message without the path of the folder, which is of no use to a visitor."""
        return text.replace(f"{self.folder}/", "")


def _known_suffix(name: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    return suffix if suffix in SUFFIXES else ".txt"


def split_names(names: Sequence[str]) -> list[list[str]]:
    """The names of uploaded files as folders and file; a UserError unless each is safe and unique.

    A browser that uploads a folder sends names such as "letters/1921/a.txt".
    """
    found: dict[str, list[str]] = {}
    for name in names:
        parts = [part for part in name.replace("\\", "/").split("/") if part]
        shown = name if len(name) <= 60 else name[:57] + "..."
        if not parts or len(parts) > MAX_NESTED_FOLDERS:
            raise UserError(f'a file of the text has the name "{shown}", which cannot be kept.')
        for part in parts:
            if part.startswith(".") or not part.isprintable():
                raise UserError(f'each file of the text needs a plain name, and "{shown}" is none.')
            if len(part.encode("utf-8", "replace")) > MAX_NAME_BYTES:
                raise UserError(
                    f"the name of a file may have {MAX_NAME_BYTES} bytes, and that of "
                    f'"{shown}" has more; give it a shorter name.'
                )
        # some file systems take names for the same that differ in case or in how accents are coded
        key = unicodedata.normalize("NFC", "/".join(parts)).casefold()
        if key in found:
            raise UserError(f'two files of the text have the name "{shown}"; rename one of them.')
        found[key] = parts
    for key in found:
        above = key.rpartition("/")[0]
        if above in found:
            raise UserError(f'"{above[:60]}" is both a file and a folder of the text.')
    return list(found.values())


def describe_text(root: Path, name: str) -> Record:
    """How the files are understood, as sentences; a UserError for what cannot be learned."""
    from wherefrom.corpus.checks import describe_facts, tabulate_readings
    from wherefrom.corpus.facts import read_facts
    from wherefrom.study import StudyFiles, read_input

    text = UploadedText(root, name)
    paths, options = text.files(), text.options()
    templates = [options["template"]] if options["template"] else []
    fields = {key: options[key] or None for key in ("subject_field", "text_field")}
    try:
        study = read_input(StudyFiles(*paths), text.folder, templates=templates, **fields)
        documents, questions = study.corpus.documents, study.train.questions
        database = read_facts(study.corpus, questions)
        notes = [*study.notes, *describe_facts(database, paths[1])]
        readings = tabulate_readings(database)
    except UserError as problem:
        raise UserError(text.hide_folder(str(problem))) from None
    return {
        "name": name,
        "documents": len(documents),
        "questions": len(questions),
        "judged_by": len(study.dev.questions),
        "readings": readings,
        "notes": [text.hide_folder(note) for note in notes],
        "examples": [{"subject": one.subject, "text": one.text} for one in documents[:3]],
    }
