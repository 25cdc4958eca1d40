"""A site over stdin and stdout, for a client that launches the project."""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

import anyio
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.contrib.auth import get_user_model
from django.db import connections, router
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner, aclose_shielded, modern_error_data, serve_one
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import MessageMetadata, ServerMessageMetadata, SessionMessage
from mcp.shared.subscriptions import ServerEvent
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PROTOCOL_VERSION_META_KEY,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
)

from ..auth.callers import Caller
from ..changes import listen
from ..idempotency.shutdown import begin_shutdown
from ..protocol import get_server
from ..registry import Site
from ..subscriptions import Subscription, subscription_of_session
from ..visits import Visit
from .lines import LineWriter, Unreadable, parse_line, read_lines

JSON = dict[str, Any]
Exchange = DispatchContext[TransportContext]

T = TypeVar("T")


def serve(site: Site, user_id: Any) -> None:
    """Serve a site over stdin and stdout until stdin ends, or SIGTERM or SIGINT comes.

    Then keyed calls that run are run to their end (R24), and no other. Whatever else is printed in this process goes
    to stderr from now on.

    Args:
        site: The site.
        user_id: Primary key of the user who is calling, in the same scope as over HTTP (R18).
    """
    source, sink = _take_stdio()
    asyncio.run(_serve(site, user_id, source, sink))


def _take_stdio() -> tuple[int, int]:
    """Keep stdin and stdout for the protocol. Everybody else, child processes too, has an empty stdin, and stderr.

    They are not given back: what is printed while the process ends is none of the protocol's either.
    """
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return source, sink


async def _serve(site: Site, user_id: Any, source: int, sink: int) -> None:
    conversation = _Conversation(site, user_id, LineWriter(sink))
    loop = asyncio.get_running_loop()

    def tell(act: Callable[..., None], *args: object) -> None:
        # Once the loop is closed, nobody is there to be told.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(act, *args)

    def read() -> None:
        for line in read_lines(source):
            if line.strip():
                tell(conversation.receive, _received(line))
        tell(conversation.end)

    # A daemon, since nothing ends its waiting for a line.
    threading.Thread(target=read, name="mcp-read", daemon=True).start()
    with _when_told_to_end(lambda: tell(conversation.end)):
        await conversation.run()


def _received(line: bytes) -> SessionMessage | Unreadable:
    try:
        message = parse_line(line)
    except Unreadable as unreadable:
        return unreadable
    # The modern versions have no requests of the server's to the client.
    metadata = ServerMessageMetadata(can_send_request=not _is_modern(message))
    return SessionMessage(message, metadata)


