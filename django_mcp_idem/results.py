"""What a body returns or raises, as the ``CallToolResult`` that is stored and sent."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Never, NoReturn, Union, get_args, get_origin

from mcp_types import CallToolResult, ContentBlock, InputRequiredResult, TextContent
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from . import jsontext
from .idempotency.outcomes import Outcome
from .schemas import output_schema
from .states import Ending

JSON = dict[str, Any]

_CONTENT = get_args(ContentBlock)
_FINISHED = (CallToolResult, InputRequiredResult)


class Returns:
    """How what one tool returns becomes its result.

    A returned value becomes structured content, of whatever JSON type, beside its text, if the function says what it
    returns. Content blocks, alone or in a list, are content and nothing more. A ``CallToolResult`` or
    ``InputRequiredResult`` is taken as it is.

    Attributes:
        schema: The output schema, ``None`` where structured content is not promised.
    """

    def __init__(self, annotation: Any) -> None:
        """
        Args:
            annotation: The function's return annotation, evaluated; ``None`` where it has none or returns nothing.

        Raises:
            PydanticUserError: The annotation has no JSON schema.
        """
        structured = _structured(annotation)
        self._adapter: TypeAdapter[Any] | None = None if structured is None else TypeAdapter(structured)
        self.schema: JSON | None = None
        if self._adapter is not None and not _may_be_content(annotation):
            # A schema that says nothing is no promise either.
            self.schema = output_schema(self._adapter) or None

    @property
    def structured(self) -> bool:
        """Whether a returned value is data, and not only content."""
        return self._adapter is not None

    def result(self, value: Any) -> JSON:
        """The tool result for a returned value.

        Raises:
            ValueError: The value does not fit the annotation, or JSON.
        """
        if isinstance(value, _FINISHED):
            return _finished(value)
        if (blocks := _blocks(value)) is not None:
            return _complete(blocks)
        if self._adapter is None:
            return _complete([] if value in (None, [], ()) else [_text(as_json(value))])
        plain = _written_by(self._adapter, value)
        return _complete([_text(plain)]) | {"structuredContent": plain}


def error_result(message: str) -> JSON:
    """The tool result for a failure that the model should read."""
    return _complete([_dump(TextContent(text=message))]) | {"isError": True}


def outcome_of(result: JSON) -> Outcome:
    """The outcome of a call that ended with a tool result.

    Raises:
        ValueError: The result does not fit JSON.
    """
    ending = Ending.TOOL_ERROR if result.get("isError") else Ending.RESULT
    return Outcome(ending, jsontext.write(result).decode())


def as_json(value: Any) -> Any:
    """The JSON form of a value of no declared type.

    Raises:
        ValueError: It has none. A NaN is left in it, for ``jsontext.write`` to refuse.
    """
    return to_jsonable_python(value, by_alias=True, inf_nan_mode="constants")


def _complete(content: list[JSON]) -> JSON:
    return {"resultType": "complete", "content": content, "isError": False}


def _finished(result: CallToolResult | InputRequiredResult) -> JSON:
    dumped = _dump(result)
    if isinstance(result, CallToolResult) and "structured_content" in result.model_fields_set:
        # A null is a result too, and exclude_none would lose it.
        dumped["structuredContent"] = as_json(result.structured_content)
    return dumped


def _blocks(value: Any) -> list[JSON] | None:
    """The content that ``value`` is, if it is nothing else."""
    if value is None:
        return None
    blocks = value if isinstance(value, list | tuple) else [value]
    return [_dump(block) for block in blocks] if blocks and all(isinstance(one, _CONTENT) for one in blocks) else None


def _written_by(adapter: TypeAdapter[Any], value: Any) -> Any:
    valid = adapter.validate_python(value, by_alias=True, by_name=True)
    plain = adapter.dump_python(valid, mode="json", by_alias=True)
    # pydantic writes NaN as null, so only a null can hide one.
    if b"null" in jsontext.write(plain):
        _refuse_nan(adapter.dump_python(valid, mode="python"))
    return plain


def _refuse_nan(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not JSON")
    if isinstance(value, Mapping):
        for member in value.values():
            _refuse_nan(member)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            _refuse_nan(item)


def _text(value: Any) -> JSON:
    text = value if isinstance(value, str) else jsontext.write(value).decode()
    return _dump(TextContent(text=text))


def _dump(model: BaseModel) -> JSON:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _may_be_content(annotation: Any) -> bool:
    """Whether an annotation has room for content blocks beside data."""
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_may_be_content(arm) or _is_any_of(arm, (*_CONTENT, CallToolResult)) for arm in get_args(annotation))
    return False


def _structured(annotation: Any) -> Any:
    """The part of a return annotation that is data; ``None`` if there is none."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in (None, type(None), NoReturn, Never):
        return None
    if origin in (Union, types.UnionType):
        arms = [arm for arm in arguments if not _is_any_of(arm, _FINISHED)]
        if all(arm is type(None) or _structured(arm) is None for arm in arms):
            return None
        return Union[tuple(arms)]  # noqa: UP007  a union of arms known only at run time
    if origin is Annotated:
        return None if _structured(arguments[0]) is None else annotation
    if origin in (list, tuple, Sequence) and arguments:
        return None if _structured(arguments[0]) is None else annotation
    return None if _is_any_of(annotation, (*_CONTENT, *_FINISHED)) else annotation


def _is_any_of(annotation: Any, classes: tuple[type, ...]) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, classes)
