"""JSON values, and the many ways that each of them can be spelled."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import TypeAlias

from hypothesis import strategies as st

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

SHORT_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}

integers: st.SearchStrategy[int] = st.integers() | st.integers(-(10**40), 10**40)
floats: st.SearchStrategy[float] = st.floats(allow_nan=False, allow_infinity=False)
leaves: st.SearchStrategy[JSON] = st.none() | st.booleans() | integers | floats | st.text(max_size=8)


def values(leaf: st.SearchStrategy[JSON] = leaves) -> st.SearchStrategy[JSON]:
    """JSON values of any shape, made of the given leaves."""
    return st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
        max_leaves=12,
    )


def arguments(leaf: st.SearchStrategy[JSON] = leaves) -> st.SearchStrategy[dict[str, JSON]]:
    """The arguments of a call."""
    return st.dictionaries(st.text(max_size=4), values(leaf), max_size=4)


def spell(value: JSON, random: Random) -> str:
    """A JSON text of ``value``, its spelling chosen by ``random`` wherever JSON leaves a choice."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _spell_number(value, random)
        case str():
            return _spell_text(value, random)
        case list():
            items = [_space(random) + spell(item, random) + _space(random) for item in value]
            return f"[{','.join(items) or _space(random)}]"
        case dict():
            members = [
                f"{_space(random)}{_spell_text(name, random)}{_space(random)}:{_space(random)}{spell(member, random)}"
                for name, member in value.items()
            ]
            random.shuffle(members)
            return f"{{{','.join(members)}{_space(random)}}}"


def _space(random: Random) -> str:
    return random.choice(["", "", " ", "\n", "\r\n", "\t", "  "])


def _spell_text(text: str, random: Random) -> str:
    return f'"{"".join(_spell_character(character, random) for character in text)}"'


def _spell_character(character: str, random: Random) -> str:
    units = character.encode("utf-16-be")
    escape = "".join(f"\\u{int.from_bytes(units[at : at + 2]):04x}" for at in range(0, len(units), 2))
    spellings = [escape, escape.upper().replace("\\U", "\\u")]
    if character in SHORT_ESCAPES:
        spellings.append(SHORT_ESCAPES[character])
    if character >= " " and character not in '"\\':
        spellings.append(character)
    return random.choice(spellings)


def _spell_number(number: int | float, random: Random) -> str:
    if number == 0:
        return random.choice(["0", "-0", "0.0", "-0.0", "0e0", "-0E+7", "0.00e-3"])
    decimal = Decimal(repr(number))
    if decimal == decimal.to_integral_value() and int(Decimal(repr(float(decimal)))) != decimal:
        # No double is spelled like this integer: an exponent or a point would name another number.
        return str(int(decimal))
    sign, digits, exponent = decimal.as_tuple()
    assert isinstance(exponent, int)
    zeros = random.randint(0, 3)
    text = "".join(map(str, digits)) + "0" * zeros
    point = random.randint(0, len(text))
    exponent += len(text) - point - zeros
    whole, fraction = text[:point] or "0", text[point:]
    mantissa = f"{'-' * sign}{whole}{'.' if fraction else ''}{fraction}"
    if exponent == 0 and random.random() < 0.5:
        return mantissa
    return f"{mantissa}{random.choice('eE')}{random.choice(['', '+', '+0']) if exponent >= 0 else ''}{exponent}"
