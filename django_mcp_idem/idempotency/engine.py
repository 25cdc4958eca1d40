"""The state machine: decide, run, settle.

::

            claim                     complete
    none ----------->  RUNNING  ------------------->  DONE
     ^                  |  |  ^                        ^
     | nothing ran      |  |  | lease over, may run    | its own late owner
     +------------------+  |  | again: attempt + 1     |
                           +--+---->  UNKNOWN  --------+
                                lease over, external

Sync code, run in one thread: claim, body and completion share its connection and so its transaction.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Any

from django.db import Error, InterfaceError, OperationalError

from ..states import State
from . import records
from .databases import give_back_connection, refusing_if_unavailable, writer
from .equivalence import UnknownVersion, fingerprint
from .keys import Identity, Scope, preview
from .locks import Holder, get_lock
from .outcomes import Answer, Outcome, Reason, Refused
from .policy import Policy
from .records import Claim, Particulars, Snapshot
from .transactions import RolledBack, run_in_transaction

logger = logging.getLogger(__name__)

# Each look that ends in no decision means that another call has just changed the record; so many cannot.
LOOKS = 5


@dataclass(frozen=True, kw_only=True)
class Call:
    """A keyed call, as the core sees it.

    Attributes:
        scope: Whose key it is.
        key: The key, valid.
        tool: Name of the tool.
        arguments: The arguments as they were sent.
        policy: How its tool is treated.
        user_id: Primary key of the user, to show in the admin.
    """

    scope: Scope
    key: str
    tool: str
    arguments: Mapping[str, Any]
    policy: Policy
    user_id: Any = None

    @cached_property
    def identity(self) -> Identity:
        """What names its record."""
        return Identity.of(self.scope, self.key)

    @cached_property
    def fingerprint(self) -> str:
        """Its fingerprint by the algorithm that new records use."""
        return fingerprint(self.tool, self.arguments)

    def matches(self, stored: Snapshot | Holder) -> bool:
        """Whether ``stored`` is of an equivalent call, by the algorithm that it was stored with (R10)."""
        version = stored.fingerprint_version
        return stored.fingerprint == fingerprint(self.tool, self.arguments, version=version)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of a body.

    Attributes:
        number: 1, and one more after each takeover.
        seed: Random, the same for all attempts of one record.
    """

    number: int
    seed: str


@dataclass(frozen=True, kw_only=True)
class Work:
    """What there is to run.

    Attributes:
        admit: Called before a claim; raises to refuse a call that must not run. Nothing is recorded then (R22).
        run: The body. It returns what it came to, failures included, and raises only what ends the process.
        rolled_back: What to record where the body returned but its transaction could not be committed.
    """

    admit: Callable[[], None]
    run: Callable[[Attempt], Outcome]
    rolled_back: Outcome


class Decision(Enum):
    """What one look at the record says about a call."""

    CLAIM = auto()
    TAKE_OVER = auto()
    REPLAY = auto()
    DISCARD = auto()
    ABANDON = auto()
    CONFLICT = auto()
    IN_PROGRESS = auto()
    OUTCOME_UNKNOWN = auto()


def decide(call: Call, snapshot: Snapshot | None) -> Decision:
    """What is to be done about ``call``, given its record.

    Raises:
        UnknownVersion: The record was made by a release with an algorithm that this one does not know.
    """
    if snapshot is None:
        return Decision.CLAIM
    if snapshot.expired:
        return Decision.DISCARD
    if not call.matches(snapshot):
        return Decision.CONFLICT
    match snapshot.state:
        case State.DONE:
            return Decision.REPLAY
        case State.UNKNOWN:
            return Decision.OUTCOME_UNKNOWN
        case State.RUNNING if not snapshot.lease_over:
            return Decision.IN_PROGRESS
        case State.RUNNING:
            return Decision.TAKE_OVER if call.policy.may_run_again else Decision.ABANDON


def execute(call: Call, work: Work) -> Answer:
    """Answer a keyed call: run its body if nobody has, else say what came of it (R05 to R07).

    Args:
        call: The call.
        work: Its body, run at most once for its key unless its policy allows more.

    Returns:
        The outcome, and whether it is a replay.

    Raises:
        Refused: The call is a duplicate of one in flight or of another call, or its outcome is unknown.
    """
    for _ in range(LOOKS):
        snapshot, decision = _look(call)
        if snapshot is not None and decision is Decision.DISCARD:
            with refusing_if_unavailable():
                records.discard(snapshot)
        elif snapshot is not None and decision is Decision.ABANDON:
            with refusing_if_unavailable():
                records.abandon(snapshot)
        elif decision in _CLAIMS:
            work.admit()
            if (answer := _claim_and_run(call, work, snapshot)) is not None:
                return answer
        else:
            return _told_by(snapshot, decision)
    raise Refused(Reason.IN_PROGRESS)


_CLAIMS = {Decision.CLAIM, Decision.TAKE_OVER}


def _look(call: Call) -> tuple[Snapshot | None, Decision]:
    with refusing_if_unavailable():
        snapshot = records.look_up(call.identity)
    try:
        return snapshot, decide(call, snapshot)
    except UnknownVersion as error:
        raise Refused(Reason.UNAVAILABLE) from error


