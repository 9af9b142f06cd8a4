"""What the site needs beyond plain Markdown; mkdocs calls these functions (see mkdocs.yml).

The pages are written to be read on their own, too: in an editor, or in a browser of repositories.
Two habits from there would break in the site, and are mended here: links to files of the source,
which are not part of it, and lists that follow a paragraph without an empty line.
"""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)]+)\)")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page as mkdocs shall read it."""
    return with_lists_apart(without_source_links(markdown))


def without_source_links(markdown: str) -> str:
    """A link out of the docs becomes the path that it leads to, as code."""
    return OUTSIDE.sub(r"`\2`", markdown)


def with_lists_apart(markdown: str) -> str:
    """An empty line before every list that has none; code is left as it is."""
    lines: list[str] = []
    fenced = False
    for line in markdown.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        before = lines[-1] if lines else ""
        in_text = bool(before.strip()) and not before.startswith((" ", "#", "|")) and not fenced
        if in_text and ITEM.match(line) and not ITEM.match(before):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)
