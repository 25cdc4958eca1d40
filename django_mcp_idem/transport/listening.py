"""A stream of changes: open until its client leaves, its caller loses access or its process ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

from django.db import connections
from django.http import HttpRequest
from mcp.shared.subscriptions import ServerEvent

from .. import jsontext
from ..auth.callers import Unauthenticated
from ..auth.tokens import authenticate
from ..changes import listen, wait_for_other_processes
from ..idempotency.shutdown import on_shutdown, watch_for_shutdown
from ..subscriptions import Subscription
from . import events

JSON = dict[str, Any]


class Listening:
    """The events of a stream of changes.

    Changes that come faster than they can be told are told once. Who may know of one is asked for each, since a stream
    stays open for longer than a token or a permission lasts.

    Args:
        request: The request that opened it.
        subscription: What to tell of.
        last: What to end it with, where it ends well.
    """

    def __init__(self, request: HttpRequest, subscription: Subscription, *, last: JSON | None) -> None:
        self._request = request
        self._subscription = subscription
        self._last = last
        self._loop = asyncio.get_running_loop()
        self._changes: dict[ServerEvent, None] = {}
        self._woken = asyncio.Event()
        self._ended = False
        self._leave: Callable[[], None] = lambda: None

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        watch_for_shutdown()
        on_shutdown(_end_all)
        try:
            self._leave = listen(self._subscription.site.name, self._note)
            _open.add(self)
            await self._loop.run_in_executor(None, wait_for_other_processes)
            first = self._subscription.acknowledgement
            yield events.ALIVE if first is None else events.event(jsontext.write_message(first))
            while not self._ended:
                async for part in self._told():
                    yield part
            if self._last is not None:
                yield events.event(jsontext.write_message(self._last))
        except Unauthenticated:
            return
        finally:
            self.close()

    async def _told(self) -> AsyncGenerator[bytes, None]:
        try:
            async with asyncio.timeout(events.QUIET_SECONDS):
                await self._woken.wait()
        except TimeoutError:
            yield events.ALIVE
            return
        self._woken.clear()
        changes, self._changes = self._changes, {}
        for change in changes:
            message = await self._loop.run_in_executor(_checker(), self._message, change)
            if message is not None:
                yield events.event(jsontext.write_message(message))

    def _message(self, change: ServerEvent) -> JSON | None:
        try:
            return self._subscription.notification(change, authenticate(self._request))
        finally:
            # A connection is not kept for the next change, which may be hours away.
            connections.close_all()

    def _note(self, change: ServerEvent) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake, change)

    def _wake(self, change: ServerEvent) -> None:
        self._changes[change] = None
        self._woken.set()

    def end(self) -> None:
        """Begin to end it well, from another thread or a signal handler."""
        self._ended = True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._woken.set)

    def close(self) -> None:
        """Listen no more. Called by Django too, when the response has ended."""
        _open.discard(self)
        self._leave()


_open: set[Listening] = set()


def _end_all() -> None:
    for listening in list(_open):
        listening.end()


@cache
def _checker() -> ThreadPoolExecutor:
    """The one thread that asks the database, however many listen."""
    return ThreadPoolExecutor(1, thread_name_prefix="mcp-idem-listening")
