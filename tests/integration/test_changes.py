"""Changes of what a site offers, as clients are told of them on streams that stay open."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.http import HttpResponse, StreamingHttpResponse
from django.test import Client
from django.urls import path
from pytest_django import Settings as DjangoSettings

from django_mcp_idem import Site, ToolContext
from django_mcp_idem.transport import events
from django_mcp_idem.transport.listening import Listening
from tests import wire
from tests.factories import TokenFactory
from tests.loops import get, post, read, run
from tests.services import database_url, redis_url

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

site = Site("changing")
urlpatterns = [path("mcp", site)]

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["shop://orders/1", "shop://secret"],
}


@site.tool
def restock(ctx: ToolContext) -> str:
    return "restocked"


@site.prompt
def greet() -> str:
    return "Hello"


@site.resource("shop://orders/{number}")
def order(number: int) -> str:
    return str(number)


@site.resource("shop://secret", permission="auth.view_user")
def secret() -> str:
    return "secret"


@pytest.fixture(params=[None, "locks"], ids=["in memory", "in Redis"], autouse=True)
def shared_cache(request: pytest.FixtureRequest, settings: DjangoSettings, user: User) -> None:
    settings.MCP_IDEM = {"LOCK_CACHE": request.param}
    TokenFactory(user=user, text="t")


async def messages(response: HttpResponse | StreamingHttpResponse) -> AsyncGenerator[dict[str, Any], None]:
    assert isinstance(response, StreamingHttpResponse)
    try:
        async for part in response:
            for message in wire.messages(part):
                yield message
    finally:
        response.close()


async def listen(**wanted: Any) -> AsyncGenerator[dict[str, Any], None]:
    """The messages after the acknowledgement."""
    stream = messages(await post(*listening(wanted)))
    acknowledgement = await anext(stream)
    assert acknowledgement["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledgement["params"] == {"_meta": {SUBSCRIPTION: "listening"}, "notifications": wanted}
    return stream


def listening(wanted: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    params = {"notifications": wanted, **wire.envelope()}
    return wire.message("subscriptions/listen", params, "listening"), wire.headers("t", "subscriptions/listen")


async def open_stream(version: str, session: str) -> AsyncGenerator[dict[str, Any], None]:
    """The messages of the stream that a client of the handshake versions opens, once it is told of changes."""
    response = await get({**wire.headers("t", "", None, version), "Mcp-Session-Id": session})
    parts = aiter(response)
    assert await anext(parts) == events.ALIVE

    async def rest() -> AsyncGenerator[dict[str, Any], None]:
        try:
            async for part in parts:
                for message in wire.messages(part):
                    yield message
        finally:
            response.close()

    return rest()


async def ask(version: str, method: str, params: dict[str, Any], session: str | None = None) -> dict[str, Any]:
    sent = {} if session is None else {"Mcp-Session-Id": session}
    response = await post(wire.message(method, params), {**wire.headers("t", method, None, version), **sent})
    answered: dict[str, Any] = json.loads(await read(response))
    return answered


def notify(*names: str) -> Callable[[], None]:
    def notify_all() -> None:
        for name in names:
            {
                "tools": site.notify_tools_changed,
                "prompts": site.notify_prompts_changed,
                "resources": site.notify_resources_changed,
                "order": lambda: site.notify_resource_updated("shop://orders/1"),
                "other order": lambda: site.notify_resource_updated("shop://orders/2"),
                "secret": lambda: site.notify_resource_updated("shop://secret"),
            }[name]()

    return notify_all


async def told(stream: AsyncGenerator[dict[str, Any], None], count: int) -> list[tuple[str, Any]]:
    received = [await anext(stream) for _ in range(count)]
    return [(message["method"].removeprefix("notifications/"), message["params"].get("uri")) for message in received]


def test_a_client_is_told_what_it_asked_for_and_nothing_else() -> None:
    async def scenario() -> None:
        stream = await listen(toolsListChanged=True, resourceSubscriptions=["shop://orders/1"])
        await sync_to_async(notify("prompts", "other order", "resources", "order", "tools"))()
        received = [await anext(stream), await anext(stream)]
        assert received == [
            {
                "jsonrpc": "2.0",
                "method": "notifications/resources/updated",
                "params": {"uri": "shop://orders/1", "_meta": {SUBSCRIPTION: "listening"}},
            },
            {
                "jsonrpc": "2.0",
                "method": "notifications/tools/list_changed",
                "params": {"_meta": {SUBSCRIPTION: "listening"}},
            },
        ]
        await stream.aclose()

    run(scenario)


def test_a_change_is_told_once_it_is_committed() -> None:
    async def scenario() -> None:
        stream = await listen(**EVERYTHING)

        def change() -> None:
            with transaction.atomic():
                site.notify_tools_changed()
                transaction.set_rollback(True)
            with transaction.atomic():
                site.notify_resources_changed()
                notify("prompts")()

        await sync_to_async(change)()
        assert await told(stream, 2) == [("resources/list_changed", None), ("prompts/list_changed", None)]
        await stream.aclose()

    run(scenario)


def test_who_may_not_see_a_resource_is_not_told_that_it_changed(user: User) -> None:
    """R19: from the moment on that the permission is revoked, also."""
    permission = Permission.objects.get(codename="view_user")

    async def scenario() -> None:
        stream = await listen(**EVERYTHING)
        await sync_to_async(notify("secret", "order"))()
        assert await told(stream, 1) == [("resources/updated", "shop://orders/1")]
        await user.user_permissions.aadd(permission)
        await sync_to_async(notify("secret"))()
        assert await told(stream, 1) == [("resources/updated", "shop://secret")]
        await user.user_permissions.aremove(permission)
        await sync_to_async(notify("secret", "order"))()
        assert await told(stream, 1) == [("resources/updated", "shop://orders/1")]
        await stream.aclose()

    run(scenario)


@pytest.mark.parametrize("opened", [lambda: listen(**EVERYTHING), lambda: open_stream("2025-11-25", "s")])
def test_a_caller_who_lost_access_is_told_nothing_more(
    opened: Callable[[], Awaitable[AsyncGenerator[dict[str, Any], None]]], user: User
) -> None:
    """R19"""

    async def scenario() -> None:
        stream = await opened()
        await User.objects.filter(pk=user.pk).aupdate(is_active=False)
        await sync_to_async(notify("tools"))()
        assert [message async for message in stream] == []

    run(scenario)


NOTIFIES = """
import django
from django.conf import settings

