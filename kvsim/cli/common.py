"""The flags that several commands share, made from the settings of a scenario.

Every setting of :class:`kvsim.scenario.Scenario` is a flag of the same name, so a setting is
described, typed and defaulted in one place only.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from kvsim.cli.output import OUTPUTS, Output
from kvsim.errors import ConfigError, shown
from kvsim.scenario import Scenario, Settings, Workload
from kvsim.scenario_file import load

NESTED = "workload__"
"""Begins the parameter of a setting of the workload."""
OFF = "__off"
"""Ends the parameter of a flag like ``--no-sort``."""
SPECIAL = {"format", "slo", "workload"}
"""Settings whose flags are written out below."""


def with_scenario(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of a scenario; it receives the scenario and the output format."""
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.name not in ("scenario", "output")
    ]
    names = {parameter.name for parameter in own}
    # A command's own flag stands in for the setting of the same name.
    shared = [flag for flag in SHARED if flag.name not in names]
    settings = (*_flags(Scenario, ""), *_flags(Workload, NESTED))
    derived = [*shared, *(flag for flag in settings if flag.name not in names)]

    def run(**given: Any) -> None:
        mine = {name: given.pop(name) for name in names}
        command(scenario=_scenario(given), output=_output(given), **mine)

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature([*own, *derived])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in [*own, *derived]}
    return run


def _flag(name: str, kind: Any, *written: str, **shown: Any) -> inspect.Parameter:
    """A flag that is None unless given; ``shown`` as for :func:`flag_option`."""
    annotation = Annotated[kind, flag_option(*written, **shown)]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def flag_option(
    *written: str, help: str, panel: str, metavar: str | None = None, hidden: bool = False
) -> Any:
    """How a flag is written and explained."""
    return typer.Option(
        *written,
        help=help,
        rich_help_panel=panel,
        metavar=metavar,
        hidden=hidden,
    )


SHARED = [
    _flag(
        "scenario_file",
        Path | None,
        "--scenario",
        help="Settings from a TOML or YAML file; flags win over it.",
        panel="Scenario",
    ),
    _flag(
        "assignments",
        list[str] | None,
        "--set",
        help="Any setting, or an option of a plug-in: allocator.fit=best. Repeatable.",
        panel="Scenario",
    ),
    _flag(
        "formats",
        list[str] | None,
        "--format",
        help="Format of the trace (mooncake, azure, ...) or of the output (table, json, csv).",
        panel="Workload",
    ),
    _flag("trace_format", str | None, help="Format of the trace.", panel="Workload"),
    _flag("output_format", Output | None, help="Format of the output.", panel="Results"),
    _flag("json", bool, "--json", help="Print JSON and nothing else.", panel="Results"),
    _flag(
        "slo",
        list[str] | None,
        help="Objective of each request, counted as goodput: ttft=2s. Repeatable.",
        panel="Results",
    ),
    _flag(
        "goodput",
        list[str] | None,
        help="Objective in milliseconds: ttft:500. Repeatable.",
        panel="Results",
    ),
]


NOT_SETTINGS = {parameter.name for parameter in SHARED}


def _flags(kind: type[Settings], prefix: str) -> Iterator[inspect.Parameter]:
    for name, field in kind.model_fields.items():
        if name in SPECIAL:
            continue
        extra = field.json_schema_extra
        panel = str(extra["panel"]) if isinstance(extra, dict) else "Other"
        key, dashed, text = prefix + name, name.replace("_", "-"), str(field.description)
        if field.annotation is bool:
            # The one that is the default anyway is not shown.
            shown = {"help": text, "panel": panel}
            yield _flag(key, bool | None, f"--{dashed}", hidden=field.default, **shown)
            shown["help"] = f"Do not {text[0].lower()}{text[1:]}"
            yield _flag(key + OFF, bool | None, f"--no-{dashed}", hidden=not field.default, **shown)
            continue
        default = "" if field.default is None else f" \\[default: {field.default}]"
        yield _flag(
            key,
            str | None,
            f"--{dashed}",
            help=text + default,
            panel=panel,
            metavar=_metavar(field.annotation),
        )


def _metavar(annotation: Any) -> str:
    """What a value looks like; the scenario itself checks it."""
    kinds = {annotation, *get_args(annotation)}
    kinds |= {inner for kind in kinds for inner in get_args(kind)}
    if str in kinds:
        return "TEXT"
    return "INT" if int in kinds else "NUMBER" if float in kinds else "TEXT"


def _scenario(given: dict[str, Any]) -> Scenario:
    """The scenario of a file, of flags and of assignments, the later winning."""
    written = {name: value for name, value in given.items() if value not in (None, [])}
    flags = {
        name.removesuffix(OFF).replace(NESTED, "workload."): not name.endswith(OFF) and value
        for name, value in written.items()
        if name not in NOT_SETTINGS
    }
    objectives = [*written.get("slo", ()), *written.get("goodput", ())]
    if objectives:
        flags["slo"] = objectives
    trace_format = written.get("trace_format") or _single(given["formats"], outputs=False)
    if trace_format:
        flags["workload.format"] = trace_format
    assigned = dict(_assignment(text) for text in written.get("assignments", ()))
    return load(written.get("scenario_file"), flags | assigned)


def note_ignored(scenario: Scenario) -> None:
    """Say on stderr which settings were given but have no effect."""
    from kvsim.compose import ignored

    for name in ignored(scenario):
        who = f"{scenario.allocator.name} and {scenario.scheduler.name}"
        print(f"kvsim: note: {name} means nothing to {who}", file=sys.stderr)


def require_simulated(scenario: Scenario, who: str) -> None:
    """Refuse a scenario that is executed, where many replays or other times are needed."""
    if scenario.executor is not None:
        raise ConfigError(
            f"{who} simulates: it takes no --executor; accepted by kvsim replay, compare"
        )


def _output(given: dict[str, Any]) -> Output:
    if given["json"]:
        return "json"
    written: Output | None = given["output_format"] or _single(given["formats"], outputs=True)
    return written or "table"


def _single(formats: Sequence[str] | None, *, outputs: bool) -> Any:
    """The one format among those of ``--format`` that belongs to the output (or to the trace)."""
    chosen = sorted({name for name in formats or () if (name in OUTPUTS) is outputs})
    if len(chosen) > 1:
        kind = "output" if outputs else "trace"
        raise ConfigError(f"--format names two {kind} formats: {' and '.join(chosen)}")
    return chosen[0] if chosen else None


def _assignment(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ConfigError(f"--set {shown(text)} must be like block_size=32 or allocator.fit=best")
    return name.strip(), value.strip()
