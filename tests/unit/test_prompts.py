"""Registration of prompts, and what their functions return as messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404
from mcp.shared.exceptions import MCPError
from mcp_types import (
    AudioContent,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    PromptMessage,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, Field

import django_mcp_idem
from django_mcp_idem import RequestContext, Site, ToolContext
from django_mcp_idem.content import NoContent
from django_mcp_idem.prompts import Prompt
from django_mcp_idem.schemas import InvalidArguments

CONTEXT = RequestContext(user=AnonymousUser(), request=None)


class Tone(Enum):
    KIND = "kind"
    FIRM = "firm"


def greet(
    name: Annotated[str, Field(title="Name", description="Whom to greet.")],
    tone: Tone = Tone.KIND,
    times: int = 1,
) -> str:
    """Greet someone."""
    return f"{tone.value} {name}" * times


@pytest.fixture
def site() -> Site:
    return Site("test")


def registered(site: Site, function: Callable[..., Any], **words: Any) -> Prompt:
    site.prompt(name="prompt", **words)(function)
    prompt = site.get_prompt("prompt")
    assert prompt is not None
    return prompt


def got(prompt: Prompt, **arguments: str) -> Any:
    return async_to_sync(prompt.get)(arguments, CONTEXT)


def test_the_decorator_leaves_the_function_as_it_is(site: Site) -> None:
    assert site.prompt(greet) is greet
    assert site.prompt(name="with_words")(greet) is greet
    assert [prompt.name for prompt in site.prompts] == ["greet", "with_words"]


def test_the_package_registers_with_the_default_site() -> None:
    assert django_mcp_idem.prompt.__self__ is django_mcp_idem.site  # type: ignore[attr-defined]


def test_clients_are_told_what_the_function_says(site: Site) -> None:
    listed = registered(site, greet).listed()

    assert listed.model_dump(by_alias=True, exclude_none=True) == {
        "name": "prompt",
        "description": "Greet someone.",
        "arguments": [
            {"name": "name", "title": "Name", "description": "Whom to greet.", "required": True},
            {"name": "tone", "required": False},
            {"name": "times", "required": False},
        ],
    }


def test_arguments_are_made_of_texts_as_their_types_say(site: Site) -> None:
    given: list[Any] = []

    def take(number: int, day: date, tone: Tone, flag: bool, maybe: float | None = None) -> str:
        given.extend([number, day, tone, flag, maybe])
        return ""

    got(registered(site, take), number="12", day="2026-07-28", tone="firm", flag="true", maybe="0.5")

    assert given == [12, date(2026, 7, 28), Tone.FIRM, True, 0.5]


def test_what_is_not_sent_is_left_to_the_function(site: Site) -> None:
    assert got(registered(site, greet), name="Ann").messages[0].content.text == "kind Ann"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({}, "name: Field required", id="missing"),
        pytest.param({"name": "Ann", "nam": "x"}, "nam: ", id="unknown"),
        pytest.param({"name": "Ann", "times": "many"}, "times: ", id="does not convert"),
        pytest.param({"name": "Ann", "tone": "rude"}, "tone: ", id="not one of these"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(site: Site, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArguments, match=message):
        got(registered(site, greet), **arguments)


TEXT = TextContent(text="t")
BLOCKS = [
    TEXT,
    ImageContent(data="aQ==", mime_type="image/png"),
    AudioContent(data="aQ==", mime_type="audio/wav"),
    EmbeddedResource(resource=TextResourceContents(uri="shop://a", text="t")),
    ResourceLink(uri="shop://a", name="a"),
]
ANSWER = PromptMessage(role="assistant", content=TEXT)


@pytest.mark.parametrize(
    ("returned", "messages"),
    [
        pytest.param("t", [("user", TEXT)], id="a string"),
        pytest.param(ANSWER, [("assistant", TEXT)], id="a message"),
        *[pytest.param(block, [("user", block)], id=block.type) for block in BLOCKS],
        pytest.param(["t", ANSWER, BLOCKS[1]], [("user", TEXT), ("assistant", TEXT), ("user", BLOCKS[1])], id="a list"),
        pytest.param(("t",), [("user", TEXT)], id="a tuple"),
        pytest.param([], [], id="nothing to say"),
    ],
)
def test_what_is_returned_becomes_messages(site: Site, returned: Any, messages: list[tuple[str, Any]]) -> None:
    result = got(registered(site, lambda: returned, description="Says it."))

    assert [(message.role, message.content) for message in result.messages] == messages
    assert result.description == "Says it."


@pytest.mark.parametrize(
    "returned",
    [GetPromptResult(messages=[ANSWER], description="Mine."), InputRequiredResult(request_state="s")],
    ids=lambda returned: type(returned).__name__,
)
def test_a_whole_result_is_taken_as_it_is(site: Site, returned: Any) -> None:
    assert got(registered(site, lambda: returned)) is returned


@pytest.mark.parametrize("returned", [None, 1, {"role": "user"}, ["t", None]], ids=str)
def test_what_is_no_message_is_a_failure_that_tells_nothing(site: Site, returned: Any) -> None:
    with pytest.raises(MCPError, match=r"Prompt 'prompt' failed\. The error was logged") as failed:
        got(registered(site, lambda: returned))

    assert failed.value.code == -32603


def test_an_exception_tells_nothing_but_is_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> str:
        raise ValueError("password is hunter2")

    with pytest.raises(MCPError) as failed:
        got(registered(site, fail))

    assert "hunter2" not in failed.value.message
    assert "hunter2" in caplog.text


def test_a_json_rpc_error_of_the_function_is_the_answer(site: Site) -> None:
    error = MCPError(-31000, "The till is closed.")

    def fail() -> str:
        raise error

    with pytest.raises(MCPError) as failed:
        got(registered(site, fail))

    assert failed.value is error


def test_what_django_answers_with_404_is_nothing(site: Site) -> None:
    def fail() -> str:
        raise Http404("No order matches.")

    with pytest.raises(NoContent, match="No order matches"):
        got(registered(site, fail))


async def in_context_async(ctx: RequestContext) -> str:
    return str(ctx.user)


def in_context(*, context: RequestContext | None = None) -> str:
    assert context is CONTEXT
    return str(context.user)


@pytest.mark.parametrize("function", [in_context, in_context_async], ids=lambda function: function.__name__)
def test_the_context_is_injected_by_its_annotation_and_is_no_argument(site: Site, function: Any) -> None:
    prompt = registered(site, function)

    assert prompt.listed().arguments == []
    assert got(prompt).messages[0].content.text == "AnonymousUser"


class Order(BaseModel):
    number: int


def with_model(order: Order) -> None: ...


def with_list(orders: list[str]) -> None: ...


def with_context_of_tools(ctx: ToolContext) -> None: ...


def without_type_hint(number) -> None: ...  # type: ignore[no-untyped-def]


def with_any_number(*numbers: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        pytest.param(with_model, "'order' is given a text", id="a model"),
        pytest.param(with_list, "'orders' is given a text", id="a list"),
        pytest.param(with_context_of_tools, "annotate the parameter with RequestContext", id="the context of tools"),
        pytest.param(without_type_hint, "'number' needs a type hint", id="no type hint"),
        pytest.param(with_any_number, r"\*numbers", id="any number of arguments"),
        pytest.param(lambda: None, "cannot name a prompt", id="a lambda"),
        pytest.param("name", "write @prompt", id="no function"),
    ],
)
def test_a_function_that_cannot_be_a_prompt_is_refused(site: Site, function: Any, message: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        site.prompt(function)

    assert site.prompts == ()


def test_a_literal_is_an_argument_like_any_other(site: Site) -> None:
    def choose(size: Literal["s", "m"]) -> str:
        return size

    assert got(registered(site, choose), size="m").messages[0].content.text == "m"


def test_two_prompts_of_one_name_are_refused(site: Site) -> None:
    site.prompt(greet)

    with pytest.raises(ImproperlyConfigured, match="already has a prompt named 'greet'"):
        site.prompt(greet)


def test_a_word_that_does_not_exist_is_an_error(site: Site) -> None:
    with pytest.raises(TypeError, match="read_only"):
        site.prompt(read_only=True)(greet)  # type: ignore[call-overload]
