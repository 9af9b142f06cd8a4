"""docs/attention.md names tests and pictures: they exist."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")


def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make", ROOT / "docs" / "figures" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 40
    defined = {
        node.name
        for path in (ROOT / "tests" / "attention").glob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert named - defined == set()


def test_every_picture_is_there_and_can_be_made_again() -> None:
    shown = set(re.findall(r"\(figures/([\w-]+)\.svg\)", PAGE))
    maker = make()
    assert shown == set(maker.drawn())
    for name, build in maker.drawn().items():
        kept = (ROOT / "docs" / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        # places may differ in the last digit from one processor to another; what is drawn may not
        assert re.findall(r"<(\w+)", maker.svg(build())) == re.findall(r"<(\w+)", kept)
