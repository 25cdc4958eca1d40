"""The session that a client of the handshake versions carries itself."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import signing
from mcp.server.connection import Connection
from pytest_django import Settings as DjangoSettings

from django_mcp_idem.transport.session import ASSUMED_VERSION, connection_of, session_id

CLIENT = {"name": "tests", "version": "1.2.3"}
CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}}


def agreed(version: str = "2025-06-18", client: dict[str, str] | None = CLIENT) -> Connection:
    """What ``initialize`` agreed on."""
    return Connection.from_envelope(version, client, CAPABILITIES)


def told(connection: Connection) -> tuple[str, str, str]:
    """What is known of a client, which was told with ``initialize``."""
    assert connection.client_params is not None
    info = connection.client_params.client_info
    return connection.protocol_version, info.name, info.version


def test_any_server_reads_what_was_agreed_from_the_session() -> None:
    read = connection_of(session_id(agreed()), None)

    assert told(read) == ("2025-06-18", "tests", "1.2.3")
    assert read.client_params is not None
    assert read.client_params.capabilities.sampling is not None
    assert read.client_params.capabilities.elicitation is not None
    assert read.client_params.capabilities.roots is None


def test_a_session_id_can_be_sent_in_a_header() -> None:
    session = session_id(agreed(client={"name": "Größe \U0001f600\r\nX: y", "version": "1"}))

    assert session.isascii()
    assert session.isprintable()
    assert " " not in session


def test_the_version_of_the_request_goes_before_that_of_the_session() -> None:
    read = connection_of(session_id(agreed("2025-06-18")), "2025-11-25")

    assert told(read) == ("2025-11-25", "tests", "1.2.3")


@pytest.mark.parametrize(
    "session",
    [
        pytest.param(None, id="none"),
        pytest.param("", id="empty"),
        pytest.param("5f3c", id="of another server"),
        pytest.param("a:b:c", id="in the form of one"),
        pytest.param("\x00é", id="not even ASCII"),
        pytest.param(signing.dumps({"version": "2025-06-18"}), id="signed for another purpose"),
    ],
)
@pytest.mark.parametrize(("sent", "spoken"), [(None, ASSUMED_VERSION), ("2025-11-25", "2025-11-25")])
def test_a_session_that_is_not_ours_is_as_good_as_none(session: str | None, sent: str | None, spoken: str) -> None:
    read = connection_of(session, sent)

    assert read.protocol_version == spoken
    assert read.client_params is None


def test_a_session_that_was_tampered_with_is_as_good_as_none() -> None:
    payload, stamp, signature = session_id(agreed()).rsplit(":", 2)
    forged, _, _ = session_id(agreed("2025-11-25", {"name": "admin", "version": "1"})).rsplit(":", 2)

    read = connection_of(f"{forged}:{stamp}:{signature}", None)

    assert payload != forged
    assert read.protocol_version == ASSUMED_VERSION
    assert read.client_params is None


def test_a_session_signed_with_another_secret_is_as_good_as_none(settings: DjangoSettings) -> None:
    session = session_id(agreed())
    settings.SECRET_KEY = "another"

    assert connection_of(session, None).client_params is None


def test_a_session_outlives_a_change_of_the_secret_that_is_announced(settings: DjangoSettings) -> None:
    session = session_id(agreed())
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another"

    assert told(connection_of(session, None)) == ("2025-06-18", "tests", "1.2.3")


@pytest.mark.parametrize("version", ["2020-01-01", "2026-07-28", "", "nonsense"])
def test_a_session_of_a_version_that_is_no_longer_served_is_read_as_the_assumed_one(version: str) -> None:
    read = connection_of(session_id(agreed(version)), None)

    assert read.protocol_version == ASSUMED_VERSION


def test_a_client_that_says_too_much_of_itself_is_not_remembered() -> None:
    """Servers refuse longer header lines; nothing but the version is needed."""
    talkative = agreed(client={"name": "".join(map(chr, range(0x4E00, 0x4E00 + 5000))), "version": "1"})

    session = session_id(talkative)

    assert len(session) <= 4096
    assert connection_of(session, None).protocol_version == "2025-06-18"
    assert connection_of(session, None).client_params is None


def test_a_client_that_said_nothing_of_itself_is_remembered_by_its_version() -> None:
    session = session_id(Connection.from_envelope("2025-11-25", None, None))

    assert connection_of(session, None).protocol_version == "2025-11-25"
    assert connection_of(session, None).client_params is None
