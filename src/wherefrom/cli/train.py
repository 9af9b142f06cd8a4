"""Commands that train (study, pretrain, finetune), show examples, audit models, and export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wherefrom.api import Study, make_settings
from wherefrom.cli.output import (
    JSON,
    PATH,
    PEOPLE,
    SEED,
    TEMPLATE,
    Command,
    Progress,
    echo_err,
    option,
    print_json,
    print_recall,
    print_row,
    print_table,
    show,
)
from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.study import StudyResult
    from wherefrom.training.settings import Settings, TrainingJob

OUT = option("--out", "Folder of the run.", required=True, type=PATH)
SET_ASIDE = (
    "Share of training subjects that calibrate the confidence and are not learned from; default: "
    "as many as a guarantee takes, or a fifth and at most 20 if there are few."
)
TEXT_FIELD = (
    "Field of a JSONL or CSV corpus that holds the text; may be repeated; default: the field that "
    "is the text, or else all fields."
)
TOKENS = option("--tokens", "Kind of tokens.", type=click.Choice(["chars", "bpe"]))
BLOCK = option("--block", "The longest example, in tokens.", type=int)
TRAINING = (  # the same in every command that trains
    option("--minutes", "Train for this long; default: until recall stops growing.", type=float),
    option("--epochs", "Train for this many passes over the data.", type=float),
    option("--steps", "Train for this many optimizer steps.", type=int),
    SEED,
    option("--size", "tiny, small, course, large or WIDTHxLAYERSxHEADS."),
    TOKENS,
    BLOCK,
    option("--latents", "Size of the perceiver's basis.", type=int),
    option(
        "--device", "Where to train.", "auto", type=click.Choice(["auto", "cpu", "cuda", "mps"])
    ),
    option("--resume", "Continue the run in --out.", is_flag=True),
    option("--checkpoint-every", "Time between checkpoints.", 60.0, metavar="SECONDS"),
    JSON,
)


def training_options(command: Command, recipe: str = "pointed") -> Command:
    """Add --recipe and the options of TRAINING to the command."""
    about = "Name of a shipped recipe, or path of a .toml file."
    for each in reversed((option("--recipe", about, recipe), *TRAINING)):
        command = each(command)
    return command


course_options = partial(training_options, recipe="course")

BASE_OPTIONS = ("wording", "full", "rank", "rate")  # of study, which go with --base
# options of study that do not change with the model
SHARED_WITH_BASE = (
    *("steps", "epochs", "seed", "resume", "checkpoint_every", "people", "template"),
    *("set_aside", "leave_out", "subject_field", "text_field"),
)


def base_options(command: Command) -> Command:
    """Add --base and the options that go with it."""
    for each in reversed(
        (
            option("--base", "Train this Hugging Face model instead.", metavar="MODEL", type=PATH),
            option("--full", "With --base: train all weights, not adapters.", is_flag=True),
            option("--rank", "With --base: rank of the adapters.  [default: 16]", type=int),
            option("--rate", "With --base: learning rate.", type=float),
            option(
                "--wording",
                "With --base: rows as plain text or by the model's chat template.  [default: by "
                "the template if it has one]",
                type=click.Choice(["plain", "chat"]),
            ),
        )
    ):
        command = each(command)
    return command


@click.command()
@click.argument("files", nargs=-1, type=PATH, metavar="[CORPUS TRAIN DEV | RUN]")
@OUT
@training_options
@option("--variant", "The model's mixer; default: the recipe's.")
@PEOPLE
@TEMPLATE
@option("--subject-field", "Field of a JSONL or CSV corpus that names the subject.")
@option("--text-field", TEXT_FIELD, multiple=True)
@option("--set-aside", SET_ASIDE, type=float, metavar="SHARE")
@option("--leave-out", "Share of subjects to leave unread: the unseen.", 0.0, metavar="SHARE")
@base_options
@option("--add added", "Continue RUN with the documents of this file too.", type=PATH)
@option("--no-training", "With --add: read the documents only.", is_flag=True)
def study(
    files: tuple[Path, ...],
    out: Path,
    added: Path | None,
    no_training: bool,
    base: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train on a text, ask, judge the answers and write a report: the whole job.

    CORPUS is the text, TRAIN holds the questions to learn and DEV those to ask; without files, the
    text is the embedded world of invented people. With --base, a model of Hugging Face (a folder
    or a GGUF file) is trained on the text: adapters, or with --full all of its weights. With --add
    FILE and a RUN in place of the files, a finished study is continued with more documents.
    """
    from wherefrom.recall.table import compare_rows

    if no_training and added is None:
        raise UserError("--no-training goes with --add FILE.")

    say_if_new(out, options["resume"])
    given_base = {name: options.pop(name) for name in BASE_OPTIONS}
    with Progress() as progress:
        if base is not None:
            found = study_base(base, files, out, progress, given_base | options)
            if found is None:  # another process of torchrun tells it
                return
            result = found
        elif added is not None:
            check_without_base(given_base)
            result = _add_documents(added, files, out, not no_training, progress, options)
        else:
            check_without_base(given_base)
            result = Study(out, files, **options).run_command(progress, progress.say)
    report = write_study_report(result.run.folder)
    if as_json:
        print_json(result.to_dict())
        return
    print_recall(result.rows, relations_of=("model", "reader"))
    for section in report["sections"]:
        if section["id"] in ("confidence", "grades", "silence") and not section["missing"]:
            click.echo(section["sentence"])
    for warning in compare_rows(result.rows):
        click.echo(warning)
    click.echo(f"the rest is in the report: {result.run.folder / 'report.html'}")
    click.echo(f"run folder: {result.run.folder}")


