"""The Celery task that frees the space of expired records, and when to run it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from celery import shared_task

INTERVAL = timedelta(minutes=5)

# One sweep ends before the next is due, and one that was not started by then is not worth starting.
_BUDGET = INTERVAL * 0.8

BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    "mcp-expire-records": {
        "task": "django_mcp_idem.tasks.expire_records",
        "schedule": INTERVAL,
        "options": {"expires": INTERVAL.total_seconds()},
    }
}
"""For ``CELERY_BEAT_SCHEDULE``, as ``{**BEAT_SCHEDULE, ...}``."""


@shared_task(ignore_result=True, acks_late=True)
def expire_records() -> int:
    """Delete expired records. Returns how many."""
    # Not above: settings import this module for its schedule, before there are models.
    from .idempotency.retention import sweep

    return sweep(budget=_BUDGET).deleted
