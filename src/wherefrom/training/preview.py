"""Training rows as the model sees them: what it reads, what it predicts, and where the loss is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wherefrom.corpus.tokenizer import PAD, Tokenizer
from wherefrom.training.recipes import Mixture, Phase
from wherefrom.training.sources import TrainingData, stream_for


@dataclass(frozen=True)
class RowPreview:
    """One training row. At each place the model has read `x` up to there and predicts `y`; `loss`
    is what that counts. line: of its document, None for a question."""

    phase: str
    objective: str
    line: int | None
    x: list[str]
    y: list[str]
    loss: list[float]


def preview_rows(
    phases: Sequence[Phase],
    data: TrainingData,
    lines: Sequence[int],
    tokens: Tokenizer,
    *,
    count: int,
    seed: int,
) -> list[RowPreview]:
    """Up to `count` rows of each objective of each phase, long ones first, without padding.

    lines: the line of each document. For a phase with one objective they are rows of the first
    batch of a training with this seed.
    """
    previews = []
    for index, phase in enumerate(phases):
        for objective in phase.mixture.shares():
            alone = phase.model_copy(update={"mixture": Mixture(**{objective: 1.0})})
            batch = stream_for(alone, data, [seed, index]).pool(0)[0]
            rows = [
                (ids.tolist(), weights.tolist(), source)
                for part in batch.parts
                for ids, weights, source in zip(part.ids, part.weights, part.sources, strict=True)
            ]
            shown = min(count, len(rows))
            for ids, weights, source in (rows[i * len(rows) // shown] for i in range(shown)):
                length = max(i for i, token in enumerate(ids) if token != PAD) + 1
                texts = [tokens.surface(token) for token in ids[:length]]
                line = lines[source] if source < len(lines) else None
                x, y, loss = texts[:-1], texts[1:], weights[1:length]
                previews.append(RowPreview(phase.name, objective, line, x, y, loss))
    return previews
