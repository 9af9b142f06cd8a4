"""Attention by hand: `problems`, `check`, `design`, `law`; as homework: `assignment`, `grade`.

Exit codes of a check: 0 proved or holds, 1 refuted, 3 inconclusive, 2 may not be written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from wherefrom.attention.designs import Design

MAX_CHARACTERS = 1_000_000  # of a file of keys
NUMBERS = {
    "logit_mean": "mean of logit(weight)",
    "logit_sd": "deviation of logit(weight)",
    "mean": "mean weight",
    "sd": "deviation of the weight",
    "p_below_half": "P(weight < 1/2)",
}
BETA = option("--beta", "Factor; what the tolerance needs if absent.", type=float)


@click.command()
@click.argument("name", required=False, shell_complete=complete_problems)
@option("--no-solutions", "Leave the example answers out.", is_flag=True)
@JSON
def problems(name: str | None, no_solutions: bool, as_json: bool) -> None:
    """List the problems that a construction can be checked against, or describe one."""
    from wherefrom.checker import PROBLEMS, find_problem

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
        ("must hold for", problem.quantifiers),
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
    "Output of --grade; default: table.",
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
        _grade_answers(grade_file, rubric, form or ("json" if as_json else "table"), out, seed)
        return 0
    if rubric is not None or form is not None or out is not None:
        raise UserError("--rubric, --format and --out belong to --grade.")
    if problem is None or not formulas:
        raise UserError(
            'check needs a problem and a formula, as in: wherefrom check average "q=beta*(k_a+k_b)"'
            " (wherefrom problems lists them)."
        )
    from wherefrom.checker import check as judge

    result = judge(problem, formulas, tolerance=tolerance, seed=seed)
    if as_json:
        print_json(result.to_dict())
    else:
        (word, because), *rows = result.summary()
        click.echo(f"{word}: {because}")
        print_table(("check", problem), rows)
    return result.exit_code


def _grade_answers(path: Path, rubric: Path | None, form: str, out: Path | None, seed: int) -> None:
    """Grade written answers, and print the result or write it to a file or to a file each."""
    from json import dumps

    from wherefrom.checker import grading
    from wherefrom.storage import make_folder, write_whole

    def write_each(texts: dict[str, str]) -> None:
        if out is None:
            raise UserError("this format writes several files; give a folder with --out.")
        make_folder(out)
        for name, text in texts.items():
            write_whole(out / name, text)
        echo_err(f"{len(texts)} files written to {out}")

    questions = grading.read_answers(rubric) if rubric is not None else []
    if form == "otter":
        write_each(grading.otter_tests(questions or grading.read_answers(path)))
        return
    if not questions and path.suffix == ".toml" and path.is_file():
        grading.read_answers(path)  # the teacher's own file: a mistake is an error
    of_one = form == "gradescope" and out is not None and out.suffix == ".json"
    submissions = grading.read_submissions(path, questions, of_one=of_one)
    graded = grading.grade_class(submissions, questions, seed=seed)
    items = [item for answers, _ in graded.values() for item in answers]
    records = {student: grading.gradescope(*result) for student, result in graded.items()}
    if form == "gradescope" and len(records) > 1:
        write_each({f"{grading.file_name(x)}.json": dumps(r) for x, r in records.items()})
        return
    if form == "table":
        for student, record in records.items():
            echo_err(f"{student}: {record['output']}" if student else record["output"])
        columns = ("student", "id", "problem", "verdict", "points", "because")
        rows = [
            (a.student, a.id, a.problem, item.word, f"{item.score:g}/{a.points:g}",
             item.sentence.splitlines()[0])
            for item in items for a in (item.answer,)
        ]  # fmt: skip
        if out is None:
            print_table(columns, rows)
            return
        text = "".join("\t".join(row) + "\n" for row in (columns, *rows))
    elif form == "csv":
        text = grading.table_of_totals(graded)
    elif form == "gradescope":
        text = dumps(next(iter(records.values())), indent=2) + "\n"
    else:
        text = dumps([item.to_dict() for item in items], indent=2) + "\n"
    if out is None:
        click.echo(text, nl=False)
    else:
        write_whole(out, text)
        echo_err(f"written to {out}")


@click.command()
@click.argument("name", required=False)
@option("--n", "Number of keys of the example; 8 if absent.", type=int)
@BETA
@option("--tolerance", "Distance allowed; 0.01 if absent.", type=float)
@option("--keys path", "Text file with the keys, one per line.", type=click.Path())
@option("--weights wanted", "Of the design weights: what is wanted, as 0.7,0.2,0.1.")
@JSON
def design(
    name: str | None, n: int | None, beta: float | None, tolerance: float | None,
    path: str | None, wanted: str | None, as_json: bool,
) -> int:  # fmt: skip
    """A construction by hand: its formula, the beta that it needs, its assumptions and its check.

    Without NAME all constructions are listed. Key a is the first key and b the second; --keys takes
    numbers separated by blanks or commas. For extract the first half of the rows spans A and the
    rest B, for head-width the rows are the map. The check is computed by the attention equation;
    exit code 1 says that it fails.
    """
    from wherefrom.attention.designs import TEXTS, build_design

    if name is None:
        abouts = {known: text["about"].splitlines()[0] for known, text in TEXTS.items()}
        if as_json:
            print_json(abouts)
        else:
            for known, about in abouts.items():
                click.echo(click.wrap_text(about, 80, f"{known:<20}", " " * 20))
        return 0
    weights = None
    if wanted is not None:
        try:
            weights = [float(word) for word in wanted.split(",")]
        except ValueError:
            raise UserError(f'--weights takes numbers as 0.7,0.2,0.1, not "{wanted}".') from None
    keys = None if path is None else _read_rows(path)
    built = build_design(name, keys=keys, n=n, beta=beta, tolerance=tolerance, weights=weights)
    if as_json:
        record = {key: getattr(built, key) for key in ("formula", "claim", "beta", "beta_needed")}
        for part in ("assumptions", "checks"):
            record[part] = [{**vars(m), "holds": m.holds} for m in getattr(built, part)]
        record["matrices"] = {key: matrix.tolist() for key, matrix in built.matrices.items()}
        print_json({"design": name, "proof": TEXTS[name]["about"], **record})
    else:
        _print_design(built, TEXTS[name]["about"])
    return 0 if all(check.holds for check in built.checks) else 1


def _read_rows(path: str) -> list[list[float]]:
    """The numbers of a small text file, one row per line."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1).replace(",", " ")
        rows = [list(map(float, line.split())) for line in text.splitlines() if line.strip()]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise UserError(f"{path} must hold numbers, one key per line: {error}.") from error
    if len(text) > MAX_CHARACTERS:
        raise UserError(f"{path} is too large: keys take at most {MAX_CHARACTERS:,} characters.")
    if not rows or len({len(row) for row in rows}) > 1:
        raise UserError(f"{path} must hold keys of one width, one per line.")
    return rows


