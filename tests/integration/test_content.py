"""Prompts, resources, completions and lists as a client sees them, in every version of the protocol."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path
from mcp.shared.exceptions import MCPError
from mcp_types import (
    Annotations,
    EmbeddedResource,
    Icon,
    ImageContent,
    InputRequiredResult,
    PromptReference,
    ResourceTemplateReference,
    TextResourceContents,
)
from pytest_django import Settings as DjangoSettings

from django_mcp_idem import RequestContext, Site
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests import wire
from tests.app.models import Effect
from tests.factories import TokenFactory, UserFactory

pytestmark = pytest.mark.django_db

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
ICON = Icon(src="https://shop.example/icon.png", mime_type="image/png")

site = Site("content", icons=[ICON], list_ttl=timedelta(minutes=5))
bare = Site("bare")

urlpatterns = [path("mcp", site)]


@site.tool(title="Add", icons=[ICON], meta={"example.com/rank": 1})
def add(one: int, other: int) -> int:
    return one + other


CONTACT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"place": {"$anchor": "place", "type": "string"}},
    "properties": {"phone": {"type": "string"}, "email": {"type": "string"}, "at": {"$ref": "#place"}},
    "anyOf": [{"required": ["phone"]}, {"required": ["email"]}],
    "additionalProperties": False,
}


@site.tool(input_schema=CONTACT)
def reach(contact: dict[str, Any]) -> dict[str, Any]:
    return contact


@site.prompt(name="test_simple_prompt")
def simple() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


def complete_first(typed: str) -> list[str]:
    return [word for word in ("test", "tests", "other") if word.startswith(typed)]


def complete_second(typed: str, arg1: str = "") -> list[str]:
    return [arg1 + typed]


@site.prompt(
    name="test_prompt_with_arguments",
    title="Arguments",
    completions={"arg1": complete_first, "arg2": complete_second},
    icons=[ICON],
)
def with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@site.prompt(name="test_prompt_with_embedded_resource")
def with_embedded_resource(resourceUri: str) -> list[EmbeddedResource | str]:  # noqa: N803
    """A prompt with a resource in it."""
    resource = TextResourceContents(
        uri=resourceUri, mime_type="text/plain", text="Embedded resource content for testing."
    )
    return [EmbeddedResource(resource=resource), "Please process the embedded resource above."]


@site.prompt(name="test_prompt_with_image")
async def with_image() -> list[ImageContent | str]:
    """A prompt with an image in it."""
    return [ImageContent(data=PNG, mime_type="image/png"), "Please analyze the image above."]


@site.prompt(name="test_input_required_result_prompt")
def asking(ctx: RequestContext) -> str | InputRequiredResult:
    """A prompt that asks before it speaks."""
    if ctx.input_responses is None:
        question = {
            "method": "elicitation/create",
            "params": {
                "message": "What context should the prompt use?",
                "requestedSchema": {"type": "object", "properties": {"context": {"type": "string"}}},
            },
        }
        return InputRequiredResult.model_validate({"inputRequests": {"user_context": question}})
    return f"Use this context: {ctx.input_responses['user_context']['content']['context']}"


@site.prompt(permission="app.view_effect", completions={"number": lambda typed: [typed]})
def guarded_prompt(number: int) -> str:
    return f"Effect {number}"


@site.prompt
def in_context(ctx: RequestContext) -> str:
    return f"{ctx.user} at {ctx.request.path if ctx.request else None}"


@site.prompt
def absent_prompt() -> str:
    raise Http404("password is hunter2")


@site.prompt
def failing_prompt() -> str:
    raise RuntimeError("password is hunter2")


@site.resource("test://static-text", mime_type="text/plain", size=48, annotations=Annotations(priority=1))
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@site.resource("test://static-binary", mime_type="image/png", title="Binary", icons=[ICON], ttl=timedelta(hours=1))
def static_binary() -> bytes:
    """An image."""
    return base64.b64decode(PNG)


@site.resource("test://template/{id}/data", completions={"id": complete_first}, meta={"example.com/rank": 2})
def template(id: str) -> dict[str, Any]:  # noqa: A002
    """Data for an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@site.resource("test://effects/{number}")
