"""The house rules that a reader would otherwise have to check by eye."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import wherefrom

SOURCE = Path(wherefrom.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
# data flows down this list; a room imports only from rooms above it, and from itself
ROOMS = [
    "errors",
    "storage",
    "attention",
    "corpus",
    "model",
    "training",
    "recall",
    "provenance",
    "study",
    "api",
    "report",
    "web",
    "cli",
    "__main__",
]
EACH_MODULE = pytest.mark.parametrize(
    "path", MODULES, ids=[str(path.relative_to(SOURCE)) for path in MODULES]
)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.Module) -> set[str]:
    """Dotted names of all that is imported, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def called(tree: ast.Module) -> set[str]:
    """Names that are called as they stand, and attributes as module.name."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            names.add(ast.unparse(node.func))
    return names


def test_there_are_modules_to_look_at():
    assert len(MODULES) > 20


@EACH_MODULE
def test_a_room_imports_only_from_rooms_above_it(path):
    room = room_of(path)
    if room == "__init__":
        assert not [name for name in imported(parsed(path)) if name.startswith("wherefrom.")]
        return
    assert room in ROOMS, f"the room {room} has no place in the order"
    above = set(ROOMS[: ROOMS.index(room) + 1])
    used = {name.split(".")[1] for name in imported(parsed(path)) if name.startswith("wherefrom.")}
    assert used <= above, f"{room} imports from {sorted(used - above)}"


@EACH_MODULE
def test_a_module_says_what_it_is(path):
    docstring = ast.get_docstring(parsed(path))
    assert docstring
    assert docstring.strip()


@EACH_MODULE
def test_no_library_code_prints(path):
    assert "print" not in called(parsed(path))


@EACH_MODULE
def test_nothing_read_is_ever_run(path):
    tree = parsed(path)
    assert not called(tree) & {"eval", "exec", "compile", "__import__", "torch.load", "torch.save"}
    unsafe = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    assert not {name.split(".")[0] for name in imported(tree)} & unsafe


@EACH_MODULE
def test_no_code_of_ours_needs_transformers(path):
    assert not [name for name in imported(parsed(path)) if name.split(".")[0] == "transformers"]
