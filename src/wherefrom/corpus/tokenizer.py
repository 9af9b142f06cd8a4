"""Tokenizers: characters as in the course, or byte-level BPE; stored as one `tokenizer.json`."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from typing import Literal

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from wherefrom.errors import UserError

PAD, MASK = 0, 1
PAD_CHARACTER, MASK_CHARACTER = "\u25a1", "\u2047"
SPECIALS = [PAD_CHARACTER, MASK_CHARACTER]
Kind = Literal["chars", "bpe"]
Offsets = list[tuple[int, int]]


class Tokenizer:
    """A vocabulary with its way of cutting text; `kind` is "chars" or "bpe"."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, kind: Kind) -> None:
        self.kind = kind
        self._tokenizer = tokenizer
        tokenizer.encode_special_tokens = True  # typed text never becomes a control token
        self._known = set(tokenizer.get_vocab()) - set(SPECIALS)
        self.size: int = tokenizer.get_vocab_size()

    @classmethod
    def of_characters(cls, texts: Iterable[str]) -> Tokenizer:
        """Every character of the texts is a token, in code-point order after PAD and MASK."""
        letters = sorted(set(chain.from_iterable(texts)))
        for special in set(SPECIALS).intersection(letters):
            raise UserError(
                f"the text holds {describe(special)}, which chars tokens reserve; "
                "remove it or use --tokens bpe."
            )
        vocabulary = {letter: i for i, letter in enumerate(SPECIALS + letters)}
        tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=PAD_CHARACTER))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
        tokenizer.decoder = decoders.Fuse()
        tokenizer.add_special_tokens(SPECIALS)
        return cls(tokenizer, "chars")

    @classmethod
    def of_bpe(cls, texts: Iterable[str], size: int) -> Tokenizer:
        """Byte-level BPE learned from the texts: no character is unknown to it."""
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=SPECIALS,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer, "bpe")

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """Read back what `to_json` wrote; the model inside shows the kind."""
        kind: Kind = "chars" if json.loads(text)["model"]["type"] == "WordLevel" else "bpe"
        return cls(tokenizers.Tokenizer.from_str(text), kind)

    def to_json(self) -> str:
        return str(self._tokenizer.to_str(pretty=True))

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text; no text becomes a PAD or a MASK."""
        self._check(texts)
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], Offsets]]:
        """Ids and, for each, the (start, end) of its characters; unknown ones are refused."""
        self._check(texts)
        encoded = self._tokenizer.encode_batch(list(texts))
        return [(encoding.ids, encoding.offsets) for encoding in encoded]

    def _check(self, texts: Sequence[str]) -> None:
        """Refuse characters that are not in a vocabulary of characters."""
        for text in texts if self.kind == "chars" else ():
            for letter in set(text) - self._known:
                raise UserError(
                    f'{describe(letter)} in "{text[:60]}" was never seen in the corpus, and chars '
                    "tokens know only its characters; write it differently, or train with "
                    "--tokens bpe."
                )

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, up to the first PAD or MASK."""
        kept = [int(i) for i in takewhile(lambda i: i not in (PAD, MASK), ids)]
        return str(self._tokenizer.decode(kept, skip_special_tokens=False)).strip()

    def surface(self, token: int) -> str:
        """One token as text, for axes and tables."""
        if token in (PAD, MASK):
            return SPECIALS[token]
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


def describe(letter: str) -> str:
    """A character as people can find it: itself, its code point and its name."""
    name = unicodedata.name(letter, "unnamed character").lower()
    return f"the character {letter!r} (U+{ord(letter):04X}, {name})"
