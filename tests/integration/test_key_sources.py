"""Keys from other places than ``params.idempotencyKey``, over HTTP (R02, R06, R08, R09, R15, R16, R18, R22)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from mcp_types import InputRequiredResult
from pytest_django import Settings as DjangoSettings

from django_mcp_idem import Site, ToolContext
from django_mcp_idem import site as default_site
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests import wire
from tests.app.models import Effect
from tests.factories import TokenFactory

pytestmark = pytest.mark.django_db

KEY_IN_META = "django-mcp-idem/idempotencyKey"
PLACES = ["params", "_meta", "header", "argument"]

open_site = Site(
    "open",
    idempotency_key_in_meta=True,
    idempotency_key_in_header=True,
    idempotency_key_argument="idempotencyKey",
    mark_replays=False,
)
urlpatterns = [path("mcp", default_site), path("open", open_site)]


@open_site.tool
def work(label: str) -> int:
    return Effect.objects.create(label=label).pk


@open_site.tool(key="required")
def careful() -> int:
    return Effect.objects.create(label="careful").pk


@open_site.tool
def asks(ctx: ToolContext) -> str | InputRequiredResult:
    Effect.objects.create(label="asks")
    return InputRequiredResult(request_state="s1") if ctx.request_state is None else "answered"


@pytest.fixture(autouse=True)
def _routes(settings: DjangoSettings) -> None:
    settings.ROOT_URLCONF = __name__


def post(
    client: Client,
    keys: dict[str, Any],
    *,
    name: str = "work",
    arguments: dict[str, Any] | None = None,
    version: str = wire.MODERN,
    token: str = "t",
    url: str = "/open",
    **members: Any,
) -> HttpResponse:
    """Call a tool with keys, by the place where each stands."""
    params = wire.call_params(name, {"label": "a"} if arguments is None else arguments, version, **members)
    sent = wire.headers(token, "tools/call", name, version)
    for place, key in keys.items():
        match place:
            case "params":
                params["idempotencyKey"] = key
            case "_meta":
                params.setdefault("_meta", {})[KEY_IN_META] = key
            case "header":
                sent["Idempotency-Key"] = key
            case "argument":
                params["arguments"]["idempotencyKey"] = key
    response: HttpResponse = client.post(url, wire.message("tools/call", params), "application/json", headers=sent)
    return response


@pytest.mark.parametrize("version", wire.VERSIONS)
@pytest.mark.parametrize("place", PLACES)
def test_a_key_works_the_same_wherever_it_stands(client: Client, place: str, version: str) -> None:
    """R06, R08, R09: each place replays what any other recorded, so that one fingerprint is made of the call."""
    TokenFactory(text="t")
    first = post(client, {place: "k"}, version=version)

    for other in PLACES:
        assert post(client, {other: "k"}, version=version).content == first.content

    assert first.json()["result"]["isError"] is False
    assert Effect.objects.count() == 1
    assert IdempotencyRecord.objects.get().replay_count == len(PLACES)


@pytest.mark.parametrize("place", PLACES)
def test_other_arguments_conflict_wherever_the_key_stands(client: Client, place: str) -> None:
    """R07"""
    TokenFactory(text="t")
    post(client, {"params": "k"})

    refused = post(client, {place: "k"}, arguments={"label": "b"}).json()["error"]

    assert refused["data"] == {"type": "idempotency_key_conflict", "idempotencyKey": "k"}
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("place", PLACES)
def test_the_key_of_another_user_is_another_key_wherever_it_stands(client: Client, place: str) -> None:
    """R18"""
    alice, bob = TokenFactory(text="alice"), TokenFactory(text="bob")

    post(client, {place: "k"}, token="alice")
    post(client, {place: "k"}, token="bob", arguments={"label": "b"})

    assert Effect.objects.count() == 2
    assert set(IdempotencyRecord.objects.values_list("user_id", flat=True)) == {alice.user_id, bob.user_id}


@pytest.mark.parametrize("place", ["_meta", "header", "argument"])
def test_a_place_that_a_site_does_not_name_holds_no_key(client: Client, place: str) -> None:
    """R04: off unless named."""
    TokenFactory(text="t")

    answer = post(client, {place: "k"}, name="atomic", url="/mcp").json()["result"]

    # The argument is one that the tool does not know.
    assert answer["isError"] is (place == "argument")
    assert not IdempotencyRecord.objects.exists()


INVALID = [
    *((place, key) for place in ("params", "_meta", "argument") for key in (None, 1, True, [], {}, "", "k" * 256)),
    *(("header", key) for key in ("", '""', "a,b", '"a","b"', "a b", '"a', "k" * 256, "caf\u00e9", '"\u00ff"')),
]


@pytest.mark.parametrize(("place", "key"), INVALID, ids=[f"{place} {key!r:.9}" for place, key in INVALID])
def test_an_invalid_key_is_refused_wherever_it_stands(client: Client, place: str, key: Any) -> None:
    """R02, R22: never ignored, also not beside a valid one; nothing runs, nothing is recorded."""
    TokenFactory(text="t")

    for others in ({}, {"params": "k"} if place != "params" else {"header": "k"}):
        response = post(client, {**others, place: key})
        assert response.status_code == 200
        assert response.json()["error"]["code"] == -32602
        assert response.json()["error"]["data"] == {"type": "idempotency_key_invalid"}

    assert not Effect.objects.exists()
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(PLACES, 2)))
def test_two_places_have_to_agree(client: Client, one: str, other: str) -> None:
    """R02: the same key twice is one key; two keys are refused, whichever was there first."""
    TokenFactory(text="t")

    refused = post(client, {one: "k", other: "l"}).json()["error"]
    assert (refused["code"], refused["data"]) == (-32602, {"type": "idempotency_key_invalid"})
    assert not Effect.objects.exists()

    assert post(client, {one: "k", other: "k"}).json()["result"]["isError"] is False
    assert IdempotencyRecord.objects.get().key_preview == "k"


@pytest.mark.parametrize("place", PLACES)
def test_a_continuation_looks_at_no_key_wherever_it_stands(client: Client, place: str) -> None:
    """R16: it runs each time, and the key argument is not handed on."""
    TokenFactory(text="t")
    state = post(client, {place: "k"}, name="asks", arguments={}).json()["result"]["requestState"]

    for _ in range(2):
        answer = post(client, {place: "k"}, name="asks", arguments={}, requestState=state).json()
        assert answer["result"]["structuredContent"] == "answered"

    assert Effect.objects.count() == 3
    assert IdempotencyRecord.objects.get().replay_count == 0


def test_a_key_on_another_method_has_no_effect_wherever_it_stands(client: Client) -> None:
    """R15"""
    TokenFactory(text="t")
    sent = wire.headers("t", "tools/list")
    params = wire.envelope()
    plain = client.post("/open", wire.message("tools/list", params), "application/json", headers=sent)
    params["_meta"][KEY_IN_META] = 1

    keyed = client.post(
        "/open",
        wire.message("tools/list", {**params, "idempotencyKey": 1}),
        "application/json",
        headers={**sent, "Idempotency-Key": "a,b"},
    )

    assert keyed.content == plain.content


@pytest.mark.parametrize("place", PLACES)
def test_a_tool_that_requires_a_key_takes_it_from_anywhere(client: Client, place: str) -> None:
    TokenFactory(text="t")

    refused = post(client, {}, name="careful", arguments={}).json()["error"]

    assert refused["data"] == {"type": "idempotency_key_required"}
    for way in ("params.idempotencyKey", KEY_IN_META, "header Idempotency-Key", "argument idempotencyKey"):
        assert way in refused["message"]
    assert post(client, {place: "k"}, name="careful", arguments={}).json()["result"]["isError"] is False


def test_the_argument_is_part_of_every_tools_schema(user: User) -> None:
    """It is described for the model, and required where the tool requires a key."""
    tools = {tool.name: tool.input_schema for tool in mcp_client(user, site=open_site).list_tools()}

    assert list(tools["work"]["properties"]) == ["label", "idempotencyKey"]
    assert tools["work"]["required"] == ["label"]
    assert tools["careful"]["required"] == ["idempotencyKey"]
    described = tools["work"]["properties"]["idempotencyKey"]
    assert described["type"] == "string"
    assert "To retry a call whose answer was lost, send the same value" in described["description"]


def test_the_argument_is_no_part_of_a_schema_for_callers_whose_keys_are_refused(
    client: Client, settings: DjangoSettings
) -> None:
    """R03"""
    settings.MCP_IDEM = {"ALLOW_ANONYMOUS": True}
    sent = wire.headers("", "tools/list")
    del sent["Authorization"]

    listed = client.post("/open", wire.message("tools/list", wire.envelope()), "application/json", headers=sent)

    tools = {tool["name"]: tool for tool in listed.json()["result"]["tools"]}
    assert list(tools["work"]["inputSchema"]["properties"]) == ["label"]
    assert "_meta" not in tools["careful"]


def test_a_tool_with_a_parameter_of_the_arguments_name_is_refused() -> None:
    """It would never be given it."""
    site = Site("clash", idempotency_key_argument="key")

    def tool(key: str) -> None: ...

    with pytest.raises(ImproperlyConfigured, match="'tool' has a parameter 'key'"):
        site.tool(tool)
    assert site.tools == ()


def test_an_argument_that_a_tool_has_already_is_refused() -> None:
    site = Site("clash later")

    @site.tool
    def tool(key: str) -> None: ...

    with pytest.raises(ImproperlyConfigured, match="'tool' has a parameter 'key'"):
        site.idempotency_key_argument = "key"
    with pytest.raises(ImproperlyConfigured, match="empty"):
        site.idempotency_key_argument = ""
    assert site.idempotency_key_argument is None
