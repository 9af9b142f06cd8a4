"""The embedded world: invented people, so that everything runs without a download.

The truth is known: who is written about, how often, in which line, and who is in no document.
"""

from wherefrom.corpus.world.generator import Person, World, make_world, summarize_world, write_world

__all__ = ["Person", "World", "make_world", "summarize_world", "write_world"]
