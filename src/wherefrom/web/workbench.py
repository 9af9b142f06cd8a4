"""Workbench: sliders for the noisy keys, and the homework's problems as chapters with a box.

Nothing is computed in the browser. A slider that moves asks for these numbers again, so what is
drawn is what `attend`, the exact law and the trials gave.
"""

from __future__ import annotations

import math
import re
import tomllib
from importlib.resources import files
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from wherefrom.attention.designs import Design, law_of_design, tv_distance
from wherefrom.attention.equation import attend
from wherefrom.attention.laws import A, B
from wherefrom.attention.simulate import compare, simulate
from wherefrom.checker import PROBLEMS, check
from wherefrom.errors import UserError
from wherefrom.web.replies import TheSite, html_and_json
from wherefrom.web.runs import Record

router = APIRouter()
WORK_SECONDS = 10.0  # for a check, a law or a drawing
MAX_LOGITS = 600_000  # what the trials of one picture may cost
MIN_TRIALS, MAX_TRIALS = 2_000, 20_000
DESIGNS = {
    "one-head": "both values with one query",
    "two-heads": "one value for each head",
    "avoiding-head": "push the others away",
    "repelling-heads": "two heads that also repel",
}
# where the values are drawn: a and b at the ends of the base, all others at the top
CORNERS = ((0.0, 0.0), (1.0, 0.0), (0.5, 0.8))


class Setting(BaseModel):
    """Where the sliders stand."""

    design: Literal["one-head", "two-heads", "avoiding-head", "repelling-heads"] = Field(
        "one-head", description="how the two values are asked for"
    )
    n: int = Field(8, ge=2, le=200, description="number of keys")
    beta: float = Field(10.0, ge=0, le=60, description="factor of the query")
    alpha: float = Field(0.0, ge=0, le=0.05, description="blur of every key")
    stretch: float = Field(0.5, ge=0, le=1, description="variance of key a's length")
    heads: int = Field(1, ge=1, le=4, description="number of heads")
    e: float = Field(1.3, ge=-1, le=3, description="length of key a just now")
    seed: int = Field(0, ge=0, le=1_000_000, description="decides the trials")

    def fitted(self) -> Setting:
        """With as many keys and heads as the design needs."""
        n = max(3, self.n) if self.design == "avoiding-head" else self.n
        heads = max(2, self.heads) if self.design == "two-heads" else self.heads
        heads = 2 if self.design == "repelling-heads" else min(heads, n)
        return self.model_copy(update={"n": n, "heads": heads})


def _read_chapters() -> dict[str, Record]:
    """The chapters by problem, in the order of the checker's problems, which numbers them.

    bench: settings of the sliders that show it. sliders: those of the chapter's own figure.
    """
    text = files("wherefrom.web").joinpath("chapters.toml").read_text(encoding="utf-8")
    written = {chapter.pop("problem"): chapter for chapter in tomllib.loads(text)["chapter"]}
    return {
        name: {"number": number, "bench": "", "sliders": [], **written[name]}
        for number, name in enumerate(PROBLEMS, start=1)
    }


CHAPTERS = _read_chapters()
CONTENTS = [{"name": k, "number": c["number"], "title": c["title"]} for k, c in CHAPTERS.items()]


@html_and_json(router, "/workbench", "workbench.html")
async def workbench(site: TheSite, setting: Annotated[Setting, Query()]) -> Record:
    """The weights under noisy keys: for one length of the key, by exact law, and by trials."""
    setting = setting.fitted()
    return {
        "setting": setting.model_dump(),
        "result": await site.computing.run(work_out, setting, seconds=WORK_SECONDS),
        "next_length": draw_length(setting.stretch, setting.seed + 1),
        "designs": DESIGNS,
        "chapters": CONTENTS,
    }


def work_out(setting: Setting) -> dict[str, Any]:
    """Everything that the page shows for one setting."""
    from wherefrom.report.figures import BLUE, as_record
    from wherefrom.report.workbench_figures import law_and_trials

    chosen = setting.model_dump(include={"n", "beta", "alpha", "stretch", "heads"})
    built, law = law_of_design(setting.design, **chosen)
    count = MAX_LOGITS // (setting.n * setting.heads)
    count = max(MIN_TRIALS, min(MAX_TRIALS, count - count % 2))
    trials = simulate(law, count=count, rng=np.random.default_rng(setting.seed))
    agreement = compare(law, trials)
    figure = law_and_trials(("", BLUE, law, trials)).update_layout(height=340)
    return {
        "formula": built.formula,
        "claim": built.claim,
        "heads": setting.heads,
        "now": weights_now(setting, built),
        "law": {
            "mean": law.mean,
            "sd": law.spread,
            "fails": law.heads[0].p_below_half,
            "backwards": law.p_negative,
            "only_trials": law.why_no_spread or law.heads[0].why_no_distribution or "",
        },
        "trials": {
            "count": trials.count,
            "mean": trials.average.mean.value,
            "sd": trials.average.sd.value,
            "fails": trials.heads[0].p_below_half.value,
        },
        "agrees": agreement.agrees,
        "agreement": agreement.sentence,
        "figure": as_record(figure),
    }


