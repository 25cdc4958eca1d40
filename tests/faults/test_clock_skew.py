"""No clock of a host decides anything (R27)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from django_mcp_idem.idempotency.clock import DatabaseNow
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import MCPClient, mcp_client
from tests.app.models import Effect
from tests.faults.children import Child
from tests.faults.pasts import Past, give_past
from tests.faults.promises import Told, ask

pytestmark = pytest.mark.django_db(transaction=True)

# Longer than a finished record is kept.
TWO_DAYS = timedelta(days=2)


@contextmanager
def clock_wrong(by: timedelta) -> Iterator[None]:
    """Put the clock of this process forward, or back."""
    now, seconds = timezone.now, time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timezone, "now", lambda: now() + by)
        patch.setattr(time, "time", lambda: seconds() + by.total_seconds())
        yield


@pytest.mark.parametrize("by", [TWO_DAYS, -TWO_DAYS], ids=["ahead", "behind"])
@pytest.mark.parametrize("past", ["unused", "running", "lapsed", "expired", "finished"])
@pytest.mark.parametrize("tool", ["atomic", "external", "rerun_safe"])
def test_a_host_whose_clock_is_wrong_does_as_the_others_do(user: User, tool: str, past: Past, by: timedelta) -> None:
    """R27: claim, takeover, replay and expiry; the times in its record are the database's."""
    client = mcp_client(user)
    for key in ("right", "wrong"):
        give_past(past, user, tool, key)

    right = ask(client, tool, "right")
    wrong = Child(lambda: _ask_with_clock_wrong(by, client, tool, "wrong")).returned()

    assert _gist(wrong) == _gist(right)
    assert _effects("wrong") == _effects("right")
    assert _times("wrong") == _times("right")
    assert ask(client, tool, "wrong") == wrong


def _ask_with_clock_wrong(by: timedelta, client: MCPClient, tool: str, key: str) -> Told:
    with clock_wrong(by):
        return ask(client, tool, key)


def _gist(told: Told) -> tuple[object, ...]:
    """What is the same for two keys."""
    return told.outcome is None, told.failed, told.refusal


def _effects(key: str) -> int:
    return Effect.objects.filter(label=key).count()


def _times(key: str) -> list[timedelta | None]:
    """The times in the record of a key, from now on the database's clock, to the hour."""
    fields = ("created_at", "started_at", "lease_until", "finished_at", "expires_at", "last_replay_at")
    *times, now = IdempotencyRecord.objects.annotate(now=DatabaseNow()).values_list(*fields, "now").get(key_preview=key)
    return [None if moment is None else _to_the_hour(moment - now) for moment in times]


def _to_the_hour(distance: timedelta) -> timedelta:
    hour = timedelta(hours=1)
    return round(distance / hour) * hour
