"""A person settles an unknown outcome in the admin (R23, R28)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Annotated, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db.models import F
from django.http import HttpResponse
from django.test import Client
from django.utils.html import escape
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent
from pydantic import AfterValidator, BaseModel

from django_mcp_idem import __version__
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.registry import Site
from django_mcp_idem.states import Ending, State
from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect
from tests.factories import RecordFactory, UserFactory, staff
from tests.faults.test_interrupted import end_the_lease
from tests.threads import elsewhere

pytestmark = pytest.mark.django_db

RECORDS = "/admin/django_mcp_idem/idempotencyrecord/"
NOTHING_CHANGED = "Nothing was changed"

till = Site("till", mark_replays=False)

while_checking: list[Callable[[], None]] = []
"""What to do, once, while an answer is being validated."""


class Receipt(BaseModel):
    number: int
    paid: bool


def _checked(value: int) -> int:
    while while_checking:
        while_checking.pop()()
    return value


@till.tool
def charge(label: str) -> Receipt:
    raise AssertionError("Its outcome is settled.")


@till.tool
def notify(label: str) -> None:
    raise AssertionError("Its outcome is settled.")


@till.tool
def anything(label: str) -> Any:
    raise AssertionError("Its outcome is settled.")


@till.tool
def receipt(label: str) -> TextContent:
    raise AssertionError("Its outcome is settled.")


@till.tool
def checked(label: str) -> Annotated[int, AfterValidator(_checked)]:
    raise AssertionError("Its outcome is settled.")


class TestSettling:
    def test_as_happened_replays_the_result_that_the_tool_would_have_returned(
        self, admin_client: Client, user: User
    ) -> None:
        """R23, R28: as any other replay, to the last digit."""
        record = _unknown(user, "external")

        page = _settle(admin_client, record, finding="happened", returned=str(2**70))

        assert "Every retry is told what you recorded." in page.content.decode()
        settled = _call(user, "external")
        mcp_client(user).call_tool("echo", {"value": 2**70}, key="real")
        real = mcp_client(user).call_tool("echo", {"value": 2**70}, key="real")
        assert settled == real
        assert settled.structured_content == 2**70
        assert not Effect.objects.filter(label="a").exists()

    def test_as_happened_fills_in_the_tools_output_schema(self, admin_client: Client, user: User) -> None:
        """R23: what the person types is validated and written as a returned value is."""
        _settle(admin_client, _unknown(user, "charge"), finding="happened", returned='{"paid": true, "number": "7"}')
        assert _call(user, "charge").structured_content == {"number": 7, "paid": True}

    @pytest.mark.parametrize(("typed", "value"), [("null", None), ("0", 0), ('""', ""), ("[]", []), ("-0.0", -0.0)])
    def test_as_happened_keeps_falsy_results(self, admin_client: Client, user: User, typed: str, value: object) -> None:
        """R23, R28"""
        _settle(admin_client, _unknown(user, "anything"), finding="happened", returned=typed)
        assert repr(_call(user, "anything").structured_content) == repr(value)

    @pytest.mark.parametrize(
        ("typed", "content"), [("", []), ('{"sent": 1}', [TextContent(text='{"sent":1}')])], ids=["empty", "JSON"]
    )
    @pytest.mark.parametrize("name", ["notify", "receipt"])
    def test_as_happened_tells_text_where_the_tool_has_no_data_to_return(
        self, admin_client: Client, user: User, name: str, typed: str, content: list[TextContent]
    ) -> None:
        """R23"""
        _settle(admin_client, _unknown(user, name), finding="happened", returned=typed)
        assert _call(user, name) == _complete(content)

    @pytest.mark.parametrize("names", [{"tool": "gone"}, {"endpoint": "gone"}])
    def test_as_happened_tells_text_where_the_tool_is_gone(
        self, admin_client: Client, user: User, names: dict[str, str]
    ) -> None:
        """R23"""
        record = RecordFactory(user=user, unknown=True, **names)
        _settle(admin_client, record, finding="happened", returned='"paid"')
        record.refresh_from_db()
        assert record.state == State.DONE
        assert record.result == '{"resultType":"complete","content":[{"type":"text","text":"paid"}],"isError":false}'

    def test_as_failed_replays_the_failure(self, admin_client: Client, user: User) -> None:
        """R23, R28"""
        record = _unknown(user, "charge")

        _settle(admin_client, record, finding="failed", failure="The card was declined.")

        assert _call(user, "charge") == _complete([TextContent(text="The card was declined.")], is_error=True)
        record.refresh_from_db()
        assert record.ending == Ending.TOOL_ERROR

    def test_as_nothing_done_lets_the_next_equal_call_run_the_tool(self, admin_client: Client, user: User) -> None:
        """R23: as the next attempt; other arguments conflict as before."""
        record = _unknown(user, "external")

        page = _settle(admin_client, record, finding="nothing_done")

        assert "The next equal call runs the tool again." in page.content.decode()
        assert "open for another attempt" in admin_client.get(RECORDS).content.decode()
        with pytest.raises(MCPError) as refused:
            _call(user, "external", label="another")
        assert refused.value.data["type"] == "idempotency_key_conflict"
        result = _call(user, "external")
        assert result.structured_content == Effect.objects.get().pk
        assert _call(user, "external").structured_content == result.structured_content
        record.refresh_from_db()
        assert (record.state, record.attempt) == (State.DONE, 2)

    @pytest.mark.parametrize(
        "answers", [{"finding": "happened", "returned": "1"}, {"finding": "failed", "failure": "No."}]
    )
    def test_leaves_other_arguments_in_conflict(
        self, admin_client: Client, user: User, answers: dict[str, str]
    ) -> None:
        """R23, R28"""
        _settle(admin_client, _unknown(user, "external"), **answers)
        with pytest.raises(MCPError) as refused:
            _call(user, "external", label="another")
        assert refused.value.data["type"] == "idempotency_key_conflict"

    @pytest.mark.parametrize(
        ("name", "kept"), [("external", timedelta(hours=24)), ("briefly_kept", timedelta(seconds=1))]
    )
    def test_keeps_the_record_for_the_retention_of_its_tool(
        self, admin_client: Client, user: User, name: str, kept: timedelta
    ) -> None:
        """R12, R23: from the settlement on."""
        record = _unknown(user, name)
        _settle(admin_client, record, finding="happened", returned="1")
        record.refresh_from_db()
        assert record.expires_at - record.finished_at == kept


class TestTheLog:
    @pytest.mark.parametrize(
        ("answers", "found"),
        [
            ({"finding": "happened", "returned": "4711"}, "It happened: record its result"),
            ({"finding": "failed", "failure": "4711"}, "It failed: record the failure"),
            (
                {"finding": "nothing_done"},
                "It did not happen, and no longer can: let the next equal call run the tool again",
            ),
        ],
    )
    def test_keeps_who_found_what_and_how(
        self, client: Client, user: User, answers: dict[str, str], found: str
    ) -> None:
        """R23: and nothing of the result, which not everyone who reads the history may see."""
        person = _settler()
        client.force_login(person)
        record = _unknown(user, "external")

        _settle(client, record, **answers, reason='The bank\'s "<b>list</b>".')

        entry = LogEntry.objects.get()
        assert (entry.user, entry.get_edited_object()) == (person, record)
        assert entry.get_change_message() == f'Settled attempt 1. {found}. Reason: The bank\'s "<b>list</b>".'
        history = client.get(_page(record, "history")).content.decode()
        assert escape(entry.get_change_message()) in history

    def test_has_no_entry_where_nothing_was_settled(self, admin_client: Client, user: User) -> None:
        """R23"""
        _settle(admin_client, _unknown(user, "external"), finding="happened", returned="1", reason="")
        assert not LogEntry.objects.exists()


class TestAnIncompleteAnswer:
    @pytest.mark.parametrize(
        ("name", "answers", "field", "error"),
        [
            ("charge", {}, "finding", "This field is required."),
            ("charge", {"finding": "maybe"}, "finding", "Select a valid choice"),
            ("charge", {"finding": "nothing_done", "reason": " "}, "reason", "This field is required."),
            ("charge", {"finding": "failed"}, "failure", "Say what the caller is told."),
            ("charge", {"finding": "happened"}, "returned", "Write what the tool returned; null if it was None."),
            ("charge", {"finding": "happened", "returned": "{"}, "returned", "This is not JSON: "),
            ("anything", {"finding": "happened", "returned": "NaN"}, "returned", "This is not JSON: NaN is not JSON"),
            ("notify", {"finding": "happened", "returned": "paid"}, "returned", "This is not JSON: "),
            (
                "charge",
                {"finding": "happened", "returned": '{"number": "100%s"}'},
                "returned",
                "number: Input should be a valid integer, unable to parse string as an integer",
            ),
            ("charge", {"finding": "happened", "returned": '{"number": 1}'}, "returned", "paid: Field required"),
            ("charge", {"finding": "happened", "returned": "7"}, "returned", "Input should be a valid dictionary or"),
            ("charge", {"finding": "failed", "failure": "No.", "returned": "7"}, "returned", "Leave this empty, or"),
            ("charge", {"finding": "nothing_done", "failure": "No."}, "failure", "Leave this empty, or"),
        ],
    )
    def test_is_refused_at_its_field_and_changes_nothing(
        self, admin_client: Client, user: User, name: str, answers: dict[str, str], field: str, error: str
    ) -> None:
        """R23"""
        record = _unknown(user, name)

        page = _settle(admin_client, record, **answers)

        errors = page.context["adminform"].form.errors
        assert error in " ".join(errors[field])
        assert escape(errors[field][0]) in page.content.decode()
        with pytest.raises(MCPError) as refused:
            _call(user, name)
        assert refused.value.data["type"] == "idempotency_outcome_unknown"

    def test_is_shown_again_as_it_was_typed(self, admin_client: Client, user: User) -> None:
        """R23: and escaped."""
        typed = '{"number": "</textarea><script>alert(1)</script>"}'
        page = _settle(admin_client, _unknown(user, "charge"), finding="happened", returned=typed).content.decode()
        assert escape(typed) in page
        assert "<script>alert" not in page
        assert "Please correct the error below." in page


class TestTheFence:
    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({"attempt": 2}, id="a probe has it"),
            pytest.param({"attempt": 2, "state": State.RUNNING, "expires_at": None}, id="it runs again"),
            pytest.param(
                {"state": State.DONE, "ending": Ending.RESULT, "result": "{}"}, id="its late owner completed it"
            ),
            pytest.param({"state": State.OPEN}, id="someone else opened it"),
        ],
    )
    @pytest.mark.parametrize("finding", ["happened", "failed", "nothing_done"])
    def test_keeps_a_record_that_changed_while_the_person_thought(
        self, admin_client: Client, user: User, changes: dict[str, Any], finding: str
    ) -> None:
        """R23, R28: the person is told and sees the record as it is now."""
        record = _unknown(user, "external")
        assert admin_client.get(_page(record, "settle")).status_code == 200
        IdempotencyRecord.objects.update(**changes)
        now = IdempotencyRecord.objects.values().get()

        page = _settle(admin_client, record, **_answers(finding))

        assert page.redirect_chain == [(_page(record, "change"), 302)]
        assert NOTHING_CHANGED in page.content.decode()
        assert IdempotencyRecord.objects.values().get() == now
        assert not LogEntry.objects.exists()

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({"attempt": F("attempt") + 1}, id="a probe has it"),
            pytest.param(
                {"state": State.DONE, "ending": Ending.RESULT, "result": "{}"}, id="its late owner completed it"
            ),
        ],
    )
    def test_keeps_a_record_that_changes_while_the_answer_is_checked(
        self, admin_client: Client, user: User, changes: dict[str, Any]
    ) -> None:
        """R23, R28: the write itself is guarded."""
        record = _unknown(user, "checked")
        seen: list[dict[str, Any]] = []

        def change() -> None:
            IdempotencyRecord.objects.update(**changes)
            seen.append(IdempotencyRecord.objects.values().get())

        while_checking.append(change)
        page = _settle(admin_client, record, finding="happened", returned="1")

        assert page.redirect_chain == [(_page(record, "change"), 302)]
        assert NOTHING_CHANGED in page.content.decode()
        assert IdempotencyRecord.objects.values().get() == seen[0]
        assert not LogEntry.objects.exists()

    @pytest.mark.parametrize("attempt", [{}, {"attempt": ""}, {"attempt": "one"}, {"attempt": "2"}])
    def test_takes_no_answer_that_does_not_name_the_attempt(
        self, admin_client: Client, user: User, attempt: dict[str, str]
    ) -> None:
        """R23"""
        record = _unknown(user, "external")
        page = admin_client.post(
            _page(record, "settle"), {"finding": "nothing_done", "reason": "r", **attempt}, follow=True
        )
        assert NOTHING_CHANGED in page.content.decode()
        record.refresh_from_db()
        assert record.state == State.UNKNOWN

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("finding", ["happened", "failed"])
    def test_holds_against_the_late_owner(self, user: User, during: list[Callable[[], None]], finding: str) -> None:
        """R23, R28: its caller is told what the person recorded, as everyone else is."""
        person = _settler()

        def be_settled() -> None:
            _be_given_up(user)
            elsewhere(lambda: _settle(_signed_in(person), IdempotencyRecord.objects.get(), **_answers(finding)))

        during.append(be_settled)
        late = _call(user, "external")

        assert late == _call(user, "external")
        assert late.is_error == (finding == "failed")
        assert late.structured_content in (None, 1_000_000)

    @pytest.mark.django_db(transaction=True)
    def test_lets_an_owner_of_an_opened_record_tell_nothing(self, user: User, during: list[Callable[[], None]]) -> None:
        """R23, R28: the first result that anyone is told is the one of the next attempt."""
        person = _settler()

        def be_opened() -> None:
            during.clear()
            _be_given_up(user)
            elsewhere(lambda: _settle(_signed_in(person), IdempotencyRecord.objects.get(), finding="nothing_done"))

        during.append(be_opened)
        with pytest.raises(MCPError) as refused:
            _call(user, "external")

        assert refused.value.data["type"] == "idempotency_key_in_progress"
        told = _call(user, "external")
        assert _call(user, "external") == told
        assert IdempotencyRecord.objects.get().attempt == 2


class TestThePage:
    def test_says_what_is_known_of_the_call(self, admin_client: Client, user: User) -> None:
        """R23"""
        record = _unknown(user, "charge")
        page = unescape(admin_client.get(_page(record, "settle")).content.decode())
        for known in ("charge", "till", user.username, record.key_preview, '"number"'):
            assert known in page
        assert 'name="attempt" value="1"' in page
        assert "csrfmiddlewaretoken" in page

    def test_escapes_what_it_shows(self, admin_client: Client) -> None:
        """R23"""
        markup = "<i>&1"
        record = RecordFactory(
            user=UserFactory(username=markup), key=markup, tool=markup, endpoint=markup, unknown=True
        )
        for page in ("settle", "change"):
            shown = admin_client.get(_page(record, page)).content.decode()
            assert "<i>" not in shown
            assert escape(markup) in shown

    @pytest.mark.parametrize("traits", [{}, {"running": True}, {"open": True}, {"unknown": True, "expired": True}])
    def test_is_for_unknown_outcomes_alone(self, admin_client: Client, traits: dict[str, bool]) -> None:
        """R12, R23, R28"""
        record = RecordFactory(**traits)
        assert _button(record) not in admin_client.get(_page(record, "change")).content.decode()
        page = admin_client.get(_page(record, "settle"), follow=True)
        assert page.redirect_chain == [(_page(record, "change"), 302)]
        assert NOTHING_CHANGED in page.content.decode()

    def test_is_reached_by_a_button_of_those_who_may_settle(self, client: Client, user: User) -> None:
        """R23"""
        client.force_login(_settler())
        record = _unknown(user, "external")
        assert _button(record) in client.get(_page(record, "change")).content.decode()
        assert client.get(_page(record, "settle")).status_code == 200

    @pytest.mark.parametrize("permissions", [["view_idempotencyrecord"], ["settle_idempotency_record"]])
    def test_takes_the_permissions_to_view_and_to_settle(
        self, client: Client, user: User, permissions: list[str]
    ) -> None:
        """R23"""
        client.force_login(staff(*permissions))
        record = _unknown(user, "external")
        assert _button(record) not in client.get(_page(record, "change")).content.decode()
        assert client.get(_page(record, "settle")).status_code == 403
        assert _settle(client, record, finding="nothing_done").status_code == 403
        record.refresh_from_db()
        assert record.state == State.UNKNOWN

    def test_takes_a_csrf_token(self, user: User) -> None:
        """R23"""
        client = Client(enforce_csrf_checks=True)
        client.force_login(_settler())
        record = _unknown(user, "external")
        assert _settle(client, record, finding="nothing_done").status_code == 403
        record.refresh_from_db()
        assert record.state == State.UNKNOWN

    @pytest.mark.parametrize("number", ["0", "none"])
    def test_of_no_record_is_not_found(self, admin_client: Client, number: str) -> None:
        """R23"""
        assert admin_client.get(f"{RECORDS}{number}/settle/").status_code == 404


def _unknown(user: User, tool: str) -> IdempotencyRecord:
    endpoint = "mcp" if till.get_tool(tool) is None else "till"
    return RecordFactory(user=user, key="k", tool=tool, endpoint=endpoint, arguments={"label": "a"}, unknown=True)


def _be_given_up(user: User) -> None:
    """Let a retry find the lease of a running call over."""
    end_the_lease()
    with pytest.raises(MCPError) as refused:
        elsewhere(lambda: _call(user, "external"))
    assert refused.value.data["type"] == "idempotency_outcome_unknown"


def _settler() -> User:
    return staff("view_idempotencyrecord", "settle_idempotency_record")


def _signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def _call(user: User, tool: str, *, label: str = "a") -> CallToolResult:
    client = mcp_client(user) if till.get_tool(tool) is None else mcp_client(user, site=till)
    return client.call_tool(tool, {"label": label}, key="k")


def _complete(content: list[TextContent], *, is_error: bool = False) -> CallToolResult:
    meta = {"io.modelcontextprotocol/serverInfo": {"name": till.name, "version": __version__}}
    return CallToolResult(_meta=meta, content=content, is_error=is_error)


def _page(record: IdempotencyRecord, page: str) -> str:
    return f"{RECORDS}{record.pk}/{page}/"


def _button(record: IdempotencyRecord) -> str:
    return f'<li><a href="{_page(record, "settle")}">Settle</a></li>'


def _answers(finding: str) -> dict[str, str]:
    texts = {"happened": {"returned": "1000000"}, "failed": {"failure": "The card was declined."}}
    return {"finding": finding, **texts.get(finding, {})}


def _settle(client: Client, record: IdempotencyRecord, **answers: str) -> HttpResponse:
    """Send the form, as a browser does that was shown ``record`` as it is given here."""
    form = {"attempt": str(record.attempt), "returned": "", "failure": "", "reason": "The bank told me."}
    return client.post(_page(record, "settle"), form | answers, follow=True)
