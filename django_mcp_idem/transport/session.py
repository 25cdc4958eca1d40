"""The handshake versions' session, carried by the client itself: no server remembers it, any server reads it."""

from __future__ import annotations

import secrets
from typing import Any

from django.core import signing
from mcp.server.connection import Connection
from mcp_types import InitializeRequestParams
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

_SALT = "django_mcp_idem.session"
# Servers refuse longer header lines than about 8 kB.
_MAX_LENGTH = 4096

VERSION_WITH_PRIMING = "2025-11-25"

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
    agreed = _agreed(session)
    speaks = version or agreed.get("version") or ASSUMED_VERSION
    if speaks not in HANDSHAKE_PROTOCOL_VERSIONS:
        speaks = ASSUMED_VERSION
    return Connection.from_envelope(speaks, agreed.get("client"), agreed.get("capabilities", {}))


def takes_priming(session: str | None, version: str | None) -> bool:
    """Whether the client knows what an event without data is, as those do that agreed on a version that has them.

    Args:
        session: As for ``connection_of``. What was agreed on counts, whatever a request says of itself.
        version: As for ``connection_of``.
    """
    return (_agreed(session).get("version") or version or ASSUMED_VERSION) >= VERSION_WITH_PRIMING


def _agreed(session: str | None) -> dict[str, Any]:
    if session is None:
        return {}
    try:
        agreed: dict[str, Any] = signing.loads(session, salt=_SALT)
    except signing.BadSignature:
        return {}
    return agreed


def _sign(version: str, client: InitializeRequestParams | None) -> str:
    # What a session asked for is kept under its name, so no two have the same.
    agreed: dict[str, Any] = {"id": secrets.token_urlsafe(12), "version": version}
    if client is not None:
        agreed["client"] = {"name": client.client_info.name, "version": client.client_info.version}
        agreed["capabilities"] = client.capabilities.model_dump(mode="json", by_alias=True, exclude_none=True)
    return signing.dumps(agreed, salt=_SALT, compress=True)
