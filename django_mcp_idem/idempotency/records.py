"""Claim, complete, release, look up: every statement there is about records.

All of them go to the writer database and compare times on its clock. All writes name the row, its attempt, its owner
and its state; they say whether they changed anything, and who changed nothing has lost the claim. They join whatever
transaction is open.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, connections, transaction
from django.db.models import BooleanField, ExpressionWrapper, F, Func, Q, QuerySet, Value

from ..conf import get_settings
from ..models import IdempotencyRecord
from ..states import Ending, State
from .advisory import TransactionLock
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
    finished_at: datetime | None
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
class Probe:
    """The right to find out what came of one unknown outcome. The record's owner remains whose body it is about."""

    record_id: int
    attempt: int
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


def look_up(identity: Identity, *, window: timedelta | None) -> Snapshot | None:
    """The record for ``identity`` as it stands, in one statement.

    Args:
        identity: What names it.
        window: For a call without a key: how long after the end of its lease a record that nobody completed counts.

    Returns:
        What was seen; ``None`` where there is no record.
    """
    row = (
        _records()
        .filter(scope_digest=identity.scope_digest, key_digest=identity.key_digest)
        .annotate(expired=_holds(_expired(window)), lease_over=_holds(Q(lease_until__lte=DatabaseNow())))
        .values(*_SNAPSHOT)
    )
    return next((_snapshot(values) for values in row), None)


def claim(particulars: Particulars, owner: str, *, under: TransactionLock | None = None) -> Claim | None:
    """Insert a record, running.

    Args:
        particulars: What the record says of its call.
        owner: Who claims it.
        under: The lock to take in the same statement, in the open transaction. One statement for both: what took
            the lock and then read would read an old snapshot. This fails on what was committed while the lock was
            another's, also under REPEATABLE READ.

    Returns:
        The claim. ``None``: there is a record already, or another transaction has the lock.
    """
    new = _new(particulars, owner)
    try:
        with waiting_at_most(CLAIM_WAIT_MS, using=writer()):
            record_id = _records().create(**new).pk if under is None else _insert_where(under.taken(), new)
    except IntegrityError:
        return None
    return None if record_id is None else Claim(record_id=record_id, attempt=1, owner=owner, seed=new["seed"])


def take_over(snapshot: Snapshot, owner: str, *, under: TransactionLock | None = None) -> Claim | None:
    """Claim a record that is open or whose lease is over, as its next attempt.

    Args:
        snapshot: The record as it was seen.
        owner: Who claims it.
        under: The lock to take in the same statement.

    Returns:
        The claim. ``None``: someone else was faster.
    """
    now = DatabaseNow()
    free = _as_seen(snapshot).filter(Q(state=State.OPEN) | Q(state=State.RUNNING, lease_until__lte=now))
    with waiting_at_most(CLAIM_WAIT_MS, using=writer()):
        taken = (free if under is None else free.filter(under.taken())).update(
            state=State.RUNNING,
            attempt=snapshot.attempt + 1,
            owner=owner,
            lease_until=now + get_settings().LEASE,
            started_at=now,
            expires_at=None,
        )
    if not taken:
        return None
    return Claim(record_id=snapshot.id, attempt=snapshot.attempt + 1, owner=owner, seed=snapshot.seed)


def renew(claims: Collection[Claim]) -> set[str]:
    """Move the leases of claims, and nothing else, with one UPDATE for all of them.

    Returns:
        The owners whose claims still hold.
    """
    held = (
        _records()
        .filter(pk__in=[claim.record_id for claim in claims], owner__in=[claim.owner for claim in claims])
        .filter(state=State.RUNNING)
    )
    with transaction.atomic(using=writer()):
        # A row that is locked is being completed, so it is passed over.
        free = list(held.select_for_update(skip_locked=True).values_list("pk", flat=True))
        held.filter(pk__in=free).update(lease_until=DatabaseNow() + get_settings().LEASE)
        return set(held.values_list("owner", flat=True))


def complete(claim: Claim, outcome: Outcome, retention: timedelta | None) -> bool:
    """Store the outcome of a claim. The owner of a lapsed claim may still do so while nobody has settled it.

    Args:
        claim: The claim.
        outcome: What to replay from now on. One over the size limit is left out: retries are told so.
        retention: How long, from now, to keep it; ``None`` for the setting.

    Returns:
        Whether the claim still held. If not, nothing was changed.
    """
    return _store(_unsettled(claim), outcome, retention)


