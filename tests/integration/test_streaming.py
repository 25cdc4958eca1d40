"""A response as it comes about: what a body reports is sent before its result (R17)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import StreamingHttpResponse
from django.test import Client

from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.transport import events
from tests import wire
from tests.app import mcp_tools
from tests.app.models import Effect
from tests.factories import TokenFactory
from tests.loops import post, read, run

pytestmark = pytest.mark.django_db(transaction=True)

TOOLS = ["reports", "reports_atomic", "reports_async"]
KEYS = [None, "k"]

PROGRESS = [
    {"progressToken": 7, "progress": 1},
    {"progressToken": 7, "progress": 2.5, "total": 5, "message": "half of it"},
]
LOG = [
    {"level": "debug", "logger": "till", "data": "begun"},
    {"level": "warning", "data": {"left": [None, 2**70]}},
]


def request(name: str, key: str | None = None, version: str = wire.MODERN, **meta: Any) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a call."""
    params = wire.call_params(name, {}, version, **({} if key is None else {"idempotencyKey": key}))
    params["_meta"] = {**params.get("_meta", {}), **meta}
    return wire.message("tools/call", params, "id"), wire.headers("t", "tools/call", name, version)


@pytest.fixture(autouse=True)
def token(user: User) -> None:
    TokenFactory(user=user, text="t")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("version", wire.VERSIONS)
def test_what_a_body_reports_is_sent_in_order_and_before_its_result(name: str, key: str | None, version: str) -> None:
    """R17: a retry is told the result, and none of it."""
    asked = {"progressToken": 7, "io.modelcontextprotocol/logLevel": "debug"}

    async def scenario() -> None:
        response = await post(*request(name, key, version, **asked))
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["X-Accel-Buffering"] == "no"
        assert response.headers["Cache-Control"] == "no-cache, no-transform"
        *reports, reply = wire.messages(await read(response))
        assert [report["params"] for report in reports] == [PROGRESS[0], LOG[0], PROGRESS[1], LOG[1]]
        methods = ["notifications/progress", "notifications/message"] * 2
        assert [report["method"] for report in reports] == methods
        assert reply["id"] == "id"
        assert reply["result"]["content"][0]["text"] == "reported\u2028"
        if key is not None:
            retry = await post(*request(name, key, version, **asked))
            assert json.loads(await read(retry))["result"]["content"] == reply["result"]["content"]

    run(scenario)
    assert Effect.objects.count() == 1
    assert IdempotencyRecord.objects.count() == (key is not None)


@pytest.mark.parametrize(
    ("meta", "sent"),
    [
        ({"progressToken": 7}, PROGRESS),
        ({"io.modelcontextprotocol/logLevel": "debug"}, LOG),
        ({"io.modelcontextprotocol/logLevel": "info"}, LOG[1:]),
        ({"io.modelcontextprotocol/logLevel": "error"}, []),
        ({}, []),
    ],
)
def test_nothing_is_sent_that_was_not_asked_for(meta: dict[str, Any], sent: list[dict[str, Any]]) -> None:
    async def scenario() -> None:
        response = await post(*request("reports", **meta))
        if sent:
            *reports, _ = wire.messages(await read(response))
            assert [report["params"] for report in reports] == sent
        else:
            assert response.headers["Content-Type"] == "application/json"

    run(scenario)


def test_a_client_that_takes_no_stream_is_sent_the_result_alone() -> None:
    async def scenario() -> None:
        body, headers = request("reports", progressToken=7)
        response = await post(body, {**headers, "Accept": "application/json"})
        assert json.loads(await read(response))["result"]["isError"] is False

    run(scenario)


def test_under_wsgi_the_stream_is_sent_when_it_is_whole(client: Client) -> None:
    body, headers = request("reports", progressToken=7)

    response = client.post("/mcp", body, headers.pop("Content-Type"), headers=headers)

    assert response["Content-Type"] == "text/event-stream"
    *reports, reply = wire.messages(response.content)
    assert [report["params"] for report in reports] == PROGRESS
    assert reply["result"]["isError"] is False


def test_a_quiet_call_begins_its_stream_and_says_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a proxy takes it for dead."""
    monkeypatch.setattr(events, "QUIET_SECONDS", 0.01)
    go_on = asyncio.Event()
    mcp_tools.wait_for[:] = [go_on.wait]

    async def scenario() -> None:
        body, headers = request("waits_external")
        body = body.replace(b'"arguments": {}', b'"arguments": {"label": "a"}')
        response = await post(body, headers)
        assert isinstance(response, StreamingHttpResponse)
        parts = aiter(response)
        assert [await anext(parts), await anext(parts)] == [events.ALIVE] * 2
        go_on.set()
        last = [part async for part in parts][-1]
        assert wire.messages(last)[0]["result"]["isError"] is False

    run(scenario)


@pytest.mark.parametrize("version", wire.VERSIONS)
def test_a_response_that_is_never_begun_leaves_no_call_behind(version: str) -> None:
    """R24: as when the client goes away at that very moment, with nothing that it could come back with."""
    body, headers = request("waits_external", None, version, progressToken=7)
    body = body.replace(b'"arguments": {}', b'"arguments": {"label": "a"}')
    cancelled = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    mcp_tools.wait_for[:] = [wait]

    async def scenario() -> None:
        response = await post(body, headers)
        response.close()
        await asyncio.wait_for(cancelled.wait(), timeout=10)

    run(scenario)


@pytest.mark.parametrize("version", wire.HANDSHAKE)
def test_a_session_gets_log_messages_from_the_level_on_that_it_set(version: str) -> None:
    async def scenario() -> None:
        for session, level in (("one", "warning"), ("two", "error")):
            headers = {**wire.headers("t", "logging/setLevel", None, version), "Mcp-Session-Id": session}
            answered = await post(wire.message("logging/setLevel", {"level": level}), headers)
            assert json.loads(await read(answered))["result"] == {}
        body, headers = request("reports", None, version)
        warned = await post(body, {**headers, "Mcp-Session-Id": "one"})
        silent = await post(body, {**headers, "Mcp-Session-Id": "two"})
        *reports, _ = wire.messages(await read(warned))
        assert [report["params"] for report in reports] == LOG[1:]
        assert silent.headers["Content-Type"] == "application/json"

    run(scenario)
