"""The command line. A command is a thin shell around a library function of the same meaning.

Commands are found by name in the table below and imported only when they run, and the heavy
libraries only inside them, so that `--help` answers at once.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback

import click

from wherefrom.cli.output import echo_err, is_verbose, with_quiet
from wherefrom.errors import Stopped, UserError, did_you_mean

# name -> module of this package that defines it, in the order that --help lists them
COMMANDS: dict[str, str] = {
    "study": "train",
    "ask": "ask",
    "judge": "judge",
    "names": "judge",
    "report": "report",
    "twins": "twins",
    "pretrain": "train",
    "finetune": "train",
    "evaluate": "train",
    "baseline": "train",
    "export": "train",
    "serve": "serve",
    "design": "workbench",
    "law": "workbench",
    "attention": "attention",
    "variants": "data",
    "recipes": "data",
    "world": "data",
    "problems": "check",
    "check": "check",
    "completion": "completion",
}


# what each extra of pyproject.toml brings, by the name of its import
EXTRAS = {"page": ("fastapi", "multipart", "uvicorn"), "board": ("tensorboard",)}


class CommandTable(click.Group):
    """A click group whose commands live in the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"wherefrom.cli.{COMMANDS[cmd_name]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return with_quiet(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        unknown = args and not args[0].startswith("-") and args[0] not in COMMANDS
        if unknown and not ctx.resilient_parsing:  # a shell that completes is told nothing
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
        from wherefrom.cli.overview import overview

        click.echo(overview(COMMANDS))


with_quiet(cli)


TORCH_READS = {  # as it is loaded; benchmarks train with the same
    # threads that spin long while they wait starve each other as soon as anything else runs: with
    # OpenMP's default, training on a busy machine all but stops (docs/log.md)
    "GOMP_SPINCOUNT": "1000",
    # oneDNN keeps code for every shape of GELU that it meets, and batches have thousands of shapes
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
}


def set_what_torch_reads() -> None:
    """Before torch is loaded; what the user has set stays."""
    for name, value in TORCH_READS.items():
        os.environ.setdefault(name, value)


def main() -> None:
    """Run the command line: exit 0 for success, 2 for a user's mistake, 1 for a failure of ours."""
    set_what_torch_reads()
    if not is_verbose():
        sys.stdout = io.StringIO()  # one process prints the result
    status = _run()
    if "wherefrom.training.distributed" in sys.modules:  # it may have joined others
        from wherefrom.training.distributed import end_process

        end_process(status)
    sys.exit(status)


def _run() -> int:
    """The command's exit status, and whatever is to be said about it on stderr."""
    try:
        status = cli.main(prog_name="wherefrom", standalone_mode=False)
    except UserError as mistake:
        echo_err(f"wherefrom: {mistake}")
        return 2
    except click.ClickException as mistake:
        echo_err(f"wherefrom: {_in_a_sentence(mistake)}")
        return mistake.exit_code
    except (click.Abort, KeyboardInterrupt) as end:
        saved = end if isinstance(end, Stopped) else end.__cause__
        if not isinstance(saved, Stopped):
            echo_err("wherefrom: stopped.")
            return 130
        echo_err("wherefrom: stopped; go on with it by repeating the command with --resume.")
        return 128 + saved.signal_number
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as failure:
        if missing := _missing_package(failure):
            echo_err(f"wherefrom: {missing}")
            return 2
        traceback.print_exc()
        echo_err("wherefrom: the above is a failure of ours, not of yours; please report it.")
        return 1
    return status if isinstance(status, int) else 0


def _missing_package(failure: Exception) -> str | None:
    """A sentence that says how to install what could not be imported, if that is the failure."""
    package = (getattr(failure, "name", None) or "").split(".")[0]
    if not isinstance(failure, ModuleNotFoundError) or package in ("", "wherefrom"):
        return None
    extra = next((f"[{extra}]" for extra, has in EXTRAS.items() if package in has), "")
    return f'this needs {package}, which is not installed; try pip install "wherefrom{extra}".'


def _in_a_sentence(mistake: click.ClickException) -> str:
    """What click found wrong with the arguments, and where the right ones are listed."""
    message = " ".join(mistake.format_message().split()).rstrip(".")
    context = getattr(mistake, "ctx", None)
    return f"{message} (see {context.command_path} --help)." if context else f"{message}."
