"""What a tool gives back: return values as results (R06)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, NoReturn

import pytest
from hypothesis import given
from mcp_types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    ImageContent,
    InputRequiredResult,
    ResourceLink,
    TextContent,
)
from pydantic import BaseModel, Field, PydanticUserError
from typing_extensions import TypedDict  # pydantic takes that of typing from Python 3.12 on

from django_mcp_idem import jsontext
from django_mcp_idem.results import Returns, error_result

from .strategies import JSON, values


class Receipt(BaseModel):
    """Proof of a payment."""

    unit_price: float = Field(alias="unitPrice")
    paid_on: date | None = None


@dataclass
class Point:
    x: int
    receipt: Receipt | None = None


class Counts(TypedDict):
    payments: int


class Tree(BaseModel):
    trees: list[Tree] = []


class Anything(BaseModel):
    value: Any


RECEIPT = Receipt(unitPrice=9.5, paid_on=date(2026, 7, 28))
PLAIN_RECEIPT: JSON = {"unitPrice": 9.5, "paid_on": "2026-07-28"}
TEXT = TextContent(text="t")
PLAIN_TEXT: JSON = {"type": "text", "text": "t"}
QUESTION = InputRequiredResult(request_state="s1")


def structured(value: JSON, text: str) -> dict[str, JSON]:
    """The result whose structured content is ``value``."""
    return {
        "resultType": "complete",
        "content": [{"type": "text", "text": text}],
        "isError": False,
        "structuredContent": value,
    }


def content(*blocks: JSON) -> dict[str, JSON]:
    """The result whose content is ``blocks``, and which has no structured content."""
    return {"resultType": "complete", "content": list(blocks), "isError": False}


@pytest.mark.parametrize(
    ("annotation", "value", "result"),
    [
        pytest.param(int, 5, structured(5, "5"), id="int"),
        pytest.param(int, 0, structured(0, "0"), id="zero"),
        pytest.param(int, 2**70, structured(2**70, str(2**70)), id="an integer above 64 bits"),
        pytest.param(float, 1.5, structured(1.5, "1.5"), id="float"),
        pytest.param(float, -0.0, structured(-0.0, "-0.0"), id="minus zero"),
        pytest.param(bool, False, structured(False, "false"), id="bool"),
        pytest.param(str, "a\u0000\U0001f600", structured("a\u0000\U0001f600", "a\u0000\U0001f600"), id="str"),
        pytest.param(str, "", structured("", ""), id="empty str"),
        pytest.param(int | None, None, structured(None, "null"), id="None of int or None"),
        pytest.param(list[int], [1, 2], structured([1, 2], "[1,2]"), id="list"),
        pytest.param(list[int], [], structured([], "[]"), id="empty list"),
        pytest.param(tuple[int, str], (1, "a"), structured([1, "a"], '[1,"a"]'), id="tuple"),
        pytest.param(dict[str, int], {"b": 1, "a": 2}, structured({"b": 1, "a": 2}, '{"b":1,"a":2}'), id="dict"),
        pytest.param(dict[str, Any], {}, structured({}, "{}"), id="empty dict"),
        pytest.param(Counts, {"payments": 1}, structured({"payments": 1}, '{"payments":1}'), id="TypedDict"),
        pytest.param(
            Receipt,
            RECEIPT,
            structured(PLAIN_RECEIPT, '{"unitPrice":9.5,"paid_on":"2026-07-28"}'),
            id="a model by its aliases",
        ),
        pytest.param(
            Receipt,
            {"unit_price": 9.5, "paid_on": date(2026, 7, 28)},
            structured(PLAIN_RECEIPT, '{"unitPrice":9.5,"paid_on":"2026-07-28"}'),
            id="a dict for a model",
        ),
        pytest.param(
            list[Receipt],
            [RECEIPT],
            structured([PLAIN_RECEIPT], '[{"unitPrice":9.5,"paid_on":"2026-07-28"}]'),
            id="a list of models",
        ),
        pytest.param(
            Point,
            Point(1, RECEIPT),
            structured(
                {"x": 1, "receipt": PLAIN_RECEIPT}, '{"x":1,"receipt":{"unitPrice":9.5,"paid_on":"2026-07-28"}}'
            ),
            id="dataclass",
        ),
        pytest.param(
            Tree,
            Tree(trees=[Tree()]),
            structured({"trees": [{"trees": []}]}, '{"trees":[{"trees":[]}]}'),
            id="a model that contains itself",
        ),
        pytest.param(Annotated[int, Field(ge=1)], 1, structured(1, "1"), id="Annotated"),
        pytest.param(Any, None, structured(None, "null"), id="None of Any"),
        pytest.param(Any, [1, "a", None], structured([1, "a", None], '[1,"a",null]'), id="Any"),
        pytest.param(str | InputRequiredResult, "a", structured("a", "a"), id="str of str or a question"),
        pytest.param(int | str | InputRequiredResult, "a", structured("a", "a"), id="str of three"),
    ],
)
def test_r06_what_is_annotated_is_structured_content_beside_its_text(
    annotation: Any, value: Any, result: dict[str, JSON]
) -> None:
    """R06: ``repr`` tells ``0`` from ``False`` and ``-0.0`` from ``0.0``."""
    made = Returns(annotation).result(value)

    assert repr(made) == repr(result)


@given(values())
def test_r06_any_json_value_is_structured_content_exactly_as_it_is(value: JSON) -> None:
    """R06."""
    made = Returns(Any).result(value)

    assert repr(jsontext.parse(jsontext.write(made["structuredContent"]))) == repr(value)


@pytest.mark.parametrize(
    ("annotation", "value", "result"),
    [
        pytest.param(None, None, content(), id="None"),
        pytest.param(None, "a", content({"type": "text", "text": "a"}), id="str without annotation"),
        pytest.param(None, 5, content({"type": "text", "text": "5"}), id="int without annotation"),
        pytest.param(None, {"a": None}, content({"type": "text", "text": '{"a":null}'}), id="dict without annotation"),
        pytest.param(
            None,
            [RECEIPT],
            content({"type": "text", "text": '[{"unitPrice":9.5,"paid_on":"2026-07-28"}]'}),
            id="models without annotation",
        ),
        pytest.param(None, [TEXT, TEXT], content(PLAIN_TEXT, PLAIN_TEXT), id="blocks without annotation"),
        pytest.param(TextContent, TEXT, content(PLAIN_TEXT), id="a block"),
        pytest.param(
            ContentBlock,
            ImageContent(data="iVBORw0KGgo=", mime_type="image/png"),
            content({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}),
            id="an image",
        ),
        pytest.param(
            list[AudioContent | ResourceLink],
            [
                AudioContent(data="UklGRg==", mime_type="audio/wav"),
                ResourceLink(name="order", uri="shop://orders/1"),
            ],
            content(
                {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
                {"type": "resource_link", "name": "order", "uri": "shop://orders/1"},
            ),
            id="a list of blocks",
        ),
        pytest.param(list[ContentBlock], [], content(), id="an empty list of blocks"),
        pytest.param(Sequence[TextContent], [TEXT], content(PLAIN_TEXT), id="a sequence of blocks"),
        pytest.param(tuple[TextContent, ...], (TEXT,), content(PLAIN_TEXT), id="a tuple of blocks"),
        pytest.param(TextContent | None, None, content(), id="None of a block or None"),
        pytest.param(Annotated[TextContent, "shown"], TEXT, content(PLAIN_TEXT), id="an annotated block"),
        pytest.param(list, [TEXT], content(PLAIN_TEXT), id="blocks of a bare list"),
        pytest.param(Any, [TEXT], content(PLAIN_TEXT), id="blocks of Any"),
        pytest.param(InputRequiredResult | None, None, content(), id="None of a question or None"),
    ],
)
def test_r06_content_blocks_and_what_has_no_annotation_are_content_alone(
    annotation: Any, value: Any, result: dict[str, JSON]
) -> None:
    """R06."""
    assert Returns(annotation).result(value) == result


@pytest.mark.parametrize(
    ("given_result", "result"),
    [
        pytest.param(CallToolResult(content=[TEXT]), content(PLAIN_TEXT), id="content alone"),
        pytest.param(
            CallToolResult(content=[], structured_content={"a": None, "b": [2**70, -0.0]}),
            {**content(), "structuredContent": {"a": None, "b": [2**70, -0.0]}},
            id="structured content",
        ),
        pytest.param(
            CallToolResult(content=[], structured_content=None),
            {**content(), "structuredContent": None},
            id="a null that was said",
        ),
        pytest.param(
            CallToolResult(content=[], structured_content=0), {**content(), "structuredContent": 0}, id="a zero"
        ),
        pytest.param(
            CallToolResult(content=[TEXT], is_error=True), {**content(PLAIN_TEXT), "isError": True}, id="an error"
        ),
        pytest.param(
            CallToolResult(content=[], _meta={"shop.example/trace": None}),
            {**content(), "_meta": {"shop.example/trace": None}},
            id="metadata",
        ),
    ],
)
@pytest.mark.parametrize("annotation", [CallToolResult, None, int, str | CallToolResult], ids=str)
def test_r06_a_tool_result_is_taken_as_it_is(
    annotation: Any, given_result: CallToolResult, result: dict[str, JSON]
) -> None:
    """R06: whatever is annotated."""
    made = Returns(annotation).result(given_result)

    assert jsontext.parse(jsontext.write(made)) == result


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        pytest.param(RECEIPT, PLAIN_RECEIPT, id="a model"),
        pytest.param(
            {"on": date(2026, 7, 28), "to": (1, RECEIPT)}, {"on": "2026-07-28", "to": [1, PLAIN_RECEIPT]}, id="inside"
        ),
    ],
)
def test_r06_the_structured_content_of_a_tool_result_may_be_of_python_types(value: Any, plain: JSON) -> None:
    """R06: as it may be for the SDK."""
    made = Returns(CallToolResult).result(CallToolResult(content=[], structured_content=value))

    assert jsontext.parse(jsontext.write(made["structuredContent"])) == plain


@pytest.mark.parametrize("annotation", [InputRequiredResult, str | InputRequiredResult, None], ids=str)
def test_r16_a_question_to_the_caller_is_taken_as_it_is(annotation: Any) -> None:
    """R16."""
    assert Returns(annotation).result(QUESTION) == {"resultType": "input_required", "requestState": "s1"}


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        pytest.param(int, "five", id="str for int"),
        pytest.param(int, None, id="None for int"),
        pytest.param(int, 1.5, id="a fraction for int"),
        pytest.param(str, 5, id="int for str"),
        pytest.param(list[int], {"a": 1}, id="dict for list"),
        pytest.param(list[int], ["a"], id="a list of str"),
        pytest.param(Receipt, 5, id="int for a model"),
        pytest.param(Receipt, {"paid_on": None}, id="a model with a field missing"),
        pytest.param(Counts, {}, id="a TypedDict with a key missing"),
        pytest.param(Annotated[int, Field(ge=1)], 0, id="an int that is too small"),
        pytest.param(str | InputRequiredResult, 5, id="int for str or a question"),
    ],
)
def test_r25_a_value_that_does_not_fit_the_annotation_is_an_error(annotation: Any, value: Any) -> None:
    """R25: found before completion, so that an atomic body is rolled back."""
    with pytest.raises(ValueError, match="validation error"):
        Returns(annotation).result(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        pytest.param(float, float("nan"), id="NaN"),
        pytest.param(list[float], [1.0, float("inf")], id="Infinity in a list"),
        pytest.param(None, float("nan"), id="NaN without annotation"),
        pytest.param(None, {"a": [None, float("inf")]}, id="Infinity inside without annotation"),
        pytest.param(Any, float("nan"), id="NaN of Any"),
        pytest.param(Any, {"a": float("nan")}, id="NaN inside Any"),
        pytest.param(dict[str, Any], {"a": [float("-inf")]}, id="-Infinity inside a dict"),
        pytest.param(list, [float("nan")], id="NaN in a bare list"),
        pytest.param(Anything, Anything(value=[float("nan")]), id="NaN in a model's Any"),
        pytest.param(
            CallToolResult, CallToolResult(content=[], structured_content={"a": float("nan")}), id="in a result"
        ),
        pytest.param(Any, object(), id="an object"),
        pytest.param(None, object(), id="an object without annotation"),
        pytest.param(bytes, b"\xff", id="bytes that are no text"),
    ],
)
def test_r06_what_json_does_not_have_is_an_error_before_completion(annotation: Any, value: Any) -> None:
    """R06: and is never recorded as ``null``."""
    with pytest.raises(ValueError, match=r"JSON|serialize|utf-8"):
        jsontext.write(Returns(annotation).result(value))


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        pytest.param(None, None, id="no annotation"),
        pytest.param(type(None), None, id="None"),
        pytest.param(int, {"type": "integer"}, id="int"),
        pytest.param(int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, id="int or None"),
        pytest.param(Any, None, id="Any, which may be blocks"),
        pytest.param(list[int], {"type": "array", "items": {"type": "integer"}}, id="list"),
        pytest.param(
            Receipt,
            {
                "type": "object",
                "description": "Proof of a payment.",
                "properties": {
                    "unitPrice": {"type": "number"},
                    "paid_on": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
                },
                "required": ["unitPrice"],
            },
            id="a model as it is written",
        ),
        pytest.param(
            Counts,
            {"type": "object", "properties": {"payments": {"type": "integer"}}, "required": ["payments"]},
            id="TypedDict",
        ),
        pytest.param(
            Tree,
            {
                "type": "object",
                "properties": {"trees": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []}},
                "$defs": {
                    "Tree": {
                        "type": "object",
                        "properties": {"trees": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []}},
                    }
                },
            },
            id="a model that contains itself, an object at the root",
        ),
        pytest.param(NoReturn, None, id="nothing, ever"),
        pytest.param(TextContent, None, id="a block"),
        pytest.param(list[ContentBlock], None, id="blocks"),
        pytest.param(CallToolResult, None, id="a result"),
        pytest.param(InputRequiredResult, None, id="a question"),
        pytest.param(InputRequiredResult | None, None, id="a question or None"),
        pytest.param(str | InputRequiredResult, {"type": "string"}, id="str or a question"),
        pytest.param(str | TextContent, None, id="str or a block"),
    ],
)
def test_the_output_schema_promises_structured_content_where_there_always_is_some(
    annotation: Any, schema: dict[str, JSON] | None
) -> None:
    """Clients refuse a result that a schema promises and that is not there."""
    assert Returns(annotation).schema == schema


def test_an_annotation_without_a_json_schema_is_an_error() -> None:
    with pytest.raises(PydanticUserError):
        Returns(type("Unknown", (), {}))


def test_an_error_result_is_a_text_that_the_model_reads() -> None:
    assert error_result("The card was declined.") == {
        "resultType": "complete",
        "content": [{"type": "text", "text": "The card was declined."}],
        "isError": True,
    }
