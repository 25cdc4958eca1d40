"""Registration of resources, which URIs are theirs, and what their functions return as contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import (
    Annotations,
    BlobResourceContents,
    InputRequiredResult,
    ReadResourceResult,
    TextResourceContents,
)
from pydantic import BaseModel, Field

import django_mcp_idem
from django_mcp_idem import RequestContext, Site, ToolContext
from django_mcp_idem.content import NoContent
from django_mcp_idem.resources import Resource

CONTEXT = RequestContext(user=AnonymousUser(), request=None)
URI = "shop://terms"


class Terms(BaseModel):
    days: int = Field(alias="daysToReturn")


def terms() -> str:
    """The terms of the shop."""
    return "No refunds."


def order(number: int) -> str:
    """One order."""
    return str(number)


def text(value: str) -> str:
    return value


def texts(value: list[str]) -> str:
    return ",".join(value)


def search(shelf: str, word: str = "", page: int = 1) -> str:
    return f"{shelf} {word} {page}"


@pytest.fixture
def site() -> Site:
    return Site("test")


def registered(site: Site, uri: str, function: Callable[..., Any], **words: Any) -> Resource:
    site.resource(uri, **words)(function)
    resource = site.get_resource(uri)
    assert resource is not None
    return resource


def read(site: Site, returned: Any, **words: Any) -> Any:
    resource = registered(site, URI, lambda: returned, **words)
    return async_to_sync(resource.read)(URI, {}, CONTEXT)


def matched(uri: str, template: str, function: Callable[..., Any]) -> Mapping[str, Any] | None:
    return registered(Site("test"), template, function).match(uri)


def test_the_decorator_leaves_the_function_as_it_is(site: Site) -> None:
    assert site.resource(URI)(terms) is terms
    assert site.resource("shop://orders/{number}")(order) is order
    assert [resource.uri for resource in site.resources] == [URI]
    assert [template.uri for template in site.templates] == ["shop://orders/{number}"]


def test_the_package_registers_with_the_default_site() -> None:
    assert django_mcp_idem.resource.__self__ is django_mcp_idem.site  # type: ignore[attr-defined]


def test_clients_are_told_what_the_function_says(site: Site) -> None:
    assert registered(site, URI, terms).listed().model_dump(by_alias=True, exclude_none=True) == {
        "uri": URI,
        "name": "terms",
        "description": "The terms of the shop.",
    }
    template = registered(site, "shop://orders/{number}", order).listed_template()
    assert template.model_dump(by_alias=True, exclude_none=True) == {
        "uriTemplate": "shop://orders/{number}",
        "name": "order",
        "description": "One order.",
    }


def test_words_say_more(site: Site) -> None:
    words = {"name": "terms of sale", "mime_type": "text/markdown", "annotations": Annotations(priority=0.5)}

    listed = registered(site, URI, terms, size=11, **words).listed()
    template = registered(site, "shop://orders/{number}", order, **words).listed_template()

    assert (listed.size, listed.name, listed.mime_type) == (11, "terms of sale", "text/markdown")
    assert (template.name, template.mime_type) == ("terms of sale", "text/markdown")
    assert listed.annotations == template.annotations == Annotations(priority=0.5)


@pytest.mark.parametrize("uri", ["shop://terms", "urn:isbn:0", "file:///a/b%20c.txt?x=1#y", "a+b.c-d:"])
def test_a_resource_is_read_at_exactly_its_own_uri(site: Site, uri: str) -> None:
    resource = registered(site, uri, terms)

    assert resource.match(uri) == {}
    assert resource.match(f"{uri}/") is None
    assert resource.match(uri.upper()) is None
    assert resource.match("") is None


@pytest.mark.parametrize(
    ("template", "function", "uri", "arguments"),
    [
        ("shop://orders/{number}", order, "shop://orders/12", {"number": 12}),
        ("shop://orders/{number}/data", order, "shop://orders/12/data", {"number": 12}),
        ("shop://{value}/x", text, "shop://a%20b%2Fc/x", {"value": "a b/c"}),
        ("shop://{value}", text, "shop://gr%C3%B6%C3%9Fe", {"value": "größe"}),
        ("shop://{value}", text, "shop://a+b", {"value": "a+b"}),
        ("shop://{+value}", text, "shop://a/b/c.txt", {"value": "a/b/c.txt"}),
        ("shop://files{/value*}", texts, "shop://files/a/b%20c", {"value": ["a", "b c"]}),
        (
            "shop://{shelf}{?word,page}",
            search,
            "shop://a?page=2&word=x%20y&more=1",
            {"shelf": "a", "word": "x y", "page": 2},
        ),
        ("shop://{shelf}{?word,page}", search, "shop://a", {"shelf": "a"}),
    ],
)
def test_a_template_gives_its_function_the_variables_decoded_and_converted(
    template: str, function: Callable[..., Any], uri: str, arguments: dict[str, Any]
) -> None:
    assert matched(uri, template, function) == arguments


@pytest.mark.parametrize(
    ("template", "function", "uri"),
    [
        ("shop://orders/{number}", order, "shop://orders/"),
        ("shop://orders/{number}", order, "shop://orders/twelve"),
        ("shop://orders/{number}", order, "shop://orders/12/data"),
        ("shop://orders/{number}", order, "shop://orders/12/"),
        ("shop://orders/{number}", order, "shop://orders"),
        ("shop://orders/{number}", order, "SHOP://orders/12"),
        ("shop://{shelf}{?word,page}", search, "shop://a?page=two"),
    ],
)
def test_what_does_not_fit_a_template_or_does_not_convert_is_not_its_own(
    template: str, function: Callable[..., Any], uri: str
) -> None:
    assert matched(uri, template, function) is None


@pytest.mark.parametrize(
    "value",
    ["..", "%2e%2e", "../x", "a%2F..%2F..%2Fx", "%2Fetc%2Fpasswd", "/etc/passwd", "%5C..%5Cx", "C:%5Cx", "a%00b"],
)
def test_a_variable_that_would_lead_out_of_a_directory_is_not_found(value: str) -> None:
    assert matched(f"shop://{value}", "shop://{+value}", text) is None
    assert matched(f"shop://f/{value}", "shop://f{/value*}", texts) is None


@pytest.mark.parametrize("value", ["a..b", "...", ".hidden", "a/b", "v1..v2", "a/../b", "isbn:0"])
def test_dots_and_slashes_that_stay_below_are_a_value_like_any_other(value: str) -> None:
    assert matched(f"shop://{value}", "shop://{+value}", text) == {"value": value}


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0/\\:")))
def test_whatever_a_client_puts_into_a_template_comes_out_again(value: str) -> None:
    uri = UriTemplate.parse("shop://x/{value}/data").expand({"value": value})

    expected = None if value == ".." else {"value": value}
    assert matched(uri, "shop://x/{value}/data", text) == expected


@pytest.mark.parametrize(
    ("returned", "contents"),
    [
        pytest.param("t", {"mimeType": "text/plain", "text": "t"}, id="text"),
        pytest.param("", {"mimeType": "text/plain", "text": ""}, id="no text"),
        pytest.param(b"i", {"mimeType": "application/octet-stream", "blob": "aQ=="}, id="bytes"),
        pytest.param(memoryview(b"i"), {"mimeType": "application/octet-stream", "blob": "aQ=="}, id="memory"),
        pytest.param({"a": [1]}, {"mimeType": "application/json", "text": '{"a":[1]}'}, id="a dict"),
        pytest.param([], {"mimeType": "application/json", "text": "[]"}, id="an empty list"),
        pytest.param(None, {"mimeType": "application/json", "text": "null"}, id="null"),
        pytest.param(2**70, {"mimeType": "application/json", "text": str(2**70)}, id="a large integer"),
        pytest.param(
            Terms(daysToReturn=3), {"mimeType": "application/json", "text": '{"daysToReturn":3}'}, id="a model"
        ),
    ],
)
def test_what_is_returned_becomes_contents(site: Site, returned: Any, contents: dict[str, Any]) -> None:
    result = read(site, returned)

    dumped = [content.model_dump(by_alias=True, exclude_none=True) for content in result.contents]
    assert dumped == [{"uri": URI, **contents}]


@pytest.mark.parametrize("returned", ["t", b"t", {}], ids=str)
def test_the_type_that_was_said_is_the_type_of_the_contents(site: Site, returned: Any) -> None:
    assert read(site, returned, mime_type="image/svg+xml").contents[0].mime_type == "image/svg+xml"


CONTENTS = [
    TextResourceContents(uri="shop://terms#1", text="1", meta={"a": 1}),
    BlobResourceContents(uri="shop://terms#2", blob="aQ=="),
]


def test_contents_are_taken_as_they_are(site: Site) -> None:
    assert read(site, CONTENTS).contents == CONTENTS
    assert read(Site("other"), CONTENTS[1]).contents == [CONTENTS[1]]


def test_a_whole_result_is_taken_as_it_is(site: Site) -> None:
    whole = ReadResourceResult(contents=[CONTENTS[0]], ttl_ms=5, cache_scope="public")
    question = InputRequiredResult(request_state="s")

    assert read(site, whole, ttl=timedelta(minutes=1)) == whole
    assert read(Site("other"), question) is question


def test_a_client_is_told_how_long_it_may_use_what_it_read(site: Site) -> None:
    assert read(site, "t", ttl=timedelta(minutes=1)).ttl_ms == 60_000
    assert read(Site("other"), "t").ttl_ms == 0
    assert read(Site("another"), "t").cache_scope == "private"


@pytest.mark.parametrize("returned", [object(), {"a": float("nan")}, [TextResourceContents]], ids=str)
def test_what_json_does_not_have_is_a_failure_that_tells_nothing(site: Site, returned: Any) -> None:
    with pytest.raises(MCPError, match=r"Resource 'shop://terms' failed\. The error was logged") as failed:
        read(site, returned)

    assert failed.value.code == -32603


def test_what_django_answers_with_403_is_nothing(site: Site) -> None:
    def fail() -> str:
        raise PermissionDenied

    resource = registered(site, URI, fail)

    with pytest.raises(NoContent):
        async_to_sync(resource.read)(URI, {}, CONTEXT)


def with_context_of_tools(ctx: ToolContext) -> str: ...


@pytest.mark.parametrize(
    ("uri", "function", "message"),
    [
        pytest.param("terms", terms, "is not a URI", id="no scheme"),
        pytest.param("/terms", terms, "is not a URI", id="a path"),
        pytest.param("shop://the terms", terms, "is not a URI", id="a space"),
        pytest.param("shop://größe", terms, "is not a URI", id="not ASCII"),
        pytest.param("shop://terms\n", terms, "is not a URI", id="a line feed"),
        pytest.param("shop://terms}", terms, "is not a URI", id="a brace"),
        pytest.param("orders/{number}", order, "is not a URI template", id="a template without a scheme"),
        pytest.param("{number}://x", order, "is not a URI template", id="a variable scheme"),
        pytest.param("shop://{number", order, "is not a URI template", id="an open brace"),
        pytest.param("shop://{number:3}", order, "is not a URI template", id="a prefix of a variable"),
        pytest.param("shop://{number}", terms, "has to take the variables number", id="a variable too many"),
        pytest.param("shop://{other}", order, "has to take the variables other", id="another name"),
        pytest.param(URI, order, "has to take nothing", id="a parameter too many"),
        pytest.param(
            "shop://{shelf}{?word,page}", lambda shelf, word, page=1: "", "'word' needs a default", id="query"
        ),
        pytest.param("shop://x{/value*}", text, "'value' is given a list of texts", id="a text for a list"),
        pytest.param("shop://x/{value}", texts, "'value' is given a text", id="a list for a text"),
        pytest.param(URI, with_context_of_tools, "annotate the parameter with RequestContext", id="context of tools"),
        pytest.param(URI, "terms", "above a function", id="no function"),
    ],
)
def test_a_function_that_cannot_be_a_resource_is_refused(site: Site, uri: str, function: Any, message: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        site.resource(uri)(function)

    assert (*site.resources, *site.templates) == ()


@pytest.mark.parametrize(
    ("uri", "words", "message"),
    [
        (URI, {"size": -1}, "size is -1"),
        (URI, {"size": True}, "size is True"),
        ("shop://{number}", {"size": 1}, "not for templates"),
        (URI, {"annotations": {"priority": 1}}, "mcp_types.Annotations"),
        (URI, {"ttl": 5}, "must be a timedelta"),
        (URI, {"ttl": timedelta(seconds=-1)}, "must be a timedelta"),
        (URI, {"completions": {"number": order}}, "has no argument 'number'"),
    ],
)
def test_a_word_that_is_not_what_it_has_to_be_is_refused(
    site: Site, uri: str, words: dict[str, Any], message: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        site.resource(uri, **words)(terms if uri == URI else order)


def test_two_resources_at_one_uri_are_refused(site: Site) -> None:
    site.resource(URI)(terms)
    site.resource("shop://other")(terms)

    with pytest.raises(ImproperlyConfigured, match="already has a resource at 'shop://terms'"):
        site.resource(URI)(terms)
