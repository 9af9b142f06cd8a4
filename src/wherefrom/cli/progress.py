"""Progress on stderr: a bar for what takes over two seconds; a line now and then when piped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from wherefrom.cli.output import is_verbose

if TYPE_CHECKING:
    from wherefrom.model.decoder import Decoder
    from wherefrom.training.loop import StepMetrics

PATIENCE = 2.0  # seconds before anything is shown
LINE_EVERY = 15.0  # seconds between lines when stderr is not a terminal


class Progress:
    """One bar at a time, for training (as its observer) and for whatever counts what is done."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet or not is_verbose()
        self._bar: Any = None
        self._task = ""
        self._began = self._last_line = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def say(self, sentence: str) -> None:
        """A remark between bars."""
        self._close()
        if not self._quiet:
            click.echo(sentence, err=True)

    def __call__(self, step: StepMetrics, model: Decoder) -> None:
        """Called by training after every step."""
        text = f"loss {step.loss:.3f}  {step.tokens_per_second:,.0f} tokens/s"
        self._show(step.phase, step.progress, text)

    def count(self, what: str, total: int) -> Callable[[int], None]:
        """A function to call with how many more of `total` are done."""
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            self._show(what, done / max(1, total), f"{done:,} of {total:,}")

        return advance

    def _show(self, task: str, share: float, text: str) -> None:
        if task != self._task:
            self._close()
            self._task, self._began = task, time.monotonic()
        now = time.monotonic()
        if self._quiet or now - self._began < PATIENCE:
            return
        if sys.stderr.isatty():
            self._draw(share, text)
        elif now - self._last_line > LINE_EVERY or share >= 1:
            self._last_line = now
            click.echo(f"{task}  {share:4.0%}  {now - self._began:5.0f} s  {text}", err=True)

    def _draw(self, share: float, text: str) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f} %"),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(compact=True),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._bar.add_task(self._task, total=1.0, text="")
        self._bar.update(self._bar.task_ids[0], completed=share, text=text)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
