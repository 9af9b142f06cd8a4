"""The command that looks inside a trained model."""

from __future__ import annotations

from pathlib import Path

import click

from wherefrom.cli.output import echo_err, print_json, print_table


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("question")
@click.option("--maps", is_flag=True, help="With --json: every layer's whole map of weights too.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write the maps as an HTML page.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def attention(run: Path, question: str, maps: bool, plot: Path | None, as_json: bool) -> None:
    """Show where each head of RUN looks as it is about to answer QUESTION."""
    from wherefrom.corpus.questions import match_template
    from wherefrom.recall.decode import answer_all
    from wherefrom.recall.inside import look_inside
    from wherefrom.training.run_folder import load_run

    loaded = load_run(run)
    subject = match_template(loaded.template, question) if loaded.template else None
    view = look_inside(loaded.model, loaded.tokens, question, subject)
    answer = answer_all(loaded.model, loaded.tokens, [question])[0]
    if plot is not None:
        from wherefrom.report.inside_page import write_inside_page

        write_inside_page(view, answer.text, plot)
        echo_err(f"maps written to {plot}")
    if as_json:
        record = {"run": str(run), "answer": answer.text, "subject": subject, **view.to_dict()}
        if maps:
            record["maps"] = [layer.round(6).tolist() for layer in view.maps]
        print_json(record)
        return
    if subject is None:
        echo_err("no name was found by the run's template, so no mass on it is shown.")
    rows = []
    for head in view.heads:
        top = int(head.weights.argmax())
        token = view.tokens[top] if head.mass_on_name is not None else f"latent {top}"
        rows.append(
            (
                f"{head.layer}.{head.head}",
                f"{token!r} {head.weights[top]:.2f}",
                "" if head.mass_on_name is None or not view.name else f"{head.mass_on_name:.3f}",
                f"{head.effective_keys:.1f}",
                "" if head.margin is None else f"{head.margin:.2f}",
                "" if head.implied_beta is None else f"{head.implied_beta:.2f}",
                f"{head.second_distance:.2f} away" if head.second is not None else "none",
            )
        )
    columns = ("head", "looks most at", "on the name", "keys", "margin", "beta", "other weights")
    print_table(columns, rows, title=f"{question}  {answer.text}")
