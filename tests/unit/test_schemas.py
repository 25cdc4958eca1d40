"""What a tool takes: type hints as a schema, and what was sent as keyword arguments (R11, R22)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict  # pydantic takes that of typing from Python 3.12 on

from django_mcp_idem.schemas import REFUSAL_LENGTH, Arguments, InvalidArguments, WrittenArguments

from .strategies import JSON, values


class Currency(Enum):
    EURO = "EUR"
    YEN = "JPY"


class Line(BaseModel):
    """One line of an order."""

    article: str
    count: Annotated[int, Field(ge=1)] = 1


class Order(BaseModel):
    model_config = ConfigDict(title="An order")

    line_items: list[Line] = Field(alias="lineItems", description="What is ordered.")
    note: str | None = None


class Part(BaseModel):
    parts: list[Part] = []


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("must be even")
        return number


class Address(TypedDict):
    street: str
    number: int


def arguments_of(function: Callable[..., Any]) -> Arguments:
    return Arguments(inspect.signature(function, eval_str=True).parameters)


def takes_nothing() -> None: ...


def takes_simple(number: int, text: str, ratio: float, flag: bool) -> None: ...


def takes_defaults(number: int, text: str = "x", maybe: int | None = None, *, many: list[int] = []) -> None: ...  # noqa: B006


def takes_constraints(
    amount: Annotated[int, Field(ge=1, le=100, description="In cents.")],
    code: Annotated[str, Field(min_length=2, pattern="^[A-Z]+$")] = "EUR",
) -> None: ...


def takes_order(order: Order) -> None: ...


def takes_part(part: Part) -> None: ...


def takes_even(even: Even) -> None: ...


def takes_anything(value: Any) -> None: ...


def takes_names_of_pydantic(
    copy: int, schema: str, _id: int, self: int, model_config: int = 1, argument_0: int = 2, json: int = 3
) -> None: ...


def takes_python_types(
    day: date, price: Decimal, currency: Currency, size: Literal["s", "m"], address: Address
) -> None: ...


def takes_numbers(number: int, numbers: list[int], named: dict[str, float]) -> None: ...


@pytest.mark.parametrize(
    ("function", "schema"),
    [
        pytest.param(takes_nothing, {"type": "object", "properties": {}, "additionalProperties": False}, id="nothing"),
        pytest.param(
            takes_simple,
            {
                "type": "object",
                "properties": {
                    "number": {"type": "integer"},
                    "text": {"type": "string"},
                    "ratio": {"type": "number"},
                    "flag": {"type": "boolean"},
                },
                "required": ["number", "text", "ratio", "flag"],
                "additionalProperties": False,
            },
            id="simple types",
        ),
        pytest.param(
            takes_defaults,
            {
                "type": "object",
                "properties": {
                    "number": {"type": "integer"},
                    "text": {"type": "string", "default": "x"},
                    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                    "many": {"type": "array", "items": {"type": "integer"}, "default": []},
                },
                "required": ["number"],
                "additionalProperties": False,
            },
            id="defaults",
        ),
        pytest.param(
            takes_constraints,
            {
                "type": "object",
                "properties": {
                    "amount": {"type": "integer", "minimum": 1, "maximum": 100, "description": "In cents."},
                    "code": {"type": "string", "minLength": 2, "pattern": "^[A-Z]+$", "default": "EUR"},
                },
                "required": ["amount"],
                "additionalProperties": False,
            },
            id="constraints and descriptions",
        ),
        pytest.param(
            takes_order,
            {
                "type": "object",
                "properties": {"order": {"$ref": "#/$defs/Order"}},
                "required": ["order"],
                "additionalProperties": False,
                "$defs": {
                    "Order": {
                        "type": "object",
                        "properties": {
                            "lineItems": {
                                "type": "array",
                                "items": {"$ref": "#/$defs/Line"},
                                "description": "What is ordered.",
                            },
                            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                        },
                        "required": ["lineItems"],
                    },
                    "Line": {
                        "type": "object",
                        "description": "One line of an order.",
                        "properties": {
                            "article": {"type": "string"},
                            "count": {"type": "integer", "minimum": 1, "default": 1},
                        },
                        "required": ["article"],
                    },
                },
            },
            id="models",
        ),
        pytest.param(
            takes_anything,
            {"type": "object", "properties": {"value": {}}, "required": ["value"], "additionalProperties": False},
            id="anything",
        ),
    ],
)
def test_type_hints_become_the_schema(function: Callable[..., Any], schema: dict[str, JSON]) -> None:
    assert arguments_of(function).schema == schema


@pytest.mark.parametrize(
    "function",
    [takes_nothing, takes_simple, takes_defaults, takes_constraints, takes_order, takes_part, takes_python_types],
    ids=lambda function: function.__name__,
)
def test_every_schema_is_a_json_schema_of_an_object(function: Callable[..., Any]) -> None:
    schema = arguments_of(function).schema

    Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"


@pytest.mark.parametrize(
    ("function", "sent", "received"),
    [
        pytest.param(takes_nothing, {}, {}, id="nothing"),
        pytest.param(
            takes_simple,
            {"number": 1, "text": "1", "ratio": 1.5, "flag": True},
            {"number": 1, "text": "1", "ratio": 1.5, "flag": True},
            id="simple types",
        ),
        pytest.param(takes_defaults, {"number": 1}, {"number": 1}, id="defaults are left to the function"),
        pytest.param(
            takes_defaults,
            {"number": 1, "text": "", "maybe": None, "many": [2]},
            {"number": 1, "text": "", "maybe": None, "many": [2]},
            id="a null that was sent is no default",
        ),
        pytest.param(
            takes_names_of_pydantic,
            {"copy": 1, "schema": "s", "_id": 2, "self": 3, "argument_0": 4},
            {"copy": 1, "schema": "s", "_id": 2, "self": 3, "argument_0": 4},
            id="names that pydantic has itself",
        ),
        pytest.param(
            takes_order,
            {"order": {"lineItems": [{"article": "a", "count": 2}]}},
            {"order": Order(lineItems=[Line(article="a", count=2)])},
            id="models",
        ),
        pytest.param(
            takes_part, {"part": {"parts": [{}]}}, {"part": Part(parts=[Part()])}, id="a model that contains itself"
        ),
        pytest.param(
            takes_python_types,
            {
                "day": "2026-07-28",
                "price": "9.90",
                "currency": "EUR",
                "size": "m",
                "address": {"street": "s", "number": 1},
            },
            {
                "day": date(2026, 7, 28),
                "price": Decimal("9.90"),
                "currency": Currency.EURO,
                "size": "m",
                "address": {"street": "s", "number": 1},
            },
            id="types of Python",
        ),
        pytest.param(
            takes_numbers,
            {"number": 1.0, "numbers": [2.0, -0.0, 2**53 + 1], "named": {"x": 1, "y": 0.5}},
            {"number": 1, "numbers": [2, 0, 2**53 + 1], "named": {"x": 1.0, "y": 0.5}},
            id="whole numbers in another spelling",
        ),
        pytest.param(
            takes_numbers,
            {"number": 2**70, "numbers": [-(2**64) - 1], "named": {}},
            {"number": 2**70, "numbers": [-(2**64) - 1], "named": {}},
            id="integers above 64 bits",
        ),
        pytest.param(
            takes_numbers,
            {"number": 1e23, "numbers": [], "named": {}},
            {"number": 10**23, "numbers": [], "named": {}},
            id="an integer above 64 bits in another spelling",
        ),
    ],
)
def test_r11_the_function_is_given_what_was_sent(
    function: Callable[..., Any], sent: dict[str, JSON], received: dict[str, Any]
) -> None:
    """R11: ``repr`` tells ``1`` from ``1.0`` and from ``True``."""
    assert repr(arguments_of(function).bind(sent)) == repr(received)


@given(values())
def test_r11_a_parameter_of_any_type_is_given_exactly_what_was_sent(value: JSON) -> None:
    """R11."""
    assert repr(arguments_of(takes_anything).bind({"value": value})) == repr({"value": value})


@pytest.mark.parametrize(
    ("function", "sent", "message"),
    [
        pytest.param(takes_nothing, {"x": 1}, "x", id="an unknown argument"),
        pytest.param(takes_defaults, {"number": 1, "Text": "x"}, "Text", id="a name in another case"),
        pytest.param(takes_simple, {}, "number", id="nothing sent"),
        pytest.param(takes_defaults, {"number": True}, "number", id="true is no integer"),
        pytest.param(takes_defaults, {"number": "1"}, "number", id="a text is no integer"),
        pytest.param(takes_defaults, {"number": 1.5}, "number", id="a fraction is no integer"),
        pytest.param(takes_defaults, {"number": None}, "number", id="null is no integer"),
        pytest.param(takes_defaults, {"number": [1]}, "number", id="an array is no integer"),
        pytest.param(takes_defaults, {"number": 1, "text": 1}, "text", id="a number is no text"),
        pytest.param(takes_defaults, {"number": 1, "text": None}, "text", id="null is no text"),
        pytest.param(takes_defaults, {"number": 1, "maybe": "1"}, "maybe", id="a text is neither integer nor null"),
        pytest.param(takes_defaults, {"number": 1, "many": {}}, "many", id="an object is no array"),
        pytest.param(takes_defaults, {"number": 1, "many": [1, True]}, r"many\.1", id="true is no integer in an array"),
        pytest.param(
            takes_simple, {"number": 1, "text": "", "ratio": "1", "flag": True}, "ratio", id="a text is no number"
        ),
        pytest.param(
            takes_simple, {"number": 1, "text": "", "ratio": True, "flag": True}, "ratio", id="true is no number"
        ),
        pytest.param(takes_simple, {"number": 1, "text": "", "ratio": 1, "flag": 1}, "flag", id="1 is no boolean"),
        pytest.param(
            takes_simple, {"number": 1, "text": "", "ratio": 1, "flag": "true"}, "flag", id="a text is no boolean"
        ),
        pytest.param(takes_constraints, {"amount": 0}, "amount", id="too small"),
        pytest.param(takes_constraints, {"amount": 101}, "amount", id="too large"),
        pytest.param(takes_constraints, {"amount": 1, "code": "E"}, "code", id="too short"),
        pytest.param(takes_constraints, {"amount": 1, "code": "eur"}, "code", id="not by the pattern"),
        pytest.param(takes_order, {"order": {}}, "lineItems", id="a member is missing"),
        pytest.param(takes_order, {"order": {"line_items": []}}, "lineItems", id="a member by its Python name"),
        pytest.param(
            takes_order,
            {"order": {"lineItems": [{"article": "a"}, {"article": "b", "count": 0}]}},
            r"order\.lineItems\.1\.count",
            id="deep inside",
        ),
        pytest.param(takes_even, {"even": {"number": 3}}, r"even\.number.*even", id="a validator of the author's"),
        pytest.param(takes_names_of_pydantic, {"argument_1": 1}, "argument_1", id="a name that nobody declared"),
    ],
)
def test_r22_what_does_not_fit_is_refused_by_its_place(
    function: Callable[..., Any], sent: dict[str, JSON], message: str
) -> None:
    """R22: before anything is run, with a message by which the model can mend it."""
    with pytest.raises(InvalidArguments, match=message):
        arguments_of(function).bind(sent)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("day", "2026-02-30", id="no such day"),
        pytest.param("price", "many", id="no decimal"),
        pytest.param("currency", "USD", id="no member of the enumeration"),
        pytest.param("size", "l", id="no such literal"),
        pytest.param("address", {"street": "s"}, id="a key is missing"),
    ],
)
def test_r22_what_python_cannot_convert_is_refused(field: str, value: JSON) -> None:
    """R22."""
    sent = {
        "day": "2026-07-28",
        "price": 1,
        "currency": "JPY",
        "size": "s",
        "address": {"street": "s", "number": 1},
        field: value,
    }

    with pytest.raises(InvalidArguments, match=field):
        arguments_of(takes_python_types).bind(sent)


@pytest.mark.parametrize(
    ("function", "sent"),
    [
        pytest.param(takes_defaults, {"number": "x" * 100_000}, id="a long text"),
        pytest.param(takes_defaults, {"number": [0] * 100_000}, id="a long array"),
        pytest.param(takes_defaults, {"number": 1, "x" * 100_000: 1}, id="a long name"),
    ],
)
def test_r22_a_refusal_does_not_repeat_a_long_argument(function: Callable[..., Any], sent: dict[str, JSON]) -> None:
    """R22."""
    with pytest.raises(InvalidArguments) as refused:
        arguments_of(function).bind(sent)

    assert len(str(refused.value)) <= REFUSAL_LENGTH


def test_binding_leaves_what_was_sent_unchanged() -> None:
    """What was sent is fingerprinted and compared."""
    sent: dict[str, JSON] = {"order": {"lineItems": [{"article": "a"}]}}

    arguments_of(takes_order).bind(sent)

    assert sent == {"order": {"lineItems": [{"article": "a"}]}}


CONTACT: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 1}, "at": {"$ref": "#place"}},
    "$defs": {"place": {"$anchor": "place", "enum": ["home", "work"]}},
    "if": {"required": ["name"]},
    "then": {"required": ["at"]},
}


def takes_contact(contact: dict[str, Any]) -> None: ...


def takes_mapping(contact: Mapping[str, Any]) -> None: ...


def takes_bare_dict(contact: dict) -> None: ...  # type: ignore[type-arg]


def takes_address(contact: Address) -> None: ...


def takes_name(name: str) -> None: ...


def takes_two(name: dict[str, Any], age: int) -> None: ...


def written(schema: dict[str, Any], function: Callable[..., Any] = takes_contact) -> WrittenArguments:
    return WrittenArguments(schema, inspect.signature(function, eval_str=True).parameters)


@pytest.mark.parametrize(
    "function",
    [takes_contact, takes_mapping, takes_bare_dict, takes_address],
    ids=lambda function: function.__name__,
)
def test_r11_by_a_schema_of_the_authors_all_arguments_are_given_in_one_as_they_were_sent(
    function: Callable[..., Any],
) -> None:
    """R11: neither converted nor filled in."""
    arguments = written(CONTACT, function)
    sent = {"age": 4.0, "at": "home", "more": [2**64 + 1, True]}

    assert arguments.schema is CONTACT
    assert repr(arguments.bind(sent)) == repr({"contact": sent})


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        pytest.param({"name": "x"}, "'at' is a required property", id="a condition"),
        pytest.param({"age": "1"}, "age: '1' is not of type 'integer'", id="a type"),
        pytest.param({"at": "sea"}, "at: 'sea' is not one of", id="a reference"),
    ],
)
def test_r22_arguments_that_do_not_fit_a_schema_of_the_authors_are_refused(sent: dict[str, JSON], message: str) -> None:
    """R22."""
    with pytest.raises(InvalidArguments, match=message):
        written(CONTACT).bind(sent)


def test_a_schema_of_the_authors_is_read_by_the_draft_that_it_names() -> None:
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    tuples = {"properties": {"pair": {"items": [{"type": "integer"}]}}}

    with pytest.raises(InvalidArguments, match="pair"):
        written({**draft_7, **tuples}).bind({"pair": ["x"]})
    with pytest.raises(TypeError, match="no JSON schema"):
        written({"type": "object", **tuples})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        pytest.param({"type": "object", "properties": []}, "no JSON schema", id="no schema"),
        pytest.param({"type": "object", "required": "name"}, "no JSON schema", id="a text for a list"),
        pytest.param({"type": "object", "$schema": "https://example.com/x"}, "not known", id="an unknown draft"),
        pytest.param({"type": "object", "$schema": 5}, "not known", id="a draft that is none"),
        pytest.param({}, '"type": "object"', id="of anything"),
        pytest.param({"type": ["object", "null"]}, '"type": "object"', id="of more than objects"),
        pytest.param({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}, '"type": "object"', id="by reference"),
        pytest.param({"type": "object", "items": {"$ref": "#/$defs/a"}}, "'/\\$defs/a'", id="to what is not there"),
        pytest.param(
            {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "https://example.com/a"}]}}},
            "'https://example.com/a'",
            id="to another server",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": {"$dynamicRef": "https://example.com/a"}},
            "'https://example.com/a'",
            id="to another server, dynamically",
        ),
    ],
)
def test_what_is_no_schema_of_an_object_on_its_own_is_refused(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        written(schema)


def test_what_looks_like_a_reference_and_is_data_is_none() -> None:
    data = {"$ref": "https://example.com/a"}

    assert written({"type": "object", "properties": {"a": {"const": data}}}).bind({"a": data}) == {
        "contact": {"a": data}
    }


def test_a_reference_is_resolved_from_where_it_stands() -> None:
    part = {"$id": "https://example.com/part", "$defs": {"a": {"type": "integer"}}, "$ref": "#/$defs/a"}

    with pytest.raises(InvalidArguments, match="part"):
        written({"type": "object", "properties": {"part": part}}).bind({"part": "x"})


@pytest.mark.parametrize("function", [takes_nothing, takes_name, takes_two, takes_order, takes_anything])
def test_a_function_that_does_not_take_one_mapping_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="arguments: dict"):
        written({"type": "object"}, function)
