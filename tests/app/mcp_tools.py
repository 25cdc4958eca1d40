"""Tools whose effects can be counted, one for each way a tool can be."""

from __future__ import annotations

import json
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal

from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction
from mcp.shared.exceptions import MCPError
from mcp_types import (
    AudioContent,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ImageContent,
    InputRequiredResult,
    ResourceLink,
    TextContent,
)

from django_mcp_idem import NothingDone, OutcomeUnknown, ToolContext, ToolError, site, tool
from tests.app.models import Effect, Line, Tally

# So that a replay can be compared with the first answer byte for byte. The tests of the mark switch it on.
site.mark_replays = False

during: list[Callable[[], None]] = []
"""What to do in the middle of a body: tests put a barrier, a look at the database or another call in here."""


def _pass() -> None:
    for act in during:
        act()


def _effect(label: str) -> int:
    effect = Effect.objects.create(label=label)
    _pass()
    return effect.pk


@tool(atomic=True)
def atomic(label: str) -> int:
    return _effect(label)


@tool(atomic=True)
async def atomic_async(label: str) -> int:
    effect = await Effect.objects.acreate(label=label)
    _pass()
    return effect.pk


@tool
def external(label: str) -> int:
    return _effect(label)


@tool
async def external_async(label: str) -> int:
    effect = await Effect.objects.acreate(label=label)
    _pass()
    return effect.pk


@tool(rerun_safe=True)
def rerun_safe(label: str) -> int:
    return _effect(label)


@tool(atomic=True)
def atomic_declared_error(label: str) -> int:
    _effect(label)
    raise ToolError("The card was declined.")


@tool
def declared_error(label: str) -> int:
    _effect(label)
    raise ToolError("The card was declined.")


@tool
def undeclared_error(label: str) -> int:
    _effect(label)
    raise RuntimeError("password is hunter2")


@tool
def protocol_error(label: str) -> int:
    _effect(label)
    raise MCPError(-31000, "The till is closed.", {"opens": 2**70, "nothing": None})


@tool(atomic=True)
def swallows_database_error(label: str) -> str:
    """Catches the error of its own statement, which leaves the transaction to be rolled back."""
    _effect(label)
    Tally.objects.create(name="once")
    try:
        with transaction.atomic(savepoint=False):
            Tally.objects.create(name="once")
    except IntegrityError:
        pass
    return "success"


@tool(atomic=True)
def asks_for_rollback(label: str) -> str:
    _effect(label)
    transaction.set_rollback(True)
    return "success"


@tool(atomic=True)
def swallows_raw_error(label: str) -> str:
    """Catches the error of a raw statement, after which PostgreSQL does nothing more in the transaction."""
    _effect(label)
    with suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute("INSERT INTO no_such_table VALUES (1)")
    transaction.set_rollback(connection.vendor != "postgresql")
    return "success"


@tool(atomic=True)
def closes_connection(label: str) -> str:
    _effect(label)
    connection.close()
    return "success"


HOOK_ERRORS = {error.__name__: error for error in (RuntimeError, OperationalError, NothingDone)}


@tool(atomic=True)
def fails_on_commit(label: str, error: str) -> int:
    def fail() -> None:
        raise HOOK_ERRORS[error]("the hook failed")

    transaction.on_commit(fail)
    return _effect(label)


@tool(atomic=True)
def fails_at_commit(label: str) -> str:
    """Breaks a constraint that is checked when the transaction ends."""
    _effect(label)
    Line.objects.create(effect_id=0)
    return "success"


@tool(atomic=True)
def atomic_protocol_error(label: str) -> int:
    _effect(label)
    raise MCPError(-31000, "The till is closed.")


Ending = Literal["nothing done", "outcome unknown", "time-out", "cancelled", "out of memory", "exit", "interrupt"]

_ENDINGS: dict[str, BaseException] = {
    "nothing done": NothingDone("Sold out."),
    "outcome unknown": OutcomeUnknown(),
    "time-out": TimeoutError(),
    "cancelled": CancelledError(),
    "out of memory": MemoryError(),
    "exit": SystemExit(),
    "interrupt": KeyboardInterrupt(),
}


def _end(label: str, ending: Ending) -> None:
    _effect(label)
    raise _ENDINGS[ending]


@tool(atomic=True)
def ends_atomic(label: str, ending: Ending) -> None:
    _end(label, ending)


@tool
def ends_external(label: str, ending: Ending) -> None:
    _end(label, ending)


@tool
async def ends_external_async(label: str, ending: Ending) -> None:
    await Effect.objects.acreate(label=label)
    raise _ENDINGS[ending]


@tool(rerun_safe=True)
def ends_rerun_safe(label: str, ending: Ending) -> None:
    _end(label, ending)


probe_says: list[Callable[[ToolContext, str], int]] = []
"""What the probe of the tool below does."""


def _probe(ctx: ToolContext, label: str) -> int:
    (say,) = probe_says
    return say(ctx, label)


@tool(probe=_probe)
def probed(ctx: ToolContext, label: str) -> int:
    return _effect(f"{label} {ctx.attempt}")


@tool
def watches_its_lease(ctx: ToolContext) -> bool:
    _pass()
    return ctx.lost


@tool(atomic=True, max_runtime=timedelta(seconds=1))
def atomic_within_a_second(label: str) -> int:
    return _effect(label)


@tool(atomic=True)
def writes_elsewhere(label: str) -> int:
    Effect.objects.using("other").create(label=label)
    return _effect(label)


