"""Which documents pushed an answer, by differentiating the recorded training itself.

With weight w_i on every row of document i, training is a function theta(w); d log p(answer) / d w_i
is what a little more of document i would do (a metagradient; MAGIC, Engstrom et al. 2025). The run
is trained once more and carried back: through the update rule by autograd, through the gradient of
the loss by the difference of two gradients, at the weights and a little along what is carried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from wherefrom.corpus.batches import Batch, StreamPosition
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.attribution.retraining import Count, LearnedRun, answer_row, no_count
from wherefrom.training.loop import progress_at
from wherefrom.training.optim import EPSILON, build_optimizers, orthogonalise, rate_scale
from wherefrom.training.recipes import Phase
from wherefrom.training.settings import same_steps
from wherefrom.training.sources import stream_for

TINY = 1e-30  # under Adam's root, whose slope at 0 is infinite
LAST = 0.12  # of the steps are carried back: over more of them the derivative explodes
NUDGE = 3e-3  # how far along a direction the second gradient is taken: the length of the step

Weights = dict[str, Tensor]
Gradient = tuple[Weights, Tensor]  # of the loss of a batch; and the loss of each row
State = dict[str, Tensor]  # "weights/NAME", "momentum/NAME", "square/NAME", "mean/NAME"


class Step(NamedTuple):
    """One step of the recorded training: its batch, the factor on all rates, its number from 1."""

    batch: Batch
    scale: float
    number: int


@dataclass(frozen=True, eq=False)
class RecordedPhase:
    """A phase of the run, and by parameter its optimizer's name and the settings of its group."""

    phase: Phase
    rules: dict[str, tuple[str, dict[str, Any]]]

    @classmethod
    def of(cls, model: Decoder, phase: Phase) -> RecordedPhase:
        names = {parameter: name for name, parameter in model.named_parameters()}
        rules: dict[str, tuple[str, dict[str, Any]]] = {}
        for optimizer in build_optimizers(model, phase):
            kind = type(optimizer).__name__
            if kind not in ("Muon", "AdamW", "WeightAverage"):
                raise UserError(f"replay does not know the optimizer {kind}.")
            for group in optimizer.param_groups if kind != "WeightAverage" else ():
                rules |= {names[parameter]: (kind, group) for parameter in group["params"]}
        return cls(phase, rules)

    def start(self, weights: Weights) -> State:
        """The state before the first step."""
        state = {f"weights/{name}": value for name, value in weights.items()}
        for name, value in weights.items():
            state[f"momentum/{name}"] = torch.zeros_like(value)
            if self.rules[name][0] == "AdamW":
                state[f"square/{name}"] = torch.zeros_like(value)
            if self.phase.average:
                state[f"mean/{name}"] = torch.zeros_like(value)
        return state

    def update(self, state: State, gradients: Weights, step: Step) -> State:
        """The next state, as Muon, AdamW and the mean of the weights have it; differentiable."""
        clip = self.phase.clip
        if clip is not None:
            norm = torch.stack([g.square().sum() for g in gradients.values()]).sum().sqrt()
            gradients = {n: g * (clip / (norm + 1e-6)).clamp(max=1) for n, g in gradients.items()}
        moved: State = {}
        looks: dict[torch.Size, list[tuple[str, Tensor]]] = {}
        for name, gradient in gradients.items():
            kind, group = self.rules[name]
            lr, weight = group["base_lr"] * step.scale, state[f"weights/{name}"]
            share = group["momentum"] if kind == "Muon" else group["betas"][0]
            momentum = state[f"momentum/{name}"].lerp(gradient, 1 - share)
            moved[f"momentum/{name}"] = momentum
            moved[f"weights/{name}"] = weight * (1 - lr * group["weight_decay"])
            if kind == "Muon":
                look = gradient.lerp(momentum, share)
                looks.setdefault(gradient.shape, []).append((name, look))
                continue
            beta = group["betas"][1]
            square = beta * state[f"square/{name}"] + (1 - beta) * gradient.square()
            first, second = (1 - each**step.number for each in group["betas"])
            size = (square + TINY).sqrt() / sqrt(second) + EPSILON
            moved[f"square/{name}"] = square
            moved[f"weights/{name}"] = moved[f"weights/{name}"] - lr / first * momentum / size
        for (height, width), pairs in looks.items():
            updates = orthogonalise(torch.stack([look for _, look in pairs]))
            for (name, _), update in zip(pairs, updates.unbind(0), strict=True):
                rate = self.rules[name][1]["base_lr"] * step.scale * max(1.0, height / width) ** 0.5
                moved[f"weights/{name}"] = moved[f"weights/{name}"] - rate * update
        if self.phase.average:
            eta = 1 / self.phase.average - 1
            share = (eta + 1) / (step.number + eta)
            for name in gradients:
                mean = state[f"mean/{name}"].lerp(moved[f"weights/{name}"], share)
                moved[f"mean/{name}"] = mean
        return moved


