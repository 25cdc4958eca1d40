"""One ``tools/call``: from what was sent to an outcome, keyed or not."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from asgiref.sync import async_to_sync, sync_to_async
from django.db import Error
from django.http import HttpRequest
from mcp.shared.exceptions import MCPError
from mcp_types import ClientCapabilities, InputRequiredResult

from . import jsontext
from .auth.callers import Caller
from .context import ToolContext
from .idempotency.attempts import Attempt, Work
from .idempotency.databases import may_pass
from .idempotency.decisions import Call
from .idempotency.engine import execute
from .idempotency.equivalence import fingerprint
from .idempotency.keys import InvalidKey, Scope, derived_key
from .idempotency.outcomes import Answer, NothingDone, Outcome, OutcomeUnknown, Reason, Refused
from .idempotency.policy import Policy
from .idempotency.shutdown import watch_for_shutdown
from .idempotency.transactions import RolledBack, run_in_transaction
from .registry import Site
from .reports import Reports
from .results import error_result, outcome_of
from .schemas import InvalidArguments
from .sources import SentKey, places
from .states import Ending
from .tools import Tool, ToolError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_WITHOUT_OUTCOME = (NothingDone, OutcomeUnknown, MemoryError)


class UnknownTool(LookupError):
    """There is no such tool, or the caller may not know of it (R19)."""


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call as it was sent.

    Attributes:
        site: The endpoint that was called.
        caller: Who is calling.
        request: The HTTP request, if it came over HTTP.
        name: Name of the tool.
        arguments: Its arguments without a key among them, ``{}`` where none were sent (R09).
        key: Its key.
        input_responses: Answers to an ``input_required`` result.
        request_state: What that result asked to have sent back.
        client_capabilities: What the client declared to support.
        ask: Asks the client in mid-call for what a body needs; ``None`` where its result does that.
        reports: Where its body's reports go.
    """

    site: Site
    caller: Caller
    request: HttpRequest | None
    name: str
    arguments: Mapping[str, Any]
    key: SentKey
    input_responses: Mapping[str, Any] | None
    request_state: str | None
    client_capabilities: ClientCapabilities | None = None
    ask: Callable[[InputRequiredResult], Awaitable[Mapping[str, Any]]] | None = None
    reports: Reports | None = None

    @property
    def continues(self) -> bool:
        """Whether it continues an ``input_required`` result, and so is no retry (R16)."""
        return self.input_responses is not None or self.request_state is not None


async def perform(call: ToolCall) -> Answer:
    """Run a call, or say what came of it already.

    A call that is recorded runs on to its record when the client goes away: a lost response is the same event (R24).

    Returns:
        The outcome, and when it was recorded if that is a replay.

    Raises:
        UnknownTool: There is no such tool for this caller.
        Refused: The key stands in the way.
    """
    tool = call.site.get_tool(call.name)
    if tool is None:
        raise UnknownTool(call.name)
    try:
        if call.key and not call.continues:
            watch_for_shutdown()
            return await _to_its_end(sync_to_async(_perform_keyed)(call, tool))
        if (window := _window(call, tool)) is not None:
            watch_for_shutdown()
            return await _to_its_end(sync_to_async(_perform_deduplicated)(call, tool, window))
        if tool.function.is_async and not tool.policy.atomic:
            return Answer(await _perform_async(call, tool))
        return Answer(await sync_to_async(_perform_unkeyed)(call, tool))
    except InvalidArguments as error:
        return Answer(_tool_error(f"The arguments do not fit the tool's schema: {error}"))
    except (NothingDone, OutcomeUnknown) as word:
        # Without a key there is nothing to settle.
        return Answer(_tool_error(str(word) or _said_by(tool, word)))


def _window(call: ToolCall, tool: Tool) -> timedelta | None:
    """Within what time calls equal to this one, which has no key, are one; ``None`` if each runs.

    Nothing tells one anonymous caller from another, so their calls are never one.
    """
    return None if call.continues or call.caller.is_anonymous else tool.deduplicate_within


def _perform_keyed(call: ToolCall, tool: Tool) -> Answer:
    _authorize(call, tool)
    try:
        key = call.key.agreed()
    except InvalidKey as error:
        raise Refused(Reason.INVALID, str(error)) from error
    if call.caller.is_anonymous:
        raise Refused(Reason.UNSUPPORTED, "An anonymous caller's key protects nothing here. Sign in, or leave it out.")
    return _execute(call, tool, scope=call.caller.scope(call.site.name), key=key, policy=tool.policy)


