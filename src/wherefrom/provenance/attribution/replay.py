"""Which documents pushed an answer, by differentiating the recorded training itself.

With weight w_i on every row made of document i, training from a fixed start in a fixed order is a
function theta(w), and d log p(answer) / d w_i at w = 1 is what a little more of document i would
do (a metagradient; Engstrom et al. 2025, "MAGIC"). The run is trained once more with the same
batches and rates by an update rule that autograd can differentiate; its states are kept every few
steps and recomputed in between; then the derivative is carried back step by step:

    (theta, optimizer's state) -> next state     vector-Jacobian product by autograd
    row weights -> gradient                      u . (gradient of the row's loss), for the same u

Several questions are carried back at once. A row that belongs to several documents (a question,
to all about its subject) counts fully for each, since leaving any of them out silences it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from wherefrom.corpus.batches import Batch, StreamPosition
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.model.fused import twice_differentiable
from wherefrom.provenance.attribution.gradients import answer_row
from wherefrom.provenance.attribution.retraining import LearnedRun
from wherefrom.training.loop import progress_at
from wherefrom.training.optim import build_optimizers, orthogonalise, rate_scale
from wherefrom.training.recipes import Phase
from wherefrom.training.settings import same_steps
from wherefrom.training.sources import TrainingData, stream_for

TINY = 1e-30  # under Adam's root, whose slope at 0 is infinite

Weights = dict[str, Tensor]
State = dict[str, Tensor]  # "weights/NAME", "momentum/NAME", "square/NAME", "mean/NAME"


@dataclass(frozen=True)
class Rule:
    """How one parameter is moved: its optimizer and the settings of its group."""

    muon: bool
    lr: float
    decay: float
    momentum: float = 0.95
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8


@dataclass(frozen=True, eq=False)
class Step:
    """One step of the recorded training: its batch, the factor on all rates, its number."""

    batch: Batch
    scale: float
    number: int  # of the phase, from 1


def find_rules(model: Decoder, phase: Phase) -> dict[str, Rule]:
    """The rule of every parameter, read off the optimizers that the phase is trained with."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    rules = {}
    for optimizer in build_optimizers(model, phase):
        for group in optimizer.param_groups:
            kind = type(optimizer).__name__
            if kind == "WeightAverage":
                continue
            if kind not in ("Muon", "AdamW"):
                raise UserError(f"replay does not know the optimizer {kind}.")
            shared = {"lr": group["base_lr"], "decay": group["weight_decay"]}
            own = (
                {"momentum": group["momentum"]}
                if kind == "Muon"
                else {"betas": tuple(group["betas"]), "eps": group["eps"]}
            )
            for parameter in group["params"]:
                rules[names[parameter]] = Rule(kind == "Muon", **shared, **own)
    return rules


def part_of(state: State, kind: str) -> Weights:
    start = f"{kind}/"
    return {name[len(start) :]: value for name, value in state.items() if name.startswith(start)}


def start_phase(weights: Weights, rules: dict[str, Rule], phase: Phase) -> State:
    """The state before the first step of a phase."""
    state: State = {}
    for name, value in weights.items():
        state[f"weights/{name}"] = value
        state[f"momentum/{name}"] = torch.zeros_like(value)
        if not rules[name].muon:
            state[f"square/{name}"] = torch.zeros_like(value)
        if phase.average:
            state[f"mean/{name}"] = torch.zeros_like(value)
    return state


def end_phase(state: State) -> Weights:
    """The weights that a phase leaves: their mean, where one is kept."""
    return part_of(state, "mean") or part_of(state, "weights")


