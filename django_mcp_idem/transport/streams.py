"""The response to one request as it comes about: a JSON message, or a stream of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from .. import jsontext
from .exchange import JSON, Outlet, no_outlet

Response = HttpResponse | StreamingHttpResponse
Answer = Callable[[Outlet], Awaitable[HttpResponse]]
"""Makes the response of one JSON message, and sends what comes before it."""

QUIET_SECONDS = 15.0
"""After so long without a word a stream begins, or says that it is alive: proxies cut what is silent."""

ALIVE = b": alive\r\n\r\n"

_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
_CONTENT_TYPE = "text/event-stream"


async def respond(request: HttpRequest, answer: Answer) -> Response:
    """Answer with one JSON message, unless something is to be sent before it or it takes long."""
    if not request.accepts(_CONTENT_TYPE):
        return await answer(no_outlet())
    if not isinstance(request, ASGIRequest):
        return await _respond_at_once(answer)
    answering = Answering(answer)
    try:
        first = await answering.next()
    except BaseException:
        await answering.end()
        raise
    if isinstance(first, HttpResponse):
        return first
    return StreamingHttpResponse(Events(answering, first), content_type=_CONTENT_TYPE, headers=_HEADERS)


async def _respond_at_once(answer: Answer) -> HttpResponse:
    """Under WSGI nothing is sent before everything is there."""
    messages: list[JSON] = []
    response = await answer(Outlet(messages.append))
    if not messages:
        return response
    events = [*map(_event, messages), _last_event(response)]
    return HttpResponse(b"".join(events), content_type=_CONTENT_TYPE, headers=_HEADERS)


class Answering:
    """A request that is being answered, in a task and a thread of its own, and what comes of it.

    Not in the thread that Django has for the request: the middleware's part of the response is run there, and would
    have to wait for the body that the response is streamed from.
    """

    def __init__(self, answer: Answer) -> None:
        self._loop = asyncio.get_running_loop()
        self._coming: asyncio.Queue[JSON | asyncio.Future[HttpResponse]] = asyncio.Queue()
        self._outlet = Outlet(self._coming.put_nowait, is_live=True)
        self._task = asyncio.ensure_future(_in_its_own_thread(answer, self._outlet))
        self._task.add_done_callback(self._coming.put_nowait)

    async def next(self) -> JSON | HttpResponse | None:
        """What comes next: a message, and at last the response. ``None``: nothing for ``QUIET_SECONDS``."""
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                coming = await self._coming.get()
        except TimeoutError:
            return None
        return coming.result() if isinstance(coming, asyncio.Future) else coming

    async def end(self) -> None:
        """Cancel what can be cancelled, and wait for what cannot: a keyed call runs on to its record (R24)."""
        self._outlet.closed = True
        self._task.cancel()
        while not self._task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({self._task})

    def cancel(self) -> None:
        """Begin to end it, from another thread."""
        self._outlet.closed = True
        self._loop.call_soon_threadsafe(self._task.cancel)


async def _in_its_own_thread(answer: Answer, outlet: Outlet) -> HttpResponse:
    with ThreadPoolExecutor(1, thread_name_prefix="mcp-idem-call") as thread:
        async with ThreadSensitiveContext(executor=thread):
            try:
                return await answer(outlet)
            finally:
                await sync_to_async(close_old_connections)()


class Events:
    """The server-sent events of an answer, from what came first to its last message."""

    def __init__(self, answering: Answering, first: JSON | None) -> None:
        self._answering = answering
        self._first = first

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        try:
            coming: JSON | HttpResponse | None = self._first
            while not isinstance(coming, HttpResponse):
                yield ALIVE if coming is None else _event(coming)
                coming = await self._answering.next()
            yield _last_event(coming)
        finally:
            await self._answering.end()

    def close(self) -> None:
        """Called by Django when the response has ended, maybe without having begun."""
        self._answering.cancel()


def _event(message: JSON) -> bytes:
    return _data(jsontext.write(message, max_depth=jsontext.MESSAGE_DEPTH))


def _last_event(response: HttpResponse) -> bytes:
    return _data(response.content) if response.content else b""


def _data(text: bytes) -> bytes:
    return b"event: message\r\ndata: " + text + b"\r\n\r\n"
