"""What of the official suite is expected not to pass, and why.

An entry names a scenario, or one check of a scenario as ``scenario:check``. One that is not needed any more fails the
run, as in the suite's own lists. A scenario of which nothing was checked has the check ``no-verdict``.
"""

from __future__ import annotations

from collections.abc import Mapping

_TASKS = "the tasks extension is not served and not declared; the suite does not score it"

_EXTENSIONS = {
    "tasks-capability-negotiation": _TASKS,
    "tasks-dispatch-and-envelope": _TASKS,
    "tasks-lifecycle": _TASKS,
    "tasks-mrtr-composition": _TASKS,
    "tasks-mrtr-input": _TASKS,
    "tasks-request-headers": _TASKS,
    "tasks-request-state-removal": _TASKS,
    "tasks-required-task-error": _TASKS,
    "tasks-status-notifications": _TASKS,
    "tasks-wire-fields": _TASKS,
}

_TERMINATION = "a session is stored nowhere, so that there is none to end"

_SESSIONS = {
    "server-session-lifecycle:server-session-delete-accepted": _TERMINATION,
    "server-session-lifecycle:server-session-terminated-returns-404": _TERMINATION,
}

_QUESTIONS = (
    "before 2026-07-28 a question is asked on the stream of the running call, and WSGI sends nothing before its end"
)

_SUBSCRIPTIONS = (
    "a client is told of changes on a stream that stays open, and under WSGI it would keep a worker for itself"
)

_LIVE_STREAMS = {
    "elicitation-sep1034-defaults:elicitation-sep1034-general": _QUESTIONS,
    "elicitation-sep1330-enums:elicitation-sep1330-general": _QUESTIONS,
    "resources-subscribe:resources-subscribe": _SUBSCRIPTIONS,
    "resources-unsubscribe:resources-unsubscribe": _SUBSCRIPTIONS,
    "server-sse-polling:no-verdict": "a stream that is sent as one piece cannot break off and be resumed",
    "server-stateless:sep-2575-server-honors-notification-filter": _SUBSCRIPTIONS,
    "server-stateless:sep-2575-server-sends-prompts-list-changed-on-subscription": _SUBSCRIPTIONS,
    "server-stateless:sep-2575-server-sends-subscription-ack": _SUBSCRIPTIONS,
    "server-stateless:sep-2575-server-sends-tools-list-changed-on-subscription": _SUBSCRIPTIONS,
    "server-stateless:sep-2575-server-tags-subscription-id": _SUBSCRIPTIONS,
    "tools-call-elicitation:tools-call-elicitation": _QUESTIONS,
    "tools-call-sampling:tools-call-sampling": _QUESTIONS,
}

UNDER_ASGI: Mapping[str, str] = {**_EXTENSIONS, **_SESSIONS}
UNDER_WSGI: Mapping[str, str] = {**UNDER_ASGI, **_LIVE_STREAMS}
