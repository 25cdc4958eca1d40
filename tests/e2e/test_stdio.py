"""``manage.py mcp_stdio`` as clients launch it, beside a server over HTTP on the same database."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import mcp_types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from tests import wire
from tests.e2e.servers import ROOT, Shop, announce, request, shop
from tests.services import redis_url

# The typed params of the client drop a field that they do not know; a request of one's own sends it.
KeyedCall = mcp_types.Request[dict[str, Any], Literal["tools/call"]]

NOTICE = {"email": "a@example.com", "seconds": 1.5}
COMMAND = ["manage.py", "mcp_stdio", "--user", "alice"]
NOISY = {"DJANGO_SETTINGS_MODULE": "tests.e2e.noisy.settings"}


@pytest.fixture(scope="module")
def beside() -> Iterator[Shop]:
    """A server over HTTP, to look from and to call at."""
    with shop("uvicorn") as started:
        yield started


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A server over stdio, with every byte that is written and read."""

    process: subprocess.Popen[bytes]
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]
    answers: dict[Any, bytes] = field(default_factory=dict)

    def write(self, line: bytes) -> None:
        """Send a line."""
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def read(self) -> Any:
        """The next line, parsed."""
        return json.loads(self.stdout.readline())

    def answer(self, request_id: Any) -> bytes:
        """The line that answers a request, whatever comes before it."""
        while request_id not in self.answers:
            line = self.stdout.readline()
            assert line, "stdout has ended"
            self.answers[json.loads(line).get("id")] = line
        return self.answers.pop(request_id)

    def call(self, name: str, arguments: Any, *, key: str | None = None, request_id: Any = 1) -> Any:
        """Call a tool and return the JSON-RPC message that answers."""
        self.send_call(name, arguments, key=key, request_id=request_id)
        return json.loads(self.answer(request_id))

    def send_call(self, name: str, arguments: Any, *, key: str | None = None, request_id: Any = 1) -> None:
        """Call a tool."""
        keyed = {} if key is None else {"idempotencyKey": key}
        self.write(wire.message("tools/call", wire.call_params(name, arguments, **keyed), request_id))

    def initialize(self, version: str) -> None:
        """Begin as a client of a handshake version does, without waiting for the answer."""
        client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.write(wire.message("initialize", client, "initialize"))

    def end(self) -> int:
        """Close stdin, and return what the process ends with."""
        self.stdin.close()
        return self.process.wait(timeout=20)


