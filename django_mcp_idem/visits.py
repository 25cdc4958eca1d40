"""A visit: one request at a site, as the SDK hands it through to the handlers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.http import HttpRequest
from mcp.server import ServerRequestContext

from .auth.callers import Caller

if TYPE_CHECKING:
    from .subscriptions import Subscription


@dataclass(kw_only=True)
class Visit:
    """Who asks a site, and what is to be said of the answer that the SDK's models have no place for.

    Attributes:
        caller: Who is calling.
        request: The HTTP request, if it came over HTTP.
        session: What names the client's session, in the handshake versions.
        can_listen: Whether it can be told of changes: what carries it can be kept open.
        subscription: What it asks to be told of from now on, if it does.
        structured_null: Whether the result has a ``structuredContent`` of null, which the SDK's models lose.
        replay_of: When the call ended that the answer is a replay of, if it is one and is to say so.
    """

    caller: Caller
    request: HttpRequest | None
    session: str | None = None
    can_listen: bool = False
    subscription: Subscription | None = None
    structured_null: bool = False
    replay_of: datetime | None = None


Context = ServerRequestContext[Visit]
