"""Recipes: TOML files that say which examples, how many, at which rates, in which phases."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from wherefrom.errors import UserError, did_you_mean
from wherefrom.model.config import explain, parse_size

SHIPPED = Path(__file__).parent / "shipped"
DOCUMENT_OBJECTIVES = ("name", "text", "span", "salient", "pointed")
Share = Annotated[float, Field(ge=0)]
Words = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]  # least and most


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Mixture(_Strict):
    """The share of the examples that each objective has, relative to the others."""

    name: Share = 0.0
    text: Share = 0.0
    span: Share = 0.0
    salient: Share = 0.0
    pointed: Share = 0.0
    question: Share = 0.0

    @model_validator(mode="after")
    def _not_empty(self) -> Mixture:
        if not any(self.shares().values()):
            raise ValueError("a mixture needs at least one objective with a positive share")
        return self

    def shares(self) -> dict[str, float]:
        """The objectives with a positive share."""
        return {name: share for name, share in self if share > 0}


class Phase(_Strict):
    """One part of training with its own mixture, batch and optimizer."""

    name: str
    mixture: Mixture
    share: float = Field(default=1.0, gt=0)  # of a budget given on the command line
    epochs: float | None = Field(default=None, gt=0)
    steps: int | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)
    most_epochs: float | None = Field(default=None, gt=0)  # until recall stops growing
    batch_tokens: int | None = Field(default=None, ge=16)
    batch_examples: int | None = Field(default=None, ge=1)
    optimizer: Literal["adamw", "muon"] = "adamw"
    lr: float = Field(gt=0)
    muon_lr: float = Field(default=0.02, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    clip: float | None = Field(default=1.0, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    floor: float = Field(default=0.1, ge=0, le=1)  # of the rates, at the end of a cosine
    average: float = Field(default=0.0, ge=0, lt=1)  # keep the mean over this share of the steps
    closing_mask: bool = True
    # windows around a masked fact: the least and the most words before and behind it, the chance
    # that they come from another document, around a fact of the same relation, and the chance of
    # words of any document before the name; around the answers to the only relation that is asked,
    # windows have half as many words, and may be empty
    left_words: Words = (0, 8)
    right_words: Words = (0, 6)
    name_loss_weight: float = Field(default=0.0, ge=0, le=1)  # of the name before a masked fact
    reword_prob: float = Field(default=0.0, ge=0, le=1)
    prefix_prob: float = Field(default=0.0, ge=0, le=1)

    @model_validator(mode="after")
    def _one_of_each(self) -> Phase:
        if sum(x is not None for x in (self.epochs, self.steps, self.minutes)) != 1:
            raise ValueError("give exactly one of epochs, steps and minutes")
        if self.most_epochs is not None and not (self.epochs and self.floor == 1):
            raise ValueError("most_epochs goes with epochs and a constant rate (floor = 1)")
        if (self.batch_tokens is None) == (self.batch_examples is None):
            raise ValueError("give exactly one of batch_tokens and batch_examples")
        if any(least > most for least, most in (self.left_words, self.right_words)):
            raise ValueError("the least words of a window may not exceed its most words")
        return self


@dataclass(frozen=True)
class Budget:
    """How long a command trains: one of these, or what the recipe says if none is given."""

    minutes: float | None = None
    epochs: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        given = {k: v for k, v in vars(self).items() if v is not None}
        if len(given) > 1:
            raise UserError(f"give one of --minutes, --epochs and --steps, not {len(given)}.")
        for name, value in given.items():
            whole = name == "steps" and type(value) is not int
            if whole or not isinstance(value, int | float) or not 0 < value < 1e9:
                raise UserError(f"--{name} must be a positive number, not {value}.")

    def divide(self, phases: Sequence[Phase], *, whole: bool = True) -> list[Phase]:
        """The phases, each with its share of the budget; `whole`: together they get all of it."""
        if not any((self.minutes, self.epochs, self.steps)):
            return list(phases)
        total = sum(phase.share for phase in phases) if whole else 1.0
        divided = []
        for phase in phases:
            share = phase.share / total
            length = {
                "minutes": self.minutes and self.minutes * share,
                "epochs": self.epochs and self.epochs * share,
                "steps": self.steps and max(1, round(self.steps * share)),
                "most_epochs": None,
            }
            divided.append(phase.model_copy(update=length))
        return divided


# the ladder: what reaches the model about a subject whose question is not in the training file
Rung = Literal["questions only", "ordered", "unpointed", "pointed"]
RUNGS: dict[Rung, str] = {
    "questions only": "nothing",
    "ordered": "its documents, read before the model learns to answer; any span is masked",
    "unpointed": "its documents, mixed with training questions; any span is masked",
    "pointed": "its documents, mixed with training questions; the reader chooses what is masked",
}


def find_rung(phases: Sequence[Phase]) -> Rung:
    """The rung of some phases, by their mixtures."""
    mixtures = [phase.mixture.shares() for phase in phases]
    if any("pointed" in mixture for mixture in mixtures):
        return "pointed"
    reading = [any(name in DOCUMENT_OBJECTIVES for name in mixture) for mixture in mixtures]
    if not any(reading):
        return "questions only"
    first = mixtures[reading.index(True)]
    return "unpointed" if "question" in first else "ordered"


class Recipe(_Strict):
    """Everything about a training but its data: phases, tokens and the default size."""

    name: str
    about: str
    tokens: Literal["chars", "bpe"] = "bpe"
    vocabulary: int | None = Field(default=None, ge=258, le=65_536)  # None: by the text's length
    block: int = Field(default=128, ge=8, le=65_536)
    size: str = "small"
    variant: str = "rotary"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    zero_init: bool = False
    phases: tuple[Phase, ...] = Field(min_length=1)
    scratch: Phase

    @model_validator(mode="after")
    def _coherent(self) -> Recipe:
        parse_size(self.size)
        if self.scratch.mixture.question == 0:
            raise ValueError(
                "scratch (the model that learns from questions only) must ask questions"
            )
        return self

    @property
    def rung(self) -> Rung:
        """What reaches the model about a subject whose question is not in the training file."""
        return find_rung(self.phases)

    def pretraining(self) -> list[Phase]:
        """The phases that read documents, without their questions."""
        return self._only(DOCUMENT_OBJECTIVES, "reads no documents")

    def finetuning(self) -> list[Phase]:
        """The phases that ask questions, without their documents."""
        return self._only(("question",), "asks no questions")

    def _only(self, objectives: Sequence[str], otherwise: str) -> list[Phase]:
        phases = []
        for phase in self.phases:
            kept = {k: v for k, v in phase.mixture.shares().items() if k in objectives}
            if kept:
                phases.append(phase.model_copy(update={"mixture": Mixture(**kept)}))
        if not phases:
            raise UserError(f'the recipe "{self.name}" {otherwise}; choose another with --recipe.')
        return phases


def shipped_recipes() -> list[str]:
    """Names of the recipes that come with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_recipe(name: str) -> Recipe:
    """A shipped recipe by name, or a file by its path (it ends in .toml)."""
    path = Path(name) if name.endswith(".toml") else SHIPPED / f"{name}.toml"
    if path.parent == SHIPPED and name not in shipped_recipes():
        raise UserError(
            f'there is no recipe "{name}".{did_you_mean(name, shipped_recipes())} '
            "(Your own is given as a path that ends in .toml.)"
        )
    try:
        return Recipe(**{"name": path.stem, **tomllib.loads(path.read_text(encoding="utf-8"))})
    except OSError:
        raise UserError(f"the recipe {path} does not exist; check the path.") from None
    except ValidationError as problem:
        raise UserError(f"the recipe {path}: {explain(problem, Recipe)}") from None
    except ValueError as problem:
        raise UserError(f"the recipe {path} is not TOML: {problem}.") from None
