from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django_redis import get_redis_connection

from tests.faults.promises import tally

LEASE = 1.0
"""Seconds that a lease takes under ``brief_lease``."""


@pytest.fixture(params=["with Redis", pytest.param("without Redis", marks=pytest.mark.exhaustive)])
def brief_lease(request: pytest.FixtureRequest, settings: Any) -> None:
    """Leases that can be waited for, with locks in an empty Redis or on the database alone."""
    alias = "locks" if request.param == "with Redis" else None
    settings.MCP_IDEM = {"LOCK_CACHE": alias, "LEASE": timedelta(seconds=LEASE)}
    get_redis_connection("locks").flushdb()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not tally.faults:
        return
    terminalreporter.section("faults")
    terminalreporter.line(f"kill points tried: {tally.points}")
    terminalreporter.line(f"faults injected: {tally.faults}")
    terminalreporter.line(f"effects doubled: {tally.doubled}")
    terminalreporter.line(f"keys stuck: {tally.stuck}")
    terminalreporter.line(f"told in progress after a fault: for {tally.in_progress_for:.2f} s at most")
