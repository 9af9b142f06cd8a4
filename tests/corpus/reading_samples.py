"""What the reader finds in some documents, relation by relation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wherefrom.corpus.database import Database, ExtractedAnswer, ReadingCheck
from wherefrom.corpus.documents import Document
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.folding import FoldedName, fold_words
from wherefrom.corpus.questions import Question


@dataclass(frozen=True)
class Reading:
    template: str
    asked: int
    found: int
    missing: tuple[str, ...]
    same_as: str
    answers: dict[FoldedName, list[ExtractedAnswer]]
    check: ReadingCheck | None


def read_relations(documents: Iterable[Document], questions: Sequence[Question]) -> list[Reading]:
    database = read_facts(Database.of(documents), questions)
    readings = []
    for template, asked, found, missing, same_as, _, check in database.relations():
        answers = {
            fold_words(database.spell(number)): stated
            for number, stated in database.all_extracted(template)
        }
        assert all(database.extracted(template, name) == answers[name] for name in answers)
        readings.append(Reading(template, asked, found, missing, same_as, answers, check))
    return readings
