"""Commands that train, study, pretrain and finetune; and export, for what was trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wherefrom.cli.completion import complete_paths
from wherefrom.cli.judge import print_scores, print_verdicts
from wherefrom.cli.output import JSON, PATH, TEMPLATE, echo_err, print_json, print_table
from wherefrom.cli.progress import Progress
from wherefrom.cli.report import write_study_report
from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.training.settings import Settings, TrainingJob

Command = TypeVar("Command", bound=Callable[..., Any])


def _option(
    name: str, about: str | None, default: Any = None, **more: Any
) -> Callable[[Command], Command]:
    """An option whose default is shown, if it has one."""
    if default is not None:
        more |= {"default": default, "show_default": True}
    return click.option(name, help=about, **more)


def training_options(default_recipe: str) -> Callable[[Command], Command]:
    """--recipe, the budget, --seed, --size and the rest, alike in every training command."""
    devices = click.Choice(["auto", "cpu", "cuda", "mps"])
    options = [
        _option("--recipe", "A shipped recipe's name or the path of a .toml file.", default_recipe),
        _option("--minutes", "Train this long.", type=float),
        _option("--epochs", "Train for this many passes over the data.", type=float),
        _option("--steps", "Train for this many optimizer steps.", type=int),
        _option("--seed", "Decides all that is random.", 0),
        _option("--size", "tiny, small, course, large or WIDTHxLAYERSxHEADS."),
        _option("--tokens", "How text is cut.", type=click.Choice(["chars", "bpe"])),
        _option("--block", "The longest example, in tokens.", type=int),
        _option("--latents", "Size of the perceiver's basis.", type=int),
        _option("--reads", "The perceiver's mask.", type=click.Choice(["strided", "first"])),
        _option("--device", None, "auto", type=devices),
        click.option("--compile", "compiled", is_flag=True, help="Use torch.compile."),
        _option("--resume", "Continue the run in --out.", is_flag=True),
        _option("--checkpoint-every", "How much may be lost to a kill.", 60.0, metavar="SECONDS"),
        _option("--shard", "Under torchrun: spread the model over the processes.", is_flag=True),
        JSON,
        _option("--quiet", "No progress on stderr.", is_flag=True),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def settings_from(**options: Any) -> Settings:
    """The shared options, checked."""
    from wherefrom.api import make_settings

    return make_settings(**options)


@click.command()
@click.argument("files", nargs=-1, type=PATH, metavar="[CORPUS TRAIN DEV]")
@click.option("--out", required=True, type=PATH, help="Folder of the run.")
@_option("--variant", "The model's mixer; the recipe's own if not given.")
@TEMPLATE
@_option("--people", "Size of the embedded world.", 3000)
@_option(
    "--set-aside",
    "Training subjects that calibrate the confidence instead of being learned from.",
    0.1,
    metavar="SHARE",
)
@_option("--leave-out", "Subjects whose documents are not read: the unseen.", 0.0, metavar="SHARE")
@training_options("speedrun")
def study(
    files: tuple[Path, ...],
    out: Path,
    template: str | None,
    people: int,
    set_aside: float,
    leave_out: float,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Train, ask and compare: the whole job on one text (the embedded world if none is given)."""
    from wherefrom.corpus.subjects import check_shares
    from wherefrom.study import find_files, run_study

    check_shares(set_aside, leave_out)
    settings = settings_from(**options)
    with Progress(quiet=quiet) as progress:
        result = run_study(
            find_files(files, settings, out, people=people, say=progress.say),
            settings,
            out,
            template=template,
            set_aside=set_aside,
            leave_out=leave_out,
            observe=progress,
            say=progress.say,
        )
        write_study_report(result.run.folder, say=progress.say)
    if as_json:
        print_json(result.to_dict())
        return
    rows = [
        (
            row.name,
            row.about,
            f"{row.recall.correct} / {row.recall.total}",
            f"{100 * row.recall.share:.1f} %",
            "" if row.seconds is None else f"{row.seconds:.0f} s",
        )
        for row in result.rows
    ]
    print_table(("answers", "", "correct", "recall", "trained"), rows)
    if result.judgement is not None:
        print_scores(result.judgement)
        print_verdicts(result.judgement["verdicts"])
    for note in result.notes:
        click.echo(f"note: {note}")
    click.echo(f"run folder: {result.run.folder}")


@click.command()
@click.argument("variant")
@click.argument("corpus", type=PATH)
@click.option("--out", required=True, type=PATH, help="Folder of the run.")
@training_options("course")
def pretrain(
    variant: str, corpus: Path, out: Path, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Train VARIANT on the documents of CORPUS alone."""
    from wherefrom.corpus.documents import read_documents

    settings = settings_from(variant=variant, **options)
    job = settings.job(
        out,
        kind="pretrain",
        phases=settings.budget.divide(settings.recipe.pretraining()),
        corpus=read_documents(corpus),
    )
    _train(job, settings, quiet, as_json)


@click.command()
@click.argument(
    "start",
    nargs=-1,
    metavar="(RUN | VARIANT CORPUS)",
    required=True,
    shell_complete=complete_paths,
)
@click.argument("questions", type=PATH, metavar="TSV")
@click.option("--scratch", is_flag=True, help="From nothing: VARIANT and CORPUS instead of RUN.")
@click.option("--out", required=True, type=PATH, help="Folder of the new run.")
@TEMPLATE
@training_options("course")
def finetune(
    start: tuple[str, ...],
    questions: Path,
    scratch: bool,
    out: Path,
    template: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
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
    asked = read_questions(questions, template)
    asked.require_answers()
    if scratch:
        settings = settings_from(variant=start[0], **options)
        job = settings.job(
            out,
            kind="scratch",
            phases=settings.budget.divide([settings.recipe.scratch]),
            questions=asked,
            vocabulary_from=read_documents(start[1]).texts,
        )
    else:
        for name in ("size", "tokens", "block", "latents", "reads"):
            if options[name] is not None:
                raise UserError(
                    f"--{name} cannot be changed: the model of {start[0]} has its shape already; "
                    "leave the option out, or start a new model with --scratch."
                )
        settings = settings_from(**options)
        job = settings.job(
            out,
            kind="finetune",
            phases=settings.budget.divide(settings.recipe.finetuning()),
            questions=asked,
            parent=load_run(start[0]),
        )
    _train(job, settings, quiet, as_json)


@click.command()
@click.argument("run", type=PATH)
@click.option("--out", required=True, type=PATH, help="Folder for the exported model.")
def export(run: Path, out: Path) -> None:
    """Write RUN as a folder that Hugging Face transformers loads without code of ours."""
    from wherefrom.model.export import export_model
    from wherefrom.training.run_folder import load_run

    loaded = load_run(run)
    export_model(loaded.model, loaded.tokens, out)
    echo_err(f"written to {out}: AutoModelForCausalLM.from_pretrained({str(out)!r}) loads it")


def _train(job: TrainingJob, settings: Settings, quiet: bool, as_json: bool) -> None:
    """Train the job and print what came of it."""
    from wherefrom.training.jobs import run_training

    with Progress(quiet=quiet) as progress:
        info = run_training(job, settings, observe=progress, say=progress.say).info
    if as_json:
        keys = ("kind", "status", "steps", "trained_tokens", "seconds", "sha256")
        print_json({"run": str(job.out), **{key: info[key] for key in keys}})
        return
    tokens = f"{info['trained_tokens']:,} tokens"
    click.echo(f"{info['steps']:,} steps, {tokens}, {info['seconds']:.0f} s")
    click.echo(f"run folder: {job.out}")
