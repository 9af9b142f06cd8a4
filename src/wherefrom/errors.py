"""Errors that are one sentence for the user who can fix them.

A user's mistake is a UserError: one sentence that says what was expected, what came, where,
and what to do. The command line prints it without a traceback and exits with code 2.
Any other exception is our own failure and exits with code 1.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class UserError(ValueError):
    """A mistake that the user can fix; the message says all there is to say."""


class Stopped(KeyboardInterrupt):
    """Training was interrupted after a finished, saved step, and can be resumed from it."""

    def __init__(self, signal_number: int = signal.SIGINT) -> None:
        super().__init__()
        self.signal_number = signal_number


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' Did you mean "x"?' when something known is close, else the list of what is known."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f' Did you mean "{close[0]}"?'
    return f" Known: {', '.join(names)}."


@contextmanager
def name_arguments() -> Iterator[None]:
    """Options in messages of errors become arguments, for callers from Python.

    "--set-aside" is `set_aside` there. What stands in backquotes is a command and stays.
    """

    def rename(found: re.Match[str]) -> str:
        name = (found[1] or "").replace("-", "_")
        return {"": found[0], "resume": "resume=True"}.get(name, name)

    try:
        yield
    except UserError as error:
        message = re.sub(r"`[^`]*`|--([a-z-]+)", rename, str(error))
        if message == str(error):
            raise
        raise UserError(message) from None
