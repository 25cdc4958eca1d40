"""The database that records live in, and how to be brief with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error, connections, router

from ..models import IdempotencyRecord
from .outcomes import Reason, Refused

SQLITE_WAIT_MS = 50


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
def waiting_briefly(using: str) -> Iterator[None]:
    """Wait for SQLite's one write lock 50 ms at most: a running body holds it for as long as it runs."""
    connection = connections[using]
    if connection.vendor != "sqlite":
        yield
        return
    connection.ensure_connection()
    sqlite = connection.connection
    (patience_ms,) = sqlite.execute("PRAGMA busy_timeout").fetchone()
    sqlite.execute(f"PRAGMA busy_timeout = {SQLITE_WAIT_MS}")
    try:
        yield
    finally:
        sqlite.execute(f"PRAGMA busy_timeout = {patience_ms}")


def give_back_connection(using: str) -> None:
    """Return a pooled connection to its pool: a body that waits for the world must not hold one (R05)."""
    connection = connections[using]
    if getattr(connection, "pool", None) is not None and not connection.in_atomic_block:
        connection.close()