@contextmanager
def _when_told_to_end(end: Callable[[], None]) -> Iterator[None]:
    def handle(number: int, frame: FrameType | None) -> None:
        begin_shutdown()
        end()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Conversation:
    """All that one client sends and is sent.

    The SDK's loop, which reads and answers, has no state of a single request, and its ``serve_dual_era_loop`` one for
    all of them. Here each request has its own ``Visit``, with the user as the database has it then (R19), in a thread
    of its own, as each has under ASGI: so none waits for another (R05).
    """

    def __init__(self, site: Site, user_id: Any, outgoing: LineWriter) -> None:
        self._site = site
        self._server = get_server(site)
        self._user_id = user_id
        self._session = secrets.token_hex(16)
        self._outgoing = outgoing
        self._incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        self._dispatcher = JSONRPCDispatcher(
            received,
            outgoing,
            transport_builder=_transport,
            # What a client sends after it without waiting finds the handshake done.
            inline_methods=frozenset({"initialize"}),
            on_stream_exception=self._refuse,
        )
        self._handshake = Connection.for_loop(self._dispatcher)
        self._loop = asyncio.get_running_loop()
        self._listening: list[Subscription] = []
        self._telling: set[asyncio.Task[None]] = set()

    def receive(self, item: SessionMessage | Unreadable) -> None:
        """Take what was read; after the end it is dropped."""
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._incoming.send_nowait(item)

    def end(self) -> None:
        """Take no more, and have ``run`` return once the keyed calls that run have ended."""
        self._incoming.close()

    async def run(self) -> None:
        """Answer what is received, and tell of changes."""
        leave = listen(self._site.name, self._note)
        try:
            await self._dispatcher.run(self._on_request, self._on_notify)
        finally:
            leave()
            await aclose_shielded(self._handshake)

    async def _refuse(self, unreadable: Exception) -> None:
        assert isinstance(unreadable, Unreadable)
        answer = JSONRPCError(jsonrpc="2.0", id=None, error=unreadable.error)
        with suppress(anyio.BrokenResourceError):
            await self._outgoing.send(SessionMessage(answer))

    async def _on_notify(self, exchange: Exchange, method: str, params: Mapping[str, Any] | None) -> None:
        # No others are handled, as over HTTP; the dispatcher itself has seen to a cancellation.
        if method == "notifications/initialized" and not self._handshake.initialized.is_set():
            self._handshake.initialized.set()
            self._listening.append(subscription_of_session(self._site, self._session))

    def _note(self, change: ServerEvent) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin_to_tell, change)

    def _begin_to_tell(self, change: ServerEvent) -> None:
        telling = self._loop.create_task(self._tell(change))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _tell(self, change: ServerEvent) -> None:
        """Tell of a change as far as the client asked for it, and the user may still know of it (R19)."""

        def notifications() -> list[JSON | None]:
            caller = self._caller()
            return [subscription.notification(change, caller) for subscription in self._listening]

        # A user who is gone is told so by the answer to the next request.
        with suppress(MCPError):
            for notification in await _in_a_thread(notifications):
                if notification is not None:
                    await self._notify(notification)

    async def _hold(self, subscription: Subscription) -> None:
        """Tell of what a request asked for until the client cancels it, or leaves."""
        self._listening.append(subscription)
        try:
            if subscription.acknowledgement is not None:
                await self._notify(subscription.acknowledgement)
            await asyncio.Event().wait()
        finally:
            self._listening.remove(subscription)

    async def _notify(self, notification: JSON) -> None:
        await self._dispatcher.notify(notification["method"], notification.get("params"))

    async def _on_request(self, exchange: Exchange, method: str, params: Mapping[str, Any] | None) -> JSON:
        """Answer one request. A cancellation, or the end of stdin, cancels that once, as a disconnect does over HTTP.

        The SDK's own would come again and again, for as long as a keyed call runs on.
        """
        answering = asyncio.ensure_future(self._answer(exchange, method, params))
        try:
            await asyncio.wait({answering})
        except asyncio.CancelledError:
            answering.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({answering})
            raise
        if answering.cancelled():
            # By the tool itself. Out of here it would end the conversation.
            raise MCPError(INTERNAL_ERROR, "Internal server error")
        return answering.result()

    async def _answer(self, exchange: Exchange, method: str, params: Mapping[str, Any] | None) -> JSON:
        result, subscription = await self._answer_at_once(exchange, method, params)
        if subscription is not None:
            await self._hold(subscription)
        return result

    async def _answer_at_once(
        self, exchange: Exchange, method: str, params: Mapping[str, Any] | None
    ) -> tuple[JSON, Subscription | None]:
        async with ThreadSensitiveContext():
            try:
                caller = await sync_to_async(self._caller)()
                visit = Visit(caller=caller, request=None, session=self._session, can_listen=True)
                return await self._dispatch(exchange, method, params, visit), visit.subscription
            except Exception as error:
                raise MCPError.from_error_data(modern_error_data(error)) from error
            finally:
                # All of them, also those that may be kept: their thread ends here.
                await sync_to_async(connections.close_all)()

    async def _dispatch(self, exchange: Exchange, method: str, params: Mapping[str, Any] | None, visit: Visit) -> JSON:
        """Have the site's server answer, in the era of the request: both may be spoken in one conversation."""
        if not _has_envelope(method, params):
            return await ServerRunner(self._server, self._handshake, visit).on_request(exchange, method, params)
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(route.code, route.message, route.data)
        connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
        return await serve_one(self._server, exchange, method, params, connection=connection, lifespan_state=visit)

    def _caller(self) -> Caller:
        users = get_user_model()
        # A replica may not know yet that the user was deactivated.
        candidates = users._default_manager.using(router.db_for_write(users))
        user = candidates.filter(pk=self._user_id).first()
        if user is None or not user.is_active:
            raise MCPError(
                INVALID_REQUEST,
                "The user whom this server was started for was deleted or deactivated since. Start it for another one, "
                "or activate the user again.",
            )
        return Caller(user=user)


async def _in_a_thread(act: Callable[[], T]) -> T:
    """Run what asks the database, and keep neither its thread nor its connection."""
    async with ThreadSensitiveContext():
        try:
            return await sync_to_async(act)()
        finally:
            await sync_to_async(connections.close_all)()


def _transport(metadata: MessageMetadata) -> TransportContext:
    assert isinstance(metadata, ServerMessageMetadata)
    return TransportContext(kind="stdio", can_send_request=metadata.can_send_request)


def _is_modern(message: JSONRPCMessage) -> bool:
    return isinstance(message, JSONRPCRequest) and _has_envelope(message.method, message.params)


def _has_envelope(method: str, params: Mapping[str, Any] | None) -> bool:
    """Whether a request says all about itself (2026-07-28). ``initialize`` never does, whatever is stamped on it."""
    meta = (params or {}).get("_meta")
    return method != "initialize" and isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta
