"""The events of a stream, kept for a while for a client of the handshake versions that lost it and comes back.

They lie in the shared store, so that it may come back to another process. What they are kept under cannot be guessed,
and belongs to the caller.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async

from ..auth.callers import Caller
from ..conf import get_settings
from ..idempotency.keys import digest
from ..shared import StoreUnavailable, get_shared_store
from .events import ALIVE, QUIET_SECONDS, event, priming_event

logger = logging.getLogger(__name__)

KEPT_SECONDS = 10 * 60
# Python refuses to read numbers of thousands of digits.
_NUMBER = re.compile(r"[0-9]{1,9}")
_POLL_SECONDS = 0.05
_MAX_POLL_SECONDS = 1.0


class Recording:
    """The events of one stream, numbered from 0, which says nothing but where it begins.

    Args:
        caller: Whose stream it is.
        endpoint: The site's name.
        primes: Whether the client knows what to do with an event that has no data (since 2025-11-25).
    """

    def __init__(self, caller: Caller, endpoint: str, *, primes: bool) -> None:
        self._stream = secrets.token_urlsafe(16)
        self._name = partial(_name, caller, endpoint, self._stream)
        self._primes = primes
        self._next = 0
        self._failed = False

    @property
    def goes_on(self) -> bool:
        """Whether the client can come back to it."""
        return self._next > 0 and not self._failed

    async def begin(self) -> bytes:
        """Keep that there is such a stream. Returns what to send first."""
        event_id = await self._keep(b"")
        return priming_event(event_id) if event_id is not None and self._primes else b""

    async def event(self, data: bytes) -> bytes:
        """Keep a message. Returns the event that it is sent as."""
        event_id = await self._keep(data)
        return event(data, event_id)

    async def end(self, data: bytes) -> bytes:
        """Keep the last message, and that it is the last. Returns the event that it is sent as."""
        sent = await self.event(data)
        await self._keep(None)
        return sent

    async def stay(self) -> None:
        """Keep what there is for longer."""
        if self.goes_on:
            await self._attempt(lambda: get_shared_store().touch(self._name(self._next - 1), KEPT_SECONDS))

    async def _keep(self, data: bytes | None) -> str | None:
        number = self._next
        kept = None if data is None else data.decode()
        await self._attempt(lambda: get_shared_store().set(self._name(number), {"data": kept}, KEPT_SECONDS))
        if self._failed:
            return None
        self._next += 1
        return f"{self._stream}.{number}"

    async def _attempt(self, act: Callable[[], object]) -> None:
        """Without its record a stream is one that cannot be come back to, and no worse."""
        if self._failed:
            return
        try:
            await sync_to_async(act, thread_sensitive=False)()
        except StoreUnavailable as error:
            logger.warning("The events of a stream could not be kept, so it cannot be resumed. %s", error)
            self._failed = True


class Resumed:
    """What follows an event in a recording, as it comes about.

    Args:
        caller: Who comes back.
        endpoint: The site's name.
        event_id: The ``Last-Event-ID``.
    """

    def __init__(self, caller: Caller, endpoint: str, event_id: str) -> None:
        self._stream, _, number = event_id.rpartition(".")
        self._number = int(number) if _NUMBER.fullmatch(number) else -1
        self._name = partial(_name, caller, endpoint, self._stream)

    async def exists(self) -> bool:
        """Whether the event is one that was sent to this caller, not too long ago.

        Raises:
            StoreUnavailable: That cannot be told now.
        """
        return self._number >= 0 and await self._get(self._number) is not None

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        clock = asyncio.get_running_loop().time
        yield ALIVE
        told = begun = clock()
        pause = _POLL_SECONDS
        # Its process may have ended. A client whose call runs for longer than others may comes back once more.
        while clock() - begun < get_settings().MAX_RUNTIME.total_seconds():
            kept = await self._get_if_possible(self._number + 1)
            if kept is not None:
                if kept["data"] is None:
                    return
                self._number += 1
                yield event(kept["data"].encode(), f"{self._stream}.{self._number}")
                told, pause = clock(), _POLL_SECONDS
                continue
            if clock() - told > QUIET_SECONDS:
                yield ALIVE
                told = clock()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_POLL_SECONDS)

    async def _get_if_possible(self, number: int) -> dict[str, Any] | None:
        with suppress(StoreUnavailable):
            return await self._get(number)
        return None

    async def _get(self, number: int) -> dict[str, Any] | None:
        found: dict[str, Any] | None = await sync_to_async(get_shared_store().get, thread_sensitive=False)(
            self._name(number)
        )
        return found


def _name(caller: Caller, endpoint: str, stream: str, number: int) -> str:
    return f"mcp-idem:event:{digest(caller.identity(endpoint), stream)}:{number}"
