"""The endpoint as a client sees it, and what of it a key does not touch (R03, R04, R15 to R17, R22)."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django_redis import get_redis_connection
from mcp.shared.exceptions import MCPError

from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests import wire
from tests.app.models import Effect
from tests.factories import RecordFactory, TokenFactory

pytestmark = pytest.mark.django_db


def test_the_capability_is_declared_in_discover(user: User) -> None:
    """R03: an object with no fields."""
    capabilities = mcp_client(user).request("server/discover", {})["capabilities"]

    assert capabilities["tools"]["idempotency"] == {}


@pytest.mark.parametrize("version", wire.HANDSHAKE)
def test_the_capability_is_declared_in_initialize(client: Client, version: str) -> None:
    """R03"""
    TokenFactory(text="t")
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}

    response = client.post(
        "/mcp",
        wire.message("initialize", params),
        "application/json",
        headers={"Authorization": "Bearer t"},
    )

    result = response.json()["result"]
    assert result["protocolVersion"] == version
    assert result["capabilities"]["tools"]["idempotency"] == {}
    assert response["Mcp-Session-Id"].isascii()


@pytest.mark.parametrize("session", [None, "signed", "stale"])
@pytest.mark.parametrize("version", wire.HANDSHAKE)
def test_a_handshake_client_calls_with_any_session_or_none(client: Client, version: str, session: str | None) -> None:
    TokenFactory(text="t")
    sent = wire.headers("t", "tools/call", "atomic", version)
    if session == "signed":
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        started = client.post("/mcp", wire.message("initialize", params), "application/json", headers=sent)
        sent["Mcp-Session-Id"] = started["Mcp-Session-Id"]
    elif session == "stale":
        sent["Mcp-Session-Id"] = "of another server"
    notified = client.post(
        "/mcp", b'{"jsonrpc":"2.0","method":"notifications/initialized"}', "application/json", headers=sent
    )
    assert notified.status_code == 202

    body = wire.message("tools/call", {"name": "atomic", "arguments": {"label": "a"}, "idempotencyKey": "k"})
    first = client.post("/mcp", body, "application/json", headers=sent)
    retry = client.post("/mcp", body, "application/json", headers=sent)

    assert first.json()["result"]["isError"] is False
    assert retry.content == first.content
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("url", ["/mcp", "/mcp/"])
def test_the_endpoint_answers_with_and_without_a_slash(client: Client, url: str) -> None:
    TokenFactory(text="t")

    response = client.post(
        url,
        wire.message("tools/list", wire.envelope()),
        "application/json",
        headers=wire.headers("t", "tools/list"),
    )

    assert response.status_code == 200
    assert "atomic" in {tool["name"] for tool in response.json()["result"]["tools"]}


@pytest.mark.parametrize("name", ["atomic", "external", "rerun_safe"])
def test_an_unkeyed_call_makes_no_record_takes_no_lock_and_asks_no_query(
    user: User, lock_cache: str | None, name: str
) -> None:
    """R04: all statements are the tool's own."""
    with CaptureQueriesContext(connection) as queries:
        mcp_client(user).call_tool(name, {"label": "a"})

    statements = [query["sql"] for query in queries]
    assert [sql for sql in statements if "SAVEPOINT" not in sql and "app_effect" not in sql] == []
    assert get_redis_connection("locks").dbsize() == 0
    assert not IdempotencyRecord.objects.exists()


def test_unkeyed_calls_run_each_time(user: User) -> None:
    """R04"""
    client = mcp_client(user)
    for _ in range(2):
        client.call_tool("atomic", {"label": "a"})

    assert Effect.objects.count() == 2


@pytest.mark.parametrize("name", ["atomic_declared_error", "swallows_database_error"])
@pytest.mark.parametrize("key", [None, "k"])
def test_an_atomic_tool_that_fails_leaves_nothing_keyed_or_not(user: User, name: str, key: str | None) -> None:
    """R04, R25: also where the body caught the database's error and returned as if all were well."""
    result = mcp_client(user).call_tool(name, {"label": "a"}, key=key)

    assert result.is_error
    assert not Effect.objects.exists()


