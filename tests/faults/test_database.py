"""The database is lost in the middle of a call (R25, R28)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.db import connection
from mcp.shared.exceptions import MCPError

from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect
from tests.services import kill_connection

pytestmark = pytest.mark.django_db(transaction=True)


class Outage:
    """Takes the database from this thread: cuts its connection, or on SQLite holds the write lock."""

    def __init__(self) -> None:
        self.blocker: sqlite3.Connection | None = None

    def begin(self) -> None:
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA busy_timeout = 100")
            self.blocker = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
            self.blocker.execute("BEGIN IMMEDIATE")
            return
        kill_connection(connection)

    def end(self) -> None:
        if self.blocker is not None:
            self.blocker.close()
        connection.close()


@pytest.fixture
def outage() -> Iterator[Outage]:
    outage = Outage()
    yield outage
    outage.end()


@pytest.mark.row_locks
@pytest.mark.parametrize("name", ["external", "rerun_safe"])
def test_a_connection_that_is_cut_while_a_body_waits_for_the_world_is_replaced(
    user: User, during: list[Callable[[], None]], outage: Outage, name: str
) -> None:
    """R25: the call is completed over a new one."""
    client = mcp_client(user)
    during.append(outage.begin)

    first = client.call_tool(name, {"label": "a"}, key="k")

    during.clear()
    assert not first.is_error
    assert client.call_tool(name, {"label": "a"}, key="k") == first
    assert Effect.objects.count() == 1


def test_an_atomic_call_that_loses_its_transaction_is_free_to_be_retried(
    user: User, during: list[Callable[[], None]], outage: Outage
) -> None:
    """R23, R25: nothing of it stayed. On SQLite its transaction holds the write lock, and nothing can be lost."""
    client = mcp_client(user)
    if connection.vendor != "sqlite":
        during.append(outage.begin)
        with pytest.raises(MCPError) as refused:
            client.call_tool("atomic", {"label": "a"}, key="k")
        assert refused.value.data["type"] == "idempotency_unavailable"
        assert not IdempotencyRecord.objects.exists()
    during.clear()

    assert not client.call_tool("atomic", {"label": "a"}, key="k").is_error
    assert Effect.objects.count() == 1


def test_a_claim_that_the_database_refuses_is_a_refusal_to_retry(user: User, outage: Outage) -> None:
    """R25: the call is not run unprotected."""
    client = mcp_client(user)
    outage.begin()

    with pytest.raises(MCPError) as refused:
        client.call_tool("atomic", {"label": "a"}, key="k")

    assert refused.value.code == -3182
    assert refused.value.data == {"type": "idempotency_unavailable", "idempotencyKey": "k", "retryAfterMs": 1000}
    outage.end()
    assert not Effect.objects.exists()
