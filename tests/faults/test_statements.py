"""Single statements that fail, or after which something happens, by Django's own hook for it (R25, R26, R28)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from mcp.shared.exceptions import MCPError

from django_mcp_idem.idempotency.equivalence import VERSION, fingerprint
from django_mcp_idem.idempotency.keys import Identity, Scope
from django_mcp_idem.idempotency.locks import Holder, RedisLock
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect
from tests.factories import RecordFactory
from tests.faults.test_interrupted import end_the_lease

pytestmark = pytest.mark.django_db(transaction=True)

Wrapper = Callable[..., Any]


def failing(verb: str) -> Wrapper:
    """Makes statements of one kind about records fail."""

    def wrapper(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(verb) and IdempotencyRecord._meta.db_table in sql:
            raise OperationalError("The connection was lost.")
        return execute(sql, params, many, context)

    return wrapper


def once_after(verb: str, act: Callable[[], object]) -> Wrapper:
    """Does something after the first statement of one kind about records."""
    due = [act]

    def wrapper(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if due and sql.startswith(verb) and IdempotencyRecord._meta.db_table in sql:
            due.pop()()
        return result

    return wrapper


def test_a_replay_that_cannot_be_counted_is_a_replay(user: User) -> None:
    """R06"""
    client = mcp_client(user)
    first = client.call_tool("atomic", {"label": "a"}, key="k")

    with connection.execute_wrapper(failing("UPDATE")):
        assert client.call_tool("atomic", {"label": "a"}, key="k") == first


def test_a_failure_that_cannot_be_recorded_is_not_told(user: User) -> None:
    """R25, R28: nothing stayed of the body, and a retry runs it after the lease."""
    client = mcp_client(user)

    with connection.execute_wrapper(failing("UPDATE")), pytest.raises(MCPError) as refused:
        client.call_tool("atomic_declared_error", {"label": "a"}, key="k")

    assert refused.value.data["type"] == "idempotency_unavailable"
    assert not Effect.objects.exists()


def test_an_external_call_whose_completion_fails_is_answered_and_its_key_ends_unknown(user: User) -> None:
    """R25: the effect has happened, so its caller is told; the key is never free."""
    client = mcp_client(user)

    with connection.execute_wrapper(failing("UPDATE")):
        first = client.call_tool("external", {"label": "a"}, key="k")

    assert not first.is_error
    end_the_lease()
    with pytest.raises(MCPError) as refused:
        client.call_tool("external", {"label": "a"}, key="k")
    assert refused.value.data["type"] == "idempotency_outcome_unknown"
    assert Effect.objects.count() == 1


def test_a_call_that_may_run_again_tells_no_result_that_was_not_recorded(user: User) -> None:
    """R28: it is refused, and run again when the lease is over."""
    client = mcp_client(user)

    with connection.execute_wrapper(failing("UPDATE")), pytest.raises(MCPError) as refused:
        client.call_tool("rerun_safe", {"label": "a"}, key="k")

    assert refused.value.data["type"] == "idempotency_unavailable"
    assert refused.value.data["retryAfterMs"] > 0
    end_the_lease()
    assert not client.call_tool("rerun_safe", {"label": "a"}, key="k").is_error


def test_a_record_of_an_unknown_algorithm_is_neither_replayed_nor_a_conflict(user: User) -> None:
    """R10: left by a newer release that was rolled back."""
    RecordFactory(user=user, key="k", tool="atomic", arguments={"label": "a"}, fingerprint_version=VERSION + 1)

    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")

    assert refused.value.data["type"] == "idempotency_unavailable"
    assert not Effect.objects.exists()


@pytest.mark.parametrize("label", ["a", "b"], ids=["the lock of this call", "the lock of another call"])
def test_a_refusal_by_the_lock_is_confirmed_by_the_record(user: User, settings: Any, label: str) -> None:
    """R06, R26: the call was completed between the look-up and the lock."""
    settings.MCP_IDEM = {"LOCK_CACHE": "locks"}
    identity = Identity.of(Scope(endpoint="mcp", kind="user", subject=str(user.pk)), "k")
    holder = Holder(owner="0" * 32, fingerprint=fingerprint("external", {"label": label}))
    lock = RedisLock("locks")
    assert lock.acquire(identity, holder) is None

    def finish() -> None:
        RecordFactory(user=user, key="k", tool="external", arguments={"label": "a"})

    with connection.execute_wrapper(once_after("SELECT", finish)):
        assert not mcp_client(user).call_tool("external", {"label": "a"}, key="k").is_error

    lock.release(identity, holder)
    assert not Effect.objects.exists()
