"""A server that is killed in mid-call (R23)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.e2e.servers import shop

LEASE = {"MCP_LEASE_SECONDS": "3"}
EXTERNAL = ("slow_notify", "async_notify")


def test_an_atomic_call_is_rolled_back_and_run_again_after_its_lease() -> None:
    """R23: exactly one effect."""
    answer, effects = _call_kill_and_retry("slow_charge", {"amount": 7, "seconds": 2})

    assert answer["result"]["structuredContent"]["amount"] == 7
    assert effects == {"payments": 1, "notifications": 0}


@pytest.mark.parametrize("name", EXTERNAL)
def test_an_external_call_is_not_run_again(name: str) -> None:
    """R23: its outcome is unknown, and stays so."""
    answer, effects = _call_kill_and_retry(name, {"email": "a@example.com", "seconds": 2})

    assert answer["error"]["data"]["type"] == "idempotency_outcome_unknown"
    assert effects == {"payments": 0, "notifications": 1}


def _call_kill_and_retry(name: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """The answer to a retry once the lease is over, and the effects that there are then."""
    with shop("uvicorn", **LEASE) as killed, killed.sent(name, arguments, key="k"):
        killed.wait_for_claim()
        while name in EXTERNAL and killed.effects()["notifications"] == 0:
            time.sleep(0.02)
        killed.server.kill()
        killed.server.wait()
    with shop("uvicorn", **LEASE, DATABASE_URL=killed.environment["DATABASE_URL"]) as next_one:
        while next_one.tells_in_progress(name, arguments, key="k"):
            time.sleep(0.05)
        return next_one.call(name, arguments, key="k"), next_one.effects()
