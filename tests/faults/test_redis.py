"""Redis may only ever say no (R26)."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import caches
from django_redis import get_redis_connection
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ToolsListChanged
from redis import Redis

from django_mcp_idem import changes, site
from django_mcp_idem.idempotency.equivalence import fingerprint
from django_mcp_idem.idempotency.keys import Identity, Scope
from django_mcp_idem.idempotency.locks import Holder, RedisLock
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests import loops, wire
from tests.app.models import Effect
from tests.factories import RecordFactory, TokenFactory
from tests.services import start_redis
from tests.threads import elsewhere

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def redis_server(settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A Redis of the test's own, so that it can be lost."""
    port, server = start_redis()
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "own": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"redis://127.0.0.1:{port}/0"},
    }
    settings.MCP_IDEM = {"LOCK_CACHE": "own"}
    yield server
    server.kill()
    server.wait()


def test_a_call_in_flight_is_seen_in_redis_and_gone_after(
    user: User, redis_server: subprocess.Popen[bytes], during: list[Callable[[], None]]
) -> None:
    redis = get_redis_connection("own")
    seen: list[Any] = []
    during.append(lambda: seen.extend((key, redis.pttl(key)) for key in redis.scan_iter()))

    mcp_client(user).call_tool("external", {"label": "a"}, key="k")

    ((_, milliseconds_left),) = seen
    assert 0 < milliseconds_left <= 30_000
    assert redis.keys() == []


@pytest.mark.parametrize("name", ["rerun_safe", "external"])
@pytest.mark.parametrize("when", ["before", "during"])
def test_keyed_calls_go_on_without_redis(
    user: User,
    redis_server: subprocess.Popen[bytes],
    during: list[Callable[[], None]],
    caplog: pytest.LogCaptureFixture,
    name: str,
    when: str,
) -> None:
    """R26: on the database alone, with one line in the log."""
    client = mcp_client(user)

    def lose_redis() -> None:
        redis_server.kill()
        redis_server.wait()

    if when == "before":
        lose_redis()
    else:
        during.append(lose_redis)

    first = client.call_tool(name, {"label": "a"}, key="k")
    during.clear()
    client.call_tool(name, {"label": "b"}, key="other")

    assert client.call_tool(name, {"label": "a"}, key="k") == first
    assert Effect.objects.count() == 2
    assert [record.levelname for record in caplog.records if "Redis" in record.message] == ["WARNING"]


def test_a_redis_that_comes_back_empty_is_used_again(
    user: User,
    redis_server: subprocess.Popen[bytes],
    caplog: pytest.LogCaptureFixture,
    during: list[Callable[[], None]],
) -> None:
    """R26: the log says how often it was missed, and a duplicate of the call that it has forgotten does not run."""
    client = mcp_client(user)
    port = caches["own"].client.get_client().connection_pool.connection_kwargs["port"]
    servers: list[subprocess.Popen[bytes]] = []

    def restart() -> None:
        during.clear()
        redis_server.kill()
        redis_server.wait()
        client.call_tool("external", {"label": "b"}, key="without")
        servers.append(start_redis(port)[1])
        with pytest.raises(MCPError) as refused:
            elsewhere(lambda: client.call_tool("external", {"label": "a"}, key="k"))
        assert refused.value.data["type"] == "idempotency_key_in_progress"
        client.call_tool("external", {"label": "c"}, key="with")

    during.append(restart)
    client.call_tool("external", {"label": "a"}, key="k")

    servers[0].kill()
    servers[0].wait()
    assert Effect.objects.count() == 3
    told = [record.getMessage() for record in caplog.records if "Redis" in record.message]
    assert len(told) == 2
    assert told[1] == "Redis answers again, after 2 commands that it did not."


def test_a_redis_that_does_not_answer_is_waited_for_briefly(user: User, redis_server: subprocess.Popen[bytes]) -> None:
    """R26: twice LOCK_TIMEOUT, where the cache's own client would wait for longer and try again."""
    redis_server.send_signal(signal.SIGSTOP)
    began = time.monotonic()

    result = mcp_client(user).call_tool("external", {"label": "a"}, key="k")

    redis_server.send_signal(signal.SIGCONT)
    assert not result.is_error
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("name", ["atomic", "external"])
def test_a_flush_during_a_call_lets_no_duplicate_run(
    user: User, redis_server: subprocess.Popen[bytes], during: list[Callable[[], None]], name: str
) -> None:
    """R26"""
    client = mcp_client(user)

    def flush_and_try() -> None:
        caches["own"].clear()
        with pytest.raises(MCPError) as refused:
            elsewhere(lambda: client.call_tool(name, {"label": "a"}, key="k"))
        assert refused.value.data["type"] == "idempotency_key_in_progress"

    during.append(flush_and_try)
    client.call_tool(name, {"label": "a"}, key="k")

    assert Effect.objects.count() == 1


@pytest.fixture
def left_behind(user: User, redis_server: subprocess.Popen[bytes]) -> Redis:
    """A lock whose owner died before it could claim the record."""
    holder = Holder(owner="0" * 32, fingerprint=fingerprint("external", {"label": "a"}))
    assert RedisLock("own").acquire(_identity(user), holder) is None
    return get_redis_connection("own")