def weights_now(setting: Setting, built: Design) -> dict[str, Any]:
    """The weights and c for one length e of key a, blur aside."""
    keys = np.eye(setting.n)
    keys[A] *= setting.e
    places = np.array([*CORNERS[:2], *[CORNERS[2]] * (setting.n - 2)])
    context, weights, scores = attend(built.queries, keys, places)
    mean = weights.mean(axis=0)

    def split(row: Any) -> dict[str, float]:
        return {"a": float(row[A]), "b": float(row[B]), "others": float(row[2:].sum())}

    # the queries in the plane of the two means, as arrows of length one
    plane = built.queries[:, [A, B]]
    lengths = np.linalg.norm(plane, axis=1)
    return {
        "e": setting.e,
        "heads": [
            {**split(row), "logit_a": float(score[A]), "logit_b": float(score[B])}
            for row, score in zip(weights, scores, strict=True)
        ],
        "weights": mean[:12].tolist(),
        **split(mean),
        "c": context.mean(axis=0).tolist(),
        "queries": (plane[lengths > 0] / lengths[lengths > 0, None]).tolist(),
        "misses": tv_distance(mean, (np.arange(setting.n) <= B) / 2),
    }


def draw_length(stretch: float, seed: int) -> float:
    """A length e of key a, drawn from its law."""
    drawn = 1 + math.sqrt(stretch) * float(np.random.default_rng(seed).standard_normal())
    return round(min(3.0, max(-1.0, drawn)), 2)


@html_and_json(router, "/workbench/{name}", "chapter.html", typed="formulas")
async def chapter(
    site: TheSite,
    request: Request,
    name: Annotated[str, Path(max_length=60, description="the problem's name")],
    formulas: Annotated[
        str | None,
        Query(max_length=3_000, description="the construction, one formula a line"),
    ] = None,
) -> Record:
    """A chapter of the homework; what is written into `formulas` is checked."""
    if name not in CHAPTERS:
        raise HTTPException(404)
    record, names = CHAPTERS[name], [None, *CHAPTERS, None]
    index = names.index(name)
    shown = {key: value for key, value in record.items() if key != "sliders"}
    forms = PROBLEMS[name].forms
    alone = {form[0] for form in forms if len(form) == 1}  # several of these need no mention
    listed = [form for form in forms if len(form) == 1 or not alone.issuperset(form)]
    write = " or ".join(" and ".join(form) for form in listed)
    verdict = drawing = None
    if formulas is not None:
        verdict = await site.computing.run(check_formulas, name, formulas, seconds=WORK_SECONDS)
    if record["sliders"]:
        query, written = dict(request.query_params), verdict["read_as"] if verdict else {}
        drawing = await site.computing.run(draw_chapter, name, query, written, seconds=WORK_SECONDS)
    return {
        "chapter": {"name": name, "write": write, **shown},
        "problem": PROBLEMS[name].to_dict(),
        "written": formulas or "",
        "verdict": verdict,
        "drawing": drawing,
        "chapters": CONTENTS,
        "before": names[index - 1],
        "after": names[index + 1],
    }


def draw_chapter(name: str, query: dict[str, str], written: dict[str, str]) -> Record:
    """The chapter's figure: of the keys that were written, or else by the sliders in the query."""
    from wherefrom.report.figures import as_record
    from wherefrom.report.workbench_figures import DRAWINGS, draw_keys

    sliders = []
    for slider in CHAPTERS[name]["sliders"]:
        try:
            value = float(query.get(slider["name"], slider["value"]))
        except ValueError:
            value = math.nan
        if not slider["least"] <= value <= slider["most"]:
            between = f"between {slider['least']} and {slider['most']}"
            raise UserError(f"{slider['name']} must be a number {between}.")
        sliders.append({**slider, "value": value})
    keys = read_plane_keys(written.get("K", ""))
    if keys is not None:
        sentence, figure = draw_keys(keys)
        sentence = f"Your keys. {sentence} The sliders draw an example instead."
    else:
        sentence, figure = DRAWINGS[name](**{s["name"]: s["value"] for s in sliders})
        if "K" in written:
            sentence = f"Only keys with two entries are drawn; these are an example. {sentence}"
    figure.update_layout(height=360)
    return {"sliders": sliders, "sentence": sentence, "figure": as_record(figure)}


def read_plane_keys(written: str) -> np.ndarray | None:
    """Keys with two entries, such as [[1, 0], [1/2, 3]], as numbers; None for any others."""
    keys = []
    try:
        for row in re.findall(r"\[([^\[\]]*)\]", written):
            fractions = [entry.partition("/") for entry in row.split(",")]
            keys.append([float(above) / float(below or 1) for above, _, below in fractions])
    except (ValueError, ZeroDivisionError):
        return None
    is_plane = len(keys) > 1 and all(len(key) == 2 for key in keys)
    return np.array(keys) if is_plane and np.isfinite(keys).all() else None


def check_formulas(name: str, formulas: str) -> Record:
    """The checker's verdict on what was written."""
    if not formulas.strip():
        raise UserError("write a formula first, as in the example below the box.")
    return check(name, formulas).to_dict()
