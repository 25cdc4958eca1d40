"""One JSON-RPC request and its reply, whatever carries them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.runner import modern_error_data, serve_one
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import MessageMetadata, ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import ErrorData, ProgressToken, RequestId

from ..protocol import RefusedError, get_server
from ..registry import Site
from ..visits import Visit
from .recordings import Recording

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


class CloseStream:
    """Among the messages: the body wants the connection to end here and the client to come back for the rest."""


class Outlet:
    """Where the messages go that come before the reply. They are not waited for.

    Attributes:
        is_live: Whether they reach the client while the call goes on, so that it can be asked in mid-call.
        recording: Where they are kept too, so that a client which lost the stream can come back to it.
        closed: Whether the client has gone away for good, so that nothing reaches it any more.
    """

    def __init__(self, put: Callable[[JSON | CloseStream], None], *, is_live: bool = False) -> None:
        self._put = put
        self.is_live = is_live
        self.recording: Recording | None = None
        self.closed = False

    def send(self, message: JSON) -> None:
        """Send a message."""
        self._put(message)

    async def close_stream(self) -> None:
        """End the connection and go on, if the client can come back."""
        if self.recording is not None:
            self._put(CloseStream())


def no_outlet() -> Outlet:
    """One for a reply that nothing can come before."""
    return Outlet(lambda message: None)


Ask = Callable[[str, Mapping[str, Any] | None], Awaitable[JSON]]
"""Sends the client a request in mid-call, by method and params, and waits for its result."""


@dataclass(kw_only=True)
class Exchange:
    """The SDK's view of one request: what can be sent to the client before its reply."""

    transport: TransportContext
    request_id: RequestId
    message_metadata: MessageMetadata
    outlet: Outlet
    ask: Ask | None
    progress_token: ProgressToken | None
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    @property
    def can_send_request(self) -> bool:
        return self.ask is not None

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> JSON:
        if self.ask is None:
            raise NoBackChannelError(method)
        return await self.ask(method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        message: JSON = {"jsonrpc": "2.0", "method": method}
        self.outlet.send(message if params is None else {**message, "params": dict(params)})

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self.progress_token is None:
            return
        params = {"progressToken": self.progress_token, "progress": progress, "total": total, "message": message}
        told = {name: value for name, value in params.items() if value is not None}
        await self.notify("notifications/progress", told)


async def serve(
    site: Site,
    visit: Visit,
    *,
    request_id: RequestId,
    method: str,
    params: Mapping[str, Any] | None,
    connection: Connection,
    transport: TransportContext,
    outlet: Outlet | None = None,
    ask: Ask | None = None,
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
        outlet: Where to send what comes before the reply; ``None`` where nothing can.
        ask: Asks the client in mid-call; ``None`` where that cannot be done.

    Returns:
        The reply; an exception of any handler becomes an error that reveals nothing of it.
    """
    outlet = outlet or no_outlet()
    exchange = Exchange(
        transport=transport,
        request_id=request_id,
        message_metadata=ServerMessageMetadata(request_context=visit.request, close_sse_stream=outlet.close_stream),
        outlet=outlet,
        ask=ask,
        progress_token=progress_token_from_params(params),
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
