"""``manage.py mcp_stdio``: serve a site over stdin and stdout."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from ...registry import Site, get_site
from ...transport.stdio import serve


class Command(BaseCommand):
    help = "Serve an MCP endpoint over stdin and stdout, as one user, to the client that launches this."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", required=True, help="whose calls they are: the username")
        parser.add_argument("--site", default="mcp", help="the name of the site to serve; the default one if not given")

    def handle(self, *args: Any, **options: Any) -> None:
        site, user = _site(options["site"]), _user(options["user"])
        # Each request opens its own.
        connections.close_all()
        serve(site, user.pk)


def _site(name: str) -> Site:
    site = get_site(name)
    if site is None:
        raise CommandError(
            f"There is no site named {name!r}. Name one that an installed app's mcp_tools.py makes by Site(...), "
            "or leave --site out."
        )
    return site


def _user(name: str) -> AbstractBaseUser:
    users = get_user_model()
    try:
        user = users._default_manager.get_by_natural_key(name)
    except users.DoesNotExist:
        raise CommandError(f"There is no user {name!r}. Name one that exists, or create this one first.") from None
    if not user.is_active:
        raise CommandError(f"The user {name!r} is not active. Name another one, or activate this one first.")
    return user
