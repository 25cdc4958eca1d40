"""A site as what ``path()`` takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import Client
from django.urls import NoReverseMatch, Resolver404, include, path, resolve, reverse
from pytest_django import Settings as DjangoSettings

from django_mcp_idem import Site
from django_mcp_idem import site as default_site
from django_mcp_idem.registry import get_site
from tests.factories import TokenFactory

staff = Site("staff", title="Staff", instructions="For the staff.")
nested = Site("nested")

SERVER_INFO = "io.modelcontextprotocol/serverInfo"

urlpatterns = [
    path("mcp", default_site),
    path("staff/mcp", staff),
    path("deep/", include([path("er/", include([path("mcp", nested)]))])),
]


@pytest.fixture(autouse=True)
def _routes(settings: DjangoSettings) -> None:
    settings.ROOT_URLCONF = __name__


@pytest.fixture
def client(db: None) -> Client:
    TokenFactory(text="t")
    return Client(headers={"Authorization": "Bearer t"})


def discover(client: Client, url: str) -> HttpResponse:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    response: HttpResponse = client.post(
        url,
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}),
        content_type="application/json",
        headers={"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"},
    )
    return response


@pytest.mark.parametrize(
    ("url", "name"),
    [
        pytest.param("/mcp", "mcp", id="at its route"),
        pytest.param("/mcp/", "mcp", id="with a slash"),
        pytest.param("/staff/mcp", "staff", id="another site"),
        pytest.param("/staff/mcp/", "staff", id="another site with a slash"),
        pytest.param("/deep/er/mcp", "nested", id="in nested includes"),
        pytest.param("/deep/er/mcp/", "nested", id="in nested includes with a slash"),
    ],
)
def test_a_site_answers_where_it_is_routed_with_and_without_a_slash(client: Client, url: str, name: str) -> None:
    response = discover(client, url)

    assert response.status_code == 200
    assert json.loads(response.content)["result"]["_meta"][SERVER_INFO]["name"] == name


@pytest.mark.parametrize("url", ["/mcp//", "/mcpx", "/mcp/x", "/mc", "/mcp%0A", "/staff", "/deep/er/"])
def test_a_site_answers_nowhere_else(client: Client, url: str) -> None:
    assert discover(client, url).status_code == 404


@pytest.mark.parametrize("url", ["/mcp\n", "/mcp/\n", "/mcp//"])
def test_a_route_ends_where_it_ends(url: str) -> None:
    with pytest.raises(Resolver404):
        resolve(url)


def test_the_name_of_a_site_is_the_name_of_its_instance() -> None:
    assert reverse("mcp:endpoint") == "/mcp"
    assert reverse("staff:endpoint") == "/staff/mcp"
    assert reverse("nested:endpoint") == "/deep/er/mcp"
    with pytest.raises(NoReverseMatch):
        reverse("other:endpoint")


def test_the_current_app_chooses_among_sites() -> None:
    assert reverse("mcp:endpoint", current_app="staff") == "/staff/mcp"


def test_a_site_tells_what_it_is_called(client: Client) -> None:
    result = json.loads(discover(client, "/staff/mcp").content)["result"]

    assert result["_meta"][SERVER_INFO]["title"] == "Staff"
    assert result["instructions"] == "For the staff."


def test_sites_are_equal_to_themselves_alone() -> None:
    one, other = Site("one"), Site("one")

    assert one == one
    assert (one == other) is False
    assert len({one, other, one}) == 2


def test_a_site_is_found_by_its_name() -> None:
    """R23: of two with one name, the first; Django warns where both are routed."""
    one = Site("found by its name")
    Site("found by its name")

    assert get_site("found by its name") is one
    assert get_site("no such site") is None


def test_a_site_shows_its_name() -> None:
    assert repr(Site("one")) == "Site('one')"


def test_a_site_has_the_tools_of_its_own_alone() -> None:
    one, other = Site("one"), Site("one")

    @one.tool
    def tool() -> None: ...

    assert [tool.name for tool in one.tools] == ["tool"]
    assert other.tools == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"page_size": 0}, "page_size is 0"),
        ({"page_size": None}, "page_size is None"),
        ({"list_ttl": 5}, "must be a timedelta"),
        ({"icons": ["icon.png"]}, "mcp_types.Icon"),
    ],
    ids=["an empty page", "no page size", "a span in no unit", "a name for an icon"],
)
def test_a_word_of_a_site_that_is_not_what_it_has_to_be_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        Site("one", **words)
