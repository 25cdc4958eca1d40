"""Locks of the database that nobody waits for, and that let a claim join the transaction of its body (R05, R23).

What is claimed in a transaction is not seen before it is committed, so a lock tells others of it. Two are taken: one
on the key, which only one transaction can have, and one on the key and the fingerprint, which tells a duplicate of
the call from another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Protocol

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, Func

from .databases import refusing_if_unavailable, writer
from .keys import Identity, digest
from .outcomes import Reason


class TransactionLock(Protocol):
    """The locks of one call."""

    def taken(self) -> Func:
        """A condition for the claim's statement that holds if the locks are the call's, and may take them only then.

        The transaction is bounded too: one whose owner was stopped or lost must not hold its key for ever.
        """

    @contextmanager
    def around_transaction(self) -> Iterator[None]:
        """What has to be done before the transaction begins and after it has ended."""

    def refusal(self) -> Reason | None:
        """Why a call that did not get the lock is refused; ``None`` where nobody has it by now."""


def get_transaction_lock(identity: Identity, fingerprint: str, *, max_runtime: timedelta) -> TransactionLock | None:
    """The locks for a call, if the database has such locks.

    Args:
        identity: What names the record.
        fingerprint: The call's fingerprint.
        max_runtime: How long the transaction may take.
    """
    connection = connections[writer()]
    match connection.vendor:
        case "postgresql":
            return PostgresLock(connection, identity, fingerprint, max_runtime=max_runtime)
        case "mysql" if connection.mysql_is_mariadb:  # type: ignore[attr-defined]  # MySQL's connection has it
            return MariaDBLock(connection, identity, fingerprint, max_runtime=max_runtime)
        case _:
            return None


class PostgresLock:
    """Advisory locks that PostgreSQL releases when the transaction ends, after what it wrote can be seen."""

    def __init__(
        self, connection: BaseDatabaseWrapper, identity: Identity, fingerprint: str, *, max_runtime: timedelta
    ) -> None:
        self._connection = connection
        self._key = _signed(_digest_of(identity), bits=64)
        self._call = (_signed(_digest_of(identity), bits=32), _signed(fingerprint, bits=32))
        self._max_ms = math.ceil(max_runtime.total_seconds() * 1000)
        # In a test's transaction the limit would outlive the call.
        self._bounded = not connection.in_atomic_block

    def taken(self) -> Func:
        key, fingerprint = self._call
        locks = f"pg_try_advisory_xact_lock_shared({key}, {fingerprint}) AND pg_try_advisory_xact_lock({self._key})"
        limit = f"set_config('{self._limit()}', '{self._max_ms}', true) IS NOT NULL AND " if self._bounded else ""
        return Func(template=f"({limit}{locks})", output_field=BooleanField())

    def _limit(self) -> str:
        # Before version 17 only the time between two statements can be limited.
        version: int = self._connection.pg_version  # type: ignore[attr-defined]  # PostgreSQL's connection has it
        return "transaction_timeout" if version >= 170000 else "idle_in_transaction_session_timeout"

    @contextmanager
    def around_transaction(self) -> Iterator[None]:
        yield

    def refusal(self) -> Reason | None:
        high, low = divmod(self._key % 2**64, 2**32)
        key, fingerprint = (number % 2**32 for number in self._call)
        with self._connection.cursor() as cursor:
            cursor.execute(_HELD, {"high": high, "low": low, "key": key})
            held = cursor.fetchall()
        holders = {process for process, kind, _ in held if kind == _ON_KEY}
        calls = {what for process, kind, what in held if kind == _ON_CALL and process in holders}
        # Locks are not released all at once, so only what is seen counts, never what is not.
        if not calls:
            return None
        return Reason.IN_PROGRESS if fingerprint in calls else Reason.CONFLICT


# What pg_locks says of locks on one number of 64 bits, and on two of 32.
_ON_KEY, _ON_CALL = 1, 2

_HELD = f"""
SELECT pid, objsubid, objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (objsubid = {_ON_KEY} AND classid = %(high)s AND objid = %(low)s OR objsubid = {_ON_CALL} AND classid = %(key)s)
"""


class MariaDBLock:
    """Named locks of MariaDB, which belong to the connection: taken before the transaction and released after it.

    The claim's own statement could take them only for an INSERT. An UPDATE waits for the row, which the owner of a
    takeover has locked, before it looks at its condition.
    """

    def __init__(
        self, connection: BaseDatabaseWrapper, identity: Identity, fingerprint: str, *, max_runtime: timedelta
    ) -> None:
        self._connection = connection
        # The names are the server's, not the database's.
        database = str(connection.settings_dict["NAME"])
        self._key = f"mcp-idem-{digest(database, _digest_of(identity))[:48]}"
        self._call = f"mcp-idem-{digest(database, _digest_of(identity), fingerprint)[:48]}"
        self._max_seconds = math.ceil(max_runtime.total_seconds())
        self._taken = False

    def taken(self) -> Func:
        return Func(template="TRUE" if self._taken else "FALSE", output_field=BooleanField())

    @contextmanager
    def around_transaction(self) -> Iterator[None]:
        with refusing_if_unavailable(), self._closed_on_error():
            limits = self._take()
        owner = self._connection.connection
        try:
            yield
        finally:
            # A connection that was lost, and maybe opened anew since, has lost its locks too.
            if self._connection.connection is owner:
                with suppress(Error), self._closed_on_error():
                    self._release(limits)

    def _take(self) -> tuple[int, int]:
        """Take the locks if they are free. Returns the limits of the connection, which are others meanwhile."""
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT @@SESSION.wait_timeout, @@SESSION.idle_write_transaction_timeout")
            limits: tuple[int, int] = cursor.fetchone()
            # Before the locks, so that there is no moment at which an owner could be lost and hold them for ever.
            cursor.execute(_LIMIT, [self._max_seconds, self._max_seconds])
            cursor.execute("SELECT GET_LOCK(%s, 0) = 1 AND GET_LOCK(%s, 0) = 1", [self._call, self._key])
            self._taken = cursor.fetchone() == (1,)
        return limits

    def _release(self, limits: tuple[int, int]) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute("DO RELEASE_LOCK(%s), RELEASE_LOCK(%s)", [self._key, self._call])
            cursor.execute(_LIMIT, limits)

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        """A connection that is kept for later requests must not keep the locks."""
        try:
            yield
        except Error:
            self._connection.close()
            raise

    def refusal(self) -> Reason | None:
        # The owner has the lock on the call from before it has the one on the key until after: a look at either side.
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT IS_USED_LOCK(%s), IS_USED_LOCK(%s), IS_USED_LOCK(%s)", [self._call, self._key, self._call]
            )
            before, holder, after = cursor.fetchone()
        if holder is None:
            return None
        return Reason.IN_PROGRESS if holder in (before, after) else Reason.CONFLICT


# How long the server waits for the next statement, in seconds: outside a transaction, and in one that has written.
_LIMIT = "SET SESSION wait_timeout = %s, SESSION idle_write_transaction_timeout = %s"


def _digest_of(identity: Identity) -> str:
    return digest(identity.scope_digest, identity.key_digest)


def _signed(hexadecimal: str, *, bits: int) -> int:
    """The first bits of a digest as a signed number."""
    return int.from_bytes(bytes.fromhex(hexadecimal)[: bits // 8], "big", signed=True)
