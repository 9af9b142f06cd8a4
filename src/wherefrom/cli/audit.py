"""The command that audits a model that others trained."""

from __future__ import annotations

from typing import Any

import click

from wherefrom.cli.output import (
    JSON,
    PATH,
    TEMPLATE,
    Progress,
    option,
    print_json,
    print_table,
    show,
)


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
@TEMPLATE
@JSON
def audit(prompt: str | None, template: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Ask MODEL the QUESTIONS, and say which of its answers are known and which made up.

    MODEL is a folder of Hugging Face transformers (safetensors), a GGUF file, or a run. QUESTIONS
    is a TSV of question, answer and, where the wording does not show it, subject; several answers
    that are accepted are separated by |, and - stands for none. The folder can be asked, judged,
    reported on and served like any other run.
    """
    from wherefrom.audit.job import run_audit

    prompt = prompt.replace("\\n", "\n") if prompt is not None else None
    with Progress() as progress:
        found = run_audit(
            prompt=prompt,
            templates=template,
            say=progress.say,
            count=progress.count,
            **options,
        )
    if as_json:
        print_json(found)
        return
    for note in found["notes"]:
        progress.say(note)
    print_audit(found)


def print_audit(record: dict[str, Any]) -> None:
    """Accuracy by relation, and how well right answers are told from wrong ones."""
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
        groups = [score["groups"][each]["metrics"] for each in ("together", "seen", "unseen")]
        shares = (groups[0]["right_given_at_precision"], groups[2]["unseen_unknown"])
        among_known = show(groups[1]["auroc"], "{:.3f}")
        rest = [show(groups[0][key], "{:.3f}", interval=False) for key in ("auroc", "ece")]
        rest += [show(each, "{:.0%}", interval=False) for each in shares]
        rows.append((name, among_known, *rest))
    title = f"{people['seen']} judged answers about known subjects, {people['unseen']} about others"
    shown = f"right shown\nat {risk:.0%} risk"
    columns = ("score", "AUROC, known", "AUROC, all", "ECE", shown, "unseen:\nI don't know")
    print_table(columns, rows, title=title)
    click.echo(f"written to {record['run']}; try wherefrom ask, report or serve on it")
