"""The database that records live in, and how to be brief with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import Error, InterfaceError, OperationalError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from ..models import IdempotencyRecord
from .outcomes import Reason, Refused

CLAIM_WAIT_MS = 1000
"""How long a claim waits for a lock of another call: through a burst of claims, not through another call's body."""

NOTE_WAIT_MS = 50
"""How long a statistic does, before it is left out."""


def writer() -> str:
    """Alias of the database that records are written to, and also read from: a replica may lag behind a claim."""
    return router.db_for_write(IdempotencyRecord)


@contextmanager
def refusing_if_unavailable() -> Iterator[None]:
    """Turn a database that does not answer into a refusal that may be retried; never run unprotected.

    Raises:
        Refused: The database raised an error.
    """
    try:
        yield
    except Error as error:
        raise Refused(Reason.UNAVAILABLE) from error


@contextmanager
def waiting_at_most(milliseconds: int, *, using: str) -> Iterator[None]:
    """Bound the wait of the statements in this context for a lock that a body holds for as long as it runs.

    That is SQLite's one write lock; and on MariaDB, where the record of a deleted key is not purged yet when the key is
    claimed again, the gap on either side of it, into which the claim of another key may fall.
    """
    connection = connections[using]
    if connection.vendor == "sqlite":
        with _sqlite_waiting_at_most(milliseconds, connection):
            yield
    elif getattr(connection, "mysql_is_mariadb", False):
        with connection.execute_wrapper(_mariadb_waiting_at_most(milliseconds)):
            yield
    else:
        yield


@contextmanager
def _sqlite_waiting_at_most(milliseconds: int, connection: BaseDatabaseWrapper) -> Iterator[None]:
    connection.ensure_connection()
    sqlite = connection.connection
    (patience_ms,) = sqlite.execute("PRAGMA busy_timeout").fetchone()
    sqlite.execute(f"PRAGMA busy_timeout = {milliseconds}")
    try:
        yield
    finally:
        # Django closes a connection whose ROLLBACK fails.
        if connection.connection is sqlite:
            sqlite.execute(f"PRAGMA busy_timeout = {patience_ms}")


def _mariadb_waiting_at_most(milliseconds: int) -> Callable[..., Any]:
    # In whole seconds, and as part of the statement, so that nothing of it is left to the body.
    limit = f"SET STATEMENT innodb_lock_wait_timeout = {milliseconds // 1000} FOR"

    def execute_with_limit(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        return execute(f"{limit} {sql}", params, many, context)

    return execute_with_limit


@contextmanager
def own_connection() -> Iterator[None]:
    """Give this thread, one of our own, a connection that is opened for it: a pool may be exhausted by the very calls
    that it sees to, and none is idle for so long that it is cut.
    """
    alias = writer()
    connection = connections[alias].copy()
    connection.settings_dict["OPTIONS"].pop("pool", None)
    connections[alias] = connection
    try:
        yield
    finally:
        connection.close()


def give_back_connection(using: str) -> None:
    """Return a pooled connection to its pool: a body that waits for the world must not hold one (R05)."""
    connection = connections[using]
    if getattr(connection, "pool", None) is not None and not connection.in_atomic_block:
        connection.close()


def lost_a_race(error: Error) -> bool:
    """Whether the database gave up a transaction for another one: a deadlock, or a failure to serialize them."""
    return _code(error).startswith(("40", "my1213", "my1020"))


def may_pass(error: Error) -> bool:
    """Whether a transaction that failed with ``error`` may well succeed the next time; nothing stays of it.

    That is so after a lost race, where a lock was not to be had in time, and where the connection was lost.
    """
    return lost_a_race(error) or _code(error).startswith(_PASSING)


def _code(error: Error) -> str:
    """What the driver calls the error: an SQLSTATE, the name of an SQLite error, or ``my`` and MySQL's number."""
    cause: Any = error.__cause__
    if hasattr(cause, "sqlstate"):
        # A connection that is lost on the way has none to tell. Nor has a mistake in the use of the driver.
        lost = _CONNECTION_LOST if isinstance(error, OperationalError | InterfaceError) else ""
        return str(cause.sqlstate or lost)
    if hasattr(cause, "sqlite_errorname"):
        return str(cause.sqlite_errorname)
    return f"my{cause.args[0]}" if cause and cause.args else ""


_CONNECTION_LOST = "08"

_PASSING = (
    # Connections, idle or long transactions cut off, locks not available, shutdown.
    *(_CONNECTION_LOST, "25P03", "25P04", "55P03", "57P"),
    *("SQLITE_BUSY", "SQLITE_LOCKED"),
    # Lock wait timeout; shutdown; connection killed, gone, lost.
    *("my1205", "my1053", "my1927", "my2006", "my2013", "my2055", "my0"),
)
