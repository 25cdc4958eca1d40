"""A connection that is cut on either side of any request breaks no promise (R25, R26, R28).

The caller is told a result or a refusal, and a retry over a connection that holds finds the key as promised.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django_redis import get_redis_connection

from django_mcp_idem.idempotency.equivalence import fingerprint
from django_mcp_idem.idempotency.keys import Identity, Scope
from django_mcp_idem.idempotency.locks import Holder, get_lock
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests.faults.conftest import LEASE
from tests.faults.pasts import PASTS, Past, give_past
from tests.faults.points import Point, watched
from tests.faults.promises import Case, ask, check, settle
from tests.faults.proxy import Address, Cut, Cutter, MariaDBWire, PostgresWire, Proxy, RedisWire, Side, Wire

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("brief_lease")]

Cutting = Callable[[Cut], AbstractContextManager[Cutter]]
"""What cuts as long as its context lasts."""

RECORDS = IdempotencyRecord._meta.db_table

TOOLS = [
    "atomic",
    "external",
    "rerun_safe",
    *(
        pytest.param(tool, marks=pytest.mark.exhaustive)
        for tool in ("atomic_async", "atomic_declared_error", "external_async", "declared_error")
    ),
]


@pytest.fixture
def cut_database(user: User) -> Iterator[Cutting]:
    """Cuts this thread's connection to the database; on SQLite, where there is none, statements fail instead."""
    if connection.vendor == "sqlite":
        yield _failing
        return
    wire, options = _WIRES[connection.vendor]
    with Proxy(wire, _database_address()) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        patch.setitem(connection.settings_dict, "PORT", proxy.port)
        patch.setitem(connection.settings_dict, "OPTIONS", {**connection.settings_dict["OPTIONS"], **options})

        @contextmanager
        def cutting(cut: Cut) -> Iterator[Cutter]:
            # A connection of its own for each call, so that setting it up is hit too.
            connection.close()
            with proxy.cutting(cut) as cutter:
                yield cutter
            connection.close()

        yield cutting
        connection.close()


@pytest.fixture
def cut_redis(brief_lease: None, settings: Any) -> Iterator[Cutting]:
    """Cuts connections to Redis."""
    address = get_redis_connection("locks").connection_pool.connection_kwargs
    with Proxy(RedisWire, (address["host"], address["port"])) as proxy:
        behind_proxy = {**settings.CACHES["locks"], "LOCATION": f"redis://127.0.0.1:{proxy.port}/0"}
        settings.CACHES = {**settings.CACHES, "behind proxy": behind_proxy}
        settings.MCP_IDEM = {**settings.MCP_IDEM, "LOCK_CACHE": "behind proxy"}
        yield proxy.cutting


@contextmanager
def _failing(cut: Cut) -> Iterator[Cutter]:
    cutter = Cutter(cut)
    side: Side | None = None

    def fail(point: Point) -> None:
        nonlocal side
        if not point.is_statement:
            return
        if point.side == "before":
            side = cutter.side_of(point.step)
            # A BEGIN that fails has begun nothing.
            side = "before" if side and point.step.startswith("BEGIN") else side
        if point.side == side:
            raise OperationalError from _sqlite_error(side)

    with watched(fail):
        yield cutter


def _sqlite_error(side: Side) -> sqlite3.OperationalError:
    text, name = {"before": ("database is locked", "SQLITE_BUSY"), "after": ("disk I/O error", "SQLITE_IOERR")}[side]
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


# With what keeps a connection from being encrypted: the proxy reads along.
_WIRES: dict[str, tuple[Callable[[], Wire], dict[str, str]]] = {
    "postgresql": (PostgresWire, {"sslmode": "disable", "gssencmode": "disable"}),
    "mysql": (MariaDBWire, {"ssl_mode": "DISABLED"}),
}


def _database_address() -> Address:
    host, port = connection.settings_dict["HOST"], connection.settings_dict["PORT"]
    if connection.vendor == "postgresql":
        return f"{host}/.s.PGSQL.{port or 5432}" if host.startswith("/") else (host, int(port or 5432))
    return host if host.startswith("/") else (host, int(port or 3306))


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("past", PASTS)
@pytest.mark.parametrize("tool", TOOLS)
def test_the_database_may_be_lost_on_either_side_of_any_statement(
    user: User, cut_database: Cutting, tool: str, past: Past, side: Side, for_good: bool
) -> None:
    """R25, R28"""
    hit = _cut_at_each_request(user, tool, past, cut_database, side=side, for_good=for_good)

    assert {f"SELECT {RECORDS}", f"UPDATE {RECORDS}"} <= set(hit)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("past", ["unused", pytest.param("expired", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("tool", ["external", "rerun_safe", pytest.param("atomic", marks=pytest.mark.vendor("sqlite"))])
def test_redis_may_be_lost_on_either_side_of_any_command(
    user: User, cut_redis: Cutting, tool: str, past: Past, side: Side
) -> None:
    """R25, R26, R28"""
    assert _cut_at_each_request(user, tool, past, cut_redis, side=side, for_good=False) == ["SET", "EVAL"]


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_lock_in_redis_that_cannot_be_read_holds_nobody_up(user: User, cut_redis: Cutting, side: Side) -> None:
    """R26: it was left behind, and the database knows better."""
    identity = Identity.of(Scope(endpoint="mcp", kind="user", subject=str(user.pk)), "k")
    holder = Holder(owner="0" * 32, fingerprint=fingerprint("external", {"label": "k"}))
    assert get_lock().acquire(identity, holder) is None

    with cut_redis(Cut(number=2, side=side, for_good=False)) as cutter:
        told = ask(mcp_client(user), "external", "k")

    assert cutter.hit == "GET"
    assert told.outcome is not None


def _cut_at_each_request(
    user: User, tool: str, past: Past, cutting: Cutting, *, side: Side, for_good: bool
) -> list[str]:
    """Make calls, each cut at another request, until one is not. Returns the requests that were cut first."""
    client = mcp_client(user)
    cases, requests = [], []
    for number in count(1):
        key = f"cut {side} request {number}"
        heard = give_past(past, user, tool, key)
        with cutting(Cut(number=number, side=side, for_good=for_good)) as cutter:
            heard.append(ask(client, tool, key))
        if cutter.hit is None:
            break
        requests.append(cutter.hit)
        cases.append(Case(key=key, fault=f"{key}, {cutter.hit}", heard=heard))
    settle(client, tool, cases)
    check(tool, cases, lease=LEASE)
    return requests
