"""docs/commands.md from the commands themselves, so that the two cannot drift apart.

    python docs/commands.py            # print it
    python docs/commands.py --write    # write docs/commands.md

A test holds the page to what this prints.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import click

from wherefrom.cli import GROUPS, cli

PAGE = Path(__file__).parent / "commands.md"
INTRODUCTION = """\
# The command line

*This page is generated: `python docs/commands.py --write`.*

`wherefrom` alone says what it can do on one screen; `wherefrom COMMAND --help` prints what is
here.

- Results go to stdout, messages and progress to stderr. `--json` prints the result as JSON.
- Exit codes: 0 for success, 2 for a mistake of the user's (one sentence says which), 1 for a
  bug in Wherefrom, 130 after Ctrl-C. `check` has its own: 0 proved or holds, 1 refuted, 3
  inconclusive.
- `--quiet` leaves stderr to mistakes. Bars and colours appear on a terminal only; `NO_COLOR=1`
  switches colours off.
- `wherefrom --version` prints the version. `python -m wherefrom` is the same program.
"""


def page() -> str:
    """All of commands.md."""
    parts = [INTRODUCTION]
    for title, names in GROUPS.items():
        parts.append(f"## {title[0].upper()}{title[1:]}\n")
        parts += [section(name) for name in names]
    return "\n".join(parts)


def section(name: str) -> str:
    """One command: how it is called, what it does, and its options."""
    root = click.Context(cli, info_name="wherefrom")
    command = cli.get_command(root, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=root)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"### {name}", "", f"    wherefrom {name} {usage}", ""]
    lines += [inspect.cleandoc(command.help or ""), ""]
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is None or not isinstance(parameter, click.Option):
            continue
        names, about = (" ".join(part.split()) for part in record)
        lines.append(f"- `{names}`: {about}" if about else f"- `{names}`")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