@contextmanager
def launched(beside: Shop, **environment: str) -> Iterator[Launched]:
    """A server over stdio on the database of ``beside``."""
    with subprocess.Popen(
        [sys.executable, *COMMAND],
        cwd=ROOT,
        # As clients launch it, so that what is printed is first kept in a buffer.
        env={**beside.environment, "PYTHONUNBUFFERED": "", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            yield Launched(process=process, stdin=process.stdin, stdout=process.stdout, stderr=process.stderr)
        finally:
            process.kill()


def state_of(beside: Shop, key: str) -> str:
    """The state of the record of a key."""
    ((state,),) = beside.rows(f"SELECT state FROM django_mcp_idem_idempotencyrecord WHERE key_preview = '{key}'")
    return str(state)


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_the_official_client_lists_calls_and_retries(beside: Shop, mode: str) -> None:
    """R06, R07: over stdio as over HTTP."""
    before = beside.effects()["payments"]
    server = StdioServerParameters(command=sys.executable, args=COMMAND, cwd=ROOT, env=dict(beside.environment))

    async def converse() -> None:
        async with Client(stdio_client(server), mode=mode) as client:

            async def charge(amount: int) -> mcp_types.CallToolResult:
                arguments = {"amount": amount, "currency": "EUR"}
                params = {"name": "charge_payment", "arguments": arguments, "idempotencyKey": f"stdio {mode}"}
                call = KeyedCall(method="tools/call", params=params)
                return await client.session.send_request(call, mcp_types.CallToolResult)

            listed = await client.list_tools()
            assert "charge_payment" in {tool.name for tool in listed.tools}
            assert "staff_report" not in {tool.name for tool in listed.tools}
            first, retry = await charge(5), await charge(5)
            assert first.structured_content == retry.structured_content
            assert first.structured_content["amount"] == 5
            with pytest.raises(MCPError) as refused:
                await charge(6)
            assert refused.value.data == {"type": "idempotency_key_conflict", "idempotencyKey": f"stdio {mode}"}
            unkeyed = await client.call_tool("echo", {"value": [1, None]})
            assert unkeyed.content[0].text == "[1,null]"

    asyncio.run(converse())
    assert beside.effects()["payments"] == before + 1


@pytest.mark.parametrize("version", wire.VERSIONS)
def test_a_key_is_replayed_from_http_to_stdio_byte_for_byte(beside: Shop, version: str) -> None:
    """R06, R18: the scope is the user, whatever they call over."""
    with launched(beside) as over_stdio:
        if version != wire.MODERN:
            over_stdio.initialize(version)
        for value in (None, 0, [], {}, -0.0, 2**70, "\0\u2028"):
            arguments, key = {"value": value}, f"{version} {value!r}"
            over_http = beside.post(*request("echo", arguments, key=key, version=version))
            params = wire.call_params("echo", arguments, version, idempotencyKey=key)
            over_stdio.write(wire.message("tools/call", params))
            assert wire.unmarked(over_stdio.answer(1)) == over_http.content + b"\n"
        assert over_stdio.end() == 0
    records = beside.rows("SELECT key_preview, replay_count FROM django_mcp_idem_idempotencyrecord")
    assert [replays for key, replays in records if key.startswith(version)] == [1] * 7


def test_a_key_is_replayed_from_stdio_to_http(beside: Shop) -> None:
    """R06, R18: the other way round."""
    arguments = {"amount": 7, "currency": "EUR"}
    before = beside.effects()["payments"]
    with launched(beside) as over_stdio:
        first = over_stdio.call("charge_payment", arguments, key="first over stdio")

    over_http = beside.post(*request("charge_payment", arguments, key="first over stdio"))
    assert json.loads(wire.unmarked(over_http.content)) == first
    assert beside.effects()["payments"] == before + 1


def test_the_capability_is_declared(beside: Shop) -> None:
    """R03: in each era, both of which one conversation may speak."""
    with launched(beside) as server:
        server.write(wire.message("server/discover", wire.envelope()))
        server.initialize("2025-06-18")
        discovered, initialized = json.loads(server.answer(1)), json.loads(server.answer("initialize"))

    assert discovered["result"]["capabilities"]["tools"]["idempotency"] == {}
    assert initialized["result"]["capabilities"]["tools"]["idempotency"] == {}
    assert initialized["result"]["protocolVersion"] == "2025-06-18"


def test_what_is_sent_after_initialize_without_waiting_finds_the_handshake_done(beside: Shop) -> None:
    with launched(beside) as server:
        server.initialize("2025-11-25")
        for number in range(20):
            server.write(wire.message("tools/list", {}, number))
        assert all("result" in json.loads(server.answer(number)) for number in range(20))


def test_what_is_no_message_gets_an_error_and_the_next_one_its_answer(beside: Shop) -> None:
    """R11: nothing that is sent ends the conversation."""
    odd = [
        b"",
        b"nonsense",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\ud83d"}}',
        b"[" * 100_000,
        b"9" * 10_000,
        b"null",
        b"[]",
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":7,"result":{}}',
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","method":"notifications/unheard_of"}',
    ]
    with launched(beside) as server:
        for line in odd:
            server.write(line)
        refused = [server.read() for _ in range(9)]
        result = server.call("echo", {"value": 2**64 + 1})["result"]

    assert [answer["error"]["code"] for answer in refused] == [-32700] * 6 + [-32600] * 3
    assert {answer["id"] for answer in refused} == {None}
    assert result["structuredContent"] == 2**64 + 1


def test_a_request_that_cannot_be_served_gets_its_error(beside: Shop) -> None:
    """R22: as over HTTP."""
    with launched(beside) as server:
        server.write(wire.message("tools/list", wire.envelope() | {"cursor": 1}, "params"))
        server.write(wire.message("no/such", wire.envelope(), "method"))
        envelope = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}}
        server.write(wire.message("tools/list", envelope, "envelope"))
        server.write(wire.message("tools/list", {}, "too early"))
        codes = {
            request_id: json.loads(server.answer(request_id))["error"]["code"]
            for request_id in ("params", "method", "envelope", "too early")
        }

    assert codes == {"params": -32602, "method": -32601, "envelope": -32602, "too early": -32602}


