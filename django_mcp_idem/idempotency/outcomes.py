"""What a keyed call comes to: an outcome that is recorded, or a refusal that is not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from ..states import Ending


@dataclass(frozen=True)
class Outcome:
    """How a body ended, ready to be stored.

    Attributes:
        ending: The way it ended.
        text: The result or error as JSON text; replayed exactly as it stands here (R06).
    """

    ending: Ending
    text: str

    @property
    def failed(self) -> bool:
        """Whether an atomic body's writes are to be rolled back."""
        return self.ending is not Ending.RESULT


@dataclass(frozen=True)
class Answer:
    """What the caller is told.

    Attributes:
        outcome: The recorded outcome.
        replay_of: When the earlier call ended whose outcome it is, in UTC; ``None`` for an outcome of this call.
    """

    outcome: Outcome
    replay_of: datetime | None = None


class NothingDone(Exception):
    """Raised by a tool or its probe: the call has had no effect, and can have none any more.

    The key is free again, and the text tells the caller why nothing was done.
    """


class OutcomeUnknown(Exception):
    """Raised by a tool or its probe: whether the call has had its effect cannot be told.

    The outcome of an external tool is unknown then, until a probe or a person settles it (R23). An atomic body is
    rolled back, and like that of a tool that is safe to re-run it can be run again at once.
    """


class Reason(Enum):
    """Why a keyed call is refused; the value is the ``type`` that the caller reads."""

    IN_PROGRESS = "idempotency_key_in_progress"
    CONFLICT = "idempotency_key_conflict"
    INVALID = "idempotency_key_invalid"
    REQUIRED = "idempotency_key_required"
    NOTHING_DONE = "idempotency_nothing_done"
    OUTCOME_UNKNOWN = "idempotency_outcome_unknown"
    RESULT_UNAVAILABLE = "idempotency_result_unavailable"
    UNAVAILABLE = "idempotency_unavailable"
    UNSUPPORTED = "idempotency_unsupported"

    @property
    def retryable(self) -> bool:
        """Whether the same call with the same key can succeed later, nothing else changed."""
        return self in {Reason.IN_PROGRESS, Reason.UNAVAILABLE}


_MESSAGES = {
    Reason.IN_PROGRESS: "A call with this idempotency key is in progress. Retry with the same key after a short delay.",
    Reason.CONFLICT: (
        "This idempotency key was used for another call. Use a new key for a new call; "
        "repeat the tool and the arguments exactly to retry the old one."
    ),
    Reason.NOTHING_DONE: "The tool did nothing, and the same call may be made again.",
    Reason.OUTCOME_UNKNOWN: (
        "The call with this idempotency key was interrupted, and whether it took effect is not known. It is not run "
        "again by guesswork: the operator of the server has to settle record {record}."
    ),
    Reason.RESULT_UNAVAILABLE: (
        "The call with this idempotency key is finished and is not run again, but its result was too large to keep."
    ),
    Reason.UNAVAILABLE: (
        "The call could not be recorded, so nothing is told of it. Retry with the same key: if it was completed all "
        "the same, the retry is answered with its result."
    ),
}


class Refused(Exception):
    """The call has no outcome to tell: its body did not run, or did nothing, or is not known to have done anything.

    Attributes:
        reason: Why.
        record: Identifier of the record concerned, where a person is to settle it.
    """

    def __init__(self, reason: Reason, message: str | None = None, *, record: int | None = None) -> None:
        super().__init__(message or _MESSAGES[reason].format(record=record))
        self.reason = reason
        self.record = record
