"""What one look at the record says about a call: the table of the state machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_mcp_idem.idempotency.decisions import Call, Decision, decide
from django_mcp_idem.idempotency.equivalence import VERSION, UnknownVersion
from django_mcp_idem.idempotency.keys import Scope
from django_mcp_idem.idempotency.policy import Effects, Policy
from django_mcp_idem.idempotency.records import Snapshot
from django_mcp_idem.states import State


def call(effects: Effects = Effects.EXTERNAL) -> Call:
    scope = Scope(endpoint="mcp", kind="user", subject="1")
    return Call(scope=scope, key="k", tool="charge", arguments={"amount": 1}, policy=Policy(effects=effects))


RUNNING = Snapshot(
    id=1,
    attempt=1,
    owner="owner",
    seed="seed",
    state=State.RUNNING,
    fingerprint=call().fingerprint,
    fingerprint_version=VERSION,
    ending=None,
    result=None,
    finished_at=None,
    expired=False,
    lease_over=False,
)
LAPSED = replace(RUNNING, lease_over=True)
DONE = replace(LAPSED, state=State.DONE)
UNKNOWN = replace(LAPSED, state=State.UNKNOWN)


@pytest.mark.parametrize("effects", Effects)
@pytest.mark.parametrize(
    ("snapshot", "decision"),
    [
        pytest.param(None, Decision.CLAIM, id="R05 none"),
        pytest.param(RUNNING, Decision.IN_PROGRESS, id="R05 running"),
        pytest.param(DONE, Decision.REPLAY, id="R06 done"),
        pytest.param(replace(DONE, expired=True), Decision.DISCARD, id="R12 done, expired"),
        pytest.param(UNKNOWN, Decision.OUTCOME_UNKNOWN, id="R23 unknown"),
        pytest.param(replace(UNKNOWN, expired=True), Decision.DISCARD, id="R12 unknown, expired"),
    ],
)
def test_what_holds_for_every_tool(effects: Effects, snapshot: Snapshot | None, decision: Decision) -> None:
    assert decide(call(effects), snapshot) is decision


@pytest.mark.parametrize(
    ("effects", "decision"),
    [
        (Effects.ATOMIC, Decision.TAKE_OVER),
        (Effects.RERUN_SAFE, Decision.TAKE_OVER),
        (Effects.EXTERNAL, Decision.ABANDON),
    ],
)
def test_r23_a_lapsed_call_is_run_again_only_where_its_tool_allows_it(effects: Effects, decision: Decision) -> None:
    assert decide(call(effects), LAPSED) is decision


@pytest.mark.parametrize("snapshot", [RUNNING, LAPSED, DONE, UNKNOWN], ids=["running", "lapsed", "done", "unknown"])
def test_r07_another_call_conflicts_in_every_state(snapshot: Snapshot) -> None:
    assert decide(call(), replace(snapshot, fingerprint="another")) is Decision.CONFLICT


def test_r10_a_record_is_compared_by_the_algorithm_that_it_was_made_with() -> None:
    with pytest.raises(UnknownVersion):
        decide(call(), replace(DONE, fingerprint_version=VERSION + 1))
