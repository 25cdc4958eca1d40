"""What clients are told of idempotency keys: the capability, and what tools say of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware

from . import namespace
from .conf import get_settings
from .registry import Site
from .sources import places
from .tools import Tool
from .visits import Context, Visit

JSON = dict[str, Any]


def advertise_on(site: Site) -> ServerMiddleware[Visit]:
    """Declare ``tools.idempotency`` (R03), which the SDK's models do not know, to callers whose keys are recorded.

    Clients' models do not know it either, so it is said again where they keep it, with what else holds for keys (R13).
    """

    async def advertise(ctx: Context, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method not in ("server/discover", "initialize") or not isinstance(result, dict):
            return result
        if ctx.lifespan_context.caller.is_anonymous:
            return result
        more: dict[str, JSON] = {
            "tools": {"idempotency": {}},
            "extensions": {namespace.IDEMPOTENCY: _about_keys(site)},
            "experimental": {namespace.IDEMPOTENCY: _about_keys(site)},
        }
        capabilities = result["capabilities"]
        for name, members in more.items():
            capabilities[name] = {**(capabilities.get(name) or {}), **members}
        return result

    return advertise


def about_keys(tool: Tool) -> JSON:
    """The member of a tool's ``_meta`` that says what holds for keys there and not for every tool of the endpoint."""
    said: JSON = {}
    if tool.key_required:
        said["key"] = "required"
    if tool.policy.retention is not None:
        said["retentionSeconds"] = _seconds(tool.policy.retention)
    if tool.deduplicate_within is not None:
        said["deduplicateWithinSeconds"] = _seconds(tool.deduplicate_within)
    return {namespace.IDEMPOTENCY: said} if said else {}


def _about_keys(site: Site) -> JSON:
    return {"retentionSeconds": _seconds(get_settings().RETENTION), "keyIn": places(site)}


def _seconds(span: timedelta) -> int | float:
    """A JSON number, whole where it can be."""
    seconds = span.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds
