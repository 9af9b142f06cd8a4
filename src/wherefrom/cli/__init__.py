"""The command line; each command is a thin layer over a library function.

A command's module is imported when the command runs, and heavy libraries inside the command, so
that `--help` is instant.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
import traceback

import click

from wherefrom.cli.output import echo_err, is_verbose, with_quiet
from wherefrom.errors import Stopped, Terminated, UserError, did_you_mean

# purpose -> commands
GROUPS = {
    "the whole job": ("study", "audit", "report", "serve"),
    "ask a run": ("ask", "trace", "evaluate", "attention", "judge", "names"),
    "train it again": ("twins", "forget"),
    "step by step": ("examples", "pretrain", "finetune", "baseline", "export"),
    "attention by hand": ("problems", "check", "design", "law"),
    "homework": ("assignment", "grade"),
    "what there is": ("variants", "recipes", "world"),
}
# module of this package -> the commands it defines besides the one of its own name
MODULES = {
    "ask": ("attention", "judge", "names"),
    "evaluate": ("baseline",),
    "show": ("report", "serve", "variants", "recipes", "world"),
    "train": ("study", "audit", "examples", "pretrain", "finetune", "export"),
    "twins": ("forget",),
    "grade": ("assignment",),
    "workbench": ("problems", "check", "design", "law"),
}
HOMES = {name: module for module, names in MODULES.items() for name in names}
COMMANDS = [name for names in GROUPS.values() for name in names]
# the people are from the world of `make study`, so that the examples work after it
FIRST_STEPS = (
    ("wherefrom study --out runs/study", "train and ask: invented people"),
    ('wherefrom ask "Where was Fryderyk Kozar born?"', "ask the newest run"),
    ("wherefrom serve", "the same, in a browser"),
    ('wherefrom check average "q=beta*(k_a+k_b)"', "no training: attention itself"),
)
OVERVIEW = """\
Wherefrom trains a small Transformer on a text of yours, asks it questions, and
says for every answer where it came from: a line of the text, or nowhere.

{groups}

First steps:
{steps}

wherefrom --help lists the commands, wherefrom COMMAND --help explains one."""
# extra of pyproject.toml -> the packages that it installs, by import name
EXTRAS = {
    "page": ("fastapi", "multipart", "uvicorn"),
    "board": ("tensorboard",),
    "audit": ("accelerate", "gguf", "transformers"),
}
TORCH_READS = {  # as it is loaded; benchmarks train with the same
    # OpenMP's threads spin while they wait: with its default, training on a busy machine nearly
    # stops; with a tenth of this, a virtual machine spends its time waking them (benchmarks/log.md)
    "GOMP_SPINCOUNT": "10000",
    # threads of OpenBLAS, which scipy uses, spin as well, and its vectors are short
    "OPENBLAS_NUM_THREADS": "1",
    # oneDNN keeps code for every shape of GELU that it meets, and batches have thousands of shapes
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
}


class CommandTable(click.Group):
    """A click group that loads the commands of COMMANDS when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return COMMANDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"wherefrom.cli.{HOMES.get(cmd_name, cmd_name)}")
        return with_quiet(getattr(module, cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by purpose, each with its first sentence."""
        for title, names in GROUPS.items():
            commands = {name: self.get_command(ctx, name) for name in names}
            rows = [
                (name, found.get_short_help_str(200)) for name, found in commands.items() if found
            ]
            with formatter.section(title[0].upper() + title[1:]):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise UserError(f'there is no command "{args[0]}".{did_you_mean(args[0], COMMANDS)}')
        return super().resolve_command(ctx, args)


@click.command(
    cls=CommandTable,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="wherefrom", message="wherefrom %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Train a small Transformer on a text, ask it, and learn where each answer came from."""
    if ctx.invoked_subcommand is None:
        click.echo(overview())


with_quiet(cli)


def overview() -> str:
    """All commands and the first steps, on one screen of 80 columns."""
    groups = (f"  {title:<20}{'  '.join(names)}" for title, names in GROUPS.items())
    steps = (f"  {command:<48}{about}" for command, about in FIRST_STEPS)
    return OVERVIEW.format(groups="\n".join(groups), steps="\n".join(steps))


def set_what_torch_reads() -> None:
    """Set the environment that torch reads when it loads; the user's own values stay."""
    for name, value in TORCH_READS.items():
        os.environ.setdefault(name, value)


def main() -> None:
    """Run the command line: exit 0 for success, 2 for a mistake of the user, 1 for a bug."""
    set_what_torch_reads()
    signal.signal(signal.SIGTERM, _end)
    if not is_verbose():
        sys.stdout = io.StringIO()  # one process prints the result
    try:
        returned = cli.main(prog_name="wherefrom", standalone_mode=False)
        status = returned if isinstance(returned, int) else 0
    except (Exception, KeyboardInterrupt) as error:
        status = _explain(error)
    if "wherefrom.training.distributed" in sys.modules:  # it may have joined others
        from wherefrom.training.distributed import end_process

        end_process(status)
    sys.exit(status)


def _end(_signal: int, _frame: object) -> None:
    """SIGTERM ends a command as Ctrl-C does; a training handles both by itself."""
    raise Terminated


def _takes_resume() -> bool:
    """Whether this process's command has the option --resume."""
    name = next((word for word in sys.argv[1:] if word in COMMANDS), "")
    command = cli.get_command(click.Context(cli), name)
    return command is not None and any("--resume" in each.opts for each in command.params)


def _explain(error: BaseException) -> int:
    """Print why a command ended on stderr; return the exit status."""
    if isinstance(error, BrokenPipeError):
        sys.stderr.close()
        return 1
    if isinstance(error, click.Abort | KeyboardInterrupt):
        saved = next((e for e in (error, error.__cause__) if isinstance(e, Stopped)), None)
        again = " with --resume" if _takes_resume() else ""  # others resume by themselves
        how = f"; continue it by repeating the command{again}" if saved else ""
        echo_err(f"wherefrom: stopped{how}.")
        if saved is None:
            terminated = isinstance(error, Terminated) or isinstance(error.__cause__, Terminated)
            return 128 + (signal.SIGTERM if terminated else signal.SIGINT)
        return 128 + saved.signal_number
    package = (getattr(error, "name", None) or "").split(".")[0]
    if isinstance(error, UserError):
        sentence = str(error)
    elif isinstance(error, click.ClickException):
        message = " ".join(error.format_message().split()).rstrip(".")
        context = getattr(error, "ctx", None)
        sentence = f"{message} (see {context.command_path} --help)." if context else f"{message}."
    elif isinstance(error, ModuleNotFoundError) and package not in ("", "wherefrom"):
        extra = next((f"[{extra}]" for extra, has in EXTRAS.items() if package in has), "")
        sentence = f'this needs {package}, which is not installed; try pip install "wherefrom'
        sentence += f'{extra}".'
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        sentence = f"{error.filename or 'a file'} cannot be written: {error.strerror}; make room, "
        sentence += "and repeat the command."
    else:
        traceback.print_exception(error)
        echo_err("wherefrom: this is a bug in Wherefrom; please report it with the lines above.")
        return 1
    echo_err(f"wherefrom: {sentence}")
    return error.exit_code if isinstance(error, click.ClickException) else 2
