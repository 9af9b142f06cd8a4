"""`wherefrom law`: the exact law of a design under noisy keys, beside its simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wherefrom.cli.output import echo_err, print_json, print_table

if TYPE_CHECKING:
    from wherefrom.attention.agreement import Agreement
    from wherefrom.attention.heads import HeadsLaw
    from wherefrom.attention.laws import WeightLaw
    from wherefrom.attention.noisy_queries import NoisyDesign
    from wherefrom.attention.trials import HeadsTrials, WeightTrials

NUMBERS = ("logit_mean", "logit_sd", "mean", "sd", "p_below_half")
WORDS = {
    "logit_mean": "mean of logit(weight)",
    "logit_sd": "deviation of logit(weight)",
    "mean": "mean weight",
    "sd": "deviation of the weight",
    "p_below_half": "P(weight < 1/2)",
}


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

    from wherefrom.attention.agreement import compare
    from wherefrom.attention.heads import HeadsLaw
    from wherefrom.attention.noise import NoisyKeys
    from wherefrom.attention.noisy_queries import design_for_noise
    from wherefrom.attention.trials import simulate
    from wherefrom.errors import UserError

    if n > 100_000 or (d or 0) > 100_000:
        raise UserError("n and d may be at most 100000.")
    if seed < 0:
        raise UserError(f"a seed is 0 or more; it is {seed}.")
    built = design_for_noise(
        design, n=n, d=d, beta=beta, tolerance=tolerance, heads=heads, repel=repel
    )
    keys = NoisyKeys(n, built.design.queries.shape[1], alpha, stretch)
    exact = HeadsLaw(keys, built.design.queries, built.targets)
    rng = np.random.default_rng(seed)
    seen = simulate(keys, exact.queries, exact.targets, count=count, rng=rng)
    agreement = compare(exact, seen)
    if plot is not None:
        _write_plots(plot, built, exact, seen)
        echo_err(f"the figures are in {plot}.")
    if as_json:
        print_json(_record(built, exact, seen, agreement, seed))
    else:
        _print(built, exact, seen, agreement)
    if not agreement.agrees:
        echo_err(f"wherefrom: {agreement.sentence}")
        return 1
    return 0


def _record(
    built: NoisyDesign, law: HeadsLaw, trials: HeadsTrials, agreement: Agreement, seed: int
) -> dict[str, Any]:
    keys, first = law.keys, law.heads[0]
    return {
        "design": built.design.name,
        "formula": built.design.formula,
        "claim": built.design.claim,
        "assumptions": [a.statement for a in built.design.assumptions],
        "n": keys.n,
        "d": keys.d,
        "beta": built.design.beta,
        "alpha": keys.alpha,
        "stretch": keys.stretch,
        "heads": len(law.queries),
        "form": first.form,
        **_numbers(first),
        "only_trials": first.why_no_distribution or None,
        "p_negative": law.p_negative,
        "average": {
            "mean": float(law.mean_weights[0]),
            "sd": law.spread(),
            "only_trials": law.why_no_spread or None,
        },
        "other_heads": [
            {"key": target, "form": head.form, **_numbers(head)}
            for target, head in zip(law.targets[1:], law.heads[1:], strict=True)
        ],
        "trials": {
            **_seen(trials.heads[0]),
            "average": {
                "mean": trials.average.mean.value,
                "sd": trials.average.sd.value,
                "errors": {"mean": trials.average.mean.error, "sd": trials.average.sd.error},
            },
            "count": trials.count,
            "seed": seed,
            "drawn": trials.drawn,
        },
        "agreement": {
            "agrees": agreement.agrees,
            "worst": agreement.worst.quantity,
            "standard_errors": min(agreement.worst.deviations, 1e300),
            "sentence": agreement.sentence,
        },
    }


def _numbers(law: WeightLaw) -> dict[str, float | None]:
    return {name: getattr(law, name) for name in NUMBERS}


def _seen(trials: WeightTrials) -> dict[str, Any]:
    found = {name: getattr(trials, name) for name in NUMBERS}
    return {
        **{name: estimate.value for name, estimate in found.items()},
        "errors": {name: estimate.error for name, estimate in found.items()},
    }


def _print(built: NoisyDesign, law: HeadsLaw, trials: HeadsTrials, agreement: Agreement) -> None:
    keys, first, seen = law.keys, law.heads[0], trials.heads[0]
    rows: list[list[str]] = []
    for name in NUMBERS:
        exact, estimate = getattr(first, name), getattr(seen, name)
        rows.append([f"head 1: {WORDS[name]}", _show(exact), *_pair(estimate)])
    rows.append(["c: mean weight on a", _show(law.mean_weights[0]), *_pair(trials.average.mean)])
    rows.append(["c: deviation of it", _show(law.spread()), *_pair(trials.average.sd)])
    click.echo(f"{built.design.name}: {built.design.formula}")
    click.echo(
        f"n = {keys.n}, d = {keys.d}, beta = {built.design.beta:.6g}, alpha = {keys.alpha:g}, "
        f"stretch = {keys.stretch:g}, {len(law.queries)} head(s); {built.design.claim}."
    )
    print_table(["quantity", f"law ({first.form})", "trials", "standard error"], rows)
    click.echo(f"k_a . q_1 is negative with probability {law.p_negative:.6g}.")
    for sentence in (first.why_no_distribution, law.why_no_spread):
        if sentence:
            click.echo(sentence[0].upper() + sentence[1:])
    click.echo(agreement.sentence[0].upper() + agreement.sentence[1:])


def _show(number: float | None) -> str:
    return "trials only" if number is None else f"{float(number):.9g}"


def _pair(estimate: Any) -> list[str]:
    return [f"{estimate.value:.6g}", f"{estimate.error:.1e}"]


def _write_plots(path: str, built: NoisyDesign, law: HeadsLaw, trials: HeadsTrials) -> None:
    import numpy as np

    from wherefrom.attention.heads import HeadsLaw
    from wherefrom.attention.noisy_queries import design_for_noise
    from wherefrom.attention.trials import simulate
    from wherefrom.report import workbench_figures as figures
    from wherefrom.report.figures import page
    from wherefrom.storage import write_whole

    keys, beta = law.keys, built.design.beta
    pair = []
    for name in ("one-head", "two-heads"):
        other = design_for_noise(name, n=keys.n, d=keys.d, beta=beta)
        exact = HeadsLaw(keys, other.design.queries, other.targets)
        seen = simulate(
            keys, exact.queries, exact.targets, count=trials.count, rng=np.random.default_rng(1)
        )
        pair.append((exact, seen))
    labels = ["a", "b", *(f"key {i + 1}" for i in range(2, keys.n))]
    shown = min(keys.n, 12)
    direction = law.queries[0] / (beta or 1.0)
    sections = [
        (
            f"The weight on a in c: {built.design.name}",
            f"{built.design.formula}, n = {keys.n}, beta = {beta:.4g}. Bars are trials, the line "
            "is the exact law where one is known.",
            figures.law_and_trials(law, trials),
        ),
        (
            "One head against two",
            "The same keys, asked once for both values or once for each.",
            figures.one_head_against_two(pair[0], pair[1]),
        ),
        (
            "Weights of head 1 against beta",
            f"Noise aside, with {shown} keys.",
            figures.weights_against_beta(
                np.eye(shown, keys.d), direction, labels=labels[:shown], most=max(15.0, beta)
            ),
        ),
        (
            "How often head 1 of two fails",
            "The probability of less than half its weight on a, exact.",
            figures.failure_against_n_and_beta(),
        ),
        (
            "The noisy key",
            "Samples of key a and key b in the plane of their means.",
            figures.noisy_key_picture(stretch=keys.stretch),
        ),
    ]
    write_whole(path, page(f"wherefrom law {built.design.name}", sections))
