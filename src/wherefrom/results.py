"""Results that print themselves: a few lines as text, a table in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any


class Printable:
    """A mixin for results: `summary` says what to print, as (label, text) with the headline first.

    A dataclass that takes it is declared with `repr=False`.
    """

    def summary(self) -> Sequence[tuple[str, str]]:
        raise NotImplementedError

    def __repr__(self) -> str:
        label, text = self.summary()[0]
        line = " ".join(f"{type(self).__name__} {label}: {text}".split())
        return f"<{line if len(line) <= 100 else line[:97] + '...'}>"

    def __str__(self) -> str:
        rows = self.summary()
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {text}".rstrip() for label, text in rows)

    def _repr_html_(self) -> str:
        row = "<tr><th>{}</th><td>{}</td></tr>"
        rows = (row.format(escape(label), escape(text)) for label, text in self.summary())
        return f"<table>{''.join(rows)}</table>"


class Record(Printable, dict[str, Any]):
    """What a command prints with --json, as a dictionary that prints as a few lines."""

    def __init__(self, command: str, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.command = command

    def summary(self) -> Sequence[tuple[str, str]]:
        inside = [key for key, value in self.items() if isinstance(value, dict | list)]
        plain = [(key, str(value)) for key, value in self.items() if key not in inside]
        return [(self.command, f"{len(self)} keys"), *plain, ("inside", ", ".join(inside))]

    def to_dict(self) -> dict[str, Any]:
        return dict(self)
