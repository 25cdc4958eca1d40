"""``manage.py demo_data``: users and tokens to try the example with."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand
from django.db import transaction
from django.utils import timezone

from django_mcp_idem.auth.tokens import digest_of
from django_mcp_idem.models import BearerToken

CUSTOMERS = ("alice", "bob")
ADMIN = "admin"


class Command(BaseCommand):
    """Make the example's users and tokens, where they are not there yet."""

    help = "Make the users alice, bob and admin, each with a fixed token. For the example only."

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        """Make them, and say what was made."""
        users = [*map(_customer, CUSTOMERS), _admin()]
        for user in users:
            self.stdout.write(f"{user.username}: bearer token {_token(user)}")
        self.stdout.write(f"{ADMIN} signs in to the admin with the password {ADMIN}.")
        self.stdout.write(self.style.WARNING("Everyone knows these tokens and the password: for the example only."))


def _customer(name: str) -> User:
    return User.objects.filter(username=name).first() or User.objects.create_user(name)


def _admin() -> User:
    return User.objects.filter(username=ADMIN).first() or User.objects.create_superuser(ADMIN, password=ADMIN)


def _token(user: User) -> str:
    text = f"demo-{user.username}"
    BearerToken.objects.get_or_create(
        digest=digest_of(text), defaults={"user": user, "name": "demo", "created_at": timezone.now()}
    )
    return text