def test_a_duplicate_of_a_running_call_is_refused_while_it_runs(beside: Shop) -> None:
    """R05: sync bodies do not queue behind each other."""
    with launched(beside) as server:
        server.send_call("slow_notify", NOTICE, key="in flight", request_id="original")
        beside.wait_for_claim()
        duplicate = server.call("slow_notify", NOTICE, key="in flight", request_id="duplicate")
        assert "original" not in server.answers
        original = json.loads(server.answer("original"))

    assert duplicate["error"]["data"]["type"] == "idempotency_key_in_progress"
    assert original["result"]["isError"] is False


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("slow_charge", {"amount": 7, "seconds": 1.5}), ("slow_notify", NOTICE), ("async_notify", NOTICE)],
    ids=["atomic", "external", "async"],
)
def test_a_keyed_call_runs_on_to_its_record_when_stdin_ends(beside: Shop, name: str, arguments: dict[str, Any]) -> None:
    """R24: and the process then ends well."""
    key = f"stdin ends {name}"
    before = sum(beside.effects().values())
    with launched(beside) as server:
        server.send_call(name, arguments, key=key)
        beside.wait_for_claim()
        assert server.end() == 0

    assert state_of(beside, key) == "done"
    assert beside.call(name, arguments, key=key)["result"]["isError"] is False
    assert sum(beside.effects().values()) == before + 1


def test_a_keyed_call_that_is_cancelled_runs_on_to_its_record_and_is_not_answered(beside: Shop) -> None:
    """R24: a cancellation is a lost response too."""
    with launched(beside) as server:
        server.send_call("async_notify", NOTICE, key="cancelled", request_id="call")
        beside.wait_for_claim()
        server.write(_cancelled("call"))
        while state_of(beside, "cancelled") == "running":
            time.sleep(0.05)
        retry = server.call("async_notify", NOTICE, key="cancelled", request_id="retry")
        assert server.end() == 0
        assert server.stdout.read() == b""

    assert retry["result"]["isError"] is False
    assert "call" not in server.answers


def test_an_unkeyed_async_call_that_is_cancelled_stops_and_is_not_answered(beside: Shop) -> None:
    """R24: as the protocol says; the conversation goes on."""
    with launched(beside, **NOISY) as server:
        server.send_call("hangs", {}, request_id="call")
        wait_for(server.stderr, b"begun\n")
        server.write(_cancelled("call"))
        wait_for(server.stderr, b"cancelled\n")
        assert server.call("echo", {"value": 1}, request_id="next")["result"]["structuredContent"] == 1

    assert "call" not in server.answers


def test_an_unkeyed_async_call_stops_when_stdin_ends(beside: Shop) -> None:
    """R24"""
    with launched(beside, **NOISY) as server:
        server.send_call("hangs", {})
        wait_for(server.stderr, b"begun\n")
        assert server.end() == 0
        wait_for(server.stderr, b"cancelled\n")


