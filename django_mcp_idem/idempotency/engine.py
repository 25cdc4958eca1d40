"""The state machine: look, decide, claim, run, settle.

::

            claim                     complete
    none ----------->  RUNNING  ------------------->  DONE
     ^                  |  |  ^                        ^
     | nothing done     |  |  | lease over, may run    | its own late owner, the probe, or a person
     +------------------+  |  | again: attempt + 1     |
                           +--+---->  UNKNOWN  --------+
             lease over, or cut short,   |
                            external     +----------> OPEN ---> RUNNING: attempt + 1, by the next equal call
                                           a person

Sync code, run in one thread: claim, body and completion share its connection and so its transaction.
"""

from __future__ import annotations

from ..conf import get_settings
from . import records
from .advisory import TransactionLock, get_transaction_lock
from .attempts import CUT_SHORT, Attempt, Work, run_atomic, run_external
from .claims import CommittedClaim, JoinedClaim, NotClaimed, commit_claim, new_owner
from .databases import refusing_if_unavailable
from .decisions import Call, Decision, look, told_by
from .leases import Lease
from .locks import Holder, get_lock
from .outcomes import Answer, NothingDone, Reason, Refused
from .records import Probe, Snapshot
from .shutdown import is_shutting_down

# Each look that ends in no answer means that another call has just changed the record; so many cannot.
LOOKS = 5


def execute(call: Call, work: Work) -> Answer:
    """Answer a keyed call: run its body if nobody has, else say what came of it (R05 to R07).

    Args:
        call: The call.
        work: Its body, run at most once for its key unless its policy allows more.

    Returns:
        The outcome, and when it was recorded if that is a replay.

    Raises:
        Refused: The call is a duplicate of one in flight or of another call, or its outcome is unknown.
    """
    for _ in range(LOOKS):
        snapshot, decision = look(call)
        answer = _act(call, work, snapshot, decision)
        if answer is not None:
            return answer
    raise Refused(Reason.IN_PROGRESS)


def _act(call: Call, work: Work, snapshot: Snapshot | None, decision: Decision) -> Answer | None:
    """Do what was decided. ``None``: the record has changed, look again."""
    match decision:
        case Decision.CLAIM | Decision.TAKE_OVER:
            return _attempt(call, work, snapshot)
        case Decision.PROBE if snapshot is not None:
            return _probe(call, work, snapshot)
        case Decision.DISCARD if snapshot is not None:
            with refusing_if_unavailable():
                records.discard(snapshot, window=call.policy.window)
            return None
        case Decision.ABANDON if snapshot is not None:
            with refusing_if_unavailable():
                records.abandon(snapshot, window=call.policy.window)
            return None
        case _:
            return told_by(snapshot, decision)


def _attempt(call: Call, work: Work, snapshot: Snapshot | None) -> Answer | None:
    """Claim the record, run the body, settle.

    Raises:
        Refused: Another call is at it, or the process is about to end.
    """
    _admit(work)
    lock = get_transaction_lock(call.identity, call.fingerprint, max_runtime=call.max_runtime)
    try:
        if lock is not None and call.policy.atomic:
            return run_atomic(call, work, JoinedClaim(call, snapshot, lock))
        return _attempt_committed(call, work, snapshot, lock)
    except NotClaimed:
        if lock is None:
            return None
    with refusing_if_unavailable():
        reason = lock.refusal()
    if reason is not None:
        raise Refused(reason)
    return None


def _admit(work: Work) -> None:
    work.admit()
    if is_shutting_down():
        raise _shutting_down()


def _shutting_down() -> Refused:
    return Refused(Reason.UNAVAILABLE, "The server is shutting down. Retry with the same key.")


def _attempt_committed(call: Call, work: Work, snapshot: Snapshot | None, lock: TransactionLock | None) -> Answer:
    """Commit a claim before the body runs, where Redis does not say that another call is at it."""
    holder = Holder(owner=new_owner(), fingerprint=call.fingerprint)
    in_flight = get_lock()
    other = in_flight.acquire(call.identity, holder)
    # The lock of the very attempt that has lapsed, or that a person has settled, says nothing new.
    if other is not None and not (snapshot is not None and snapshot.owner == other.owner):
        return _refused_by_lock(call, other)
    try:
        claim = commit_claim(call, snapshot, holder.owner, lock=lock)
        if call.policy.atomic:
            return run_atomic(call, work, CommittedClaim(call, claim))
        return run_external(call, work, claim, holder=holder)
    finally:
        in_flight.release(call.identity, holder)


def _refused_by_lock(call: Call, other: Holder) -> Answer:
    """Confirm the lock's no against the record: the call it was taken for may have ended by now."""
    snapshot, decision = look(call)
    if decision in (Decision.CLAIM, Decision.TAKE_OVER) and not call.matches(other):
        raise Refused(Reason.CONFLICT)
    return told_by(snapshot, decision)


def _probe(call: Call, work: Work, snapshot: Snapshot) -> Answer | None:
    """Ask the tool's probe what came of an interrupted body; if nothing, run it.

    Raises:
        Refused: The probe cannot tell.
    """
    _admit(work)
    with refusing_if_unavailable():
        probe = records.begin_probe(snapshot)
    if probe is None:
        return None
    try:
        outcome = work.probe(Attempt(number=probe.attempt, seed=probe.seed, lease=Lease(get_settings().LEASE)))
    except NothingDone:
        return _attempt_probed(call, work, probe)
    except CUT_SHORT as error:
        with refusing_if_unavailable():
            still_unknown = records.end_probe(probe)
        if still_unknown:
            raise Refused(Reason.OUTCOME_UNKNOWN, record=probe.record_id) from error
        return None
    with refusing_if_unavailable():
        records.settle(probe.record_id, probe.attempt, outcome, retention=call.policy.retention)
    return None


def _attempt_probed(call: Call, work: Work, probe: Probe) -> Answer | None:
    if is_shutting_down():
        with refusing_if_unavailable():
            records.end_probe(probe)
        raise _shutting_down()
    holder = Holder(owner=new_owner(), fingerprint=call.fingerprint)
    with refusing_if_unavailable():
        claim = records.claim_probed(probe, holder.owner)
    return None if claim is None else run_external(call, work, claim, holder=holder)