def _print_design(built: Design, proof: str) -> None:
    import numpy as np

    click.echo(click.wrap_text(f"{built.name}: {proof}", 80, preserve_paragraphs=True))
    click.echo(f"\n{built.formula}\nClaim: {built.claim}.")
    if built.beta is not None:
        click.echo(f"beta = {built.beta:.6g}; the tolerance needs {built.beta_needed:.6g}.")
    for title, part in (("assumes", built.assumptions), ("check", built.checks)):
        for m in part:
            result = "holds" if m.holds else "FAILS"
            click.echo(f"{title:<8}{m.statement}: {m.value:.3g}, allowed {m.allowed:.3g}: {result}")
    for name, matrix in built.matrices.items():
        text = np.array2string(matrix, precision=4, suppress_small=True, threshold=200)
        click.echo(f"{name} =\n{text}" if matrix.ndim > 1 else f"{name} = {text}")


def _numbers(source: Any) -> dict[str, Any]:
    """The numbers that are shown of one head, by its law or by its trials."""
    return {name: getattr(source, name) for name in NUMBERS}


@click.command()
@click.argument("design")
@option("--n", "Number of keys.", 8)
@option("--d", "Width of the keys; n if not given.", type=int)
@BETA
@option("--tolerance", "For that beta.", 0.01)
@option("--alpha", "Noise alpha I of all.", 0.0)
@option("--stretch", "Noise along mu_a.", 0.5)
@option("--heads", "Number of heads.", type=int)
@option("--t repel", "Repelling term.", 1.0)
@option("--trials count", None, 100_000)
@option("--seed", None, 0)
@option("--plot", "Write the figures to this HTML file.", type=click.Path(dir_okay=False))
@JSON
def law(
    design: str, count: int, seed: int, plot: str | None, as_json: bool, **settings: Any
) -> int:
    """The exact law of the weights under noisy keys, and trials that check it.

    DESIGN is one-head, q = beta(mu_a + mu_b); two-heads, q_h = beta mu_h; avoiding-head, one
    query that does not see the noisy direction; or repelling-heads, two queries that push the
    other keys away by t. Key a is drawn from N(mu_a, alpha I + stretch mu_a mu_a^T), all others
    from N(mu_i, alpha I). Numbers are of head 1's weight on key a.

    Exits with 1 if law and trials are more than 5 standard errors apart.
    """
    import numpy as np

    from wherefrom.attention.designs import law_of_design
    from wherefrom.attention.simulate import compare, simulate

    if max(settings["n"], settings["d"] or 0) > 100_000:
        raise UserError("n and d may be at most 100000.")
    if seed < 0:
        raise UserError(f"a seed is 0 or more; it is {seed}.")
    built, exact = law_of_design(design, **settings)
    seen = simulate(exact, count=count, rng=np.random.default_rng(seed))
    agreement = compare(exact, seen)
    if plot is not None:
        from wherefrom.report.workbench_figures import law_page
        from wherefrom.storage import write_whole

        write_whole(plot, law_page(built, exact, seen))
        echo_err(f"the figures are in {plot}.")
    keys, first, average = exact.keys, exact.heads[0], seen.average
    by_trials, whole = _numbers(seen.heads[0]), {"mean": average.mean, "sd": average.sd}
    if as_json:
        trials, of_average = (
            {name: estimate.value for name, estimate in estimates.items()}
            | {"errors": {name: estimate.error for name, estimate in estimates.items()}}
            for estimates in (by_trials, whole)
        )
        heads = zip(exact.targets[1:], exact.heads[1:], strict=True)
        of_law = {"mean": exact.mean, "sd": exact.spread}
        record = {
            "design": design, "formula": built.formula, "claim": built.claim,
            "assumptions": [assumed.statement for assumed in built.assumptions],
            **vars(keys), "beta": built.beta, "heads": len(exact.queries), "form": first.form,
            **_numbers(first), "only_trials": first.why_no_distribution or None,
            "p_negative": exact.p_negative,
            "average": {**of_law, "only_trials": exact.why_no_spread or None},
            "other_heads": [{"key": k, "form": head.form, **_numbers(head)} for k, head in heads],
            "trials": {
                **trials, "average": of_average, "count": seen.count, "seed": seed,
                "drawn": seen.drawn,
            },
            "agreement": {
                "agrees": agreement.agrees, "worst": agreement.quantity,
                "standard_errors": min(agreement.deviations, 1e300),
                "sentence": agreement.sentence,
            },
        }  # fmt: skip
        print_json(record)
    else:
        click.echo(f"{design}: {built.formula}")
        click.echo(
            f"n = {keys.n}, d = {keys.d}, beta = {built.beta:.6g}, alpha = {keys.alpha:g}, "
            f"stretch = {keys.stretch:g}, {len(exact.queries)} head(s); {built.claim}."
        )
        table = [(f"head 1: {NUMBERS[k]}", getattr(first, k), e) for k, e in by_trials.items()]
        table.append(("c: mean weight on a", exact.mean, average.mean))
        table.append(("c: deviation of it", exact.spread, average.sd))
        rows = []
        for what, number, by in table:
            shown = "trials only" if number is None else f"{number:.9g}"
            rows.append([what, shown, f"{by.value:.6g}", f"{by.error:.1e}"])
        print_table(["quantity", f"law ({first.form})", "trials", "standard error"], rows)
        click.echo(f"k_a . q_1 is negative with probability {exact.p_negative:.6g}.")
        for sentence in (first.why_no_distribution, exact.why_no_spread, agreement.sentence):
            if sentence:
                click.echo(sentence[0].upper() + sentence[1:])
    if not agreement.agrees:
        echo_err(f"wherefrom: {agreement.sentence}")
        return 1
    return 0


