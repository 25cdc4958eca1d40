"""The admin: records to look at, tokens that are shown once."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_mcp_idem import jsontext
from django_mcp_idem.auth.callers import Caller, Unauthenticated
from django_mcp_idem.auth.tokens import authenticate, digest_of
from django_mcp_idem.models import BearerToken, IdempotencyRecord
from django_mcp_idem.states import State
from tests.factories import RecordFactory, TokenFactory, UserFactory, staff

pytestmark = pytest.mark.django_db

RECORDS = "/admin/django_mcp_idem/idempotencyrecord/"
TOKENS = "/admin/django_mcp_idem/bearertoken/"


class TestRecordList:
    def test_takes_the_same_queries_for_one_record_and_for_thirty(self, admin_client: Client) -> None:
        RecordFactory()
        with CaptureQueriesContext(connection) as for_one:
            admin_client.get(RECORDS)
        RecordFactory.create_batch(29)
        with CaptureQueriesContext(connection) as for_thirty:
            page = admin_client.get(RECORDS)
        assert page.context["cl"].result_count == 30
        assert len(for_thirty) == len(for_one)

    def test_does_not_read_results_owners_and_seeds(self, admin_client: Client) -> None:
        RecordFactory()
        with CaptureQueriesContext(connection) as queries:
            admin_client.get(RECORDS)
        statements = _statements(queries)
        assert _column("key_preview") in statements
        assert not [name for name in ("result", "owner", "seed") if _column(name) in statements]

    def test_shows_each_state(self, admin_client: Client) -> None:
        RecordFactory(running=True)
        RecordFactory(unknown=True)
        RecordFactory(open=True)
        RecordFactory()
        page = admin_client.get(RECORDS).content.decode()
        for state in State:
            assert f'<span class="mcp-idem-label mcp-idem-{state.value}">{state.label}</span>' in page

    def test_shows_a_record_whose_user_is_gone(self, admin_client: Client) -> None:
        record = RecordFactory()
        User.objects.filter(pk=record.user.pk).delete()
        assert _found(admin_client.get(RECORDS)) == [record]

    @pytest.mark.parametrize(
        ("filters", "tools"),
        [
            ({"state__exact": "running"}, ["a"]),
            ({"ending__exact": "tool_error"}, ["b"]),
            ({"tool": "c"}, ["c"]),
            ({"created_at__lt": "2020-01-01 00:00:00+00:00"}, []),
        ],
    )
    def test_filters(self, admin_client: Client, filters: dict[str, str], tools: list[str]) -> None:
        RecordFactory(tool="a", running=True)
        RecordFactory(tool="b", ending="tool_error")
        RecordFactory(tool="c")
        found = _found(admin_client.get(RECORDS, filters))
        assert [record.tool for record in found] == tools

    @pytest.mark.parametrize("column", ["owner", "result", "seed"])
    def test_cannot_be_used_to_guess_what_it_does_not_show(self, client: Client, column: str) -> None:
        client.force_login(staff("view_idempotencyrecord"))
        RecordFactory()
        assert client.get(RECORDS, {f"{column}__startswith": "0"}).status_code == 400

    def test_is_for_those_who_may_view_records(self, client: Client) -> None:
        client.force_login(staff("view_bearertoken"))
        assert client.get(RECORDS).status_code == 403


class TestRecordSearch:
    @pytest.mark.parametrize(
        "key",
        [
            "order-1",
            "two  blanks and\ta tab",
            " blanks around ",
            " ",
            "zażółć gęślą 🔑",
            "a\nb",
            'it\'s "100%"_\\',
            "k" * 255,
        ],
    )
    def test_finds_a_record_by_its_exact_key(self, admin_client: Client, key: str) -> None:
        record = RecordFactory(key=key)
        RecordFactory(key="another")
        assert _found(admin_client.get(RECORDS, {"q": key})) == [record]

    def test_finds_a_key_longer_than_its_preview_only_whole(self, admin_client: Client) -> None:
        record = RecordFactory(key="k" * 100)
        assert _found(admin_client.get(RECORDS, {"q": "k" * 100})) == [record]
        assert _found(admin_client.get(RECORDS, {"q": "k" * 99})) == []

    def test_finds_records_by_the_beginning_of_what_is_shown(self, admin_client: Client) -> None:
        records = [RecordFactory(key="order-1"), RecordFactory(key="order-2")]
        RecordFactory(key="my order-3")
        assert _found(admin_client.get(RECORDS, {"q": "order-"})) == records[::-1]

    def test_finds_the_same_key_of_every_caller(self, admin_client: Client) -> None:
        records = [RecordFactory(key="order-1"), RecordFactory(key="order-1")]
        assert _found(admin_client.get(RECORDS, {"q": "order-1"})) == records[::-1]

    @pytest.mark.parametrize("term", ["order 1", "order-1 ", "Ä"])
    def test_neither_trims_nor_folds(self, admin_client: Client, term: str) -> None:
        RecordFactory(key="order-1")
        RecordFactory(key="ä")
        assert _found(admin_client.get(RECORDS, {"q": term})) == []


class TestRecordDetail:
    def test_shows_the_result_with_the_permission_for_it(self, client: Client) -> None:
        client.force_login(staff("view_idempotencyrecord", "view_idempotency_result"))
        record = RecordFactory(result='{"content":[{"type":"text","text":"paid"}]}')
        page = client.get(_detail(record)).content.decode()
        assert '"text": "paid"' in unescape(page)

    def test_withholds_the_result_without_it_and_says_so(self, client: Client) -> None:
        client.force_login(staff("view_idempotencyrecord"))
        record = RecordFactory(result='{"content":[{"type":"text","text":"paid"}]}')
        with CaptureQueriesContext(connection) as queries:
            page = client.get(_detail(record)).content.decode()
        assert "paid" not in page
        assert "django_mcp_idem.view_idempotency_result" in page
        assert _column("result") not in _statements(queries)

    def test_escapes_the_result(self, admin_client: Client) -> None:
        record = RecordFactory(result='{"text":"<script>alert(1)</script>"}')
        page = admin_client.get(_detail(record)).content.decode()
        assert "<script>alert(1)" not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (2**70, "1180591620717411303424"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            ("a\0b", r'"a\u0000b"'),
            ("zażółć", '"zażółć"'),
            # Nothing that hides, reverses or cannot be encoded reaches the page as it is.
            ("\u202e\u200b", r'"\u202e\u200b"'),
            ("\ud800", r'"\ud800"'),
            ("\U000e0041", r'"\udb40\udc41"'),
            ("line\nbreak", r'"line\nbreak"'),
            (None, "null"),
            ([], "[]"),
        ],
    )
    def test_shows_values_exactly(self, admin_client: Client, value: object, shown: str) -> None:
        record = RecordFactory(result=jsontext.write({"structuredContent": value}).decode())
        page = unescape(admin_client.get(_detail(record)).content.decode())
        assert f'{{\n  "structuredContent": {shown}\n}}' in page

    @pytest.mark.parametrize("traits", [{"running": True}, {"unknown": True}, {"ending": "omitted", "result": None}])
    def test_shows_a_record_without_a_result(self, admin_client: Client, traits: dict[str, object]) -> None:
        page = admin_client.get(_detail(RecordFactory(**traits)))
        assert page.status_code == 200
        assert "None" not in page.content.decode()

    def test_never_shows_the_owner_and_the_seed(self, admin_client: Client) -> None:
        record = RecordFactory(owner="the owner", seed="the seed")
        page = admin_client.get(_detail(record)).content.decode()
        assert "the owner" not in page
        assert "the seed" not in page

    def test_escapes_the_key(self, admin_client: Client) -> None:
        record = RecordFactory(key="<b>bold</b>")
        for address in (RECORDS, _detail(record)):
            assert "<b>bold" not in admin_client.get(address).content.decode()

    @pytest.mark.parametrize("page", ["add/", "{pk}/change/", "{pk}/delete/"])
    def test_can_neither_be_added_nor_changed_nor_deleted(self, admin_client: Client, page: str) -> None:
        record = RecordFactory()
        answer = admin_client.post(RECORDS + page.format(pk=record.pk), {"tool": "another", "post": "yes"})
        assert answer.status_code == 403
        assert IdempotencyRecord.objects.get().tool == record.tool

    def test_has_no_bulk_deletion(self, admin_client: Client) -> None:
        record = RecordFactory()
        admin_client.post(RECORDS, {"action": "delete_selected", "_selected_action": record.pk, "post": "yes"})
        assert IdempotencyRecord.objects.get() == record


class TestIssuingATokenInTheAdmin:
    def test_shows_it_once(self, admin_client: Client, user: User) -> None:
        answer = _add_token(admin_client, user)
        assert answer.status_code == 200
        assert "no-store" in answer["Cache-Control"]
        text = _shown_token(answer)
        token = BearerToken.objects.get()
        own = f"{TOKENS}{token.pk}/"
        for later in (TOKENS, f"{own}change/", f"{own}history/", f"{TOKENS}add/", "/admin/"):
            page = admin_client.get(later)
            assert page.status_code == 200
            assert text not in page.content.decode()
            assert token.digest not in page.content.decode()

    def test_makes_one_that_is_accepted(self, admin_client: Client, user: User) -> None:
        text = _shown_token(_add_token(admin_client, user))
        assert BearerToken.objects.get().digest == digest_of(text)
        assert _authenticated(text).user == user

    def test_stores_its_text_nowhere(self, admin_client: Client, user: User) -> None:
        text = _shown_token(_add_token(admin_client, user))
        stored = [*LogEntry.objects.values(), *BearerToken.objects.values()]
        sessions = [session.get_decoded() for session in Session.objects.all()]
        assert LogEntry.objects.count() == 1
        assert sessions
        assert text not in repr([stored, sessions, admin_client.cookies])

    def test_keeps_what_the_form_said(self, admin_client: Client, user: User) -> None:
        _add_token(admin_client, user, expires_at_0="2099-01-02", expires_at_1="03:04:05")
        token = BearerToken.objects.get()
        assert (token.user, token.name, token.revoked_at) == (user, "laptop", None)
        assert token.expires_at is not None
        assert timezone.localtime(token.expires_at).strftime("%Y-%m-%d %H:%M:%S") == "2099-01-02 03:04:05"
        assert abs(timezone.now() - token.created_at) < timedelta(minutes=1)

    @pytest.mark.parametrize("button", ["_continue", "_addanother"])
    def test_shows_it_whatever_button_was_sent(self, admin_client: Client, user: User, button: str) -> None:
        assert _shown_token(_add_token(admin_client, user, **{button: "1"}))

    def test_ignores_fields_that_are_not_in_the_form(self, admin_client: Client, user: User) -> None:
        text = _shown_token(_add_token(admin_client, user, digest=digest_of("known"), last_used_at="2020-01-01"))
        token = BearerToken.objects.get()
        assert (token.digest, token.last_used_at) == (digest_of(text), None)

    def test_with_an_incomplete_form_makes_none(self, admin_client: Client, user: User) -> None:
        assert _add_token(admin_client, user, name="").context["errors"]
        assert not BearerToken.objects.exists()

    def test_takes_the_permission_to_add(self, client: Client, user: User) -> None:
        client.force_login(staff("view_bearertoken", "change_bearertoken"))
        assert _add_token(client, user).status_code == 403

    def test_works_without_the_permission_to_view_tokens_and_users(self, client: Client, user: User) -> None:
        client.force_login(staff("add_bearertoken"))
        form = client.get(f"{TOKENS}add/").content.decode()
        assert 'class="vForeignKeyRawIdAdminField' in form
        answer = _add_token(client, user)
        assert _shown_token(answer)
        assert f'href="{TOKENS}"' not in answer.content.decode()

    def test_offers_users_by_search_to_those_who_may_view_them(self, client: Client) -> None:
        client.force_login(staff("add_bearertoken", "view_user"))
        assert 'class="admin-autocomplete' in client.get(f"{TOKENS}add/").content.decode()


class TestIssuedTokens:
    def test_are_not_changed(self, admin_client: Client) -> None:
        token = TokenFactory()
        address = f"{TOKENS}{token.pk}/change/"
        assert 'name="_save"' not in admin_client.get(address).content.decode()
        assert admin_client.post(address, {"name": "another", "user": token.user.pk}).status_code == 403
        assert BearerToken.objects.get().name == token.name

    def test_are_refused_once_revoked(self, admin_client: Client) -> None:
        revoked, kept = TokenFactory(text="one"), TokenFactory(text="two")
        page = _revoke(admin_client, revoked)
        assert "1 token was revoked." in page.content.decode()
        assert "revoked" in str(LogEntry.objects.get(object_id=revoked.pk))
        with pytest.raises(Unauthenticated):
            _authenticated("one")
        assert _authenticated("two").user == kept.user

    def test_are_revoked_only_with_the_permission_to_change(self, client: Client) -> None:
        client.force_login(staff("view_bearertoken"))
        token = TokenFactory(text="one")
        _revoke(client, token)
        assert _authenticated("one").user == token.user

    def test_stay_revoked_since_the_first_time(self, admin_client: Client) -> None:
        long_ago = timezone.now() - timedelta(days=1)
        token = TokenFactory(revoked_at=long_ago)
        assert "0 tokens were revoked." in _revoke(admin_client, token).content.decode()
        assert BearerToken.objects.get().revoked_at == long_ago
        assert not LogEntry.objects.exists()

    def test_can_be_deleted(self, admin_client: Client) -> None:
        admin_client.post(f"{TOKENS}{TokenFactory().pk}/delete/", {"post": "yes"})
        assert not BearerToken.objects.exists()

    @pytest.mark.parametrize(
        ("status", "hours", "revoked", "active"),
        [
            ("valid", None, False, True),
            ("valid", 1, False, True),
            ("expired", -1, False, True),
            ("revoked", 1, True, True),
            ("revoked", -1, True, True),
            ("inactive", 1, False, False),
        ],
    )
    def test_say_whether_they_are_accepted(
        self, admin_client: Client, status: str, hours: int | None, revoked: bool, active: bool
    ) -> None:
        now = timezone.now()
        TokenFactory(
            user=UserFactory(is_active=active),
            expires_at=None if hours is None else now + timedelta(hours=hours),
            revoked_at=now if revoked else None,
        )
        page = admin_client.get(TOKENS).content.decode()
        assert re.findall(r"mcp-idem-label mcp-idem-(\w+)", page) == [status]

    def test_are_found_by_name_and_user(self, admin_client: Client) -> None:
        token = TokenFactory(name="laptop", user=UserFactory(username="alice"))
        TokenFactory(name="server", user=UserFactory(username="bob"))
        for term in ("lapt", "alice"):
            assert _found(admin_client.get(TOKENS, {"q": term})) == [token]


def _detail(record: IdempotencyRecord) -> str:
    return reverse("admin:django_mcp_idem_idempotencyrecord_change", args=[record.pk])


def _found(page: HttpResponse) -> list[object]:
    return list(page.context["cl"].result_list)


def _column(name: str) -> str:
    return f"{connection.ops.quote_name(IdempotencyRecord._meta.db_table)}.{connection.ops.quote_name(name)}"


def _statements(queries: CaptureQueriesContext) -> str:
    return "\n".join(query["sql"] for query in queries)


def _add_token(client: Client, user: User, **fields: str) -> HttpResponse:
    form = {"user": str(user.pk), "name": "laptop", "expires_at_0": "", "expires_at_1": ""}
    return client.post(f"{TOKENS}add/", form | fields)


def _shown_token(page: HttpResponse) -> str:
    (text,) = re.findall(r"mcp_[\w-]{43}", page.content.decode())
    return text


def _revoke(client: Client, token: BearerToken) -> HttpResponse:
    return client.post(TOKENS, {"action": "revoke_selected", "_selected_action": token.pk}, follow=True)


def _authenticated(text: str) -> Caller:
    return authenticate(RequestFactory().post("/mcp", headers={"Authorization": f"Bearer {text}"}))
