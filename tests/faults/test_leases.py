"""Leases are renewed while a body runs (R23, R25)."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction
from django_redis import get_redis_connection
from mcp.shared.exceptions import MCPError

from django_mcp_idem.idempotency.leases import Lease, get_heartbeat
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.states import State
from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect
from tests.threads import PATIENCE, elsewhere

pytestmark = pytest.mark.django_db(transaction=True)

Acts = list[Callable[[], None]]

LEASE = timedelta(seconds=0.9)


@pytest.fixture(autouse=True)
def _short_leases(settings: Any) -> None:
    settings.MCP_IDEM = {"LEASE": LEASE}


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, and fail where it does not in time."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lease_end() -> Any:
    return IdempotencyRecord.objects.get().lease_until


def outlive_two_leases() -> None:
    first = lease_end()
    until(lambda: lease_end() > first + 2 * LEASE)


@pytest.mark.parametrize("name", ["external", "rerun_safe"])
def test_a_body_that_runs_for_longer_than_its_lease_keeps_its_claim(user: User, during: Acts, name: str) -> None:
    """R23: a duplicate is told that it is in progress, and nothing runs twice."""
    client = mcp_client(user)
    refusals: list[str] = []

    def try_again() -> None:
        with pytest.raises(MCPError) as refused:
            elsewhere(lambda: client.call_tool(name, {"label": "a"}, key="k"))
        refusals.append(refused.value.data["type"])

    during += [outlive_two_leases, try_again]
    first = client.call_tool(name, {"label": "a"}, key="k")

    assert refusals == ["idempotency_key_in_progress"]
    assert client.call_tool(name, {"label": "a"}, key="k") == first
    assert Effect.objects.count() == 1


def test_the_lock_in_redis_is_renewed_with_the_lease(user: User, during: Acts, settings: Any) -> None:
    """R26: so that duplicates go on being refused early."""
    settings.MCP_IDEM = {"LEASE": LEASE, "LOCK_CACHE": "locks"}
    redis = get_redis_connection("locks")
    redis.flushdb()
    held: list[int] = []
    during += [outlive_two_leases, lambda: held.extend(redis.pttl(key) for key in redis.scan_iter())]

    mcp_client(user).call_tool("external", {"label": "a"}, key="k")

    assert len(held) == 1
    assert held[0] > 0


def test_a_heartbeat_moves_the_lease_and_nothing_else(user: User, during: Acts) -> None:
    """R28"""
    seen: list[dict[str, Any]] = []

    def look() -> None:
        seen.append(IdempotencyRecord.objects.values().get())

    during += [look, outlive_two_leases, look]
    mcp_client(user).call_tool("external", {"label": "a"}, key="k")

    before, after = seen
    assert before.pop("lease_until") < after.pop("lease_until")
    assert before == after


def test_a_body_that_runs_for_longer_than_it_may_loses_its_claim_and_is_told(
    user: User, during: Acts, settings: Any
) -> None:
    """R25: it still settles its own unknown outcome."""
    settings.MCP_IDEM = {"LEASE": LEASE, "MAX_RUNTIME": timedelta(seconds=0.1)}
    client = mcp_client(user)

    def try_until_given_up() -> None:
        def refusal() -> str:
            with pytest.raises(MCPError) as refused:
                client.call_tool("watches_its_lease", key="k")
            return str(refused.value.data["type"])

        until(lambda: elsewhere(refusal) == "idempotency_outcome_unknown")

    during.append(try_until_given_up)
    late = client.call_tool("watches_its_lease", key="k")

    assert late.structured_content is True
    assert client.call_tool("watches_its_lease", key="k") == late


def test_a_body_is_told_when_its_claim_is_someone_elses(user: User, during: Acts) -> None:
    """R25"""

    def lose_the_claim() -> None:
        IdempotencyRecord.objects.update(owner="another")
        (lease,) = get_heartbeat().in_flight()
        until(lambda: lease.lost)

    during.append(lose_the_claim)
    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool("watches_its_lease", key="k")

    assert refused.value.data["type"] == "idempotency_key_in_progress"


def test_a_body_that_keeps_its_claim_is_told_so(user: User, during: Acts) -> None:
    client = mcp_client(user)

    assert client.call_tool("watches_its_lease", key="k").structured_content is False
    assert client.call_tool("watches_its_lease").structured_content is False


@pytest.mark.row_locks
def test_a_heartbeat_passes_over_what_is_locked_and_waits_for_nobody(user: User, during: Acts) -> None:
    """R23: one locked row does not keep the other leases from being renewed."""
    client = mcp_client(user)

    def hold_the_first_and_run_another() -> None:
        during[:] = [outlive_the_others_lease]
        with transaction.atomic():
            first = IdempotencyRecord.objects.select_for_update().get(pk=IdempotencyRecord.objects.get().pk)
            elsewhere(lambda: client.call_tool("external", {"label": "b"}, key="other"))
            assert IdempotencyRecord.objects.get(pk=first.pk).lease_until == first.lease_until

    def outlive_the_others_lease() -> None:
        other = IdempotencyRecord.objects.latest("pk")
        until(lambda: IdempotencyRecord.objects.get(pk=other.pk).lease_until > other.lease_until)

    during.append(hold_the_first_and_run_another)
    client.call_tool("external", {"label": "a"}, key="k")

    assert set(IdempotencyRecord.objects.values_list("state", flat=True)) == {State.DONE}


def test_a_database_that_does_not_answer_a_heartbeat_does_not_end_it(
    user: User, during: Acts, caplog: pytest.LogCaptureFixture
) -> None:
    """R25: the next beat renews the lease."""
    table = IdempotencyRecord._meta.db_table
    hidden = f"{table}_hidden"

    def rename(old: str, new: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")

    def miss_a_beat() -> None:
        first = lease_end()
        rename(table, hidden)
        try:
            until(lambda: "could not be renewed" in caplog.text)
        finally:
            rename(hidden, table)
        until(lambda: lease_end() > first)

    during.append(miss_a_beat)
    assert not mcp_client(user).call_tool("external", {"label": "a"}, key="k").is_error


def test_the_thread_ends_when_it_finds_nothing_to_do_and_starts_again(user: User, during: Acts) -> None:
    """R23: lazily."""

    def beating() -> bool:
        return any(thread.name == "mcp-idem-heartbeat" for thread in threading.enumerate())

    client = mcp_client(user)
    client.call_tool("external", {"label": "a"}, key="k")
    until(lambda: not beating())

    during.append(outlive_two_leases)
    client.call_tool("external", {"label": "b"}, key="other")
    until(lambda: not beating())


def test_a_forked_process_has_a_heartbeat_of_its_own(user: User, during: Acts) -> None:
    """R23: it neither renews the leases of its parent nor misses its own."""
    fork = multiprocessing.get_context("fork")

    def call_in_a_child() -> None:
        during[:] = [outlive_the_last_lease]
        connections.close_all()
        child = fork.Process(target=call)
        child.start()
        child.join()
        assert child.exitcode == 0

    def call() -> None:
        assert get_heartbeat().in_flight() == set()
        mcp_client(user).call_tool("external", {"label": "b"}, key="other")
        connections.close_all()

    def outlive_the_last_lease() -> None:
        own = IdempotencyRecord.objects.latest("pk")
        until(lambda: IdempotencyRecord.objects.get(pk=own.pk).lease_until > own.lease_until + 2 * LEASE)

    during.append(call_in_a_child)
    mcp_client(user).call_tool("external", {"label": "a"}, key="k")

    assert Effect.objects.count() == 2


def test_a_lease_is_lost_when_its_time_is_over_or_it_is_taken() -> None:
    """R25"""
    taken = Lease(timedelta(hours=1))
    assert not taken.lost
    taken.take()
    assert taken.lost
    assert Lease(timedelta(0)).lost
