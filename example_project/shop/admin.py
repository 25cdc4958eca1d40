"""The shop's pages in the admin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin

from .models import Notification, Payment

if TYPE_CHECKING:
    PaymentModelAdmin = admin.ModelAdmin[Payment]
    NotificationModelAdmin = admin.ModelAdmin[Notification]
else:
    PaymentModelAdmin = NotificationModelAdmin = admin.ModelAdmin


@admin.register(Payment)
class PaymentAdmin(PaymentModelAdmin):
    """The payments, newest first."""

    list_display = ("id", "user", "amount", "currency", "created")
    ordering = ("-id",)


@admin.register(Notification)
class NotificationAdmin(NotificationModelAdmin):
    """What the gateway sent, newest first."""

    list_display = ("id", "kind", "email", "payment_id", "created")
    ordering = ("-id",)
