"""A prompt: a function that writes messages for a model, and the arguments that people fill in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import mcp_types
from django.core.exceptions import ImproperlyConfigured
from mcp_types import ContentBlock, GetPromptResult, Icon, InputRequiredResult, PromptMessage, TextContent
from pydantic import PydanticUserError

from .completions import Completable, make_completers
from .content import Source
from .context import RequestContext
from .entries import check_name, read_description, read_icons, read_meta, read_permissions
from .schemas import TextArguments

_CONTENT = get_args(ContentBlock)


@dataclass(frozen=True, kw_only=True)
class Prompt(Completable):
    """A registered prompt."""

    async def get(self, arguments: Mapping[str, str], context: RequestContext) -> GetPromptResult | InputRequiredResult:
        """Its messages.

        Raises:
            InvalidArguments: The arguments do not fit.
            MCPError: As the function does.
            NoContent: As the function does.
        """
        return await self.source.read(self.arguments.bind(arguments), context, self._result)

    def listed(self) -> mcp_types.Prompt:
        """What clients are told of it."""
        return mcp_types.Prompt(
            name=self.name,
            title=self.title,
            description=self.description or None,
            arguments=[*map(self._argument, self.arguments.names)],
            icons=[*self.icons] or None,
            meta=self.meta,
        )

    def _argument(self, name: str) -> mcp_types.PromptArgument:
        schema = self.arguments.schema
        part = schema["properties"][name]
        return mcp_types.PromptArgument(
            name=name,
            title=part.get("title"),
            description=part.get("description"),
            required=name in schema.get("required", ()),
        )

    def _result(self, value: Any) -> GetPromptResult | InputRequiredResult:
        if isinstance(value, GetPromptResult | InputRequiredResult):
            return value
        messages = [*map(_message, value if isinstance(value, list | tuple) else [value])]
        return GetPromptResult(description=self.description or None, messages=messages)


def make_prompt(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    permission: str | Sequence[str] = (),
    icons: Sequence[Icon] = (),
    meta: Mapping[str, Any] | None = None,
    completions: Mapping[str, Callable[..., Any]] | None = None,
) -> Prompt:
    """Make a prompt of a function; see ``Site.prompt`` for the arguments.

    Raises:
        ImproperlyConfigured: A word is not what it has to be, or the function's parameters cannot be made of texts.
    """
    if not callable(function):
        raise ImproperlyConfigured(
            f"{function!r} cannot be a prompt: write @prompt, or @prompt(name=...) above a function."
        )
    name = getattr(function, "__name__", "") if name is None else name
    check_name(name, kind="prompt")
    label = f"Prompt {name!r}"
    try:
        source = Source.of(function, label=label)
        arguments = TextArguments(source.parameters)
    except (TypeError, NameError, PydanticUserError) as error:
        raise ImproperlyConfigured(f"{label} cannot be registered: {error}") from error
    return Prompt(
        source=source,
        name=name,
        title=title,
        description=read_description(function, description),
        icons=read_icons(icons, label=label),
        meta=read_meta(meta, label=label),
        permissions=read_permissions(permission),
        arguments=arguments,
        completers=make_completers(completions or {}, arguments=arguments.names, label=label),
    )


def _message(value: Any) -> PromptMessage:
    if isinstance(value, PromptMessage):
        return value
    if isinstance(value, str):
        return PromptMessage(role="user", content=TextContent(text=value))
    if isinstance(value, _CONTENT):
        return PromptMessage(role="user", content=value)
    raise TypeError(f"A prompt returns strings, content blocks and messages, and not {type(value).__name__}.")