def _add_documents(
    added: Path,
    files: Sequence[Path],
    out: Path,
    train: bool,
    progress: Progress,
    options: dict[str, Any],
) -> StudyResult:
    """`study RUN --add FILE`: the study of the run, continued with more documents."""
    from wherefrom.study import add_documents

    if len(files) != 1:
        raise UserError(
            "study --add FILE takes the RUN that is continued, as in wherefrom study runs/mine "
            f"--add more.txt --out runs/more; it got {len(files)} names."
        )
    for name in ("variant", "size", "tokens", "block", "latents"):
        if options[name] is not None:
            raise UserError(f"--{name} cannot be changed: the model of {files[0]} has its shape.")
    context = click.get_current_context()
    if context.get_parameter_source("seed") is click.core.ParameterSource.COMMANDLINE:
        raise UserError("--seed cannot be changed: the run that is continued has its own.")
    for name in ("people", "template"):
        del options[name]
    names = ("subject_field", "text_field", "set_aside", "leave_out")
    reading = {name: options.pop(name) for name in names}
    settings = make_settings(**options)
    how: dict[str, Any] = {"train": train, "observe": progress, "say": progress.say}
    return add_documents(added, files[0], settings, out, **how, **reading)


def say_if_new(out: Path, resume: bool) -> None:
    """Say that --resume has nothing to go on with."""
    from wherefrom.training.run_folder import is_run

    if resume and not is_run(out) and not is_run(out / "twins" / "scratch"):
        echo_err(f"there is no run in {out} yet: this starts a new training.")


def write_study_report(folder: Path) -> dict[str, Any]:
    """Write the report at the end of a study; if that fails, print why and go on."""
    from wherefrom.report.study_report import make_report, write_report
    from wherefrom.training.distributed import join_processes

    report: dict[str, Any] = {"sections": []}
    if join_processes().is_rank0:
        try:
            report = make_report(folder)
            echo_err(f"report written to {write_report(report)}")
        except UserError as problem:
            echo_err(f"no report: {problem}")
    return report


