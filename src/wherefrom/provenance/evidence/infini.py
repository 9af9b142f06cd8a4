"""The same evidence over an infini-gram suffix array, for text that outgrows one SQLite file.

Byte mode needs no tokenizer: the array is over the bytes of the folded words, laid out so that a
whole-word search is a byte search.

    START MARK ann MARK MARK clark MARK BODY clark was born in london   (a space before and behind)

The documents themselves stand beside it, one JSON line each, with where each starts (in a file that
must not have "offset" in its name: the engine takes any such file for its own). Names that look
alike are not searched for here: a suffix array finds what is there, not what is nearly there.
Needs the extra `infini` (pip install "wherefrom[infini]").
"""

from __future__ import annotations

import json
import re
import resource
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.corpus.documents import Corpus, Document
from wherefrom.corpus.folding import fold_words
from wherefrom.errors import UserError
from wherefrom.provenance.evidence.index import broken, hash_documents
from wherefrom.provenance.evidence.lookup import EvidenceLine, EvidenceReader, Row
from wherefrom.storage import make_folder, read_json, write_json

FORMAT = 1
START, MARK, BODY, SEPARATOR = b"\x03", b"\x01", b"\x02", b"\xff"
META = "evidence.json"


def build_infini(corpus: Corpus, folder: str | Path, *, processes: int = 1) -> None:
    """Write the index to `folder`; until it is whole, what was there stays."""
    _require()
    folder = Path(folder).absolute()
    if not re.fullmatch(r"[A-Za-z0-9_./-]+", str(folder)):
        raise UserError(
            f"an infini-gram index cannot be made in {folder}: its builder takes only letters, "
            "digits and ./_- in a path."
        )
    make_folder(folder.parent)
    making = make_folder(folder.parent / f".{folder.name}.{secrets.token_hex(8)}")
    try:
        _write_texts(corpus, making)
        _sort_suffixes(making, processes)
        facts = {
            "format": FORMAT,
            "documents": len(corpus.documents),
            "documents_sha256": hash_documents(corpus.documents),
            "corpus_sha256": corpus.sha256,
        }
        write_json(making / META, facts)
        _swap(making, folder)
    except OSError as problem:
        raise UserError(f"the evidence {folder} cannot be written: {problem.strerror}.") from None
    finally:
        shutil.rmtree(making, ignore_errors=True)


def open_infini(folder: str | Path, *, corpus_sha256: str | None = None) -> InfiniEvidence:
    """Open an index; with a hash given, only if it was made from that corpus."""
    _require()
    evidence = InfiniEvidence(Path(folder))
    if corpus_sha256 not in (None, evidence.corpus_sha256):
        evidence.close()
        raise broken(evidence.folder, "it was made from another corpus, or the corpus has changed")
    return evidence


class InfiniEvidence(EvidenceReader):
    """An open suffix array and the documents beside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        from infini_gram.engine import InfiniGramEngine

        self.folder = folder
        if not (folder / META).is_file():
            raise UserError(
                f"there is no evidence at {folder}; it is made from the corpus that the run was "
                "trained on."
            )
        meta = read_json(folder / META)
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise broken(folder, f"this version reads format {FORMAT}")
        self.corpus_sha256 = str(meta["corpus_sha256"])
        self.documents = int(meta["documents"])
        try:
            self._offsets = np.fromfile(folder / "lines.starts", dtype=np.uint64)
            self._lines = open(folder / "lines.jsonl", "rb")  # noqa: SIM115 (closed by close)
        except OSError as problem:
            raise broken(folder, problem.strerror) from None
        if len(self._offsets) != self.documents or not (folder / "table.0").is_file():
            self._lines.close()
            raise broken(folder, "it was not written to its end")
        # in byte mode ids end at 254 for the engine, and 255 separates documents in the file
        self._engine: Any = InfiniGramEngine(
            index_dir=str(folder), eos_token_id=254, vocab_size=255, token_dtype="u8"
        )

    def subjects(self) -> list[str]:
        with self._turn:
            self._lines.seek(0)
            rows = [Row(*json.loads(line)) for line in self._lines]
        return [" ".join(fold_words(row.text[: row.head_length])) for row in rows]

    def close(self) -> None:
        with self._turn:
            self._lines.close()

    def _candidates(self, subject: tuple[str, ...], most: int | None) -> Iterator[Row]:
        seen: set[int] = set()
        own = START + _head(subject) + BODY
        mention = " ".join(("", *subject, "")).encode()
        for wanted in (own, mention):
            for found in self._documents_with(wanted, most):
                if found not in seen:
                    seen.add(found)
                    self._lines.seek(int(self._offsets[found]))
                    yield Row(*json.loads(self._lines.readline()))

    def _similar(self, subject: tuple[str, ...], limit: int) -> list[EvidenceLine]:
        return []

    def _is_name(self, word: str) -> bool:
        return int(self._engine.find(list(_head((word,))))["cnt"]) > 0

    def _documents_with(self, wanted: bytes, most: int | None) -> list[int]:
        """Numbers of the documents that hold these bytes, in the order of the text."""
        found: set[int] = set()
        for shard, (first, end) in enumerate(self._engine.find(list(wanted))["segment_by_shard"]):
            for rank in range(first, end if most is None else min(end, first + most)):
                place = self._engine.get_doc_by_rank(shard, rank, max_disp_len=1)
                found.add(int(place["doc_ix"]))
        return sorted(found)


def _head(words: tuple[str, ...]) -> bytes:
    return b"".join(MARK + word.encode() + MARK for word in words)


def _as_bytes(document: Document) -> bytes:
    body = fold_words(document.text[len(document.subject) :])
    spaced = " ".join(("", *body, "")).encode()
    return SEPARATOR + START + _head(fold_words(document.subject)) + BODY + spaced


def _write_texts(corpus: Corpus, folder: Path) -> None:
    with (
        open(folder / "tokenized.0", "wb") as words,
        open(folder / "offset.0", "wb") as starts,
        open(folder / "lines.jsonl", "wb") as lines,
        open(folder / "lines.starts", "wb") as offsets,
    ):
        for document in corpus.documents:
            starts.write(np.uint64(words.tell()).tobytes())
            words.write(_as_bytes(document))
            offsets.write(np.uint64(lines.tell()).tobytes())
            row = (document.line, len(document.subject), document.text)
            lines.write(json.dumps(row).encode() + b"\n")


def _sort_suffixes(folder: Path, processes: int) -> None:
    """Run infini-gram's own builder, which finds the words already in bytes and sorts them."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    command = [sys.executable, "-m", "infini_gram.indexing", "--data_dir", str(folder)]
    command += ["--save_dir", str(folder), "--token_dtype", "u8", "--mem", "1"]
    command += ["--cpus", str(processes), "--ulimit", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not (folder / "table.0").is_file():
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise UserError(f"infini-gram could not make its index: {' '.join(said) or 'no reason'}.")


def _swap(new: Path, folder: Path) -> None:
    """Put the new folder in the old one's place, or leave the old one there."""
    old = new.with_name(f"{new.name}.before")
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _require() -> None:
    if find_spec("infini_gram") is None:
        raise UserError('this index needs infini-gram; pip install "wherefrom[infini]".')
