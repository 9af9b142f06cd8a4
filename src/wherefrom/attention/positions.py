"""Positions and costs as mathematics: when two angles meet, what a layer multiplies, rotations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Wave:
    """sin or cos of (w + v pi) t + f + g pi, for whole t.
    sin x = sin y iff x - y is a multiple of 2 pi, or x + y is pi and such a multiple; for cos,
    x - y or x + y is one. Pi is irrational, so the rational and the pi part must agree each."""

    kind: str
    w: Fraction
    v: Fraction
    f: Fraction
    g: Fraction

    @property
    def moves(self) -> bool:
        return bool(self.w or self.v)

    def at(self, t: int) -> float:
        angle = float(self.w) * t + float(self.f) + math.pi * float((self.v * t + self.g) % 2)
        return math.sin(angle) if self.kind == "sin" else math.cos(angle)

    def meet(self, s: int, t: int) -> bool:
        """Are the values at two positions the same, exactly?"""
        if self.w * (s - t) == 0 and (self.v * (s - t)) % 2 == 0:
            return True
        rational = self.w * (s + t) + 2 * self.f
        turns = self.v * (s + t) + 2 * self.g
        return rational == 0 and turns % 2 == (1 if self.kind == "sin" else 0)

    @property
    def injective(self) -> bool:
        """Do no two of the positions 0, 1, 2, ... meet?"""
        if self.w == 0:
            return False
        total = -2 * self.f / self.w  # the only s + t at which two can meet
        if total.denominator != 1 or total < 1:
            return True
        return not any(self.meet(s, int(total) - s) for s in range(int(total + 1) // 2))


def model_cost(model: str, L: Any, l: Any, m: Any, d: Any) -> Any:  # noqa: E741
    """The multiplications of all layers for one sequence, exactly, for numbers or polynomials.
    L layers, l tokens, m latents, width d; the perceiver has one block down, L - 2 inside and one
    up. Masked products are counted, as the models compute them."""

    def block(q: Any, k: Any) -> Any:
        """Projections, output and feed-forward of 4 d; keys and values; scores and context."""
        return 10 * q * d * d + 2 * k * d * d + 2 * q * k * d

    if model == "vanilla":
        return L * block(l, l)
    return block(m, l) + L * block(m, m) - 2 * block(m, m) + block(l, m)


def sinusoid_table(positions: int, width: int, base: float = 10_000.0) -> Floats:
    """sin and cos of t / base^(2i/width), (positions, width), pairs side by side."""
    speeds = base ** (-np.arange(0, width, 2) / width)
    angles = np.arange(positions)[:, None] * speeds
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(positions, -1)


def rotate(x: Floats, t: float, theta: float = 1.0) -> Floats:
    """x (2,) turned by t theta: multiplication by e^(i t theta)."""
    c, s = math.cos(t * theta), math.sin(t * theta)
    return np.array([[c, -s], [s, c]]) @ x