def test_a_tool_that_ends_as_if_it_was_cancelled_ends_nothing_else(beside: Shop) -> None:
    """R25"""
    with launched(beside, **NOISY) as server:
        failed = server.call("cancels_itself", {})
        assert server.call("echo", {"value": 1})["result"]["structuredContent"] == 1

    assert failed["error"] == {"code": -32603, "message": "Internal server error"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_process_that_is_told_to_end_settles_its_keyed_call(beside: Shop, number: signal.Signals) -> None:
    """R25: long before its lease is over; and once it has ended by itself, so does the process."""
    key, arguments = f"told to end {number.name}", {**NOTICE, "seconds": 4}
    with launched(beside, MCP_SHUTDOWN_GRACE_SECONDS="0.5") as server:
        server.send_call("slow_notify", arguments, key=key)
        beside.wait_for_claim()
        server.process.send_signal(number)
        while state_of(beside, key) == "running":
            time.sleep(0.02)
        assert state_of(beside, key) == "unknown"
        assert server.process.poll() is None
        assert server.process.wait(timeout=20) == 0

    assert state_of(beside, key) == "done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_an_idle_process_that_is_told_to_end_ends_at_once(beside: Shop, number: signal.Signals) -> None:
    """R25: though it waits for a line."""
    with launched(beside) as server:
        assert "result" in server.call("echo", {"value": 1})
        server.process.send_signal(number)
        assert server.process.wait(timeout=10) == 0
        assert server.stderr.read() == b""


def test_what_is_printed_goes_to_stderr(beside: Shop) -> None:
    """However it is printed, stdout has messages alone; and nobody reads what the client sends but the protocol."""
    with launched(beside, **NOISY) as server:
        answer = server.call("prints", {})
        assert server.end() == 0
        assert server.stdout.read() == b""
        printed = server.stderr.read().decode().splitlines()

    assert answer["result"]["structuredContent"] == ""
    assert sorted(printed) == [
        "by a child",
        "by print",
        "by the descriptor",
        "by the first stdout",
    ]


def test_a_user_who_is_deactivated_or_deleted_is_refused_from_then_on() -> None:
    """R19: a replay too."""
    arguments = {"amount": 7, "currency": "EUR"}
    with shop("uvicorn") as beside, launched(beside) as server:
        first = server.call("charge_payment", arguments, key="k")
        beside.rows("UPDATE auth_user SET is_active = FALSE WHERE username = 'alice'")
        inactive = server.call("charge_payment", arguments, key="k")
        beside.rows("UPDATE auth_user SET is_active = TRUE WHERE username = 'alice'")
        server.send_call("charge_payment", arguments, key="k")
        again = json.loads(wire.unmarked(server.answer(1)))
        for table, column in _ALL_OF_ALICE:
            beside.rows(f"DELETE FROM {table} WHERE {column} = (SELECT id FROM auth_user WHERE username = 'alice')")
        beside.rows("DELETE FROM auth_user WHERE username = 'alice'")
        deleted = server.call("tools/list", {})

    assert inactive["error"]["code"] == deleted["error"]["code"] == -32600
    assert "deleted or deactivated" in inactive["error"]["message"]
    assert again == first


def test_a_permission_counts_from_the_request_on_after_it_was_granted_or_revoked(beside: Shop) -> None:
    """R19: a replay after it is the ordinary denial."""
    grant = (
        "INSERT INTO auth_user_user_permissions (user_id, permission_id) SELECT auth_user.id, auth_permission.id "
        "FROM auth_user, auth_permission WHERE username = 'alice' AND codename = 'view_payment'"
    )
    with launched(beside) as server:
        before = server.call("staff_report", {}, key="report")
        beside.rows(grant)
        granted = server.call("staff_report", {}, key="report")
        beside.rows("DELETE FROM auth_user_user_permissions")
        revoked = server.call("staff_report", {}, key="report")

    assert before["error"]["message"] == revoked["error"]["message"] == "Unknown tool: staff_report"
    assert granted["result"]["isError"] is False


_ALL_OF_ALICE = [("django_mcp_idem_bearertoken", "user_id"), ("shop_payment", "user_id")]


def _cancelled(request_id: str) -> bytes:
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    return json.dumps(message).encode()


def wait_for(stream: IO[bytes], line: bytes) -> None:
    """Read up to a line."""
    for read in stream:
        if read == line:
            return
    raise AssertionError(f"It ended without {line!r}.")


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_report_arrives_before_the_result(beside: Shop, mode: str) -> None:
    """R17"""
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async def converse() -> None:
        parameters = StdioServerParameters(command=sys.executable, args=COMMAND, cwd=ROOT, env=dict(beside.environment))
        async with Client(stdio_client(parameters), mode=mode) as client:
            result = await client.call_tool("slow_notify", {**NOTICE, "seconds": 0.1}, progress_callback=hear)
            assert not result.is_error
            assert heard == [(1, 2, "sent")]

    asyncio.run(converse())


def test_changes_in_another_process_are_told(beside: Shop) -> None:
    """In each era: to a session, and to a request until it is cancelled."""
    with launched(beside, REDIS_URL=redis_url()) as server:
        server.initialize("2025-11-25")
        assert json.loads(server.answer("initialize"))["result"]["capabilities"]["tools"]["listChanged"] is True
        server.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode())
        wanted = {"notifications": {"toolsListChanged": True}, **wire.envelope()}
        server.write(wire.message("subscriptions/listen", wanted, "listening"))
        acknowledgement = json.loads(server.stdout.readline())
        assert acknowledgement["method"] == "notifications/subscriptions/acknowledged"

        announce({**beside.environment, "REDIS_URL": redis_url()})
        told = [json.loads(server.stdout.readline()) for _ in range(2)]
        assert [message["method"] for message in told] == ["notifications/tools/list_changed"] * 2
        assert [message.get("params", {}).get("_meta") for message in told] == [
            {},
            {"io.modelcontextprotocol/subscriptionId": "listening"},
        ]

        server.write(_cancelled("listening"))
        server.call("tools/list", {})
        announce({**beside.environment, "REDIS_URL": redis_url()})
        assert json.loads(server.stdout.readline())["params"]["_meta"] == {}
        server.call("tools/list", {})
        assert server.end() == 0
