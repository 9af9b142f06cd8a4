"""Optimizers: AdamW for everything, or Muon for the matrices inside and AdamW for the rest.

torch.optim.Muon orthogonalises in bfloat16, which many CPUs emulate some fifty times slower than
float32, and one matrix at a time. The class here works in float32 on stacks of matrices, with three
quintics chosen one by one where torch takes five of the same; given torch's, a test holds it to it.
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

from wherefrom.training.distributed import gather, shard_like
from wherefrom.training.recipes import Phase

EPSILON = 1e-8  # of AdamW
Quintic = tuple[float, float, float]  # a x + b x^3 + c x^5

# Each is the best approximation of 1 on what the one before leaves (Amsel et al. 2025, "The Polar
# Express"), for singular values from 0.01 to 1: they end within 0.27 of 1, the five of Jordan et
# al. 2024 (3.4445, -4.7750, 2.0315) within 0.32.
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


class AdamW(LeanOptimizer):
    """Loshchilov and Hutter 2019, by torch's own kernel, one pass over a group."""

    def __init__(
        self,
        parameters: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float],
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

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
    """Momentum, orthogonalised by a few Newton-Schulz steps (Jordan et al. 2024)."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float,
        weight_decay: float,
        momentum: float = 0.95,
        quintics: Sequence[Quintic] = QUINTICS,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(parameters, defaults)
        self._quintics = quintics

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            momentum, lr = group["momentum"], group["lr"]
            looks = defaultdict(list)  # by shape: matrices of one shape are stacked
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(parameter)
                    state["momentum"].lerp_(parameter.grad, 1 - momentum)
                    look = parameter.grad.lerp(state["momentum"], momentum)  # Nesterov's
                    looks[parameter.shape].append((parameter, gather(look)))
            for (rows, columns), pairs in looks.items():
                updates = orthogonalise(torch.stack([look for _, look in pairs]), self._quintics)
                rate = lr * max(1.0, rows / columns) ** 0.5
                for (parameter, _), update in zip(pairs, updates.unbind(0), strict=True):
                    step = shard_like(update, parameter)
                    parameter.mul_(1 - lr * group["weight_decay"]).add_(step, alpha=-rate)


def orthogonalise(
    matrices: Tensor, quintics: Sequence[Quintic] = QUINTICS, eps: float = 1e-7
) -> Tensor:
    """The nearest semi-orthogonal matrix, roughly, of each in a stack (count, rows, columns).

    Each step sends x to p(x x^T) x with p(g) = a + b g + c g^2. The p of all steps commute, so for
    wide matrices they are gathered on the small square side, which saves arithmetic from 3:2 on.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.flatten(1).norm(dim=1).clamp(min=eps)[:, None, None]
    gram = x @ x.mT
    if 2 * x.shape[2] < 3 * x.shape[1]:
        for step, (a, b, c) in enumerate(quintics):
            gram = x @ x.mT if step else gram
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return x.mT if tall else x
    identity = torch.eye(x.shape[1], device=x.device, dtype=x.dtype)
    gathered = identity.expand_as(gram)
    for step, (a, b, c) in enumerate(quintics):
        polynomial = torch.baddbmm(a * identity, gram, b * identity + c * gram)
        gathered = polynomial @ gathered if step else polynomial
        gram = polynomial @ gram @ polynomial if step + 1 < len(quintics) else gram
    x = gathered @ x
    return x.mT if tall else x


class WeightAverage(LeanOptimizer):
    """A mean of the weights over about the last `share` of the steps; moves none of them.

    Polynomial-decay averaging (Shamir and Zhang 2013). As an optimizer it is saved with the others.
    """

    def __init__(self, parameters: Iterable[Tensor], share: float) -> None:
        super().__init__(parameters, {"lr": 0.0})
        self._eta = 1 / share - 1

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if not state:
                state["step"], state["mean"] = torch.zeros(()), parameter.detach().clone()
            state["step"] += 1
            weight = (self._eta + 1) / (float(state["step"]) + self._eta)
            state["mean"].lerp_(parameter.detach(), weight)

    @torch.no_grad()
    def swap(self) -> None:
        """Weights and means change places."""
        for parameter in self.param_groups[0]["params"]:
            mean = self.state[parameter].get("mean", parameter)
            before = parameter.detach().clone()
            parameter.copy_(mean)
            mean.copy_(before)


def averages_of(optimizers: Sequence[Optimizer]) -> list[WeightAverage]:
    return [each for each in optimizers if isinstance(each, WeightAverage)]


@contextmanager
def averaged(optimizers: Sequence[Optimizer]) -> Iterator[None]:
    """Inside, the weights are the mean that would be kept; exactly as they were afterwards."""
    for each in averages_of(optimizers):
        each.swap()
    try:
        yield
    finally:
        for each in averages_of(optimizers):
            each.swap()


def build_optimizers(model: nn.Module, phase: Phase) -> list[Optimizer]:
    """The phase's optimizers; each group remembers its full rate as `base_lr`.

    Decay acts on matrices that multiply: embeddings, positions, norms and biases are left free.
    """
    named = dict(model.named_parameters())
    inside = [p for name, p in named.items() if p.ndim == 2 and "blocks." in name]
    head = [p for name, p in named.items() if name.endswith("head.weight")]
    rest = [p for p in named.values() if not any(p is each for each in (*inside, *head))]
    optimizers: list[Optimizer]
    if phase.optimizer == "muon":
        optimizers = [
            Muon(inside, lr=phase.muon_lr, weight_decay=phase.weight_decay),
            AdamW(rest + head, lr=phase.lr, betas=phase.betas, weight_decay=0.0),
        ]
    else:
        groups = [
            {"params": inside + head, "weight_decay": phase.weight_decay},
            {"params": rest, "weight_decay": 0.0},
        ]
        optimizers = [AdamW(groups, lr=phase.lr, betas=phase.betas)]
    if phase.average:
        optimizers.append(WeightAverage(model.parameters(), phase.average))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return optimizers


def rate_scale(phase: Phase, step: int, progress: float) -> float:
    """The factor on the learning rates at `step` (from 0), `progress` of the phase being done.

    A linear warm-up; full until `decay_from`; then a line or half a cosine, stopped at `floor`.
    """
    warm = min(1.0, (step + 1) / phase.warmup_steps) if phase.warmup_steps else 1.0
    along = max(0.0, min(1.0, (progress - phase.decay_from) / (1 - phase.decay_from)))
    left = 1 - along if phase.schedule == "linear" else 0.5 * (1 + cos(pi * along))
    return warm * max(phase.floor, left)
