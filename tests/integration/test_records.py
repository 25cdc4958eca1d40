"""The guards of each write: who lost the claim, or saw the record as it no longer is, changes nothing (R23, R28)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from django_mcp_idem.idempotency import records
from django_mcp_idem.idempotency.keys import Identity
from django_mcp_idem.idempotency.outcomes import Outcome
from django_mcp_idem.idempotency.records import Claim, Snapshot
from django_mcp_idem.idempotency.retention import sweep
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.states import Ending, State
from tests.factories import RecordFactory
from tests.threads import elsewhere

pytestmark = pytest.mark.django_db

OUTCOME = Outcome(Ending.RESULT, "{}")
LATER = timedelta(days=1)


def claim_of(record: IdempotencyRecord) -> Claim:
    return Claim(record_id=record.pk, attempt=record.attempt, owner=record.owner, seed=record.seed)


def seen(record: IdempotencyRecord) -> Snapshot:
    snapshot = records.look_up(Identity(record.scope_digest, record.key_digest), window=None)
    assert snapshot is not None
    return snapshot


def complete(record: IdempotencyRecord) -> Callable[[], object]:
    return partial(records.complete, claim_of(record), OUTCOME, None)


def release(record: IdempotencyRecord) -> Callable[[], object]:
    return partial(records.release, claim_of(record))


def take_over(record: IdempotencyRecord) -> Callable[[], object]:
    return partial(records.take_over, seen(record), "new owner")


def abandon(record: IdempotencyRecord) -> Callable[[], object]:
    return partial(records.abandon, seen(record), window=None)


def discard(record: IdempotencyRecord) -> Callable[[], object]:
    return partial(records.discard, seen(record), window=None)


def settle(record: IdempotencyRecord) -> Callable[[], object]:
    return partial(records.settle, record.pk, record.attempt, OUTCOME, retention=None)


def reopen(record: IdempotencyRecord) -> Callable[[], object]:
    return partial(records.reopen, record.pk, record.attempt)


OVERTAKEN = {"another attempt": {"attempt": 2}, "another owner": {"owner": "another"}}
DONE = {"state": State.DONE, "ending": Ending.RESULT, "expires_at": timezone.now() + LATER}
SETTLED = {"settled": DONE}
RENEWED = {"lease renewed": {"lease_until": timezone.now() + LATER}}
KEPT = {"kept for longer": {"expires_at": timezone.now() + LATER}}
FORGOTTEN = {"another attempt": {"attempt": 2}, **SETTLED, "expired": {"expires_at": timezone.now() - LATER}}

LAPSED, EXPIRED, UNKNOWN = {"lapsed": True}, {"expired": True}, {"unknown": True}
GUARDS = [
    *((complete, LAPSED, name, change) for name, change in {**OVERTAKEN, **SETTLED}.items()),
    *((release, LAPSED, name, change) for name, change in {**OVERTAKEN, **SETTLED}.items()),
    *((take_over, LAPSED, name, change) for name, change in {**OVERTAKEN, **SETTLED, **RENEWED}.items()),
    *((abandon, LAPSED, name, change) for name, change in {**OVERTAKEN, **SETTLED, **RENEWED}.items()),
    *((discard, EXPIRED, name, change) for name, change in {**OVERTAKEN, **KEPT}.items()),
    *((settle, UNKNOWN, name, change) for name, change in FORGOTTEN.items()),
    *((reopen, UNKNOWN, name, change) for name, change in FORGOTTEN.items()),
]


@pytest.mark.parametrize(
    ("write", "traits", "change"),
    [pytest.param(write, traits, change, id=f"{write.__name__}, {name}") for write, traits, name, change in GUARDS],
)
def test_a_write_changes_nothing_of_a_record_that_is_no_longer_as_it_was(
    write: Callable[[IdempotencyRecord], Callable[[], object]], traits: dict[str, bool], change: dict[str, Any]
) -> None:
    """R12, R23, R27, R28"""
    record = RecordFactory(**traits)
    late = write(record)
    IdempotencyRecord.objects.update(**change)
    before = IdempotencyRecord.objects.values().get()

    assert not late()

    assert IdempotencyRecord.objects.values().get() == before


@pytest.mark.parametrize(
    ("write", "traits", "state"),
    [
        (complete, LAPSED, State.DONE),
        (complete, UNKNOWN, State.DONE),
        (release, LAPSED, None),
        (take_over, LAPSED, State.RUNNING),
        (abandon, LAPSED, State.UNKNOWN),
        (discard, EXPIRED, None),
        (settle, UNKNOWN, State.DONE),
        (reopen, UNKNOWN, State.OPEN),
    ],
)
def test_a_write_changes_a_record_that_is_as_it_was(
    write: Callable[[IdempotencyRecord], Callable[[], object]], traits: dict[str, bool], state: State | None
) -> None:
    """R23"""
    assert write(RecordFactory(**traits))()

    record = IdempotencyRecord.objects.first()
    assert (record and record.state) == state


def test_a_takeover_has_a_lease_of_its_own(user: User) -> None:
    """R23"""
    record = RecordFactory(user=user, lapsed=True)

    records.take_over(seen(record), "new owner")

    assert not seen(record).lease_over


@pytest.mark.row_locks
@pytest.mark.django_db(transaction=True)
def test_a_sweep_passes_over_what_another_one_holds() -> None:
    """R12: several at once do no harm."""
    held, free = RecordFactory(expired=True), RecordFactory(expired=True)
    assert connection.features.has_select_for_update_skip_locked

    with transaction.atomic():
        list(IdempotencyRecord.objects.select_for_update().filter(pk=held.pk))
        assert elsewhere(sweep).deleted == 1

    assert not IdempotencyRecord.objects.filter(pk=free.pk).exists()
    assert IdempotencyRecord.objects.filter(pk=held.pk).exists()
