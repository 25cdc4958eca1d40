"""A duplicate of a running call, and a key used for another call (R05, R07)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from mcp.shared.exceptions import MCPError

from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect
from tests.factories import RecordFactory
from tests.threads import elsewhere

KINDS = ["atomic", "atomic_async", "external", "external_async", "rerun_safe"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", KINDS)
def test_a_duplicate_of_a_running_call_is_refused_at_once(
    user: User, lock_cache: str | None, during: list[Callable[[], None]], name: str
) -> None:
    """R05: while the original is in its body, an atomic one in its open transaction."""
    client = mcp_client(user)
    refusals: list[MCPError] = []

    def duplicate() -> None:
        with pytest.raises(MCPError) as refused:
            elsewhere(lambda: client.call_tool(name, {"label": "a"}, key="k"))
        refusals.append(refused.value)

    during.append(duplicate)
    client.call_tool(name, {"label": "a"}, key="k")

    (refused,) = refusals
    assert refused.code == -3182
    assert refused.data == {
        "type": "idempotency_key_in_progress",
        "idempotencyKey": "k",
        "retryAfterMs": 1000,
    }
    assert Effect.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", KINDS)
def test_other_arguments_conflict_while_the_original_runs(
    user: User, lock_cache: str | None, during: list[Callable[[], None]], name: str
) -> None:
    """R07"""
    client = mcp_client(user)
    refusals: list[MCPError] = []

    def other() -> None:
        with pytest.raises(MCPError) as refused:
            elsewhere(lambda: client.call_tool(name, {"label": "b"}, key="k"))
        refusals.append(refused.value)

    during.append(other)
    client.call_tool(name, {"label": "a"}, key="k")

    (refused,) = refusals
    assert refused.data == {"type": "idempotency_key_conflict", "idempotencyKey": "k"}
    assert list(Effect.objects.values_list("label", flat=True)) == ["a"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("atomic", {"label": "secret-2"}), ("external", {"label": "secret-1"}), ("echo", {"value": "secret-1"})],
    ids=["other arguments", "other tool, same arguments", "other tool, other arguments"],
)
def test_a_key_used_for_another_call_is_refused(
    user: User, lock_cache: str | None, name: str, arguments: dict[str, Any]
) -> None:
    """R07: nothing runs, the recorded result is not returned, and nothing of the original is revealed."""
    client = mcp_client(user)
    client.call_tool("atomic", {"label": "secret-1"}, key="k")

    with pytest.raises(MCPError) as refused:
        client.call_tool(name, arguments, key="k")

    assert refused.value.code == -32602
    assert refused.value.data == {"type": "idempotency_key_conflict", "idempotencyKey": "k"}
    assert "secret-1" not in refused.value.message
    assert Effect.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["running", "lapsed", "unknown"])
def test_other_arguments_conflict_in_every_state(user: User, lock_cache: str | None, state: str) -> None:
    """R07"""
    record = RecordFactory(user=user, key="k", tool="external", arguments={"label": "a"}, **{state: True})

    with pytest.raises(MCPError) as refused:
        mcp_client(user).call_tool("external", {"label": "b"}, key="k")

    assert refused.value.data == {"type": "idempotency_key_conflict", "idempotencyKey": "k"}
    assert not Effect.objects.exists()
    assert IdempotencyRecord.objects.get().state == record.state


@pytest.mark.django_db
def test_equivalent_arguments_are_the_same_call(user: User) -> None:
    """R08, R09: numbers by value, absent arguments as the empty object."""
    client = mcp_client(user)

    first = client.call_tool("echo", {"value": {"a": 1, "b": [10**23, 0]}}, key="k")
    retry = client.call_tool("echo", {"value": {"b": [1e23, -0.0], "a": 1.0}}, key="k")
    assert retry == first

    absent = client.request("tools/call", {"name": "contents", "idempotencyKey": "absent"})
    empty = client.request("tools/call", {"name": "contents", "arguments": {}, "idempotencyKey": "absent"})
    assert absent == empty
    assert Effect.objects.count() == 2


@pytest.mark.django_db
def test_arguments_are_compared_as_sent_before_defaults(user: User) -> None:
    """R09: leaving a default out and spelling it out are two calls."""
    client = mcp_client(user)
    client.call_tool("with_default", {}, key="k")

    with pytest.raises(MCPError) as refused:
        client.call_tool("with_default", {"label": "default"}, key="k")

    assert refused.value.data == {"type": "idempotency_key_conflict", "idempotencyKey": "k"}


@pytest.mark.django_db
def test_meta_is_no_part_of_the_call(user: User) -> None:
    """R09: another progress token is the same call."""
    client = mcp_client(user)
    sent = {"name": "atomic", "arguments": {"label": "a"}, "idempotencyKey": "k"}

    assert client.request("tools/call", sent) == client.request("tools/call", sent)
    assert Effect.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("other", ["K", "k ", " k", "k\u0301", "k\u0000", "\uff4b"])
def test_keys_that_differ_at_all_are_two_keys(user: User, other: str) -> None:
    """R01"""
    client = mcp_client(user)
    client.call_tool("atomic", {"label": "a"}, key="k")

    client.call_tool("atomic", {"label": "b"}, key=other)

    assert Effect.objects.count() == 2
