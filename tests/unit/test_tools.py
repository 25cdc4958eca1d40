"""Registration: what a tool's author says, and what becomes of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.exceptions import ImproperlyConfigured
from pydantic import Field

import django_mcp_idem
from django_mcp_idem import Site, ToolContext
from django_mcp_idem.entries import MAX_NAME_LENGTH
from django_mcp_idem.idempotency.policy import Effects, Policy
from django_mcp_idem.tools import Tool
from tests.factories import UserFactory


def work(number: int, text: str = "x") -> str:
    """Does some work.

    And says how.
    """
    return f"{number} {text}"


async def work_async(number: int) -> int:
    return number + 1


def work_in_context(ctx: ToolContext, number: int) -> Any:
    return ctx, number


def work_in_optional_context(number: int, *, context: ToolContext | None = None) -> Any:
    return context, number


async def work_async_in_context(number: int, ctx: ToolContext) -> Any:
    return ctx, number


@pytest.fixture
def site() -> Site:
    return Site("test")


@pytest.fixture
def context() -> ToolContext:
    return ToolContext(user=AnonymousUser(), request=None, attempt=1, seed="0" * 32)


def registered(site: Site, name: str) -> Tool:
    tool = site.get_tool(name)
    assert tool is not None
    return tool


def test_the_decorator_leaves_the_function_as_it_is(site: Site) -> None:
    assert site.tool(work) is work
    assert site.tool(name="with_words", atomic=True)(work) is work
    assert site.tool()(work_async) is work_async
    assert [tool.name for tool in site.tools] == ["work", "with_words", "work_async"]


def test_the_package_registers_with_the_default_site() -> None:
    assert django_mcp_idem.tool.__self__ is django_mcp_idem.site  # type: ignore[attr-defined]


def test_a_tool_says_of_itself_what_its_function_says(site: Site) -> None:
    site.tool(work)

    tool = registered(site, "work")

    assert tool.description == "Does some work.\n\nAnd says how."
    assert tool.title is None
    assert tool.arguments.schema["required"] == ["number"]
    assert tool.returns.schema == {"type": "string"}
    assert tool.permissions == ()
    assert tool.key_required is False
    assert tool.policy == Policy(effects=Effects.EXTERNAL, retention=None)


def test_words_say_it_otherwise(site: Site) -> None:
    site.tool(
        name="shop.work-2_b",
        title="Work",
        description="Other words.",
        permission=["app.view_effect", "app.add_effect"],
        key="required",
        retention=timedelta(hours=1),
    )(work)

    tool = registered(site, "shop.work-2_b")

    assert tool.title == "Work"
    assert tool.description == "Other words."
    assert tool.permissions == ("app.view_effect", "app.add_effect")
    assert tool.key_required is True
    assert tool.policy.retention == timedelta(hours=1)


def test_a_function_without_a_docstring_has_no_description(site: Site) -> None:
    site.tool(work_async)
    site.tool(name="silenced", description="")(work)

    assert registered(site, "work_async").description == ""
    assert registered(site, "silenced").description == ""


@pytest.mark.parametrize(
    ("words", "effects", "may_run_again"),
    [
        pytest.param({}, Effects.EXTERNAL, False, id="no word"),
        pytest.param({"atomic": True}, Effects.ATOMIC, True, id="atomic"),
        pytest.param({"read_only": True}, Effects.RERUN_SAFE, True, id="read_only"),
        pytest.param({"rerun_safe": True}, Effects.RERUN_SAFE, True, id="rerun_safe"),
        pytest.param({"idempotent": True}, Effects.EXTERNAL, False, id="idempotent is a hint and nothing else"),
        pytest.param({"destructive": False}, Effects.EXTERNAL, False, id="destructive is a hint and nothing else"),
        pytest.param({"open_world": False}, Effects.EXTERNAL, False, id="open_world is a hint and nothing else"),
        pytest.param({"atomic": True, "idempotent": True}, Effects.ATOMIC, True, id="atomic with a hint"),
        pytest.param({"read_only": True, "destructive": False}, Effects.RERUN_SAFE, True, id="read_only with a hint"),
        pytest.param({"atomic": False, "read_only": False, "rerun_safe": False}, Effects.EXTERNAL, False, id="all no"),
    ],
)
def test_r23_a_word_chooses_what_happens_after_a_crash(
    site: Site, words: dict[str, Any], effects: Effects, may_run_again: bool
) -> None:
    """R23."""
    site.tool(**words)(work)

    policy = registered(site, "work").policy

    assert policy.effects is effects
    assert policy.may_run_again is may_run_again
    assert policy.atomic is (effects is Effects.ATOMIC)


@pytest.mark.parametrize(
    ("words", "hints"),
    [
        pytest.param({}, {}, id="no word"),
        pytest.param({"read_only": True}, {"readOnlyHint": True}, id="read_only"),
        pytest.param({"atomic": True}, {}, id="atomic"),
        pytest.param({"rerun_safe": True}, {}, id="rerun_safe"),
        pytest.param({"idempotent": True}, {"idempotentHint": True}, id="idempotent"),
        pytest.param({"idempotent": False}, {"idempotentHint": False}, id="not idempotent"),
        pytest.param({"destructive": True}, {"destructiveHint": True}, id="destructive"),
        pytest.param({"destructive": False}, {"destructiveHint": False}, id="not destructive"),
        pytest.param({"open_world": False}, {"openWorldHint": False}, id="closed world"),
    ],
)
def test_hints_are_what_clients_are_told(site: Site, words: dict[str, Any], hints: dict[str, bool]) -> None:
    site.tool(**words)(work)

    annotations = registered(site, "work").annotations

    assert annotations.model_dump(by_alias=True, exclude_none=True) == hints


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param({"atomic": True, "read_only": True}, "atomic and read_only", id="atomic and read_only"),
        pytest.param({"atomic": True, "rerun_safe": True}, "atomic and rerun_safe", id="atomic and rerun_safe"),
        pytest.param(
            {"read_only": True, "rerun_safe": True}, "read_only and rerun_safe", id="read_only and rerun_safe"
        ),
        pytest.param({"atomic": True, "read_only": True, "rerun_safe": True}, "atomic and read_only", id="all three"),
        pytest.param({"read_only": True, "destructive": True}, "destructive", id="read_only and destructive"),
        pytest.param({"key": "maybe"}, "key is 'maybe'", id="an unknown word for the key"),
        pytest.param({"key": True}, "key is True", id="a boolean for the key"),
        pytest.param({"retention": timedelta(0)}, "retention", id="no retention"),
        pytest.param({"retention": timedelta(seconds=-1)}, "retention", id="negative retention"),
        pytest.param({"retention": 5}, "retention", id="retention in no unit"),
        pytest.param({"name": ""}, "cannot name", id="no name"),
        pytest.param({"name": "two words"}, "cannot name", id="a space in the name"),
        pytest.param({"name": "größe"}, "cannot name", id="a name that is not ASCII"),
        pytest.param({"name": "a/b"}, "cannot name", id="a slash in the name"),
        pytest.param({"name": "name\n"}, "cannot name", id="a line feed after the name"),
        pytest.param({"name": "n" * (MAX_NAME_LENGTH + 1)}, "cannot name", id="a name that is too long"),
    ],
)
def test_words_that_contradict_each_other_or_cannot_be_are_refused(
    site: Site, words: dict[str, Any], message: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        site.tool(**words)(work)

    assert site.tools == ()


def test_a_name_may_be_as_long_as_the_column_that_keeps_it(site: Site) -> None:
    site.tool(name="n" * MAX_NAME_LENGTH)(work)

    assert registered(site, "n" * 128).name == "n" * 128


def test_a_word_that_does_not_exist_is_an_error(site: Site) -> None:
    with pytest.raises(TypeError, match="idempotency"):
        site.tool(idempotency=True)(work)  # type: ignore[call-overload]


def without_type_hint(number) -> None: ...  # type: ignore[no-untyped-def]


def with_any_number(*numbers: int) -> None: ...


def with_any_names(**numbers: int) -> None: ...


def with_positional_only(number: int, /) -> None: ...


def with_positional_only_context(ctx: ToolContext, /, number: int) -> None: ...


def with_unknown_hint(number: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def with_hint_that_has_no_schema(act: Callable[[], None]) -> None: ...


def with_result_that_has_no_schema() -> Callable[[], None]: ...


def with_field_as_default(number: int = Field(3, ge=1)) -> None: ...


def with_two_contexts(one: ToolContext, other: ToolContext | None) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        pytest.param(without_type_hint, "'number' needs a type hint", id="no type hint"),
        pytest.param(with_any_number, r"\*numbers", id="any number of arguments"),
        pytest.param(with_any_names, r"\*\*numbers", id="arguments of any name"),
        pytest.param(with_positional_only, "cannot be given by name", id="positional only"),
        pytest.param(with_positional_only_context, "cannot be given by name", id="context positional only"),
        pytest.param(with_unknown_hint, "Nowhere", id="a type that does not exist"),
        pytest.param(with_hint_that_has_no_schema, "with_hint_that_has_no_schema", id="a type that JSON does not have"),
        pytest.param(with_result_that_has_no_schema, "with_result_that_has_no_schema", id="a result without a schema"),
        pytest.param(with_two_contexts, "one, other", id="two contexts"),
        pytest.param(with_field_as_default, "Annotated", id="a Field as default"),
        pytest.param("name", "write @tool", id="no function"),
        pytest.param(functools.partial(with_field_as_default), "cannot name a tool", id="a function without a name"),
        pytest.param(lambda: None, "<lambda>", id="a lambda"),
    ],
)
def test_a_function_whose_parameters_make_no_schema_is_refused(
    site: Site, function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        site.tool(function)


def test_two_tools_of_one_name_are_refused(site: Site) -> None:
    site.tool(work)

    with pytest.raises(ImproperlyConfigured, match="already has a tool named 'work'"):
        site.tool(name="work")(work_async)

    assert registered(site, "work").function.call is work


def test_two_sites_may_each_have_a_tool_of_one_name(site: Site) -> None:
    other = Site("other")

    site.tool(work)
    other.tool(name="work")(work_async)

    assert registered(site, "work").function.call is work
    assert registered(other, "work").function.call is work_async


def test_an_unknown_name_is_no_tool(site: Site) -> None:
    site.tool(work)

    assert site.get_tool("Work") is None
    assert site.get_tool("work ") is None


def test_a_sync_function_is_run_with_what_was_sent_and_its_own_defaults(site: Site, context: ToolContext) -> None:
    site.tool(work)
    tool = registered(site, "work")

    assert tool.function.is_async is False
    assert tool.function.run(tool.arguments.bind({"number": 1}), context) == "1 x"
    assert tool.function.run(tool.arguments.bind({"number": 1, "text": "y"}), context) == "1 y"


def test_an_async_function_is_run_in_a_thread_or_in_an_event_loop(site: Site, context: ToolContext) -> None:
    site.tool(work_async)
    tool = registered(site, "work_async")
    bound = tool.arguments.bind({"number": 1})

    assert tool.function.is_async is True
    assert tool.function.run(bound, context) == 2
    assert async_to_sync(tool.function.arun)(bound, context) == 2


@pytest.mark.parametrize(
    "function",
    [work_in_context, work_in_optional_context, work_async_in_context],
    ids=lambda function: function.__name__,
)
def test_the_context_is_injected_by_its_annotation_and_is_no_argument(
    site: Site, context: ToolContext, function: Callable[..., Any]
) -> None:
    site.tool(name="tool")(function)
    tool = registered(site, "tool")

    assert list(tool.arguments.schema["properties"]) == ["number"]
    assert tool.function.run(tool.arguments.bind({"number": 1}), context) == (context, 1)


def test_a_caller_cannot_send_the_context(site: Site) -> None:
    site.tool(work_in_context)
    tool = registered(site, "work_in_context")

    with pytest.raises(ValueError, match="ctx"):
        tool.arguments.bind({"number": 1, "ctx": {"user": "admin"}})


def test_a_parameter_called_ctx_is_an_argument_like_any_other(site: Site, context: ToolContext) -> None:
    def work_with_name(ctx: int) -> int:
        return ctx

    site.tool(work_with_name)
    tool = registered(site, "work_with_name")

    assert tool.function.run(tool.arguments.bind({"ctx": 1}), context) == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("permission", "permitted"),
    [
        pytest.param((), True, id="none asked for"),
        pytest.param("auth.view_user", True, id="one that the user has"),
        pytest.param(["auth.view_user"], True, id="a list of one"),
        pytest.param("auth.add_user", False, id="one that the user has not"),
        pytest.param(["auth.view_user", "auth.add_user"], False, id="one of two"),
    ],
)
def test_r19_a_tool_is_for_users_who_have_all_its_permissions(
    site: Site, user: User, permission: str | list[str], permitted: bool
) -> None:
    """R19."""
    user.user_permissions.set([Permission.objects.get(codename="view_user")])
    site.tool(permission=permission)(work)

    assert registered(site, "work").permits(user) is permitted


@pytest.mark.django_db
def test_r19_a_user_who_is_inactive_or_anonymous_has_no_permission(site: Site) -> None:
    """R19."""
    site.tool(permission="auth.view_user")(work)
    tool = registered(site, "work")

    assert tool.permits(UserFactory(is_superuser=True)) is True
    assert tool.permits(UserFactory(is_superuser=True, is_active=False)) is False
    assert tool.permits(AnonymousUser()) is False


def work_with_mapping(ctx: ToolContext, arguments: dict[str, Any]) -> Any:
    return ctx, arguments


def test_a_schema_that_was_written_by_hand_is_what_a_tool_takes(site: Site, context: ToolContext) -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"x-mcp-header": "A"}}}
    site.tool(input_schema=schema)(work_with_mapping)
    tool = registered(site, "work_with_mapping")

    assert tool.arguments.schema == schema
    assert tool.takes("a")
    assert not tool.takes("arguments")
    assert tool.function.run(tool.arguments.bind({"a": 1}), context) == (context, {"a": 1})


def test_a_schema_that_is_changed_after_its_registration_is_the_same(site: Site) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    site.tool(input_schema=schema)(work_with_mapping)
    schema["properties"]["a"] = False

    assert registered(site, "work_with_mapping").arguments.schema == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("function", "schema", "message"),
    [
        pytest.param(work_with_mapping, {"type": "array"}, "'work_with_mapping' cannot be .* objects", id="of a list"),
        pytest.param(work_with_mapping, {"type": "object", "const": {1}}, "does not fit JSON", id="not JSON"),
        pytest.param(work_with_mapping, "object", "must be a dict", id="a text"),
        pytest.param(work, {"type": "object"}, "takes one parameter", id="for a function of two parameters"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(
    site: Site, function: Callable[..., Any], schema: Any, message: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        site.tool(input_schema=schema)(function)

    assert site.tools == ()


def test_a_probe_takes_the_mapping_too(site: Site) -> None:
    def probe(arguments: dict[str, Any]) -> str:
        return ""

    def probe_by_name(a: int) -> str:
        return ""

    site.tool(input_schema={"type": "object"}, probe=probe)(work_with_mapping)
    with pytest.raises(ImproperlyConfigured, match="probe takes"):
        site.tool(name="other", input_schema={"type": "object"}, probe=probe_by_name)(work_with_mapping)
