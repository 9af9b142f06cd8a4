"""`wherefrom problems` and `wherefrom check`: what can be asked, and what was answered.

Exit codes of a check: 0 proved or holds, 1 refuted, 3 inconclusive, 2 may not be written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wherefrom.cli.output import (
    JSON,
    PATH,
    complete_problems,
    echo_err,
    option,
    print_json,
    print_table,
)
from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.attention.checker.grading import Answer
    from wherefrom.attention.checker.problems import CheckResult


@click.command()
@click.argument("name", required=False, shell_complete=complete_problems)
@option("--no-solutions", "Leave the example answers out.", is_flag=True)
@JSON
def problems(name: str | None, no_solutions: bool, as_json: bool) -> None:
    """List the problems that a construction can be checked against, or describe one."""
    from wherefrom.attention.checker.problems import PROBLEMS, find_problem

    shown = list(PROBLEMS.values()) if name is None else [find_problem(name)]
    if as_json:
        hidden = {"example"} if no_solutions else set()
        records = [{k: v for k, v in p.to_dict().items() if k not in hidden} for p in shown]
        print_json(records if name is None else records[0])
        return
    if name is None:
        rows = [(p.name, p.title, " ".join(p.example)) for p in shown]
        columns = ("problem", "what is asked", "an answer")[: 2 if no_solutions else 3]
        print_table(columns, [row[: len(columns)] for row in rows])
        echo_err("wherefrom problems NAME describes one of them.")
        return
    [problem] = shown
    lines = [
        ("given", problem.given),
        ("goal", problem.goal),
        ("in symbols", problem.symbols),
        ("for whom", problem.quantifiers),
        ("tolerance", f"{problem.tolerance:g}: {problem.tolerance_means}"),
        ("write", " or ".join(" ".join(f'"{n}=..."' for n in f) for f in problem.forms)),
        ("for example", " ".join(f'"{text}"' for text in problem.example)),
    ]
    print_table(("problem", problem.name), lines[:-1] if no_solutions else lines)
    names = [(g.name, str(g.shape), g.meaning, " ".join(g.aliases)) for g in problem.givens]
    print_table(("name", "shape", "meaning", "also written"), names)


@click.command()
@click.argument("problem", required=False, shell_complete=complete_problems)
@click.argument("formulas", nargs=-1)
@JSON
@option("--tolerance", "How near is near enough.", type=float)
@option("--seed", "Decides the drawn instances.", 0)
@option("--grade grade_file", "Grade a file or folder.", type=PATH)
@option("--rubric", "Problems and points for --grade.", type=PATH)
@option(
    "--format form",
    "How --grade reports; table unless told.",
    type=click.Choice(["table", "json", "csv", "gradescope", "otter"]),
)
@option("--out", "Where grades are written.", type=PATH)
def check(
    problem: str | None, formulas: tuple[str, ...], as_json: bool, tolerance: float | None,
    seed: int, grade_file: Path | None, rubric: Path | None, form: str | None, out: Path | None,
) -> int:  # fmt: skip
    """Check a construction: wherefrom check average "q=beta*(k_a+k_b)"."""
    if grade_file is not None:
        if problem is not None or tolerance is not None:
            raise UserError("--grade takes problems, formulas and tolerances from its file.")
        _grade(grade_file, rubric, form or ("json" if as_json else "table"), out, seed)
        return 0
    if rubric is not None or form is not None or out is not None:
        raise UserError("--rubric, --format and --out belong to --grade.")
    if problem is None or not formulas:
        raise UserError(
            'check needs a problem and a formula, as in: wherefrom check average "q=beta*(k_a+k_b)"'
            " (wherefrom problems lists them)."
        )
    from wherefrom.attention.checker.check import check as judge

    verdict = judge(problem, formulas, tolerance=tolerance, seed=seed)
    if as_json:
        print_json(verdict.to_dict())
    else:
        _tell(verdict)
    return verdict.exit_code


def _tell(result: CheckResult) -> None:
    """The verdict for a person."""
    click.echo(f"{result.verdict}: {result.because}")
    rows = [("read as", f"{name} = {text}") for name, text in result.read_as.items()]
    rows += [("derived", line) for line in result.derived]
    if result.beta is not None:
        at = ", ".join(f"n = {n}: {beta:.4g}" for n, beta in result.beta.by_n.items())
        rows.append(("beta needed", result.beta.formula))
        rows.append(("", f"tolerance {result.tolerance:g}, {at}"))
    if (failure := result.failure) is not None:
        when = f" (n = {failure.n}, beta = {failure.beta:.4g})" if failure.n else ""
        rows.append(("fails if", failure.meaning))
        rows.append(("", f"exactly {failure.probability:.4%}{when}"))
        if failure.set_aside:
            aside = f"{failure.set_aside:.2%} set aside; {failure.in_all:.4%} fail in all samples"
            rows.append(("", aside))
        if failure.simulated is not None:
            error = f"standard error {failure.standard_error:.4%}"
            rows.append(("", f"simulated {failure.simulated:.4%}, {error}"))
        if failure.alpha_allowed is not None:
            rows.append(("", f"the blur alpha may be {failure.alpha_allowed:.2g} at this beta"))
    words = {True: "needs", False: "does not need", None: "may need"}
    rows += [(words[item.used], f"{item.name}: {item.evidence}") for item in result.assumptions]
    if (example := result.counterexample) is not None:
        rows.append(("counterexample", example.sentence))
        rows += [(f"  {name}", str(value)) for name, value in example.numbers.items()]
    if result.checked:
        rows.append(("tried on", result.checked))
    rows += [("note", note) for note in result.notes]
    if rows:
        print_table(("check", result.problem), rows)


def _grade(path: Path, rubric: Path | None, form: str, out: Path | None, seed: int) -> None:
    from json import dumps

    from wherefrom.attention.checker import grading
    from wherefrom.storage import make_folder, write_whole

    asked = _read(rubric) if rubric is not None else []
    texts = {}
    if form == "otter":
        texts = grading.otter_tests(asked or _read(path))
    else:
        if not asked and path.suffix == ".toml" and path.is_file():
            _read(path)  # without a rubric the file is the teacher's own: a mistake is an error
        of_one = form == "gradescope" and out is not None and out.suffix == ".json"
        found = grading.read_submissions(path, asked, of_one=of_one)
        graded = grading.grade_class(found, asked, seed=seed)
        every = [item for items, _ in graded.values() for item in items]
        records = {who: grading.gradescope(*found) for who, found in graded.items()}
        if form == "gradescope" and len(records) > 1:
            texts = {f"{grading.file_name(who)}.json": dumps(r) for who, r in records.items()}
    if texts:
        if out is None:
            raise UserError("this writes one file each: name a folder with --out.")
        make_folder(out)
        for name, text in texts.items():
            write_whole(out / name, text)
        echo_err(f"{len(texts)} files written to {out}")
        return
    if form == "table":
        for who, record in records.items():
            echo_err(f"{who}: {record['output']}" if who else record["output"])
        columns = ("student", "id", "problem", "verdict", "points", "because")
        rows = [
            (a.student, a.id, a.problem, item.word, f"{item.score:g}/{a.points:g}",
             item.sentence.splitlines()[0])
            for item in every for a in (item.answer,)
        ]  # fmt: skip
        if out is None:
            print_table(columns, rows)
            return
        text = "".join("\t".join(row) + "\n" for row in (columns, *rows))
    elif form == "csv":
        text = grading.table_of_totals(graded)
    else:
        one = next(iter(records.values()))
        text = dumps(one if form == "gradescope" else [i.to_dict() for i in every], indent=2) + "\n"
    if out is None:
        click.echo(text, nl=False)
    else:
        write_whole(out, text)
        echo_err(f"written to {out}")


def _read(path: Path) -> list[Answer]:
    from wherefrom.attention.checker.grading import MAX_BYTES, read_answers

    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} is too long for a file of answers.")
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not text in UTF-8.") from None
    return read_answers(text, source=str(path))
