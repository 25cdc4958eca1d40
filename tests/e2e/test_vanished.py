"""A client that goes away from a call without a key frees what the call held (R24)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.servers import Shop, shop

PATIENCE = 20


@pytest.fixture(scope="module", params=["uvicorn", "uvicorn, mounted"])
def running(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shop(request.param, project="tests.e2e.watched") as started:
        yield started


def held(running: Shop) -> dict[str, int]:
    """How many threads, tasks and open files the server has."""
    holdings: dict[str, int] = running.call("holdings", {})["result"]["structuredContent"]
    return {what: holdings[what] for what in ("threads", "tasks", "files")}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ended(running: Shop) -> int:
    counted: int = running.call("ended", {})["result"]["structuredContent"]
    return counted


@contextmanager
def hung_up(running: Shop, name: str, *, in_mid_stream: bool) -> Iterator[None]:
    """A call that is sent, and that nobody waits for any more when the context is left."""
    with running.sent(name, {}, progress=in_mid_stream) as connection, connection.makefile("rb") as lines:
        while in_mid_stream and b"notifications/progress" not in lines.readline():
            pass
        yield


in_mid_stream = pytest.mark.parametrize(
    "in_mid_stream", [False, True], ids=["before anything was sent", "in mid-stream"]
)


@in_mid_stream
def test_an_async_body_is_cancelled(running: Shop, in_mid_stream: bool) -> None:
    """R24: it would never have ended by itself."""
    before = held(running)
    with hung_up(running, "hangs", in_mid_stream=in_mid_stream):
        wait_until(lambda: held(running)["tasks"] > before["tasks"])
    wait_until(lambda: held(running) == before)


@in_mid_stream
def test_a_sync_body_runs_to_its_end_and_its_thread_ends_with_it(running: Shop, in_mid_stream: bool) -> None:
    """R24: it cannot be stopped. The connection is not kept for it, and nobody is there to be answered."""
    before, ended_before = held(running), ended(running)
    with hung_up(running, "blocks", in_mid_stream=in_mid_stream):
        wait_until(lambda: held(running)["threads"] > before["threads"])
        meanwhile = held(running)
    wait_until(lambda: held(running)["files"] == meanwhile["files"] - 1)
    assert held(running)["threads"] == meanwhile["threads"]

    running.call("release", {})
    wait_until(lambda: held(running) == before)
    assert ended(running) == ended_before + 1
