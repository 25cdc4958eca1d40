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

from .databases import writer
from .keys import Identity, digest
from .outcomes import Reason


class TransactionLock(Protocol):
    """The locks of one call."""

    def taken(self) -> Func:
        """A condition for the claim's statement, which takes the locks and holds if it could.

        It also bounds the transaction: one whose owner was stopped or lost must not hold its key for ever.
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
    """Named locks of MariaDB, which belong to the connection and are released after the transaction."""

    def __init__(
        self, connection: BaseDatabaseWrapper, identity: Identity, fingerprint: str, *, max_runtime: timedelta
    ) -> None:
        self._connection = connection
        # The names are the server's, not the database's.
        database = str(connection.settings_dict["NAME"])
        self._key = f"mcp-idem-{digest(database, _digest_of(identity))[:48]}"
        self._call = f"mcp-idem-{digest(database, _digest_of(identity), fingerprint)[:48]}"
        self._max_seconds = math.ceil(max_runtime.total_seconds())

    def taken(self) -> Func:
        template = f"(GET_LOCK('{self._call}', 0) = 1 AND GET_LOCK('{self._key}', 0) = 1)"
        return Func(template=template, output_field=BooleanField())

    @contextmanager
    def around_transaction(self) -> Iterator[None]:
        self._execute(f"SET SESSION idle_transaction_timeout = {self._max_seconds}")
        try:
            yield
        finally:
            # Of a lost connection the server has released everything.
            with suppress(Error):
                self._execute(f"DO RELEASE_LOCK('{self._key}'), RELEASE_LOCK('{self._call}')")
                self._execute("SET SESSION idle_transaction_timeout = DEFAULT")

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

    def _execute(self, sql: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)


def _digest_of(identity: Identity) -> str:
    return digest(identity.scope_digest, identity.key_digest)


def _signed(hexadecimal: str, *, bits: int) -> int:
    """The first bits of a digest as a signed number."""
    return int.from_bytes(bytes.fromhex(hexadecimal)[: bits // 8], "big", signed=True)
