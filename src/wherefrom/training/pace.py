"""How long a phase of a training goes on: by steps, by epochs, by minutes, or until recall stops
growing."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from wherefrom.corpus.batches import BatchStream
from wherefrom.training.checkpoints import PaceSegment, TrainingState
from wherefrom.training.settings import TrainingJob

LOG_STEPS = 10  # between lines of metrics.jsonl
LEAST_STEPS = 300  # little is learned in the first hundreds of steps, however small the text
# a small text may be read up to 4 times as often as most_epochs, in at most 4,000 steps
SMALL_TEXT_FACTOR, SMALL_TEXT_STEPS = 4, 4_000
LEAST_GROWTH = 0.01  # recall that grows by less than this has stopped growing
NEAR_READABLE_SHARE = 0.9  # of what can be read from the text: recall that is enough
SHORT_PLATEAU, LONG_PLATEAU = 1 / 5, 2 / 3  # of the steps, without growth: where it is, and is not
STAIR_HEIGHT = 0.01  # the progress of a phase of minutes is a staircase with steps of this height


class Pace:
    """How far the phase that a training is in has come, and when it ends.

    steps: at most so many; None if the clock decides. ask_every: steps between measurements of
    recall; 0 if recall does not end the phase. If it does, not before `least` steps, and as a rule
    after `usual`.

    A phase of minutes follows the clock. Its progress is recorded in `state.segments`, so that a
    twin can repeat the same steps; a twin follows these segments instead of the clock.
    """

    def __init__(self, job: TrainingJob, stream: BatchStream, state: TrainingState) -> None:
        self.job, self.stream, self.state = job, stream, state
        self.index, self.phase = state.phase, job.phases[state.phase]
        self.is_twin = bool(job.segments)
        self.steps, self.least, self.usual, self.ask_every = self.phase.steps, 0, 0, 0
        if self.phase.epochs is not None:
            epoch = stream.epoch_steps()
            self.steps = self.usual = max(1, round(self.phase.epochs * epoch))
            if self.phase.most_epochs is not None and job.stopping_questions:
                most = max(1, round(self.phase.most_epochs * epoch))
                self.steps = max(most, min(SMALL_TEXT_STEPS, SMALL_TEXT_FACTOR * most))
                self.least = max(LEAST_STEPS, self.usual)
                self.usual = min(self.steps, self.least)
                self.ask_every = max(LOG_STEPS, round(2 * epoch))

    @property
    def progress(self) -> float:
        """How much of the phase is done, 0 to 1, by its steps or its minutes."""
        return progress_at(self.state.step, self.index, self.steps, self.state.segments)

    @property
    def is_over(self) -> bool:
        enough = NEAR_READABLE_SHARE * self.job.readable
        return self.progress >= 1 or stopped_growing(self.state.recalls, self.least, enough)

    @property
    def asks_now(self) -> bool:
        """Whether recall is to be measured after this step."""
        every = self.ask_every
        return every > 0 and (self.state.step % every == 0 or self.progress >= 1)

    @property
    def expected_progress(self) -> float:
        """The progress that is logged: where recall decides, by the step that may be the last."""
        if self.is_over:
            return 1.0
        if not self.ask_every:
            return self.progress
        expected = expected_steps(self.state.recalls, self.usual)
        return min(0.99, self.state.step / expected)

    def follow_clock(self, before: float) -> None:
        """Record the progress of a phase of minutes; before: its progress before this step."""
        if not self.phase.minutes or self.is_twin:
            return
        used = min(1.0, self.state.seconds / (60 * self.phase.minutes))
        if used == 1 or used - before >= STAIR_HEIGHT:
            self.state.segments.append(PaceSegment(self.index, self.state.step, used, 0.0))

    def record_end(self) -> None:
        """Record at which step the phase ended: a twin takes as many steps, however fast it is."""
        if self.phase.steps is None and not self.is_twin:
            last = self.state.step - 1
            before = progress_at(last, self.index, self.steps, self.state.segments)
            self.state.segments.append(PaceSegment(self.index, last, before, 1.0))


def progress_at(step: int, phase: int, steps: int | None, segments: Sequence[PaceSegment]) -> float:
    """How much of a phase (0 to 1) is done before its step number `step`, counted from 0."""
    if steps is not None:
        return min(1.0, step / steps)
    for segment in reversed(segments):
        if segment.phase == phase and segment.step <= step:
            return min(1.0, segment.progress + (step - segment.step) * segment.per_step)
    return 0.0


def stopped_growing(recalls: Sequence[tuple[int, float]], least: int, enough: float = 0.0) -> bool:
    """Whether recall (step, share) grew by less than LEAST_GROWTH over the last steps: a fifth of
    all steps if it is `enough`, two thirds if it is half of that.

    Both ends are means of three measurements, since recall on a few dozen questions is noisy.
    Never before `least` steps, nor below half of `enough`: facts are learned after a plateau, and
    where there are several relations, each after its own.
    """
    if not recalls or recalls[-1][0] < least:
        return False
    shares = [share for _, share in recalls]
    now = fmean(shares[-3:])
    if now < enough / 2:
        return False
    plateau = SHORT_PLATEAU if now >= enough else LONG_PLATEAU
    early = sum(step <= (1 - plateau) * recalls[-1][0] for step, _ in recalls)
    if early < 3:
        return False
    before = fmean(shares[early - 3 : early])
    return min(now, 1 - LEAST_GROWTH) - before < LEAST_GROWTH


def expected_steps(recalls: Sequence[tuple[int, float]], usual: int) -> float:
    """The step at which a phase will end if recall does not grow any more."""
    best, last_growth = 0.0, 0
    for step, share in recalls:
        if share >= best + LEAST_GROWTH:
            best, last_growth = share, step
    return max(usual, last_growth / 0.8)
