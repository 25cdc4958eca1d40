"""The official clients at four processes that share a database and a Redis, and nothing else.

Each request has a connection of its own, so that it comes to any of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests import wire
from tests.e2e.node import SDK_CLIENT, Call, TypeScriptClient, inspect, typescript_client
from tests.e2e.servers import FOUR_WORKERS, Shop, shop
from tests.services import free_port, redis_url

# They are the same on every database; this is one that several processes may well share.
pytestmark = pytest.mark.vendor("postgresql")

PROJECT = "tests.e2e.clients"
EARLIER = {"SECRET_KEY": "that of an earlier server"}
NO_AFFINITY = {"Connection": "close"}

TYPESCRIPT = [SDK_CLIENT, "legacy", "auto", "2026-07-28"]
PYTHON = ["legacy", "auto", "2026-07-28"]

WORKERS = 4
ROUNDS = 10
AT_ONCE = 20


@pytest.fixture(scope="module")
def running() -> Iterator[Shop]:
    with shop(FOUR_WORKERS, project=PROJECT, REDIS_URL=redis_url()) as started:
        answered: set[int] = set()
        # Else the first that is ready would answer everything.
        while len(answered) < WORKERS:
            answered.add(started.call("process_id", {})["result"]["structuredContent"])
        yield started


@pytest.fixture(scope="module")
def stale() -> dict[str, str]:
    """The session that a server gave which is no more, and whose secret was another."""
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    with shop("uvicorn", project=PROJECT, **EARLIER) as earlier:
        sent = wire.message("initialize", client), wire.headers("demo-alice", "initialize", version="2025-11-25")
        return {"Mcp-Session-Id": earlier.post(*sent).headers["Mcp-Session-Id"]}


@asynccontextmanager
async def python_client(mode: str, url: str, headers: dict[str, str]) -> AsyncIterator[Client]:
    """The Python client, which sends these headers with every request, whatever it would send under these names."""

    async def insist(request: httpx2.Request) -> None:
        request.headers.update(headers)

    async def answer(context: object, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept", content={"name": "Alice"})

    async with httpx2.AsyncClient(
        headers={"Authorization": "Bearer demo-alice"}, event_hooks={"request": [insist]}, timeout=20
    ) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode, elicitation_callback=answer) as client:
            yield client


async def at_once(client: Client, tool: str) -> list[str]:
    """Call a tool without waiting in between. Returns the texts of the results, all of which are no errors."""
    results = await asyncio.gather(*(client.call_tool(tool) for _ in range(AT_ONCE)))
    assert not any(result.is_error for result in results)
    return [result.content[0].text for result in results]


def texts(answers: list[Any]) -> list[str]:
    """The texts of the results of calls, all of which are no errors."""
    assert [answer for answer in answers if "error" in answer or answer["result"]["isError"]] == []
    return [answer["result"]["content"][0]["text"] for answer in answers]


@pytest.mark.parametrize("kind", TYPESCRIPT)
def test_typescript_calls_go_to_any_process_with_a_stale_session(
    running: Shop, kind: str, stale: dict[str, str]
) -> None:
    answered: list[str] = []
    with typescript_client(kind, running.url, headers=NO_AFFINITY | stale) as client:
        for _ in range(ROUNDS):
            answered += texts(client.at_once(*_calls("process_id")))

    assert len(answered) == ROUNDS * AT_ONCE
    assert len(set(answered)) > 1


@pytest.mark.parametrize("mode", PYTHON)
def test_python_calls_go_to_any_process_with_a_stale_session(running: Shop, mode: str, stale: dict[str, str]) -> None:
    answered: list[str] = []

    async def converse() -> None:
        async with python_client(mode, running.url, NO_AFFINITY | stale) as client:
            for _ in range(ROUNDS):
                answered.extend(await at_once(client, "process_id"))

    asyncio.run(converse())
    assert len(answered) == ROUNDS * AT_ONCE
    assert len(set(answered)) > 1


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_inspector_calls_go_to_any_process(running: Shop, era: str, stale: dict[str, str], tmp_path: Path) -> None:
    """In the legacy era it insists on the session that it was given. It does not tell which processes answered."""
    headers = [f"--header={name}: {value}" for name, value in (NO_AFFINITY | stale).items()]
    call = ["--method", "tools/call", "--tool-name", "process_id", *headers]
    load = ["--load", f"--load-requests={ROUNDS * AT_ONCE}", f"--load-concurrency={AT_ONCE}"]

    summary = inspect(running.url, *call, *load, era=era, home=tmp_path)["result"]

    assert (summary["ok"], summary["toolErrors"], summary["errorMessages"]) == (ROUNDS * AT_ONCE, 0, [])


@pytest.mark.parametrize("kind", TYPESCRIPT)
def test_typescript_answers_reach_the_process_that_asks(running: Shop, kind: str) -> None:
    with typescript_client(kind, running.url, headers=NO_AFFINITY) as client:
        greeted = texts(client.at_once(*_calls("greet")))

    assert greeted == ["Hello, Alice!"] * AT_ONCE


@pytest.mark.parametrize("mode", PYTHON)
def test_python_answers_reach_the_process_that_asks(running: Shop, mode: str) -> None:
    async def converse() -> list[str]:
        async with python_client(mode, running.url, NO_AFFINITY) as client:
            return await at_once(client, "greet")

    assert asyncio.run(converse()) == ["Hello, Alice!"] * AT_ONCE


def test_a_restart_in_mid_conversation_is_no_error() -> None:
    """Nor that the server has another secret from then on, so that it knows no session."""
    port = free_port()

    with start_blocking_portal() as portal, ExitStack() as connected:
        with shop("uvicorn", project=PROJECT, port=port, **EARLIER) as earlier:
            typescript = [connected.enter_context(typescript_client(kind, earlier.url)) for kind in TYPESCRIPT]
            conversations = [portal.wrap_async_context_manager(python_client(mode, earlier.url, {})) for mode in PYTHON]
            python = [connected.enter_context(conversation) for conversation in conversations]
            before = _call(portal, typescript, python)
        with shop("uvicorn", project=PROJECT, port=port):
            after = _call(portal, typescript, python)

    assert len(before) == len(after) == (len(TYPESCRIPT) + len(PYTHON)) * AT_ONCE
    assert not set(before) & set(after)


def _call(portal: BlockingPortal, typescript: Sequence[TypeScriptClient], python: Sequence[Client]) -> list[str]:
    answered = [text for client in typescript for text in texts(client.at_once(*_calls("process_id")))]
    return answered + [text for client in python for text in portal.call(at_once, client, "process_id")]


def _calls(tool: str) -> list[Call]:
    return [("callTool", {"name": tool})] * AT_ONCE
