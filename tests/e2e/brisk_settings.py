"""The example with a beat that sweeps each second instead of every five minutes."""

from __future__ import annotations

from datetime import timedelta

from django_mcp_idem.tasks import BEAT_SCHEDULE
from example_project.settings import *  # noqa: F403

CELERY_BEAT_SCHEDULE = {name: {**entry, "schedule": timedelta(seconds=1)} for name, entry in BEAT_SCHEDULE.items()}
