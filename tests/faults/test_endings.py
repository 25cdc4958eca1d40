"""How a body can end beside returning, and what becomes of its key (R23, R25)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from django.contrib.auth.models import User
from mcp.shared.exceptions import MCPError

from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.states import State
from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)

EXTERNAL = ["ends_external", "ends_external_async"]
WITHOUT_A_WORD = ["outcome unknown", "cancelled", "out of memory"]
OF_THE_PROCESS = ["exit", "interrupt"]


@pytest.mark.parametrize("name", [*EXTERNAL, "ends_atomic", "ends_rerun_safe"])
def test_a_tool_that_did_nothing_frees_its_key_and_says_why(user: User, lock_cache: str | None, name: str) -> None:
    """R25"""
    client = mcp_client(user)
    arguments = {"label": "a", "ending": "nothing done"}

    for _ in range(2):
        with pytest.raises(MCPError) as refused:
            client.call_tool(name, arguments, key="k")
        assert refused.value.message == "Sold out."
        assert refused.value.data == {
            "type": "idempotency_nothing_done",
            "idempotencyKey": "k",
        }
        assert not IdempotencyRecord.objects.exists()

    assert not client.call_tool("atomic", {"label": "another call with the key"}, key="k").is_error


@pytest.mark.parametrize("name", EXTERNAL)
@pytest.mark.parametrize("ending", [*WITHOUT_A_WORD, "time-out"])
def test_an_external_body_that_ends_without_a_word_leaves_an_unknown_outcome(
    user: User, lock_cache: str | None, name: str, ending: str
) -> None:
    """R23, R25: at once, without waiting for the lease, and it is not run again."""
    client = mcp_client(user)

    for _ in range(2):
        with pytest.raises(MCPError) as refused:
            client.call_tool(name, {"label": "a", "ending": ending}, key="k")
        record = IdempotencyRecord.objects.get()
        assert refused.value.data == {
            "type": "idempotency_outcome_unknown",
            "idempotencyKey": "k",
            "record": record.pk,
        }

    assert record.state == State.UNKNOWN
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("ending", WITHOUT_A_WORD)
def test_an_atomic_body_that_ends_without_a_word_leaves_nothing(user: User, ending: str) -> None:
    """R23, R25"""
    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool("ends_atomic", {"label": "a", "ending": ending}, key="k")

    assert refused.value.data["type"] == "idempotency_unavailable"
    assert refused.value.data["retryAfterMs"] > 0
    assert not IdempotencyRecord.objects.exists()
    assert not Effect.objects.exists()


@pytest.mark.parametrize("ending", WITHOUT_A_WORD)
def test_a_body_that_is_safe_to_rerun_and_ends_without_a_word_is_run_again_at_once(
    user: User, lock_cache: str | None, ending: str
) -> None:
    """R23, R25: as the next attempt, with the keys for services downstream of the first."""
    client = mcp_client(user)
    seeds = set()

    for attempt in (1, 2):
        with pytest.raises(MCPError) as refused:
            client.call_tool("ends_rerun_safe", {"label": "a", "ending": ending}, key="k")
        assert refused.value.data["type"] == "idempotency_unavailable"
        record = IdempotencyRecord.objects.get()
        assert record.attempt == attempt
        seeds.add(record.seed)

    assert len(seeds) == 1
    assert Effect.objects.count() == 2


@pytest.mark.parametrize(("name", "effects"), [("ends_atomic", 0), ("ends_rerun_safe", 1)])
def test_a_time_out_of_a_body_that_may_run_again_is_a_failure_like_any_other(
    user: User, name: str, effects: int
) -> None:
    """R06"""
    client = mcp_client(user)

    first = client.call_tool(name, {"label": "a", "ending": "time-out"}, key="k")

    assert first.is_error
    assert client.call_tool(name, {"label": "a", "ending": "time-out"}, key="k") == first
    assert Effect.objects.count() == effects


@pytest.mark.parametrize(
    ("name", "state", "effects"),
    [("ends_external", State.UNKNOWN, 1), ("ends_atomic", None, 0), ("ends_rerun_safe", State.RUNNING, 1)],
)
@pytest.mark.parametrize("ending", OF_THE_PROCESS)
def test_a_body_that_ends_its_process_leaves_no_key_stuck(
    user: User, lock_cache: str | None, name: str, state: State | None, effects: int, ending: str
) -> None:
    """R25"""
    with suppress(SystemExit, KeyboardInterrupt):
        mcp_client(user).call_tool(name, {"label": "a", "ending": ending}, key="k")

    record = IdempotencyRecord.objects.first()
    assert (record and record.state) == state
    assert Effect.objects.count() == effects


@pytest.mark.parametrize(
    ("name", "ending", "told"),
    [
        ("ends_external", "nothing done", "Sold out."),
        ("ends_external", "outcome unknown", "Whether the tool did anything is not known."),
        ("ends_atomic", "outcome unknown", "The tool did nothing, or what it did was rolled back."),
    ],
)
def test_without_a_key_there_is_nothing_to_settle(user: User, name: str, ending: str, told: str) -> None:
    """R04: the word is an error of the tool."""
    result = mcp_client(user).call_tool(name, {"label": "a", "ending": ending})

    assert result.is_error
    assert result.content[0].text == told


def test_an_atomic_tool_has_no_downstream_key(user: User) -> None:
    """R23: an attempt that is rolled back would leave none to the next one."""
    assert mcp_client(user).call_tool("uses_downstream_key", {"label": "a"}, key="k").is_error
    assert not Effect.objects.exists()
