"""The fixtures that the official conformance suite asks a server for."""

from __future__ import annotations

import base64
import json
import time
from typing import Annotated, Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    ContentBlock,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import Field

from django_mcp_idem import RequestContext, ToolContext, ToolError, prompt, resource, site, tool

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

IMAGE = ImageContent(data=PNG, mime_type="image/png")

Answer = str | InputRequiredResult
Context = ToolContext | RequestContext


def elicit(message: str, required: tuple[str, ...] = (), **properties: dict[str, Any]) -> ElicitRequest:
    """A question to the person."""
    schema = {"type": "object", "properties": properties, "required": list(required or properties)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(prompt: str, max_tokens: int = 100) -> CreateMessageRequest:
    """A question to the client's model."""
    message = SamplingMessage(role="user", content=TextContent(text=prompt))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=max_tokens))


TEXT = {"type": "string"}
USER_NAME = elicit("What is your name?", name=TEXT)
CONFIRM = elicit("Please confirm", ok={"type": "boolean"})


@tool
def test_simple_text() -> TextContent:
    """Answer with a text."""
    return TextContent(text="This is a simple text response for testing.")


@tool
def test_image_content() -> ImageContent:
    """Answer with an image."""
    return IMAGE


@tool
def test_audio_content() -> AudioContent:
    """Answer with a sound."""
    return AudioContent(data=WAV, mime_type="audio/wav")


@tool
def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource."""
    return _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@tool
def test_multiple_content_types() -> list[ContentBlock]:
    """Answer with several kinds of content."""
    text = TextContent(text="Multiple content types test:")
    data = json.dumps({"test": "data", "value": 123}, separators=(",", ":"))
    return [text, IMAGE, _embedded("test://mixed-content-resource", "application/json", data)]


def _embedded(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


@tool
def test_error_handling() -> None:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool
def test_tool_with_progress(ctx: ToolContext) -> str:
    """Report progress."""
    for progress in (0, 50, 100):
        ctx.report_progress(progress, 100)
        time.sleep(0.05)
    return "Done."


@tool
def test_tool_with_logging(ctx: ToolContext) -> str:
    """Send log messages."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log("info", text)
        time.sleep(0.05)
    return "Done."


@tool
def test_logging_tool(ctx: ToolContext) -> str:
    """Send a log message to those who ask for it."""
    ctx.log("info", "Called.")
    return "Done."


@tool
def test_x_mcp_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "",  # noqa: PT028
) -> str:
    """Take an argument that is mirrored in a header."""
    return f"Region: {region}"


# What type hints do not say: an anchor, conditions, and members of which one has to be there.
CONTACT: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool(input_schema=CONTACT)
def json_schema_2020_12_tool(contact: dict[str, Any]) -> str:
    """Take what a schema describes that was written by hand."""
    return f"Contact: {contact}"


@tool
def test_input_required_result_elicitation(ctx: ToolContext) -> Answer:
    """Ask for a name."""
    content = _content(ctx, "user_name")
    if not isinstance(content.get("name"), str):
        return InputRequiredResult(input_requests={"user_name": USER_NAME})
    return f"Hello, {content['name']}!"


@tool
def test_input_required_result_sampling(ctx: ToolContext) -> Answer:
    """Ask the client's model."""
    if not _answered(ctx, "capital_question"):
        return InputRequiredResult(input_requests={"capital_question": sample("What is the capital of France?")})
    return f"The model says: {_answers(ctx)['capital_question']}"


@tool
def test_input_required_result_list_roots(ctx: ToolContext) -> Answer:
    """Ask for the roots."""
    if not _answered(ctx, "client_roots"):
        return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})
    roots = _answers(ctx)["client_roots"]["roots"]
    return f"Roots: {', '.join(root['uri'] for root in roots)}"


@tool
def test_input_required_result_request_state(ctx: ToolContext) -> Answer:
    """Ask for a confirmation, and remember."""
    if not _answered(ctx, "confirm") or ctx.request_state != "confirming":
        return InputRequiredResult(input_requests={"confirm": CONFIRM}, request_state="confirming")
    return "state-ok"


@tool
def test_input_required_result_tampered_state(ctx: ToolContext) -> Answer:
    """Ask for a confirmation whose state nobody can change."""
    return test_input_required_result_request_state(ctx)


@tool
def test_input_required_result_multiple_inputs(ctx: ToolContext) -> Answer:
    """Ask for three things at once."""
    asked = {
        "user_name": USER_NAME,
        "greeting": sample("Generate a greeting", 50),
        "client_roots": ListRootsRequest(),
    }
    if not all(_answered(ctx, name) for name in asked):
        return InputRequiredResult(input_requests=asked, request_state="three questions")
    return "Answered."


