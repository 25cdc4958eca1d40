"""What a server holds after many requests is what it held before, whatever became of them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from tests import wire
from tests.e2e.servers import Shop, request, shop

CLIENTS = 8
WARM_UP = 1000
# More clients than the pools have connections, so that these are as many as they get.
WARM_UP_CLIENTS = 40
PATIENCE = 30


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("server", "requests"),
    [
        ("uvicorn", 2_000),
        pytest.param("uvicorn", 20_000, marks=pytest.mark.exhaustive),
        pytest.param("uvicorn, mounted", 20_000, marks=pytest.mark.exhaustive),
    ],
)
def test_a_server_holds_after_many_requests_what_it_held_before(server: str, requests: int) -> None:
    """R24, R25: also after those that were refused, broken off, or given up before they were answered."""
    with shop(server, project="tests.e2e.watched", DJANGO_DEBUG="0") as running:
        at_first, numbers = holdings(running), itertools.count()

        asyncio.run(Clients(running).send(itertools.islice(numbers, WARM_UP), clients=WARM_UP_CLIENTS))
        before = holdings_at_rest(running, tasks=at_first["tasks"])
        asyncio.run(Clients(running).send(itertools.islice(numbers, requests), clients=CLIENTS))
        after = holdings_at_rest(running, tasks=at_first["tasks"])

    print(f"{server}: at first {at_first}, after {WARM_UP} requests {before}, after {requests} more {after}")
    assert after["memory"] < before["memory"] * 1.05
    assert {**after, "memory": None} == {**before, "memory": None}


def holdings(running: Shop) -> dict[str, int]:
    """What the server says that it holds."""
    held: dict[str, int] = running.call("holdings", {})["result"]["structuredContent"]
    return held


def holdings_at_rest(running: Shop, *, tasks: int) -> dict[str, int]:
    """What the server holds once no task of a call runs any more, or after long enough."""
    deadline = time.monotonic() + PATIENCE
    while (held := holdings(running))["tasks"] != tasks and time.monotonic() < deadline:
        time.sleep(0.1)
    return held


class Clients:
    """Clients that send one request after the other, each another one of ``SENT``."""

    def __init__(self, running: Shop) -> None:
        self._address = urlsplit(running.url)

    async def send(self, numbers: Iterator[int], *, clients: int) -> None:
        """Send as many requests as there are numbers, so many at once as there are clients."""
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._send_in_turn(numbers))

    async def _send_in_turn(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            await SENT[number % len(SENT)](self, number)

    @asynccontextmanager
    async def sent(self, body: bytes, headers: dict[str, str]) -> AsyncIterator[asyncio.StreamReader]:
        """Send a request; leaving the context hangs up."""
        head = f"POST {self._address.path} HTTP/1.1\r\nHost: {self._address.netloc}\r\nContent-Length: {len(body)}\r\n"
        head += "".join(f"{header}: {value}\r\n" for header, value in headers.items())
        answer, connection = await asyncio.open_connection(self._address.hostname, self._address.port)
        try:
            connection.write(f"{head}\r\n".encode() + body)
            yield answer
        finally:
            connection.transport.abort()

    async def status(self, body: bytes, headers: dict[str, str]) -> int:
        """The status that a request is answered with."""
        async with self.sent(body, {**headers, "Connection": "close"}) as answer:
            return int((await answer.read()).split(b" ", 2)[1])


async def unkeyed(clients: Clients, number: int) -> None:
    assert await clients.status(*request("echo", {"value": number})) == 200


async def keyed(clients: Clients, number: int) -> None:
    arguments = {"amount": 5, "currency": "EUR"}
    assert await clients.status(*request("charge_payment", arguments, key=str(number))) == 200


async def keyed_external(clients: Clients, number: int) -> None:
    arguments = {"email": "a@example.com", "payment_id": number}
    assert await clients.status(*request("send_receipt", arguments, key=str(number))) == 200


async def listed(clients: Clients, number: int) -> None:
    body, headers = wire.message("tools/list", wire.envelope()), wire.headers("demo-alice", "tools/list")
    assert await clients.status(body, headers) == 200


async def refused_for_its_token(clients: Clients, number: int) -> None:
    assert await clients.status(*request("echo", {"value": number}, token="unknown")) == 401


async def refused_for_its_origin(clients: Clients, number: int) -> None:
    body, headers = request("echo", {"value": number})
    assert await clients.status(body, {**headers, "Origin": "http://evil.example.com"}) == 403


async def refused_for_its_body(clients: Clients, number: int) -> None:
    _, headers = request("echo", {"value": number})
    assert await clients.status(b"{" * 200, headers) == 400


async def refused_for_its_arguments(clients: Clients, number: int) -> None:
    assert await clients.status(*request("charge_payment", {"amount": "5"}, key=str(number))) == 200


async def in_conflict(clients: Clients, number: int) -> None:
    arguments = {"email": f"{number}@example.com", "payment_id": 1}
    assert await clients.status(*request("send_receipt", arguments, key="in conflict")) == 200


async def given_up(clients: Clients, number: int) -> None:
    async with clients.sent(*request("hangs", {})):
        pass


async def given_up_with_a_key(clients: Clients, number: int) -> None:
    async with clients.sent(*request("send_receipt", {"email": "a@example.com", "payment_id": 1}, key=str(number))):
        pass


async def broken_off(clients: Clients, number: int) -> None:
    async with clients.sent(*request("hangs", {}, progress=True)) as answer:
        await answer.readuntil(b"notifications/progress")


async def broken_off_with_a_key(clients: Clients, number: int) -> None:
    arguments = {"email": "a@example.com", "seconds": 0.01}
    async with clients.sent(*request("async_notify", arguments, key=str(number), progress=True)) as answer:
        await answer.readuntil(b"notifications/progress")


SENT: list[Callable[[Clients, int], Awaitable[None]]] = [
    unkeyed,
    keyed,
    keyed_external,
    listed,
    refused_for_its_token,
    refused_for_its_origin,
    refused_for_its_body,
    refused_for_its_arguments,
    in_conflict,
    given_up,
    given_up_with_a_key,
    broken_off,
    broken_off_with_a_key,
]
