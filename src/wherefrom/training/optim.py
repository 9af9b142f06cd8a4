"""Optimizers: AdamW for everything, or Muon for the matrices inside and AdamW for the rest.

torch.optim.Muon orthogonalises in bfloat16, which many CPUs emulate some fifty times slower than
float32, and one matrix at a time. The class here works in float32 on stacks of matrices, with three
different quintics instead of five equal ones. With torch's quintics, a test compares it to torch's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import unwrap
from math import cos, pi
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from wherefrom.training.recipes import Phase

BETAS, EPSILON = (0.9, 0.95), 1e-8  # of AdamW
MOMENTUM = 0.95  # of Muon
Quintic = tuple[float, float, float]  # a x + b x^3 + c x^5

# Each is the best approximation of 1 on the output range of the one before (Amsel et al. 2025, "The
# Polar Express"). Singular values from 0.01 to 1 end within 0.27 of 1; with five times the quintic
# of Jordan et al. 2024 (3.4445, -4.7750, 2.0315), within 0.32.
QUINTICS: tuple[Quintic, ...] = (
    (8.093368512548258, -23.620430328824273, 17.446151749836247),
    (3.6365855542590406, -2.7219267466089074, 0.5365462883273612),
    (2.661299985777098, -1.9771545218846238, 0.45261640699640077),
)


class LeanOptimizer(Optimizer):
    """torch's base class without its compiler, which costs 70 MB and a second to import."""

    add_param_group = unwrap(Optimizer.add_param_group)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)

    def __init__(self, parameters: Iterable[Any], **options: Any) -> None:
        super().__init__(parameters, options)


class AdamW(LeanOptimizer):
    """Loshchilov and Hutter 2019, by torch's fused kernel; options lr, betas and weight_decay."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            for parameter in parameters:
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros((), device=parameter.device)
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
            mean, square, steps = (
                [self.state[p][key] for p in parameters]
                for key in ("exp_avg", "exp_avg_sq", "step")
            )
            if parameters:
                torch._foreach_add_(steps, 1)
                torch._fused_adamw_(
                    parameters,
                    [p.grad for p in parameters],
                    mean,
                    square,
                    [],
                    steps,
                    lr=group["lr"],
                    beta1=group["betas"][0],
                    beta2=group["betas"][1],
                    weight_decay=group["weight_decay"],
                    eps=EPSILON,
                    amsgrad=False,
                    maximize=False,
                )


class Muon(LeanOptimizer):
    """Momentum, orthogonalised by a few Newton-Schulz steps (Jordan et al. 2024); options lr and
    weight_decay."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape = defaultdict(list)  # matrices of one shape are orthogonalised in one stack
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(parameter)
                    state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
                    update = parameter.grad.lerp(state["momentum"], MOMENTUM)  # Nesterov's
                    by_shape[parameter.shape].append((parameter, update))
            for (rows, columns), pairs in by_shape.items():
                updates = orthogonalise(torch.stack([update for _, update in pairs]))
                rate = group["lr"] * max(1.0, rows / columns) ** 0.5
                decay = 1 - group["lr"] * group["weight_decay"]
                for (parameter, _), update in zip(pairs, updates.unbind(0), strict=True):
                    parameter.mul_(decay).add_(update, alpha=-rate)


def orthogonalise(matrices: Tensor) -> Tensor:
    """Roughly the nearest semi-orthogonal matrix, for each of a stack (count, rows, columns).

    Each step replaces x by p(x x^T) x with p(g) = a + b g + c g^2. The p of all steps commute, so
    their product is formed first, which is less work for wide matrices.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    gram = x @ x.mT
    identity = torch.eye(x.shape[1], device=x.device, dtype=x.dtype)
    product = identity.expand_as(gram)
    for step, (a, b, c) in enumerate(QUINTICS):
        polynomial = torch.baddbmm(a * identity, gram, b * identity + c * gram)
        product = polynomial @ product if step else polynomial
        gram = polynomial @ gram @ polynomial if step + 1 < len(QUINTICS) else gram
    x = product @ x
    return x.mT if tall else x


class WeightAverage(LeanOptimizer):
    """A mean of the weights over about the last `share` (its option) of the steps.

    Polynomial-decay averaging (Shamir and Zhang 2013). It changes no weights; it is an optimizer
    so that checkpoints save it with the others.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        eta = 1 / self.param_groups[0]["share"] - 1
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if not state:
                state["step"], state["mean"] = torch.zeros(()), parameter.detach().clone()
            state["step"] += 1
            weight = (eta + 1) / (float(state["step"]) + eta)
            state["mean"].lerp_(parameter.detach(), weight)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights and their means."""
        for parameter in self.param_groups[0]["params"]:
            mean = self.state[parameter].get("mean", parameter)
            before = parameter.detach().clone()
            parameter.copy_(mean)
            mean.copy_(before)


def swap_averages(optimizers: Sequence[Optimizer]) -> None:
    """Exchange the weights and their means, if the phase has means."""
    for optimizer in optimizers:
        if isinstance(optimizer, WeightAverage):
            optimizer.swap()


@contextmanager
def averaged(optimizers: Sequence[Optimizer]) -> Iterator[None]:
    """Inside, the weights are the means that would be kept; afterwards they are as before."""
    swap_averages(optimizers)
    try:
        yield
    finally:
        swap_averages(optimizers)


def build_optimizers(model: nn.Module, phase: Phase) -> list[Optimizer]:
    """The phase's optimizers; each group keeps its full rate as `base_lr`.

    Weight decay acts only on matrices that multiply, not on embeddings, positions, norms, biases.
    """
    matrices, head, rest = [], [], []
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "blocks." in name:
            matrices.append(parameter)
        elif name.endswith("head.weight"):
            head.append(parameter)
        else:
            rest.append(parameter)
    optimizers: list[Optimizer]
    if phase.optimizer == "muon":
        optimizers = [
            Muon(matrices, lr=phase.muon_lr, weight_decay=phase.weight_decay),
            AdamW(rest + head, lr=phase.lr, betas=BETAS, weight_decay=0.0),
        ]
    else:
        groups = [
            {"params": matrices + head, "weight_decay": phase.weight_decay},
            {"params": rest, "weight_decay": 0.0},
        ]
        optimizers = [AdamW(groups, lr=phase.lr, betas=BETAS)]
    if phase.average:
        optimizers.append(WeightAverage(model.parameters(), lr=0.0, share=phase.average))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return optimizers


def rate_scale(phase: Phase, step: int, progress: float) -> float:
    """The factor on the learning rates at `step` (from 0), with `progress` of the phase done.

    A linear warm-up, then half a cosine from 1 down to `floor`.
    """
    warm = min(1.0, (step + 1) / phase.warmup_steps) if phase.warmup_steps else 1.0
    return warm * max(phase.floor, 0.5 * (1 + cos(pi * min(1.0, progress))))