@tool(atomic=True)
def reads_elsewhere(label: str) -> int:
    Effect.objects.using("other").count()
    return _effect(label)


@tool(atomic=True)
def durable(label: str) -> int:
    with transaction.atomic(durable=True):
        return _effect(label)


@tool(atomic=True)
def uses_downstream_key(ctx: ToolContext, label: str) -> str:
    _effect(label)
    return ctx.downstream_key()


@tool(read_only=True)
def echo(value: Any) -> Any:
    _effect("echo")
    return value


@tool(rerun_safe=True)
def contents() -> CallToolResult:
    _effect("contents")
    return CallToolResult(
        content=[
            TextContent(text="a\u0000b \ud83d\ude00"),
            ImageContent(data="iVBORw0KGgo=", mime_type="image/png"),
            AudioContent(data="UklGRg==", mime_type="audio/wav"),
            ResourceLink(name="order", uri="shop://orders/1"),
        ],
        structured_content={"any": [None, -0.0, 2**70]},
        _meta={"shop.example/trace": "t"},
    )


@tool(rerun_safe=True)
def not_json() -> float:
    _effect("not_json")
    return float("nan")


@tool
def asks(ctx: ToolContext) -> str | InputRequiredResult:
    _effect("asks")
    if ctx.input_responses is None and ctx.request_state is None:
        return InputRequiredResult(request_state="s1")
    return "answered"


@tool
def asks_for_name(ctx: ToolContext, label: str) -> str | InputRequiredResult:
    """Asks for a name, and tells what it remembers of the first round."""
    state = json.loads(ctx.request_state or "{}")
    answer = (ctx.input_responses or {}).get("name")
    if answer is None:
        return InputRequiredResult(input_requests={"name": ASKS_FOR_NAME}, request_state=json.dumps({"label": label}))
    _effect(label)
    return f"{answer['content']['name']} for {state['label']}"


ASKS_FOR_NAME = ElicitRequest(
    params=ElicitRequestFormParams(
        message="What is your name?",
        requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    )
)


@tool(key="required")
def needs_key(label: str) -> int:
    return _effect(label)


WINDOW = timedelta(seconds=5)


@tool(deduplicate_within=WINDOW)
def deduplicated(label: str) -> int:
    return _effect(label)


@tool(deduplicate_within=WINDOW)
async def deduplicated_async(label: str) -> int:
    effect = await Effect.objects.acreate(label=label)
    _pass()
    return effect.pk


@tool(atomic=True, deduplicate_within=WINDOW)
def deduplicated_atomic(label: str) -> int:
    return _effect(label)


@tool(rerun_safe=True, deduplicate_within=WINDOW)
def deduplicated_rerun_safe(ctx: ToolContext, label: str) -> str:
    _effect(label)
    return ctx.downstream_key()


@tool(deduplicate_within=WINDOW)
def deduplicated_ending(label: str, ending: Ending) -> None:
    _end(label, ending)


@tool(deduplicate_within=WINDOW)
def deduplicated_error(label: str) -> int:
    _effect(label)
    raise ToolError("The card was declined.")


@tool(deduplicate_within=WINDOW)
def deduplicated_question(ctx: ToolContext) -> str | InputRequiredResult:
    _effect("asks")
    if ctx.input_responses is None and ctx.request_state is None:
        return InputRequiredResult(request_state="s1")
    return "answered"


@tool(permission="app.view_effect")
def guarded(label: str) -> int:
    return _effect(label)


@tool(retention=timedelta(seconds=1))
def briefly_kept(label: str) -> int:
    return _effect(label)


@tool(rerun_safe=True)
def context(ctx: ToolContext) -> dict[str, Any]:
    return {
        "user": ctx.user.get_username(),
        "attempt": ctx.attempt,
        "downstream": ctx.downstream_key("refund"),
        "over_http": ctx.request is not None,
    }


@tool(atomic=True)
def with_default(label: str = "default") -> int:
    return _effect(label)


wait_for: list[Callable[[], Awaitable[None]]] = []
"""What the tools below wait for, between an effect before and an effect after."""


async def _wait_between_effects(ctx: ToolContext, label: str) -> None:
    await Effect.objects.acreate(label=f"{label} before")
    ctx.report_progress(1, 2, "waiting")
    (wait,) = wait_for
    await wait()
    await Effect.objects.acreate(label=f"{label} after")


@tool(atomic=True)
async def waits_atomic(ctx: ToolContext, label: str) -> None:
    await _wait_between_effects(ctx, label)


@tool
async def waits_external(ctx: ToolContext, label: str) -> None:
    await _wait_between_effects(ctx, label)


def _report(ctx: ToolContext) -> str:
    ctx.report_progress(1)
    ctx.log("debug", "begun", logger="till")
    ctx.report_progress(2.5, 5, "half of it")
    ctx.log("warning", {"left": [None, 2**70]})
    return "reported\u2028"


@tool
def reports(ctx: ToolContext) -> str:
    _effect("reported")
    return _report(ctx)


@tool(atomic=True)
def reports_atomic(ctx: ToolContext) -> str:
    _effect("reported")
    return _report(ctx)


@tool
async def reports_async(ctx: ToolContext) -> str:
    await Effect.objects.acreate(label="reported")
    return _report(ctx)


@tool
def hangs_up(ctx: ToolContext) -> str:
    ctx.close_sse_stream()
    return "done"


@tool(rerun_safe=True)
def nested(depth: int) -> list[Any]:
    _effect("nested")
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value
