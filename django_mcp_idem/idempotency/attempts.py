"""One attempt at a call: run the body under its claim, and settle the claim by how the body ended."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from django.db import Error, InterfaceError, OperationalError, connections

from . import records
from .claims import AtomicClaim, Fenced, NotClaimed, complete
from .databases import give_back_connection, may_pass, refusing_if_unavailable, writer
from .decisions import Call, Decision, look, told_by
from .leases import HeldLease, Lease, get_heartbeat
from .locks import Holder
from .outcomes import Answer, NothingDone, Outcome, OutcomeUnknown, Reason, Refused
from .records import Claim
from .transactions import RolledBack, run_body

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of a body.

    Attributes:
        number: 1, and one more after each takeover.
        seed: Random, the same for all attempts of one record.
        lease: What it has of its claim; ``None`` for a call without a key.
    """

    number: int
    seed: str
    lease: Lease | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """What there is to run.

    Attributes:
        admit: Called before a claim; raises to refuse a call that must not run. Nothing is recorded then (R22).
        run: The body. It returns what it came to, failures included; it raises ``NothingDone``, ``OutcomeUnknown``,
            and what ends the body or the process without a word.
        probe: What tells whether an interrupted body has had its effect. It ends in the same ways.
        rolled_back: What to record where the body returned but its transaction could not be committed.
    """

    admit: Callable[[], None]
    run: Callable[[Attempt], Outcome]
    probe: Callable[[Attempt], Outcome]
    rolled_back: Outcome


# What ends a body, though not the process, without a word on what it has done.
CUT_SHORT = (OutcomeUnknown, CancelledError, MemoryError)

ENDS_THE_PROCESS = (SystemExit, KeyboardInterrupt, GeneratorExit)


def run_atomic(call: Call, work: Work, atomic: AtomicClaim) -> Answer:
    """Run an atomic body; the last statement of its transaction is the guarded completion.

    Raises:
        NotClaimed: There is no claim: the record has changed, or its lock is another's.
        Refused: Nothing of the body stayed and nothing is recorded, or the record gives no answer.
    """
    outcome: Outcome | None = None
    try:
        with atomic.transaction() as claim:
            # Its transaction is its lease: it ends with its owner, or when it has run for too long.
            attempt = _attempt(claim, Lease(call.max_runtime))
            outcome = run_body(lambda: work.run(attempt), rolled_back=work.rolled_back)
            complete(call, claim, outcome)
    except RolledBack as ending:
        return _record_rolled_back(call, atomic, ending.outcome)
    except Fenced:
        return told_by(*look(call))
    except (NotClaimed, Refused):
        raise
    except ENDS_THE_PROCESS:
        with suppress(Refused):
            atomic.release()
        raise
    except (Exception, CancelledError) as error:
        if outcome is not None:
            return _after_failed_end(call, atomic, outcome, error=error, rolled_back=work.rolled_back)
        atomic.release()
        raise _nothing_stayed(call, error) from error
    return Answer(outcome)


def _nothing_stayed(call: Call, error: BaseException) -> Refused:
    """What the caller is told where the body did not come to an outcome, or where its transaction did not begin."""
    if isinstance(error, NothingDone):
        return Refused(Reason.NOTHING_DONE, str(error) or None)
    logger.error("Nothing stayed of a call of tool %s.", call.tool, exc_info=error)
    return Refused(Reason.UNAVAILABLE)


def _after_failed_end(
    call: Call, atomic: AtomicClaim, outcome: Outcome, *, error: BaseException, rolled_back: Outcome
) -> Answer:
    """What came of a transaction whose completion, COMMIT or ``on_commit`` hook raised ``error``."""
    logger.error("The transaction of a call of tool %s ended with an error.", call.tool, exc_info=error)
    if _is_recorded(call, atomic.owner):
        return Answer(outcome)
    if isinstance(error, Error) and may_pass(error):
        # Not recorded may also mean that the old connection is still committing, so nothing is told but to retry.
        atomic.release()
        raise Refused(Reason.UNAVAILABLE) from error
    return _record_rolled_back(call, atomic, rolled_back)


def _record_rolled_back(call: Call, atomic: AtomicClaim, outcome: Outcome) -> Answer:
    try:
        atomic.record(outcome)
    except Fenced:
        return told_by(*look(call))
    return Answer(outcome)


def run_external(call: Call, work: Work, claim: Claim, *, holder: Holder) -> Answer:
    """Run a body whose effects no transaction holds, and complete its claim when it has ended.

    Raises:
        Refused: It did nothing, or whether it did anything is not known, or the record gives no answer.
    """
    give_back_connection(writer())
    lease = HeldLease(
        claim,
        identity=call.identity,
        holder=holder,
        max_runtime=call.max_runtime,
        policy=call.policy,
    )
    try:
        with get_heartbeat().holding(lease):
            outcome = work.run(_attempt(claim, lease))
    except NothingDone as word:
        with refusing_if_unavailable():
            records.release(claim)
        raise Refused(Reason.NOTHING_DONE, str(word) or None) from word
    except CUT_SHORT as error:
        logger.exception("What came of record %s is not known.", claim.record_id)
        raise _settle_cut_short(call, claim) from error
    except ENDS_THE_PROCESS:
        with suppress(Refused):
            _settle_cut_short(call, claim)
        raise
    return _settle(call, claim, outcome)


def _settle(call: Call, claim: Claim, outcome: Outcome) -> Answer:
    try:
        held = _complete_even_if_cut_off(call, claim, outcome)
    except Error as error:
        logger.exception("Record %s could not be completed.", claim.record_id)
        if call.policy.may_run_again:
            # Told now, this result could be followed by another one (R28).
            raise Refused(Reason.UNAVAILABLE) from error
        # The effect has happened, so its caller is told. The lease ends, and the key with it as unknown (R25).
        return Answer(outcome)
    # Without a key there is no other caller of this call: what it came to is true of nothing else.
    if held or call.policy.window is not None or _is_recorded(call, claim.owner):
        return Answer(outcome)
    return told_by(*look(call))


def _complete_even_if_cut_off(call: Call, claim: Claim, outcome: Outcome) -> bool:
    connection = connections[writer()]
    try:
        return records.complete(claim, outcome, call.policy.retention)
    except (OperationalError, InterfaceError):
        if connection.in_atomic_block:
            raise
        # It may have been cut while the body ran. The write is guarded: repeated, it changes nothing twice.
        connection.close()
        return records.complete(claim, outcome, call.policy.retention)


def _settle_cut_short(call: Call, claim: Claim) -> Refused:
    """Settle the claim of a body that ended without a word. Returns what its caller is told."""
    with refusing_if_unavailable():
        if call.policy.may_run_again:
            # Not released: the next attempt has the seed of this one, and so its keys for services downstream.
            records.end_lease(claim)
            return Refused(Reason.UNAVAILABLE)
        records.give_up(claim, window=call.policy.window)
        return Refused(Reason.OUTCOME_UNKNOWN, record=claim.record_id)


def _is_recorded(call: Call, owner: str) -> bool:
    """Whether what ``owner`` came to is the record: the reply to its completion was lost, or a hook failed after it."""
    found, decision = look(call)
    return found is not None and found.owner == owner and decision is Decision.REPLAY


def _attempt(claim: Claim, lease: Lease) -> Attempt:
    return Attempt(number=claim.attempt, seed=claim.seed, lease=lease)
