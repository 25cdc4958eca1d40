"""A real worker and a real beat, on Redis (R12)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.servers import ROOT, shop_environment
from tests.services import redis_url

MAKE_ONE_EXPIRED_RECORD = """
from datetime import timedelta
from django.contrib.auth.models import User
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
mcp_client(User.objects.get(username="alice")).call_tool("charge_payment", {"amount": 5, "currency": "EUR"}, key="k")
record = IdempotencyRecord.objects.get()
IdempotencyRecord.objects.update(expires_at=record.finished_at - timedelta(hours=1))
"""
COUNT_RECORDS = "from django_mcp_idem.models import IdempotencyRecord; print(IdempotencyRecord.objects.count())"


def test_beat_and_a_worker_free_the_space_of_an_expired_record(tmp_path: Path) -> None:
    """R12"""
    environment = shop_environment("tests.e2e.brisk_settings", REDIS_URL=redis_url())
    _shell(MAKE_ONE_EXPIRED_RECORD, environment)
    assert _shell(COUNT_RECORDS, environment) == "1"

    with (
        _celery("worker", "--pool=solo", "--loglevel=WARNING", environment=environment),
        _celery("beat", f"--schedule={tmp_path / 'schedule'}", environment=environment),
    ):
        deadline = time.monotonic() + 60
        while _shell(COUNT_RECORDS, environment) != "0":
            assert time.monotonic() < deadline, "The expired record is still there."


def _shell(code: str, environment: Mapping[str, str]) -> str:
    """The last line that ``code`` prints."""
    command = [sys.executable, "manage.py", "shell", "--verbosity=0", f"--command={code}"]
    printed = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return printed.strip().rpartition("\n")[2]


@contextmanager
def _celery(*arguments: str, environment: Mapping[str, str]) -> Iterator[None]:
    command = [sys.executable, "-m", "celery", "--app=example_project", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)