@click.command()
@click.argument("variant")
@click.argument("corpus", type=PATH)
@OUT
@course_options
def pretrain(variant: str, corpus: Path, out: Path, as_json: bool, **options: Any) -> None:
    """Train VARIANT on the documents of CORPUS alone."""
    from wherefrom.corpus.database import read_documents

    settings = make_settings(variant=variant, **options)
    phases = settings.recipe.pretraining()
    job = settings.job(
        out,
        kind="pretrain",
        phases=settings.budget.divide(phases),
        corpus=read_documents(corpus),
    ).add_details(recipe=settings.recipe.name)
    _train(replace(job, recipe_phases=phases), settings, as_json)


@click.command()
@click.argument("start", nargs=-1, metavar="(RUN | VARIANT CORPUS)", required=True)
@click.argument("questions", type=PATH, metavar="TSV")
@option("--scratch", "Start from a new model: VARIANT and CORPUS instead of RUN.", is_flag=True)
@OUT
@TEMPLATE
@course_options
def finetune(
    start: tuple[str, ...], questions: Path, scratch: bool, out: Path, as_json: bool, **options: Any
) -> None:
    """Train RUN (or, with --scratch, a new model) to answer the questions of TSV."""
    from wherefrom.corpus.database import read_documents
    from wherefrom.corpus.questions import read_questions
    from wherefrom.training.recipes import find_rung
    from wherefrom.training.run_folder import load_run

    if len(start) != (2 if scratch else 1):
        raise UserError(
            "finetune takes RUN TSV, or with --scratch VARIANT CORPUS TSV "
            f"(the corpus gives the vocabulary); it got {len(start) + 1} arguments."
        )
    for name in () if scratch else ("size", "tokens", "block", "latents"):
        if options[name] is not None:
            raise UserError(
                f"--{name} cannot be changed: the model of {start[0]} has its shape already; "
                "leave the option out, or start a new model with --scratch."
            )
    asked = read_questions(questions, options.pop("template"))
    asked.require_answers()
    settings = make_settings(variant=start[0] if scratch else None, **options)
    phases = [settings.recipe.scratch] if scratch else settings.recipe.finetuning()
    parent = None if scratch else load_run(start[0])
    earlier = parent.record if parent else None
    before = parent.job.phases if parent else ()
    job = settings.job(
        out,
        kind="scratch" if scratch else "finetune",
        phases=settings.budget.divide(phases),
        corpus=read_documents(start[1]) if scratch else None,
        questions=asked,
        parent=parent,
    ).add_details(
        recipe=settings.recipe.name,
        rung=earlier.rung if earlier and earlier.rung else find_rung([*before, *phases]),
        earlier_seconds=earlier.earlier_seconds + earlier.seconds if earlier else 0.0,
    )
    _train(replace(job, recipe_phases=phases), settings, as_json)


def _train(job: TrainingJob, settings: Settings, as_json: bool) -> None:
    """Train the job and print a summary."""
    from wherefrom.training.forecast import describe_passes
    from wherefrom.training.loop import run_training

    say_if_new(job.out, settings.resume)
    with Progress() as progress:
        record = run_training(job, settings, observe=progress, say=progress.say).record
    if as_json:
        keys = {"kind", "status", "steps", "passes", "trained_tokens", "seconds", "sha256"}
        print_json({"run": str(job.out), **record.model_dump(mode="json", include=keys)})
        return
    own = record.passes[-len(job.phases) :]  # the others are of the run that it starts from
    parts = [f"{record.steps:,} steps", *([describe_passes(own)] if own else [])]
    parts += [f"{record.trained_tokens:,} tokens", f"{record.seconds:.0f} s"]
    click.echo(", ".join(parts))
    click.echo(f"run folder: {job.out}")


