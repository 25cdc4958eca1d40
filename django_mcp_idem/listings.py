"""What a site lists for a caller: tools, prompts, resources and templates, in pages and with hints for caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import mcp_types
from asgiref.sync import sync_to_async
from mcp.server.caching import CacheHint, apply_cache_hint
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .capability import about_keys
from .conf import get_settings
from .entries import Entry
from .pages import InvalidCursor, Page, page_of
from .registry import Site
from .resources import milliseconds
from .sources import with_key_argument
from .tools import Tool
from .visits import Context

JSON = dict[str, Any]

E = TypeVar("E", bound=Entry)
Paginated = mcp_types.PaginatedRequestParams | None


class Listings:
    """The handlers of a site's lists.

    Args:
        site: The endpoint.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    async def tools(self, ctx: Context, params: Paginated) -> mcp_types.ListToolsResult:
        """Answer ``tools/list``."""
        page = await self._page(self._site.tools, ctx, params)
        listed = [_describe(self._site, tool, ctx) for tool in page.entries]
        result = mcp_types.ListToolsResult(tools=listed, next_cursor=page.next_cursor)
        return apply_cache_hint(result, self._cache_hint(self._site.tools))

    async def prompts(self, ctx: Context, params: Paginated) -> mcp_types.ListPromptsResult:
        """Answer ``prompts/list``."""
        page = await self._page(self._site.prompts, ctx, params)
        listed = [prompt.listed() for prompt in page.entries]
        result = mcp_types.ListPromptsResult(prompts=listed, next_cursor=page.next_cursor)
        return apply_cache_hint(result, self._cache_hint(self._site.prompts))

    async def resources(self, ctx: Context, params: Paginated) -> mcp_types.ListResourcesResult:
        """Answer ``resources/list``."""
        page = await self._page(self._site.resources, ctx, params)
        listed = [resource.listed() for resource in page.entries]
        result = mcp_types.ListResourcesResult(resources=listed, next_cursor=page.next_cursor)
        return apply_cache_hint(result, self._cache_hint(self._site.resources))

    async def templates(self, ctx: Context, params: Paginated) -> mcp_types.ListResourceTemplatesResult:
        """Answer ``resources/templates/list``."""
        page = await self._page(self._site.templates, ctx, params)
        listed = [template.listed_template() for template in page.entries]
        result = mcp_types.ListResourceTemplatesResult(resource_templates=listed, next_cursor=page.next_cursor)
        return apply_cache_hint(result, self._cache_hint(self._site.templates))

    async def _page(self, entries: Sequence[E], ctx: Context, params: Paginated) -> Page[E]:
        """The page that was asked for of what the caller may see."""
        visible = await _visible(entries, ctx)
        try:
            return page_of(visible, cursor=None if params is None else params.cursor, size=self._site.page_size)
        except InvalidCursor:
            message = "The cursor is not of this list, or the list has changed. Begin again without one."
            raise MCPError(mcp_types.INVALID_PARAMS, message) from None

    def _cache_hint(self, entries: Sequence[Entry]) -> CacheHint:
        """How long a list is good, and whether whoever can reach the endpoint would be told the same one."""
        public = get_settings().ALLOW_ANONYMOUS and not any(entry.permissions for entry in entries)
        return CacheHint(ttl_ms=milliseconds(self._site.list_ttl), scope="public" if public else "private")


async def visible(entry: E | None, ctx: Context) -> E | None:
    """``entry`` if the caller may see it: to others it is unknown (R19)."""
    seen = await _visible([] if entry is None else [entry], ctx)
    return seen[0] if seen else None


async def _visible(entries: Sequence[E], ctx: Context) -> Sequence[E]:
    user = ctx.lifespan_context.caller.user

    def permitted() -> Sequence[E]:
        return [entry for entry in entries if entry.permits(user)]

    needs_database = any(entry.permissions for entry in entries)
    return await sync_to_async(permitted)() if needs_database else permitted()


def _describe(site: Site, tool: Tool, ctx: Context) -> mcp_types.Tool:
    described = mcp_types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.arguments.schema,
        output_schema=_output_schema(tool, ctx.protocol_version),
        annotations=tool.annotations if tool.annotations.model_dump(exclude_none=True) else None,
        icons=[*tool.icons] or None,
        meta=tool.meta,
    )
    # An anonymous caller's keys are refused, so nothing is said of them.
    if ctx.lifespan_context.caller.is_anonymous:
        return described
    return described.model_copy(
        update={"input_schema": _with_key(site, tool), "meta": {**(tool.meta or {}), **about_keys(tool)} or None}
    )


def _with_key(site: Site, tool: Tool) -> JSON:
    if site.idempotency_key_argument is None:
        return tool.arguments.schema
    return with_key_argument(tool.arguments.schema, site.idempotency_key_argument, required=tool.key_required)


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
