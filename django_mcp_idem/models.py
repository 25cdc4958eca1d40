"""The tables: idempotency records, and the bearer tokens callers sign in with."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from .states import Ending, State


class IdempotencyRecord(models.Model):
    """What is known of one keyed call.

    Every write names the row, its attempt, its owner and its state, so that whoever lost the claim changes nothing.
    """

    endpoint = models.CharField(_("endpoint"), max_length=100)
    scope_digest = models.CharField(_("scope digest"), max_length=64)
    key_digest = models.CharField(_("key digest"), max_length=64)
    key_preview = models.CharField(_("key"), max_length=32)
    # Without a constraint: the foreign key's lock would make a claim wait for a tool that updates its user.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("user"),
        null=True,
        on_delete=models.SET_NULL,
        db_constraint=False,
        related_name="+",
    )
    tool = models.CharField(_("tool"), max_length=128)
    fingerprint = models.CharField(_("fingerprint"), max_length=64)
    fingerprint_version = models.PositiveSmallIntegerField(_("fingerprint version"))

    state = models.CharField(_("state"), max_length=16, choices=State.choices)
    attempt = models.PositiveIntegerField(_("attempt"), default=1, help_text=_("The fence: one more at each takeover."))
    owner = models.CharField(_("owner"), max_length=32, help_text=_("Random, made for each claim."))
    seed = models.CharField(
        _("seed"), max_length=32, help_text=_("Random, made at the first claim and kept over takeovers.")
    )
    lease_until = models.DateTimeField(_("lease until"))

    created_at = models.DateTimeField(_("created"))
    started_at = models.DateTimeField(_("started"))
    finished_at = models.DateTimeField(_("finished"), null=True)
    expires_at = models.DateTimeField(_("expires"), null=True, db_index=True)

    # Null where the call has not ended: an empty text would be an ending, and a result, of its own.
    ending = models.CharField(_("ending"), max_length=16, choices=Ending.choices, null=True)  # noqa: DJ001
    # Text and not a JSON column: jsonb refuses \u0000 and rewrites numbers.
    result = models.TextField(_("result"), null=True)  # noqa: DJ001
    replay_count = models.PositiveIntegerField(_("replays"), default=0)
    last_replay_at = models.DateTimeField(_("last replay"), null=True)

    class Meta:
        verbose_name = _("idempotency record")
        verbose_name_plural = _("idempotency records")
        default_permissions = ("view",)
        permissions = [
            ("view_idempotency_result", _("Can view the results of idempotency records")),
            ("settle_idempotency_record", _("Can settle idempotency records whose outcome is unknown")),
        ]
        constraints = [
            models.UniqueConstraint(fields=["scope_digest", "key_digest"], name="mcp_idem_record_identity"),
            models.CheckConstraint(
                name="mcp_idem_record_state",
                condition=Q(state=State.RUNNING, expires_at=None, ending=None)
                | Q(state__in=[State.UNKNOWN, State.OPEN], expires_at__isnull=False, ending=None)
                | Q(state=State.DONE, expires_at__isnull=False, ending__in=Ending.values),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.key_preview}"


class BearerToken(models.Model):
    """A bearer token of one user. Only its digest is stored: the token itself is shown once."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("user"), on_delete=models.CASCADE, related_name="mcp_tokens"
    )
    name = models.CharField(_("name"), max_length=100, help_text=_("What it is for, so that it can be told apart."))
    digest = models.CharField(_("digest"), max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(_("created"), editable=False)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True, help_text=_("Empty: never."))
    last_used_at = models.DateTimeField(_("last used"), null=True, editable=False)
    revoked_at = models.DateTimeField(_("revoked"), null=True, editable=False)

    class Meta:
        verbose_name = _("bearer token")
        verbose_name_plural = _("bearer tokens")

    def __str__(self) -> str:
        return f"{self.user}: {self.name}"
