"""A world on disk: five files, each complete or not there.

All five are written under temporary names first, so that a full disk or a crash leaves an older
world as it was, and only then renamed, the facts before the others: a folder that holds facts.jsonl
is known to be ours, and nothing else in it is ever touched.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from wherefrom.corpus.world.records import SPLITS, Person, World
from wherefrom.errors import UserError

DOCUMENTS, FACTS = "documents.txt", "facts.jsonl"
PART = ".part"  # ends the name of a file that is being written


def write_world(world: World, folder: str | Path) -> Path:
    """Write the world's files into `folder`, made if need be, and return it."""
    folder = Path(folder)
    texts = {FACTS: "".join(_as_json(person) + "\n" for person in world.people)}
    texts[DOCUMENTS] = "".join(document.line + "\n" for document in world.documents)
    for split in SPLITS:
        rows = (f"{p.question}\t{p.birthplace}\n" for p in world.of_split(split))
        texts[f"{split}.tsv"] = "".join(rows)
    parts = {folder / name: folder / f".{name}{PART}" for name in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_folder(folder)
        try:
            for (path, part), text in zip(parts.items(), texts.values(), strict=True):
                assert path.name in part.name
                _write(part, text)
            for path, part in parts.items():
                os.replace(part, path)
        finally:
            for part in parts.values():
                part.unlink(missing_ok=True)
    except FileExistsError:
        raise UserError(f"{folder} is a file; a folder for the world was expected.") from None
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise UserError(f"the world cannot be written to {folder}: {reason}.") from None
    return folder


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something other than a world, which would be mixed up with it."""
    held = sorted(entry.name for entry in folder.iterdir() if not entry.name.endswith(PART))
    if held and not _is_world(folder):
        raise UserError(
            f"{folder} is not empty and holds no world (it holds {held[0]}); "
            "give an empty or a new folder with --out."
        )


def _is_world(folder: Path) -> bool:
    """Whether facts.jsonl is there and its first line is a person."""
    try:
        with (folder / FACTS).open(encoding="utf-8") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and {"subject", "birthplace", "split", "lines"} <= first.keys()


def _as_json(person: Person) -> str:
    record = {
        "subject": person.subject,
        "birthplace": person.birthplace,
        "country": person.country,
        "country_code": person.country_code,
        "origin": person.origin,
        "at_home": person.at_home,
        "split": person.split,
        "documents": len(person.lines),
        "lines": person.lines,
        "namesake": person.namesake,
        "near_namesake": person.near_namesake,
        "birthplace_in_documents": person.birthplace_in_documents,
    }
    return json.dumps(record, ensure_ascii=False)


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
