"""A client that is asked in mid-call, in the handshake versions: on the stream of the call, by any process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse, StreamingHttpResponse
from django.test import Client
from pytest_django import Settings as DjangoSettings

from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.states import State
from tests import wire
from tests.app.models import Effect
from tests.factories import TokenFactory, UserFactory
from tests.loops import get, post, read, run

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.parametrize("version", wire.HANDSHAKE),
]

ANSWER = {"result": {"action": "accept", "content": {"name": "Alice"}}}
REFUSAL = {"error": {"code": -1, "message": "The user closed the window."}}


@pytest.fixture(params=[None, "locks"], ids=["in memory", "in Redis"], autouse=True)
def shared_cache(request: pytest.FixtureRequest, settings: DjangoSettings, user: User) -> None:
    settings.MCP_IDEM = {"LOCK_CACHE": request.param}
    TokenFactory(user=user, text="t")
    TokenFactory(user=UserFactory(), text="another's")


def call(version: str, session: str, key: str | None) -> tuple[bytes, dict[str, str]]:
    keyed = {} if key is None else {"idempotencyKey": key}
    params = wire.call_params("asks_for_name", {"label": "a"}, version, **keyed)
    headers = {**wire.headers("t", "tools/call", "asks_for_name", version), "Mcp-Session-Id": session}
    return wire.message("tools/call", params, "call"), headers


def begin(version: str, **capabilities: Any) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}


async def begin_session(version: str, **capabilities: Any) -> str:
    params = begin(version, **capabilities)
    response = await post(wire.message("initialize", params), wire.headers("t", "initialize", None, version))
    return str(response.headers["Mcp-Session-Id"])


async def send_answer(version: str, question_id: str, answer: dict[str, Any], token: str = "t") -> int:
    body = json.dumps({"jsonrpc": "2.0", "id": question_id, **answer}).encode()
    return (await post(body, wire.headers(token, "", None, version))).status_code


async def messages(response: HttpResponse | StreamingHttpResponse) -> AsyncGenerator[dict[str, Any], None]:
    assert isinstance(response, StreamingHttpResponse)
    async with aclosing(aiter(response)) as parts:
        async for part in parts:
            for message in wire.messages(part):
                yield message


@pytest.mark.parametrize("key", [None, "k"])
def test_the_body_goes_on_with_the_answer(version: str, key: str | None) -> None:
    """R06: the result is recorded whole, and a retry asks nothing."""

    async def scenario() -> None:
        session = await begin_session(version, elicitation={})
        stream = messages(await post(*call(version, session, key)))
        question = await anext(stream)
        assert (question["method"], question["params"]["message"]) == ("elicitation/create", "What is your name?")

        assert await send_answer(version, question["id"], ANSWER) == 202

        reply = await anext(stream)
        assert (reply["id"], reply["result"]["content"][0]["text"]) == ("call", "Alice for a")
        if key is not None:
            retry = json.loads(await read(await post(*call(version, session, key))))
            assert retry["result"] == reply["result"]

    run(scenario)
    assert Effect.objects.count() == 1


def test_nobody_else_can_answer(version: str) -> None:
    """R18: whoever knows its id."""

    async def scenario() -> None:
        session = await begin_session(version, elicitation={})
        stream = messages(await post(*call(version, session, None)))
        question = await anext(stream)

        forged = {"result": {"action": "accept", "content": {"name": "Mallory"}}}
        assert await send_answer(version, question["id"], forged, token="another's") == 202
        assert await send_answer(version, question["id"], ANSWER) == 202

        assert (await anext(stream))["result"]["content"][0]["text"] == "Alice for a"

    run(scenario)


def test_an_answer_to_no_question_is_dropped(version: str) -> None:
    async def scenario() -> None:
        assert await send_answer(version, "mcp-idem-made-up", ANSWER) == 202

    run(scenario)


def test_a_client_that_answers_with_an_error_fails_the_call(version: str) -> None:
    async def scenario() -> None:
        session = await begin_session(version, elicitation={})
        stream = messages(await post(*call(version, session, None)))

        await send_answer(version, (await anext(stream))["id"], REFUSAL)

        error = (await anext(stream))["error"]
        assert (error["code"], error["message"]) == (-1, "The user closed the window.")

    run(scenario)
    assert not Effect.objects.exists()


def test_a_client_that_went_away_can_come_back_and_answer(version: str) -> None:
    """R24: on a stream that goes on where it broke off."""

    async def scenario() -> None:
        session = await begin_session(version, elicitation={})
        broken = await post(*call(version, session, None))
        parts = aiter(broken)
        first = wire.events(await anext(parts))[0]
        await parts.aclose()
        broken.close()

        resumed = messages(await get({**call(version, session, None)[1], "Last-Event-ID": first["id"].decode()}))
        if not first["data"]:
            first["data"] = json.dumps(await anext(resumed)).encode()
        await send_answer(version, json.loads(first["data"])["id"], ANSWER)

        assert (await anext(resumed))["result"]["content"][0]["text"] == "Alice for a"

    run(scenario)


def test_a_client_that_goes_away_is_waited_for_no_longer_than_a_body_may_run(
    version: str, settings: DjangoSettings
) -> None:
    """R24, R25: its call ends, and its key is not stuck."""
    settings.MCP_IDEM = {**settings.MCP_IDEM, "MAX_RUNTIME": timedelta(seconds=1)}

    async def scenario() -> None:
        session = await begin_session(version, elicitation={})
        stream = messages(await post(*call(version, session, "k")))
        await anext(stream)
        await stream.aclose()
        while await IdempotencyRecord.objects.filter(state=State.RUNNING).aexists():
            await asyncio.sleep(0.02)

    run(scenario)
    assert IdempotencyRecord.objects.get().ending == "protocol_error"
    assert not Effect.objects.exists()


def test_a_client_is_asked_for_nothing_that_it_does_not_support(version: str) -> None:
    async def scenario() -> None:
        session = await begin_session(version, sampling={})
        error = json.loads(await read(await post(*call(version, session, None))))["error"]
        assert error["data"] == {"requiredCapabilities": {"elicitation": {}}}

    run(scenario)


def test_a_client_of_an_unknown_session_is_asked_for_nothing(version: str) -> None:
    """What it supports was said in that session."""

    async def scenario() -> None:
        error = json.loads(await read(await post(*call(version, "stale", None))))["error"]
        assert error["data"] == {"requiredCapabilities": {"elicitation": {}}}

    run(scenario)


def test_under_wsgi_nothing_can_be_asked(version: str, client: Client) -> None:
    """And the caller is told so."""
    params = {
        "protocolVersion": version,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "c", "version": "1"},
    }
    headers = wire.headers("t", "initialize", None, version)
    content_type = headers.pop("Content-Type")
    session = client.post("/mcp", wire.message("initialize", params), content_type, headers=headers)["Mcp-Session-Id"]
    body, headers = call(version, session, None)

    response = client.post("/mcp", body, headers.pop("Content-Type"), headers=headers)

    assert response.json()["error"]["code"] == -32600
