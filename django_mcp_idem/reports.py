"""What a body reports while it runs: progress and log messages, on their way to the client before its result.

They are sent from whatever thread the body runs in, and it does not wait for them. They are no part of a result: none
is recorded, and none is replayed (R17).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, get_args

from asgiref.sync import sync_to_async
from mcp.server import ServerRequestContext
from mcp_types import (
    LOG_LEVEL_META_KEY,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .idempotency.keys import digest
from .shared import get_shared_store

logger = logging.getLogger(__name__)

LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
"""From the least to the most severe."""


class Reports:
    """The reports of one call, sent in order."""

    def __init__(self, ctx: ServerRequestContext[Any, Any]) -> None:
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Callable[[], Awaitable[None]]] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._made = False

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send the progress, if the client asked for it."""
        self._send(partial(self._ctx.session.report_progress, progress, total, message))

    def log(self, level: LoggingLevel, data: Any, name: str | None) -> None:
        """Send a log message, if the client asked for its level."""
        params = LoggingMessageNotificationParams(level=level, data=data, logger=name)
        self._send(partial(self._log, LoggingMessageNotification(params=params)))

    def close_stream(self) -> None:
        """End the connection, if the client can come back for the rest."""
        if self._ctx.close_sse_stream is not None:
            self._send(self._ctx.close_sse_stream)

    async def _log(self, message: LoggingMessageNotification) -> None:
        if message.params.level in await _wanted_levels(self._ctx):
            await self._ctx.session.send_notification(message, self._ctx.request_id)

    async def sent(self) -> None:
        """Wait until all reports made so far are on their way, so that the result comes after them."""
        if not self._made:
            return
        # What was reported in this thread has only been noted for the event loop's next turn.
        await asyncio.sleep(0)
        if self._sender is not None:
            await self._sender

    def _send(self, report: Callable[[], Awaitable[None]]) -> None:
        self._made = True
        # A loop that is closed has no client any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._enqueue, report)

    def _enqueue(self, report: Callable[[], Awaitable[None]]) -> None:
        self._waiting.append(report)
        if self._sender is None or self._sender.done():
            self._sender = self._loop.create_task(self._send_waiting())

    async def _send_waiting(self) -> None:
        while self._waiting:
            try:
                await self._waiting.popleft()()
            except Exception:
                logger.debug("A report could not be sent.", exc_info=True)


async def set_level(level: LoggingLevel, ctx: ServerRequestContext[Any, Any]) -> None:
    """Remember the level from which on the client of a session wants log messages (before 2026-07-28)."""
    session = ctx.lifespan_context.session
    if session is not None:
        await sync_to_async(get_shared_store().set)(_name(session), level, _SECONDS)


_SECONDS = 24 * 60 * 60


async def _wanted_levels(ctx: ServerRequestContext[Any, Any]) -> tuple[LoggingLevel, ...]:
    """The levels that a client asks for: since 2026-07-28 in each request, before for its session, or else all."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        level = (ctx.meta or {}).get(LOG_LEVEL_META_KEY)
        return _from(level) if level in LEVELS else ()
    session = ctx.lifespan_context.session
    level = None if session is None else await sync_to_async(get_shared_store().get)(_name(session))
    return LEVELS if level is None else _from(level)


def _from(level: LoggingLevel) -> tuple[LoggingLevel, ...]:
    return LEVELS[LEVELS.index(level) :]


def _name(session: str) -> str:
    return f"mcp-idem:level:{digest(session)}"
