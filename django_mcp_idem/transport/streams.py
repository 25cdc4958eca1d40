"""The response to one request as it comes about: one JSON message, or a stream of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from django.http import HttpResponse, StreamingHttpResponse

from .. import jsontext
from .exchange import JSON, Reply, Send

QUIET_SECONDS = 15.0
"""After so long without a word a stream begins, or says that it is alive: proxies cut what is silent."""

ALIVE = b": alive\r\n\r\n"

_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
_CONTENT_TYPE = "text/event-stream"


class Answering:
    """A request that is being answered, in a task of its own that hands on all that comes of it.

    The task ends before the response does: its thread and its transaction are those of the HTTP request.
    """

    def __init__(self, serve: Callable[[Send], Awaitable[Reply]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._coming: asyncio.Queue[JSON | asyncio.Future[Reply]] = asyncio.Queue()
        self._task = asyncio.ensure_future(serve(self._coming.put_nowait))
        self._task.add_done_callback(self._coming.put_nowait)

    async def next(self) -> JSON | Reply | None:
        """What comes next: a message, and at last the reply. ``None``: nothing for ``QUIET_SECONDS``."""
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                coming = await self._coming.get()
        except TimeoutError:
            return None
        return coming.result() if isinstance(coming, asyncio.Future) else coming

    async def end(self) -> None:
        """Cancel what can be cancelled, and wait for what cannot: a keyed call runs on to its record (R24)."""
        self._task.cancel()
        while not self._task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({self._task})

    def cancel(self) -> None:
        """Begin to end it, from another thread."""
        self._loop.call_soon_threadsafe(self._task.cancel)


async def begun(answering: Answering) -> JSON | Reply | None:
    """Wait until it is known how to answer; if the client goes away meanwhile, until all has ended."""
    try:
        return await answering.next()
    except BaseException:
        await answering.end()
        raise


class Events:
    """The server-sent events of an answer, from what came first to its reply."""

    def __init__(self, answering: Answering, first: JSON | None) -> None:
        self._answering = answering
        self._first = first

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        try:
            coming: JSON | Reply | None = self._first
            while not isinstance(coming, Reply):
                yield ALIVE if coming is None else event(coming)
                coming = await self._answering.next()
            yield event(coming.message)
        finally:
            await self._answering.end()

    def close(self) -> None:
        """Called by Django when the response has ended, maybe without having begun."""
        self._answering.cancel()


def event_stream(events: Events) -> StreamingHttpResponse:
    """A response that is sent as it comes about."""
    return StreamingHttpResponse(events, content_type=_CONTENT_TYPE, headers=_HEADERS)


def whole_stream(messages: list[JSON]) -> HttpResponse:
    """A response that is sent when everything is there, as under WSGI."""
    return HttpResponse(b"".join(map(event, messages)), content_type=_CONTENT_TYPE, headers=_HEADERS)


def event(message: JSON) -> bytes:
    """One message as a server-sent event."""
    return b"event: message\r\ndata: " + jsontext.write(message, max_depth=jsontext.MESSAGE_DEPTH) + b"\r\n\r\n"
