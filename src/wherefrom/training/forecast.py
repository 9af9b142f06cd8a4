"""How long a training will take, and what it reaches: passes over the text or the questions.

A pass shows every record of the phase's main objective once: every document of the text, or every
training question.
"""

from __future__ import annotations

from collections.abc import Sequence

from wherefrom.training.pace import Pace
from wherefrom.training.recipes import DOCUMENT_OBJECTIVES, Phase
from wherefrom.training.record import PassesRecord
from wherefrom.training.settings import TrainingJob
from wherefrom.training.sources import TrainingData, stream_for

# of those that the recipe makes over the text; with as many, the recipe `course` had none of 138
# answers right where always giving the commonest one had 3 (a world of 300 people)
FEW_PASSES_SHARE = 0.1
NO_BETTER = "expect no more recall than always giving the commonest answer"


def describe_length(pace: Pace, step_seconds: float) -> str:
    """How long the present phase will take, from the time of one of its steps; "" if its job does
    not say what the recipe makes."""
    if pace.ask_every:
        return _describe_until_enough(pace, step_seconds)
    return _describe_budget(pace, step_seconds) if pace.job.recipe_phases else ""


def _describe_until_enough(pace: Pace, step_seconds: float) -> str:
    """How long a phase will take that ends when recall stops growing."""
    job = pace.job
    usual = format_seconds(pace.usual * step_seconds)
    most = format_seconds((pace.steps or 0) * step_seconds)
    documents = len(job.database.documents) if job.database else 0
    return (
        f"width {job.config.width}, {job.config.layers} layers, a vocabulary of "
        f"{job.config.vocabulary:,}: about {usual} for {documents:,} documents, at most {most}, "
        f"until recall on {len(job.stopping_questions):,} questions stops growing"
    )


def _describe_budget(pace: Pace, step_seconds: float) -> str:
    """What a phase will reach in its budget, beside the recipe's."""
    job, phase, state = pace.job, pace.phase, pace.state
    recipe_phase = job.recipe_phases[pace.index]
    pass_steps = pace.stream.epoch_steps()
    seconds = phase_seconds(phase, pass_steps, step_seconds)
    # of minutes, only those that are left become steps at this pace
    more = round(max(0.0, seconds - state.seconds) / step_seconds)
    steps = phase_steps(phase, pass_steps) or state.step + more
    counted = count_passes(phase, recipe_phase, steps, pass_steps)
    recipe_seconds = phase_seconds(recipe_phase, pass_steps, step_seconds)
    by_recipe = f" (the recipe takes {format_seconds(recipe_seconds)})"
    said = (
        f"{phase.name}: {format_seconds(seconds)} on this machine"
        f"{by_recipe if recipe_seconds != seconds else ''}, about {steps:,} steps: "
        f"{describe_passes([counted])}."
    )
    few_passes = FEW_PASSES_SHARE * (counted.recipe_passes or 0)
    if job.record.kind == "scratch":
        said += f" This model reads no document, so it can only guess: {NO_BETTER}."
    elif counted.over == "text" and counted.passes < few_passes:
        said += f" That is too little to remember single documents: {NO_BETTER}."
    return said


def phase_steps(phase: Phase, pass_steps: float) -> int | None:
    """The steps of a phase; None if the clock decides."""
    return phase.steps if phase.epochs is None else max(1, round(phase.epochs * pass_steps))


def phase_seconds(phase: Phase, pass_steps: float, step_seconds: float) -> float:
    """How long a phase takes, if each of its steps takes so long."""
    if phase.minutes is not None:
        return 60 * phase.minutes
    return (phase_steps(phase, pass_steps) or 0) * step_seconds


def count_passes(phase: Phase, recipe_phase: Phase, steps: int, pass_steps: float) -> PassesRecord:
    """How many passes so many steps are, beside those of the recipe."""
    passes, recipe_passes = steps / pass_steps, recipe_phase.epochs
    recipe_steps = phase_steps(recipe_phase, pass_steps)
    if recipe_steps is not None and recipe_passes is None:
        recipe_passes = recipe_steps / pass_steps
    if recipe_passes is not None and steps == recipe_steps:  # though steps are whole numbers
        passes = recipe_passes
    reads = any(name in DOCUMENT_OBJECTIVES for name in phase.mixture.shares())
    return PassesRecord(
        phase=phase.name,
        over="text" if reads else "questions",
        steps=steps,
        passes=passes,
        recipe_passes=recipe_passes,
    )


def count_all_passes(
    job: TrainingJob, data: TrainingData, steps: Sequence[int]
) -> list[PassesRecord]:
    """The passes of each phase that took so many steps, after those of the parent run; [] if the
    job does not know its recipe."""
    if not job.recipe_phases:
        return []
    counted = list(job.parent.record.passes) if job.parent else []
    phases = zip(job.phases, job.recipe_phases, steps, strict=True)
    for index, (phase, recipe_phase, taken) in enumerate(phases):
        pass_steps = stream_for(phase, data, [job.record.seed, index]).epoch_steps()
        counted.append(count_passes(phase, recipe_phase, taken, pass_steps))
    return counted


def describe_passes(counted: Sequence[PassesRecord]) -> str:
    """'2.1 passes over the text (the recipe makes 650), 10 passes over the questions'."""
    parts = []
    for over in ("text", "questions"):
        rows = [row for row in counted if row.over == over]
        if not rows:
            continue
        passes = sum(row.passes for row in rows)
        number = format_number(passes)
        part = f"{number} pass{'' if number == '1' else 'es'} over the {over}"
        recipe_passes = [row.recipe_passes for row in rows if row.recipe_passes is not None]
        if len(recipe_passes) == len(rows) and sum(recipe_passes) != passes:
            part += f" (the recipe makes {format_number(sum(recipe_passes))})"
        parts.append(part)
    return ", ".join(parts)


def format_number(value: float) -> str:
    """Two digits or more: 0.13, 2.1, 65, 14,950."""
    if value >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0") if value >= 0.95 else f"{value:.2g}"


def format_seconds(seconds: float) -> str:
    """A duration as people say it: 45 seconds, 12 minutes, 9.8 hours."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
