"""A Transformer's parts in numpy, as the assignment asks for them.

Shapes: T positions, S keys, d width, m latents. Every row of a sequence is one position. A mask is
True where a query (row) may look at a key (column).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
PAD, MASK = "□", "⁇"


def softmax(scores: Array, mask: Array | None = None) -> Array:
    """Weights (..., T, S) of scores (..., T, S): exp(score) over the sum of the row's.

    Scores of any size must not overflow. A masked key gets weight 0; a row in which every key is
    masked gets zeros, not nan.
    """
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    top = np.max(scores, axis=-1, keepdims=True)
    mass = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = mass.sum(axis=-1, keepdims=True)
    return mass / np.where(total == 0, 1, total)


def attention(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """softmax(query key^T / sqrt(d)) value: query (..., T, d), key (..., S, d), value (..., S, e).

    Any leading dimensions (rows of a batch, heads) are worked on side by side.
    """
    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])
    return softmax(scores, mask) @ value


def causal_mask(length: int) -> Array:
    """The (length, length) truth values that let a position see itself and what comes before it."""
    return np.tri(length, dtype=bool)


def span_example(document: str, block: int, rng: random.Random) -> tuple[str, str]:
    """One training example of span corruption: inputs x and targets y, block - 1 characters each.

    1. Cut the document to a random length; each of 4 .. int(block * 7/8) must be possible.
    2. Choose a span of it of random length, on average a quarter of what was cut.
    3. s = prefix MASK suffix MASK span, then PAD up to `block` characters. (A third MASK behind
       the span, as in some editions of the course, is accepted.)
    4. x is s without its last character, y is s without its first.

    Take what is random from `rng`.
    """
    text = document[: rng.randint(4, int(block * 7 / 8))]
    length = rng.randint(1, max(1, len(text) // 2 - 1))
    start = rng.randint(0, len(text) - length)
    end = start + length
    s = f"{text[:start]}{MASK}{text[end:]}{MASK}{text[start:end]}".ljust(block, PAD)
    return s[:-1], s[1:]


def rotary(x: Array) -> Array:
    """x (..., T, d) with pair (2i, 2i + 1) of position t turned by the angle t * 10000^(-2i/d).

    i counts from 0 to d/2 - 1 and t from 0. Turned by an angle a, (u, v) becomes
    (u cos a - v sin a, u sin a + v cos a): multiplication of u + iv by e^(ia).
    """
    length, width = x.shape[-2:]
    speeds = 10_000.0 ** (-np.arange(0, width, 2) / width)
    turn = np.exp(1j * np.arange(length)[:, None] * speeds)
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
    return np.stack((turned.real, turned.imag), axis=-1).reshape(x.shape)


def synthesizer(x: Array, A: Array, b1: Array, B: Array, b2: Array, V: Array) -> Array:
    """softmax(ReLU(x A + b1) B + b2) (x V), causal: scores are read off each position alone.

    x (T, d), A (d, d), B (d, L) and b2 (L,) have one column for each position of the longest
    input, L >= T: use the first T.
    """
    length = len(x)
    scores = np.maximum(x @ A + b1, 0) @ B[:, :length] + b2[:length]
    return softmax(scores, causal_mask(length)) @ (x @ V)


def perceiver_masks(length: int, latents: int) -> tuple[Array, Array]:
    """Who may read whom in a causal perceiver: down (latents, length) and up (length, latents).

    Latent j is complete at position e_j = (j + 1) * stride - 1, where stride is length / latents
    rounded up. It reads the inputs up to e_j, and the positions from e_j on may read it.
    """
    stride = -(-length // latents)
    ends = np.arange(1, latents + 1) * stride - 1
    positions = np.arange(length)
    return positions[None, :] <= ends[:, None], ends[None, :] <= positions[:, None]


def perceiver_down(x: Array, basis: Array, Wq: Array, Wk: Array, Wv: Array) -> Array:
    """The latents (m, d): the basis (m, d) times Wq queries x (T, d), with the mask `down`."""
    down, _ = perceiver_masks(len(x), len(basis))
    return attention(basis @ Wq, x @ Wk, x @ Wv, down)


def perceiver_up(x: Array, latents: Array, Wq: Array, Wk: Array, Wv: Array) -> Array:
    """Back to (T, d): x times Wq queries the latents (m, d), with the mask `up`."""
    _, up = perceiver_masks(len(x), len(latents))
    return attention(x @ Wq, latents @ Wk, latents @ Wv, up)


def greedy_decode(
    logits_of: Callable[[list[int]], Array], prompt: Sequence[int], longest: int, stop: int
) -> list[int]:
    """The ids that a model says after the prompt, without the id `stop` that closes them.

    logits_of(ids) is (len(ids), vocabulary): row t scores what follows ids[: t + 1]. Take the most
    likely id each time; end before `stop`, or after `longest` ids.
    """
    ids = list(prompt)
    while len(ids) < len(prompt) + longest:
        best = int(np.argmax(logits_of(ids)[-1]))
        if best == stop:
            break
        ids.append(best)
    return ids[len(prompt) :]


def evaluate(texts: Sequence[str], answers: Sequence[str]) -> tuple[int, int]:
    """(how many are right, how many there are) for texts such as "Where was X born?⁇Rome⁇".

    What a model said stands between the first MASK and the next one, or the end if none closes it.
    It is right if it equals the answer exactly, blanks at both ends aside. A text without any MASK
    is wrong.
    """
    right = 0
    for text, answer in zip(texts, answers, strict=True):
        _, *said = text.split(MASK)
        right += bool(said) and said[0].strip() == answer.strip()
    return right, len(answers)
