"""Type hints as JSON schemas: what a tool takes, and what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any, get_origin

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from referencing.exceptions import Unresolvable
from referencing.jsonschema import EMPTY_REGISTRY, SchemaResource, UnknownDialect, specification_with

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
        _check_arguments(arguments, self._validator)
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


class WrittenArguments:
    """The arguments of a function whose author wrote their schema: one parameter takes them all, as they were sent."""

    def __init__(self, schema: JSON, parameters: Mapping[str, inspect.Parameter]) -> None:
        """
        Args:
            schema: The schema, which is listed as it is.
            parameters: As in ``Arguments``.

        Raises:
            TypeError: The schema is not one of objects, or refers to what is not in it, or the function does not take
                one mapping.
        """
        self._name = _only_mapping(parameters)
        self._validator = _validator_of(schema)
        self.schema = schema

    def bind(self, arguments: Mapping[str, Any]) -> JSON:
        """The keyword argument for the function.

        Args:
            arguments: Arguments as they were sent.

        Raises:
            InvalidArguments: They do not fit the schema.
        """
        _check_arguments(arguments, self._validator)
        return {self._name: dict(arguments)}


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


def _only_mapping(parameters: Mapping[str, inspect.Parameter]) -> str:
    """The name of the parameter that takes all arguments."""
    hints = [get_origin(parameter.annotation) or parameter.annotation for parameter in parameters.values()]
    if len(hints) != 1 or not isinstance(hints[0], type) or not issubclass(hints[0], Mapping):
        raise TypeError(
            "With an input_schema a function takes one parameter, which is given all the arguments: write "
            "arguments: dict[str, Any]."
        )
    return next(iter(parameters))


def _validator_of(schema: JSON) -> Validator:
    """
    Raises:
        TypeError: It is not one of objects, or refers to what is not in it.
    """
    dialect = str(schema.get("$schema", _DIALECT))
    try:
        root = specification_with(dialect).create_resource(schema)
    except UnknownDialect as error:
        raise TypeError(f"its input_schema has a $schema that is not known: {dialect!r}.") from error
    kind = validator_for({"$schema": dialect}, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise TypeError(f"its input_schema is no JSON schema: {error.message}") from error
    if schema.get("type") != "object":
        raise TypeError('its input_schema is not of objects: write "type": "object".')
    try:
        _check_references(root)
    except Unresolvable as error:
        raise TypeError(f"its input_schema refers to what is not in it: {error.ref!r}.") from error
    return kind(schema, registry=EMPTY_REGISTRY)


# What MCP takes a schema for that does not say.
_DIALECT = str(Draft202012Validator.META_SCHEMA["$id"])


def _check_references(root: SchemaResource) -> None:
    """
    Raises:
        Unresolvable: A reference leads out of the schema, and no call is to wait for another server.
    """
    pending = [(root, EMPTY_REGISTRY.resolver_with_root(root))]
    while pending:
        schema, resolver = pending.pop()
        for word in ("$ref", "$dynamicRef"):
            if isinstance(schema.contents, Mapping) and word in schema.contents:
                resolver.lookup(schema.contents[word])
        pending += [(part, resolver.in_subresource(part)) for part in schema.subresources()]


def _check_arguments(arguments: Mapping[str, Any], validator: Validator) -> None:
    """
    Raises:
        InvalidArguments: They do not fit.
    """
    if (error := best_match(validator.iter_errors(arguments))) is not None:
        where = ".".join(map(str, error.absolute_path))
        raise InvalidArguments(_shortened(f"{where}: {error.message}" if where else error.message))


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
