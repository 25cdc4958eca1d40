"""Any history of calls, faults and people, against a model of what may be told.

R05 to R07, R12, R18, R19, R23 to R28.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from queue import SimpleQueue
from random import Random
from typing import Any

import hypothesis
import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import F
from django.test import override_settings
from django_redis import get_redis_connection
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from mcp.shared.exceptions import MCPError

from django_mcp_idem import NothingDone, OutcomeUnknown, Site, ToolContext, ToolError
from django_mcp_idem.idempotency import records
from django_mcp_idem.idempotency.keys import Identity, Scope
from django_mcp_idem.idempotency.leases import get_heartbeat
from django_mcp_idem.idempotency.outcomes import Outcome
from django_mcp_idem.idempotency.retention import sweep
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.states import Ending, State
from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect
from tests.factories import UserFactory
from tests.services import free_port, kill_connection
from tests.threads import PATIENCE, begun

HISTORIES = int(os.environ.get("TEST_HISTORIES", "40"))

# Real time plays no part: a lease is longer than any history.
LEASE, RETENTION, UNKNOWN_RETENTION = timedelta(hours=1), timedelta(hours=24), timedelta(days=30)
SETTINGS = {
    "LEASE": LEASE,
    "RETENTION": RETENTION,
    "UNKNOWN_RETENTION": UNKNOWN_RETENTION,
    "MAX_RUNTIME": timedelta(hours=9),
}

# The first two are equal, spelled differently.
SPELLINGS: list[Any] = [{"a": 1, "b": [10**23]}, {"b": [1e23], "a": 1.0}, {"a": 2}]
MEANINGS = ["one", "one", "another"]

Slot = tuple[int, str]
# One of them is preferred, so that calls meet.
SLOTS = [*[(0, "k1")] * 10, (0, "k2"), (0, "k3"), (1, "k1"), (1, "k2"), (1, "k3")]

Told = tuple[str, Any]

site = Site("history", mark_replays=False)


ACTIONS = [
    *["start"] * 5,
    *["retry"] * 8,
    *["finish", "outlive_lease"] * 3,
    *["kill", "advance_time"] * 2,
    *["person_settles"] * 4,
    *["disconnect", "resume", "flush_redis", "lose_redis_or_have_it_back", "revoke_or_grant", "sweep"],
]
_NEEDS_A_CALL = {"finish", "disconnect", "outlive_lease", "resume", "kill"}
_WRITES = {"outlive_lease", "advance_time", "person_settles", "revoke_or_grant", "sweep"}


class Killed(BaseException):
    """Ends the thread of a process that is dead, and is no way for a body to end."""


@dataclass(eq=False)
class Running:
    """A call whose body is parked until it is told how to go on."""

    slot: Slot
    tool: str
    news: SimpleQueue[str] = field(default_factory=SimpleQueue, repr=False)
    words: SimpleQueue[Callable[[], None]] = field(default_factory=SimpleQueue, repr=False)
    answer: Future[Told] | None = field(default=None, repr=False)
    context: ToolContext | None = field(default=None, repr=False)
    paused: bool = False
    heard: bool = True


@dataclass
class Key:
    """What the model knows of one key of one caller."""

    state: State | None = None
    call: tuple[str, str] | None = None
    owner: Running | None = None
    lapsed: bool = False
    told: Any = None
    age: timedelta = timedelta(0)
    effects_before: int = 0
    allowed: int = 0


in_this_thread = threading.local()


def _park(ctx: ToolContext, tool: str) -> int:
    running: Running = in_this_thread.running
    effect = Effect.objects.create(label=_label(running.slot))
    running.context = ctx
    running.news.put("parked")
    running.words.get()()
    return effect.pk


@site.tool(atomic=True, permission="app.view_effect")
def pay(ctx: ToolContext, what: Any) -> int:
    return _park(ctx, "pay")


@site.tool(permission="app.view_effect")
def mail(ctx: ToolContext, what: Any) -> int:
    return _park(ctx, "mail")


class Histories(RuleBasedStateMachine):
    """Two callers with the same three keys, two tools, two arguments in three spellings."""

    def __init__(self) -> None:
        super().__init__()
        IdempotencyRecord.objects.all().delete()
        Effect.objects.all().delete()
        _flush_redis()
        self.callers = [UserFactory(), UserFactory()]
        self.permission = Permission.objects.get(codename="view_effect")
        for caller in self.callers:
            caller.user_permissions.add(self.permission)
        self.permitted = [True, True]
        self.keys: dict[Slot, Key] = {}
        self.running: list[Running] = []
        self.dead: list[Running] = []

    def teardown(self) -> None:
        for running in self.running + self.dead:
            running.words.put(_raising(Killed()))
        for running in self.running + self.dead:
            assert running.answer is not None
            running.answer.result(PATIENCE)
        _use_redis()

    # Calls.

    @rule(random=st.randoms(use_true_random=True))
    def act(self, random: Random) -> None:
        """One rule for all that can be done, chosen evenly: left to itself hypothesis prefers the simple."""
        getattr(self, random.choice([action for action in ACTIONS if self.is_possible(action)]))(random)

    def is_possible(self, action: str) -> bool:
        if action in _NEEDS_A_CALL and not self.running:
            return False
        if action == "person_settles" and not self.unknown():
            return False
        return not (action in _WRITES and self.write_lock_is_held())

    def start(self, random: Random) -> None:
        """A call, whatever is known of its key."""
        self.send(random.choice(SLOTS), random.choice(["mail", "pay"]), random.randrange(3))

    def retry(self, random: Random) -> None:
        """An equal call, perhaps in another spelling."""
        known = [(slot, key.call) for slot, key in self.keys.items() if key.call is not None]
        if known:
            slot, (tool, meaning) = random.choice(known)
            spellings = [at for at, spelled in enumerate(MEANINGS) if spelled == meaning]
            self.send(slot, tool, random.choice(spellings))

    def send(self, slot: Slot, tool: str, spelling: int) -> None:
        key = self.keys.setdefault(slot, Key())
        expected = self.expect(slot, key, (tool, MEANINGS[spelling]))
        if self.write_lock_is_held() and (expected == "parked" or key.lapsed):
            return
        effects_before = _effects(slot)
        running = Running(slot, tool)
        running.answer = begun(lambda: self.call(running, SPELLINGS[spelling]))
        running.answer.add_done_callback(lambda _: running.news.put("answered"))
        if running.news.get(timeout=PATIENCE) == "answered":
            reason, result = running.answer.result()
            if not self.is_kept_out(reason):
                self.check(key, expected, reason, result)
            return
        self.running.append(running)
        assert expected == "parked"
        if key.state is None:
            key.effects_before, key.allowed = effects_before, 0
        key.allowed += tool == "mail" or key.state is None
        key.state, key.owner, key.lapsed, key.told = State.RUNNING, running, False, None
        key.call = (tool, MEANINGS[spelling])

    def expect(self, slot: Slot, key: Key, call: tuple[str, str]) -> str:
        """What a call comes to, by what is known of its key."""
        if not self.permitted[slot[0]]:
            return "denied"
        if key.state is None:
            return "parked"
        if key.call != call:
            return "idempotency_key_conflict"
        match key.state:
            case State.DONE:
                return "told"
            case State.UNKNOWN:
                return "idempotency_outcome_unknown"
            case State.RUNNING if not key.lapsed:
                return "idempotency_key_in_progress"
            case State.RUNNING if call[0] == "mail":
                return "idempotency_outcome_unknown"
        return "parked"

    def check(self, key: Key, expected: str, reason: str, result: Any) -> None:
        """What a call is told that does not run."""
        assert reason == expected
        if reason == "told":
            key.told = key.told or result
            assert result == key.told
        if reason == "idempotency_outcome_unknown" and key.state is State.RUNNING:
            key.state, key.age, key.lapsed = State.UNKNOWN, timedelta(0), False

    def call(self, running: Running, what: Any) -> Told:
        in_this_thread.running = running
        caller, key = running.slot
        # Read anew: a user remembers its permissions.
        client = mcp_client(User.objects.get(pk=self.callers[caller].pk), site=site)
        try:
            return "told", client.call_tool(running.tool, {"what": what}, key=key)
        except MCPError as refused:
            return (refused.data["type"] if refused.data else "denied"), None
        except Killed:
            return "killed", None

    def finish(self, random: Random) -> None:
        how = random.choice(sorted(_WORDS))
        may_write = (
            [running for running in self.running if running.tool == "pay"]
            if self.write_lock_is_held()
            else self.running
        )
        running = random.choice(may_write)
        key, before = self.keys[running.slot], self.record(running.slot)
        self.running.remove(running)
        running.words.put(_WORDS[how])
        assert running.answer is not None
        reason, result = running.answer.result(PATIENCE)
        if running.tool == "pay" and how == "error" and self.is_kept_out(reason):
            key.state = None
        elif key.owner is running and (key.state in _UNSETTLED or _is_unknown(before)):
            self.settle(key, running.tool, how, reason, result)
            if not running.heard:
                key.told = None
            if running.tool == "pay":
                assert _effects(running.slot) == key.effects_before + (how == "result")
        else:
            assert self.record(running.slot) == before
            if reason == "told" and running.heard:
                key.told = key.told or result
                assert result == key.told

    def settle(self, key: Key, tool: str, how: str, reason: str, result: Any) -> None:
        """What the owner of an unsettled call comes to is what is recorded."""
        key.age = timedelta(0)
        match how:
            case "result" | "error":
                assert reason == "told"
                key.state, key.told = State.DONE, result
            case "nothing done":
                assert reason == "idempotency_nothing_done"
                key.state = None
            case _ if tool == "pay":
                assert reason == "idempotency_unavailable"
                key.state = None
            case _:
                assert reason == "idempotency_outcome_unknown"
                key.state = State.UNKNOWN

    def record(self, slot: Slot) -> dict[str, Any] | None:
        """The record as others see it, but for its statistics."""
        caller, key = slot
        identity = Identity.of(Scope(endpoint=site.name, kind="user", subject=str(self.callers[caller].pk)), key)
        rows = IdempotencyRecord.objects.filter(scope_digest=identity.scope_digest, key_digest=identity.key_digest)
        row = rows.values().first()
        return row and {name: value for name, value in row.items() if "replay" not in name}

    # Faults.

    def disconnect(self, random: Random) -> None:
        """A caller goes away. Its call does not end with it, and whatever it comes to, nobody has been told."""
        random.choice(self.running).heard = False

    def outlive_lease(self, random: Random) -> None:
        """A process is paused for longer than its lease."""
        random.choice(self.running).paused = True
        self.pass_time(LEASE)

    def resume(self, random: Random) -> None:
        random.choice(self.running).paused = False

    def kill(self, random: Random) -> None:
        running = random.choice(self.running)
        key = self.keys[running.slot]
        self.running.remove(running)
        self.dead.append(running)
        running.words.put(lambda: _lose_connection_and_park(running))
        assert running.news.get(timeout=PATIENCE) == "dead"
        if running.tool == "pay" and key.owner is running and not _claims_are_committed():
            key.state = None

    def advance_time(self, random: Random) -> None:
        self.pass_time(random.choice([LEASE, RETENTION, UNKNOWN_RETENTION]))

    def pass_time(self, time: timedelta) -> None:
        committed = IdempotencyRecord.objects.filter(
            pk__in=list(IdempotencyRecord.objects.values_list("pk", flat=True))
        )
        committed.update(lease_until=F("lease_until") - time, expires_at=F("expires_at") - time)
        _flush_redis()
        alive = {running for running in self.running if not running.paused}
        leases = [lease for lease in get_heartbeat().in_flight() if _is_of(lease, alive)]
        records.renew([lease.claim for lease in leases])
        for key in self.keys.values():
            key.age += time
            if key.state is State.RUNNING:
                is_seen = key.owner is not None and (key.owner.tool == "mail" or _claims_are_committed())
                # A lease that is over and nobody's yet can still be renewed.
                key.lapsed = is_seen and key.owner not in alive
            elif key.state is not None and key.age >= (RETENTION if key.state is State.DONE else UNKNOWN_RETENTION):
                key.state = None

    def flush_redis(self, random: Random) -> None:
        _flush_redis()

    def lose_redis_or_have_it_back(self, random: Random) -> None:
        _flush_redis()
        _use_redis(there=random.random() < 0.5)

    # People, and the sweep.

    def revoke_or_grant(self, random: Random) -> None:
        caller = random.choice([0, 1, 1])
        permissions = self.callers[caller].user_permissions
        (permissions.remove if self.permitted[caller] else permissions.add)(self.permission)
        self.permitted[caller] = not self.permitted[caller]

    def unknown(self) -> list[Slot]:
        return [slot for slot, key in self.keys.items() if key.state is State.UNKNOWN]

    def person_settles(self, random: Random) -> None:
        slot = random.choice(self.unknown())
        key = self.keys[slot]
        record = self.record(slot)
        assert record is not None
        if random.random() < 0.5:
            assert records.reopen(record["id"], record["attempt"])
            key.state = State.OPEN
        else:
            outcome = Outcome(Ending.RESULT, '{"content":[],"isError":false,"resultType":"complete"}')
            assert records.settle(record["id"], record["attempt"], outcome, retention=None)
            key.state, key.told, key.age = State.DONE, None, timedelta(0)

    def sweep(self, random: Random) -> None:
        running = IdempotencyRecord.objects.filter(state=State.RUNNING)
        before = set(running.values_list("pk", flat=True))
        sweep()
        assert set(running.values_list("pk", flat=True)) == before

    # What always holds.

    @invariant()
    def no_effect_is_doubled(self) -> None:
        for slot, key in self.keys.items():
            if key.state is not None:
                assert _effects(slot) - key.effects_before <= key.allowed

    def write_lock_is_held(self) -> bool:
        """On SQLite an atomic body keeps everybody else from writing."""
        return _claims_are_committed() and any(running.tool == "pay" for running in self.running)

    def is_kept_out(self, reason: str) -> bool:
        """On MariaDB an atomic body may keep other keys from being claimed, where its own was deleted before."""
        may_be = connection.vendor == "mysql" and any(running.tool == "pay" for running in self.running)
        return may_be and reason == "idempotency_unavailable"


def _raising(error: BaseException) -> Callable[[], None]:
    def word() -> None:
        raise error

    return word


_WORDS: dict[str, Callable[[], None]] = {
    "result": lambda: None,
    "error": _raising(ToolError("The card was declined.")),
    "nothing done": _raising(NothingDone()),
    "outcome unknown": _raising(OutcomeUnknown()),
}


def _lose_connection_and_park(running: Running) -> None:
    """What becomes of a process that is killed, seen from the database: it hangs up."""
    if connection.vendor == "sqlite":
        connection.connection.close()
    else:
        kill_connection(connection)
    running.news.put("dead")
    running.words.get()()


def _is_of(lease: Any, calls: set[Running]) -> bool:
    return any(call.context is not None and call.context.lease is lease for call in calls)


def _claims_are_committed() -> bool:
    """Whether the claim of an atomic call is seen before its transaction ends."""
    return connection.vendor == "sqlite"


def _label(slot: Slot) -> str:
    return f"{slot[0]} {slot[1]}"


def _effects(slot: Slot) -> int:
    return Effect.objects.filter(label=_label(slot)).count()


_UNSETTLED = (State.RUNNING, State.UNKNOWN)


def _is_unknown(record: dict[str, Any] | None) -> bool:
    # Also where its time is over and nobody has used the key anew: its owner knows what came of it.
    return record is not None and record["state"] == State.UNKNOWN


def _flush_redis() -> None:
    get_redis_connection("locks").flushdb()


_redis_settings: list[Any] = []


def _use_redis(*, there: bool = True) -> None:
    while _redis_settings:
        _redis_settings.pop().disable()
    changed = override_settings(MCP_IDEM={**SETTINGS, "LOCK_CACHE": "locks" if there else "gone"})
    changed.enable()
    _redis_settings.append(changed)


@pytest.mark.timeout(120 + 5 * HISTORIES)
@pytest.mark.django_db(transaction=True)
def test_any_history_keeps_every_promise(settings: Any) -> None:
    """R05 to R07, R12, R18, R19, R23 to R28"""
    settings.CACHES = {
        **settings.CACHES,
        "gone": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"redis://127.0.0.1:{free_port()}/0"},
    }
    _use_redis()
    try:
        run_state_machine_as_test(
            Histories,
            settings=hypothesis.settings(
                max_examples=HISTORIES,
                stateful_step_count=30,
                deadline=None,
                # Not shrunk: that takes minutes, and the steps of the one that failed are printed.
                phases=[hypothesis.Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        while _redis_settings:
            _redis_settings.pop().disable()
