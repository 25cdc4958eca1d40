"""The transaction of an atomic body: what the body does to it decides whether anything of it stays."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import connections, transaction

from .databases import writer
from .outcomes import Outcome


class RolledBack(Exception):
    """The body's transaction was rolled back.

    Attributes:
        outcome: What the body came to.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class WriteElsewhere(Exception):
    """An atomic body wrote to a database whose transaction is not its own: no rollback would undo that."""


def run_body(run: Callable[[], Outcome], *, rolled_back: Outcome) -> Outcome:
    """Run an atomic body in the open transaction.

    Args:
        run: The body.
        rolled_back: What the body comes to where it returned and Django is going to roll back all the same: it
            caught a database error, or asked for it.

    Returns:
        What the body came to, if it can be committed.

    Raises:
        RolledBack: The body failed, or cannot be committed.
    """
    with _refusing_writes_elsewhere():
        outcome = run()
    if outcome.failed:
        raise RolledBack(outcome)
    if transaction.get_rollback(using=writer()):
        raise RolledBack(rolled_back)
    return outcome


def run_in_transaction(run: Callable[[], Outcome], *, rolled_back: Outcome) -> Outcome:
    """Run an atomic body in a transaction of its own; see ``run_body``."""
    with transaction.atomic(using=writer()):
        return run_body(run, rolled_back=rolled_back)


@contextmanager
def _refusing_writes_elsewhere() -> Iterator[None]:
    with ExitStack() as wrappers:
        for alias in connections:
            if alias != writer():
                wrappers.enter_context(connections[alias].execute_wrapper(_refuse_write))
        yield


def _refuse_write(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
    if not _READS.match(sql):
        alias = context["connection"].alias
        raise WriteElsewhere(
            f"An atomic tool wrote to the database {alias!r}. Only what it writes to {writer()!r} is rolled back with "
            "it: leave the word atomic out, or write there in another tool."
        )
    return execute(sql, params, many, context)


_READS = re.compile(
    r"[\s(]*(SELECT|SHOW|EXPLAIN|PRAGMA|SAVEPOINT|RELEASE|ROLLBACK|SET|WITH(?!.*\b(INSERT|UPDATE|DELETE|MERGE)\b))\b",
    re.IGNORECASE | re.DOTALL,
)
