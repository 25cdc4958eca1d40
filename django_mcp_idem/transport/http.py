"""Streamable HTTP as a Django view, the same under WSGI and ASGI."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.core.handlers.asgi import ASGIRequest
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, re_path
from django.views.decorators.csrf import csrf_exempt
from mcp.server.connection import Connection
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
)
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCNotification,
    JSONRPCRequest,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from .. import jsontext
from ..auth.callers import Caller, Unauthenticated
from ..auth.tokens import authenticate
from ..conf import get_settings
from ..protocol import get_server
from ..registry import Site
from ..shared import StoreUnavailable
from ..subscriptions import subscription_of_session
from ..visits import Visit
from . import origins
from .exchange import JSON, Ask, Outlet, Reply, error_reply, no_outlet, serve
from .listening import Listening
from .questions import Question, answer
from .recordings import Recording, Resumed
from .session import connection_of, session_id, takes_priming
from .streams import Response, respond, stream

logger = logging.getLogger(__name__)

Headers = Mapping[str, str]
View = Callable[[HttpRequest], Coroutine[Any, Any, Response]]

SESSION_HEADER = "Mcp-Session-Id"
LAST_EVENT_HEADER = "Last-Event-ID"
REPLAYED_HEADER = "Idempotency-Replayed"

VERSION_WITH_BATCHES = "2025-03-26"


def patterns(site: Site) -> list[URLPattern]:
    """The URL pattern of a site: the one view with and without a trailing slash."""
    return [re_path(r"^(?:/)?\Z", make_view(site), name="endpoint")]


def make_view(site: Site) -> View:
    """The view of a site.

    No CSRF token and no login page: a caller signs in by the ``Authorization`` header of each request. No transaction
    around it: a claim has to be visible to others before the request ends.
    """

    @csrf_exempt
    async def endpoint(request: HttpRequest) -> Response:
        if not origins.is_allowed(request):
            return HttpResponse(status=403)
        # Under WSGI an open stream would keep a worker for itself.
        answers = {"POST": _answer, "GET": _open_stream} if isinstance(request, ASGIRequest) else {"POST": _answer}
        answer_to = answers.get(str(request.method))
        if answer_to is None:
            return HttpResponseNotAllowed(answers)
        try:
            return await respond(request, lambda outlet: answer_to(site, request, outlet))
        except StoreUnavailable as error:
            logger.warning("A stream could not be resumed, or an answer not be passed on. %s", error)
            return HttpResponse(status=503)

    endpoint.login_required = False  # type: ignore[attr-defined]  # read by LoginRequiredMiddleware
    for alias in settings.DATABASES:
        endpoint = non_atomic_requests(using=alias)(endpoint)
    return endpoint


async def _open_stream(site: Site, request: HttpRequest, outlet: Outlet) -> Response:
    """Tell a client of the handshake versions of changes, or what followed the last event of a stream that it lost."""
    try:
        caller = await sync_to_async(authenticate)(request)
    except Unauthenticated as refused:
        return _unauthorized(refused)
    headers = _headers(request)
    if headers.get(MCP_PROTOCOL_VERSION_HEADER, LATEST_HANDSHAKE_VERSION) not in HANDSHAKE_PROTOCOL_VERSIONS:
        return HttpResponseNotAllowed(["POST"])
    if not outlet.is_live:
        return HttpResponse(status=406)
    last_event_id = headers.get(LAST_EVENT_HEADER.lower())
    if last_event_id is not None:
        resumed = Resumed(caller, site.name, last_event_id)
        return stream(resumed) if await resumed.exists() else HttpResponse(status=404)
    subscription = subscription_of_session(site, headers.get(SESSION_HEADER.lower()))
    return stream(Listening(request, subscription, last=None))


async def _answer(site: Site, request: HttpRequest, outlet: Outlet) -> Response:
    try:
        caller, body = await sync_to_async(_receive)(request)
    except Unauthenticated as refused:
        return _unauthorized(refused)
    except RequestDataTooBig:
        return HttpResponse(status=413)
    if request.content_type != "application/json":
        return HttpResponse(status=415)
    if not request.accepts("application/json"):
        return HttpResponse(status=406)
    headers = _headers(request)
    try:
        message = jsontext.parse(body, max_values=get_settings().MESSAGE_MAX_VALUES)
    except jsontext.ParseError as error:
        return _rejected(None, ErrorData(code=PARSE_ERROR, message=f"The body is not valid JSON: {error}"))
    session = headers.get(SESSION_HEADER.lower())
    visit = Visit(caller=caller, request=request, session=session, can_listen=outlet.is_live)
    post = _Post(site=site, request=request, visit=visit, headers=headers, outlet=outlet)
    if _is_of_a_handshake_version(message, headers):
        response: Response = await _answer_handshake(post, message)
    else:
        response = await _answer_modern(post, message)
    if visit.replay_of is not None:
        response[REPLAYED_HEADER] = "true"
    return response


def _headers(request: HttpRequest) -> Headers:
    # Some servers leave the white space around a value, which is no part of it.
    return {name.lower(): value.strip() for name, value in request.headers.items()}


def _receive(request: HttpRequest) -> tuple[Caller, bytes]:
    caller = authenticate(request)
    return caller, request.body


@dataclass(frozen=True, kw_only=True)
class _Post:
    """A POST, and all that its answer needs but the message.

    Attributes:
        site: The site.
        request: The POST itself.
        visit: Who sent it.
        headers: Its headers, in lower case and stripped.
        outlet: Where what comes before the answer goes.
    """

    site: Site
    request: HttpRequest
    visit: Visit
    headers: Headers
    outlet: Outlet

    async def serve(self, request: JSONRPCRequest, connection: Connection, *, ask: Ask | None = None) -> Reply:
        """Have one of its requests answered."""
        return await serve(
            self.site,
            self.visit,
            request_id=request.id,
            method=request.method,
            params=request.params,
            connection=connection,
            transport=TransportContext(kind="streamable-http", can_send_request=ask is not None, headers=self.headers),
            outlet=self.outlet,
            ask=ask,
        )

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> JSON:
        """Ask the client in mid-call."""
        seconds = get_settings().MAX_RUNTIME.total_seconds()
        question = Question(self.visit.caller, self.site.name)
        return await question.ask(method, params, outlet=self.outlet, seconds=seconds)

    def connection(self) -> Connection:
        """What is known of a client of the handshake versions."""
        return connection_of(self.visit.session, self.headers.get(MCP_PROTOCOL_VERSION_HEADER))

    def record(self) -> None:
        """Keep its events for a client of the handshake versions that may lose them."""
        if self.outlet.is_live:
            primes = takes_priming(self.visit.session, self.headers.get(MCP_PROTOCOL_VERSION_HEADER))
            self.outlet.recording = Recording(self.visit.caller, self.site.name, primes=primes)


def _is_of_a_handshake_version(message: Any, headers: Headers) -> bool:
    version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
    if version is not None:
        return version in HANDSHAKE_PROTOCOL_VERSIONS
    # Without the header it is, unless it says another version of itself: then the header is what is missing.
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return not (isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta)


async def _answer_modern(post: _Post, message: Any) -> Response:
    """Answer a request that says all about itself (2026-07-28)."""
    if _is_notification(message):
        unsupported = unsupported_protocol_version_rejection(post.headers.get(MCP_PROTOCOL_VERSION_HEADER, ""))
        return HttpResponse(status=202) if unsupported is None else _rejected(None, _error_data(unsupported))
    request = _request(message)
    if request is None:
        return _rejected(None, _NOT_ONE_REQUEST)
    route = classify_inbound_request(message, headers=post.headers)
    if isinstance(route, InboundLadderRejection):
        return _rejected(request.id, _error_data(route))
    mismatch = _parameter_mismatch(post.site, request, post.headers)
    if mismatch is not None:
        return _rejected(request.id, _error_data(mismatch))
    connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
    reply = await post.serve(request, connection)
    if post.visit.subscription is not None:
        return stream(Listening(post.request, post.visit.subscription, last=reply.message))
    # At 400 and above the TypeScript clients lose an error's data, which a refused caller needs.
    return _json(reply.message, status=200 if reply.refused else _status(reply))


async def _answer_handshake(post: _Post, message: Any) -> HttpResponse:
    """Answer a request of a version that began with ``initialize`` (2025-03-26 to 2025-11-25)."""
    if isinstance(message, list):
        return await _answer_batch(post, message)
    if _is_notification(message):
        return HttpResponse(status=202)
    if _is_response(message):
        await sync_to_async(answer)(post.visit.caller, post.site.name, message)
        return HttpResponse(status=202)
    request = _request(message)
    if request is None:
        return _rejected(None, _NOT_ONE_REQUEST)
    if request.method == "initialize":
        return await _answer_initialize(post, request)
    post.record()
    reply = await post.serve(request, post.connection(), ask=post.ask if post.outlet.is_live else None)
    return _json(reply.message, status=200)


async def _answer_initialize(post: _Post, request: JSONRPCRequest) -> HttpResponse:
    connection = Connection.from_envelope(LATEST_HANDSHAKE_VERSION, None, None)
    reply = await post.serve(request, connection)
    response = _json(reply.message, status=200)
    if reply.error_code is None:
        response[SESSION_HEADER] = session_id(connection)
    return response


async def _answer_batch(post: _Post, messages: list[Any]) -> HttpResponse:
    """Answer several messages at once, one after the other, which 2025-03-26 alone knows."""
    connection = post.connection()
    if connection.protocol_version != VERSION_WITH_BATCHES or not messages:
        return _rejected(None, _NOT_ONE_REQUEST)
    replies = []
    for message in messages:
        if _is_notification(message) or _is_response(message):
            continue
        request = _request(message)
        if request is None or request.method == "initialize":
            replies.append(error_reply(None if request is None else request.id, _NOT_IN_A_BATCH).message)
        else:
            # What is noted of one answer is not true of the next.
            alone = replace(post, visit=replace(post.visit), outlet=no_outlet())
            replies.append((await alone.serve(request, connection)).message)
    return _json(replies, status=200) if replies else HttpResponse(status=202)


def _parameter_mismatch(site: Site, request: JSONRPCRequest, headers: Headers) -> InboundLadderRejection | None:
    """Where an ``Mcp-Param-*`` header says something else than the argument it mirrors."""
    params = request.params or {}
    name, arguments = params.get("name"), params.get("arguments", {})
    schema_of = get_server(site).get_tool_input_schema
    if request.method != "tools/call" or schema_of is None:
        return None
    if not isinstance(name, str) or not isinstance(arguments, dict) or (schema := schema_of(name)) is None:
        return None
    return validate_mcp_param_headers(schema, arguments, headers)


_NOT_ONE_REQUEST = ErrorData(
    code=INVALID_REQUEST, message="The body must be one JSON-RPC request or notification object."
)
_NOT_IN_A_BATCH = ErrorData(
    code=INVALID_REQUEST, message="A batch may hold JSON-RPC requests, but initialize, and notifications."
)


def _request(message: Any) -> JSONRPCRequest | None:
    try:
        return JSONRPCRequest.model_validate(message)
    except ValidationError:
        return None


def _is_notification(message: Any) -> bool:
    if not isinstance(message, dict) or "id" in message:
        return False
    try:
        JSONRPCNotification.model_validate(message)
    except ValidationError:
        return False
    return True


def _is_response(message: Any) -> bool:
    return isinstance(message, dict) and "method" not in message and ("result" in message or "error" in message)


def _error_data(rejection: InboundLadderRejection) -> ErrorData:
    return ErrorData(code=rejection.code, message=rejection.message, data=rejection.data)


def _rejected(request_id: int | str | None, error: ErrorData) -> HttpResponse:
    reply = error_reply(request_id, error)
    return _json(reply.message, status=_status(reply))


def _status(reply: Reply) -> int:
    return 200 if reply.error_code is None else ERROR_CODE_HTTP_STATUS.get(reply.error_code, 200)


def _json(message: JSON | list[JSON], *, status: int) -> HttpResponse:
    body = jsontext.write_message(message)
    response = HttpResponse(body, content_type="application/json", status=status)
    response["Cache-Control"] = "no-store"
    return response


def _unauthorized(refused: Unauthenticated) -> HttpResponse:
    challenge = 'Bearer realm="mcp"'
    if refused.presented:
        challenge += ', error="invalid_token", error_description="The token is unknown, expired or revoked."'
    return HttpResponse(status=401, headers={"WWW-Authenticate": challenge, "Cache-Control": "no-store"})
