"""Progress on stderr: a bar for what takes over two seconds; a line now and then when piped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from wherefrom.cli.output import echo_err, is_verbose

if TYPE_CHECKING:
    from wherefrom.model.decoder import Decoder
    from wherefrom.training.loop import StepMetrics

PATIENCE = 2.0  # seconds before anything is shown
LINE_EVERY = 15.0  # seconds between lines when stderr is not a terminal


class Progress:
    """One bar at a time, for training (as its observer) and for whatever counts what is done."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task = ""
        self._began = self._last_line = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the bar that is shown, if any."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def say(self, sentence: str) -> None:
        """A remark between bars."""
        self.close()
        echo_err(sentence)

    def __call__(self, step: StepMetrics, model: Decoder) -> None:
        """Called by training after every step."""
        text = f"loss {step.loss:.3f}  {step.tokens_per_second:,.0f} tokens/s"
        if step.recall is not None:
            text += f"  recall {step.recall:.0%}"
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
        now = time.monotonic()
        if task != self._task:
            self.close()
            self._task, self._began = task, now
        if not is_verbose() or now - self._began < PATIENCE:
            return
        if sys.stderr.isatty():
            self._bar = self._bar or _start_bar(task)
            self._bar.update(self._bar.task_ids[0], completed=share, text=text)
        elif now - self._last_line > LINE_EVERY or share >= 1:
            self._last_line = now
            click.echo(f"{task}  {share:4.0%}  {now - self._began:5.0f} s  {text}", err=True)


def _start_bar(task: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    texts = [TextColumn(form) for form in ("{task.percentage:3.0f} %", "{task.fields[text]}")]
    columns = (TextColumn("{task.description}"), BarColumn(), *texts)
    bar = Progress(*columns, TimeRemainingColumn(compact=True), console=Console(stderr=True))
    bar.start()
    bar.add_task(task, total=1.0, text="")
    return bar
