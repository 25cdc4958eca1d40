"""JSON as it is on the wire and in the table: one parser and one writer.

Numbers decide how: a key's second call is compared by exact integers (R08), a tool receives what was sent (R11), and
a result comes back as it was (R06). ``json`` parses, since ``orjson`` silently turns integers above 64 bits into
floats; ``orjson`` writes, except where it would refuse or lose something.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

MAX_DEPTH = 100
"""How deeply arrays and objects may be nested in what is parsed."""

MAX_WRITTEN_DEPTH = 200
"""How deeply they may be in what is written; the SDK's models refuse more than 254."""

MESSAGE_DEPTH = MAX_WRITTEN_DEPTH + 2
"""How deeply they may be in a reply: the message and, in the older versions, a wrapper are around the result."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class ParseError(ValueError):
    """The bytes are not JSON, or are JSON that no tool could be given exactly."""


def parse(body: bytes, *, max_values: float = math.inf) -> Any:
    """Parse a JSON text.

    Integers are exact at any size that Python parses; of members with one name the last counts.

    Args:
        body: The text, in UTF-8.
        max_values: How many values it may have, those in arrays and objects counted, and these themselves.

    Raises:
        ParseError: Not UTF-8, not JSON, NaN or an infinity, a number too large for a double, an integer of thousands
            of digits, half a surrogate pair, more values than it may have, or nesting deeper than 100.
    """
    try:
        value = json.loads(body.decode(), parse_float=_finite, parse_constant=_refuse_constant)
    except RecursionError:
        raise ParseError("nested too deeply") from None
    except ValueError as error:
        raise ParseError(str(error)) from error
    if _may_have_more_than(max_values, body) and _has_more_than(max_values, value):
        raise ParseError(f"more than {max_values} values")
    if _may_be_deeper_than(MAX_DEPTH, body) and _deeper_than(MAX_DEPTH, value):
        raise ParseError("nested too deeply")
    if _SURROGATE.search(body) and not _encodable(value):
        raise ParseError("half of a surrogate pair")
    return value


def write(value: Any, *, max_depth: int = MAX_WRITTEN_DEPTH) -> bytes:
    """Write a JSON text, compactly.

    Args:
        value: What to write.
        max_depth: How deeply arrays and objects may be nested in it.

    Raises:
        ValueError: The value holds NaN, an infinity or something that is not JSON, or is nested too deeply.
    """
    try:
        text = orjson.dumps(value)
    except TypeError:
        # An integer above 64 bits, half a surrogate pair, or nothing that JSON has: the standard library tells.
        return _write_exactly(value, max_depth)
    # orjson writes NaN as null, so only a null can hide one.
    if b"null" in text or _may_be_deeper_than(max_depth, text):
        _write_exactly(value, max_depth)
    return text


def write_message(message: Any) -> bytes:
    """Write a reply or another message of the protocol, around what ``write`` may have written before.

    Raises:
        ValueError: As for ``write``.
    """
    return write(message, max_depth=MESSAGE_DEPTH)


def _write_exactly(value: Any, max_depth: int) -> bytes:
    if _deeper_than(max_depth, value):
        raise ValueError("nested too deeply")
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except TypeError as error:
        raise ValueError(str(error)) from error


def _finite(literal: str) -> float:
    number = float(literal)
    if math.isinf(number):
        raise ValueError("number out of range")
    return number


def _refuse_constant(literal: str) -> Any:
    raise ValueError(f"{literal} is not JSON")


def _may_have_more_than(limit: float, text: bytes) -> bool:
    # Before each value but the first stands one of these; in texts they stand for nothing.
    return text.count(b",") + text.count(b"[") + text.count(b"{") >= limit


def _has_more_than(limit: float, value: Any) -> bool:
    count, level = 1, _nesting([value])
    while level:
        count += sum(map(len, level))
        if count > limit:
            return True
        level = _nesting(child for node in level for child in _children(node))
    return count > limit


def _may_be_deeper_than(limit: int, text: bytes) -> bool:
    return text.count(b"[") + text.count(b"{") > limit


def _deeper_than(limit: int, value: Any) -> bool:
    level = _nesting([value])
    for _ in range(limit):
        level = _nesting(child for node in level for child in _children(node))
    return bool(level)


def _nesting(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, (Mapping, list, tuple))]


def _children(node: Any) -> Iterable[Any]:
    return node.values() if isinstance(node, Mapping) else node


def _encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
