"""How long a record counts, and how its space is freed (R12)."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db.models import F
from mcp.shared.exceptions import MCPError

from django_mcp_idem.idempotency.retention import sweep
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.states import State
from django_mcp_idem.tasks import BEAT_SCHEDULE, expire_records
from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect
from tests.factories import RecordFactory

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("name", "kept"),
    [("atomic", timedelta(hours=24)), ("external", timedelta(hours=24)), ("briefly_kept", timedelta(seconds=1))],
)
def test_a_record_is_kept_for_a_window_from_its_completion(user: User, name: str, kept: timedelta) -> None:
    """R12: the setting, or the tool's own."""
    mcp_client(user).call_tool(name, {"label": "a"}, key="k")

    record = IdempotencyRecord.objects.get()

    assert record.finished_at is not None
    assert record.expires_at == record.finished_at + kept


def test_the_window_is_a_setting(user: User, settings: Any) -> None:
    """R12"""
    settings.MCP_IDEM = {"RETENTION": timedelta(minutes=5)}
    mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")

    record = IdempotencyRecord.objects.get()

    assert record.finished_at is not None
    assert record.expires_at == record.finished_at + timedelta(minutes=5)


@pytest.mark.parametrize("label", ["a", "b"], ids=["same arguments", "other arguments"])
def test_an_expired_key_is_new_before_any_sweep(user: User, lock_cache: str | None, label: str) -> None:
    """R12: the window is enforced when the record is read, and nothing of the old record survives."""
    old = RecordFactory(user=user, key="k", tool="atomic", arguments={"label": "a"}, expired=True, replay_count=7)

    result = mcp_client(user).call_tool("atomic", {"label": label}, key="k")

    assert not result.is_error
    assert Effect.objects.get().label == label
    new = IdempotencyRecord.objects.get()
    assert new.pk != old.pk
    assert new.seed != old.seed
    assert (new.attempt, new.replay_count) == (1, 0)


def test_an_unknown_outcome_is_kept_longer_and_never_new_before(user: User) -> None:
    """R12: 30 days, from when it became unknown."""
    RecordFactory(user=user, key="k", tool="external", arguments={"label": "a"}, lapsed=True)
    client = mcp_client(user)

    for _ in range(2):
        with pytest.raises(MCPError) as refused:
            client.call_tool("external", {"label": "a"}, key="k")
        assert refused.value.data["type"] == "idempotency_outcome_unknown"

    record = IdempotencyRecord.objects.annotate(kept=F("expires_at") - F("lease_until")).get()
    assert record.state == State.UNKNOWN
    assert timedelta(days=30) <= record.kept < timedelta(days=30, minutes=1)
    assert not Effect.objects.exists()


def test_the_sweep_deletes_what_is_expired_and_nothing_else() -> None:
    """R12: never a running record, however old."""
    RecordFactory.create_batch(5, expired=True)
    kept = {
        RecordFactory().pk,
        RecordFactory(unknown=True).pk,
        RecordFactory(running=True).pk,
        RecordFactory(lapsed=True).pk,
    }

    done = sweep(batch_size=2)

    assert (done.deleted, done.finished) == (5, True)
    assert set(IdempotencyRecord.objects.values_list("pk", flat=True)) == kept


def test_the_sweep_stops_when_its_time_is_up_and_says_so() -> None:
    RecordFactory.create_batch(5, expired=True)

    done = sweep(batch_size=2, budget=timedelta(0))

    assert (done.deleted, done.finished) == (2, False)
    assert IdempotencyRecord.objects.count() == 3


def test_the_command_says_what_it_deleted_and_whether_some_are_left() -> None:
    RecordFactory.create_batch(3, expired=True)
    out = StringIO()

    call_command("mcp_expire", "--batch-size=2", "--seconds=0", stdout=out, no_color=True)
    call_command("mcp_expire", stdout=out, no_color=True)

    assert out.getvalue().splitlines() == [
        "Deleted 2 expired records. The time was up before the end: some are left.",
        "Deleted 1 expired records.",
    ]


def test_the_beat_schedule_names_the_task() -> None:
    (entry,) = BEAT_SCHEDULE.values()

    assert entry["task"] == expire_records.name
    RecordFactory(expired=True)
    assert expire_records() == 1
