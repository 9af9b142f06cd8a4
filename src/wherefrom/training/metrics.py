"""How a training goes, every few steps: metrics.jsonl, and TensorBoard if it is installed."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from wherefrom.storage import read_json_lines, write_whole
from wherefrom.training.checkpoints import TrainingState


@dataclass(frozen=True)
class StepMetrics:
    """One line of metrics.jsonl."""

    phase: str
    step: int
    progress: float  # of the phase, 0 to 1
    loss: float
    lr: float
    tokens: int  # learned from so far, in all phases
    seconds: float  # of training so far, in all phases
    tokens_per_second: float
    recall: float | None = None  # on held-out questions, as last measured


class MetricsWriter(contextlib.ExitStack):
    """`metrics.jsonl` (none of its lines twice after a resume) and, if installed, TensorBoard."""

    def __init__(self, folder: Path, after: int, writes: bool) -> None:
        super().__init__()
        self._file: Any = None
        self._board: Any = None
        if not writes:
            return
        path = folder / "metrics.jsonl"
        lines = read_json_lines(path)
        kept = [
            line for line in lines if isinstance(line.get("step"), int) and line["step"] <= after
        ]
        write_whole(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = self.enter_context(path.open("a", encoding="utf-8"))
        with contextlib.suppress(ModuleNotFoundError):
            from torch.utils.tensorboard import SummaryWriter

            board = SummaryWriter(str(folder / "events"), purge_step=after + 1)
            self._board = self.enter_context(contextlib.closing(board))

    def log(self, state: TrainingState, phase: str, progress: float, lr: float) -> StepMetrics:
        """Write down how it goes, with the mean loss since the last line."""
        passed = max(1e-9, state.total_seconds - state.logged_seconds)
        line = StepMetrics(
            phase=phase,
            step=state.total_steps,
            progress=progress,
            loss=fmean(state.pending_losses),
            lr=lr,
            tokens=state.tokens,
            seconds=state.total_seconds,
            tokens_per_second=(state.tokens - state.logged_tokens) / passed,
            recall=state.recalls[-1][1] if state.recalls else None,
        )
        state.pending_losses = []
        state.logged_tokens, state.logged_seconds = state.tokens, state.total_seconds
        if self._file is not None:
            self._file.write(json.dumps(asdict(line)) + "\n")
            self._file.flush()
        if self._board is not None:
            for name in ("loss", "lr", "tokens_per_second", "recall"):
                if getattr(line, name) is not None:
                    self._board.add_scalar(name, getattr(line, name), line.step)
        return line
