"""JSON-RPC messages as lines of a byte stream, read and written as over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from anyio import BrokenResourceError
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from .. import jsontext
from .exchange import error_reply

_CHUNK = 65536


class Unreadable(Exception):
    """A line is no message that could be answered by its id.

    Attributes:
        error: What to tell whoever sent it.
    """

    def __init__(self, error: ErrorData) -> None:
        super().__init__(error.message)
        self.error = error


def read_lines(source: int) -> Iterator[bytes]:
    """The lines of a file descriptor, without their ends, as they come; the last one ends where the file does.

    Not by a file object: a thread that waits in one when the process ends takes the lock of its buffer along.
    """
    parts: list[bytes] = []
    while chunk := os.read(source, _CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join([*parts, end])
            parts = []
        parts.append(rest)
    yield b"".join(parts)


def parse_line(line: bytes) -> JSONRPCMessage:
    """The message that a line is.

    Its numbers are what was sent (R11), so the SDK's own parser will not do: it takes NaN and infinities, and replaces
    what is not UTF-8.

    Raises:
        Unreadable: It is not JSON, or not one JSON-RPC message.
    """
    try:
        value = jsontext.parse(line)
    except jsontext.ParseError as error:
        raise Unreadable(ErrorData(code=PARSE_ERROR, message=f"The line is not valid JSON: {error}")) from error
    try:
        message = jsonrpc_message_adapter.validate_python(value)
    except ValidationError:
        raise Unreadable(_NOT_ONE_MESSAGE) from None
    if isinstance(message, JSONRPCNotification) and "id" in value:
        raise Unreadable(_NOT_ONE_MESSAGE)
    return message


def write_line(message: JSONRPCMessage) -> bytes:
    """The line for a message, with its end.

    Raises:
        ValueError: The message is not JSON.
    """
    if isinstance(message, JSONRPCError):
        members = error_reply(message.id, message.error).message
    else:
        members = message.model_dump(by_alias=True, exclude_unset=True)
    return jsontext.write_message(members) + b"\n"


class LineWriter:
    """Writes messages to a file descriptor, one after the other: the SDK's write stream.

    A client that does not read makes its own answers wait, and nothing else.
    """

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mcp-write")

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message, whole even where whoever sends it is cancelled.

        Raises:
            ValueError: The message is not JSON.
            BrokenResourceError: Nobody reads any more.
        """
        line = write_line(item.message)
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, line)
        except OSError as error:
            raise BrokenResourceError from error

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._sink, rest) :]

    async def aclose(self) -> None:
        """Write no more."""
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> LineWriter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


_NOT_ONE_MESSAGE = ErrorData(
    code=INVALID_REQUEST, message="The line must be one JSON-RPC request, notification or response object."
)