def _store(rows: QuerySet[IdempotencyRecord], outcome: Outcome, retention: timedelta | None, **more: str) -> bool:
    settings = get_settings()
    now = DatabaseNow()
    fits = len(outcome.text.encode()) <= settings.RESULT_MAX_BYTES
    stored = rows.update(
        state=State.DONE,
        ending=outcome.ending if fits else Ending.OMITTED,
        result=outcome.text if fits else None,
        finished_at=now,
        expires_at=now + (settings.RETENTION if retention is None else retention),
        **more,
    )
    return bool(stored)


def release(claim: Claim) -> bool:
    """Forget a claim of which nothing came, so that the key is free; also late, as ``complete`` does.

    Returns:
        Whether the claim still held.
    """
    deleted, _ = _unsettled(claim).delete()
    return bool(deleted)


def give_up(claim: Claim, *, window: timedelta | None) -> bool:
    """Settle a claim of which nobody knows what came as an unknown outcome.

    Args:
        claim: The claim.
        window: How long, from now, to keep the outcome of a call without a key; ``None`` for one with a key.

    Returns:
        Whether the claim still held.
    """
    return _leave_unknown(_running(claim), window)


def end_lease(claim: Claim) -> bool:
    """Let the lease of a claim end now. Returns whether the claim still held."""
    return bool(_running(claim).update(lease_until=DatabaseNow()))


def abandon(snapshot: Snapshot, *, window: timedelta | None) -> bool:
    """Settle a lapsed record whose body cannot be run again as an unknown outcome.

    Args:
        snapshot: The record as it was seen.
        window: As for ``give_up``.

    Returns:
        Whether it was as seen.
    """
    with waiting_at_most(CLAIM_WAIT_MS, using=writer()):
        return _leave_unknown(_as_seen(snapshot).filter(state=State.RUNNING, lease_until__lte=DatabaseNow()), window)


def _leave_unknown(rows: QuerySet[IdempotencyRecord], window: timedelta | None) -> bool:
    now = DatabaseNow()
    kept = get_settings().UNKNOWN_RETENTION if window is None else window
    left = rows.update(state=State.UNKNOWN, lease_until=now, expires_at=now + kept)
    return bool(left)


def begin_probe(snapshot: Snapshot) -> Probe | None:
    """Claim an unknown outcome to find out about it, as its next attempt. ``None``: someone else was faster."""
    now = DatabaseNow()
    attempt = snapshot.attempt + 1
    with waiting_at_most(CLAIM_WAIT_MS, using=writer()):
        begun = (
            _as_seen(snapshot)
            .filter(state=State.UNKNOWN, lease_until__lte=now)
            .update(attempt=attempt, lease_until=now + get_settings().LEASE)
        )
    return Probe(record_id=snapshot.id, attempt=attempt, seed=snapshot.seed) if begun else None


def end_probe(probe: Probe) -> bool:
    """Leave the outcome unknown, for another probe to find out. Returns whether it still was."""
    return bool(_unknown(probe.record_id, probe.attempt).update(lease_until=DatabaseNow()))


def claim_probed(probe: Probe, owner: str) -> Claim | None:
    """Claim a record of which a probe said that nothing was done. ``None``: it is no longer the probe's."""
    now = DatabaseNow()
    claimed = _unknown(probe.record_id, probe.attempt).update(
        state=State.RUNNING, owner=owner, lease_until=now + get_settings().LEASE, started_at=now, expires_at=None
    )
    if not claimed:
        return None
    return Claim(record_id=probe.record_id, attempt=probe.attempt, owner=owner, seed=probe.seed)


def settle(record_id: int, attempt: int, outcome: Outcome, *, retention: timedelta | None) -> bool:
    """Record what came of an unknown outcome, by the word of a probe or a person.

    Args:
        record_id: Primary key of the record.
        attempt: Its attempt as it was seen.
        outcome: What to replay from now on.
        retention: How long, from now, to keep it; ``None`` for the setting.

    Returns:
        Whether the outcome was still unknown and the attempt the same. If not, nothing was changed.
    """
    # Nobody's: a late owner has to see that it is not its own completion that is recorded.
    return _store(_unknown(record_id, attempt), outcome, retention, owner="")


