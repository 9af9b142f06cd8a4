"""When two spellings are one name: the one folding that split, evidence and world compare by.

A text is cut into words, folded so that case, accents and letters such as "ø" make no difference.
A word is a run of letters, digits and the marks that belong to them, with "++" or "#" at its end
("libsigc++", "C#") or a sign before a number. In scripts written without spaces (Chinese, Japanese,
Thai, Khmer, Lao, Burmese) every letter is a word, so that a name is found wherever its letters
stand in a row. An emoji is a word too, and so are "%" and the signs of currencies.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import NamedTuple

# Letters that no decomposition takes apart, and what a keyboard without them writes.
_PLAIN = str.maketrans(
    {
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "ħ": "h",
        "ı": "i",
        "ŧ": "t",
        "æ": "ae",
        "œ": "oe",
        "þ": "th",
        "−": "-",
    }
)
# Thai, Lao, Burmese, Khmer, kana, Han with its extensions: one letter, one word
_UNSPACED = (
    r"\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# where Unicode keeps marks and emoji; the blocks of Han and Hangul between them have neither
_WITH_MARKS = (
    (0x80, 0x3400),
    (0xA000, 0xAC00),
    (0xFB00, 0x12000),
    (0x16A00, 0x17000),
    (0x1BC00, 0x1FC00),
)
_HIDDEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_TAIL = r"(?:\+\+|#(?![^\W_]))?"  # of names such as "C++"
SIGNS = "-+\u2212"
_SIGN = rf"(?:(?<![^\s(])[{SIGNS}](?=\d))?"
_ASCII_WORD = re.compile(rf"{_SIGN}[A-Za-z0-9]+{_TAIL}|[%$]")
# the same as `_word_pattern` in letters below U+0300, five times as fast
_BEYOND_LATIN = re.compile("[^\0-\u02ff]")
_LATIN_WORD = re.compile(rf"[%$\xa2-\xa6\xa9\xae\xb0]|{_SIGN}[^\W_]+(?:\xad[^\W_]*)*{_TAIL}")
FoldedName = tuple[str, ...]


class Word(NamedTuple):
    """A folded word and the characters of the text that it was read from."""

    folded: str
    start: int
    end: int


def fold(text: str) -> str:
    """Lower case, without accents: "Łódź" and "lodz" are one.

    Hebrew points and Arabic vowels go too; nukta, virama and the voicing of kana stay.
    """
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(letter for letter in decomposed if letter < "\u0300" or not _is_accent(letter))
    return unicodedata.normalize("NFC", _HIDDEN.sub("", kept).casefold().translate(_PLAIN))


def _is_accent(letter: str) -> bool:
    kind = unicodedata.combining(letter)
    return kind == 1 or 10 <= kind <= 35 or kind >= 200


def split_words(text: str) -> list[Word]:
    """The words of a text in order, each with where it stands."""
    if text.isascii():
        return [Word(m[0].lower(), m.start(), m.end()) for m in _ASCII_WORD.finditer(text)]
    words: list[Word] = []
    for match in _pattern_for(text).finditer(text):
        raw, place = match[0], match.span()
        if raw.isascii():
            words.append(Word(raw.lower(), *place))
        else:
            words += [Word(part, *place) for part in _fold_word(raw)]
    return words


@lru_cache(maxsize=1 << 14)
def _fold_word(raw: str) -> list[str]:
    """One letter may fold to several ("㎏"), and to letters that are words of their own ("㍿")."""
    return _word_pattern().findall(fold(raw))


def fold_words(text: str) -> FoldedName:
    """The folded words alone."""
    if text.isascii():
        return tuple(_ASCII_WORD.findall(text.lower()))
    words: list[str] = []
    for raw in _pattern_for(text).findall(text):
        words += (raw.lower(),) if raw.isascii() else _fold_word(raw)
    return tuple(words)


def find_phrase(words: Sequence[str], phrase: Sequence[str]) -> list[int]:
    """The indices of the words at which the phrase starts; none for an empty phrase."""
    length, wanted = len(phrase), tuple(phrase)
    starts = (i for i, word in enumerate(words) if phrase and word == phrase[0])
    return [i for i in starts if tuple(words[i : i + length]) == wanted]


def is_unspaced(word: str) -> bool:
    """Whether a word is a letter of a script that has no spaces."""
    return re.match(f"[{_UNSPACED}]", word) is not None


def _pattern_for(text: str) -> re.Pattern[str]:
    return _word_pattern() if _BEYOND_LATIN.search(text) else _LATIN_WORD


@lru_cache(maxsize=1)
def _word_pattern() -> re.Pattern[str]:
    """One letter of an unspaced script, one emoji, or a run of letters, digits and marks.

    Marks and symbols are listed from the Unicode tables once, since `re` has no names for them, and
    as ranges, on which it is four times faster than on single letters.
    """

    def as_class(codes: Iterable[int]) -> str:
        runs = groupby(enumerate(codes), lambda numbered: numbered[1] - numbered[0])
        ends = ([code for _, code in run] for _, run in runs)
        return "".join(f"\\U{run[0]:08x}-\\U{run[-1]:08x}" for run in ends)

    codes = list(chain.from_iterable(range(*block) for block in _WITH_MARKS))
    kinds = {code: unicodedata.category(chr(code)) for code in codes}
    marks = as_class(c for c in codes if kinds[c][0] == "M" and not 0xFE00 <= c <= 0xFE0F)
    symbols = as_class(c for c in codes if kinds[c] in ("So", "Sc")) + "%$"
    letter = rf"(?![{_UNSPACED}])[^\W_]"
    run = rf"{_SIGN}{letter}(?:{letter}|[{marks}]|{_HIDDEN.pattern})*"
    return re.compile(rf"[{_UNSPACED}][{marks}]*|[{symbols}]|{run}{_TAIL}")