def _perform_deduplicated(call: ToolCall, tool: Tool, window: timedelta) -> Answer:
    _authorize(call, tool)
    scope = call.caller.scope(call.site.name).keyless()
    key = derived_key(fingerprint(tool.name, call.arguments))
    try:
        return _execute(call, tool, scope=scope, key=key, policy=tool.policy.within(window))
    except Refused as refused:
        # Whoever sent no key would not know what a message about keys is about.
        raise Refused(
            refused.reason, _WITHOUT_KEY.get(refused.reason, str(refused)), record=refused.record
        ) from refused


_WITHOUT_KEY = {
    Reason.IN_PROGRESS: (
        "An equal call is in progress, and this one is taken for the same. Retry after a short delay to get its "
        "result. If another effect is wanted, wait until it has ended, or send an idempotency key."
    ),
    Reason.OUTCOME_UNKNOWN: (
        "An equal call was interrupted, and whether it took effect is not known. Find that out before you call again: "
        "once a short time is over, an equal call is a new one and runs."
    ),
    Reason.RESULT_UNAVAILABLE: (
        "An equal call has just finished, and this one is taken for the same, but its result was too large to keep."
    ),
    Reason.UNAVAILABLE: "The call could not be recorded, so nothing is told of it. Retry after a short delay.",
}


def _execute(call: ToolCall, tool: Tool, *, scope: Scope, key: str, policy: Policy) -> Answer:
    body = _Body(call, tool)
    recorded = Call(
        scope=scope,
        key=key,
        tool=tool.name,
        arguments=call.arguments,
        policy=policy,
        user_id=call.caller.user.pk,
    )
    return execute(recorded, Work(admit=body.admit, run=body.run, probe=body.probe, rolled_back=FAILURE))


def _perform_unkeyed(call: ToolCall, tool: Tool) -> Outcome:
    _authorize_unkeyed(call, tool)
    body = _Body(call, tool)
    body.admit()
    return _run_atomic(body) if tool.policy.atomic else body.run(_first_attempt())


async def _perform_async(call: ToolCall, tool: Tool) -> Outcome:
    if tool.permissions:
        await sync_to_async(_authorize_unkeyed)(call, tool)
    else:
        _authorize_unkeyed(call, tool)
    body = _Body(call, tool)
    body.admit()
    return await body.arun(_first_attempt())


def _authorize(call: ToolCall, tool: Tool) -> None:
    if not tool.permits(call.caller.user):
        raise UnknownTool(call.name)


def _authorize_unkeyed(call: ToolCall, tool: Tool) -> None:
    _authorize(call, tool)
    if tool.key_required and not call.continues:
        raise Refused(Reason.REQUIRED, f"{tool.name} has to be called with an idempotency key: {_how(call.site)}.")


def _how(site: Site) -> str:
    """How to send a key to a site, in words for a model."""
    ways = {
        "params": "as params.{}",
        "_meta": "as {} in params._meta",
        "header": "in the header {}",
        "argument": "as the argument {}",
    }
    return "a string of your own, " + " or ".join(ways[place].format(name) for place, name in places(site).items())


def _run_atomic(body: _Body) -> Outcome:
    try:
        return run_in_transaction(lambda: body.run(_first_attempt()), rolled_back=FAILURE)
    except RolledBack as ending:
        return ending.outcome
    except (NothingDone, OutcomeUnknown):
        raise
    except Exception:
        logger.exception("The transaction of tool %s ended with an error.", body.tool.name)
        return FAILURE


