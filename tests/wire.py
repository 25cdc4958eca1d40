"""Requests as they are on the wire, for tests that look at bytes."""

from __future__ import annotations

import json
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
