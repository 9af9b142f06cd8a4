"""Why pretraining helps, watched as it happens: recall on seen people, confidence on unseen ones.

    python benchmarks/learning.py measure [--minutes 8 | --steps N] [--people 3000] [--seed 0]
        [--points 12] [--recipe speedrun] [--out learning.jsonl]
    python benchmarks/learning.py draw [--out learning.jsonl]

`measure` trains on the embedded world as a study does, with and without pretraining, and stops the
clock at some points of each training to ask: how many dev people are answered exactly (all, and by
the number of documents about them), and what the model does about people in no document at all: the
probability that it gives its answer, the entropy of what it might have said, the share that it
answers with more than LIKELY, and the share that it gets right by luck. One JSON line a point.
`draw` makes docs/figures/learning-recall.svg and learning-unseen.svg of the last measuring. On a
machine that others use, set GOMP_SPINCOUNT=1000 as the command line does: threads that spin while
they wait starve each other.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from records import RESULTS, keep

from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.corpus.world import Person, make_world, write_world
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.signals.likelihood import AnswerTrie, entropy_of
from wherefrom.recall.decode import answer_all, encode_prompts
from wherefrom.report.figures import BLUE, GREEN, ORANGE, PINK, themed
from wherefrom.training.loop import StepMetrics, run_training
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.settings import Settings

LIKELY = 0.5  # an answer that a model gives more than this is one that a user would take for known
FLOOR = 1e-4  # answers whose beginning is less likely are not followed for the entropy
ENTROPY_PEOPLE = 150
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
GROUPS = (("1", (1,)), ("2", (2,)), ("3 to 5", (3, 4, 5)))


class Watcher:
    """Observes a training and asks the model at about `points` moments of it, the last included.

    The loop does not count what happens here as training.
    """

    def __init__(
        self, which: str, out: Path, phases: Sequence[str], people: Sequence[Person], points: int
    ) -> None:
        self.which, self.points = which, points
        self.records: list[dict[str, Any]] = []
        self._out, self._phases = out, list(phases)
        self._dev = [person for person in people if person.split == "dev"]
        self._unseen = [person for person in people if person.split == "unseen"]
        self._known = sorted({p.birthplace for p in people if p.split == "train"})
        self._done = 0

    def __call__(self, tick: StepMetrics, model: Decoder) -> None:
        along = (self._phases.index(tick.phase) + tick.progress) / len(self._phases)
        if along * self.points < self._done + 1 - 1e-9:
            return
        self._done = int(along * self.points + 1e-9)
        tokens = Tokenizer.from_json((self._out / "tokenizer.json").read_text(encoding="utf-8"))
        model.eval()  # the loop's next step sets it back
        seen, unseen = (self._ask(model, tokens, people) for people in (self._dev, self._unseen))
        record = {
            "name": f"learning, {self.which}",
            "value": _mean(seen["right"]),
            "unit": "recall on seen people",
            "run": self.which,
            "step": tick.step,
            "tokens": tick.tokens,
            "seconds": round(tick.seconds, 2),
            "progress": round(along, 4),
            "loss": round(tick.loss, 4),
            "likely": LIKELY,
            "recall_by_documents": self._by_documents(seen["right"]),
            "seen": _summary(seen),
            "unseen": {**_summary(unseen), **self._entropy(model, tokens)},
        }
        self.records.append(record)

    def _ask(
        self, model: Decoder, tokens: Tokenizer, people: Sequence[Person]
    ) -> dict[str, np.ndarray]:
        questions = [person.ask("birthplace")[0] for person in people]
        answers = answer_all(model, tokens, questions)
        return {
            "right": np.array(
                [a.text == p.birthplace for a, p in zip(answers, people, strict=True)]
            ),
            "confidence": np.exp([answer.log_probability for answer in answers]),
        }

    def _entropy(self, model: Decoder, tokens: Tokenizer) -> dict[str, float | None]:
        """Of the distribution over the training answers and anything else, on some unseen people.

        Early on all answers are about equally likely, and following every one of them would take
        longer than the training; what is not followed is counted as one more answer.
        """
        some = [person.ask("birthplace")[0] for person in self._unseen[:ENTROPY_PEOPLE]]
        trie = AnswerTrie(tokens, self._known)
        prompts = encode_prompts(model, tokens, some)
        masses = np.exp(trie.log_probabilities(model, prompts, floor=FLOOR))
        rest = np.maximum(0.0, 1 - masses.sum(axis=1, keepdims=True))
        return {"entropy": _mean(entropy_of(np.concatenate([masses, rest], axis=1)))}

    def _by_documents(self, right: np.ndarray) -> dict[str, dict[str, float | int]]:
        counts = np.array([len(person.lines) for person in self._dev])
        return {
            str(count): {
                "people": int((counts == count).sum()),
                "right": int(right[counts == count].sum()),
            }
            for count in sorted(set(counts.tolist()))
        }


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Train with and without pretraining, and what was seen on the way."""
    world = make_world(arguments.people, arguments.seed)
    budget = Budget(
        minutes=None if arguments.steps else arguments.minutes, steps=arguments.steps or None
    )
    settings = Settings(recipe=load_recipe(arguments.recipe), budget=budget, seed=arguments.seed)
    records = []
    with tempfile.TemporaryDirectory() as folder:
        place = write_world(world, Path(folder) / "world")
        corpus = read_documents(place / "documents.txt")
        train = read_questions(place / "train.tsv")
        asked = [person.ask("birthplace")[0] for person in world.people]
        jobs = {
            "no pretraining": settings.job(
                Path(folder) / "no-pretraining",
                kind="scratch",
                phases=budget.divide([settings.recipe.scratch], whole=False),
                questions=train,
                vocabulary_from=corpus.texts,
                letters_from=asked,
            ),
            "pretrained": settings.job(
                Path(folder) / "pretrained",
                kind="study",
                phases=budget.divide(settings.recipe.phases),
                corpus=corpus,
                questions=train,
                letters_from=asked,
            ),
        }
        for which, job in jobs.items():
            phases = [phase.name for phase in job.phases]
            watcher = Watcher(which, job.out, phases, world.people, arguments.points)
            run_training(job, settings, observe=watcher)
            records += watcher.records
    common = {
        "people": arguments.people,
        "seed": arguments.seed,
        "recipe": arguments.recipe,
        "minutes": budget.minutes,
        "steps": budget.steps,
    }
    return [{**record, **common} for record in records]