# ---- students' code


@click.command()
@click.argument("name", required=False)
@option("--out", "The folder to write; it must be new or empty.", type=PATH)
@option("--seed", "Seed of the hidden cases; default: random.", type=int)
@JSON
def assignment(name: str | None, out: Path | None, seed: int | None, as_json: bool) -> None:
    """Write a programming assignment: what students get, and what the teacher keeps.

    NAME is "transformer" or one part of it; without NAME the parts are listed.
    """
    from wherefrom.teaching.assignment import WHOLE, write_assignment
    from wherefrom.teaching.checks import PARTS

    if name is None:
        columns = ("part", "points", "functions", "about")
        rows = [(part, n, ", ".join(names), about) for part, (n, about, names) in PARTS.items()]
        if as_json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows)
            echo_err(f"wherefrom assignment {WHOLE} --out DIR writes all of them.")
        return
    if out is None:
        raise UserError(f"wherefrom assignment {name} needs --out DIR, the folder to write.")
    if seed == 0:
        raise UserError("--seed 0 would make the hidden cases those that are handed out.")
    points = write_assignment(name, out, seed)["points"]
    if as_json:
        print_json({"name": name, "points": points, "out": str(out)})
    parts = "1 part" if len(points) == 1 else f"{len(points)} parts"
    echo_err(f"{parts}, {sum(points.values())} points, written to {out}")
    echo_err(f"students get {out / 'handout'}; keep {out / 'teacher'} to yourself.")


