"""What a body can do to its transaction (R23, R25, R28)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F
from mcp.shared.exceptions import MCPError

from django_mcp_idem import ToolError
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect, Tally
from tests.threads import PATIENCE, begun, elsewhere

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

FAILURE = "The tool failed. The error was logged on the server."


@pytest.mark.parametrize(
    "name",
    [
        "swallows_database_error",
        "asks_for_rollback",
        "swallows_raw_error",
        "closes_connection",
        "fails_at_commit",
        "writes_elsewhere",
        "durable",
    ],
)
def test_a_body_whose_transaction_cannot_be_committed_has_failed(user: User, name: str) -> None:
    """R25: nothing of it stays, its failure is recorded and replayed, and it is never told to have succeeded."""
    client = mcp_client(user)

    first = client.call_tool(name, {"label": "a"}, key="k")

    assert first.is_error
    assert first.content[0].text == FAILURE
    assert client.call_tool(name, {"label": "a"}, key="k") == first
    assert IdempotencyRecord.objects.get().attempt == 1
    assert not Effect.objects.exists()


def test_a_body_may_read_elsewhere(user: User) -> None:
    """R23: only what it writes there could not be rolled back."""
    assert not mcp_client(user).call_tool("reads_elsewhere", {"label": "a"}, key="k").is_error


def test_an_unkeyed_body_does_not_write_elsewhere_either(user: User) -> None:
    """R04: the word atomic means the same with a key and without."""
    assert mcp_client(user).call_tool("writes_elsewhere", {"label": "a"}).is_error
    assert not Effect.objects.exists()


def test_what_someone_else_came_to_meanwhile_is_told_instead_of_a_failure(
    user: User, during: list[Callable[[], None]]
) -> None:
    """R28: a failure is recorded after the rollback, under the rules of any claim."""
    client = mcp_client(user)
    others: list[Any] = []

    def fail() -> None:
        during.clear()
        raise ToolError("The card was declined.")

    def be_faster() -> None:
        others.append(elsewhere(lambda: client.call_tool("atomic", {"label": "a"}, key="k")))

    during.append(fail)
    with connection.execute_wrapper(_before_the_failure_is_recorded(be_faster)):
        told = client.call_tool("atomic", {"label": "a"}, key="k")

    if connection.vendor == "sqlite":
        # The claim was committed, so nobody was faster.
        assert told.is_error
    else:
        assert [told] == others
    assert client.call_tool("atomic", {"label": "a"}, key="k") == told


def _before_the_failure_is_recorded(act: Callable[[], None]) -> Callable[..., Any]:
    # On MariaDB a claim begins with its lock, elsewhere the lock is part of the INSERT.
    insert = f'INSERT INTO "{IdempotencyRecord._meta.db_table}"'
    begin_of_claim = "SELECT GET_LOCK" if connection.vendor == "mysql" else insert
    claims: list[str] = []

    def wrapper(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(begin_of_claim):
            claims.append(sql)
            if len(claims) == 2:
                act()
        return execute(sql, params, many, context)

    return wrapper


@pytest.fixture
def rows(db: None) -> tuple[int, int]:
    first, second = Tally.objects.create(name="first"), Tally.objects.create(name="second")
    return first.pk, second.pk


@pytest.mark.row_locks
def test_a_deadlock_in_a_body_frees_its_key_to_be_retried(
    user: User, during: list[Callable[[], None]], rows: tuple[int, int]
) -> None:
    """R25: it is no failure of the tool, and nothing of it stays."""
    client = mcp_client(user)
    first, second = rows
    holds = Event()
    others: list[Future[None]] = []

    def hold_the_second_and_wait_for_the_first() -> None:
        with transaction.atomic():
            _survive_deadlocks()
            Tally.objects.select_for_update().get(pk=second)
            holds.set()
            Tally.objects.select_for_update().get(pk=first)
            transaction.set_rollback(True)

    def run_into_a_deadlock() -> None:
        during.clear()
        Tally.objects.select_for_update().get(pk=first)
        others.append(begun(hold_the_second_and_wait_for_the_first))
        assert holds.wait(PATIENCE)
        Tally.objects.select_for_update().get(pk=second)

    during.append(run_into_a_deadlock)
    with pytest.raises(MCPError) as refused:
        client.call_tool("atomic", {"label": "a"}, key="k")

    others[0].result(PATIENCE)
    assert refused.value.data["type"] == "idempotency_unavailable"
    assert not IdempotencyRecord.objects.exists()
    assert not Effect.objects.exists()
    assert not client.call_tool("atomic", {"label": "a"}, key="k").is_error


def _survive_deadlocks() -> None:
    """PostgreSQL gives up the transaction that finds the deadlock, MariaDB the one that wrote less."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL deadlock_timeout = '1h'")
    Effect.objects.bulk_create(Effect(label="other") for _ in range(100))


@pytest.fixture
def repeatable_read() -> Iterator[None]:
    """Puts the connection of this thread at the isolation level at which PostgreSQL refuses lost updates."""
    from psycopg import IsolationLevel

    options = connection.settings_dict["OPTIONS"]
    connection.close()
    connection.settings_dict["OPTIONS"] = {**options, "isolation_level": IsolationLevel.REPEATABLE_READ}
    yield
    connection.close()
    connection.settings_dict["OPTIONS"] = options


@pytest.mark.vendor("postgresql")
def test_a_serialization_failure_in_a_body_frees_its_key_to_be_retried(
    user: User, during: list[Callable[[], None]], rows: tuple[int, int], repeatable_read: None
) -> None:
    """R25"""
    client = mcp_client(user)

    def lose_an_update() -> None:
        during.clear()
        row = Tally.objects.get(pk=rows[0])
        elsewhere(lambda: Tally.objects.filter(pk=row.pk).update(name=F("name")))
        Tally.objects.filter(pk=row.pk).update(name="mine")

    during.append(lose_an_update)
    with pytest.raises(MCPError) as refused:
        client.call_tool("atomic", {"label": "a"}, key="k")

    assert refused.value.data["type"] == "idempotency_unavailable"
    assert not IdempotencyRecord.objects.exists()
    assert not client.call_tool("atomic", {"label": "a"}, key="k").is_error
    assert Effect.objects.count() == 1