def _told_by(snapshot: Snapshot | None, decision: Decision) -> Answer:
    """The answer that the record itself gives.

    Raises:
        Refused: It gives none.
    """
    match decision:
        case Decision.REPLAY if snapshot is not None:
            return _replay(snapshot)
        case Decision.CONFLICT:
            raise Refused(Reason.CONFLICT)
        case Decision.OUTCOME_UNKNOWN if snapshot is not None:
            raise Refused(Reason.OUTCOME_UNKNOWN, record=snapshot.id)
        case _:
            raise Refused(Reason.IN_PROGRESS)


def _replay(snapshot: Snapshot) -> Answer:
    try:
        records.count_replay(snapshot)
    except Error:
        logger.info("The replay of record %s could not be counted.", snapshot.id, exc_info=True)
    if snapshot.result is None or snapshot.ending is None:
        raise Refused(Reason.RESULT_UNAVAILABLE)
    return Answer(Outcome(snapshot.ending, snapshot.result), replayed=True)


def _claim_and_run(call: Call, work: Work, snapshot: Snapshot | None) -> Answer | None:
    """Claim the record and run the body. ``None``: the record has changed, look again.

    Raises:
        Refused: The lock is held, and the record does not know better.
    """
    holder = Holder(owner=secrets.token_hex(16), fingerprint=call.fingerprint)
    lock = get_lock()
    if (other := lock.acquire(call.identity, holder)) is not None:
        return _refused_by_lock(call, other)
    try:
        with refusing_if_unavailable():
            claim = _claim(call, snapshot, holder.owner)
        return None if claim is None else _run(call, work, claim)
    finally:
        lock.release(call.identity, holder)


def _refused_by_lock(call: Call, other: Holder) -> Answer:
    """Confirm the lock's no against the record: the call it was taken for may have ended by now."""
    snapshot, decision = _look(call)
    if decision in _CLAIMS and not call.matches(other):
        raise Refused(Reason.CONFLICT)
    return _told_by(snapshot, decision)


def _claim(call: Call, snapshot: Snapshot | None, owner: str) -> Claim | None:
    if snapshot is not None:
        return records.take_over(snapshot, owner)
    particulars = Particulars(
        identity=call.identity,
        endpoint=call.scope.endpoint,
        key_preview=preview(call.key),
        user_id=call.user_id,
        tool=call.tool,
        fingerprint=call.fingerprint,
    )
    return records.claim(particulars, owner)


def _run(call: Call, work: Work, claim: Claim) -> Answer:
    return _run_atomic(call, work, claim) if call.policy.atomic else _run_external(call, work, claim)


def _run_external(call: Call, work: Work, claim: Claim) -> Answer:
    give_back_connection(writer())
    outcome = work.run(_attempt(claim))
    try:
        return _settle(call, claim, outcome)
    except Error as error:
        logger.exception("Record %s could not be completed.", claim.record_id)
        if call.policy.may_run_again:
            # Told now, this result could be followed by another one (R28).
            raise Refused(Reason.UNAVAILABLE) from error
        # The effect has happened, so its caller is told. The lease ends, and the key with it as unknown (R25).
        return Answer(outcome, replayed=False)


def _run_atomic(call: Call, work: Work, claim: Claim) -> Answer:
    """Run the body in one transaction with its completion, which is the transaction's last statement."""

    def complete(outcome: Outcome) -> None:
        if not records.complete(claim, outcome, call.policy.retention):
            raise _Fenced

    try:
        outcome = run_in_transaction(lambda: work.run(_attempt(claim)), rolled_back=work.rolled_back, last=complete)
    except RolledBack as ending:
        return _settle_rolled_back(call, claim, ending.outcome)
    except _Fenced:
        return _told_by(*_look(call))
    except Exception as error:
        # Raised by BEGIN, the completion, COMMIT or an on_commit hook. Where it was committed all the same,
        # the claim no longer holds, and the record is the answer.
        logger.exception("The transaction of record %s ended with an error.", claim.record_id)
        if isinstance(error, OperationalError | InterfaceError):
            return _release(call, claim)
        return _settle_rolled_back(call, claim, work.rolled_back)
    return Answer(outcome, replayed=False)


def _settle_rolled_back(call: Call, claim: Claim, outcome: Outcome) -> Answer:
    """Complete the claim of a body that was rolled back."""
    # Nothing stayed of the body: where even this cannot be recorded, the lease ends and a retry runs it again.
    with refusing_if_unavailable():
        return _settle(call, claim, outcome)


def _settle(call: Call, claim: Claim, outcome: Outcome) -> Answer:
    """Complete the claim on its own; where it no longer holds, answer with what the record says instead."""
    if records.complete(claim, outcome, call.policy.retention):
        return Answer(outcome, replayed=False)
    return _told_by(*_look(call))


def _release(call: Call, claim: Claim) -> Answer:
    """Free the key of a body of which nothing stayed, through no fault of its own; the caller may retry."""
    with refusing_if_unavailable():
        released = records.release(claim)
    if released:
        raise Refused(Reason.UNAVAILABLE)
    return _told_by(*_look(call))


def _attempt(claim: Claim) -> Attempt:
    return Attempt(number=claim.attempt, seed=claim.seed)


class _Fenced(Exception):
    """Ends the transaction of a body whose claim was taken over while it ran."""
