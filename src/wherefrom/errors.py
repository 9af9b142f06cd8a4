"""What went wrong, told as a sentence to the person who can mend it.

A user's mistake is a UserError: one sentence that says what was expected, what came, where,
and what to do. The command line prints it without a traceback and exits with code 2.
Anything else that escapes is a failure of ours and exits with code 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A mistake the user can mend; the message is the whole story."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C was heeded: the step in hand was finished and saved, and --resume goes on from it."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' Did you mean "x"?' when something known is close, else the list of what is known."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f' Did you mean "{close[0]}"?'
    return f" Known: {', '.join(names)}."
