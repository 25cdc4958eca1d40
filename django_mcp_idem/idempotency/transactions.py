"""A body in one transaction: what it does to it decides whether anything of it stays."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

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


def run_in_transaction(
    run: Callable[[], Outcome], *, rolled_back: Outcome, last: Callable[[Outcome], None] | None = None
) -> Outcome:
    """Run a body in one transaction on the record's database.

    Args:
        run: The body.
        rolled_back: What the body comes to where it returned and Django is going to roll back all the same: it
            caught a database error, or asked for it.
        last: The transaction's last statement.

    Returns:
        What the body came to, committed.

    Raises:
        RolledBack: The body failed, or could not be committed.
    """
    with transaction.atomic(using=writer()):
        outcome = run()
        if outcome.failed:
            raise RolledBack(outcome)
        if transaction.get_rollback(using=writer()):
            raise RolledBack(rolled_back)
        if last is not None:
            last(outcome)
    return outcome
