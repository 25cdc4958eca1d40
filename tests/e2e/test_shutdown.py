"""A server that is told to end, as at a deploy (R25)."""

from __future__ import annotations

import signal
import time

import pytest

from tests.e2e.servers import COMMANDS, shop

BRIEF = {"MCP_SHUTDOWN_GRACE_SECONDS": "0.5"}


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("name", ["slow_notify", "async_notify"])
def test_an_external_call_that_outlives_the_grace_period_is_unknown_until_it_ends(kind: str, name: str) -> None:
    """R23, R25: long before its lease is over; and where the server lets it end, it settles itself."""
    with shop(kind, **BRIEF) as ending:
        with ending.sent(name, {"email": "a@example.com", "seconds": 4}, key="k"):
            ending.wait_for_claim()
            ending.server.send_signal(signal.SIGTERM)

            while ending.states() == ["running"]:
                time.sleep(0.02)
            assert ending.states() == ["unknown"]
            assert ending.server.poll() is None
            ending.server.wait()

        assert ending.states() == ["done"]


def test_an_atomic_call_ends_with_its_process_or_before() -> None:
    """R23, R25: either way its key is not stuck, and the payment made once."""
    arguments = {"amount": 7, "seconds": 2}
    with (
        shop("uvicorn", **BRIEF) as ending,
        shop("uvicorn", DATABASE_URL=ending.environment["DATABASE_URL"]) as next_one,
    ):
        with ending.sent("slow_charge", arguments, key="k"):
            ending.wait_for_claim()
            ending.server.send_signal(signal.SIGTERM)
            ending.server.wait()

        assert next_one.call("slow_charge", arguments, key="k")["result"]["structuredContent"]["amount"] == 7
        assert next_one.effects() == {"payments": 1, "notifications": 0}
