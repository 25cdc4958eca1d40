"""A proxy that cuts a connection on either side of one request.

It knows where a request and its reply end. So "its reply was lost" means that the server has done what was asked, and
"it failed before" that the server has never heard of it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Literal, Protocol

from tests.faults.points import name_of_statement

Side = Literal["before", "after"]
Address = str | tuple[str, int]
"""The path of a socket, or a host and a port."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What to cut.

    Attributes:
        number: Which request, counted from 1.
        side: On which side of it.
        for_good: Whether every request after it is cut too, before the server gets it.
    """

    number: int
    side: Side
    for_good: bool


class Cutter:
    """Counts requests, and says which are to be cut.

    Attributes:
        hit: Name of the first that was.
    """

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._left = cut.number
        self.hit: str | None = None

    def side_of(self, name: str) -> Side | None:
        """On which side the next request, of this name, is to be cut; ``None`` where it is not."""
        self._left -= 1
        if self._left == 0:
            self.hit = name
            return self._cut.side
        return "before" if self._left < 0 and self._cut.for_good else None


class Wire(Protocol):
    """How a protocol is cut into requests and replies. Each request has one reply; one instance has one connection."""

    def read_request(self, client: BinaryIO) -> bytes:
        """The next request, whole. It may be empty where the server speaks first."""

    def read_reply(self, server: BinaryIO) -> bytes:
        """The reply to one request, whole."""

    def name_of(self, request: bytes) -> str | None:
        """What the request is called; ``None`` where it sets up or ends the connection."""


class Proxy:
    """Stands between clients and a server, on a port of the loopback interface, and cuts when told to.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, wire: Callable[[], Wire], server: Address) -> None:
        self._wire = wire
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._cutter: Cutter | None = None

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing it would not wake the thread that waits for it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @contextmanager
    def cutting(self, cut: Cut) -> Iterator[Cutter]:
        """Cut connections as long as the context lasts."""
        self._cutter = Cutter(cut)
        yield self._cutter
        self._cutter = None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with ExitStack() as stack:
            server = stack.enter_context(_connect(self._server))
            requests = stack.enter_context(stack.enter_context(client).makefile("rb"))
            replies = stack.enter_context(server.makefile("rb"))
            wire = self._wire()
            try:
                while self._pass_on(wire, client, requests, server, replies):
                    pass
            except (EOFError, OSError):
                return

    def _pass_on(
        self, wire: Wire, client: socket.socket, requests: BinaryIO, server: socket.socket, replies: BinaryIO
    ) -> bool:
        """Pass on one request and its reply. Returns whether the connection is to go on."""
        request = wire.read_request(requests)
        side = self._side_to_cut(wire.name_of(request))
        if side == "before":
            return False
        server.sendall(request)
        reply = wire.read_reply(replies)
        if side == "after":
            return False
        client.sendall(reply)
        return True

    def _side_to_cut(self, name: str | None) -> Side | None:
        return None if name is None or self._cutter is None else self._cutter.side_of(name)


class PostgresWire:
    """PostgreSQL's protocol: messages of a type, a length and a body."""

    def __init__(self) -> None:
        self._begun = False

    def read_request(self, client: BinaryIO) -> bytes:
        if not self._begun:
            self._begun = True
            return _read_with_length(client)
        # The server answers a query, a sync, and an answer to its challenge; and nothing else before one of these.
        return _read_until(client, lambda message: message[:1] in (b"Q", b"S", b"p", b"X"))

    def read_reply(self, server: BinaryIO) -> bytes:
        return _read_until(server, lambda message: message[:1] == b"Z" or _is_challenge(message))

    def name_of(self, request: bytes) -> str | None:
        match request[:1]:
            case b"Q":
                return name_of_statement(request[5:-1].decode())
            case b"P":
                return "extended query"
            case _:
                return None


def _is_challenge(message: bytes) -> bool:
    """Whether it is a request of authentication that the client has to answer."""
    return message[:1] == b"R" and int.from_bytes(message[5:9], "big") not in (0, 12)


def _read_until(stream: BinaryIO, is_last: Callable[[bytes], bool]) -> bytes:
    read = b""
    while True:
        message = _read(stream, 1) + _read_with_length(stream)
        read += message
        if is_last(message):
            return read


def _read_with_length(stream: BinaryIO) -> bytes:
    length = _read(stream, 4)
    return length + _read(stream, int.from_bytes(length, "big") - 4)


class MariaDBWire:
    """MariaDB's protocol: packets of a length, a number and a body. The server speaks first."""

    def __init__(self) -> None:
        self._packets_of_client = 0

    def read_request(self, client: BinaryIO) -> bytes:
        self._packets_of_client += 1
        return b"" if self._packets_of_client == 1 else _read_packet(client)

    def read_reply(self, server: BinaryIO) -> bytes:
        first = _read_packet(server)
        # What the first packet after a query says is how many columns there are, unless it says how the query ended.
        has_rows = self._packets_of_client > 2 and first[4] not in (_OK, _ERROR, _END)
        return first + _read_until_end(server) + _read_until_end(server) if has_rows else first

    def name_of(self, request: bytes) -> str | None:
        is_query = self._packets_of_client > 2 and request[4] == _QUERY
        return name_of_statement(request[5:].decode()) if is_query else None


_QUERY, _OK, _END, _ERROR = 0x03, 0x00, 0xFE, 0xFF


def _read_packet(stream: BinaryIO) -> bytes:
    head = _read(stream, 4)
    return head + _read(stream, int.from_bytes(head[:3], "little"))


def _read_until_end(stream: BinaryIO) -> bytes:
    """The packets that describe the columns, or the rows, and the one that ends them."""
    read = b""
    while True:
        packet = _read_packet(stream)
        read += packet
        # A row may begin with the same byte, and is longer then.
        if packet[4] == _ERROR or (packet[4] == _END and len(packet) < 13):
            return read


class RedisWire:
    """Redis' protocol: values, each a line that says what follows it."""

    def read_request(self, client: BinaryIO) -> bytes:
        return _read_value(client)

    def read_reply(self, server: BinaryIO) -> bytes:
        return _read_value(server)

    def name_of(self, request: bytes) -> str | None:
        # An array of strings: its length, then for each the length and the text.
        command = request.split(b"\r\n", 3)[2].decode()
        return None if command in ("AUTH", "CLIENT", "HELLO", "SELECT") else command


def _read_value(stream: BinaryIO) -> bytes:
    line = stream.readline()
    if not line:
        raise EOFError
    match line[:1]:
        case b"$" | b"=" | b"!":
            length = int(line[1:])
            return line + (_read(stream, length + 2) if length >= 0 else b"")
        case b"*" | b"~" | b">":
            return line + b"".join(_read_value(stream) for _ in range(int(line[1:])))
        case b"%":
            return line + b"".join(_read_value(stream) for _ in range(2 * int(line[1:])))
        case _:
            return line


def _connect(address: Address) -> socket.socket:
    if isinstance(address, tuple):
        return socket.create_connection(address)
    server = socket.socket(socket.AF_UNIX)
    server.connect(address)
    return server


def _read(stream: BinaryIO, length: int) -> bytes:
    """Exactly so many bytes.

    Raises:
        EOFError: The other end has closed the connection.
    """
    read = stream.read(length)
    if len(read) < length:
        raise EOFError
    return read
