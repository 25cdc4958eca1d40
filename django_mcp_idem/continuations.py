"""A result that asks the client for more, and the call that brings the answers (2026-07-28, R16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.utils.crypto import salted_hmac
from mcp.server import ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ClientCapabilities,
    CreateMessageResult,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    ListRootsResult,
    Result,
)
from mcp_types.methods import is_input_required

from .auth.callers import Caller
from .registry import Site

STATE_SECONDS = 3600.0
"""How long a client may take to bring the answers."""

_SALT = "django_mcp_idem.request_state"

_NEEDS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


def state_boundary(site: Site) -> RequestStateBoundary:
    """What seals a body's ``request_state`` on its way to the client and opens it on its way back.

    Any process can open it: the keys are made from ``SECRET_KEY`` and ``SECRET_KEY_FALLBACKS``. It is good for the
    same caller, tool and arguments, for ``STATE_SECONDS``.
    """

    def subject(ctx: ServerRequestContext[Any, Any]) -> str | None:
        caller: Caller = ctx.lifespan_context.caller
        return None if caller.is_anonymous else caller.scope(site.name).digest

    secrets = dict.fromkeys([settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS])
    keys = [salted_hmac(_SALT, "", secret=secret, algorithm="sha256").digest() for secret in secrets]
    security = RequestStateSecurity(keys=keys, ttl=STATE_SECONDS, bind_principal=subject)
    return RequestStateBoundary(security, default_audience=site.name)


async def require_capabilities(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Ask the client for nothing that it did not declare to support.

    Raises:
        MCPError: The result does; the error says what the client would have to support.
    """
    result = await call_next(ctx)
    if is_input_required(result) and isinstance(result, dict):
        requests: Mapping[str, Any] = result.get("inputRequests") or {}
        _require({request["method"] for request in requests.values()}, ctx)
    return result


async def ask(result: InputRequiredResult, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
    """Ask the client, in mid-call, for what a result asks for: so do the handshake versions. Returns the answers.

    Raises:
        MCPError: The client does not support it, cannot be asked, or does not answer.
    """
    requests = result.input_requests or {}
    _require({request.method for request in requests.values()}, ctx)
    return {name: await _ask(request, ctx) for name, request in requests.items()}


async def _ask(request: InputRequest, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
    metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
    answer = await ctx.session.send_request(request, _ANSWERS[request.method], metadata=metadata)
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


_ANSWERS: dict[str, type[Result]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}


def _require(methods: set[str], ctx: ServerRequestContext[Any, Any]) -> None:
    missing = sorted({_NEEDS[method] for method in methods} - _supported(ctx.session.client_capabilities))
    if missing:
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"This takes a client that supports {' and '.join(missing)}.",
            {"requiredCapabilities": {name: {} for name in missing}},
        )


def _supported(capabilities: ClientCapabilities | None) -> set[str]:
    return {name for name in _NEEDS.values() if capabilities is not None and getattr(capabilities, name) is not None}
