from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from wherefrom.errors import UserError
from wherefrom.model.config import explain, parse_size
from wherefrom.training.recipes import SHIPPED, Recipe, load_recipe, shipped_recipes


def content(**changes: Any) -> dict[str, Any]:
    phase = {"name": "ask", "mixture": {"question": 1}, "steps": 5, "batch_examples": 8, "lr": 0.1}
    recipe: dict[str, Any] = {"name": "mine", "about": "a test", "phases": [phase]}
    return recipe | {"scratch": phase} | changes


def phase_with(**changes: Any) -> dict[str, Any]:
    return content(phases=[content()["scratch"] | changes])


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_parses_and_can_pretrain_and_finetune(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert all(phase.mixture.question == 0 for phase in recipe.pretraining())
    assert all(list(phase.mixture.shares()) == ["question"] for phase in recipe.finetuning())


def test_the_course_is_the_stock_recipe_to_the_letter():
    recipe = load_recipe("course")
    assert (recipe.tokens, recipe.block, recipe.dropout) == ("chars", 128, 0.1)
    assert parse_size(recipe.size) == (256, 4, 8)  # width, layers, heads
    pretrain, finetune, alone = (*recipe.phases, recipe.scratch)
    assert pretrain.closing_mask is False  # prefix MASK suffix MASK masked, and no third
    for phase, mixture, numbers in (
        (pretrain, {"span": 1.0}, (650, 128, 6e-3)),
        (finetune, {"question": 1.0}, (10, 256, 6e-4)),
        (alone, {"question": 1.0}, (75, 256, 6e-4)),
    ):
        assert phase.mixture.shares() == mixture
        assert (phase.epochs, phase.batch_examples, phase.lr) == numbers
        assert (phase.optimizer, phase.weight_decay, phase.clip) == ("adamw", 0.1, 1.0)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (content(vocabulry=300), 'no field "vocabulry". Did you mean "vocabulary"?'),
        (phase_with(weight_decy=1), 'no field "phases.0.weight_decy". Did you mean "weight_decay'),
        (phase_with(mixture={"spam": 1}), 'no field "phases.0.mixture.spam". Did you mean "span"?'),
        (phase_with(lr=-1), "phases.0.lr: Input should be greater than 0."),
        (phase_with(lr=float("inf")), "phases.0.lr: Input should be a finite number."),
        (phase_with(left_words=[3, 2]), "least words of a window may not exceed its most words"),
        (phase_with(epochs=2), "phases.0: give exactly one of epochs, steps and minutes."),
        (phase_with(steps=None), "phases.0: give exactly one of epochs, steps and minutes."),
        (phase_with(batch_tokens=64), "give exactly one of batch_tokens and batch_examples."),
        (phase_with(mixture={}), "a mixture needs at least one objective"),
        (content(phases=[]), "phases: "),
        (content(size="huge"), 'there is no size "huge"'),
        (content(scratch=content()["scratch"] | {"mixture": {"text": 1}}), "must ask questions."),
    ],
)
def test_what_is_wrong_in_a_recipe_is_one_sentence(wrong, sentence):
    with pytest.raises(ValidationError) as problem:
        Recipe(**wrong)
    message = explain(problem.value, Recipe)
    assert sentence in message
    assert "\n" not in message
    assert message.endswith((".", "?"))
    assert not message.endswith("..")


def test_a_file_that_is_not_there_not_toml_or_not_a_recipe_is_a_sentence(tmp_path):
    (tmp_path / "bad.toml").write_text("lr == 3")
    (tmp_path / "odd.toml").write_text((SHIPPED / "course.toml").read_text() + "\nspeed = 3\n")
    for name, sentence in (
        ("coarse", r'no recipe "coarse"\. Did you mean "course"\?'),
        (tmp_path / "gone.toml", r"gone\.toml does not exist"),
        (tmp_path / "bad.toml", r"bad\.toml is not TOML: .*line 1"),
        (tmp_path / "odd.toml", r'odd\.toml: there is no field "scratch\.speed"'),
    ):
        with pytest.raises(UserError, match=sentence) as problem:
            load_recipe(str(name))
        assert "\n" not in str(problem.value)


def test_a_mixed_phase_becomes_its_documents_or_its_questions():
    mixed = {"question": 0.2, "text": 0.6, "salient": 0.2}
    recipe = Recipe(**phase_with(mixture=mixed))
    assert [p.mixture.shares() for p in recipe.pretraining()] == [{"text": 0.6, "salient": 0.2}]
    assert [p.mixture.shares() for p in recipe.finetuning()] == [{"question": 0.2}]
    with pytest.raises(UserError, match='"mine" reads no documents; choose another'):
        Recipe(**content()).pretraining()
    with pytest.raises(UserError, match='"mine" asks no questions; choose another'):
        Recipe(**phase_with(mixture={"text": 1})).finetuning()
