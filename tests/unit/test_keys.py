"""Keys and scopes: what names one record (R01, R02, R18)."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mcp_idem.idempotency.keys import (
    MAX_KEY_LENGTH,
    PREVIEW_LENGTH,
    Identity,
    InvalidKey,
    Scope,
    digest,
    preview,
    validate_key,
)

SCOPE = Scope(endpoint="mcp", kind="user", subject="1")

two_lists = st.tuples(st.lists(st.text(max_size=4), max_size=4), st.lists(st.text(max_size=4), max_size=4))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("order-1", "order-2", id="one code point"),
        pytest.param("order", "Order", id="case"),
        pytest.param("straße", "STRASSE", id="case folding"),
        pytest.param("order", "order ", id="a trailing space"),
        pytest.param("order", " order", id="a leading space"),
        pytest.param("order", "order\n", id="a trailing line feed"),
        pytest.param(" ", "  ", id="nothing but spaces"),
        pytest.param("o rder", "o\u00a0rder", id="a no-break space"),
        pytest.param("é", "e\u0301", id="NFC and NFD"),
        pytest.param("ﬁ", "fi", id="NFKC"),
        pytest.param("a", "\uff41", id="width"),
        pytest.param("a", "\u0430", id="latin and cyrillic"),
        pytest.param("order", "order\x00", id="a trailing NUL"),
        pytest.param("or\x00der", "or\x00DER", id="behind a NUL"),
        pytest.param("\U0001f600", "\U0001f601", id="astral characters"),
        pytest.param("\U0001f600", "?", id="an astral character and its replacement"),
        pytest.param("order", "order\u200b", id="a zero width space"),
        pytest.param("1", "01", id="a leading zero"),
    ],
)
def test_r01_keys_that_differ_in_a_code_point_are_two_keys(one: str, other: str) -> None:
    """R01."""
    assert Identity.of(SCOPE, one) != Identity.of(SCOPE, other)


@given(st.text(min_size=1, max_size=MAX_KEY_LENGTH))
def test_r01_a_key_is_taken_as_it_is(key: str) -> None:
    """R01: not trimmed, folded, normalised or checked for a format."""
    assert validate_key(key) == key


@given(st.text(min_size=1), st.sampled_from([str.upper, str.strip, str.casefold]))
def test_r01_a_key_and_its_folded_or_trimmed_form_are_one_key_only_where_they_are_one_text(
    key: str, change: Callable[[str], str]
) -> None:
    """R01."""
    assert (digest(key) == digest(change(key))) is (key == change(key))


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
@given(key=st.text(alphabet="aé\u0301ﬁÅ\u212b", min_size=1))
def test_r01_a_key_and_its_normal_form_are_one_key_only_where_they_are_one_text(form: str, key: str) -> None:
    """R01."""
    normal = unicodedata.normalize(form, key)  # type: ignore[arg-type]

    assert (digest(key) == digest(normal)) is (key == normal)


def test_r01_an_identity_is_two_hexadecimal_sha_256_digests() -> None:
    """R01: ASCII of a fixed length, which no collation and no index limit can merge or refuse."""
    identity = Identity.of(SCOPE, "\U0001f600" * MAX_KEY_LENGTH)

    for part in (identity.scope_digest, identity.key_digest):
        assert len(part) == 64
        assert set(part) <= set("0123456789abcdef")


def test_r10_a_digest_never_changes() -> None:
    """R10: a record is found by it after every upgrade."""
    assert digest("é", "") == "f48aa107ce279182a70c763fad46fd34c1678a6f48ab90aba1b4d4a95abc0f87"
    assert SCOPE.digest == "a7bcb878c8dc802354ef873b60099ed1e23940fd4ed93fe1fb13c7f679d75e2c"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(("ab", "c"), ("a", "bc"), id="a moved border"),
        pytest.param(("a",), ("a", ""), id="an empty part"),
        pytest.param((), ("",), id="no part"),
        pytest.param(("a", "b"), ("b", "a"), id="order"),
        pytest.param(("a1:b",), ("a", "b"), id="a part that spells a length"),
        pytest.param(("é",), ("e\u0301",), id="NFC and NFD"),
    ],
)
def test_different_lists_of_parts_have_different_digests(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert digest(*one) != digest(*other)


@given(two_lists)
def test_no_two_lists_of_parts_share_a_digest(lists: tuple[list[str], list[str]]) -> None:
    one, other = lists

    assert (digest(*one) == digest(*other)) is (one == other)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Scope(endpoint="staff", kind="user", subject="1"), id="endpoint"),
        pytest.param(Scope(endpoint="mcp", kind="client", subject="1"), id="kind"),
        pytest.param(Scope(endpoint="mcp", kind="user", subject="2"), id="subject"),
        pytest.param(Scope(endpoint="mcp", kind="user", subject="1", client="app"), id="client"),
        pytest.param(Scope(endpoint="mc", kind="puser", subject="1"), id="a moved border"),
    ],
)
def test_r18_the_same_key_in_another_scope_is_another_record(other: Scope) -> None:
    """R18."""
    assert Identity.of(SCOPE, "k") != Identity.of(other, "k")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="null"),
        pytest.param(True, id="true"),
        pytest.param(0, id="0"),
        pytest.param(1, id="1"),
        pytest.param(1.5, id="1.5"),
        pytest.param([], id="an array"),
        pytest.param(["k"], id="an array with a key"),
        pytest.param({}, id="an object"),
        pytest.param(b"k", id="bytes"),
        pytest.param("", id="empty"),
        pytest.param("k" * 256, id="256 characters"),
        pytest.param("\U0001f600" * 256, id="256 emoji"),
    ],
)
def test_r02_what_cannot_be_a_key_is_refused(value: object) -> None:
    """R02."""
    with pytest.raises(InvalidKey):
        validate_key(value)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("k", id="one character"),
        pytest.param(" ", id="a space"),
        pytest.param("\x00", id="NUL"),
        pytest.param("k" * 255, id="255 characters"),
        pytest.param("\U0001f600" * 255, id="255 emoji of 1020 bytes"),
        pytest.param("e\u0301" * 127, id="254 code points of 127 characters"),
    ],
)
def test_r02_length_counts_code_points_and_nothing_else_is_checked(key: str) -> None:
    """R02."""
    assert validate_key(key) == key


@given(st.text(alphabet=st.characters()) | st.text(alphabet="\x00\x1b\x7f\u0085\u202e\U0001f600\\\n", max_size=40))
def test_the_preview_of_any_key_is_short_printable_ascii(key: str) -> None:
    shown = preview(key)

    assert len(shown) <= PREVIEW_LENGTH
    assert shown.isascii()
    assert shown.isprintable()


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        pytest.param("order-1", "order-1", id="as it is"),
        pytest.param("é", r"\xe9", id="latin"),
        pytest.param("\U0001f600", r"\U0001f600", id="astral"),
        pytest.param("a\n\x00b", r"a\x0a\x00b", id="control characters"),
        pytest.param("<b>", "<b>", id="markup is left to the template"),
        pytest.param("k" * 32, "k" * 32, id="32 characters"),
        pytest.param("k" * 33, "k" * 29 + "...", id="33 characters"),
    ],
)
def test_the_preview_shows_how_a_key_begins(key: str, shown: str) -> None:
    assert preview(key) == shown
