"""The report on training: what was trained on what, its recall, its curves, what mixing costs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from wherefrom.provenance.proportions import rate
from wherefrom.report import study_figures as figures
from wherefrom.report.run_records import Records
from wherefrom.report.sections import Section, Table, drawn, listed, percent, plural, show_cell

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
