"""Rewordings: the same question with other commas, so to speak, which what is known survives.

They are mechanical, so that any relation has them: other punctuation, other case, other spaces,
other ways to write a name; and templates that a user may add.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from wherefrom.corpus.questions import SLOT
from wherefrom.provenance.decoys import ask_about


def reword(question: str, subject: str, templates: Sequence[str] = ()) -> list[str]:
    """Other ways to ask the same, each once, the question itself not among them."""
    bare = question.rstrip("?!. ")
    head, space, tail = question.partition(" ")
    turned = head[:1].swapcase() + head[1:] if head[:1].isalpha() else head
    if question.startswith(subject):
        turned = head  # the first word is a name, and other case would make it another
    variants: list[str | None] = [
        bare,
        f"{bare} ?",
        turned + space + tail,
        f"{head}  {tail}" if tail else None,
        *(ask_about(question, subject, form) for form in name_forms(subject)),
        *(template.replace(SLOT, subject) for template in templates),
    ]
    kept = dict.fromkeys(text for text in variants if text and text.strip())
    kept.pop(question, None)
    return list(kept)


def name_forms(subject: str) -> list[str]:
    """Other spellings of one name: no initials in the middle, no accents, no quoted nickname."""
    words = subject.split()
    inner = [word for word in words[1:-1] if not re.fullmatch(r"\w\.?", word)]
    forms = [
        " ".join([*words[:1], *inner, *words[-1:]]) if len(words) > 1 else subject,
        without_accents(subject),
        " ".join(re.sub(r"""["“][^"”]*["”]|\([^)]*\)""", " ", subject).split()),
    ]
    return [form for form in dict.fromkeys(forms) if form and form != subject]


def without_accents(text: str) -> str:
    """Letters without the marks on them, in the case that they have."""
    parts = unicodedata.normalize("NFD", text)
    plain = "".join(letter for letter in parts if not unicodedata.combining(letter))
    return unicodedata.normalize("NFC", plain)
