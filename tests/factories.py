"""Factories of the rows that tests begin with."""

from __future__ import annotations

from datetime import timedelta

import factory
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission, User
from django.utils import timezone
from factory.django import DjangoModelFactory

from django_mcp_idem.auth.tokens import digest_of
from django_mcp_idem.idempotency.equivalence import VERSION, fingerprint
from django_mcp_idem.idempotency.keys import Scope, digest, preview
from django_mcp_idem.models import BearerToken, IdempotencyRecord
from django_mcp_idem.states import Ending, State


class UserFactory(DjangoModelFactory[User]):
    class Meta:
        model = get_user_model()

    username = factory.Sequence(lambda n: f"user{n}")


def staff(*permissions: str) -> User:
    """A user who may enter the admin, and has the permissions of these code names."""
    user = UserFactory(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


class TokenFactory(DjangoModelFactory[BearerToken]):
    class Meta:
        model = BearerToken

    class Params:
        text = factory.Sequence(lambda n: f"token-{n}")

    user = factory.SubFactory(UserFactory)
    name = "for tests"
    digest = factory.LazyAttribute(lambda token: digest_of(token.text))
    created_at = factory.LazyFunction(timezone.now)


class RecordFactory(DjangoModelFactory[IdempotencyRecord]):
    """A finished record; ``running``, ``unknown`` and ``open`` make the others."""

    class Meta:
        model = IdempotencyRecord

    class Params:
        key = factory.Sequence(lambda n: f"key-{n}")
        arguments = factory.LazyFunction(dict)
        running = factory.Trait(state=State.RUNNING, ending=None, result=None, finished_at=None, expires_at=None)
        unknown = factory.Trait(state=State.UNKNOWN, ending=None, result=None, finished_at=None)
        open = factory.Trait(unknown=True, state=State.OPEN)
        lease_over = factory.Trait(lease_until=factory.LazyFunction(lambda: timezone.now() - timedelta(seconds=1)))
        expired = factory.Trait(expires_at=factory.LazyFunction(lambda: timezone.now() - timedelta(seconds=1)))
        lapsed = factory.Trait(
            running=True, lease_until=factory.LazyFunction(lambda: timezone.now() - timedelta(seconds=1))
        )

    endpoint = "mcp"
    user = factory.SubFactory(UserFactory)
    scope_digest = factory.LazyAttribute(
        lambda record: Scope(endpoint=record.endpoint, kind="user", subject=str(record.user.pk)).digest
    )
    key_digest = factory.LazyAttribute(lambda record: digest(record.key))
    key_preview = factory.LazyAttribute(lambda record: preview(record.key))
    tool = "external"
    fingerprint = factory.LazyAttribute(lambda record: fingerprint(record.tool, record.arguments))
    fingerprint_version = VERSION
    state = State.DONE
    owner = "0" * 32
    seed = "1" * 32
    lease_until = factory.LazyFunction(lambda: timezone.now() + timedelta(seconds=30))
    created_at = factory.LazyFunction(timezone.now)
    started_at = factory.LazyFunction(timezone.now)
    finished_at = factory.LazyFunction(timezone.now)
    expires_at = factory.LazyFunction(lambda: timezone.now() + timedelta(hours=24))
    ending = Ending.RESULT
    result = '{"content":[],"isError":false,"resultType":"complete"}'
