"""What a retry gets (R06): the recorded result, whatever it was, and no second run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from mcp.shared.exceptions import MCPError

from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests import wire
from tests.app.models import Effect
from tests.factories import TokenFactory

pytestmark = pytest.mark.django_db

ODD_VALUES: dict[str, Any] = {
    "null": None,
    "zero": 0,
    "false": False,
    "empty string": "",
    "empty array": [],
    "empty object": {},
    "NUL": "a\u0000b",
    "above 64 bits": 2**70,
    "2^64 + 1 beside a float": [2**64 + 1, 0.1],
    "negative zero": -0.0,
    "large float": 1e308,
    "1e23": 1e23,
    "astral": "\U0001f600 \u2028",
    "nulls inside": {"a": None, "b": [None, {"c": None}]},
    "names of ours": {"_meta": 1, "isError": True, "structuredContent": None},
    "deep": json.loads("[" * 80 + "]" * 80),
}


@pytest.mark.parametrize("name", ["atomic", "atomic_async", "external", "external_async", "rerun_safe"])
def test_a_retry_gets_the_first_result_and_runs_nothing(user: User, lock_cache: str | None, name: str) -> None:
    """R06"""
    client = mcp_client(user)

    first = client.call_tool(name, {"label": "a"}, key="k")
    retry = client.call_tool(name, {"label": "a"}, key="k")

    assert retry == first
    assert not first.is_error
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("version", wire.VERSIONS)
@pytest.mark.parametrize("value", ODD_VALUES.values(), ids=ODD_VALUES)
def test_an_odd_result_is_replayed_byte_for_byte(client: Client, user: User, value: Any, version: str) -> None:
    """R06: everything but the JSON-RPC id is the same, and the value is what the tool returned."""
    TokenFactory(user=user, text="t")
    sent = wire.headers("t", "tools/call", "echo", version)
    params = wire.call_params("echo", {"value": value}, version, idempotencyKey="k")

    first = client.post("/mcp", wire.message("tools/call", params, 1), "application/json", headers=sent)
    retry = client.post("/mcp", wire.message("tools/call", params, "second"), "application/json", headers=sent)

    assert retry.content == first.content.replace(b'"id":1', b'"id":"second"', 1)
    assert retry.status_code == first.status_code == 200
    structured = json.loads(retry.content)["result"]["structuredContent"]
    wrapped = version != wire.MODERN and not isinstance(value, dict)
    assert repr(structured) == repr({"result": value} if wrapped else value)
    assert Effect.objects.count() == 1


def test_images_audio_and_resource_links_are_replayed_byte_for_byte(client: Client, user: User) -> None:
    """R06"""
    TokenFactory(user=user, text="t")
    sent = wire.headers("t", "tools/call", "contents")
    params = wire.call_params("contents", {}, idempotencyKey="k")

    first = client.post("/mcp", wire.message("tools/call", params, 1), "application/json", headers=sent)
    retry = client.post("/mcp", wire.message("tools/call", params, 1), "application/json", headers=sent)

    assert retry.content == first.content
    result = json.loads(first.content)["result"]
    assert [block["type"] for block in result["content"]] == ["text", "image", "audio", "resource_link"]
    assert result["structuredContent"] == {"any": [None, -0.0, 2**70]}
    assert result["_meta"]["shop.example/trace"] == "t"
    assert Effect.objects.count() == 1


def test_a_result_recorded_for_one_version_is_replayed_in_another(client: Client, user: User) -> None:
    """R06: what is stored is filtered for the version of the retry."""
    TokenFactory(user=user, text="t")

    def call(version: str) -> Any:
        params = wire.call_params("echo", {"value": [1]}, version, idempotencyKey="k")
        body = wire.message("tools/call", params)
        sent = wire.headers("t", "tools/call", "echo", version)
        return client.post("/mcp", body, "application/json", headers=sent).json()["result"]["structuredContent"]

    assert call("2025-06-18") == {"result": [1]}
    assert call(wire.MODERN) == [1]
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("name", ["declared_error", "undeclared_error"])
def test_an_error_of_the_tool_is_replayed_and_its_body_not_run_again(
    user: User, lock_cache: str | None, name: str
) -> None:
    """R06"""
    client = mcp_client(user)

    first = client.call_tool(name, {"label": "a"}, key="k")
    retry = client.call_tool(name, {"label": "a"}, key="k")

    assert first.is_error
    assert retry == first
    assert Effect.objects.count() == 1


def test_the_text_of_an_undeclared_error_reveals_nothing(user: User, caplog: pytest.LogCaptureFixture) -> None:
    result = mcp_client(user).call_tool("undeclared_error", {"label": "a"}, key="k")

    assert "hunter2" not in repr(result)
    assert "hunter2" in caplog.text
    assert "hunter2" not in IdempotencyRecord.objects.values_list("result", flat=True)[0]


def test_a_json_rpc_error_of_the_tool_is_replayed(user: User) -> None:
    """R06"""
    client = mcp_client(user)

    with pytest.raises(MCPError) as first:
        client.call_tool("protocol_error", {"label": "a"}, key="k")
    with pytest.raises(MCPError) as retry:
        client.call_tool("protocol_error", {"label": "a"}, key="k")

    assert first.value.error == retry.value.error
    assert retry.value.error.model_dump() == {
        "code": -31000,
        "message": "The till is closed.",
        "data": {"opens": 2**70, "nothing": None},
    }
    assert Effect.objects.count() == 1


def test_a_result_that_is_not_json_is_an_undeclared_error_from_the_first_call_on(user: User) -> None:
    """R06: found out before completion, so that the first answer and the replay agree."""
    client = mcp_client(user)

    first = client.call_tool("not_json", key="k")

    assert first.is_error
    assert client.call_tool("not_json", key="k") == first
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("version", [wire.MODERN, "2025-11-25"])
@pytest.mark.parametrize(("depth", "fails"), [(199, False), (200, True)])
def test_the_deepest_result_is_replayed_and_a_deeper_one_is_an_error_from_the_first_call_on(
    client: Client, user: User, version: str, depth: int, fails: bool
) -> None:
    """R06: the result is one level around what the tool returned."""
    TokenFactory(user=user, text="t")
    sent = wire.headers("t", "tools/call", "nested", version)
    body = wire.message("tools/call", wire.call_params("nested", {"depth": depth}, version, idempotencyKey="k"))

    first = client.post("/mcp", body, "application/json", headers=sent)
    retry = client.post("/mcp", body, "application/json", headers=sent)

    assert first.json()["result"]["isError"] is fails
    assert retry.content == first.content
    assert Effect.objects.count() == 1


def test_a_result_too_large_to_keep_is_not_run_again_for(user: User, settings: Any) -> None:
    settings.MCP_IDEM = {"RESULT_MAX_BYTES": 1000}
    client = mcp_client(user)

    assert client.call_tool("echo", {"value": "x" * 1001}, key="k").structured_content == "x" * 1001
    with pytest.raises(MCPError) as retry:
        client.call_tool("echo", {"value": "x" * 1001}, key="k")

    assert retry.value.data == {"type": "idempotency_result_unavailable", "idempotencyKey": "k"}
    assert Effect.objects.count() == 1


def test_a_result_that_is_almost_too_large_to_keep_is_replayed(user: User) -> None:
    """R06: whatever the database's text columns and packets hold, in characters beyond the first plane of Unicode."""
    client = mcp_client(user)
    value = "\U0001f600" * 120_000

    first = client.call_tool("echo", {"value": value}, key="k")

    assert len(str(IdempotencyRecord.objects.get().result).encode()) > 900_000
    assert client.call_tool("echo", {"value": value}, key="k") == first
    assert first.structured_content == value
    assert Effect.objects.count() == 1


def test_replays_are_counted_on_the_record(user: User) -> None:
    client = mcp_client(user)
    for _ in range(3):
        client.call_tool("atomic", {"label": "a"}, key="k")

    record = IdempotencyRecord.objects.get()

    assert record.replay_count == 2
    assert record.last_replay_at is not None
