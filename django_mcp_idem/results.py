"""What a body returns or raises, as the ``CallToolResult`` that is stored and sent."""

from __future__ import annotations

import collections.abc
import types
from typing import Annotated, Any, Union, get_args, get_origin

from mcp_types import CallToolResult, ContentBlock, InputRequiredResult, TextContent
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from . import jsontext
from .schemas import output_schema

JSON = dict[str, Any]

_CONTENT = get_args(ContentBlock)
_FINISHED = (CallToolResult, InputRequiredResult)


class Returns:
    """How what one tool returns becomes its result.

    An annotated return value becomes structured content, of whatever JSON type, beside its text. Content blocks,
    alone or in a list, are content and nothing more. A ``CallToolResult`` or ``InputRequiredResult`` is taken as it is.
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
        self.schema: JSON | None = None if self._adapter is None else output_schema(self._adapter)

    def result(self, value: Any) -> JSON:
        """The tool result for a returned value.

        Raises:
            ValueError: The value does not fit the annotation.
        """
        if isinstance(value, _FINISHED):
            return _dump(value)
        if isinstance(value, _CONTENT):
            return _complete([_dump(value)])
        if self._adapter is None:
            return _complete(_unstructured(value))
        plain = self._adapter.dump_python(
            self._adapter.validate_python(value, by_alias=True, by_name=True), mode="json", by_alias=True
        )
        return _complete([_text(plain)]) | {"structuredContent": plain}


def error_result(message: str) -> JSON:
    """The tool result for a failure that the model should read."""
    return _complete([_dump(TextContent(text=message))]) | {"isError": True}


def _complete(content: list[JSON]) -> JSON:
    return {"resultType": "complete", "content": content, "isError": False}


def _unstructured(value: Any) -> list[JSON]:
    if value is None:
        return []
    if isinstance(value, list | tuple) and all(isinstance(item, _CONTENT) for item in value):
        return [_dump(block) for block in value]
    return [_text(to_jsonable_python(value, by_alias=True, inf_nan_mode="constants"))]


def _text(value: Any) -> JSON:
    text = value if isinstance(value, str) else jsontext.write(value).decode()
    return _dump(TextContent(text=text))


def _dump(model: BaseModel) -> JSON:
    dumped = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(model, CallToolResult) and "structured_content" in model.model_fields_set:
        # A null is a result too, and exclude_none would lose it.
        dumped["structuredContent"] = model.structured_content
    return dumped


def _structured(annotation: Any) -> Any:
    """The part of a return annotation that is data; ``None`` if there is none."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is type(None):
        return None
    if origin in (Union, types.UnionType):
        arms = [arm for arm in arguments if not _is_any_of(arm, _FINISHED)]
        if all(arm is type(None) or _structured(arm) is None for arm in arms):
            return None
        return Union[tuple(arms)]  # noqa: UP007  a union of arms known only at run time
    if origin is Annotated:
        return None if _structured(arguments[0]) is None else annotation
    if origin in (list, tuple, collections.abc.Sequence) and arguments:
        return None if _structured(arguments[0]) is None else annotation
    return None if _is_any_of(annotation, (*_CONTENT, *_FINISHED)) else annotation


def _is_any_of(annotation: Any, classes: tuple[type, ...]) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, classes)
