"""Our decoder as a LanguageModel: a question and a mask in, an answer and a mask out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from wherefrom.corpus.tokenizer import MASK, MASK_CHARACTER, Tokenizer
from wherefrom.model.decoder import Decoder
from wherefrom.model.interface import Ids, LanguageModel
from wherefrom.model.mixers import Cache

BATCH_ROWS = 256  # prompts or beginnings of answers that go through the model together


class OwnModel(LanguageModel):
    """Our decoder with its tokenizer."""

    def __init__(
        self, decoder: Decoder, tokens: Tokenizer, *, name: str = "", sha256: str = ""
    ) -> None:
        self.decoder, self.tokens = decoder, tokens
        self.name, self.sha256, self.mask = name, sha256, MASK_CHARACTER
        self.rows = self.nodes = BATCH_ROWS
        self.vocabulary = decoder.config.vocabulary
        self.longest, self.layers = decoder.config.longest_input, decoder.config.layers
        self.device = next(decoder.parameters()).device

    def encode(self, text: str, *, opening: bool = True) -> Ids:
        return self.tokens.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokens.decode(ids)

    def closes(self, token: int) -> bool:
        return token == MASK

    def forward(
        self, ids: Tensor, past: Any, keep: int, states: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None, Any]:
        cache = Cache(self.layers) if past is None else past
        rows, length = ids.shape
        last = torch.arange(length - keep, length, device=self.device)
        select = (torch.arange(rows, device=self.device)[:, None] * length + last).flatten()
        logits = self.decoder(ids, cache=cache, select=select)
        return logits.view(rows, keep, -1), None, cache

    def logits_at(self, ids: Tensor, past: Any, positions: Tensor) -> Tensor:
        return self.decoder(ids, cache=past, select=positions)

    def logits(self, ids: Tensor) -> Tensor:
        return self.decoder(ids)

    def linear_layers(self) -> dict[str, nn.Module]:
        named, head = self.decoder.named_modules(), self.decoder.head
        return {n: m for n, m in named if isinstance(m, nn.Linear) and m is not head}

    def fork(self, past: Any, rows: Sequence[int]) -> Any:
        return past.fork(torch.tensor(rows, device=self.device))

    def prompt(self, text: str) -> Ids:
        bare = text.removesuffix(MASK_CHARACTER)
        return [*self.encode(bare), MASK] if bare != text else self.encode(text)

    def continuation(self, prompt: str, answer: str) -> Ids:
        return [*self.encode(answer), MASK]

    def read_answer(self, ids: Sequence[int]) -> str:
        return self.decode(ids)
