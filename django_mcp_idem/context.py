"""What a tool's body is given beside its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.http import HttpRequest

from .idempotency.keys import digest

if TYPE_CHECKING:
    # Models: they cannot be imported before the app registry is ready, and this module is.
    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser
    from mcp_types import ClientCapabilities, LoggingLevel

    from .idempotency.leases import Lease
    from .reports import Reports


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The call that a body is run for; injected where a parameter is annotated with it.

    Attributes:
        user: Who is calling.
        request: The HTTP request of this call, ``None`` where it did not come over HTTP.
        attempt: 1, and one more for each time that an interrupted call is run again.
        input_responses: The answers to an earlier ``InputRequiredResult`` of this tool, by their names.
        request_state: What that result asked to have sent back. Nobody else can have made or changed it.
        client_capabilities: What the client declared to support; ask it for nothing else.
    """

    user: AbstractBaseUser | AnonymousUser
    request: HttpRequest | None
    attempt: int
    input_responses: Mapping[str, Any] | None = None
    request_state: str | None = None
    client_capabilities: ClientCapabilities | None = None
    seed: str | None = field(repr=False)
    lease: Lease | None = field(default=None, repr=False)
    reports: Reports | None = field(default=None, repr=False)

    @property
    def lost(self) -> bool:
        """Whether what the body comes to may no longer be recorded, so that it had better stop: it has run for longer
        than it may, or its call was settled without it. Never so for a call without a key.
        """
        return self.lease is not None and self.lease.lost

    def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the body is, if it asked for that. Does not wait; for sync and async bodies alike.

        Args:
            progress: How far it is. It has to grow from one report to the next.
            total: How far it will be in the end, if that is known.
            message: What it is at, for people.
        """
        if self.reports is not None:
            self.reports.progress(progress, total, message)

    def log(self, level: LoggingLevel, data: Any, *, logger: str | None = None) -> None:
        """Send the client a log message, if it asked for its level. Does not wait; for sync and async bodies alike.

        Args:
            level: ``debug``, ``info``, ``notice``, ``warning``, ``error``, ``critical``, ``alert`` or ``emergency``.
            data: What to tell: a text, or anything that fits JSON.
            logger: Name of who tells it.
        """
        if self.reports is not None:
            self.reports.log(level, data, logger)

    def close_sse_stream(self) -> None:
        """Let the client hang up and come back for what follows, so that a long body keeps no connection open.

        It does so only where the client can come back, which is on an ASGI server in the protocol versions before
        2026-07-28. Elsewhere nothing happens.
        """
        if self.reports is not None:
            self.reports.close_stream()

    def downstream_key(self, label: str = "") -> str:
        """An idempotency key for a service that the body calls.

        Args:
            label: Tells apart the calls that one body makes.

        Returns:
            36 characters in the form of a UUID: the same for every attempt of one record, another for every other
            record, and never the caller's own key. An unkeyed call has a new one each time.

        Raises:
            RuntimeError: The tool is atomic. An attempt that is rolled back takes its key with it, and the next one
                would be another call to the service.
        """
        if self.seed is None:
            raise RuntimeError(
                "An atomic tool has no downstream_key(): an attempt that is rolled back leaves none to the next one, "
                "and the service would be called twice. Call it from a tool that is not atomic."
            )
        return str(UUID(hex=digest(self.seed, label)[:32]))


@dataclass(frozen=True, kw_only=True)
class RequestContext:
    """The request that a prompt, a resource or a completion answers; injected where a parameter is annotated with it.

    What these do leaves no record: they have no attempt, no lease to lose and no key to pass on, as a
    ``ToolContext`` has.

    Attributes:
        user: Who is calling.
        request: The HTTP request, ``None`` where it did not come over HTTP.
        input_responses: The answers to an earlier ``InputRequiredResult`` of the same prompt or resource, by their
            names.
        request_state: What that result asked to have sent back.
    """

    user: AbstractBaseUser | AnonymousUser
    request: HttpRequest | None
    input_responses: Mapping[str, Any] | None = None
    request_state: str | None = None
