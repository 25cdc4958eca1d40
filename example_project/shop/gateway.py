"""A stand-in for a mail or payment service: what it did, no rollback of its caller undoes."""

from __future__ import annotations

from django.db import connections

from .models import Notification

# A connection of its own, in autocommit: each send is final at once.
ALIAS = "gateway"


def send(kind: str, email: str, payment_id: int | None = None) -> int:
    """Send a message of some kind. Returns its number."""
    sent = Notification.objects.using(ALIAS).create(kind=kind, email=email, payment_id=payment_id)
    _give_back_connection()
    return sent.pk


def _give_back_connection() -> None:
    """Return the connection to its pool: the caller may go on for long, and others want to send."""
    connection = connections[ALIAS]
    # A TestCase has it in a transaction of its own, which closing would break.
    if not connection.in_atomic_block:
        connection.close()
