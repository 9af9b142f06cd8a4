"""What tests that run students' code share."""

from __future__ import annotations

import pytest

from wherefrom.errors import UserError
from wherefrom.teaching.sandbox import find_protection


@pytest.fixture(scope="session")
def sandbox_works():
    """Skips a test where students' code cannot be run, as without bubblewrap for some roots."""
    try:
        find_protection()
    except UserError as problem:
        pytest.skip(str(problem))
