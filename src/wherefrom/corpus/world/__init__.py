"""The embedded world: invented people, so that everything runs with no download and the truth is
known: who is written about, how often, in which line, and who is in no document at all.
"""

from wherefrom.corpus.world.folder import write_world
from wherefrom.corpus.world.making import WorldSummary, make_world, states, summarize_world
from wherefrom.corpus.world.records import SPLITS, TEMPLATE, Biography, Person, World

__all__ = [
    "SPLITS",
    "TEMPLATE",
    "Biography",
    "Person",
    "World",
    "WorldSummary",
    "make_world",
    "states",
    "summarize_world",
    "write_world",
]
