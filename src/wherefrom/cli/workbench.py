"""`wherefrom design`: constructions by hand; `wherefrom law`: their exact law under noisy keys."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from wherefrom.cli.output import echo_err, print_json, print_table

if TYPE_CHECKING:
    from wherefrom.attention.designs import Design
    from wherefrom.attention.laws import HeadsLaw, WeightLaw
    from wherefrom.attention.simulate import Agreement, HeadsTrials, WeightTrials

MAX_CHARACTERS = 1_000_000  # of a file of keys
NUMBERS = {
    "logit_mean": "mean of logit(weight)",
    "logit_sd": "deviation of logit(weight)",
    "mean": "mean weight",
    "sd": "deviation of the weight",
    "p_below_half": "P(weight < 1/2)",
}


@click.command()
@click.argument("name", required=False)
@click.option("--n", type=int, default=None, help="Number of keys of the example; 8 if absent.")
@click.option(
    "--beta", type=float, default=None, help="Factor; what the tolerance needs if absent."
)
@click.option("--tolerance", type=float, default=None, help="Distance allowed; 0.01 if absent.")
@click.option("--keys", "path", type=click.Path(), help="Text file with the keys, one per line.")
@click.option("--weights", "wanted", help="Of the design weights: what is wanted, as 0.7,0.2,0.1.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
    from wherefrom.attention.designs import CONSTRUCTIONS, build_design
    from wherefrom.errors import UserError

    if name is None:
        about = {each: inspect.getdoc(build) or "" for each, build in CONSTRUCTIONS.items()}
        first = {each: text.splitlines()[0] for each, text in about.items()}
        if as_json:
            print_json(first)
        else:
            for each, line in first.items():
                click.echo(click.wrap_text(line, 80, f"{each:<20}", " " * 20))
        return 0
    keys = _read_rows(path) if path is not None else None
    weights = None
    if wanted is not None:
        try:
            weights = [float(word) for word in wanted.split(",")]
        except ValueError:
            raise UserError(f'--weights takes numbers as 0.7,0.2,0.1, not "{wanted}".') from None
    built = build_design(name, keys=keys, n=n, beta=beta, tolerance=tolerance, weights=weights)
    proof = inspect.getdoc(CONSTRUCTIONS[name]) or ""
    if as_json:
        print_json(_design_record(built, proof))
    else:
        _print_design(built, proof)
    return 0 if all(check.holds for check in built.checks) else 1


def _read_rows(path: str) -> list[list[float]]:
    """The numbers of a small text file, one row per line."""
    from wherefrom.errors import UserError

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


def _design_record(built: Design, proof: str) -> dict[str, Any]:
    return {
        "design": built.name,
        "formula": built.formula,
        "claim": built.claim,
        "proof": proof,
        "beta": built.beta,
        "beta_needed": built.beta_needed,
        **{
            part: [
                {"statement": m.statement, "value": m.value, "allowed": m.allowed, "holds": m.holds}
                for m in getattr(built, part)
            ]
            for part in ("assumptions", "checks")
        },
        "matrices": {name: matrix.tolist() for name, matrix in built.matrices.items()},
    }


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


@click.command()
@click.argument("design")
@click.option("--n", type=int, default=8, show_default=True, help="Number of keys.")
@click.option("--d", type=int, default=None, help="Width of the keys; n if not given.")
@click.option(
    "--beta", type=float, default=None, help="Factor; what the tolerance needs if absent."
)
@click.option("--tolerance", type=float, default=0.01, show_default=True, help="For that beta.")
@click.option("--alpha", type=float, default=0.0, show_default=True, help="Noise alpha I of all.")
@click.option("--stretch", type=float, default=0.5, show_default=True, help="Noise along mu_a.")
@click.option("--heads", type=int, default=None, help="Number of heads.")
@click.option("--t", "repel", type=float, default=1.0, show_default=True, help="Repelling term.")
@click.option("--trials", "count", type=int, default=100_000, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--plot", type=click.Path(dir_okay=False), help="Write the figures to this HTML file."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def law(
    design: str, n: int, d: int | None, beta: float | None, tolerance: float, alpha: float,
    stretch: float, heads: int | None, repel: float, count: int, seed: int,
    plot: str | None, as_json: bool,
) -> int:  # fmt: skip
    """The exact law of the weights under noisy keys, and trials that check it.

    DESIGN is one-head, q = beta(mu_a + mu_b); two-heads, q_h = beta mu_h; avoiding-head, one
    query that does not see the noisy direction; or repelling-heads, two queries that push the
    other keys away by t. Key a is drawn from N(mu_a, alpha I + stretch mu_a mu_a^T), all others
    from N(mu_i, alpha I). Numbers are of head 1's weight on key a.

    Exits with 1 if law and trials are more than 5 standard errors apart.
    """
    import numpy as np

    from wherefrom.attention.designs import design_for_noise
    from wherefrom.attention.laws import HeadsLaw, NoisyKeys
    from wherefrom.attention.simulate import compare, simulate
    from wherefrom.errors import UserError

    if n > 100_000 or (d or 0) > 100_000:
        raise UserError("n and d may be at most 100000.")
    if seed < 0:
        raise UserError(f"a seed is 0 or more; it is {seed}.")
    built = design_for_noise(
        design, n=n, d=d, beta=beta, tolerance=tolerance, heads=heads, repel=repel
    )
    keys = NoisyKeys(n, built.queries.shape[1], alpha, stretch)
    exact = HeadsLaw(keys, built.queries, built.targets)
    seen = simulate(exact, count=count, rng=np.random.default_rng(seed))
    agreement = compare(exact, seen)
    if plot is not None:
        from wherefrom.report.workbench_figures import law_page
        from wherefrom.storage import write_whole

        write_whole(plot, law_page(built, exact, seen))
        echo_err(f"the figures are in {plot}.")
    if as_json:
        print_json(_law_record(built, exact, seen, agreement, seed))
    else:
        _print_law(built, exact, seen, agreement)
    if not agreement.agrees:
        echo_err(f"wherefrom: {agreement.sentence}")
        return 1
    return 0


def _law_record(
    built: Design, law: HeadsLaw, trials: HeadsTrials, agreement: Agreement, seed: int
) -> dict[str, Any]:
    keys, first = law.keys, law.heads[0]
    return {
        "design": built.name,
        "formula": built.formula,
        "claim": built.claim,
        "assumptions": [assumed.statement for assumed in built.assumptions],
        "n": keys.n,
        "d": keys.d,
        "beta": built.beta,
        "alpha": keys.alpha,
        "stretch": keys.stretch,
        "heads": len(law.queries),
        "form": first.form,
        **_numbers(first),
        "only_trials": first.why_no_distribution or None,
        "p_negative": law.p_negative,
        "average": {
            "mean": law.mean,
            "sd": law.spread,
            "only_trials": law.why_no_spread or None,
        },
        "other_heads": [
            {"key": target, "form": head.form, **_numbers(head)}
            for target, head in zip(law.targets[1:], law.heads[1:], strict=True)
        ],
        "trials": {
            **_estimates(trials.heads[0], NUMBERS),
            "average": _estimates(trials.average, ("mean", "sd")),
            "count": trials.count,
            "seed": seed,
            "drawn": trials.drawn,
        },
        "agreement": {
            "agrees": agreement.agrees,
            "worst": agreement.quantity,
            "standard_errors": min(agreement.deviations, 1e300),
            "sentence": agreement.sentence,
        },
    }


def _numbers(law: WeightLaw) -> dict[str, float | None]:
    return {name: getattr(law, name) for name in NUMBERS}


def _estimates(trials: WeightTrials, names: Iterable[str]) -> dict[str, Any]:
    found = {name: getattr(trials, name) for name in names}
    return {
        **{name: estimate.value for name, estimate in found.items()},
        "errors": {name: estimate.error for name, estimate in found.items()},
    }


def _print_law(built: Design, law: HeadsLaw, trials: HeadsTrials, agreement: Agreement) -> None:
    keys, first, seen, average = law.keys, law.heads[0], trials.heads[0], trials.average
    found = [
        (f"head 1: {what}", getattr(first, name), getattr(seen, name))
        for name, what in NUMBERS.items()
    ]
    found.append(("c: mean weight on a", law.mean, average.mean))
    found.append(("c: deviation of it", law.spread, average.sd))
    click.echo(f"{built.name}: {built.formula}")
    click.echo(
        f"n = {keys.n}, d = {keys.d}, beta = {built.beta:.6g}, alpha = {keys.alpha:g}, "
        f"stretch = {keys.stretch:g}, {len(law.queries)} head(s); {built.claim}."
    )
    rows = []
    for what, exact, by in found:
        shown = "trials only" if exact is None else f"{exact:.9g}"
        rows.append([what, shown, f"{by.value:.6g}", f"{by.error:.1e}"])
    print_table(["quantity", f"law ({first.form})", "trials", "standard error"], rows)
    click.echo(f"k_a . q_1 is negative with probability {law.p_negative:.6g}.")
    for sentence in (first.why_no_distribution, law.why_no_spread, agreement.sentence):
        if sentence:
            click.echo(sentence[0].upper() + sentence[1:])
