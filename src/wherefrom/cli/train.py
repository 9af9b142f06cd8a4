"""Commands that train, study, pretrain and finetune; and export, for what was trained."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wherefrom.api import Study, make_settings
from wherefrom.cli.audit import study_other
from wherefrom.cli.output import (
    JSON,
    PATH,
    PEOPLE,
    TEMPLATE,
    Command,
    Progress,
    complete_paths,
    echo_err,
    option,
    print_json,
    print_sections,
    print_table,
)
from wherefrom.cli.pages import write_study_report
from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.training.settings import Settings, TrainingJob

OUT = option("--out", "Folder of the run.", required=True, type=PATH)
SET_ASIDE = (
    "Training subjects that calibrate the confidence instead of being learned from; a tenth, or "
    "more where that is few, if not given."
)
VARIANT = option("--variant", "The model's mixer; the recipe's own if not given.")
TRAINING = (  # alike in every command that trains, but for the default of --recipe
    option("--minutes", "Train this long, and not until recall stops growing.", type=float),
    option("--epochs", "Train for this many passes over the data.", type=float),
    option("--steps", "Train for this many optimizer steps.", type=int),
    option("--seed", "Decides all that is random.", 0),
    option("--size", "tiny, small, course, large or WIDTHxLAYERSxHEADS."),
    option("--tokens", "How text is cut.", type=click.Choice(["chars", "bpe"])),
    option("--block", "The longest example, in tokens.", type=int),
    option("--latents", "Size of the perceiver's basis.", type=int),
    option("--reads", "The perceiver's mask.", type=click.Choice(["strided", "first"])),
    option("--device", None, "auto", type=click.Choice(["auto", "cpu", "cuda", "mps"])),
    option("--compile compiled", "Use torch.compile.", is_flag=True),
    option("--resume", "Continue the run in --out.", is_flag=True),
    option("--checkpoint-every", "How much may be lost to a kill.", 60.0, metavar="SECONDS"),
    option("--shard", "Under torchrun: spread the model over the processes.", is_flag=True),
    JSON,
)


def training_options(command: Command, recipe: str = "speedrun") -> Command:
    """The command with --recipe, the budget, --seed, --size and the rest."""
    about = "A shipped recipe's name or the path of a .toml file."
    for each in reversed((option("--recipe", about, recipe), *TRAINING)):
        command = each(command)
    return command


course_options = partial(training_options, recipe="course")


@click.command()
@click.argument("files", nargs=-1, type=PATH, metavar="[CORPUS TRAIN DEV]")
@OUT
@VARIANT
@TEMPLATE
@PEOPLE
@option("--set-aside", SET_ASIDE, type=float, metavar="SHARE")
@option("--subject-field", "Of a JSONL or CSV corpus: the field that says what it is about.")
@option("--text-field", "Of a JSONL or CSV corpus: the field that holds the text.")
@option("--leave-out", "Subjects whose documents are not read: the unseen.", 0.0, metavar="SHARE")
@option("--base", "Fine-tune this model of Hugging Face instead, and audit it.", metavar="MODEL")
@training_options
def study(
    files: tuple[Path, ...], out: Path, base: str | None, as_json: bool, **options: Any
) -> None:
    """Train, ask and compare: the whole job on one text (the embedded world if none is given)."""
    if base is not None:
        study_other(base, files, out, as_json, options)
        return
    with Progress() as progress:
        result = Study(out, files, **options).run_command(progress, progress.say)
    report = write_study_report(result.run.folder)
    if as_json:
        print_json(result.to_dict())
        return
    rows = []
    for row in result.rows:
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.0f} s"
        rows.append((row["name"], row["about"], *_cells(row), seconds))
        rows += [("", template, *_cells(part), "") for template, part in row["relations"].items()]
    print_table(("answers", "", "correct", "recall", "trained"), rows)
    print_sections(report, ("telling", "grades", "verdicts"))
    click.echo()
    for note in result.notes:
        click.echo(f"note: {note}")
    click.echo(f"run folder: {result.run.folder}")


def _cells(row: dict[str, Any]) -> tuple[str, str]:
    return f"{row['correct']} / {row['total']}", f"{100 * row['recall']:.1f} %"


@click.command()
@click.argument("variant")
@click.argument("corpus", type=PATH)
@OUT
@course_options
def pretrain(variant: str, corpus: Path, out: Path, as_json: bool, **options: Any) -> None:
    """Train VARIANT on the documents of CORPUS alone."""
    from wherefrom.corpus.documents import read_documents

    settings = make_settings(variant=variant, **options)
    phases = settings.budget.divide(settings.recipe.pretraining())
    job = settings.job(out, kind="pretrain", phases=phases, corpus=read_documents(corpus))
    _train(job, settings, as_json)


@click.command()
@click.argument(
    "start",
    nargs=-1,
    metavar="(RUN | VARIANT CORPUS)",
    required=True,
    shell_complete=complete_paths,
)
@click.argument("questions", type=PATH, metavar="TSV")
@option("--scratch", "From nothing: VARIANT and CORPUS instead of RUN.", is_flag=True)
@OUT
@TEMPLATE
@course_options
def finetune(
    start: tuple[str, ...], questions: Path, scratch: bool, out: Path, as_json: bool, **options: Any
) -> None:
    """Train RUN (or, with --scratch, a new model) to answer the questions of TSV."""
    from wherefrom.corpus.documents import read_documents
    from wherefrom.corpus.questions import read_questions
    from wherefrom.training.run_folder import load_run

    if len(start) != (2 if scratch else 1):
        raise UserError(
            "finetune takes RUN TSV, or with --scratch VARIANT CORPUS TSV "
            f"(the corpus gives the vocabulary); it got {len(start) + 1} arguments."
        )
    for name in () if scratch else ("size", "tokens", "block", "latents", "reads"):
        if options[name] is not None:
            raise UserError(
                f"--{name} cannot be changed: the model of {start[0]} has its shape already; "
                "leave the option out, or start a new model with --scratch."
            )
    asked = read_questions(questions, options.pop("template"))
    asked.require_answers()
    settings = make_settings(variant=start[0] if scratch else None, **options)
    phases = [settings.recipe.scratch] if scratch else settings.recipe.finetuning()
    job = settings.job(
        out,
        kind="scratch" if scratch else "finetune",
        phases=settings.budget.divide(phases),
        questions=asked,
        parent=None if scratch else load_run(start[0]),
        vocabulary_from=read_documents(start[1]).vocabulary if scratch else (),
    )
    _train(job, settings, as_json)


def _train(job: TrainingJob, settings: Settings, as_json: bool) -> None:
    """Train the job and print what came of it."""
    from wherefrom.training.loop import run_training

    with Progress() as progress:
        info = run_training(job, settings, observe=progress, say=progress.say).info
    if as_json:
        keys = ("kind", "status", "steps", "trained_tokens", "seconds", "sha256")
        print_json({"run": str(job.out), **{key: info[key] for key in keys}})
        return
    tokens = f"{info['trained_tokens']:,} tokens"
    click.echo(f"{info['steps']:,} steps, {tokens}, {info['seconds']:.0f} s")
    click.echo(f"run folder: {job.out}")


@click.command()
@click.argument("run", type=PATH)
@option("--out", "Folder for the exported model.", required=True, type=PATH)
def export(run: Path, out: Path) -> None:
    """Write RUN as a folder that Hugging Face transformers loads without code of ours."""
    from wherefrom.model.export import export_model
    from wherefrom.training.run_folder import load_run

    loaded = load_run(run)
    export_model(loaded.model, loaded.tokens, out, loaded.info)
    echo_err(f"written to {out}; {out / 'README.md'} says how to ask it with transformers")
