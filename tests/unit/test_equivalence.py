"""When two calls are the same call (R08, R09, R10)."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from django_mcp_idem import jsontext
from django_mcp_idem.idempotency.equivalence import UnknownVersion, canonical_form, fingerprint

from .strategies import JSON, arguments, leaves, spell, values

# Leaves that are close to each other, so that equivalent pairs come up as often as others.
neighbours: st.SearchStrategy[JSON] = st.sampled_from(
    [None, False, True, 0, -0.0, 1, 1.0, 1.5, "", "0", "1", 2**53, 2.0**53, 2**53 + 1, 10**23, 1e23, "é", "e\u0301"]
)
randoms: st.SearchStrategy[Random] = st.randoms(use_true_random=False)


def fingerprint_of(text: str) -> str:
    """The fingerprint of a call whose arguments were sent as the JSON object ``text``."""
    return fingerprint("tool", jsontext.parse(text.encode()))


def equivalent(one: JSON, other: JSON) -> bool:
    """R08, read plainly and without regard to speed."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equivalent(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equivalent, one, other))
    if is_number(one) and is_number(other):
        return Decimal(repr(one)) == Decimal(repr(other))
    return type(one) is type(other) and one == other


def is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@st.composite
def spelled_twice(draw: st.DrawFn) -> tuple[dict[str, JSON], str, str]:
    """Arguments, and two JSON texts of them whose spellings were chosen independently."""
    value = draw(arguments())
    return value, spell(value, draw(randoms)), spell(value, draw(randoms))


@st.composite
def changed_in_one_leaf(draw: st.DrawFn) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """Arguments, and the same with one leaf replaced by another that is not equivalent to it."""
    before = draw(arguments().filter(bool))
    path = draw(st.sampled_from(paths_of_leaves(before)))
    leaf: JSON = before
    for step in path:
        leaf = leaf[step]  # type: ignore[index]
    replacement = draw(leaves | neighbours | st.just([]) | st.just({}))
    assume(not equivalent(leaf, replacement))
    after = replaced(before, path, replacement)
    assert isinstance(after, dict)
    return before, after


def paths_of_leaves(value: JSON) -> list[tuple[str | int, ...]]:
    """Where the leaves of ``value`` are; an empty list or object is one."""
    steps: list[tuple[str | int, JSON]] = []
    if isinstance(value, dict):
        steps = list(value.items())
    elif isinstance(value, list):
        steps = list(enumerate(value))
    return [(step, *path) for step, child in steps for path in paths_of_leaves(child)] or [()]


def replaced(value: JSON, path: tuple[str | int, ...], replacement: JSON) -> JSON:
    """``value`` with what is at ``path`` replaced."""
    if not path:
        return replacement
    step, *rest = path
    if isinstance(value, dict):
        return {name: replaced(v, tuple(rest), replacement) if name == step else v for name, v in value.items()}
    assert isinstance(value, list)
    return [replaced(v, tuple(rest), replacement) if at == step else v for at, v in enumerate(value)]


@given(spelled_twice())
def test_r08_member_order_white_space_escapes_and_the_spelling_of_numbers_do_not_matter(
    case: tuple[dict[str, JSON], str, str],
) -> None:
    """R08."""
    value, one, other = case

    assert fingerprint_of(one) == fingerprint_of(other) == fingerprint("tool", value)


@given(changed_in_one_leaf(), randoms)
def test_r08_a_change_of_any_one_leaf_makes_another_call(
    case: tuple[dict[str, JSON], dict[str, JSON]], random: Random
) -> None:
    """R08."""
    before, after = case

    assert fingerprint_of(spell(before, random)) != fingerprint_of(spell(after, random))


@given(arguments(neighbours), arguments(neighbours))
def test_r08_fingerprints_are_equal_exactly_where_the_arguments_are_equivalent(
    one: dict[str, JSON], other: dict[str, JSON]
) -> None:
    """R08."""
    assert (fingerprint("tool", one) == fingerprint("tool", other)) is equivalent(one, other)