def part_of(state: State, kind: str) -> Weights:
    start = f"{kind}/"
    return {name[len(start) :]: value for name, value in state.items() if name.startswith(start)}


def end_phase(state: State) -> Weights:
    """The weights that a phase leaves: their mean, where one is kept."""
    return part_of(state, "mean") or part_of(state, "weights")


class Replay:
    """The recorded training of a run, forwards and backwards."""

    def __init__(self, learned: LearnedRun, *, count: Count = no_count) -> None:
        run, self._count = learned.run, count
        if run.model.config.dropout:
            raise UserError("replay needs a run without dropout; trace it by gradient or retrain.")
        if run.info["job"].get("parent"):
            raise UserError("replay needs a run that was trained from nothing.")
        self.learned, self.model = learned, run.model.eval()
        phases, self.segments = same_steps(run)
        self.phases = [RecordedPhase.of(self.model, phase) for phase in phases]
        self.data = learned.data
        self.document_weights = torch.ones(len(learned.documents))

    def _steps(self, index: int) -> Iterator[Step]:
        phase, seed = self.phases[index].phase, self.learned.run.info["job"]["seed"]
        stream = stream_for(phase, self.data, [seed, index])
        for number, (batch, _) in enumerate(stream.from_position(StreamPosition())):
            progress = progress_at(number, index, phase.steps, self.segments)
            if progress >= 1:
                return
            yield Step(batch, rate_scale(phase, number, progress), number + 1)

    def _members(self, batch: Batch) -> list[list[int]]:
        """The documents that each row of a batch belongs to."""
        return [list(self.data.members[source]) for part in batch.parts for source in part.sources]

    def _gradient(self, weights: Weights, batch: Batch) -> Gradient:
        """Of the loop's loss, in which a row counts the product of its documents' weights."""
        free = {name: value.detach().requires_grad_() for name, value in weights.items()}
        rows = []
        for part in batch.parts:
            counts = part.weights[:, 1:].flatten()
            select = counts.nonzero().flatten()
            logits = functional_call(self.model, free, (part.ids[:, :-1],), {"select": select})
            targets = part.ids[:, 1:].flatten()[select]
            losses = F.cross_entropy(logits, targets, reduction="none") * counts[select]
            row = select // (part.ids.shape[1] - 1)
            rows.append(torch.zeros(len(part.ids)).index_add(0, row, losses) / batch.weight)
        each = torch.cat(rows)
        factors = [self.document_weights[members].prod() for members in self._members(batch)]
        found = torch.autograd.grad((each * torch.stack(factors)).sum(), list(free.values()))
        return dict(zip(free, found, strict=True)), each.detach()

    def _advance(self, index: int, state: State, step: Step) -> tuple[State, Gradient]:
        found = self._gradient(part_of(state, "weights"), step.batch)
        with torch.no_grad():
            return self.phases[index].update(state, found[0], step), found

    def forward(self) -> list[tuple[list[Step], list[State]]]:
        """For every phase its steps and the state before every few of them; the last is its end."""
        job = self.learned.run.info["job"]
        generator = torch.Generator().manual_seed(job["seed"])
        fresh = Decoder(self.model.config).initialise(generator, zero_init=job["zero_init"])
        weights = {name: value.detach() for name, value in fresh.named_parameters()}
        kept = []
        for index, phase in enumerate(self.phases):
            state = phase.start(weights)
            steps, states = list(self._steps(index)), []
            advance = self._count("training once more", len(steps))
            for at, step in enumerate(steps):
                advance(1)
                if at % ceil(sqrt(len(steps))) == 0:
                    states.append(state)
                state, _ = self._advance(index, state, step)
            kept.append((steps, [*states, state]))
            weights = end_phase(state)
        return kept

    def metagradients(
        self, questions: Sequence[str], answers: Sequence[str], last: float = LAST
    ) -> NDArray[np.float64]:
        """(questions, documents): d log p(answer) / d weight of the document, in nats.

        last: the share of the steps, from the end, in which the weight of a document counts.
        """
        kept = self.forward()
        weights = end_phase(kept[-1][1][-1])
        free = {name: value.detach().requires_grad_() for name, value in weights.items()}
        slopes = []
        for question, answer in zip(questions, answers, strict=True):
            ids, counts = answer_row(self.learned.run, question, answer)
            logits = functional_call(self.model, free, (ids[None, :-1],))[0]
            losses = F.cross_entropy(logits, ids[1:], reduction="none")
            slopes.append(torch.autograd.grad(-(losses * counts[1:]).sum(), list(free.values())))
        back = {name: torch.stack(each) for name, *each in zip(free, *slopes, strict=True)}
        found = torch.zeros(len(questions), len(self.learned.documents), dtype=torch.float64)
        left = ceil(last * sum(len(steps) for steps, _ in kept))
        advance = self._count("carrying back", left)
        for index in reversed(range(len(self.phases))):
            steps, states = kept[index]
            kind = "mean" if self.phases[index].phase.average else "weights"
            cotangents: State = {f"{kind}/{name}": value for name, value in back.items()}
            every = ceil(sqrt(len(steps)))
            for start in reversed(range(0, len(steps), every)):
                state, inside = states[start // every], []
                for step in steps[start : start + every] if left else ():
                    moved, gradient = self._advance(index, state, step)
                    inside.append((state, step, gradient))
                    state = moved
                for each in inside[: -left - 1 : -1]:
                    cotangents = self._step_back(index, *each, cotangents, found)
                    advance(1)
                left = max(0, left - len(inside))
            back = part_of(cotangents, "weights")
        return np.asarray(found.numpy())

    def _step_back(
        self, index: int, state: State, step: Step, gradient: Gradient, after: State, found: Tensor
    ) -> State:
        """Cotangents of the state after a step -> of the state before it; adds to `found`."""
        free = {name: value.detach().requires_grad_() for name, value in state.items()}
        gradients, losses = gradient
        slopes = {n: g.detach().requires_grad_() for n, g in gradients.items()}
        moved = self.phases[index].update(free, slopes, step)
        through = torch.autograd.grad(
            [moved[name] for name in after],
            [*free.values(), *slopes.values()],
            list(after.values()),
            is_grads_batched=True,
            allow_unused=True,
            materialize_grads=True,
        )
        result = dict(zip(free, through, strict=False))
        # where a gradient is 0 (a token that is not in the batch) it stays so for any weights
        onto = {
            name: each * (gradients[name] != 0)
            for name, each in zip(slopes, through[len(free) :], strict=True)
        }
        weights, members = part_of(state, "weights"), self._members(step.batch)
        for question in range(len(found)):
            length = torch.stack([each[question].norm() for each in onto.values()]).norm()
            size = NUDGE / length.clamp(min=TINY)
            nudged = {name: value + size * onto[name][question] for name, value in weights.items()}
            there, rows = self._gradient(nudged, step.batch)
            for name, value in there.items():
                result[f"weights/{name}"][question] += (value - gradients[name]) / size
            for change, documents in zip((rows - losses) / size, members, strict=True):
                found[question, documents] += change
        return result
