"""The official TypeScript clients: ``@modelcontextprotocol/sdk`` 1.x, and 2.x in each of its modes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import ANY

import pytest

from tests.e2e.node import SDK_CLIENT, TypeScriptClient, typescript_client
from tests.e2e.servers import Shop, shop

# They are the same on every database.
pytestmark = pytest.mark.vendor("sqlite")

AGREED = {SDK_CLIENT: "2025-11-25", "legacy": "2025-11-25", "auto": "2026-07-28", "2026-07-28": "2026-07-28"}


@pytest.fixture(scope="module")
def running() -> Iterator[Shop]:
    with shop("uvicorn", project="tests.e2e.clients") as started:
        yield started


@pytest.fixture(scope="module", params=AGREED)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(running: Shop, kind: str) -> Iterator[TypeScriptClient]:
    with typescript_client(kind, running.url) as connected:
        yield connected


def test_it_connects_and_keeps_what_it_is_told_of_keys(client: TypeScriptClient, kind: str) -> None:
    """R03"""
    about_keys = {
        "retentionSeconds": 86400,
        "keyIn": {"params": "idempotencyKey", "_meta": "django-mcp-idem/idempotencyKey"},
    }
    assert client.agreed["version"] == AGREED[kind]
    assert client.agreed["capabilities"]["extensions"]["django-mcp-idem/idempotency"] == about_keys
    assert client.agreed["capabilities"]["experimental"]["django-mcp-idem/idempotency"] == about_keys


def test_it_lists_and_calls_tools(client: TypeScriptClient) -> None:
    tools = {tool["name"]: tool for tool in client.call("listTools")["result"]["tools"]}
    assert tools["charge_payment"]["inputSchema"]["required"] == ["amount", "currency"]
    assert "staff_report" not in tools

    called = client.call("callTool", name="echo", arguments={"value": [1, None, "\u2028"]})
    assert called["result"]["content"] == [{"type": "text", "text": '[1,null,"\u2028"]'}]


def test_a_key_is_an_extra_field_of_a_call(running: Shop, client: TypeScriptClient, kind: str) -> None:
    """R06, R07"""
    before = running.effects()["payments"]

    def charge(amount: int) -> Any:
        arguments = {"amount": amount, "currency": "EUR"}
        return client.call("callTool", name="charge_payment", arguments=arguments, idempotencyKey=kind)

    first, retry, other = charge(5)["result"], charge(5)["result"], charge(6)["error"]

    assert first["structuredContent"]["amount"] == 5
    mark = {"django-mcp-idem/replayed": {"completedAt": ANY}}
    assert retry == {**first, "_meta": {**first.get("_meta", {}), **mark}}
    assert other["code"] == -32602
    assert other["data"] == {"type": "idempotency_key_conflict", "idempotencyKey": kind}
    assert running.effects()["payments"] == before + 1


def test_it_answers_a_question(client: TypeScriptClient, kind: str) -> None:
    """On the stream of the call in 2025-11-25, and with a second call in 2026-07-28; with a key as without one."""
    greeted = client.call("callTool", name="greet", arguments={}, idempotencyKey=f"greet {kind}")
    assert greeted["result"]["content"] == [{"type": "text", "text": "Hello, Alice!"}]


def test_it_gets_prompts_and_reads_resources(running: Shop, client: TypeScriptClient) -> None:
    paid = running.call("charge_payment", {"amount": 7, "currency": "EUR"})["result"]["structuredContent"]["payment_id"]

    (prompt,) = client.call("listPrompts")["result"]["prompts"]
    got = client.call("getPrompt", name=prompt["name"], arguments={"payment_id": str(paid)})
    reference = {"type": "ref/prompt", "name": prompt["name"]}
    completed = client.call("complete", ref=reference, argument={"name": "currency", "value": "e"})
    assert got["result"]["messages"][0]["content"]["text"].startswith(f"Read shop://payments/{paid} ")
    assert completed["result"]["completion"]["values"] == ["EUR"]

    (terms,) = client.call("listResources")["result"]["resources"]
    (template,) = client.call("listResourceTemplates")["result"]["resourceTemplates"]
    read = client.call("readResource", uri=f"shop://payments/{paid}")
    missing = client.call("readResource", uri="shop://payments/0")
    assert (terms["uri"], template["uriTemplate"]) == ("shop://terms", "shop://payments/{payment_id}")
    assert read["result"]["contents"][0]["mimeType"] == "application/json"
    assert missing["error"]["data"] == {"uri": "shop://payments/0"}
