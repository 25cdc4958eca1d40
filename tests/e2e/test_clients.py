"""The official Python client, in each of its modes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import httpx2
import mcp_types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.e2e.servers import Shop, shop

# The typed params of the client drop a field that they do not know; a request of one's own sends it.
KeyedCall = mcp_types.Request[dict[str, Any], Literal["tools/call"]]


@pytest.fixture(scope="module")
def running() -> Iterator[Shop]:
    with shop("uvicorn") as started:
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
            about_keys = {"retentionSeconds": 86400, "keyIn": {"params": "idempotencyKey"}}
            if mode != "2026-07-28":  # With the version given, the client does not ask what there is.
                assert (client.server_capabilities.extensions or {})["django-mcp-idem/idempotency"] == about_keys
                assert (client.server_capabilities.experimental or {})["django-mcp-idem/idempotency"] == about_keys
            first, retry = await charge(5), await charge(5)
            assert first.structured_content == retry.structured_content
            assert "django-mcp-idem/replayed" not in (first.meta or {})
            assert "completedAt" in (retry.meta or {})["django-mcp-idem/replayed"]
            assert first.structured_content["amount"] == 5
            with pytest.raises(MCPError) as refused:
                await charge(6)
            assert refused.value.data == {"type": "idempotency_key_conflict", "idempotencyKey": mode}
            unkeyed = await client.call_tool("echo", {"value": [1, None]})
            assert unkeyed.content[0].text == "[1,null]"

    asyncio.run(converse())
    assert running.effects()["payments"] == before + 1


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
