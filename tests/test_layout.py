"""The layout of the package, which a reader would otherwise have to check by eye."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import wherefrom

SOURCE = Path(wherefrom.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
# data flows down this list; a package imports only from packages above it, and from itself
PACKAGES = [
    "errors",
    "storage",
    "attention",
    "checker",
    "teaching",
    "corpus",
    "model",
    "recall",
    "training",
    "huggingface",
    "provenance",
    "audit",
    "study",
    "base_study",
    "evaluation",
    "report",
    "api",
    "web",
    "cli",
    "__main__",
]
SHARED_NAMES = {"Answer"}  # of a model, and of a student that is graded


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def dotted(path):
    """The name that the module is imported by."""
    parts = ("wherefrom", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def imported(nodes):
    """Dotted names of all that is imported, inside functions too."""
    names = set()
    for node in ast.walk(nodes):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def loaded_with(path):
    """Dotted names of what is imported as the module is loaded."""
    imports = [n for n in parsed(path).body if isinstance(n, ast.Import | ast.ImportFrom)]
    return set().union(*map(imported, imports))


def ours(path):
    """What a module imports of the package, as parts below `wherefrom`."""
    names = imported(parsed(path))
    return [name.split(".")[1:] for name in names if name.startswith("wherefrom.")]


def test_a_package_imports_only_from_packages_above_it():
    for path in MODULES:
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        used = {parts[0] for parts in ours(path)}
        above = PACKAGES[: PACKAGES.index(package) + 1] if package != "__init__" else []
        assert used <= set(above), f"{path} imports from {sorted(used - set(above))}"


def test_modules_import_each_other_in_one_direction():
    """What is loaded with a module; an import inside a function may lead anywhere above."""
    names = {dotted(path) for path in MODULES}
    assert len(names) > 50
    graph = {}
    for path in MODULES:
        found = {n if n in names else n.rpartition(".")[0] for n in loaded_with(path)}
        graph[dotted(path)] = (found & names) - {dotted(path)}
    assert list(TopologicalSorter(graph).static_order())


def test_evidence_stands_alone_and_attribution_comes_last():
    """In provenance, reading the text needs no model, and only attribution trains."""
    for path in (SOURCE / "provenance").rglob("*.py"):
        own = path.relative_to(SOURCE).parts[1].removesuffix(".py")
        used = {parts[1] for parts in ours(path) if parts[0] == "provenance" and len(parts) > 2}
        assert "attribution" not in used - {own}, path
        assert own != "evidence" or used <= {own}, path


def test_class_names_are_unique():
    nodes = [node for path in MODULES for node in ast.walk(parsed(path))]
    counted = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert {name for name, count in counted.items() if count > 1} <= SHARED_NAMES


def test_a_module_says_what_it_is_and_does_nothing_forbidden():
    # nothing that was read is ever run, and nothing but the command line prints
    calls = {"print", "eval", "exec", "compile", "__import__", "torch.load", "torch.save"}
    unsafe = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    for path in MODULES:
        tree = parsed(path)
        assert (ast.get_docstring(tree) or "").strip(), path
        called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert not called & calls, path
        used = {name.split(".")[0] for name in imported(tree)}
        assert not used & unsafe, path
        if "transformers" in used:  # an extra, which takes long to load
            assert path.name in ("huggingface.py", "trainer.py"), path
            if path.name != "trainer.py":  # which is loaded where a training starts
                assert "transformers" not in {name.split(".")[0] for name in loaded_with(path)}
