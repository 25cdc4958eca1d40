"""What the shop's tools leave behind: payments, and what the gateway sent."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Payment(models.Model):
    """Money taken from a user."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="payments")
    amount = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=16)
    created = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.amount} {self.currency}"


class Notification(models.Model):
    """A message that the gateway sent: it cannot be taken back."""

    email = models.CharField(max_length=254)
    kind = models.CharField(max_length=32)
    # Not a foreign key: the gateway knows the payment by its number alone.
    payment_id = models.BigIntegerField(null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.kind} to {self.email}"
