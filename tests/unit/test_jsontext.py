"""JSON as it is read and written (R06, R11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mcp_idem.jsontext import MAX_DEPTH, MAX_WRITTEN_DEPTH, ParseError, parse, write

from .strategies import JSON, spell, values


def arrays(depth: int, innermost: JSON) -> JSON:
    """As many arrays as ``depth`` says, each in the next, with ``innermost`` in the last."""
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


def objects(depth: int, innermost: JSON) -> JSON:
    """As many objects as ``depth`` says, each in the next, with ``innermost`` in the last."""
    value = innermost
    for _ in range(depth):
        value = {"a": value}
    return value


@given(values())
def test_r06_what_is_written_is_read_as_the_same_value_of_the_same_types(value: JSON) -> None:
    """R06: ``repr`` tells ``True`` from ``1``, ``1.0`` from ``1``, ``-0.0`` from ``0.0`` and one order from another."""
    assert repr(parse(write(value))) == repr(value)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(b"1", 1, id="a number"),
        pytest.param(b'"[,{,"', 1, id="a text with what stands before values"),
        pytest.param(b"[]", 1, id="an empty array"),
        pytest.param(b"[1,[],{}]", 4, id="an array"),
        pytest.param(b'{"[,{":1,"b":[null,"a,b,c"]}', 5, id="an object, whose names are none"),
        pytest.param(b"[[[[1]]]]", 5, id="nested"),
    ],
)
def test_r11_as_many_values_are_read_as_there_may_be(text: bytes, count: int) -> None:
    """R11"""
    assert parse(text, max_values=count) == json.loads(text)
    with pytest.raises(ParseError, match=f"^more than {count - 1} values$"):
        parse(text, max_values=count - 1)


@given(values(), st.randoms(use_true_random=False))
def test_r11_every_spelling_of_a_value_is_read(value: JSON, random: Random) -> None:
    """R11."""
    text = spell(value, random)

    assert parse(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(b"null", None, id="null"),
        pytest.param(b"true", True, id="true"),
        pytest.param(b"false", False, id="false"),
        pytest.param(b"0", 0, id="zero"),
        pytest.param(b"1", 1, id="one"),
        pytest.param(b"1.0", 1.0, id="one as a double"),
        pytest.param(b"-0.0", -0.0, id="minus zero"),
        pytest.param(b'""', "", id="empty text"),
        pytest.param(b"[]", [], id="empty array"),
        pytest.param(b"{}", {}, id="empty object"),
        pytest.param(b'{"":[]}', {"": []}, id="empty name"),
        pytest.param(rb'"\u0000"', "\0", id="NUL"),
        pytest.param('"\U0001f600"'.encode(), "\U0001f600", id="astral character"),
        pytest.param(b"9007199254740993", 2**53 + 1, id="2^53+1"),
        pytest.param(b"18446744073709551615", 2**64 - 1, id="2^64-1"),
        pytest.param(b"18446744073709551617", 2**64 + 1, id="2^64+1"),
        pytest.param(b"-9223372036854775809", -(2**63) - 1, id="-2^63-1"),
        pytest.param(b'[18446744073709551617,null,1.5,"x",-0.0]', [2**64 + 1, None, 1.5, "x", -0.0], id="together"),
        pytest.param(b"5e-324", 5e-324, id="smallest double"),
        pytest.param(b"1.7976931348623157e308", 1.7976931348623157e308, id="largest double"),
        pytest.param(b"1" * 4300, int("1" * 4300), id="4300 digits"),
    ],
)
def test_r06_odd_values_are_read_and_written_exactly(text: bytes, value: JSON) -> None:
    """R06, R11."""
    assert repr(parse(text)) == repr(value)
    assert repr(parse(write(value))) == repr(value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b" \r\n\t", id="white space"),
        pytest.param(b"nul", id="half a word"),
        pytest.param(b"NaN", id="NaN"),
        pytest.param(b'{"a":NaN}', id="NaN inside"),
        pytest.param(b"Infinity", id="Infinity"),
        pytest.param(b"[-Infinity]", id="-Infinity"),
        pytest.param(b"1e400", id="1e400"),
        pytest.param(b"[-1e400]", id="-1e400"),
        pytest.param(b"1" + b"0" * 400 + b".0", id="a double of 401 digits"),
        pytest.param(b"1" * 5000, id="an integer of 5000 digits"),
        pytest.param(b'{"a":-' + b"1" * 5000 + b"}", id="a negative integer of 5000 digits"),
        pytest.param(b"{} {}", id="trailing object"),
        pytest.param(b"{}x", id="trailing letter"),
        pytest.param(b"{}\x00", id="trailing NUL"),
        pytest.param(b"01", id="leading zero"),
        pytest.param(b"+1", id="leading plus"),
        pytest.param(b".5", id="no whole part"),
        pytest.param(b"1.", id="no fraction"),
        pytest.param(b"1e", id="no exponent"),
        pytest.param(b"0x10", id="hexadecimal"),
        pytest.param(b"1_000", id="underscore"),
        pytest.param("\uff11".encode(), id="full-width digit"),
        pytest.param("1\u0660".encode(), id="arabic digit"),
        pytest.param(b"[1,]", id="trailing comma in an array"),
        pytest.param(b'{"a":1,}', id="trailing comma in an object"),
        pytest.param(b"[1 2]", id="missing comma"),
        pytest.param(b'{"a" 1}', id="missing colon"),
        pytest.param(b"{1:2}", id="a number as a name"),
        pytest.param(b"{a:1}", id="a bare name"),
        pytest.param(b"'a'", id="single quotes"),
        pytest.param(b'"a', id="an open text"),
        pytest.param(b'"\n"', id="a raw control character"),
        pytest.param(b'"\x00"', id="a raw NUL"),
        pytest.param(rb'"\x41"', id="an escape that JSON does not have"),
        pytest.param(rb'"\u12"', id="half an escape"),
        pytest.param(b"// a\n1", id="a comment"),
        pytest.param(b"\xa0" + b"1", id="a no-break space in latin-1"),
        pytest.param("\u00a01".encode(), id="a no-break space"),
        pytest.param(b"\xef\xbb\xbf{}", id="a byte order mark"),
        pytest.param('{"a":1}'.encode("utf-16"), id="UTF-16"),
        pytest.param('{"a":1}'.encode("utf-32-be"), id="UTF-32"),
        pytest.param(b'"\xff"', id="a byte that UTF-8 does not have"),
        pytest.param(b'"\xc0\x80"', id="an overlong NUL"),
        pytest.param(b'"\xe2\x82"', id="half a character"),
        pytest.param(b'"\xed\xa0\xbd\xed\xb8\x80"', id="a surrogate pair in bytes"),
        pytest.param(b'"\xed\xa0\x80"', id="half a pair in bytes"),
        pytest.param(b"[" * 100_000, id="100000 open arrays"),
        pytest.param(b'{"a":' * 100_000, id="100000 open objects"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="100000 arrays"),
    ],
)
def test_r11_what_is_not_json_is_refused(text: bytes) -> None:
    """R11."""
    with pytest.raises(ParseError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(r'"\ud83d"', id="the first half"),
        pytest.param(r'"\ude00"', id="the second half"),
        pytest.param(r'"\uDE00\uD83D"', id="halves in the wrong order"),
        pytest.param(r'"\ud83d \ude00"', id="halves apart"),
        pytest.param(r'"\uD83d\ud83D\uDe00"', id="a half before a pair"),
        pytest.param(r'"\ud83dx"', id="a half before a letter"),
        pytest.param(r'{"\ud83d":1}', id="in a name"),
        pytest.param(r'[[{"a":["\uDFFF"]}]]', id="deep inside"),
        pytest.param(r'"\\\ud83d"', id="behind an escaped backslash"),
    ],
)
def test_r11_half_a_surrogate_pair_is_refused(text: str) -> None:
    """R11: it can be neither encoded nor stored."""
    with pytest.raises(ParseError, match="surrogate"):
        parse(text.encode())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(r'"\ud83d\ude00"', "\U0001f600", id="escaped"),
        pytest.param(r'"\uD83D\uDE00"', "\U0001f600", id="escaped in capitals"),
        pytest.param(r'"\\ud83d"', r"\ud83d", id="an escaped backslash"),
        pytest.param('"\U0001f600"', "\U0001f600", id="as it is"),
        pytest.param(r'{"\ud83d\ude00":1}', {"\U0001f600": 1}, id="in a name"),
    ],
)
def test_r11_a_surrogate_pair_is_one_character(text: str, value: JSON) -> None:
    """R11."""
    assert parse(text.encode()) == value


def test_r11_of_members_with_one_name_the_last_counts() -> None:
    """R11."""
    assert parse(b'{"a":1,"b":2,"a":3}') == {"a": 3, "b": 2}


@pytest.mark.parametrize("nested", [arrays, objects])
@pytest.mark.parametrize("innermost", [1, [], {}], ids=["a number", "an empty array", "an empty object"])
def test_r11_nesting_is_read_to_a_depth_of_exactly_100(nested: Callable[[int, JSON], JSON], innermost: JSON) -> None:
    """R11: an empty array or object is a level as well."""
    levels = MAX_DEPTH if innermost == 1 else MAX_DEPTH - 1
    accepted, refused = nested(levels, innermost), nested(levels + 1, innermost)

    assert parse(json.dumps(accepted).encode()) == accepted
    with pytest.raises(ParseError, match="deep"):
        parse(json.dumps(refused).encode())


def test_r11_many_arrays_side_by_side_are_not_deep() -> None:
    """R11."""
    assert parse(b"[" + b"[]," * 1000 + b"[]]") == [[]] * 1001


def test_r11_brackets_inside_a_text_are_not_deep() -> None:
    """R11."""
    assert parse(b'"' + b"[{" * 1000 + b'"') == "[{" * 1000


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(float("nan"), id="NaN"),
        pytest.param([1, {"a": float("nan")}], id="NaN inside"),
        pytest.param([None, float("nan")], id="NaN beside a null"),
        pytest.param({"a": None, "b": [float("inf")]}, id="Infinity beside a null"),
        pytest.param([2**70, float("-inf")], id="-Infinity beside a big integer"),
        pytest.param(["null", float("nan")], id="NaN beside the text null"),
        pytest.param({1, 2}, id="a set"),
        pytest.param(b"x", id="bytes"),
        pytest.param([2**70, object()], id="an object beside a big integer"),
    ],
)
def test_r06_what_json_does_not_have_is_not_written(value: object) -> None:
    """R06: a NaN is found before the call is completed, and never stored as ``null``."""
    with pytest.raises(ValueError, match="JSON"):
        write(value)


@pytest.mark.parametrize("nested", [arrays, objects])
@pytest.mark.parametrize("innermost", [1, None, 2**70], ids=["a number", "a null", "a big integer"])
def test_r06_nesting_is_written_to_a_depth_of_exactly_200(nested: Callable[[int, JSON], JSON], innermost: JSON) -> None:
    """R06: whatever is inside, and well before the depth that the SDK's models refuse."""
    accepted = nested(MAX_WRITTEN_DEPTH, innermost)

    assert json.loads(write(accepted)) == accepted
    for levels in (MAX_WRITTEN_DEPTH + 1, 254, 255, 2000):
        with pytest.raises(ValueError, match="deep"):
            write(nested(levels, innermost))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param({"b": 1, "a": [1.5, None]}, b'{"b":1,"a":[1.5,null]}', id="as a rule"),
        pytest.param({"b": 2**70, "a": [1.5, None]}, b'{"b":1180591620717411303424,"a":[1.5,null]}', id="big integer"),
        pytest.param((1, (2, 3)), b"[1,[2,3]]", id="tuples"),
        pytest.param((2**70, (2, 3)), b"[1180591620717411303424,[2,3]]", id="tuples beside a big integer"),
    ],
)
def test_r06_texts_are_compact_and_keep_the_order_of_members(value: object, text: bytes) -> None:
    """R06."""
    assert write(value) == text


def test_r06_half_a_surrogate_pair_is_written_as_its_escape() -> None:
    """R06: a tool may come by one, and the bytes stay UTF-8."""
    assert write(["\ud83d"]) == rb'["\ud83d"]'
