"""The shop's configuration."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """A shop that takes payments and sends receipts."""

    name = "example_project.shop"
