"""The command that audits a model that others trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from wherefrom.cli import output
from wherefrom.cli.output import PATH, option, print_table, show
from wherefrom.errors import UserError


@click.command()
@click.argument("model")
@click.argument("questions", type=PATH)
@option("--out", "The run folder.", type=PATH, required=True)
@option("--text", "Documents in which answers are looked up.", type=PATH)
@option("--unseen", "Questions about subjects that do not exist.", type=PATH)
@option("--prompt", "What the model is given, with {question}; \\n is a new line.")
@option("--shots", "Examples before each question.", 5)
@option("--risk", "Share of shown answers that may be wrong.", 0.1)
@option("--seed", "Decides all that is random.", 0)
@option("--resume", "Go on with an audit that was stopped.", is_flag=True)
@output.TEMPLATE
@output.JSON
def audit(prompt: str | None, template: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Ask MODEL the QUESTIONS, and say which of its answers are known and which made up.

    MODEL is a folder of Hugging Face transformers (safetensors), a GGUF file, or a run. QUESTIONS
    is a TSV of question, answer and, where the wording does not show it, subject; several answers
    that are accepted are separated by |, and - stands for none. The folder can be asked, judged,
    reported on and served like any other run.
    """
    from wherefrom.audit.job import run_audit

    options["prompt"] = prompt.replace("\\n", "\n") if prompt is not None else None
    with output.Progress() as progress:
        options |= {"say": progress.say, "count": progress.count}
        found = run_audit(templates=template, **options)
    print_audit(found, as_json)


def study_other(
    base: str, files: Sequence[Path], out: Path, as_json: bool, options: dict[str, Any]
) -> None:
    """`study --base`: a model that others trained learns the text, and is audited on dev."""
    from wherefrom.audit.finetune import study_base

    context, fits = click.get_current_context(), ("steps", "epochs", "seed", "resume")
    for name in options.keys() - {*fits, "template"}:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UserError(
                f"--{name.replace('_', '-')} does not go with --base, whose model has its shape "
                "already; it takes --steps, --epochs, --seed, --template and --resume."
            )
    kept = {name: options[name] for name in fits} | {"templates": options["template"]}
    with output.Progress() as progress:
        found = study_base(base, files, out, say=progress.say, count=progress.count, **kept)
    if found is not None:
        print_audit(found, as_json)


def print_audit(record: dict[str, Any], as_json: bool) -> None:
    """Accuracy by relation, and how well right answers are told from wrong ones."""
    if as_json:
        output.print_json(record)
        return
    for note in record["notes"]:
        output.echo_err(note)
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
        rows.append((name, show(groups[1]["auroc"], "{:.3f}"), *numbers))
    title = f"{people['seen']} judged answers about known subjects, {people['unseen']} about others"
    shown = f"right shown\nat {risk:.0%} risk"
    columns = ("score", "AUROC, known", "AUROC, all", "ECE", shown, "unseen:\nI don't know")
    print_table(columns, rows, title=title)
    click.echo(f"written to {record['run']}; try wherefrom ask, report or serve on it")