@tool
def test_input_required_result_multi_round(ctx: ToolContext) -> Answer:
    """Ask twice."""
    if ctx.request_state is None:
        asked = {"step1": elicit("Step 1: What is your name?", name=TEXT)}
        return InputRequiredResult(input_requests=asked, request_state=json.dumps({}))
    state = json.loads(ctx.request_state)
    if "name" not in state:
        asked = {"step2": elicit("Step 2: What is your favorite color?", color=TEXT)}
        state["name"] = _content(ctx, "step1").get("name")
        return InputRequiredResult(input_requests=asked, request_state=json.dumps(state))
    return f"{state['name']} likes {_content(ctx, 'step2').get('color')}."


@tool
def test_input_required_result_capabilities(ctx: ToolContext) -> Answer:
    """Ask only for what the client supports."""
    supported = ctx.client_capabilities
    asked: dict[str, Any] = {}
    if supported is not None and supported.elicitation is not None:
        asked["user_name"] = USER_NAME
    if supported is not None and supported.sampling is not None:
        asked["greeting"] = sample("Generate a greeting", 50)
    return InputRequiredResult(input_requests=asked)


@tool
def test_missing_capability(ctx: ToolContext) -> str:
    """Need a client that supports sampling."""
    if ctx.client_capabilities is None or ctx.client_capabilities.sampling is None:
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            "This takes a client that supports sampling.",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return "Done."


@tool
def test_streaming_elicitation(ctx: ToolContext) -> Answer:
    """Report progress, then ask."""
    ctx.report_progress(1)
    if not _answered(ctx, "user_name"):
        return InputRequiredResult(input_requests={"user_name": USER_NAME})
    return "Done."


def _answers(ctx: Context) -> dict[str, Any]:
    return dict(ctx.input_responses or {})


def _answered(ctx: Context, name: str) -> bool:
    return isinstance(_answers(ctx).get(name), dict)


def _content(ctx: Context, name: str) -> dict[str, Any]:
    answer = _answers(ctx).get(name)
    content = answer.get("content") if isinstance(answer, dict) else None
    return content if isinstance(content, dict) else {}


@tool
def test_sampling(ctx: ToolContext, prompt: str) -> Answer:
    """Ask the client's model, in mid-call."""
    if not _answered(ctx, "answer"):
        return InputRequiredResult(input_requests={"answer": sample(prompt)})
    return f"LLM response: {_answers(ctx)['answer']['content']['text']}"


@tool
def test_elicitation(ctx: ToolContext, message: str) -> Answer:
    """Ask the person, in mid-call."""
    username = {"type": "string", "description": "The name of the user"}
    email = {"type": "string", "description": "The address of the user"}
    return _elicited(ctx, elicit(message, username=username, email=email))


@tool
def test_elicitation_sep1034_defaults(ctx: ToolContext) -> Answer:
    """Ask with defaults."""
    question = elicit(
        "Please check your details",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return _elicited(ctx, question)


@tool
def test_elicitation_sep1330_enums(ctx: ToolContext) -> Answer:
    """Ask for choices."""
    names = ["one", "two", "three"]
    titled = [{"const": name, "title": name.title()} for name in names]
    question = elicit(
        "Please choose",
        untitledSingle={"type": "string", "enum": names},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", "enum": names, "enumNames": [name.title() for name in names]},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": names}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    return _elicited(ctx, question)


def _elicited(ctx: ToolContext, question: ElicitRequest) -> Answer:
    if not _answered(ctx, "details"):
        return InputRequiredResult(input_requests={"details": question})
    return f"User response: {json.dumps(_answers(ctx)['details'])}"


@tool
def test_reconnection(ctx: ToolContext) -> str:
    """Let the client hang up and come back for the result."""
    ctx.close_sse_stream()
    time.sleep(0.2)
    return "Reconnection test completed"


@tool
def test_trigger_tool_change() -> str:
    """Announce that the list of tools has changed."""
    site.notify_tools_changed()
    return "Announced."


@tool
def test_trigger_prompt_change() -> str:
    """Announce that the list of prompts has changed."""
    site.notify_prompts_changed()
    return "Announced."


@resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image."""
    return base64.b64decode(PNG)


@resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """What a client can subscribe to."""
    return "This is the content of the watched resource."


@resource("test://template/{id}/data")
def template(id: str) -> dict[str, Any]:  # noqa: A002
    """Data for an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


def complete_first(typed: str) -> list[str]:
    return [word for word in ("test", "testing", "other") if word.startswith(typed)]


@prompt(completions={"arg1": complete_first})
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[ContentBlock | str]:  # noqa: N803
    """A prompt with a resource in it."""
    embedded = _embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
    return [embedded, "Please process the embedded resource above."]


@prompt
def test_prompt_with_image() -> list[ContentBlock | str]:
    """A prompt with an image in it."""
    return [IMAGE, "Please analyze the image above."]


@prompt
def test_input_required_result_prompt(ctx: RequestContext) -> Answer:
    """A prompt that asks before it speaks."""
    if not _answered(ctx, "user_context"):
        question = elicit("What context should the prompt use?", context=TEXT)
        return InputRequiredResult(input_requests={"user_context": question})
    return f"Use this context: {_content(ctx, 'user_context').get('context')}"
