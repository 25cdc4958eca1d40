"""Calls that ended without saying so: takeover, fence and the unknown outcome (R23, R25, R28)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from django_mcp_idem import ToolContext
from django_mcp_idem.idempotency import records
from django_mcp_idem.idempotency.clock import DatabaseNow
from django_mcp_idem.idempotency.outcomes import Outcome
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.states import Ending, State
from django_mcp_idem.testing import mcp_client
from tests.app.mcp_tools import HOOK_ERRORS
from tests.app.models import Effect
from tests.factories import RecordFactory
from tests.threads import elsewhere


def end_the_lease() -> None:
    """Let the lease of the one record be over, as if its owner had been paused for longer."""
    # By its key: an UPDATE of whatever there is would also wait for a record that is not committed.
    seen = list(IdempotencyRecord.objects.values_list("pk", flat=True))
    IdempotencyRecord.objects.filter(pk__in=seen).update(lease_until=DatabaseNow() - timedelta(seconds=1))


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["atomic", "atomic_async", "rerun_safe"])
def test_a_lapsed_call_that_may_run_again_does(user: User, lock_cache: str | None, name: str) -> None:
    """R23: as the next attempt, with the seed of the first."""
    lapsed = RecordFactory(user=user, key="k", tool=name, arguments={"label": "a"}, lapsed=True)

    result = mcp_client(user).call_tool(name, {"label": "a"}, key="k")

    assert not result.is_error
    record = IdempotencyRecord.objects.get()
    assert (record.state, record.attempt, record.seed) == (State.DONE, 2, lapsed.seed)
    assert record.owner != lapsed.owner
    assert Effect.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["external", "external_async"])
def test_a_lapsed_external_call_is_not_run_again_by_guesswork(user: User, lock_cache: str | None, name: str) -> None:
    """R23: its outcome is unknown, and the refusal names the record."""
    record = RecordFactory(user=user, key="k", tool=name, arguments={"label": "a"}, lapsed=True)

    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool(name, {"label": "a"}, key="k")

    assert refused.value.data == {
        "type": "idempotency_outcome_unknown",
        "idempotencyKey": "k",
        "record": record.pk,
    }
    assert not Effect.objects.exists()


@pytest.mark.django_db
def test_a_call_under_a_lease_is_in_progress_whoever_owns_it(user: User) -> None:
    """R23, R25: and never for longer than that."""
    RecordFactory(user=user, key="k", tool="atomic", arguments={"label": "a"}, running=True)

    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")
    assert refused.value.data["type"] == "idempotency_key_in_progress"

    end_the_lease()
    assert not mcp_client(user).call_tool("atomic", {"label": "a"}, key="k").is_error


@pytest.mark.django_db(transaction=True)
def test_an_owner_who_lost_its_claim_changes_nothing_and_tells_what_the_record_says(
    user: User, during: list[Callable[[], None]]
) -> None:
    """R23, R28: one effect, and both callers are told the same."""
    client = mcp_client(user)
    others: list[CallToolResult] = []

    def be_overtaken() -> None:
        during.clear()
        elsewhere(end_the_lease)
        others.append(elsewhere(lambda: client.call_tool("rerun_safe", {"label": "a"}, key="k")))

    during.append(be_overtaken)
    late = client.call_tool("rerun_safe", {"label": "a"}, key="k")

    (other,) = others
    assert late == other
    record = IdempotencyRecord.objects.get()
    assert (record.state, record.attempt) == (State.DONE, 2)


@pytest.mark.django_db(transaction=True)
def test_an_atomic_body_is_not_overtaken(user: User, during: list[Callable[[], None]]) -> None:
    """R23, R28: its transaction holds its key, or on SQLite the one write lock, whatever the lease says."""
    client = mcp_client(user)
    refusals: list[str] = []

    def try_to_overtake() -> None:
        during.clear()
        if connection.vendor != "sqlite":
            elsewhere(end_the_lease)
        with pytest.raises(MCPError) as refused:
            elsewhere(lambda: client.call_tool("atomic", {"label": "a"}, key="k"))
        refusals.append(refused.value.data["type"])

    during.append(try_to_overtake)
    first = client.call_tool("atomic", {"label": "a"}, key="k")

    assert refusals == ["idempotency_key_in_progress"]
    assert client.call_tool("atomic", {"label": "a"}, key="k") == first
    assert Effect.objects.get().pk == first.structured_content


@pytest.mark.django_db(transaction=True)
def test_an_atomic_body_whose_claim_is_gone_is_rolled_back(user: User, during: list[Callable[[], None]]) -> None:
    """R23, R25: the completion is guarded. MariaDB takes the claim back with a deadlock that the body swallows."""
    during.append(lambda: IdempotencyRecord.objects.update(owner="another"))

    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")

    assert refused.value.data["type"] == "idempotency_key_in_progress"
    assert not Effect.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_late_external_owner_settles_its_own_unknown_outcome(
    user: User, lock_cache: str | None, during: list[Callable[[], None]]
) -> None:
    """R23, R28: a retry in between is told that the outcome is unknown; after it, the result."""
    client = mcp_client(user)

    def be_given_up() -> None:
        end_the_lease()
        with pytest.raises(MCPError) as refused:
            elsewhere(lambda: client.call_tool("external", {"label": "a"}, key="k"))
        assert refused.value.data["type"] == "idempotency_outcome_unknown"

    during.append(be_given_up)
    late = client.call_tool("external", {"label": "a"}, key="k")

    assert client.call_tool("external", {"label": "a"}, key="k") == late
    assert Effect.objects.count() == 1
    assert IdempotencyRecord.objects.get().state == State.DONE


@pytest.mark.django_db(transaction=True)
def test_a_late_owner_tells_what_a_person_has_settled_and_not_its_own_result(
    user: User, during: list[Callable[[], None]]
) -> None:
    """R23, R28: others may have been told the settlement already."""
    client = mcp_client(user)

    def be_settled() -> None:
        end_the_lease()
        with pytest.raises(MCPError):
            elsewhere(lambda: client.call_tool("external", {"label": "a"}, key="k"))
        record = IdempotencyRecord.objects.get()
        text = '{"content":[{"type":"text","text":"Settled."}],"isError":false,"resultType":"complete"}'
        assert records.settle(record.pk, record.attempt, Outcome(Ending.RESULT, text), retention=None)

    during.append(be_settled)
    late = client.call_tool("external", {"label": "a"}, key="k")

    assert late.content[0].text == "Settled."
    assert client.call_tool("external", {"label": "a"}, key="k") == late


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", HOOK_ERRORS)
def test_an_on_commit_hook_that_raises_leaves_the_record_as_the_answer(user: User, error: str) -> None:
    """R25: what was committed stands, also where the error says that a COMMIT was lost, or that nothing was done."""
    client = mcp_client(user)
    arguments = {"label": "a", "error": error}

    first = client.call_tool("fails_on_commit", arguments, key="k")

    assert not first.is_error
    assert client.call_tool("fails_on_commit", arguments, key="k") == first
    assert Effect.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_constraint_that_fails_at_commit_is_the_tools_failure_and_recorded(user: User) -> None:
    """R25: the tool is not reported as successful, and is not run again."""
    client = mcp_client(user)

    first = client.call_tool("fails_at_commit", {"label": "a"}, key="k")

    assert first.is_error
    assert client.call_tool("fails_at_commit", {"label": "a"}, key="k") == first
    assert IdempotencyRecord.objects.get().attempt == 1
    assert not Effect.objects.exists()


@pytest.mark.django_db
def test_the_next_attempt_is_told_so_and_has_the_downstream_key_of_the_first(user: User) -> None:
    """R23"""
    lapsed = RecordFactory(user=user, key="k", tool="context", lapsed=True)

    told = mcp_client(user).call_tool("context", key="k").structured_content

    first = ToolContext(user=user, request=None, attempt=1, seed=lapsed.seed)
    assert told["attempt"] == 2
    assert told["downstream"] == first.downstream_key("refund")
