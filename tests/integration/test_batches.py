"""Several messages in one body, which the version 2025-03-26 alone has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from tests import wire
from tests.app.models import Effect
from tests.factories import TokenFactory

pytestmark = pytest.mark.django_db

VERSION = "2025-03-26"
PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/initialized"}
RESPONSE = {"jsonrpc": "2.0", "id": 1, "result": {}}


def call(request_id: int, label: str, **members: Any) -> dict[str, Any]:
    """A call of a tool as a message."""
    params = wire.call_params("external", {"label": label}, VERSION, **members)
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def send(client: Client, messages: Any, version: str = VERSION) -> HttpResponse:
    """Post messages as one body."""
    TokenFactory(text="t")
    headers = wire.headers("t", "tools/call", None, version)
    return client.post("/mcp", json.dumps(messages), headers.pop("Content-Type"), headers=headers)


def test_every_request_has_its_reply(client: Client) -> None:
    """R06: a retry within the batch too."""
    response = send(client, [call(1, "a", idempotencyKey="k"), PING, call(2, "a", idempotencyKey="k"), NOTIFICATION])

    first, pong, retry = response.json()
    assert (first["id"], pong, retry["id"]) == (1, {"jsonrpc": "2.0", "id": "p", "result": {}}, 2)
    assert retry["result"] == first["result"]
    assert Effect.objects.count() == 1


def test_one_that_is_no_request_does_not_spoil_the_others(client: Client) -> None:
    replies = send(client, [5, {**PING, "method": "initialize"}, {"jsonrpc": "2.0", "id": 4}, PING]).json()

    assert [reply.get("error", {}).get("code") for reply in replies] == [-32600, -32600, -32600, None]
    assert [reply["id"] for reply in replies] == [None, "p", None, "p"]


@pytest.mark.parametrize("messages", [[NOTIFICATION], [RESPONSE, NOTIFICATION]])
def test_one_without_a_request_is_accepted(client: Client, messages: Any) -> None:
    response = send(client, messages)
    assert (response.status_code, response.content) == (202, b"")


def test_an_empty_one_is_refused(client: Client) -> None:
    assert send(client, []).json()["error"]["code"] == -32600


@pytest.mark.parametrize("version", [version for version in wire.VERSIONS if version != VERSION])
def test_no_other_version_has_batches(client: Client, version: str) -> None:
    response = send(client, [call(1, "a")], version)
    assert response.json()["error"]["code"] == -32600
    assert not Effect.objects.exists()
