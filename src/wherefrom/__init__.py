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

# name -> module that defines it; __init__.pyi says the same to type checkers
_HOMES = {
    "Asker": "provenance.ask",
    "Attention": "attention.equation",
    "CheckResult": "attention.checker.result",
    "Design": "attention.queries",
    "HeadsLaw": "attention.laws",
    "Recall": "recall.evaluate",
    "Record": "results",
    "Run": "training.run_folder",
    "Study": "api",
    "StudyResult": "study",
    "UserError": "errors",
    "Verdict": "provenance.verdicts",
    "Wherefrom": "api",
    "ask": "api",
    "attend": "attention.equation",
    "check": "api",
    "design": "api",
    "evaluate": "api",
    "law": "api",
    "load": "api",
    "make_world": "corpus.world",
    "open_asker": "provenance.ask",
    "read_documents": "corpus.documents",
    "read_questions": "corpus.questions",
    "write_world": "corpus.world",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("wherefrom")
    if name not in _HOMES:
        raise AttributeError(f"module 'wherefrom' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"wherefrom.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
