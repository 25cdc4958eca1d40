"""A tool's probe settles unknown outcomes (R23, R28)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event

import pytest
from django.contrib.auth.models import User
from mcp.shared.exceptions import MCPError

from django_mcp_idem import NothingDone, OutcomeUnknown, ToolContext, ToolError
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.states import State
from django_mcp_idem.testing import MCPClient, mcp_client
from tests.app.models import Effect
from tests.factories import RecordFactory
from tests.faults.test_interrupted import end_the_lease
from tests.threads import PATIENCE, begun, elsewhere

pytestmark = pytest.mark.django_db(transaction=True)

Probe = Callable[[ToolContext, str], int]

INTERRUPTED = [{"lapsed": True}, {"unknown": True, "lease_over": True}]


def interrupted(user: User, **traits: bool) -> IdempotencyRecord:
    return RecordFactory(user=user, key="k", tool="probed", arguments={"label": "a"}, **traits)


def call(client: MCPClient) -> object:
    return client.call_tool("probed", {"label": "a"}, key="k")


def refusal(client: MCPClient) -> str:
    with pytest.raises(MCPError) as refused:
        call(client)
    return str(refused.value.data["type"])


def raising(error: Exception) -> Probe:
    def say(ctx: ToolContext, label: str) -> int:
        raise error

    return say


@pytest.mark.parametrize("traits", INTERRUPTED, ids=["lapsed", "unknown"])
def test_what_happened_is_recorded_and_replayed(user: User, probe_says: list[Probe], traits: dict[str, bool]) -> None:
    """R23, R28"""
    record = interrupted(user, **traits)
    client = mcp_client(user)
    asked: list[tuple[int, str, str]] = []

    def say(ctx: ToolContext, label: str) -> int:
        asked.append((ctx.attempt, label, ctx.downstream_key()))
        return 7

    probe_says.append(say)
    told = client.call_tool("probed", {"label": "a"}, key="k")

    assert told.structured_content == 7
    assert call(client) == told
    first = ToolContext(user=user, request=None, attempt=1, seed=record.seed)
    assert asked == [(2, "a", first.downstream_key())]
    assert not Effect.objects.exists()


def test_a_failure_that_happened_is_recorded_too(user: User, probe_says: list[Probe]) -> None:
    """R23, R28"""
    interrupted(user, lapsed=True)
    client = mcp_client(user)
    probe_says.append(raising(ToolError("The card was declined.")))

    told = client.call_tool("probed", {"label": "a"}, key="k")

    assert told.is_error
    assert call(client) == told


@pytest.mark.parametrize("traits", INTERRUPTED, ids=["lapsed", "unknown"])
def test_a_body_that_did_nothing_is_run_as_the_next_attempt(
    user: User, probe_says: list[Probe], traits: dict[str, bool]
) -> None:
    """R23"""
    interrupted(user, **traits)
    client = mcp_client(user)
    probe_says.append(raising(NothingDone()))

    told = call(client)

    assert call(client) == told
    record = IdempotencyRecord.objects.get()
    assert (record.state, record.attempt) == (State.DONE, 2)
    assert Effect.objects.get().label == "a 2"


@pytest.mark.parametrize("error", [OutcomeUnknown(), TimeoutError(), RuntimeError(), MemoryError()], ids=repr)
def test_a_probe_that_cannot_tell_leaves_the_outcome_unknown_for_the_next_one(
    user: User, probe_says: list[Probe], error: Exception
) -> None:
    """R23"""
    interrupted(user, lapsed=True)
    client = mcp_client(user)
    probe_says.append(raising(error))

    assert [refusal(client), refusal(client)] == ["idempotency_outcome_unknown"] * 2
    record = IdempotencyRecord.objects.get()
    assert (record.state, record.attempt) == (State.UNKNOWN, 3)
    assert not Effect.objects.exists()

    probe_says[:] = [lambda ctx, label: 7]
    assert client.call_tool("probed", {"label": "a"}, key="k").structured_content == 7


def test_one_probe_at_a_time(user: User, probe_says: list[Probe]) -> None:
    """R05, R07: who comes meanwhile is told that the call is in progress."""
    interrupted(user, lapsed=True)
    client = mcp_client(user)
    meanwhile: list[str] = []

    def say(ctx: ToolContext, label: str) -> int:
        meanwhile.append(elsewhere(lambda: refusal(client)))
        return 7

    probe_says.append(say)
    call(client)

    assert meanwhile == ["idempotency_key_in_progress"]


def test_a_probe_that_dies_is_followed_by_another(user: User, probe_says: list[Probe]) -> None:
    """R25: when its own lease is over."""
    interrupted(user, lapsed=True)
    client = mcp_client(user)

    def die(ctx: ToolContext, label: str) -> int:
        raise SystemExit

    probe_says.append(die)
    with pytest.raises(SystemExit):
        call(client)
    probe_says[:] = [lambda ctx, label: 7]
    assert refusal(client) == "idempotency_key_in_progress"

    end_the_lease()
    assert client.call_tool("probed", {"label": "a"}, key="k").structured_content == 7


@pytest.mark.parametrize(
    "says",
    [lambda ctx, label: 7, raising(NothingDone()), raising(OutcomeUnknown())],
    ids=["happened", "nothing done", "cannot tell"],
)
def test_a_late_owner_knows_better_than_a_probe_that_still_asks(
    user: User, probe_says: list[Probe], during: list[Callable[[], None]], says: Probe
) -> None:
    """R23, R28: all are told what the owner came to."""
    client = mcp_client(user)
    asked, answer = Event(), Event()
    retries: list[Future[object]] = []

    def say(ctx: ToolContext, label: str) -> int:
        asked.set()
        assert answer.wait(PATIENCE)
        return says(ctx, label)

    def be_given_up() -> None:
        during.clear()
        elsewhere(end_the_lease)
        retries.append(begun(lambda: call(client)))
        assert asked.wait(PATIENCE)

    probe_says.append(say)
    during.append(be_given_up)
    late = call(client)
    answer.set()
    (retry,) = retries

    assert retry.result(PATIENCE) == late
    assert call(client) == late
    assert Effect.objects.count() == 1