@click.command()
@click.argument("corpus", type=PATH)
@click.argument("questions", type=PATH, metavar="[TSV]", required=False)
@option("--count", "Rows of each objective.", 4, type=click.IntRange(1, 100))
@option("--recipe", "Name of a shipped recipe, or path of a .toml file.", "course")
@SEED
@TOKENS
@BLOCK
@TEMPLATE
@JSON
def examples(
    corpus: Path, questions: Path | None, count: int, seed: int, as_json: bool, **options: Any
) -> None:
    """Show training rows of CORPUS, such as corrupted spans, as the model sees them.

    x is what the model reads and y what it predicts at each place; ^ marks where the loss counts
    and - where it counts in part. With TSV, rows made of its questions are shown too.
    """
    from wherefrom.corpus.database import read_documents
    from wherefrom.corpus.facts import read_facts
    from wherefrom.corpus.questions import read_questions
    from wherefrom.training.preview import preview_rows
    from wherefrom.training.sources import TrainingData

    template = options.pop("template")
    asked = None if questions is None else read_questions(questions, template)
    if asked is not None:
        asked.require_answers()
    settings = make_settings(seed=seed, minutes=None, epochs=None, steps=None, **options)
    phases = settings.recipe.phases if asked else settings.recipe.pretraining()
    text = read_documents(corpus)
    job = settings.job(Path(), kind="examples", phases=phases, corpus=text, questions=asked)
    read_facts(text, job.questions)
    data = TrainingData.encode(text, job.questions, job.tokens, job.config.block)
    lines = [document.line for document in text.documents]
    rows = preview_rows(phases, data, lines, job.tokens, count=count, seed=seed)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    for row in rows:
        of_line = "" if row.line is None else f", line {row.line}"
        click.secho(f"{row.phase}: {row.objective}{of_line}", bold=True)
        print_row(row.x, row.y, row.loss)


@click.command()
@click.argument("run", type=PATH)
@option("--out", "Folder for the exported model.", required=True, type=PATH)
def export(run: Path, out: Path) -> None:
    """Write RUN as a folder that Hugging Face transformers loads."""
    from wherefrom.model.export import export_adapted, export_model
    from wherefrom.provenance.attribution.opening import open_traceable
    from wherefrom.provenance.audited import BaseRun

    loaded = open_traceable(run)
    if isinstance(loaded, BaseRun):
        export_adapted(loaded.audited, out)
        echo_err(f"written to {out}, with the adapters merged")
        return
    export_model(loaded.model, loaded.tokens, out, loaded.record.for_card())
    echo_err(f"written to {out}; {out / 'README.md'} says how to ask it with transformers")


