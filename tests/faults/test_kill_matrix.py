"""A process that is killed at any point of a call breaks no promise (R23, R25, R28)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from django.contrib.auth.models import User

from django_mcp_idem.testing import MCPClient, mcp_client
from tests.faults.children import Child, kill_this_process
from tests.faults.conftest import LEASE
from tests.faults.pasts import PASTS, Past, give_past
from tests.faults.points import CALLBACK, Point, rehearse, watched
from tests.faults.promises import Case, Told, ask, check, settle, tally

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("brief_lease")]

AT_ONCE = 2
"""How many processes run at a time: more would queue for the write lock of SQLite."""

TOOLS = (
    "atomic",
    "atomic_async",
    "atomic_declared_error",
    "atomic_protocol_error",
    "swallows_database_error",
    "fails_at_commit",
    "external",
    "external_async",
    "declared_error",
    "undeclared_error",
    "rerun_safe",
)


@pytest.mark.parametrize("past", PASTS)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_call_may_be_killed_at_any_point(user: User, tool: str, past: Past) -> None:
    """R12, R23, R25, R28: also a takeover, a key that is used anew, and a replay."""
    client = mcp_client(user)
    for key in ("warm up", "rehearsal"):
        give_past(past, user, tool, key)
    ask(client, tool, "warm up")
    points = rehearse(lambda: ask(client, tool, "rehearsal"))
    heard = {point: give_past(past, user, tool, _key(point)) for point in points}

    cases = []
    survived = []
    for point, told in _killed(client, tool, points):
        cases.append(Case(key=_key(point), fault=f"{past} {_key(point)}", heard=heard[point]))
        if told is not None:
            survived.append(point)
            cases[-1].heard.append(told)
    settle(client, tool, cases)

    tally.points += len(points)
    check(tool, cases, lease=LEASE)
    # How many callbacks there are depends on how the threads take turns.
    assert [point for point in survived if point.step != CALLBACK] == []


def _key(point: Point) -> str:
    return f"killed {point}"


def _killed(client: MCPClient, tool: str, points: list[Point]) -> Iterator[tuple[Point, Told | None]]:
    """Let a call be killed at each point. Yields what it was told, if it was not killed."""
    running: deque[tuple[Point, Child]] = deque()
    # Backwards: those that have a claim come last, and are retried while its lease lasts.
    for point in reversed(points):
        running.append((point, Child(_dying(at=point, act=partial(ask, client, tool, _key(point))))))
        if len(running) == AT_ONCE:
            yield _ended(*running.popleft())
    while running:
        yield _ended(*running.popleft())


def _ended(point: Point, child: Child) -> tuple[Point, Told | None]:
    return point, child.returned()


def _dying(*, at: Point, act: Callable[[], Told]) -> Callable[[], Told]:
    def die(point: Point) -> None:
        if point == at:
            kill_this_process()

    def act_and_die() -> Told:
        with watched(die):
            return act()

    return act_and_die
