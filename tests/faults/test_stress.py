"""Many threads at once: every answer is a result or a refusal to retry, and there is one effect a key (R05, R06)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.contrib.auth.models import User
from django.db import connections

from django_mcp_idem.testing import MCPClient, mcp_client
from tests.faults.promises import Case, Told, ask, check, settle

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 8
ROUNDS = 10


@pytest.mark.parametrize("shared", [True, False], ids=["the same keys", "different keys"])
@pytest.mark.parametrize("tool", ["atomic", "external"])
def test_threads_that_call_at_once_make_one_effect_a_key(
    user: User, lock_cache: str | None, tool: str, shared: bool
) -> None:
    """R05, R06, R28. On SQLite they wait for its one write lock, for a while."""
    client = mcp_client(user)
    start = Barrier(THREADS)
    keys = [[f"{round_} of {0 if shared else thread}" for round_ in range(ROUNDS)] for thread in range(THREADS)]

    with ThreadPoolExecutor(THREADS) as threads:
        heard = list(threads.map(lambda of_one: _ask_in_turn(client, tool, of_one, start), keys))

    cases = {key: Case(key=key) for of_one in keys for key in of_one}
    for key, told in (pair for of_one in heard for pair in of_one):
        cases[key].heard.append(told)
    assert [
        told for case in cases.values() for told in case.heard if told.failed or not (told.outcome or told.retryable)
    ] == []
    settle(client, tool, list(cases.values()))
    check(tool, list(cases.values()))


def _ask_in_turn(client: MCPClient, tool: str, keys: list[str], start: Barrier) -> list[tuple[str, Told]]:
    start.wait()
    try:
        return [(key, ask(client, tool, key)) for key in keys]
    finally:
        connections.close_all()
