"""Advice as plain data: what ``--json`` prints."""

from __future__ import annotations

from kvsim import __version__
from kvsim.advice.answer import Advice, Finding, Row, Together
from kvsim.advice.comparison import Change, Run
from kvsim.planning.deployment import commands
from kvsim.planning.unloaded import Engine

Document = dict[str, object]


def document(advice: Advice) -> Document:
    """Everything about an advice."""
    scenario = advice.scenario
    return {
        "trace": {"name": advice.trace, "sha256": advice.sha256},
        "model": scenario.model,
        "gpu": scenario.gpu,
        "scenario_hash": scenario.hash,
        "cost_model": list(advice.times),
        "replays": advice.replays,
        "situations": [row(each) for each in advice.rows],
        "kvsim_version": __version__,
    }


def row(each: Row) -> Document:
    """One situation."""
    return {
        "situation": each.situation.name,
        "facts": None if each.facts is None else each.facts._asdict(),
        "no_answer": each.lack,
        "needed": each.needed,
        "as_deployed": None if each.base is None else deployed(each.base),
        "techniques": [finding(one) for one in each.findings],
        "recommended": None if each.together is None else together(each.together),
        "at_a_price": None if each.at_a_price is None else together(each.at_a_price),
    }


def deployed(run: Run) -> Document:
    """The deployment as it is."""
    return {"failure": run.failure, "summary": run.summary}


def finding(one: Finding) -> Document:
    """One technique."""
    return {
        "technique": one.technique.name,
        "verdict": one.verdict,
        "in_use": one.in_use,
        "price": one.technique.price,
        "changes": [] if one.comparison is None else [change(c) for c in one.comparison.changes],
        "reason": one.reason,
    }


def change(seen: Change) -> Document:
    """One measure."""
    return {
        "metric": seen.measure.key,
        "before": seen.before,
        "after": seen.after,
        "change": seen.share,
        "better": {1: True, 0: None, -1: False}[seen.gain],
    }


def together(seen: Together) -> Document:
    """Several changes at once, and the lines that start them."""
    engine = Engine.of(seen.scenario)
    lines = commands(engine.scenario, engine.memory, seen.scenario.replicas)
    return {
        "changes": list(seen.names),
        "effect": [change(c) for c in seen.changes],
        "cost_model": seen.times,
        "vllm": lines.vllm,
        "sglang": lines.sglang,
        "notes": list(lines.notes),
    }
