"""``manage.py mcp_token``: make a bearer token."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from ...auth.tokens import issue


class Command(BaseCommand):
    help = "Make a bearer token for a user and print it. It is shown once: only its digest is stored."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--name", default="made by mcp_token", help="what the token is for")
        parser.add_argument("--days", type=float, help="after how many days it expires; never if not given")

    def handle(self, *args: Any, **options: Any) -> None:
        users = get_user_model()
        try:
            user = users._default_manager.get_by_natural_key(options["username"])
        except users.DoesNotExist:
            raise CommandError(f"There is no user {options['username']!r}.") from None
        days = options["days"]
        expires_at = None if days is None else timezone.now() + timedelta(days=days)
        _, text = issue(user, name=options["name"], expires_at=expires_at)
        self.stdout.write(text)
