"""The two ways to claim a record for an atomic body.

A claim is committed before the body's transaction begins, so that everybody sees it. Or, where the database has locks
that nobody waits for, it joins that transaction: nothing is seen before the one commit, and nothing is left if there
is none.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from django.db import Error, transaction

from . import records
from .advisory import TransactionLock
from .databases import lost_a_race, refusing_if_unavailable, writer
from .decisions import Call
from .keys import preview
from .outcomes import Outcome, Reason, Refused
from .records import Claim, Particulars, Snapshot


class NotClaimed(Exception):
    """The record has changed since it was seen, or its lock is another's."""


class Fenced(Exception):
    """The claim was taken over while its body ran: nothing of that may stay."""


def commit_claim(call: Call, snapshot: Snapshot | None, owner: str, *, lock: TransactionLock | None) -> Claim:
    """Claim the record of ``call`` as it was seen, for everybody to see.

    Args:
        call: The call.
        snapshot: Its record.
        owner: Who claims it.
        lock: What tells of claims that nobody sees. Without it this one would wait for them.

    Raises:
        NotClaimed: The record has changed, or its lock is another's.
        Refused: The database does not answer.
    """
    if lock is None:
        return _claim(call, snapshot, owner, under=None)
    with lock.around_transaction():
        return _claim(call, snapshot, owner, under=lock)


def _claim(call: Call, snapshot: Snapshot | None, owner: str, *, under: TransactionLock | None) -> Claim:
    try:
        if snapshot is not None:
            claim = records.take_over(snapshot, owner, under=under)
        else:
            claim = records.claim(_particulars(call), owner, under=under)
    except Error as error:
        if lost_a_race(error):
            raise NotClaimed from error
        raise Refused(Reason.UNAVAILABLE) from error
    if claim is None:
        raise NotClaimed
    return claim


def new_owner() -> str:
    """A token for a claim, random, so that no other claim ever has it."""
    return secrets.token_hex(16)


class AtomicClaim(Protocol):
    """The claim of an atomic body.

    Attributes:
        owner: Its token.
    """

    owner: str

    def transaction(self) -> AbstractContextManager[Claim]:
        """The transaction that the body and the completion are made in.

        Raises:
            NotClaimed: There is no claim.
        """

    def record(self, outcome: Outcome) -> None:
        """Complete, in a transaction of its own, a claim whose body was rolled back.

        Raises:
            NotClaimed: There is no claim any more.
            Fenced: It was taken over.
            Refused: The database does not answer.
        """

    def release(self) -> None:
        """Free the key of a body that was rolled back.

        Raises:
            Refused: The database does not answer.
        """


class CommittedClaim:
    """A claim that was committed first."""

    def __init__(self, call: Call, claim: Claim) -> None:
        self._call = call
        self._claim = claim
        self.owner = claim.owner

    @contextmanager
    def transaction(self) -> Iterator[Claim]:
        with transaction.atomic(using=writer()):
            yield self._claim

    def record(self, outcome: Outcome) -> None:
        with refusing_if_unavailable():
            complete(self._call, self._claim, outcome)

    def release(self) -> None:
        with refusing_if_unavailable():
            records.release(self._claim)


class JoinedClaim:
    """A claim that is made in the body's own transaction, and gone with it."""

    def __init__(self, call: Call, snapshot: Snapshot | None, lock: TransactionLock) -> None:
        self._call = call
        self._snapshot = snapshot
        self._lock = lock
        self.owner = new_owner()

    @contextmanager
    def transaction(self) -> Iterator[Claim]:
        with self._lock.around_transaction(), transaction.atomic(using=writer()):
            yield _claim(self._call, self._snapshot, self.owner, under=self._lock)

    def record(self, outcome: Outcome) -> None:
        with refusing_if_unavailable(), self.transaction() as claim:
            complete(self._call, claim, outcome)

    def release(self) -> None:
        """Nothing of it is left."""


def complete(call: Call, claim: Claim, outcome: Outcome) -> None:
    """Store what a claimed call came to.

    Raises:
        Fenced: The claim no longer holds.
    """
    if not records.complete(claim, outcome, call.policy.retention):
        raise Fenced


def _particulars(call: Call) -> Particulars:
    return Particulars(
        identity=call.identity,
        endpoint=call.scope.endpoint,
        key_preview=preview(call.key),
        user_id=call.user_id,
        tool=call.tool,
        fingerprint=call.fingerprint,
    )
