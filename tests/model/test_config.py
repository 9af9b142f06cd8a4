"""Shapes that cannot be are refused in a sentence, and sizes are read as they are written."""

from __future__ import annotations

import pytest
from model_samples import BLOCK, shape

from wherefrom.errors import UserError
from wherefrom.model.config import SIZES, make_config, parse_size
from wherefrom.model.decoder import Decoder
from wherefrom.model.mixers import find_variant


def test_a_misspelt_variant_or_field_is_answered_with_the_nearest():
    with pytest.raises(UserError, match='Did you mean "vanilla"'):
        find_variant("vanila")
    with pytest.raises(UserError, match='Did you mean "layers"'):
        make_config(variant="vanilla", vocabulary=31, layer=3)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"heads": 5}, "not divisible"),
        ({"heads": 6, "width": 66}, "even width"),
        ({"dropout": 1.0}, "dropout"),
        ({"reads": "last"}, "reads"),
        ({"vocabulary": 2}, "vocabulary"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_in_a_sentence(changes, says):
    with pytest.raises(UserError, match=says) as caught:
        shape("vanilla", **changes)
    assert "\n" not in str(caught.value)


def test_a_perceiver_needs_room_inside_and_no_more_latents_than_a_block():
    for changes, says in (
        ({"layers": 2}, "at least 3 layers"),
        ({"latents": BLOCK + 1}, "at most"),
    ):
        with pytest.raises(UserError, match=says):
            Decoder(shape("perceiver", **changes))
        Decoder(shape("vanilla", **changes))  # of no matter to it


def test_a_size_is_a_name_or_three_numbers():
    assert parse_size("course") == SIZES["course"] == (256, 4, 8)
    assert parse_size("66x7x3") == (66, 7, 3)
    for wrong in ("huge", "66x7", "66x7x3x1", "x7x3", "66x-7x3"):
        with pytest.raises(UserError, match="WIDTHxLAYERSxHEADS"):
            parse_size(wrong)
