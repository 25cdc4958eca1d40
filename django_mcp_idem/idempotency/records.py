"""Claim, complete, release, look up: every statement there is about records.

All of them go to the writer database and compare times on its clock. All writes name the row, its attempt, its owner
and its state; they say whether they changed anything, and who changed nothing has lost the claim. They join whatever
transaction is open.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import IntegrityError
from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet

from ..conf import get_settings
from ..models import IdempotencyRecord
from ..states import Ending, State
from .clock import DatabaseNow
from .databases import CLAIM_WAIT_MS, NOTE_WAIT_MS, waiting_at_most, writer
from .equivalence import VERSION
from .keys import Identity
from .outcomes import Outcome


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A record as one look at it found it, with what its times mean on the database's clock."""

    id: int
    attempt: int
    owner: str
    seed: str
    state: State
    fingerprint: str
    fingerprint_version: int
    ending: Ending | None
    result: str | None
    expired: bool
    lease_over: bool


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The right to run the body of one record and to complete it, until someone takes it over."""

    record_id: int
    attempt: int
    owner: str
    seed: str


@dataclass(frozen=True, kw_only=True)
class Particulars:
    """What a new record says of its call, whatever becomes of it."""

    identity: Identity
    endpoint: str
    key_preview: str
    user_id: Any
    tool: str
    fingerprint: str


def look_up(identity: Identity) -> Snapshot | None:
    """The record for ``identity`` as it stands, in one statement; ``None`` where there is none."""
    row = (
        _records()
        .filter(scope_digest=identity.scope_digest, key_digest=identity.key_digest)
        .annotate(expired=_holds(expires_at__lte=DatabaseNow()), lease_over=_holds(lease_until__lte=DatabaseNow()))
        .values(*_SNAPSHOT)
    )
    return next((_snapshot(values) for values in row), None)


def claim(particulars: Particulars, owner: str) -> Claim | None:
    """Insert a record, running, for ``owner``. ``None``: there is one already."""
    seed = secrets.token_hex(16)
    now = DatabaseNow()
    try:
        with waiting_at_most(CLAIM_WAIT_MS, using=writer()):
            record = _records().create(
                endpoint=particulars.endpoint,
                scope_digest=particulars.identity.scope_digest,
                key_digest=particulars.identity.key_digest,
                key_preview=particulars.key_preview,
                user_id=particulars.user_id,
                tool=particulars.tool,
                fingerprint=particulars.fingerprint,
                fingerprint_version=VERSION,
                state=State.RUNNING,
                owner=owner,
                seed=seed,
                lease_until=now + get_settings().LEASE,
                created_at=now,
                started_at=now,
            )
    except IntegrityError:
        return None
    return Claim(record_id=record.pk, attempt=record.attempt, owner=owner, seed=seed)


def take_over(snapshot: Snapshot, owner: str) -> Claim | None:
    """Claim a record whose lease is over, as its next attempt. ``None``: someone else was faster."""
    now = DatabaseNow()
    with waiting_at_most(CLAIM_WAIT_MS, using=writer()):
        taken = (
            _as_seen(snapshot)
            .filter(state=State.RUNNING, lease_until__lte=now)
            .update(
                attempt=snapshot.attempt + 1,
                owner=owner,
                lease_until=now + get_settings().LEASE,
                started_at=now,
            )
        )
    if not taken:
        return None
    return Claim(record_id=snapshot.id, attempt=snapshot.attempt + 1, owner=owner, seed=snapshot.seed)


def complete(claim: Claim, outcome: Outcome, retention: timedelta | None) -> bool:
    """Store the outcome of a claim. The owner of a lapsed claim may still do so while nobody has settled it.

    Args:
        claim: The claim.
        outcome: What to replay from now on. One over the size limit is left out: retries are told so.
        retention: How long, from now, to keep it; ``None`` for the setting.

    Returns:
        Whether the claim still held. If not, nothing was changed.
    """
    settings = get_settings()
    now = DatabaseNow()
    fits = len(outcome.text.encode()) <= settings.RESULT_MAX_BYTES
    completed = (
        _claimed(claim)
        .filter(state__in=[State.RUNNING, State.UNKNOWN])
        .update(
            state=State.DONE,
            ending=outcome.ending if fits else Ending.OMITTED,
            result=outcome.text if fits else None,
            finished_at=now,
            expires_at=now + (settings.RETENTION if retention is None else retention),
        )
    )
    return bool(completed)


def release(claim: Claim) -> bool:
    """Forget a claim under which nothing ran, so that the key is free. Returns whether the claim still held."""
    deleted, _ = _claimed(claim).filter(state=State.RUNNING).delete()
    return bool(deleted)


def abandon(snapshot: Snapshot) -> bool:
    """Settle a lapsed record whose body cannot be run again as an unknown outcome. Returns whether it was as seen."""
    now = DatabaseNow()
    with waiting_at_most(CLAIM_WAIT_MS, using=writer()):
        abandoned = (
            _as_seen(snapshot)
            .filter(state=State.RUNNING, lease_until__lte=now)
            .update(state=State.UNKNOWN, expires_at=now + get_settings().UNKNOWN_RETENTION)
        )
    return bool(abandoned)


def discard(snapshot: Snapshot) -> bool:
    """Delete an expired record, so that nothing of it survives in the next one. Returns whether it was as seen."""
    with waiting_at_most(CLAIM_WAIT_MS, using=writer()):
        deleted, _ = _as_seen(snapshot).filter(expires_at__lte=DatabaseNow()).delete()
    return bool(deleted)


def count_replay(snapshot: Snapshot) -> None:
    """Note that the record was replayed."""
    with waiting_at_most(NOTE_WAIT_MS, using=writer()):
        _records().filter(pk=snapshot.id).update(replay_count=F("replay_count") + 1, last_replay_at=DatabaseNow())


def _records() -> QuerySet[IdempotencyRecord]:
    return IdempotencyRecord.objects.using(writer())


def _as_seen(snapshot: Snapshot) -> QuerySet[IdempotencyRecord]:
    return _records().filter(pk=snapshot.id, attempt=snapshot.attempt, owner=snapshot.owner)


def _claimed(claim: Claim) -> QuerySet[IdempotencyRecord]:
    return _records().filter(pk=claim.record_id, attempt=claim.attempt, owner=claim.owner)


def _holds(**condition: Any) -> ExpressionWrapper[Q]:
    return ExpressionWrapper(Q(**condition), output_field=BooleanField())


_SNAPSHOT = tuple(Snapshot.__dataclass_fields__)


def _snapshot(values: dict[str, Any]) -> Snapshot:
    ending = values["ending"]
    return Snapshot(
        **{
            **values,
            "state": State(values["state"]),
            "ending": None if ending is None else Ending(ending),
            "expired": bool(values["expired"]),
            "lease_over": bool(values["lease_over"]),
        }
    )
