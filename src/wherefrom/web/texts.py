"""Texts that were uploaded for a study: kept beside the runs, and checked before any training."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from wherefrom.errors import UserError
from wherefrom.storage import make_folder, read_json, write_json, write_whole
from wherefrom.web.runs import NEW_NAME, Record, RunIndex

FOLDER = ".wherefrom"  # inside the served folder
SUFFIXES = {".txt", ".tsv", ".md", ".csv", ".json", ".jsonl", ".ndjson"}
EVERY = 5  # of the questions one is kept to judge by, where none were given for that
OPTIONS = ("subject_field", "text_field", "template")  # of `wherefrom study`


class Texts:
    """Uploaded texts by the name of the run that is to learn from them."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index

    def keep(
        self,
        name: str,
        corpus: Sequence[tuple[str, bytes]],
        train: bytes,
        dev: bytes,
        options: Mapping[str, str],
    ) -> Record:
        """Keep what was uploaded, and say how it is understood; nothing stays of what is refused.

        corpus: (name, content) of one file, or of many that become a folder.
        """
        self.index.new_folder(name)
        folder = self._folder(name)
        shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder.parent)
        make_folder(folder)
        try:
            if len(corpus) > 1:
                for file, content in corpus:
                    path = Path(file.replace("\\", "/")).name
                    if path.startswith(".") or not path.isprintable():
                        raise UserError("each file of the text needs a plain name.")
                    write_whole(make_folder(folder / "corpus") / path, content)
            else:
                suffix = Path(corpus[0][0]).suffix.lower()
                suffix = suffix if suffix in SUFFIXES else ".txt"
                write_whole(folder / f"corpus{suffix}", corpus[0][1])
            if not dev.strip():
                lines = [line for line in train.splitlines(keepends=True) if line.strip()]
                dev = b"".join(lines[::EVERY])
                train = b"".join(line for at, line in enumerate(lines) if at % EVERY)
            write_whole(folder / "train.tsv", train)
            write_whole(folder / "dev.tsv", dev)
            write_json(folder / "options.json", {key: options.get(key, "") for key in OPTIONS})
            return self.describe(name)
        except UserError as problem:
            shutil.rmtree(folder, ignore_errors=True)
            raise UserError(str(problem).replace(f"{folder}/", "")) from None

    def describe(self, name: str) -> Record:
        """How the files are understood, as sentences; a UserError for what cannot be learned."""
        from wherefrom.corpus.checks import describe_readings
        from wherefrom.corpus.facts import read_relations
        from wherefrom.study import StudyFiles, read_input

        folder, options = self._folder(name), self._options(name)
        templates = [options["template"]] if options["template"] else []
        fields = {key: options[key] or None for key in ("subject_field", "text_field")}
        paths = self._files(name)
        read = read_input(StudyFiles(*paths), folder, templates=templates, **fields)
        readings = read_relations(read.corpus.documents, read.train.questions)
        notes = [*read.notes, *describe_readings(readings, paths[1])]
        return {
            "name": name,
            "documents": len(read.corpus.documents),
            "questions": len(read.train.questions),
            "judged_by": len(read.dev.questions),
            "notes": [note.replace(f"{folder}/", "") for note in notes],
            "examples": [
                {"subject": each.subject, "text": each.text} for each in read.corpus.documents[:3]
            ],
        }

    def words(self, name: str) -> list[str]:
        """The files and options, as words of `wherefrom study`."""
        options = [(key.replace("_", "-"), value) for key, value in self._options(name).items()]
        files = [str(path) for path in self._files(name)]
        return [*files, *(f"--{key}={value}" for key, value in options if value)]

    def _files(self, name: str) -> list[Path]:
        folder = self._folder(name)
        return [*sorted(folder.glob("corpus*"))[:1], folder / "train.tsv", folder / "dev.tsv"]

    def _options(self, name: str) -> dict[str, str]:
        path = self._folder(name) / "options.json"
        if not path.is_file():
            raise UserError(f'no text was uploaded for a run "{name[:60]}".')
        return {key: str(read_json(path).get(key) or "") for key in OPTIONS}

    def _folder(self, name: str) -> Path:
        return self.index.root / FOLDER / "texts" / (name if NEW_NAME.fullmatch(name) else ".")