@given(neighbours, neighbours, neighbours)
def test_r08_equivalence_is_reflexive_symmetric_and_transitive(one: JSON, two: JSON, three: JSON) -> None:
    """R08: it is equality of canonical forms, so it is enough that the forms are those of R08's relation."""
    first, second, third = (canonical_form([leaf]) for leaf in (one, two, three))

    assert first == canonical_form([one])
    assert (first == second) is equivalent(one, two) is equivalent(two, one)
    assert first == third or not (equivalent(one, two) and equivalent(two, three))


@given(values())
def test_r10_the_canonical_form_of_a_canonical_form_is_itself(value: JSON) -> None:
    """R10."""
    canonical = canonical_form(value)

    assert canonical_form(jsontext.parse(canonical.encode())) == canonical


@given(values())
def test_r10_the_canonical_form_is_ascii(value: JSON) -> None:
    """R10: so that no encoding can change it."""
    assert canonical_form(value).isascii()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param('{"a":1,"b":2}', '{"b":2,"a":1}', id="member order"),
        pytest.param('{"a":{"x":1,"y":2}}', '{"a":{"y":2,"x":1}}', id="member order inside"),
        pytest.param('{"a":[1,2]}', ' {\n"a" : [ 1 ,\t2 ]\r\n} ', id="white space"),
        pytest.param('{"a":"A/é"}', r'{"\u0061":"\u0041\/\u00E9"}', id="escapes"),
        pytest.param('{"a":"\U0001f600"}', r'{"a":"\ud83d\uDE00"}', id="a surrogate pair"),
        pytest.param('{"a":1}', '{"a":1.0}', id="1 and 1.0"),
        pytest.param('{"a":1}', '{"a":1e0}', id="1 and 1e0"),
        pytest.param('{"a":1}', '{"a":10e-1}', id="1 and 10e-1"),
        pytest.param('{"a":1}', '{"a":100E-2}', id="1 and 100E-2"),
        pytest.param('{"a":-1}', '{"a":-1.00}', id="-1 and -1.00"),
        pytest.param('{"a":1.5}', '{"a":15e-1}', id="1.5 and 15e-1"),
        pytest.param('{"a":0}', '{"a":-0}', id="0 and -0"),
        pytest.param('{"a":0}', '{"a":-0.0}', id="0 and -0.0"),
        pytest.param('{"a":0.0}', '{"a":-0e9}', id="0.0 and -0e9"),
        pytest.param('{"a":1e23}', '{"a":100000000000000000000000}', id="1e23 and its digits"),
        pytest.param('{"a":1E+300}', '{"a":1' + "0" * 300 + "}", id="1e300 and its digits"),
        pytest.param('{"a":9007199254740992}', '{"a":9007199254740992.0}', id="2^53 as a double"),
        pytest.param('{"a":1,"a":2}', '{"a":2}', id="of members with one name the last"),
    ],
)
def test_r08_equivalent_arguments_have_one_fingerprint(one: str, other: str) -> None:
    """R08."""
    assert fingerprint_of(one) == fingerprint_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param('{"a":true}', '{"a":1}', id="true and 1"),
        pytest.param('{"a":false}', '{"a":0}', id="false and 0"),
        pytest.param('{"a":"1"}', '{"a":1}', id="a string and a number"),
        pytest.param('{"a":"true"}', '{"a":true}', id="a string and a boolean"),
        pytest.param('{"a":null}', "{}", id="null and absent"),
        pytest.param('{"a":null}', '{"a":"null"}', id="null and its name"),
        pytest.param('{"a":null}', '{"a":0}', id="null and 0"),
        pytest.param('{"a":""}', '{"a":null}', id="empty text and null"),
        pytest.param('{"a":[]}', '{"a":{}}', id="an empty array and an empty object"),
        pytest.param('{"a":[1,2]}', '{"a":[2,1]}', id="array order"),
        pytest.param('{"a":[[1],2]}', '{"a":[1,[2]]}', id="array nesting"),
        pytest.param('{"a":[1]}', '{"a":1}', id="an array of one"),
        pytest.param('{"a":[null]}', '{"a":[]}', id="an array of null"),
        pytest.param('{"a":{"b":1}}', '{"a":1,"b":1}', id="object nesting"),
        pytest.param('{"a":1}', '{"b":1}', id="member names"),
        pytest.param('{"a":1}', '{"A":1}', id="the case of a member name"),
        pytest.param('{"a":"x"}', '{"a":"X"}', id="the case of a text"),
        pytest.param('{"a":"x"}', '{"a":"x "}', id="a trailing space"),
        pytest.param('{"a":"é"}', '{"a":"e\u0301"}', id="NFC and NFD"),
        pytest.param('{"é":1}', '{"e\u0301":1}', id="NFC and NFD of a member name"),
        pytest.param('{"a":"ﬁ"}', '{"a":"fi"}', id="a ligature"),
        pytest.param('{"a":1}', '{"a":-1}', id="sign"),
        pytest.param('{"a":9007199254740992}', '{"a":9007199254740993}', id="2^53 and 2^53+1"),
        pytest.param('{"a":18446744073709551616}', '{"a":18446744073709551617}', id="2^64 and 2^64+1"),
        pytest.param('{"a":1e23}', '{"a":99999999999999991611392}', id="1e23 and its binary neighbour"),
        pytest.param('{"a":0.1}', '{"a":0.10000000000000002}', id="0.1 and the next double"),
        pytest.param('{"a":5e-324}', '{"a":0}', id="the smallest double and 0"),
    ],
)
def test_r08_arguments_that_differ_have_different_fingerprints(one: str, other: str) -> None:
    """R08."""
    assert fingerprint_of(one) != fingerprint_of(other)


