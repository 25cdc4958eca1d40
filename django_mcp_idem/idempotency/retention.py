"""The sweep: it frees the space of expired records. That they count for nothing is decided when they are read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import QuerySet

from ..models import IdempotencyRecord
from .clock import DatabaseNow
from .databases import writer


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What one sweep did.

    Attributes:
        deleted: How many records it deleted.
        finished: Whether none were left; false where the time budget ended it.
    """

    deleted: int
    finished: bool


def sweep(*, batch_size: int = 1000, budget: timedelta = timedelta(minutes=5)) -> Sweep:
    """Delete expired records, batch by batch, each in a transaction of its own (R12).

    A running record is never deleted. Several sweeps at once do no harm: each passes over rows the others hold.

    Args:
        batch_size: How many records one transaction deletes at most.
        budget: After how long to stop between batches.

    Returns:
        How many were deleted, and whether that was all.
    """
    deadline = time.monotonic() + budget.total_seconds()
    deleted = 0
    while True:
        batch = _delete_batch(batch_size)
        deleted += batch
        if batch < batch_size:
            return Sweep(deleted=deleted, finished=True)
        if time.monotonic() >= deadline:
            return Sweep(deleted=deleted, finished=False)


def _delete_batch(size: int) -> int:
    with transaction.atomic(using=writer()):
        batch = list(
            _expired().select_for_update(skip_locked=True).order_by("expires_at").values_list("pk", flat=True)[:size]
        )
        deleted, _ = _records().filter(pk__in=batch).delete()
    return deleted


def _expired() -> QuerySet[IdempotencyRecord]:
    # A running record has no expiry: a constraint of the table sees to it.
    return _records().filter(expires_at__lte=DatabaseNow())


def _records() -> QuerySet[IdempotencyRecord]:
    return IdempotencyRecord.objects.using(writer())
