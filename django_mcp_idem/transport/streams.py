"""The response to one request as it comes about: a JSON message, or a stream of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from .. import jsontext
from . import events
from .exchange import JSON, CloseStream, Outlet, no_outlet
from .recordings import Recording

Response = HttpResponse | StreamingHttpResponse
Answer = Callable[[Outlet], Awaitable[Response]]
"""Makes the response of one JSON message, and sends what comes before it."""

Coming = JSON | CloseStream | Response | None
"""A message, the wish to close the stream, or at last the response. ``None``: nothing came for a while."""


async def respond(request: HttpRequest, answer: Answer) -> Response:
    """Answer with one JSON message, unless something is to be sent before it or it takes long."""
    if not request.accepts(events.CONTENT_TYPE):
        return await answer(no_outlet())
    if not isinstance(request, ASGIRequest):
        return await _respond_at_once(answer)
    answering = Answering(answer)
    try:
        first = await answering.next()
    except BaseException:
        await answering.end()
        raise
    if isinstance(first, HttpResponse | StreamingHttpResponse):
        return first
    recording = answering.recording
    return stream(Events(answering, first) if recording is None else RecordedEvents(answering, first, recording))


def stream(parts: AsyncIterable[bytes]) -> StreamingHttpResponse:
    """The response that streams server-sent events."""
    return StreamingHttpResponse(parts, content_type=events.CONTENT_TYPE, headers=events.HEADERS)


async def _respond_at_once(answer: Answer) -> Response:
    """Under WSGI nothing is sent before everything is there."""
    messages: list[JSON] = []
    response = await answer(Outlet(lambda message: messages.append(message) if isinstance(message, dict) else None))
    if not messages or isinstance(response, StreamingHttpResponse):
        return response
    parts = [events.event(text) for text in (*map(jsontext.write_message, messages), response.content) if text]
    return HttpResponse(b"".join(parts), content_type=events.CONTENT_TYPE, headers=events.HEADERS)


class Answering:
    """A request that is being answered, in a task and a thread of its own, and what comes of it.

    Not in the thread that Django has for the request: the middleware's part of the response is run there, and would
    have to wait for the body that the response is streamed from.
    """

    def __init__(self, answer: Answer) -> None:
        self._loop = asyncio.get_running_loop()
        self._coming: asyncio.Queue[JSON | CloseStream | asyncio.Future[Response]] = asyncio.Queue()
        self._outlet = Outlet(self._coming.put_nowait, is_live=True)
        self._task = asyncio.ensure_future(_in_its_own_thread(answer, self._outlet))
        self._task.add_done_callback(self._coming.put_nowait)

    @property
    def recording(self) -> Recording | None:
        """Where its events are kept, if they are."""
        return self._outlet.recording

    async def next(self) -> Coming:
        """What comes next, and at last the response. ``None``: nothing for ``QUIET_SECONDS``."""
        try:
            async with asyncio.timeout(events.QUIET_SECONDS):
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


async def _in_its_own_thread(answer: Answer, outlet: Outlet) -> Response:
    thread = ThreadPoolExecutor(1, thread_name_prefix="mcp-idem-call")
    try:
        async with ThreadSensitiveContext(executor=thread):
            return await answer(outlet)
    finally:
        # All of them, also those that may be kept: their thread ends here. A sync body may still run in it, which was
        # given up; the event loop must not wait for that one.
        closing = thread.submit(connections.close_all)
        thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))


class Events:
    """The server-sent events of an answer, from what came first to its last message."""

    def __init__(self, answering: Answering, first: Coming) -> None:
        self._answering = answering
        self._first = first

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        try:
            coming = self._first
            while not isinstance(coming, HttpResponse | StreamingHttpResponse):
                if not isinstance(coming, CloseStream):
                    yield events.ALIVE if coming is None else events.event(jsontext.write_message(coming))
                coming = await self._answering.next()
            if isinstance(coming, StreamingHttpResponse):
                async for part in coming:
                    yield part
            elif coming.content:
                yield events.event(coming.content)
        finally:
            await self._answering.end()

    def close(self) -> None:
        """Called by Django when the response has ended, maybe without having begun."""
        self._answering.cancel()


class RecordedEvents:
    """The same for a client that can come back: they are written whether it is there or not."""

    def __init__(self, answering: Answering, first: Coming, recording: Recording) -> None:
        self._answering = answering
        self._recording = recording
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._left = False
        self._begun = False
        _in_the_background(self._write(first))

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        self._begun = True
        try:
            while (part := await self._parts.get()) is not None:
                yield part
        finally:
            self._left = True

    def close(self) -> None:
        """Called by Django when the response has ended. One without a first event cannot be come back to."""
        self._left = True
        if not self._begun or not self._recording.goes_on:
            self._answering.cancel()

    async def _write(self, coming: Coming) -> None:
        try:
            if priming := await self._recording.begin():
                self._send(priming)
            while not isinstance(coming, HttpResponse):
                if isinstance(coming, dict):
                    self._send(await self._recording.event(jsontext.write_message(coming)))
                elif coming is None:
                    await self._recording.stay()
                    self._send(events.ALIVE)
                elif self._recording.goes_on:
                    self._send(None)
                coming = await self._answering.next()
            self._send(await self._recording.end(coming.content))
        finally:
            self._send(None)
            await self._answering.end()

    def _send(self, part: bytes | None) -> None:
        if not self._left:
            self._parts.put_nowait(part)


_background: set[asyncio.Task[None]] = set()


def _in_the_background(work: Coroutine[Any, Any, None]) -> None:
    # The event loop alone would let it be collected.
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
