"""A stream that broke off, and a client of the handshake versions that comes back to it (``Last-Event-ID``)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse, StreamingHttpResponse
from pytest_django import Settings as DjangoSettings

from django_mcp_idem.transport import events, recordings
from tests import wire
from tests.app import mcp_tools
from tests.app.models import Effect
from tests.factories import TokenFactory, UserFactory
from tests.loops import get, post, read, run
from tests.services import free_port

pytestmark = pytest.mark.django_db(transaction=True)

PRIMED = "2025-11-25"


@pytest.fixture(params=[None, "locks"], ids=["in memory", "in Redis"], autouse=True)
def shared_cache(request: pytest.FixtureRequest, settings: DjangoSettings, user: User) -> None:
    settings.MCP_IDEM = {"LOCK_CACHE": request.param}
    TokenFactory(user=user, text="t")
    TokenFactory(user=UserFactory(), text="another's")


def call(name: str, version: str, key: str | None = None, **arguments: Any) -> tuple[bytes, dict[str, str]]:
    params = wire.call_params(name, arguments, version, **({} if key is None else {"idempotencyKey": key}))
    params["_meta"] = {"progressToken": 7}
    return wire.message("tools/call", params, "call"), wire.headers("t", "tools/call", name, version)


async def begin(name: str, version: str, key: str | None = None, **arguments: Any) -> StreamingHttpResponse:
    response = await post(*call(name, version, key, **arguments))
    assert isinstance(response, StreamingHttpResponse)
    return response


async def resume(version: str, event_id: bytes, token: str = "t") -> HttpResponse | StreamingHttpResponse:
    return await get({**wire.headers(token, "", None, version), "Last-Event-ID": event_id.decode()})


@pytest.mark.parametrize("version", wire.HANDSHAKE)
def test_every_event_has_an_identifier_and_what_followed_it_is_sent_again(version: str) -> None:
    async def scenario() -> None:
        sent = wire.events(await read(await begin("reports", version)))
        identifiers = [event["id"] for event in sent]
        assert len(set(identifiers)) == len(sent) >= 3
        for at, identifier in enumerate(identifiers):
            again = wire.events(await read(await resume(version, identifier)))
            assert [(event["id"], event["data"]) for event in again] == [
                (event["id"], event["data"]) for event in sent[at + 1 :]
            ]

    run(scenario)


@pytest.mark.parametrize("version", wire.HANDSHAKE)
def test_a_stream_begins_with_an_event_without_data_for_clients_that_know_it(version: str) -> None:
    async def scenario() -> None:
        first = wire.events(await read(await begin("reports", version)))[0]
        if version == PRIMED:
            assert (first["data"], first["retry"]) == (b"", b"%d" % events.RETRY_MS)
        else:
            assert first["data"].startswith(b"{")

    run(scenario)


def test_what_a_session_agreed_on_counts_and_not_the_header() -> None:
    begun = {"protocolVersion": PRIMED, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}

    async def scenario() -> None:
        response = await post(wire.message("initialize", begun), wire.headers("t", "initialize", None, PRIMED))
        body, headers = call("reports", "2025-03-26")
        stream = await post(body, {**headers, "Mcp-Session-Id": response.headers["Mcp-Session-Id"]})
        assert wire.events(await read(stream))[0]["data"] == b""

    run(scenario)


def test_since_2026_07_28_there_is_nothing_to_come_back_to() -> None:
    async def scenario() -> None:
        params = wire.call_params("reports", {})
        params["_meta"]["progressToken"] = 7
        stream = await post(wire.message("tools/call", params), wire.headers("t", "tools/call", "reports"))
        assert all("id" not in event for event in wire.events(await read(stream)))

    run(scenario)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("name", ["reports", "reports_async"])
def test_a_call_goes_on_without_its_client_and_is_told_when_it_is_back(name: str, key: str | None) -> None:
    """R24: before 2026-07-28 a client that disconnects has not cancelled."""

    async def scenario() -> None:
        broken = await begin(name, PRIMED, key)
        first = wire.events(await anext(aiter(broken)))[0]
        broken.close()
        *reports, reply = wire.messages(await read(await resume(PRIMED, first["id"])))
        assert [report["params"]["progress"] for report in reports if "progress" in report["params"]] == [1, 2.5]
        assert reply["result"]["isError"] is False

    run(scenario)
    assert Effect.objects.count() == 1


def test_a_body_can_have_the_client_hang_up_and_come_back() -> None:
    async def scenario() -> None:
        sent = wire.events(await read(await begin("hangs_up", PRIMED)))
        assert [event["data"] for event in sent] == [b""]
        (reply,) = wire.messages(await read(await resume(PRIMED, sent[0]["id"])))
        assert reply["result"]["content"][0]["text"] == "done"

    run(scenario)


def test_where_the_client_cannot_come_back_it_is_not_hung_up_on() -> None:
    async def scenario() -> None:
        params = wire.call_params("hangs_up", {})
        response = await post(wire.message("tools/call", params), wire.headers("t", "tools/call", "hangs_up"))
        assert isinstance(response, HttpResponse)
        assert b"done" in response.content

    run(scenario)


def test_another_caller_finds_nothing() -> None:
    """R18: whoever knows the identifier."""

    async def scenario() -> None:
        sent = wire.events(await read(await begin("reports", PRIMED)))
        assert (await resume(PRIMED, sent[0]["id"], token="another's")).status_code == 404

    run(scenario)


def test_a_stream_that_is_resumed_says_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "QUIET_SECONDS", 0.01)
    go_on = asyncio.Event()
    mcp_tools.wait_for[:] = [go_on.wait]

    async def scenario() -> None:
        broken = await begin("waits_external", PRIMED, label="a")
        first = wire.events(await anext(aiter(broken)))[0]
        broken.close()
        parts = aiter(await resume(PRIMED, first["id"]))
        report = [await anext(parts), await anext(parts)]
        assert [report[0], await anext(parts), await anext(parts)] == [events.ALIVE] * 3
        assert wire.messages(report[1])[0]["params"]["progress"] == 1
        go_on.set()
        rest = b"".join([part async for part in parts if part != events.ALIVE])
        assert wire.messages(rest)[-1]["result"]["isError"] is False

    run(scenario)


def test_a_stream_can_be_come_back_to_for_as_long_as_its_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "KEPT_SECONDS", 1)
    monkeypatch.setattr(events, "QUIET_SECONDS", 0.1)
    mcp_tools.wait_for[:] = [partial(asyncio.sleep, 2)]

    async def scenario() -> None:
        broken = await begin("waits_external", "2025-06-18", label="a")
        first = wire.events(await anext(aiter(broken)))[0]
        broken.close()
        await asyncio.sleep(1.5)
        (reply,) = wire.messages(await read(await resume("2025-06-18", first["id"])))
        assert reply["result"]["isError"] is False

    run(scenario)


@pytest.mark.parametrize("shared_cache", ["locks"], indirect=True)
def test_without_redis_a_stream_is_sent_all_the_same(settings: DjangoSettings) -> None:
    """R26"""
    location = f"redis://127.0.0.1:{free_port()}/0"
    settings.CACHES = {**settings.CACHES, "locks": {**settings.CACHES["locks"], "LOCATION": location}}

    async def scenario() -> None:
        *reports, reply = wire.messages(await read(await begin("reports", PRIMED)))
        assert reports
        assert reply["result"]["isError"] is False

    run(scenario)


@pytest.mark.parametrize("shared_cache", ["locks"], indirect=True)
def test_without_redis_a_client_that_hangs_up_has_cancelled(settings: DjangoSettings) -> None:
    """R24: nobody can come back to it."""
    location = f"redis://127.0.0.1:{free_port()}/0"
    settings.CACHES = {**settings.CACHES, "locks": {**settings.CACHES["locks"], "LOCATION": location}}
    cancelled = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    mcp_tools.wait_for[:] = [wait]

    async def scenario() -> None:
        broken = await begin("waits_external", PRIMED, label="a")
        await anext(aiter(broken))
        broken.close()
        await asyncio.wait_for(cancelled.wait(), timeout=10)

    run(scenario)
