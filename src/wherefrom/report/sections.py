"""Sections of the report: sentences, figures, tables and examples, as records."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wherefrom.corpus.folding import find_phrase, fold_words, split_words
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.evidence.index import open_evidence
from wherefrom.provenance.evidence.lookup import Support, find_support
from wherefrom.provenance.judging.metrics import rate
from wherefrom.report import figures
from wherefrom.report.records import Records
from wherefrom.storage import sha256_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

FORMATS = ("text", "count", "percent", "number", "code")


@dataclass(frozen=True)
class Table:
    """Raw values by rows; `formats` says for each column how a reader would like to see them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    formats: tuple[str, ...]
    folded: bool = False  # long: shown on request

    def __post_init__(self) -> None:
        assert len(self.columns) == len(self.formats)
        assert all(len(row) == len(self.columns) for row in self.rows)
        assert set(self.formats) <= set(FORMATS)


@dataclass(frozen=True)
class Section:
    """One thing that was found, or the reason why this run cannot tell it.

    question: what it answers, where somebody asked; missing: no record holds it, and `sentence`
    says why and what to do; figure: plotly's data and layout.
    """

    id: str
    title: str
    sentence: str
    question: str | None = None
    missing: bool = False
    more: tuple[str, ...] = ()
    figure: dict[str, Any] | None = None
    caption: str = ""
    table: Table | None = None
    examples: tuple[dict[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        record["more"], record["examples"] = list(self.more), list(self.examples)
        if self.table is not None:
            record["table"] = {
                "columns": list(self.table.columns),
                "formats": list(self.table.formats),
                "rows": [list(row) for row in self.table.rows],
                "folded": self.table.folded,
            }
        return record


def drawn(figure: go.Figure) -> dict[str, Any]:
    """The figure as plain data and layout, without plotly's template."""
    record: dict[str, Any] = json.loads(figure.to_json())
    record.get("layout", {}).pop("template", None)
    return {"data": record["data"], "layout": record["layout"]}


def show_cell(value: Any, form: str) -> str:
    """A cell as a person reads it; a dash where there is nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if form == "percent":
        return f"{100 * value:.1f} %"
    if form == "count":
        return f"{value:,.0f}"
    if form == "number":
        if isinstance(value, int) or abs(value) >= 10:
            return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
        return f"{value:.3f}"
    return f"{value:g}"


def percent(value: float | None) -> str:
    """A share in a sentence."""
    return "–" if value is None else f"{100 * value:.1f} %"


def interval(metric: dict[str, Any], level: float, form: str = "number") -> str:
    """' (95 % interval 0.91 to 0.95)', or nothing where it has none."""
    if metric.get("low") is None or metric.get("high") is None:
        return ""
    low, high = (show_cell(float(metric[key]), form) for key in ("low", "high"))
    return f" ({level:.0%} interval {low} to {high})".replace("%", " %", 1)


def plural(count: int, noun: str) -> str:
    """'1 document', '2,000 documents', '3 people'."""
    if noun == "person":
        return f"{count:,} {'person' if count == 1 else 'people'}"
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """'a, b and c'."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


LONGEST = 512  # tokens: how far the curves of cost are drawn
LAST = 10  # the last loss is the mean over one in so many points, the last ones


def describe(records: Records) -> str:
    """What was trained on what, in one sentence."""
    info = records.info
    model = info.get("job", {}).get("model", {})
    data = info.get("data", {})
    read = []
    for key, noun in (("corpus", "document"), ("questions", "question")):
        source = data.get(key)
        if isinstance(source, dict) and isinstance(source.get(f"{noun}s"), int):
            read.append(f"{plural(source[f'{noun}s'], noun)} ({Path(str(source['path'])).name})")
    what = f"A {model.get('variant', 'model')} model"
    if "layers" in model and "width" in model:
        what += f" of {model['layers']} layers and width {model['width']}"
    on = f" on {listed(read)}" if read else ""
    return f"{what}, trained for {_duration(info.get('seconds'))}{on}."


def made_section(records: Records) -> Section:
    """Data with hashes, model, seed, command, time and versions."""
    info = records.info
    job = info.get("job", {})
    rows: list[tuple[str, str]] = []
    for what, source in {**info.get("data", {}), "dev": info.get("dev")}.items():
        if isinstance(source, dict):
            count = next((source[k] for k in ("documents", "questions") if k in source), None)
            lines = (
                "" if count is None else f", {count:,} used" if what != "dev" else f", {count:,}"
            )
            rows.append((what, f"{source.get('path')}{lines}"))
            rows.append((f"{what}, SHA-256", str(source.get("sha256"))))
    model = job.get("model", {})
    rows.append(("model", ", ".join(f"{key} {value}" for key, value in model.items())))
    rows.append(("tokens", str(job.get("tokens", "–"))))
    for phase in job.get("phases", []):
        mixture = ", ".join(f"{key} {value:g}" for key, value in phase["mixture"].items())
        rows.append((f"phase {phase['name']}", f"{mixture}; {phase['optimizer']}, {phase['lr']:g}"))
    rows.append(("seed", str(job.get("seed", "–"))))
    command = [str(word) for word in info.get("command", [])]
    if command and command[0].endswith(("/wherefrom", "__main__.py")):
        command[0] = "wherefrom"
    rows.append(("command", shlex.join(command)))
    rows.append(("started", str(info.get("started", "–"))))
    work = f"{info.get('steps', 0):,} steps, {info.get('trained_tokens', 0):,} tokens"
    rows.append(("training", f"{_duration(info.get('seconds'))}, {work}"))
    rows.append(("weights, SHA-256", str(info.get("sha256", "–"))))
    versions = info.get("versions", {})
    rows.append(("versions", ", ".join(f"{key} {value}" for key, value in versions.items())))
    dealt = _dealt(records)
    if dealt:
        rows.append(("people kept apart", dealt))
    return Section(
        id="made",
        title="What was trained on what",
        sentence=describe(records),
        table=Table(("what", "value"), tuple(rows), ("text", "code")),
    )


def recall_section(records: Records) -> Section:
    """Recall beside what can be had without reading."""
    rows = recall_rows(records)
    if not rows:
        return Section(
            id="recall",
            title="Recall against the baselines",
            question=ASKED_RECALL,
            sentence="This run has no table of recall: it was not made by `wherefrom study`, which "
            "trains and asks the baselines too; `wherefrom evaluate` counts its answers.",
            missing=True,
        )
    table = tuple(
        (row["name"], row["about"], row["correct"], row["total"], row["value"], row["low"],
         row["high"], row["seconds"])
        for row in rows
    )  # fmt: skip
    return Section(
        id="recall",
        title="Recall against the baselines",
        question=ASKED_RECALL,
        sentence=_tell_recall(rows),
        figure=drawn(figures.recall_bars(rows)),
        caption="Share of dev questions answered exactly; whiskers are 95 % intervals (Wilson).",
        table=Table(
            ("who answers", "how", "correct", "of", "recall", "low", "high", "seconds"),
            table,
            ("text", "text", "count", "count", "percent", "percent", "percent", "number"),
        ),
    )


ASKED_RECALL = "Is pretraining needed, and how much does it help over always giving one answer?"


def recall_rows(records: Records) -> list[dict[str, Any]]:
    """The study's table with intervals; rows about nobody are left out."""
    rows = records.info.get("results") or []
    return [
        {
            **row,
            **{
                key: value
                for key, value in rate(row["correct"], row["total"]).items()
                if key in ("value", "low", "high")
            },
        }
        for row in rows
        if row["total"]
    ]


def find_row(rows: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((row for row in rows if row["name"] == name), None)


def _tell_recall(rows: list[dict[str, Any]]) -> str:
    model, common, twin = (
        find_row(rows, name) for name in ("pretrained", "majority", "no pretraining")
    )
    if model is None:
        return "The study has no row of the pretrained model."
    said = (
        f"{model['correct']:,} of {model['total']:,} ({percent(model['value'])}) with pretraining"
    )
    gone = find_row(rows, "left-out people")
    if gone is not None:
        said += f" for people it read about ({gone['correct']:,} of {gone['total']:,} for others)"
    beside = []
    if common is not None:
        beside.append(
            f"{percent(common['value'])} for always answering "
            f"{str(common['about']).removeprefix('always ')}"
        )
    if twin is not None:
        beside.append(f"{percent(twin['value'])} for the same model without pretraining")
    if not beside:
        return f"It answers {said}."
    needed = (
        "Yes"
        if all(row is None or model["low"] > row["high"] for row in (common, twin))
        else ("Not shown here")
    )
    gain = ""
    if common is not None:
        gain = f": {100 * (model['value'] - common['value']):+.1f} points over the one answer"
    return f"{needed}: it answers {said}, against {listed(beside)}{gain}."


def curves_section(records: Records) -> Section:
    """Loss and speed as training went."""
    if not records.metrics:
        return Section(
            id="curves",
            title="Training curves",
            sentence="This run has no training curves: its metrics.jsonl is missing or empty.",
            missing=True,
        )
    runs = [("pretrained", records.metrics)]
    if records.scratch:
        runs.append(("no pretraining", records.scratch))
    rows = []
    for name, points in runs:
        losses = [point["loss"] for point in points if point.get("loss") is not None]
        losses = losses[-max(1, len(losses) // LAST) :]
        last = points[-1]
        seconds, tokens = last.get("seconds"), last.get("tokens")
        rows.append(
            (name, last.get("step"), tokens, seconds, sum(losses) / len(losses) if losses else None,
             tokens / seconds if tokens and seconds else None)
        )  # fmt: skip
    first = rows[0]
    sentence = f"{show_cell(first[1], 'count')} steps"
    if first[5] is not None:
        sentence += f" at {first[5]:,.0f} tokens a second"
    if first[4] is not None:
        sentence += f"; the loss came down to {first[4]:.3f} (mean over the last tenth)"
    return Section(
        id="curves",
        title="Training curves",
        sentence=sentence + ".",
        figure=drawn(figures.training_curves(runs)),
        caption="Loss of the training batches, and tokens trained on a second. The two models "
        "learn from different mixtures, so that their losses are not comparable with each other.",
        table=Table(
            ("model", "steps", "tokens", "seconds", "last loss", "tokens / s"),
            tuple(rows),
            ("text", "count", "count", "number", "number", "count"),
        ),
    )


def cost_section(records: Records) -> Section:
    """The perceiver's bottleneck against full attention, at this run's shape, by the formula."""
    model = records.info["job"]["model"]
    layers, width, latents, block = (model[k] for k in ("layers", "width", "latents", "block"))
    lengths = [16 * at for at in range(1, LONGEST // 16 + 1)]

    def full(length: int) -> int:
        return layers * length**2 * width

    def bottleneck(length: int) -> int:
        return 2 * length * latents * width + (layers - 2) * latents**2 * width

    both = {"vanilla": full, "perceiver": bottleneck}
    costs = {name: [cost(length) for length in lengths] for name, cost in both.items()}
    here = {name: cost(block) for name, cost in both.items()}
    ratio = here["vanilla"] / here["perceiver"]
    speed = None
    if records.info.get("seconds") and records.info.get("trained_tokens"):
        speed = records.info["trained_tokens"] / records.info["seconds"]
    measured = (
        ""
        if speed is None
        else (
            f" This run ({model['variant']}) trained on {speed:,.0f} tokens a second; another "
            "variant's speed is measured by training it."
        )
    )
    return Section(
        id="cost",
        title="What mixing costs",
        question="What do vanilla attention and the perceiver cost, in L layers, length l and m "
        "latents?",
        sentence=f"O(L l²) for vanilla and O(l m + L m²) for the perceiver: at this run's shape (L "
        f"= {layers}, l = {block}, m = {latents}) vanilla takes {ratio:.2f} times the "
        f"perceiver's products of mixing (projections and feed not counted).{measured}",
        figure=drawn(figures.cost_curves(lengths, costs, block)),
        caption=f"By the formula, for width {width}: L l² d against 2 l m d + (L − 2) m² d. "
        "No measurement.",
        table=Table(
            ("mixing", "products at this length"),
            tuple(here.items()),
            ("text", "count"),
        ),
    )


def _dealt(records: Records) -> str:
    counts: dict[str, int] = {}
    for person in records.people:
        key = f"{person.get('role')}, {person.get('source')}"
        counts[key] = counts.get(key, 0) + 1
    parts = [f"{count:,} {key}" for key, count in counts.items()]
    left = records.info.get("left_out")
    if left:
        parts.append(f"documents of {plural(len(left), 'person')} were not read")
    return "; ".join(parts)


def _duration(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return "an unknown time"
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes"


OURS = ("internal", "checked")
MODES = ("always answer", *OURS)
NO_JUDGEMENT = (
    "`wherefrom study` calibrates and judges where people are set aside and dev people are known; "
    "for a run that it made, `wherefrom judge RUN` judges anew."
)


def telling_section(records: Records) -> Section:
    """Whether right answers can be told from wrong ones, by what the model gives away."""
    title, asked = (
        "Right from wrong by confidence",
        ("Can one tell a retrieved answer from an invented one?"),
    )
    judgement = records.judgement
    if judgement is None:
        return _missing("telling", title, "confidence", asked)
    scores = judgement["scores"]
    rows = []
    for name, score in scores.items():
        auroc = score["groups"]["together"]["metrics"]["auroc"]
        rows.append((name, score["about"], auroc["value"], auroc["low"], auroc["high"]))
    histogram = scores["internal"]["groups"]["together"].get("histogram")
    return Section(
        id="telling",
        title=title,
        question=asked,
        sentence=_tell_telling(judgement),
        more=(*_tell_stated(judgement), *_against_the_best(judgement)),
        figure=drawn(figures.confidence_histogram(histogram)) if histogram else None,
        caption="All judged people by the model's own confidence; every one of these answers looks "
        "alike on the screen.",
        table=Table(
            ("score", "what it is", "AUROC", "low", "high"),
            tuple(rows),
            ("text", "text", "number", "number", "number"),
        ),
    )


def _tell_telling(judgement: dict[str, Any]) -> str:
    found = {
        name: judgement["scores"][name]["groups"]["together"]["metrics"]["auroc"] for name in OURS
    }
    own = found["internal"]
    if own["value"] is None:
        return f"It cannot be said here: {own['reason']}"
    level = judgement["level"]
    sentence = (
        "Not by looking at the answer; by the model's own signals a right answer is surer than a "
        f"wrong one in {percent(own['value'])} of pairs{interval(own, level, 'percent')}"
    )
    if found["checked"]["value"] is not None:
        sentence += f", and {percent(found['checked']['value'])} once the lines are looked up"
    return sentence + " (a coin would have 50 %)."


def _tell_stated(judgement: dict[str, Any]) -> tuple[str, ...]:
    """The same question without the labels: does the text state what was answered?"""
    found = {one["score"]: one["auroc"] for one in judgement.get("stated", [])}
    own = found.get("internal")
    if own is None or own["value"] is None:
        return ()
    sentence = (
        "Whether a line of the text states the answer, whatever the labels say, the model's own "
        f"signals tell in {percent(own['value'])} of pairs"
        f"{interval(own, judgement['level'], 'percent')}"
    )
    rival = found.get("greedy likelihood")
    if rival is not None and rival["value"] is not None:
        sentence += f", the likelihood of the answer alone in {percent(rival['value'])}"
    return (sentence + ".",)


def _against_the_best(judgement: dict[str, Any]) -> tuple[str, ...]:
    told = []
    for one in judgement.get("against_the_best", []):
        gap = one["difference"]
        if one.get("rival") and gap["value"] is not None:
            name, better = {
                "auroc": ("AUROC", "more"),
                "augrc": ("AUGRC", "less"),
            }[one["measure"]]
            told.append(
                f"{name} of {one['score']} less that of {one['rival']}, the best rival: "
                f"{gap['value']:+.3f}{interval(gap, judgement['level'])}; {better} is better."
            )
    return tuple(told)


def calibration_section(records: Records) -> Section:
    """Whether "80 % sure" is right in 80 % of cases."""
    title = "Calibration"
    judgement = records.judgement
    if judgement is None:
        return _missing("calibration", title, "calibration")
    groups = {name: judgement["scores"][name]["groups"]["together"] for name in OURS}
    curves = [(name, group.get("reliability") or []) for name, group in groups.items()]
    rows = [
        (name, bin["people"], bin["low"], bin["high"], bin["confidence"], bin["accuracy"])
        for name, bins in curves
        for bin in bins
    ]
    parts = []
    for name, group in groups.items():
        ece, chance = group["metrics"]["ece"], group["ece_of_chance"]
        if ece["value"] is not None:
            beside = (
                ""
                if chance["value"] is None
                else (f" (chance alone would show {100 * chance['value']:.1f})")
            )
            parts.append(f"{100 * ece['value']:.1f} points for the {name} one{beside}")
    sentence = (
        f"Confidence and the share of right answers differ by {' and '.join(parts)} on average."
        if parts
        else "The calibration error cannot be measured on these people."
    )
    people = judgement["people"]
    fitted = f"Fitted on {plural(people['calibration'], 'person')}, judged on {people['judged']:,} "
    return Section(
        id="calibration",
        title=title,
        sentence=sentence,
        more=(*_promises(judgement),),
        figure=drawn(figures.reliability(curves)) if rows else None,
        caption=f"{fitted}others. {_sizes(rows)}",
        table=Table(
            ("confidence", "people", "from", "to", "mean", "right"),
            tuple(rows),
            ("text", "count", "percent", "percent", "percent", "percent"),
            folded=True,
        )
        if rows
        else None,
    )


def _sizes(rows: list[tuple[Any, ...]]) -> str:
    """How many people a point of the diagram stands for."""
    sizes = sorted({row[1] for row in rows})
    if not sizes:
        return ""
    many = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return f"Each point stands for {many} people of like confidence."


def _promises(judgement: dict[str, Any]) -> list[str]:
    """What the thresholds guarantee, or why they guarantee nothing."""
    told = []
    for mode in OURS:
        found = judgement["guarantees"][mode]
        if found["threshold"] is None:
            told.append(f"{mode}: {found['reason']}")
        else:
            told.append(
                f"{mode}: from {percent(found['threshold'])} on at most {percent(found['risk'])} "
                f"of the answers given are wrong, with {1 - found['delta']:.0%} confidence (among "
                f"{plural(found['people'], 'person')} of the calibration {found['wrong']:,} wrong "
                f"of {found['given']:,} given)."
            )
    return told


def risk_section(records: Records) -> Section:
    """What may be automated: how many answers can be given at which share of wrong ones."""
    title = "Risk against coverage"
    judgement = records.judgement
    if judgement is None:
        return _missing("risk", title, "risk-coverage curve")
    scores = judgement["scores"]
    drawable = any(score["groups"]["together"].get("risk_coverage") for score in scores.values())
    found = {
        name: score["groups"]["together"]["metrics"]["coverage_at_precision"]
        for name, score in scores.items()
    }
    precision = f"{judgement['precision']:.0%}".replace("%", " %")
    rivals = {
        name: metric["value"]
        for name, metric in found.items()
        if not scores[name]["ours"] and metric["value"] is not None
    }
    best = max(rivals, key=lambda name: rivals[name]) if rivals else None
    sentence = (
        f"If {precision} of the answers given must be right, {percent(found['internal']['value'])} "
        f"of all questions can be answered by the internal confidence and "
        f"{percent(found['checked']['value'])} by the checked one"
    )
    if best is not None:
        sentence += f"; the best rival ({best}) manages {percent(rivals[best])}"
    rows = [
        (name, metric["value"], metric["low"], metric["high"],
         scores[name]["groups"]["together"]["metrics"]["right_given_at_precision"]["value"],
         scores[name]["groups"]["together"]["metrics"]["augrc"]["value"])
        for name, metric in found.items()
    ]  # fmt: skip
    return Section(
        id="risk",
        title=title,
        sentence=sentence + " (thresholds chosen on these very people).",
        figure=drawn(figures.risk_coverage_curves(scores)) if drawable else None,
        caption="Read from left to right: the surest answers are given first. Lower is better.",
        table=Table(
            (
                "score",
                f"answered at {precision} right",
                "low",
                "high",
                "of the right ones",
                "AUGRC",
            ),
            tuple(rows),
            ("text", "percent", "percent", "percent", "percent", "number"),
            folded=True,
        ),
    )


def grades_section(records: Records) -> Section:
    """Right, wrong and not attempted, for people it read about and for those it did not."""
    title, asked = (
        "Right, wrong, not attempted",
        ("Why is it a concern if one cannot tell a retrieved answer from an invented one?"),
    )
    judgement = records.judgement
    if judgement is None:
        return _missing("grades", title, "graded answers", asked)
    rows: list[dict[str, Any]] = []
    for people in ("seen", "unseen"):
        for mode in MODES:
            group = judgement["scores"].get(mode, {}).get("groups", {}).get(people)
            grades = group["grades"] if group else _always(records, people)
            if grades is None or grades["correct"] is None:
                continue
            if grades["correct"] + grades["wrong"] + grades["not_attempted"]:
                rows.append({"people": people, "mode": mode, **grades})
    return Section(
        id="grades",
        title=title,
        question=asked,
        sentence=_tell_grades(rows),
        figure=drawn(figures.grades_bars(rows)) if rows else None,
        caption="Numbers in the bars: people. Seen: a document that was read names the person. "
        "Internal: by the model's own signals. Checked: only what a line about the person states.",
        table=Table(
            ("people", "answers given", "right", "wrong", "I don't know", "right of the given"),
            tuple(
                (row["people"], row["mode"], row["correct"], row["wrong"], row["not_attempted"],
                 row["precision"])
                for row in rows
            ),
            ("text", "text", "count", "count", "count", "percent"),
        ),
    )  # fmt: skip


def _always(records: Records, people: str) -> dict[str, Any] | None:
    """The grades of always answering by the people themselves, where only a summary is left."""
    here = [one for one in records.judged if one["seen"] == (people == "seen")]
    if not here:
        return None
    right = sum(one["right"] for one in here)
    return {"correct": right, "wrong": len(here) - right, "not_attempted": 0,
            "precision": right / len(here)}  # fmt: skip


def _tell_grades(rows: list[dict[str, Any]]) -> str:
    by = {(row["people"], row["mode"]): row for row in rows}
    total = {
        mode: sum(row["wrong"] for (_, each), row in by.items() if each == mode) for mode in MODES
    }
    everyone = sum(
        row["correct"] + row["wrong"] for (_, mode), row in by.items() if mode == "always answer"
    )
    if not everyone:
        return "Nobody was judged."
    sentence = (
        f"A user who is always given an answer gets {total['always answer']:,} wrong ones of "
        f"{everyone:,}, worded like the right ones"
    )
    unseen = by.get(("unseen", "always answer"))
    if unseen is not None:
        sentence += (
            f", and about people it never read of {unseen['wrong']:,} of "
            f"{unseen['correct'] + unseen['wrong']:,} are wrong"
        )
    right = {
        mode: sum(row["correct"] for (_, each), row in by.items() if each == mode) for mode in MODES
    }
    return sentence + (
        f"; by the internal threshold {total['internal']:,} wrong and {right['internal']:,} right "
        f"answers are given, with the lines looked up {total['checked']:,} and "
        f"{right['checked']:,}."
    )


def verdicts_section(records: Records) -> Section:
    """Where the answers came from: the table of verdicts."""
    title = "Verdicts"
    judgement = records.judgement
    if judgement is None:
        return _missing("verdicts", title, "verdicts")
    rows = [row for row in judgement["verdicts"] if row["count"]]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + row["count"]
    everyone = sum(counts.values())
    told = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
    keys = ("people", "verdict", "count", "right", "wrong", "shown", "unknown", "internal_shown",
            "internal_unknown")  # fmt: skip
    return Section(
        id="verdicts",
        title=title,
        sentence=f"Of {plural(everyone, 'answer')}: {told}.",
        more=(
            "Remembered: a line about the person states the answer. Misremembered: the person was "
            "read about, and no line states it. Guessed: right, though no line states it. Made up: "
            "nobody of that name was read about, and it is wrong.",
        ),
        table=Table(
            ("people", "verdict", "answers", "right", "wrong", "shown", "I don't know",
             "shown without the text", "I don't know without the text"),
            tuple(tuple(row[key] for key in keys) for row in rows),
            ("text", "text", *("count",) * 7),
        ),
    )  # fmt: skip


def _missing(id: str, title: str, what: str, question: str | None = None) -> Section:
    return Section(
        id=id,
        title=title,
        question=question,
        sentence=f"This run has no {what}: nobody was judged. {NO_JUDGEMENT}",
        missing=True,
    )


PLACES = 12
LINES = 3
REMEMBERED = "remembered"
VERDICTS = (REMEMBERED, "misremembered", "guessed", "made up")  # as judged.jsonl has them
ASKED_WHY = "Why does the pretrained model beat the one without pretraining?"


def documents_section(records: Records) -> Section:
    """Recall by how many documents were read about a person."""
    title = "By documents per person"
    judgement = records.judgement
    groups = [one for one in (judgement or {}).get("by_documents", []) if one["people"]]
    if not groups:
        return Section(
            id="documents",
            title=title,
            question=ASKED_WHY,
            sentence="This run does not tell recall by documents per person: nobody was judged, or "
            "it is older than that record; `wherefrom judge RUN` makes it for a study.",
            missing=True,
        )
    rows = [
        (str(one["documents"]), one["people"], one["recall"]["value"], one["recall"]["low"],
         one["recall"]["high"])
        for one in groups
    ]  # fmt: skip
    return Section(
        id="documents",
        title=title,
        question=ASKED_WHY,
        sentence=_tell_documents(records, groups),
        figure=drawn(figures.documents_bars(groups)),
        caption="Judged people by how many of the documents that were read are about them; "
        "whiskers are intervals over people.",
        table=Table(
            ("documents", "people", "recall", "low", "high"),
            tuple(rows),
            ("text", "count", "percent", "percent", "percent"),
        ),
    )


def _tell_documents(records: Records, groups: Sequence[dict[str, Any]]) -> str:
    def of(some: Sequence[dict[str, Any]]) -> tuple[float, int]:
        people = sum(one["people"] for one in some)
        right = sum(one["people"] * one["recall"]["value"] for one in some)
        return (right / people if people else 0.0), people

    read, many = of([one for one in groups if one["documents"] != 0])
    unread, none = of([one for one in groups if one["documents"] == 0])
    parts = []
    if many:
        parts.append(f"{percent(read)} of {plural(many, 'person')} it read a document about")
    if none:
        parts.append(f"{percent(unread)} of {none:,} it read none about")
    shown = many and read > unread
    why = "Because it has read about the people" if shown else "This run does not show why"
    sentence = f"{why}: it is right for {' and '.join(parts)}"
    right = [one for one in records.judged if one["right"]]
    if right:
        stated = sum(one["verdict"] == REMEMBERED for one in right)
        sentence += f"; a line of the text states {stated:,} of its {len(right):,} right answers"
    rows = records.info.get("results") or []
    twin = next((row for row in rows if row.get("name") == "no pretraining"), None)
    if twin is not None:
        sentence += (
            f", while the twin that learned the same questions and read nothing gets "
            f"{percent(twin['recall'])}"
        )
    return sentence + "."


def places_section(records: Records) -> Section:
    """Recall by the right place, the commonest first, and by whether it was a training answer."""
    noun = "place" if "where" in str(records.info.get("template")).lower() else "answer"
    title = f"By {noun}"
    asked, whom = _asked_places(records)
    if not asked:
        return Section(
            id="places",
            title=title,
            sentence=f"This run does not tell recall by {noun}: nobody was judged, and its dev "
            "questions are not where they were, or have changed.",
            missing=True,
        )
    people = Counter(place for place, _ in asked)
    right = Counter(place for place, is_right in asked if is_right)
    common = sorted(people, key=lambda place: (-people[place], place))[:PLACES]
    bars = [{"place": p, "right": right[p], "wrong": people[p] - right[p]} for p in common]
    rows = [(p, people[p], right[p], right[p] / people[p]) for p in common]
    others = sum(people.values()) - sum(people[p] for p in common)
    if others:
        hit = sum(right.values()) - sum(right[p] for p in common)
        rows.append((f"all {len(people) - len(common):,} other {noun}s", others, hit, hit / others))
    known = _trained_answers(records)
    sentence = f"{plural(len(people), f'right {noun}')} among {whom}"
    if known is None:
        sentence += "; which of them were answers in training is not written down in this run."
    else:
        split = []
        for inside, name in ((True, "an answer in training"), (False, "no answer in training")):
            here = [is_right for place, is_right in asked if (place in known) == inside]
            found = rate(sum(here), len(here))
            rows.append((name, len(here), sum(here), found["value"]))
            split.append(f"{percent(found['value'])} of the {len(here):,} whose {noun} was {name}")
        sentence += f": it is right for {' and '.join(split)}."
    return Section(
        id="places",
        title=title,
        sentence=sentence,
        figure=drawn(figures.places_bars(bars)),
        caption=f"The {plural(len(common), f'commonest {noun}')} among the right ones.",
        table=Table(
            (f"right {noun}", "people", "right", "recall"),
            tuple(rows),
            ("text", "count", "count", "percent"),
            folded=True,
        ),
    )


def _asked_places(records: Records) -> tuple[list[tuple[str, bool]], str]:
    """(right place, answered right) of the judged people it read about, or of the dev questions."""
    seen = [one for one in records.judged if one["seen"] and one["answer"] is not None]
    if seen:
        pairs = [(one["answer"], bool(one["right"])) for one in seen]
        return pairs, f"the {plural(len(seen), 'judged person')} it read about".replace(
            "judged persons", "judged people"
        )
    said = records.folder / "predictions" / "dev.txt"
    dev = _questions(records, records.info.get("dev"))
    if not dev or not said.is_file():
        return [], ""
    lines = said.read_text(encoding="utf-8").split("\n")[:-1]
    if len(lines) != len(dev):
        return [], ""
    pairs = [(right, line.strip() == right.strip()) for line, right in zip(lines, dev, strict=True)]
    return pairs, f"the {plural(len(dev), 'dev question')}"


def _trained_answers(records: Records) -> set[str] | None:
    """The answers of the training questions, as the calibration or the file has them."""
    reader = (records.calibration or {}).get("reader") or {}
    if reader.get("known_answers"):
        return set(reader["known_answers"])
    source = (records.info.get("data") or {}).get("questions")
    return set(_questions(records, source)) or None


def _questions(records: Records, source: Any) -> list[str]:
    """The answers in a file of questions, if it is still the one that was used."""
    if not isinstance(source, dict):
        return []
    path = Path(str(source.get("path")))
    for place in (path, records.folder / "world" / path.name):
        try:
            if place.is_file() and sha256_of(place) == source.get("sha256"):
                asked = read_questions(place, records.info.get("template"))
                return [question.answer or "" for question in asked.questions]
        except (OSError, UserError):
            continue
    return []


def examples_section(records: Records) -> Section:
    """The surest and the least sure answer of each verdict, with the lines that bear on it."""
    title = "Examples of each verdict"
    if not records.judged:
        return Section(
            id="examples",
            title=title,
            sentence="This run has no examples: nobody was judged.",
            missing=True,
        )
    chosen = [one for verdict in VERDICTS for one in _ends(records.judged, verdict)]
    supports, problem = _supports(records, chosen)
    examples = [_example(one, support) for one, support in zip(chosen, supports, strict=True)]
    return Section(
        id="examples",
        title=title,
        sentence="Of each verdict the answer that the model was surest of and the one that it was "
        "least sure of.",
        more=(problem,) if problem else (),
        examples=tuple(examples),
    )


def _ends(judged: Sequence[dict[str, Any]], verdict: str) -> list[dict[str, Any]]:
    here = [one for one in judged if one["verdict"] == verdict]
    here.sort(key=lambda one: (-one["internal_confidence"], one["subject"]))
    return here if len(here) < 2 else [here[0], here[-1]]


def _supports(
    records: Records, chosen: Sequence[dict[str, Any]]
) -> tuple[list[Support | None], str]:
    """What the text says of each, where the run still has its index; else a sentence."""
    corpus = (records.info.get("data") or {}).get("corpus") or {}
    known = ((records.calibration or {}).get("reader") or {}).get("known_answers") or []
    try:
        path = records.folder / "evidence.sqlite"
        with closing(open_evidence(path, corpus_sha256=corpus.get("sha256"))) as evidence:
            subjects = [one["subject"] for one in chosen]
            said = [one["said"] for one in chosen]
            return list(find_support(evidence, subjects, said, known, limit=LINES)), ""
    except UserError as problem:
        return [None] * len(chosen), f"The lines are not shown: {problem}"


def _example(one: dict[str, Any], support: Support | None) -> dict[str, Any]:
    keys = ("verdict", "question", "subject", "said", "answer", "right", "seen", "shown",
            "shown_internal", "confidence", "internal_confidence")  # fmt: skip
    lines = support.lines if support else ()
    similar = support.similar if support else ()
    return {
        **{key: one[key] for key in keys},
        "evidence": [
            {
                "line": line.line,
                "states_answer": line.states_answer,
                "text": line.text,
                "pieces": mark(line.text, one["subject"], one["said"], one["answer"] or ""),
            }
            for line in lines
        ],
        "similar": [
            {"line": line.line, "text": line.text, "subject": line.subject} for line in similar
        ],
    }


ASKED_NAMES = "What does it do for a name that it never saw, and why is that a concern?"


def names_section(records: Records) -> Section:
    """The name-origin probe as a map."""
    title = "Names it never saw"
    record = records.origins
    if record is None:
        return Section(
            id="names",
            title=title,
            question=ASKED_NAMES,
            sentence="This run was not asked about invented names; `wherefrom names RUN` asks, and "
            "the next report shows what it said.",
            missing=True,
        )
    unknown = {row["origin"]: row for row in record["unknown"]["by_origin"]}
    rows = [
        (row["origin"], row["names"], row["at_home"], row["commonest"],
         unknown[row["origin"]]["value"])
        for row in record["by_origin"]
    ]  # fmt: skip
    information = record["mutual_information"]
    sentences = list(record["sentences"])
    return Section(
        id="names",
        title=title,
        question=ASKED_NAMES,
        sentence=sentences[0],
        more=(
            *sentences[1:],
            f"The origin of the name and the country of the answer share {information['bits']:.2f} "
            f"bits; {information['by_chance']:.2f} would be chance ({information['null']}, p = "
            f"{information['p']:.3f}).",
        ),
        figure=drawn(figures.origins_map(record)) if len(record["countries"]) > 1 else None,
        caption=f"{plural(record['names'], 'invented name')} that no document has: how the model's "
        "answers spread over countries, a row an origin; solid from "
        f"{percent(figures.darkest(record))} on. Circles: countries where such names are at home.",
        table=Table(
            ("origin", "names", "said of home", "commonest answer", "I don't know"),
            tuple(rows),
            ("text", "count", "percent", "text", "percent"),
            folded=True,
        ),
    )


def twins_section(records: Records) -> Section:
    """Twins without one person's documents, and cross-pretraining, where they were made."""
    title = "The truth by twins"
    if records.crossing is not None:
        return _crossing_section(title, records.crossing)
    if records.without:
        return _without_section(title, records.without)
    return Section(
        id="twins",
        title=title,
        sentence="Nobody's documents were left out in a training of their own. `wherefrom twins "
        'RUN --without "NAME"` shows what it would have said, had it never read of them; '
        "`wherefrom twins --out DIR` does it for all judged people.",
        missing=True,
    )


def _without_section(title: str, records: tuple[dict[str, Any], ...]) -> Section:
    rows = tuple(
        (
            one["subject"],
            len(one["documents"]),
            one["with"]["answer"],
            one["without"]["answer"],
            one.get("right"),
            one["score"],
            one["truth"],
        )
        for one in records
    )
    changed = sum(one["truth"] == "remembered" for one in records)
    return Section(
        id="twins",
        title=title,
        sentence=f"Trained again without one person's documents, {plural(len(rows), 'time')}: "
        f"{changed:,} of the answers needed the documents to be right.",
        more=tuple(str(one["why"]) for one in records),
        table=Table(
            ("left out", "documents", "having read them", "never having read them", "right answer",
             "memorisation (nats)", "truth"),
            rows,
            ("text", "count", "text", "text", "text", "number", "text"),
        ),
    )  # fmt: skip


def _crossing_section(title: str, record: dict[str, Any]) -> Section:
    truth = record["truth"]["with"]
    people = record["people"]["judged"]
    rows = tuple(
        (name, found["all"]["value"], found["all"]["low"], found["all"]["high"],
         found["readers"]["value"], found["rank"]["value"])
        for name, found in record["agreement"].items()
        if not name.startswith("signal ")
    )  # fmt: skip
    caught = record["caught"].get("verdict remembered", {})
    sentence = (
        f"Each of {plural(people, 'person')} was read about by one of two models: "
        f"{truth.get('remembered', 0):,} of the readers' answers are right and would not have been "
        "without the document"
    )
    if caught and caught["precision"]["value"] is not None:
        sentence += (
            f"; of the answers with the verdict remembered {percent(caught['precision']['value'])} "
            "are so in truth"
        )
    return Section(
        id="twins",
        title=title,
        sentence=sentence + ".",
        more=tuple(record.get("notes", ())),
        table=Table(
            ("score", "AUROC, all answers", "low", "high", "AUROC, readers", "rank correlation"),
            rows,
            ("text", *("number",) * 5),
        ),
    )


def mark(text: str, subject: str, answer: str, truth: str = "") -> list[dict[str, str]]:
    """The text in pieces {"kind", "text"}, in order, nothing lost.

    The kind is "name", "place" for the answer, "truth" for another answer that is the right one,
    and "" for all the rest.

    Words are compared as the evidence compares them, whatever their case and accents. A family
    name alone counts as the name too.
    """
    words = split_words(text)
    folded = [word.folded for word in words]
    kinds = [""] * len(text)
    name, place = fold_words(subject), fold_words(answer)
    right = fold_words(truth)
    stated = ((right, "truth"), (place, "place"))
    for phrase, kind in (*stated, (name[-1:], "name"), (name, "name")):
        for at in find_phrase(folded, phrase):
            first, last = words[at].start, words[at + len(phrase) - 1].end
            whole = phrase == name or kind != "name"
            if whole or (text[first].isupper() and not any(kinds[first:last])):
                kinds[first:last] = [kind] * (last - first)
    pieces = []
    for kind, group in groupby(range(len(text)), key=kinds.__getitem__):
        places = list(group)
        pieces.append({"kind": kind, "text": text[places[0] : places[-1] + 1]})
    return pieces