@click.command()
@click.argument("folder", type=PATH)
@option(
    "--assignment assignment_file",
    "The teacher's folder or assignment.json; default: all parts, with other cases.",
    type=PATH,
)
@option("--out", "For the grades.", Path("grades"), type=PATH)
@option("--jobs", "Submissions at a time; as many as cores.", type=click.IntRange(1, 256))
@option("--timeout", "Seconds that a call may take.", 10.0)
@option("--memory", "GB that a submission may take.", 2.0)
@JSON
def grade(
    folder: Path, assignment_file: Path | None, out: Path, jobs: int | None, timeout: float,
    memory: float, as_json: bool,
) -> None:  # fmt: skip
    """Grade students' code: one submission, or a folder with a folder per student.

    Writes OUT/STUDENT/results.json, as Gradescope reads it, and OUT/grades.csv.
    """
    from wherefrom.storage import make_folder
    from wherefrom.teaching import grading
    from wherefrom.teaching.assignment import WHOLE, make_assignment

    if not (0 < timeout < float("inf") and 0 < memory < float("inf")):
        raise UserError("--timeout and --memory must be positive numbers.")
    submissions, path = grading.find_submissions(folder), assignment_file
    path = path / "assignment.json" if path and path.is_dir() else path
    known = make_assignment(WHOLE, 1) if path is None else grading.read_assignment(path)
    limits = grading.SandboxLimits(call=timeout, total=max(60, 4 * timeout), memory=memory)
    records = grading.grade_all(
        submissions, known, make_folder(out), jobs=jobs or os.cpu_count() or 1, limits=limits,
        report=lambda who, record: echo_err(f"{who}: {record['output'].splitlines()[0]}"),
    )  # fmt: skip
    if as_json:
        print_json(records)
    else:
        rows = [(student, record["score"]) for student, record in records.items()]
        print_table(("student", f"of {sum(known['points'].values()):g}"), rows)
    if not all(record["extra_data"]["protected"] for record in records.values()):
        echo_err(
            "this system gives students' code no namespaces or no Landlock: it could reach the "
            "network, or read the hidden cases; grade strangers in a container."
        )
    echo_err(f"written to {out}")
