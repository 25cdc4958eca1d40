"""A site: the tools, prompts and resources of one endpoint, and the URL patterns that serve them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal, TypeVar, cast, overload

from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp_types import Annotations, Icon

from .changes import announce
from .entries import Entry, read_icons
from .prompts import Prompt, make_prompt
from .resources import Resource, check_ttl, make_resource
from .tools import Tool, make_tool

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=Entry)


class SiteURLs:
    """What Django's URL resolver sees of a site: one view, with and without a trailing slash."""

    site: Site

    @cached_property
    def urlpatterns(self) -> list[URLPattern]:
        """The patterns, made when the URLconf is first read: the transport needs the models, which load later."""
        from .transport.http import patterns

        return patterns(self.site)


class Site(tuple[Sequence[URLPattern], str, str]):
    """One MCP endpoint: its tools, prompts and resources, and what ``path("mcp", site)`` takes.

    To ``path()`` a site is an include, so that the endpoint answers with and without a trailing slash and never with a
    redirect, which would lose the POST. ``reverse("mcp:endpoint")`` names it, with the site's name as its instance
    namespace.

    Attributes:
        name: Identifies the endpoint to clients, and is part of every scope: change it and no retry finds its record.
        title: What people see.
        instructions: What the model is told of the endpoint as a whole.
        icons: Pictures for people.
        page_size: How many entries of a list are answered at once.
        list_ttl: How long a client may use a list without asking again.
        idempotency_key_in_meta: Whether a key may also stand in ``params._meta``, as ``namespace.KEY``.
        idempotency_key_in_header: Whether a key may also stand in the HTTP header ``Idempotency-Key``.
        mark_replays: Whether a replay says in ``_meta`` and in a header of the response that it is one.
    """

    name: str
    title: str | None
    instructions: str | None
    icons: tuple[Icon, ...]
    page_size: int
    list_ttl: timedelta
    idempotency_key_in_meta: bool
    idempotency_key_in_header: bool
    mark_replays: bool
    _idempotency_key_argument: str | None
    _tools: dict[str, Tool]
    _prompts: dict[str, Prompt]
    _resources: dict[str, Resource]

    def __new__(
        cls,
        name: str,
        *,
        title: str | None = None,
        instructions: str | None = None,
        icons: Sequence[Icon] = (),
        page_size: int = 100,
        list_ttl: timedelta = timedelta(0),
        idempotency_key_in_meta: bool = False,
        idempotency_key_in_header: bool = False,
        idempotency_key_argument: str | None = None,
        mark_replays: bool = True,
    ) -> Site:
        if not isinstance(page_size, int) or page_size < 1:
            raise ImproperlyConfigured(f"Site {name!r}: page_size is {page_size!r}; it must be a number from 1.")
        check_ttl(list_ttl, label=f"Site {name!r}")
        urls = SiteURLs()
        # The resolver reads the patterns off an attribute of what it is given, as it does of a module.
        self = super().__new__(cls, (cast("Sequence[URLPattern]", urls), "mcp", name))
        urls.site = self
        self.name = name
        self.title = title
        self.instructions = instructions
        self.icons = read_icons(icons, label=f"Site {name!r}")
        self.page_size = page_size
        self.list_ttl = list_ttl
        self._tools = {}
        self._prompts = {}
        self._resources = {}
        self.idempotency_key_in_meta = idempotency_key_in_meta
        self.idempotency_key_in_header = idempotency_key_in_header
        self.idempotency_key_argument = idempotency_key_argument
        self.mark_replays = mark_replays
        _sites.setdefault(name, self)
        return self

    def __repr__(self) -> str:
        return f"Site({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def idempotency_key_argument(self) -> str | None:
        """The argument of every tool in which a key may also stand, if there is one. No tool is given it.

        Raises:
            ImproperlyConfigured: When it is set: it is no name, or a tool has a parameter of that name.
        """
        return self._idempotency_key_argument

    @idempotency_key_argument.setter
    def idempotency_key_argument(self, name: str | None) -> None:
        if name == "":
            raise ImproperlyConfigured(f"Site {self.name!r}: idempotency_key_argument is empty; it must be a name.")
        for tool in self.tools:
            self._check_parameters(tool, name)
        self._idempotency_key_argument = name

    @property
    def tools(self) -> Sequence[Tool]:
        """The registered tools, in the order of their registration."""
        return tuple(self._tools.values())

    def get_tool(self, name: str) -> Tool | None:
        """The tool called ``name``, if there is one."""
        return self._tools.get(name)

    @property
    def prompts(self) -> Sequence[Prompt]:
        """The registered prompts, in the order of their registration."""
        return tuple(self._prompts.values())

    def get_prompt(self, name: str) -> Prompt | None:
        """The prompt called ``name``, if there is one."""
        return self._prompts.get(name)

    @property
    def resources(self) -> Sequence[Resource]:
        """The registered resources with a URI of their own, in the order of their registration."""
        return tuple(resource for resource in self._resources.values() if resource.template is None)

    @property
    def templates(self) -> Sequence[Resource]:
        """The registered templates of resources, in the order of their registration."""
        return tuple(resource for resource in self._resources.values() if resource.template is not None)

    def matching(self, uri: str) -> Iterator[tuple[Resource, Mapping[str, Any]]]:
        """The resources that ``uri`` may name, the one registered with it before templates, with their arguments."""
        for resource in (*self.resources, *self.templates):
            arguments = resource.match(uri)
            if arguments is not None:
                yield resource, arguments

    def get_resource(self, uri: str) -> Resource | None:
        """The resource or the template that was registered with exactly this URI, if there is one."""
        return self._resources.get(uri)

    def notify_tools_changed(self, *, using: str | None = None) -> None:
        """Tell listening clients to list the tools again: a permission was granted, or a tool registered.

        Like its siblings it may be called from any code of the project, and takes effect once the transaction that it
        is called in has been committed. It waits for Redis for as long as the setting ``LOCK_TIMEOUT`` at most.

        Args:
            using: Alias of the database whose transaction it is; ``None`` for the default one.
        """
        announce(self.name, ToolsListChanged(), using=using)

    def notify_prompts_changed(self, *, using: str | None = None) -> None:
        """Tell listening clients to list the prompts again; see ``notify_tools_changed``."""
        announce(self.name, PromptsListChanged(), using=using)

    def notify_resources_changed(self, *, using: str | None = None) -> None:
        """Tell listening clients to list resources and templates again; see ``notify_tools_changed``."""
        announce(self.name, ResourcesListChanged(), using=using)

    def notify_resource_updated(self, uri: str, *, using: str | None = None) -> None:
        """Tell clients that subscribed to a resource, and may still see it, to read it again.

        Args:
            uri: Its URI, of which one from a template has its variables filled in.
            using: As for ``notify_tools_changed``.
        """
        announce(self.name, ResourceUpdated(uri), using=using)

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
        input_schema: Mapping[str, Any] | None = None,
        permission: str | Sequence[str] = (),
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        atomic: bool = False,
        read_only: bool = False,
        rerun_safe: bool = False,
        idempotent: bool | None = None,
        destructive: bool | None = None,
        open_world: bool | None = None,
        key: Literal["optional", "required"] = "optional",
        deduplicate_within: timedelta | None = None,
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
            input_schema: The JSON schema of its arguments, an object's, where type hints do not say it: it is listed
                as it is, and the function takes one mapping, which is the arguments as they were sent.
            permission: A Django permission, or several, that the caller must have. Without them the tool is hidden.
            icons: Pictures for people.
            meta: What clients find in its ``_meta``: a JSON object.
            atomic: All its writes go to the record's database: body and record are one transaction, and a call that
                was interrupted is run again, exactly once in effect.
            read_only: It changes nothing, and is run again after an interruption. Clients are told.
            rerun_safe: Running it twice does no harm, so that it is run again after an interruption.
            idempotent: A hint to clients and nothing else.
            destructive: A hint to clients.
            open_world: A hint to clients.
            key: ``"required"`` refuses a call without an idempotency key before anything is run.
            deduplicate_within: Take equal calls of one caller without a key for one call, from the first one's begin
                until so long after its completion. Two calls that were both meant become one.
            retention: How long its finished records are kept; the setting ``RETENTION`` if not given.
            max_runtime: After how long a keyed call that still runs loses its claim, and an atomic one its
                transaction; the setting ``MAX_RUNTIME`` if not given.
            probe: A function with the parameters of the tool, which is asked what came of a call that was
                interrupted. It returns what the tool would have returned or raises the tool's error, raises
                ``NothingDone`` if nothing was done and nothing can be any more, or raises ``OutcomeUnknown``.

        Raises:
            ImproperlyConfigured: The words contradict each other, the function's parameters do not make a schema or do
                not fit the one that was given, there is a tool of that name, or it has a parameter that the site takes
                keys from.
        """

        def register(function: F) -> F:
            made = make_tool(function, **words)
            self._check_parameters(made, self.idempotency_key_argument)
            self._register(self._tools, made, kind="tool named")
            return function

        return register if function is None else register(function)

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        permission: str | Sequence[str] = (),
        icons: Sequence[Icon] = (),
        meta: Mapping[str, Any] | None = None,
        completions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, /, **words: Any) -> Any:
        """Register a function as a prompt: ``@prompt`` or ``@prompt(...)``. The function itself is left as it is.

        It returns a string, a content block or a ``PromptMessage``, or a list of these; strings and blocks are said by
        the user. Its parameters are the arguments that people fill in, and are made of texts.

        Args:
            name: What it is called by; the function's name if not given.
            title: What people see.
            description: What it is for; the docstring if not given.
            permission: A Django permission, or several, that the caller must have. Without them the prompt is hidden.
            icons: Pictures for people.
            meta: What clients find in its ``_meta``: a JSON object.
            completions: For an argument, the function that completes it. It takes what was typed and returns strings;
                after that, parameters with a default take other arguments by their names.

        Raises:
            ImproperlyConfigured: A word is not what it has to be, a parameter cannot be made of a text, or there is a
                prompt of that name.
        """

        def register(function: F) -> F:
            self._register(self._prompts, make_prompt(function, **words), kind="prompt named")
            return function

        return register if function is None else register(function)

    def resource(
        self,
        uri: str,
        /,
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
    ) -> Callable[[F], F]:
        """Register a function as a resource: ``@resource("shop://terms")``. The function itself is left as it is.

        With variables, as in ``@resource("shop://orders/{number}")``, it is a template of resources, and the function
        takes the variables as its parameters. It returns text, bytes, any value that JSON has, or the SDK's contents.

        Args:
            uri: Its URI, or a URI template (RFC 6570).
            name: What programs call it; the function's name if not given.
            title: What people see.
            description: What it is; the docstring if not given.
            mime_type: The type of its contents; if not given, what was returned tells.
            size: The length of its contents in bytes. Not for templates.
            permission: A Django permission, or several, that the caller must have. Without them it is hidden.
            icons: Pictures for people.
            annotations: Hints for clients: for whom it is, how important, when it changed.
            meta: What clients find in its ``_meta``: a JSON object.
            ttl: How long a client may use what it read without asking again.
            completions: For a variable, the function that completes it; see ``prompt``.

        Raises:
            ImproperlyConfigured: The URI is none, a word is not what it has to be, the function does not take the
                variables, or there is a resource of that URI.
        """

        def register(function: F) -> F:
            made = make_resource(
                uri,
                function,
                name=name,
                title=title,
                description=description,
                mime_type=mime_type,
                size=size,
                permission=permission,
                icons=icons,
                annotations=annotations,
                meta=meta,
                ttl=ttl,
                completions=completions,
            )
            self._register(self._resources, made, kind="resource at")
            return function

        return register

    def _register(self, entries: dict[str, E], entry: E, *, kind: str) -> None:
        if entry.identity in entries:
            raise ImproperlyConfigured(f"Site {self.name!r} already has a {kind} {entry.identity!r}.")
        entries[entry.identity] = entry

    def _check_parameters(self, tool: Tool, key_argument: str | None) -> None:
        if key_argument is not None and tool.takes(key_argument):
            raise ImproperlyConfigured(
                f"Tool {tool.name!r} has a parameter {key_argument!r}, and the site {self.name!r} takes idempotency "
                "keys from the argument of that name, so the tool would never be given it. Rename one of them."
            )


_sites: dict[str, Site] = {}


def get_site(name: str) -> Site | None:
    """The site called ``name``, if there is one; of several the first, and Django's check urls.W005 tells of them."""
    return _sites.get(name)


site = Site("mcp")
"""The default site, which ``@tool`` registers with."""
