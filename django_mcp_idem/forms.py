"""The form in which a person says what came of an interrupted call."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pydantic
from django import forms
from django.contrib.admin.widgets import AdminRadioSelect, AdminTextareaWidget
from django.core.exceptions import ValidationError
from django.db.models import TextChoices
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from . import jsontext
from .idempotency import records
from .idempotency.keys import derived_key, digest
from .idempotency.outcomes import Outcome
from .models import IdempotencyRecord
from .registry import get_site
from .results import Returns, error_result, outcome_of
from .tools import Tool

if TYPE_CHECKING:
    RecordModelForm = forms.ModelForm[IdempotencyRecord]
else:
    RecordModelForm = forms.ModelForm


class Finding(TextChoices):
    """What a person found out about an interrupted call."""

    HAPPENED = "happened", _("It happened: record its result")
    FAILED = "failed", _("It failed: record the failure")
    NOTHING_DONE = "nothing_done", _("It did not happen, and no longer can: let the next equal call run the tool again")


class SettlementForm(RecordModelForm):
    """Settles an unknown outcome by what a person found out (R23).

    Attributes:
        outcome: What is to be recorded, once the form is valid; ``None`` to let the tool run again.
    """

    finding = forms.ChoiceField(
        label=_("What happened"), choices=Finding.choices, widget=AdminRadioSelect(attrs={"class": "radiolist"})
    )
    returned = forms.CharField(label=_("Result"), required=False, widget=AdminTextareaWidget(attrs={"rows": 6}))
    failure = forms.CharField(
        label=_("Failure"),
        required=False,
        widget=AdminTextareaWidget(attrs={"rows": 3}),
        help_text=_("For a call that failed: the text that the caller is told."),
    )
    reason = forms.CharField(
        label=_("Reason"),
        widget=AdminTextareaWidget(attrs={"rows": 3}),
        help_text=_("How you know. It is kept in the history of the record, and no caller is told."),
    )

    outcome: Outcome | None = None

    class Meta:
        model = IdempotencyRecord
        fields = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tool = _tool_of(self.instance)
        # Where the tool is gone, nothing says what its result has to look like: it is told as text.
        self._returns = Returns(None) if self._tool is None else self._tool.returns
        self.fields["returned"].help_text = _help_on(self._returns)

    def clean_returned(self) -> str:
        text: str = self.cleaned_data["returned"]
        if self._is_to_record(text, Finding.HAPPENED):
            self.outcome = _outcome_of_returned(self._returns, text)
        return text

    def clean_failure(self) -> str:
        text: str = self.cleaned_data["failure"]
        if self._is_to_record(text, Finding.FAILED):
            if not text:
                raise ValidationError(_("Say what the caller is told."), code="required")
            self.outcome = outcome_of(error_result(text))
        return text

    def _is_to_record(self, text: str, finding: Finding) -> bool:
        """Whether the field of ``finding`` is to be recorded.

        Raises:
            ValidationError: There is a text in it and another finding was chosen, which cannot be put right later.
        """
        found = self.cleaned_data.get("finding")
        if text and found not in (None, finding):
            raise ValidationError(
                _("Leave this empty, or choose “%(finding)s”."), code="stray", params={"finding": finding.label}
            )
        return found == finding

    def settle(self) -> bool:
        """Settle the record. Returns whether it still was as this form's instance."""
        record = self.instance
        if self.outcome is None:
            return records.reopen(record.pk, record.attempt)
        return records.settle(record.pk, record.attempt, self.outcome, retention=self._retention)

    @property
    def _retention(self) -> timedelta | None:
        if self._tool is None:
            return None
        if self.instance.key_digest == digest(derived_key(self.instance.fingerprint)):
            return self._tool.deduplicate_within
        return self._tool.policy.retention

    @property
    def log_message(self) -> str:
        """What the log keeps of it: neither the result nor the failure, which not everyone there may see."""
        return gettext("Settled attempt %(attempt)d. %(finding)s. Reason: %(reason)s") % {
            "attempt": self.instance.attempt,
            "finding": Finding(self.cleaned_data["finding"]).label,
            "reason": self.cleaned_data["reason"],
        }


def _tool_of(record: IdempotencyRecord) -> Tool | None:
    site = get_site(record.endpoint)
    return None if site is None else site.get_tool(record.tool)


def _help_on(returns: Returns) -> str | SafeString:
    if not returns.structured:
        return gettext("For a call that happened: JSON, which the caller is told as text. Empty if nothing came back.")
    text = gettext("For a call that happened: what the tool's function would have returned, as JSON.")
    if returns.schema is None:
        return text
    schema = json.dumps(returns.schema, ensure_ascii=False, indent=2)
    return format_html('{} {}<pre class="mcp-idem-code">{}</pre>', text, gettext("It has to fit this schema:"), schema)


def _outcome_of_returned(returns: Returns, text: str) -> Outcome:
    """
    Raises:
        ValidationError: The text is not JSON, or not what the tool returns.
    """
    if not text and returns.structured:
        raise ValidationError(_("Write what the tool returned; null if it was None."), code="required")
    try:
        value = jsontext.parse(text.encode()) if text else None
    except jsontext.ParseError as error:
        raise ValidationError(_("This is not JSON: %(error)s"), code="json", params={"error": error}) from error
    try:
        return outcome_of(returns.result(value))
    except pydantic.ValidationError as invalid:
        raise ValidationError([_located(details) for details in invalid.errors(include_url=False)]) from invalid
    except ValueError as error:
        raise ValidationError(str(error), code="invalid") from error


def _located(details: Any) -> str:
    where = ".".join(map(str, details["loc"]))
    return f"{where}: {details['msg']}" if where else str(details["msg"])
