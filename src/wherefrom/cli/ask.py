"""`wherefrom ask`: questions in; answers out, each with where it came from and how sure that is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from wherefrom.cli.completion import complete_paths
from wherefrom.cli.output import echo_err, is_verbose, print_json
from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.provenance.ask import AskedRow
    from wherefrom.provenance.verdicts import Verdict

PATH = click.Path(path_type=Path)
MOST_BYTES = 1 << 28  # that are read from a pipe
PATIENCE = 2.0  # seconds before progress is shown
LINE_EVERY = 10.0  # seconds between its lines where stderr is no terminal
SHOWN_WIDTH = 20
TEXT_WIDTH = 200  # characters of a document that are shown


@click.command()
@click.argument("words", nargs=-1, metavar="[RUN] [QUESTION]...", shell_complete=complete_paths)
@click.option("--file", "file", type=PATH, help="Questions of a TSV: question, answer, subject.")
@click.option("--answers", type=PATH, help="Judge another model's answers: question, answer, ...")
@click.option("--always-answer", is_flag=True, help="Show the answer however unsure it is.")
@click.option("--risk", type=float, help="Share of shown answers that may be wrong, as 0.05.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of verdicts as JSON.")
def ask(
    words: tuple[str, ...],
    file: Path | None,
    answers: Path | None,
    always_answer: bool,
    risk: float | None,
    as_json: bool,
) -> None:
    """Ask RUN (the newest if left out) and say where each answer came from.

    A QUESTION is worded as the run was taught: "Where was Ada Moe born?". "-" reads more of them
    from stdin, one a line.
    """
    from wherefrom.training.run_folder import find_newest_run, is_run

    questions = list(words)
    if words and is_run(words[0]):
        folder = Path(questions.pop(0))
    else:
        _refuse_no_run(words)
        folder = find_newest_run()
        echo_err(f"asking the newest run, {folder}")
    if answers is not None and (questions or file is not None):
        raise UserError("--answers brings its own questions; leave the others out.")
    if not questions and file is None and answers is None:
        raise UserError(
            'ask takes a question, as in wherefrom ask "Where was Ada Moe born?", or --file TSV, '
            "or - for questions on stdin; none came."
        )
    from wherefrom.provenance.ask import open_asker
    from wherefrom.provenance.judging.external_answers import judge_answers

    rows = _answer_rows(answers) if answers is not None else _question_rows(questions, file)
    with open_asker(folder, say=echo_err) as asker, _Progress(len(rows)) as progress:
        if answers is None:
            verdicts = asker.ask_rows(rows, always_answer=always_answer, risk=risk, report=progress)
        else:
            judged = judge_answers(
                asker, rows, always_answer=always_answer, risk=risk, report=progress
            )
            verdicts = judged.verdicts
            if judged.note:
                echo_err(judged.note)
    if as_json:
        print_json([verdict.to_dict() for verdict in verdicts])
        return
    for verdict in verdicts:
        _tell(verdict, many=len(verdicts) > 1)


def _refuse_no_run(words: tuple[str, ...]) -> None:
    """A folder or path that is no run is a slip of the hand, not a question."""
    if not words or words[0] == "-":
        return
    first = words[0]
    try:
        is_folder = Path(first).is_dir()
    except (OSError, ValueError):  # too long for a path, or with a NUL in it
        return
    if is_folder or ("/" in first and " " not in first):
        raise UserError(f"{first} is not a run: it holds no run.json.")


def _question_rows(questions: list[str], file: Path | None) -> list[AskedRow]:
    """The questions in the order of the command line, those of --file behind them."""
    from wherefrom.corpus.documents import read_lines
    from wherefrom.provenance.ask import as_rows, read_question_rows

    typed = [question for question in questions if question != "-"]
    rows = as_rows(typed)
    if "-" in questions:
        rows += read_question_rows(_stdin_lines(), "stdin")
    if file is not None:
        rows += read_question_rows(read_lines(file, "questions").lines, str(file))
    return rows


def _answer_rows(file: Path) -> list[AskedRow]:
    from wherefrom.corpus.documents import read_lines
    from wherefrom.provenance.ask import read_answer_rows

    return read_answer_rows(read_lines(file, "answers").lines, str(file))


def _stdin_lines() -> list[tuple[int, str]]:
    """The lines of stdin that are not blank, numbered."""
    raw = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise UserError(f"stdin brings more than {MOST_BYTES:,} bytes; split the questions.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        raise UserError(f"stdin, line {line}: this is not UTF-8; send it as UTF-8.") from None
    lines = [
        (number, line.removesuffix("\r"))
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
    if not lines:
        raise UserError("stdin brings no question; write one a line.")
    return lines


def _tell(verdict: Verdict, *, many: bool) -> None:
    """One verdict for a person: what is shown, what it is, the lines, and why."""
    from wherefrom.provenance.verdicts import percent, shorten

    if many:
        click.echo(shorten(verdict.question))
    sure = verdict.confidence if verdict.confidence is not None else verdict.internal_confidence
    parts = [verdict.verdict or "not looked up"]
    if sure is not None:
        parts.append(f"{percent(sure)} likely to be right")
    alone = verdict.internal_confidence
    aside = f" ({percent(alone)} by the model alone)" if verdict.confidence and alone else ""
    click.echo(f"{shorten(verdict.shown):<{SHOWN_WIDTH}}{'; '.join(parts)}{aside}")
    for line in verdict.evidence:
        click.echo(f"  line {line.line:<5} {_window(line.text, verdict.answer)}")
    click.echo(f"  {verdict.why}")
    if many:
        click.echo()


def _window(text: str, answer: str) -> str:
    """A document as far as it fits a screen, with the answer in sight."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(shown) <= TEXT_WIDTH:
        return shown
    at = shown.casefold().find(answer.casefold()) if answer else -1
    start = 0 if at + len(answer) <= TEXT_WIDTH else at - TEXT_WIDTH // 2
    cut = shown[start : start + TEXT_WIDTH]
    return f"{'...' if start else ''}{cut}{'...' if start + TEXT_WIDTH < len(shown) else ''}"


class _Progress:
    """How many questions are done, on stderr, for whoever has waited two seconds."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._began = time.monotonic()
        self._last = 0.0
        self._bar: Any = None

    def __call__(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if not is_verbose() or now - self._began < PATIENCE:
            return
        if sys.stderr.isatty():
            self._draw()
        elif now - self._last > LINE_EVERY:
            self._last = now
            echo_err(f"{self._done:,} of {self._total:,} questions asked")

    def _draw(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._bar.add_task("asking", total=self._total)
        self._bar.update(self._bar.task_ids[0], completed=self._done)

    def __enter__(self) -> Callable[[int], None]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
