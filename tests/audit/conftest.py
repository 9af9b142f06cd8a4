"""Tiny models of others, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_samples import make_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A function from the kind of a model to its folder, made once."""
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = make_model(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return folder
