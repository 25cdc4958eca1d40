"""What a site has to read: its prompts and resources, and the completions of their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .completions import Completable
from .content import NoContent
from .context import RequestContext
from .listings import visible
from .registry import Site
from .resources import Resource
from .schemas import InvalidArguments
from .visits import Context

RESOURCE_NOT_FOUND = -32002
"""The JSON-RPC code of the handshake versions for a resource that is not there."""


class Readings:
    """The handlers of what a site has to read.

    Args:
        site: The endpoint.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    async def get_prompt(
        self, ctx: Context, params: mcp_types.GetPromptRequestParams
    ) -> mcp_types.GetPromptResult | mcp_types.InputRequiredResult:
        """Answer ``prompts/get``."""
        prompt = await visible(self._site.get_prompt(params.name), ctx)
        if prompt is None:
            raise _invalid(f"Unknown prompt: {params.name}")
        try:
            return await prompt.get(params.arguments or {}, _request_context(ctx))
        except InvalidArguments as error:
            raise _invalid(f"The arguments do not fit the prompt: {error}") from error
        except NoContent as error:
            raise _invalid("The prompt has nothing to say of these arguments.") from error

    async def read_resource(
        self, ctx: Context, params: mcp_types.ReadResourceRequestParams
    ) -> mcp_types.ReadResourceResult | mcp_types.InputRequiredResult:
        """Answer ``resources/read``."""
        try:
            resource, arguments = await _found(self._site, params.uri, ctx)
            return await resource.read(params.uri, arguments, _request_context(ctx))
        except NoContent as error:
            modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
            code = mcp_types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
            raise MCPError(code, "Resource not found", {"uri": params.uri}) from error

    async def complete(self, ctx: Context, params: mcp_types.CompleteRequestParams) -> mcp_types.CompleteResult:
        """Answer ``completion/complete``."""
        entry = await visible(_referenced(self._site, params.ref), ctx)
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


async def _found(site: Site, uri: str, ctx: Context) -> tuple[Resource, Mapping[str, Any]]:
    """What ``uri`` names and what it gives the function: the first that fits of what the caller may see.

    Raises:
        NoContent: There is none.
    """
    for resource, arguments in site.matching(uri):
        if await visible(resource, ctx) is not None:
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