def reopen(record_id: int, attempt: int) -> bool:
    """Let the next equal call run the body of an unknown outcome again. Returns as ``settle`` does."""
    return bool(_unknown(record_id, attempt).update(state=State.OPEN))


def discard(snapshot: Snapshot, *, window: timedelta | None) -> bool:
    """Delete an expired record, so that nothing of it survives in the next one.

    Args:
        snapshot: The record as it was seen.
        window: As it was for ``look_up``.

    Returns:
        Whether it was as seen.
    """
    with waiting_at_most(CLAIM_WAIT_MS, using=writer()):
        deleted, _ = _as_seen(snapshot).filter(_expired(window)).delete()
    return bool(deleted)


def count_replay(snapshot: Snapshot) -> None:
    """Note that the record was replayed."""
    with waiting_at_most(NOTE_WAIT_MS, using=writer()):
        _records().filter(pk=snapshot.id).update(replay_count=F("replay_count") + 1, last_replay_at=DatabaseNow())


def _records() -> QuerySet[IdempotencyRecord]:
    return IdempotencyRecord.objects.using(writer())


def _expired(window: timedelta | None) -> Q:
    now = DatabaseNow()
    over = Q(expires_at__lte=now)
    # A call without a key was interrupted, and nobody asks after it: the next equal one is another call.
    return over if window is None else over | Q(state=State.RUNNING, lease_until__lte=now - window)


def _as_seen(snapshot: Snapshot) -> QuerySet[IdempotencyRecord]:
    return _records().filter(pk=snapshot.id, attempt=snapshot.attempt, owner=snapshot.owner)


def _unknown(record_id: int, attempt: int) -> QuerySet[IdempotencyRecord]:
    # What has expired is new to the next call, whatever is found out about it now (R12).
    return _records().filter(pk=record_id, attempt=attempt, state=State.UNKNOWN, expires_at__gt=DatabaseNow())


def _running(claim: Claim) -> QuerySet[IdempotencyRecord]:
    return _records().filter(pk=claim.record_id, attempt=claim.attempt, owner=claim.owner, state=State.RUNNING)


def _unsettled(claim: Claim) -> QuerySet[IdempotencyRecord]:
    # A probe has an attempt of its own, but the owner of an unknown outcome is whose body it is unknown of.
    unsettled = Q(state=State.RUNNING, attempt=claim.attempt) | Q(state=State.UNKNOWN)
    return _records().filter(unsettled, pk=claim.record_id, owner=claim.owner)


def _new(particulars: Particulars, owner: str) -> dict[str, Any]:
    now = DatabaseNow()
    return {
        "endpoint": particulars.endpoint,
        "scope_digest": particulars.identity.scope_digest,
        "key_digest": particulars.identity.key_digest,
        "key_preview": particulars.key_preview,
        "user_id": particulars.user_id,
        "tool": particulars.tool,
        "fingerprint": particulars.fingerprint,
        "fingerprint_version": VERSION,
        "state": State.RUNNING,
        "attempt": 1,
        "owner": owner,
        "seed": secrets.token_hex(16),
        "lease_until": now + get_settings().LEASE,
        "created_at": now,
        "started_at": now,
        "replay_count": 0,
    }


def _insert_where(condition: Func, columns: Mapping[str, Any]) -> int | None:
    """Insert one record if a condition holds, for which the ORM has no words. Returns its primary key."""
    connection, query = connections[writer()], _records().query
    compiler, quote = query.get_compiler(writer()), connection.ops.quote_name
    names, terms, parameters = [], [], []
    for field in IdempotencyRecord._meta.concrete_fields:
        if field.attname in columns:
            value = columns[field.attname]
            expression = value if hasattr(value, "resolve_expression") else Value(value, output_field=field)
            term, term_parameters = compiler.compile(expression.resolve_expression(query, for_save=True))
            names.append(quote(field.attname))
            terms.append(term)
            parameters += term_parameters
    where, where_parameters = compiler.compile(condition)
    table, primary_key = quote(IdempotencyRecord._meta.db_table), quote("id")
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(terms)} WHERE {where} RETURNING {primary_key}",
            [*parameters, *where_parameters],
        )
        row = cursor.fetchone()
    return None if row is None else int(row[0])


def _holds(condition: Q) -> ExpressionWrapper[Q]:
    return ExpressionWrapper(condition, output_field=BooleanField())


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
