"""A site: the tools of one endpoint, and the URL patterns that serve them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal, TypeVar, cast, overload

from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern

from .tools import Tool, make_tool

F = TypeVar("F", bound=Callable[..., Any])


class SiteURLs:
    """What Django's URL resolver sees of a site: one view, with and without a trailing slash."""

    site: Site

    @cached_property
    def urlpatterns(self) -> list[URLPattern]:
        """The patterns, made when the URLconf is first read: the transport needs the models, which load later."""
        from .transport.http import patterns

        return patterns(self.site)


class Site(tuple[Sequence[URLPattern], str, str]):
    """One MCP endpoint: its tools, and what ``path("mcp", site)`` takes.

    To ``path()`` a site is an include, so that the endpoint answers with and without a trailing slash and never with a
    redirect, which would lose the POST. ``reverse("mcp:endpoint")`` names it, with the site's name as its instance
    namespace.

    Attributes:
        name: Identifies the endpoint to clients, and is part of every scope: change it and no retry finds its record.
        title: What people see.
        instructions: What the model is told of the endpoint as a whole.
    """

    name: str
    title: str | None
    instructions: str | None
    _tools: dict[str, Tool]

    def __new__(cls, name: str, *, title: str | None = None, instructions: str | None = None) -> Site:
        urls = SiteURLs()
        # The resolver reads the patterns off an attribute of what it is given, as it does of a module.
        self = super().__new__(cls, (cast("Sequence[URLPattern]", urls), "mcp", name))
        urls.site = self
        self.name = name
        self.title = title
        self.instructions = instructions
        self._tools = {}
        _sites.setdefault(name, self)
        return self

    def __repr__(self) -> str:
        return f"Site({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def tools(self) -> Sequence[Tool]:
        """The registered tools, in the order of their registration."""
        return tuple(self._tools.values())

    def get_tool(self, name: str) -> Tool | None:
        """The tool called ``name``, if there is one."""
        return self._tools.get(name)

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        permission: str | Sequence[str] = (),
        atomic: bool = False,
        read_only: bool = False,
        rerun_safe: bool = False,
        idempotent: bool | None = None,
        destructive: bool | None = None,
        open_world: bool | None = None,
        key: Literal["optional", "required"] = "optional",
        retention: timedelta | None = None,
        max_runtime: timedelta | None = None,
        probe: Callable[..., Any] | None = None,
    ) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, /, **words: Any) -> Any:
        """Register a function as a tool: ``@tool`` or ``@tool(...)``. The function itself is left as it is.

        Args:
            name: What it is called by; the function's name if not given.
            title: What people see.
            description: What the model reads; the docstring if not given.
            permission: A Django permission, or several, that the caller must have. Without them the tool is hidden.
            atomic: All its writes go to the record's database: body and record are one transaction, and a call that
                was interrupted is run again, exactly once in effect.
            read_only: It changes nothing, and is run again after an interruption. Clients are told.
            rerun_safe: Running it twice does no harm, so that it is run again after an interruption.
            idempotent: A hint to clients and nothing else.
            destructive: A hint to clients.
            open_world: A hint to clients.
            key: ``"required"`` refuses a call without an idempotency key before anything is run.
            retention: How long its finished records are kept; the setting ``RETENTION`` if not given.
            max_runtime: After how long a keyed call that still runs loses its claim, and an atomic one its
                transaction; the setting ``MAX_RUNTIME`` if not given.
            probe: A function with the parameters of the tool, which is asked what came of a call that was
                interrupted. It returns what the tool would have returned or raises the tool's error, raises
                ``NothingDone`` if nothing was done and nothing can be any more, or raises ``OutcomeUnknown``.

        Raises:
            ImproperlyConfigured: The words contradict each other, the function's parameters do not make a schema, or
                there is a tool of that name.
        """
        if function is not None:
            self._register(make_tool(function, **words))
            return function

        def register(function: F) -> F:
            self._register(make_tool(function, **words))
            return function

        return register

    def _register(self, tool: Tool) -> None:
        if tool.name in self._tools:
            raise ImproperlyConfigured(f"Site {self.name!r} already has a tool named {tool.name!r}.")
        self._tools[tool.name] = tool


_sites: dict[str, Site] = {}


def get_site(name: str) -> Site | None:
    """The site called ``name``, if there is one; of several the first, and Django's check urls.W005 tells of them."""
    return _sites.get(name)


site = Site("mcp")
"""The default site, which ``@tool`` registers with."""
