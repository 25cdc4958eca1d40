"""Requests in an event loop, handled as Django's ASGI handler does it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections
from django.http import HttpResponse, StreamingHttpResponse
from django.test import AsyncRequestFactory
from django.urls import resolve


def run(scenario: Callable[[], Awaitable[Any]]) -> None:
    """Run a coroutine with a thread of its own for what is sync, as a request has."""

    async def main() -> None:
        async with ThreadSensitiveContext():
            try:
                await asyncio.wait_for(scenario(), timeout=20)
            finally:
                await sync_to_async(connections.close_all)()

    asyncio.run(main())


async def post(body: bytes, headers: Mapping[str, str]) -> HttpResponse | StreamingHttpResponse:
    """The endpoint's response, which has not been read."""
    sent = {name: value for name, value in headers.items() if name != "Content-Type"}
    request = AsyncRequestFactory().post("/mcp", body, headers["Content-Type"], headers=sent)
    return await resolve("/mcp").func(request)  # type: ignore[no-any-return]


async def get(headers: Mapping[str, str]) -> HttpResponse | StreamingHttpResponse:
    """The endpoint's response to a client that wants to be told something, which has not been read."""
    sent = {name: value for name, value in headers.items() if name != "Content-Type"}
    request = AsyncRequestFactory().get("/mcp", headers=sent)
    return await resolve("/mcp").func(request)  # type: ignore[no-any-return]


async def read(response: HttpResponse | StreamingHttpResponse) -> bytes:
    """All of a response."""
    if not isinstance(response, StreamingHttpResponse):
        return response.content
    async with aclosing(aiter(response)) as parts:
        return b"".join([part async for part in parts])
