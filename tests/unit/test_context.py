"""What a body is given beside its arguments."""

from __future__ import annotations

import secrets
from uuid import UUID

from django.contrib.auth.models import AnonymousUser

from django_mcp_idem import ToolContext


def context(seed: str, attempt: int = 1) -> ToolContext:
    return ToolContext(user=AnonymousUser(), request=None, attempt=attempt, seed=seed)


def test_r23_a_downstream_key_is_the_same_for_every_attempt_of_one_record() -> None:
    """R23: the service that was called before a crash recognises the call that repeats it."""
    seed = secrets.token_hex(16)

    assert context(seed, attempt=1).downstream_key("refund") == context(seed, attempt=2).downstream_key("refund")


def test_downstream_keys_differ_by_record_and_by_label() -> None:
    one, other = context(secrets.token_hex(16)), context(secrets.token_hex(16))

    keys = {one.downstream_key(), one.downstream_key("a"), one.downstream_key("b"), other.downstream_key("a")}

    assert len(keys) == 4


def test_a_downstream_key_has_the_form_of_a_uuid_and_never_changes() -> None:
    key = context("0" * 32).downstream_key("refund")

    assert str(UUID(key)) == key
    assert key == "dc1267d3-ccd3-ee09-1360-1085f07fee3b"


def test_the_seed_is_not_shown() -> None:
    seed = secrets.token_hex(16)

    assert seed not in repr(context(seed))
