"""One JSON-RPC request and its reply, whatever carries them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.runner import modern_error_data, serve_one
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.message import MessageMetadata, ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import ErrorData, RequestId

from ..protocol import RefusedError, Visit, get_server
from ..registry import Site

JSON = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The answer to one request.

    Attributes:
        message: The JSON-RPC message.
        error_code: The code of its error, ``None`` for a result.
        refused: Whether the error is a refusal of the idempotency core.
    """

    message: JSON
    error_code: int | None = None
    refused: bool = False


@dataclass(kw_only=True)
class SingleExchange:
    """The SDK's view of a request that is answered with one message: nothing can be sent before it."""

    transport: TransportContext
    request_id: RequestId
    message_metadata: MessageMetadata
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)
    can_send_request: bool = field(default=False, init=False)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> JSON:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Dropped: there is no stream to carry it."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Dropped: there is no stream to carry it."""


async def serve(
    site: Site,
    visit: Visit,
    *,
    request_id: RequestId,
    method: str,
    params: Mapping[str, Any] | None,
    connection: Connection,
    transport: TransportContext,
) -> Reply:
    """Have a site's server answer one request.

    Args:
        site: The site.
        visit: Who is calling, through what.
        request_id: The request's JSON-RPC id, which the reply repeats.
        method: The request's method.
        params: The request's params as they were parsed.
        connection: What is known of the client.
        transport: What carries the request.

    Returns:
        The reply; an exception of any handler becomes an error that reveals nothing of it.
    """
    exchange = SingleExchange(
        transport=transport,
        request_id=request_id,
        message_metadata=ServerMessageMetadata(request_context=visit.request),
    )
    try:
        result = await serve_one(
            get_server(site), exchange, method, params, connection=connection, lifespan_state=visit
        )
    except Exception as error:
        return error_reply(request_id, modern_error_data(error), refused=isinstance(error, RefusedError))
    return Reply(message={"jsonrpc": "2.0", "id": request_id, "result": result})


def error_reply(request_id: RequestId | None, error: ErrorData, *, refused: bool = False) -> Reply:
    """The reply that carries ``error``."""
    details = error.model_dump(mode="json", exclude_none=True)
    return Reply(message={"jsonrpc": "2.0", "id": request_id, "error": details}, error_code=error.code, refused=refused)
