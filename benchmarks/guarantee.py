"""How often a guarantee is broken and how much it shows, beside MAPIE and crepes.

    python benchmarks/guarantee.py [--redraws 1000] [--only SHAPES] [--peers FOLDER]
        [--judged FILE.npz]

Prints a JSON line for each shape of scores, number of subjects and method: the share of redraws in
which more than 5 % of the answers shown are wrong, the mean share of answers shown (coverage), and
how many redraws showed any. The truth is the share of errors among 400,000 drawn answers. Methods:

    wherefrom           wherefrom.Guarantee, with the subject of each answer
    wherefrom, one      the same on one answer of each subject, as all others
    mapie               BinaryClassificationController for precision, its default (Bonferroni-Holm)
    mapie, sequence     the same with its fixed sequence
    crepes              a conformal classifier: shown if "wrong" is refused at 5 %

crepes guarantees something else (5 % of the wrong answers are shown, not: 5 % of what is shown is
wrong); it is there since people use it for this. --peers: a folder with the two packages, from
`pip install --target FOLDER --no-deps mapie crepes`. --judged: arrays `scores` and `errors` of real
answers; redraws are drawn from them, and all of them are the truth.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from records import keep, summarise

from wherefrom import Guarantee

RISK, CONFIDENCE = 0.05, 0.95
SIZES = (60, 200, 1000)
TRUTH = 400_000
# share of wrong answers, and how far right ones lie above wrong ones, in deviations
NORMAL_SHAPES = {
    "normal, 70 % right, AUROC .97": (0.3, 2.7),
    "normal, 50 % right, AUROC .94": (0.5, 2.2),
    "normal, 20 % right, AUROC .97": (0.8, 2.7),
    "normal, 90 % right, AUROC .92": (0.1, 2.0),
    "normal, 97 % right, AUROC .76": (0.03, 1.0),
    "normal, 99 % right, AUROC .76": (0.01, 1.0),
}
ANSWERS = 4  # about a subject, where there are several
# share of wrong answers, how often those of a subject come together, share of unseen subjects,
# whose answers all are wrong
GROUPED_SHAPES = {
    "4 answers, 70 % right, errors apart": (0.3, 0.0, 0.0),
    "4 answers, 70 % right, half come together": (0.3, 0.5, 0.0),
    "4 answers, 70 % right, all come together": (0.3, 1.0, 0.0),
    "4 answers, 88 % right of 65 % seen": (0.12, 0.5, 0.35),
}
Drawn = tuple[Any, Any, Any]  # scores, errors, subjects
Draw = Callable[[int, np.random.Generator], Drawn]
Find = Callable[[Any, Any], float]  # scores and errors to a threshold


def normal_shape(wrong: float, distance: float) -> Draw:
    """Scores as probabilities that are calibrated, by the shape's own likelihood ratio."""

    def draw(count: int, rng: np.random.Generator) -> Drawn:
        errors = rng.random(count) < wrong
        x = rng.normal(size=count) + np.where(errors, 0.0, distance)
        logits = distance * x - distance**2 / 2 + np.log((1 - wrong) / wrong)
        return 1 / (1 + np.exp(-logits)), errors, np.arange(count)

    return draw


def grouped_shape(wrong: float, together: float, unseen: float, distance: float = 2.7) -> Draw:
    """Several answers of each subject, whose scores are alike, and perhaps the errors."""

    def draw(count: int, rng: np.random.Generator) -> Drawn:
        subjects = np.repeat(np.arange(count), ANSWERS)
        chance = rng.random(subjects.size)
        of_subject = rng.random(count)[subjects]
        chance = np.where(rng.random(count)[subjects] < together, of_subject, chance)
        is_unseen = (rng.random(count) < unseen)[subjects]
        errors = (chance < wrong) | is_unseen
        scores = 0.8 * rng.normal(size=subjects.size) + 0.6 * rng.normal(size=count)[subjects]
        return scores + distance * ~errors - 1.5 * is_unseen, errors, subjects

    return draw


def beta_shape(count: int, rng: np.random.Generator) -> Drawn:
    """Most are known well, and some not at all."""
    knows = rng.random(count) < 0.7
    scores = np.where(knows, 1 - rng.beta(1, 30, count), rng.beta(1, 10, count))
    return scores, rng.random(count) > scores, np.arange(count)


def sure_mistakes(count: int, rng: np.random.Generator) -> Drawn:
    """4 % are wrong however high the score is: nothing or nearly nothing can be shown."""
    scores = rng.random(count)
    return scores, rng.random(count) < 0.04 + 0.5 * (1 - scores), np.arange(count)


