"""The official Python client, in each of its modes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal
from unittest.mock import ANY

import httpx2
import mcp_types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.e2e.servers import Shop, shop

# They are the same on every database.
pytestmark = pytest.mark.vendor("sqlite")

# The typed params of the client drop a field that they do not know; a request of one's own sends it.
KeyedCall = mcp_types.Request[dict[str, Any], Literal["tools/call"]]


@pytest.fixture(scope="module")
def running() -> Iterator[Shop]:
    with shop("uvicorn", project="tests.e2e.clients") as started:
        yield started


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_the_official_client_lists_calls_and_retries(running: Shop, mode: str) -> None:
    """R03, R06, R07: as a client of today sends a key, and what it keeps of what it is told."""
    before = running.effects()["payments"]

    async def converse() -> None:
        async with (
            httpx2.AsyncClient(headers={"Authorization": "Bearer demo-alice"}) as http,
            Client(streamable_http_client(running.url, http_client=http), mode=mode) as client,
        ):

            async def charge(amount: int) -> mcp_types.CallToolResult:
                arguments = {"amount": amount, "currency": "EUR"}
                params = {"name": "charge_payment", "arguments": arguments, "idempotencyKey": mode}
                call = KeyedCall(method="tools/call", params=params)
                return await client.session.send_request(call, mcp_types.CallToolResult)

            listed = await client.list_tools()
            assert "charge_payment" in {tool.name for tool in listed.tools}
            assert "staff_report" not in {tool.name for tool in listed.tools}
            places = {"params": "idempotencyKey", "_meta": "django-mcp-idem/idempotencyKey"}
            about_keys = {"retentionSeconds": 86400, "keyIn": places}
            if mode != "2026-07-28":  # With the version given, the client does not ask what there is.
                assert (client.server_capabilities.extensions or {})["django-mcp-idem/idempotency"] == about_keys
                assert (client.server_capabilities.experimental or {})["django-mcp-idem/idempotency"] == about_keys
            first, retry = await charge(5), await charge(5)
            mark = {"django-mcp-idem/replayed": {"completedAt": ANY}}
            assert retry.model_dump(exclude={"meta"}) == first.model_dump(exclude={"meta"})
            assert retry.meta == {**(first.meta or {}), **mark}
            assert first.structured_content["amount"] == 5
            with pytest.raises(MCPError) as refused:
                await charge(6)
            assert refused.value.data == {"type": "idempotency_key_conflict", "idempotencyKey": mode}
            unkeyed = await client.call_tool("echo", {"value": [1, None]})
            assert unkeyed.content[0].text == "[1,null]"

    asyncio.run(converse())
    assert running.effects()["payments"] == before + 1


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_the_official_client_sends_a_key_in_meta(running: Shop, mode: str) -> None:
    """R06: with its own method, where the site takes keys from there."""
    before = running.effects()["payments"]

    async def converse() -> None:
        async with (
            httpx2.AsyncClient(headers={"Authorization": "Bearer demo-alice"}) as http,
            Client(streamable_http_client(running.url, http_client=http), mode=mode) as client,
        ):
            arguments, key = {"amount": 8, "currency": "EUR"}, {"django-mcp-idem/idempotencyKey": f"meta {mode}"}
            first = await client.call_tool("charge_payment", arguments, meta=key)
            retry = await client.call_tool("charge_payment", arguments, meta=key)
            assert first.structured_content == retry.structured_content
            assert "django-mcp-idem/replayed" in (retry.meta or {})

    asyncio.run(converse())
    assert running.effects()["payments"] == before + 1


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_the_official_client_answers_a_question(running: Shop, mode: str) -> None:
    """On the stream of the call in 2025-11-25, and with a second call in 2026-07-28; with a key as without one."""
    asked = []

    async def answer(context: object, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        asked.append(params.message)
        return mcp_types.ElicitResult(action="accept", content={"name": "Alice"})

    async def converse() -> None:
        async with (
            httpx2.AsyncClient(headers={"Authorization": "Bearer demo-alice"}) as http,
            Client(
                streamable_http_client(running.url, http_client=http), mode=mode, elicitation_callback=answer
            ) as client,
        ):
            greeted = await client.call_tool("greet", meta={"django-mcp-idem/idempotencyKey": f"greet {mode}"})
            assert greeted.content[0].text == "Hello, Alice!"

    asyncio.run(converse())
    assert asked == ["What is your name?"]


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_the_official_client_gets_prompts_and_reads_resources(running: Shop, mode: str) -> None:
    paid = running.call("charge_payment", {"amount": 7, "currency": "EUR"})["result"]["structuredContent"]["payment_id"]

    async def converse() -> None:
        async with (
            httpx2.AsyncClient(headers={"Authorization": "Bearer demo-alice"}) as http,
            Client(streamable_http_client(running.url, http_client=http), mode=mode) as client,
        ):
            (listed,) = (await client.list_prompts()).prompts
            assert (listed.name, listed.title) == ("ask_about_payment", "Ask about a payment")
            got = await client.get_prompt("ask_about_payment", {"payment_id": str(paid)})
            assert got.messages[0].content.text.startswith(f"Read shop://payments/{paid} ")
            prompt = mcp_types.PromptReference(name="ask_about_payment")
            completed = await client.complete(prompt, {"name": "currency", "value": "e"})
            assert completed.completion.values == ["EUR"]

            assert [resource.uri for resource in (await client.list_resources()).resources] == ["shop://terms"]
            (terms,) = (await client.read_resource("shop://terms")).contents
            assert terms.mime_type == "text/markdown"
            (template,) = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "shop://payments/{payment_id}"
            (payment,) = (await client.read_resource(f"shop://payments/{paid}")).contents
            assert json.loads(payment.text) == {"payment_id": paid, "amount": 7, "currency": "EUR"}
            with pytest.raises(MCPError, match="Resource not found") as refused:
                await client.read_resource("shop://payments/0")
            assert refused.value.data == {"uri": "shop://payments/0"}

    asyncio.run(converse())