class _Body:
    """The body of one call, in the two steps that the engine takes."""

    def __init__(self, call: ToolCall, tool: Tool) -> None:
        self.call = call
        self.tool = tool
        self.bound: Mapping[str, Any] = {}

    def admit(self) -> None:
        """Check the arguments.

        Raises:
            InvalidArguments: They do not fit the tool's schema.
        """
        self.bound = self.tool.arguments.bind(self.call.arguments)

    def run(self, attempt: Attempt) -> Outcome:
        """Run the tool in this thread and say how it ended.

        Raises:
            NothingDone: The tool says so.
            OutcomeUnknown: The tool says so, or has not been told in time, or the database failed it in passing.
        """
        function, context = self.tool.function, self._context(attempt)
        try:
            value = function.run(self.bound, context)
            while self.call.ask is not None and isinstance(value, InputRequiredResult):
                value = function.run(self.bound, _continued(context, value, async_to_sync(self.call.ask)(value)))
            return _returned(self.tool, value)
        except _WITHOUT_OUTCOME:
            raise
        except Exception as error:
            return _raised(self.tool, error)

    async def arun(self, attempt: Attempt) -> Outcome:
        """Run an async tool in this event loop and say how it ended; raises as ``run`` does."""
        function, context = self.tool.function, self._context(attempt)
        try:
            value = await function.arun(self.bound, context)
            while self.call.ask is not None and isinstance(value, InputRequiredResult):
                value = await function.arun(self.bound, _continued(context, value, await self.call.ask(value)))
            return _returned(self.tool, value)
        except _WITHOUT_OUTCOME:
            raise
        except Exception as error:
            return _raised(self.tool, error)

    def probe(self, attempt: Attempt) -> Outcome:
        """Ask the tool's probe what came of an attempt that was interrupted.

        Raises:
            NothingDone: Nothing did, and nothing can any more.
            OutcomeUnknown: It cannot tell.
        """
        if self.tool.probe is None:
            raise OutcomeUnknown
        try:
            return _returned(self.tool, self.tool.probe.run(self.bound, self._context(attempt)))
        except _WITHOUT_OUTCOME:
            raise
        except (ToolError, MCPError) as error:
            return _raised(self.tool, error)
        except Exception as error:
            logger.exception("The probe of tool %s failed.", self.tool.name)
            raise OutcomeUnknown from error

    def _context(self, attempt: Attempt) -> ToolContext:
        return ToolContext(
            user=self.call.caller.user,
            request=self.call.request,
            attempt=attempt.number,
            input_responses=self.call.input_responses,
            request_state=self.call.request_state,
            client_capabilities=self.call.client_capabilities,
            seed=None if self.tool.policy.atomic else attempt.seed,
            lease=attempt.lease,
            reports=self.call.reports,
        )


def _continued(context: ToolContext, asked: InputRequiredResult, answers: Mapping[str, Any]) -> ToolContext:
    return replace(context, input_responses=answers, request_state=asked.request_state)


def _returned(tool: Tool, value: Any) -> Outcome:
    return outcome_of(tool.returns.result(value))


def _raised(tool: Tool, error: Exception) -> Outcome:
    if _is_unsure(tool, error):
        raise OutcomeUnknown from error
    if isinstance(error, ToolError):
        return _tool_error(str(error))
    if isinstance(error, MCPError):
        try:
            details = error.error.model_dump(mode="json", exclude_none=True)
            return Outcome(Ending.PROTOCOL_ERROR, jsontext.write(details).decode())
        except ValueError as unwritable:
            error = unwritable
    logger.error("Tool %s failed.", tool.name, exc_info=error)
    return FAILURE


def _said_by(tool: Tool, word: NothingDone | OutcomeUnknown) -> str:
    if isinstance(word, NothingDone) or tool.policy.atomic:
        return "The tool did nothing, or what it did was rolled back."
    return "Whether the tool did anything is not known."


def _is_unsure(tool: Tool, error: Exception) -> bool:
    """Whether ``error`` is none of the tool's: what it waited for did not answer, or its transaction was given up."""
    if tool.policy.atomic:
        return isinstance(error, Error) and may_pass(error)
    return isinstance(error, TimeoutError) and not tool.policy.may_run_again


def _tool_error(message: str) -> Outcome:
    return outcome_of(error_result(message))


def _first_attempt() -> Attempt:
    return Attempt(number=1, seed=secrets.token_hex(16))


FAILURE = _tool_error("The tool failed. The error was logged on the server.")
"""What a caller is told of an exception that the tool did not declare: nothing of it."""


async def _to_its_end(work: Awaitable[T]) -> T:
    """Wait for ``work`` even while being cancelled, and only then let the cancellation pass.

    Whoever cancelled would otherwise tear down the thread that the work runs in, and with it its transaction.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        raise
