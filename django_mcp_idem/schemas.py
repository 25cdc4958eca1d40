"""Type hints as JSON schemas: what a tool takes, and what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

JSON = dict[str, Any]
REFUSAL_LENGTH = 500


class InvalidArguments(ValueError):
    """The arguments do not fit the function's parameters. The message tells the model what to mend."""


class Arguments:
    """The parameters of one function, as a schema and as what checks and converts arguments by it."""

    def __init__(self, parameters: Mapping[str, inspect.Parameter]) -> None:
        """
        Args:
            parameters: The function's parameters that a caller fills in, their annotations evaluated.

        Raises:
            TypeError: A parameter has no annotation, or a pydantic ``Field`` as its default.
            PydanticUserError: An annotation has no JSON schema.
        """
        for parameter in parameters.values():
            _check(parameter)
        self._names = {f"argument_{at}": name for at, name in enumerate(parameters)}
        # Fields are numbered, since a parameter may well be called "copy", "schema" or "_id".
        fields: dict[str, Any] = {
            field: (parameters[name].annotation, Field(_default(parameters[name]), alias=name))
            for field, name in self._names.items()
        }
        self._model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
        self.schema: JSON = _root(self._model.model_json_schema(by_alias=True, schema_generator=_WithoutTitles))
        self._validator = Draft202012Validator(self.schema)
        self._integers = [
            name for name, part in self.schema.get("properties", {}).items() if part.get("type") == "integer"
        ]

    def bind(self, arguments: Mapping[str, Any]) -> JSON:
        """The keyword arguments for the function.

        Args:
            arguments: Arguments as they were sent. ``true`` is no integer and ``"1"`` is no number: what the schema
                says holds to the letter, and the conversion to Python types comes after.

        Raises:
            InvalidArguments: They do not fit.
        """
        if (error := best_match(self._validator.iter_errors(arguments))) is not None:
            where = ".".join(map(str, error.absolute_path))
            raise InvalidArguments(_shortened(f"{where}: {error.message}" if where else error.message))
        return self._converted(self._whole_numbers(arguments))

    def _converted(self, arguments: Mapping[str, Any]) -> JSON:
        try:
            bound = self._model.model_validate(arguments, by_alias=True, by_name=False)
        except ValidationError as invalid:
            first = invalid.errors(include_url=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InvalidArguments(_shortened(f"{where}: {first['msg']}")) from invalid
        # What was not sent is left to the function's own default.
        return {name: getattr(bound, field) for field, name in self._names.items() if field in bound.model_fields_set}

    def _whole_numbers(self, arguments: Mapping[str, Any]) -> JSON:
        """``1e23`` for an integer is the integer that it names, as it is in the fingerprint; pydantic refuses it."""
        sent = dict(arguments)
        for name in self._integers:
            if isinstance(sent.get(name), float):
                sent[name] = int(Decimal(repr(sent[name])))
        return sent


class TextArguments(Arguments):
    """The parameters of a function whose arguments are texts, which is all that a prompt or a URI is given.

    A text is converted as pydantic does it: ``"5"`` to an integer, ``"2026-07-28"`` to a date.
    """

    def __init__(self, parameters: Mapping[str, inspect.Parameter], *, lists: Collection[str] = ()) -> None:
        """
        Args:
            parameters: As in ``Arguments``.
            lists: Names of those that are given a list of texts.

        Raises:
            TypeError: A parameter can never be given what it takes, or as in ``Arguments``.
            PydanticUserError: An annotation has no JSON schema.
        """
        super().__init__(parameters)
        for name, part in self.schema.get("properties", {}).items():
            kind = self._definition(part).get("type")
            if name in lists and kind != "array":
                raise TypeError(f"Parameter {name!r} is given a list of texts: write list[str].")
            if name not in lists and kind in ("array", "object"):
                raise TypeError(f"Parameter {name!r} is given a text, from which its type cannot be made.")

    @property
    def names(self) -> Collection[str]:
        """The names of the parameters, in their order."""
        return self._names.values()

    def bind(self, arguments: Mapping[str, Any]) -> JSON:
        """The keyword arguments for the function.

        Raises:
            InvalidArguments: One is missing or unknown, or does not convert.
        """
        return self._converted(arguments)

    def _definition(self, part: JSON) -> JSON:
        reference = part.get("$ref")
        return part if reference is None else self.schema["$defs"][reference.removeprefix("#/$defs/")]


def output_schema(adapter: TypeAdapter[Any]) -> JSON:
    """The schema of what ``adapter`` writes."""
    return _root(adapter.json_schema(mode="serialization", by_alias=True, schema_generator=_WithoutTitles))


class _WithoutTitles(GenerateJsonSchema):
    """A title that only repeats a name costs the model's context and says nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> JSON:
        generated = super().generate(schema, mode)
        for definition in (generated, *generated.get("$defs", {}).values()):
            definition.pop("title", None)
        return generated


def _root(schema: JSON) -> JSON:
    """The schema with an object at its root also where the type is recursive, which pydantic writes as a reference."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    definition = schema["$defs"][reference.removeprefix("#/$defs/")]
    return {**definition, "$defs": schema["$defs"]}


def _check(parameter: inspect.Parameter) -> None:
    if parameter.annotation is inspect.Parameter.empty:
        raise TypeError(f"Parameter {parameter.name!r} needs a type hint: it becomes part of the schema.")
    if isinstance(parameter.default, FieldInfo):
        # Left out by the caller, it would reach the function as it stands there.
        raise TypeError(f"Parameter {parameter.name!r} has a Field as its default: write Annotated[..., Field(...)].")


def _default(parameter: inspect.Parameter) -> Any:
    return ... if parameter.default is inspect.Parameter.empty else parameter.default


def _shortened(message: str) -> str:
    return message if len(message) <= REFUSAL_LENGTH else f"{message[: REFUSAL_LENGTH - 3]}..."
