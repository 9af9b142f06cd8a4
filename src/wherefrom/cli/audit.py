"""The command that audits a model that others trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wherefrom.cli.output import JSON, PATH, TEMPLATE, option, print_json, print_table, show
from wherefrom.cli.progress import Progress

ROWS = ("pretrained", "exact")  # of the results, as a study names its own


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
def audit(
    model: str,
    questions: Path,
    out: Path,
    prompt: str | None,
    template: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Ask MODEL the QUESTIONS, and say which of its answers are known and which made up.

    MODEL is a folder of Hugging Face transformers (safetensors), a GGUF file, or a run. QUESTIONS
    is a TSV of question, answer and, where the wording does not show it, subject; several answers
    that are accepted are separated by |, and - stands for none. The folder can be asked, judged,
    reported on and served like any other run.
    """
    from wherefrom.audit.job import run_audit

    with Progress() as progress:
        found = run_audit(
            model,
            questions,
            out,
            prompt=prompt.replace("\\n", "\n") if prompt is not None else None,
            templates=template,
            say=progress.say,
            count=progress.count,
            **options,
        )
    if as_json:
        print_json(found.to_dict())
        return
    for note in found.notes:
        progress.say(note)
    print_audit(found.to_dict())


def print_audit(record: dict[str, Any]) -> None:
    """Accuracy by relation, and how well right answers are told from wrong ones."""
    by_name = {row["name"]: row for row in record["results"]}
    relations = record["judgement"]["relations"]
    rows = []
    for name, found in [
        *by_name["pretrained"]["relations"].items(),
        ("all", by_name["pretrained"]),
    ]:
        exact = by_name["exact"]["relations"].get(name, by_name["exact"])
        judged = relations.get(name, {})
        shown = f"{judged['internal_shown']} ({judged['internal_shown_wrong']})" if judged else ""
        shares = (f"{each['recall']:.0%}" for each in (found, exact))
        rows.append((name, found["total"], *shares, shown))
    titles = ("relation", "asked", "right", "exactly", "of those judged\nshown (wrong)")
    print_table(titles, rows, title="answers")
    scores = record["judgement"]["scores"]
    rows = []
    for name, score in scores.items():
        together, seen, unseen = (
            score["groups"][group]["metrics"] for group in ("together", "seen", "unseen")
        )
        rows.append(
            (
                name,
                show(seen["auroc"], "{:.3f}"),
                show(together["auroc"], "{:.3f}", interval=False),
                show(together["ece"], "{:.3f}", interval=False),
                show(together["right_given_at_precision"], "{:.0%}", interval=False),
                show(unseen["unseen_unknown"], "{:.0%}", interval=False),
            )
        )
    people, risk = record["judgement"]["people"], record["judgement"]["risk"]
    title = f"{people['seen']} judged answers about known subjects, {people['unseen']} about others"
    columns = (
        "score",
        "AUROC, known",
        "AUROC, all",
        "ECE",
        f"right shown\nat {risk:.0%} risk",
        "unseen:\nI don't know",
    )
    print_table(columns, rows, title=title)
    click.echo(f"written to {record['run']}; try wherefrom ask, report or serve on it")
