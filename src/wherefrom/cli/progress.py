"""Progress on stderr: a bar with loss, speed and time left; a line now and then when piped."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from wherefrom.cli.output import is_verbose

if TYPE_CHECKING:
    from wherefrom.model.decoder import Decoder
    from wherefrom.training.loop import StepMetrics

LINE_EVERY = 15.0  # seconds, when stderr is not a terminal


class TrainingProgress:
    """Observes training; `quiet` says nothing at all."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet or not is_verbose()
        self._bar: Any = None
        self._task: Any = None
        self._phase = ""
        self._last_line = 0.0

    def __enter__(self) -> TrainingProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def say(self, sentence: str) -> None:
        """A remark between bars."""
        self._close()
        if not self._quiet:
            click.echo(sentence, err=True)

    def __call__(self, tick: StepMetrics, model: Decoder) -> None:
        if self._quiet:
            return
        text = f"loss {tick.loss:.3f}  {tick.tokens_per_second:,.0f} tokens/s"
        if sys.stderr.isatty():
            self._draw(tick, text)
        elif time.monotonic() - self._last_line > LINE_EVERY or tick.progress >= 1:
            self._last_line = time.monotonic()
            click.echo(
                f"{tick.phase}  {tick.progress:4.0%}  {tick.seconds:5.0f} s  {text}", err=True
            )

    def _draw(self, tick: StepMetrics, text: str) -> None:
        if self._bar is None or tick.phase != self._phase:
            self._close()
            self._open(tick.phase)
        self._bar.update(self._task, completed=tick.progress, text=text)

    def _open(self, phase: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._phase = phase
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self._bar.start()
        self._task = self._bar.add_task(phase, total=1.0, text="")

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
