"""Wherefrom: train a small Transformer on a text, and learn where each of its answers came from.

    import wherefrom

    wherefrom.check("average", "q=beta*(k_a+k_b)")           # proved, with the reason
    wherefrom.Study("runs/study", minutes=8).run()           # train, ask, compare, judge
    run = wherefrom.Wherefrom("runs/study")                  # the commands on one run
    run.ask("Where was Fryderyk Kozar born?").shown          # a place, or "I don't know"

The names in `__all__` are what others may build on; everything else may move. They are imported
when they are first used, so that `import wherefrom` costs next to nothing.
"""

import importlib

# modules -> the names that they define; __init__.pyi says the same to type checkers
_MODULES = {
    "api": "Study Wherefrom ask design evaluate law load trace",
    "checker": "CheckResult check",
    "attention.equation": "Attention attend",
    "attention.laws": "HeadsLaw",
    "attention.designs": "Design",
    "corpus.database": "read_documents",
    "corpus.questions": "read_questions",
    "corpus.world": "make_world write_world",
    "errors": "Record UserError",
    "provenance.ask": "Asker open_asker",
    "provenance.guarantee": "Guarantee",
    "provenance.verdicts": "Verdict",
    "recall.table": "Recall",
    "study": "StudyResult",
    "training.run_folder": "Run",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("wherefrom")
    if name not in _HOMES:
        raise AttributeError(f"module 'wherefrom' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"wherefrom.{_HOMES[name]}"), name)
    if type(found) is type(__getattr__):  # a function
        found = importlib.import_module("wherefrom.errors").public(found)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
