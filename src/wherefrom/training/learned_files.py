"""What a run learned from: its text, questions and parent run, found again by their hashes.

A run folder can be moved or copied. Its files are looked for at their old place and beside the run,
and only those with the recorded hash are accepted.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from wherefrom.corpus.database import RUN_DATABASE, Database, read_documents
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import QuestionSet, question_rows, read_questions
from wherefrom.corpus.split import read_learned
from wherefrom.errors import UserError
from wherefrom.storage import digest_of, sha256_of
from wherefrom.training.record import RunRecord, SourceRecord, check_file, read_record
from wherefrom.training.run_folder import Run


@dataclass(frozen=True)
class SourceFile:
    """A file or parent run that the run in `folder` learned from."""

    what: str  # corpus, questions, dev or parent
    folder: Path
    run: RunRecord  # of that folder
    record: SourceRecord  # what it says about the file

    @property
    def noun(self) -> str:
        return {"corpus": "corpus", "parent": "run"}.get(self.what, "question file")

    def locate(self) -> Path:
        """Where it is now: at its old place, the same one relative to the run, or in the run."""
        path, changed = self._find()
        if path is not None:
            return path
        problem = f"the {self.noun} {self.record.path} that {self.folder} learned from is not there"
        problem += " any more"
        if changed:
            problem = f"{changed} has changed since {self.folder} learned from it"
        raise UserError(
            f"{problem}; put the {self.noun} back, or put a copy of it into {self.folder}."
        )

    def describe_change(self) -> str | None:
        """A sentence if the file is there and is not what it was; None also if it is gone."""
        path, changed = self._find()
        if path is not None or changed is None:
            return None
        return (
            f"{changed} has changed since {self.folder} learned from it; what is said here is "
            f"about the {self.noun} as it was."
        )

    def _find(self) -> tuple[Path | None, Path | None]:
        """Where it is unchanged; and else, where it is changed."""
        old = Path(self.record.path)
        moved = Path(os.path.normpath(self.folder / self.record.relative_path))
        changed = None
        for path in (old, moved, self.folder / "world" / old.name, self.folder / old.name):
            file = path / "model.safetensors" if self.what == "parent" else path
            if file.is_file():
                if sha256_of(file) == self.record.sha256:
                    return path, None
                changed = changed or path
        return None, changed

    def check_part(self, what: str, digest: str | None) -> None:
        """Refuse texts that are not those that the run learned from, by their hash."""
        if digest != getattr(self.run.job, what):
            raise UserError(
                f"{self.folder} learned from a part of {self.record.path}, and run.json does "
                "not say which; train again."
            )


def find_source(run: Run, what: str) -> SourceFile | None:
    """The corpus, questions or dev questions that a run or its parents learned from, if any."""
    folder, record = run.folder, run.record
    while True:
        sources = record.sources
        if what in sources:
            return SourceFile(what, folder, record, sources[what])
        if "parent" not in sources:
            return None
        folder = SourceFile("parent", folder, record, sources["parent"]).locate()
        record = read_record(folder)


def describe_changes(run: Run) -> list[str]:
    """A sentence for each file that the run learned from and that has changed since."""
    sources = [find_source(run, what) for what in ("corpus", "questions")]
    changes = [source.describe_change() for source in sources if source is not None]
    return [change for change in changes if change]


def read_learned_documents(source: SourceFile) -> Database:
    """The documents that the run learned: its file without subjects and lines left out."""
    lines = set(getattr(source.run.job, "without", ()))
    corpus = _open_documents(source)
    if corpus is None:
        corpus = read_documents(source.locate())
        subjects = set(map(fold_words, source.run.left_out))
        if subjects:
            corpus = corpus.select(lambda document: fold_words(document.subject) not in subjects)
        source.check_part("documents", corpus.documents_sha256)
    return corpus.select(lambda document: document.line not in lines) if lines else corpus


def _open_documents(source: SourceFile) -> Database | None:
    """The database in the run folder, if it is of the documents that the run learned."""
    with suppress(UserError):
        database = Database.open(check_file(source.folder, RUN_DATABASE))
        expected = {"source_sha256": source.record.sha256}
        expected["documents_sha256"] = getattr(source.run.job, "documents", None) or ""
        if expected.items() <= database.about.items():
            return database
        database.close()
    return None


def read_learned_questions(source: SourceFile) -> QuestionSet:
    """The questions that the run learned: those of its database, or else of its file.

    The file also has the subjects that were set aside or left out.
    """
    stored = _stored_questions(source)
    if stored is not None:
        return stored
    file = read_questions(source.locate(), source.run.templates)
    excluded = (*source.run.left_out, *source.run.not_learned)
    gone = set(map(fold_words, excluded))
    kept = tuple(q for q in file.questions if fold_words(q.subject) not in gone)
    source.check_part("questions", digest_of(question_rows(kept)))
    return replace(file, questions=kept)


def _stored_questions(source: SourceFile) -> QuestionSet | None:
    """The training questions in the database of the run, if they are those that it learned."""
    with suppress(UserError):
        with Database.open(check_file(source.folder, RUN_DATABASE)) as database:
            questions = tuple(read_learned(database))
        if questions and digest_of(question_rows(questions)) == source.run.job.questions:
            path, templates = Path(source.record.path), source.run.templates
            return QuestionSet(path, source.record.sha256, templates, questions)
    return None
