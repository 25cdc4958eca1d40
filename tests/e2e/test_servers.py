"""The endpoint behind real servers, in a friendly project and in a hostile one."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests import wire
from tests.e2e.servers import COMMANDS, request, shop

POOL_SIZE = 20  # the example's, on PostgreSQL


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_retry_over_http_is_replayed_and_charges_once(kind: str) -> None:
    """R06, behind each server and in each protocol version: all but the mark is the first answer's."""
    with shop(kind) as running:
        for version in wire.VERSIONS:
            sent = request("charge_payment", {"amount": 5, "currency": "EUR"}, key=version, version=version)
            first, retry = running.post(*sent), running.post(*sent)
            assert first.json()["result"]["structuredContent"]["amount"] == 5
            assert wire.unmarked(retry.content) == first.content
            assert retry.headers["Idempotency-Replayed"] == "true"
            assert "Idempotency-Replayed" not in first.headers

        assert running.effects() == {"payments": len(wire.VERSIONS), "notifications": 0}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_hostile_project_changes_nothing(kind: str) -> None:
    """ATOMIC_REQUESTS on two aliases, LoginRequiredMiddleware, no sessions app, a nested route, each spelling of it.

    A transaction around the request would hide the claim: a duplicate of the running call would not be refused (R05).
    """
    with shop(kind, project="tests.e2e.hostile", path="/api/v1/mcp") as running:
        sent = request("charge_payment", {"amount": 5, "currency": "EUR"}, key="k")
        first = running.post(*sent)
        assert first.status_code == 200
        assert wire.unmarked(running.post(*sent).content) == first.content
        assert running.effects() == {"payments": 1, "notifications": 0}

        with running.sent("slow_notify", {"email": "a@example.com", "seconds": 3}, key="slow") as answer:
            while running.effects()["notifications"] == 0:
                time.sleep(0.05)
            duplicate = running.call("slow_notify", {"email": "a@example.com", "seconds": 3}, key="slow")
            assert duplicate["error"]["data"]["type"] == "idempotency_key_in_progress"
            assert b"200 OK" in answer.recv(1000)
        slashed = request("slow_notify", {"email": "a@example.com", "seconds": 3}, key="slow")
        assert "result" in running.post(*slashed).json()


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_key_in_the_header_arrives_behind_each_server_and_two_are_refused(kind: str) -> None:
    """R02: however a server joins headers of one name, and passes on bytes that are not ASCII."""
    with shop(kind, project="tests.e2e.hostile", path="/api/v1/mcp") as running:
        body, headers = request("charge_payment", {"amount": 5, "currency": "EUR"})

        def post(*values: bytes) -> dict[str, Any]:
            keys = [(b"Idempotency-Key", value) for value in values]
            sent = [*((name.encode(), value.encode()) for name, value in headers.items()), *keys]
            answer: dict[str, Any] = httpx.post(running.url, content=body, headers=sent, timeout=20).json()
            return answer

        first = post(b'"order 1"')["result"]["structuredContent"]
        assert post(b'"order 1"')["result"]["structuredContent"] == first
        assert post(b"order-2")["result"]["structuredContent"] != first
        for values in [(b"order-1", b"order-1"), (b'"order 1"', b'"order 1"'), (b"caf\xc3\xa9",), (b"",)]:
            assert post(*values)["error"]["data"] == {"type": "idempotency_key_invalid"}, values
        assert running.effects()["payments"] == 2


def test_a_duplicate_is_answered_while_every_other_worker_thread_sleeps_in_a_tool() -> None:
    """R05: the last of four threads answers at once."""
    with shop("gunicorn threads") as running:
        arguments = {"email": "a@example.com", "seconds": 4}
        with (
            running.sent("slow_notify", arguments, key="1") as first,
            running.sent("slow_notify", arguments, key="2"),
            running.sent("slow_notify", arguments, key="3"),
        ):
            while running.effects()["notifications"] < 3:
                time.sleep(0.05)
            for key in ("1", "2", "3"):
                duplicate = running.call("slow_notify", arguments, key=key)
                assert duplicate["error"]["data"]["type"] == "idempotency_key_in_progress"
            first.setblocking(False)
            with pytest.raises(BlockingIOError):
                first.recv(1)


def test_external_bodies_that_wait_hold_no_pooled_connection() -> None:
    """R05: more of them wait at once than the pool has connections, and a duplicate is still answered."""
    arguments = {"email": "a@example.com", "seconds": 10}
    with shop("uvicorn") as running, ExitStack() as calls:
        for number in range(1, POOL_SIZE + 4):
            last = calls.enter_context(running.sent("slow_notify", arguments, key=str(number)))
            while running.effects()["notifications"] < number:
                time.sleep(0.02)

        duplicate = running.call("slow_notify", arguments, key="1")

        assert duplicate["error"]["data"]["type"] == "idempotency_key_in_progress"
        last.setblocking(False)
        with pytest.raises(BlockingIOError):
            last.recv(1)