django.setup()
settings.MCP_IDEM = {"LOCK_CACHE": "locks"}
from tests.integration.test_changes import Site, site

Site("another site").notify_prompts_changed()
site.notify_tools_changed()
"""


@pytest.mark.parametrize("shared_cache", ["locks"], indirect=True)
def test_changes_in_another_process_are_told() -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "TEST_DATABASE_URL": database_url(),
        "TEST_REDIS_URL": redis_url(),
    }

    def elsewhere() -> None:
        subprocess.run([sys.executable, "-c", NOTIFIES], env=environment, check=True)

    async def scenario() -> None:
        stream = await listen(**EVERYTHING)
        await sync_to_async(elsewhere)()
        assert await told(stream, 1) == [("tools/list_changed", None)]
        await sync_to_async(notify("prompts"))()
        assert await told(stream, 1) == [("prompts/list_changed", None)]
        await stream.aclose()

    run(scenario)


@pytest.mark.parametrize("version", wire.HANDSHAKE)
def test_a_session_is_told_of_every_list_and_of_the_resources_that_it_subscribed_to(version: str) -> None:
    async def scenario() -> None:
        for uri in ("shop://orders/1", "shop://orders/2", "shop://secret"):
            assert (await ask(version, "resources/subscribe", {"uri": uri}, "s"))["result"] == {}
        assert (await ask(version, "resources/unsubscribe", {"uri": "shop://orders/2"}, "s"))["result"] == {}
        stream, another = await open_stream(version, "s"), await open_stream(version, "another")
        await sync_to_async(notify("secret", "other order", "order", "tools"))()
        assert await told(stream, 2) == [("resources/updated", "shop://orders/1"), ("tools/list_changed", None)]
        assert await told(another, 1) == [("tools/list_changed", None)]
        await stream.aclose()
        await another.aclose()

    run(scenario)


@pytest.mark.parametrize("version", wire.HANDSHAKE)
def test_a_subscription_without_a_session_is_refused(version: str) -> None:
    async def scenario() -> None:
        error = (await ask(version, "resources/subscribe", {"uri": "shop://orders/1"}))["error"]
        assert error["code"] == -32600

    run(scenario)


@pytest.mark.parametrize("version", wire.VERSIONS)
def test_the_capabilities_say_whether_changes_can_be_told(version: str, client: Client) -> None:
    """Under WSGI they cannot."""
    if version == wire.MODERN:
        method, params = "server/discover", wire.envelope()
    else:
        begun = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        method, params = "initialize", begun
    told: list[Any] = []

    async def scenario() -> None:
        told.append((await ask(version, method, params))["result"]["capabilities"])

    run(scenario)
    headers = wire.headers("t", method, None, version)
    response = client.post("/mcp", wire.message(method, params), headers.pop("Content-Type"), headers=headers)
    told.append(response.json()["result"]["capabilities"])
    for capabilities, can_listen in zip(told, (True, False), strict=True):
        assert capabilities["tools"]["listChanged"] is can_listen
        assert capabilities["prompts"]["listChanged"] is can_listen
        assert capabilities["resources"] == {"listChanged": can_listen, "subscribe": can_listen}


def test_under_wsgi_nobody_listens(client: Client) -> None:
    body, headers = listening(EVERYTHING)
    response = client.post("/mcp", body, headers.pop("Content-Type"), headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (404, -32601)

    headers = {**wire.headers("t", "", None, "2025-11-25"), "Mcp-Session-Id": "s"}
    assert client.get("/mcp", headers=headers).status_code == 405


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Accept": "application/json"}, 406),
        ({"MCP-Protocol-Version": wire.MODERN}, 405),
        ({"Last-Event-ID": "made-up.0"}, 404),
        ({"Last-Event-ID": "nonsense"}, 404),
        ({"Last-Event-ID": "made-up." + "9" * 5000}, 404),
        ({"Origin": "https://evil.example"}, 403),
    ],
)
def test_a_stream_that_cannot_be_opened(changed: dict[str, str], status: int) -> None:
    async def scenario() -> None:
        headers = {**wire.headers("t", "", None, "2025-11-25"), **changed}
        assert (await get(headers)).status_code == status

    run(scenario)


def test_an_idle_stream_says_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "QUIET_SECONDS", 0.01)

    async def scenario() -> None:
        response = await get(wire.headers("t", "", None, "2025-11-25"))
        parts = aiter(response)
        assert [await anext(parts) for _ in range(3)] == [events.ALIVE] * 3
        response.close()

    run(scenario)


def test_a_stream_that_nobody_reads_keeps_each_change_once() -> None:
    async def scenario() -> None:
        stream = await listen(**EVERYTHING)
        await sync_to_async(notify(*["tools", "order"] * 1000))()
        await asyncio.sleep(0)
        assert await told(stream, 2) == [("tools/list_changed", None), ("resources/updated", "shop://orders/1")]
        await sync_to_async(notify("prompts"))()
        assert await told(stream, 1) == [("prompts/list_changed", None)]
        await stream.aclose()

    run(scenario)


def test_nothing_is_left_of_a_stream_that_was_never_begun() -> None:
    async def scenario() -> None:
        await post(*listening(EVERYTHING))
        while any(isinstance(left, Listening) for left in gc.get_objects()):
            await asyncio.sleep(0.01)
            gc.collect()

    run(scenario)


def test_nothing_is_left_of_a_stream_that_was_closed() -> None:
    async def scenario() -> None:
        stream = await listen(**EVERYTHING)
        await stream.aclose()
        del stream
        # The event loop has to come round to the generators.
        while any(isinstance(left, Listening) for left in gc.get_objects()):
            await asyncio.sleep(0.01)
            gc.collect()

    run(scenario)


@pytest.mark.parametrize("version", wire.HANDSHAKE)
def test_no_two_sessions_are_one(version: str) -> None:
    """Of the same client in the same second, neither."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}

    async def begin() -> str:
        response = await post(wire.message("initialize", params), wire.headers("t", "initialize", None, version))
        return str(response.headers["Mcp-Session-Id"])

    async def scenario() -> None:
        assert len({await begin() for _ in range(3)}) == 3

    run(scenario)
