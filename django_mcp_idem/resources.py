"""A resource: a function that reads what a URI names; and a template, whose URIs give the function its arguments."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import mcp_types
from django.core.exceptions import ImproperlyConfigured
from mcp.server.caching import CacheHint, apply_cache_hint
from mcp.shared.path_security import contains_path_traversal, is_absolute_path
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from mcp_types import (
    Annotations,
    BlobResourceContents,
    Icon,
    InputRequiredResult,
    ReadResourceResult,
    TextResourceContents,
)
from pydantic import PydanticUserError

from . import jsontext
from .completions import Completable, make_completers
from .content import Source
from .context import RequestContext
from .entries import read_description, read_icons, read_meta, read_permissions
from .results import as_json
from .schemas import InvalidArguments, TextArguments

Contents = TextResourceContents | BlobResourceContents

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*")


@dataclass(frozen=True, kw_only=True)
class Resource(Completable):
    """A registered resource, or a template of resources.

    Attributes:
        uri: Its URI, or the URI template as it was written.
        template: The parsed template, ``None`` for one resource.
        mime_type: The type of its contents.
        size: The length of its contents in bytes.
        annotations: Hints for clients; nothing here acts on them.
        ttl: How long a client may use what it read without asking again.
    """

    uri: str
    template: UriTemplate | None
    mime_type: str | None
    size: int | None
    annotations: Annotations | None
    ttl: timedelta

    @property
    def identity(self) -> str:
        """The URI: several resources may have one name."""
        return self.uri

    def match(self, uri: str) -> Mapping[str, Any] | None:
        """The keyword arguments for the function if ``uri`` is this resource's or one of this template's.

        A variable is percent-decoded and converted as its parameter's type says. What does not convert, and what would
        lead out of a directory if it were taken for a path, makes no match.
        """
        if self.template is None:
            return {} if uri == self.uri else None
        variables = self.template.match(uri)
        if variables is None or not all(map(_stays_below, variables.values())):
            return None
        try:
            return self.arguments.bind(variables)
        except InvalidArguments:
            return None

    async def read(
        self, uri: str, arguments: Mapping[str, Any], context: RequestContext
    ) -> ReadResourceResult | InputRequiredResult:
        """The contents that ``uri`` names.

        Args:
            uri: The URI that was asked for.
            arguments: What it gives the function, as ``match`` says.
            context: Who asks.

        Raises:
            MCPError: As the function does.
            NoContent: As the function does.
        """
        return await self.source.read(arguments, context, lambda value: self._result(uri, value))

    def listed(self) -> mcp_types.Resource:
        """What clients are told of one resource."""
        return mcp_types.Resource(
            uri=self.uri,
            name=self.name,
            title=self.title,
            description=self.description or None,
            mime_type=self.mime_type,
            size=self.size,
            icons=[*self.icons] or None,
            annotations=self.annotations,
            meta=self.meta,
        )

    def listed_template(self) -> mcp_types.ResourceTemplate:
        """What clients are told of a template."""
        return mcp_types.ResourceTemplate(
            uri_template=self.uri,
            name=self.name,
            title=self.title,
            description=self.description or None,
            mime_type=self.mime_type,
            icons=[*self.icons] or None,
            annotations=self.annotations,
            meta=self.meta,
        )

    def _result(self, uri: str, value: Any) -> ReadResourceResult | InputRequiredResult:
        if isinstance(value, InputRequiredResult):
            return value
        whole = isinstance(value, ReadResourceResult)
        result = value if whole else ReadResourceResult(contents=self._contents(uri, value))
        return apply_cache_hint(result, CacheHint(ttl_ms=milliseconds(self.ttl)))

    def _contents(self, uri: str, value: Any) -> list[Contents]:
        several = value if isinstance(value, list | tuple) else [value]
        if several and all(isinstance(one, Contents) for one in several):
            return [*several]
        if isinstance(value, str):
            return [TextResourceContents(uri=uri, mime_type=self.mime_type or "text/plain", text=value)]
        if isinstance(value, bytes | bytearray | memoryview):
            blob = base64.b64encode(value).decode()
            return [BlobResourceContents(uri=uri, mime_type=self.mime_type or "application/octet-stream", blob=blob)]
        text = jsontext.write(as_json(value)).decode()
        return [TextResourceContents(uri=uri, mime_type=self.mime_type or "application/json", text=text)]


def make_resource(
    uri: str,
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    permission: str | Sequence[str] = (),
    icons: Sequence[Icon] = (),
    annotations: Annotations | None = None,
    meta: Mapping[str, Any] | None = None,
    ttl: timedelta = timedelta(0),
    completions: Mapping[str, Callable[..., Any]] | None = None,
) -> Resource:
    """Make a resource, or a template of resources, of a function; see ``Site.resource`` for the arguments.

    Raises:
        ImproperlyConfigured: The URI is none, a word is not what it has to be, or the function does not take the
            variables of the template.
    """
    label = f"Resource {uri!r}"
    if not callable(function):
        raise ImproperlyConfigured(f"{function!r} cannot be a resource: write @resource({uri!r}) above a function.")
    template = _read_template(uri)
    if size is not None and (template is not None or isinstance(size, bool) or size < 0):
        raise ImproperlyConfigured(f"{label}: size is {size!r}; it is a number of bytes, and not for templates.")
    if annotations is not None and not isinstance(annotations, Annotations):
        raise ImproperlyConfigured(f"{label}: annotations must be mcp_types.Annotations.")
    check_ttl(ttl, label=label)
    try:
        source = Source.of(function, label=label)
        _check_variables(template, source)
        arguments = TextArguments(source.parameters, lists=_exploded(template))
    except (TypeError, NameError, PydanticUserError) as error:
        raise ImproperlyConfigured(f"{label} cannot be registered: {error}") from error
    return Resource(
        uri=uri,
        template=template,
        source=source,
        name=(getattr(function, "__name__", None) or uri) if name is None else name,
        title=title,
        description=read_description(function, description),
        icons=read_icons(icons, label=label),
        meta=read_meta(meta, label=label),
        permissions=read_permissions(permission),
        arguments=arguments,
        completers=make_completers(completions or {}, arguments=arguments.names, label=label),
        mime_type=mime_type,
        size=size,
        annotations=annotations,
        ttl=ttl,
    )


def check_ttl(ttl: timedelta, *, label: str) -> None:
    """
    Raises:
        ImproperlyConfigured: It is no span of time that can be told.
    """
    if not isinstance(ttl, timedelta) or ttl < timedelta(0):
        raise ImproperlyConfigured(f"{label}: the ttl is {ttl!r}; it must be a timedelta, and not below nothing.")


def milliseconds(ttl: timedelta) -> int:
    """A span of time as it is told to clients."""
    return ttl // timedelta(milliseconds=1)


def _read_template(uri: str) -> UriTemplate | None:
    if "{" not in uri:
        if not _URI.fullmatch(uri):
            raise ImproperlyConfigured(
                f"{uri!r} is not a URI: begin with a scheme, as in 'shop://terms', and percent-encode other characters."
            )
        return None
    try:
        template = UriTemplate.parse(uri)
    except InvalidUriTemplate as error:
        raise ImproperlyConfigured(f"{uri!r} is not a URI template: {error}") from error
    if not _SCHEME.match(uri):
        raise ImproperlyConfigured(f"{uri!r} is not a URI template: begin with a scheme, as in 'shop://orders/{{id}}'.")
    return template


def _check_variables(template: UriTemplate | None, source: Source) -> None:
    """
    Raises:
        TypeError: The function does not take the variables, or cannot do without one that a URI may leave out.
    """
    variables = [] if template is None else template.variable_names
    optional = frozenset() if template is None else template.query_variable_names
    if {*variables} != {*source.parameters}:
        wanted = f"the variables {', '.join(variables)}" if variables else "nothing, as its URI has no variables"
        raise TypeError(f"its function takes ({', '.join(source.parameters)}), and has to take {wanted}.")
    for name, parameter in source.parameters.items():
        if name in optional and parameter.default is parameter.empty:
            raise TypeError(f"Parameter {name!r} needs a default, since a URI may leave its query out.")


def _exploded(template: UriTemplate | None) -> Collection[str]:
    return [] if template is None else [variable.name for variable in template.variables if variable.explode]


def _stays_below(variable: str | list[str]) -> bool:
    """Whether a variable, taken for a path, stays below where it begins."""
    path = variable if isinstance(variable, str) else "/".join(variable)
    return "\0" not in path and not contains_path_traversal(path) and not is_absolute_path(path)