@pytest.mark.parametrize("key", [None, "k"])
def test_an_atomic_tool_that_raises_a_json_rpc_error_leaves_nothing(user: User, key: str | None) -> None:
    """R04, R25"""
    with pytest.raises(MCPError, match="The till is closed"):
        mcp_client(user).call_tool("atomic_protocol_error", {"label": "a"}, key=key)

    assert not Effect.objects.exists()


@pytest.mark.parametrize(
    ("method", "params"), [("tools/list", {}), ("server/discover", {})], ids=["tools/list", "server/discover"]
)
def test_a_key_on_another_method_has_no_effect(user: User, method: str, params: dict[str, Any]) -> None:
    """R15"""
    client = mcp_client(user)

    assert client.request(method, {**params, "idempotencyKey": "k"}) == client.request(method, params)
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize(
    "fields", [("inputResponses",), ("requestState",), ("inputResponses", "requestState")], ids=" and ".join
)
def test_a_continuation_neither_reads_nor_writes_a_record(user: User, fields: tuple[str, ...]) -> None:
    """R16: even with the key of a recorded call and with other arguments it runs, each time."""
    client = mcp_client(user)
    first = client.request("tools/call", {"name": "asks", "idempotencyKey": "k"})
    assert first["resultType"] == "input_required"
    brought = {"inputResponses": {"name": {"action": "accept"}}, "requestState": first["requestState"]}

    for _ in range(2):
        continued = {field: brought[field] for field in fields}
        answered = client.request("tools/call", {"name": "asks", "idempotencyKey": "k", **continued})
        assert answered["structuredContent"] == "answered"

    assert Effect.objects.count() == 3
    record = IdempotencyRecord.objects.get()
    assert record.replay_count == 0


def test_an_input_required_result_is_replayed_like_any_other(user: User) -> None:
    """R16: but that its state is sealed anew, so that it can be continued as long as a new one."""
    client = mcp_client(user)

    first = client.request("tools/call", {"name": "asks", "idempotencyKey": "k"})
    retry = client.request("tools/call", {"name": "asks", "idempotencyKey": "k"})

    assert Effect.objects.count() == 1
    assert {**retry, "requestState": None} == {**first, "requestState": None}
    continued = client.request("tools/call", {"name": "asks", "requestState": retry["requestState"]})
    assert continued["structuredContent"] == "answered"


def test_only_the_final_result_is_recorded(user: User) -> None:
    """R17: a progress token changes nothing, and no notification is stored."""
    client = mcp_client(user)
    client.call_tool("atomic", {"label": "a"}, key="k")

    stored = IdempotencyRecord.objects.get().result

    assert stored is not None
    assert "notifications/" not in stored


def test_a_tool_that_requires_a_key_refuses_a_call_without_one(user: User) -> None:
    """R22: before anything is run."""
    client = mcp_client(user)

    with pytest.raises(MCPError) as refused:
        client.call_tool("needs_key", {"label": "a"})

    assert refused.value.code == -32602
    assert refused.value.data == {"type": "idempotency_key_required"}
    assert "idempotencyKey" in refused.value.message
    assert not Effect.objects.exists()
    assert not client.call_tool("needs_key", {"label": "a"}, key="k").is_error


def test_a_call_refused_for_its_arguments_leaves_its_key_unused(user: User, lock_cache: str | None) -> None:
    """R22"""
    client = mcp_client(user)

    refused = client.call_tool("atomic", {"label": 1}, key="k")

    assert refused.is_error
    assert not IdempotencyRecord.objects.exists()
    assert not client.call_tool("atomic", {"label": "a"}, key="k").is_error
    assert Effect.objects.count() == 1


def test_a_replay_needs_no_arguments_that_fit_todays_schema(user: User) -> None:
    """R06, R22: the record is looked up before the schema, so that a deploy never refuses a replay."""
    client = mcp_client(user)
    RecordFactory(user=user, key="k", tool="atomic", arguments={"once_allowed": True})

    assert not client.call_tool("atomic", {"once_allowed": True}, key="k").is_error


def test_a_body_is_given_its_context(user: User) -> None:
    first = mcp_client(user).call_tool("context", key="k").structured_content
    other = mcp_client(user).call_tool("context", key="other").structured_content

    assert first["user"] == user.get_username()
    assert first["attempt"] == 1
    assert first["over_http"] is False
    assert len(first["downstream"]) == 36
    assert first["downstream"] != other["downstream"]
