"""A site as an ``mcp`` low-level server: its handlers, its capability, its errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import mcp_types
from asgiref.sync import sync_to_async
from django.http import HttpRequest
from mcp.server import Server, ServerRequestContext
from mcp.server.caching import CacheHint, apply_cache_hint
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from . import __version__
from .auth.callers import Caller
from .calls import ToolCall, UnknownTool, perform
from .completions import Completable
from .conf import get_settings
from .content import NoContent
from .context import RequestContext
from .continuations import ask, require_capabilities, state_boundary
from .entries import Entry
from .idempotency.outcomes import Outcome, Reason, Refused
from .pages import InvalidCursor, Page, page_of
from .registry import Site
from .reports import Reports, set_level
from .resources import Resource, milliseconds
from .schemas import InvalidArguments
from .states import Ending
from .tools import Tool

RETRYABLE = -3182
"""The JSON-RPC code of refusals that are no fault of the call: outside the range that JSON-RPC reserves."""

RETRY_AFTER_MS = 1000

RESOURCE_NOT_FOUND = -32002
"""The JSON-RPC code of the handshake versions for a resource that is not there."""

JSON = dict[str, Any]

E = TypeVar("E", bound=Entry)


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
Paginated = mcp_types.PaginatedRequestParams | None


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
    """The server of a site, made once: all that it has is registered by then."""

    async def list_tools(ctx: Context, params: Paginated) -> mcp_types.ListToolsResult:
        page = await _page(site, site.tools, ctx, params)
        listed = [_describe(tool, ctx.protocol_version) for tool in page.entries]
        result = mcp_types.ListToolsResult(tools=listed, next_cursor=page.next_cursor)
        return apply_cache_hint(result, _cache_hint(site, site.tools))

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

    async def list_prompts(ctx: Context, params: Paginated) -> mcp_types.ListPromptsResult:
        page = await _page(site, site.prompts, ctx, params)
        listed = [prompt.listed() for prompt in page.entries]
        result = mcp_types.ListPromptsResult(prompts=listed, next_cursor=page.next_cursor)
        return apply_cache_hint(result, _cache_hint(site, site.prompts))

    async def get_prompt(
        ctx: Context, params: mcp_types.GetPromptRequestParams
    ) -> mcp_types.GetPromptResult | mcp_types.InputRequiredResult:
        prompt = await _permitted(site.get_prompt(params.name), ctx)
        if prompt is None:
            raise _invalid(f"Unknown prompt: {params.name}")
        try:
            return await prompt.get(params.arguments or {}, _request_context(ctx))
        except InvalidArguments as error:
            raise _invalid(f"The arguments do not fit the prompt: {error}") from error
        except NoContent as error:
            raise _invalid("The prompt has nothing to say of these arguments.") from error

    async def list_resources(ctx: Context, params: Paginated) -> mcp_types.ListResourcesResult:
        page = await _page(site, site.resources, ctx, params)
        listed = [resource.listed() for resource in page.entries]
        result = mcp_types.ListResourcesResult(resources=listed, next_cursor=page.next_cursor)
        return apply_cache_hint(result, _cache_hint(site, site.resources))

    async def list_templates(ctx: Context, params: Paginated) -> mcp_types.ListResourceTemplatesResult:
        page = await _page(site, site.templates, ctx, params)
        listed = [template.listed_template() for template in page.entries]
        result = mcp_types.ListResourceTemplatesResult(resource_templates=listed, next_cursor=page.next_cursor)
        return apply_cache_hint(result, _cache_hint(site, site.templates))

    async def read_resource(
        ctx: Context, params: mcp_types.ReadResourceRequestParams
    ) -> mcp_types.ReadResourceResult | mcp_types.InputRequiredResult:
        try:
            resource, arguments = await _found(site, params.uri, ctx)
            return await resource.read(params.uri, arguments, _request_context(ctx))
        except NoContent as error:
            modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
            code = mcp_types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
            raise MCPError(code, "Resource not found", {"uri": params.uri}) from error

    async def complete(ctx: Context, params: mcp_types.CompleteRequestParams) -> mcp_types.CompleteResult:
        entry = await _permitted(_referenced(site, params.ref), ctx)
        if entry is None:
            raise _invalid("There is no such prompt or template.")
        others = (params.context and params.context.arguments) or {}
        try:
            completion = await entry.complete(
                params.argument.name, params.argument.value, others=others, context=_request_context(ctx)
            )
        except InvalidArguments as error:
            raise _invalid(str(error)) from error
        return mcp_types.CompleteResult(completion=completion)

    def input_schema(name: str) -> Mapping[str, Any] | None:
        tool = site.get_tool(name)
        return None if tool is None else tool.arguments.schema

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
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts if site.prompts else None,
        on_get_prompt=get_prompt if site.prompts else None,
        on_list_resources=list_resources if has_resources else None,
        on_list_resource_templates=list_templates if has_resources else None,
        on_read_resource=read_resource if has_resources else None,
        on_completion=complete if has_completions else None,
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


async def _page(site: Site, entries: Sequence[E], ctx: Context, params: Paginated) -> Page[E]:
    """The page that was asked for of what the caller may see."""
    visible = await _visible(entries, ctx.lifespan_context.caller)
    try:
        return page_of(visible, cursor=None if params is None else params.cursor, size=site.page_size)
    except InvalidCursor:
        raise _invalid("The cursor is not of this list, or the list has changed. Begin again without one.") from None


async def _permitted(entry: E | None, ctx: Context) -> E | None:
    """``entry`` if the caller may see it: to others it is unknown (R19)."""
    visible = await _visible([] if entry is None else [entry], ctx.lifespan_context.caller)
    return visible[0] if visible else None


async def _visible(entries: Sequence[E], caller: Caller) -> Sequence[E]:
    def permitted() -> Sequence[E]:
        return [entry for entry in entries if entry.permits(caller.user)]

    needs_database = any(entry.permissions for entry in entries)
    return await sync_to_async(permitted)() if needs_database else permitted()


def _cache_hint(site: Site, entries: Sequence[Entry]) -> CacheHint:
    """How long a list is good, and whether whoever can reach the endpoint would be told the same one."""
    public = get_settings().ALLOW_ANONYMOUS and not any(entry.permissions for entry in entries)
    return CacheHint(ttl_ms=milliseconds(site.list_ttl), scope="public" if public else "private")


async def _found(site: Site, uri: str, ctx: Context) -> tuple[Resource, Mapping[str, Any]]:
    """What ``uri`` names and what it gives the function: the first that fits of what the caller may see.

    Raises:
        NoContent: There is none.
    """
    for resource in (*site.resources, *site.templates):
        arguments = resource.match(uri)
        if arguments is not None and await _permitted(resource, ctx) is not None:
            return resource, arguments
    raise NoContent(uri)


def _referenced(
    site: Site, reference: mcp_types.PromptReference | mcp_types.ResourceTemplateReference
) -> Completable | None:
    if isinstance(reference, mcp_types.PromptReference):
        return site.get_prompt(reference.name)
    return site.get_resource(reference.uri)


def _request_context(ctx: Context) -> RequestContext:
    sent: Mapping[str, Any] = ctx.params or {}
    visit = ctx.lifespan_context
    return RequestContext(
        user=visit.caller.user,
        request=visit.request,
        input_responses=sent.get("inputResponses"),
        request_state=sent.get("requestState"),
    )


def _invalid(message: str) -> MCPError:
    return MCPError(mcp_types.INVALID_PARAMS, message)


def _describe(tool: Tool, version: str) -> mcp_types.Tool:
    return mcp_types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.arguments.schema,
        output_schema=_output_schema(tool, version),
        annotations=tool.annotations if tool.annotations.model_dump(exclude_none=True) else None,
        icons=[*tool.icons] or None,
        meta=tool.meta,
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
