"""For tests of tools, prompts and resources: a client in process, within the test's own transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth.base_user import AbstractBaseUser
from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    CallToolResult,
    Completion,
    GetPromptResult,
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    Tool,
)
from mcp_types.version import LATEST_MODERN_VERSION

from . import jsontext
from .auth.callers import Caller
from .registry import Site
from .registry import site as default_site
from .transport.exchange import serve
from .visits import Visit


@dataclass(frozen=True, kw_only=True)
class MCPClient:
    """Calls a site as one user: all that a call over HTTP goes through but HTTP and the sign-in.

    Attributes:
        user: Who is calling.
        site: The endpoint.
        capabilities: What the client says that it supports, such as ``{"elicitation": {}}``.
    """

    user: AbstractBaseUser
    site: Site
    capabilities: Mapping[str, Any]

    def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *, key: str | None = None
    ) -> CallToolResult:
        """Call a tool.

        Args:
            name: Name of the tool.
            arguments: Its arguments.
            key: The idempotency key; ``None`` for a call without one.

        Raises:
            MCPError: The answer is a JSON-RPC error; ``error.data["type"]`` tells refusals of the key apart.
        """
        keyed = {} if key is None else {"idempotencyKey": key}
        result = self.request("tools/call", {"name": name, "arguments": arguments or {}, **keyed})
        return CallToolResult.model_validate(result, by_name=False)

    def list_tools(self) -> list[Tool]:
        """The tools that the user may see."""
        return [Tool.model_validate(tool, by_name=False) for tool in self._list("tools/list", "tools")]

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Get the messages of a prompt.

        Args:
            name: Name of the prompt.
            arguments: Its arguments, all of them texts.

        Raises:
            MCPError: The answer is a JSON-RPC error.
        """
        result = self.request("prompts/get", {"name": name, "arguments": dict(arguments or {})})
        return GetPromptResult.model_validate(result, by_name=False)

    def list_prompts(self) -> list[Prompt]:
        """The prompts that the user may see."""
        return [Prompt.model_validate(prompt, by_name=False) for prompt in self._list("prompts/list", "prompts")]

    def read_resource(self, uri: str) -> ReadResourceResult:
        """Read what a URI names.

        Raises:
            MCPError: The answer is a JSON-RPC error.
        """
        return ReadResourceResult.model_validate(self.request("resources/read", {"uri": uri}), by_name=False)

    def list_resources(self) -> list[Resource]:
        """The resources with a URI of their own that the user may see."""
        return [Resource.model_validate(found, by_name=False) for found in self._list("resources/list", "resources")]

    def list_resource_templates(self) -> list[ResourceTemplate]:
        """The templates of resources that the user may see."""
        found = self._list("resources/templates/list", "resourceTemplates")
        return [ResourceTemplate.model_validate(template, by_name=False) for template in found]

    def complete(
        self,
        reference: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        *,
        arguments: Mapping[str, str] | None = None,
    ) -> Completion:
        """Complete an argument of a prompt or a variable of a template.

        Args:
            reference: Which prompt or template.
            argument: Which argument.
            value: What was typed so far.
            arguments: The other arguments, as far as they are known.

        Raises:
            MCPError: The answer is a JSON-RPC error.
        """
        params = {
            "ref": reference.model_dump(mode="json", by_alias=True, exclude_none=True),
            "argument": {"name": argument, "value": value},
            "context": {"arguments": dict(arguments or {})},
        }
        return Completion.model_validate(self.request("completion/complete", params)["completion"], by_name=False)

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send any request and return its result as it is on the wire.

        Raises:
            MCPError: The answer is a JSON-RPC error.
        """
        meta = {PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION, CLIENT_CAPABILITIES_META_KEY: self.capabilities}
        sent = jsontext.parse(jsontext.write({**params, "_meta": meta}))
        reply = async_to_sync(serve)(
            self.site,
            Visit(caller=Caller(user=self.user), request=None),
            request_id=1,
            method=method,
            params=sent,
            connection=Connection.from_envelope(LATEST_MODERN_VERSION, None, self.capabilities),
            transport=TransportContext(kind="in-process", can_send_request=False),
        )
        message = json.loads(jsontext.write_message(reply.message))
        if "error" in message:
            raise MCPError(message["error"]["code"], message["error"]["message"], message["error"].get("data"))
        result: dict[str, Any] = message["result"]
        return result

    def _list(self, method: str, member: str) -> Iterator[dict[str, Any]]:
        """All entries of a list, page by page."""
        page = self.request(method, {})
        yield from page[member]
        while "nextCursor" in page:
            page = self.request(method, {"cursor": page["nextCursor"]})
            yield from page[member]


def mcp_client(
    user: AbstractBaseUser, *, site: Site = default_site, capabilities: Mapping[str, Any] = MappingProxyType({})
) -> MCPClient:
    """A client for tests, in process, for Django's ``TestCase`` and pytest.

    Args:
        user: Who is calling.
        site: The endpoint.
        capabilities: What the client says that it supports, such as ``{"elicitation": {}}``.
    """
    return MCPClient(user=user, site=site, capabilities=dict(capabilities))
