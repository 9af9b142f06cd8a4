"""Attention by hand: `problems`, `check`, `design`, `law`.

Exit codes of a check: 0 proved or holds, 1 refuted, 3 inconclusive, 2 may not be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wherefrom.cli.output import (
    JSON,
    echo_err,
    option,
    print_json,
    print_table,
)
from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.attention.designs import Design
    from wherefrom.attention.laws import HeadsLaw
    from wherefrom.attention.simulate import Agreement, HeadsTrials

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
@click.argument("name", required=False)
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
@click.argument("problem", required=False)
@click.argument("formulas", nargs=-1)
@JSON
@option("--tolerance", "How near is near enough.", type=float)
@option("--seed", "Decides the drawn instances.", 0)
def check(
    problem: str | None,
    formulas: tuple[str, ...],
    as_json: bool,
    tolerance: float | None,
    seed: int,
) -> int:
    """Check a construction, as in: wherefrom check average "q=beta*(k_a+k_b)".

    Exit codes: 0 proved or holds, 1 refuted, 3 inconclusive.
    """
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


@click.command()
@click.argument("name", required=False)
@option("--n", "Number of keys of the example; 8 if absent.", type=int)
@BETA
@option("--tolerance", "Distance allowed; 0.01 if absent.", type=float)
@option("--keys path", "Text file with the keys, one per line.", type=click.Path())
@option("--weights wanted", "Of the design weights: what is wanted, as 0.7,0.2,0.1.")
@JSON
def design(
    name: str | None,
    n: int | None,
    beta: float | None,
    tolerance: float | None,
    path: str | None,
    wanted: str | None,
    as_json: bool,
) -> int:
    """Show a construction by hand: its formula, the beta that it needs, and its check.

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
@option("--trials count", "Number of trials.", 100_000)
@option("--seed", "Seed of the trials.", 0)
@option("--plot", "Write the figures to this HTML file.", type=click.Path(dir_okay=False))
@JSON
def law(
    design: str, count: int, seed: int, plot: str | None, as_json: bool, **settings: Any
) -> int:
    """Compute the exact law of the weights under noisy keys, and check it by trials.

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
    if as_json:
        record = _law_record(built, exact, seen, agreement)
        record["trials"]["seed"] = seed
        print_json({"design": design, **record})
    else:
        _print_law(design, built, exact, seen)
        for sentence in (
            exact.heads[0].why_no_distribution,
            exact.why_no_spread,
            agreement.sentence,
        ):
            if sentence:
                click.echo(sentence[0].upper() + sentence[1:])
    if not agreement.agrees:
        echo_err(f"wherefrom: {agreement.sentence}")
        return 1
    return 0


def _law_record(
    built: Design, exact: HeadsLaw, seen: HeadsTrials, agreement: Agreement
) -> dict[str, Any]:
    """What `wherefrom law --json` prints, without the design's name and the seed."""
    first, average = exact.heads[0], seen.average
    trials, of_average = (
        {name: estimate.value for name, estimate in estimates.items()}
        | {"errors": {name: estimate.error for name, estimate in estimates.items()}}
        for estimates in (_numbers(seen.heads[0]), {"mean": average.mean, "sd": average.sd})
    )
    heads = zip(exact.targets[1:], exact.heads[1:], strict=True)
    of_law = {"mean": exact.mean, "sd": exact.spread}
    return {
        "formula": built.formula,
        "claim": built.claim,
        "assumptions": [assumed.statement for assumed in built.assumptions],
        **vars(exact.keys),
        "beta": built.beta,
        "heads": len(exact.queries),
        "form": first.form,
        **_numbers(first),
        "only_trials": first.why_no_distribution or None,
        "p_negative": exact.p_negative,
        "average": {**of_law, "only_trials": exact.why_no_spread or None},
        "other_heads": [{"key": k, "form": head.form, **_numbers(head)} for k, head in heads],
        "trials": {**trials, "average": of_average, "count": seen.count, "drawn": seen.drawn},
        "agreement": {
            "agrees": agreement.agrees,
            "worst": agreement.quantity,
            "standard_errors": min(agreement.deviations, 1e300),
            "sentence": agreement.sentence,
        },
    }


def _print_law(design: str, built: Design, exact: HeadsLaw, seen: HeadsTrials) -> None:
    """The law beside the trials, as a table."""
    keys, first, average = exact.keys, exact.heads[0], seen.average
    click.echo(f"{design}: {built.formula}")
    click.echo(
        f"n = {keys.n}, d = {keys.d}, beta = {built.beta:.6g}, alpha = {keys.alpha:g}, "
        f"stretch = {keys.stretch:g}, {len(exact.queries)} head(s); {built.claim}."
    )
    by_trials = _numbers(seen.heads[0])
    table = [(f"head 1: {NUMBERS[k]}", getattr(first, k), e) for k, e in by_trials.items()]
    table.append(("c: mean weight on a", exact.mean, average.mean))
    table.append(("c: deviation of it", exact.spread, average.sd))
    rows = []
    for what, number, by in table:
        shown = "trials only" if number is None else f"{number:.9g}"
        rows.append([what, shown, f"{by.value:.6g}", f"{by.error:.1e}"])
    print_table(["quantity", f"law ({first.form})", "trials", "standard error"], rows)
    click.echo(f"k_a . q_1 is negative with probability {exact.p_negative:.6g}.")
