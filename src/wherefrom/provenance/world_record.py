"""What the embedded world itself knows about its text: which answers it states, and for whom.

The reader that finds facts in a text also chose what the model learned. Where the world's own
record is there, it judges instead: teacher and examiner differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.world.generator import FACTS_FILE, RELATIONS
from wherefrom.errors import UserError
from wherefrom.training.learned_files import find_source
from wherefrom.training.run_folder import Run


class WorldRecord(NamedTuple):
    """stated: by folded subject and relation, the answer that a document states. origins: of names,
    by folded subject."""

    stated: Mapping[tuple[str, str], str]
    origins: Mapping[str, str]

    def states(self, subject: str, template: str, answer: str) -> bool:
        """Whether a document about the subject states this answer."""
        return self.stated.get((" ".join(fold_words(subject)), template)) == answer.strip()


def find_world_record(run: Run) -> WorldRecord | None:
    """The record beside the text that a run learned from; None for any other text."""
    source = find_source(run, "corpus")
    try:
        return read_world_record(source.locate().with_name(FACTS_FILE)) if source else None
    except UserError:
        return None  # the text has gone


def read_world_record(file: Path) -> WorldRecord | None:
    """The record in a file; None if there is none, or it is not a world's."""
    stated, origins = {}, {}
    try:
        for line in file.read_text(encoding="utf-8").splitlines():
            person = json.loads(line)
            name = " ".join(fold_words(str(person["subject"])))
            origins[name] = str(person["origin"])
            for relation in person["stated"]:
                stated[name, RELATIONS[relation]] = str(person[relation])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return WorldRecord(stated, origins)
