"""Equal calls without a key that are taken for one, where a tool says so (R04 to R06, R08, R16, R18, R22, R23)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from mcp.shared.exceptions import MCPError

from django_mcp_idem import Site
from django_mcp_idem.forms import SettlementForm
from django_mcp_idem.idempotency.equivalence import fingerprint
from django_mcp_idem.idempotency.keys import Identity, Scope, derived_key
from django_mcp_idem.idempotency.shutdown import _Shutdown, begin_shutdown
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.states import State
from django_mcp_idem.testing import mcp_client
from tests.app.mcp_tools import WINDOW
from tests.app.models import Effect
from tests.factories import RecordFactory, UserFactory
from tests.threads import PATIENCE, elsewhere

pytestmark = pytest.mark.django_db

KINDS = ["deduplicated", "deduplicated_async", "deduplicated_atomic", "deduplicated_rerun_safe"]


def keyless(user: User, tool: str, label: str = "a", **traits: Any) -> IdempotencyRecord:
    """The record of a call without a key."""
    arguments = {"label": label}
    scope = Scope(endpoint="mcp", kind="user", subject=str(user.pk)).keyless()
    key = derived_key(fingerprint(tool, arguments))
    return RecordFactory(user=user, tool=tool, arguments=arguments, key=key, scope_digest=scope.digest, **traits)


def pass_time(span: timedelta) -> None:
    """Let the records be older."""
    IdempotencyRecord.objects.update(
        lease_until=F("lease_until") - span, finished_at=F("finished_at") - span, expires_at=F("expires_at") - span
    )


@pytest.mark.parametrize("name", KINDS)
def test_an_equal_call_within_the_window_is_a_replay(user: User, lock_cache: str | None, name: str) -> None:
    """R06"""
    client = mcp_client(user)

    first, copy = client.call_tool(name, {"label": "a"}), client.call_tool(name, {"label": "a"})

    assert copy == first
    assert not first.is_error
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("name", KINDS)
def test_an_equal_call_after_the_window_is_a_new_one(user: User, lock_cache: str | None, name: str) -> None:
    """R12: counted from completion; the retention of the record is the window."""
    client = mcp_client(user)
    client.call_tool(name, {"label": "a"})
    record = IdempotencyRecord.objects.get()
    assert record.finished_at is not None
    assert record.expires_at == record.finished_at + WINDOW

    pass_time(WINDOW)
    client.call_tool(name, {"label": "a"})

    assert Effect.objects.count() == 2
    assert IdempotencyRecord.objects.get().pk != record.pk


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", KINDS)
def test_an_equal_call_is_refused_while_the_first_runs(
    user: User, lock_cache: str | None, during: list[Callable[[], None]], name: str
) -> None:
    """R05: at once, and told to retry; the message knows that nobody sent a key."""
    client = mcp_client(user)
    refusals: list[MCPError] = []

    def copy() -> None:
        with pytest.raises(MCPError) as refused:
            elsewhere(lambda: client.call_tool(name, {"label": "a"}))
        refusals.append(refused.value)

    during.append(copy)
    client.call_tool(name, {"label": "a"})

    (refused,) = refusals
    assert refused.code == -3182
    assert refused.data == {"type": "idempotency_key_in_progress", "retryAfterMs": 1000}
    assert refused.message.startswith("An equal call is in progress")
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("name", KINDS)
def test_other_arguments_or_another_tool_are_another_call(user: User, name: str) -> None:
    """R07 has no part in it: what differs in anything runs."""
    client = mcp_client(user)

    for tool, label in [(name, "a"), (name, "b"), ("deduplicated_error", "a")]:
        client.call_tool(tool, {"label": label})

    assert Effect.objects.count() == 3


def test_another_callers_equal_call_runs(user: User) -> None:
    """R18"""
    for caller in (user, UserFactory()):
        mcp_client(caller).call_tool("deduplicated", {"label": "a"})

    assert Effect.objects.count() == 2


def test_the_spelling_of_the_arguments_does_not_matter(user: User) -> None:
    """R08, R09: calls are equal as they are for a key."""
    site = Site("spelling", mark_replays=False)

    @site.tool(deduplicate_within=WINDOW)
    def work(value: Any, other: int = 1) -> int:
        return Effect.objects.create(label="work").pk

    client = mcp_client(user, site=site)

    client.call_tool("work", {"value": {"a": 1, "b": [10**23, 0]}, "other": 1})
    client.call_tool("work", {"other": 1.0, "value": {"b": [1e23, -0.0], "a": 1.0}})
    assert Effect.objects.count() == 1

    client.call_tool("work", {"value": {"a": 1, "b": [10**23, 0]}})
    client.call_tool("work", {"value": {"a": True, "b": [10**23, 0]}, "other": 1})
    assert Effect.objects.count() == 3


def test_a_call_with_a_key_has_nothing_to_do_with_those_without(user: User) -> None:
    """The word does nothing to it: it runs beside an equal call, and another key is another call."""
    client = mcp_client(user)

    for key in (None, "k", "l", "k", None):
        client.call_tool("deduplicated", {"label": "a"}, key=key)

    assert Effect.objects.count() == 3
    kept = {
        record.key_preview[:1]: record.expires_at - record.finished_at for record in IdempotencyRecord.objects.all()
    }
    assert kept == {"k": timedelta(hours=24), "l": timedelta(hours=24), "n": WINDOW}


def test_no_key_that_a_client_can_send_is_that_of_a_call_without(user: User) -> None:
    """R01, R18: it is looked for in a scope of another kind."""
    client = mcp_client(user)
    client.call_tool("deduplicated", {"label": "a"})
    derived = derived_key(fingerprint("deduplicated", {"label": "a"}))

    client.call_tool("deduplicated", {"label": "a"}, key=derived)

    assert Effect.objects.count() == 2
    assert len(set(IdempotencyRecord.objects.values_list("scope_digest", flat=True))) == 2


def test_an_identity_without_a_key_differs_in_its_scope_from_every_one_with() -> None:
    """R18: from that of any user, client or endpoint."""
    scope = Scope(endpoint="mcp", kind="user", subject="1", client="c")

    assert scope.keyless().digest != scope.digest
    assert scope.keyless().kind != scope.kind
    assert Identity.of(scope.keyless(), "k") != Identity.of(scope, "k")


def test_an_anonymous_callers_calls_are_never_one() -> None:
    """R18: nothing tells one anonymous caller from another."""
    client = mcp_client(AnonymousUser())  # type: ignore[arg-type]  # what the endpoint has where nobody signed in

    for _ in range(2):
        client.call_tool("deduplicated", {"label": "a"})

    assert Effect.objects.count() == 2
    assert not IdempotencyRecord.objects.exists()


def test_a_continuation_runs_each_time(user: User) -> None:
    """R16"""
    client = mcp_client(user)
    question = client.request("tools/call", {"name": "deduplicated_question"})
    client.request("tools/call", {"name": "deduplicated_question"})
    assert Effect.objects.count() == 1

    for _ in range(2):
        client.request("tools/call", {"name": "deduplicated_question", "requestState": question["requestState"]})

    assert Effect.objects.count() == 3


def test_arguments_that_do_not_fit_leave_no_record(user: User) -> None:
    """R22"""
    assert mcp_client(user).call_tool("deduplicated", {"label": 1}).is_error

    assert not IdempotencyRecord.objects.exists()


def test_a_failure_is_replayed_like_a_success(user: User) -> None:
    """R06: it does not say that nothing was done, so the copy of the call must not do it again."""
    client = mcp_client(user)

    first, copy = (client.call_tool("deduplicated_error", {"label": "a"}) for _ in range(2))

    assert first.is_error
    assert copy == first
    assert Effect.objects.count() == 1


def test_a_call_that_did_nothing_frees_its_equals(user: User) -> None:
    """R25"""
    for effects in (1, 2):
        with pytest.raises(MCPError, match="Sold out") as refused:
            mcp_client(user).call_tool("deduplicated_ending", {"label": "a", "ending": "nothing done"})
        assert refused.value.data == {"type": "idempotency_nothing_done"}
        assert Effect.objects.count() == effects


def test_an_unknown_outcome_is_refused_for_the_window_and_then_new(user: User) -> None:
    """R23: without a key nobody can ask after that very call, so it blocks no later one for 30 days."""
    client = mcp_client(user)
    arguments = {"label": "a", "ending": "outcome unknown"}

    for _ in range(2):
        with pytest.raises(MCPError) as refused:
            client.call_tool("deduplicated_ending", arguments)
        record = IdempotencyRecord.objects.annotate(kept=F("expires_at") - F("lease_until")).get()
        assert refused.value.data == {"type": "idempotency_outcome_unknown", "record": record.pk}
        assert "key" not in refused.value.message
        assert record.kept == WINDOW
    assert Effect.objects.count() == 1

    pass_time(WINDOW)
    with pytest.raises(MCPError):
        client.call_tool("deduplicated_ending", arguments)
    assert Effect.objects.count() == 2


def test_a_call_that_was_killed_is_refused_for_the_window_and_then_new(user: User, lock_cache: str | None) -> None:
    """R23: from when an equal call found its lease over."""
    keyless(user, "deduplicated", lapsed=True)
    client = mcp_client(user)

    with pytest.raises(MCPError) as refused:
        client.call_tool("deduplicated", {"label": "a"})
    assert refused.value.data["type"] == "idempotency_outcome_unknown"
    assert IdempotencyRecord.objects.get().state == State.UNKNOWN

    pass_time(WINDOW)
    assert not client.call_tool("deduplicated", {"label": "a"}).is_error
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("name", KINDS)
def test_a_call_that_was_killed_long_ago_blocks_no_later_one(user: User, lock_cache: str | None, name: str) -> None:
    """R23: the record is gone, and with it its key for services downstream: the later call is another one."""
    old = keyless(user, name, lapsed=True)
    pass_time(WINDOW)

    assert not mcp_client(user).call_tool(name, {"label": "a"}).is_error

    new = IdempotencyRecord.objects.get()
    assert new.seed != old.seed
    assert (new.state, new.attempt) == (State.DONE, 1)
    assert Effect.objects.count() == 1


def test_a_call_that_was_killed_just_now_is_taken_over_where_it_may_run_again(user: User) -> None:
    """R23: with the same key for services downstream, since it is the same call."""
    old = keyless(user, "deduplicated_rerun_safe", lapsed=True)

    assert not mcp_client(user).call_tool("deduplicated_rerun_safe", {"label": "a"}).is_error

    new = IdempotencyRecord.objects.get()
    assert (new.pk, new.seed, new.attempt) == (old.pk, old.seed, 2)


def test_a_running_call_under_its_lease_is_in_progress_however_long(user: User, lock_cache: str | None) -> None:
    """R05: the window begins when a call has ended, or its lease has."""
    keyless(user, "deduplicated", running=True)
    IdempotencyRecord.objects.update(created_at=F("created_at") - timedelta(days=1))

    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool("deduplicated", {"label": "a"})

    assert refused.value.data["type"] == "idempotency_key_in_progress"


def test_what_a_person_settles_counts_for_the_window_as_well(user: User) -> None:
    """R23: and not for the retention of calls with a key."""
    record = keyless(user, "deduplicated", unknown=True)
    form = SettlementForm({"finding": "failed", "failure": "It failed.", "reason": "I looked."}, instance=record)

    assert form.is_valid()
    assert form.settle()

    settled = IdempotencyRecord.objects.annotate(kept=F("expires_at") - F("finished_at")).get()
    assert settled.kept == WINDOW


def test_a_late_owner_tells_what_its_own_call_came_to(user: User, during: list[Callable[[], None]]) -> None:
    """R23: also where its record is forgotten by then; the next equal call is another one."""
    during.append(lambda: IdempotencyRecord.objects.all().delete())  # type: ignore[arg-type,return-value]

    result = mcp_client(user).call_tool("deduplicated", {"label": "a"})

    assert result.structured_content == Effect.objects.get().pk


@pytest.mark.django_db(transaction=True)
def test_a_shutdown_leaves_it_unknown_for_the_window(
    user: User, settings: Any, monkeypatch: pytest.MonkeyPatch, during: list[Callable[[], None]]
) -> None:
    """R25: until the body ends, which may be never."""
    settings.MCP_IDEM = {"SHUTDOWN_GRACE": timedelta(milliseconds=1)}
    monkeypatch.setattr(_Shutdown, "begun", False)
    kept: list[timedelta] = []

    def shut_down() -> None:
        begin_shutdown()
        unknown = IdempotencyRecord.objects.filter(state=State.UNKNOWN)
        deadline = time.monotonic() + PATIENCE
        while not unknown.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        kept.append(unknown.annotate(kept=F("expires_at") - F("lease_until")).get().kept)

    during.append(shut_down)
    result = mcp_client(user).call_tool("deduplicated", {"label": "a"})

    assert kept == [WINDOW]
    assert not result.is_error


@pytest.mark.parametrize("name", ["atomic", "external", "rerun_safe"])
def test_a_tool_that_does_not_say_so_asks_no_query(user: User, name: str) -> None:
    """R04"""
    with CaptureQueriesContext(connection) as queries:
        mcp_client(user).call_tool(name, {"label": "a"})

    assert [query["sql"] for query in queries if "idempotencyrecord" in query["sql"]] == []


def test_people_see_that_there_was_no_key(user: User) -> None:
    mcp_client(user).call_tool("deduplicated", {"label": "a"})

    assert IdempotencyRecord.objects.get().key_preview.startswith("no key: ")