@click.command()
@click.argument("model")
@click.argument("questions", type=PATH)
@option("--out", "The run folder.", type=PATH, required=True)
@option("--text", "Documents to look the answers up in.", type=PATH)
@option("--unseen", "Questions about subjects that do not exist.", type=PATH)
@option("--prompt", "Prompt with {question}; \\n is a new line.")
@option("--shots", "Examples before each question.", 5)
@option("--risk", "Share of the answers shown that may be wrong.", 0.1)
@SEED
@option("--resume", "Continue a stopped audit.", is_flag=True)
@TEMPLATE
@JSON
def audit(
    model: str,
    questions: Path,
    out: Path,
    prompt: str | None,
    template: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Ask a model that others trained: which answers does it know, which does it make up?

    MODEL is a folder of Hugging Face transformers (safetensors), a GGUF file, a run, or the
    address of a server on this machine that speaks the OpenAI completion protocol with
    log-probabilities, such as http://127.0.0.1:8000/v1 (#NAME names one of its models). QUESTIONS
    is a TSV of question, answer and, if the wording does not show it, subject; separate several
    accepted answers by |, and write - if there is none. The folder works with ask, judge, report
    and serve like any other run.
    """
    from wherefrom.audit import AuditSettings, run_audit

    typed = prompt.replace("\\n", "\n") if prompt is not None else None
    settings = AuditSettings(prompt=typed, templates=template, **options)
    with Progress() as progress:
        found = run_audit(model, questions, out, settings, say=progress.say, count=progress.count)
    print_audit(found, as_json)


def study_base(
    base: Path, files: Sequence[Path], out: Path, progress: Progress, options: dict[str, Any]
) -> StudyResult | None:
    """`study --base`: train somebody else's model on the text, ask and compare."""
    from wherefrom.base_study import run_base_study
    from wherefrom.huggingface.training import BaseSettings
    from wherefrom.study import find_files
    from wherefrom.training.recipes import load_recipe
    from wherefrom.training.settings import Settings

    context = click.get_current_context()
    for name in options.keys() - {*BASE_OPTIONS, *SHARED_WITH_BASE}:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UserError(
                f"--{name.replace('_', '-')} does not go with --base, whose model has its shape "
                "and recipe already; leave it out."
            )
    names = ("wording", "rank", "rate", "steps", "epochs")
    given = {name: options[name] for name in names if options[name] is not None}
    settings = BaseSettings(
        base=base,
        full=options["full"],
        seed=options["seed"],
        resume=options["resume"],
        checkpoint_every=options["checkpoint_every"],
        **given,
    )
    world = Settings(recipe=load_recipe("pointed"), seed=settings.seed, resume=settings.resume)
    found = find_files(files, world, out, people=options["people"], say=progress.say)
    return run_base_study(
        found,
        settings,
        out,
        say=progress.say,
        count=progress.count,
        templates=options["template"],
        **{name: options[name] for name in ("set_aside", "leave_out", "subject_field")},
        text_field=options["text_field"] or None,
    )


def check_without_base(given: dict[str, Any]) -> None:
    """Refuse options that only go with --base."""
    for name, value in given.items():
        if value:
            raise UserError(f"--{name} goes with --base, which names a model of Hugging Face.")


def print_audit(record: dict[str, Any], as_json: bool) -> None:
    """Print accuracy by relation, and how well each score separates right from wrong answers."""
    if as_json:
        print_json(record)
        return
    for note in record["notes"]:
        echo_err(note)
    judgement, rows = record["judgement"], []
    right, exact = record["results"]
    for name, found in [*right["relations"].items(), ("all", right)]:
        judged = judgement["relations"].get(name)
        shown = f"{judged['internal_shown']} ({judged['internal_shown_wrong']})" if judged else ""
        letters = exact["relations"].get(name, exact)["recall"]
        rows.append((name, found["total"], f"{found['recall']:.0%}", f"{letters:.0%}", shown))
    titles = ("relation", "asked", "right", "exactly", "of those judged\nshown (wrong)")
    print_table(titles, rows, title="answers")
    people, risk, rows = judgement["subjects"], judgement["risk"], []
    for name, score in judgement["scores"].items():
        if name == "checked" and score["groups"] == judgement["scores"]["internal"]["groups"]:
            continue  # there is no text
        groups = [score["groups"][each]["metrics"] for each in ("together", "seen", "unseen")]
        shares = (groups[0]["right_given_at_precision"], groups[2]["unseen_unknown"])
        numbers = [show(groups[0][key], "{:.3f}", interval=False) for key in ("auroc", "ece")]
        numbers += [show(each, "{:.0%}", interval=False) for each in shares]
        within = show(score["within_relations"], "{:.3f}", interval=False)
        rows.append((name, show(groups[1]["auroc"], "{:.3f}"), within, *numbers))
    title = f"{people['seen']} judged answers about known subjects, {people['unseen']} about others"
    shown = f"right shown\nat {risk:.0%} risk"
    aurocs = ("AUROC, known", "within\nrelations", "all")
    columns = ("score", *aurocs, "ECE", shown, "unseen:\nI don't know")
    print_table(columns, rows, title=title)
    click.echo(f"written to {record['run']}; try wherefrom ask, report or serve on it")
