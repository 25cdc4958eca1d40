"""``manage.py mcp_expire``: delete expired idempotency records."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand

from ...idempotency.retention import sweep


class Command(BaseCommand):
    help = "Delete the idempotency records whose retention is over, as the Celery task does."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--batch-size", type=int, default=1000, help="records one transaction deletes at most")
        parser.add_argument("--seconds", type=float, default=300, help="after how long to stop between batches")

    def handle(self, *args: Any, **options: Any) -> None:
        done = sweep(batch_size=options["batch_size"], budget=timedelta(seconds=options["seconds"]))
        left = "" if done.finished else " The time was up before the end: some are left."
        self.stdout.write(self.style.SUCCESS(f"Deleted {done.deleted} expired records.{left}"))
