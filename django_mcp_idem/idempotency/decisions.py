"""What the record says about a call, and what the caller is told of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from functools import cached_property
from typing import Any

from django.db import Error

from ..conf import get_settings
from ..states import State
from . import records
from .clock import in_utc
from .databases import refusing_if_unavailable
from .equivalence import UnknownVersion, fingerprint
from .keys import Identity, Scope
from .locks import Holder
from .outcomes import Answer, Outcome, Reason, Refused
from .policy import Policy
from .records import Snapshot

logger = logging.getLogger(__name__)


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

    @property
    def max_runtime(self) -> timedelta:
        """For how long its body may run."""
        named = self.policy.max_runtime
        return get_settings().MAX_RUNTIME if named is None else named

    def matches(self, stored: Snapshot | Holder) -> bool:
        """Whether ``stored`` is of an equivalent call, by the algorithm that it was stored with (R10)."""
        version = stored.fingerprint_version
        return stored.fingerprint == fingerprint(self.tool, self.arguments, version=version)


class Decision(Enum):
    """What is to be done about a call."""

    CLAIM = auto()
    TAKE_OVER = auto()
    PROBE = auto()
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
        case State.OPEN:
            return Decision.TAKE_OVER
        case State.UNKNOWN if not call.policy.probed:
            return Decision.OUTCOME_UNKNOWN
        case State.UNKNOWN | State.RUNNING if not snapshot.lease_over:
            return Decision.IN_PROGRESS
        case State.UNKNOWN:
            return Decision.PROBE
        case State.RUNNING:
            return Decision.TAKE_OVER if call.policy.may_run_again else Decision.ABANDON


def look(call: Call) -> tuple[Snapshot | None, Decision]:
    """Read the record and decide.

    Raises:
        Refused: The record cannot be read, or not be compared with.
    """
    with refusing_if_unavailable():
        snapshot = records.look_up(call.identity, window=call.policy.window)
    try:
        return snapshot, decide(call, snapshot)
    except UnknownVersion as error:
        raise Refused(Reason.UNAVAILABLE) from error


def told_by(snapshot: Snapshot | None, decision: Decision) -> Answer:
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
    if snapshot.result is None or snapshot.ending is None or snapshot.finished_at is None:
        raise Refused(Reason.RESULT_UNAVAILABLE)
    return Answer(Outcome(snapshot.ending, snapshot.result), replay_of=in_utc(snapshot.finished_at))
