"""TensorBoard's event files, written directly: a few scalars need no more than its writer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


class Board:
    """Scalars by step, readable with `tensorboard --logdir RUN`.

    A run that was resumed `after` a step has told of later ones already; the session that starts
    here makes TensorBoard forget them. Without tensorboard (the extra `board`) nothing is written.
    """

    def __init__(self, folder: Path, *, after: int = 0) -> None:
        self._writer: Any = None
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ModuleNotFoundError:
            return
        self._writer = EventFileWriter(str(folder))
        start = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=time.time(), step=after + 1, session_log=start))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        if self._writer is None:
            return
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=x) for name, x in scalars.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._writer.add_event(event)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
