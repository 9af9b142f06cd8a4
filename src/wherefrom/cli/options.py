"""Options that the training commands share, and how they become settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wherefrom.errors import UserError

if TYPE_CHECKING:
    from wherefrom.training.jobs import Settings

Command = TypeVar("Command", bound=Callable[..., Any])


def training_options(default_recipe: str) -> Callable[[Command], Command]:
    """--recipe, the budget, --seed, --size and the rest, alike in every training command."""
    options = [
        click.option(
            "--recipe",
            default=default_recipe,
            show_default=True,
            help="A shipped recipe's name or the path of a .toml file.",
        ),
        click.option("--minutes", type=float, help="Train this long."),
        click.option("--epochs", type=float, help="Train for this many passes over the data."),
        click.option("--steps", type=int, help="Train for this many optimizer steps."),
        click.option("--seed", default=0, show_default=True, help="Decides all that is random."),
        click.option("--size", help="tiny, small, course, large or WIDTHxLAYERSxHEADS."),
        click.option("--tokens", type=click.Choice(["chars", "bpe"]), help="How text is cut."),
        click.option("--block", type=int, help="The longest example, in tokens."),
        click.option("--latents", type=int, help="Size of the perceiver's basis."),
        click.option(
            "--reads", type=click.Choice(["strided", "first"]), help="The perceiver's mask."
        ),
        click.option(
            "--device",
            default="auto",
            show_default=True,
            type=click.Choice(["auto", "cpu", "cuda", "mps"]),
        ),
        click.option("--compile", "compiled", is_flag=True, help="Use torch.compile."),
        click.option("--resume", is_flag=True, help="Go on with the run in --out."),
        click.option(
            "--checkpoint-every",
            default=60.0,
            show_default=True,
            metavar="SECONDS",
            help="How much may be lost to a kill.",
        ),
        click.option(
            "--shard", is_flag=True, help="Under torchrun: spread the model over the processes."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("--quiet", is_flag=True, help="No progress on stderr."),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def settings_from(
    *,
    recipe: str,
    minutes: float | None,
    epochs: float | None,
    steps: int | None,
    seed: int,
    variant: str | None = None,
    **rest: Any,
) -> Settings:
    """The shared options, checked."""
    from wherefrom.model.mixers import find_variant
    from wherefrom.training.jobs import Budget, Settings
    from wherefrom.training.recipes import load_recipe

    if not 0 <= seed < 2**31:
        raise UserError(f"--seed must be between 0 and {2**31 - 1}, not {seed}.")
    if variant is not None:
        find_variant(variant)
    return Settings(
        recipe=load_recipe(recipe),
        variant=variant,
        budget=Budget(minutes=minutes, epochs=epochs, steps=steps),
        seed=seed,
        **rest,
    )
