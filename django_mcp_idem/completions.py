"""What the argument of a prompt or a template of resources may be completed to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from mcp_types import Completion

from .content import NoContent, Source
from .context import RequestContext
from .entries import Entry
from .schemas import InvalidArguments, TextArguments

MAX_VALUES = 100
"""How many values an answer may have, by the specification."""


@dataclass(frozen=True, kw_only=True)
class Completer:
    """A function that completes one argument.

    Attributes:
        source: The function.
        typed: Name of its parameter that takes what was typed.
        others: Names of the other arguments that it asks for.
    """

    source: Source
    typed: str
    others: Collection[str]

    async def complete(self, text: str, arguments: Mapping[str, str], context: RequestContext) -> Completion:
        """What ``text`` may become.

        Args:
            text: What was typed so far.
            arguments: The other arguments, as far as they are known.
            context: Who asks.

        Raises:
            MCPError: As the function does.
            NoContent: There is nothing to complete it to.
        """
        known = {name: value for name, value in arguments.items() if name in self.others}
        return await self.source.read({self.typed: text, **known}, context, _completion)


@dataclass(frozen=True, kw_only=True)
class Completable(Entry):
    """An entry whose arguments are texts, which can be completed.

    Attributes:
        source: The function that is given the arguments.
        arguments: What it takes.
        completers: What completes an argument, by its name.
    """

    source: Source
    arguments: TextArguments
    completers: Mapping[str, Completer]

    async def complete(self, name: str, text: str, *, others: Mapping[str, str], context: RequestContext) -> Completion:
        """What an argument may become.

        Args:
            name: The argument.
            text: What was typed so far.
            others: The other arguments, as far as they are known.
            context: Who asks.

        Returns:
            At most 100 values; none where nothing completes the argument.

        Raises:
            InvalidArguments: There is no such argument.
            MCPError: As the completer's function does.
        """
        if name not in self.arguments.names:
            raise InvalidArguments(f"There is no argument {name!r}.")
        if name not in self.completers:
            return _completion([])
        try:
            return await self.completers[name].complete(text, others, context)
        except NoContent:
            return _completion([])


def make_completers(
    functions: Mapping[str, Callable[..., Any]], *, arguments: Collection[str], label: str
) -> Mapping[str, Completer]:
    """Make the completers of a prompt or a template.

    Args:
        functions: A function for each argument that can be completed.
        arguments: The names of all arguments.
        label: What has these arguments, for errors.

    Raises:
        ImproperlyConfigured: There is no such argument, or a function does not take what was typed first, and after it
            other arguments, each with a default.
    """
    if unknown := sorted({*functions} - {*arguments}):
        raise ImproperlyConfigured(f"{label} has no argument {unknown[0]!r} to complete.")
    return {
        name: _make_completer(function, others={*arguments} - {name}, label=f"{label}: the completion of {name!r}")
        for name, function in functions.items()
    }


def _make_completer(function: Callable[..., Any], *, others: Collection[str], label: str) -> Completer:
    try:
        source = Source.of(function, label=label)
    except (TypeError, NameError) as error:
        raise ImproperlyConfigured(f"{label} cannot be registered: {error}") from error
    if not source.parameters:
        raise ImproperlyConfigured(f"{label} takes no parameter. Its first one is what was typed.")
    typed, *rest = source.parameters
    for name in rest:
        if name not in others:
            raise ImproperlyConfigured(f"{label} takes {name!r}, which is no other argument.")
        if source.parameters[name].default is source.parameters[name].empty:
            raise ImproperlyConfigured(f"{label} takes {name!r}, which may not be known yet: give it a default.")
    return Completer(source=source, typed=typed, others=frozenset(rest))


def _completion(values: Any) -> Completion:
    # Of a query set no more rows are read than tell whether there are more.
    found = list(values[: MAX_VALUES + 1] if isinstance(values, QuerySet) else values)
    if isinstance(values, str) or not all(isinstance(value, str) for value in found):
        raise TypeError("A completion has to be a list of strings.")
    more = len(found) > MAX_VALUES
    total = None if more and isinstance(values, QuerySet) else len(found)
    return Completion(values=found[:MAX_VALUES], total=total, has_more=more)
