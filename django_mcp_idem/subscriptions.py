"""What changes a client asks to be told of: in a request that stays open, or resource by resource for its session."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import mcp_types
from asgiref.sync import sync_to_async
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    ResourceUpdated,
    ServerEvent,
    event_matches,
    event_to_notification,
)

from .auth.callers import Caller
from .idempotency.keys import digest
from .registry import Site
from .shared import StoreUnavailable, get_shared_store
from .visits import Context

logger = logging.getLogger(__name__)

JSON = dict[str, Any]

METHODS = ("subscriptions/listen", "resources/subscribe", "resources/unsubscribe")

_SECONDS = 24 * 60 * 60


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """What a client is told of on one stream.

    Attributes:
        wants: Whether it asked for a change. Reads the shared store.
        site: The endpoint.
        acknowledgement: What the stream begins with, if anything.
        meta: What each notification has in its ``_meta``.
    """

    wants: Callable[[ServerEvent], bool]
    site: Site
    acknowledgement: JSON | None = None
    meta: JSON = field(default_factory=dict)

    def notification(self, change: ServerEvent, caller: Caller) -> JSON | None:
        """The message that tells of a change; ``None`` if the client did not ask for it, or may not know of it."""
        if not self.wants(change) or not self._permits(change, caller):
            return None
        return _message(event_to_notification(change, self.meta))

    def _permits(self, change: ServerEvent, caller: Caller) -> bool:
        # That a resource has changed tells that it is there (R19).
        return not isinstance(change, ResourceUpdated) or any(
            resource.permits(caller.user) for resource, _ in self.site.matching(change.uri)
        )


class Subscriptions:
    """The handlers of what clients want to be told of.

    Args:
        site: The endpoint.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    async def listen(
        self, ctx: Context, params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        """Answer ``subscriptions/listen`` (2026-07-28), as it is to be answered once the client listens no more."""
        meta = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        wanted = _what_is_told(params.notifications)
        acknowledged = mcp_types.SubscriptionsAcknowledgedNotificationParams(notifications=wanted, _meta=meta)
        ctx.lifespan_context.subscription = Subscription(
            wants=partial(event_matches, wanted, frozenset(wanted.resource_subscriptions or ())),
            site=self._site,
            acknowledgement=_message(mcp_types.SubscriptionsAcknowledgedNotification(params=acknowledged)),
            meta=meta,
        )
        return mcp_types.SubscriptionsListenResult(_meta=meta)

    async def subscribe(self, ctx: Context, params: mcp_types.SubscribeRequestParams) -> mcp_types.EmptyResult:
        """Answer ``resources/subscribe`` (before 2026-07-28): its session is told on the stream that it opens."""
        await sync_to_async(get_shared_store().set)(_name(_session(ctx), params.uri), True, _SECONDS)
        return mcp_types.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: mcp_types.UnsubscribeRequestParams) -> mcp_types.EmptyResult:
        """Answer ``resources/unsubscribe`` (before 2026-07-28)."""
        await sync_to_async(get_shared_store().delete)(_name(_session(ctx), params.uri))
        return mcp_types.EmptyResult()


async def declare_subscriptions(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Say whether changes can be told, and know nothing of subscriptions where a response is sent as one piece."""
    can_listen = ctx.lifespan_context.can_listen
    if ctx.method in METHODS and not can_listen:
        raise MCPError(mcp_types.METHOD_NOT_FOUND, "Method not found", ctx.method)
    result = await call_next(ctx)
    if ctx.method in ("server/discover", "initialize") and isinstance(result, dict):
        capabilities = result["capabilities"]
        for kind in capabilities.keys() & {"tools", "prompts", "resources"}:
            capabilities[kind]["listChanged"] = can_listen
        if "resources" in capabilities:
            capabilities["resources"]["subscribe"] = can_listen
    return result


def subscription_of_session(site: Site, session: str | None) -> Subscription:
    """What a session is told of: the resources that it subscribed to, and every list."""
    return Subscription(wants=partial(_is_subscribed, session), site=site)


def _is_subscribed(session: str | None, change: ServerEvent) -> bool:
    if not isinstance(change, ResourceUpdated):
        return True
    try:
        return session is not None and get_shared_store().get(_name(session, change.uri)) is not None
    except StoreUnavailable:
        logger.warning("Whether a client subscribed to %s could not be told, so it is not told.", change.uri)
        return False


def _what_is_told(asked: mcp_types.SubscriptionFilter) -> mcp_types.SubscriptionFilter:
    """All of it that there is such a thing as, also what never happens, so that it tells nothing of what is hidden."""
    return mcp_types.SubscriptionFilter(
        tools_list_changed=asked.tools_list_changed or None,
        prompts_list_changed=asked.prompts_list_changed or None,
        resources_list_changed=asked.resources_list_changed or None,
        resource_subscriptions=asked.resource_subscriptions or None,
    )


def _session(ctx: Context) -> str:
    session = ctx.lifespan_context.session
    if session is None:
        raise MCPError(mcp_types.INVALID_REQUEST, "A subscription is one of a session: send its Mcp-Session-Id.")
    return session


def _message(notification: mcp_types.ServerNotification) -> JSON:
    return {"jsonrpc": "2.0", **notification.model_dump(mode="json", by_alias=True, exclude_none=True)}


def _name(session: str, uri: str) -> str:
    return f"mcp-idem:subscribed:{digest(session, uri)}"
