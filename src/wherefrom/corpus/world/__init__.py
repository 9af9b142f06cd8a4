"""The embedded world: invented people, so that everything runs with no download and the truth is
known: who is written about, how often, in which line, and who is in no document at all.
"""

from wherefrom.corpus.world.generator import (
    SPLITS,
    TEMPLATE,
    Biography,
    Person,
    World,
    make_world,
    states,
    summarize_world,
    write_world,
)

__all__ = [
    "SPLITS",
    "TEMPLATE",
    "Biography",
    "Person",
    "World",
    "make_world",
    "states",
    "summarize_world",
    "write_world",
]
