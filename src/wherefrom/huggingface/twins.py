"""Twins of any run: what it would have said without some lines; for a model of others as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wherefrom.corpus.folding import fold_words
from wherefrom.errors import UserError
from wherefrom.huggingface.knowledge import add_twin_answers
from wherefrom.huggingface.retraining import open_learned_base
from wherefrom.provenance.attribution.halves import cross_pretrain, draw_halves
from wherefrom.provenance.attribution.retraining import Count, Record, no_count, outcome
from wherefrom.provenance.attribution.twins import Plan, leave_out, plan_twin, twin_folder
from wherefrom.provenance.audited import BaseRun, open_run
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run
from wherefrom.training.settings import Runtime


def plan_twins(
    run: Run, groups: Sequence[Sequence[str]], *, count: Count = no_count
) -> list[list[Plan]]:
    """The documents and a question of each name, or a UserError before anything is trained."""
    if not groups:
        return []
    learned = open_learned_base(run, count)
    return [[plan_twin(run, name, learned) for name in names] for names in groups]


def leave_out_any(
    run: Run,
    *plans: Plan,
    settings: Runtime | None = None,
    observe: Observer | None = None,
) -> Record:
    """Train the twin without the documents of all plans, and compare.

    For a model of others, its answers check what was called learned from the text.
    """
    record = leave_out(run, *plans, settings=settings, observe=observe)
    if isinstance(run, BaseRun):
        subjects = {fold_words(plan.question.subject) for plan in plans}
        dev = plans[0].learned.dev
        asked = [q.text for q in dev if fold_words(q.subject) in subjects]
        twin = open_run(twin_folder(run, *(plan.question.subject for plan in plans)))
        add_twin_answers(run, dict(zip(asked, outcome(twin, asked)["answers"], strict=True)))
    return record


def cross_train(
    run: Run,
    settings: Runtime,
    observe: Observer | None = None,
    say: Callable[[str], None] = lambda _: None,
    count: Count = no_count,
) -> Record:
    """Two twins, each without half of the judged people, which check what the run learned."""
    if not isinstance(run, BaseRun):
        return cross_pretrain(run, settings=settings, observe=observe, say=say)
    learned = open_learned_base(run, count)
    halves, notes = draw_halves(learned)
    knowledge = None
    for name, subjects in zip("ab", halves, strict=True):
        folder = run.folder / "twins" / f"half-{name}"
        say(f"training again without half {name.upper()} of the judged people ({folder})")
        lines = learned.lines_about({fold_words(s.subject) for s in subjects})
        twin = learned.retrain(lines, folder, settings=settings)
        asked = [subject.question for subject in subjects]
        answers = dict(zip(asked, outcome(twin, asked)["answers"], strict=True))
        knowledge = add_twin_answers(run, answers)
    if knowledge is None:
        raise UserError(f"{run.folder} has no record of what it knew before; study it again.")
    return {"run": str(run.folder), "notes": notes, "knowledge": knowledge}
