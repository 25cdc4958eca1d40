"""What is promised about a key that a fault was done to, and whether it was kept (R23, R25, R28)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mcp.shared.exceptions import MCPError

from django_mcp_idem import site
from django_mcp_idem.idempotency.outcomes import Reason
from django_mcp_idem.testing import MCPClient
from tests.app.models import Effect

PATIENCE = 15.0
"""Seconds after which a key that is still to be retried is called stuck."""

_REFUSALS = {-3182, -32602}
_INTERNAL_ERROR = -32603


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a caller was told: an outcome or a refusal.

    Attributes:
        outcome: The outcome as text.
        failed: Whether the outcome is an error.
        refusal: Why there is no outcome.
    """

    outcome: str | None = None
    failed: bool = False
    refusal: Reason | None = None

    @property
    def retryable(self) -> bool:
        """Whether the caller is to try again."""
        return self.refusal is not None and self.refusal.retryable


def ask(client: MCPClient, tool: str, key: str) -> Told:
    """Call a tool with a key that is also the label of its effect.

    Raises:
        MCPError: The caller was told of an exception in the server.
    """
    try:
        result = client.call_tool(tool, {"label": key}, key=key)
    except MCPError as error:
        if error.code == _INTERNAL_ERROR:
            raise
        if error.code in _REFUSALS:
            return Told(refusal=Reason(error.data["type"]))
        return Told(outcome=error.error.model_dump_json(), failed=True)
    return Told(outcome=result.model_dump_json(exclude={"meta"}), failed=bool(result.is_error))


@dataclass(kw_only=True)
class Case:
    """A key, and what came of the calls with it.

    Attributes:
        key: The key.
        fault: What was done to its call, for people to read; ``None`` where nothing was.
        heard: All that its callers were told, in order.
        ended_at: When the fault was over, by ``time.monotonic``.
        in_progress_for: Seconds from then to the begin of the last call that was told "in progress".
    """

    key: str
    fault: str | None = None
    heard: list[Told] = field(default_factory=list)
    ended_at: float = field(default_factory=time.monotonic)
    in_progress_for: float = 0.0

    def retry(self, client: MCPClient, tool: str) -> None:
        """Call again."""
        began_at = time.monotonic()
        told = ask(client, tool, self.key)
        self.heard.append(told)
        if told.refusal is Reason.IN_PROGRESS:
            self.in_progress_for = began_at - self.ended_at


def settle(client: MCPClient, tool: str, cases: Sequence[Case], *, patience: float = PATIENCE) -> None:
    """Retry every key, in turn, until no caller is told to retry or so many seconds are over; then once more."""
    deadline = time.monotonic() + patience
    waiting = list(cases)
    while waiting and time.monotonic() < deadline:
        for case in waiting:
            case.retry(client, tool)
        waiting = [case for case in waiting if case.heard[-1].retryable]
        if waiting:
            time.sleep(0.02)
    for case in cases:
        case.retry(client, tool)


@dataclass
class Tally:
    """What the faults of a test session came to."""

    points: int = 0
    faults: int = 0
    doubled: int = 0
    stuck: int = 0
    in_progress_for: float = 0.0


tally = Tally()


def check(tool: str, cases: Sequence[Case], *, lease: float | None = None) -> None:
    """Assert that what is promised about a tool holds for every key, and add the faults to the tally.

    Args:
        tool: Name of the tool.
        cases: Settled cases.
        lease: Seconds for which a retry may be told "in progress" once the fault is over; ``None`` for any.
    """
    effects = Counter(Effect.objects.values_list("label", flat=True))
    tally.faults += sum(case.fault is not None for case in cases)
    tally.in_progress_for = max([tally.in_progress_for, *(case.in_progress_for for case in cases)])
    broken = [
        f"{tool} {case.fault or case.key}: {problem}, {effects[case.key]} effects, {case.heard}"
        for case in cases
        for problem in _problems(tool, case, effects[case.key], lease)
    ]
    assert not broken, "\n".join(broken)


def _problems(tool: str, case: Case, effects: int, lease: float | None) -> Iterator[str]:
    last = case.heard[-1]
    outcomes = {told for told in case.heard if told.outcome is not None}
    allowed = _allowed_effects(tool, next(iter(outcomes), last))
    if last.retryable:
        tally.stuck += 1
        yield "stuck"
    if effects >= allowed.stop:
        tally.doubled += 1
        yield "too many effects"
    if effects < allowed.start:
        yield "too few effects"
    if len(outcomes) > 1:
        yield "told two outcomes"
    if last != case.heard[-2]:
        yield "told two things"
    if last.refusal is not None and not (last.refusal is Reason.OUTCOME_UNKNOWN and _is_external(tool)):
        yield "refused"
    if lease is not None and case.in_progress_for > lease:
        yield f"in progress for {case.in_progress_for:.2f} s"


def _is_external(tool: str) -> bool:
    found = site.get_tool(tool)
    assert found is not None
    return not found.policy.may_run_again


def _allowed_effects(tool: str, told: Told) -> range:
    """How many effects there may be where ``told`` is what came of a key."""
    found = site.get_tool(tool)
    assert found is not None
    happened = told.outcome is not None and not told.failed
    if found.policy.atomic:
        return range(1, 2) if happened else range(1)
    if found.policy.may_run_again:
        return range(1 if happened else 0, 1000)
    return range(1 if happened else 0, 2)
