"""The admin: records to look at and unknown outcomes to settle, bearer tokens to issue and revoke."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.admin.utils import unquote
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from .auth import tokens
from .forms import SettlementForm
from .idempotency.clock import DatabaseNow
from .idempotency.databases import writer
from .idempotency.keys import digest
from .models import BearerToken, IdempotencyRecord
from .states import State

if TYPE_CHECKING:
    RecordModelAdmin = admin.ModelAdmin[IdempotencyRecord]
    TokenModelAdmin = admin.ModelAdmin[BearerToken]
else:
    RecordModelAdmin = TokenModelAdmin = admin.ModelAdmin

RESULT_PERMISSION = "django_mcp_idem.view_idempotency_result"
SETTLE_PERMISSION = "django_mcp_idem.settle_idempotency_record"

NOT_FILTERED_BY = {"owner", "result", "seed"}

_IS_EXPIRED = ExpressionWrapper(Q(expires_at__lte=DatabaseNow()), output_field=BooleanField())


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(RecordModelAdmin):
    """Records, to look at. Seeing results and settling unknown outcomes (R23) take permissions of their own."""

    list_display = (
        "state_label",
        "tool",
        "user",
        "key",
        "attempt",
        "created_at",
        "finished_at",
        "expires_at",
        "replay_count",
    )
    list_display_links = ("key",)
    list_filter = ("state", ("tool", admin.AllValuesFieldListFilter), "ending", "created_at")
    list_select_related = ("user",)
    ordering = ("-pk",)
    search_fields = ("key_preview",)
    search_help_text = _("A whole key, exactly as the client sent it, or the beginning of a key as it is shown here.")
    show_full_result_count = False
    readonly_fields = ("state_label", "key", "shown_result", "withheld_result")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: IdempotencyRecord | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: IdempotencyRecord | None = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        # The admin filters by any column that the address names, so a result could be guessed letter by letter.
        return lookup.partition("__")[0] not in NOT_FILTERED_BY and super().lookup_allowed(lookup, value, request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).annotate(is_expired=_IS_EXPIRED).defer("owner", "result", "seed")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[IdempotencyRecord], bool]:
        if not search_term:
            return queryset, False
        # Not split at blanks, as the admin does with its own terms: they are part of a key.
        matches = Q(key_digest=digest(search_term)) | Q(key_preview__startswith=search_term)
        return queryset.filter(matches), False

    def get_fieldsets(self, request: HttpRequest, obj: IdempotencyRecord | None = None) -> Any:
        # The result is read only where it is shown.
        result = "shown_result" if request.user.has_perm(RESULT_PERMISSION) else "withheld_result"
        return (
            (_("Call"), {"fields": ("tool", "endpoint", "user", "key", "key_digest")}),
            (_("State"), {"fields": ("state_label", "ending", "attempt", "lease_until")}),
            (_("Times"), {"fields": ("created_at", "started_at", "finished_at", "expires_at")}),
            (_("Replays"), {"fields": ("replay_count", "last_replay_at")}),
            (_("Result"), {"fields": (result,)}),
        )

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.settle_view)
        return [path("<path:object_id>/settle/", view, name=_url_name("settle")), *super().get_urls()]

    def settle_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask what came of an unknown outcome and settle it, unless the record has changed since the page was shown."""
        record = self.get_object(request, unquote(object_id))
        if not (request.user.has_perm(SETTLE_PERMISSION) and self.has_view_permission(request, record)):
            raise PermissionDenied
        if record is None:
            raise Http404
        change_page = reverse(f"admin:{_url_name('change')}", args=[record.pk], current_app=self.admin_site.name)
        as_shown = request.method != "POST" or request.POST.get("attempt") == str(record.attempt)
        if record.state != State.UNKNOWN or record.is_expired or not as_shown:  # type: ignore[attr-defined]  # annotated
            self.message_user(request, _NOT_AS_SHOWN, messages.WARNING)
            return HttpResponseRedirect(change_page)
        form = SettlementForm(request.POST or None, instance=record)
        if not form.is_valid():
            return self._settle_page(request, record, form)
        if not self._settle(request, record, form):
            self.message_user(request, _NOT_AS_SHOWN, messages.WARNING)
        elif form.outcome is None:
            self.message_user(request, _("The next equal call runs the tool again."), messages.SUCCESS)
        else:
            self.message_user(request, _("Every retry is told what you recorded."), messages.SUCCESS)
        return HttpResponseRedirect(change_page)

    def _settle(self, request: HttpRequest, record: IdempotencyRecord, form: SettlementForm) -> bool:
        # In one transaction, so that nothing is settled without its entry in the log.
        with transaction.atomic(using=writer()):
            settled = form.settle()
            if settled:
                self.log_change(request, record, form.log_message)
        return settled

    def _settle_page(self, request: HttpRequest, record: IdempotencyRecord, form: SettlementForm) -> HttpResponse:
        fieldsets: list[tuple[Any, dict[str, Any]]] = [
            (_("Call"), {"fields": _KNOWN}),
            (
                _("Settlement"),
                {
                    "fields": ("finding", "returned", "failure", "reason"),
                    "description": _("What you record is what every retry is told. It cannot be changed later."),
                },
            ),
        ]
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Settle an unknown outcome"),
            "subtitle": str(record),
            "original": record,
            "adminform": helpers.AdminForm(form, fieldsets, {}, readonly_fields=_KNOWN, model_admin=self),
            "errors": form.errors,
            "media": self.media + form.media,
            "has_view_permission": True,
        }
        return TemplateResponse(request, "admin/django_mcp_idem/idempotencyrecord/settle.html", context)

    @admin.display(description=_("state"), ordering="state")
    def state_label(self, record: IdempotencyRecord) -> SafeString:
        return _label(record.state, record.get_state_display())

    @admin.display(description=_("key"), ordering="key_preview")
    def key(self, record: IdempotencyRecord) -> SafeString:
        return format_html('<code class="mcp-idem-code">{}</code>', record.key_preview)

    @admin.display(description=_("result"))
    def shown_result(self, record: IdempotencyRecord) -> SafeString:
        if record.result is None:
            return self.get_empty_value_display()
        return format_html('<pre class="mcp-idem-code">{}</pre>', _indented(record.result))

    @admin.display(description=_("result"))
    def withheld_result(self, record: IdempotencyRecord) -> SafeString:
        return format_html(gettext("It is shown only to users with the permission <code>{}</code>."), RESULT_PERMISSION)


