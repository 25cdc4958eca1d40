"""What a tool's author says about running it, as the engine needs it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum


class Effects(Enum):
    """What running a body twice would do, and so what a crash in mid-call means (R23)."""

    ATOMIC = "atomic"
    """All writes are in one transaction with the record: a crash rolls back, the body runs again."""

    RERUN_SAFE = "rerun_safe"
    """Running twice does no harm: the body runs again."""

    EXTERNAL = "external"
    """The effect may have happened: the outcome is unknown, and nobody guesses."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How the engine treats the calls of one tool.

    Attributes:
        effects: What running the body twice would do.
        retention: How long a finished record is kept; ``None`` for the setting ``RETENTION``.
        max_runtime: After how long a running body loses its claim; ``None`` for the setting ``MAX_RUNTIME``.
        probed: Whether there is a probe that can settle an unknown outcome.
        window: For a call without a key: within what time equal calls are one. ``None`` for a call with one.
    """

    effects: Effects
    retention: timedelta | None = None
    max_runtime: timedelta | None = None
    probed: bool = False
    window: timedelta | None = None

    @property
    def atomic(self) -> bool:
        """Whether body and completion are one transaction."""
        return self.effects is Effects.ATOMIC

    @property
    def may_run_again(self) -> bool:
        """Whether a body that may have run can be run again."""
        return self.effects is not Effects.EXTERNAL

    def within(self, window: timedelta) -> Policy:
        """The policy for calls without a key, of which equal ones are one within ``window``, however they ended."""
        return replace(self, retention=window, window=window)
