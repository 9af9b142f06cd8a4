"""Small models for tests, of which no two dimensions can be confused.

5 rows, 23 positions, 31 words, a block of 37, 7 layers, 3 heads of width 22,
11 latents (of stride 4).
"""

from __future__ import annotations

import pytest
import torch

from wherefrom.model.config import ModelConfig, make_config
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import VARIANTS

ROWS, LENGTH, VOCABULARY, BLOCK, LAYERS, HEADS, HEAD, LATENTS = 5, 23, 31, 37, 7, 3, 22, 11
EVERY = pytest.mark.parametrize("variant", sorted(VARIANTS))
# in double precision what is computed in another order differs by about 1e-15 times the size
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def shape(variant: str, **changes: object) -> ModelConfig:
    fields = {
        "variant": variant,
        "vocabulary": VOCABULARY,
        "block": BLOCK,
        "layers": LAYERS,
        "heads": HEADS,
        "width": HEADS * HEAD,
        "latents": LATENTS,
    }
    return make_config(**{**fields, **changes})


def shaken(module):
    """The module with random parameters, so that every bias, norm and position matters."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            start = 1.0 if parameter.ndim == 1 else 0.0
            parameter.normal_(start, 0.3, generator=generator)
    return module.double().eval()


def model_of(variant: str, **changes: object) -> Decoder:
    return shaken(Decoder(shape(variant, **changes)))


def random_ids(rows: int = ROWS, length: int = LENGTH, words: int = VOCABULARY) -> torch.Tensor:
    return torch.randint(0, words, (rows, length), generator=torch.Generator().manual_seed(1))
