"""`wherefrom completion`: the script that lets a shell complete commands, options and files.

The work is click's: it asks `wherefrom` itself what may come next.
"""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem, get_completion_class

from wherefrom.cli.output import echo_err

VARIABLE = "_WHEREFROM_COMPLETE"  # what click looks for before it parses anything
SHELLS = ("bash", "zsh", "fish")


def complete_paths(_: click.Context, __: click.Parameter, written: str) -> list[CompletionItem]:
    """For an argument that may be a path and may be something else: the shell lists files."""
    return [CompletionItem(written, type="file")]


def complete_problems(_: click.Context, __: click.Parameter, written: str) -> list[CompletionItem]:
    """The names of the problems that begin so."""
    from wherefrom.attention.checker.problems import PROBLEMS

    names = [name for name in PROBLEMS if name.startswith(written)]
    return [CompletionItem(name, help=PROBLEMS[name].title) for name in names]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes wherefrom's commands and options in SHELL.

    bash: put eval "$(wherefrom completion bash)" into ~/.bashrc; zsh: the same with zsh in
    ~/.zshrc, behind compinit; fish: wherefrom completion fish >
    ~/.config/fish/completions/wherefrom.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    # not .source(): for bash that starts a bash to look at its version
    writer = found(click.get_current_context().find_root().command, {}, "wherefrom", VARIABLE)
    click.echo(writer.source_template % writer.source_vars())
    if sys.stdout.isatty():  # somebody looks at it; a start-up file is not
        echo_err("wherefrom completion --help says where to put it.")
