"""Leases: for how long a claim holds its key, and the heartbeat that renews them while bodies run (R23)."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from ..conf import get_settings
from . import records
from .databases import own_connection
from .keys import Identity
from .locks import Holder, get_lock
from .policy import Policy
from .records import Claim

logger = logging.getLogger(__name__)


class Lease:
    """What a running body has of its claim.

    The host's clock is asked only how long the body has run. What the lease is worth, the database's says (R27).
    """

    def __init__(self, max_runtime: timedelta) -> None:
        self._end = time.monotonic() + max_runtime.total_seconds()
        self._taken = False

    @property
    def lost(self) -> bool:
        """Whether the body can no longer count on its claim: it was taken, or has run for longer than it may."""
        return self._taken or time.monotonic() >= self._end

    def take(self) -> None:
        """Give the claim up: it is someone else's, or about to be."""
        self._taken = True


class HeldLease(Lease):
    """A lease that is renewed.

    Attributes:
        claim: Its claim.
        identity: What names the record, and the lock in Redis.
        holder: Who holds that lock.
        policy: How its call is treated if this process ends.
    """

    def __init__(
        self, claim: Claim, *, identity: Identity, holder: Holder, max_runtime: timedelta, policy: Policy
    ) -> None:
        super().__init__(max_runtime)
        self.policy = policy
        self.claim = claim
        self.identity = identity
        self.holder = holder


class Heartbeat:
    """Renews the leases of all calls in flight in this process, every third of a lease, in one thread.

    The thread starts with the first lease and ends when it finds none; a call that is shorter costs nothing. It is a
    thread of its own, so that neither a busy event loop nor an exhausted pool of connections loses a lease.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: set[HeldLease] = set()
        self._beating = False
        self._next_beat = 0.0

    @contextmanager
    def holding(self, lease: HeldLease) -> Iterator[None]:
        """Renew ``lease`` as long as the context lasts."""
        with self._changed:
            self._held.add(lease)
            self._wake_by(time.monotonic() + _interval())
        try:
            yield
        finally:
            with self._changed:
                self._held.discard(lease)

    def in_flight(self) -> set[HeldLease]:
        """The leases that are held."""
        with self._changed:
            return set(self._held)

    def _wake_by(self, moment: float) -> None:
        if not self._beating:
            self._beating, self._next_beat = True, moment
            threading.Thread(target=self._beat, name="mcp-idem-heartbeat", daemon=True).start()
        elif moment < self._next_beat:
            self._next_beat = moment
            self._changed.notify()

    def _beat(self) -> None:
        while due := self._wait():
            try:
                _renew({lease for lease in due if not lease.lost})
            except Exception:
                # Whatever it is, the other calls count on the next beat.
                logger.warning("The leases of %d calls could not be renewed.", len(due), exc_info=True)

    def _wait(self) -> set[HeldLease]:
        """The leases to renew, once it is time; none ends the thread."""
        with self._changed:
            while (seconds := self._next_beat - time.monotonic()) > 0:
                self._changed.wait(seconds)
            self._next_beat = time.monotonic() + _interval()
            self._beating = bool(self._held)
            return set(self._held)


def _interval() -> float:
    return get_settings().LEASE.total_seconds() / 3


def _renew(leases: set[HeldLease]) -> None:
    if not leases:
        return
    with own_connection():
        held = records.renew([lease.claim for lease in leases])
    for lease in leases:
        if lease.claim.owner in held:
            get_lock().renew(lease.identity, lease.holder)
        else:
            lease.take()


_heartbeat = Heartbeat()


def get_heartbeat() -> Heartbeat:
    """The heartbeat of this process."""
    return _heartbeat


def _start_anew() -> None:
    global _heartbeat
    # A forked child has neither the thread nor the calls, and maybe the lock as it was held.
    _heartbeat = Heartbeat()


os.register_at_fork(after_in_child=_start_anew)