def figures(records: Sequence[dict[str, Any]]) -> dict[str, go.Figure]:
    """File name -> figure."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        runs.setdefault(record["run"], []).append(record)
    read, bare = runs["pretrained"], runs["no pretraining"]
    end = max(record["tokens"] for record in (*read, *bare)) / 1e6
    recall = [
        _line(f"documents: {name}", read, [_recall_of(r, counts) for r in read], colour)
        for (name, counts), colour in zip(GROUPS, (BLUE, GREEN, PINK), strict=True)
    ]
    recall.append(_line("no pretraining", bare, [r["value"] for r in bare], ORANGE, dash="dash"))
    unseen = [
        _line("seen: right", read, [r["value"] for r in read], BLUE),
        _line("unseen: right", read, [r["unseen"]["right"] for r in read], GREEN),
        _line("unseen: confidence", read, [r["unseen"]["confidence"] for r in read], PINK),
        _line(f"unseen: above {LIKELY}", read, [r["unseen"]["likely"] for r in read], ORANGE),
    ]
    drawn = {}
    for name, traces in (("learning-recall", recall), ("learning-unseen", unseen)):
        figure = themed(
            go.Figure(traces), x="millions of tokens learned from", y="share of the people"
        )
        figure.update_xaxes(range=[0, end])
        figure.update_yaxes(range=[0, 1])
        drawn[name] = figure
    return drawn


def last_measuring(path: Path) -> list[dict[str, Any]]:
    """The lines that were written together last."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["time"] == lines[-1]["time"]]


def _line(
    name: str,
    records: Sequence[dict[str, Any]],
    values: Sequence[float | None],
    colour: str,
    **how: str,
) -> go.Scatter:
    both = zip(records, values, strict=True)
    points = [(record["tokens"] / 1e6, value) for record, value in both if value is not None]
    return go.Scatter(
        x=[x for x, _ in points],
        y=[y for _, y in points],
        name=name,
        mode="lines",
        line={"color": colour, **how},
    )


def _recall_of(record: dict[str, Any], counts: Sequence[int]) -> float | None:
    """Recall on the people with so many documents, or None where there is nobody."""
    groups = [record["recall_by_documents"].get(str(count)) for count in counts]
    people = sum(group["people"] for group in groups if group)
    return sum(group["right"] for group in groups if group) / people if people else None


def _summary(asked: dict[str, np.ndarray]) -> dict[str, float | int | None]:
    right, confidence = asked["right"], asked["confidence"]
    return {
        "people": len(right),
        "right": _mean(right),
        "confidence": _mean(confidence),
        "confidence_if_right": _mean(confidence[right]),
        "confidence_if_wrong": _mean(confidence[~right]),
        "likely": _mean(confidence > LIKELY),
    }


def _mean(values: np.ndarray) -> float | None:
    return round(float(values.mean()), 5) if values.size else None


def _drawing() -> Any:
    """docs/figures/make.py, which knows how to write a figure as SVG."""
    spec = importlib.util.spec_from_file_location("make", FIGURES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "draw"))
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--people", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", type=int, default=12)
    parser.add_argument("--recipe", default="speedrun")
    parser.add_argument("--out", default="learning.jsonl")
    parser.add_argument("--figures", type=Path, default=FIGURES, help="folder for the drawings")
    arguments = parser.parse_args()
    if arguments.what == "measure":
        keep(measure(arguments), arguments.out)
        return
    bare = Path(arguments.out).parent == Path(".")
    records = last_measuring(RESULTS / arguments.out if bare else Path(arguments.out))
    svg = _drawing().svg
    for name, figure in figures(records).items():
        (arguments.figures / f"{name}.svg").write_text(svg(figure), encoding="utf-8")


if __name__ == "__main__":
    main()