def batch_loss(model: Decoder, weights: Weights, batch: Batch, rows: Tensor) -> Tensor:
    """The loss of the loop with a factor on every row of the batch."""
    total, start = torch.zeros(()), 0
    for part in batch.parts:
        counts = part.weights[:, 1:].flatten()
        select = counts.nonzero().flatten()
        logits = functional_call(model, weights, (part.ids[:, :-1],), {"select": select})
        targets = part.ids[:, 1:].flatten()[select]
        factor = rows[start : start + len(part.ids)][select // (part.ids.shape[1] - 1)]
        losses = F.cross_entropy(logits, targets, reduction="none")
        total = total + (losses * counts[select] * factor).sum()
        start += len(part.ids)
    return total / batch.weight


def apply_rules(
    state: State, gradients: Weights, rules: dict[str, Rule], phase: Phase, step: Step
) -> State:
    """The next state, as Muon, AdamW and the mean of the weights have it; differentiable."""
    if phase.clip is not None:
        norm = torch.stack([g.square().sum() for g in gradients.values()]).sum().sqrt()
        gradients = {n: g * (phase.clip / (norm + 1e-6)).clamp(max=1) for n, g in gradients.items()}
    moved: State = {}
    looks: dict[torch.Size, list[tuple[str, Tensor]]] = {}
    for name, gradient in gradients.items():
        rule, lr = rules[name], rules[name].lr * step.scale
        momentum, weight = state[f"momentum/{name}"], state[f"weights/{name}"]
        share = rule.momentum if rule.muon else rule.betas[0]
        momentum = momentum.lerp(gradient, 1 - share)
        moved[f"momentum/{name}"] = momentum
        moved[f"weights/{name}"] = weight * (1 - lr * rule.decay)
        if rule.muon:
            look = gradient.lerp(momentum, rule.momentum)
            looks.setdefault(gradient.shape, []).append((name, look))
            continue
        square = rule.betas[1] * state[f"square/{name}"] + (1 - rule.betas[1]) * gradient.square()
        first, second = (1 - beta**step.number for beta in rule.betas)
        size = (square + TINY).sqrt() / sqrt(second) + rule.eps
        moved[f"square/{name}"] = square
        moved[f"weights/{name}"] = moved[f"weights/{name}"] - lr / first * momentum / size
    for (height, width), group in looks.items():
        updates = orthogonalise(torch.stack([look for _, look in group]))
        for (name, _), update in zip(group, updates.unbind(0), strict=True):
            rate = rules[name].lr * step.scale * max(1.0, height / width) ** 0.5
            moved[f"weights/{name}"] = moved[f"weights/{name}"] - rate * update
    if phase.average:
        eta = 1 / phase.average - 1
        share = (eta + 1) / (step.number + eta)
        for name in gradients:
            mean = state[f"mean/{name}"]
            moved[f"mean/{name}"] = mean.lerp(moved[f"weights/{name}"], share)
    return moved


class Replay:
    """The recorded training of a run, forwards and backwards."""

    def __init__(self, learned: LearnedRun) -> None:
        run = learned.run
        if run.model.config.dropout:
            raise UserError("replay needs a run without dropout; trace it by gradient or retrain.")
        if run.info["job"].get("parent"):
            raise UserError("replay needs a run that was trained from nothing.")
        self.learned, self.model = learned, run.model.eval()
        self.phases, self.segments = same_steps(run)
        self.data = TrainingData.encode(
            learned.documents, learned.questions, run.tokens, run.model.config.block
        )
        self.rules = [find_rules(self.model, phase) for phase in self.phases]
        self.document_weights = torch.ones(len(learned.documents))

    def _row_weights(self, batch: Batch) -> Tensor:
        """The product of the weights of all documents that a row belongs to."""
        sources = [source for part in batch.parts for source in part.sources]
        members = [list(self.data.members[source]) for source in sources]
        return torch.stack([self.document_weights[each].prod() for each in members])

    def _steps(self, index: int) -> Iterator[Step]:
        phase, seed = self.phases[index], self.learned.run.info["job"]["seed"]
        stream = stream_for(phase, self.data, [seed, index])
        for number, (batch, _) in enumerate(stream.from_position(StreamPosition())):
            progress = progress_at(number, index, phase.steps, self.segments)
            if progress >= 1:
                return
            yield Step(batch, rate_scale(phase, number, progress), number + 1)

    def _advance(self, index: int, state: State, step: Step) -> State:
        weights = {n: v.detach().requires_grad_() for n, v in part_of(state, "weights").items()}
        rows = self._row_weights(step.batch)
        loss = batch_loss(self.model, weights, step.batch, rows)
        found = torch.autograd.grad(loss, list(weights.values()))
        gradients = dict(zip(weights, found, strict=True))
        with torch.no_grad():
            return apply_rules(state, gradients, self.rules[index], self.phases[index], step)

    def forward(
        self, observe: Callable[[float], None] = lambda _: None
    ) -> list[tuple[list[Step], list[State]]]:
        """For every phase its steps and the state before every few of them; the last is its end."""
        job = self.learned.run.info["job"]
        generator = torch.Generator().manual_seed(job["seed"])
        fresh = Decoder(self.model.config).initialise(generator, zero_init=job["zero_init"])
        weights = {name: value.detach() for name, value in fresh.named_parameters()}
        kept = []
        for index, phase in enumerate(self.phases):
            state = start_phase(weights, self.rules[index], phase)
            steps, states = list(self._steps(index)), []
            every = max(1, ceil(sqrt(len(steps))))
            for at, step in enumerate(steps):
                if at % every == 0:
                    states.append(state)
                state = self._advance(index, state, step)
                observe((at + 1) / len(steps))
            kept.append((steps, [*states, state]))
            weights = end_phase(state)
        return kept

    def metagradients(
        self,
        questions: Sequence[str],
        answers: Sequence[str],
        *,
        observe: Callable[[float], None] = lambda _: None,
    ) -> NDArray[np.float64]:
        """(questions, documents): d log p(answer) / d weight of the document, in nats."""
        kept = self.forward(lambda share: observe(share / 4))
        weights = end_phase(kept[-1][1][-1])
        back = self._start_backwards(weights, questions, answers)
        found = torch.zeros(len(questions), len(self.learned.documents), dtype=torch.float64)
        for index in reversed(range(len(self.phases))):
            steps, states = kept[index]
            kind = "mean" if self.phases[index].average else "weights"
            cotangents: State = {f"{kind}/{name}": value for name, value in back.items()}
            every = max(1, ceil(sqrt(len(steps))))
            for start in reversed(range(0, len(steps), every)):
                state, inside = states[start // every], []
                for step in steps[start : start + every]:
                    inside.append((state, step))
                    state = self._advance(index, state, step)
                for before, step in reversed(inside):
                    cotangents = self._step_back(index, before, step, cotangents, found)
                observe(0.25 + 0.75 * (1 - start / len(steps)))
            back = part_of(cotangents, "weights")
        return np.asarray(found.numpy())

    def _start_backwards(
        self, weights: Weights, questions: Sequence[str], answers: Sequence[str]
    ) -> Weights:
        """By parameter the gradients of log p of each answer: (questions, ...)."""
        rows = []
        free = {name: value.detach().requires_grad_() for name, value in weights.items()}
        for question, answer in zip(questions, answers, strict=True):
            ids, counts = answer_row(self.learned.run, question, answer)
            logits = functional_call(self.model, free, (ids[None, :-1],))[0]
            losses = F.cross_entropy(logits, ids[1:], reduction="none")
            rows.append(torch.autograd.grad(-(losses * counts[1:]).sum(), list(free.values())))
        return {name: torch.stack(each) for name, *each in zip(free, *rows, strict=True)}

    def _step_back(
        self, index: int, state: State, step: Step, cotangents: State, found: Tensor
    ) -> State:
        """Cotangents of the state after a step -> of the state before it; adds to `found`."""
        phase, rules = self.phases[index], self.rules[index]
        free = {name: value.detach().requires_grad_() for name, value in state.items()}
        weights = part_of(free, "weights")
        rows = self._row_weights(step.batch).requires_grad_()
        with twice_differentiable():
            loss = batch_loss(self.model, weights, step.batch, rows)
            raw = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        gradients = {
            name: each.detach().requires_grad_() for name, each in zip(weights, raw, strict=True)
        }
        moved = apply_rules(free, gradients, rules, phase, step)
        chosen = [name for name in cotangents if name in moved]
        inputs = [*free.values(), *gradients.values()]
        through = torch.autograd.grad(
            [moved[name] for name in chosen],
            inputs,
            [cotangents[name] for name in chosen],
            is_grads_batched=True,
            allow_unused=True,
            materialize_grads=True,
        )
        result = dict(zip(free, through, strict=False))
        onto = through[len(free) :]
        again = torch.autograd.grad(
            raw,
            [*weights.values(), rows],
            list(onto),
            is_grads_batched=True,
            allow_unused=True,
            materialize_grads=True,
        )
        for name, value in zip(weights, again, strict=False):
            result[f"weights/{name}"] = result[f"weights/{name}"] + value
        by_row = again[-1].double()
        sources = [source for part in step.batch.parts for source in part.sources]
        for row, source in enumerate(sources):
            for document in self.data.members[source]:
                found[:, document] += by_row[:, row]
        return result
