from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wherefrom.errors import UserError
from wherefrom.model.config import parse_size
from wherefrom.training.recipes import load_recipe, parse_recipe, shipped_recipes


def content(**changes: Any) -> dict[str, Any]:
    phase = {"name": "ask", "mixture": {"question": 1}, "steps": 5, "batch_examples": 8, "lr": 0.1}
    recipe: dict[str, Any] = {"name": "mine", "about": "a test", "phases": [phase]}
    recipe["scratch"] = phase
    return recipe | changes


def phase_with(**changes: Any) -> dict[str, Any]:
    return content(phases=[content()["scratch"] | changes])


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_parses_and_can_pretrain_and_finetune(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.about
    assert all(phase.mixture.question == 0 for phase in recipe.pretraining())
    assert all(list(phase.mixture.shares()) == ["question"] for phase in recipe.finetuning())


def test_the_course_is_the_stock_recipe_to_the_letter() -> None:
    recipe = load_recipe("course")
    assert (recipe.tokens, recipe.block, recipe.dropout) == ("chars", 128, 0.1)
    assert parse_size(recipe.size) == (256, 4, 8)  # width, layers, heads
    pretrain, finetune = recipe.phases
    assert pretrain.mixture.shares() == {"span": 1.0}
    assert (pretrain.epochs, pretrain.batch_examples, pretrain.lr) == (650, 128, 6e-3)
    assert pretrain.closing_mask is False  # prefix MASK suffix MASK masked, and no third
    assert finetune.mixture.shares() == {"question": 1.0}
    assert (finetune.epochs, finetune.batch_examples, finetune.lr) == (10, 256, 6e-4)
    assert recipe.scratch.mixture.shares() == {"question": 1.0}
    alone = recipe.scratch
    assert (alone.epochs, alone.batch_examples, alone.lr) == (75, 256, 6e-4)
    for phase in (pretrain, finetune, alone):
        assert (phase.optimizer, phase.betas) == ("adamw", (0.9, 0.95))
        assert (phase.weight_decay, phase.clip) == (0.1, 1.0)
        assert (phase.schedule, phase.decay_from) == ("cosine", 0.0)  # once, over the whole phase


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (content(vocabulry=300), 'no field "vocabulry". Did you mean "vocabulary"?'),
        (phase_with(weight_decy=1), 'no field "phases.0.weight_decy". Did you mean "weight_decay'),
        (phase_with(mixture={"spam": 1}), 'no field "phases.0.mixture.spam". Did you mean "span"?'),
        (phase_with(lr="fast"), "phases.0.lr: Input should be a valid number"),
        (phase_with(lr=-1), "phases.0.lr: Input should be greater than 0."),
        (phase_with(lr=float("inf")), "phases.0.lr: Input should be a finite number."),
        (phase_with(betas=[0.9, 1.5]), "phases.0.betas.1: Input should be less than 1."),
        (phase_with(steps=2.5), "phases.0.steps: Input should be a valid integer"),
        (phase_with(epochs=2), "phases.0: give exactly one of epochs, steps and minutes."),
        (phase_with(steps=None), "phases.0: give exactly one of epochs, steps and minutes."),
        (phase_with(batch_tokens=64), "give exactly one of batch_tokens and batch_examples."),
        (phase_with(mixture={}), "a mixture needs at least one objective"),
        (phase_with(optimizer="sgd"), "phases.0.optimizer: Input should be 'adamw' or 'muon'."),
        (content(phases=[]), "phases: "),
        (content(size="huge"), 'there is no size "huge"'),
        (content(scratch=content()["scratch"] | {"mixture": {"text": 1}}), "must ask questions."),
    ],
)
def test_what_is_wrong_in_a_recipe_is_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as problem:
        parse_recipe(wrong, "mine.toml")
    message = str(problem.value)
    assert message.startswith("the recipe mine.toml: ")
    assert sentence in message
    assert "\n" not in message
    assert message.endswith((".", "?"))
    assert not message.endswith("..")


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r'no recipe "coarse"\. Did you mean "course"\?'):
        load_recipe("coarse")


def test_a_path_to_nothing_and_a_file_that_is_not_toml_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.toml does not exist"):
        load_recipe(str(tmp_path / "gone.toml"))
    (tmp_path / "bad.toml").write_text("lr == 3")
    with pytest.raises(UserError, match=r"bad\.toml is not TOML: .*line 1") as problem:
        load_recipe(str(tmp_path / "bad.toml"))
    assert "\n" not in str(problem.value)


def test_a_mixed_phase_becomes_its_documents_or_its_questions() -> None:
    mixed = {"question": 0.2, "text": 0.6, "salient": 0.2}
    recipe = parse_recipe(phase_with(mixture=mixed), "x")
    assert [p.mixture.shares() for p in recipe.pretraining()] == [{"text": 0.6, "salient": 0.2}]
    assert [p.mixture.shares() for p in recipe.finetuning()] == [{"question": 0.2}]
    assert recipe.pretraining()[0].steps == recipe.finetuning()[0].steps == 5


def test_a_recipe_without_documents_cannot_pretrain_nor_one_without_questions_finetune() -> None:
    with pytest.raises(UserError, match='"mine" reads no documents; choose another'):
        parse_recipe(content(), "x").pretraining()
    with pytest.raises(UserError, match='"mine" asks no questions; choose another'):
        parse_recipe(phase_with(mixture={"text": 1}), "x").finetuning()
