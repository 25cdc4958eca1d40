"""What the signature of an author's function says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from django_mcp_idem import RequestContext, ToolContext
from django_mcp_idem.signatures import check_kinds, context_parameter


def plain(number: int) -> None: ...


def in_context(number: int, ctx: RequestContext) -> None: ...


def in_optional_context(*, context: RequestContext | None = None) -> None: ...


def in_context_of_tools(ctx: ToolContext) -> None: ...


def in_two_contexts(one: RequestContext, other: RequestContext | None) -> None: ...


def positional_only(number: int, /) -> None: ...


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function, eval_str=True)


@pytest.mark.parametrize(
    ("function", "name"),
    [(plain, None), (in_context, "ctx"), (in_optional_context, "context"), (in_context_of_tools, None)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_context_is_found_by_its_annotation(function: Callable[..., Any], name: str | None) -> None:
    assert context_parameter(signature_of(function), RequestContext) == name


def test_two_contexts_are_refused() -> None:
    with pytest.raises(TypeError, match="one, other all take the RequestContext"):
        context_parameter(signature_of(in_two_contexts), RequestContext)


def test_a_parameter_that_cannot_be_given_by_name_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be given by name"):
        check_kinds(signature_of(positional_only))
