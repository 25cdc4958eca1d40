"""Streams of changes of a real server, that stay open until it ends."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import wire
from tests.e2e.servers import FOUR_WORKERS, Shop, announce, shop
from tests.services import redis_url

ASGI = ["uvicorn", FOUR_WORKERS]


@pytest.fixture(params=ASGI)
def running(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shop(request.param, REDIS_URL=redis_url()) as started:
        yield started


def listen(running: Shop) -> Any:
    """The response to a client of 2026-07-28 that listens, as a context."""
    params = {"notifications": {"toolsListChanged": True}, **wire.envelope()}
    body, headers = wire.message("subscriptions/listen", params), wire.headers("demo-alice", "subscriptions/listen")
    return httpx.stream("POST", running.url, content=body, headers=headers, timeout=30)


def open_stream(running: Shop) -> Any:
    """The stream that a client of the handshake versions opens, as a context."""
    return httpx.stream("GET", running.url, headers=wire.headers("demo-alice", "", None, "2025-11-25"), timeout=30)


def messages(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_a_change_in_another_process_is_told_and_a_server_that_ends_ends_its_streams_well(running: Shop) -> None:
    """R25: no stream keeps a process from ending."""
    with listen(running) as listening, open_stream(running) as opened:
        modern, handshake = messages(listening), messages(opened)
        assert next(modern)["method"] == "notifications/subscriptions/acknowledged"

        announce(running.environment)
        assert next(modern)["method"] == "notifications/tools/list_changed"
        assert next(handshake)["method"] == "notifications/tools/list_changed"

        running.server.send_signal(signal.SIGTERM)
        (last,) = modern
        assert last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
        assert list(handshake) == []
    assert running.server.wait(timeout=5) in (0, -signal.SIGTERM)


def test_an_open_stream_costs_next_to_nothing() -> None:
    """Less than a tenth of a second of CPU a minute, other processes' changes included."""
    seconds = 15
    with shop("uvicorn", REDIS_URL=redis_url()) as idle, open_stream(idle) as opened:
        next(opened.iter_raw())
        before = _cpu_seconds(idle.server.pid)
        time.sleep(seconds)
        assert _cpu_seconds(idle.server.pid) - before < 0.1 * seconds / 60 + 1 / _TICKS


_TICKS = os.sysconf("SC_CLK_TCK")


def _cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS
