"""The database that records live in, and how to be brief with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error, connections, router

from ..models import IdempotencyRecord
from .outcomes import Reason, Refused

CLAIM_WAIT_MS = 1000
"""How long a claim waits for SQLite's write lock: through a burst of claims, not through another call's body."""

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
    """Bound the wait for SQLite's one write lock, which a running body holds for as long as it runs.

    Other databases lock rows, and none of those that are written here is held for longer than a statement takes.
    """
    connection = connections[using]
    if connection.vendor != "sqlite":
        yield
        return
    connection.ensure_connection()
    sqlite = connection.connection
    (patience_ms,) = sqlite.execute("PRAGMA busy_timeout").fetchone()
    sqlite.execute(f"PRAGMA busy_timeout = {milliseconds}")
    try:
        yield
    finally:
        sqlite.execute(f"PRAGMA busy_timeout = {patience_ms}")


def give_back_connection(using: str) -> None:
    """Return a pooled connection to its pool: a body that waits for the world must not hold one (R05)."""
    connection = connections[using]
    if getattr(connection, "pool", None) is not None and not connection.in_atomic_block:
        connection.close()
