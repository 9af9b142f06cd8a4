"""What a budget reaches: steps and passes over the data, beside what the recipe makes.

A pass shows every record of the phase's main objective once: every document of the text, or every
training question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wherefrom.corpus.batches import BatchStream
from wherefrom.training.checkpoints import TrainingState
from wherefrom.training.recipes import DOCUMENT_OBJECTIVES, Phase
from wherefrom.training.settings import TrainingJob
from wherefrom.training.sources import TrainingData, stream_for

# of those that the recipe makes over the text; with as many, the recipe `course` had none of 138
# answers right where always giving the commonest one had 3 (a world of 300 people)
FEW_PASSES_SHARE = 0.1
TEXT, QUESTIONS = "text", "questions"  # what a phase passes over
NO_BETTER = "expect no more recall than always giving the commonest answer"


def describe_budget(
    job: TrainingJob, stream: BatchStream, state: TrainingState, step_seconds: float
) -> str:
    """What the present phase will reach in its budget, from the time of one of its steps."""
    phase, recipe_phase = job.phases[state.phase], job.recipe_phases[state.phase]
    pass_steps = stream.epoch_steps()
    steps = _count_steps(phase, pass_steps)
    if steps is None:  # the clock decides
        seconds = 60 * (phase.minutes or 0)
        steps = state.step + round(max(0.0, seconds - state.seconds) / step_seconds)
    else:
        seconds = steps * step_seconds
    planned = _compare_passes(phase, recipe_phase, steps, pass_steps)
    needed = (_count_steps(recipe_phase, pass_steps) or 0) * step_seconds
    passes = describe_passes([planned], recipe_seconds=needed)
    if recipe_phase.minutes not in (None, phase.minutes):
        passes += f" (the recipe takes {format_seconds(60 * (recipe_phase.minutes or 0))})"
    return (
        f"{phase.name}: {format_seconds(seconds)} on this machine, about {steps:,} steps: "
        f"{passes}.{_expect(job, planned)}"
    )


def _expect(job: TrainingJob, planned: Mapping[str, Any]) -> str:
    """What to expect of a model that reads no text, or reads it a few times only."""
    if job.record.kind == "scratch":
        return f" This model reads no document, so it can only guess: {NO_BETTER}."
    if made_few_passes([planned]):
        return f" That is too little to remember single documents: {NO_BETTER}."
    before = job.parent.record.passes if job.parent else ()
    if made_few_passes(before):
        return f" The run that it starts from made {describe_passes(before)}: {NO_BETTER}."
    return ""


def count_passes(
    job: TrainingJob, data: TrainingData, phase_steps: Sequence[int]
) -> list[dict[str, Any]]:
    """The passes of each phase beside those of the recipe, after those of the parent run."""
    counted = list(job.parent.record.passes) if job.parent else []
    phases = zip(job.phases, job.recipe_phases, phase_steps, strict=False)
    for index, (phase, recipe_phase, steps) in enumerate(phases):
        pass_steps = stream_for(phase, data, [job.record.seed, index]).epoch_steps()
        counted.append(_compare_passes(phase, recipe_phase, steps, pass_steps))
    return counted


def _compare_passes(
    phase: Phase, recipe_phase: Phase, steps: int, pass_steps: float
) -> dict[str, Any]:
    """How many passes so many steps are, beside those of the recipe (None if it has minutes)."""
    recipe_steps = _count_steps(recipe_phase, pass_steps)
    recipe_passes = recipe_phase.epochs or (recipe_steps and recipe_steps / pass_steps)
    return {
        "phase": phase.name,
        "over": _passes_over(phase),
        "steps": steps,
        "passes": recipe_passes if steps == recipe_steps else steps / pass_steps,
        "recipe_passes": recipe_passes,
    }


def _count_steps(phase: Phase, pass_steps: float) -> int | None:
    """The steps of a phase; None if the clock decides."""
    return phase.steps if phase.epochs is None else max(1, round(phase.epochs * pass_steps))


def _passes_over(phase: Phase) -> str:
    objectives = phase.mixture.shares()
    return TEXT if any(name in DOCUMENT_OBJECTIVES for name in objectives) else QUESTIONS


def add_up_passes(counted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The passes of all phases over the text, and of all over the questions."""
    sums = []
    for over in (TEXT, QUESTIONS):
        rows = [row for row in counted if row["over"] == over]
        wanted = [row["recipe_passes"] for row in rows]
        if rows:
            sums.append(
                {
                    "over": over,
                    "passes": sum(row["passes"] for row in rows),
                    "recipe_passes": None if None in wanted else sum(wanted),
                }
            )
    return sums


def made_few_passes(counted: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the passes over the text are less than FEW_PASSES_SHARE of the recipe's."""
    return any(
        row["over"] == TEXT and row["passes"] < FEW_PASSES_SHARE * (row["recipe_passes"] or 0)
        for row in add_up_passes(counted)
    )


def describe_passes(counted: Sequence[Mapping[str, Any]], recipe_seconds: float = 0.0) -> str:
    """'2.1 passes over the text (the recipe makes 650), 10 passes over the questions'.

    recipe_seconds: how long the recipe's passes would take, if that is to be said.
    """
    parts = []
    for row in add_up_passes(counted):
        passes = f"{format_passes(row['passes'])} over the {row['over']}"
        if row["recipe_passes"] and row["passes"] != row["recipe_passes"]:
            time_needed = f" in {format_seconds(recipe_seconds)}" if recipe_seconds else ""
            passes += f" (the recipe makes {format_number(row['recipe_passes'])}{time_needed})"
        parts.append(passes)
    return ", ".join(parts)


def count_of_recipe(row: Mapping[str, Any]) -> str:
    """The passes of one phase: '2.1 of 650 passes over the text'."""
    passes = format_passes(row["passes"])
    if row["recipe_passes"]:
        of_recipe = format_passes(row["recipe_passes"])
        passes = f"{format_number(row['passes'])} of {of_recipe}"
    return f"{passes} over the {row['over']}"


def format_passes(passes: float) -> str:
    """'1 pass', '2.1 passes'."""
    number = format_number(passes)
    return f"{number} pass{'' if number == '1' else 'es'}"


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
