"""A tool: a function, its schemas, who may call it, and what running it twice would do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from mcp_types import Icon, ToolAnnotations
from pydantic import PydanticUserError

from .context import ToolContext
from .entries import Entry, check_name, read_description, read_icons, read_meta, read_object, read_permissions
from .idempotency.policy import Effects, Policy
from .results import Returns
from .schemas import JSON, Arguments, WrittenArguments
from .signatures import check_kinds, context_parameter


class ToolError(Exception):
    """Raised by a tool to tell the model what went wrong: its text becomes an ``isError`` result."""


@dataclass(frozen=True, kw_only=True)
class Function:
    """What an author wrote: a function, sync or async, that takes arguments by name.

    Attributes:
        call: The function.
        context_parameter: Name of the parameter that takes the ``ToolContext``, if there is one.
    """

    call: Callable[..., Any]
    context_parameter: str | None

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function."""
        return iscoroutinefunction(self.call)

    def run(self, bound: Mapping[str, Any], context: ToolContext) -> Any:
        """Run it in this thread, whether it is sync or async."""
        function = async_to_sync(self.call) if self.is_async else self.call
        return function(**self._keywords(bound, context))

    async def arun(self, bound: Mapping[str, Any], context: ToolContext) -> Any:
        """Run an async one in this event loop."""
        return await self.call(**self._keywords(bound, context))

    def _keywords(self, bound: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        injected = {} if self.context_parameter is None else {self.context_parameter: context}
        return {**bound, **injected}


@dataclass(frozen=True, kw_only=True)
class Tool(Entry):
    """A registered tool.

    Attributes:
        function: What it runs.
        annotations: Hints for clients; nothing here acts on them.
        policy: What running it twice would do, and how long its records are kept.
        key_required: Whether a call without a key is refused.
        deduplicate_within: Within what time equal calls of one caller without a key are one; ``None`` if each runs.
        arguments: What it takes.
        returns: What it gives back.
        probe: What tells whether an interrupted call has had its effect, if anything can.
    """

    function: Function
    annotations: ToolAnnotations
    policy: Policy
    key_required: bool
    deduplicate_within: timedelta | None
    arguments: Arguments | WrittenArguments
    returns: Returns
    probe: Function | None

    def takes(self, name: str) -> bool:
        """Whether a caller may send an argument of that name."""
        return name in self.arguments.schema.get("properties", {})


def make_tool(
    function: Callable[..., Any],
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
) -> Tool:
    """Make a tool of a function; see ``Site.tool`` for the arguments.

    Raises:
        ImproperlyConfigured: The words contradict each other or are not what they have to be, or the function's
            parameters do not make a schema, or do not fit the one that was given.
    """
    if not callable(function):
        raise ImproperlyConfigured(f"{function!r} cannot be a tool: write @tool, or @tool(name=...) above a function.")
    name = getattr(function, "__name__", "") if name is None else name
    check_name(name, kind="tool")
    words = [
        word for word, said in {"atomic": atomic, "read_only": read_only, "rerun_safe": rerun_safe}.items() if said
    ]
    if len(words) > 1:
        raise ImproperlyConfigured(f"Tool {name!r} says {' and '.join(words)}: say one, the strongest that is true.")
    if read_only and destructive:
        raise ImproperlyConfigured(f"Tool {name!r} says read_only and destructive: it cannot be both.")
    if key not in ("optional", "required"):
        raise ImproperlyConfigured(f"Tool {name!r}: key is {key!r}; it must be 'optional' or 'required'.")
    if key == "required" and deduplicate_within is not None:
        raise ImproperlyConfigured(
            f"Tool {name!r} says key='required' and deduplicate_within, which is for calls without one."
        )
    if words and probe is not None:
        raise ImproperlyConfigured(f"Tool {name!r} says {words[0]} and has a probe: it is run again without asking.")
    spans = {"deduplicate_within": deduplicate_within, "retention": retention, "max_runtime": max_runtime}
    for word, value in spans.items():
        if value is not None and not (isinstance(value, timedelta) and value > timedelta(0)):
            raise ImproperlyConfigured(f"Tool {name!r}: {word} is {value!r}; it must be a timedelta above nothing.")
    schema = None if input_schema is None else read_object(input_schema, label=f"Tool {name!r}: input_schema")

    try:
        signature = inspect.signature(function, eval_str=True)
        check_kinds(signature)
        context = context_parameter(signature, ToolContext)
        parameters = {parameter: details for parameter, details in signature.parameters.items() if parameter != context}
        arguments = _arguments(parameters, schema)
        returns = Returns(_return_annotation(signature))
        probing = None if probe is None else _probe(probe, parameters)
    except (TypeError, NameError, PydanticUserError) as error:
        raise ImproperlyConfigured(f"Tool {name!r} cannot be registered: {error}") from error

    return Tool(
        function=Function(call=function, context_parameter=context),
        name=name,
        title=title,
        description=read_description(function, description),
        icons=read_icons(icons, label=f"Tool {name!r}"),
        meta=read_meta(meta, label=f"Tool {name!r}"),
        annotations=ToolAnnotations(
            read_only_hint=read_only or None,
            destructive_hint=destructive,
            idempotent_hint=idempotent,
            open_world_hint=open_world,
        ),
        permissions=read_permissions(permission),
        policy=Policy(
            effects=_effects(atomic=atomic, safe=read_only or rerun_safe),
            retention=retention,
            max_runtime=max_runtime,
            probed=probe is not None,
        ),
        key_required=key == "required",
        deduplicate_within=deduplicate_within,
        arguments=arguments,
        returns=returns,
        probe=probing,
    )


def _arguments(parameters: Mapping[str, inspect.Parameter], schema: JSON | None) -> Arguments | WrittenArguments:
    return Arguments(parameters) if schema is None else WrittenArguments(schema, parameters)


def _probe(function: Callable[..., Any], parameters: Collection[str]) -> Function:
    """
    Raises:
        TypeError: The probe does not take what the tool takes.
    """
    signature = inspect.signature(function, eval_str=True)
    context = context_parameter(signature, ToolContext)
    if {*signature.parameters} - {context} != {*parameters}:
        raise TypeError(f"its probe takes {signature}, and not the parameters of the tool.")
    return Function(call=function, context_parameter=context)


def _effects(*, atomic: bool, safe: bool) -> Effects:
    if atomic:
        return Effects.ATOMIC
    return Effects.RERUN_SAFE if safe else Effects.EXTERNAL


def _return_annotation(signature: inspect.Signature) -> Any:
    annotation = signature.return_annotation
    return None if annotation is inspect.Signature.empty else annotation
