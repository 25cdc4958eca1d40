"""A duplicate waits for nobody (R05)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from mcp.shared.exceptions import MCPError

from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect
from tests.threads import PATIENCE, begun, elsewhere

pytestmark = pytest.mark.django_db(transaction=True)

# What makes a statement fail that would wait for a lock.
IMPATIENCE = {
    "postgresql": "SET lock_timeout = '1ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 0, SESSION lock_wait_timeout = 0",
    "sqlite": "PRAGMA busy_timeout = 0",
}


@pytest.mark.parametrize("name", ["atomic", "atomic_async", "external", "rerun_safe"])
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ((None, "a"), "idempotency_key_in_progress"),
        ((None, "b"), "idempotency_key_conflict"),
        (("external", "a"), "idempotency_key_conflict"),
        (("atomic", "a"), "idempotency_key_conflict"),
    ],
    ids=["a duplicate", "other arguments", "another tool", "another tool, atomic"],
)
def test_no_statement_of_a_duplicate_waits_for_the_original(
    user: User, during: list[Callable[[], None]], name: str, other: tuple[str | None, str], reason: str
) -> None:
    """R05, R07: it is answered while the original sleeps, in its open transaction if it has one."""
    client = mcp_client(user)
    tool, label = other
    if tool == name:
        reason = "idempotency_key_in_progress"
    asleep, wake = Event(), Event()
    statements: list[str] = []

    def sleep() -> None:
        during.clear()
        asleep.set()
        assert wake.wait(PATIENCE)

    def duplicate() -> str:
        with connection.cursor() as cursor:
            cursor.execute(IMPATIENCE[connection.vendor])
        with connection.execute_wrapper(_noting(statements)), pytest.raises(MCPError) as refused:
            client.call_tool(tool or name, {"label": label}, key="k")
        return str(refused.value.data["type"])

    during.append(sleep)
    original: Future[Any] = begun(lambda: client.call_tool(name, {"label": "a"}, key="k"))
    assert asleep.wait(PATIENCE)

    assert elsewhere(duplicate) == reason

    assert not original.done()
    wake.set()
    assert not original.result(PATIENCE).is_error
    assert len(statements) <= MOST_STATEMENTS[connection.vendor]
    assert Effect.objects.count() == 1


# The look-up; where that sees no record the claim, and a look at who has its lock.
MOST_STATEMENTS = {"postgresql": 3, "mysql": 8, "sqlite": 1}


def _noting(statements: list[str]) -> Callable[..., Any]:
    def wrapper(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        return execute(sql, params, many, context)

    return wrapper
