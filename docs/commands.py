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

OF_ALL = {"--quiet", "--json"}  # said once, at the top
PAGE = Path(__file__).parent / "commands.md"
INTRODUCTION = """\
# The command line

*This page is generated: `python docs/commands.py --write`.*

`wherefrom` alone says what it can do on one screen; `wherefrom COMMAND --help` prints what is
here.

- Results go to stdout, messages and progress to stderr. Every command takes `--help` and
  `--quiet`, which leaves stderr to mistakes; every command with a result takes `--json`.
- Exit codes: 0 for success, 2 for a mistake of the user's (one sentence says which), 1 for a
  bug in Wherefrom, 130 after Ctrl-C. `check` has its own: 0 proved or holds, 1 refuted, 3
  inconclusive.
- Bars and colours appear on a terminal only; `NO_COLOR=1` switches colours off.
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
    own, of_study = options(command, context), shared_with_study(name)
    lines += [f"- `{names}`: {about}" for names, about in own.items() if names not in of_study]
    if of_study:
        words = ", ".join(f"`{names.split()[0]}`" for names in of_study)
        lines.append(f"- as for [study](#study): {words}")
    return "\n".join(lines).rstrip() + "\n"


def options(command: click.Command, context: click.Context) -> dict[str, str]:
    """What stands before and behind the colon in the list of a command's options."""
    found = {}
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record and isinstance(parameter, click.Option) and not OF_ALL & set(parameter.opts):
            names, about = (" ".join(part.split()) for part in record)
            found[names] = about
    return found


def shared_with_study(name: str) -> list[str]:
    """The options of another command that trains which mean the same in `study`."""
    if name not in ("pretrain", "finetune"):
        return []
    context = click.Context(cli)
    first, second = (cli.get_command(context, each) for each in ("study", name))
    assert first is not None
    assert second is not None
    of_study = options(first, context)
    return [
        names for names, about in options(second, context).items() if of_study.get(names) == about
    ]


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
