"""Many processes, one key: one effect (R05, R06)."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from mcp.shared.exceptions import MCPError

from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect

PROCESSES = 8
KEYS = 10
ROUNDS = 20

fork = multiprocessing.get_context("fork")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["atomic", "external"])
def test_many_processes_with_one_key_make_one_effect(user: User, lock_cache: str | None, name: str) -> None:
    """R05: each answer is the result or "in progress"; R06: each result of a key is the same."""
    barrier, answers = fork.Barrier(PROCESSES), fork.SimpleQueue()
    connections.close_all()
    racers = [fork.Process(target=_race, args=(user.pk, name, barrier, answers)) for _ in range(PROCESSES)]
    for racer in racers:
        racer.start()
    told = [answers.get() for _ in racers]
    for racer in racers:
        racer.join()

    assert [racer.exitcode for racer in racers] == [0] * PROCESSES
    assert Counter(Effect.objects.values_list("label", flat=True)) == dict.fromkeys(_keys(), 1)
    results: dict[str, set[Any]] = {key: set() for key in _keys()}
    refusals = set()
    for key, kind, what in (answer for of_one in told for answer in of_one):
        (results[key] if kind == "result" else refusals).add(what)
    assert {len(answers_of_key) for answers_of_key in results.values()} == {1}
    # On SQLite another key's body may hold the one write lock.
    brief = {"idempotency_unavailable"} if connection.vendor == "sqlite" else set()
    assert refusals <= {"idempotency_key_in_progress"} | brief
    assert sum(map(len, told)) == PROCESSES * KEYS * ROUNDS


def _keys() -> list[str]:
    return [f"{round_}-{at}" for round_ in range(ROUNDS) for at in range(KEYS)]


def _race(user_pk: int, name: str, barrier: Barrier, answers: Any) -> None:
    """Call every key once, all processes at once."""
    client = mcp_client(User.objects.get(pk=user_pk))
    told = list(_calls(client, name, barrier))
    connections.close_all()
    answers.put(told)


def _calls(client: Any, name: str, barrier: Barrier) -> Iterator[tuple[str, str, Any]]:
    for key in _keys():
        barrier.wait()
        try:
            yield key, "result", client.call_tool(name, {"label": key}, key=key).structured_content
        except MCPError as refused:
            yield key, "refused", refused.data["type"]
