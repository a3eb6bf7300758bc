"""The command ``kvsim``: finds the sub-command, loads only that one, and reports every mistake.

A sub-command is imported when it is called, so that ``kvsim --help`` loads nothing heavy.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from kvsim import __version__
from kvsim.cli.named import Named
from kvsim.errors import ConfigError, KvsimError

INTERRUPTED = 130
"""128 + SIGINT, as shells say it."""


class Lazy(NamedTuple):
    """Where a sub-command lives: ``module:attribute``, a function or a typer app."""

    target: str
    help: str


COMMANDS = {
    "replay": Lazy("kvsim.cli.replay:replay", "Replay a request trace and report what happened."),
    "compare": Lazy(
        "kvsim.cli.compare:compare", "Compare allocators on a trace, or finished runs."
    ),
    "show": Lazy("kvsim.cli.show:show", "Print the summary of a finished run."),
    "sweep": Lazy("kvsim.cli.sweep:app", "Run many configurations of a matrix; resumable."),
    "plan": Lazy("kvsim.cli.plan:plan", "Find the cheapest fleet that serves a trace in time."),
    "dashboard": Lazy("kvsim.cli.dashboard:dashboard", "Show runs, sweeps and plans in a browser."),
    "recommend": Lazy(
        "kvsim.cli.recommend:recommend", "Say which techniques help which kind of use."
    ),
    "report": Lazy("kvsim.cli.report:report", "Write a report on runs, sweeps and plans."),
    "cache": Lazy("kvsim.cli.cache:cache", "Count the hits of a prefix cache alone, by capacity."),
    "leakage": Lazy(
        "kvsim.cli.leakage:leakage", "Measure what timing tells about others' prompts."
    ),
    "size": Lazy("kvsim.cli.size:size", "Size the KV cache of a model on a GPU."),
    "step-time": Lazy(
        "kvsim.cli.step_time:step_time", "Compose the time of an iteration from measured operators."
    ),
    "profile": Lazy("kvsim.cli.profile:app", "Look at and check what was measured on a GPU."),
    "calibrate": Lazy("kvsim.cli.calibrate:calibrate", "Measure the GPU of this machine."),
    "trace": Lazy("kvsim.cli.trace:app", "Inspect, convert and generate traces."),
    "validate": Lazy(
        "kvsim.cli.validate:validate", "Check kvsim against recorded engine decisions."
    ),
    "reproduce": Lazy(
        "kvsim.cli.reproduce:reproduce", "Reproduce published tables and figures, with the gap."
    ),
}


class LazyGroup(TyperGroup):
    """Lists all sub-commands by their help line and imports the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name, help=command.help) for name, command in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The sub-command itself, imported, and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(str(name)), rest


def load(name: str) -> Any:
    """The sub-command called ``name``, ready to be invoked."""
    module, _, attribute = COMMANDS[name].target.partition(":")
    target = getattr(importlib.import_module(module), attribute)
    if isinstance(target, typer.Typer):
        return typer.main.get_command(target)
    single = typer.Typer(add_completion=False)
    single.command(name, cls=Named)(target)
    return typer.main.get_command(single)


app = typer.Typer(cls=LazyGroup, invoke_without_command=True, pretty_exceptions_enable=False)


def _version(value: bool) -> None:
    if value:
        print(f"kvsim {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Replay LLM request traces against KV-cache allocators and schedulers."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; every mistake is one line on stderr and an exit code."""
    _open_closed_streams()
    try:
        code = app(arguments, prog_name="kvsim", standalone_mode=False)
        sys.stdout.flush()
    except KvsimError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(_advice(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader has left (``| head``); nobody is to be told, not even at interpreter exit.
        _discard_output()
        return 1
    except OSError as error:
        if error.filename is None:
            _discard_output()  # Files are written with their names, so this is stdout.
        place = "standard output" if error.filename is None else str(error.filename)
        return _fail(f"{place}: {error.strerror or error}", ConfigError.exit_code)
    return _fail("interrupted", code) if code == INTERRUPTED else code or 0


def _open_closed_streams() -> None:
    """Give a program that was started without streams (``>&-``) ones that lead nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _discard_output() -> None:
    """Let what is still to be written to stdout, at interpreter exit at the latest, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _advice(error: typer.TyperException) -> str:
    """The message of a usage error with the nearest option that exists."""
    option = getattr(error, "option_name", None)
    context = getattr(error, "ctx", None)
    if option is None or context is None:
        return error.format_message()
    flags = [p.opts + p.secondary_opts for p in context.command.params]
    known = ["--help", *(name for names in flags for name in names)]
    near = difflib.get_close_matches(option, known, n=1)
    return f"{error.message}{f'; did you mean {near[0]}?' if near else ''}"


def _fail(message: str, code: int) -> int:
    print(f"kvsim: error: {' '.join(message.split())}", file=sys.stderr)
    return code
