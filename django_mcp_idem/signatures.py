"""What the signature of an author's function says."""

from __future__ import annotations

import inspect
import types
from typing import Any, Union, get_args, get_origin


def check_kinds(signature: inspect.Signature) -> None:
    """
    Raises:
        TypeError: A parameter cannot be given by name.
    """
    for parameter in signature.parameters.values():
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise TypeError(f"Parameter {parameter} cannot be given by name.")


def context_parameter(signature: inspect.Signature, context: type) -> str | None:
    """The name of the parameter that is annotated with ``context``, if there is one.

    Raises:
        TypeError: There are several.
    """
    found = [name for name, parameter in signature.parameters.items() if _takes(parameter.annotation, context)]
    if len(found) > 1:
        raise TypeError(f"the parameters {', '.join(found)} all take the {context.__name__}.")
    return found[0] if found else None


def _takes(annotation: Any, context: type) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_takes(arm, context) for arm in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, context)
