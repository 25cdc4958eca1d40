"""The handshake versions' session, carried by the client itself: no server remembers it, any server reads it."""

from __future__ import annotations

from typing import Any

from django.core import signing
from mcp.server.connection import Connection
from mcp_types import InitializeRequestParams
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

_SALT = "django_mcp_idem.session"
# Servers refuse longer header lines than about 8 kB.
_MAX_LENGTH = 4096

ASSUMED_VERSION = "2025-03-26"
"""What a request without a version header speaks, by the specification."""


def session_id(connection: Connection) -> str:
    """A signed ``Mcp-Session-Id`` for what ``initialize`` agreed on."""
    client = connection.client_params
    token = _sign(connection.protocol_version, client)
    return token if len(token) <= _MAX_LENGTH else _sign(connection.protocol_version, None)


def connection_of(session: str | None, version: str | None) -> Connection:
    """What is known of the client of a request.

    Args:
        session: The ``Mcp-Session-Id`` sent along. An unknown or stale one is as good as none.
        version: The ``MCP-Protocol-Version`` sent along, one of the handshake versions.
    """
    agreed: dict[str, Any] = {}
    if session is not None:
        try:
            agreed = signing.loads(session, salt=_SALT)
        except signing.BadSignature:
            agreed = {}
    speaks = version or agreed.get("version") or ASSUMED_VERSION
    if speaks not in HANDSHAKE_PROTOCOL_VERSIONS:
        speaks = ASSUMED_VERSION
    return Connection.from_envelope(speaks, agreed.get("client"), agreed.get("capabilities", {}))


def _sign(version: str, client: InitializeRequestParams | None) -> str:
    agreed: dict[str, Any] = {"version": version}
    if client is not None:
        agreed["client"] = {"name": client.client_info.name, "version": client.client_info.version}
        agreed["capabilities"] = client.capabilities.model_dump(mode="json", by_alias=True, exclude_none=True)
    return signing.dumps(agreed, salt=_SALT, compress=True)