def effect(number: int) -> str:
    """What was done."""
    return get_object_or_404(Effect, pk=number).label


@site.resource("test://guarded", permission="app.view_effect")
def guarded_resource() -> str:
    return "guarded"


@site.resource("test://shadowed/{value}", permission="app.view_effect")
def guarded_template(value: str) -> str:
    return f"guarded {value}"


@site.resource("test://shadowed/{value}{?more}")
def open_template(value: str, more: str = "") -> str:
    return f"open {value}"


@bare.tool
def alone() -> None: ...


Ask = Callable[[str, str, dict[str, Any]], dict[str, Any]]


@pytest.fixture
def ask(settings: DjangoSettings, client: Client) -> Ask:
    """Sends a request over HTTP in one version and returns the answer."""
    settings.ROOT_URLCONF = __name__
    TokenFactory(text="t")

    def post(version: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        name = params.get("name", params.get("uri"))
        body = wire.message(method, {**params, **wire.envelope(version)})
        response = client.post("/mcp", body, "application/json", headers=wire.headers("t", method, name, version))
        answer: dict[str, Any] = response.json()
        return answer

    return post


def result_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The result but for what the SDK says of the server in it."""
    result: dict[str, Any] = answer["result"]
    return {name: value for name, value in result.items() if name not in ("_meta", "resultType")}


PROMPTS: list[tuple[str, dict[str, str], list[dict[str, Any]]]] = [
    ("test_simple_prompt", {}, [{"type": "text", "text": "This is a simple prompt for testing."}]),
    (
        "test_prompt_with_arguments",
        {"arg1": "hello", "arg2": "world"},
        [{"type": "text", "text": "Prompt with arguments: arg1='hello', arg2='world'"}],
    ),
    (
        "test_prompt_with_embedded_resource",
        {"resourceUri": "test://example-resource"},
        [
            {
                "type": "resource",
                "resource": {
                    "uri": "test://example-resource",
                    "mimeType": "text/plain",
                    "text": "Embedded resource content for testing.",
                },
            },
            {"type": "text", "text": "Please process the embedded resource above."},
        ],
    ),
    (
        "test_prompt_with_image",
        {},
        [
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "text", "text": "Please analyze the image above."},
        ],
    ),
]


@pytest.mark.parametrize(("name", "arguments", "contents"), PROMPTS, ids=[prompt[0] for prompt in PROMPTS])
@pytest.mark.parametrize("version", wire.VERSIONS)
def test_a_prompt_is_got(
    ask: Ask, version: str, name: str, arguments: dict[str, str], contents: list[dict[str, Any]]
) -> None:
    result = result_of(ask(version, "prompts/get", {"name": name, "arguments": arguments}))

    assert result["messages"] == [{"role": "user", "content": content} for content in contents]


@pytest.mark.parametrize("version", wire.VERSIONS)
@pytest.mark.parametrize(
    ("uri", "contents"),
    [
        ("test://static-text", {"mimeType": "text/plain", "text": "This is the content of the static text resource."}),
        ("test://static-binary", {"mimeType": "image/png", "blob": PNG}),
        (
            "test://template/123/data",
            {"mimeType": "application/json", "text": '{"id":"123","templateTest":true,"data":"Data for ID: 123"}'},
        ),
    ],
)
def test_a_resource_is_read(ask: Ask, version: str, uri: str, contents: dict[str, str]) -> None:
    result = result_of(ask(version, "resources/read", {"uri": uri}))

    assert result["contents"] == [{"uri": uri, **contents}]


@pytest.mark.parametrize("version", wire.VERSIONS)
def test_hints_for_caches_are_for_the_version_that_knows_them(ask: Ask, version: str) -> None:
    answer = ask(version, "resources/list", {})["result"]

    assert answer["resources"][1]["title"] == "Binary"
    assert ("ttlMs" in answer, "cacheScope" in answer) == ((True, True) if version == wire.MODERN else (False, False))


@pytest.mark.parametrize("version", wire.VERSIONS)
def test_a_schema_that_was_written_by_hand_is_listed_as_it_is_and_holds(ask: Ask, version: str) -> None:
    listed = ask(version, "tools/list", {})["result"]["tools"]
    fits = ask(version, "tools/call", {"name": "reach", "arguments": {"phone": "1", "at": "home"}})["result"]
    fits_not = ask(version, "tools/call", {"name": "reach", "arguments": {"at": "home"}})["result"]

    assert [tool["inputSchema"] for tool in listed if tool["name"] == "reach"] == [CONTACT]
    assert fits["structuredContent"] == {"phone": "1", "at": "home"}
    assert fits_not["isError"] is True


def test_everything_that_was_said_is_listed(user: User) -> None:
    client = mcp_client(user, site=site)

    tool = client.list_tools()[0]
    assert (tool.name, tool.title, tool.icons, tool.meta) == ("add", "Add", [ICON], {"example.com/rank": 1})
    prompt = client.list_prompts()[1]
    assert (prompt.title, prompt.icons, prompt.description) == ("Arguments", [ICON], "A prompt with arguments.")
    assert [(argument.name, argument.required) for argument in prompt.arguments or []] == [
        ("arg1", True),
        ("arg2", True),
    ]
    text, binary = client.list_resources()
    assert (text.name, text.size, text.mime_type) == ("static_text", 48, "text/plain")
    assert text.annotations == Annotations(priority=1)
    assert (binary.title, binary.icons) == ("Binary", [ICON])
    listed = client.list_resource_templates()[0]
    assert (listed.uri_template, listed.name, listed.meta) == (
        "test://template/{id}/data",
        "template",
        {"example.com/rank": 2},
    )


def test_the_sites_icons_are_told(user: User) -> None:
    meta = mcp_client(user, site=site).request("server/discover", {})["_meta"]

    assert meta["io.modelcontextprotocol/serverInfo"]["icons"] == [{"src": ICON.src, "mimeType": "image/png"}]


def test_only_what_a_site_has_is_a_capability(user: User) -> None:
    has = mcp_client(user, site=site).request("server/discover", {})["capabilities"]
    has_not = mcp_client(user, site=bare).request("server/discover", {})["capabilities"]

    assert has["prompts"] == {"listChanged": False}
    assert has["resources"] == {"subscribe": False, "listChanged": False}
    assert has["completions"] == {}
    assert {"prompts", "resources", "completions"}.isdisjoint(has_not)


@pytest.mark.parametrize(
    "method", ["prompts/list", "prompts/get", "resources/list", "resources/templates/list", "resources/read"]
)
def test_a_site_without_it_does_not_know_its_methods(user: User, method: str) -> None:
    with pytest.raises(MCPError) as refused:
        mcp_client(user, site=bare).request(method, {"name": "x", "uri": "test://x"})

    assert refused.value.code == -32601


@pytest.mark.parametrize("version", wire.VERSIONS)
def test_a_resource_that_is_not_there_is_an_error_that_names_it(ask: Ask, version: str) -> None:
    """One that nobody registered, one that the function does not find, one that does not convert or would escape."""
    uris = ["test://missing", "test://effects/12", "test://effects/twelve", "test://template/../data"]

    errors = [ask(version, "resources/read", {"uri": uri})["error"] for uri in uris]

    code = -32602 if version == wire.MODERN else -32002
    assert errors == [{"code": code, "message": "Resource not found", "data": {"uri": uri}} for uri in uris]


@pytest.mark.parametrize("version", wire.VERSIONS)
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"name": "missing"}, "Unknown prompt: missing"),
        ({"name": "absent_prompt"}, "The prompt has nothing to say of these arguments."),
        ({"name": "test_prompt_with_arguments"}, "arg1: Field required"),
        ({"name": "test_simple_prompt", "arguments": {"arg1": "x"}}, "arg1: "),
        ({"name": "test_prompt_with_arguments", "arguments": {"arg1": 1, "arg2": "x"}}, ""),
    ],
    ids=["unknown", "not found", "missing argument", "unknown argument", "not a text"],
)
def test_a_prompt_that_cannot_be_got_is_invalid_params(
    ask: Ask, version: str, params: dict[str, Any], message: str
) -> None:
    error = ask(version, "prompts/get", params)["error"]

    assert error["code"] == -32602
    assert message in error["message"]


def test_a_failure_tells_nothing_of_itself(ask: Ask) -> None:
    error = ask(wire.MODERN, "prompts/get", {"name": "failing_prompt"})["error"]

    assert error == {
        "code": -32603,
        "message": "Prompt 'failing_prompt' failed. The error was logged on the server.",
    }


def test_a_prompt_may_ask_before_it_speaks(user: User) -> None:
    client = mcp_client(user, site=site, capabilities={"elicitation": {}})

    first = client.request("prompts/get", {"name": "test_input_required_result_prompt"})
    assert first["resultType"] == "input_required"
    assert first["inputRequests"]["user_context"]["method"] == "elicitation/create"

    answers = {"user_context": {"action": "accept", "content": {"context": "the sea"}}}
    second = client.request("prompts/get", {"name": "test_input_required_result_prompt", "inputResponses": answers})
    assert second["messages"][0]["content"]["text"] == "Use this context: the sea"


def test_an_argument_is_completed(user: User) -> None:
    client = mcp_client(user, site=site)
    prompt = PromptReference(name="test_prompt_with_arguments")

    assert client.complete(prompt, "arg1", "te").values == ["test", "tests"]
    assert client.complete(prompt, "arg2", "x", arguments={"arg1": "known "}).values == ["known x"]
    template = ResourceTemplateReference(uri="test://template/{id}/data")
    assert client.complete(template, "id", "o").values == ["other"]


@pytest.mark.parametrize("version", wire.VERSIONS)
def test_a_completion_is_answered_in_every_version(ask: Ask, version: str) -> None:
    params = {
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": "test"},
    }

    result = result_of(ask(version, "completion/complete", params))

    assert result == {"completion": {"values": ["test", "tests"], "total": 2, "hasMore": False}}


@pytest.mark.parametrize(
    ("reference", "argument"),
    [
        (PromptReference(name="missing"), "arg1"),
        (PromptReference(name="test_prompt_with_arguments"), "arg3"),
        (ResourceTemplateReference(uri="test://missing/{id}"), "id"),
        (ResourceTemplateReference(uri="test://static-text"), "id"),
        (PromptReference(name="guarded_prompt"), "number"),
    ],
    ids=str,
)
def test_what_cannot_be_completed_is_invalid_params(user: User, reference: Any, argument: str) -> None:
    """R19: what the caller may not see is not completed either."""
    with pytest.raises(MCPError) as refused:
        mcp_client(user, site=site).complete(reference, argument, "")

    assert refused.value.code == -32602


def grant(user: User) -> User:
    """The user with the permission, as a fresh instance: Django keeps the permissions of a user on the object."""
    user.user_permissions.add(Permission.objects.get(codename="view_effect"))
    return User.objects.get(pk=user.pk)


def test_what_a_permission_guards_is_listed_to_those_who_have_it(user: User) -> None:
    """R19"""

    def listed(user: User) -> set[str]:
        client = mcp_client(user, site=site)
        return {
            *(prompt.name for prompt in client.list_prompts()),
            *(resource.name for resource in client.list_resources()),
            *(template.name for template in client.list_resource_templates()),
        }

    before = listed(user)

    assert listed(grant(user)) - before == {"guarded_prompt", "guarded_resource", "guarded_template"}


def test_what_a_permission_guards_is_unknown_without_it(ask: Ask) -> None:
    """R19: the same answer, but for the name."""
    prompt = ask(wire.MODERN, "prompts/get", {"name": "guarded_prompt", "arguments": {"number": "1"}})
    unknown = ask(wire.MODERN, "prompts/get", {"name": "missing_prompt", "arguments": {"number": "1"}})
    assert str(prompt).replace("guarded", "missing") == str(unknown)

    resource = ask(wire.MODERN, "resources/read", {"uri": "test://guarded"})
    missing = ask(wire.MODERN, "resources/read", {"uri": "test://missing"})
    assert str(resource).replace("guarded", "missing") == str(missing)


def test_what_a_permission_guards_is_there_for_those_who_have_it(user: User) -> None:
    """R19"""
    client = mcp_client(grant(user), site=site)

    assert client.get_prompt("guarded_prompt", {"number": "1"}).messages[0].content.text == "Effect 1"
    assert client.read_resource("test://guarded").contents[0].text == "guarded"
    assert client.complete(PromptReference(name="guarded_prompt"), "number", "7").values == ["7"]


def test_a_template_that_the_caller_may_not_see_hides_no_other(user: User) -> None:
    """R19: the first template that fits counts, of those that the caller may see."""
    client = mcp_client(user, site=site)
    assert client.read_resource("test://shadowed/x").contents[0].text == "open x"

    assert mcp_client(grant(user), site=site).read_resource("test://shadowed/x").contents[0].text == "guarded x"


def test_a_resource_goes_before_the_templates_that_fit_its_uri(user: User) -> None:
    """And of templates goes the first one that was registered."""
    served = Site("served")

    @served.resource("test://{value}")
    def first(value: str) -> str:
        return f"first {value}"

    @served.resource("test://{other}")
    def second(other: str) -> str:
        return f"second {other}"

    @served.resource("test://own")
    def own() -> str:
        return "own"

    client = mcp_client(user, site=served)

    assert client.read_resource("test://own").contents[0].text == "own"
    assert client.read_resource("test://other").contents[0].text == "first other"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "test_simple_prompt"}),
        ("resources/read", {"uri": "test://static-text"}),
        ("resources/read", {"uri": "test://template/1/data"}),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
                "argument": {"name": "arg1", "value": ""},
            },
        ),
        ("tools/list", {}),
        ("resources/list", {"cursor": None}),
    ],
    ids=["prompt", "resource", "template", "completion", "tools", "resources"],
)
def test_what_has_no_permission_asks_no_query(user: User, method: str, params: dict[str, Any]) -> None:
    open_site = Site("open")
    open_site.tool(add)
    open_site.prompt(name="test_simple_prompt")(simple)
    open_site.prompt(name="test_prompt_with_arguments", completions={"arg1": complete_first})(with_arguments)
    open_site.resource("test://static-text")(static_text)
    open_site.resource("test://template/{id}/data")(template)
    client = mcp_client(user, site=open_site)

    with CaptureQueriesContext(connection) as queries:
        client.request(method, {name: value for name, value in params.items() if value is not None})

    assert [query["sql"] for query in queries] == []


@pytest.mark.parametrize(
    ("method", "params"),
    [("prompts/get", {"name": "test_simple_prompt"}), ("resources/read", {"uri": "test://static-text"})],
)
def test_a_key_on_a_prompt_or_a_resource_has_no_effect(user: User, method: str, params: dict[str, Any]) -> None:
    """R15"""
    client = mcp_client(user, site=site)

    assert client.request(method, {**params, "idempotencyKey": "k"}) == client.request(method, params)
    assert not IdempotencyRecord.objects.exists()


def paged(size: int) -> Site:
    """A site with three of everything, the second of which is guarded."""
    paged = Site("paged", page_size=size)
    for name in ("first", "guarded", "last"):
        words: dict[str, Any] = {"permission": "app.view_effect"} if name == "guarded" else {}
        paged.tool(name=name, **words)(lambda: None)
        paged.prompt(name=name, **words)(lambda: "")
        paged.resource(f"test://{name}", name=name, **words)(lambda: "")
        paged.resource(f"test://{name}/{{id}}", name=name, **words)(template)
    return paged


LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


@pytest.mark.parametrize("method", LISTS)
def test_a_long_list_comes_in_pages(user: User, method: str) -> None:
    client = mcp_client(user, site=paged(1))

    first = client.request(method, {})
    second = client.request(method, {"cursor": first["nextCursor"]})

    names = [entry["name"] for page in (first, second) for entry in page[LISTS[method]]]
    assert names == ["first", "last"]
    assert "nextCursor" not in second


@pytest.mark.parametrize("method", LISTS)
def test_a_cursor_is_understood_by_another_server(user: User, method: str) -> None:
    """Nothing of it is kept: another process, or the next release, has made its site anew."""
    cursor = mcp_client(user, site=paged(1)).request(method, {})["nextCursor"]

    page = mcp_client(user, site=paged(2)).request(method, {"cursor": cursor})

    assert [entry["name"] for entry in page[LISTS[method]]] == ["last"]


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("cursor", ["", "1", "first"])
def test_an_invalid_cursor_is_invalid_params(user: User, method: str, cursor: str) -> None:
    with pytest.raises(MCPError, match="Begin again without one") as refused:
        mcp_client(user, site=paged(1)).request(method, {"cursor": cursor})

    assert refused.value.code == -32602


def test_a_cursor_tells_nothing_of_what_is_hidden(user: User) -> None:
    """R19: the cursor that names a hidden tool is as invalid as any."""
    served = paged(2)
    cursor = mcp_client(grant(user), site=served).request("tools/list", {})["nextCursor"]

    with pytest.raises(MCPError, match="Begin again"):
        mcp_client(UserFactory(), site=served).request("tools/list", {"cursor": cursor})


def test_the_client_for_tests_lists_all_pages(user: User) -> None:
    client = mcp_client(grant(user), site=paged(1))

    assert [tool.name for tool in client.list_tools()] == ["first", "guarded", "last"]
    assert [resource.name for resource in client.list_resources()] == ["first", "guarded", "last"]


@pytest.mark.parametrize("method", LISTS)
def test_a_list_says_for_how_long_it_is_good(user: User, method: str) -> None:
    answer = mcp_client(user, site=site).request(method, {})

    assert (answer["ttlMs"], answer["cacheScope"]) == (300_000, "private")


@pytest.mark.parametrize(
    ("anonymous", "scope"), [(False, "private"), (True, "public")], ids=["behind a sign-in", "open to all"]
)
def test_a_list_is_public_where_everybody_is_told_the_same(
    user: User, settings: DjangoSettings, anonymous: bool, scope: str
) -> None:
    settings.MCP_IDEM = {"ALLOW_ANONYMOUS": anonymous}
    client = mcp_client(user, site=site)

    # The site has no guarded tool, but a guarded prompt.
    assert client.request("tools/list", {})["cacheScope"] == scope
    assert client.request("prompts/list", {})["cacheScope"] == "private"


def test_what_was_read_says_for_how_long_it_is_good(user: User) -> None:
    client = mcp_client(user, site=site)

    binary, text = (client.read_resource(f"test://static-{kind}") for kind in ("binary", "text"))

    assert (binary.ttl_ms, binary.cache_scope) == (3_600_000, "private")
    assert (text.ttl_ms, text.cache_scope) == (0, "private")


def test_a_body_is_given_the_caller_and_the_request(ask: Ask) -> None:
    answer = ask(wire.MODERN, "prompts/get", {"name": "in_context"})

    assert answer["result"]["messages"][0]["content"]["text"] == f"{User.objects.get()} at /mcp"
