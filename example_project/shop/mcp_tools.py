"""The shop's tools, one for each thing that can happen to a call, and what it has to read."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Annotated, Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db.models import Count, PositiveBigIntegerField, QuerySet, Sum
from django.shortcuts import get_object_or_404
from pydantic import BaseModel, Field

from django_mcp_idem import RequestContext, ToolContext, ToolError, prompt, resource, tool

from . import gateway
from .models import Notification, Payment

Currency = Annotated[str, Field(max_length=16)]
Email = Annotated[str, Field(max_length=254)]
Seconds = Annotated[float, Field(ge=0, le=60)]

MAX_AMOUNT = PositiveBigIntegerField.MAX_BIGINT


class Receipt(BaseModel):
    """A payment that was made."""

    payment_id: int
    amount: int
    currency: str


class Sent(BaseModel):
    """A message that was sent."""

    notification_id: int


class Effects(BaseModel):
    """How much the tools have done, for all users together."""

    payments: int
    notifications: int


class Turnover(BaseModel):
    """What was taken in one currency."""

    currency: str
    payments: int
    total: int


@tool(atomic=True)
def charge_payment(ctx: ToolContext, amount: int, currency: Currency) -> Receipt:
    """Charge the signed-in customer."""
    return _charge(ctx, amount, currency)


@tool(atomic=True)
def slow_charge(ctx: ToolContext, amount: int, seconds: Seconds) -> Receipt:
    """Charge the signed-in customer in EUR, then take some seconds before the transaction ends."""
    receipt = _charge(ctx, amount, "EUR")
    ctx.report_progress(1, 2, "charged")
    time.sleep(seconds)
    return receipt


@tool
def send_receipt(email: Email, payment_id: int) -> Sent:
    """Send the receipt of a payment by mail."""
    return Sent(notification_id=gateway.send("receipt", email, payment_id))


@tool
def slow_notify(ctx: ToolContext, email: Email, seconds: Seconds) -> Sent:
    """Send a notice by mail, then take some seconds before answering."""
    sent = Sent(notification_id=gateway.send("notice", email))
    ctx.report_progress(1, 2, "sent")
    time.sleep(seconds)
    return sent


@tool
async def async_notify(ctx: ToolContext, email: Email, seconds: Seconds) -> Sent:
    """Send a notice by mail, then take some seconds before answering, without holding a thread."""
    sent = Sent(notification_id=await sync_to_async(gateway.send)("notice", email))
    ctx.report_progress(1, 2, "sent")
    await asyncio.sleep(seconds)
    return sent


@tool
def fail_after_effect(email: Email) -> Sent:
    """Send a notice by mail, then fail."""
    gateway.send("notice", email)
    raise RuntimeError("The tool failed after its effect, as it is meant to.")


@tool
def refuse(reason: str) -> None:
    """Refuse, for the reason given."""
    raise ToolError(reason)


@tool(read_only=True)
def list_payments(ctx: ToolContext) -> list[Receipt]:
    """The signed-in customer's payments, oldest first."""
    return [_receipt(payment) for payment in Payment.objects.filter(user=_customer(ctx)).order_by("pk")]


@tool(read_only=True)
def count_effects() -> Effects:
    """Count the payments and the notifications of all users."""
    return Effects(payments=Payment.objects.count(), notifications=Notification.objects.count())


@tool(read_only=True)
def echo(value: Any) -> Any:
    """Return the value, whatever it is."""
    return value


@tool(read_only=True, permission="shop.view_payment")
def staff_report() -> list[Turnover]:
    """The turnover in each currency."""
    rows = Payment.objects.values("currency").annotate(payments=Count("pk"), total=Sum("amount")).order_by("currency")
    return [Turnover(**row) for row in rows]


@resource("shop://terms", mime_type="text/markdown", title="Terms", ttl=timedelta(hours=1))
def terms() -> str:
    """What the shop promises."""
    return "# Terms\n\nA payment is taken once, however often it is asked for with one key.\n"


@resource("shop://payments/{payment_id}", mime_type="application/json")
def payment(ctx: RequestContext, payment_id: int) -> Receipt:
    """One of the signed-in customer's payments."""
    return _receipt(get_object_or_404(Payment, user=_customer(ctx), pk=payment_id))


def _complete_currency(typed: str) -> QuerySet[Payment, str]:
    codes = Payment.objects.order_by("currency").values_list("currency", flat=True).distinct()
    return codes.filter(currency__istartswith=typed)


@prompt(title="Ask about a payment", completions={"currency": _complete_currency})
def ask_about_payment(
    payment_id: Annotated[int, Field(description="Number of the payment.")], currency: str = "EUR"
) -> str:
    """Explain a payment to the customer."""
    return f"Read shop://payments/{payment_id} and explain it in one sentence, with the amount in {currency}."


def _charge(ctx: ToolContext, amount: int, currency: str) -> Receipt:
    if not 0 < amount <= MAX_AMOUNT:
        raise ToolError(f"The amount must be from 1 to {MAX_AMOUNT}.")
    return _receipt(Payment.objects.create(user=_customer(ctx), amount=amount, currency=currency))


def _customer(ctx: ToolContext | RequestContext) -> User:
    # This endpoint serves no anonymous callers.
    assert isinstance(ctx.user, User)
    return ctx.user


def _receipt(payment: Payment) -> Receipt:
    return Receipt(payment_id=payment.pk, amount=payment.amount, currency=payment.currency)
