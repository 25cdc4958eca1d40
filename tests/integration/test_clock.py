"""Whose clock decides (R27)."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_mcp_idem.idempotency.clock import DatabaseNow
from django_mcp_idem.idempotency.retention import sweep
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests.factories import RecordFactory

pytestmark = pytest.mark.django_db

A_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d")


@pytest.mark.parametrize("before", ["nothing", "lapsed", "expired", "done"])
def test_no_statement_about_records_carries_a_moment_of_the_hosts_clock(user: User, before: str) -> None:
    """R27: look-up, claim, takeover, discard, completion, replay and sweep leave the time to the database."""
    if before != "nothing":
        traits = {} if before == "done" else {before: True}
        RecordFactory(user=user, key="k", tool="atomic", arguments={"label": "a"}, **traits)

    with CaptureQueriesContext(connection) as queries:
        mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")
        sweep()

    about_records = [query["sql"] for query in queries if IdempotencyRecord._meta.db_table in query["sql"]]
    assert len(about_records) >= 3
    assert [sql for sql in about_records if A_MOMENT.search(sql)] == []


def test_the_moment_is_that_of_the_statement_and_not_of_the_transaction(user: User) -> None:
    """R27: a long body must not make its own completion look old."""
    first, second = (_now() for _ in range(2))

    assert first < second


def test_the_moment_is_in_utc_whatever_the_servers_time_zone_is(user: User) -> None:
    """R27: the zone of the server changes with the season, and that of one server may not be that of the next."""
    assert abs(_now() - timezone.now()) < timedelta(minutes=1)


def _now() -> datetime:
    time.sleep(0.002)  # SQLite's clock has milliseconds
    return User.objects.annotate(now=DatabaseNow()).values_list("now", flat=True)[0]
