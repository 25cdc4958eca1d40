"""The view's task is cancelled, as a server does it when the client goes away (R24)."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpResponse

from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.states import State
from django_mcp_idem.transport.exchange import Outlet
from django_mcp_idem.transport.streams import Answering
from tests import wire
from tests.app import mcp_tools
from tests.app.models import Effect
from tests.factories import TokenFactory
from tests.loops import post, read, run

pytestmark = pytest.mark.django_db(transaction=True)


class Visit:
    """One request in its own task and thread, and the body that it waits in."""

    def __init__(self, name: str, key: str | None, *, streams: bool) -> None:
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()
        keyed = {} if key is None else {"idempotencyKey": key}
        params = wire.call_params(name, {"label": "a"}, **keyed)
        if streams:
            params["_meta"]["progressToken"] = "p"
        self._body = wire.message("tools/call", params)
        self._headers = wire.headers("t", "tools/call", name)
        self.task = asyncio.ensure_future(self._answer())

    async def _answer(self) -> bytes:
        return await read(await post(self._body, self._headers))

    async def wait(self) -> None:
        """What the test tools wait for in the middle of their bodies."""
        self.waiting.set()
        await self.go_on.wait()


streams = pytest.mark.parametrize("streams", [False, True], ids=["before anything was sent", "in mid-stream"])


@streams
@pytest.mark.parametrize("name", ["waits_atomic", "waits_external"])
def test_a_keyed_call_runs_on_to_its_record_in_the_transaction_that_it_began_in(
    user: User, name: str, streams: bool
) -> None:
    """R24: the view waits for it, and passes the cancellation on only then."""
    TokenFactory(user=user, text="t")

    async def scenario() -> None:
        visit = Visit(name, "k", streams=streams)
        mcp_tools.wait_for[:] = [visit.wait]
        await visit.waiting.wait()

        visit.task.cancel()
        visit.task.cancel()
        await asyncio.wait({visit.task}, timeout=0.2)
        assert not visit.task.done()

        visit.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await visit.task

    run(scenario)
    assert list(Effect.objects.order_by("pk").values_list("label", flat=True)) == ["a before", "a after"]
    record = IdempotencyRecord.objects.get()
    assert (record.state, record.attempt, record.ending) == (State.DONE, 1, "result")


@streams
@pytest.mark.parametrize(("name", "left"), [("waits_external", ["a before"]), ("waits_atomic", [])])
def test_an_unkeyed_async_body_is_cancelled_and_an_atomic_one_rolled_back(
    user: User, name: str, left: list[str], streams: bool
) -> None:
    """R24, R04: as the protocol says."""
    TokenFactory(user=user, text="t")

    async def scenario() -> None:
        visit = Visit(name, None, streams=streams)
        mcp_tools.wait_for[:] = [visit.wait]
        await visit.waiting.wait()

        visit.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await visit.task

    run(scenario)
    assert list(Effect.objects.values_list("label", flat=True)) == left


def test_a_sync_body_that_was_given_up_holds_up_nothing_else() -> None:
    """R24: also where what carries the stream gives it up twice, as middleware that wraps the stream does."""
    running, go_on = Event(), Event()
    opened: list[BaseDatabaseWrapper] = []

    def body() -> None:
        Effect.objects.count()
        opened.append(connections["default"])
        running.set()
        go_on.wait(timeout=20)

    async def answer(outlet: Outlet) -> HttpResponse:
        outlet.send({})
        await sync_to_async(body)()
        raise AssertionError("The body was cancelled.")

    async def scenario() -> None:
        answering = Answering(answer)
        await answering.next()
        await asyncio.to_thread(running.wait)

        ending = asyncio.ensure_future(answering.end())
        await asyncio.sleep(0)
        answering.cancel()
        await asyncio.wait_for(ending, timeout=10)
        assert opened[0].connection is not None

        go_on.set()
        while opened[0].connection is not None:
            await asyncio.sleep(0.01)

    run(scenario)
