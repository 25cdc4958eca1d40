"""``make demo``: a call that lost its answer and was retried, shown with the official client over HTTP.

It starts the example on SQLite without Redis, drives it step by step, and prints beside each step how many payments
and notifications there really are. It ends with 0 only if every step held.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult, TextContent

from .demo_surroundings import CUT_AFTER, HOST, PATIENCE, cutting_proxy, example_server, records_in_the_admin

VERSION = "2026-07-28"
KEY = "order-4711"
REPLAYED = "django-mcp-idem/replayed"
LOST_CALL = {"amount": 500, "seconds": 1.5}


class KeyedParams(CallToolRequestParams):
    """The parameters of a call, with the key that the official models do not know."""

    idempotency_key: str | None = None


class KeyedCall(CallToolRequest):
    """A call with a key."""

    params: KeyedParams


@dataclass(frozen=True)
class Customer:
    """A user of the shop, signed in with a bearer token."""

    client: Client

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, key: str | None = None) -> CallToolResult:
        """Call a tool, with a key if there is one."""
        params = KeyedParams(name=tool, arguments=arguments or {}, idempotency_key=key)
        return await self.client.session.send_request(KeyedCall(params=params), CallToolResult)

    async def effects(self) -> tuple[int, int]:
        """How many payments and notifications there are, for all users together."""
        counts: Any = (await self.call("count_effects")).structured_content
        return counts["payments"], counts["notifications"]


@dataclass(frozen=True)
class Shop:
    """The example as the steps see it."""

    port: int
    alice: Customer
    bob: Customer


@dataclass(frozen=True)
class Step:
    """One step: what it shows, and how many payments and notifications it adds."""

    title: str
    show: Callable[[Shop], Awaitable[str]]
    adds: tuple[int, int] = (0, 0)


class StepError(Exception):
    """A step saw something else than it should."""


def expect(what: str, seen: object, expected: object) -> None:
    """Compare.

    Raises:
        StepError: They differ.
    """
    if seen != expected:
        raise StepError(f"{what}: expected {expected!r}, saw {seen!r}")


async def discovery(shop: Shop) -> str:
    """The server says that it keeps keys."""
    raw = await shop.alice.client.session.send_discover(VERSION)
    expect("capabilities.tools.idempotency", raw["capabilities"]["tools"].get("idempotency"), {})
    return f"protocol {VERSION}, capabilities.tools = {raw['capabilities']['tools']}"


async def first_call(shop: Shop) -> str:
    """A keyed call runs."""
    result = await shop.alice.call("charge_payment", {"amount": 1200, "currency": "EUR"}, "order-4710")
    expect("amount charged", _content(result)["amount"], 1200)
    return f"charge_payment answered {_content(result)}"


async def lost_answer(shop: Shop) -> str:
    """A call runs to its end, and its answer never arrives."""
    before, _ = await shop.alice.effects()
    seen = "an answer"
    try:
        async with cutting_proxy(shop.port) as port, customer("alice", port) as cut_off:
            await cut_off.call("slow_charge", LOST_CALL, KEY)
    except* httpx2.TransportError as lost:
        seen = " ".join(map(str, lost.exceptions))
    expect("the client saw an answer", seen == "an answer", False)
    await _until(shop, payments=before + 1)
    return f"slow_charge was cut off after {CUT_AFTER} s ({seen}), and charged all the same"


async def retry(shop: Shop) -> str:
    """The same call with the same key is answered by the record."""
    result = await shop.alice.call("slow_charge", LOST_CALL, KEY)
    payments: Any = (await shop.alice.call("list_payments")).structured_content
    expect("recorded result", _content(result), payments[-1])
    expect("marked as a replay", REPLAYED in (result.meta or {}), True)
    return f"same key, same arguments: recorded result {_content(result)}, marked as a replay"


async def changed_arguments(shop: Shop) -> str:
    """The same key with other arguments is refused."""
    seen = await _refusal(shop.alice.call("slow_charge", {**LOST_CALL, "amount": 9}, KEY))
    expect("refusal", seen, "idempotency_key_conflict")
    return f"same key, amount 9: {seen}"


async def duplicate_of_a_running_call(shop: Shop) -> str:
    """A duplicate is refused at once while the first call runs, and answered by the record after it."""
    _, before = await shop.alice.effects()
    arguments, key = {"email": "alice@example.com", "seconds": 3}, "notice-1"
    running = asyncio.create_task(shop.alice.call("slow_notify", arguments, key))
    await _until(shop, notifications=before + 1)
    began = time.monotonic()
    seen = await _refusal(shop.alice.call("slow_notify", arguments, key))
    elapsed = (time.monotonic() - began) * 1000
    expect("refusal", seen, "idempotency_key_in_progress")
    expect("the first call has ended", running.done(), False)
    first, again = await running, await shop.alice.call("slow_notify", arguments, key)
    expect("retry after the end", _content(again), _content(first))
    return f"{seen} after {elapsed:.0f} ms of a 3 s call; after its end the retry had its result"


async def another_user(shop: Shop) -> str:
    """The same key of another user is another key."""
    result = await shop.bob.call("charge_payment", {"amount": 70, "currency": "EUR"}, KEY)
    expect("bob's charge", _content(result)["amount"], 70)
    return f"bob's call with alice's key ran: {_content(result)}"


async def recorded_error(shop: Shop) -> str:
    """A call that failed is not run again."""
    calls = [("refuse", {"reason": "Out of stock."}, "order-1"), ("fail_after_effect", {"email": "a@b.c"}, "notice-2")]
    texts = []
    for call in calls:
        first, again = await shop.alice.call(*call), await shop.alice.call(*call)
        expect(f"{call[0]} failed", (first.is_error, again.is_error), (True, True))
        expect(f"retry of {call[0]}", again.content, first.content)
        texts.append(_text(again))
    return f"the same again, without running: {' / '.join(texts)}"


async def record_in_the_admin(shop: Shop) -> str:
    """The record, as a person sees it."""
    rows = [row for row in await records_in_the_admin(shop.port, KEY) if row["user"] == "alice"]
    seen = [(row["tool"], row["state_label"], row["replay_count"]) for row in rows]
    expect("alice's records of the key", seen, [("slow_charge", "done", "1")])
    return ", ".join(f"{name} {text}" for name, text in rows[0].items())


STEPS = [
    Step("discovery", discovery),
    Step("first call", first_call, adds=(1, 0)),
    Step("lost answer", lost_answer, adds=(1, 0)),
    Step("retry", retry),
    Step("changed arguments", changed_arguments),
    Step("duplicate of a running call", duplicate_of_a_running_call, adds=(0, 1)),
    Step("another user, same key", another_user, adds=(1, 0)),
    Step("failed calls", recorded_error, adds=(0, 1)),
    Step("the record in the admin", record_in_the_admin),
]


async def take(number: int, step: Step, shop: Shop) -> bool:
    """Take a step and print what came of it. Returns whether it held."""
    try:
        before = await shop.alice.effects()
        seen = await step.show(shop)
        after = await shop.alice.effects()
        expect("new payments and notifications", (after[0] - before[0], after[1] - before[1]), step.adds)
    except Exception as error:
        print(f"✗ {number} {step.title}: {error if isinstance(error, StepError) else repr(error)}", flush=True)
        return False
    print(f"✓ {number} {step.title:<28} payments {after[0]}  notifications {after[1]}  {seen}", flush=True)
    return True


def _content(result: CallToolResult) -> Any:
    expect("is_error", (result.is_error, _text(result) if result.is_error else ""), (False, ""))
    return result.structured_content


def _text(result: CallToolResult) -> str:
    return " ".join(block.text for block in result.content if isinstance(block, TextContent))


async def _refusal(call: Awaitable[CallToolResult]) -> str:
    """What an answer says that is no result: the type of the refusal, or else its message."""
    try:
        result = await call
    except MCPError as error:
        return str((error.error.data or {}).get("type", error.error.message))
    return f"no refusal but {_text(result)}"


async def _until(shop: Shop, *, payments: int = 0, notifications: int = 0) -> None:
    """Wait for so many effects."""
    deadline = time.monotonic() + PATIENCE
    while True:
        seen = await shop.alice.effects()
        if seen[0] >= payments and seen[1] >= notifications:
            return
        if time.monotonic() > deadline:
            raise StepError(f"expected {payments} payments and {notifications} notifications, saw {seen}")
        await asyncio.sleep(0.05)


@asynccontextmanager
async def customer(name: str, port: int) -> AsyncIterator[Customer]:
    """A user's client, signed in with the token of the demo data."""
    headers = {"Authorization": f"Bearer demo-{name}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        transport = streamable_http_client(f"http://{HOST}:{port}/mcp", http_client=http)
        async with Client(transport, mode=VERSION) as client:
            yield Customer(client)


async def drive(port: int) -> bool:
    """Take every step. Returns whether all of them held."""
    async with customer("alice", port) as alice, customer("bob", port) as bob:
        shop = Shop(port=port, alice=alice, bob=bob)
        return all([await take(number, step, shop) for number, step in enumerate(STEPS, 1)])


def main() -> int:
    """Show it. Returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="mcp-demo-") as directory:
        try:
            with example_server(Path(directory)) as port:
                print(f"The example serves http://{HOST}:{port}/mcp on SQLite, without Redis.", flush=True)
                held = asyncio.run(drive(port))
        except Exception:
            print((Path(directory) / "server.log").read_text(), file=sys.stderr)
            raise
    print("Every step held." if held else "Not every step held.")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