_KNOWN = ("tool", "endpoint", "user", "key", "attempt", "created_at", "started_at", "lease_until", "expires_at")

_NOT_AS_SHOWN = _(
    "Nothing was changed: the outcome of this record is not unknown, or its time is over, "
    "or it has changed since you were asked about it."
)


def _url_name(page: str) -> str:
    return f"{IdempotencyRecord._meta.app_label}_{IdempotencyRecord._meta.model_name}_{page}"


@admin.register(BearerToken)
class BearerTokenAdmin(TokenModelAdmin):
    """Bearer tokens, to issue and to revoke. What was issued is not changed any more."""

    list_display = ("name", "user", "status", "created_at", "expires_at", "last_used_at", "revoked_at")
    list_select_related = ("user",)
    ordering = ("-pk",)
    search_fields = ("name", f"user__{get_user_model().USERNAME_FIELD}")
    raw_id_fields = ("user",)
    readonly_fields = ("status",)
    actions = ("revoke_selected",)

    def has_change_permission(self, request: HttpRequest, obj: BearerToken | None = None) -> bool:
        # Without an object the question is who may revoke; the fields of a token are nobody's to change.
        return obj is None and super().has_change_permission(request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).annotate(is_expired=_IS_EXPIRED)

    def get_fieldsets(self, request: HttpRequest, obj: BearerToken | None = None) -> Any:
        if obj is None:
            description = _("The token is shown once, on the page that follows.")
            return ((None, {"fields": ("user", "name", "expires_at"), "description": description}),)
        return ((None, {"fields": ("user", "name", "status", *_TOKEN_TIMES)}),)

    def get_autocomplete_fields(self, request: HttpRequest) -> tuple[str, ...]:
        # It takes an admin of users that can be searched, which a project may not have; the id is asked for then.
        try:
            users = self.admin_site.get_model_admin(get_user_model())
        except NotRegistered:
            return ()
        return ("user",) if users.get_search_fields(request) and users.has_view_permission(request) else ()

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        # The only way on is the page that shows the token.
        buttons = {"show_save_and_continue": False, "show_save_and_add_another": False}
        return super().add_view(request, form_url, {**(extra_context or {}), **buttons})

    def save_model(self, request: HttpRequest, obj: BearerToken, form: Any, change: bool) -> None:
        # The request is all that may know the text: it ends with the answer, and nothing stores or logs it.
        request._mcp_token_text = tokens.store(obj)  # type: ignore[attr-defined]  # our own

    def response_add(
        self, request: HttpRequest, obj: BearerToken, post_url_continue: str | None = None
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Token issued"),
            "token": obj,
            "token_text": request._mcp_token_text,  # type: ignore[attr-defined]  # our own
            "has_view_permission": self.has_view_permission(request),
            "is_popup": IS_POPUP_VAR in request.POST,
        }
        template = "admin/django_mcp_idem/bearertoken/issued.html"
        return TemplateResponse(request, template, context, headers={"Cache-Control": "no-store"})

    @admin.action(description=_("Revoke the selected tokens"), permissions=["change"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[BearerToken]) -> None:
        in_force = list(queryset.filter(revoked_at=None))
        count = tokens.revoke(queryset)
        for token in in_force:
            self.log_change(request, token, [{"changed": {"fields": ["revoked"]}}])
        text = ngettext("%(count)d token was revoked.", "%(count)d tokens were revoked.", count)
        self.message_user(request, text % {"count": count}, messages.SUCCESS)

    @admin.display(description=_("status"))
    def status(self, token: Any) -> SafeString:
        if token.revoked_at is not None:
            return _label("revoked", _("revoked"))
        if token.is_expired:
            return _label("expired", _("expired"))
        if not token.user.is_active:
            return _label("inactive", _("user is inactive"))
        return _label("valid", _("valid"))


_TOKEN_TIMES = ("created_at", "expires_at", "last_used_at", "revoked_at")


def _label(kind: str, text: str | Promise) -> SafeString:
    return format_html('<span class="mcp-idem-label mcp-idem-{}">{}</span>', kind, text)


def _indented(text: str) -> str:
    """A JSON text for people to read: the same values, with what would not be seen written as escapes."""
    indented = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in indented)
