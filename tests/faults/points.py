"""The points of a call at which something can go wrong: either side of each step that it takes."""

from __future__ import annotations

import re
from asyncio.events import Handle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from redis import Redis

CALLBACK = "callback of the event loop"
_CONNECT = "connect"
_END = "end of transaction"
_IN_REDIS = " in Redis"


@dataclass(frozen=True)
class Point:
    """One side of one step of a call.

    Attributes:
        side: ``before`` or ``after``; after a step that raised too.
        step: What the step is, such as ``INSERT app_effect``.
        occurrence: Which of the steps that are called so, from 1.
    """

    side: str
    step: str
    occurrence: int

    @property
    def is_statement(self) -> bool:
        """Whether the step is a statement of a database."""
        return self.step not in (CALLBACK, _CONNECT, _END) and not self.step.endswith(_IN_REDIS)

    def __str__(self) -> str:
        return f"{self.side} {self.step} ({self.occurrence})"


@contextmanager
def watched(reach: Callable[[Point], None]) -> Iterator[None]:
    """Call ``reach`` with each point that this process comes to. If it raises, so does the step."""
    reached: Counter[tuple[str, str]] = Counter()

    def come_to(side: str, step: str) -> None:
        reached[side, step] += 1
        reach(Point(side, step, reached[side, step]))

    with pytest.MonkeyPatch.context() as patch:
        for owner, method, name in _steps():
            patch.setattr(owner, method, _with_both_sides(getattr(owner, method), name, come_to))
        yield


def rehearse(act: Callable[[], object]) -> list[Point]:
    """The points that ``act`` comes to on a connection of its own, in order."""
    connections.close_all()
    points: list[Point] = []
    with watched(points.append):
        act()
    # After one callback is before the next.
    return [point for point in points if (point.side, point.step) != ("after", CALLBACK)]


def _with_both_sides(
    method: Callable[..., Any], name: Callable[..., str], come_to: Callable[[str, str], None]
) -> Callable[..., Any]:
    @wraps(method)
    def step(*args: Any, **kwargs: Any) -> Any:
        called = name(*args)
        come_to("before", called)
        try:
            return method(*args, **kwargs)
        finally:
            come_to("after", called)

    return step


def _steps() -> list[tuple[type, str, Callable[..., str]]]:
    """The methods that take the steps, each with what names the step by the method's arguments."""
    # Every database begins transactions in a way of its own; SQLite by a statement.
    database = type(connections["default"])
    return [
        (BaseDatabaseWrapper, "connect", lambda *_: _CONNECT),
        (CursorWrapper, "execute", lambda _, sql, *__: name_of_statement(sql)),
        (CursorWrapper, "executemany", lambda _, sql, *__: name_of_statement(sql)),
        (database, "_set_autocommit", lambda _, autocommit: _END if autocommit else "BEGIN"),
        (BaseDatabaseWrapper, "_commit", lambda _: "COMMIT"),
        (BaseDatabaseWrapper, "_rollback", lambda _: "ROLLBACK"),
        (Redis, "execute_command", lambda _, command, *__: f"{command}{_IN_REDIS}"),
        (Handle, "_run", lambda _: CALLBACK),
    ]


def name_of_statement(sql: str) -> str:
    """Verb and table of a statement; of one without a table, its beginning."""
    # On the wire MariaDB's statements can have limits before them.
    sql = re.sub(r"^SET STATEMENT .*? FOR ", "", sql)
    table = re.search(r"(?:INTO|FROM|UPDATE) [\"`](\w+)", sql)
    return f"{sql.split(maxsplit=1)[0]} {table[1]}" if table else sql[:40]
