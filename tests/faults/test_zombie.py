"""A process that is stopped in the middle of a call, overtaken, and goes on later breaks no promise (R23, R25, R28)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from django_mcp_idem.idempotency.outcomes import Reason
from django_mcp_idem.testing import MCPClient, mcp_client
from tests.app import mcp_tools
from tests.faults.children import Child, stop_this_process
from tests.faults.conftest import LEASE
from tests.faults.points import Point, rehearse, watched
from tests.faults.promises import Case, Told, ask, check, settle

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("brief_lease")]

TWO_LEASES = 2 * LEASE
# For the server to end the transaction of a stopped owner, and its connection.
MARGIN = 0.5


@pytest.fixture(autouse=True)
def _brief_runtime(brief_lease: None, settings: Any) -> None:
    settings.MCP_IDEM = {**settings.MCP_IDEM, "MAX_RUNTIME": timedelta(seconds=LEASE)}


@contextmanager
def in_mid_body() -> Iterator[None]:
    """Stop in the middle of the tool's body."""
    mcp_tools.during.append(stop_this_process)
    yield


def at(point: Point) -> AbstractContextManager[None]:
    """Stop at a point."""
    return watched(lambda reached: stop_this_process() if reached == point else None)


@pytest.mark.parametrize("tool", ["rerun_safe", "atomic", "atomic_async"])
def test_a_stopped_call_that_may_run_again_is_overtaken_and_told_what_the_other_was(user: User, tool: str) -> None:
    """R23, R28. On SQLite a stopped atomic body has the write lock, and so keeps its key."""
    (case,) = _stopped(mcp_client(user), tool, {"stopped": in_mid_body()})

    *_, before_it_went_on, late, retried, retried_again = case.heard
    if connection.vendor == "sqlite" and tool != "rerun_safe":
        assert before_it_went_on.retryable
        assert late.outcome is not None
    else:
        assert before_it_went_on.outcome is not None
    assert retried == retried_again
    check(tool, [case])


@pytest.mark.parametrize("tool", ["external", "external_async"])
def test_a_stopped_external_call_settles_its_own_unknown_outcome(user: User, tool: str) -> None:
    """R23, R28: who asks while it is stopped is told that the outcome is unknown; who asks later, its result."""
    (case,) = _stopped(mcp_client(user), tool, {"stopped": in_mid_body()})

    *_, before_it_went_on, late, retried, retried_again = case.heard
    assert before_it_went_on.refusal is Reason.OUTCOME_UNKNOWN
    assert late.outcome is not None
    assert late == retried == retried_again
    check(tool, [case], lease=LEASE + MARGIN)


@pytest.mark.exhaustive
@pytest.mark.row_locks
@pytest.mark.parametrize("tool", ["rerun_safe", "atomic", "atomic_async", "external", "external_async"])
def test_a_call_may_be_stopped_at_any_point(user: User, tool: str) -> None:
    """R23, R25, R28. SQLite is left out: one stopped call has its write lock, and so all calls."""
    client = mcp_client(user)
    ask(client, tool, "warm up")
    points = rehearse(lambda: ask(client, tool, "rehearsal"))

    cases = _stopped(client, tool, {f"stopped {point}": at(point) for point in points})

    check(tool, cases, lease=LEASE + MARGIN)


def _stopped(client: MCPClient, tool: str, faults: Mapping[str, AbstractContextManager[None]]) -> list[Case]:
    """Cases of calls that were stopped, asked about meanwhile, and asked about twice after they had gone on."""
    with ExitStack() as stack:
        zombies = [
            stack.enter_context(Child(partial(_ask_under, fault, client, tool, key))) for key, fault in faults.items()
        ]
        for zombie in zombies:
            zombie.wait_until_stopped()
        cases = [Case(key=key, fault=key) for key in faults]
        settle(client, tool, cases, patience=TWO_LEASES)
        for zombie, case in zip(zombies, cases, strict=True):
            zombie.go_on()
            case.heard.append(zombie.returned())
    settle(client, tool, cases)
    return cases


def _ask_under(fault: AbstractContextManager[None], client: MCPClient, tool: str, key: str) -> Told:
    with fault:
        return ask(client, tool, key)
