"""Hypothesis strategies for small workloads that provoke sharing, eviction and preemption."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from kvsim.core import Request


def listed(requests: Iterable[Request]) -> list[Request]:
    """Requests with their hash ids as lists, so that they can be compared with ones written down."""
    return [
        request._replace(hash_ids=None if request.hash_ids is None else list(request.hash_ids))
        for request in requests
    ]


@st.composite
def request_lists(
    draw: st.DrawFn, longest_prompt: int, longest_answer: int, *, size: int = 14
) -> list[Request]:
    """Requests in order of arrival whose prompts share prefixes, some of them exactly.

    Ids come from an alphabet of three, so that equal ids also follow different prefixes.
    """
    width = draw(st.sampled_from([1, 2, 4, 6, 8]))
    count = draw(st.integers(1, size))
    requests = []
    arrival = 0
    for row in range(count):
        arrival += draw(st.sampled_from([0, 0, 1, 7, 40, 300, 2000]))
        prompt = draw(st.integers(1, longest_prompt))
        described = draw(st.sampled_from([0, prompt, prompt, prompt, prompt // 2]))
        ids = draw(st.lists(st.integers(1, 3), min_size=-(-described // width)))
        ids = ids[: -(-described // width)]
        requests.append(
            Request(
                row,
                arrival / 1000,
                prompt,
                draw(st.integers(1, longest_answer)),
                ids or None,
                width if ids else 0,
            )
        )
    return requests
