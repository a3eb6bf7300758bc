"""The first screen about runs: the answer, its cost and its risk, in words and in a few numbers."""

from __future__ import annotations

from collections.abc import Sequence

from kvsim.planning.question import half_width
from kvsim.reporting import money
from kvsim.reporting.alternative import Alternative, needed
from kvsim.reporting.document import Point, Summary, Tile, Tone
from kvsim.reporting.forms import cents, dollars, fine_share, milliseconds, number, plain, share


def answer(run: Alternative) -> str:
    """Does it do, in one sentence."""
    where = run.fleet
    if run.objective is None:
        rate = run.number("request_throughput")
        p99 = run.number("p99_ttft_ms")
        speed = f"{number(rate)} requests a second" if rate is not None else "no requests served"
        first = f", first token within {milliseconds(p99)} ms for 99 %" if p99 is not None else ""
        return f"{where}: {speed}{first}"
    verdict = "meets" if run.met else "misses"
    known = run.attainment
    within = f" ({fine_share(known)} of requests within all limits)" if known is not None else ""
    return f"{where} {verdict} the objective{within}"


def summary_of(run: Alternative, headline: str, compared: Sequence[Alternative]) -> Summary:
    """Answer, cost and risk of the best of some runs."""
    tone: Tone = "open" if run.met is None else "good" if run.met else "bad"
    return Summary(
        headline=headline,
        tone=tone,
        points=(
            Point("Answer", objective(run, compared)),
            Point("Cost", cost(run, compared)),
            Point("Risk", risk(run)),
        ),
        tiles=tuple(tiles(run)),
        warnings=tuple(warnings(compared)),
    )


def objective(run: Alternative, compared: Sequence[Alternative]) -> str:
    """What was asked, and how many of the compared runs reach it."""
    if run.objective is None:
        return (
            "No objective was set, so nothing says whether this is fast enough (--slo ttft_p99=2s "
            "sets one)."
        )
    asked = f"Asked: {plain('; '.join(run.objective.texts))}."
    if len(compared) == 1:
        if run.attainment is None:
            return asked
        return f"{asked} Reached: {fine_share(run.attainment)}; needed: {share(needed(run.objective))}." \
            if run.objective.attainment is not None else f"{asked} Within all limits: {fine_share(run.attainment)}."  # fmt: skip
    good = sum(one.met is True for one in compared)
    return f"{asked} {good} of {len(compared)} meet it."


def cost(run: Alternative, compared: Sequence[Alternative]) -> str:
    """The price of the best run, and of the worst beside it."""
    if run.bill is None:
        return f"Not known: {run.price_line}."
    said = f"{money.in_words(run.bill, run.costs)}. Price: {run.price_line}."
    others = [one.bill.usd_per_month for one in compared if one.bill and one is not run]
    if others and max(others) > run.bill.usd_per_month:
        said += f" The dearest of these costs {dollars(max(others))} a month."
    return said


def risk(run: Alternative) -> str:
    """What may be wrong with the answer."""
    label = str(run.summary.get("cost_model"))
    said = [f"Iteration times are {label}, taken to be right within ±{half_width(label):.0%}."]
    if run.summary.get("overloaded"):
        said.append(
            "The deployment is OVERLOADED: its queue grows as long as the traffic goes on, so its "
            "latencies say more about the length of the trace than about the deployment."
        )
    verdict, evidence = run.summary.get("verdict"), run.summary.get("verdict_evidence")
    bound = "No bottleneck" if verdict == "none" else f"Bottleneck: {verdict}"
    said.append(f"{bound}: {evidence}.")
    refused = run.number("num_rejected")
    if refused:
        said.append(f"{refused:,.0f} requests were refused.")
    return " ".join(said)


def tiles(run: Alternative) -> list[Tile]:
    """Numbers to remember."""
    found = []
    if run.attainment is not None:
        found.append(Tile(fine_share(run.attainment), "of requests within all limits"))
    if run.bill is not None:
        found.append(Tile(dollars(run.bill.usd_per_month), "a month"))
    per = run.costs.per_million_output_tokens
    if per is not None:
        found.append(Tile(cents(per), "per million output tokens"))
    ttft, speed = run.number("p99_ttft_ms"), run.speed
    if ttft is not None:
        found.append(
            Tile(f"{milliseconds(ttft)} ms", "until the first token, for 99 % of requests")
        )
    if speed is not None and len(found) < 4:
        found.append(Tile(f"{number(speed)}/s", "tokens that a user sees, on average"))
    return found


def warnings(runs: Sequence[Alternative]) -> list[str]:
    """What makes a comparison doubtful."""
    found = []
    labels = {str(run.summary.get("cost_model")) for run in runs}
    if len(labels) > 1:
        found.append(f"times come from different sources: {', '.join(sorted(labels))}")
    versions = {str(run.result.manifest.get("kvsim_version")) for run in runs if run.result}
    if len(versions) > 1:
        found.append(f"made by different versions of kvsim: {', '.join(sorted(versions))}")
    doubts = [doubt for run in runs if run.paid for doubt in run.paid.doubts]
    return [*found, *dict.fromkeys(doubts)]
