"""The tree of the source with a phrase per file, as it stands in docs/architecture.md.

    python docs/tree.py            # print it
    python docs/tree.py --write    # put it into docs/architecture.md

The phrase is the first sentence of a module's docstring; a test holds the page to it.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
START, END = "<!-- tree -->\n", "<!-- /tree -->"
# up to a full stop or question mark that stands outside of backquotes and ends a word
FIRST_SENTENCE = re.compile(r"(?:`[^`]*`|[^`])+?[.?](?=\s|$)")


def phrase(path: Path) -> str:
    """The first sentence of a module's docstring, on one line, without its full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    sentence = FIRST_SENTENCE.match(paragraph)
    return (sentence.group() if sentence else paragraph).rstrip(".")


def tree() -> str:
    """One line per package and module: its name and its phrase."""
    lines = ["src/wherefrom/"]

    def walk(folder: Path, depth: int) -> None:
        for path in sorted(folder.iterdir(), key=lambda p: (p.is_dir(), p.name)):
            indent, column = "  " * depth, 26 - 2 * depth
            if path.is_dir() and (path / "__init__.py").exists():
                lines.append(f"{indent}{path.name + '/':<{column}}{phrase(path / '__init__.py')}")
                walk(path, depth + 1)
            elif path.suffix == ".py" and path.name != "__init__.py":
                lines.append(f"{indent}{path.name:<{column}}{phrase(path)}")

    walk(ROOT / "src" / "wherefrom", 1)
    return "\n".join(lines)


def with_tree(page: str) -> str:
    """The page with the tree between its two marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}```text\n{tree()}\n```\n{END}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(with_tree(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(tree())