@pytest.mark.parametrize(("label", "reason"), [("a", "idempotency_key_in_progress"), ("b", "idempotency_key_conflict")])
def test_a_lock_tells_a_duplicate_from_another_call(user: User, left_behind: Redis, label: str, reason: str) -> None:
    """R05, R07: before there is a record."""
    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool("external", {"label": label}, key="k")

    assert refused.value.data["type"] == reason
    assert not IdempotencyRecord.objects.exists()


def test_a_lock_that_was_left_behind_ends_with_its_lease(user: User, left_behind: Redis) -> None:
    """R25, R26"""
    (key,) = left_behind.keys()
    left_behind.pexpire(key, 0)

    assert not mcp_client(user).call_tool("external", {"label": "a"}, key="k").is_error


def test_a_finished_record_is_replayed_whatever_redis_says(user: User, left_behind: Redis) -> None:
    """R06, R26"""
    RecordFactory(user=user, key="k", tool="external", arguments={"label": "a"})

    assert not mcp_client(user).call_tool("external", {"label": "a"}, key="k").is_error


def test_ones_own_lock_is_not_anothers(user: User, redis_server: subprocess.Popen[bytes]) -> None:
    """R26: where the reply to SET was lost and the command is sent again."""
    lock, holder = RedisLock("own"), Holder(owner="0" * 32, fingerprint="f")

    assert lock.acquire(_identity(user), holder) is None
    assert lock.acquire(_identity(user), holder) is None


def test_a_lock_that_is_anothers_by_now_is_not_released(user: User, redis_server: subprocess.Popen[bytes]) -> None:
    """R26"""
    lock = RedisLock("own")
    first, second = Holder(owner="1", fingerprint="f"), Holder(owner="2", fingerprint="f")
    lock.acquire(_identity(user), first)
    get_redis_connection("own").flushdb()
    lock.acquire(_identity(user), second)

    lock.release(_identity(user), first)

    assert lock.acquire(_identity(user), first) == second


def _identity(user: User) -> Identity:
    return Identity.of(Scope(endpoint="mcp", kind="user", subject=str(user.pk)), "k")


def test_changes_of_other_processes_are_told_again_when_redis_is_back(
    redis_server: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """R26: and meanwhile a change reaches this process."""
    port = get_redis_connection("own").connection_pool.connection_kwargs["port"]
    told: Queue[Any] = Queue()
    leave = changes.listen("mcp", told.put)
    changes.wait_for_other_processes()
    try:
        redis_server.kill()
        redis_server.wait()
        site.notify_tools_changed()
        assert told.get(timeout=5) == ToolsListChanged()

        _, again = start_redis(port)
        try:
            channel = caches["own"].make_key("mcp-idem:changes")
            change = {"method": "notifications/prompts/list_changed", "site": "mcp", "from": "another process"}
            # What is published before the channel is read again is lost.
            while told.empty():
                Redis(port=port).publish(channel, json.dumps(change))
                time.sleep(0.05)
            assert told.get() == PromptsListChanged()
            assert sum("go unnoticed" in record.message for record in caplog.records) == 1
        finally:
            leave()
            again.kill()
            again.wait()
    finally:
        leave()


def test_a_stream_does_not_wait_for_a_redis_that_hangs(user: User, redis_server: subprocess.Popen[bytes]) -> None:
    """R26: it is sent all the same, and cannot be resumed."""
    TokenFactory(user=user, text="t")
    params = {**wire.call_params("reports", {}, "2025-11-25"), "_meta": {"progressToken": 7}}
    body, headers = wire.message("tools/call", params), wire.headers("t", "tools/call", None, "2025-11-25")
    redis_server.send_signal(signal.SIGSTOP)
    began = time.monotonic()

    async def scenario() -> None:
        stream = await loops.read(await loops.post(body, headers))
        *reports, reply = wire.messages(stream)
        assert [report["params"]["progress"] for report in reports if "progress" in report["params"]] == [1, 2.5]
        assert reply["result"]["isError"] is False
        assert all("id" not in event for event in wire.events(stream))
        resumed = await loops.get({**headers, "Last-Event-ID": "stream.0"})
        assert resumed.status_code == 503

    loops.run(scenario)
    redis_server.send_signal(signal.SIGCONT)
    assert time.monotonic() - began < 10


def test_a_question_outlives_a_redis_that_is_away_for_a_moment(
    user: User, redis_server: subprocess.Popen[bytes]
) -> None:
    """R26: where it has lost nothing."""
    TokenFactory(user=user, text="t")
    version = "2025-11-25"
    client = {
        "protocolVersion": version,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "c", "version": ""},
    }
    body = wire.message("tools/call", wire.call_params("asks_for_name", {"label": "a"}, version))

    async def scenario() -> None:
        begun = await loops.post(wire.message("initialize", client), wire.headers("t", "initialize", None, version))
        headers = {**wire.headers("t", "tools/call", None, version), "Mcp-Session-Id": begun["Mcp-Session-Id"]}
        response = await loops.post(body, headers)
        parts = aiter(response)
        events = [wire.events(await anext(parts))[0], wire.events(await anext(parts))[0]]
        question = json.loads(events[1]["data"])
        redis_server.send_signal(signal.SIGSTOP)
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Alice"}}}
        assert (await loops.post(json.dumps(answer).encode(), headers)).status_code == 503
        redis_server.send_signal(signal.SIGCONT)
        assert (await loops.post(json.dumps(answer).encode(), headers)).status_code == 202
        last = b"".join([part async for part in parts])
        assert wire.messages(last)[-1]["result"]["content"][0]["text"] == "Alice for a"

    loops.run(scenario)
