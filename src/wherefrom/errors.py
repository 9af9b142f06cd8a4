"""Errors that are one sentence, and results that print themselves.

A user's mistake is a UserError: one sentence that says what was expected, what came, where,
and what to do. The command line prints it without a traceback and exits with code 2. Any other
exception is a bug and exits with code 1.
"""

from __future__ import annotations

import inspect
import re
import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from functools import wraps
from html import escape
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
MAX_SHOWN_CHARACTERS = 60  # of a name, an answer or a question within a sentence


class UserError(ValueError):
    """A mistake that the user can fix; the message says how."""


class Stopped(KeyboardInterrupt):
    """Training was interrupted after saving a finished step, and can be resumed."""

    def __init__(self, signal_number: int = signal.SIGINT) -> None:
        super().__init__()
        self.signal_number = signal_number


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM; what was being made is not there."""


def shorten(text: str) -> str:
    """A text on one line, cut to MAX_SHOWN_CHARACTERS, for a sentence."""
    shown = on_one_line(text)
    if len(shown) <= MAX_SHOWN_CHARACTERS:
        return shown
    return shown[: MAX_SHOWN_CHARACTERS - 3] + "..."


def on_one_line(text: str) -> str:
    """The text without line ends, control characters and repeated blanks."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' Did you mean "x"?' if a known word is similar, else the list of known words."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f' Did you mean "{close[0]}"?'
    return f" Known: {', '.join(names)}."


def _is_list(value: Any, kinds: Any) -> bool:
    several = isinstance(value, Collection) and not isinstance(value, str | bytes)
    return several and all(isinstance(each, kinds) for each in value)


# annotation of an argument -> how a message names such a value, and the check for it
TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bool": ("True or False", lambda x: isinstance(x, bool)),
    "int": ("a whole number", lambda x: isinstance(x, Integral) and not isinstance(x, bool)),
    "float": ("a number", lambda x: isinstance(x, Real) and not isinstance(x, bool)),
    "str": ("a text", lambda x: isinstance(x, str)),
    "str | Path": ("a path", lambda x: isinstance(x, str | Path) and str(x) != ""),
    "Sequence[str]": ("a list of texts", lambda x: _is_list(x, str)),
    "str | Sequence[str]": ("a text or texts", lambda x: isinstance(x, str) or _is_list(x, str)),
    "Sequence[str | Path]": ("a list of paths", lambda x: _is_list(x, str | Path)),
}


def checked(function: F) -> F:
    """Wrap a function so that an unknown or mistyped argument raises a UserError."""
    known = inspect.signature(function)

    @wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        try:
            given = known.bind(*values, **named).arguments
        except TypeError as problem:
            wrong = [name for name in named if name not in known.parameters]
            hint = did_you_mean(wrong[0], known.parameters) if wrong else ""
            raise UserError(f"{function.__name__.strip('_')}: {problem}.{hint}") from None
        for name, value in given.items():
            kind = str(known.parameters[name].annotation)
            plain = kind.removesuffix(" | None")
            words, is_one = TYPES.get(plain, ("", bool))
            own = getattr(function, "__globals__", {}).get(plain)  # one of our own classes
            if isinstance(own, type) and own.__module__.startswith("wherefrom."):
                words, is_one = f"a {plain}", own.__instancecheck__
            if words and not is_one(value) and not (value is None and kind.endswith(" | None")):
                raise UserError(f"{name} must be {words}, not {value!r:.60}.")
        return function(*values, **named)

    return call  # type: ignore[return-value]


def public(function: F) -> F:
    """Wrap a function for callers from Python: `checked`, and errors name arguments, not options.

    "--set-aside" becomes "set_aside". Text in backquotes is a command and stays.
    """

    def rename(found: re.Match[str]) -> str:
        name = (found[1] or "").replace("-", "_")
        return {"": found[0], "resume": "resume=True"}.get(name, name)

    @wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        try:
            return checked(function)(*values, **named)
        except UserError as error:
            message = re.sub(r"`[^`]*`|--([a-z-]+)", rename, str(error))
            if message == str(error):
                raise
            raise UserError(message) from None

    return call  # type: ignore[return-value]


# ---- results


class Printable:
    """A mixin for results: `summary` returns what to print as (label, text), headline first.

    A dataclass that uses it is declared with `repr=False`.
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
    """What a command prints with --json: a dictionary whose `str` is a few lines."""

    def __init__(self, command: str, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.command = command

    def summary(self) -> Sequence[tuple[str, str]]:
        inside = [key for key, value in self.items() if isinstance(value, dict | list)]
        plain = [(key, str(value)) for key, value in self.items() if key not in inside]
        return [(self.command, f"{len(self)} keys"), *plain, ("inside", ", ".join(inside))]

    def to_dict(self) -> dict[str, Any]:
        return dict(self)
