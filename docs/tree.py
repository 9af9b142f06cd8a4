"""The tree of the source with a phrase a file, as it stands in the README.

    python docs/tree.py            # print it
    python docs/tree.py --write    # put it into README.md

The phrase is the first sentence of a module's docstring, so the two cannot drift apart; a test
holds the README to it.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
START, END = "<!-- tree -->\n", "<!-- /tree -->"
FIRST_SENTENCE = re.compile(r"(.+?[.?])(?:\s|$)", re.DOTALL)


def phrase(path: Path) -> str:
    """The first sentence of a module's docstring, on one line, without its full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    sentence = FIRST_SENTENCE.match(paragraph + " ")
    return (sentence.group(1) if sentence else paragraph).rstrip(".")


def tree() -> str:
    source = ROOT / "src" / "wherefrom"
    lines = ["src/wherefrom/"]

    def walk(folder: Path, depth: int) -> None:
        for path in sorted(folder.iterdir(), key=lambda p: (p.is_dir(), p.name)):
            indent = "  " * depth
            if path.is_dir() and (path / "__init__.py").exists():
                lines.append(f"{indent}{path.name + '/':<{26 - 2 * depth}}"
                             f"{phrase(path / '__init__.py')}")  # fmt: skip
                walk(path, depth + 1)
            elif path.suffix == ".py" and path.name != "__init__.py":
                lines.append(f"{indent}{path.name:<{26 - 2 * depth}}{phrase(path)}")

    walk(source, 1)
    return "```text\n" + "\n".join(lines) + "\n```\n"


def with_tree(readme: str) -> str:
    before, _, rest = readme.partition(START)
    _, _, after = rest.partition(END)
    return before + START + tree() + END + after


if __name__ == "__main__":
    if "--write" in sys.argv:
        page = ROOT / "README.md"
        page.write_text(with_tree(page.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(tree())
