"""A site as an ``mcp`` low-level server: its handlers, its capability, its errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import mcp_types
from asgiref.sync import sync_to_async
from django.http import HttpRequest
from mcp.server import Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from . import __version__
from .auth.callers import Caller
from .calls import ToolCall, UnknownTool, perform
from .continuations import ask, require_capabilities, state_boundary
from .idempotency.outcomes import Outcome, Reason, Refused
from .registry import Site
from .reports import Reports, set_level
from .states import Ending
from .tools import Tool

RETRYABLE = -3182
"""The JSON-RPC code of refusals that are no fault of the call: outside the range that JSON-RPC reserves."""

RETRY_AFTER_MS = 1000

JSON = dict[str, Any]


@dataclass(kw_only=True)
class Visit:
    """One request at a site, as the SDK hands it through to the handlers.

    Attributes:
        caller: Who is calling.
        request: The HTTP request, if it came over HTTP.
        session: What names the client's session, in the handshake versions.
        structured_null: Whether the result has a ``structuredContent`` of null, which the SDK's models lose.
    """

    caller: Caller
    request: HttpRequest | None
    session: str | None = None
    structured_null: bool = False


Context = ServerRequestContext[Visit]


class RefusedError(MCPError):
    """A refusal of the idempotency core, as the JSON-RPC error that every official client keeps whole."""

    def __init__(self, refused: Refused, key: object) -> None:
        data: JSON = {"type": refused.reason.value}
        if isinstance(key, str) and refused.reason is not Reason.INVALID:
            data["idempotencyKey"] = key
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
    """The server of a site, made once: its tools are registered by then."""

    async def list_tools(ctx: Context, params: mcp_types.PaginatedRequestParams | None) -> mcp_types.ListToolsResult:
        tools = await _visible_tools(site, ctx.lifespan_context.caller)
        return mcp_types.ListToolsResult(tools=[_describe(tool, ctx.protocol_version) for tool in tools])

    async def call_tool(ctx: Context, params: mcp_types.CallToolRequestParams) -> Any:
        reports = Reports(ctx)
        call = _tool_call(site, ctx, reports)
        try:
            outcome = await perform(call)
            await reports.sent()
        except UnknownTool:
            raise MCPError(mcp_types.INVALID_PARAMS, f"Unknown tool: {params.name}") from None
        except Refused as refused:
            raise RefusedError(refused, call.key) from refused
        return _result(outcome, ctx)

    async def set_logging_level(ctx: Context, params: mcp_types.SetLevelRequestParams) -> mcp_types.EmptyResult:
        await set_level(params.level, ctx)
        return mcp_types.EmptyResult()

    def input_schema(name: str) -> Mapping[str, Any] | None:
        tool = site.get_tool(name)
        return None if tool is None else tool.arguments.schema

    server: Server[Visit] = Server(
        site.name,
        version=__version__,
        title=site.title,
        instructions=site.instructions,
        get_tool_input_schema=input_schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.add_request_handler("logging/setLevel", mcp_types.SetLevelRequestParams, set_logging_level)
    server.middleware += [_keep_structured_null, _advertise, require_capabilities, state_boundary(site)]
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
        arguments=sent.get("arguments", {}),
        keyed="idempotencyKey" in sent,
        key=sent.get("idempotencyKey"),
        input_responses=sent.get("inputResponses"),
        request_state=sent.get("requestState"),
        client_capabilities=ctx.session.client_capabilities,
        ask=None if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else partial(ask, ctx=ctx),
        reports=reports,
    )


def _result(outcome: Outcome, ctx: Context) -> JSON:
    stored: JSON = json.loads(outcome.text)
    if outcome.ending is Ending.PROTOCOL_ERROR:
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


async def _advertise(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Declare ``tools.idempotency`` (R03), which the SDK's models do not know, to callers whose keys are recorded."""
    result = await call_next(ctx)
    if (
        ctx.method in ("server/discover", "initialize")
        and isinstance(result, dict)
        and not ctx.lifespan_context.caller.is_anonymous
    ):
        result["capabilities"]["tools"] = {**result["capabilities"].get("tools", {}), "idempotency": {}}
    return result


async def _visible_tools(site: Site, caller: Caller) -> list[Tool]:
    def permitted() -> list[Tool]:
        return [tool for tool in site.tools if tool.permits(caller.user)]

    needs_database = any(tool.permissions for tool in site.tools)
    return await sync_to_async(permitted)() if needs_database else permitted()


def _describe(tool: Tool, version: str) -> mcp_types.Tool:
    return mcp_types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.arguments.schema,
        output_schema=_output_schema(tool, version),
        annotations=tool.annotations if tool.annotations.model_dump(exclude_none=True) else None,
    )


def _output_schema(tool: Tool, version: str) -> JSON | None:
    """The output schema as one protocol version has it: the handshake versions know objects alone."""
    schema = tool.returns.schema
    if schema is None or version in MODERN_PROTOCOL_VERSIONS or schema.get("type") == "object":
        return schema
    if "type" not in schema:
        # It may be an object or not, and so may or may not come wrapped: nothing to promise.
        return None
    definitions = {name: part for name, part in schema.items() if name == "$defs"}
    wrapped = {name: part for name, part in schema.items() if name != "$defs"}
    return {"type": "object", "properties": {"result": wrapped}, "required": ["result"], **definitions}
