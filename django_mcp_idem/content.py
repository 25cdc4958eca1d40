"""A function that content is read from: that of a prompt, a resource or a completion."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import mcp_types
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import PermissionDenied
from django.http import Http404
from mcp.shared.exceptions import MCPError

from .context import RequestContext, ToolContext
from .signatures import check_kinds, context_parameter

logger = logging.getLogger(__name__)

T = TypeVar("T")


class NoContent(LookupError):
    """There is nothing of this name or by these arguments, or nothing for this caller."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What an author wrote: a function, sync or async, that is read with arguments by name.

    Attributes:
        label: What it is the function of, for logs and errors.
        function: The function.
        parameters: Its parameters, but for the context, their annotations evaluated.
        context_parameter: Name of the parameter that takes the ``RequestContext``, if there is one.
    """

    label: str
    function: Callable[..., Any]
    parameters: Mapping[str, inspect.Parameter]
    context_parameter: str | None

    @classmethod
    def of(cls, function: Callable[..., Any], *, label: str) -> Source:
        """
        Raises:
            TypeError: Its parameters are not ones that can be given.
            NameError: One of their annotations is not defined.
        """
        signature = inspect.signature(function, eval_str=True)
        check_kinds(signature)
        if context_parameter(signature, ToolContext) is not None:
            raise TypeError("only tools have a ToolContext: annotate the parameter with RequestContext.")
        context = context_parameter(signature, RequestContext)
        parameters = {name: details for name, details in signature.parameters.items() if name != context}
        return cls(label=label, function=function, parameters=parameters, context_parameter=context)

    async def read(self, arguments: Mapping[str, Any], context: RequestContext, convert: Callable[[Any], T]) -> T:
        """Run the function, a sync one in Django's thread of this request and an async one in this event loop.

        Args:
            arguments: Its keyword arguments.
            context: What it is given beside them.
            convert: What makes the answer of what it returns, where it runs: a query set is evaluated there.

        Raises:
            MCPError: The function raises it; or it fails, and nothing of the failure is told but that.
            NoContent: It raises Django's ``Http404`` or ``PermissionDenied``.
        """
        injected = {} if self.context_parameter is None else {self.context_parameter: context}
        keywords = {**arguments, **injected}
        try:
            if iscoroutinefunction(self.function):
                return convert(await self.function(**keywords))
            return await sync_to_async(lambda: convert(self.function(**keywords)))()
        except MCPError:
            raise
        except (Http404, PermissionDenied) as error:
            raise NoContent(str(error)) from error
        except Exception as error:
            logger.exception("%s failed.", self.label)
            message = f"{self.label} failed. The error was logged on the server."
            raise MCPError(mcp_types.INTERNAL_ERROR, message) from error
