"""The shape of a model, validated; and sizes by name."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from wherefrom.errors import UserError, did_you_mean

# name -> (width, layers, heads); "WIDTHxLAYERSxHEADS" spells any other
SIZES: dict[str, tuple[int, int, int]] = {
    "tiny": (32, 3, 2),
    "small": (128, 4, 4),
    "course": (256, 4, 8),
    "large": (384, 6, 6),
}


class ModelConfig(BaseModel):
    """The shape of a model; only the perceiver uses `latents`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: str
    vocabulary: int = Field(ge=3)
    block: int = Field(default=128, ge=8, le=65_536)
    layers: int = Field(default=4, ge=1, le=256)
    heads: int = Field(default=8, ge=1)
    width: int = Field(default=256, ge=4)
    latents: int = Field(default=64, ge=1)
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _fits(self) -> ModelConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by {self.heads} heads")
        if (self.width // self.heads) % 2:
            raise ValueError(f"a head needs an even width, not {self.width // self.heads}")
        return self

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def longest_input(self) -> int:
        """A block holds inputs and targets shifted by one, so a model reads one token less."""
        return self.block - 1


def make_config(**fields: Any) -> ModelConfig:
    """A ModelConfig; a wrong field is a UserError that says which and why."""
    try:
        return ModelConfig(**fields)
    except ValidationError as problem:
        raise UserError(f"model configuration: {explain(problem, ModelConfig)}") from None


def parse_size(size: str) -> tuple[int, int, int]:
    """(width, layers, heads) of a named size or of "WIDTHxLAYERSxHEADS"."""
    if size in SIZES:
        return SIZES[size]
    numbers = size.split("x")
    if len(numbers) == 3 and all(number.isdecimal() for number in numbers):
        width, layers, heads = map(int, numbers)
        return width, layers, heads
    raise UserError(
        f'there is no size "{size}"; write WIDTHxLAYERSxHEADS as in 128x4x4, or one of '
        f"{', '.join(SIZES)}."
    )


def explain(problem: ValidationError, model: type[BaseModel]) -> str:
    """The first error that pydantic found, as a sentence with a suggestion."""
    error = problem.errors()[0]
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        *path, last = error["loc"]
        for part in path:  # to the nested model in which the field was looked for
            if isinstance(part, str):
                annotation: Any = model.model_fields[part].annotation
                inner = [annotation, *getattr(annotation, "__args__", ())]
                model = next(t for t in inner if isinstance(t, type) and issubclass(t, BaseModel))
        return f'there is no field "{where}".{did_you_mean(str(last), model.model_fields)}'
    message = error["msg"].removeprefix("Value error, ").removesuffix(".")
    return f"{where}: {message}." if where else f"{message}."