def judged_answers(path: str) -> tuple[Draw, Drawn]:
    stored = np.load(path)
    scores, errors = stored["scores"], stored["errors"].astype(bool)

    def draw(count: int, rng: np.random.Generator) -> Drawn:
        rows = rng.integers(scores.size, size=count)
        return scores[rows], errors[rows], np.arange(count)

    return draw, (scores, errors, np.arange(scores.size))


def ours(scores: Any, errors: Any, subjects: Any = None) -> float:
    return Guarantee(scores, errors, subjects, risk=RISK, confidence=CONFIDENCE).threshold


def with_mapie(**options: Any) -> Find:
    from mapie.risk_control import BinaryClassificationController

    def find(scores: Any, errors: Any) -> float:
        control = BinaryClassificationController(
            lambda x: np.column_stack([1 - x, x]),
            risk="precision",
            target_level=1 - RISK,
            confidence_level=CONFIDENCE,
            best_predict_param_choice="recall",
            **options,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            control.calibrate(scores, (~errors).astype(int))
        best = control.best_predict_param
        return float(np.inf if best is None else best)

    return find


def with_crepes(scores: Any, errors: Any) -> float:
    """The lowest score whose p-value for "wrong" is below the risk."""
    from crepes import ConformalClassifier

    if not errors.any():
        return float(np.inf)
    classifier = ConformalClassifier()
    classifier.fit(scores[errors])  # a wrong answer is strange if its score is high
    grid = np.unique(scores)
    p_values = classifier.predict_p(grid[:, None], smoothing=False)[:, 0]
    passed = grid[p_values < RISK]
    return float(passed.min()) if passed.size else float(np.inf)


def methods() -> dict[str, Find]:
    found: dict[str, Find] = {"wherefrom, one": ours}
    try:
        found["mapie"] = with_mapie()
        found["mapie, sequence"] = with_mapie(
            fwer_method="fixed_sequence", list_predict_params=np.linspace(0.99, 0, 100)
        )
    except ImportError as problem:
        print(f"MAPIE is left out ({problem}); see --peers.", file=sys.stderr)
    try:
        import crepes  # noqa: F401

        found["crepes"] = with_crepes
    except ImportError as problem:
        print(f"crepes is left out ({problem}); see --peers.", file=sys.stderr)
    return found


def compare(
    name: str, draw: Draw, truth: Drawn, finders: dict[str, Find], redraws: int
) -> list[dict[str, Any]]:
    scores, errors, _ = truth
    order = np.argsort(scores)[::-1]
    descending, shares = -scores[order], np.cumsum(errors[order]) / np.arange(1, scores.size + 1)
    records = []
    for size in SIZES:
        drawn = [draw(size, np.random.default_rng([size, i])) for i in range(redraws)]
        for method, find in {"wherefrom": None, **finders}.items():
            broken, coverage = [], []
            for own_scores, own_errors, subjects in drawn:
                if find is None:
                    threshold = ours(own_scores, own_errors, subjects)
                else:
                    _, first = np.unique(subjects, return_index=True)
                    threshold = find(own_scores[first], own_errors[first])
                covered = int(np.searchsorted(descending, -threshold, side="right"))
                coverage.append(covered / scores.size)
                broken.append(covered > 0 and shares[covered - 1] > RISK)
            about = {"shape": name, "subjects": size, "method": method, "redraws": redraws}
            about |= {"violations": float(np.mean(broken)), "coverage": float(np.mean(coverage))}
            about["shown_any"] = float(np.mean(np.array(coverage) > 0))
            records.append(summarise("guarantee", [about["violations"]], "share", **about))
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redraws", type=int, default=1000)
    parser.add_argument("--only", default="", help="shapes whose names hold this")
    parser.add_argument("--peers", default="")
    parser.add_argument("--judged", default="")
    parser.add_argument("--out", default="guarantee.jsonl")
    options = parser.parse_args()
    if options.peers:
        sys.path.append(options.peers)
    shapes: dict[str, Draw] = {name: normal_shape(*how) for name, how in NORMAL_SHAPES.items()}
    shapes |= {"beta mixture, 70 % known": beta_shape, "sure mistakes": sure_mistakes}
    shapes |= {name: grouped_shape(*how) for name, how in GROUPED_SHAPES.items()}
    shapes = {name: draw for name, draw in shapes.items() if options.only in name}
    finders = methods()
    for name, draw in shapes.items():
        truth = draw(TRUTH, np.random.default_rng(0))
        keep(compare(name, draw, truth, finders, options.redraws), options.out)
    if options.judged:
        draw, truth = judged_answers(options.judged)
        keep(
            compare(f"judged: {options.judged}", draw, truth, finders, options.redraws), options.out
        )


if __name__ == "__main__":
    main()
