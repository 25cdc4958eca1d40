"""Where a key may stand, and how it is read there (R01, R02)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mcp_idem import Site
from django_mcp_idem.idempotency.keys import InvalidKey
from django_mcp_idem.namespace import KEY
from django_mcp_idem.sources import SentKey, places, sent_key, with_key_argument

PARAMS = {
    "idempotencyKey": "in params",
    "_meta": {KEY: "in _meta"},
    "arguments": {"key": "in arguments", "other": 1},
}
HEADERS = {"Idempotency-Key": "in-header"}

printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255)


def test_a_site_looks_only_where_it_says() -> None:
    """R02: what is sent elsewhere is no key to it."""
    assert sent_key(Site("plain"), PARAMS, HEADERS) == SentKey(in_body=("in params",))


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ({"idempotency_key_in_meta": True}, SentKey(in_body=("in params", "in _meta"))),
        ({"idempotency_key_argument": "key"}, SentKey(in_body=("in params", "in arguments"))),
        ({"idempotency_key_in_header": True}, SentKey(in_body=("in params",), in_header="in-header")),
    ],
    ids=["_meta", "argument", "header"],
)
def test_a_site_looks_where_it_says(words: dict[str, Any], sent: SentKey) -> None:
    assert sent_key(Site("one more", **words), PARAMS, HEADERS) == sent


def test_white_space_around_the_header_is_no_part_of_it() -> None:
    site = Site("header", idempotency_key_in_header=True)

    assert sent_key(site, {}, {"Idempotency-Key": ' "a "\t'}).agreed() == "a "


@pytest.mark.parametrize("params", [{}, {"_meta": {}, "arguments": {}}, {"_meta": None}, {"_meta": KEY}])
def test_a_call_without_a_key_has_none(params: dict[str, Any]) -> None:
    """R04"""
    site = Site("all", idempotency_key_in_meta=True, idempotency_key_in_header=True, idempotency_key_argument="key")

    assert not sent_key(site, params, {})


@pytest.mark.parametrize(
    "params",
    [{"idempotencyKey": None}, {"_meta": {KEY: None}}, {"arguments": {"key": None}}],
    ids=["params", "_meta", "argument"],
)
def test_r02_a_null_is_a_key_that_was_sent_and_is_refused(params: dict[str, Any]) -> None:
    """R02: never ignored, its sender would believe the call protected."""
    key = sent_key(Site("all", idempotency_key_in_meta=True, idempotency_key_argument="key"), params, {})

    assert key
    with pytest.raises(InvalidKey, match="must be a string"):
        key.agreed()


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        pytest.param('"order-1001"', "order-1001", id="quoted"),
        pytest.param("order-1001", "order-1001", id="bare"),
        pytest.param('"a b, c; d"', "a b, c; d", id="quoted, with what a bare one may not have"),
        pytest.param(r'"say \"a\\b\""', r'say "a\b"', id="quoted, with escapes"),
        pytest.param("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324", id="a UUID"),
        pytest.param("a:b/c?d=e&f#[g]{h}~!'()*+.@$%^_`|<>", "a:b/c?d=e&f#[g]{h}~!'()*+.@$%^_`|<>", id="bare, any"),
        pytest.param('" a "', " a ", id="white space inside the quotes"),
    ],
)
def test_r01_a_header_names_the_key_with_and_without_quotes(sent: str, key: str) -> None:
    """R01: the quotes are no part of the key, everything within them is."""
    assert SentKey(in_header=sent).agreed() == key


@given(printable)
def test_r01_every_printable_key_can_be_sent_in_the_header(key: str) -> None:
    """R01."""
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')

    assert SentKey(in_header=f'"{quoted}"').agreed() == key


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param('"a","a"', id="two headers, quoted"),
        pytest.param("a,b", id="two headers, bare"),
        pytest.param("a, a", id="two equal headers"),
        pytest.param('"a', id="no closing quote"),
        pytest.param('a"', id="no opening quote"),
        pytest.param('"a"b"', id="a quote that is not escaped"),
        pytest.param(r'"a\b"', id="an escape that there is not"),
        pytest.param('"a\\"', id="an escaped closing quote"),
        pytest.param('"a";b=c', id="a parameter"),
        pytest.param("a;b=c", id="a parameter of a bare one"),
        pytest.param("a b", id="a space in a bare one"),
        pytest.param("caf\u00e9", id="Latin-1"),
        pytest.param('"caf\u00c3\u00a9"', id="UTF-8, quoted, as Django decodes it"),
        pytest.param('"a\tb"', id="a tab"),
        pytest.param('"a\x7f"', id="a control character"),
        pytest.param("", id="empty"),
        pytest.param('""', id="an empty string"),
        pytest.param("a" * 256, id="longer than 255"),
        pytest.param(f'"{"a" * 256}"', id="quoted, longer than 255"),
    ],
)
def test_r02_what_is_no_string_in_a_header_is_refused(sent: str) -> None:
    """R02: never ignored, and never taken for another key."""
    with pytest.raises(InvalidKey):
        SentKey(in_header=sent).agreed()


def test_one_key_in_several_places_is_one_key() -> None:
    assert SentKey(in_body=("k", "k", "k"), in_header='"k"').agreed() == "k"


@pytest.mark.parametrize(
    "key",
    [SentKey(in_body=("k", "K")), SentKey(in_body=("k",), in_header="K"), SentKey(in_body=("k", "k "))],
    ids=["in the body", "in body and header", "by a space"],
)
def test_r02_keys_that_differ_are_refused(key: SentKey) -> None:
    """R02: neither is chosen."""
    with pytest.raises(InvalidKey, match="differ"):
        key.agreed()


@pytest.mark.parametrize("key", [SentKey(in_body=("k", 1)), SentKey(in_body=("k",), in_header="")])
def test_r02_an_invalid_key_is_refused_beside_a_valid_one(key: SentKey) -> None:
    """R02"""
    with pytest.raises(InvalidKey):
        key.agreed()


def test_a_site_tells_where_it_looks() -> None:
    site = Site("all", idempotency_key_in_meta=True, idempotency_key_in_header=True, idempotency_key_argument="key")

    assert places(Site("plain")) == {"params": "idempotencyKey"}
    assert places(site) == {
        "params": "idempotencyKey",
        "_meta": "django-mcp-idem/idempotencyKey",
        "header": "Idempotency-Key",
        "argument": "key",
    }


def test_the_argument_is_one_more_property() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    optional = with_key_argument(schema, "key", required=False)
    required = with_key_argument(schema, "key", required=True)

    assert list(optional["properties"]) == ["a", "key"]
    assert optional["required"] == ["a"]
    assert required["required"] == ["a", "key"]
    assert optional["properties"]["key"]["maxLength"] == 255
    assert list(schema["properties"]) == ["a"]


def test_the_argument_is_a_property_of_a_tool_that_takes_nothing() -> None:
    assert list(with_key_argument({"type": "object"}, "key", required=True)["properties"]) == ["key"]
    assert with_key_argument({"type": "object"}, "key", required=True)["required"] == ["key"]
