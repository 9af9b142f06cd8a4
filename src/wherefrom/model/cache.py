"""What decoding remembers, so that each new token costs one position and not the whole past.

Every layer that attends keeps its keys and values here. Rows of a cache have equal length: prompts
are decoded in groups of one length, so no mask for padding is ever needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class LayerCache:
    """Named tensors (rows, heads, positions, width) that grow by one chunk at a time."""

    capacity: int
    length: int = 0
    stores: dict[str, Tensor] = field(default_factory=dict)

    def extend(self, **chunks: Tensor) -> tuple[Tensor, ...]:
        """Append each chunk and return everything so far, in the order given."""
        grown = []
        added = next(iter(chunks.values())).shape[2]
        for name, chunk in chunks.items():
            if name not in self.stores:
                rows, heads, _, width = chunk.shape
                self.stores[name] = chunk.new_empty(rows, heads, self.capacity, width)
            self.stores[name][:, :, self.length : self.length + added] = chunk
            grown.append(self.stores[name][:, :, : self.length + added])
        self.length += added
        return tuple(grown)

    def spread(self, rows: int, capacity: int) -> LayerCache:
        """The same past for each of many rows, with room to go on."""
        wider = LayerCache(capacity)
        if self.stores:
            past = {name: store[:, :, : self.length] for name, store in self.stores.items()}
            wider.extend(**{name: each.expand(rows, -1, -1, -1) for name, each in past.items()})
        return wider

    def keep(self, rows: Tensor) -> None:
        self.stores = {name: store.index_select(0, rows) for name, store in self.stores.items()}


class Cache:
    """One LayerCache for each attending layer, and how many tokens were read."""

    def __init__(self, layers: int, capacity: int) -> None:
        self.layers = [LayerCache(capacity) for _ in range(layers)]
        self.length = 0

    def spread(self, rows: int, capacity: int) -> Cache:
        """What one row has read, as the past of many."""
        wider = Cache(0, capacity)
        wider.layers = [layer.spread(rows, capacity) for layer in self.layers]
        wider.length = self.length
        return wider

    def keep(self, rows: Tensor) -> None:
        """Drop every row but these: answers that are complete need no more work."""
        for layer in self.layers:
            layer.keep(rows)
