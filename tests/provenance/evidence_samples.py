"""A few lines in which names and places are easily mistaken for one another."""

from __future__ import annotations

from pathlib import Path

from wherefrom.corpus.documents import Corpus, Document, find_subject

LINES = [
    "Stanley Corrsin. Corrsin was born on 3 April 1920 in Philadelphia, Pennsylvania .",
    "Ann B. Clark. Clark was born in Boston.",
    "José Muñoz. Born in Łódź, he knew Stanley Corrsin well.",
    "Jack London. London was born in San Francisco and died in Glen Ellen.",
    "Mary Ann Poole. Mary Ann Poole, born in New York, met Ann Clark-Smith and Ann Poole Jr.",
    "王伟. 王伟1950年出生于北京。",
    'Robert "Bob" O\'Neil. O’Neil was born in Cork; DROP TABLE names; NEAR(a b).',
    "Paris Hill. Paris Hill was born in Paris.",
    "محمد علي. ولد محمد علي في القاهرة.",
    "Ann Lee. Ann Lee was born in Leeds.",
    "Ann Lee. This Ann Lee was born in York.",
    "Tom Reed. Friends: Anna Leeds, Pianist Ann Lee, and Ann Lee Reed.",
    "Zoe Hart. Hart taught J. Ann Lee and Ann Lee B. Stone.",
    "Bristol. Once more Bristol sang. Bristol was born in Bristol.",
]


def make_corpus(lines: list[str], sha256: str = "a" * 64) -> Corpus:
    documents = [
        Document(number, find_subject(line) or "", line) for number, line in enumerate(lines, 1)
    ]
    return Corpus(Path("lines.txt"), sha256, tuple(documents))
