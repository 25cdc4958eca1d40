"""Requests as they are on the wire, for tests that look at bytes."""

from __future__ import annotations

import json
import re
from typing import Any

MODERN = "2026-07-28"
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26")
VERSIONS = (MODERN, *HANDSHAKE)


def call_params(name: str, arguments: Any, version: str = MODERN, **members: Any) -> dict[str, Any]:
    """The params of a ``tools/call``."""
    return {"name": name, "arguments": arguments, **members, **envelope(version)}


def envelope(version: str = MODERN) -> dict[str, Any]:
    """What a request of a version says of itself in its params."""
    if version != MODERN:
        return {}
    return {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    }


def message(method: str, params: dict[str, Any], request_id: Any = 1) -> bytes:
    """The body of a request."""
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()


def headers(token: str, method: str, name: str | None = None, version: str = MODERN) -> dict[str, str]:
    """The headers of a request."""
    sent = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": version,
    }
    if version == MODERN:
        sent["Mcp-Method"] = method
        if name is not None:
            sent["Mcp-Name"] = name
    return sent


def events(stream: bytes) -> list[dict[str, bytes]]:
    """The server-sent events of a stream, each by its fields; without comments."""
    *whole, rest = stream.split(b"\r\n\r\n")
    if rest:
        raise ValueError(f"The last event is not whole: {rest!r}")
    lines = [[line.partition(b": ") for line in event.split(b"\r\n") if not line.startswith(b":")] for event in whole]
    return [{name.decode(): value for name, _, value in fields} for fields in lines if fields]


def messages(stream: bytes) -> list[dict[str, Any]]:
    """The messages in a stream of server-sent events."""
    return [json.loads(event["data"]) for event in events(stream) if event["data"]]


def unmarked(replay: bytes) -> bytes:
    """The body of a replay without the mark that says so, and without the ``_meta`` that is there only for the mark.

    Raises:
        ValueError: There is no such mark, or more than one.
    """
    rest, marks = _MARK.subn(b"", replay)
    if marks != 1:
        raise ValueError(f"{marks} marks in {replay!r}")
    return rest


_MARKED = rb'"django-mcp-idem/replayed":\{"completedAt":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"\}'
_MARK = re.compile(rb',"_meta":\{%b\}|"_meta":\{%b\},|%b,|,%b' % (_MARKED, _MARKED, _MARKED, _MARKED))
