"""A site as an ``mcp`` low-level server: its handlers, its capability, its errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import mcp_types
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from . import __version__, namespace
from .calls import ToolCall, UnknownTool, perform
from .capability import advertise_on
from .continuations import ask, require_capabilities, state_boundary
from .idempotency.outcomes import Answer, Reason, Refused
from .listings import Listings
from .readings import Readings
from .registry import Site
from .reports import Reports, set_level
from .sources import SentKey, sent_key
from .states import Ending
from .subscriptions import Subscriptions, declare_subscriptions
from .visits import Context, Visit

RETRYABLE = -3182
"""The JSON-RPC code of refusals that are no fault of the call: outside the range that JSON-RPC reserves."""

RETRY_AFTER_MS = 1000

JSON = dict[str, Any]


class RefusedError(MCPError):
    """A refusal of the idempotency core, as the JSON-RPC error that every official client keeps whole."""

    def __init__(self, refused: Refused, key: SentKey) -> None:
        data: JSON = {"type": refused.reason.value}
        if key and refused.reason is not Reason.INVALID:
            data["idempotencyKey"] = key.agreed()
        if refused.reason.retryable:
            data["retryAfterMs"] = RETRY_AFTER_MS
        if refused.record is not None:
            data["record"] = refused.record
        super().__init__(_CODES.get(refused.reason, RETRYABLE), str(refused), data)


_CODES = {
    Reason.CONFLICT: mcp_types.INVALID_PARAMS,
    Reason.INVALID: mcp_types.INVALID_PARAMS,
    Reason.REQUIRED: mcp_types.INVALID_PARAMS,
    Reason.UNSUPPORTED: mcp_types.INVALID_PARAMS,
}


@cache
def get_server(site: Site) -> Server[Visit]:
    """The server of a site, made once: all that it has is registered by then."""

    async def call_tool(ctx: Context, params: mcp_types.CallToolRequestParams) -> Any:
        reports = Reports(ctx)
        call = _tool_call(site, ctx, reports)
        try:
            answer = await perform(call)
            await reports.sent()
        except UnknownTool:
            raise MCPError(mcp_types.INVALID_PARAMS, f"Unknown tool: {params.name}") from None
        except Refused as refused:
            raise RefusedError(refused, call.key) from refused
        return _result(site, answer, ctx)

    async def set_logging_level(ctx: Context, params: mcp_types.SetLevelRequestParams) -> mcp_types.EmptyResult:
        await set_level(params.level, ctx)
        return mcp_types.EmptyResult()

    def input_schema(name: str) -> Mapping[str, Any] | None:
        tool = site.get_tool(name)
        return None if tool is None else tool.arguments.schema

    lists, readings, subscriptions = Listings(site), Readings(site), Subscriptions(site)
    # A capability is declared where there is a handler.
    has_resources = bool(site.resources or site.templates)
    has_completions = any(entry.completers for entry in (*site.prompts, *site.templates))
    server: Server[Visit] = Server(
        site.name,
        version=__version__,
        title=site.title,
        instructions=site.instructions,
        icons=[*site.icons] or None,
        get_tool_input_schema=input_schema,
        on_list_tools=lists.tools,
        on_call_tool=call_tool,
        on_list_prompts=lists.prompts if site.prompts else None,
        on_get_prompt=readings.get_prompt if site.prompts else None,
        on_list_resources=lists.resources if has_resources else None,
        on_list_resource_templates=lists.templates if has_resources else None,
        on_read_resource=readings.read_resource if has_resources else None,
        on_completion=readings.complete if has_completions else None,
        on_subscriptions_listen=subscriptions.listen,
    )
    # Deprecated by the SDK as arguments: the handshake versions have them.
    if has_resources:
        server.add_request_handler("resources/subscribe", mcp_types.SubscribeRequestParams, subscriptions.subscribe)
        server.add_request_handler(
            "resources/unsubscribe", mcp_types.UnsubscribeRequestParams, subscriptions.unsubscribe
        )
    server.add_request_handler("logging/setLevel", mcp_types.SetLevelRequestParams, set_logging_level)
    server.middleware += [
        _keep_structured_null,
        _mark_replay,
        advertise_on(site),
        declare_subscriptions,
        require_capabilities,
        state_boundary(site),
    ]
    return server


def _tool_call(site: Site, ctx: Context, reports: Reports) -> ToolCall:
    # The typed params drop the key; the raw mapping has it.
    sent: Mapping[str, Any] = ctx.params or {}
    if sent.get("arguments", {}) is None:
        raise MCPError(mcp_types.INVALID_PARAMS, "params.arguments is null. Send an object, or leave it out.")
    visit = ctx.lifespan_context
    return ToolCall(
        site=site,
        caller=visit.caller,
        request=visit.request,
        name=sent["name"],
        arguments={
            name: value for name, value in sent.get("arguments", {}).items() if name != site.idempotency_key_argument
        },
        key=sent_key(site, sent, {} if visit.request is None else visit.request.headers),
        input_responses=sent.get("inputResponses"),
        request_state=sent.get("requestState"),
        client_capabilities=ctx.session.client_capabilities,
        ask=None if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else partial(ask, ctx=ctx),
        reports=reports,
    )


def _result(site: Site, answer: Answer, ctx: Context) -> JSON:
    stored: JSON = json.loads(answer.outcome.text)
    if site.mark_replays:
        ctx.lifespan_context.replay_of = answer.replay_of
    if answer.outcome.ending is Ending.PROTOCOL_ERROR:
        raise MCPError(stored["code"], stored["message"], stored.get("data"))
    if "structuredContent" not in stored:
        return stored
    content = stored["structuredContent"]
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS and not isinstance(content, dict):
        return {**stored, "structuredContent": {"result": content}}
    ctx.lifespan_context.structured_null = content is None
    return stored


async def _keep_structured_null(ctx: Context, call_next: CallNext) -> HandlerResult:
    result = await call_next(ctx)
    if ctx.lifespan_context.structured_null and isinstance(result, dict):
        result["structuredContent"] = None
    return result


async def _mark_replay(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Say in a result's ``_meta`` that it is a replay, once the SDK has arranged it, so that all else stays (R06)."""
    result = await call_next(ctx)
    replay_of = ctx.lifespan_context.replay_of
    if replay_of is not None and isinstance(result, dict):
        completed_at = replay_of.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        result["_meta"] = {**result.get("_meta", {}), namespace.REPLAYED: {"completedAt": completed_at}}
    return result
