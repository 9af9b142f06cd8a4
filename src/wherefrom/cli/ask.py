"""Commands that ask a run: ask, attention, judge, names."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wherefrom.cli.output import (
    JSON,
    PATH,
    RUN,
    SEED,
    Progress,
    echo_err,
    open_run,
    option,
    print_json,
    print_sections,
    print_table,
)
from wherefrom.cli.trace import show_trace
from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.provenance.ask import Asker
    from wherefrom.provenance.verdicts import Verdict

MAX_STDIN_BYTES = 1 << 28  # read from a pipe
# sections of the report that `judge` prints; --json has the other metrics and all intervals
JUDGE_SECTIONS = (
    "documents",
    "confidence",
    "grades",
    "silence",
    "risk",
    "probabilities",
    "calibration",
    "verdicts",
)
LEVEL_OPTION = option("--level", "Confidence level of the intervals.", 0.95)
GUARANTEE_OPTION = option(
    "--guarantee",
    "What is guaranteed of the answers shown: from the text, or right.",
    "from-text",
    type=click.Choice(["from-text", "right"]),
)


@click.command()
@click.argument("words", nargs=-1, metavar="[RUN] [QUESTION]...")
@option("--file", "Ask the questions of a TSV: question, answer, subject.", type=PATH)
@option("--always-answer", "Show every answer, even an unsure one.", is_flag=True)
@option("--risk", "Share of the answers shown that may break it; default: 0.05.", type=float)
@GUARANTEE_OPTION
@option("--trace traced", "Also show which lines pushed each answer.", is_flag=True)
@JSON
def ask(
    words: tuple[str, ...], file: Path | None, traced: bool, as_json: bool, **options: Any
) -> None:
    """Ask RUN (default: the newest) and say where each answer came from.

    A QUESTION in the run's own words, such as "Where was Fryderyk Kozar born?", is always
    understood. One in other words is answered if only one relation can be meant; otherwise you are
    asked which. A name alone asks everything about it. Of two subjects of one name, a word of its
    text or its line picks one: "the painter Ann Lee", "Ann Lee (line 40)". "-" reads questions from
    stdin, one a line.
    """
    folder, questions = _find_run(words)
    if not questions and file is None:
        raise UserError(
            'ask takes a question, as in wherefrom ask "Where was Fryderyk Kozar born?", or '
            "--file TSV, or - for questions on stdin; it got none."
        )
    from wherefrom.corpus.documents import read_lines
    from wherefrom.provenance.ask import as_rows, open_asker, read_rows
    from wherefrom.provenance.verdicts import add_trace

    rows = as_rows([question for question in questions if question != "-"])
    if "-" in questions:
        rows += read_rows(_stdin_lines(), "stdin", correct_names=True)
    if file is not None:
        rows += read_rows(list(read_lines(file, "questions")), str(file))
    with open_asker(folder, say=echo_err) as asker, Progress() as progress:
        rows = asker.expand_names(rows)
        options["report"] = progress.count("asking", len(rows))
        verdicts = asker.ask_rows(rows, **options)
        if _is_conversation(as_json) and "-" not in questions:
            progress.close()
            verdicts = [_ask_back(asker, verdict, options) for verdict in verdicts]
    traces = _trace(folder, verdicts) if traced else [None] * len(verdicts)
    pairs = [
        (add_trace(verdict, trace) if trace else verdict, trace)
        for verdict, trace in zip(verdicts, traces, strict=True)
    ]
    refused = [verdict for verdict in verdicts if verdict.error]
    if as_json and len(refused) < len(verdicts):
        print_json([v.to_dict() | ({"trace": trace} if trace else {}) for v, trace in pairs])
    else:
        for verdict, trace in pairs:
            if not verdict.error:
                _show_verdict(verdict, trace, is_one_of_several=len(verdicts) > 1)
    if refused:
        for verdict in refused[:-1]:
            click.echo(f"wherefrom: {verdict.error}", err=True)
        raise UserError(str(refused[-1].error))


def _show_verdict(
    verdict: Verdict, trace: dict[str, Any] | None, *, is_one_of_several: bool
) -> None:
    """Print a verdict; first its question, if there are others or if it was read as another."""
    from wherefrom.errors import shorten

    if is_one_of_several:
        click.echo(shorten(verdict.asked or verdict.question))
    if verdict.asked:
        numbers = ", ".join(map(str, verdict.lines))
        of_lines = f"; by line {numbers} alone" if verdict.lines else ""
        click.echo(f"(read as: {verdict.question}{of_lines})")
    click.echo(str(verdict))
    if trace:
        show_trace(trace, answer=False)
    if is_one_of_several:
        click.echo()


def _is_conversation(as_json: bool) -> bool:
    """Whether somebody is there who can be asked back."""
    return not as_json and sys.stdin.isatty() and sys.stdout.isatty()


def _ask_back(asker: Asker, verdict: Verdict, options: dict[str, Any]) -> Verdict:
    """The verdict on the question that was meant, if the user says which; else the refusal."""
    meant = list(verdict.did_you_mean)
    if not meant:
        return verdict
    if len(meant) == 1:
        is_meant = click.confirm(f'Did you mean "{meant[0]}"', default=True)
        chosen = meant[0] if is_meant else ""
    else:
        for number, question in enumerate(meant, start=1):
            click.echo(f"{number}  {question}")
        numbers = click.Choice([*map(str, range(1, len(meant) + 1)), "n"])
        answer = click.prompt("Did you mean one of these", type=numbers, default="n")
        chosen = "" if answer == "n" else meant[int(answer) - 1]
    return asker.ask(chosen, **options) if chosen else verdict


def _trace(folder: Path, verdicts: Sequence[Verdict]) -> list[dict[str, Any] | None]:
    """The trace of each verdict's answer; None if the question was refused."""
    from wherefrom.provenance.attribution.trace import open_tracer

    tracer = open_tracer(folder, say=echo_err)
    return [
        None if each.error else tracer.trace(each.question, answer=each.answer) for each in verdicts
    ]


def _find_run(words: tuple[str, ...]) -> tuple[Path, list[str]]:
    """The run named by the first word, or else the newest run; and the remaining words."""
    from wherefrom.training.run_folder import find_newest_run, is_run

    if words and is_run(words[0]):
        return Path(words[0]), list(words[1:])
    first = words[0] if words else "-"
    try:  # a folder or path that is not a run is a typing mistake, not a question
        is_path = Path(first).is_dir() or ("/" in first and " " not in first)
    except (OSError, ValueError):  # too long for a path, or with a NUL in it
        is_path = False
    # one word before a question is a run that was mistyped
    is_word = first != "-" and " " not in first and any(" " in word for word in words[1:])
    if is_path or is_word:
        raise UserError(f"{first} is not a run: it holds no run.json.")
    folder = find_newest_run()
    echo_err(f"asking the newest run, {folder}")
    return folder, list(words)


def _stdin_lines() -> Sequence[tuple[int, str]]:
    """The non-blank lines of stdin with their numbers."""
    from wherefrom.corpus.documents import number_lines

    raw = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(raw) > MAX_STDIN_BYTES:
        raise UserError(f"stdin has more than {MAX_STDIN_BYTES:,} bytes; split the questions.")
    try:
        lines = [line for line in number_lines(io.BytesIO(raw)) if line[1].strip()]
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        raise UserError(f"stdin, line {line}: this is not UTF-8; send it as UTF-8.") from None
    if not lines:
        raise UserError("stdin has no question; write one per line.")
    return lines


@click.command()
@click.argument("run", type=PATH)
@click.argument("question")
@option("--plot", "Write the maps as an HTML page.", type=PATH)
@JSON
def attention(run: Path, question: str, plot: Path | None, as_json: bool) -> None:
    """Show where each head of RUN looks just before it answers QUESTION."""
    from wherefrom.corpus.questions import match_any
    from wherefrom.provenance.ask import open_asker
    from wherefrom.provenance.attribution.heads import look_inside_any
    from wherefrom.provenance.attribution.opening import open_traceable

    if not question.strip():
        raise UserError("the question is empty; write one.")
    loaded = open_traceable(run)
    subject = match_any(loaded.templates, question)[0] or None
    with suppress(UserError), open_asker(loaded) as asker:  # any other text is read as typed
        understood = asker.understand(question)
        question, subject = understood.text, understood.subject
    view, answer = look_inside_any(loaded, question, subject)
    if plot is not None:
        from wherefrom.report.workbench_figures import write_inside_page

        write_inside_page(view, answer, plot)
        echo_err(f"maps written to {plot}")
    if as_json:
        print_json({"run": str(run), "answer": answer, "subject": subject, **view.to_dict()})
        return
    if subject is None:
        echo_err("the question fits no template of the run, so the weight on the name is unknown.")
    rows = []
    for head in view.heads:
        top = int(head.weights.argmax())
        token = view.tokens[top] if head.mass_on_name is not None else f"latent {top}"
        on_name = head.mass_on_name if view.name else None
        numbers = (on_name, head.effective_keys, head.margin, head.implied_beta)
        shown = ("" if number is None else f"{number:.3g}" for number in numbers)
        other = "none" if head.second_weights is None else f"{head.second_distance:.2f} away"
        place = f"{head.layer}.{head.head}"
        rows.append((place, f"{token!r} {head.weights[top]:.2f}", *shown, other))
    columns = ("head", "looks most at", "on the name", "keys", "margin", "beta", "other weights")
    print_table(columns, rows, title=f"{question}  {answer}")


@click.command()
@RUN
@option("--risk", "Share of wrong answers to allow; default: the study's.", type=float)
@GUARANTEE_OPTION
@LEVEL_OPTION
@option("--resamples", "Bootstrap resamples for the intervals.", 1000)
@SEED
@JSON
def judge(run: Path | None, as_json: bool, **options: Any) -> None:
    """Judge the verdicts of RUN (default: the newest) on subjects held out for that.

    The result replaces the study's own judgement in RUN.
    """
    from wherefrom.corpus.split import read_subjects
    from wherefrom.provenance.after_training import TimeLeft
    from wherefrom.provenance.judging import judge_run, write_judgement
    from wherefrom.report.study_report import make_report

    loaded = open_run(run)
    subjects = len(read_subjects(loaded.folder))
    judgement = judge_run(loaded, report=TimeLeft("asked", subjects, echo_err), **options)
    kept = f"written to {loaded.folder}: run.sqlite, judgement.json, run.json"
    try:
        write_judgement(loaded, judgement)
    except UserError as problem:
        kept = f"the run does not keep this judgement: {problem}"
    if as_json:
        print_json({"run": str(loaded.folder), **judgement.record})
        return
    report = make_report(loaded.folder, judgement=judgement.record, judged=judgement.rows)
    print_sections(report, JUDGE_SECTIONS)
    for note in judgement.record["notes"]:
        echo_err(note)
    echo_err(kept)


@click.command()
@RUN
@option("--people", "Invented names per origin.", 20)
@LEVEL_OPTION
@SEED
@JSON
def names(run: Path | None, people: int, as_json: bool, **options: Any) -> None:
    """Ask RUN (default: the newest) about invented names: what does it guess from them?"""
    from wherefrom.provenance.names import FILE, probe_run
    from wherefrom.report.study_report import make_report
    from wherefrom.storage import format_json
    from wherefrom.training.record import keep_files

    loaded = open_run(run)
    if loaded.model is None:
        raise UserError(
            f"{loaded.folder} is about a model that others trained, and names asks the small "
            "models that Wherefrom trains; give such a run."
        )
    record = probe_run(loaded, each=people, **options)
    kept = f"written to {loaded.folder}: {FILE}"
    try:
        keep_files(loaded.folder, {FILE: format_json(record)})
    except UserError as problem:
        kept = f"the run does not keep this: {problem}"
    if as_json:
        print_json({"run": str(loaded.folder), **record})
        return
    print_sections(make_report(loaded.folder, origins=record), ("names",))
    echo_err(kept)
