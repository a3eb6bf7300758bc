"""How much KV cache a model needs, and how much fits."""

from __future__ import annotations

import streamlit as st

from kvsim.catalog import ModelSpec, gpu_names, load_gpu, load_model, model_names
from kvsim.errors import CapacityError
from kvsim.sizing import sequence_length

from .. import state
from ..figures import sizing as figures
from ..shown import quantity, size
from ..sizes import DTYPES, Placed, bytes_by_dtype, limits_for, model_of_text, placements
from ..text import plain
from ..workspace import Desk
from .parts import draw, listed, metrics

OWN = "own"
BLOCK = 16


def page(desk: Desk) -> None:
    """The page."""
    say = desk.say
    st.title(say("sizing.title"))
    model = chosen_model(desk)
    if model is None:
        return
    one, two, three, four = st.columns(4)
    with one:
        gpu = load_gpu(state.pick(say("column.gpu"), "gpu", gpu_names(), default=load_gpu("h200").name))  # fmt: skip
    with two:
        dtype = state.pick(say("column.kv_cache_dtype"), "dtype", DTYPES)
    with three:
        share = state.amount(say("sizing.share"), "share", (0.1, 1.0), 0.92, 0.01, format="percent")
    longest = sequence_length(model, None)
    with four:
        default = float(min(longest, 8_192))
        length = int(state.entered(say("sizing.length"), "length", (16.0, 1e8), default, 1024.0, format="%.0f"))  # fmt: skip
    found = placements(model, gpu, dtype, limits_for(gpu, share, BLOCK))
    fitting = [each for each in found if each.plan is not None]
    if not fitting:
        raise CapacityError(
            say.translated(found[0].refusal or "") if found else say("sizing.unsplittable")
        )
    cards(desk, fitting[0], length)
    left, right = st.columns(2)
    with left:
        draw(figures.waterfall_figure(fitting, say), "waterfall")
    with right:
        draw(figures.bytes_figure(list(bytes_by_dtype(model)), say), "bytes")
    draw(figures.concurrency_figure(fitting, max(longest, length), length, say), "concurrency")
    table(desk, found, length)
    st.caption(say("sizing.source", name=model.name, source=model.source or "config.json"))


def chosen_model(desk: Desk) -> ModelSpec | None:
    """A model of the catalog, or the config.json that the user gives."""
    say = desk.say
    which = state.pick(
        say("column.model"),
        "model",
        (*model_names(), OWN),
        default=load_model("llama-3-8b").name,
        shown=lambda name: say("sizing.own") if name == OWN else name,
    )
    if which != OWN:
        return load_model(which)
    left, right = st.columns(2)
    with left:
        text = st.text_area(say("sizing.paste"), height=180, key="config")
    with right:
        given = st.file_uploader(say("sizing.upload"), type=["json"])
    if given is not None:
        text = given.getvalue().decode("utf-8", errors="replace")
    if not text.strip():
        st.info(say("sizing.need"), icon=":material/data_object:")
        return None
    return model_of_text(text)


def cards(desk: Desk, smallest: Placed, length: int) -> None:
    """Key figures of the fewest GPUs that hold the model."""
    say, plan = desk.say, smallest.plan
    assert plan is not None
    values = {
        "gpus": str(smallest.tensor_parallel),
        "token": size(plan.layout.bytes_per_token),
        "sequence": size(plan.layout.bytes_per_sequence(length)),
        "pool": size(plan.kv_pool),
        "concurrency": quantity(plan.max_concurrency(length)),
    }
    metrics({say(f"sizing.card_{key}"): text for key, text in values.items()})
    st.caption(say("sizing.cards_help", gpus=smallest.tensor_parallel, length=f"{length:,}"))


def table(desk: Desk, found: list[Placed], length: int) -> None:
    """Every number of GPUs that hold the model in figures; why the others do not."""
    say = desk.say
    rows = [
        {
            "TP": each.tensor_parallel,
            say("sizing.column_token"): plan.layout.gpu_bytes_per_token,
            say("sizing.column_blocks"): plan.num_gpu_blocks,
            say("sizing.column_tokens"): plan.kv_tokens_capacity,
            say("sizing.column_concurrency"): round(plan.max_concurrency(length), 1),
        }
        for each in found
        if (plan := each.plan) is not None
    ]
    st.markdown(f"**{say('sizing.table')}**")
    listed(rows, {})
    for each in found:
        if each.refusal is not None:
            reason = plain(say.translated(each.refusal))
            st.caption(say("sizing.refused", size=each.tensor_parallel, reason=reason))
