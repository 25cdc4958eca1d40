"""Claims that join the transaction of an atomic body, and the locks that tell others of them (R05, R07, R23, R25)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import Error, connection, connections, transaction
from mcp.shared.exceptions import MCPError

from django_mcp_idem import NothingDone
from django_mcp_idem.idempotency.advisory import TransactionLock, get_transaction_lock
from django_mcp_idem.idempotency.databases import lost_a_race, may_pass
from django_mcp_idem.idempotency.equivalence import fingerprint
from django_mcp_idem.idempotency.keys import Identity, Scope
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect
from tests.factories import RecordFactory
from tests.services import kill_connection
from tests.threads import elsewhere

# A database that has such locks locks rows, too.
pytestmark = [pytest.mark.row_locks, pytest.mark.django_db(transaction=True)]

AT_ONCE = timedelta(seconds=2)
"""Far below what a statement would wait for a row, and far above what a refusal takes on a busy machine."""

fork = multiprocessing.get_context("fork")


@pytest.fixture(params=["new", "lapsed"])
def before(request: pytest.FixtureRequest, user: User) -> str:
    """What there is of the key before the call: nothing, or a record to take over."""
    if request.param == "lapsed":
        RecordFactory(user=user, key="k", tool="atomic", arguments={"label": "a"}, lapsed=True)
    return str(request.param)


def lock_of(user: User, label: str = "a") -> TransactionLock:
    """The lock of a call of ``atomic`` with the key of these tests, for the connection of this thread."""
    identity = Identity.of(Scope(endpoint="mcp", kind="user", subject=str(user.pk)), "k")
    lock = get_transaction_lock(identity, fingerprint("atomic", {"label": label}), max_runtime=timedelta(minutes=1))
    assert lock is not None
    return lock


def refusal_elsewhere(user: User, name: str, arguments: dict[str, Any], *, key: str = "k") -> str:
    """Why a call by another caller is refused, which must not take long."""
    began = time.monotonic()
    with pytest.raises(MCPError) as refused:
        elsewhere(lambda: mcp_client(user).call_tool(name, arguments, key=key))
    assert time.monotonic() - began < AT_ONCE.total_seconds()
    return str(refused.value.data["type"])


def test_nothing_of_a_call_is_seen_before_it_is_committed(
    user: User, before: str, during: list[Callable[[], None]]
) -> None:
    """R23: a server that is lost now leaves things as they were."""
    were = list(IdempotencyRecord.objects.values())
    seen: list[Any] = []
    during.append(lambda: seen.append(elsewhere(lambda: list(IdempotencyRecord.objects.values()))))
    during.append(lambda: seen.append(elsewhere(Effect.objects.count)))

    mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")

    assert seen == [were, 0]
    assert Effect.objects.count() == 1


@pytest.mark.parametrize(
    ("name", "label", "reason"),
    [
        ("atomic", "a", "idempotency_key_in_progress"),
        ("atomic", "b", "idempotency_key_conflict"),
        ("atomic_async", "a", "idempotency_key_conflict"),
        ("external", "a", "idempotency_key_conflict"),
    ],
    ids=["duplicate", "other arguments", "other atomic tool", "other external tool"],
)
def test_a_second_call_is_refused_at_once_though_nothing_is_committed(
    user: User, before: str, during: list[Callable[[], None]], name: str, label: str, reason: str
) -> None:
    """R05, R07"""
    reasons: list[str] = []
    during.append(lambda: reasons.append(refusal_elsewhere(user, name, {"label": label})))

    mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")

    assert reasons == [reason]
    assert Effect.objects.count() == 1


def test_a_call_of_another_key_is_not_held_up(user: User, before: str, during: list[Callable[[], None]]) -> None:
    """R05"""

    def call_another() -> None:
        during.clear()
        elsewhere(lambda: mcp_client(user).call_tool("atomic", {"label": "b"}, key="other"))

    during.append(call_another)
    mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")

    assert set(Effect.objects.values_list("label", flat=True)) == {"a", "b"}


def committed(user: User, during: list[Callable[[], None]]) -> None:
    assert not mcp_client(user).call_tool("atomic", {"label": "a"}, key="k").is_error


def did_nothing(user: User, during: list[Callable[[], None]]) -> None:
    def end() -> None:
        raise NothingDone

    during.append(end)
    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")
    assert refused.value.data["type"] == "idempotency_nothing_done"


def failed(user: User, during: list[Callable[[], None]]) -> None:
    during.append(lambda: 1 // 0)
    assert mcp_client(user).call_tool("atomic", {"label": "a"}, key="k").is_error


def was_cut_off(user: User, during: list[Callable[[], None]]) -> None:
    during.append(lambda: kill_connection(connection))
    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")
    assert refused.value.data["type"] == "idempotency_unavailable"


def lost_its_transaction(user: User, during: list[Callable[[], None]]) -> None:
    """As a body does that swallows a deadlock: what it does next is in a transaction that the server began anew."""

    def roll_back() -> None:
        connection.cursor().execute("ROLLBACK")
        Effect.objects.create(label="after the rollback")

    during.append(roll_back)
    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")
    assert refused.value.data["type"] == "idempotency_key_in_progress"


@pytest.mark.parametrize("end", [committed, did_nothing, failed, was_cut_off, lost_its_transaction])
def test_the_lock_is_free_after_each_end_of_a_call(
    user: User, before: str, during: list[Callable[[], None]], end: Callable[[User, list[Callable[[], None]]], None]
) -> None:
    """R25: for others too while the connection is kept, and nothing stays of what was not recorded."""
    end(user, during)
    during.clear()

    assert elsewhere(lambda: lock_of(user).refusal()) is None
    recorded = IdempotencyRecord.objects.filter(state="done").exists()
    assert recorded == (end in (committed, failed))
    assert Effect.objects.count() == (end is committed)
    retry = elsewhere(lambda: mcp_client(user).call_tool("atomic", {"label": "a"}, key="k"))
    assert retry.is_error == (end is failed)
    assert Effect.objects.count() == (end is not failed)


def test_nobody_is_told_of_a_lock_that_nobody_holds(user: User) -> None:
    """R05: who did not get it looks again."""
    assert lock_of(user).refusal() is None


def test_the_connection_is_left_as_it_was(user: User) -> None:
    """What bounds the transaction of one call must not cut off the next request."""
    connection.ensure_connection()
    were = _limits()

    mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")

    assert _limits() == were


def _limits() -> list[Any]:
    shown = {
        "postgresql": ["transaction_timeout", "idle_in_transaction_session_timeout"],
        "mysql": ["@@wait_timeout", "@@idle_write_transaction_timeout", "@@idle_transaction_timeout"],
    }[connection.vendor]
    statement = "SHOW {}" if connection.vendor == "postgresql" else "SELECT {}"
    with connection.cursor() as cursor:
        limits = []
        for name in shown:
            cursor.execute(statement.format(name))
            limits.append(cursor.fetchone())
    return limits


@pytest.fixture
def stopped_owner(user: User, before: str, settings: Any) -> Iterator[tuple[multiprocessing.process.BaseProcess, Any]]:
    """A process that was stopped in the middle of a body that may run for a second, and what it will have been told."""
    settings.MCP_IDEM = {"MAX_RUNTIME": timedelta(seconds=1)}
    told = fork.SimpleQueue()
    connections.close_all()
    owner = fork.Process(target=_stop_in_mid_call, args=(user.pk, told))
    owner.start()
    assert owner.pid is not None
    _, status = os.waitpid(owner.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    yield owner, told
    owner.kill()
    owner.join()


def _stop_in_mid_call(user_pk: int, told: Any) -> None:
    from tests.app import mcp_tools

    mcp_tools.during.append(lambda: os.kill(os.getpid(), signal.SIGSTOP))
    try:
        mcp_client(User.objects.get(pk=user_pk)).call_tool("atomic", {"label": "a"}, key="k")
        told.put("result")
    except MCPError as refused:
        told.put(refused.data["type"])


def test_an_owner_that_is_stopped_for_too_long_loses_its_transaction(
    user: User, stopped_owner: tuple[multiprocessing.process.BaseProcess, Any]
) -> None:
    """R23, R25: its key is in progress until then, and what it wrote is gone."""
    owner, told = stopped_owner
    client = mcp_client(user)
    deadline = time.monotonic() + 20

    assert refusal_elsewhere(user, "atomic", {"label": "a"}) == "idempotency_key_in_progress"
    while lock_of(user).refusal() is not None:
        assert time.monotonic() < deadline, "The owner still has its lock."
    result = client.call_tool("atomic", {"label": "a"}, key="k")
    assert owner.pid is not None
    os.kill(owner.pid, signal.SIGCONT)

    assert told.get() == "idempotency_unavailable"
    assert Effect.objects.get().pk == result.structured_content
    assert client.call_tool("atomic", {"label": "a"}, key="k") == result


def test_a_deadlock_is_known_as_a_lost_race() -> None:
    """R25: whoever loses it may retry."""
    first, second = Effect.objects.create(label="1"), Effect.objects.create(label="2")
    barrier = threading.Barrier(2, timeout=10)

    def cross(mine: Effect, others: Effect) -> Error | None:
        try:
            with transaction.atomic():
                Effect.objects.filter(pk=mine.pk).update(label="mine")
                barrier.wait()
                Effect.objects.filter(pk=others.pk).update(label="theirs")
        except Error as error:
            return error
        finally:
            connections.close_all()
        return None

    with ThreadPoolExecutor(2) as threads:
        ends = [threads.submit(cross, first, second), threads.submit(cross, second, first)]
        errors = [error for end in ends if (error := end.result()) is not None]

    (error,) = errors
    assert lost_a_race(error)
    assert may_pass(error)


def test_a_lock_that_is_not_to_be_had_in_time_is_known_to_pass() -> None:
    """R25"""
    effect = Effect.objects.create(label="1")
    bound = {"postgresql": "SET lock_timeout = 1", "mysql": "SET innodb_lock_wait_timeout = 0"}[connection.vendor]

    def wait() -> Error | None:
        connection.cursor().execute(bound)
        try:
            Effect.objects.filter(pk=effect.pk).update(label="theirs")
        except Error as error:
            return error
        return None

    with transaction.atomic():
        Effect.objects.filter(pk=effect.pk).update(label="mine")
        error = elsewhere(wait)

    assert error is not None
    assert may_pass(error)
    assert not lost_a_race(error)


def test_a_killed_connection_is_known_to_pass() -> None:
    """R25"""
    kill_connection(connection)

    with pytest.raises(Error) as lost:
        Effect.objects.count()

    connection.close()
    assert may_pass(lost.value)
    assert not lost_a_race(lost.value)


@pytest.mark.vendor("mysql")
def test_a_claim_that_falls_into_a_gap_that_another_one_locks_is_refused_to_be_retried(
    user: User, during: list[Callable[[], None]]
) -> None:
    """R05: MariaDB locks the place of a deleted record that it has not purged yet, and the places beside it."""
    client = mcp_client(user)
    RecordFactory(user=user, key="k", tool="atomic", arguments={"label": "a"}, expired=True)
    refusals = []
    during.append(lambda: refusals.append(refusal_elsewhere(user, "external", {"label": "b"}, key="another")))

    with _still_seen():
        assert not client.call_tool("atomic", {"label": "a"}, key="k").is_error

    assert refusals == ["idempotency_unavailable"]
    assert not client.call_tool("external", {"label": "b"}, key="another").is_error


@contextmanager
def _still_seen() -> Iterator[None]:
    """Have a transaction that sees what is deleted now, so that it is not purged."""
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    yield
    other.close()