def test_r09_the_name_of_the_tool_is_part_of_the_fingerprint() -> None:
    """R09."""
    assert fingerprint("charge", {"a": 1}) != fingerprint("refund", {"a": 1})


def test_r09_the_name_and_the_arguments_cannot_run_into_each_other() -> None:
    """R09."""
    assert fingerprint("tool{}", {}) != fingerprint("tool", {"{}": None})
    assert fingerprint("", {}) != fingerprint("{}", {})


GOLDEN_ARGUMENTS = r"""
{"text": "é\ud83d\ude00\u0000/", "whole": 1.0, "big": 18446744073709551617, "huge": 1e23, "part": -0.25, "zero": -0.0,
 "no": null, "yes": true, "list": [{"b": 2, "a": []}, "", 1e-7]}
"""
GOLDEN_CANONICAL_FORM = (
    '{"big":18446744073709551617,"huge":100000000000000000000000,"list":[{"a":[],"b":2},"",1e-07],"no":null,'
    r'"part":-0.25,"text":"\u00e9\ud83d\ude00\u0000/","whole":1,"yes":true,"zero":0}'
)
GOLDEN_FINGERPRINT = "4bcc01821d41159f823af1bfd79b619ef08fa1fb270f96fa5e6cac1820cdc944"


def test_r10_the_fingerprint_of_version_1_never_changes() -> None:
    """R10: a record made by any release is found equal by every later one."""
    parsed = jsontext.parse(GOLDEN_ARGUMENTS.encode())

    assert canonical_form(parsed) == GOLDEN_CANONICAL_FORM
    assert fingerprint("charge_payment", parsed, version=1) == GOLDEN_FINGERPRINT


@pytest.mark.parametrize("seed", ["0", "1", "4294967295"])
def test_r10_another_process_with_another_hash_seed_makes_the_same_fingerprint(seed: str) -> None:
    """R10."""
    program = (
        "import sys\n"
        "from django_mcp_idem import jsontext\n"
        "from django_mcp_idem.idempotency.equivalence import fingerprint\n"
        "print(fingerprint('charge_payment', jsontext.parse(sys.stdin.buffer.read())))\n"
    )

    process = subprocess.run(
        [sys.executable, "-c", program],
        input=GOLDEN_ARGUMENTS.encode(),
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=True,
    )

    assert process.stdout.decode().strip() == GOLDEN_FINGERPRINT


@pytest.mark.parametrize("version", [0, 2, -1])
def test_r10_a_version_that_this_release_does_not_have_is_an_error(version: int) -> None:
    """R10: and neither a match nor a conflict."""
    with pytest.raises(UnknownVersion):
        fingerprint("tool", {}, version=version)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_r08_what_json_does_not_have_has_no_fingerprint(number: float) -> None:
    """R08."""
    with pytest.raises(ValueError, match="JSON"):
        fingerprint("tool", {"a": [number]})
