"""Checks of the single fields of a row. Each returns the value or says what would be accepted.

``type(x) is int`` rather than ``isinstance``: it is the cheapest test there is, and it refuses the
booleans that JSON has and that Python counts as integers.
"""

from __future__ import annotations

import json
import math
from array import array
from hashlib import blake2b

import orjson

from kvsim.errors import shown
from kvsim.workload.ledger import BadRow

Record = dict[str, object]

MAX_TOKENS = 1_000_000_000
"""Longest prompt or answer that is believed."""
MAX_SECONDS = 1e8
"""Longest trace that is believed: three years."""
MOST_SEQUENCES = 1024
"""Most samples or beams of a request."""
MOST_PRIORITY = 1_000_000_000
MAX_ID = 2**64 - 1
CHARACTERS_PER_TOKEN = 3.84
"""Mean of 78.0 M characters in 87,989 ShareGPT turns (Mistral-7B v1 vocabulary, 20.3 M tokens)."""

TOKENS = f"a whole number from 1 to {MAX_TOKENS:,}"
SECONDS = f"a number from 0 to {MAX_SECONDS:,.0f}"
IDS = f"a list of whole numbers from 0 to {MAX_ID}"


def wrong(record: Record, field: str, accepted: str) -> BadRow:
    """The complaint about a field whose value cannot be used, or that is missing."""
    if field not in record:
        return BadRow(f"field {field!r} is missing; accepted: {accepted}")
    return BadRow(f"field {field!r} is {shown(record[field])}; accepted: {accepted}")


def json_object(line: bytes) -> Record:
    """The JSON object on a line of a JSONL file."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as why:
        record = _lenient_json(line, str(why))
    if type(record) is not dict:
        raise BadRow(f"the line is {shown(record)}; accepted: one JSON object a line")
    return record


def _lenient_json(line: bytes, why: str) -> object:
    """What orjson refuses but the standard parser reads (NaN, Infinity), to name its field later."""
    try:
        return json.loads(line, parse_int=_int_of_64_bits)
    except (ValueError, RecursionError):
        cut = "" if line.endswith(b"\n") else " (the file ends inside this line)"
        reason = why.partition(":")[0]
        raise BadRow(f"not JSON, {reason}{cut}; accepted: one JSON object a line") from None


def _int_of_64_bits(digits: str) -> float:
    """A number as orjson reads it: what does not fit into 64 bits is no integer."""
    return int(digits) if len(digits) < 19 else float(digits)


def tokens(record: Record, field: str) -> int:
    """A number of tokens, at least one."""
    value = record.get(field)
    if type(value) is int and 0 < value <= MAX_TOKENS:
        return value
    raise wrong(record, field, TOKENS)


def count(record: Record, field: str, least: int, most: int) -> int:
    """A whole number between two others."""
    value = record.get(field)
    if type(value) is int and least <= value <= most:
        return value
    raise wrong(record, field, f"a whole number from {least:,} to {most:,}")


def number(record: Record, field: str, accepted: str, limit: float = math.inf) -> float:
    """A finite number from 0 to ``limit``."""
    value = record.get(field)
    if (type(value) is float or type(value) is int) and 0 <= value <= limit and value != math.inf:
        return value
    raise wrong(record, field, accepted)


def seconds(record: Record, field: str) -> float:
    """A duration in seconds."""
    return float(number(record, field, SECONDS, MAX_SECONDS))


def text(record: Record, field: str) -> str:
    """A text that is not empty."""
    value = record.get(field)
    if type(value) is str and value:
        return value
    raise wrong(record, field, "a text that is not empty")


def name(record: Record, field: str) -> str | None:
    """A name given as a text or a whole number; None when absent."""
    value = record.get(field)
    if value is None or (type(value) is str and value):
        return value
    if type(value) is int:
        return str(value)
    raise wrong(record, field, "a text that is not empty, or a whole number")


def hash_ids(record: Record, field: str, prompt_tokens: int, block: int) -> array[int] | None:
    """Ids of the blocks of a prompt, from its start; None when there are none."""
    ids = record.get(field)
    if ids is None or ids == []:
        return None
    if type(ids) is not list:
        raise wrong(record, field, IDS)
    if set(map(type, ids)) != {int}:
        ids = [_id_of_text(item) if type(item) is str else item for item in ids]
    if set(map(type, ids)) != {int}:
        raise wrong_id(field, ids)
    try:
        packed = array("Q", ids)
    except OverflowError:
        raise wrong_id(field, ids) from None
    if (len(ids) - 1) * block >= prompt_tokens:
        raise too_many_ids(field, len(ids), prompt_tokens, block)
    return packed


def _id_of_text(item: str) -> int:
    """A number for an id that a tool wrote as a text: 64 bits of its BLAKE2b hash."""
    return int.from_bytes(blake2b(item.encode("utf-8", "replace"), digest_size=8).digest(), "big")


def wrong_id(field: str, ids: list[object]) -> BadRow:
    """The complaint about the first entry of a list of ids that is not one."""
    fits = (type(item) is int and 0 <= item <= MAX_ID for item in ids)
    place = next(i for i, good in enumerate(fits) if not good)
    return BadRow(f"field '{field}[{place}]' is {shown(ids[place])}; accepted: {IDS}")


def too_many_ids(field: str, count: int, prompt_tokens: int, block: int) -> BadRow:
    """The complaint about ids that reach past the end of the prompt."""
    most = -(-prompt_tokens // block)
    return BadRow(
        f"field {field!r} is {count:,} ids of {block} tokens; accepted: at most {most:,}, which "
        f"cover the prompt of {prompt_tokens:,} tokens (--hash-block sets their size)"
    )


def estimated_tokens(content: str) -> int:
    """About how many tokens a text has: its characters by ``CHARACTERS_PER_TOKEN``, rounded up."""
    return math.ceil(len(content) / CHARACTERS_PER_TOKEN)
