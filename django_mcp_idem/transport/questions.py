"""Questions to the client in mid-call, as the handshake versions ask them: on the stream of the call.

The client sends the answer in a request of its own, which may reach another process. So it is left in the shared
store, under an identifier that nobody can guess, for the process that asks.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from asgiref.sync import sync_to_async
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, REQUEST_TIMEOUT

from ..auth.callers import Caller
from ..idempotency.keys import digest
from ..shared import SharedStore, StoreUnavailable, get_shared_store
from .exchange import JSON, Outlet

_PREFIX = "mcp-idem-"
_UNANSWERED = ""
_POLL_SECONDS = 0.1


class Question:
    """A request to the client, and its answer."""

    def __init__(self, caller: Caller, endpoint: str) -> None:
        self.id = f"{_PREFIX}{secrets.token_urlsafe(24)}"
        self._name = _name(caller, endpoint, self.id)

    async def ask(self, method: str, params: Mapping[str, Any] | None, *, outlet: Outlet, seconds: float) -> JSON:
        """Send it, and wait for the result.

        Args:
            method: Its method.
            params: Its params.
            outlet: Where it is sent to.
            seconds: For how long to wait.

        Raises:
            MCPError: The client answered with an error, went away, or did not answer in time.
        """
        store = get_shared_store()
        await sync_to_async(store.set)(self._name, _UNANSWERED, seconds)
        try:
            outlet.send({"jsonrpc": "2.0", "id": self.id, "method": method, "params": dict(params or {})})
            async with asyncio.timeout(seconds):
                while (answer := await sync_to_async(_get)(store, self._name)) == _UNANSWERED:
                    if outlet.closed:
                        raise MCPError(INTERNAL_ERROR, "The client went away before it answered.")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise MCPError(REQUEST_TIMEOUT, "The client did not answer in time.") from None
        finally:
            with suppress(StoreUnavailable):
                await sync_to_async(store.delete)(self._name)
        return _result(answer)


def _get(store: SharedStore, name: str) -> Any:
    # A server that is away for a moment has lost no answer.
    try:
        return store.get(name)
    except StoreUnavailable:
        return _UNANSWERED


def answer(caller: Caller, endpoint: str, message: JSON) -> None:
    """Leave an answer for the process that asked. One that nobody asked for is dropped."""
    name = _name(caller, endpoint, str(message.get("id")))
    store = get_shared_store()
    if store.get(name) == _UNANSWERED:
        store.set(name, message, _SECONDS_TO_FETCH)


_SECONDS_TO_FETCH = 60


def _result(answer: JSON | None) -> JSON:
    if answer is None:
        raise MCPError(REQUEST_TIMEOUT, "The client did not answer in time.")
    if "error" in answer:
        error = answer["error"]
        raise MCPError(error.get("code", INTERNAL_ERROR), str(error.get("message", "")), error.get("data"))
    result: JSON = answer.get("result") or {}
    return result


def _name(caller: Caller, endpoint: str, question_id: str) -> str:
    # Only the caller that was asked can answer.
    return f"mcp-idem:question:{digest(caller.identity(endpoint), question_id)}"
