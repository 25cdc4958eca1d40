"""JSON-RPC messages as lines."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from django_mcp_idem.transport.lines import Unreadable, parse_line, read_lines, write_line

DEEP = b"[" * 101 + b"]" * 101


@contextmanager
def pipe(*chunks: bytes) -> Iterator[int]:
    """The end of a pipe to read from, that each of ``chunks`` is written into."""
    source, sink = os.pipe()

    def write() -> None:
        for chunk in chunks:
            os.write(sink, chunk)
        os.close(sink)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield source
    finally:
        writer.join()
        os.close(source)


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([], [b""]),
        ([b"a\nb\n"], [b"a", b"b", b""]),
        ([b"a\n", b"b"], [b"a", b"b"]),
        ([b"a" * 100_000, b"b\nc"], [b"a" * 100_000 + b"b", b"c"]),
        ([b"\n\r\n"], [b"", b"\r", b""]),
    ],
    ids=["nothing", "ends with a line", "ends within a line", "a line of several chunks", "blank lines"],
)
def test_lines_end_with_a_newline_or_with_the_stream(chunks: list[bytes], lines: list[bytes]) -> None:
    with pipe(*chunks) as source:
        assert list(read_lines(source)) == lines


def test_r11_a_message_has_the_numbers_that_were_sent() -> None:
    """R11: exactly, and of members with one name the last."""
    message = parse_line(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"a":18446744073709551617,"z":-0.0}}\r')

    assert isinstance(message, JSONRPCRequest)
    assert repr(message.params) == "{'a': 18446744073709551617, 'z': -0.0}"


@pytest.mark.parametrize(
    "value",
    [b"NaN", b"1e999", b'"\\ud83d"', b'"\xff"', DEEP, b"9" * 5000, b"1,}", b""],
    ids=["NaN", "infinity", "half a surrogate pair", "not UTF-8", "deep", "thousands of digits", "a comma", "nothing"],
)
def test_r11_what_is_not_json_is_a_parse_error(value: bytes) -> None:
    """R11: the SDK's parser takes most of these."""
    with pytest.raises(Unreadable) as unreadable:
        parse_line(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":' + value + b"}}")

    assert unreadable.value.error.code == -32700


@pytest.mark.parametrize(
    "value",
    [
        [],
        [{"jsonrpc": "2.0", "id": 1, "method": "m"}],
        "m",
        {},
        {"jsonrpc": "1.0", "id": 1, "method": "m"},
        {"jsonrpc": "2.0", "id": None, "method": "m"},
        {"jsonrpc": "2.0", "id": True, "method": "m"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "m"},
        {"jsonrpc": "2.0", "id": 1, "method": "m", "params": []},
    ],
    ids=lambda value: json.dumps(value),
)
def test_r11_what_is_not_one_message_is_an_invalid_request(value: Any) -> None:
    """R11."""
    with pytest.raises(Unreadable) as unreadable:
        parse_line(json.dumps(value).encode())

    assert unreadable.value.error.code == -32600


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (
            JSONRPCResponse(jsonrpc="2.0", id=2**70, result={"structuredContent": None, "a": [-0.0, 2**70, "\0"]}),
            b'{"jsonrpc":"2.0","id":1180591620717411303424,'
            b'"result":{"structuredContent":null,"a":[-0.0,1180591620717411303424,"\\u0000"]}}\n',
        ),
        (
            JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=-1, message="no")),
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}\n',
        ),
        (
            JSONRPCError(jsonrpc="2.0", id="1", error=ErrorData(code=-1, message="no", data={"nothing": None})),
            b'{"jsonrpc":"2.0","id":"1","error":{"code":-1,"message":"no","data":{"nothing":null}}}\n',
        ),
        (JSONRPCNotification(jsonrpc="2.0", method="m"), b'{"jsonrpc":"2.0","method":"m"}\n'),
        (
            JSONRPCRequest(jsonrpc="2.0", id=1, method="m", params={"a": "\n\u2028"}),
            '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\n\u2028"}}\n'.encode(),
        ),
    ],
    ids=["response", "error of nothing", "error", "notification", "request"],
)
def test_r06_a_message_is_written_exactly_on_one_line(message: Any, line: bytes) -> None:
    """R06."""
    assert write_line(message) == line


def test_what_is_not_json_is_not_written() -> None:
    message = JSONRPCNotification(jsonrpc="2.0", method="m", params={"a": float("nan")})

    with pytest.raises(ValueError, match="not JSON compliant"):
        write_line(message)
