"""Commands that train and ask: study, pretrain, finetune, evaluate, baseline, export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wherefrom.cli.completion import complete_paths
from wherefrom.cli.judge import print_scores, print_verdicts
from wherefrom.cli.output import echo_err, print_json, print_table
from wherefrom.cli.progress import TrainingProgress
from wherefrom.cli.report import write_study_report
from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.training.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])


def training_options(default_recipe: str) -> Callable[[Command], Command]:
    """--recipe, the budget, --seed, --size and the rest, alike in every training command."""
    options = [
        click.option(
            "--recipe",
            default=default_recipe,
            show_default=True,
            help="A shipped recipe's name or the path of a .toml file.",
        ),
        click.option("--minutes", type=float, help="Train this long."),
        click.option("--epochs", type=float, help="Train for this many passes over the data."),
        click.option("--steps", type=int, help="Train for this many optimizer steps."),
        click.option("--seed", default=0, show_default=True, help="Decides all that is random."),
        click.option("--size", help="tiny, small, course, large or WIDTHxLAYERSxHEADS."),
        click.option("--tokens", type=click.Choice(["chars", "bpe"]), help="How text is cut."),
        click.option("--block", type=int, help="The longest example, in tokens."),
        click.option("--latents", type=int, help="Size of the perceiver's basis."),
        click.option(
            "--reads", type=click.Choice(["strided", "first"]), help="The perceiver's mask."
        ),
        click.option(
            "--device",
            default="auto",
            show_default=True,
            type=click.Choice(["auto", "cpu", "cuda", "mps"]),
        ),
        click.option("--compile", "compiled", is_flag=True, help="Use torch.compile."),
        click.option("--resume", is_flag=True, help="Go on with the run in --out."),
        click.option(
            "--checkpoint-every",
            default=60.0,
            show_default=True,
            metavar="SECONDS",
            help="How much may be lost to a kill.",
        ),
        click.option(
            "--shard", is_flag=True, help="Under torchrun: spread the model over the processes."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("--quiet", is_flag=True, help="No progress on stderr."),
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


PATH = click.Path(path_type=Path)


@click.command()
@click.argument("files", nargs=-1, type=PATH, metavar="[CORPUS TRAIN DEV]")
@click.option("--out", required=True, type=PATH, help="Folder of the run.")
@click.option("--variant", help="The model's mixer; the recipe's own if not given.")
@click.option("--template", help='How questions name their subject: "Where was {subject} born?".')
@click.option("--people", default=3000, show_default=True, help="Size of the embedded world.")
@click.option(
    "--set-aside",
    default=0.1,
    show_default=True,
    metavar="SHARE",
    help="Training people who calibrate the confidence instead of being learned from.",
)
@click.option(
    "--leave-out",
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="People whose documents are not read: the unseen.",
)
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
    with TrainingProgress(quiet=quiet) as progress:
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
    from wherefrom.training.jobs import run_training

    settings = settings_from(variant=variant, **options)
    job = settings.job(
        out,
        kind="pretrain",
        phases=settings.budget.divide(settings.recipe.pretraining()),
        corpus=read_documents(corpus),
    )
    with TrainingProgress(quiet=quiet) as progress:
        run = run_training(job, settings, observe=progress, say=progress.say)
    _tell(run.info, out, as_json)


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
@click.option("--template", help='How questions name their subject: "Where was {subject} born?".')
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
    """Teach RUN (or, with --scratch, a new model) to answer the questions of TSV."""
    from wherefrom.corpus.documents import read_documents
    from wherefrom.corpus.questions import read_questions
    from wherefrom.training.jobs import run_training
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
        _refuse_shape(start[0], options)
        settings = settings_from(**options)
        job = settings.job(
            out,
            kind="finetune",
            phases=settings.budget.divide(settings.recipe.finetuning()),
            questions=asked,
            parent=load_run(start[0]),
        )
    with TrainingProgress(quiet=quiet) as progress:
        run = run_training(job, settings, observe=progress, say=progress.say)
    _tell(run.info, out, as_json)


@click.command()
@click.argument("run", type=PATH)
@click.argument("questions", type=PATH, metavar="TSV")
@click.option("--out", type=PATH, help="Write one prediction a line, in order.")
@click.option("--template", help='How questions name their subject: "Where was {subject} born?".')
@click.option("--json", "as_json", is_flag=True, help="Print predictions and recall as JSON.")
def evaluate(
    run: Path, questions: Path, out: Path | None, template: str | None, as_json: bool
) -> None:
    """Ask RUN the questions of TSV and count the exact answers."""
    from wherefrom.corpus.questions import read_questions
    from wherefrom.recall.decode import answer_all
    from wherefrom.recall.evaluate import score
    from wherefrom.study import write_predictions
    from wherefrom.training.run_folder import load_run

    loaded = load_run(run)
    asked = read_questions(questions, template or loaded.template)
    texts = [question.text for question in asked.questions]
    answers = answer_all(loaded.model, loaded.tokens, texts)
    if out is not None:
        write_predictions(out, answers)
    said = [answer.text for answer in answers]
    right = [question.answer or "" for question in asked.questions]
    recall = score(said, right) if asked.answered else None
    if as_json:
        rows = [
            {"question": text, "prediction": answer.text, "log_probability": answer.log_probability}
            for text, answer in zip(texts, answers, strict=True)
        ]
        print_json({**(recall.to_dict() if recall else {"total": len(said)}), "answers": rows})
        return
    if recall is not None:
        click.echo(str(recall))
    elif out is None:
        for text in said:
            click.echo(text)
    if out is not None:
        echo_err(f"predictions written to {out}")


@click.command()
@click.argument("train", type=PATH)
@click.argument("dev", type=PATH)
@click.option("--always", help="Score this one answer too.")
@click.option("--template", help='How questions name their subject: "Where was {subject} born?".')
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def baseline(
    train: Path, dev: Path, always: str | None, template: str | None, as_json: bool
) -> None:
    """What can be had without reading: the majority answer, one answer, the letters of the name."""
    from wherefrom.corpus.questions import read_questions
    from wherefrom.recall.baselines import guess_by_name, majority_answer
    from wherefrom.recall.evaluate import score

    known = read_questions(train, template)
    known.require_answers()
    asked = read_questions(dev, template or known.template)
    asked.require_answers()
    right = [question.answer or "" for question in asked.questions]
    common = majority_answer(known.questions)
    rows = {"majority": (common, score([common] * len(right), right))}
    if always is not None:
        rows["always"] = (always, score([always] * len(right), right))
    guesses = guess_by_name(known.questions, asked.questions)
    rows["by name"] = ("letters of the name", score(guesses, right))
    if as_json:
        print_json(
            {
                name: {"answer": answer, **recall.to_dict()}
                for name, (answer, recall) in rows.items()
            }
        )
        return
    for name, (answer, recall) in rows.items():
        click.echo(f"{name} ({answer})  {recall}")


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


def _refuse_shape(run: str, options: dict[str, Any]) -> None:
    """A run that is taught more keeps the shape it has."""
    for name in ("size", "tokens", "block", "latents", "reads"):
        if options[name] is not None:
            raise UserError(
                f"--{name} cannot be changed: the model of {run} has its shape already; leave the "
                "option out, or start a new model with --scratch."
            )


def _tell(info: dict[str, Any], out: Path, as_json: bool) -> None:
    if as_json:
        keys = ("kind", "status", "steps", "trained_tokens", "seconds", "sha256")
        print_json({"run": str(out), **{key: info[key] for key in keys}})
        return
    click.echo(
        f"{info['steps']:,} steps, {info['trained_tokens']:,} tokens, {info['seconds']:.0f} s"
    )
    click.echo(f"run folder: {out}")
