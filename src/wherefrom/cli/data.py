"""Commands that say what there is: world, variants, recipes."""

from __future__ import annotations

from pathlib import Path

import click

from wherefrom.cli.output import JSON, PATH, echo_err, option, print_json, print_table


@click.command()
@option("--people", "How many, unseen ones included.", 3000)
@option("--seed", "The same seed gives the same bytes.", 0)
@option("--out", "Folder to write to.", required=True, type=PATH)
@JSON
def world(people: int, seed: int, out: Path, as_json: bool) -> None:
    """Write the embedded world: invented people, documents about them, questions and the truth."""
    from wherefrom.corpus.world import make_world, summarize_world, write_world

    made = make_world(people, seed)
    summary = summarize_world(made)
    write_world(made, out)
    if as_json:
        print_json(summary | {"out": str(out)})
        return

    def by_split(counts: dict[str, int]) -> str:
        return " / ".join(f"{counts[split]:,}" for split in ("train", "dev", "unseen"))

    rows = [
        ("people", f"{summary['people']:,}"),
        ("  train / dev / unseen", by_split(summary)),
        ("documents", f"{summary['documents']:,}"),
        ("characters", f"{summary['characters']:,}"),
        ("questions", "train / dev / unseen"),
        *((f"  {each['question']}", by_split(each)) for each in summary["relations"].values()),
    ]
    print_table(("world", f"seed {summary['seed']}"), rows)
    echo_err(f"written to {out}")


@click.command()
@JSON
def variants(as_json: bool) -> None:
    """List the variants, with their parameters at the course's size."""
    from wherefrom.model.config import ModelConfig
    from wherefrom.model.decoder import count_parameters
    from wherefrom.model.mixers import VARIANTS

    rows = []
    for name, variant in VARIANTS.items():
        parameters = count_parameters(ModelConfig(variant=name, vocabulary=256))
        rows.append({"name": name, "parameters": parameters, "about": variant.about})
    if as_json:
        print_json(rows)
        return
    cells = [(row["name"], f"{row['parameters']:,}", row["about"]) for row in rows]
    print_table(("variant", "parameters", ""), cells)
    echo_err("at block 128, 4 layers, 8 heads, width 256, vocabulary 256, 64 latents")


@click.command()
@click.argument("name", required=False)
@JSON
def recipes(name: str | None, as_json: bool) -> None:
    """List the shipped recipes, or show all of one."""
    from wherefrom.training.recipes import load_recipe, shipped_recipes

    if name is not None:
        print_json(load_recipe(name).model_dump(mode="json"))
        return
    loaded = [load_recipe(each) for each in shipped_recipes()]
    if as_json:
        print_json([{"name": recipe.name, "about": recipe.about} for recipe in loaded])
        return
    print_table(("recipe", ""), [(recipe.name, recipe.about) for recipe in loaded])
