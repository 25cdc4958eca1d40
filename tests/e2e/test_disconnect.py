"""A client that goes away (R24): the same event as a lost response."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.servers import Shop, shop


@pytest.fixture(scope="module", params=["uvicorn", "uvicorn, mounted", "gunicorn threads"])
def running(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shop(request.param) as started:
        yield started


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("slow_charge", {"amount": 7, "seconds": 1.5}),
        ("slow_notify", {"email": "a@example.com", "seconds": 1.5}),
        ("async_notify", {"email": "a@example.com", "seconds": 1.5}),
    ],
    ids=["atomic", "external", "async"],
)
def test_a_keyed_call_runs_on_to_its_record_and_the_retry_gets_its_result(
    running: Shop, name: str, arguments: dict[str, Any]
) -> None:
    """R24"""
    before = sum(running.effects().values())
    with running.sent(name, arguments, key=name):
        running.wait_for_claim()

    # The client has hung up; the body still sleeps.
    assert running.tells_in_progress(name, arguments, key=name)
    while running.tells_in_progress(name, arguments, key=name):
        time.sleep(0.05)

    answer = running.call(name, arguments, key=name)
    assert answer["result"]["isError"] is False
    assert sum(running.effects().values()) == before + 1
