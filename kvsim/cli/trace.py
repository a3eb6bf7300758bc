"""``kvsim trace``: look at a trace, convert it, or generate one."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.files import require_file

if TYPE_CHECKING:
    from kvsim.workload import Summary, Trace, TraceOptions, WorkloadSpec

Given = Mapping[str, Any]
"""What the user wrote: the flags that were given, by the names of the fields that they set."""
Flags = Mapping[str, tuple[type, str]]

app = typer.Typer(no_args_is_help=True, add_completion=False)

READING: Flags = {
    "format": (str, "Format of the trace; recognised by content if not given."),
    "on_bad_row": (str, "A malformed row is an error, or is counted and skipped: error, skip."),
    "limit": (int, "Read at most this many requests."),
    "start": (float, "Leave out what arrives before this second."),
    "duration": (float, "Read this many seconds of the trace."),
    "speedup": (float, "Divide arrivals and think times by this."),
    "request_rate": (float, "Mean arrivals a second."),
    "arrival": (str, "as-is, poisson or gamma."),
    "burstiness": (float, "Shape of gamma arrivals; below 1 is burstier than Poisson."),
    "seed": (int, "Seed of drawn arrivals."),
    "hash_block": (int, "Tokens that a hash id stands for, where the file does not say."),
    "think_time_cap": (float, "Longest pause between agentic turns that is kept, seconds."),
    "sort": (bool, "Sort by arrival first; holds the whole trace in memory."),
    "isolation": (str, "Whose prompts share prefixes: global, tenant, user or session."),
}
SHAPE: Flags = {
    "requests": (int, "Number of requests, all turns counted."),
    "rate": (float, "Mean requests a second."),
    "arrival": (str, "poisson, gamma:SHAPE, mmpp:FACTOR:SHARE:SECONDS, uniform."),
    "prompt": (str, "Tokens a prompt adds: lognormal:MEAN:SIGMA, fit:TRACE, ..."),
    "output": (str, "Tokens of an answer: fixed:N, uniform:LOW:HIGH, gamma:MEAN:SHAPE, ..."),
    "prefix_groups": (int, "Branches at every node of the tree of shared prefixes."),
    "prefix_tokens": (int, "Length of a shared prefix."),
    "prefix_depth": (int, "Levels of the tree of shared prefixes."),
    "prefix_zipf": (float, "Zipf exponent of the branches' popularity."),
    "turns": (str, "Turns of a session: fixed:N, geometric:MEAN, ..."),
    "think_time": (
        str,
        "Pause between turns, seconds: exponential:MEAN, lognormal:MEAN:SIGMA, ...",
    ),
    "hash_block": (int, "Tokens that a hash id stands for."),
    "n": (int, "Answers of each request, sampled in parallel."),
    "beam_width": (int, "Beams of each request; 1: no beam search."),
    "tenants": (int, "Tenants that sessions belong to, by Zipf's law; 0: none are named."),
    "users": (int, "Users of each tenant, all alike; 0: none are named."),
    "max_tokens": (int, "Longest prompt and answer together."),
}


def with_flags(flags: Flags) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these flags; it receives those that were given as a mapping."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        *own, _ = inspect.signature(command, eval_str=True).parameters.values()

        def run(**written: Any) -> None:
            mine = {parameter.name: written.pop(parameter.name) for parameter in own}
            command(**mine, given={k: v for k, v in written.items() if v is not None})

        parameters = [*own, *(_flag(name, *flag) for name, flag in flags.items())]
        run.__name__ = command.__name__
        run.__doc__ = command.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _flag(name: str, kind: type, help_line: str) -> inspect.Parameter:
    option = typer.Option(f"--{name.replace('_', '-')}", help=help_line, show_default=False)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


Source = Annotated[str, typer.Argument(metavar="TRACE", help="File, folder, or - for stdin.")]
Target = Annotated[
    Path, typer.Argument(metavar="OUT", help=".jsonl, .jsonl.gz, .parquet, or - for stdout.")
]
To = Annotated[str | None, typer.Option("--to", help="Format written: kvsim, mooncake, parquet.")]


@app.command()
@with_flags(READING)
def info(
    trace: Source,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    *,
    given: Given,
) -> None:
    """Count and measure a trace, and say what is odd about it."""
    from kvsim.workload import open_trace, summarise

    summary = summarise(open_trace(trace, _options(given)))
    if json:
        import orjson

        print(orjson.dumps(summary.as_dict(), option=orjson.OPT_INDENT_2).decode())
    else:
        print("\n".join(_lines(summary)))


@app.command()
@with_flags(READING)
def convert(trace: Source, out: Target, to: To = None, *, given: Given) -> None:
    """Write a trace as kvsim JSONL, Parquet or Mooncake JSONL."""
    from kvsim.workload import open_trace, write_trace

    require_target(out, to)
    source = open_trace(trace, _options(given))
    count = write_trace(source, str(out), to)
    _say(f"{out}: {count:,} requests")
    _warn(source)


@app.command()
@with_flags(SHAPE)
def generate(
    out: Target,
    preset: Annotated[
        str | None,
        typer.Option(help="Start from conversation, code, rag, agent or mooncake."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all that is drawn.")] = 0,
    to: To = None,
    *,
    given: Given,
) -> None:
    """Make a synthetic trace; the same options and seed give the same trace."""
    from kvsim.workload import generate, write_trace

    require_target(out, to)
    count = write_trace(generate(_spec(preset, given), seed), str(out), to)
    _say(f"{out}: {count:,} requests")


def require_target(out: Path, to: str | None) -> None:
    """Refuse, before a trace is read or drawn, a place or a format that it cannot be written to."""
    from kvsim.workload.writers import chosen_format

    chosen_format(str(out), to)
    if str(out) != "-":
        require_file(out)


def _options(given: Given) -> TraceOptions:
    from kvsim.workload import TraceOptions

    return TraceOptions(**given)


def _spec(preset_name: str | None, given: Given) -> WorkloadSpec:
    """The preset with the given fields replaced."""
    from kvsim.workload import WorkloadSpec, preset

    start = preset(preset_name) if preset_name is not None else WorkloadSpec()
    prefix = {k.removeprefix("prefix_"): v for k, v in given.items() if k.startswith("prefix_")}
    sessions = {k: v for k, v in given.items() if k in ("turns", "think_time")}
    rest = {k: v for k, v in given.items() if k not in sessions and not k.startswith("prefix_")}
    return dataclasses.replace(
        start,
        prefix=dataclasses.replace(start.prefix, **prefix),
        sessions=dataclasses.replace(start.sessions, **sessions),
        **rest,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _warn(trace: Trace) -> None:
    for quirk in trace.quirks:
        _say(f"{trace.name}: {quirk}")


def _lines(summary: Summary) -> list[str]:
    """The summary as text, one quantity a line."""
    arrivals, prefix = summary.arrivals, summary.prefix
    rows = [
        ("trace", summary.name),
        ("format", summary.format),
        ("sha256", summary.sha256),
        ("requests", f"{summary.requests:,}"),
        ("sessions", f"{summary.sessions:,} ({summary.closed_loop_turns:,} closed-loop turns)"),
        ("duration", f"{arrivals.duration:,.3f} s"),
        ("arrivals", f"{arrivals.count:,} at {arrivals.distinct_stamps:,} distinct times"),
    ]
    if arrivals.rate is not None:
        rows.append(("rate", f"{arrivals.rate:,.3f}/s, gap {arrivals.mean_gap:.4g} s"))
        rows.append(("gap CV", f"{arrivals.cv:.2f}"))
    for name, spread in (("prompt", summary.prompt_tokens), ("output", summary.output_tokens)):
        rows.append((f"{name} tokens", f"{spread.total:,.0f}"))
        numbers = f"mean {spread.mean:,.1f}  p50 {spread.p50:,.0f}  p90 {spread.p90:,.0f}"
        rows.append(("", f"{numbers}  p99 {spread.p99:,.0f}  max {spread.max:,.0f}"))
    if prefix.blocks:
        hits = f"{prefix.block_hits:,} of {prefix.blocks:,} blocks ({prefix.block_hit_ratio:.1%})"
        rows.append(("ideal hits", f"{prefix.token_hit_ratio:.1%} of prompt tokens, {hits}"))
    rows += [("quirk", quirk) for quirk in summary.quirks]
    rows += [("suspicion", suspicion) for suspicion in summary.suspicions]
    return [f"{name:14}{value}" for name, value in rows]
