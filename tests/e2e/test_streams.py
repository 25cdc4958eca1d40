"""Streams of a real server, with the project's middleware around the endpoint and without it (R24)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests import wire
from tests.e2e.servers import Shop, shop

CALLS = pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("slow_charge", {"amount": 7, "seconds": 1.5}),
        ("slow_notify", {"email": "a@example.com", "seconds": 1.5}),
        ("async_notify", {"email": "a@example.com", "seconds": 1.5}),
    ],
    ids=["atomic", "external", "async"],
)


@pytest.fixture(scope="module", params=["uvicorn", "uvicorn, mounted"])
def running(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shop(request.param) as started:
        yield started


def stream(running: Shop, name: str, arguments: dict[str, Any], key: str) -> Any:
    """The response to a call that asks for progress, as a context."""
    params = wire.call_params(name, arguments, idempotencyKey=key)
    params["_meta"]["progressToken"] = "p"
    body, headers = wire.message("tools/call", params), wire.headers("demo-alice", "tools/call", name)
    return httpx.stream("POST", running.url, content=body, headers=headers, timeout=20)


@CALLS
def test_a_report_arrives_while_the_body_runs(running: Shop, name: str, arguments: dict[str, Any]) -> None:
    """R05, R17: a duplicate is refused meanwhile."""
    key = f"reported {name}"
    with stream(running, name, arguments, key) as response:
        lines = (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))
        report = json.loads(next(lines))
        assert (report["method"], report["params"]["progress"]) == ("notifications/progress", 1)
        assert running.tells_in_progress(name, arguments, key=key)
        assert json.loads(next(lines))["result"]["isError"] is False
        assert list(lines) == []


@CALLS
def test_a_keyed_call_runs_on_when_its_stream_breaks_off(running: Shop, name: str, arguments: dict[str, Any]) -> None:
    """R24"""
    key, before = f"broken off {name}", sum(running.effects().values())
    with stream(running, name, arguments, key) as response:
        next(response.iter_lines())

    assert running.tells_in_progress(name, arguments, key=key)
    while running.tells_in_progress(name, arguments, key=key):
        time.sleep(0.05)
    assert running.call(name, arguments, key=key)["result"]["isError"] is False
    assert sum(running.effects().values()) == before + 1
